"""CommSched inside torch.compile.

Two places of Inductor are ours: a pass over the FX graph, which merges collectives, and the last reordering of the fused
kernels before code generation, which has the final word on order. Nothing in here talks to other ranks, and nothing in
here may break a compilation: what goes wrong is said once, and the graph stays as it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import warnings
from typing import Any

import torch
import torch.distributed as dist
import torch.fx as fx
from torch._inductor.custom_graph_pass import CustomGraphPass

from ..program import Program
from . import agreement, ranks
from .collectives import HYBRID_NAMESPACES
from .options import Options
from .schedule import Unscheduled, schedule_graph

log = logging.getLogger("commsched")

_warned: set[str] = set()
# What was scheduled since the process started, or since `reports` was last asked: one entry per graph.
_reports: list[dict] = []
# The signatures of all that was scheduled since the process started.
_signatures: list[str] = []


def _record(report: dict) -> None:
    _reports.append(report)
    _signatures.append(report.get("signature", ""))


def _warn_once(where: str, error: BaseException) -> None:
    reason = f"{where}: {type(error).__name__}: {error}"
    log.info("%s", reason, exc_info=error)
    if reason not in _warned:
        _warned.add(reason)
        warnings.warn(f"CommSched left a graph as it was; {reason}", stacklevel=3)


def reports() -> list[dict]:
    """What was scheduled since this was last asked: one report per graph and place ("graph" or "kernels")."""
    taken = list(_reports)
    _reports.clear()
    return taken


def _communicates(graph: fx.Graph) -> bool:
    return any(n.op == "call_function" and isinstance(n.target, torch._ops.OpOverload)
               and n.target.namespace in HYBRID_NAMESPACES for n in graph.nodes)


class GraphPass(CustomGraphPass):
    """The pass over the FX graph: buckets, and a first order."""

    def __init__(self, options: Options):
        self.options = options

    def __call__(self, graph: fx.Graph) -> None:
        if not _communicates(graph):
            return
        try:
            report = agreement.schedule(graph, self.options, schedule_graph)
        except Exception as error:  # The graph is as it was; a compilation must not fail for want of a schedule.
            _warn_once("graph", error)
            return
        _record({"place": "graph", **report})

    def uuid(self) -> Any | None:
        return self.options.key()


class KernelPass:
    """The reordering of the fused kernels. Its attributes are what Inductor's cache sees of it."""

    def __init__(self, options: Options):
        self.options = dataclasses.replace(options, bucketing=False, collective_order="program")
        self.key = options.key()

    def __call__(self, snodes: list) -> list:
        from torch._inductor.utils import contains_collective

        if not any(contains_collective(s) for s in snodes):
            return snodes
        order = snodes
        try:
            order, report = order_kernels(snodes, self.options)
            _record({"place": "kernels", **report})
        except Exception as error:  # Whatever it is: a compilation must not fail for want of a better order.
            _warn_once("kernels", error)
        try:
            _guard(order)
        except Exception as error:  # The schedule stands; it is only not compared.
            log.info("ranks will not be compared: %s: %s", type(error).__name__, error)
        return order


def _guard(order: list) -> None:
    """Has the generated code compare its collectives with other ranks' when it first runs."""
    from torch._inductor.graph import SubgraphLowering
    from torch._inductor.virtualized import V

    if not isinstance(V.graph, SubgraphLowering) and not V.graph.cpp_wrapper:
        ranks.guard(V.graph.wrapper_code, ranks.collective_sequences(order))


def order_kernels(snodes: list, options: Options) -> tuple[list, dict]:
    """The order of the fused kernels, and its report.

    Raises:
        Unscheduled: the order that came back is no permutation, or breaks a dependence.
    """
    import pathlib
    import tempfile

    from .kernels import KernelImporter
    from .schedule import _function_report

    world = dist.get_world_size() if dist.is_initialized() else 1
    importer = KernelImporter(snodes, options, world)
    program = Program(importer.text(), "kernels")
    with tempfile.TemporaryDirectory(prefix="commsched") as folder:
        report_file = pathlib.Path(folder, "report.json")
        program.run(options.pipeline(None, str(report_file)))
        report = _function_report(report_file)
    by_name = {s.get_name(): s for s in snodes}
    order = []
    for op in program.operations()["main"]:
        for name in op.names:
            order.append(by_name[name])
            order.extend(importer.members.get(name, ()))
    _check_order(snodes, order, importer.dependences)
    report["signature"] = program.signatures()["main"] or report.get("signature", "")
    return order, report


def _check_order(snodes: list, order: list, dependences: dict) -> None:
    position = {s: i for i, s in enumerate(order)}
    if len(order) != len(snodes) or len(position) != len(snodes):
        raise Unscheduled("the order is no permutation of the kernels")
    for s, before in dependences.items():
        for other in before:
            if position[other] > position[s]:
                raise Unscheduled(f"{s.get_name()} would come before {other.get_name()}, which it depends on")


def config_patches(options: Options) -> dict[str, Any]:
    """Inductor's configuration with both places taken. Other custom passes keep their places, before ours."""
    from torch._inductor import config

    existing = config.post_grad_custom_post_pass
    before = [] if existing is None else list(existing) if isinstance(existing, (list, tuple)) else [existing]
    before = [p for p in before if not isinstance(p, GraphPass)]
    passes = [p for p in config.reorder_for_compute_comm_overlap_passes if not isinstance(p, KernelPass)]
    graph_pass = GraphPass(options)
    return {
        "post_grad_custom_post_pass": [*before, graph_pass] if before else graph_pass,
        "reorder_for_compute_comm_overlap": True,
        "reorder_for_compute_comm_overlap_passes": [*passes, KernelPass(options)],
    }


@contextlib.contextmanager
def enabled(**options):
    """What is compiled in this block, or by a `torch.compile` called in it, is scheduled by CommSched.

    Takes the options of `schedule_overlap`.
    """
    from torch._inductor import config

    patches = config_patches(Options(**options))
    original = torch.compile

    def compile(model=None, *, backend="inductor", options=None, mode=None, **rest):
        # Compilation happens at the first call, maybe after this block: the options travel with the function.
        if backend == "inductor" and mode is None:
            options = {**patches, **(options or {})}
        return original(model, backend=backend, options=options, mode=mode, **rest)

    torch.compile = compile
    try:
        with config.patch(patches):
            yield
    finally:
        torch.compile = original


def install(**options) -> None:
    """Makes CommSched the overlap scheduler of every later compilation. Takes the options of `schedule_overlap`."""
    from torch._inductor import config

    for name, value in config_patches(Options(**options)).items():
        setattr(config, name, value)


def uninstall() -> None:
    """Takes CommSched out of Inductor's configuration again."""
    from torch._inductor import config

    existing = config.post_grad_custom_post_pass
    kept = [p for p in existing if not isinstance(p, GraphPass)] if isinstance(existing, (list, tuple)) else []
    config.post_grad_custom_post_pass = kept or None
    config.reorder_for_compute_comm_overlap_passes = [
        p for p in config.reorder_for_compute_comm_overlap_passes if not isinstance(p, KernelPass)]
    config.reorder_for_compute_comm_overlap = bool(config.reorder_for_compute_comm_overlap_passes)


def backend(gm: fx.GraphModule, example_inputs, *, mode=None, options: dict | None = None):
    """`torch.compile(model, backend="commsched", options={...})`: Inductor, scheduled by CommSched. The options are
    those of `schedule_overlap`."""
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(gm, example_inputs, config_patches=config_patches(Options(**(options or {}))))


def verify_ranks(group=None) -> str:
    """Compares everything that was scheduled so far on all ranks of `group`: a collective call of all of them.

    Compiled code compares its own collectives by itself when it first runs (`commsched.torch.ranks`). This is for
    schedules that do not end up in Inductor's code, and for programs where every rank compiles the same.

    Returns:
        The signature that all ranks agree on.

    Raises:
        RuntimeError: two ranks compiled different sequences of collectives; running on would hang.
    """
    signature = "|".join(_signatures)
    if not dist.is_initialized():
        return signature
    everyone = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, signature, group=group)
    for rank, other in enumerate(everyone):
        if other != everyone[0]:
            raise RuntimeError(f"rank {rank} compiled another sequence of collectives than rank 0")
    return signature
