#===- generator.py - Random structured programs -------------------------------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# Programs of one batch have the same arguments, so that one process can run all of them on the same input files.
#
#===---------------------------------------------------------------------------------------------------------------===#

import random

import numpy as np

from .blocks import BASIC_BLOCKS_SHARE, BasicBlocks
from .buffers import Buffers
from .calls import Calls
from .collectives import Collectives
from .joins import JOINS_SHARE, Joins
from .messages import FAR_MESSAGES_SHARE, Messages
from .parts import PARTS_SHARE, Parts
from .regions import Regions
from .scope import Scope, Value
from .shapes import DTYPES, Type
from .tree import Function, Program, Step, each
from .values import Values

ELEMENTS = ["i32", "i32", "i64", "i8", "f32", "f32", "f64", "bf16"]
STYLES = ("tensors", "memory", "mixed")
ILLEGAL_SHARE = 0.04  # of programs, which break a rule on purpose


class Signature:
    """What the programs of a batch share: ranks, groups, arguments and their values."""

    def __init__(self, seed):
        rng = random.Random(f"signature {seed}")
        self.ranks = ranks = rng.choice([1, 2, 2, 3, 4, 4, 5, 6])
        self.groups = {"@world": [list(range(ranks))], "@single": [[i] for i in range(ranks)]}
        shuffled = list(range(ranks))
        rng.shuffle(shuffled)
        self.groups["@mixed"] = [shuffled]
        for k in (2, 3):
            if ranks % k == 0 and ranks > k:
                self.groups[f"@block{k}"] = [list(range(i, i + k)) for i in range(0, ranks, k)]
                self.groups[f"@stride{k}"] = [list(range(i, ranks, ranks // k)) for i in range(ranks // k)]
                rng.shuffle(shuffled)
                self.groups[f"@shuffled{k}"] = [shuffled[i:i + k] for i in range(0, ranks, k)]
        if ranks > 2:
            # The last rank is in no subset.
            self.groups["@some"] = [rng.sample(range(ranks - 1), ranks - 1)]
        self.arguments = [("%rank", Type((1,), "i64"), False), ("%ctl", Type((4,), "i32", True), False)]
        control = np.array([rng.randint(0, 1) for _ in range(4)], np.int32)
        self.inputs = [[np.array([i], np.int64) for i in range(ranks)], [control.copy() for _ in range(ranks)]]
        for i in range(6):
            type_ = some_type(rng, ranks, memory=i >= 4)
            if i == 3:
                type_ = type_._replace(dynamic=frozenset([0]))
            self.arguments.append((f"%a{i}", type_, i < 2))
            self.inputs.append([self.numbers(rng, type_) for _ in range(ranks)])

    @staticmethod
    def numbers(rng, type_):
        values = np.random.RandomState(rng.getrandbits(31)).randint(-4, 8, size=type_.shape)
        return values.astype(DTYPES[type_.element])


def some_type(rng, ranks, memory=False):
    element, x = rng.choice(ELEMENTS), rng.random()
    if x < 0.06 and not memory:
        return Type((0, rng.choice([1, 4])) if rng.random() < 0.5 else (0,), element)
    if x < 0.12:
        return Type((ranks * 200, rng.choice([1, 3])), element, memory)
    if x < 0.5:
        return Type((ranks * rng.randint(1, 3),), element, memory)
    if x < 0.9:
        return Type((ranks * rng.randint(1, 2), rng.choice([1, 2, ranks, 3])), element, memory)
    return Type((rng.randint(1, 3), ranks, rng.randint(1, 2)), element, memory)


class Generator(Collectives, Values, Buffers, Regions, Calls, Messages, Joins, Parts, BasicBlocks):
    """Makes one program. The mixins have the statements."""

    def __init__(self, signature, seed, style=None):
        self.rng = rng = random.Random(f"program {seed}")
        self.ranks, self.groups, self.signature = signature.ranks, signature.groups, signature
        self.counter, self.scope, self.scalars, self.depth = 0, Scope(), [], 0
        self.functions, self.callees, self.globals, self.global_bases = [], [], {}, {}
        self.controls, self.rank_name, self.in_function = "%ctl", "%rank", False
        self.is_split, self.allowed_groups, self.touches_globals = False, list(self.groups), False
        self.style = style or rng.choice(STYLES)
        self.memory_share = {"tensors": 0.0, "memory": 0.95, "mixed": 0.5}[self.style]
        # A program in which a future leaves its block has no calls on tensors (Runtime.md, Limits).
        self.may_escape, self.has_escape = rng.random() < 0.3, False
        self.is_illegal, self.breaks_rules = rng.random() < ILLEGAL_SHARE, False
        self.has_globals = rng.random() < 0.3
        self.joins = random.Random(f"joins {seed}").random() < JOINS_SHARE
        self.parts = random.Random(f"parts {seed}").random() < PARTS_SHARE
        self.has_blocks = random.Random(f"basic blocks {seed}").random() < BASIC_BLOCKS_SHARE
        self.has_far_messages = random.Random(f"far messages {seed}").random() < FAR_MESSAGES_SHARE
        self.kept_bases = frozenset()
        for name, type_, written in signature.arguments[2:]:
            if not type_.memory or self.memory_share:
                self.scope.add(Value(name, type_, [self.scope.base()], 0, written, is_writable=written or type_.memory))
        self.program = self.make(rng.randint(4, 22))

    def make(self, size):
        block = []
        for _ in range(size):
            self.statement(block)
        self.wait_all(block, 0)
        if self.is_illegal:
            self.misuse(block)
        results = self.results(block)
        main = Function("@main", [(name, type_) for name, type_, _ in self.signature.arguments], block, results, False)
        return Program(self.ranks, self.groups, self.functions, main, self.signature.inputs, self.globals)

    def results(self, block):
        """Some of the values. Buffers as they are, or copies of them."""
        values = [v for v in self.scope.values if not v.type.layout and not v.type.dynamic or not v.type.memory]
        self.rng.shuffle(values)
        results = []
        for value in values[:self.rng.randint(2, 7)]:
            if value.type.memory and self.rng.random() < 0.7:
                value = self.copied(block, value)
            results.append((value.name, value.type))
        return results

    def copied(self, block, value):
        n, x, type_ = self.name("z"), value.name, value.type
        block.append(Step([f"{n} = memref.alloc() : {type_}", f"memref.copy {x}, {n} : {type_} to {type_}"],
                          lambda state, env, active: env.__setitem__(n, each(
                              state, active, lambda rank: env[x][rank].copy())), [n], [x]))
        return Value(n, type_, [], 0)

    # -- what the mixins use

    def name(self, prefix):
        self.counter += 1
        return f"%{prefix}{self.counter}"

    def cost(self, more=""):
        """Sometimes how long it takes, so that there is something to hide."""
        parts = [more] if more else []
        if self.rng.random() < 0.5:
            parts.append(f"comm.cost = #comm.cost<time = {self.rng.choice([1, 5, 20, 60, 200]) * 1000}>")
        return f" {{{', '.join(parts)}}}" if parts else ""

    def some_type(self, memory=False):
        near = [v.type for v in self.scope.values if v.type.memory == memory and v.type.is_plain]
        return self.rng.choice(near) if near and self.rng.random() < 0.7 else some_type(self.rng, self.ranks, memory)

    def pick(self, accept=lambda v: True):
        fitting = [v for v in self.scope.values if accept(v)]
        if not fitting:
            return None
        # New values are better connected to what happens around them.
        return self.rng.choice(fitting[-8:] if self.rng.random() < 0.6 else fitting)

    def statement(self, out):
        rng = self.rng
        kinds = [self.collective] * 9 + [self.some_wait] * 5
        if self.memory_share < 0.9:
            kinds += [self.elementwise] * 3 + [self.compute] * 3 + [self.mutate] * 4 + [self.storage, self.constant, self.slice,
                                                                                        self.slice, self.cast, self.view,
                                                                                        self.to_value]
            kinds += [self.exchange, self.uneven] if not self.in_function else []
            kinds += [self.far_message] * 4 if self.has_far_messages and not self.in_function else []
            kinds += [self.whole_insert] * 2 + [self.crossed] * 5 if self.joins else []
            kinds += [self.part] * 3 + [self.empty_start] * 4 if self.parts else []
            kinds += [self.two_branches] * 2 if self.parts and not self.in_function else []
        if self.memory_share:
            kinds += [self.alloc] * 2 + [self.arithmetic] * 4 + [self.buffer_view] * 3 + [self.scalar] * 3 + [
                self.store] * 2 + [self.copy, self.copy, self.fill, self.free, self.select, self.select, self.box,
                                   self.bytes_view]
            kinds += [self.get_global] * 3 if self.has_globals else []
        if self.depth < 2:
            kinds += [self.branch] * 3 + [self.for_loop] * 3 + [self.while_loop, self.execute]
            kinds += [self.alone] if not self.is_split else []
            kinds += [self.edges] * 5 + [self.before_loop] * 3 if self.has_blocks else []
            kinds += [self.pipeline, self.branch_future] * 2 if self.may_escape else []
        if self.depth < 2 and not self.in_function:
            kinds += [self.call] * 3
        self.depth += 1
        rng.choice(kinds)(out)
        self.depth -= 1
