#===- values.py - Statements on tensors ---------------------------------------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# A tensor is either a value, which pure operations make and read and nothing writes, or storage, which operations of comm
# make, read and write.
#
#===---------------------------------------------------------------------------------------------------------------===#

import numpy as np

from .scope import Value
from .shapes import FLOATS, INTEGERS, Type, combine, number, opaque, settle
from .tree import Step, each


def offsets(first, rank):
    return "[" + ", ".join([str(first)] + ["0"] * (rank - 1)) + "]"


def ones(rank):
    return "[" + ", ".join(["1"] * rank) + "]"


def sizes(shape):
    return "[" + ", ".join(map(str, shape)) + "]"


class Values:
    """The part of the generator that computes with tensors."""

    def new_tensor(self, type_, written=False, bases=None):
        return self.scope.add(Value(self.name("v"), type_, bases or [self.scope.base()], self.scope.level, written,
                                    is_owned=bases is None))

    def pick_pure(self, accept=lambda v: True):
        return self.pick(lambda v: not v.type.memory and not v.written and accept(v))

    def pick_storage(self, accept=lambda v: True):
        return self.pick(lambda v: not v.type.memory and v.written and accept(v))

    def elementwise(self, out):
        """linalg on values, with an empty destination or another value: its contents may be needed afterwards."""
        a = self.pick_pure()
        if not a:
            return
        b = self.pick_pure(lambda v: v.type == a.type)
        dest = self.pick_pure(lambda v: v.type == a.type) if self.rng.random() < 0.4 else None
        kind = self.rng.choice(["add", "sub", "max", "mul"] if a.type.element in INTEGERS else ["add", "sub"])
        type_, names = a.type, (a.name, b.name)
        lines, dims = [], []
        for i in sorted(type_.dynamic if not dest else ()):
            dim = self.name("n")
            lines.append(f"{dim} = tensor.dim {a.name}, %c{i} : {type_}")
            dims.append(dim)
        result = self.new_tensor(type_)
        n = result.name
        lines += [] if dest else [f"{n}e = tensor.empty({', '.join(dims)}) : {type_}"]
        place = dest.name if dest else f"{n}e"
        lines.append(f"{n} = linalg.{kind} ins({a.name}, {b.name} : {type_}, {type_}) outs({place} : {type_}) -> {type_}")
        out.append(Step(lines, lambda state, env, active: env.__setitem__(n, each(
            state, active, lambda rank: combine(kind, env[names[0]][rank], env[names[1]][rank], type_.element))), [n],
            [*names, place] if dest else names))

    def compute(self, out):
        """comm.compute on values or storage, with a new result of either kind."""
        a = self.pick(lambda v: not v.type.memory and not v.type.dynamic and self.scope.may_read(v))
        if not a:
            return
        b = self.pick(lambda v: v.type == a.type and self.scope.may_read(v))
        kind = self.rng.choice(["add", "sub", "maximum", "copy", "opaque", "opaque"])
        if kind == "maximum" and a.type.element in FLOATS:
            kind = "add"
        if kind == "opaque":
            b = self.pick(lambda v: not v.type.memory and not v.type.dynamic and self.scope.may_read(v))
            return self.opaque_step(out, a, b)
        result = self.new_tensor(a.type, written=self.rng.random() < 0.5)
        self.compute_step(out, kind, a, b, result)

    def compute_step(self, out, kind, a, b, result):
        n, type_, x, y = result.name, a.type, a.name, b.name
        given, types = (x, str(type_)) if kind == "copy" else (f"{x}, {y}", f"{type_}, {type_}")

        def action(state, env, active):
            env[n] = each(state, active, lambda rank: env[x][rank].copy() if kind == "copy" else
                          combine(kind, env[x][rank], env[y][rank], type_.element))
        out.append(Step(f'{n} = comm.compute "{kind}"({given}){self.cost()} : ({types}) -> {type_}', action, [n], [x, y]))

    def opaque_step(self, out, a, b):
        """A computation that comm-run has no kernel for, with a result of any type."""
        other = self.pick(lambda v: not v.type.memory and not v.type.dynamic)
        result = self.new_tensor(other.type, written=self.rng.random() < 0.5)
        n, name, type_, x, y = result.name, f"op{self.rng.randint(0, 3)}", other.type, a, b

        def action(state, env, active):
            env[n] = each(state, active, lambda rank: opaque(
                name, [(env[v.name][rank], v.type.element) for v in (x, y)], type_.shape, type_.element))
        out.append(Step(f'{n} = comm.compute "{name}"({a.name}, {b.name}){self.cost()} : ({a.type}, {b.type}) -> {type_}',
                        action, [n], [a.name, b.name]))

    def mutate(self, out):
        """comm.compute that writes storage."""
        dest = self.pick_storage(lambda v: self.scope.may_write(v))
        if not dest:
            return
        if self.rng.random() < 0.4:
            source = self.pick(lambda v: v.type == dest.type and self.scope.may_read(v))
            return self.write_step(out, dest, source, source, "copy")
        self.update_step(out, dest, self.pick(lambda v: not v.type.memory and not v.type.dynamic and self.scope.may_read(v)))

    def update_step(self, out, dest, source):
        """A computation without a kernel that reads and writes `dest`, a tensor or a memref."""
        name, d, x, kinds = f"update{self.rng.randint(0, 3)}", dest.name, source.name, (dest.type, source.type)

        def action(state, env, active):
            for rank in active:
                env[d][rank][...] = opaque(name, [(env[d][rank], kinds[0].element), (env[x][rank], kinds[1].element)],
                                           kinds[0].shape, kinds[0].element)
        out.append(Step(f'comm.compute "{name}"({d}, {x}) mutates [0]{self.cost()} : ({dest.type}, {source.type}) -> ()', action,
                        [], [x, d]))

    def write_step(self, out, dest, a, b, kind=None):
        """A copy, or on memory a computation with a kernel."""
        kind = kind or self.rng.choice(["add", "sub", "copy"])
        type_, d, x, y = dest.type, dest.name, a.name, b.name
        count = 1 if kind == "copy" else 2
        given = ", ".join([x, y][:count] + [d])
        types = ", ".join([str(v.type) for v in (a, b)[:count]] + [str(type_)])
        if not type_.memory:
            text = f"comm.fsdp.copy {x} into {d} : {a.type} into {type_}"
        else:
            text = f'comm.compute "{kind}"({given}) mutates [{count}]{self.cost("outputs = 1 : i64")} : ({types}) -> ()'

        def action(state, env, active):
            for rank in active:
                new = env[x][rank].copy() if kind == "copy" else combine(kind, env[x][rank], env[y][rank], type_.element)
                env[d][rank][...] = new
        out.append(Step(text, action, [], [x, y, d]))

    def new_storage(self, out, type_, is_read):
        """A tensor to write: a copy of a value, or without contents."""
        source = self.pick(lambda v: v.type == type_ and self.scope.may_read(v))
        pure = self.pick_pure(lambda v: v.type == type_)
        if source and self.rng.random() < 0.5:
            result = self.new_tensor(type_, written=True)
            self.compute_step(out, "copy", source, source, result)
            return result
        result = self.new_tensor(type_, written=True)
        n = result.name
        if pure and self.rng.random() < 0.6:
            out.append(Step(f"{n} = bufferization.alloc_tensor() copy({pure.name}) : {type_}",
                            lambda state, env, active: env.__setitem__(n, each(
                                state, active, lambda rank: env[pure.name][rank].copy())), [n], [pure.name]))
            return result
        lines = [f"{n} = bufferization.alloc_tensor() : {type_}"]
        value = self.rng.randint(-5, 5)
        if is_read:
            lines += [f"{n}c = arith.constant dense<{number(value, type_.element)}> : {type_}",
                      f"comm.fsdp.copy {n}c into {n} : {type_} into {type_}"]
        out.append(Step(lines, lambda state, env, active: env.__setitem__(n, each(state, active, lambda rank: settle(
            np.full(type_.shape, value if is_read else state.poison), type_.element))), [n]))
        return result

    def storage(self, out):
        value = self.pick(lambda v: not v.type.memory and not v.type.dynamic)
        if value:
            self.new_storage(out, value.type, True)

    def constant(self, out):
        """A fill: equal ones become one."""
        value = self.pick(lambda v: not v.type.dynamic)
        if not value:
            return
        type_ = Type(value.type.shape, value.type.element)
        result = self.new_tensor(type_)
        n, c = result.name, self.rng.choice([0, 0, 1, 5])
        lines = [f"{n}c = arith.constant {number(c, type_.element)} : {type_.element}", f"{n}e = tensor.empty() : {type_}",
                 f"{n} = linalg.fill ins({n}c : {type_.element}) outs({n}e : {type_}) -> {type_}"]
        out.append(Step(lines, lambda state, env, active: env.__setitem__(n, each(
            state, active, lambda rank: settle(np.full(type_.shape, c), type_.element))), [n]))

    def slice(self, out):
        """A part of a value, or a value with another part."""
        source = self.pick_pure(lambda v: v.type.shape[0] >= 2 and not v.type.dynamic)
        if not source:
            return
        rank, rows = len(source.type.shape), self.rng.randint(1, source.type.shape[0] - 1)
        first = self.rng.randint(0, source.type.shape[0] - rows)
        part = source.type.with_shape((rows, *source.type.shape[1:]))
        inserted = self.pick_pure(lambda v: v.type == part)
        x = source.name
        if inserted and self.rng.random() < 0.5:
            result = self.new_tensor(source.type)
            n, y = result.name, inserted.name

            def insert(state, env, active):
                env[n] = each(state, active, lambda rank: env[x][rank].copy())
                for rank in active:
                    env[n][rank][first:first + rows] = env[y][rank]
            out.append(Step(f"{n} = tensor.insert_slice {y} into {x}{offsets(first, rank)} {sizes(part.shape)} {ones(rank)} : "
                            f"{part} into {source.type}", insert, [n], [x, y]))
            return
        result = self.new_tensor(part)
        n = result.name
        out.append(Step(f"{n} = tensor.extract_slice {x}{offsets(first, rank)} {sizes(part.shape)} {ones(rank)} : "
                        f"{source.type} to {part}", lambda state, env, active: env.__setitem__(n, each(
                            state, active, lambda rank: env[x][rank][first:first + rows].copy())), [n], [x]))

    def cast(self, out):
        """To and from symbolic sizes."""
        source = self.pick_pure()
        if not source or not source.type.shape:
            return
        dynamic = frozenset() if source.type.dynamic else frozenset([self.rng.randrange(len(source.type.shape))])
        result = self.new_tensor(source.type._replace(dynamic=dynamic))
        n, x = result.name, source.name
        out.append(Step(f"{n} = tensor.cast {x} : {source.type} to {result.type}", lambda state, env, active: env.__setitem__(
            n, list(env[x])), [n], [x]))

    def view(self, out):
        """The same storage with another shape."""
        source = self.pick_storage(lambda v: self.scope.may_read(v) and v.type.size)
        if not source:
            return
        first = self.rng.choice([d for d in (1, 2, source.type.shape[0]) if source.type.size % d == 0])
        type_ = source.type.with_shape((first, source.type.size // first))
        result = self.new_tensor(type_, written=True, bases=source.bases)
        result.is_writable = source.is_writable
        n, x = result.name, source.name
        out.append(Step(f'{n} = comm.compute "view"({x}) aliases [0] : ({source.type}) -> {type_}',
                        lambda state, env, active: env.__setitem__(n, each(
                            state, active, lambda rank: env[x][rank].reshape(type_.shape))), [n], [x]))

    def to_value(self, out):
        """A copy of storage or memory that pure operations may read."""
        source = self.pick_storage(lambda v: self.scope.may_read(v))
        if source:
            self.compute_step(out, "copy", source, source, self.new_tensor(source.type))

    def misuse(self, out):
        """A program that breaks a rule: a pure operation makes or reads storage that is written."""
        source = self.pick(lambda v: not v.type.memory and not v.type.dynamic and v.type.size and self.scope.may_read(v))
        if not source:
            return
        type_, n, x = source.type, self.name("v"), source.name
        made = [f"{n}c = arith.constant {number(0, type_.element)} : {type_.element}", f"{n}e = tensor.empty() : {type_}",
                f"{n} = linalg.fill ins({n}c : {type_.element}) outs({n}e : {type_}) -> {type_}"]
        copied = [f'{n} = comm.compute "copy"({x}) : ({type_}) -> {type_}']
        write = f"comm.fsdp.copy {x} into {n} : {type_} into {type_}"
        read = f"{n}p = linalg.add ins({n}, {n} : {type_}, {type_}) outs({n}q : {type_}) -> {type_}"
        lines = [*(made if self.rng.random() < 0.5 else copied), f"{n}q = tensor.empty() : {type_}", write, read]

        def action(state, env, active):
            env[n] = each(state, active, lambda rank: env[x][rank].copy())
            env[n + "p"] = each(state, active, lambda rank: combine("add", env[n][rank], env[n][rank], type_.element))
        out.append(Step(lines, action, [n, n + "p"], [x]))
        self.scope.add(Value(n + "p", type_, [self.scope.base()], self.scope.level))
        self.breaks_rules = True
