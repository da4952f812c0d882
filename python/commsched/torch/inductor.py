"""CommSched inside torch.compile: the ways in."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.distributed as dist
import torch.fx as fx

from . import reporting
from .options import Options
from .passes import FusionBounds, GraphPass, KernelOrder


def config_patches(options: Options) -> dict[str, Any]:
    """Inductor's configuration with both places taken. Other custom passes keep their places, before ours.

    The order that was decided is also one of memory: Inductor's own search for a lower peak would undo it, and is off.
    """
    from torch._inductor import config

    existing = config.post_grad_custom_post_pass
    before = [] if existing is None else list(existing) if isinstance(existing, (list, tuple)) else [existing]
    before = [p for p in before if not isinstance(p, GraphPass)]
    graph_pass = GraphPass(options)
    return {
        "post_grad_custom_post_pass": [*before, graph_pass] if before else graph_pass,
        "_pre_fusion_custom_pass": FusionBounds(options, _earlier(config._pre_fusion_custom_pass)),
        "_post_fusion_custom_pass": KernelOrder(options, _earlier(config._post_fusion_custom_pass)),
        "reorder_for_peak_memory": False,
    }


def _earlier(scheduler_pass):
    """What was in a place of the scheduler before we took it."""
    return scheduler_pass.earlier if isinstance(scheduler_pass, (FusionBounds, KernelOrder)) else scheduler_pass


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
    config._pre_fusion_custom_pass = _earlier(config._pre_fusion_custom_pass)
    config._post_fusion_custom_pass = _earlier(config._post_fusion_custom_pass)
    config.reorder_for_peak_memory = True


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
    signature = "\n".join(reporting.what_ran())
    if not dist.is_initialized():
        return signature
    everyone = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, signature, group=group)
    for rank, other in enumerate(everyone):
        if other != everyone[0]:
            raise RuntimeError(f"rank {rank} compiled another sequence of collectives than rank 0")
    return signature
