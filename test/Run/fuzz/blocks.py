#===- blocks.py - Basic blocks with arguments, reached by a switch or a branch --------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# Two edges of a branch lead to a join, each with a value of its own, and a third one to it by way of another block. What
# the join's argument is, no operation says: it is a name of what came along the edge. And loops that work in front of
# their condition: what leaves them comes from there.
#
#===---------------------------------------------------------------------------------------------------------------===#

from .scope import Value
from .tree import Region

BASIC_BLOCKS_SHARE = 0.15  # of programs, so that the others stay as they were


class BasicBlocks:
    """The part of the generator that makes basic blocks."""

    def edges(self, out):
        """scf.execute_region with two blocks behind the first one."""
        example = self.example()
        if not example:
            return
        is_switch = self.rng.random() < 0.7
        selector = self.count(out) if is_switch else self.condition(out)
        # What the edges pass on that lead to the join at once. A condition has one of them.
        passed = [self.yielded(example) or example for _ in range(2 if is_switch else 1)]
        if is_switch and any("#" in value.name for value in passed):
            return  # Upstream's parser of cf.switch reads no result of an operation with several.
        side, outer = self.inner(0, 3)
        last = self.yielded(example) or self.replacement(side, example)
        self.scope.leave(outer)
        values = [*passed, last]
        argument = Value(self.name("t"), example.type, frozenset().union(*(v.bases for v in values)), self.scope.level + 1,
                         example.written, all(v.is_writable for v in values))
        join, outer = self.inner(1, 4, [argument])
        result = self.yielded(example)
        result = result if result else argument
        self.scope.leave(outer)
        n, label, type_ = self.name("i"), self.name("b")[1:], example.type
        order = list(range(len(values)))  # which edge each case takes
        self.rng.shuffle(order)
        targets = [*(f"^{label}j({v.name} : {type_})" for v in passed), f"^{label}s"]
        targets = [targets[i] for i in order]
        if is_switch:
            branch = [f"  {n}k = arith.index_cast {selector} : index to i32",
                      f"  cf.switch {n}k : i32, [default: {targets[2]}, 0: {targets[0]}, 1: {targets[1]}]"]
        else:
            branch = [f"  cf.cond_br {selector}, {targets[0]}, {targets[1]}"]
        choose = self.number_of

        def action(state, env, active, blocks):
            taken = {}
            for rank in active:
                at = min(choose(env, selector, [rank]), 2) if is_switch else 0 if env[selector][rank] else 1
                taken[rank] = order[at]
            aside = [rank for rank in active if taken[rank] == len(passed)]
            if aside:
                state.run(blocks[0], env, aside)
            env[argument.name] = [env[values[taken[rank]].name][rank] if rank in taken else None
                                  for rank in range(state.ranks)]
            state.run(blocks[1], env, active)
            env[n] = list(env[result.name])
        pieces = [[f"{n} = scf.execute_region -> {type_} {{", *branch, f"^{label}s:"],
                  [f"  cf.br ^{label}j({last.name} : {type_})", f"^{label}j({argument.name}: {type_}):"],
                  [f"  scf.yield {result.name} : {type_}", "}"]]
        uses = [v.name for v in passed] + ([] if selector[2:].isdigit() and selector.startswith("%c") else [selector])
        out.append(Region(pieces, [side, join], action, [n], uses, [argument.name], [last.name, result.name]))
        self.joined(n, [result])

    def before_loop(self, out):
        """scf.while that works in front of its condition, too."""
        number, inits, inside = self.counted(out)
        if not inits:
            return
        init, first = inits[0], inside[0]
        given, last = set(first.bases), self.scope.bases

        def half(value):
            block, outer = self.inner(0, 3, [value])
            found = self.yielded(value, frozenset(given | set(range(last + 1, self.scope.bases + 1))))
            self.scope.leave(outer)
            return block, found or value
        before, passed = half(first)
        second = Value(self.name("t"), first.type, first.bases | passed.bases, first.level, first.written, first.is_writable)
        after, carried = half(second)
        n, k, type_ = self.name("h"), self.name("k"), first.type
        pieces = [[f"{n}:2 = scf.while ({k}a = {number}, {first.name} = {init.name}) : (index, {type_}) -> (index, {type_}) {{"],
                  [f"  {k}c = arith.cmpi ugt, {k}a, %c0 : index", f"  scf.condition({k}c) {k}a, {passed.name} : index, {type_}",
                   "} do {", f"^bb0({k}d: index, {second.name}: {type_}):"],
                  [f"  {k}e = arith.subi {k}d, %c1 : index", f"  scf.yield {k}e, {carried.name} : index, {type_}", "}"]]

        def action(state, env, active, blocks):
            current = env[init.name]
            for left in range(int(env[number][active[0]]), -1, -1):
                env[first.name] = list(current)
                state.run(blocks[0], env, active)
                if left:
                    env[second.name] = list(env[passed.name])
                    state.run(blocks[1], env, active)
                    current = list(env[carried.name])
            env[n + "#1"] = list(env[passed.name])
        out.append(Region(pieces, [before, after], action, [n + "#1"], [number, init.name], [first.name, second.name],
                          [passed.name, carried.name]))
        self.joined(n + "#1", [init, first, passed, second, carried])
