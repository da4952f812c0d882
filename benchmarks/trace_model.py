#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Traces one training step of a model of `models`, and writes its forward and backward graph as comm IR.

It needs no accelerator, no network and little memory (`commsched.torch.trace`).

    python benchmarks/trace_model.py --model llama3-8b --ranks 64 --parallel fsdp --out graphs
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time

from models import decoder, recompute
from models.graphs import TraceConfig, graphs_of
from models.zoo.real import REAL

from commsched.torch.importer.export import export_mlir
from commsched.torch.importer.state import SplitRules
from commsched.torch.strands.axes import draws_nothing, split_axes
from commsched.torch.trace import fake_world, join


def parse_args(argv=None) -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--model", default="llama3-8b", choices=sorted([*decoder.CONFIGS, *REAL]))
    p.add_argument("--ranks", type=int, default=64, help="size of the world (default 64)")
    p.add_argument("--parallel", default="fsdp", choices=("fsdp",), help="how parameters are sharded")
    p.add_argument("--tp", type=int, default=1, help="ranks per tensor-parallel group (default 1: none)")
    p.add_argument(
        "--ep", type=int, default=None, help="ranks per expert-parallel group (default 8 for a mixture of experts)"
    )
    p.add_argument("--layers", type=int, help="number of layers (default: the model's)")
    p.add_argument("--seq", type=int, help="tokens per sequence (default: the model's)")
    p.add_argument("--batch", type=int, help="samples per rank (default: the model's, or 1)")
    p.add_argument("--recompute", default="none", choices=recompute.MODES, help="activation checkpointing of a decoder")
    p.add_argument("--split-sequence", action="store_true", help="with --tp: split sequence, embedding and head, too")
    p.add_argument("--no-reshard", action="store_true", help="keep the gathered parameters for the backward graph")
    p.add_argument(
        "--kernels",
        action="store_true",
        help="let nodes cost what the kernels of Inductor do; without what comm-split-strands reads",
    )
    p.add_argument("--joint", action="store_true", help="write both as one graph, too")
    p.add_argument("--donated", default="auto", help='"auto", "none" or a comma-separated list of placeholders')
    p.add_argument("--fx", action="store_true", help="write the FX graphs as readable text too")
    p.add_argument(
        "--out", required=True, type=pathlib.Path, metavar="DIR", help="where fw.mlir, bw.mlir and joint.mlir go"
    )
    a = p.parse_args(argv)
    if a.model in REAL and (a.tp > 1 or a.ep):
        p.error(f"{a.model} has its own parallelism: expected neither --tp nor --ep")
    if a.model in REAL and a.recompute != "none":
        p.error(f"{a.model} is no decoder: expected no --recompute")
    if a.split_sequence and a.tp == 1:
        p.error("expected --tp with --split-sequence")
    experts = 0 if a.model in REAL else decoder.CONFIGS[a.model].experts
    a.ep = a.ep or (min(8, a.ranks) if experts else 1)
    if a.ranks % (a.tp * a.ep) or (a.ep > 1 and (not experts or experts % a.ep)) or (a.tp > 1 and a.ep > 1):
        p.error(
            "expected --ranks as a multiple of --tp or --ep, only one of the two, and --ep that divides the experts"
        )
    return a


def main(argv=None) -> int:
    a = parse_args(argv)

    def axes(node, operands, results):
        # The library's table splits causal attention, too, by an attribute that PyTorch's operator does not have.
        return None if draws_nothing(node) else split_axes(node, operands, results)

    config = TraceConfig(
        a.model,
        a.ranks,
        a.tp,
        a.ep,
        a.layers,
        a.batch,
        a.seq,
        not a.no_reshard,
        recompute=a.recompute,
        split_sequence=a.split_sequence,
    )
    donated = a.donated if a.donated == "auto" else [n for n in a.donated.split(",") if n not in ("", "none")]
    a.out.mkdir(parents=True, exist_ok=True)
    with fake_world(a.ranks):
        start = time.perf_counter()
        graphs = graphs_of(config)
        print(f"traced in {time.perf_counter() - start:.1f} s", file=sys.stderr)
        if a.joint:
            graphs["joint"] = join(graphs["fw"], graphs["bw"])
        for name, gm in graphs.items():
            start = time.perf_counter()
            rules = None if a.kernels else SplitRules(axes, draws_nothing)
            text = export_mlir(gm, donated=donated, name=f"{name}", split_rules=rules)
            took = time.perf_counter() - start
            (a.out / f"{name}.mlir").write_text(text)
            if a.fx:
                readable = gm.print_readable(print_output=False, include_stride=True)
                (a.out / f"{name}.fx.txt").write_text(readable)
            print(
                f"{a.out / name}.mlir: {len(gm.graph.nodes)} nodes, {len(text)} bytes, exported in {took:.2f} s",
                file=sys.stderr,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
