# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A training job on machines of two kinds: ranks have different profiles, and schedule by the medians of their costs.

    torchrun --standalone --nproc-per-node 4 docs/examples/mixed_job.py

Every second rank has the profile of another machine. comm-align-costs gathers what each operation costs on all ranks,
so that all of them find the same schedule. Without it, they stop when the code first runs, for they would start
collectives in different orders.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import commsched.torch as ct
from commsched.torch.sharding import fully_shard_parameters

PROFILES = ("h100-sxm", "a100-sxm")


def trained(compiled: bool, machine: str, passes: list[str], steps: int = 3) -> list[torch.Tensor]:
    """The losses of some steps of a small model that is sharded over all ranks."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)  # All ranks begin with the same weights.
    layers = [m for _ in range(3) for m in (torch.nn.Linear(64, 64, bias=False), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers)
    fully_shard_parameters(model, lambda module: mesh, dtype=None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of(x):
        return model(x).square().mean()

    if compiled:
        loss_of = torch.compile(loss_of, options=ct.inductor_options(machine=machine, passes=passes))
    torch.manual_seed(dist.get_rank())
    losses = []
    for _ in range(steps):
        loss = loss_of(torch.randn(8, 64))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", nargs="+", default=["comm-align-costs", "comm-schedule"])
    passes = parser.parse_args().passes
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    machine = PROFILES[rank % len(PROFILES)]
    losses = trained(True, machine, passes)
    for loss, expected in zip(losses, trained(False, machine, passes)):
        torch.testing.assert_close(loss, expected)
    graphs = [report for report in ct.reports() if report["place"] == "graph"]
    mine = [(report["direction"], report["makespan_ns"]) for report in graphs]
    everyone = [None] * ranks
    dist.all_gather_object(everyone, (machine, mine))
    assert len(mine) == 2 and all(theirs == mine for _, theirs in everyone), everyone
    if rank == 0:
        print(f"{ranks} ranks with the profiles {', '.join(m for m, _ in everyone)} agree:")
        for direction, makespan in mine:
            print(f"  {direction}: makespan {makespan['before']} ns -> {makespan['after']} ns on all ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
    # A thread of gloo's may still release tensors of the last collective, and needs Python's lock for that. Python 3.11
    # unwinds threads that ask for it while it ends, and C++ aborts then. So the ranks leave without that end.
    sys.stdout.flush()
    os._exit(0)
