# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The page of results that `torch_overlap.py` writes. Everything in it is computed from its JSON."""

from __future__ import annotations

GIB = 2**30
TORCH, OURS, AT_PEAK = "PyTorch, bucketing", "CommSched", "CommSched, at PyTorch's peak"

HEAD = """# Results: CommSched and PyTorch's overlap scheduler

Written by {command}.
PyTorch {torch}, CommSched {commsched}, Python {python}; machine profile `{machine}`; schedulers ran on {cpu}.

Training graphs of rank 0 after AOT autograd (`benchmarks/models`): `tp=8` is FSDP x TP (2-D), `ep=8` FSDP with
expert-parallel all-to-alls, the others are the zoo in real dimensions; `layers` says how many if not all; "bw" gathers
parameters again. Nodes cost what the kernels cost that Inductor fuses them into. "PyTorch" is
`schedule_overlap_bucketing`. Both schedulers are given the same duration of every node, and both results are imported
anew and measured by one model: makespan and exposed communication in ms; peak in GiB without the arguments that live
throughout. CommSched's limit is the peak of the graph as given, and in the columns "at PyTorch's peak", that of the
result of PyTorch's bucketing. In the tables of each graph, "PyTorch's peak" is the figure of PyTorch's own estimator
for the same result, which counts arguments and frees inputs of collectives in flight. Seconds are CPU seconds on one
core. So that PyTorch's scheduler is not at a disadvantage on a machine without a GPU, its memory limits are made to
see tensors of the CPU, attention counts as computation, and stale metadata is computed anew. Empty cells were not
measured.

{trees}

The bound is a proven lower bound of the makespan for any order and any merging of collectives, with unlimited memory.
"""


def _percent(new: float, old: float) -> str:
    return f"{100 * (new - old) / old:+.1f} %"


def _ms(row: dict) -> str:
    return f"{row['makespan_ms']:.1f}" if "makespan_ms" in row else "failed"


def _ms_gib(row: dict) -> str:
    return f"{row['makespan_ms']:.1f} / {row['peak_bytes'] / GIB:.2f}" if "makespan_ms" in row else "failed"


def summary(graphs: dict) -> list[str]:
    """One line per graph: makespan and peak, and how CommSched's compare."""
    lines = [
        "## Makespan in ms / peak in GiB",
        "",
        "| graph | nodes | as given | PyTorch, order only | PyTorch, bucketing | CommSched, order only "
        "| CommSched | at PyTorch's peak | bound | CommSched against PyTorch, bucketing | at PyTorch's peak "
        "| CommSched against PyTorch's best |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key, g in graphs.items():
        v = g["variants"]
        cell = {n: _ms_gib(v.get(n, {})) for n in v}
        bound = v.get(OURS, {}).get("bound_ms")
        best = min(
            (r for n, r in v.items() if n.startswith("PyTorch") and "makespan_ms" in r),
            default={},
            key=lambda r: r["makespan_ms"],
        )
        pairs = ((OURS, v.get(TORCH, {})), (AT_PEAK, v.get(TORCH, {})), (OURS, best))
        compare = [
            _percent(v[n]["makespan_ms"], other["makespan_ms"])
            if "makespan_ms" in v.get(n, {}) and "makespan_ms" in other
            else ""
            for n, other in pairs
        ]
        columns = ("as given", "PyTorch, order only", TORCH, "CommSched, order only", OURS, AT_PEAK)
        lines.append(
            f"| {key} | {g['nodes']} | "
            + " | ".join(cell.get(n, "") for n in columns)
            + f" | {f'{bound:.1f}' if bound else ''} | {' | '.join(compare)} |"
        )
    return lines


def exceptions(graphs: dict) -> list[str]:
    """What CommSched does not reach: a schedule, faster than PyTorch's better mode, within the peak as given."""
    missing, slower, higher = [], [], []
    for key, g in graphs.items():
        v = g["variants"]
        own, given = v.get(OURS, {}), v.get("as given", {})
        if "makespan_ms" not in own:
            missing.append(key)
            continue
        others = [r["makespan_ms"] for n, r in v.items() if n.startswith("PyTorch") and "makespan_ms" in r]
        if others and own["makespan_ms"] >= min(others):
            slower.append(f"{key} ({_against_best(v, min(others))})")
        if own["peak_bytes"] > given.get("peak_bytes", 0):
            higher.append(f"{key} ({_percent(own['peak_bytes'], given['peak_bytes'])})")
    lists = (missing, slower, higher)
    texts = ("Not scheduled", "Not faster than PyTorch's better mode", "Peak above that of the graph as given")
    return ["", *(f"- {text}: {', '.join(found) or 'no graph'}." for text, found in zip(texts, lists))]


def _against_best(v: dict, best: float) -> str:
    """How much longer CommSched takes than the best of others, in ms, and what it gives with as much memory."""
    text = _percent(v[OURS]["makespan_ms"], best)
    if "makespan_ms" in v.get(AT_PEAK, {}):
        more = v[AT_PEAK]
        text += f"; with a limit of {more['limit_gib']:.2f} GiB {_percent(more['makespan_ms'], best)}"
    return text


def trees(graphs: dict) -> str:
    """Which graphs were measured with which commit of the repository."""
    found: dict[str, list[str]] = {}
    for key, g in graphs.items():
        found.setdefault(g.get("tree", "unknown"), []).append(key)
    if len(found) == 1:
        return f"All of it was measured with the commit {next(iter(found))}."
    return "\n".join(f"- Measured with the commit {tree}: {', '.join(keys)}." for tree, keys in found.items())


def overhead(graphs: dict) -> list[str]:
    """The time that scheduling itself takes. The Python part is import and apply."""
    lines = [
        "## Seconds of scheduling",
        "",
        "| graph | nodes | PyTorch, order only | PyTorch, bucketing | CommSched | import | solve | apply | "
        "import + apply against PyTorch, bucketing |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    slower = []
    for key, g in graphs.items():
        t, o, c = (g["variants"].get(n, {}) for n in ("PyTorch, order only", TORCH, OURS))
        if not all("cpu_s" in r for r in (t, o, c)):
            continue
        python = c["import_s"] + c["apply_s"]
        seconds = (t["cpu_s"], o["cpu_s"], c["cpu_s"], c["import_s"], c["solve_s"], c["apply_s"])
        lines.append(
            f"| {key} | {g['nodes']} | "
            + " | ".join(f"{s:.2f}" for s in seconds)
            + f" | {100 * python / o['cpu_s']:.1f} % |"
        )
        if python >= 0.1 * o["cpu_s"]:
            slower.append(key)
    lines += ["", f"- Import and apply take 10 % of PyTorch's seconds or more: {', '.join(slower) or 'no graph'}."]
    return lines


def details(key: str, g: dict) -> list[str]:
    """Every variant of one graph."""
    lines = [
        f"### {key}",
        "",
        f"{g['nodes']} nodes, traced in {g['trace_cpu_s']:.0f} s.",
        "",
        "| scheduler | makespan | exposed | peak | PyTorch's peak | collectives | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, r in g["variants"].items():
        if "error" in r:
            lines.append(f"| {name} | failed: {r['error'][:160]} | | | | | |")
            continue
        lines.append(
            f"| {name} | {r['makespan_ms']:.2f} | {r['exposed_ms']:.2f} | {r['peak_bytes'] / GIB:.2f} | "
            f"{r['torch_peak_bytes'] / GIB:.2f} | {r['collectives']} | {r['cpu_s']:.2f} |"
        )
    c = g["variants"].get(OURS, {})
    if "bound_ms" in c:
        lines += [
            "",
            f"Bound: {c['bound_ms']:.2f} ms for any merging, {c['order_bound_ms']:.2f} ms for the "
            f"collectives as given. CommSched's limit was {c['limit_gib']:.2f} GiB; "
            f"it made {c['buckets']} buckets.",
        ]
    return lines + [""]


def page(results: dict) -> str:
    graphs = results["graphs"]
    versions = dict(results["versions"])
    versions["command"] = ",\n".join(f"`{c}`" for c in versions["command"].split("\n"))
    lines = [
        HEAD.format(**versions, trees=trees(graphs)),
        *summary(graphs),
        *exceptions(graphs),
        "",
        *overhead(graphs),
        "",
        "## Each graph",
        "",
    ]
    for key, g in graphs.items():
        lines += details(key, g)
    return "\n".join(lines).rstrip() + "\n"
