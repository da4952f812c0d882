# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The ways to switch CommSched on inside torch.compile.

`inductor_options` is the explicit one: options for `torch.compile(options=...)`. `install` changes Inductor's
configuration for the whole process, and `enabled` for a block. `backend` runs for `torch.compile(backend="commsched")`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.fx as fx
from typing_extensions import Unpack

from .. import reporting
from ..options import OptionArguments, Options
from . import rivals
from .partition import Partition
from .passes import FusionBounds, GraphPass, KernelOrder
from .tuning import tuned

# The configuration as it was before `install`.
_before: dict[str, Any] | None = None


def config_patches(options: Options) -> dict[str, Any]:
    """The settings of Inductor's configuration that switch CommSched on. Other custom passes stay, and run first.

    The order that was decided also decides the peak of memory. Inductor's own search for a lower peak would undo it, so
    it is off. PyTorch's own overlap schedulers and bucketing are off as well. If one of them was on, one warning says
    so. Its pass `simple_overlap` is off only for graphs that CommSched orders (`rivals`), and their report says so.
    """
    from torch._inductor import config

    existing = config.post_grad_custom_post_pass
    before = [] if existing is None else list(existing) if isinstance(existing, (list, tuple)) else [existing]
    before = [p for p in before if not isinstance(p, GraphPass)]
    graph_pass = GraphPass(options)
    on = [name for name, off in rivals.RIVALS.items() if rivals.value(name) != off]
    if on:
        reporting.warn_once(
            f"PyTorch's own {', '.join(on)} would change the schedule, and is turned off where CommSched is on"
        )
    return {
        "post_grad_custom_post_pass": [*before, graph_pass] if before else graph_pass,
        "_pre_fusion_custom_pass": FusionBounds(options, _earlier(config._pre_fusion_custom_pass)),
        "_post_fusion_custom_pass": KernelOrder(options, _earlier(config._post_fusion_custom_pass)),
        "reorder_for_peak_memory": False,
        **_partitioner(options),
        **rivals.RIVALS,
    }


def _partitioner(options: Options) -> dict[str, Any]:
    """The setting that lets a memory plan cut the graph of a step, in place of another partitioner of the user's."""
    from torch._inductor import config

    if options.memory_plan == "off":
        return {}
    if not isinstance(config.custom_partitioner_fn, (Partition, type(None))):
        reporting.warn_once(
            f"memory_plan='on' takes the place of the partitioner {type(config.custom_partitioner_fn).__name__}"
        )
    return {"custom_partitioner_fn": Partition(options)}


def _earlier(scheduler_pass: Any) -> Any:
    """The pass that was in a place of the scheduler before CommSched took the place."""
    return scheduler_pass.earlier if isinstance(scheduler_pass, (FusionBounds, KernelOrder)) else scheduler_pass


def inductor_options(*, mode: str | None = None, **options: Unpack[OptionArguments]) -> dict[str, Any]:
    """Options that make `torch.compile` schedule the function's collectives:

        step = torch.compile(step, options=ct.inductor_options(machine="h100-sxm"))

    More options of Inductor can be added to the dictionary.

    Args:
        mode: a mode of torch.compile ("reduce-overhead", "max-autotune", ...), whose options are added. torch.compile
            takes
            a mode or options, not both.
        options: the options of `schedule_overlap`, and `memory_plan="on"`: decide together with the order what the
            backward graph gets from the forward graph and what it makes again (MemoryPlan.md).

    Raises:
        ValueError: an option has no legal value, or no machine profile has that name, or `tune` is set: Inductor's
            options compile one variant of a graph.
        RuntimeError: no such mode exists.
    """
    of_mode = torch._inductor.list_mode_options(mode) if mode else {}
    settings = Options(**options)
    settings.refuse_tuning("inductor_options")
    return {**of_mode, **config_patches(settings)}


@contextlib.contextmanager
def enabled(**options: Unpack[OptionArguments]) -> Iterator[None]:
    """Schedules what is compiled in this block, or by a `torch.compile` that is called in it.

    Takes the options of `schedule_overlap`. It cannot reach a `torch.compile` with another backend, and warns about
    one. Nor can it reach a `torch.compile` that was bound to a name before (`from torch import compile`).
    `inductor_options` is explicit.
    """
    from torch._inductor import config

    settings, given = Options(**options), dict(options)
    patches = config_patches(settings)
    original = torch.compile

    def compile(
        model: Any = None,
        *,
        backend: str | Callable = "inductor",
        options: dict[str, Any] | None = None,
        mode: str | None = None,
        **rest: Any,
    ) -> Any:
        # Compilation happens at the first call, maybe after this block: the options travel with the function.
        if backend == "inductor":
            of_mode = torch._inductor.list_mode_options(mode) if mode else {}
            if settings.tune is not None:
                backend = _own_backend()
            options, mode = {**of_mode, **(given if settings.tune else patches), **(options or {})}, None
        elif backend != "commsched":
            reporting.warn_once(
                f"torch.compile(backend={getattr(backend, '__name__', backend)!r}) in `enabled` is scheduled only if "
                "it compiles in this block; commsched.torch.install() reaches every backend that ends in Inductor"
            )
        return original(model, backend=backend, options=options, mode=mode, **rest)

    torch.compile = compile
    try:
        # With tuning, only `backend` compiles, in two variants.
        with config.patch({} if settings.tune else patches):
            yield
    finally:
        torch.compile = original


def _own_backend() -> Callable:
    return backend


def install(**options: Unpack[OptionArguments]) -> None:
    """Makes CommSched the overlap scheduler of every later compilation. Takes the options of `schedule_overlap`.

    A second call replaces the first.
    """
    global _before
    settings = Options(**options)
    settings.refuse_tuning("install")
    patches = config_patches(settings)
    if _before is None:
        _before = {name: rivals.value(name) for name in patches}
    rivals.assign(patches)


def uninstall() -> None:
    """Restores Inductor's configuration as it was before `install`. Without an `install`, nothing happens."""
    global _before
    if _before is not None:
        rivals.assign(_before)
        _before = None


def backend(
    gm: fx.GraphModule, example_inputs: Any, *, mode: str | None = None, options: dict[str, Any] | None = None
) -> Any:
    """`torch.compile(model, backend="commsched", options={...})`: Inductor, scheduled by CommSched.

    The options are those of `schedule_overlap` and those of Inductor. A mode adds its own.

    Raises:
        ValueError: an option belongs to neither of them.
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    names = {f.name for f in dataclasses.fields(Options)}
    options, known = options or {}, config.get_config_copy()
    unknown = [k for k in options if k not in names and k.replace("-", "_") not in known]
    if unknown:
        raise ValueError(f"expected an option of Inductor or one of {', '.join(sorted(names))}, got {unknown[0]!r}")
    settings = Options(**{k: v for k, v in options.items() if k in names})
    of_inductor = {k.replace("-", "_"): v for k, v in options.items() if k not in names}
    of_mode = torch._inductor.list_mode_options(mode) if mode else {}
    patches, others = config_patches(settings), {**of_mode, **of_inductor}
    if settings.tune is None:
        return compile_fx(gm, example_inputs, config_patches={**others, **patches, **of_inductor})
    # AOT autograd's cache would keep one variant.
    with torch._functorch.config.patch(enable_autograd_cache=False):
        both = tuned({**patches, **of_inductor}, settings)
        return compile_fx(gm, example_inputs, inner_compile=both, config_patches=others)


def verify_ranks(group: Any = None) -> str:
    """Compares what compiled code has run so far on all ranks of `group`. This is a collective call of all of them.

    Compiled code compares its own collectives when it first runs (`commsched.torch.ranks`). This function is for
    programs in which every rank runs the same, and it also compares the order in which the graphs came. Code that was
    found in a cache counts like code that was compiled.

    Returns:
        The sequence that all ranks agree on.

    Raises:
        RuntimeError: two ranks ran different sequences of collectives.
    """
    ran = "\n".join(reporting.signatures_that_ran())
    if not dist.is_initialized():
        return ran
    everyone = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, ran, group=group)
    for rank, other in enumerate(everyone):
        if other != everyone[0]:
            raise RuntimeError(f"rank {rank} ran another sequence of collectives than rank 0")
    return ran
