"""CommSched for PyTorch: graphs of torch.compile and AOT autograd, scheduled so that communication hides.

    import commsched.torch as ct
    gm, report = ct.schedule_overlap(gm)
    text = ct.export_mlir(gm)
"""

from .export import export_mlir
from .schedule import schedule_overlap

__all__ = ["export_mlir", "schedule_overlap"]
