# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`tune="measure"`: compiles a graph as given and as scheduled, and runs both by turns until the faster one is known.

Each run is a step of the training, so nothing is run twice, and results do not depend on the order of a graph.
`ranks.trial` says which variant runs, the same on all ranks.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from .. import reporting
from ..options import Options, to_ns
from ..ranks.trial import GIVEN, SCHEDULED, Trial, trial_of
from .passes import communicates, direction


def tuned(patches: dict[str, Any], options: Options) -> Callable[..., Any]:
    """What compiles a graph of AOT autograd in the place of Inductor's `compile_fx_inner`.

    Args:
        patches: the settings of Inductor that switch CommSched on.
        options: the options of scheduling.
    """

    def compile_both(gm: fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
        from torch._guards import TracingContext
        from torch._inductor import config
        from torch._inductor.compile_fx import compile_fx_inner

        def compiled(variant: str, module: fx.GraphModule) -> Any:
            with config.patch(patches if variant == SCHEDULED else {}):
                return compile_fx_inner(module, example_inputs, **kwargs)

        if not communicates(gm.graph):
            return compiled(SCHEDULED, gm)
        if kwargs.get("cudagraphs"):
            reporting.warn_once("with CUDA graphs, schedules run without being measured")
            return compiled(SCHEDULED, gm)
        trial = trial_of(gm.graph, options, direction(gm.graph))
        if trial.verdict is not None:  # Another graph of this program has been measured.
            return compiled(trial.verdict.kept, gm)
        again = fx.GraphModule(gm, copy.deepcopy(gm.graph))  # Compiling changes a graph.
        again.meta = dict(gm.meta)
        scheduled = compiled(SCHEDULED, gm)
        with TracingContext.report_output_strides():  # The backward graph is made for the strides of the first.
            given = compiled(GIVEN, again)
        return Switch(
            trial, scheduled, Restrided.if_needed(given, scheduled, example_inputs), stopwatch(example_inputs)
        )

    return compile_both


class Switch:
    """The code of a graph, in two variants."""

    def __init__(self, trial: Trial, scheduled: Any, given: Any, watch: Callable[..., Any]):
        self._boxed_call = True  # AOT autograd passes a list, which the code empties.
        self.trial, self.watch = trial, watch
        self.variants: dict[str, Any] = {SCHEDULED: scheduled, GIVEN: given}
        self.cold = set(self.variants)

    def __call__(self, inputs: list[Any]) -> Any:
        if len(self.variants) == 1:
            return next(iter(self.variants.values()))(inputs)
        variant, number = self.trial.next()
        if self.trial.verdict is not None:
            self.variants = {variant: self.variants[variant]}  # The other one is freed.
            return self.variants[variant](inputs)
        result, took = self.watch(self.variants[variant], inputs)
        self.trial.took(number, None if variant in self.cold else took)
        self.cold.discard(variant)
        return result


def stopwatch(example_inputs: Sequence[Any]) -> Callable[..., tuple[Any, Callable[[], int]]]:
    """What runs a code and returns its result, and a function that gives its time in ns.

    On a device it is the time between two events on the current stream, which is asked for when it is needed.
    """
    devices = {i.device for i in example_inputs if isinstance(i, torch.Tensor)}
    device = next((d for d in devices if d.type not in ("cpu", "meta")), None)
    module = None if device is None else torch.get_device_module(device)

    def by_clock(code: Any, inputs: list[Any]) -> tuple[Any, Callable[[], int]]:
        begin = time.perf_counter_ns()
        result = code(inputs)
        elapsed = time.perf_counter_ns() - begin
        return result, lambda: elapsed

    def by_events(code: Any, inputs: list[Any]) -> tuple[Any, Callable[[], int]]:
        assert module is not None
        first, last = (module.Event(enable_timing=True) for _ in range(2))
        first.record()
        result = code(inputs)
        last.record()

        def elapsed() -> int:
            last.synchronize()
            return to_ns(first.elapsed_time(last))

        return result, elapsed

    return by_clock if module is None else by_events


class Restrided:
    """A code whose results get the strides that another code would have given them.

    Inductor is free to lay out what it saves for the backward graph, which is compiled for one layout.
    """

    def __init__(self, code: Any, strides: dict[int, tuple[str, ...]], symbols: dict[str, int]):
        self.code, self.strides, self.symbols = code, strides, symbols

    @staticmethod
    def if_needed(code: Any, like: Any, example_inputs: Sequence[Any]) -> Any:
        """`code`, or its results in the strides of `like` if these differ."""
        have, want = getattr(code, "output_strides", None) or [], getattr(like, "output_strides", None) or []
        differ = {i: w for i, (h, w) in enumerate(zip(have, want)) if w is not None and h != w}
        if not differ:
            return code
        symbols = {str(s.node.expr): i for i, s in enumerate(example_inputs) if isinstance(s, torch.SymInt)}
        return Restrided(code, differ, symbols)

    def __call__(self, inputs: list[Any]) -> Any:
        values = {name: inputs[i] for name, i in self.symbols.items()}
        values |= {"Max": max, "Min": min, "FloorDiv": int.__floordiv__}
        results = list(self.code(inputs))
        for i, strides in self.strides.items():
            if isinstance(results[i], torch.Tensor):
                wanted = tuple(int(eval(s, {"__builtins__": {}}, values)) for s in map(str, strides))
                results[i] = torch.empty_strided(
                    results[i].shape, wanted, dtype=results[i].dtype, device=results[i].device
                ).copy_(results[i])
        return results
