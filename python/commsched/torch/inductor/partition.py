# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""CommSched's place where AOT autograd cuts the graph of a step in two (`memory_plan="on"`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.fx as fx
from torch._inductor.custom_graph_pass import CustomPartitionerFn

from .. import reporting
from ..calibration.demand import measured_once
from ..memory_plan import cut_step
from ..options import Options
from .passes import communicates


class Partition(CustomPartitionerFn):
    """PyTorch's partitioner, with the saved values of a memory plan where that is faster within the limit."""

    def __init__(self, options: Options):
        self.options = options

    def __call__(
        self, gm: fx.GraphModule, joint_inputs: Sequence[object], **arguments: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        from torch._functorch.partitioners import min_cut_rematerialization_partition

        if communicates(gm.graph):
            try:
                options, measurements = measured_once(gm.graph, self.options)
                cut, facts = cut_step(gm, joint_inputs, options, **arguments)
                reporting.record({"place": "plan", "holds": False, "direction": "step", **facts, **measurements})
                return cut.graphs()
            except Exception as error:  # A compilation must not fail for want of a plan.
                reporting.survive(f"the partition of a step of {len(gm.graph.nodes)} nodes is PyTorch's", error)
        return min_cut_rematerialization_partition(gm, joint_inputs, **arguments)

    def uuid(self) -> Any | None:
        return self.options.key()
