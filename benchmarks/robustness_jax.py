# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""CommSched's orders of HLO modules against that of XLA's latency-hiding scheduler, if collectives take longer than
planned.

Two referees, and one timeline for both: that of comm IR, with one stream for all collectives. *our costs* are those
that CommSched plans with. *XLA's costs* are what XLA's latency estimator told XLA's scheduler, from its log: every
kernel and every collective that XLA's own order has. A collective that CommSched took apart or merged is read off
those of its kind and group by its bytes.
"""

from __future__ import annotations

import argparse
import bisect
import collections
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import jax_overlap
import robustness_play

COMM_OPT = pathlib.Path(__file__).resolve().parents[1] / "build" / "bin" / "comm-opt"
OURS, THEIRS = "our costs", "XLA's costs"
# What XLA's estimator writes, and how much of it: each kernel and each collective that it was asked about.
LOGGED = "sol_latency_estimator=10"
_KERNEL = re.compile(r"(?:NodeCost: .*? for|calculated cost for:) ([\w.\-]+?)(?:: | ?\. Cost: )([\d.e+\-]+)")
_COLLECTIVE = re.compile(r"Computed collective time for ([\w.\-]+): ([\d.e+\-]+) us")
_TIME = re.compile(r"(#comm\.cost<time = )(\d+)")
_NAME = re.compile(r'loc\("([^"]+)"\)$')
_GROUP = re.compile(r"comm\.group (@\S+) (.*?)(?: loc\(.*)?$", re.MULTILINE)
_TENSOR = re.compile(r"tensor<((?:\d+x)*)[a-z]+(\d+)")


# ---------------------------------------------------------------------- XLA's costs


def costs_of(log: str) -> tuple[dict[str, int], dict[str, int]]:
    """The times of kernels and of collectives in XLA's log, in ns, by the name of the instruction."""
    kernels, collectives = (
        {name: round(float(us) * 1000) for name, us in pattern.findall(log)} for pattern in (_KERNEL, _COLLECTIVE)
    )
    return kernels, collectives


def operand_bytes(line: str) -> int:
    """Bytes of the operands of a collective in comm IR."""
    total = 0
    for shape, bits in _TENSOR.findall(line[line.rindex(" : (") : line.rindex(" -> ")]):
        total += math.prod(int(extent) for extent in shape.split("x") if extent) * max(1, int(bits) // 8)
    return total


def between(samples: list[tuple[int, int]], of_group: list[tuple[int, int]], size: int) -> float:
    """The time of a collective that XLA never had, from those of its kind and group, pairs of bytes and time that
    ascend, and from all of its group.

    It is linear between two of its kind. Above the largest one, further bytes go at the best rate of the group; below
    the smallest one, the time falls towards the least of the group.
    """
    at = bisect.bisect_left(samples, (size, 0))
    if at == len(samples):
        return samples[-1][1] + (size - samples[-1][0]) * min(time / max(1, bytes_) for bytes_, time in of_group)
    (low, low_time) = samples[at - 1] if at else (0, min(time for _, time in of_group))
    (high, high_time) = samples[at]
    return low_time + (high_time - low_time) * (size - low) / max(1, high - low)


class XlaCosts:
    """The costs of XLA's estimator for a module in XLA's order and for what CommSched makes of it."""

    def __init__(self, text: str, log: str) -> None:
        self.kernels, known = costs_of(log)
        # Indexed by name: the bytes and the time; and by kind and group: the same, ascending.
        self.known: dict[str, tuple[int, int]] = {}
        self.samples: dict[tuple[str, str], list[tuple[int, int]]] = collections.defaultdict(list)
        self.unknown: set[str] = set()
        groups = dict(_GROUP.findall(text))
        for line in text.split("\n"):
            name = _NAME.search(line)
            if "!comm.future<" in line and " = comm.wait " not in line and name and name[1] in known:
                sample = operand_bytes(line), known[name[1]]
                self.known[name[1]] = sample
                self.samples[self._kind(line, groups)].append(sample)
        for samples in self.samples.values():
            samples.sort()

    @staticmethod
    def _kind(line: str, groups: dict[str, str]) -> tuple[str, str]:
        kind, group = re.search(r" = comm\.(\w+) ", line), re.search(r" on (@\S+)", line)
        return kind[1], groups.get(group[1], "") if group else ""

    def collective(self, line: str, groups: dict[str, str], planned: int) -> int:
        """The time of a collective. `planned` if XLA had none of its kind and group."""
        name, size = _NAME.search(line), operand_bytes(line)
        if name and self.known.get(name[1], (None,))[0] == size:
            return self.known[name[1]][1]
        kind = self._kind(line, groups)
        samples = self.samples.get(kind)
        if not samples:
            self.unknown.add(name[1] if name else line)
            return planned
        of_group = [sample for (_, group), found in self.samples.items() if group == kind[1] for sample in found]
        return round(between(samples, of_group, size))

    def applied(self, text: str) -> str:
        """`text`, comm IR with the names of instructions, with XLA's costs."""
        groups = dict(_GROUP.findall(text))
        text = robustness_play.with_times(text, lambda line, time: self.collective(line, groups, time))
        lines = text.split("\n")
        for at, line in enumerate(lines):
            name, time = _NAME.search(line), _TIME.search(line)
            if " = comm.compute " not in line or not name or not time:
                continue
            if name[1] in self.kernels:
                lines[at] = f"{line[: time.start(2)]}{self.kernels[name[1]]}{line[time.end(2) :]}"
            elif int(time[2]):
                self.unknown.add(name[1])
        return "\n".join(lines)


# ---------------------------------------------------------------------- one program


def imported(module: bytes, machine: str, folder: pathlib.Path) -> str:
    """A module as comm IR, in its order, with the names of instructions."""
    file, output = folder / "module.pb", folder / "module.mlir"
    file.write_bytes(module)
    flags = [f"--comm-machine={machine}", "--mlir-print-debuginfo", "--mlir-print-local-scope"]
    subprocess.run([COMM_OPT, "--import-hlo", file, *flags, "-o", output], check=True, stderr=subprocess.DEVNULL)
    return output.read_text()


def compiled(config, folder: pathlib.Path) -> bytes:
    """The module of a program in XLA's order. This process prints what XLA's estimator says."""
    import jax_programs

    import commsched.jax

    step, arguments = jax_programs.training_step(config)
    with commsched.jax.enabled(ranks="off", dump=str(folder), effort=1, buckets=False):
        step.trace(*arguments).lower(lowering_platforms=("cuda",)).compile()
    return max((path.read_bytes() for path in folder.glob("*.pb")), key=len)


def rows_of(module: bytes, log: str, machine: str, referees, objectives, scales, buckets: bool = True) -> list[dict]:
    """The rows of one module, one per referee."""
    import commsched.jax

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        profile = robustness_play.on_one_stream(machine, folder)
        given = imported(module, machine, folder)
        answers = {}
        for objective in objectives:
            scheduled, _ = commsched.jax.schedule(module, machine=machine, objective=objective, buckets=buckets)
            answers[objective] = imported(scheduled, machine, folder)
        rows = []
        for referee in referees:
            costs = XlaCosts(given, log) if referee == THEIRS else None
            judged = costs.applied if costs else str
            peer = robustness_play.play(judged(given), profile, scales)
            ours = {o: robustness_play.play(judged(text), profile, scales) for o, text in answers.items()}
            rows.append(
                {
                    "referee": referee,
                    "against": "XLA",
                    "nodes": given.count(" = "),
                    "peer_ms": list(peer.ms),
                    "limit_bytes": peer.peak_bytes,
                    "answers": {o: {"ms": list(p.ms), "peak_bytes": p.peak_bytes} for o, p in ours.items()},
                    "unknown": sorted(costs.unknown) if costs else [],
                }
            )
        return rows


def study(config: dict, machine: str, referees, objectives, scales) -> list[dict]:
    """Compiles a program in a process of its own; its rows."""
    job = dict(config=config, machine=machine, referees=referees, objectives=objectives, scales=scales)
    environment = dict(
        os.environ,
        XLA_FLAGS=jax_overlap.XLA_FLAGS,
        JAX_PLATFORMS="cpu",
        TF_CPP_MIN_LOG_LEVEL="0",
        TF_CPP_VMODULE=LOGGED,
    )
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "log")
        with log.open("w") as output:
            command = [sys.executable, __file__, folder, json.dumps(config)]
            done = subprocess.run(command, env=environment, stdout=output, stderr=output)
        text = log.read_text(errors="replace")
        if done.returncode:
            raise RuntimeError((text.strip().splitlines() or ["no output"])[-1])
        module = pathlib.Path(folder, "module").read_bytes()
        rows = rows_of(module, text, **{k: v for k, v in job.items() if k != "config"})
    return [{"program": config["name"], **row} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compiles one program; robustness.py calls this.")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("config", type=json.loads)
    arguments = parser.parse_args()
    import jax_programs

    module = compiled(jax_programs.Config(**arguments.config), arguments.folder)
    (arguments.folder / "module").write_bytes(module)


if __name__ == "__main__":
    main()
