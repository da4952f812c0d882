# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The first page shows what was measured: every number of README.md's table and of the sentences about it is that of
# docs/research/results/overlap.md, and the picture is what comm-opt draws today.
#
#   check_readme.py [--build BUILD | --update BUILD]
#
# With --build, the picture is drawn again and compared; --update writes it.

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs/research/results/overlap.md"
PICTURE = ROOT / "docs/img/llama3-8b-tp8-bw.svg"
GRAPH = ROOT / "test/Graphs/llama3-8b-64-tp8-kernels-bw.mlirbc"
# The row of the table that the picture is of.
PICTURED = "Llama-3-8B, FSDP x TP 8, 64 GPUs"
# Rows of README.md, and the graph of each in the results.
ROWS = {
    "MoE-16B, expert parallel 8, 64 GPUs": "moe-16b:64:ep=8 bw",
    "Llama-3-8B, FSDP x TP 8, 64 GPUs": "llama3-8b:64:tp=8 bw",
    "Llama-3-8B, FSDP, 64 GPUs": "llama3-8b:64 bw",
    "Llama-3-70B, FSDP, 256 GPUs": "llama3-70b:256 bw",
    "Mamba hybrid, 3 layers, 16 GPUs": "mamba-hybrid:16:layers=3 bw",
}


def tables(text):
    """The rows of all tables of a page, as lists of cells without marks of emphasis."""
    for line in text.splitlines():
        if line.startswith("|"):
            yield [cell.strip().replace("**", "") for cell in line.strip("|").split("|")]


def results():
    """Of each graph of the first table of the results: the makespans of the variants in ms, the bound, and our loss in %."""
    found = {}
    for cells in tables(RESULTS.read_text()):
        if len(cells) == 12 and re.fullmatch(r"\S+ (fw|bw)", cells[0]):
            times = [float(cell.split(" / ")[0]) for cell in cells[2:8]]
            found[cells[0]] = dict(times=times, bound=float(cells[8]), loss=float(cells[11].removesuffix(" %")))
    return found


def number(cell):
    return float(cell.removesuffix(" ms").removesuffix(" %").replace(",", ""))


def faults_of_table(readme, measured):
    shown = {cells[0]: cells[1:] for cells in tables(readme) if cells[0] in ROWS}
    for name, graph in ROWS.items():
        if name not in shown:
            yield f"README.md: expected a row '{name}'"
            continue
        row = measured[graph]
        given, order, buckets, _, ours, _ = row["times"]
        wanted = [given, min(order, buckets), ours, row["bound"], row["loss"]]
        for cell, value in zip(shown[name], wanted, strict=True):
            digits = 1 if "." in cell else 0
            if number(cell) != round(value, digits):
                yield f"README.md, {name}: {cell}, but {RESULTS.name} has {value}"


def faults_of_sentences(readme, measured):
    losses = [row["loss"] for row in measured.values()]
    slower = sum(loss > 0 for loss in losses)
    for wanted in (
        f"On {len(losses)} traced training graphs",
        f"on average {-statistics.mean(losses):.1f} % less predicted time",
        f"up to {-min(losses):.1f} % less",
        f"slower than the better mode on {slower} of the {len(losses)} graphs",
    ):
        if not re.search(re.escape(wanted).replace("\\ ", r"\s+"), readme):
            yield f"README.md: expected '{wanted}', which follows from {RESULTS.name}"


def faults_of_caption(readme, measured):
    given, *_, ours, _ = measured[ROWS[PICTURED]]["times"]
    if f"before: {given:.0f} ms, after: {ours:.0f} ms" not in readme:
        yield f"README.md: expected 'before: {given:.0f} ms, after: {ours:.0f} ms' as the description of the picture"
    texts = " ".join(re.findall(r">([^<>]+)<", PICTURE.read_text()))
    for time in (given, ours):
        if f"{time:.0f} ms" not in texts:
            yield f"{PICTURE.relative_to(ROOT)}: expected {time:.0f} ms, as in {RESULTS.name}"


def draw(build, file):
    command = [build / "bin/comm-opt", GRAPH.relative_to(ROOT), "--reorder-comm-overlap", "--comm-machine=h100-sxm"]
    subprocess.run(
        [*command, f"--comm-timeline={file}", "-o", "/dev/null"], cwd=ROOT, check=True, stderr=subprocess.DEVNULL
    )


def faults_of_picture(build):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "picture.svg")
        draw(build, file)
        if file.read_text() != PICTURE.read_text():
            yield f"{PICTURE.relative_to(ROOT)}: comm-opt draws another picture; test/docs/check_readme.py --update BUILD"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--update", type=pathlib.Path)
    options = parser.parse_args()
    if options.update:
        return draw(options.update.resolve(), PICTURE)
    readme, measured = (ROOT / "README.md").read_text(), results()
    faults = [
        *faults_of_table(readme, measured),
        *faults_of_sentences(readme, measured),
        *faults_of_caption(readme, measured),
    ]
    if options.build:
        faults += faults_of_picture(options.build.resolve())
    print("\n".join(faults) or f"README.md shows the numbers of {len(measured)} graphs")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
