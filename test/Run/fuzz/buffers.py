#===- buffers.py - Statements on memrefs --------------------------------------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#

import numpy as np

from .scope import Value
from .shapes import BYTES, DTYPES, INTEGERS, Type, combine, number, settle
from .tree import Step, each
from .values import offsets, ones, sizes


def contiguous(shape):
    strides = [1] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        strides[i] = strides[i + 1] * shape[i + 1]
    return strides


class Buffers:
    """The part of the generator that works on memory."""

    def pick_buffer(self, accept=lambda v: True):
        return self.pick(lambda v: v.type.memory and accept(v))

    def bind(self, out, lines, result, function, uses):
        """`result` is a view: `function` gives the part of the arrays of one rank."""
        n = result.name
        self.scope.add(result)
        out.append(Step(lines, lambda state, env, active: env.__setitem__(n, each(
            state, active, lambda rank: function(env, rank))), [n], uses))

    def new_buffer(self, out, type_=None, is_filled=True):
        rng = self.rng
        type_ = type_ or self.some_type(memory=True)
        result = Value(self.name("m"), type_, [self.scope.base()], self.scope.level, is_owned=True)
        n, value = result.name, rng.randint(-4, 4)
        source = self.pick_buffer(lambda v: v.type.shape == type_.shape and v.type.element == type_.element and
                                  not v.type.dynamic and self.scope.may_read(v))
        lines, uses = [f"{n} = memref.alloc() : {type_}"], []
        if source and is_filled and rng.random() < 0.5:
            x = source.name
            lines.append(f"memref.copy {x}, {n} : {source.type} to {type_}")
            contents, uses = (lambda env, rank: env[x][rank].copy()), [x]
        else:
            if is_filled:
                lines += [f"{n}c = arith.constant {number(value, type_.element)} : {type_.element}",
                          f"linalg.fill ins({n}c : {type_.element}) outs({n} : {type_})"]
                contents = lambda env, rank: settle(np.full(type_.shape, value), type_.element)
            else:
                self.scope.add(result)
                out.append(Step(lines, lambda state, env, active: env.__setitem__(n, each(
                    state, active, lambda rank: settle(np.full(type_.shape, state.poison), type_.element))), [n]))
                return result
        self.bind(out, lines, result, contents, uses)
        return result

    def alloc(self, out):
        self.new_buffer(out)

    def free(self, out):
        """memref.dealloc, and nothing that could be the buffer is used afterwards."""
        value = self.pick_buffer(lambda v: v.is_owned and v.level == self.scope.level and self.scope.may_write(v) and
                                 v.bases.isdisjoint(self.kept_bases))
        if value:
            out.append(Step(f"memref.dealloc {value.name} : {value.type}", None, [], [value.name]))
            self.scope.forget(value.bases)

    def copy(self, out):
        dest = self.pick_buffer(self.scope.may_write)
        if not dest:
            return
        source = self.pick_buffer(lambda v: v.type.shape == dest.type.shape and v.type.element == dest.type.element and
                                  self.scope.may_read(v) and (v.name == dest.name or v.bases.isdisjoint(dest.bases)))
        if source and source.name != dest.name:
            x, d = source.name, dest.name

            def action(state, env, active):
                for rank in active:
                    env[d][rank][...] = env[x][rank].copy()
            out.append(Step(f"memref.copy {x}, {d} : {source.type} to {dest.type}", action, [], [x, d]))

    def fill(self, out):
        dest = self.pick_buffer(self.scope.may_write)
        if dest:
            n, d, value, type_ = self.name("k"), dest.name, self.rng.randint(-3, 3), dest.type

            def action(state, env, active):
                for rank in active:
                    env[d][rank][...] = value
            out.append(Step([f"{n} = arith.constant {number(value, type_.element)} : {type_.element}",
                             f"linalg.fill ins({n} : {type_.element}) outs({d} : {type_})"], action, [], [d]))

    def arithmetic(self, out):
        """linalg or comm.compute on memory. Operands are the same view as the destination or cannot overlap with it."""
        dest = self.pick_buffer(self.scope.may_write)
        if not dest:
            return
        accept = lambda v: (v.type.memory and v.type.shape == dest.type.shape and v.type.element == dest.type.element and
                            self.scope.may_read(v) and (v.name == dest.name or v.bases.isdisjoint(dest.bases)))
        a, b = self.pick(accept), self.pick(accept)
        if dest.type.is_plain and a.type.is_plain and b.type.is_plain and self.rng.random() < 0.7:
            if self.rng.random() < 0.4:
                return self.update_step(out, dest, a)
            return self.write_step(out, dest, a, b)
        kind = self.rng.choice(["add", "sub", "max", "mul"] if dest.type.element in INTEGERS else ["add", "sub"])
        x, y, d, type_ = a.name, b.name, dest.name, dest.type

        def action(state, env, active):
            for rank in active:
                env[d][rank][...] = combine(kind, env[x][rank], env[y][rank], type_.element)
        out.append(Step(f"linalg.{kind} ins({x}, {y} : {a.type}, {b.type}) outs({d} : {type_})", action, [], [x, y, d]))

    def scalar(self, out):
        """A load, and a store at once or later."""
        source = self.pick_buffer(lambda v: v.type.size and self.scope.may_read(v))
        if not source:
            return
        n, x, dialect = self.name("s"), source.name, self.rng.choice(["memref", "affine"])
        at = tuple(self.rng.randrange(min(size, 3)) for size in source.type.shape)
        index = f"[{', '.join(f'%c{i}' for i in at)}]"
        out.append(Step(f"{n} = {dialect}.load {x}{index} : {source.type}", lambda state, env, active: env.__setitem__(
            n, each(state, active, lambda rank: env[x][rank][at])), [n], [x]))
        self.scalars.append((n, source.type.element, self.scope.level))
        if self.rng.random() < 0.5:
            self.store(out)

    def store(self, out):
        known = [s for s in self.scalars if s[2] <= self.scope.level]
        if not known:
            return
        n, element, _ = self.rng.choice(known)
        dest = self.pick_buffer(lambda v: v.type.size and v.type.element == element and self.scope.may_write(v))
        if not dest:
            return
        d, dialect = dest.name, self.rng.choice(["memref", "affine"])
        at = tuple(self.rng.randrange(min(size, 3)) for size in dest.type.shape)
        index = f"[{', '.join(f'%c{i}' for i in at)}]"

        def action(state, env, active):
            for rank in active:
                env[d][rank][at] = env[n][rank]
        out.append(Step(f"{dialect}.store {n}, {d}{index} : {dest.type}", action, [], [n, d]))

    def buffer_view(self, out):
        source = self.pick_buffer(lambda v: v.type.size)
        if source:
            kinds = [self.rows, self.columns, self.collapse, self.expand, self.reinterpret, self.buffer_cast,
                     self.transpose, self.rows_at]
            self.rng.choice(kinds)(out, source)

    def rows(self, out, source):
        shape, (strides, offset) = source.type.shape, source.type.layout or (contiguous(source.type.shape), 0)
        if source.type.dynamic or shape[0] < 2:
            return
        count, rank = self.rng.randint(1, shape[0] - 1), len(shape)
        first = self.rng.randint(0, shape[0] - count)
        type_ = source.type._replace(shape=(count, *shape[1:]), layout=(
            tuple(strides), "?" if offset == "?" else offset + first * strides[0]))
        result, x = source.renamed(self.name("m"), type_, self.scope.level), source.name
        self.bind(out, f"{result.name} = memref.subview {x}{offsets(first, rank)} {sizes(type_.shape)} {ones(rank)} : "
                  f"{source.type} to {type_}", result, lambda env, rank: env[x][rank][first:first + count], [x])

    def rows_at(self, out, source):
        """A slice whose place is a number of the program."""
        if not source.type.is_plain or source.type.shape[0] < 2:
            return
        shape, rank, count = source.type.shape, len(source.type.shape), self.rng.randint(1, source.type.shape[0] - 1)
        first = self.rng.randint(0, min(shape[0] - count, 3))
        type_ = Type((count, *shape[1:]), source.type.element, True, (tuple(contiguous(shape)), "?"))
        result, x = source.renamed(self.name("m"), type_, self.scope.level), source.name
        self.bind(out, f"{result.name} = memref.subview {x}{offsets(f'%c{first}', rank)} {sizes(type_.shape)} {ones(rank)} : "
                  f"{source.type} to {type_}", result, lambda env, rank: env[x][rank][first:first + count], [x])

    def columns(self, out, source):
        shape = source.type.shape
        if not source.type.is_plain or len(shape) != 2 or shape[1] < 2:
            return
        first, step = self.rng.choice([(0, 1), (1, 1), (0, 2)])
        count = 1 if step == 1 else (shape[1] + 1) // 2
        type_ = source.type._replace(shape=(shape[0], count), layout=((shape[1], step), first))
        result, x = source.renamed(self.name("m"), type_, self.scope.level), source.name
        self.bind(out, f"{result.name} = memref.subview {x}[0, {first}] [{shape[0]}, {count}] [1, {step}] : {source.type} to "
                  f"{type_}", result, lambda env, rank: env[x][rank][:, first:first + step * (count - 1) + 1:step], [x])

    def collapse(self, out, source):
        if source.type.is_plain and len(source.type.shape) == 2:
            type_ = source.type.with_shape((source.type.size,))
            result, x = source.renamed(self.name("m"), type_, self.scope.level), source.name
            self.bind(out, f"{result.name} = memref.collapse_shape {x} [[0, 1]] : {source.type} into {type_}", result,
                      lambda env, rank: env[x][rank].reshape(-1), [x])

    def expand(self, out, source):
        if source.type.is_plain and len(source.type.shape) == 1 and source.type.size % 2 == 0:
            type_ = source.type.with_shape((source.type.size // 2, 2))
            result, x = source.renamed(self.name("m"), type_, self.scope.level), source.name
            self.bind(out, f"{result.name} = memref.expand_shape {x} [[0, 1]] output_shape {sizes(type_.shape)} : "
                      f"{source.type} into {type_}", result, lambda env, rank: env[x][rank].reshape(type_.shape), [x])

    def reinterpret(self, out, source):
        if source.type.is_plain and len(source.type.shape) == 1 and source.type.size > 3:
            first, count, step = self.rng.choice([(1, source.type.size - 2, 1), (0, source.type.size // 2, 2),
                                                  (2, 2, 1)])
            type_ = source.type._replace(shape=(count,), layout=((step,), first))
            result, x = source.renamed(self.name("m"), type_, self.scope.level), source.name
            self.bind(out, f"{result.name} = memref.reinterpret_cast {x} to offset: [{first}], sizes: [{count}], strides: "
                      f"[{step}] : {source.type} to {type_}", result,
                      lambda env, rank: env[x][rank][first:first + step * (count - 1) + 1:step], [x])

    def buffer_cast(self, out, source):
        """To symbolic sizes, and back."""
        if source.type.layout:
            return
        dynamic = frozenset() if source.type.dynamic else frozenset([self.rng.randrange(len(source.type.shape))])
        type_ = source.type._replace(dynamic=dynamic)
        result, x = source.renamed(self.name("m"), type_, self.scope.level), source.name
        self.bind(out, f"{result.name} = memref.cast {x} : {source.type} to {type_}", result, lambda env, rank: env[x][rank], [x])

    def transpose(self, out, source):
        shape = source.type.shape
        if source.type.is_plain and len(shape) == 2:
            type_ = source.type._replace(shape=shape[::-1], layout=((1, shape[1]), 0))
            result, x = source.renamed(self.name("m"), type_, self.scope.level), source.name
            self.bind(out, f"{result.name} = memref.transpose {x} (i, j) -> (j, i) : {source.type} to {type_}", result,
                      lambda env, rank: env[x][rank].T, [x])

    def bytes_view(self, out):
        """Two buffers of any type that lie in one buffer of bytes, beside each other."""
        type_ = self.some_type(memory=True)
        width = type_.size * BYTES[type_.element]
        if not width:
            return
        n, total = self.name("m"), 2 * ((width + 63) // 64 * 64)
        element = type_.element
        value = self.rng.randint(-3, 3)
        for i, first in enumerate((0, total // 2)):
            result = Value(f"{n}v{i}", type_, [self.scope.base()], self.scope.level)
            lines = [f"{n} = memref.alloc() : memref<{total}xi8>"] if i == 0 else []
            lines += [f"{n}o{i} = arith.constant {first} : index",
                      f"{n}v{i} = memref.view {n}[{n}o{i}][] : memref<{total}xi8> to {type_}",
                      f"{n}c{i} = arith.constant {number(value, element)} : {element}",
                      f"linalg.fill ins({n}c{i} : {element}) outs({n}v{i} : {type_})"]
            self.bind(out, lines, result, lambda env, rank: np.full(type_.shape, value, DTYPES[element]), [n] if i else [])
            if i == 0:
                out[-1].defines.append(n)

    def select(self, out):
        """One of two buffers, by a condition."""
        a = self.pick_buffer()
        if not a:
            return
        b = self.pick_buffer(lambda v: v.type == a.type)
        condition = self.condition(out)
        result = Value(self.name("m"), a.type, a.bases | b.bases, self.scope.level,
                       is_writable=a.is_writable and b.is_writable)
        x, y = a.name, b.name
        self.bind(out, f"{result.name} = arith.select {condition}, {x}, {y} : {a.type}", result,
                  lambda env, rank: env[x if env[condition][rank] else y][rank], [condition, x, y])

    def box(self, out):
        """A memref of memrefs: two buffers are stored, one is loaded. New buffers have no other name afterwards."""
        is_new = self.rng.random() < 0.4
        a = self.new_buffer(out) if is_new else self.pick_buffer(lambda v: v.type.is_plain)
        if not a:
            return
        b = self.new_buffer(out, a.type) if is_new else self.pick_buffer(lambda v: v.type == a.type)
        n, at, x, y = self.name("b"), self.rng.randrange(2), a.name, b.name
        boxed = f"memref<2x{a.type}>"
        out.append(Step([f"{n} = memref.alloc() : {boxed}", f"memref.store {x}, {n}[%c0] : {boxed}",
                         f"memref.store {y}, {n}[%c1] : {boxed}"], lambda state, env, active: env.__setitem__(
                             n, [[env[x][rank], env[y][rank]] if rank in active else None for rank in range(state.ranks)]),
                        [n], [x, y]))
        if is_new:
            self.scope.forget(a.bases | b.bases)
        for _ in range(self.rng.randint(0, 2)):
            self.statement(out)
        alive = {base for v in self.scope.values for base in v.bases}
        if not is_new and not (a.bases | b.bases) <= alive:
            return
        result = Value(self.name("m"), a.type, a.bases | b.bases, self.scope.level,
                       is_writable=a.is_writable and b.is_writable)
        self.bind(out, f"{result.name} = memref.load {n}[%c{at}] : {boxed}", result, lambda env, rank: env[n][rank][at], [n])

    def get_global(self, out):
        if len(self.globals) < 2 and (not self.globals or self.rng.random() < 0.4):
            type_ = self.some_type(memory=True)
            if not type_.size:
                return
            name = f"@global{len(self.globals)}"
            value = number(self.rng.randint(0, 4), type_.element)
            self.globals[name] = (type_, np.full(type_.shape, float(value) if "." in value else int(value),
                                                 DTYPES[type_.element]))
            self.global_bases[name] = -1 - len(self.globals)
        name = self.rng.choice(list(self.globals))
        self.touches_globals = True
        result = Value(self.name("m"), self.globals[name][0], [self.global_bases[name]], self.scope.level)
        n = result.name
        self.scope.add(result)
        out.append(Step(f"{n} = memref.get_global {name} : {result.type}", lambda state, env, active: env.__setitem__(
            n, [state.globals[name][rank] for rank in range(state.ranks)]), [n]))
