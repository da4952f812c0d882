# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Trains the zoo with and without CommSched and prints a table: whether every bit is the same, and what was scheduled.

cd test/python && python -m zoo                                  # all models in mode "plain"; minutes
cd test/python && python -m zoo --models dit two_d --modes all --markdown zoo.md
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile

import torch

import gloo

from .training import MODELS, MODES, on_rank


def results_of(cells, kernels, options):
    """Yields (cell, results of all ranks, seconds) for cells (model, mode) of one number of ranks, as each ends.

    They run one after the other in the same processes. If a cell fails, the next ones get new processes.
    """
    done = 0
    while done < len(cells):
        for found in _until_a_failure(cells[done:], kernels, options):
            yield found
            done += 1


def _until_a_failure(cells, kernels, options):
    """What `results_of` yields, up to the first cell that fails. The last result of such a cell says why."""
    ranks, done, error = MODELS[cells[0][0]][1], 0, "the ranks ended early"
    with tempfile.TemporaryDirectory() as folder:

        def results():
            files = [pathlib.Path(folder, f"{done}-{r}") for r in range(ranks)]
            return [json.loads(f.read_text()) for f in files if f.is_file()]

        def ended():
            """Yields what cells gave that ended without an exception since the last call."""
            nonlocal done
            while done < len(cells) and sum("seconds" in r for r in results()) == ranks:
                yield cells[done], results(), results()[0]["seconds"]
                done += 1

        try:
            for _ in gloo.running(ranks, on_rank, cells, kernels, options, folder, every_s=0.5):
                yield from ended()
        except Exception as raised:
            error = str(raised).strip().splitlines()[-1]
        yield from ended()
        if done < len(cells):
            yield cells[done], results() + [{"faults": [error], "graphs": [], "values": 0}], 0


def _change(graphs, name):
    before, after = (sum(g[name][when] for g in graphs if name in g) for when in ("before", "after"))
    return f"{before / 1e3:.0f} -> {after / 1e3:.0f}"


def row(name, mode, results, seconds):
    """The cells of one row."""
    graphs = [g for g in results[0]["graphs"] if g["place"] == "graph"]
    wrong = sorted({f for r in results for f in r["faults"]})
    return [
        name,
        mode,
        str(MODELS[name][1]),
        str(sum(bool(g["collectives"]) for g in graphs)),
        str(sum(g["collectives"] for g in graphs)),
        str(sum(len(g.get("buckets", ())) for g in graphs)),
        _change(graphs, "exposed_ns") if graphs else "",
        "; ".join(w.strip().splitlines()[-1][:200] for w in wrong)
        if wrong
        else f"{results[0]['values']} tensors alike" + ", PyTorch compiles no graph" * (results[0]["compiled"] == 0),
        f"{seconds:.0f}",
    ]


COLUMNS = ["model", "mode", "ranks", "graphs", "collectives", "buckets", "exposed, us", "result", "s"]


def page(rows, a):
    """The table, with the command and the versions."""
    arguments = f" --modes {' '.join(a.modes)}" + " --kernels" * a.kernels
    head = f"""# Results: models in training with and without CommSched

Written by `python -m zoo{arguments}` in `test/python`. PyTorch {torch.__version__}, gloo, and the options
`{json.dumps(a.options)}`.

Each model trains some steps on real processes, first with plain Inductor, then with CommSched. "Alike" means that
losses, gradients and weights have the same bits. Warnings, opaque nodes, memory above the limit, and an order of the
code other than decided would be named. Graphs, collectives, merged collectives ("buckets") and the predicted exposed
time are those of rank 0. Models without graphs communicate outside of them, and one warning says so.

"""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    return head + "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def main():
    p = argparse.ArgumentParser(prog="python -m zoo", description=__doc__.split("\n")[0])
    p.add_argument("--models", nargs="+", default=list(MODELS), choices=[*MODELS], metavar="MODEL")
    p.add_argument("--modes", nargs="+", default=["plain"], choices=["all", *MODES], metavar="MODE")
    p.add_argument("--kernels", action="store_true", help="with Inductor's C++ kernels (default: ATen)")
    p.add_argument("--options", type=json.loads, default={"machine": "cpu-mpi", "memory_budget_ratio": 5.0})
    p.add_argument("--markdown", type=pathlib.Path, help="file to write the table to, after every row")
    a = p.parse_args()
    rows, failed = [], 0
    modes = list(MODES) if "all" in a.modes else a.modes
    for ranks in sorted({MODELS[m][1] for m in a.models}):
        cells = [(m, mode) for m in a.models if MODELS[m][1] == ranks for mode in modes]
        for (name, mode), results, seconds in results_of(cells, a.kernels, a.options):
            rows.append(row(name, mode, results, seconds))
            print(" | ".join(rows[-1]), flush=True)
            for text in sorted({f for r in results for f in r["faults"]}):
                failed = 1
                print(f"--- {name} {mode}: {text}", file=sys.stderr)
            if a.markdown:
                a.markdown.write_text(page(rows, a))
    return failed


if __name__ == "__main__":
    sys.exit(main())
