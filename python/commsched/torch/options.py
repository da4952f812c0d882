"""The options of scheduling, in one place: they are also what compiled code is cached by."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Callable, Sequence

from .. import __version__, program

COLLECTIVE_ORDERS = ("free", "group", "program")
# "seed" is what "inductor" was called before.
SOLVERS = ("schedule", "inductor", "seed")


# The machine profile that is taken if none is named.
DEFAULT_MACHINE = "h100-sxm"
# `(node, override_bytes=None) -> milliseconds | None`: the convention of PyTorch's overlap scheduler.
Estimation = Callable[..., "float | None"]
NS_PER_MS = 1_000_000


def to_ns(milliseconds: float) -> int:
    """A user's estimate in the unit of the cost model, at least 0."""
    return max(0, round(milliseconds * NS_PER_MS))


@dataclasses.dataclass(frozen=True)
class Options:
    """What `schedule_overlap`, `enabled`, `install` and the backend take; see `schedule_overlap`."""

    machine: str = "h100-sxm"
    memory_budget_ratio: float = 0.0
    memory_limit_bytes: int | None = None
    bucketing: bool = True
    bucket_cap_bytes: int | None = None
    collective_order: str = "free"
    effort: int | None = None
    solver: str = "schedule"
    passes: tuple[str, ...] = ()
    donated: str | tuple[str, ...] = "auto"
    runtime_estimation: Callable | None = None

    def __post_init__(self):
        if self.collective_order not in COLLECTIVE_ORDERS:
            raise ValueError(f"collective_order is {self.collective_order!r}, not one of {COLLECTIVE_ORDERS}")
        if self.solver not in SOLVERS:
            raise ValueError(f"solver is {self.solver!r}, not one of {SOLVERS}")
        if machine_file(self.machine) is None:
            known = sorted({f.stem for d in program.machine_directories() for f in d.glob("*.json")})
            raise ValueError(
                f"machine is {self.machine!r}: no such profile; there are {', '.join(known)} "
                f"({program.MACHINE_PATH} adds directories; a path to a .json file works too)"
            )
        if self.memory_budget_ratio < 0:
            raise ValueError("memory_budget_ratio is negative")
        for name in ("memory_limit_bytes", "bucket_cap_bytes", "effort"):
            if getattr(self, name) is not None and getattr(self, name) < 0:
                raise ValueError(f"{name} is negative")
        if not isinstance(self.donated, (str, tuple)):
            object.__setattr__(self, "donated", tuple(self.donated or ()))
        if not isinstance(self.passes, tuple):
            object.__setattr__(self, "passes", tuple(self.passes))

    def pipeline(self, machine: str | None = None, report_file: str | None = None) -> str:
        """The pass pipeline that does it. `machine` stands in for the profile where estimates amend it."""
        settings = [
            f"machine={option_value(machine or self.machine)}",
            f"solver={self.solver}",
            f"memory-budget-ratio={self.memory_budget_ratio!r}",
            f"bucketing={'true' if self.bucketing else 'false'}",
            f"collective-order={self.collective_order}",
        ]
        if self.memory_limit_bytes is not None:
            settings.append(f"memory-limit-bytes={self.memory_limit_bytes}")
        if self.bucket_cap_bytes is not None:
            settings.append(f"bucket-cap-bytes={self.bucket_cap_bytes}")
        if self.effort is not None:
            settings.append(f"effort={self.effort}")
        if self.passes:
            settings.append(f"passes={','.join(self.passes)}")
        if report_file:
            settings += [f"report-file={option_value(report_file)}", "table=false"]
        return f"reorder-comm-overlap{{{' '.join(settings)}}}"

    def key(self) -> str | None:
        """A hash of everything that decides the code of a graph: the options, the profile, the library and the sources of
        this package by their contents, this process's rank, and which ranks each group has. The rank is in the code: a
        packed gather writes into its own slice. None with a user's estimator, of which nothing is known."""
        shared = self.shared_key()
        return (
            None
            if shared is None
            else hashlib.sha256(f"{shared} {json.dumps(_job(), default=str)}".encode()).hexdigest()
        )

    def shared_key(self) -> str | None:
        """What of `key` all ranks have alike: all but the rank and the groups. None with a user's estimator."""
        if self.runtime_estimation is not None:
            return None
        described = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        path = machine_file(self.machine)
        described["profile"] = path.read_text() if path else None
        described["version"] = [__version__, program.version(), _content()]
        return hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()


def option_value(text: str) -> str:
    """`text` as the value of a pass option."""
    return f'"{text}"' if any(c in text for c in " {},=()") else text


@functools.cache
def _content() -> str:
    """A hash of the compiled library and of this package's sources: equal on all machines that have the same."""
    library = pathlib.Path(program._commsched.__file__)
    package = pathlib.Path(__file__).resolve().parent.parent
    files = [*sorted(library.parent.glob("libCommSched-c.so*")), library, *sorted(package.rglob("*.py"))]
    content = hashlib.sha256()
    for file in files:
        content.update(f"{file.name}\n".encode())
        content.update(file.read_bytes())
    return content.hexdigest()


def _job() -> dict | None:
    """This process's rank and the ranks of every group, by the group's name; None without process groups."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return None
    names, ranks = dist.distributed_c10d._world.pg_names, dist.distributed_c10d._world.pg_group_ranks
    return {"rank": dist.get_rank(), "groups": {name: sorted(ranks.get(group, ())) for group, name in names.items()}}


def machine_file(name_or_path: str) -> pathlib.Path | None:
    """The file of a machine profile: a path, or the name of a profile on the library's search path."""
    if "/" in name_or_path or name_or_path.endswith(".json"):
        path = pathlib.Path(name_or_path)
        return path if path.is_file() else None
    for directory in program.machine_directories():
        path = directory / f"{name_or_path}.json"
        if path.is_file():
            return path
    return None


def donated_argument(donated: str | Sequence[str]):
    """`donated` as a dataclass field holds it."""
    return donated if isinstance(donated, str) else tuple(donated or ())
