# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A block with buckets carried out, by the rules that Bucketing.h states."""

from __future__ import annotations

import math
from copy import deepcopy

from .block import Block, Key, Member, Node
from .prices import Prices

# A packed all-gather unpacks members of at most this much output together.
SMALL = 2 << 20
# A form, "packed" or "coalesced", and the members.
Bucket = tuple[str, list[Member]]


def price_of_bucket(key: Key, size: int, parts: int, prices: Prices) -> int:
    price = prices.collective(key.kind, key.group, key.element, size, parts)
    return prices.scaled(math.ceil(price * key.multiple) if key.multiple is not None else price)


def merged(block: Block, buckets: list[Bucket], prices: Prices) -> Block:
    """The block with buckets carried out."""
    result = deepcopy(block)
    stands_for: dict[int, int] = {}
    gone: set[int] = set()
    for form, members in buckets:
        merge = coalesce if form == "coalesced" else pack
        merge(result, members, prices, stands_for)
        gone |= {number for m in members for number in (m.start, m.wait)}
        gone |= {m.cast for m in members if m.cast >= 0 and form == "packed"}
    for number in gone:
        del result.nodes[number]
    for node in result.nodes.values():
        node.after = {stands_for.get(number, number) for number in node.after}
        node.touches = {result.view_of.get(buffer, buffer) for buffer in node.touches}
        node.defines -= set(result.view_of)
    return result


def start_of(block: Block, members: list[Member], parts: int, prices: Prices) -> Node:
    first = block.nodes[members[0].start]
    cost = price_of_bucket(members[0].key, sum(member.size for member in members), parts, prices)
    return Node("start", cost, first.lane, first.issue)


def coalesce(block: Block, members: list[Member], prices: Prices, stands_for: dict[int, int]) -> None:
    """One start and one wait over the buffers of the members."""
    start = start_of(block, members, len(members), prices)
    for member in members:
        start.after |= block.nodes[member.start].after
        start.defines.add(member.output)
        block.touch(start, member.input)
        block.touch(start, member.output)
    number = block.add(start)
    wait = block.add(Node("wait", awaits=number, after={number}, touches=set(start.touches)))
    for member in members:
        stands_for[member.start], stands_for[member.wait] = number, wait


def pack(block: Block, members: list[Member], prices: Prices, stands_for: dict[int, int]) -> None:
    """A pack, a start and a wait over one buffer, and what gives the members their results."""
    kind = members[0].key.kind
    packing = Node("compute")
    for member in members:
        packing.after |= block.nodes[member.cast if member.cast >= 0 else member.start].after
        block.touch(packing, member.cast_input if member.cast >= 0 else member.input)
    read = sum(member.cast_bytes if member.cast >= 0 else member.input_bytes for member in members)
    written = sum(member.input_bytes for member in members)
    packing.cost = prices.copy(read, written)
    pack_number = block.add(packing)
    start = start_of(block, members, 1, prices)
    start.after = {pack_number}
    outputs = sum(member.output_bytes for member in members)
    is_live_out = any(block.buffers[member.output].live_out for member in members)
    in_place = kind != "reduce_scatter"
    whole = block.define(packing, outputs if kind == "all_gather" else written, is_live_out and kind == "all_reduce")
    block.touch(start, whole)
    result = whole if in_place else block.define(start, outputs, is_live_out)
    start_number = block.add(start)
    wait_number = block.add(Node("wait", awaits=start_number, after={start_number}, touches=set(start.touches)))
    for member in members:
        stands_for[member.start] = start_number
        if member.cast >= 0:
            del block.buffers[member.input]  # type: ignore[arg-type]
    if kind == "all_gather":
        unpack(block, members, prices, whole, wait_number, stands_for)
    else:
        view(block, members, result, wait_number, stands_for)


def unpack(
    block: Block, members: list[Member], prices: Prices, whole: int, wait: int, stands_for: dict[int, int]
) -> None:
    """One kernel for each output, and one for all small ones together."""
    small = [member for member in members if member.output_bytes <= SMALL]
    groups = [small] if len(small) > 1 else [[member] for member in small]
    groups += [[member] for member in members if member.output_bytes > SMALL]
    for group in groups:
        size = sum(member.output_bytes for member in group)
        outputs = {member.output for member in group}
        node = Node("compute", prices.copy(size, size), after={wait}, touches={whole} | outputs, defines=outputs)
        number = block.add(node)
        for member in group:
            stands_for[member.wait] = number


def view(block: Block, members: list[Member], result: int, wait: int, stands_for: dict[int, int]) -> None:
    """The outputs are views of the result."""
    number = block.add(Node("compute", after={wait}, touches={result}))
    for member in members:
        stands_for[member.wait] = number
        block.view_of[member.output] = result
        del block.buffers[member.output]
