# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""CommSched for PyTorch: schedules graphs of torch.compile and AOT autograd so that communication hides.

    import commsched.torch as ct
    gm, report = ct.schedule_overlap(gm)             # one post-AOT graph
    text = ct.export_mlir(gm)                        # the same as a module of comm operations
    step = torch.compile(step, options=ct.inductor_options())    # inside Inductor
    plan = ct.plan(model, batch, mesh=mesh)          # settings of eager FSDP2 (Fsdp2.md)
    plan = ct.plan_ddp(model, batch)                 # buckets of DistributedDataParallel (Ddp.md)
    machine = ct.calibrate()                         # a profile of the running job, for the option `machine`

docs/guide/PyTorch.md describes the options and what is understood.
"""

from . import pytorch

pytorch.check()

try:
    from .calibration import Calibration, calibrate
    from .ddp import DdpPlan, plan_ddp
    from .fsdp2 import Plan, plan
    from .importer.export import export_mlir
    from .inductor import enabled, inductor_options, install, uninstall, verify_ranks
    from .recording import runtime_report
    from .reporting import report, reports
    from .schedule import schedule_overlap
except ImportError as error:
    raise pytorch.explained(error) from None

__all__ = [
    "Calibration",
    "DdpPlan",
    "Plan",
    "calibrate",
    "enabled",
    "export_mlir",
    "inductor_options",
    "install",
    "plan",
    "plan_ddp",
    "report",
    "reports",
    "runtime_report",
    "schedule_overlap",
    "uninstall",
    "verify_ranks",
]
