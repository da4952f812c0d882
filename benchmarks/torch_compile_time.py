#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""CPU time that CommSched adds to torch.compile, beside PyTorch's own, on a sharded model of several sizes.

One process stands for a job of eight ranks (a fake process group). The model is a stack of transformer layers whose
parameters are gathered where they are read; forward and backward graphs are compiled. Inductor writes its C++ code, and
nobody compiles or runs it: with a C++ compiler or Triton, PyTorch takes longer, and CommSched does not.

    PYTHONPATH=python python benchmarks/torch_compile_time.py --layers 4 8 20 --options '{"effort": 300000}'
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import json
import sys
import time
import warnings
from pathlib import Path
from unittest import mock

import torch
from torch.distributed.device_mesh import init_device_mesh

import commsched.torch as ct
from commsched.torch.inductor import passes
from commsched.torch.sharding import fully_shard_parameters
from commsched.torch.trace import fake_world

sys.path.append(str(Path(__file__).resolve().parents[1] / "test" / "python"))
import gloo

RANKS, WIDTH = 8, 64
# CommSched's places in Inductor. None of them is called inside of another.
PLACES = (
    (passes.GraphPass, "behind_all_passes"),
    (passes.FusionBounds, "__call__"),
    (passes.KernelOrder, "__call__"),
    (passes, "_pass_last_gate"),
)


class Clock:
    """The CPU seconds inside of CommSched's places, by place, and the sizes of the graphs."""

    def __init__(self, profile: cProfile.Profile | None):
        self.seconds: dict[str, float] = {}
        self.parts: dict[str, float] = {}
        self.nodes: list[int] = []
        self.profile = profile

    def add(self, report: dict) -> None:
        """Adds what the report of a graph says of the parts of scheduling it."""
        opinion = report.get("second_opinion", {})
        peer = opinion.get("scheduled_ns", 0)
        parts = {
            "import": report["import_ns"],
            "solver": report["pipeline_ns"] - peer,
            "PyTorch's scheduler": peer,
            "PyTorch's estimates": opinion.get("estimated_ns", 0),
            "apply": report["apply_ns"],
        }
        for name, ns in parts.items():
            self.parts[name] = self.parts.get(name, 0.0) + ns / 1e9

    def around(self, name: str, function):
        def timed(*args):
            if name == "behind_all_passes":
                self.nodes.append(len(args[1].graph.nodes))
            if self.profile:
                self.profile.enable()
            began = time.process_time()
            try:
                return function(*args)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - began
                if self.profile:
                    self.profile.disable()

        return timed


def model_of(layers: int) -> torch.nn.Module:
    mesh = init_device_mesh("cpu", (RANKS,))
    made = [torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True) for _ in range(layers)]
    model = torch.nn.Sequential(*made)
    fully_shard_parameters(model, lambda module: mesh, dtype=None)
    return model


def compiled_once(layers: int, options: dict, profile: cProfile.Profile | None) -> tuple[float, Clock]:
    """CPU seconds of compiling a step's forward and backward graphs, and what of it is CommSched's.

    Args:
        options: those of CommSched.
    """
    torch._dynamo.reset()
    clock = Clock(profile)
    with fake_world(RANKS), gloo.without_kernels(), contextlib.ExitStack() as stack:
        model, x = model_of(layers), torch.zeros(2, 16, WIDTH)
        for owner, name in PLACES:
            stack.enter_context(mock.patch.object(owner, name, clock.around(name, getattr(owner, name))))
        given = ct.inductor_options(**{"memory_budget_ratio": 0.1, **options})
        began = time.process_time()
        with contextlib.suppress(RuntimeError):  # Kernels do nothing.
            torch.compile(model, options=given)(x).square().mean().backward()
        seconds = time.process_time() - began
        for report in ct.reports():
            if report["place"] == "graph":
                clock.add(report)
        return seconds, clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 8, 20])
    parser.add_argument("--options", type=json.loads, default={}, help="options of CommSched, as JSON")
    parser.add_argument("--profile", help="write what cProfile says of CommSched's places to this file")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sys.setrecursionlimit(100_000)
    profile = cProfile.Profile() if given.profile else None
    compiled_once(1, given.options, None)  # The first compilation imports much.
    print("| layers | nodes (forward, backward) | PyTorch | CommSched | share | parts |\n|---|---|---|---|---|---|")
    for layers in given.layers:
        seconds, clock = compiled_once(layers, given.options, profile)
        own = sum(clock.seconds.values())
        places = ", ".join(f"{name} {s:.2f}" for name, s in clock.parts.items())
        nodes = ", ".join(f"{n:,}" for n in clock.nodes)
        share = 100 * own / (seconds - own)
        print(f"| {layers} | {nodes} | {seconds - own:.1f} s | {own:.1f} s | {share:.0f} % | {places} |", flush=True)
    if profile:
        profile.dump_stats(given.profile)


if __name__ == "__main__":
    main()
