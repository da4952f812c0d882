# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`record=True`: makes generated code note when it starts collectives and waits, beside what is predicted of it."""

from __future__ import annotations

import json
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist
from torch._inductor.utils import contains_collective, is_wait

from ...program import Program
from ..options import Options, machine_file, option_value
from ..recording.stamps import IMPORTED, VARIABLE
from ..reporting import function_report
from .kernel_order import real_name
from .kernels import KernelImporter

NS_PER_US = 1000
# The kernels that a report names for a part.
MOST_NAMES = 3


def is_marked(s: Any) -> bool:
    """Whether a scheduler node has marks: it starts a collective or waits, and nothing else."""
    return s.node is not None and hasattr(s.node, "codegen") and (contains_collective(s) or is_wait(s.node))


def predicted(order: Sequence, options: Options, direction: str) -> dict:
    """What is predicted of a code: its makespan, and its parts in order.

    A part has "part" ("kernels", "start" or "wait"), "name" and "ns". Starts and waits have "kind", "bytes" and
    "cost_ns" of the collective, and a wait has "start", the index of the part that starts it.

    Raises:
        commsched.Error: the module was refused.
    """
    from torch._inductor.virtualized import V

    report, spans = _timeline(order, options)
    rows = {row["loc"]: row for row in report.get("per_collective", [])}
    file = machine_file(options.machine)
    issue = json.loads(file.read_text()).get("overheads", {}).get("issue_ns", 0) if file else 0
    parts: list[dict] = [_kernels()]
    started: dict[str, int] = {}
    for s in order:
        name = s.get_name()
        if not is_marked(s):
            part = parts[-1]
            part["ns"] += spans.get(name, 0)
            if spans.get(name, 0):
                part["names"].append(name)
            continue
        start = len(parts)
        if not is_wait(s.node):
            row = rows.get(name, {})
            started.update(dict.fromkeys(map(real_name, s.get_buffer_names()), start))
            part = {"part": "start", "name": name, "ns": issue if row else 0}
        else:
            waited = [real_name(i.get_name()) for i in s.node.inputs if hasattr(i, "get_name")]
            of = next((started[w] for w in waited if w in started), None)
            row = rows.get(parts[of]["name"], {}) if of is not None else {}
            part = {"part": "wait", "name": name, "ns": spans.get(name, 0)}
            part |= {} if of is None else {"start": of}
        part |= {"kind": row["kind"], "bytes": row["bytes"], "cost_ns": row["cost_ns"]} if row else {}
        parts += [part, _kernels()]
    for part in parts:
        names = part.pop("names", None)
        if names is not None:
            more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            part["name"] = " ".join(names[:MOST_NAMES]) + more or "nothing"
    devices = [d for d in V.graph.device_types if d not in ("cpu", "meta")]
    return {
        "direction": direction,
        "device": devices[0] if devices else "cpu",
        "makespan_ns": report.get("makespan_ns", {}).get("after", sum(p["ns"] for p in parts)),
        "parts": parts,
    }


def _kernels() -> dict:
    return {"part": "kernels", "ns": 0, "names": []}


def _timeline(order: Sequence, options: Options) -> tuple[dict, dict[str, int]]:
    """The report of the model on an order, and the time that each node takes on the compute lane, by name."""
    world = dist.get_world_size() if dist.is_initialized() else 1
    program = Program(KernelImporter(order, options, world).text(), "kernels")
    with tempfile.TemporaryDirectory(prefix="commsched") as folder:
        file, trace = pathlib.Path(folder, "report.json"), pathlib.Path(folder, "timeline.json")
        settings = f"machine={option_value(options.machine)} report-file={option_value(file)} table=false"
        program.run(f"comm-report{{{settings} timeline-file={option_value(trace)}}}")
        events = json.loads(trace.read_text())["traceEvents"] if trace.is_file() else []
        spans: dict[str, int] = {}
        for e in events:
            if e["ph"] == "X" and e["pid"] == 0 and e["tid"] == 0:
                spans[e["name"]] = spans.get(e["name"], 0) + round(e["dur"] * NS_PER_US)
        return function_report(file), spans


def record(order: Sequence, wrapper: Any, code: dict) -> None:
    """Makes the code that `wrapper` (Inductor's) is going to write record its runs."""
    text = json.dumps(code, sort_keys=True)
    wrapper.header.writeline(f"from commsched.torch.recording import recorder as {IMPORTED}")
    wrapper.header.writeline(f"{VARIABLE} = {IMPORTED}({text!r})")
    wrapper.writeline(f"{VARIABLE}.begin()")
    index = 1
    for s in order:
        if is_marked(s):
            s.node.codegen = _marked(s.node.codegen, index)
            index += 2
    write_return = wrapper.generate_return

    def generate_return(output_refs: list[str]) -> None:
        wrapper.wrapper_call.writeline(f"{VARIABLE}.end()")
        write_return(output_refs)

    wrapper.generate_return = generate_return


def _marked(codegen: Callable[[Any], None], index: int) -> Callable[[Any], None]:
    def with_marks(wrapper: Any) -> None:
        wrapper.writeline(f"{VARIABLE}.mark({index})")
        codegen(wrapper)
        wrapper.writeline(f"{VARIABLE}.mark({index + 1})")

    return with_marks
