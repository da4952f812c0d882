# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Faults to plant in the oracle. A comparison that misses them would miss those of the library, too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A rule that is read wrongly: an edit of one file, from a text that occurs once to another one."""

    name: str
    file: str
    old: str
    new: str


FAULTS = [
    # The clock and the memory of the given order.
    Fault("a wait does not block", "block.py", "clock = max(clock, ends[node.awaits])", "clock += 0"),
    Fault(
        "a lane runs everything at once",
        "block.py",
        "= max(clock, lanes[node.lane]) + node.cost",
        "= clock + node.cost",
    ),
    Fault("issuing costs nothing", "block.py", "            clock += node.issue\n", ""),
    Fault("workspace is forgotten", "block.py", "for buffer in live) + node.workspace)", "for buffer in live))"),
    Fault("inputs are freed at the start", "block.py", "set(block.nodes[step.start].touches)", "{step.makes}"),
    Fault("results are freed", "block.py", " or block.buffers[buffer].live_out}", "}"),
    Fault("donated arguments need no memory", "block.py", "it.is_donated and buffer in last}", "False}"),
    Fault(
        "a reader of a view keeps nothing",
        "block.py",
        "[made, *read] if value.storage in",
        "[made, *read] if value.number in",
    ),
    # The clock and the memory of the search.
    Fault(
        "a wait does not block in the search",
        "search.py",
        "clock = max(clock, ends.pop(self.awaits[place]))",
        "ends.pop(self.awaits[place])",
    ),
    Fault(
        "a lane of the search runs everything at once",
        "search.py",
        "= max(clock, lanes[lane]) + node.cost",
        "= clock + node.cost",
    ),
    Fault("waits end too early in the search", "search.py", "if end <= at[0]}", "if end <= at[0] + 2000}"),
    Fault("workspace is forgotten in the search", "search.py", "self.nodes[place].workspace + sum(", "sum("),
    Fault("results are freed in the search", "search.py", "(live_out or users & ~done)", "users & ~done"),
    Fault("the limit itself is out of reach", "search.py", "<= first.limit", "< first.limit"),
    Fault(
        "the search forgets prefixes",
        "search.py",
        "if is_no_later(other, clocks):",
        "if other[0][0] <= clocks[0][0]:",
    ),
    Fault("the search cuts too much", "search.py", "clock + state.behind\n", "clock + state.behind + 1\n"),
    # Buckets.
    Fault("nothing is merged", "search.py", "if other[0].key == first.key:", "if False:"),
    Fault(
        "different keys are merged",
        "search.py",
        "if other[0].key == first.key:",
        "if other[0].key.kind == first.key.kind:",
    ),
    Fault("caps are ignored", "search.py", "if cap is not None and any", "if False and any"),
    Fault(
        "nothing is packed", "search.py", "for forms in range(1 << len(real)):", "for forms in [(1 << len(real)) - 1]:"
    ),
    Fault("nothing is coalesced", "search.py", "for forms in range(1 << len(real)):", "for forms in [0]:"),
    Fault("packs are free", "buckets.py", "packing.cost = prices.copy(read, written)", "packing.cost = 0"),
    Fault("unpacks are free", "buckets.py", 'Node("compute", prices.copy(size, size),', 'Node("compute", 0,'),
    Fault("small outputs are unpacked alone", "buckets.py", "SMALL = 2 << 20", "SMALL = 0"),
    Fault("large outputs are unpacked together", "buckets.py", "SMALL = 2 << 20", "SMALL = 2 << 40"),
    Fault(
        "the gathered buffer dies before it is unpacked", "buckets.py", "touches={whole} | outputs", "touches=outputs"
    ),
    Fault(
        "a pack holds no inputs",
        "buckets.py",
        "        block.touch(packing, member.cast_input if",
        "        block.touch(start_of(block, members, 1, prices), member.cast_input if",
    ),
    Fault("casts are not fused", "block.py", "if cast >= 0 and reads", "if cast > 1000 and reads"),
    Fault(
        "a fused cast reads what it writes",
        "buckets.py",
        "member.cast_bytes if member.cast >= 0",
        "member.input_bytes if member.cast >= 0",
    ),
    Fault("casts with other readers are fused", "block.py", "reads[read.number] == [at] and", ""),
    Fault("measured collectives of any multiple are merged", "block.py", "Fraction(5, 4)]", "1000]"),
    Fault(
        "a result in a bucket is freed",
        "buckets.py",
        "block.define(start, outputs, is_live_out)",
        "block.define(start, outputs)",
    ),
    Fault("buckets of buckets read nothing", "buckets.py", "result.view_of.get(buffer, buffer) for", "buffer for"),
    Fault(
        "a bucket is issued for nothing",
        "buckets.py",
        'Node("start", cost, first.lane, first.issue)',
        'Node("start", cost, first.lane)',
    ),
    # Prices.
    Fault(
        "times are linear in bytes",
        "prices.py",
        "math.log(size / left[0]) / math.log(right[0] / left[0])",
        "(size - left[0]) / (right[0] - left[0])",
    ),
    Fault("noise is believed", "prices.py", "mean(pools[-2]) >= mean(pools[-1])", "False"),
    Fault("no time beyond the last point", "prices.py", "(size - last[0]) * rise)", "0 * rise)"),
    Fault("a group of measured collectives has one latency", "prices.py", "(parts - 1) * self", "0 * self"),
    Fault("a group of collectives has one latency", "prices.py", "parts * latency", "latency"),
    Fault("an all-reduce moves its bytes once", "prices.py", "passes = 2 if", "passes = 1 if"),
    Fault("tables of groups are ignored", "prices.py", "(2 * is_named + ", "(-2 * is_named + "),
    Fault("tables of types are ignored", "prices.py", 'in (element, "any")', 'in ("any",)'),
    Fault("groups never share a lane", "prices.py", '"network" if across else "node"', "group"),
    Fault("copies read nothing", "prices.py", "(read + written) * GIGA", "written * GIGA"),
    Fault(
        "measured collectives merge at the price of the model",
        "buckets.py",
        "if key.multiple is not None else price",
        "if False else price",
    ),
    Fault("scales are ignored", "prices.py", "time * self.scale // 1000", "time"),
]
