#===- joins.py - Values that passes and collectives may take for one storage --------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# Destinations that are values: crossed with the inputs, equal, and read afterwards by pure operations, which see the old
# contents (Rationale.md, rule 2). No operation with effects reads them, so each statement makes its own.
#
#===---------------------------------------------------------------------------------------------------------------===#

from .collectives import outcome
from .scope import Flight, Value
from .shapes import combine, future_text, types_text
from .tree import Step, each
from .values import ones, offsets, sizes

JOINS_SHARE = 0.3  # of programs, so that the others stay as they were


class Joins:
    """The part of the generator that makes one storage of several values."""

    def whole_insert(self, out):
        """A value in the place of all of another one: folds to its source."""
        source = self.pick_pure(lambda v: not v.type.dynamic and v.type.size)
        if not source:
            return
        given = self.pick_pure(lambda v: v.type == source.type)
        result = self.new_tensor(source.type)
        n, x, y, rank = result.name, source.name, given.name, len(source.type.shape)
        out.append(Step(f"{n} = tensor.insert_slice {x} into {y}{offsets(0, rank)} {sizes(source.type.shape)} {ones(rank)} : "
                        f"{source.type} into {source.type}", lambda state, env, active: env.__setitem__(
                            n, each(state, active, lambda rank: env[x][rank].copy())), [n], [x, y]))

    def crossed(self, out):
        """An all-reduce, or a broadcast, of two values into each other or into one of them."""
        first = self.pick(lambda v: not v.type.memory and not v.type.dynamic and v.type.size and self.scope.may_read(v))
        second = first and self.pick(lambda v: v.type == first.type and self.scope.may_read(v))
        group = self.covering_group()
        if not second or not group:
            return
        # Values of this statement, whose storage nothing else names.
        a, b = (Value(self.name("v"), first.type, [self.scope.base()], self.scope.level) for _ in range(2))
        self.compute_step(out, "copy", first, first, a)
        self.compute_step(out, "copy", second, second, b)
        inputs = self.rng.choice([(a, b), (a, b), (a, a), (b, a)])
        dests = self.rng.choice([(b, a), (b, a), (a, b), (a, a), (b, b)])
        kind = self.rng.choice(["all_reduce", "all_reduce", "broadcast"])
        how = {"reduction": self.rng.choice(["sum", "max", "min"]), "root": 0, "dim": 0, "concat": 0}
        future, types = self.name("f"), [first.type] * 2
        head, tail = (f"{kind} {how['reduction']}", "") if kind == "all_reduce" else (kind, " root 0")
        names, into = [v.name for v in inputs], [v.name for v in dests]

        def action(state, env, active):
            env[future] = each(state, active, lambda rank: [None, None])
            for members in state.groups[group]:
                if members[0] not in active:
                    continue
                for i, name in enumerate(names):
                    given = outcome(kind, how, [env[name][rank].copy() for rank in members], first.type.element)
                    for rank, value in zip(members, given):
                        env[future][rank][i] = value.copy()
        out.append(Step(f"{future} = comm.{head} {', '.join(names)} into {', '.join(into)} on {group}{tail}{self.cost()} : "
                        f"({types_text(types)}) -> {future_text(types)}", action, [future], [*names, *into]))
        results = [Value(None, first.type, [self.scope.base()], self.scope.level) for _ in range(2)]
        flight = Flight(future, results, [], [], [], self.scope.level)
        self.scope.flights.append(flight)
        if self.rng.random() < 0.5:
            self.wait(out, flight)
        if self.rng.random() < 0.6:
            self.old_contents(out, a, b)

    def old_contents(self, out, a, b):
        """A pure operation reads the destinations behind the start."""
        result, type_ = self.new_tensor(a.type), a.type
        n, x, y = result.name, a.name, b.name
        lines = [f"{n}e = tensor.empty() : {type_}",
                 f"{n} = linalg.sub ins({x}, {y} : {type_}, {type_}) outs({n}e : {type_}) -> {type_}"]
        out.append(Step(lines, lambda state, env, active: env.__setitem__(n, each(
            state, active, lambda rank: combine("sub", env[x][rank], env[y][rank], type_.element))), [n], [x, y]))
