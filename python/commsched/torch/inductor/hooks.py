# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""CommSched's place behind Inductor's last FX pass, and the way back.

Inductor's passes end with those that bring writes into the graph. `post_grad_custom_post_pass`, the place for passes of
users, is in front of them. A schedule that is made there is wrong as soon as an operator is made in-place under a
collective in flight. So `GraphPass` takes that place in the configuration only to say that it wants to run, and
`install` puts it behind Inductor's last pass, where all writes are visible.

A compilation that the last gate stops (`gate.Overwritten`) is done again with the graph as Inductor left it.
"""

from __future__ import annotations

import contextvars
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx as fx

from ..apply.snapshot import Snapshot
from ..ranks import agreement
from ..reporting import survive
from ..semantics.landing import split_waits
from ..semantics.operators import subgraphs
from . import rivals
from .gate import Overwritten
from .in_place import functional_all_reduces, reduce_in_place

# The mark of functions that `install` has put into Inductor.
MARK = "_commsched"
# The higher-order operators that Inductor makes `while_loop` of, in its last pass.
LOWERED_LOOPS = {"scan", "map_impl"}


@dataclasses.dataclass
class Compilation:
    """One run of Inductor.

    Args:
        given: the scheduled graphs, subgraphs included, as Inductor left them.
        finished: the identities of all modules that Inductor's FX passes are done with.
        undone: why the schedules were undone. Empty if they hold.
        traced_again: the identities of the bodies that Inductor traces into those of other loops.
        simple_overlap: whether Inductor's pass of this name is on outside of this run.
    """

    given: list[Snapshot] = dataclasses.field(default_factory=list)
    finished: set[int] = dataclasses.field(default_factory=set)
    undone: str = ""
    traced_again: set[int] = dataclasses.field(default_factory=set)
    simple_overlap: bool = False

    def keeps_order(self, decided: bool) -> bool:
        """Lets Inductor run `simple_overlap` over the kernels that it is ordering now, unless CommSched decided their
        order. Whether the pass was switched off for that.
        """
        rivals.switch_simple_overlap(self.simple_overlap and not decided)
        return self.simple_overlap and decided

    def undo(self, reason: str) -> None:
        """Takes all graphs back to what Inductor made of them. Nothing is scheduled from here on."""
        self.undone = reason
        for snapshot in self.given:
            snapshot.restore()
            reduce_in_place(snapshot.graph)
            owner = snapshot.graph.owning_module
            owner.meta.pop("commsched", None)
            agreement.keep_given(snapshot.graph)
            owner.recompile()


_current: contextvars.ContextVar[Compilation | None] = contextvars.ContextVar("commsched_compilation", default=None)


def current() -> Compilation | None:
    """The run of Inductor that this thread is in, if a schedule is wanted there."""
    return _current.get()


def _wanted() -> list[Any]:
    """The passes in Inductor's configuration that run behind its last FX pass."""
    from torch._inductor import config
    from torch._inductor.custom_graph_pass import get_custom_graph_passes

    return [p for p in get_custom_graph_passes(config.post_grad_custom_post_pass) if hasattr(p, "behind_all_passes")]


def _passes(original: Callable) -> Callable:
    @functools.wraps(original)
    def post_grad_passes(gm: fx.GraphModule, is_inference: bool) -> None:
        wanted, compilation = _wanted(), _current.get()
        if not wanted or compilation is None:
            original(gm, is_inference)
            return
        if id(gm) in compilation.finished:  # The schedule was undone, and the graph has been through all passes.
            return
        with functional_all_reduces():
            original(gm, is_inference)
        if id(gm) in compilation.traced_again:
            return
        for one in (*_made_in(gm, compilation.finished), gm):
            compilation.finished.add(id(one))
            split_waits(one.graph)
            given = Snapshot(one.graph)
            compilation.given.append(given)
            for last in wanted:
                last.behind_all_passes(given)
            one.recompile()

    return post_grad_passes


def _bodies(gm: fx.GraphModule) -> list[tuple[fx.Node, fx.GraphModule]]:
    """The bodies of the loops and branches of a graph, each with the call that takes it."""
    calls = [n for n in gm.graph.nodes if isinstance(n.target, torch._ops.HigherOrderOperator)]
    return [(n, g.owning_module) for n in calls for g in subgraphs(n) if isinstance(g.owning_module, fx.GraphModule)]


def _made_in(gm: fx.GraphModule, finished: set[int]) -> Iterator[fx.GraphModule]:
    """The bodies that Inductor's last passes have made in a graph: those of `while_loop` in place of `scan` and `map`.

    No pass has seen them. Inner ones come first.
    """
    for _, body in _bodies(gm):
        if id(body) not in finished:
            yield from _made_in(body, finished)
            yield body


def _traced_again(gm: fx.GraphModule) -> Iterator[int]:
    """The identities of the bodies of `scan` and `map`, which Inductor traces again as parts of other bodies."""
    for call, body in _bodies(gm):
        if call.target.name() in LOWERED_LOOPS:
            yield id(body)
            yield from (id(inner) for inner in body.modules() if isinstance(inner, fx.GraphModule))
        else:
            yield from _traced_again(body)


def _compiles(original: Callable) -> Callable:
    @functools.wraps(original)
    def codegen_and_compile(self: Any, gm: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        if not _wanted():
            return original(self, gm, *args, **kwargs)
        with rivals.simple_overlap_restored() as given:
            compilation = Compilation(simple_overlap=given, traced_again=set(_traced_again(gm)))
            token = _current.set(compilation)
            try:
                return original(self, gm, *args, **kwargs)
            except Overwritten as error:
                survive("a graph is compiled again in PyTorch's order", error)
                compilation.undo(str(error))
                return original(self, gm, *args, **kwargs)
            finally:
                _current.reset(token)

    return codegen_and_compile


def install() -> None:
    """Puts the hooks into Inductor. They do nothing unless its configuration has a pass that wants them."""
    from torch._inductor import compile_fx

    if not hasattr(compile_fx.post_grad_passes, MARK):
        compile_fx.post_grad_passes = _passes(compile_fx.post_grad_passes)
        setattr(compile_fx.post_grad_passes, MARK, True)
    inner = compile_fx._InProcessFxCompile
    if not hasattr(inner.codegen_and_compile, MARK):
        inner.codegen_and_compile = _compiles(inner.codegen_and_compile)
        setattr(inner.codegen_and_compile, MARK, True)
