# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What FSDP2's runtime does in a step: gathers, copies, frees and reductions, in the order of the host.

This follows torch/distributed/fsdp/_fully_shard of PyTorch 2.13, function by function: `FSDPState` and
`FSDPParamGroup`. On a device, the host runs ahead, and streams decide when something begins. These rules matter:

- All gathers and reductions of shards go through one process group, so the wire takes them in the order of issue.
- A gather begins when the copy-out has ended for which the gathers' stream waits. In the forward pass, this is that of
  the group before the one that is unsharded now, so two gathered buffers exist. In the backward pass, and of an
  explicit prefetch there, it is that of the group that is unsharded now.
- A reduction needs its input packed, on the stream of computation. Before that, this stream waits for the reduction
  whose buffer is to be reused.
- On a hybrid mesh, the all-reduce of a reduced shard runs in place, on another process group and a stream of its own,
  behind the reduction. The stream of computation waits for it at the end of the step only.
- Parameters that are resharded to a part of the ranks are gathered from there on a process group of its own, but on the
  stream of all gathers.

These do not matter here, and are left out: the copies of shards into a gather's input and of reduced shards out of it
(a part of 1/ranks of the data, on other streams), and the time of the host.
"""

from __future__ import annotations

import enum

from ..eager.step import ROOT, Event, Moment, Parameter, Step, Stretch
from .items import COLLECTIVES, Buffer, Item, Kind
from .layout import Layout
from .setting import Setting


class _State(enum.Enum):
    """`TrainingState` of PyTorch."""

    IDLE = 0
    FORWARD = 1
    PRE_BACKWARD = 2
    POST_BACKWARD = 3


class _GroupState:
    """`FSDPState` and `FSDPParamGroup` of PyTorch for one group. A group without parameters only prefetches."""

    def __init__(self, number: int, parameters: list[Parameter], ranks: int):
        self.number = number
        self.sizes = [p.padded(ranks) * p.gathered_itemsize for p in parameters]
        sizes = {p.gathered_itemsize for p in parameters}
        self.itemsize = sizes.pop() if len(sizes) == 1 else 1
        self.gathered = sum(self.sizes)
        self.parameters = {p.name: p for p in parameters}
        self.state, self.state_in_backward = _State.IDLE, False
        # The buffer of the whole parameters, and the gather that nobody has waited for.
        self.unsharded: Buffer | None = None
        self.pending = -1
        # The part of the parameters that is kept after the forward pass, and the item that copies it.
        self.kept: Buffer | None = None
        self.kept_at = -1
        # Units that are still to run in this forward pass, and those whose hooks begin and end its backward pass.
        self.to_run: set[int] = set()
        self.first, self.last = -1, -1
        # Indexed by parameter: bytes of gradients that wait to be reduced.
        self.ready: dict[str, int] = {}
        self.indices: list[int] = []  # `_post_forward_indices`


class Run:
    """Plays FSDP2's runtime over a step. Takes time in proportion to the step's events and the lists of prefetches.

    Attributes:
        items: what the host issues, in order.
        buffers: memory of whole parameters and of the inputs of reductions.
        flat_until: indexed by gather: the item until which the host keeps its buffer, if longer than the copy-out.
        log: pairs of a kind and a group: "all_gather", "copy_out", "reduce_scatter", "all_reduce", and "reshard" when
            whole parameters are freed, in the order of the host.
        shard_bytes: bytes of the shards of all parameters on one rank.
    """

    def __init__(self, step: Step, setting: Setting, layout: Layout):
        self.step, self.setting, self.layout, self.ranks = step, setting, layout, layout.shards
        self.items: list[Item] = []
        self.buffers: list[Buffer] = []
        self.flat_until: dict[int, int] = {}
        self.log: list[tuple[str, int]] = []
        self._group_of = setting.group_of()
        members: list[list[Parameter]] = [[] for _ in setting.groups]
        for number, unit in enumerate(step.units):
            members[self._group_of[number]] += unit.parameters
        self.shard_bytes = sum(p.padded(self.ranks) // self.ranks * p.stored_itemsize for ps in members for p in ps)
        self._groups = [_GroupState(i, parameters, self.ranks) for i, parameters in enumerate(members)]
        self._group_with = {name: group for group in self._groups for name in group.parameters}
        self._gate = -1  # The copy-out for which the stream of gathers waits.
        self._held: tuple[int, int] | None = None  # A gather whose buffer is kept, and its copy-out.
        self._last = -1  # The last item on the stream of computation.
        self._freed = self._level = 0  # Bytes of gradients freed so far; bytes that are live.
        self._order: list[_GroupState] = []  # `post_forward_order`
        self._in_flight: list[tuple[int, Buffer]] = []  # Reductions whose input is kept.
        self._stale: list[Buffer] = []  # Parts of parameters that nobody gathers any more.
        self._all_reduces: list[int] = []  # Those for which the stream of computation has not waited.
        self._backward = False
        for entry in step.events:
            if isinstance(entry, Stretch):
                self._compute(entry)
            else:
                self._event(entry)
        self._final()

    def host_order(self) -> list[int]:
        """The items as the host issues them. On a processor, this is also when they run."""
        return list(range(len(self.items)))

    def device_order(self) -> list[int]:
        """The items with every gather at the place where its stream lets it begin."""
        behind: dict[int, list[int]] = {}
        last: dict[int, int] = {}  # Indexed by number of ranks of a part, 0 for all: the place of its last collective.
        stream = -1  # That of the last gather.
        for index, item in enumerate(self.items):
            if item.kind is Kind.GATHER:
                stream = last[item.part] = max(stream, last.get(item.part, -1), item.not_before)
                behind.setdefault(stream, []).append(index)
            elif item.kind is Kind.REDUCE:
                last[0] = item.of
                behind.setdefault(item.of, []).append(index)
            elif item.kind is Kind.ALL_REDUCE:
                behind[self.items[item.of].of].append(index)
        order = list(behind.get(-1, ()))
        for index, item in enumerate(self.items):
            if item.kind not in COLLECTIVES:
                order += [index, *behind.get(index, ())]
        return order

    def allocated_bytes(self) -> int:
        """The most bytes that are live in the order of the host, with shards: what an allocator counts."""
        end = len(self.items)
        lives = [(b.nbytes, b.born, b.dies) for b in self.buffers]
        copied = {item.of: index for index, item in enumerate(self.items) if item.kind is Kind.COPY_OUT}
        awaited = {item.of: index for index, item in enumerate(self.items) if item.kind is Kind.AWAIT}
        for index, item in enumerate(self.items):
            if item.kind is Kind.GATHER:  # One that nobody waits for is kept to the end.
                copy_out = copied.get(index, end - 1)
                lives.append((item.nbytes, index, max(copy_out, self.flat_until.get(index, copy_out))))
            elif item.kind is Kind.REDUCE:  # What is reduced is the gradient, unless that has another type.
                lives.append((item.nbytes // self.ranks, index, awaited[index] if item.cast else end - 1))
            if item.cast:
                lives.append((item.cast, index, end - 1))
        change = [0] * (end + 1)
        for nbytes, born, dies in lives:
            change[born] += nbytes
            change[dies + 1] -= nbytes
        live = peak = 0
        for item, delta in zip(self.items, change):
            live += delta
            peak = max(peak, live + item.peak)
        return peak + self.shard_bytes

    def _add(self, item: Item) -> int:
        item.backward = self._backward
        if item.kind is not Kind.COMPUTE:
            item.peak = self._level
            item.level = self._level = self._level - item.level
        self.items.append(item)
        if item.kind not in (Kind.COMPUTE, Kind.COPY_IN, Kind.AWAIT):
            self.log.append((item.kind.value, item.group))
        index = len(self.items) - 1
        if item.kind not in COLLECTIVES:
            self._last = index
        return index

    def _buffer(self, nbytes: int, born: int) -> Buffer:
        self.buffers.append(Buffer(nbytes, born, born))
        return self.buffers[-1]

    def _compute(self, stretch: Stretch) -> None:
        before, self._level = self._level, stretch.end_bytes - self._freed
        peak = max(before, self._level, stretch.peak_bytes - self._freed)
        last = self.items[-1] if self.items else None
        if last is not None and last.kind is Kind.COMPUTE and not stretch.cost_ns and peak <= before:
            last.level = self._level  # Memory is freed, and nothing else happens.
        else:
            self._add(Item(Kind.COMPUTE, cost_ns=stretch.cost_ns, level=self._level, peak=peak))
        for name, size in stretch.gradients:
            ready = self._group_with[name].ready
            ready[name] = ready.get(name, 0) + size

    # The hooks of `FSDPState`.

    def _event(self, event: Event) -> None:
        group = self._groups[self._group_of[event.unit]]
        if group.number == 0 and event.unit != ROOT:
            return  # The root's other units have no hooks.
        if event.moment is Moment.ENTER:
            self._pre_forward(group, event.unit)
        elif event.moment is Moment.LEAVE:
            self._post_forward(group, event.unit)
        elif event.moment is Moment.ENTER_BACKWARD:
            if event.unit == group.last:
                self._pre_backward(group)
        elif event.unit == group.first:
            self._post_backward(group)

    def _pre_forward(self, group: _GroupState, unit: int) -> None:
        if group.state_in_backward:  # Activation checkpointing runs the module again.
            self._unshard(group)
            self._wait(group)
            return
        first = group.state is not _State.FORWARD
        if first:
            group.to_run = {u for u in self.setting.groups[group.number].units if group.number or u == ROOT}
            group.first = unit
        group.state = _State.FORWARD
        self._unshard(group)
        self._wait(group)
        if first:
            for target in self.setting.forward_targets(group.number):
                self._unshard(self._groups[target])

    def _post_forward(self, group: _GroupState, unit: int) -> None:
        group.to_run.discard(unit)
        if group.state_in_backward or group.to_run:
            return
        group.last = unit
        self._complete(group)
        if group.number == 0:
            for other in self._groups[1:]:
                if other.state is _State.FORWARD and other.to_run:  # Not all of its modules were called.
                    other.last = -1
                    self._complete(other)
            self._flush()

    def _complete(self, group: _GroupState) -> None:
        if group.parameters:
            part = self.setting.groups[group.number].reshard
            if part is True:
                self._reshard(group)
            elif part:
                self._reshard_to(group, part)
            group.indices.append(len(self._order))
            self._order.append(group)
        group.state = _State.IDLE

    def _flush(self) -> None:
        """The stream of gathers waits for the copy-out whose gather is kept, and the host frees that."""
        if self._held is not None:
            gather, copy_out = self._held
            self._gate, self._held = max(self._gate, copy_out), None
            self.flat_until[gather] = self._last

    def _pre_backward(self, group: _GroupState) -> None:
        self._backward = group.state_in_backward = True
        targets = self.setting.backward_targets(group.number)
        if group.state is not _State.PRE_BACKWARD:
            group.state = _State.PRE_BACKWARD
            self._unshard(group)
            self._wait(group)
            if not targets and group.indices:
                current = group.indices.pop()
                if current > 0:
                    self._unshard(self._order[current - 1])
        for target in targets:
            self._unshard(self._groups[target])

    # `FSDPParamGroup`.

    def _unshard(self, group: _GroupState) -> None:
        if group.pending < 0 and group.unsharded is None and group.parameters:
            gather = Item(Kind.GATHER, group.number, nbytes=group.gathered, itemsize=group.itemsize)
            gather.not_before = self._gate
            if group.kept is not None:
                gather.part = group.gathered // group.kept.nbytes
                gather.not_before = max(self._gate, group.kept_at)
            group.pending = self._add(gather)

    def _wait(self, group: _GroupState) -> None:
        if group.pending < 0:
            return
        if group.state is _State.FORWARD:
            self._flush()
        item = Item(Kind.COPY_OUT, group.number, nbytes=group.gathered, itemsize=group.itemsize, of=group.pending)
        copy_out = self._add(item)
        group.unsharded = self._buffer(group.gathered, copy_out)
        if group.kept is not None:
            group.kept.dies, group.kept = copy_out, None
        if group.state is _State.FORWARD:
            self._held = group.pending, copy_out
        else:
            self._gate = copy_out
        group.pending = -1

    def _reshard(self, group: _GroupState) -> None:
        if group.unsharded is not None:
            group.unsharded.dies, group.unsharded = self._last, None
            self.log.append(("reshard", group.number))
        elif group.kept is not None:  # It was not gathered again. PyTorch keeps the part until it makes another one.
            self._stale, group.kept = [*self._stale, group.kept], None
            self.log.append(("reshard", group.number))

    def _reshard_to(self, group: _GroupState, part: int) -> None:
        """One parameter after the other, its part is copied and the whole one is freed (`to_sharded_post_forward`)."""
        assert group.unsharded is not None
        group.unsharded.dies, group.unsharded = self._last, None
        live = most = group.gathered
        for size in group.sizes:
            most = max(most, live + size // part)
            live -= size - size // part
        item = Item(Kind.RESHARD, group.number, nbytes=live, itemsize=group.itemsize)
        group.kept_at = self._add(item)
        item.peak = self._level + most - live
        group.kept = self._buffer(live, group.kept_at)

    def _await(self, reduction: int, packed: Buffer) -> None:
        packed.dies = self._add(Item(Kind.AWAIT, self.items[reduction].group, of=reduction))

    def _post_backward(self, group: _GroupState) -> None:
        group.state = _State.POST_BACKWARD
        ready, group.ready = group.ready, {}
        self._reshard(group)
        if group.parameters:
            while len(self._in_flight) >= self.setting.reduce_buffers:
                self._await(*self._in_flight.pop(0))
        if not ready:
            return
        reduced = [group.parameters[name] for name in ready]
        size = reduced[0].reduced_itemsize
        nbytes = sum(p.padded(self.ranks) for p in reduced) * size
        freed = sum(ready.values())
        self._freed += freed
        copy_in = self._add(Item(Kind.COPY_IN, group.number, nbytes=nbytes, itemsize=size, level=freed))
        packed = self._buffer(nbytes, copy_in)
        gradients = sum(p.padded(self.ranks) // self.ranks * p.stored_itemsize for p in reduced)
        part = nbytes // self.ranks
        cast = gradients if any(p.stored_itemsize != size for p in reduced) else 0
        reduce = Item(Kind.REDUCE, group.number, nbytes=nbytes, itemsize=size, of=copy_in)
        reduction = self._add(reduce)
        if self.layout.replicas:
            all_reduce = Item(Kind.ALL_REDUCE, group.number, nbytes=part, itemsize=size, of=reduction, cast=cast)
            self._all_reduces.append(self._add(all_reduce))
        else:
            reduce.cast = cast
        self._in_flight.append((reduction, packed))

    def _final(self) -> None:
        """`_root_post_backward_final_callback`."""
        units = self.step.units
        order = sorted(
            self._groups[1:], key=lambda g: min(units[u].position for u in self.setting.groups[g.number].units)
        )
        for group in [self._groups[0], *order]:
            if group.state is not _State.POST_BACKWARD:
                self._post_backward(group)
            while self._all_reduces:  # `finalize_backward`
                all_reduce = self._all_reduces.pop(0)
                self._add(Item(Kind.AWAIT, self.items[all_reduce].group, of=all_reduce))
        for flight in self._in_flight:
            self._await(*flight)
        for stale in self._stale:
            stale.dies = len(self.items) - 1
