# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`calibrate`: a machine profile from measurements inside the running job."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
import os
import pathlib
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.fx as fx

from ... import _commsched
from ..options import DEFAULT_MACHINE, machine_file
from .bench import GroupBench, clock_of
from .questions import Question, Shape, agreed, by_shape, groups_of_this_rank, in_graphs, on_grid

log = logging.getLogger("commsched")

RECIPES = ("median", "seed")
# The kinds that training steps hold most.
KINDS = ("all_gather", "reduce_scatter", "all_reduce")
# A change of what is measured, or how, has to change this number: it is part of the cache's key.
CACHE_VERSION = 2
NO_CACHE = "none"


class _Memory(dict[str, str]):
    """What this process has measured, by fingerprint. PyTorch empties it when it asks for fresh caches."""

    def cache_clear(self) -> None:
        self.clear()


@functools.cache
def _memory() -> _Memory:
    from torch._inductor.utils import clear_on_fresh_cache

    return clear_on_fresh_cache(_Memory())


@dataclasses.dataclass(frozen=True)
class Calibration(os.PathLike):
    """A calibrated machine profile. The option `machine` takes it.

    Args:
        path: the profile's file. Its name holds the hash of its contents.
        digest: the SHA-256 of the profile, which is equal on all ranks.
        points: how many points the measured curves have.
        measured: how many of them this call measured. The others were known.
        skipped: what keeps its analytic cost: `kind`, `ranks`, `nodes`, `element` and `reason`.
        warnings: what went wrong with the cache.
    """

    path: str
    digest: str
    points: int
    measured: int
    skipped: list[dict]
    warnings: list[str]

    def __fspath__(self) -> str:
        return self.path

    @property
    def profile(self) -> dict:
        """The contents of the profile (docs/guide/MachineModel.md)."""
        return json.loads(pathlib.Path(self.path).read_text())


@dataclasses.dataclass(frozen=True)
class Rules:
    """How measurements are made and kept, and the profile that they complete: arguments of `calibrate`."""

    base: pathlib.Path
    recipe: str = "median"
    budget_seconds: float = 60.0
    cache: str | os.PathLike | None = None
    fresh: bool = False

    def ranks_per_node(self) -> int:
        return json.loads(self.base.read_text()).get("node", {}).get("ranks", 1)


class _Alone:
    """A job in which nothing can be measured."""

    rank, ranks = 0, 1

    def gather(self, own: list[int]) -> list[int]:
        return own

    def now(self) -> int:
        return time.perf_counter_ns()


def calibrate(
    groups: Sequence[dist.ProcessGroup] | None = None,
    *,
    graphs: Sequence[fx.GraphModule | fx.Graph] = (),
    kinds: Sequence[str] = KINDS,
    dtypes: Sequence[torch.dtype] = (torch.float32,),
    sizes: Sequence[int] = (),
    min_bytes: int = 1 << 10,
    max_bytes: int = 64 << 20,
    base: str | os.PathLike = DEFAULT_MACHINE,
    recipe: str = "median",
    budget_seconds: float = 60.0,
    cache: str | os.PathLike | None = None,
    fresh: bool = False,
    device: torch.device | str | None = None,
) -> Calibration:
    """Measures collectives on process groups of the running job, and completes a machine profile with them.

    All ranks of the job call it with the same arguments. Nothing that cannot be measured is an error: it keeps its
    analytic cost, and `skipped` of the result lists it with the reason.

    Args:
        groups: this rank's groups. All ranks give groups of the same shapes in the same order. By default, all groups
            of the job. Groups of one shape (ranks, nodes) are measured once, and run at the same time on all ranks.
        graphs: post-AOT graphs. Their collectives are measured at their exact sizes and merged, and nothing else is.
        kinds: the kinds to measure, as in a machine profile.
        dtypes: the element types to measure apart. If there is one, its times stand for all types.
        sizes: the bytes to measure, as a profile counts them. By default, a grid from `min_bytes` to `max_bytes`, which
            is refined where interpolation misses.
        base: the profile that is completed: a name or a path.
        recipe: "median" (warm-up, medians of 20 to 200 runs, intervals, rejection of outliers, medians over ranks), or
            "seed", which measures as PyTorch's `node_runtime_estimation` does: one run to warm up, the mean of two.
        budget_seconds: begin no further point after this time. 0 means no limit. A later call measures the rest.
        cache: the folder of measurements that are kept, "none" to keep none. By default that of comm-calibrate.
        fresh: ignore what is kept.
        device: where the tensors are. By default, the device of the job's default backend.

    Raises:
        ValueError: an argument has no legal value, or ranks have given different ones.
    """
    if recipe not in RECIPES:
        raise ValueError(f"recipe: expected one of {', '.join(RECIPES)}, got {recipe!r}")
    if not 1 <= min_bytes <= max_bytes or any(s < 1 for s in sizes):
        raise ValueError(
            f"expected sizes of at least 1 byte, and 1 <= min_bytes <= max_bytes, got {min_bytes} and {max_bytes}"
        )
    if budget_seconds < 0:
        raise ValueError(f"budget_seconds: expected at least 0, got {budget_seconds}")
    file = machine_file(base)
    if file is None:
        raise ValueError(f"base: expected the path of a .json file or the name of a machine profile, got {base!r}")
    rules = Rules(file, recipe, budget_seconds, cache, fresh)
    if reason := obstacle():
        questions = on_grid(kinds, dtypes, [Shape(1, 1, 1)], sizes, min_bytes, max_bytes)
        return _answered(_Alone(), [dataclasses.replace(q, skipped=reason) for q in questions], rules, {})
    in_graph, of_graphs = in_graphs(graphs, rules.ranks_per_node())
    return measured_together(
        of_graphs + list(groups_of_this_rank() if groups is None else groups),
        lambda shapes: in_graph if graphs else on_grid(kinds, dtypes, shapes, sizes, min_bytes, max_bytes),
        rules,
        device,
    )


def measured_together(
    groups: Iterable[dist.ProcessGroup],
    ask: Callable[[list[Shape]], list[Question]],
    rules: Rules,
    device: torch.device | str | None = None,
) -> Calibration:
    """Measures on the groups of this rank. Collective over the job.

    Args:
        groups: of several groups of one shape, the first one is measured.
        ask: the questions, equal on all ranks, given the shapes that some rank has a group of.
        device: as in `calibrate`.

    Raises:
        ValueError, RuntimeError: ranks have asked different things, or have got different profiles. All ranks raise it.
    """
    where, per_node = _device(device), rules.ranks_per_node()
    mine = by_shape(groups, per_node)
    common, lacking = agreed(mine)
    questions = [
        dataclasses.replace(q, skipped=q.skipped or lacking.get(q.shape, "")) for q in ask(common + list(lacking))
    ]
    clock = clock_of(where)
    bench = GroupBench({(s.ranks, s.nodes): mine[s] for s in common}, where, clock, rules.recipe == "seed")
    facts = {"clock": clock.name, "torch": torch.__version__, **_machine_facts(where)}
    return _answered(bench, questions, rules, facts)


def _answered(bench: Any, questions: list[Question], rules: Rules, more: dict[str, str]) -> Calibration:
    """The profile with what is known and what is measured now.

    Args:
        more: facts that decide the numbers.
    """
    base, folder = rules.base, _folder(rules.cache)
    facts = {"tool": "commsched.torch.calibrate", "base": base.stem, "recipe": rules.recipe, **more}
    fingerprint = json.dumps([CACHE_VERSION, dict(sorted(facts.items())), bench.ranks, rules.ranks_per_node()])
    request = {
        "base": str(base),
        "name": f"{base.stem}, calibrated",
        "recipe": rules.recipe,
        "budget_ns": round(rules.budget_seconds * 1e9),
        "cache": folder,
        "fresh": rules.fresh,
        "fingerprint": fingerprint,
        "facts": {**facts, "fingerprint": fingerprint},
        "curves": [q.request() for q in questions],
    }
    if bench.ranks > 1:
        _same_on_all_ranks({**request, "base": base.read_text(), "cache": "", "fingerprint": "", "facts": ""})
    result = json.loads(_commsched.calibrate(bench, json.dumps({**request, "known": _memory().get(fingerprint, "")})))
    _memory()[fingerprint] = result["known"]
    for warning in result["warnings"]:
        log.warning("calibration: %s", warning)
    return _kept(result, folder, bench.ranks)


def obstacle() -> str:
    """Why this job cannot measure anything, or ""."""
    if not dist.is_available() or not dist.is_initialized():
        return "torch.distributed is not initialized"
    if dist.get_backend() == "fake":
        return "the process group is fake"
    return "the job has one rank" if dist.get_world_size() == 1 else ""


def _device(device: torch.device | str | None) -> torch.device:
    """Where the tensors of collectives are: on the device of the default backend, if it has one."""
    if device is not None:
        return torch.device(device)
    kinds = {entry.split(":")[0] for entry in dist.get_backend_config().split(",")}
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is not None and (accelerator.type in kinds or dist.get_backend() == "nccl"):
        return torch.device(accelerator.type, torch.accelerator.current_device_index())
    return torch.device("cpu")


def _machine_facts(device: torch.device) -> dict[str, str]:
    """What decides the numbers on this device, as far as it can be known."""
    facts = {"backend": dist.get_backend_config(), "processor": f"{_processor()} x {os.cpu_count()}"}
    if device.type != "cpu":
        module = torch.get_device_module(device)
        facts["device"] = f"{module.get_device_name(device)} x {module.device_count()}"
        facts["cuda"] = str(torch.version.cuda)
        facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() else ""
        facts["environment"] = " ".join(f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("NCCL_"))
    return facts


def _processor() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _folder(cache: str | os.PathLike | None) -> str:
    """The folder of measurements that are kept; "" if none are."""
    if cache is None:
        return _commsched.calibration_folder()
    return "" if os.fspath(cache) == NO_CACHE else os.fspath(cache)


def _same_on_all_ranks(request: dict) -> None:
    """Raises ValueError on every rank if two ranks ask for different things. Collective."""
    asked = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, asked)
    for rank, other in enumerate(everyone):
        if other != everyone[0]:
            raise ValueError(f"calibrate: rank {rank} gave other arguments, or has another base profile, than rank 0")


def _kept(result: dict, folder: str, ranks: int) -> Calibration:
    """The result, with its profile in a file. Collective.

    Raises:
        RuntimeError: ranks have got different profiles, or one of them cannot write it. All ranks raise it.
    """
    text = json.dumps(result["profile"], indent=1, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    path = _written(text, f"calibrated-{digest[:16]}.json", folder)
    everyone: list[Any] = [(digest, bool(path))] * ranks
    if ranks > 1:
        dist.all_gather_object(everyone, (digest, bool(path)))
    if len(digests := {other for other, _ in everyone}) != 1:
        raise RuntimeError(f"calibrate: ranks have got different profiles: {sorted(digests)}")
    for rank, (_, written) in enumerate(everyone):
        if not written:
            raise RuntimeError(f"calibrate: no folder of rank {rank} takes the profile")
    skipped = result["profile"]["calibration"]["skipped"]
    for row in skipped:
        log.info("not measured: %(kind)s on %(ranks)s ranks, %(element)s: %(reason)s", row)
    return Calibration(path, digest, result["points"], result["measured"], skipped, result["warnings"])


def _written(text: str, name: str, folder: str) -> str:
    """The path of a file with this text. A folder that cannot be written to is replaced by a temporary one.

    "" if there is no such folder either.
    """
    for where in filter(None, (folder, os.path.join(tempfile.gettempdir(), f"commsched-{os.getuid()}"))):
        path = os.path.join(where, "profiles", name)
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(path), delete=False) as file:
                file.write(text)
            os.replace(file.name, path)  # Other ranks of this node write the same.
            return path
        except OSError as error:
            log.warning("calibration: the profile is not kept in %s: %s", where, error)
    return ""
