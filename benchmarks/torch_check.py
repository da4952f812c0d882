#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checks what CommSched promises to users of PyTorch, on traced graphs of real models with PyTorch's kind of estimates.

1. Every graph is scheduled.
2. Its peak of memory is never above that of the graph as given. The peak is counted here, on the rewritten graph, by
   the storages of fake tensors that are computed anew. Nothing of CommSched takes part.
3. It is faster than the better mode of PyTorch's own scheduler, by the one model that judges both.
4. Import and apply take less than 10 % of the seconds of PyTorch's scheduler, on graphs of 8,000 nodes and more.

    python benchmarks/torch_check.py --graphs llama3-8b:64 llama3-8b:64:tp=8 moe-16b:64:ep=8
"""

from __future__ import annotations

import argparse
import copy
import sys
import time

import torch
import torch.fx as fx
import torch_overlap as overlap
from models.graphs import graphs_of
from torch.utils._pytree import tree_leaves

import commsched.torch as ct
from commsched.torch import trace
from commsched.torch.importer.export import import_graph
from commsched.torch.importer.graph import donated_placeholders
from commsched.torch.options import DEFAULT_MACHINE
from commsched.torch.semantics.operators import guessed_sizes, hint

PYTORCH = ("PyTorch, order only", "PyTorch, bucketing")
# The share of PyTorch's seconds that import and apply may take, and the nodes from which on it counts.
SHARE, LARGE = 0.1, 8000
#: The graphs that are checked without arguments: minutes, and small enough for any machine.
GRAPHS = ("llama3-8b:64:layers=4", "llama3-8b:64:tp=8:layers=4", "moe-16b:64:ep=8:layers=3")


def storages(node: fx.Node) -> dict[int, int]:
    """The storages that a node's value lies in, with their bytes."""
    values = [v for v in tree_leaves(node.meta.get("val")) if isinstance(v, torch.Tensor)]
    return {v.untyped_storage()._cdata: hint(v.untyped_storage().nbytes()) for v in values}


def storage_peak(graph: fx.Graph, held: bool, donated: set[str]) -> int:
    """The most bytes of storages that are live at a node, without the arguments that live throughout.

    Args:
        donated: names of the arguments that live until their last reader.
        held: the operands of a collective live until its wait, as the runtime holds them. Otherwise until its start.
    """
    same: dict[int, int] = {}  # The result of a wait is its operand, although its fake tensor has a storage of its own.

    def root(storage: int) -> int:
        while storage in same:
            storage = same[storage]
        return storage

    size: dict[int, int] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    given: set[int] = set()
    for at, node in enumerate(graph.nodes):
        waits = node.op == "call_function" and "wait_tensor" in str(node.target)  # An argument may bear the name.
        own = storages(node)
        if waits:
            for mine, theirs in zip(own, storages(node.args[0])):
                if root(mine) != root(theirs):
                    same[mine] = root(theirs)
        if node.op in ("placeholder", "get_attr") and node.name not in donated:
            given |= set(own)
        used = [s for n in node.all_input_nodes for s in storages(n)]
        if waits and held:
            start = node.args[0] if not isinstance(node.args[0].args[0], fx.Node) else node.args[0]
            used += [s for n in start.all_input_nodes for s in storages(n)]
        for storage, count in own.items():  # An argument is live from the first node on.
            first.setdefault(root(storage), at)
            size[root(storage)] = max(size.get(root(storage), 0), count)
        for storage in [*own, *used]:
            last[root(storage)] = at
    change = [0] * (len(graph.nodes) + 1)
    for storage, count in size.items():
        if storage not in given:
            change[first[storage]] += count
            change[last[storage] + 1] -= count
    live = peak = 0
    for delta in change:
        live += delta
        peak = max(peak, live)
    return peak


def peaks(gm: fx.GraphModule, donated: set[str]) -> tuple[int, int]:
    """Both counts of a graph whose fake tensors are computed anew."""
    exchanges = import_graph(gm.graph)[1].exchanges()  # What they bring decides sizes that only the run time knows.
    gm = overlap.refreshed(copy.deepcopy(gm), set())
    with guessed_sizes(exchanges):
        return storage_peak(gm.graph, True, donated), storage_peak(gm.graph, False, donated)


def check(name: str, gm: fx.GraphModule, machine: str, donation: str) -> tuple[list[str], list[str]]:
    """The cells of a row, and what is wrong."""
    estimate = overlap.estimator(gm, machine)
    donated = donated_placeholders(gm.graph, "auto" if donation == "auto" else ())
    given = peaks(gm, donated)
    seconds, makespan, known = {}, {}, {n.name for n in gm.graph.nodes}
    for variant in PYTORCH:
        start = time.process_time()
        result, _ = overlap.VARIANTS[variant](copy.deepcopy(gm), estimate, machine, {})
        seconds[variant] = time.process_time() - start
        text = import_graph(overlap.refreshed(result, known).graph, runtime_estimation=estimate)[0]
        makespan[variant] = overlap.measured(text, machine)["makespan_ns"]["after"]
    ours, report = ct.schedule_overlap(
        copy.deepcopy(gm), machine=machine, runtime_estimation=estimate, donated=sorted(donated)
    )
    if "error" in report:
        return [name, *[""] * 7], [f"not scheduled: {report['error']}"]
    after = peaks(ours, donated)
    text = import_graph(overlap.refreshed(ours, known).graph, runtime_estimation=estimate)[0]
    reached = overlap.measured(text, machine)["makespan_ns"]["after"]
    best, slowest = min(makespan.values()), seconds["PyTorch, bucketing"]
    share = (report["import_ns"] + report["apply_ns"]) / 1e9 / slowest
    wrong = [f"peak {a} bytes, given {g}" for a, g in zip(after, given) if a > g]
    wrong += [f"makespan {reached} ns, PyTorch's best {best}"] * (reached > best)
    wrong += [f"import and apply take {share:.0%}"] * (share > SHARE and len(gm.graph.nodes) >= LARGE)
    cells = [name, str(len(gm.graph.nodes)), f"{given[0] / overlap.GIB:.3f}", f"{after[0] / overlap.GIB:.3f}"]
    cells += [f"{best / overlap.MS:.2f}", f"{reached / overlap.MS:.2f}"]
    return cells + [f"{report['import_ns'] / 1e9:.2f} + {report['apply_ns'] / 1e9:.2f}", f"{share:.0%}"], wrong


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--graphs", nargs="+", default=list(GRAPHS), metavar="MODEL:RANKS[:tp=N][:ep=N][:layers=N]")
    p.add_argument("--machine", default=DEFAULT_MACHINE, help="machine profile (default %(default)s)")
    p.add_argument(
        "--donated", choices=("auto", "none"), default="auto", help="which arguments die after their last use"
    )
    a = p.parse_args()
    columns = ("graph", "nodes", "peak, GiB", "after", "PyTorch's best, ms", "CommSched", "import + apply, s", "share")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    failed = 0
    for spec in a.graphs:
        config = overlap.config_of(spec)
        with trace.fake_world(config.ranks):
            for direction, gm in overlap.communicating(graphs_of(config)).items():
                cells, wrong = check(f"{spec} {direction}", gm, a.machine, a.donated)
                print(f"| {' | '.join(cells)} |", flush=True)
                for reason in wrong:
                    failed = 1
                    print(f"{spec} {direction}: {reason}", file=sys.stderr, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
