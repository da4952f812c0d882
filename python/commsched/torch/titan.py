# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""torchtitan in one line:

    torchtitan.train ... --override.imports 'commsched.torch.titan.schedule={"machine": "h100-sxm"}'

GraphTrainer (torchtitan.experiments.graph_trainer) traces forward, loss and backward into one graph. CommSched
schedules that graph in place of torchtitan's bucketing pass. What any trainer compiles with Inductor is scheduled
there.

Importing this module needs torchtitan 0.3, whose registries and names of passes it uses.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch.fx as fx
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.config.override import override
from torchtitan.experiments.graph_trainer import passes as titan_passes
from torchtitan.experiments.graph_trainer.registry import PASS_PIPELINE_REGISTRY

from . import reporting
from .calibration.demand import measured
from .inductor import install
from .options import Options
from .schedule import schedule_graph

#: torchtitan's own bucketing and reordering of FSDP's collectives, which the schedule replaces.
RIVAL = "joint_transformer_block_bucketing_reordering_pass"
#: Passes that rely on the buckets of RIVAL.
FOLLOWERS = ("schedule_fsdp_comms_to_dense_regions_pass",)
#: The pipeline that GraphTrainer takes unless a job names another.
PIPELINE = "default"


# torchtitan's overrides replace configurations in their tree, and this one only wants to be called once per job, before
# anything is built. Every trainer has exactly one configuration of metrics, which stays as it is.
@override(target=MetricsProcessor.Config, description="CommSched schedules the collectives of compiled graphs")
def schedule(config: Any, **options: Any) -> Any:
    """Switches CommSched on for a torchtitan job. Takes the options of `schedule_overlap`.

    Raises:
        ValueError: an option has no legal value, or no machine profile has that name.
    """
    install(**options)
    settings = Options(**options)
    settings.refuse_memory_plan("torchtitan")
    PASS_PIPELINE_REGISTRY[PIPELINE] = functools.partial(graph_passes, settings)
    return config


def graph_passes(options: Options, traced: Any, config: Any, *, parallel_dims: Any = None) -> list[Callable]:
    """GraphTrainer's passes, with CommSched's in place of torchtitan's bucketing.

    If Inductor compiles the whole graph (`--compile.inductor_compilation full`), it is scheduled inside Inductor.
    """
    given = titan_passes.construct_default_graph_passes(traced, config, parallel_dims=parallel_dims)
    names = [_name(p) for p in given]
    dropped = [name for name in names if name in FOLLOWERS]
    if dropped:
        reporting.warn_once(f"torchtitan's {', '.join(dropped)} works on torchtitan's buckets, and is left out")
    if RIVAL not in names:
        reporting.warn_once(f"this torchtitan has no {RIVAL}, so its graph keeps torchtitan's order")
        return given
    if config.compile.inductor_compilation == "full":
        own = []
    else:
        own = [functools.partial(commsched_pass, options=options)]
    at = names.index(RIVAL)
    return [p for p in [*given[:at], *own, *given[at + 1 :]] if _name(p) not in FOLLOWERS]


def _name(graph_pass: Callable) -> str:
    return getattr(getattr(graph_pass, "func", graph_pass), "__name__", "")


def commsched_pass(gm: fx.GraphModule, example_inputs: Any = None, *, options: Options) -> fx.GraphModule:
    """Schedules the graph of a whole step. It runs as it stands, without fusion, and its report holds."""
    reporting.begins("step", len(gm.graph.nodes))
    try:
        options, facts = measured(gm.graph, dataclasses.replace(options, fusion=False))
        report = {**schedule_graph(gm.graph, options), **facts}
    except Exception as error:  # A job must not fail for want of a schedule.
        reporting.survive(f"a graph of {len(gm.graph.nodes)} nodes keeps torchtitan's order", error)
        return gm
    gm.recompile()
    reporting.record({"place": "graph", "holds": True, "direction": "step", **report})
    return gm
