# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""CommSched's places in Inductor: the FX graph before lowering, and the kernels before and after fusion.

The first decides (`GraphPass`). The last makes it the order of the generated code (`KernelOrder`). Nothing in here
waits for other ranks, unless costs are aligned or measured with them. Nothing in here may break a compilation: a fault
is reported once, and its step is left out (`reporting.survive`).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist
import torch.fx as fx
from torch._inductor.custom_graph_pass import CustomGraphPass, CustomSchedulerPass

from .. import reporting
from ..apply.readers import returns_gradients
from ..apply.snapshot import Snapshot
from ..calibration.demand import measured_once
from ..options import Options
from ..ranks import agreement, comparison, weights
from ..reporting import survive
from ..schedule import schedule_graph
from ..semantics.landing import prepare
from ..semantics.operators import HYBRID_NAMESPACES, subgraphs
from ..strands.decision import in_strands
from . import breaks, gate, gloo_lists, hooks, kernel_gate, marks, outside
from .in_place import reduce_in_place
from .kernel_order import Kernels, bound_fusion, carried, in_flight, is_kernel

# The entry of the graph module's `meta` in which `GraphPass` leaves its report for `KernelOrder`.
META = "commsched"
# The directions in which a graph with collectives was compiled.
_communicating: set[str] = set()


def communicates(graph: fx.Graph) -> bool:
    """Whether a graph holds operators that communicate."""
    return any(
        n.op == "call_function"
        and isinstance(n.target, torch._ops.OpOverload)
        and n.target.namespace in HYBRID_NAMESPACES
        for n in graph.nodes
    )


def direction(graph: fx.Graph) -> str:
    """ "backward" for the graph of a gradient, else "forward"."""
    return "backward" if returns_gradients(graph) else "forward"


class GraphPass(CustomGraphPass):
    """Schedules the FX graph: which collectives are merged, and the order of all nodes.

    In Inductor's configuration it is among the passes of users. It runs behind Inductor's own last pass (`hooks`),
    where all writes are in the graph.
    """

    def __init__(self, options: Options):
        self.options = options
        hooks.install()

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        hooks.install()  # This is another process, which compiles.

    def __call__(self, graph: fx.Graph) -> None:
        if hooks.current() is None and communicates(graph):
            reporting.warn_once(
                "a graph keeps PyTorch's order: its compilation does not go through Inductor's own last pass, behind "
                "which CommSched schedules"
            )

    def behind_all_passes(self, given: Snapshot) -> None:
        """Schedules a graph, if that is possible, and makes all-reduces in-place.

        Args:
            given: the graph as Inductor left it.
        """
        graph = given.graph
        breaks.note()
        outside.note()  # Without caches, nobody asks for the key.
        _name_bodies(graph)
        if communicates(graph):
            self._schedule(graph)
            gloo_lists.join_waits(graph)
            reduce_in_place(graph)
            self._pass_gate(graph, given)
        else:
            _nothing_to_schedule(direction(graph))

    def _pass_gate(self, graph: fx.Graph, given: Snapshot) -> None:
        """Undoes the schedule if something would touch the memory of a collective in flight."""
        races = gate.races_of_graph(graph)
        if not races:
            return
        given.restore()
        gloo_lists.join_waits(graph)
        reduce_in_place(graph)
        own = gate.races_of_graph(graph)
        if graph.owning_module is not None:
            graph.owning_module.meta.pop(META, None)
        agreement.keep_given(graph)
        which = f"a {direction(graph)} graph of {len(graph.nodes)} nodes"
        if own:  # PyTorch moves waits, too, and makes operators in-place afterwards.
            reporting.warn_once(f"{which} is likely wrong in PyTorch's own order, which it keeps: {own[0]}")
        else:
            survive(f"{which} keeps PyTorch's order", gate.Overwritten(races[0]))

    def _schedule(self, graph: fx.Graph) -> None:
        which = direction(graph)
        _communicating.add(which)
        reporting.begins(which, len(graph.nodes))
        try:
            prepare(graph)
            edges = breaks.edges_of(graph)
            settings, facts = measured_once(graph, self.options)
            run = functools.partial(schedule_graph, fused=True)
            strands, options, given = in_strands(graph, settings, run)
            report = {**agreement.changed_from(given, agreement.schedule(graph, options, run)), **strands, **facts}
        except Exception as error:  # The graph is unchanged. A compilation must not fail for want of a schedule.
            survive(f"a {which} graph of {len(graph.nodes)} nodes keeps PyTorch's order", error)
            return
        report = {"place": "graph", "holds": False, "direction": which, **report}
        report |= breaks.facts(report, edges, which)
        if graph.owning_module is not None:
            graph.owning_module.meta[META] = report
        reporting.record(report)

    def uuid(self) -> Any | None:
        # The forward graph may come from a cache although the backward graph, which has to know them, does not.
        weights.whole_parameters()
        outside.note()  # Whether or not the code is found in a cache.
        return self.options.key()


def _name_bodies(graph: fx.Graph) -> None:
    """Writes into the reports of a graph's bodies which loop or branch they belong to. Inductor has compiled them."""
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            for inner in subgraphs(node):
                report = getattr(inner.owning_module, "meta", {}).get(META)
                if report is not None:
                    report["body_of"] = node.name


class FusionBounds(CustomSchedulerPass):
    """Keeps fusion from moving kernels across the starts and waits of a schedule."""

    def __init__(self, options: Options, earlier: CustomSchedulerPass | None = None):
        self.options, self.earlier = options, earlier

    def __call__(self, snodes: list) -> list:
        from torch._inductor.virtualized import V

        if self.earlier is not None:
            snodes = self.earlier(snodes)
        if META not in getattr(V.graph.module, "meta", {}):
            return snodes
        try:
            return bound_fusion(snodes)
        except Exception as error:
            survive("Inductor fuses kernels across the schedule", error)
            return snodes

    def uuid(self) -> Any | None:
        return _joined_key(self)


def _joined_key(scheduler_pass: FusionBounds | KernelOrder) -> Any | None:
    key, earlier = scheduler_pass.options.key(), scheduler_pass.earlier
    return key if earlier is None or key is None else (key, earlier.uuid())


class KernelOrder(CustomSchedulerPass):
    """Carries the order of the FX graph over to the fused kernels, and makes the generated code report itself."""

    def __init__(self, options: Options, earlier: CustomSchedulerPass | None = None):
        self.options, self.earlier = options, earlier

    def __call__(self, snodes: list) -> list:
        from torch._inductor.utils import contains_collective
        from torch._inductor.virtualized import V

        if self.earlier is not None:
            snodes = self.earlier(snodes)
        if not any(contains_collective(s) for s in snodes):
            _compare_graph()
            return snodes
        which = direction(V.graph.module.graph)
        _told_if_replaced()
        promised = getattr(V.graph.module, "meta", {}).get(META, {})
        options = self.options.with_profile(promised.get("machine"))
        order = snodes = gloo_lists.with_waits_joined(snodes)
        report: dict[str, Any] = {"direction": which}
        compilation = hooks.current()
        decided = compilation is None or not compilation.undone
        if decided:
            try:
                order, report = _ordered(snodes, promised.get("peak_bytes", {}))
                races = kernel_gate.races_of_kernels(order)
                if races:
                    raise gate.Overwritten(races[0])
                report = {"place": "kernels", "holds": False, "direction": which, **report}
                report.update(_times(order, options, promised))
                reporting.record(report)
            except Exception as error:  # A compilation must not fail for want of a better order.
                survive(f"the kernels of a {which} graph keep Inductor's order", error)
                order, report, decided = snodes, {"direction": which}, False
        if compilation is not None and compilation.keeps_order(decided):
            report["switched_off"] = "simple_overlap"
        _speak(order, report, options)
        return order

    def uuid(self) -> Any | None:
        return _joined_key(self)


def _ordered(snodes: list, promised: dict) -> tuple[list, dict]:
    """The order of the code, and its counts.

    Args:
        promised: the peak of the graph's schedule ("after") and its limit, if it has one.

    Raises:
        Unscheduled: the order is not a permutation, or breaks a dependence.
    """
    kernels = Kernels(snodes)
    limit, after = promised.get("limit"), promised.get("after")
    # Starts and waits may use the rest of the limit.
    slack = limit / after if limit and after else 1.0
    order = gloo_lists.with_waits_joined(kernels.within(carried(snodes, kernels.before), limit, slack))
    kernels.check(order)
    return order, {**_counts(order), "peak_bytes": {"before": kernels.peak(snodes), "after": kernels.peak(order)}}


def _counts(order: list) -> dict:
    kernels = in_flight(order)
    return {
        "kernels": sum(map(is_kernel, order)),
        "collectives": len(kernels),
        "adjacent": sum(count == 0 for count in kernels),
    }


def _times(order: list, options: Options, promised: dict) -> dict:
    """The makespan and the exposed time of the kernels by the model ("after"), beside what the graph's schedule
    promised.
    """
    from .kernels import measured

    try:
        model = measured(order, options)
    except Exception as error:  # The order is kept. Only its figures are missing.
        survive("the report of the generated code has no times", error)
        return {}
    names = ("makespan_ns", "exposed_ns")
    return {
        name: {**({"promised": promised[name]["after"]} if name in promised else {}), "after": model[name]["after"]}
        for name in names
        if name in model
    }


def _speak(order: list, report: dict, options: Options) -> None:
    """Makes the generated code report itself, and compare its collectives with other ranks, when it first runs.

    With the option `record`, it also records every run.
    """
    from torch._inductor.graph import SubgraphLowering
    from torch._inductor.virtualized import V

    if isinstance(V.graph, SubgraphLowering) or V.graph.cpp_wrapper:
        return
    scheduler, names = V.graph.scheduler, [s.get_name() for s in order]
    sequences = comparison.collective_sequences(order)

    wrapper = V.graph.wrapper_code

    def describe() -> dict:
        """The report when the code is written. It has no times if somebody has changed the order since.

        Raises:
            Overwritten: the code would touch the memory of a collective in flight.
        """
        final = scheduler.nodes
        _pass_last_gate(final, wrapper.lines, report["direction"])
        same = [s.get_name() for s in final] == names
        kept = report if same else {k: report[k] for k in ("direction", "switched_off") if k in report}
        return {
            **kept,
            **_counts(final),
            "place": "code",
            "holds": True,
            "as_decided": same,
            "signature": comparison.hashes(comparison.collective_sequences(final)),
        }

    reporting.announce(V.graph.wrapper_code, describe)
    try:
        comparison.guard(V.graph.wrapper_code, sequences, getattr(V.graph.module, "meta", {}).get(META))
    except Exception as error:  # The schedule is kept. Only the comparison is missing.
        survive("ranks will not be compared", error)
    if not options.record:
        return
    try:
        marks.record(order, V.graph.wrapper_code, marks.predicted(order, options, report["direction"]))
    except Exception as error:
        survive("the runs of a graph will not be recorded", error)


def _compare_graph() -> None:
    """Makes the code of a graph whose collectives Inductor takes for any calls compare them with other ranks."""
    from torch._inductor.graph import SubgraphLowering
    from torch._inductor.virtualized import V

    if isinstance(V.graph, SubgraphLowering) or V.graph.cpp_wrapper:
        return
    try:
        module = V.graph.module
        comparison.guard(V.graph.wrapper_code, comparison.sequences_of(module.graph), module.meta.get(META))
    except Exception as error:  # The schedule is kept. Only the comparison is missing.
        survive("ranks will not be compared", error)


def _pass_last_gate(order: list, lines: list, which: str) -> None:
    """Stops the compilation if its code would touch the memory of a collective in flight.

    If the order is PyTorch's own already, a warning says that the code is likely wrong.

    Raises:
        Overwritten.
    """
    races = kernel_gate.races_of_kernels(order) or kernel_gate.races_of_code(lines)
    compilation = hooks.current()
    if not races:
        return
    if compilation is not None and compilation.given and not compilation.undone:
        raise gate.Overwritten(races[0])
    reporting.warn_once(f"the code of a {which} graph in PyTorch's own order is likely wrong: {races[0]}")


def _told_if_replaced() -> None:
    """Warns if another pass has taken the place of `GraphPass`, as torchtitan's auto_bucketing does after `install`."""
    from torch._inductor import config
    from torch._inductor.custom_graph_pass import get_custom_graph_passes

    if not any(isinstance(p, GraphPass) for p in get_custom_graph_passes(config.post_grad_custom_post_pass)):
        reporting.warn_once(
            "a graph was compiled without being scheduled: post_grad_custom_post_pass was set after "
            "CommSched was installed. Install it last, and leave auto-bucketing off"
        )


def _nothing_to_schedule(which: str) -> None:
    """Warns once about the likely mistake if a training step has no collectives in its graphs."""
    if which != "backward" or _communicating or not dist.is_initialized() or dist.get_world_size() == 1:
        return
    reporting.warn_once(
        "a backward graph was compiled on several ranks, and no graph so far holds a collective: nothing can be "
        "scheduled. fully_shard (FSDP2) and DistributedDataParallel communicate outside of the graphs. Shard with "
        "DTensors that are gathered where they are read, as commsched.torch.sharding.fully_shard_parameters does, or "
        "let commsched.torch.plan decide the settings of fully_shard (docs/guide/Fsdp2.md), and "
        "commsched.torch.plan_ddp the buckets of DistributedDataParallel (docs/guide/Ddp.md)"
    )
