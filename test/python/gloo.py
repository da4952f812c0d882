# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Runs a function on several real ranks (gloo, one process each)."""

import contextlib
import faulthandler
import multiprocessing
import os
import pathlib
import sys
import tempfile
import warnings
from unittest import mock

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

# Ranks are forks of a process that has imported these and done nothing else. Importing takes two and a half seconds of
# processor time, several times what most functions of a rank take. torch._inductor would start processes of its own.
multiprocessing.set_forkserver_preload(["torch", "torch._dynamo", "torch.distributed.tensor"])

_FAULTS = "COMMSCHED_TEST_FAULTS"  # The folder where ranks write what they were doing when they crashed.


def _main(rank, ranks, port, environment, function, args):
    os.environ.clear()  # That of the process that ranks are forks of is older than what a test has set.
    os.environ.update(environment)
    faults = os.environ.pop(_FAULTS, None)  # It stays open for as long as the rank lives.
    faulthandler.enable(open(pathlib.Path(faults, str(rank)), "w") if faults else sys.stderr)
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    try:
        function(rank, ranks, *args)
    finally:
        dist.destroy_process_group()
    # A thread of gloo's may still release tensors of the last collective (c10d::AsyncAllgatherWork), and needs Python's
    # lock for that. Python 3.11 unwinds threads that ask for it while it ends, and C++ aborts then ("terminate called
    # without an active exception"). So the ranks leave without that end.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def running(ranks, function, *args, every_s=None):
    """Like `run`, but yields while ranks run: after each that ends and, if `every_s` is given, after that time."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # It outlives all ranks.
    given = (ranks, store.port, dict(os.environ), function, args)
    processes = mp.start_processes(_main, given, nprocs=ranks, join=False, start_method="forkserver")
    while not processes.join(every_s):
        yield


def run(ranks, function, *args):
    """Calls `function(rank, ranks, *args)` on every rank. An exception of one rank is raised here.

    PyTorch was seen to crash while it started a collective over gloo, once in some hundreds of runs on a busy machine,
    with nothing of CommSched on the stack: by a signal, or because malloc noticed that its heap is damaged. Only such a
    crash has to happen twice to count.
    """
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {_FAULTS: folder}):
        try:
            for _ in running(ranks, function, *args):
                pass
            return
        except mp.ProcessExitedException as error:
            fault = pathlib.Path(folder, str(error.error_index)).read_text()
            print(fault, file=sys.stderr)
            if (
                error.signal_name not in ("SIGSEGV", "SIGABRT")
                or "most recent call first" not in fault
                or "python/commsched/" in fault
            ):
                raise
            warnings.warn(f"{function.__name__} on {ranks} ranks is run again: {error}", stacklevel=2)
    for _ in running(ranks, function, *args):
        pass


@contextlib.contextmanager
def without_kernels(caches=False):
    """Inductor without a C++ compiler and, by default, without caches: kernels do nothing.

    This is for tests that look at collectives alone. Compiling would take minutes.
    """
    import torch._inductor.config as ic
    from torch._inductor.async_compile import AsyncCompile

    def nothing(*_, **__):
        return lambda *_: None

    with (
        mock.patch.object(AsyncCompile, "cpp_pybinding", nothing),
        mock.patch("torch._inductor.cpu_vec_isa.valid_vec_isa_list", list),  # PyTorch finds it by compiling, too.
        ic.patch(force_disable_caches=not caches),
    ):
        yield


def sharded_step(ranks, layers=4, width=32, extra=True):
    """(parameters, step) of a small sharded model. The step returns the parameters' gradients as local tensors."""
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, init_device_mesh

    mesh = init_device_mesh("cpu", (ranks,))
    group = mesh.get_group().group_name
    torch.manual_seed(0)
    weights = [
        torch.nn.Parameter(distribute_tensor(torch.randn(width, width) / 4, mesh, [Shard(0)])) for _ in range(layers)
    ]
    c10d = torch.ops._c10d_functional

    def full(w):
        return w.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial("avg")])

    def loss(x):
        for w in weights:
            x = (x @ full(w)).relu()
        if extra:  # These reductions do not depend on each other.
            a, b = (c10d.wait_tensor(c10d.all_reduce(y.detach(), "sum", group)) for y in (x.sum(0), x.mean(0)))
            x = x + a * b * 1e-3
        return x.square().mean()

    def step(f, x):
        value = f(x)
        return [value.detach()] + [g.to_local() for g in torch.autograd.grad(value, weights)]

    return loss, step
