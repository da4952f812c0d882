"""CommSched inside torch.compile: the ways in.

`inductor_options` is the explicit one: options for `torch.compile(options=...)`. `install` changes Inductor's
configuration for the whole process, `enabled` for a block, and `backend` is what `torch.compile(backend="commsched")` runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.fx as fx

from .. import reporting
from ..options import Options
from .passes import FusionBounds, GraphPass, KernelOrder

# PyTorch's own schedulers and bucketing, which would run after ours and change what was decided.
RIVALS = {
    "aten_distributed_optimizations.enable_overlap_scheduling": False,
    "bucket_all_gathers_fx": "none",
    "bucket_reduce_scatters_fx": "none",
    "bucket_all_reduces_fx": "none",
    "reorder_for_compute_comm_overlap": False,
}
# What the configuration was before `install`.
_before: dict[str, Any] | None = None


def config_patches(options: Options) -> dict[str, Any]:
    """Inductor's configuration with all places taken. Other custom passes keep their places, before ours.

    The order that was decided is also one of memory: Inductor's own search for a lower peak would undo it, and is off.
    PyTorch's own overlap schedulers and bucketing are off as well; it is said once if they were on.
    """
    from torch._inductor import config

    existing = config.post_grad_custom_post_pass
    before = [] if existing is None else list(existing) if isinstance(existing, (list, tuple)) else [existing]
    before = [p for p in before if not isinstance(p, GraphPass)]
    graph_pass = GraphPass(options)
    rivals = [name for name, off in RIVALS.items() if _config_value(name) != off]
    if rivals:
        reporting.warn_once(
            f"PyTorch's own {', '.join(rivals)} would change the schedule, and is turned off where CommSched is on"
        )
    return {
        "post_grad_custom_post_pass": [*before, graph_pass] if before else graph_pass,
        "_pre_fusion_custom_pass": FusionBounds(options, _earlier(config._pre_fusion_custom_pass)),
        "_post_fusion_custom_pass": KernelOrder(options, _earlier(config._post_fusion_custom_pass)),
        "reorder_for_peak_memory": False,
        **RIVALS,
    }


def _config_value(name: str) -> Any:
    from torch._inductor import config

    value = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _set_config(values: dict[str, Any]) -> None:
    from torch._inductor import config

    for name, value in values.items():
        owner, _, last = name.rpartition(".")
        setattr(_config_value(owner) if owner else config, last, value)


def _earlier(scheduler_pass):
    """What was in a place of the scheduler before we took it."""
    return scheduler_pass.earlier if isinstance(scheduler_pass, (FusionBounds, KernelOrder)) else scheduler_pass


def inductor_options(
    *,
    machine: str = "h100-sxm",
    memory_budget_ratio: float = 0.0,
    memory_limit_bytes: int | None = None,
    bucketing: bool = True,
    bucket_cap_bytes: int | None = None,
    collective_order: str = "free",
    effort: int | None = None,
    solver: str = "schedule",
    passes: Sequence[str] = (),
    donated: str | Sequence[str] = "auto",
    runtime_estimation: Callable[..., float | None] | None = None,
    mode: str | None = None,
) -> dict[str, Any]:
    """Options that have `torch.compile` schedule the function's collectives:

        step = torch.compile(step, options=ct.inductor_options(machine="h100-sxm"))

    Takes the options of `schedule_overlap`. `mode` adds those of a mode ("reduce-overhead", "max-autotune", ...), for
    torch.compile takes a mode or options, not both. More options of Inductor can be added to the dictionary.

    Raises:
        ValueError: an option makes no sense, or there is no such machine profile.
        RuntimeError: there is no such mode.
    """
    given = {k: v for k, v in locals().items() if k != "mode"}
    return {**(torch._inductor.list_mode_options(mode) if mode else {}), **config_patches(Options(**given))}


@contextlib.contextmanager
def enabled(
    *,
    machine: str = "h100-sxm",
    memory_budget_ratio: float = 0.0,
    memory_limit_bytes: int | None = None,
    bucketing: bool = True,
    bucket_cap_bytes: int | None = None,
    collective_order: str = "free",
    effort: int | None = None,
    solver: str = "schedule",
    passes: Sequence[str] = (),
    donated: str | Sequence[str] = "auto",
    runtime_estimation: Callable[..., float | None] | None = None,
) -> Iterator[None]:
    """What is compiled in this block, or by a `torch.compile` called in it, is scheduled by CommSched.

    Takes the options of `schedule_overlap`. A `torch.compile` with another backend cannot be reached, which is said; nor
    can one that was bound to a name before (`from torch import compile`). `inductor_options` is explicit.
    """
    patches = config_patches(Options(**locals()))
    from torch._inductor import config  # after `locals`

    original = torch.compile

    def compile(model=None, *, backend="inductor", options=None, mode=None, **rest):
        # Compilation happens at the first call, maybe after this block: the options travel with the function.
        if backend == "inductor":
            of_mode = torch._inductor.list_mode_options(mode) if mode else {}
            options, mode = {**of_mode, **patches, **(options or {})}, None
        elif backend != "commsched":
            reporting.warn_once(
                f"torch.compile(backend={getattr(backend, '__name__', backend)!r}) in `enabled` is not scheduled unless it "
                "compiles in this block; commsched.torch.install() reaches every backend that ends in Inductor"
            )
        return original(model, backend=backend, options=options, mode=mode, **rest)

    torch.compile = compile
    try:
        with config.patch(patches):
            yield
    finally:
        torch.compile = original


def install(
    *,
    machine: str = "h100-sxm",
    memory_budget_ratio: float = 0.0,
    memory_limit_bytes: int | None = None,
    bucketing: bool = True,
    bucket_cap_bytes: int | None = None,
    collective_order: str = "free",
    effort: int | None = None,
    solver: str = "schedule",
    passes: Sequence[str] = (),
    donated: str | Sequence[str] = "auto",
    runtime_estimation: Callable[..., float | None] | None = None,
) -> None:
    """Makes CommSched the overlap scheduler of every later compilation. Takes the options of `schedule_overlap`. A second
    call replaces the first."""
    global _before
    patches = config_patches(Options(**locals()))
    if _before is None:
        _before = {name: _config_value(name) for name in patches}
    _set_config(patches)


def uninstall() -> None:
    """Takes CommSched out of Inductor's configuration, which is then what it was before `install`. Without an `install`
    nothing happens."""
    global _before
    if _before is not None:
        _set_config(_before)
        _before = None


def backend(gm: fx.GraphModule, example_inputs, *, mode: str | None = None, options: dict[str, Any] | None = None):
    """`torch.compile(model, backend="commsched", options={...})`: Inductor, scheduled by CommSched.

    The options are those of `schedule_overlap` and those of Inductor; a mode adds its own.

    Raises:
        ValueError: an option is neither of them.
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    names = {f.name for f in dataclasses.fields(Options)}
    options, known = options or {}, config.get_config_copy()
    unknown = [k for k in options if k not in names and k.replace("-", "_") not in known]
    if unknown:
        raise ValueError(
            f"{unknown[0]!r} is neither an option of CommSched ({', '.join(sorted(names))}) nor of Inductor"
        )
    patches = config_patches(Options(**{k: v for k, v in options.items() if k in names}))
    of_inductor = {k.replace("-", "_"): v for k, v in options.items() if k not in names}
    of_mode = torch._inductor.list_mode_options(mode) if mode else {}
    return compile_fx(gm, example_inputs, config_patches={**of_mode, **patches, **of_inductor})


def verify_ranks(group=None) -> str:
    """Compares what compiled code has run so far on all ranks of `group`: a collective call of all of them.

    Compiled code compares its own collectives by itself when it first runs (`commsched.torch.ranks`). This is for
    programs where every rank runs the same, and compares the order in which graphs came, too. Code that was found in a
    cache counts like code that was compiled.

    Returns:
        What all ranks agree on.

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
