"""Runs a function on several real ranks (gloo, one process each)."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def _main(rank, ranks, port, function, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    try:
        function(rank, ranks, *args)
    finally:
        dist.destroy_process_group()


def run(ranks, function, *args):
    """Calls `function(rank, ranks, *args)` on every rank; an exception of one is raised here."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(_main, (ranks, port, function, args), nprocs=ranks)


def sharded_step(ranks, layers=4, width=32, extra=True):
    """(parameters, step): a small sharded model. The step gives the parameters' gradients as local tensors."""
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, init_device_mesh

    mesh = init_device_mesh("cpu", (ranks,))
    group = mesh.get_group().group_name
    torch.manual_seed(0)
    weights = [torch.nn.Parameter(distribute_tensor(torch.randn(width, width) / 4, mesh, [Shard(0)]))
               for _ in range(layers)]
    c10d = torch.ops._c10d_functional

    def full(w):
        return w.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial("avg")])

    def loss(x):
        for i, w in enumerate(weights):
            x = (x @ full(w)).relu()
        if extra:  # reductions that do not depend on each other
            a, b = (c10d.wait_tensor(c10d.all_reduce(y.detach(), "sum", group)) for y in (x.sum(0), x.mean(0)))
            x = x + a * b * 1e-3
        return x.square().mean()

    def step(f, x):
        value = f(x)
        return [value.detach()] + [g.to_local() for g in torch.autograd.grad(value, weights)]

    return loss, step
