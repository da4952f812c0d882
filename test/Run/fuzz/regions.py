#===- regions.py - Branches and loops with results ----------------------------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# Results are tensors, memrefs and futures. What leaves a block is the storage that was yielded, not a copy.
#
#===---------------------------------------------------------------------------------------------------------------===#

from .collectives import start_action
from .scope import Flight, Value
from .shapes import future_text
from .tree import Region, Step, each


class Regions:
    """The part of the generator that nests."""

    def condition(self, out):
        """A number of type i1 that all ranks agree on, or that all ranks of a program agree on in fact."""
        n, kind = self.name("q"), self.rng.random()
        if self.controls and kind < 0.6:
            at, control = self.rng.randrange(4), self.controls
            out.append(Step([f"{n}l = memref.load {control}[%c{at}] : memref<4xi32>", f"{n} = arith.trunci {n}l : i32 to i1"],
                            lambda state, env, active: env.__setitem__(n, each(
                                state, active, lambda rank: bool(env[control][rank][at] & 1))), [n], [control]))
        elif kind < 0.8 and not self.is_split:
            number = self.uniform(out, 2)
            out.append(Step(f"{n} = arith.cmpi eq, {number}, %c1 : index", lambda state, env, active: env.__setitem__(
                n, each(state, active, lambda rank: env[number][rank] == 1)), [n], [number]))
        else:
            value = self.rng.random() < 0.5
            out.append(Step(f"{n} = arith.constant {str(value).lower()}", lambda state, env, active: env.__setitem__(
                n, each(state, active, lambda rank: value)), [n]))
        return n

    def count(self, out):
        """A number of iterations: its name."""
        if self.rng.random() < 0.4 and not self.is_split:
            return self.uniform(out, 3)
        return f"%c{self.rng.choice([0, 1, 2, 3])}"

    @staticmethod
    def number_of(env, name, active):
        return int(name[2:]) if name.startswith("%c") and name[2:].isdigit() else int(env[name][active[0]])

    def inner(self, least, most, given=()):
        """A block of random statements that sees `given`; and its values, and those it may yield of a type."""
        outer = list(self.scope.values)
        scalars = list(self.scalars)
        self.scope.enter()
        for value in given:
            self.scope.add(value)
        block = []
        for _ in range(self.rng.randint(least, most)):
            self.statement(block)
        self.wait_all(block, self.scope.level)
        self.scalars = scalars
        return block, outer

    def yielded(self, example, among=None):
        """A value of the block, or of an outer one, that may take the place of the example."""
        fits = [v for v in self.scope.values if v.type == example.type and v.written == example.written and
                (not v.type.memory or v.is_writable == example.is_writable) and
                (self.scope.may_read(v) or v.type.memory) and (among is None or v.bases <= among)]
        own = [v for v in fits if v.level == self.scope.level]
        return self.rng.choice(own if own and self.rng.random() < 0.7 else fits) if fits else None

    def joined(self, name, values):
        """The result of an operation that yields one of the values."""
        first = values[0]
        bases = frozenset().union(*(v.bases for v in values))
        is_owned = False
        return self.scope.add(Value(name, first.type, bases, self.scope.level, first.written,
                                    all(v.is_writable for v in values), is_owned))

    def example(self):
        return self.pick(lambda v: self.scope.may_read(v))

    def branch(self, out):
        """scf.if or scf.index_switch, with or without a result."""
        example = self.example() if self.rng.random() < 0.75 else None
        is_switch = self.rng.random() < 0.3
        selector = self.count(out) if is_switch else self.condition(out)
        self.branches(out, example, 3 if is_switch else 2, selector, is_switch)

    def branches(self, out, example, number, selector, is_switch, fill=None):
        blocks, yields, values = [], [], []
        keep = list(self.scope.values)
        gone = set()
        for _ in range(number):
            self.scope.values = list(keep)
            block, outer = self.inner(0, 4) if fill is None else fill()
            value = self.yielded(example) if example else None
            if example and not value:
                # What was to be yielded is gone: a fresh copy, which no one else has.
                value = self.replacement(block, example)
            values.append(value)
            self.scope.leave(outer)
            gone |= {v.name for v in outer} - {v.name for v in self.scope.values}
            blocks.append(block)
            yields.append([value.name] if value else [])
        self.scope.values = [v for v in keep if v.name not in gone]
        name = self.name("i") if example else None
        type_ = example.type if example else None
        end = lambda i: [f"  scf.yield {yields[i][0]} : {type_}"] if example else ["  scf.yield"] if is_switch else []
        left = f"{name} = " if example else ""
        if is_switch:
            head = f"{left}scf.index_switch {selector}{f' -> {type_}' if example else ''}"
            pieces = [[head, "case 0 {"], [*end(0), "}", "case 1 {"], [*end(1), "}", "default {"], [*end(2), "}"]]
        else:
            pieces = [[f"{left}scf.if {selector}{f' -> ({type_})' if example else ''} {{"], [*end(0), "} else {"],
                      [*end(1), "}"]]
        choose = self.number_of

        def action(state, env, active, blocks):
            sides = {}
            for rank in active:
                at = min(choose(env, selector, [rank]), 2) if is_switch else 0 if env[selector][rank] else 1
                sides.setdefault(at, []).append(rank)
            given = [None] * state.ranks
            for at, side in sorted(sides.items()):
                state.run(blocks[at], env, side)
                for rank in side if name else []:
                    given[rank] = env[yields[at][0]][rank]
            if name:
                env[name] = given
        uses = [] if selector[2:].isdigit() and selector.startswith("%c") else [selector]
        out.append(Region(pieces, blocks, action, [name] if name else [], uses, yields=[y for ys in yields for y in ys]))
        if name:
            self.joined(name, values)

    def replacement(self, block, example):
        if example.type.memory:
            return self.new_buffer(block, example.type._replace(layout=None, dynamic=frozenset())) \
                if example.type.is_plain else example
        return self.new_storage(block, example.type, True) if example.written else example

    def execute(self, out):
        """scf.execute_region."""
        example = self.example()
        if not example:
            return
        block, outer = self.inner(0, 4)
        value = self.yielded(example) or example
        self.scope.leave(outer)
        n, y = self.name("i"), value.name

        def action(state, env, active, blocks):
            state.run(blocks[0], env, active)
            env[n] = list(env[y])
        out.append(Region([[f"{n} = scf.execute_region -> {example.type} {{"], [f"  scf.yield {y} : {example.type}", "}"]],
                          [block], action, [n], [], yields=[y]))
        self.joined(n, [value])

    def alone(self, out):
        """Whole groups take one branch or the other, and meet among themselves only."""
        candidates = [g for g, groups in self.groups.items() if len(groups) > 1 and
                      sum(map(len, groups)) == self.ranks and g in self.allowed_groups]
        if not candidates or not self.rank_name:
            return
        group = self.rng.choice(candidates)
        chosen = {rank for members in self.groups[group] if self.rng.random() < 0.5 for rank in members}
        selector = self.mask(out, chosen)
        before = self.is_split, self.allowed_groups
        self.is_split, self.allowed_groups = True, list({group, "@single"} & set(self.groups))
        example = self.example() if self.rng.random() < 0.7 else None
        self.branches(out, example, 2, selector, False)
        self.is_split, self.allowed_groups = before

    def mask(self, out, chosen):
        """Whether the rank is one of those."""
        n, rank_name = self.name("q"), self.rank_name
        bits = sum(1 << rank for rank in chosen)
        out.append(Step([f"{n}m = arith.constant {bits} : i64", f"{n}r = tensor.extract {rank_name}[%c0] : tensor<1xi64>",
                         f"{n}s = arith.shrui {n}m, {n}r : i64", f"{n} = arith.trunci {n}s : i64 to i1"],
                        lambda state, env, active: env.__setitem__(n, each(state, active, lambda rank: rank in chosen)),
                        [n], [rank_name]))
        return n

    # -- loops

    def carried(self):
        """Values that a loop carries: their names and types inside, and which storage they may be."""
        inits = []
        # Loops carry values and buffers, and no tensor that is written.
        first = self.pick(lambda v: self.scope.may_read(v) and (v.type.memory or not v.written))
        if first:
            inits.append(first)
            other = self.pick(lambda v: v.type == first.type and v.written == first.written and self.scope.may_read(v) and
                              v.is_writable == first.is_writable)
            if other and self.rng.random() < 0.5:
                inits.append(other)
        inside = []
        for init in inits:
            bases = {self.scope.base()}
            for v in self.scope.values:
                if v.type == init.type and v.written == init.written:
                    bases |= v.bases
            # A base in flight may not be in what the body could write.
            inside.append(Value(self.name("t"), init.type, bases, self.scope.level + 1, init.written, init.is_writable))
        return inits, inside

    def loop_body(self, inits, inside, most):
        """A block, and what it yields for each carried value."""
        before = {base for v in inside for base in v.bases}
        last = self.scope.bases
        block, outer = self.inner(1, most, inside)
        swap = len(inside) == 2 and self.rng.random() < 0.5
        values = []
        for i, value in enumerate(inside):
            among = frozenset(before | set(range(last + 1, self.scope.bases + 1)))
            found = inside[1 - i] if swap else self.yielded(value, among)
            values.append(found if found and found.name in {v.name for v in self.scope.values} else value)
        self.scope.leave(outer)
        return block, values

    def for_loop(self, out):
        count = self.count(out)
        inits, inside = self.carried() if self.rng.random() < 0.8 else ([], [])
        is_affine = not inits and self.rng.random() < 0.4 and count.startswith("%c") and count[2:].isdigit()
        block, values = self.loop_body(inits, inside, 5)
        n, step = self.name("l"), self.name("x")
        names = [n] if len(inits) == 1 else [f"{n}#{i}" for i in range(len(inits))]
        types = ", ".join(str(v.type) for v in inits)
        left = "" if not inits else f"{n} = " if len(inits) == 1 else f"{n}:{len(inits)} = "
        pairs = ", ".join(f"{a.name} = {b.name}" for a, b in zip(inside, inits))
        carry = f" iter_args({pairs}) -> ({types})" if inits else ""
        head = f"affine.for {step} = 0 to {count[2:]} {{" if is_affine else \
            f"{left}scf.for {step} = %c0 to {count} step %c1{carry} {{"
        tail = [f"  scf.yield {', '.join(v.name for v in values)} : {types}"] if inits else []
        number_of = self.number_of
        start, body, after = [v.name for v in inits], [v.name for v in inside], [v.name for v in values]

        def action(state, env, active, blocks):
            current = [env[name] for name in start]
            for _ in range(number_of(env, count, active)):
                for name, value in zip(body, current):
                    env[name] = list(value)
                state.run(blocks[0], env, active)
                current = [list(env[name]) for name in after]
            for name, value in zip(names, current):
                env[name] = list(value)
        uses = start + ([] if count[2:].isdigit() and count.startswith("%c") else [count])
        out.append(Region([[head], [*tail, "}"]], [block], action, names, uses, body, after))
        for name, init, inner, value in zip(names, inits, inside, values):
            self.joined(name, [init, inner, value])

    def counted(self, out):
        """Of a scf.while: the number of iterations, and lists of at most one value that it carries, outside and inside."""
        if self.is_split:
            return None, [], []
        number = self.uniform(out, 3)
        inits, inside = self.carried()
        return number, inits[:1], inside[:1]

    def while_loop(self, out):
        number, inits, inside = self.counted(out)
        if not inits:
            return
        block, values = self.loop_body(inits, inside, 4)
        n, k, type_ = self.name("h"), self.name("k"), inits[0].type
        init, body, after = inits[0].name, inside[0].name, values[0].name
        head = [f"{n}:2 = scf.while ({k}a = {number}, {k}v = {init}) : (index, {type_}) -> (index, {type_}) {{",
                f"  {k}c = arith.cmpi ugt, {k}a, %c0 : index", f"  scf.condition({k}c) {k}a, {k}v : index, {type_}",
                "} do {", f"^bb0({k}d: index, {body}: {type_}):"]
        tail = [f"  {k}e = arith.subi {k}d, %c1 : index", f"  scf.yield {k}e, {after} : index, {type_}", "}"]

        def action(state, env, active, blocks):
            current = list(env[init])
            for _ in range(int(env[number][active[0]])):
                env[body] = current
                state.run(blocks[0], env, active)
                current = list(env[after])
            env[n + "#1"] = current
        out.append(Region([head, tail], [block], action, [n + "#1"], [number, init], [body], [after]))
        self.joined(n + "#1", [inits[0], inside[0], values[0]])

    # -- futures that leave a block

    def simple_start(self, block, value, group, kind):
        """The start of a collective on one tensor, whose future the caller yields."""
        future, how = self.name("f"), {"reduction": self.rng.choice(["sum", "max"]), "root": 0, "dim": 0, "concat": 0}
        head, tail = (f"{kind} {how['reduction']}", "") if kind == "all_reduce" else (kind, " root 0")
        block.append(Step(f"{future} = comm.{head} {value.name} on {group}{tail}{self.cost()} : ({value.type}) -> "
                          f"{future_text([value.type])}",
                          start_action(kind, how, [value.name], [value.type.element], [], future, group), [future],
                          [value.name]))
        return future

    def covering_group(self):
        groups = [g for g in self.allowed_groups if sum(map(len, self.groups[g])) == self.ranks]
        return self.rng.choice(groups) if groups else None

    def leave_future(self, name, value):
        result = Value(None, value.type, [self.scope.base()], self.scope.level)
        self.scope.flights.append(Flight(name, [result], [], [], [], self.scope.level))

    def branch_future(self, out):
        """Both branches start a collective, another one each, and give the future out."""
        example, group = self.pick_pure(lambda v: not v.type.dynamic), self.covering_group()
        if not example or not group:
            return
        selector, futures, blocks = self.condition(out), [], []
        for _ in range(2):
            block, outer = self.inner(0, 3)
            value = self.yielded(example) or example
            futures.append(self.simple_start(block, value, group, self.rng.choice(["all_reduce", "broadcast"])))
            self.scope.leave(outer)
            blocks.append(block)
        n, type_ = self.name("f"), future_text([example.type])

        def action(state, env, active, blocks):
            at = 0 if env[selector][active[0]] else 1
            state.run(blocks[at], env, active)
            env[n] = env[futures[at]]
        out.append(Region([[f"{n} = scf.if {selector} -> ({type_}) {{"], [f"  scf.yield {futures[0]} : {type_}", "} else {"],
                           [f"  scf.yield {futures[1]} : {type_}", "}"]], blocks, action, [n], [selector], yields=futures))
        self.leave_future(n, example)
        self.has_escape = True

    def pipeline(self, out):
        """A loop that waits for the collective of the iteration before and starts the next one."""
        example, group = self.pick_pure(lambda v: not v.type.dynamic), self.covering_group()
        if not example or not group:
            return
        first = self.simple_start(out, example, group, "all_reduce")
        n, carried, waited, step = self.name("f"), self.name("f"), self.name("w"), self.name("x")
        type_, count = future_text([example.type]), self.rng.choice([0, 1, 2, 3])
        outer, scalars = list(self.scope.values), list(self.scalars)
        self.scope.enter()
        wait = Step(f"{waited} = comm.wait {carried} : {type_}", lambda state, env, active: env.__setitem__(
            waited, each(state, active, lambda rank: env[carried][rank][0])), [waited], [carried])
        self.scope.add(Value(waited, example.type, [self.scope.base()], self.scope.level))
        block = [wait]
        for _ in range(self.rng.randint(0, 3)):
            self.statement(block)
        self.wait_all(block, self.scope.level)
        value = self.yielded(example) or example
        last = self.simple_start(block, value, group, "all_reduce")
        self.scope.leave(outer)
        self.scalars = scalars

        def action(state, env, active, blocks):
            current = env[first]
            for _ in range(count):
                env[carried] = current
                state.run(blocks[0], env, active)
                current = env[last]
            env[n] = current
        out.append(Region([[f"{n} = scf.for {step} = %c0 to %c{count} step %c1 iter_args({carried} = {first}) -> ({type_}) {{"],
                           [f"  scf.yield {last} : {type_}", "}"]], [block], action, [n], [first], [carried], [last]))
        self.leave_future(n, example)
        self.has_escape = True
