#===- parts.py - Parts of tensors, empty destinations, and messages in two branches -------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# What programs of another hand did and those of this generator did not.
#
#===---------------------------------------------------------------------------------------------------------------===#

from .collectives import start_action
from .scope import Flight, Value
from .shapes import future_text
from .tree import Step

PARTS_SHARE = 0.2  # of programs, so that the others stay as they were


class Parts:
    """The part of the generator that names parts of storage, and starts collectives into nothing."""

    def part(self, out):
        """Rows, every second row, or a column of storage: another name of a part of it, to read, write, view or pass on."""
        source = self.pick_storage(lambda v: not v.type.dynamic and v.type.size and v.type.shape[0] >= 2 and self.scope.may_read(v))
        if not source:
            return
        shape, rank = source.type.shape, len(source.type.shape)
        first, step = self.rng.choice([(0, 1), (1, 1), (0, 2)])
        count = (shape[0] - first + step - 1) // step if step > 1 or first else shape[0] - 1
        part_sizes = [count, *shape[1:]]
        starts, steps = [first] + [0] * (rank - 1), [step] + [1] * (rank - 1)
        if rank == 2 and shape[1] > 1 and self.rng.random() < 0.4:
            starts, part_sizes, steps = [0, self.rng.randrange(shape[1])], [shape[0], 1], [1, 1]
        result = self.new_tensor(source.type.with_shape(part_sizes), written=True, bases=source.bases)
        result.is_writable = source.is_writable
        n, x = result.name, source.name
        places = tuple(slice(a, a + (size - 1) * b + 1, b) for a, size, b in zip(starts, part_sizes, steps))
        out.append(Step(f"{n} = tensor.extract_slice {x}{starts} {part_sizes} {steps} : {source.type} to {result.type}",
                        lambda state, env, active: env.__setitem__(n, [
                            env[x][rank][places] if rank in active else None for rank in range(state.ranks)]), [n], [x]))

    def empty_start(self, out):
        """A collective into a tensor without contents: equal ones become one."""
        group = self.covering_group()
        value = self.pick(lambda v: not v.type.memory and not v.type.dynamic and v.type.size and self.scope.may_read(v))
        if not group or not value:
            return
        future, kind = self.name("f"), self.rng.choice(["all_reduce", "broadcast"])
        how = {"reduction": self.rng.choice(["sum", "max"]), "root": 0, "dim": 0, "concat": 0}
        head, tail = (f"all_reduce {how['reduction']}", "") if kind == "all_reduce" else (kind, " root 0")
        type_, x = value.type, value.name
        out.append(Step([f"{future}e = tensor.empty() : {type_}",
                         f"{future} = comm.{head} {x} into {future}e on {group}{tail}{self.cost()} : ({type_}) -> "
                         f"{future_text([type_])}"],
                        start_action(kind, how, [x], [type_.element], [], future, group), [future], [x]))
        result = Value(None, type_, [self.scope.base()], self.scope.level, self.rng.random() < 0.5, is_owned=True)
        self.scope.flights.append(Flight(future, [result], value.bases, [], [], self.scope.level))

    def two_branches(self, out):
        """The first member of each group sends in one branch, and the second one receives in another."""
        pairs = [g for g, groups in self.groups.items() if len(groups[0]) == 2 and sum(map(len, groups)) == self.ranks]
        value = self.pick_pure(lambda v: not v.type.dynamic)
        if not pairs or not value or self.is_split or not self.rank_name:
            return
        group = self.rng.choice(pairs)
        groups, type_, x = self.groups[group], value.type, value.name
        selector = self.mask(out, {members[0] for members in groups})
        result = self.new_tensor(type_)
        n, future = result.name, future_text([type_])
        lines = [f"scf.if {selector} {{", f"  {n}s = comm.send {x} on {group} peer 1{self.cost()} : ({type_}) -> !comm.future<>",
                 f"  comm.wait {n}s : !comm.future<>", "}", f"{n} = scf.if {selector} -> ({type_}) {{",
                 f"  scf.yield {x} : {type_}", "} else {", f"  {n}r = comm.recv on {group} peer 0 : () -> {future}",
                 f"  {n}w = comm.wait {n}r : {future}", f"  scf.yield {n}w : {type_}", "}"]

        def action(state, env, active):
            given = list(env[x])
            for first, second in groups:
                given[second] = env[x][first].copy()
            env[n] = given
        out.append(Step(lines, action, [n], [x, selector]))
