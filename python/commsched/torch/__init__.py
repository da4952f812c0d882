"""CommSched for PyTorch: graphs of torch.compile and AOT autograd, scheduled so that communication hides.

    import commsched.torch as ct
    text = ct.export_mlir(gm)
"""

from .export import export_mlir

__all__ = ["export_mlir"]
