# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A block as nodes and buffers, and what an order of it costs (Models.md)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from fractions import Fraction

from .prices import Prices
from .programs import Program, Step, Value


@dataclass
class Node:
    """A computation (on lane None), a start, or a wait (for the node `awaits`)."""

    kind: str
    cost: int = 0
    lane: str | None = None
    issue: int = 0
    workspace: int = 0
    awaits: int = -1
    # Numbers of nodes that come before it.
    after: set[int] = field(default_factory=set)
    # Numbers of the buffers that it defines, reads or keeps.
    touches: set[int] = field(default_factory=set)
    defines: set[int] = field(default_factory=set)


@dataclass
class Buffer:
    bytes: int
    live_out: bool = False
    is_donated: bool = False


@dataclass(frozen=True)
class Key:
    """What members of one bucket share. `multiple` is by how much measured times are above those of the model."""

    kind: str
    group: str
    element: str
    reduction: str
    multiple: Fraction | None = None


@dataclass
class Member:
    """A collective that may be merged. Input buffers are None if the input is an argument that lives throughout."""

    key: Key
    start: int
    wait: int
    size: int
    input: int | None
    input_bytes: int
    output: int
    output_bytes: int
    # The cast in front of it that a pack does itself, with what it reads; -1 if there is none.
    cast: int = -1
    cast_input: int | None = None
    cast_bytes: int = 0


@dataclass
class Block:
    """Nodes by number; in a block without buckets, numbers are positions of the given order."""

    nodes: dict[int, Node] = field(default_factory=dict)
    buffers: dict[int, Buffer] = field(default_factory=dict)
    members: list[Member] = field(default_factory=list)
    # More than the number of any buffer that there was.
    next_buffer: int = 0
    # By number of a buffer that has become a view of another one: that one.
    view_of: dict[int, int] = field(default_factory=dict)

    def touch(self, node: Node, buffer: int | None) -> None:
        if buffer is not None:
            node.touches.add(buffer)

    def define(self, node: Node, size: int, live_out: bool = False) -> int:
        number = self.next_buffer
        self.next_buffer += 1
        self.buffers[number] = Buffer(size, live_out)
        node.touches.add(number)
        node.defines.add(number)
        return number

    def add(self, node: Node) -> int:
        number = max(self.nodes) + 1
        self.nodes[number] = node
        return number


def load(program: Program, prices: Prices) -> Block:
    """The block of a program."""
    block = Block(next_buffer=len(program.values))
    storages = {value.storage for value in program.values}
    for number in storages:
        value = program.values[number]
        if not value.is_argument or value.is_donated:
            block.buffers[number] = Buffer(value.bytes, is_donated=value.is_donated)
    for number in program.returned:
        if program.values[number].storage in block.buffers:
            block.buffers[program.values[number].storage].live_out = True
    maker: dict[int, int] = {}
    for at, step in enumerate(program.steps):
        block.nodes[at] = load_step(block, program, step, prices, maker)
        if step.kind != "start":
            maker[step.makes] = at
    block.members = find_members(block, program, prices)
    return block


def load_step(block: Block, program: Program, step: Step, prices: Prices, maker: dict[int, int]) -> Node:
    made, read = program.values[step.makes], [program.values[number] for number in step.reads]
    node = Node(step.kind if step.kind in ("start", "wait") else "compute", workspace=step.workspace)
    node.after = {maker[value.number] for value in read if value.number in maker}
    if step.kind == "wait":
        node.awaits = step.start
        node.after = {step.start}
        node.touches = set(block.nodes[step.start].touches)
        return node
    if step.kind == "start":
        node.lane, node.issue = prices.lane(step.group), prices.issue
        node.cost = prices.scaled(step.time if step.time is not None else price_of(step, made, read[0], prices))
    else:
        node.cost = step.time if step.time is not None else prices.kernel(step.moved or 0)
    node.touches = {value.storage for value in [made, *read] if value.storage in block.buffers}
    node.defines = {made.number} if made.storage == made.number else set()
    return node


def size_of(step: Step, made: Value, read: Value) -> int:
    """The bytes that the price of a collective is a function of."""
    return made.bytes if step.collective == "all_gather" else read.bytes


def price_of(step: Step, made: Value, read: Value, prices: Prices) -> int:
    return prices.collective(step.collective, step.group, read.element, size_of(step, made, read))


def find_members(block: Block, program: Program, prices: Prices) -> list[Member]:
    """The collectives that may be merged, with their keys. Each has one wait in these programs."""
    reads: dict[int, list[int]] = defaultdict(list)
    for at, step in enumerate(program.steps):
        for number in step.reads:
            reads[number].append(at)
    members = []
    for at, step in enumerate(program.steps):
        if step.kind != "start":
            continue
        read, made = program.values[step.reads[0]], program.values[step.makes]
        wait = next(number for number, other in enumerate(program.steps) if other.kind == "wait" and other.start == at)
        key = Key(step.collective, step.group, read.element, step.reduction)
        size, held = size_of(step, made, read), kept(block, read)
        member = Member(key, at, wait, size, held, read.bytes, made.number, made.bytes)
        casts = [n for n, other in enumerate(program.steps) if other.kind == "cast" and other.makes == read.number]
        cast = casts[0] if casts else -1
        if cast >= 0 and reads[read.number] == [at] and read.number not in program.returned:
            source = program.values[program.steps[cast].reads[0]]
            member.cast, member.cast_input, member.cast_bytes = cast, kept(block, source), source.bytes
        members.append(member)
    return separate_measured(members, program, prices)


def kept(block: Block, value: Value) -> int | None:
    return value.storage if value.storage in block.buffers else None


def separate_measured(members: list[Member], program: Program, prices: Prices) -> list[Member]:
    """Collectives with a measured time have keys of their own ("Measured collectives in buckets" of Models.md)."""
    multiples: dict[Key, list[tuple[Fraction, Member]]] = defaultdict(list)
    for member in members:
        key, measured = member.key, program.steps[member.start].time
        if measured is not None:
            modelled = prices.collective(key.kind, key.group, key.element, member.size)
            multiples[key].append((Fraction(measured, modelled), member))
    for key, entries in multiples.items():
        entries.sort(key=lambda entry: entry[0])
        while entries:
            same = [entry for entry in entries if entry[0] <= entries[0][0] * Fraction(5, 4)]
            for _, member in same:
                member.key = replace(key, multiple=same[-1][0])
            entries = entries[len(same) :]
    return members


@dataclass
class Play:
    """What an order costs: ns and bytes."""

    makespan: int
    exposed: int
    peak: int


def play(block: Block, order: list[int]) -> Play:
    """Plays an order: the clock of Models.md, and live bytes at each position."""
    clock, exposed, peak = 0, 0, 0
    lanes: dict[str | None, int] = defaultdict(int)
    ends: dict[int, int] = {}
    last = {buffer: at for at, number in enumerate(order) for buffer in block.nodes[number].touches}
    live = {buffer for buffer, it in block.buffers.items() if it.is_donated and buffer in last}
    for at, number in enumerate(order):
        node = block.nodes[number]
        live |= node.touches
        peak = max(peak, sum(block.buffers[buffer].bytes for buffer in live) + node.workspace)
        live = {buffer for buffer in live if last[buffer] > at or block.buffers[buffer].live_out}
        if node.kind == "start":
            ends[number] = lanes[node.lane] = max(clock, lanes[node.lane]) + node.cost
            clock += node.issue
        elif node.kind == "wait":
            exposed += max(0, ends[node.awaits] - clock)
            clock = max(clock, ends[node.awaits])
        else:
            clock += node.cost
    return Play(max([clock, *lanes.values()]), exposed, peak)
