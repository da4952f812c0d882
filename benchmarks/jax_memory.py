#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Does a limit on XLA's temporaries hold by XLA's own number, and what does it cost? Writes
docs/research/results/jax-memory.md.

    jax_memory.py [--seed N] [--each N] [--programs NAME...] [--json FILE] [--markdown FILE]

Training steps for 64 H100s that are not there (jax_memory_programs.py), whose sizes are drawn from the seed, are
compiled in the order of XLA's latency-hiding scheduler, and with CommSched within memory_limit_bytes of 1, 0.9 and 0.8
times what XLA then needs (`memory_analysis().temp_size_in_bytes`). Times are those of CommSched's timeline. Each
program runs in a process of its own. Needs jax, jaxlib, jax-cuda12-plugin and jax-cuda12-pjrt 0.10.2, and no GPU.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time
import warnings

# Autotuning needs a GPU; without it, products are left to cuBLAS. The kernels are not run, so nobody has to optimize
# them: memory is assigned before.
XLA_FLAGS = (
    "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false --xla_gpu_disable_gpuasm_optimizations=true "
    "--xla_llvm_disable_expensive_passes=true"
)
RATIOS = (0.0, -0.1, -0.2)
# The seed of the page. Nothing was chosen on its programs.
SEED, EACH = 4100, 3
MIB = 2**20


def run(name: str, seed: int, each: int, machine: str) -> dict:
    """Compiles one program four times. Returns a row."""
    import jax
    import jax_memory_programs

    import commsched.jax

    program = next(p for p in jax_memory_programs.draw(seed, each) if p.name == name)

    def compile_once() -> int:
        step, arguments = jax_memory_programs.training_step(program)
        compiled = step.trace(*arguments).lower(lowering_platforms=("cuda",)).compile()
        jax.clear_caches()
        return compiled.memory_analysis().temp_size_in_bytes

    begin = time.process_time()
    own = compile_once()
    seconds = [time.process_time() - begin]
    answers = []
    for ratio in RATIOS:
        limit = int(own * (1 + ratio))
        begin = time.process_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with commsched.jax.enabled(machine=machine, memory_limit_bytes=limit, ranks="off"):
                needed = compile_once()
        seconds.append(time.process_time() - begin)
        reports = commsched.jax.reports(clear=True)
        report = max(reports, key=lambda r: r.get("makespan_ns", {"before": 0})["before"])
        kept = [key for key in ("module", "changed", "kept_because", "makespan_ns", "peak_bytes") if key in report]
        more = ("temporaries_bytes", "not_rewritten_because", "made_again", "nothing_made_again_because", "seconds")
        kept += [key for key in more if key in report]
        told = any("stays as it was" in str(w.message) for w in caught)
        answers.append(
            {"ratio": ratio, "limit": limit, "needed": needed, "warned": told} | {k: report[k] for k in kept}
        )
    described = jax_memory_programs.describe(program)
    return {"name": name, "described": described, "own": own, "answers": answers, "seconds": seconds}


#
# The page
#


def xla_ms(row: dict) -> float:
    """One run in XLA's own order."""
    return next((a["makespan_ns"]["before"] / 1e6 for a in row["answers"] if "makespan_ns" in a), 0.0)


def ms(row: dict, answer: dict) -> float:
    """One run with CommSched: in XLA's own order, if that was kept."""
    return answer["makespan_ns"]["after"] / 1e6 if answer["changed"] else xla_ms(row)


def is_met(answer: dict) -> bool:
    return answer["needed"] <= answer["limit"]


def is_proven(answer: dict) -> bool:
    """Whether the bound on live temporaries says that no order is within the limit, with other collectives or not."""
    reasons = answer["kept_because"], answer.get("not_rewritten_because", "")
    return not answer["changed"] and all("no order is within the limit" in reason for reason in reasons)


def at(row: dict, ratio: float) -> dict:
    return next(a for a in row["answers"] if a["ratio"] == ratio)


def badness(row: dict) -> tuple[float, float]:
    """Sorts the worst row first: by limits neither met nor proven impossible, by those not met, and by time."""
    missed = sum(not is_met(a) for a in row["answers"])
    unproven = sum(not is_met(a) and not is_proven(a) for a in row["answers"])
    gain = 1 - ms(row, at(row, -0.1)) / xla_ms(row) if xla_ms(row) else 0.0
    return -(10.0 * unproven + missed), gain


def totals(rows: list[dict]) -> list[str]:
    """The counts in front of the page."""
    lines, count = [], len(rows)
    for ratio in RATIOS:
        answers = [at(row, ratio) for row in rows]
        met = sum(map(is_met, answers))
        proven = sum(not is_met(a) and is_proven(a) for a in answers)
        rest = count - met - proven
        again = sum(is_met(a) and "made_again" in a for a in answers)
        lines.append(
            f"- **At {ratio:g}: at or below the limit on {met} of {count}**, on {again} of them with values made "
            f"again, since no order was found. On {proven} more no order is within it, by the bound on live "
            f"temporaries, and no plan was found; on {rest} an order within it may exist and was not found."
        )
    answers = [(row, at(row, -0.1)) for row in rows]
    fast = sum(ms(row, a) <= xla_ms(row) for row, a in answers)
    both = sum(is_met(a) and ms(row, a) <= xla_ms(row) for row, a in answers)
    lines.append(
        f"- **Not slower than XLA's order at -0.1 on {fast} of {count}**; on {both} of them within the limit. Those "
        "that keep XLA's own order are as fast as that."
    )
    silent = sum(not is_met(a) and not (a["warned"] or a["kept_because"]) for row in rows for a in row["answers"])
    other = sum(not is_met(a) and a["changed"] for row in rows for a in row["answers"])
    lines.append(
        f"- Above the limit in another order than XLA's: {other} of {len(RATIOS) * count} answers; above it without a "
        f"message: {silent}."
    )
    return lines


def cell(row: dict, answer: dict) -> list[str]:
    """Temporaries, time and verdict of one answer."""
    met = "yes, again" if "made_again" in answer else "yes"
    verdict = met if is_met(answer) else "proven impossible" if is_proven(answer) else "**no**"
    if not answer["changed"]:
        verdict += ", XLA's order"
    time = ms(row, answer)
    faster = 100 * (1 - time / xla_ms(row)) if xla_ms(row) else 0.0
    return [
        f"{answer['needed'] / MIB:.0f} ({100 * (answer['needed'] / row['own'] - 1):+.1f} %)",
        f"{time:.2f} ({-faster:+.1f} %)",
        verdict,
    ]


def table(rows: list[dict]) -> list[str]:
    head = ["program", "XLA, MiB", "XLA, ms"]
    for ratio in RATIOS:
        head += [f"at {ratio:g}, MiB", f"at {ratio:g}, ms", f"within {1 + ratio:g}"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in sorted(rows, key=badness):
        cells = [row["name"], f"{row['own'] / MIB:.0f}", f"{xla_ms(row):.2f}"]
        for answer in row["answers"]:
            cells += cell(row, answer)
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def reasons(rows: list[dict]) -> list[str]:
    """Why limits were not met: what the reports say."""
    lines = ["| program | ratio | limit, MiB | least, MiB | kept because | other collectives |", "|---" * 6 + "|"]
    for row in sorted(rows, key=badness):
        for answer in row["answers"]:
            if is_met(answer):
                continue
            least = answer.get("peak_bytes", {}).get("lower_bound", 0)
            texts = answer["kept_because"], answer.get("not_rewritten_because", "")
            lines.append(
                f"| {row['name']} | {answer['ratio']:g} | {answer['limit'] / MIB:.0f} | {least / MIB:.0f} | "
                + " | ".join(text.replace("|", "/") for text in texts)
                + " |"
            )
    return lines


HEAD = """# Results: limits on the temporaries of XLA

Written by `{command}`.
jax {jax}, CommSched {commsched} at the commit {tree}, Python {python}; machine profile `{machine}`;
`XLA_FLAGS="{flags}"`;
no GPU: times are those of the model, and temporaries are XLA's own numbers
(`memory_analysis().temp_size_in_bytes`) after compilation for 64 H100s.

Each program is compiled in the order of XLA's latency-hiding scheduler, and with `memory_limit_bytes` of 1, 0.9 and
0.8 times the temporaries that XLA needs then. A limit is met if XLA needs at most that many bytes. If it is not, the
program has XLA's own order and a message ([Jax.md](../../guide/Jax.md#a-limit-in-bytes)). If no order is within the
limit, values are made again ([Jax.md](../../guide/Jax.md#values-made-again)), and the row says *again*. *Proven
impossible* says that no plan was found, and that the bytes that are live at one instruction in every order (Bounds.md,
Lemma 12) are above the limit, with XLA's collectives and with others. That counts results beside the operands whose
place they could take, which XLA may not need to.

The programs are drawn from the seed {seed}, {each} of each family; `benchmarks/jax_memory_programs.py` has them.
Nothing was chosen on them: the code was changed with programs of other seeds.
"""


def page(results: dict) -> str:
    rows = results["rows"]
    lines = [HEAD.format(**results["versions"]), *totals(rows), ""]
    seconds = [sum(row["seconds"]) for row in rows]
    if seconds:
        lines += [
            f"All compilations took {sum(seconds):.0f} CPU s, {max(seconds):.0f} of them for the longest program.",
            "",
        ]
    lines += ["## Each program, the worst row first", "", *table(rows), ""]
    lines += ["## Limits that were not met", "", *reasons(rows), ""]
    lines += ["## Programs", "", "| program | what it is |", "|---|---|"]
    lines += [f"| {row['name']} | {row['described']} |" for row in rows]
    if results["failed"]:
        lines += ["", "## Not compiled", "", *(f"- {name}" for name in results["failed"])]
    return "\n".join(lines).rstrip() + "\n"


def versions(arguments: argparse.Namespace) -> dict:
    root = pathlib.Path(__file__).resolve().parents[1]
    tree = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=root, capture_output=True, text=True)
    names = {name: importlib.metadata.version(name) for name in ("jax", "commsched")}
    command = shlex.join(["python", "benchmarks/jax_memory.py", "--markdown", "docs/research/results/jax-memory.md"])
    return names | {
        "command": command,
        "tree": tree.stdout.strip() or "unknown",
        "python": ".".join(map(str, sys.version_info[:3])),
        "machine": arguments.machine,
        "flags": XLA_FLAGS,
        "seed": arguments.seed,
        "each": arguments.each,
    }


def child(name: str, arguments: argparse.Namespace) -> dict | None:
    """Runs one program in a process of its own. None if it fails; its messages have been printed."""
    environment = dict(os.environ, XLA_FLAGS=XLA_FLAGS, JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3")
    given = [
        "--run",
        name,
        "--seed",
        str(arguments.seed),
        "--each",
        str(arguments.each),
        "--machine",
        arguments.machine,
    ]
    done = subprocess.run([sys.executable, __file__, *given], env=environment, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--each", type=int, default=EACH, help="programs of each family")
    parser.add_argument("--programs", nargs="*", help="names (default: all)")
    parser.add_argument("--machine", default="h100-sxm")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows here, too, and go on from those there")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the page here")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        print(json.dumps(run(arguments.run, arguments.seed, arguments.each, arguments.machine)))
        return 0
    os.environ |= {"XLA_FLAGS": XLA_FLAGS, "JAX_PLATFORMS": "cpu"}
    import jax_memory_programs

    results = {"versions": versions(arguments), "rows": [], "failed": []}
    if arguments.json and arguments.json.exists():
        results["rows"] = json.loads(arguments.json.read_text())["rows"]
    done = {row["name"] for row in results["rows"]}
    for program in jax_memory_programs.draw(arguments.seed, arguments.each):
        if program.name in done or program.name not in (arguments.programs or [program.name]):
            continue
        row = child(program.name, arguments)
        if row is None:
            results["failed"].append(program.name)
        else:
            results["rows"].append(row)
            print("\n".join(table([row])[2:]), flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(results))
        if arguments.markdown:
            arguments.markdown.write_text(page(results))
    print("\n".join(totals(results["rows"])))
    return 1 if results["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
