#===- calls.py - Functions: calls, recursion, pointers ------------------------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#

from .scope import Scope, Value
from .shapes import types_text
from .tree import Function, Region, Step, each, prelude
from .values import offsets, ones, sizes

DEPTH = 2  # of recursions


class Callee:
    """A function and what a call of it does: which results may be which arguments."""

    def __init__(self, function, parameters, results, touches_globals, is_recursive):
        self.function, self.parameters, self.results = function, parameters, results
        self.touches_globals, self.is_recursive = touches_globals, is_recursive


class Calls:
    """The part of the generator that makes and calls functions."""

    def call(self, out):
        if self.is_split or (self.has_escape or self.may_escape) and not self.memory_share:
            return
        if len(self.callees) < 3 and not self.in_function and self.rng.random() < 0.6:
            self.new_function()
        # A function calls those that were made before it: none is being made twice.
        if self.callees:
            self.call_of(out, self.rng.choice(self.callees))

    def new_function(self):
        rng = self.rng
        is_recursive = rng.random() < 0.3
        examples = [self.pick(lambda v: v.type.memory or not self.may_escape) for _ in range(rng.randint(1, 3))]
        examples = [v for v in examples if v and (not is_recursive or v.type.memory or v.written)]
        if not examples:
            return
        saved = (self.scope, self.scalars, self.controls, self.rank_name, self.in_function, self.touches_globals,
                 self.kept_bases, self.has_escape, self.may_escape)
        self.scope, self.scalars, self.controls, self.rank_name = Scope(saved[0].bases), [], None, None
        self.in_function, self.touches_globals, self.kept_bases = True, False, frozenset()
        self.may_escape = False
        parameters = [self.scope.add(Value(self.name("p"), v.type, [self.scope.base()], 0, v.written, v.is_writable))
                      for v in examples]
        name = f"@callee{len(self.callees)}"
        block = []
        if is_recursive:
            block, parameters = self.recursion(name, parameters)
            result = None
        else:
            for _ in range(rng.randint(1, 5)):
                self.statement(block)
            self.wait_all(block, 0)
            fits = [v for v in self.scope.values if self.scope.may_read(v)]
            result = rng.choice(fits) if fits and rng.random() < 0.7 else None
        results = [result] if result else []
        if result and self.joins and rng.random() < 0.7:
            results.append(self.once_more(block, result))
        function = Function(name, [(p.name, getattr(p, "type", "index")) for p in parameters], block,
                            [(r.name, r.type) for r in results])
        touches = self.touches_globals
        bases = self.scope.bases
        (self.scope, self.scalars, self.controls, self.rank_name, self.in_function, self.touches_globals, self.kept_bases,
         self.has_escape, self.may_escape) = saved
        self.scope.bases = bases
        self.functions.append(function)
        self.callees.append(Callee(function, parameters, results, touches, is_recursive))

    def once_more(self, block, result):
        """The same tensor or buffer, or a part of a tensor that is a value."""
        type_ = result.type
        if type_.memory or result.written or type_.dynamic or not type_.size or type_.shape[0] < 2 or self.rng.random() < 0.4:
            return result
        part, x, rank = Value(self.name("v"), type_.with_shape((type_.shape[0] - 1, *type_.shape[1:])), [], 0), result.name, len(
            type_.shape)
        block.append(Step(f"{part.name} = tensor.extract_slice {x}{offsets(0, rank)} {sizes(part.type.shape)} {ones(rank)} : "
                          f"{type_} to {part.type}", lambda state, env, active: env.__setitem__(part.name, each(
                              state, active, lambda rank: env[x][rank][:-1].copy())), [part.name], [x]))
        return part

    def recursion(self, name, parameters):
        """A function that calls itself while a number is above 0, directly or by a pointer."""
        n = self.name("n")
        inner, outer = self.inner(1, 3)
        types = types_text([*(p.type for p in parameters), "index"])
        arguments = ", ".join([*(p.name for p in parameters), f"{n}l"])
        lines = [f"{n}l = arith.subi {n}, %c1 : index"]
        # Bufferization does not follow pointers.
        if all(p.type.memory for p in parameters) and self.rng.random() < 0.5:
            lines += [f"{n}f = func.constant {name} : ({types}) -> ()",
                      f"func.call_indirect {n}f({arguments}) : ({types}) -> ()"]
        else:
            lines.append(f"func.call {name}({arguments}) : ({types}) -> ()")
        names = [p.name for p in parameters]

        def again(state, env, active):
            inside = {p: env[p] for p in names}
            inside[n] = [env[n][active[0]] - 1] * state.ranks
            state.run(state.functions[name].block, inside, active)
        inner.append(Step(lines, again, [], [*names, n]))
        for _ in range(self.rng.randint(1, 2)):
            self.statement(inner)
        self.wait_all(inner, self.scope.level)
        self.scope.leave(outer)

        def action(state, env, active, blocks):
            if env[n][active[0]] > 0:
                state.run(blocks[0], env, active)
        block = [Region([[f"{n}b = arith.cmpi sgt, {n}, %c0 : index", f"scf.if {n}b {{"], ["}"]], [inner], action, [], [n])]
        counter = Value(n, "index", [], 0)
        return block, [*parameters, counter]

    def call_of(self, out, callee):
        arguments, used = [], set()
        for parameter in callee.parameters:
            if parameter.type == "index":
                continue
            value = self.pick(lambda v: v.type == parameter.type and v.written == parameter.written and
                              v.is_writable == parameter.is_writable and v.bases.isdisjoint(used) and
                              (self.scope.may_write(v) if v.type.memory or v.written else self.scope.may_read(v)))
            if not value:
                return
            if value.type.memory or value.written:
                used |= value.bases
            arguments.append(value)
        bases = set(self.global_bases.values())
        if callee.touches_globals:
            self.touches_globals = True
            if any(bases & (flight.reads | flight.writes) for flight in self.scope.flights) or used & bases:
                return
        function, results = callee.function, callee.results
        names = [v.name for v in arguments]
        given = [*names, *([f"%c{DEPTH}"] if callee.is_recursive else [])]
        types = types_text([*(v.type for v in arguments), *(["index"] if callee.is_recursive else [])])
        n = self.name("r") if results else None
        made = [n] if len(results) == 1 else [f"{n}#{i}" for i in range(len(results))]
        left = "" if not results else f"{n} = " if len(results) == 1 else f"{n}:{len(results)} = "
        returned = str(results[0].type) if len(results) == 1 else f"({types_text(r.type for r in results)})"
        text = f"{left}func.call {function.name}({', '.join(given)}) : ({types}) -> {returned}"
        parameters = [p.name for p in callee.parameters]

        def action(state, env, active):
            inside = dict(zip(parameters, [env[name] for name in names] + [[DEPTH] * state.ranks]))
            called = state.functions[function.name]
            state.run(called.block, inside, active)
            for name, (inner, _) in zip(made, called.results):
                env[name] = list(inside[inner])
        out.append(Step(text, action, made, names))
        own = {self.scope.base()} if results else set()
        may_be = own | used | (bases if callee.touches_globals else set())
        for name, result in zip(made, results):
            self.scope.add(Value(name, result.type, may_be if result.type.memory or result.written else own, self.scope.level,
                                 result.written, result.is_writable and all(v.is_writable for v in arguments)))
