# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The options of scheduling, in one place. They are also a part of the key of Inductor's cache."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from .. import __version__, program, traces
from ..program import option_value
from . import stages
from .stages import ALIGN_COSTS, MEASURES, PIPELINE, Function, Stage, name_of

COLLECTIVE_ORDERS = ("free", "group", "program")
OBJECTIVES = ("robust", "regret", "makespan")
TUNINGS = (None, "measure")
MEMORY_PLANS = ("off", "on")
# The options of noise, and the largest values that the library takes.
NOISE = {"scenarios": 4096, "collective_spread_permille": 1000, "compute_spread_permille": 1000}
# What comm-split-strands takes.
LARGEST_NUMBER_OF_STRANDS = 8
# The machine profile if none is named.
DEFAULT_MACHINE = "h100-sxm"
# `machine="measure"`, or "measure:BASE": the collectives of each graph are measured when it is first compiled, and the
# profile BASE says the rest (calibration/demand.py).
MEASURE = "measure"
# `(node, override_bytes=None) -> milliseconds | None`: the convention of PyTorch's overlap scheduler.
Estimation = Callable[..., "float | None"]
NS_PER_MS = 1_000_000


def to_ns(milliseconds: float) -> int:
    """A user's estimate in the unit of the cost model. The result is at least 0."""
    return max(0, round(milliseconds * NS_PER_MS))


class OptionArguments(TypedDict, total=False):
    """The options as keyword arguments. `Options` has their defaults, and `schedule_overlap` describes them."""

    machine: str | os.PathLike
    memory_budget_ratio: float | None
    memory_limit_bytes: int | None
    bucketing: bool
    bucket_cap_bytes: int | None
    collective_order: str
    effort: int | None
    objective: str
    time_budget_ratio: float | None
    scenarios: int
    collective_spread_permille: int
    compute_spread_permille: int
    strands: str | int
    allow_reassociation: bool
    passes: Sequence[str | Function]
    donated: str | Sequence[str]
    runtime_estimation: Estimation | None
    fusion: bool
    memory_plan: str
    tune: str | None
    tune_runs: int
    record: bool


# The passes that run if none is named.
SOLVER = ("comm-schedule",)
# Indexed by option: the passes that read it. All others are read by every pipeline.
_SEARCHES = ("comm-schedule", "comm-split-strands", "comm-pareto")
READERS = {
    "effort": _SEARCHES,
    "bucket_cap_bytes": (*_SEARCHES, "comm-bucket"),
    "time_budget_ratio": ("comm-schedule",),
}


def _read(name: str, passes: Sequence[str | Function]) -> bool:
    """Whether one of the passes reads an option. If none is named, the solver runs, which reads all of them."""
    named = [entry for entry in passes if isinstance(entry, str)] if passes else SOLVER
    return name not in READERS or any(reader in entry for reader in READERS[name] for entry in named)


@dataclasses.dataclass(frozen=True)
class Options:
    """The options that `schedule_overlap`, `enabled`, `install` and the backend take. `schedule_overlap` describes
    them. A path as `machine` becomes its text.

    None means that the library's default holds.

    Raises:
        ValueError: an option has no legal value, no machine profile has that name, or a trace cannot be read.
    """

    machine: str | os.PathLike = DEFAULT_MACHINE
    memory_budget_ratio: float | None = None
    memory_limit_bytes: int | None = None
    bucketing: bool = True
    bucket_cap_bytes: int | None = None
    collective_order: str = "free"
    effort: int | None = None
    objective: str = "robust"
    time_budget_ratio: float | None = None
    scenarios: int = 0
    collective_spread_permille: int = 300
    compute_spread_permille: int = 0
    strands: str | int = "off"
    allow_reassociation: bool = False
    passes: Sequence[str | Function] = ()
    donated: str | Sequence[str] = "auto"
    runtime_estimation: Estimation | None = None
    fusion: bool = True
    memory_plan: str = "off"
    tune: str | None = None
    tune_runs: int = 10
    record: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "machine", _with_base(os.fspath(self.machine)))
        for name, known in (
            ("collective_order", COLLECTIVE_ORDERS),
            ("objective", OBJECTIVES),
            ("tune", TUNINGS),
            ("memory_plan", MEMORY_PLANS),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: expected one of {', '.join(map(str, known))}, got {getattr(self, name)!r}")
        self._check_strands()
        self._check_passes()
        if self.memory_plan == "on" and self.tune is not None:  # Both variants would get the plan.
            raise ValueError(f"memory_plan: expected 'off' with tune={self.tune!r}, got 'on'")
        if self.bucket_cap_bytes is not None and not self.bucketing:
            raise ValueError(f"bucket_cap_bytes: expected None with bucketing=False, got {self.bucket_cap_bytes}")
        if self.tune_runs < 1:
            raise ValueError(f"tune_runs: expected at least 1, got {self.tune_runs}")
        if machine_file(self.base()) is None:
            profiles = sorted({f.stem for d in program.machine_directories() for f in d.glob("*.json")})
            place = f" behind '{MEASURE}:'" if self.measures() else ""
            raise ValueError(
                f"machine: expected the path of a .json file or one of {', '.join(profiles)}{place}, got "
                f"{self.machine!r} ({program.MACHINE_PATH} adds directories to search)"
            )
        for name in ("memory_budget_ratio", "memory_limit_bytes", "bucket_cap_bytes", "effort", "time_budget_ratio"):
            value = getattr(self, name)
            if name == "memory_budget_ratio" and value is not None and not value > -1:
                raise ValueError(f"{name}: expected a number above -1, got {value}")
            if name != "memory_budget_ratio" and value is not None and not value >= 0:
                raise ValueError(f"{name}: expected at least 0, got {value}")
            if value is not None and not _read(name, self.passes):
                raise ValueError(
                    f"{name}: expected None, got {value}: no pass of {', '.join(map(name_of, self.passes))} reads it. "
                    f"Those that do are {', '.join(READERS[name])}"
                )
        for name, largest in NOISE.items():
            if not 0 <= getattr(self, name) <= largest:
                raise ValueError(f"{name}: expected a number from 0 to {largest}, got {getattr(self, name)}")
        # Lists become tuples, so that options can be compared and hashed.
        if not isinstance(self.donated, str):
            object.__setattr__(self, "donated", tuple(self.donated or ()))
        object.__setattr__(self, "passes", tuple(self.passes))

    def _check_strands(self) -> None:
        if self.strands in ("off", "auto"):
            return
        if type(self.strands) is not int or not 1 <= self.strands <= LARGEST_NUMBER_OF_STRANDS:
            raise ValueError(
                f'strands: expected "off", "auto" or a number from 1 to {LARGEST_NUMBER_OF_STRANDS}, '
                f"got {self.strands!r}"
            )

    def _check_passes(self) -> None:
        if isinstance(self.passes, str) or callable(self.passes):
            raise ValueError(f"passes: expected a list of passes, got {self.passes!r}")
        for entry in self.passes:
            stages.check(entry)
        if self.aligns() and self.strands != "off":  # Ranks take splits over without aligning costs.
            raise ValueError(f"strands: expected 'off' with the pass {ALIGN_COSTS}, got {self.strands!r}")

    def stages(self) -> list[Stage]:
        """The passes as stages, each of which is carried out on the graph before the next one begins."""
        return stages.split(self.passes)

    def of_stage(self, stage: Stage) -> Options:
        """The options of one stage. Those that none of its passes reads are left out, if another stage reads them."""
        unread: dict[str, Any] = {name: None for name in READERS if not _read(name, stage.passes)}
        if "effort" in unread:  # There is no search.
            unread["objective"] = "robust"
        return dataclasses.replace(self, passes=stage.passes, **unread)

    def refuse_tuning(self, where: str) -> None:
        """Raises ValueError if `tune` is set: `where` cannot run two variants of a graph."""
        if self.tune is not None:
            raise ValueError(
                f"tune: expected None, got {self.tune!r}: {where} cannot run a graph in two variants. Use "
                'torch.compile(f, backend="commsched", options={...}) or commsched.torch.enabled(...)'
            )

    def refuse_memory_plan(self, where: str) -> None:
        """Raises ValueError if `memory_plan` is on: `where` gets a step after it was cut in two."""
        if self.memory_plan != "off":
            raise ValueError(
                f"memory_plan: expected 'off', got {self.memory_plan!r}: {where} gets graphs that are cut already. Use "
                "torch.compile(f, options=commsched.torch.inductor_options(...))"
            )

    def measures(self) -> bool:
        """Whether collectives are measured when a graph is first compiled."""
        return os.fspath(self.machine).startswith(f"{MEASURE}:")

    def base(self) -> str:
        """The machine profile, or the one that measurements complete."""
        return os.fspath(self.machine).removeprefix(f"{MEASURE}:")

    def with_profile(self, profile: str | None = None) -> Options:
        """The options with a profile in the place of "measure", by default the base. Others stay as they are."""
        return dataclasses.replace(self, machine=profile or self.base()) if self.measures() else self

    def refuse_measuring(self, where: str) -> None:
        """Raises ValueError if collectives are to be measured: `where` has no graph that all ranks compile."""
        if self.measures():
            raise ValueError(
                f"machine: expected a machine profile, got {self.machine!r}: {where} compiles no graph. Give it the "
                "result of commsched.torch.calibrate()"
            )

    def pipeline(self, report_file: str | None = None, overlap_file: str | None = None) -> str:
        """The pass pipeline for these options.

        Args:
            report_file: where the pipeline writes its report as JSON.
            overlap_file: where it writes the schedule as text.
        """
        settings = [
            f"machine={option_value(self.machine)}",
            f"bucketing={'true' if self.bucketing else 'false'}",
            f"collective-order={self.collective_order}",
        ]
        for name in ("memory_budget_ratio", "memory_limit_bytes", "bucket_cap_bytes", "effort", "time_budget_ratio"):
            if getattr(self, name) is not None:
                settings.append(f"{name.replace('_', '-')}={getattr(self, name)!r}")
        if self.objective != "robust" or self.scenarios:
            settings += [f"{name.replace('_', '-')}={getattr(self, name)}" for name in ("objective", *NOISE)]
        if self.passes:
            settings.append(f"passes={','.join(map(str, self.passes))}")
        if report_file:
            settings += [f"report-file={option_value(report_file)}", "table=false"]
        if overlap_file:
            settings.append(f"overlap-file={option_value(overlap_file)}")
        return f"{PIPELINE}{{{' '.join(settings)}}}"

    def unmerged(self) -> Options:
        """The options with which no collective is merged. A limit on merged ones would have no effect, and the pipeline
        refuses such options.
        """
        return dataclasses.replace(self, bucketing=False, bucket_cap_bytes=None)

    def key(self) -> str | None:
        """A hash of everything that decides the generated code of a graph. None with a user's estimator or function,
        if costs are aligned (then they are those of other ranks as well), and if collectives are measured: a rank that
        finds its code in a cache does not come to measure with the others.

        It covers the options, the profile, the library and the sources of this package by their contents, the rank of
        this process, and the ranks of each group. The rank is in the code: a packed gather writes into its own slice.
        Nothing is known of a user's estimator or function.
        """
        shared = self.shared_key()
        if shared is None or self.aligns() or self.measures() or any(map(callable, self.passes)):
            return None
        return hashlib.sha256(f"{shared} {json.dumps(_job(), default=str)}".encode()).hexdigest()

    def aligns(self) -> bool:
        """Whether all ranks schedule by the medians of their costs."""
        return any(map(stages.aligns, self.passes))

    def unchanged(self) -> Options:
        """The options that measure a graph by the same costs and leave it as it is."""
        aligned = [entry for entry in self.passes if stages.aligns(entry)]
        # The pipeline refuses options that none of its passes reads.
        searching: dict[str, Any] = dict.fromkeys(READERS) | {"objective": "robust"}
        return dataclasses.replace(self, bucketing=False, strands="off", passes=(*aligned, MEASURES), **searching)

    def agreed_key(self) -> str | None:
        """The part of `shared_key` that names a program on all ranks. If ranks align their costs, their profiles may
        differ.
        """
        return (dataclasses.replace(self, machine=DEFAULT_MACHINE) if self.aligns() else self).shared_key()

    def shared_key(self) -> str | None:
        """The part of `key` that all ranks have in common: all except the rank and the groups."""
        if self.runtime_estimation is not None:
            return None
        described = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        described["passes"] = [name_of(entry) for entry in self.passes]
        path = machine_file(self.base())
        # The contents count, not the place: ranks of several nodes may have the same profile in different places.
        described["machine"] = [path.read_text() if path else None, self.measures()]
        described["version"] = [__version__, program.version(), _content()]
        return hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()


def _with_base(machine: str) -> str:
    """The option `machine` with the base of "measure" by name. Traces become the path of their profile."""
    if machine == MEASURE:
        return f"{MEASURE}:{DEFAULT_MACHINE}"
    if machine.startswith(f"{MEASURE}:"):
        return f"{MEASURE}:{traces.machine_of(machine.removeprefix(f'{MEASURE}:'))}"
    return traces.machine_of(machine)


@functools.cache
def _content() -> str:
    """A hash of the compiled library and of this package's sources. It is equal on all machines with the same files."""
    package = pathlib.Path(__file__).resolve().parent.parent
    files = [program.library_file(), *sorted(package.rglob("*.py"))]
    content = hashlib.sha256()
    for file in files:
        content.update(f"{file.name}\n".encode())
        content.update(file.read_bytes())
    return content.hexdigest()


def _job() -> dict[str, Any] | None:
    """The rank of this process, and the ranks of each group by the group's name. None without process groups."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return None
    names, ranks = dist.distributed_c10d._world.pg_names, dist.distributed_c10d._world.pg_group_ranks
    return {"rank": dist.get_rank(), "groups": {name: sorted(ranks.get(group, ())) for group, name in names.items()}}


def machine_file(profile: str | os.PathLike) -> pathlib.Path | None:
    """The file of a machine profile, given its path or its name on the library's search path. None if there is none."""
    name_or_path = os.fspath(profile)
    if "/" in name_or_path or name_or_path.endswith(".json"):
        path = pathlib.Path(name_or_path)
        return path if path.is_file() else None
    for directory in program.machine_directories():
        path = directory / f"{name_or_path}.json"
        if path.is_file():
            return path
    return None
