# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""CommSched's orders of HLO modules against that of XLA's latency-hiding scheduler, if collectives take longer than
planned.

Two referees, and one timeline for both, that of the front end for XLA. *Our costs* are those that CommSched plans with.
*XLA's costs* are what XLA's latency estimator told XLA's scheduler, from its log: every kernel and every collective
that XLA's own order has. A collective that CommSched took apart or merged is read off those of its kind and group by
its bytes.
"""

from __future__ import annotations

import argparse
import bisect
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import jax_overlap
import robustness_play

from commsched import _commsched, traces

OURS, THEIRS = "our costs", "XLA's costs"
# What XLA's estimator writes, and how much of it: each kernel and each collective that it was asked about.
LOGGED = "sol_latency_estimator=10"
_KERNEL = re.compile(r"(?:NodeCost: .*? for|calculated cost for:) ([\w.\-]+?)(?:: | ?\. Cost: )([\d.e+\-]+)")
_COLLECTIVE = re.compile(r"Computed collective time for ([\w.\-]+): ([\d.e+\-]+) us")


# ---------------------------------------------------------------------- XLA's costs


def costs_of(log: str) -> tuple[dict[str, int], dict[str, int]]:
    """The times of kernels and of collectives in XLA's log, in ns, by the name of the instruction."""
    kernels, collectives = (
        {name: round(float(us) * 1000) for name, us in pattern.findall(log)} for pattern in (_KERNEL, _COLLECTIVE)
    )
    return kernels, collectives


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

    def __init__(self, given: dict, log: str) -> None:
        """`given`: the report of the module in XLA's order."""
        self.kernels, known = costs_of(log)
        # Indexed by name: the bytes and the time; and by kind and group: the same, ascending.
        self.known: dict[str, tuple[int, int]] = {}
        self.samples: dict[tuple, list[tuple[int, int]]] = collections.defaultdict(list)
        self.unknown: set[str] = set()
        for start in starts_of(given):
            if start["name"] in known and "kind" in start:
                sample = start["bytes"], known[start["name"]]
                self.known[start["name"]] = sample
                self.samples[self._kind(start)].append(sample)
        for samples in self.samples.values():
            samples.sort()

    @staticmethod
    def _kind(start: dict) -> tuple:
        return start["kind"], start["ranks"], start["nodes"]

    def collective(self, start: dict) -> int:
        """The time of a start. The planned one if XLA had none of its kind and group."""
        name = start["name"]
        samples = self.samples.get(self._kind(start)) if "kind" in start else None
        if not samples:
            self.unknown.add(name)
            return start["cost_ns"]
        size = start["bytes"]
        if self.known.get(name, (None,))[0] == size:
            return self.known[name][1]
        group = self._kind(start)[1:]
        of_group = [sample for (_, *shape), found in self.samples.items() if tuple(shape) == group for sample in found]
        return round(between(samples, of_group, size))

    def times(self, report: dict) -> tuple[dict[str, int], dict[str, int]]:
        """The times of the kernels and of the collectives of a module, by name."""
        return self.kernels, {start["name"]: self.collective(start) for start in starts_of(report)}


class OurCosts:
    """The costs that the module was scheduled with."""

    def __init__(self) -> None:
        self.unknown: set[str] = set()

    def times(self, report: dict) -> tuple[dict[str, int], dict[str, int]]:
        return {}, {start["name"]: start["cost_ns"] for start in starts_of(report)}


# ---------------------------------------------------------------------- one program


def starts_of(report: dict) -> list[dict]:
    """Everything that the module starts and waits for: collectives, copies, and kernels on other streams."""
    return [start for computation in report["computations"] for start in computation["starts"]]


def measured(module: bytes, machine: str, times: dict[str, int]) -> dict:
    """The report of a module in its own order, in which the named instructions take these times, in ns."""
    _, report = _commsched.schedule_hlo(module, json.dumps({"machine": traces.machine_of(machine), "measure": times}))
    return json.loads(report)


def play(module: bytes, machine: str, costs: XlaCosts | OurCosts, scales: tuple[float, ...]) -> robustness_play.Played:
    """Plays a module in its own order at each of the scales."""
    plain = measured(module, machine, {})
    kernels, collectives = costs.times(plain)
    reports = [
        measured(module, machine, {**kernels, **{name: round(time * scale) for name, time in collectives.items()}})
        for scale in scales
    ]
    if kernels:
        costs.unknown |= {name for one in reports[0]["computations"] for name in one.get("untimed", [])}
    return robustness_play.Played(
        ms=tuple(report["makespan_ns"]["before"] / robustness_play.MS for report in reports),
        peak_bytes=plain["peak_bytes"]["before"],
        collectives=sum(computation["collectives"] for computation in plain["computations"]),
    )


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

    given = measured(module, machine, {})
    answers = {
        objective: commsched.jax.schedule(module, machine=machine, objective=objective, buckets=buckets)[0]
        for objective in objectives
    }
    rows = []
    for referee in referees:
        costs = XlaCosts(given, log) if referee == THEIRS else OurCosts()
        peer = play(module, machine, costs, scales)
        ours = {o: play(answer, machine, costs, scales) for o, answer in answers.items()}
        rows.append(
            {
                "referee": referee,
                "against": "XLA",
                "nodes": sum(computation["nodes"] for computation in given["computations"]),
                "peer_ms": list(peer.ms),
                "limit_bytes": peer.peak_bytes,
                "answers": {o: {"ms": list(p.ms), "peak_bytes": p.peak_bytes} for o, p in ours.items()},
                "unknown": sorted(costs.unknown),
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
