# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The least makespan over all bucketings and all orders within a peak limit.

An order is built node by node. What is live follows from the set of nodes that have run; of two prefixes with one set,
one is dropped if no clock of the other one is later. Nothing else is dropped but prefixes that cannot end in time. An
order may have to end in time at several scales of the times of collectives: then it has the clocks of all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .block import Block, Member
from .buckets import Bucket, merged
from .prices import Prices


class GaveUpError(Exception):
    """The search would take too long."""


@dataclass
class Budget:
    """How many prefixes may still be looked at."""

    left: int

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise GaveUpError("too many prefixes")


def topological(block: Block) -> list[int] | None:
    """An order that respects all dependences, or None if buckets depend on themselves."""
    order: list[int] = []
    placed: set[int] = set()
    left = dict(block.nodes)
    while left:
        ready = [number for number, node in left.items() if node.after <= placed]
        if not ready:
            return None
        order += ready
        placed |= set(ready)
        for number in ready:
            del left[number]
    return order


@dataclass
class State:
    """What is known of a set of nodes that have run, whatever their order."""

    live: int
    ready: list[int]
    # Starts whose wait has not run, ascending: the places behind the lanes in a clock.
    flying: list[int]
    # The time that at least follows the compute clock.
    behind: int
    # By lane: the time that at least follows the lane's clock.
    behind_lane: list[int]
    # By place of `flying`: the time that follows the end.
    behind_end: list[int]


@dataclass
class Searcher:
    """A block in arrays. Nodes are bits, in a topological order."""

    block: Block
    limit: int
    budget: Budget
    order: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        numbers, nodes = self.order, self.block.nodes
        at = {number: place for place, number in enumerate(numbers)}
        self.nodes = [nodes[number] for number in numbers]
        self.before = [sum(1 << at[other] for other in node.after) for node in self.nodes]
        lanes = sorted({node.lane for node in self.nodes if node.kind == "start" and node.lane is not None})
        self.lane = [
            lanes.index(node.lane) if node.kind == "start" and node.lane is not None else -1 for node in self.nodes
        ]
        self.lanes = len(lanes)
        self.awaits = [at[node.awaits] if node.kind == "wait" else -1 for node in self.nodes]
        self.wait_of = {start: place for place, start in enumerate(self.awaits) if start >= 0}
        self.full = (1 << len(numbers)) - 1
        self.buffers = self.load_buffers(at)
        self.tails = self.load_tails()
        self.states: dict[int, State] = {}

    def load_buffers(self, at: dict[int, int]) -> list[tuple[int, int, int, bool]]:
        """Indexed by buffer: bytes, the nodes that define it (0: there from the start), users, live at the end."""
        result = []
        for number, buffer in self.block.buffers.items():
            users = sum(1 << at[n] for n in self.order if number in self.block.nodes[n].touches)
            makers = sum(1 << at[n] for n in self.order if number in self.block.nodes[n].defines)
            if users:
                result.append((buffer.bytes, makers, users, buffer.live_out))
        return result

    def load_tails(self) -> list[int]:
        """Indexed by node: the time that at least follows its turn; of a start, the beginning of its collective."""
        tails = [0] * len(self.nodes)
        for place in reversed(range(len(self.nodes))):
            node = self.nodes[place]
            later = max((tails[n] for n in range(len(self.nodes)) if self.before[n] >> place & 1), default=0)
            tails[place] = later + (node.cost if node.kind != "wait" else 0)
        return tails

    def made(self, place: int) -> int:
        """The bytes that a node needs beside what is live."""
        return self.nodes[place].workspace + sum(size for size, makers, _, _ in self.buffers if makers >> place & 1)

    def state(self, done: int) -> State:
        known = self.states.get(done)
        if known is None:
            known = self.states[done] = self.make_state(done)
        return known

    def make_state(self, done: int) -> State:
        live = 0
        for size, makers, users, live_out in self.buffers:
            if (not makers or makers & done) and (live_out or users & ~done):
                live += size
        left = [place for place in range(len(self.nodes)) if not done >> place & 1]
        ready = [place for place in left if self.before[place] & ~done == 0]
        flying = sorted(
            self.awaits[place] for place in left if self.awaits[place] >= 0 and done >> self.awaits[place] & 1
        )
        load = sum(self.nodes[p].cost if self.lane[p] < 0 else self.nodes[p].issue for p in left)
        behind = max([load, *(self.tails[place] for place in left)])
        behind_lane = [0] * self.lanes
        for lane in range(self.lanes):
            starts = [place for place in left if self.lane[place] == lane]
            if starts:
                work = sum(self.nodes[place].cost for place in starts)
                shortest = min(self.tails[place] - self.nodes[place].cost for place in starts)
                behind_lane[lane] = max([work + shortest, *(self.tails[place] for place in starts)])
        behind_end = [self.tails[self.wait_of[start]] for start in flying]
        return State(live, ready, flying, behind, behind_lane, behind_end)

    def least_end(self, state: State, clocks: tuple[int, ...]) -> int:
        """A time before which no order ends that goes on from here."""
        clock = clocks[0]
        end = clock + state.behind
        for lane, behind in enumerate(state.behind_lane, 1):
            end = max(end, max(clock, clocks[lane]) + behind)
        for place, behind in enumerate(state.behind_end, 1 + self.lanes):
            end = max(end, clocks[place] + behind)
        return end

    def run(self, place: int, flying: list[int], clocks: tuple[int, ...]) -> tuple[int, ...]:
        """The clocks after a node: compute, lanes, and the ends of what is in flight. What is over counts as now."""
        node, lane = self.nodes[place], self.lane[place]
        clock, lanes = clocks[0], list(clocks[1 : 1 + self.lanes])
        ends = dict(zip(flying, clocks[1 + self.lanes :]))
        if node.kind == "start":
            ends[place] = lanes[lane] = max(clock, lanes[lane]) + node.cost
            clock += node.issue
        elif node.kind == "wait":
            clock = max(clock, ends.pop(self.awaits[place]))
        else:
            clock += node.cost
        return (clock, *(max(clock, other) for other in lanes), *(max(clock, ends[start]) for start in sorted(ends)))


# The clocks of a prefix, by scale.
Clocks = tuple[tuple[int, ...], ...]


@dataclass
class Search:
    """One block at several scales. The makespan at the first one counts; at the others, it only has to be in time."""

    scales: list[Searcher]
    layers: dict[int, dict[int, list[Clocks]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))

    def settle(self, done: int, clocks: Clocks) -> tuple[int, Clocks]:
        """Runs views, and waits for what is over: they cost and make nothing, so to put them off gains nothing."""
        first = self.scales[0]
        while True:
            state = first.state(done)
            over = set(state.flying)
            for at in clocks:
                over &= {start for start, end in zip(state.flying, at[1 + first.lanes :]) if end <= at[0]}
            for place in state.ready:
                node = first.nodes[place]
                is_view = node.kind == "compute" and not node.cost and not node.workspace and not first.made(place)
                if is_view or first.awaits[place] in over:
                    clocks = self.play(place, state.flying, clocks)
                    done |= 1 << place
                    break
            else:
                return done, clocks

    def play(self, place: int, flying: list[int], clocks: Clocks) -> Clocks:
        return tuple(scale.run(place, flying, at) for scale, at in zip(self.scales, clocks))

    def run(self, at_most: list[int]) -> int | None:
        """The least makespan of those that are at most `at_most`, by scale."""
        first = self.scales[0]
        best = self.insert(0, tuple((0,) * (1 + first.lanes) for _ in self.scales), at_most, None)
        for layer in range(len(first.nodes)):
            for done, labels in self.layers.pop(layer, {}).items():
                state = first.state(done)
                for place in state.ready:
                    if state.live + first.made(place) <= first.limit:
                        for clocks in labels:
                            first.budget.spend()
                            after = self.play(place, state.flying, clocks)
                            most = at_most if best is None else [best - 1, *at_most[1:]]
                            best = self.insert(done | 1 << place, after, most, best)
                for scale in self.scales:
                    scale.states.pop(done, None)
        return best

    def insert(self, done: int, clocks: Clocks, at_most: list[int], best: int | None) -> int | None:
        """Keeps a prefix unless another one is at least as good. Returns the best makespan."""
        done, clocks = self.settle(done, clocks)
        if any(s.least_end(s.state(done), at) > most for s, at, most in zip(self.scales, clocks, at_most)):
            return best
        if done == self.scales[0].full:
            return max(clocks[0])
        labels = self.layers[done.bit_count()][done]
        for other in labels:
            if is_no_later(other, clocks):
                return best
        labels[:] = [other for other in labels if not is_no_later(clocks, other)]
        labels.append(clocks)
        return best


def is_no_later(these: Clocks, those: Clocks) -> bool:
    return all(a <= b for left, right in zip(these, those) for a, b in zip(left, right))


def partitions(members: list[Member]) -> Iterator[list[list[Member]]]:
    """All ways to put members into sets of one key."""
    if not members:
        yield []
        return
    first, others = members[0], members[1:]
    for rest in partitions(others):
        yield [[first], *rest]
        for place, other in enumerate(rest):
            if other[0].key == first.key:
                yield [*rest[:place], [first, *other], *rest[place + 1 :]]


def bucketings(members: list[Member], cap: int | None = None) -> Iterator[list[Bucket]]:
    """All sets of buckets of at most `cap` bytes in all forms; the empty one first."""
    for partition in sorted(partitions(members), key=len, reverse=True):
        real = [members for members in partition if len(members) > 1]
        if cap is not None and any(sum(member.size for member in bucket) > cap for bucket in real):
            continue
        for forms in range(1 << len(real)):
            yield [("coalesced" if forms >> place & 1 else "packed", bucket) for place, bucket in enumerate(real)]


@dataclass
class Optimum:
    """The least makespan, and the buckets that have it; None if no order ends in time within the limit."""

    makespan: int | None
    buckets: list[Bucket]


@dataclass
class Scale:
    """The block at another scale of the times of collectives, and the makespan that it may have there."""

    block: Block
    prices: Prices
    at_most: int

    def own(self, buckets: list[Bucket]) -> list[Bucket]:
        """Buckets of the block as planned, of the members of this one."""
        members = {member.start: member for member in self.block.members}
        return [(form, [members[member.start] for member in bucket]) for form, bucket in buckets]


def least_makespan(
    block: Block,
    prices: Prices,
    limit: int,
    at_most: int,
    budget: Budget,
    cap: int | None = None,
    scales: Sequence[Scale] = (),
) -> Optimum:
    """The optimum within `limit` and `cap` (bytes of a bucket), if it is at most `at_most`. Raises GaveUpError.

    Only orders count that are in time at the `scales`, too.
    """
    best = Optimum(None, [])
    for buckets in bucketings(block.members, cap):
        wanted = at_most if best.makespan is None else best.makespan - 1
        bucketed = merged(block, buckets, prices)
        order = topological(bucketed)
        if order is None:
            continue
        others = [Searcher(merged(at.block, at.own(buckets), at.prices), limit, budget, order) for at in scales]
        search = Search([Searcher(bucketed, limit, budget, order), *others])
        found = search.run([wanted, *(at.at_most for at in scales)])
        if found is not None:
            best = Optimum(found, buckets)
    return best
