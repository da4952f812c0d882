# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""PyTorch's own costs and its own orders, as a second opinion about a schedule.

A schedule replaces the order that PyTorch's overlap scheduler would leave, and that is made with PyTorch's analytical
estimates: a roofline of each node, and a model of NCCL. Either costs may be wrong. So the solver plays its answers with
both, and searches again if one is slower by either than the graph as given or than what PyTorch's scheduler makes of
it. The estimates are functions of shapes, of the ranks of groups, of PyTorch's configuration and of the machine
profile, so equal graphs have equal ones on all ranks. Nothing is measured.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx as fx

from ..program import PeerOrder, Program
from .importer.estimates import Estimates, sampled_by
from .importer.graph import Importer
from .options import Options, machine_file, to_ns
from .peer_order import buckets_by_name
from .semantics import operators
from .stages import ALIGN_COSTS

# The modes of PyTorch's overlap scheduler: the order alone, and with buckets.
MODES: tuple[dict[str, bool], ...] = (
    {"collective_bucketing": False, "pre_bucketing_fsdp_collectives": False},
    {"collective_bucketing": True},
)
# The rates of a profile that PyTorch's roofline asks for. All other types take that of f32.
_RATES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float64: "f64"}
# Imports a graph with the settings of the schedule.
Import = Callable[[fx.Graph], "tuple[Program, Importer]"]


@dataclasses.dataclass
class _Gpu:
    """What PyTorch's estimators ask a device for, from a machine profile.

    Args:
        hints: what PyTorch has taken for sizes that only the run time knows. Indexed by environment, expression and
            fallback.
    """

    generation: Any
    tflops: dict[str, float]
    dram_gbps: float
    hints: dict[tuple[int, Any, int | None], int] = dataclasses.field(default_factory=dict)


def _gpu_of(options: Options) -> _Gpu | None:
    """The GPU of the machine profile. None if PyTorch's estimators do not know it, or if the profile was measured: then
    there is nothing to doubt.
    """
    from torch._inductor.comm_analysis import NVIDIA_GPU_TYPE

    file = machine_file(options.base())
    profile = json.loads(file.read_text()) if file else {}
    if options.measures() or "calibration" in profile:
        return None
    generation = (profile.get("nccl") or {}).get("generation", "")
    tflops, dram = profile.get("compute", {}).get("peak_tflops", {}), profile.get("memory", {}).get("bandwidth_gbps")
    known = getattr(NVIDIA_GPU_TYPE, str(generation).upper(), None)
    return _Gpu(known, tflops, dram) if known is not None and dram and "f32" in tflops else None


@contextlib.contextmanager
def _replaced(replacements: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Attributes of modules with other values in this block."""
    with contextlib.ExitStack() as stack:
        for owner, name, value in replacements:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


def _silenced() -> list[tuple[Any, str, Any]]:
    """What keeps PyTorch's scheduler from writing to logs and traces, where a user would take its orders for what runs.

    It counts the flops of all kernels for a table in its trace, which takes a fifth of its time. For each node of a
    bucket it copies where every node that the bucket replaces came from, which takes another fifth.
    """
    from torch._inductor.fx_passes import (
        bucketing,
        fsdp,
        node_runtime_estimation,
        overlap_preserving_bucketer,
        overlap_scheduling,
    )

    modules = [bucketing, fsdp, node_runtime_estimation, overlap_preserving_bucketer, overlap_scheduling]
    silent: list[tuple[Any, str, Any]] = [
        (module, "trace_structured", lambda *args, **kwargs: None)
        for module in modules
        if hasattr(module, "trace_structured")
    ]
    if hasattr(bucketing, "NodeSource"):
        silent.append((bucketing, "NodeSource", lambda *args: None))
    if hasattr(node_runtime_estimation, "_log_compute_estimations"):
        silent.append((node_runtime_estimation, "_log_compute_estimations", lambda *args: None))
    loggers = [getattr(module, name, None) for module in modules for name in ("log", "logger")]
    return silent + [(logger, "disabled", True) for logger in loggers if isinstance(logger, logging.Logger)]


def _remembering(hints: dict[tuple[int, Any, int | None], int]) -> list[tuple[Any, str, Any]]:
    """What keeps PyTorch from working out the same size again: it factors an expression whenever it asks for a hint,
    which is over 90 % of its scheduler's time if sizes depend on data.
    """
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    work_out = getattr(ShapeEnv, "optimization_hint", None)
    if work_out is None:
        return []

    def optimization_hint(env: Any, expr: Any, fallback: int | None = None) -> int:
        asked = id(env), expr, fallback
        if asked not in hints:
            hints[asked] = work_out(env, expr, fallback)
        return hints[asked]

    return [(ShapeEnv, "optimization_hint", optimization_hint)]


@contextlib.contextmanager
def _on(gpu: _Gpu) -> Iterator[None]:
    """PyTorch's estimators and its overlap scheduler take the GPU of the profile for the device.

    Attention counts as computation under its name of the CPU, too, and memory of the CPU as memory: graphs can be
    traced without a GPU.
    """
    import torch.utils._runtime_estimation as runtime
    from torch._inductor import comm_analysis
    from torch._inductor.fx_passes import memory_estimator, overlap_scheduling
    from torch.utils.flop_counter import flop_registry

    tracker = functools.partial(memory_estimator.MemoryTracker, device_filter=lambda device: True)
    aten = torch.ops.aten
    added = []
    for direction in ("", "_backward"):
        cpu = getattr(aten, f"_scaled_dot_product_flash_attention_for_cpu{direction}")
        if cpu not in flop_registry:
            flop_registry[cpu] = flop_registry[getattr(aten, f"_scaled_dot_product_flash_attention{direction}")]
            added.append(cpu)
    try:
        with _replaced(
            [
                (runtime, "get_gpu_dram_gbps", lambda: gpu.dram_gbps),
                (
                    runtime,
                    "get_device_tflops",
                    lambda dtype: gpu.tflops.get(_RATES.get(dtype, "f32"), gpu.tflops["f32"]),
                ),
                (comm_analysis, "get_gpu_type", lambda: gpu.generation),
                (overlap_scheduling, "MemoryTracker", tracker),
                *_remembering(gpu.hints),
            ]
        ):
            yield
    finally:
        for cpu in added:
            del flop_registry[cpu]


class PyTorchEstimates:
    """PyTorch's own estimates of the nodes of a graph, for the GPU of a profile. They know nothing of fusion.

    A node that a scheduler made later is known if it is a collective.
    """

    def __init__(self, graph: fx.Graph, gpu: _Gpu):
        from torch._inductor.fx_passes.overlap_scheduling import estimate_roofline_runtime_ms

        self.gpu = gpu
        self._kernels: dict[str, float] = {}
        # PyTorch's scheduler asks for a collective, and for a size of it, again and again.
        self._collectives: dict[tuple[fx.Node, int | None], float] = {}
        with _on(gpu):
            for node in graph.nodes:
                if node.op == "call_function" and not _communicates(node):
                    self._kernels[node.name] = estimate_roofline_runtime_ms(node)

    def __call__(self, node: fx.Node, override_bytes: int | None = None) -> float | None:
        """The time in milliseconds; None if PyTorch knows none. To be called in `_on`."""
        from torch._inductor.comm_analysis import estimate_nccl_collective_runtime_from_fx_node

        if node.op != "call_function":
            return None
        if operators.spec_of(node).start is None:
            return self._kernels.get(node.name)
        asked = node, override_bytes
        if asked not in self._collectives:
            # NCCL's own simulator answers on some machines only, and ranks have to agree.
            self._collectives[asked] = estimate_nccl_collective_runtime_from_fx_node(
                node, override_bytes, use_nccl_estimator=False
            )
        return self._collectives[asked]

    def times(self, graph: fx.Graph) -> dict[str, int]:
        """The times of the nodes of a graph in ns. Indexed by name."""
        asked = ((node, self(node)) for node in graph.nodes if node.op == "call_function")
        return {node.name: to_ns(ms) for node, ms in asked if ms is not None}


def _communicates(node: fx.Node) -> bool:
    spec = operators.spec_of(node)
    return spec.start is not None or spec.is_wait or spec.hybrid or spec.op == "shard_dim_alltoall"


@dataclasses.dataclass
class SecondOpinion:
    """PyTorch's costs of one graph, and the orders that its scheduler makes of it once the solver asks.

    Args:
        graph: is only read.
        estimated_ns, scheduled_ns: the processor's time that estimating took, and that PyTorch's scheduler took with
            playing its orders.
        failure: why PyTorch's scheduler gave no order; empty if it gave one, or was not asked.
    """

    graph: fx.Graph
    estimates: PyTorchEstimates
    curves: list[Estimates]
    import_graph: Import
    machine: str
    estimated_ns: int = 0
    scheduled_ns: int = 0
    failure: str = ""

    def tell(self, program: Program) -> None:
        """Gives a program of the graph the second opinion."""
        self._give_costs(program, self.graph)
        program.set_peer_orders(self._orders)

    def facts(self) -> dict[str, Any]:
        """What the report says of the second opinion beside what the solver says."""
        return {
            "estimated_ns": self.estimated_ns,
            "scheduled_ns": self.scheduled_ns,
            **({"failure": self.failure} if self.failure else {}),
        }

    def _give_costs(self, program: Program, graph: fx.Graph) -> None:
        with _on(self.estimates.gpu):
            program.set_peer_times(self.estimates.times(graph))
        for curve in self.curves:
            program.set_peer_curve(curve.kind, curve.group, curve.element, curve.points)

    def _orders(self) -> list[PeerOrder]:
        """The orders that PyTorch's scheduler makes of the graph. Nothing is raised here: the solver asks."""
        began = time.process_time_ns()
        orders = []
        for mode in MODES:
            try:
                orders.append(self._played(mode))
            except Exception as error:  # PyTorch's scheduler refuses some graphs. The schedule does without it.
                self.failure = _reason(error)
        self.scheduled_ns += time.process_time_ns() - began
        return orders

    def _played(self, mode: dict[str, bool]) -> PeerOrder:
        from torch._inductor.fx_passes.overlap_scheduling import schedule_overlap_bucketing

        copied = fx.Graph()
        copied.output(copied.graph_copy(self.graph, {}))
        module = fx.GraphModule(self.graph.owning_module or torch.nn.Module(), copied)
        with _on(self.estimates.gpu), _replaced(_silenced()):
            scheduled = schedule_overlap_bucketing(
                module,
                custom_runtime_estimation=self.estimates,
                compute_estimator="analytical",
                collective_estimator="analytical",
                **mode,
            ).graph
        program, _ = self.import_graph(scheduled)
        self._give_costs(program, scheduled)
        return PeerOrder(program.play(self.machine), buckets_by_name(self.graph, scheduled))


def _reason(error: Exception) -> str:
    """An error of PyTorch's in one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def is_wanted(options: Options) -> bool:
    """Whether the passes of these options take a second opinion.

    Not if the makespan alone counts, and not if the user estimates nodes: PyTorch's scheduler would take the same
    estimates. Ranks that align their costs have profiles of their own, of which PyTorch's estimates are made.
    """
    searches = not options.passes or any(isinstance(p, str) and "comm-schedule" in p for p in options.passes)
    aligns = any(isinstance(p, str) and ALIGN_COSTS in p for p in options.passes)
    return (
        searches
        and not aligns
        and options.objective != "makespan"
        and options.runtime_estimation is None
        and options.effort != 0
    )


def second_opinion(
    graph: fx.Graph, options: Options, importer: Importer, import_graph: Import
) -> SecondOpinion | str | None:
    """PyTorch's costs of a graph, or in a line why its estimators failed. None if nobody wants them, if the profile is
    that of a machine that they do not know, or without collectives.

    Args:
        importer: that of the graph's program.
        import_graph: imports another graph as that one.
    """
    if not importer.samples or not is_wanted(options):
        return None
    began = time.process_time_ns()
    try:
        gpu = _gpu_of(options)
        if gpu is None:
            return None
        estimates = PyTorchEstimates(graph, gpu)
        with _on(gpu):
            curves = sampled_by(importer, estimates)
    except Exception as error:  # Whatever PyTorch's estimators cannot handle, a schedule can do without them.
        return _reason(error)
    opinion = SecondOpinion(graph, estimates, curves, import_graph, str(options.machine))
    opinion.estimated_ns = time.process_time_ns() - began
    return opinion
