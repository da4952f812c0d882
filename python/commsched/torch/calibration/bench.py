# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One collective, run and timed on a process group: by events where the device has them, otherwise by the clock."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist

from ..options import to_ns

log = logging.getLogger("commsched")

# Indexed by the element type's name in a machine profile.
DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
}
# The bytes of inputs through which the runs of one collective rotate, so that no run finds its input in a cache; the
# smallest input for which it matters; and the most inputs. As in lib/Calibration.
ROTATED_BYTES, LEAST_ROTATED, MOST_INPUTS = 128 << 20, 64 << 10, 64
# Makes the call that starts a collective, from its input, the group's name and the group's size.
Start = Callable[[torch.Tensor, str, int], torch.Tensor]
_c10d = torch.ops._c10d_functional
# Indexed by kind.
STARTS: dict[str, Start] = {
    "all_gather": lambda x, group, ranks: _c10d.all_gather_into_tensor(x, ranks, group),
    "reduce_scatter": lambda x, group, ranks: _c10d.reduce_scatter_tensor(x, "sum", ranks, group),
    "all_reduce": lambda x, group, ranks: _c10d.all_reduce(x, "sum", group),
    "all_to_all": lambda x, group, ranks: _c10d.all_to_all_single(x, *[[len(x) // ranks] * ranks] * 2, group),
    "broadcast": lambda x, group, ranks: _c10d.broadcast(x, 0, group),
}


class Clock(Protocol):
    """Times one collective on one rank."""

    name: str

    def synchronize(self) -> None:
        """Waits until the device has nothing to do."""

    def time(
        self,
        start: Callable[[], torch.Tensor],
        wait: Callable[[torch.Tensor], Any],
        gate: Callable[[], Any] | None = None,
    ) -> tuple[int, int]:
        """Runs both. (ns from the start to the end of the wait, ns of the call that starts it).

        Args:
            gate: makes the device wait for all members, before the time begins. A clock of the host needs none.
        """


class HostClock:
    """For collectives that are over when the wait returns, as gloo's are."""

    name = "the host's monotonic clock, from the start to the end of the wait"

    def synchronize(self) -> None:
        pass

    def time(
        self,
        start: Callable[[], torch.Tensor],
        wait: Callable[[torch.Tensor], Any],
        gate: Callable[[], Any] | None = None,
    ) -> tuple[int, int]:
        begin = time.perf_counter_ns()
        result = start()
        issued = time.perf_counter_ns()
        wait(result)
        return time.perf_counter_ns() - begin, issued - begin


class EventClock:
    """For collectives of a device: events on the stream that computes, around the start and the wait.

    A gate on that stream comes first, so that the time holds no wait for a rank that arrives late: hosts that leave a
    barrier together do not reach their devices together.

    Args:
        device_module: `torch.cuda`, or what `torch.get_device_module` gives for the device.
    """

    name = "events on the stream of computation, from the start to the end of the wait, behind a gate"

    def __init__(self, device_module: Any):
        self.device = device_module

    def synchronize(self) -> None:
        self.device.synchronize()

    def time(
        self,
        start: Callable[[], torch.Tensor],
        wait: Callable[[torch.Tensor], Any],
        gate: Callable[[], Any] | None = None,
    ) -> tuple[int, int]:
        if gate is not None:
            gate()
        first, last = (self.device.Event(enable_timing=True) for _ in range(2))
        first.record()
        begin = time.perf_counter_ns()
        result = start()
        issued = time.perf_counter_ns() - begin
        wait(result)
        last.record()
        last.synchronize()
        return to_ns(first.elapsed_time(last)), issued


def clock_of(device: torch.device) -> Clock:
    """The clock for collectives of tensors on `device`."""
    return HostClock() if device.type == "cpu" else EventClock(torch.get_device_module(device))


class GroupBench:
    """Runs collectives on the groups of this rank, as the library asks for them (`_commsched.calibrate`).

    Every rank has one, with groups of the same shapes. All groups of one shape run at once, as they do in training.

    Args:
        groups: the group of this rank, by (ranks, nodes).
        device: where the tensors are.
        clock: what times a collective.
        seed: make the calls of PyTorch's `node_runtime_estimation` and no others: the run that warms up has no barrier.
    """

    def __init__(
        self, groups: Mapping[tuple[int, int], dist.ProcessGroup], device: torch.device, clock: Clock, seed: bool
    ):
        self.groups, self.device, self.clock, self.seed = groups, device, clock, seed
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.numbers = torch.device(
            dist.distributed_c10d._get_object_coll_device()
        )  # where the default group takes them
        self.start: Callable[[], torch.Tensor] | None = None
        # A sum of one element on the group, and the wait for it. PyTorch's recipe has none.
        self.gate: Callable[[], Any] | None = None
        self._cold = True

    def prepare(self, kind: str, element: str, ranks: int, nodes: int, bytes_: int) -> None:
        """Makes the input of a collective. `bytes_` counts as in a machine profile.

        Raises:
            RuntimeError: some rank cannot, for example for want of memory. Every rank raises it.
        """
        reason = ""
        try:
            group, name = self.groups[ranks, nodes], STARTS[kind]
            dtype = DTYPES[element]
            count = bytes_ // dtype.itemsize // (ranks if kind == "all_gather" else 1)
            # Not zero, which some networks compress, and small: a sum of many ranks stays finite.
            x = torch.arange(count, device=self.device).remainder_(7).add_(1).to(dtype)
            rotated = 1 if self.seed or bytes_ < LEAST_ROTATED else min(MOST_INPUTS, max(1, ROTATED_BYTES // bytes_))
            inputs = itertools.cycle([x] + [x.clone() for _ in range(rotated - 1)])
            self.start = lambda: name(next(inputs), group.group_name, ranks)
            one = torch.ones(1, device=self.device)
            if not self.seed:
                self.gate = lambda: _c10d.wait_tensor(_c10d.all_reduce(one, "sum", group.group_name))
        except KeyError as error:
            reason = f"PyTorch has no functional collective for {error}"
        except RuntimeError as error:
            reason = str(error).split("\n")[0]
        self._cold = True
        worst = self.gather([int(bool(reason))])
        if any(worst):
            raise RuntimeError(reason or f"rank {worst.index(1)} could not prepare it")

    def run(self) -> tuple[int, int]:
        """Runs the prepared collective once, after all ranks have arrived. (total, issue) in ns."""
        assert self.start is not None
        cold, self._cold = self._cold, False
        with torch.no_grad():
            if self.seed and cold:
                self.clock.synchronize()
                _c10d.wait_tensor(self.start())
                return 0, 0  # Nobody asks for this time.
            dist.barrier()
            self.clock.synchronize()
            return self.clock.time(self.start, _c10d.wait_tensor, self.gate)

    def gather(self, own: list[int]) -> list[int]:
        """The numbers of all ranks, one rank after the other."""
        mine = torch.tensor(own, dtype=torch.int64, device=self.numbers)
        everyone = [torch.empty_like(mine) for _ in range(self.ranks)]
        dist.all_gather(everyone, mine)
        return torch.cat(everyone).tolist()

    def now(self) -> int:
        return time.perf_counter_ns()

    def progress(self, line: str) -> None:
        if self.rank == 0:
            log.info("%s", line)
