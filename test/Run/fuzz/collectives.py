#===- collectives.py - Starts and waits of collectives -----------------------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# A start computes its values at once and writes its destinations: a legal program cannot see that this is early.
#
#===---------------------------------------------------------------------------------------------------------------===#

import numpy as np

from .scope import Flight, Value
from .shapes import future_text, reduce_ranks, types_text
from .tree import Step, each

LARGEST = 9000  # elements of a value that a collective makes
KINDS = ["all_gather", "all_gather", "all_reduce", "all_reduce", "all_reduce", "reduce_scatter", "all_to_all", "broadcast",
         "reduce", "gather", "scatter", "permute", "barrier"]


def outcome(kind, how, inputs, element):
    """What each member of one group gets; None if it gets nothing. `inputs`: by member."""
    members, root, dim = len(inputs), how["root"], how["dim"]
    if kind == "all_gather":
        return [np.concatenate(inputs, dim)] * members
    if kind == "all_reduce":
        return [reduce_ranks(how["reduction"], inputs, element)] * members
    if kind == "reduce_scatter":
        return np.split(reduce_ranks(how["reduction"], inputs, element), members, dim)
    if kind == "all_to_all":
        pieces = [np.split(array, members, dim) for array in inputs]
        return [np.concatenate([pieces[j][i] for j in range(members)], how["concat"]) for i in range(members)]
    if kind == "broadcast":
        return [inputs[root]] * members
    if kind == "scatter":
        return np.split(inputs[root], members, dim)
    if kind == "permute":
        given = [np.zeros_like(inputs[0]) for _ in range(members)]
        for source, target in how["pairs"]:
            given[target] = inputs[source]
        return given
    full = reduce_ranks(how["reduction"], inputs, element) if kind == "reduce" else np.concatenate(inputs, dim)
    return [full if member == root else None for member in range(members)]


def shape_after(kind, shape, members, dim, concat):
    if kind in ("all_gather", "gather"):
        return tuple(size * members if i == dim else size for i, size in enumerate(shape))
    if kind in ("reduce_scatter", "scatter"):
        return tuple(size // members if i == dim else size for i, size in enumerate(shape))
    if kind == "all_to_all":
        return tuple(size // (members if i == dim else 1) * (members if i == concat else 1)
                     for i, size in enumerate(shape))
    return shape


def start_action(kind, how, inputs, elements, dests, future, group):
    def action(state, env, active):
        env[future] = each(state, active, lambda rank: [None] * len(inputs))
        for members in state.groups[group]:
            taking = [rank for rank in members if rank in active]
            if not taking:
                continue
            assert taking == list(members), "a branch splits a group"
            given = [outcome(kind, how, [env[name][rank].copy() for rank in members], element)
                     for name, element in zip(inputs, elements)]
            for i, values in enumerate(given):
                for rank, value in zip(members, values):
                    if not dests:
                        env[future][rank][i] = np.array(value)
                    elif value is not None:
                        env[dests[i]][rank][...] = value
        if dests:
            for rank in active:
                env[future][rank] = [env[name][rank] for name in dests]
    return action


class Collectives:
    """The part of the generator that starts and waits."""

    def group(self):
        return self.rng.choice(self.allowed_groups)

    def collective(self, out, memory=None, kind=None):
        rng = self.rng
        group = self.group()
        members = len(self.groups[group][0])
        covers = sum(map(len, self.groups[group])) == self.ranks
        kind = kind or rng.choice(KINDS)
        memory = rng.random() < self.memory_share if memory is None else memory
        how = {"reduction": rng.choice(["sum", "sum", "max", "min"]), "root": rng.randrange(members),
               "dim": rng.choice([0, 0, 0, 1]), "concat": rng.choice([0, 0, 1]), "pairs": []}
        if kind == "permute":
            targets = list(range(members))
            rng.shuffle(targets)
            how["pairs"] = [(i, targets[i]) for i in range(members) if rng.random() < 0.8]
        if kind == "barrier":
            return self.barrier(out, group)
        inputs, dests = [], []
        is_in_place = kind in ("all_reduce", "broadcast") and rng.random() < 0.35
        must_write = memory or kind in ("reduce", "gather") or not covers
        wants = must_write or (is_in_place or rng.random() < 0.3)
        pure = not memory and not wants and rng.random() < 0.6
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            value = self.pick(lambda v: self.is_input(v, memory, kind, how, members, inputs, dests))
            if not value:
                break
            dest = None
            if wants:
                shape = shape_after(kind, value.type.shape, members, how["dim"], how["concat"])
                dest = self.destination(out, value, shape, is_in_place, inputs, dests,
                                        is_read=kind in ("reduce", "gather") or not covers)
                if not dest:
                    break
                dests.append(dest)
            inputs.append(value)
        if not inputs:
            return None
        types = [dest.type for dest in dests] or [
            value.type if value.type.dynamic else value.type.with_shape(
                shape_after(kind, value.type.shape, members, how["dim"], how["concat"])) for value in inputs]
        return self.start(out, kind, how, group, inputs, dests, types, pure)

    def is_input(self, value, memory, kind, how, members, inputs, dests):
        type_ = value.type
        if type_.memory != memory or not self.scope.may_read(value):
            return False
        if type_.dynamic and kind not in ("all_reduce", "broadcast", "permute"):
            return False
        if max(how["dim"], how["concat"]) >= len(type_.shape) or type_.size * members > LARGEST:
            return False
        if kind in ("reduce_scatter", "scatter", "all_to_all") and type_.shape[how["dim"]] % members:
            return False
        return not any(value.bases & dest.bases for dest in dests)

    def destination(self, out, value, shape, is_in_place, inputs, dests, is_read):
        """Where a result goes: the input itself, a value that is there, or a new one. None if there is none."""
        others = inputs + dests
        is_free = lambda v: self.scope.may_write(v) and not any(v.bases & other.bases for other in others)
        # A tensor that a start writes has no value of its own any more: only one that this block made is taken.
        is_ours = lambda v: v.type.memory or (v.level == self.scope.level and v.is_owned)
        if is_in_place and is_free(value) and is_ours(value):
            return value
        if value.type.dynamic:
            return None
        type_ = value.type.with_shape(shape)
        if self.rng.random() < 0.6:
            dest = self.pick(lambda v: v.type == type_ and v.bases.isdisjoint(value.bases) and is_free(v) and is_ours(v))
            if dest:
                return dest
        if type_.memory:
            return self.new_buffer(out, type_, is_read or self.rng.random() < 0.5)
        return self.new_storage(out, type_, is_read or self.rng.random() < 0.5)

    def start(self, out, kind, how, group, inputs, dests, types, pure):
        future = self.name("f")
        names, given = [v.name for v in inputs], [v.name for v in dests]
        head = kind + (f" {how['reduction']}" if "reduce" in kind else "")
        into = f" into {', '.join(given)}" if dests else ""
        tail = {"all_gather": f" dim {how['dim']}", "reduce_scatter": f" dim {how['dim']}",
                "all_to_all": f" split {how['dim']} concat {how['concat']}", "broadcast": f" root {how['root']}",
                "reduce": f" root {how['root']}", "gather": f" root {how['root']} dim {how['dim']}",
                "scatter": f" root {how['root']} dim {how['dim']}",
                "permute": f" pairs [{', '.join(f'{i}, {j}' for i, j in how['pairs'])}]"}.get(kind, "")
        text = (f"{future} = comm.{head} {', '.join(names)}{into} on {group}{tail}{self.cost()} : "
                f"({types_text(v.type for v in inputs)}) -> {future_text(types)}")
        action = start_action(kind, how, names, [v.type.element for v in inputs], given, future, group)
        out.append(Step(text, action, [future], names + given))
        level = self.scope.level
        results = [Value(None, type_, dest.bases if dest else [self.scope.base()], level, written=not pure and
                         not type_.memory, is_writable=not dest or dest.is_writable, is_owned=not type_.memory)
                   for type_, dest in zip(types, dests or [None] * len(types))]
        kept = list(dict.fromkeys((v.name, v.type) for v in inputs + dests if v.type.memory))
        # Nothing but its waits gives access to storage that a start allocates.
        flight = Flight(future, results, [b for v in inputs for b in v.bases], [b for v in dests for b in v.bases], kept,
                        level)
        tensors = frozenset(b for v in dests if not v.type.memory for b in v.bases)
        self.scope.forget(tensors)
        self.scope.flights.append(flight)
        if self.rng.random() < 0.35:
            self.wait(out, flight)
        return flight

    def barrier(self, out, group):
        future = self.name("f")
        out.append(Step(f"{future} = comm.barrier on {group}{self.cost()} : () -> !comm.future<>", None, [future]))
        self.scope.flights.append(Flight(future, [], [], [], [], self.scope.level))

    def wait(self, out, flight, is_last=True):
        """Waits, for good or once more. A wait in an inner block is never the last one."""
        names = [self.name("w") for _ in flight.results]
        types = [v.type for v in flight.results]
        printed = [names[0]] if len(names) == 1 else [f"{names[0]}#{i}" for i in range(len(names))]
        left = "" if not names else f"{names[0]} = " if len(names) == 1 else f"{names[0]}:{len(names)} = "
        keeping = ""
        if flight.keep:
            keeping = (f" keeping ({', '.join(name for name, _ in flight.keep)} : "
                       f"{types_text(type_ for _, type_ in flight.keep)})")
        future = flight.future

        def action(state, env, active):
            for i, name in enumerate(printed):
                env[name] = each(state, active, lambda rank: env[future][rank][i])
        out.append(Step(f"{left}comm.wait {future}{keeping} : {future_text(types)}", action, printed,
                        [future, *(name for name, _ in flight.keep)]))
        if is_last:
            self.scope.flights.remove(flight)
        waited = []
        for name, value in zip(printed, flight.results):
            new = Value(name, value.type, value.bases, self.scope.level, value.written, value.is_writable, value.is_owned and
                        is_last)
            waited.append(new)
            # After a wait that is not the last one the storage still counts as in flight.
            if is_last or not value.written:
                self.scope.add(new)
        return waited

    def some_wait(self, out):
        own = [flight for flight in self.scope.flights if flight.level == self.scope.level]
        if own and self.rng.random() < 0.8:
            self.wait(out, self.rng.choice(own))
        elif self.scope.flights and not self.is_split:
            flight = self.rng.choice(self.scope.flights)
            # A future of symbolic sizes does not leave its block.
            if flight.level == self.scope.level or not any(v.type.dynamic for v in flight.results):
                self.wait(out, flight, is_last=False)

    def wait_all(self, out, level):
        for flight in reversed([f for f in self.scope.flights if f.level == level]):
            self.wait(out, flight)

    def uniform(self, out, modulus):
        """A number of type index below `modulus` that a sum of all ranks gives."""
        value = self.pick(lambda v: not v.type.memory and not v.written and v.type.element in ("i32", "i64") and
                          len(v.type.shape) == 1 and v.type.size and not v.type.dynamic)
        name, future, waited, source = (self.name(p) for p in "ufwd")
        uses, type_ = [], "tensor<1xi64>"
        lines = []
        if value:
            source, type_, uses = value.name, str(value.type), [value.name]
        else:
            lines.append(f"{source} = arith.constant dense<{self.rng.randint(0, 9)}> : tensor<1xi64>")
        element = value.type.element if value else "i64"
        constant = int(lines[0].split("<")[1].split(">")[0]) if lines else 0
        lines += [f"{future} = comm.all_reduce max {source} on @world : ({type_}) -> !comm.future<{type_}>",
                  f"{waited} = comm.wait {future} : !comm.future<{type_}>",
                  f"{name}a = tensor.extract {waited}[%c0] : {type_}",
                  f"{name}b = arith.extsi {name}a : i32 to i64" if element == "i32" else
                  f"{name}b = arith.addi {name}a, {name}a : i64",
                  f"{name}m = arith.constant {modulus} : i64", f"{name}r = arith.remui {name}b, {name}m : i64",
                  f"{name} = arith.index_cast {name}r : i64 to index"]

        def action(state, env, active):
            largest = max(int(env[source][rank].ravel()[0]) for rank in active) if value else constant
            number = largest if element == "i32" else 2 * largest
            env[name] = each(state, active, lambda rank: (number % 2**64) % modulus)
        out.append(Step(lines, action, [name], uses))
        return name
