#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One rank of torch.distributed over gloo, as a server of measurements for runtime.py.

The requests and answers are those of CollectiveTimes.cpp. Rank 0 reads the requests; the others sleep in a broadcast.

    python benchmarks/runtime_gloo.py RANK RANKS FILE
"""

import datetime
import sys
import time

import torch
import torch.distributed as dist

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def calls_of(kind: int, data: torch.Tensor, result: torch.Tensor, part: torch.Tensor):
    """The function that carries out one collective; `part` has the elements of one rank."""
    return (
        lambda: dist.all_reduce(data),
        lambda: dist.all_gather_single(result, part),
        lambda: dist.reduce_scatter_single(part, data),
        lambda: dist.all_to_all_single(result, data),
    )[kind]


def serve(rank: int, ranks: int) -> None:
    while True:
        request = torch.full((3,), -1, dtype=torch.int64)
        if rank == 0 and (line := sys.stdin.readline().split()):
            request = torch.tensor([KINDS.index(line[0]), int(line[1]), int(line[2])])
        dist.broadcast(request, 0)
        kind, size, calls = request.tolist()
        if kind < 0:
            return
        elements = size // 4 if kind == 0 else size // 4 // ranks * ranks
        data, result = torch.zeros(elements), torch.zeros(elements)
        call = calls_of(kind, data, result, torch.zeros(elements // ranks))
        for _ in range(1 + calls // 10):
            call()
        dist.barrier()
        begin, cpu = time.perf_counter_ns(), time.thread_time_ns()
        for _ in range(calls):
            call()
        own, cpu = time.perf_counter_ns() - begin, time.thread_time_ns() - cpu
        slowest = torch.tensor([own])
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        if rank == 0:
            print(slowest.item() / 1e3 / calls, cpu / 1e3 / calls, flush=True)


def main() -> None:
    rank, ranks, file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    store = f"file://{file}"
    hours = datetime.timedelta(hours=2)  # the other ranks wait for the next request
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks, timeout=hours)
    serve(rank, ranks)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
