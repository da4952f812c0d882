# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""All-reduces in place, decided on the scheduled graph.

Inductor makes an operator write its operand if nobody reads the operand afterwards. It looks for readers in the order
of the graph and does not know that a collective reads and writes memory until its wait. So all writes have to be in the
graph before it is scheduled, except for those of all-reduces: a functional all-reduce can be merged and split.
`functional_all_reduces` keeps them functional while Inductor's passes run, and `reduce_in_place` decides about them
when the order is final.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch
import torch.fx as fx

from ..semantics import effects
from ..semantics.operators import nodes_in, spec_of

c10d = torch.ops._c10d_functional
# Indexed by functional collective: the one that writes its operands.
IN_PLACE = {
    c10d.all_reduce.default: c10d.all_reduce_.default,
    c10d.all_reduce_coalesced.default: c10d.all_reduce_coalesced_.default,
}
# Guards Inductor's table of operators in place, and the number of blocks that have taken the collectives out of it.
_lock = threading.Lock()
_blocks = 0
_taken: dict = {}


@contextlib.contextmanager
def functional_all_reduces() -> Iterator[None]:
    """Inductor makes no collective in-place in this block. In other threads, it only misses the opportunity."""
    global _blocks
    from torch._inductor.fx_passes.reinplace import inplaceable_ops

    with _lock:
        _blocks += 1
        _taken.update({op: inplaceable_ops.pop(op) for op in IN_PLACE if op in inplaceable_ops})
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks:
                inplaceable_ops.update(_taken)
                _taken.clear()


class _Touches:
    """Indexed by memory: the places in the graph's order that read or write it.

    A collective touches its operands until its wait, and to the end of the graph if nobody waits for it.
    """

    def __init__(self, graph: fx.Graph, aliases: effects.Aliases):
        self.of_memory: dict[int, list[tuple[int, fx.Node, fx.Node | None]]] = {}
        self.index: dict[fx.Node, int] = {}
        flying: set[fx.Node] = set()
        for i, node in enumerate(graph.nodes):
            self.index[node] = i
            if node.op in ("placeholder", "get_attr"):
                continue
            self._note(i, node, None, aliases.of_all(list(node.all_input_nodes)))
            if node.op != "call_function":
                continue
            spec = spec_of(node)
            if spec.start is not None:
                flying.add(node)
            elif spec.is_wait and (start := effects.start_of(node)) is not None:
                flying.discard(start)
                self._note(i, node, start, aliases.of_all(list(start.all_input_nodes)))
        for start in flying:
            self._note(len(self.index), start, None, aliases.of_all(list(start.all_input_nodes)))

    def _note(self, at: int, node: fx.Node, start: fx.Node | None, memory: set[int]) -> None:
        for m in memory:
            self.of_memory.setdefault(m, []).append((at, node, start))

    def behind(self, start: fx.Node, memory: int) -> Iterator[fx.Node]:
        """The nodes that touch a memory behind a collective, without the waits for it. The last one comes first."""
        for at, node, of in reversed(self.of_memory.get(memory, [])):
            if at <= self.index[start]:
                return
            if of is not start:
                yield node


def reduce_in_place(graph: fx.Graph) -> int:
    """Makes all-reduces write their operands where nothing else touches that memory afterwards. Near-linear.

    The operand has to have the strides of the result. An operand that is an argument of the graph qualifies only if the
    reduced value is copied back into it, and is not returned. Returns how many all-reduces were changed.
    """
    candidates = [n for op in IN_PLACE for n in graph.find_nodes(op="call_function", target=op)]
    if not candidates:
        return 0
    aliases = effects.Aliases(graph)
    touches = _Touches(graph, aliases)
    entering = aliases.of_all([n for n in graph.nodes if n.op in ("placeholder", "get_attr")])
    returned = aliases.of_all(list(graph.output_node().all_input_nodes))
    # Arguments that an all-reduce writes by now, and its results. These are one memory, which `aliases` does not know.
    joined: set[int] = set()
    changed = 0
    for start in sorted(candidates, key=touches.index.__getitem__):
        operands = nodes_in(start.args[0])
        memory = [aliases.of(n) for n in operands]
        every = frozenset().union(*memory)
        if len(every) != len(operands) or any(len(m) != 1 for m in memory) or every & joined:
            continue  # Two operands share memory, or an operand is a list.
        results = start.meta["val"] if isinstance(start.meta["val"], (list, tuple)) else [start.meta["val"]]
        if any(_strides(n.meta["val"]) != _strides(val) for n, val in zip(operands, results)):
            continue  # The readers of the result rely on its strides, and an operand with gaps has others.
        if all(_free(start, n, next(iter(m)), touches, entering, returned, aliases) for n, m in zip(operands, memory)):
            start.target = IN_PLACE[start.target]
            if every & entering:  # Otherwise, nothing touches the operands behind the start.
                joined |= every | aliases.of(start)
            changed += 1
    return changed


def _strides(val: torch.Tensor) -> list[str]:
    """The strides of all dimensions but those that have one element. Comparing texts adds no guard."""
    return [str(s) for s, d in zip(val.stride(), val.shape) if str(d) != "1"]


def _free(
    start: fx.Node,
    operand: fx.Node,
    memory: int,
    touches: _Touches,
    entering: set[int],
    returned: set[int],
    aliases: effects.Aliases,
) -> bool:
    """Whether a collective may write an operand."""
    behind = list(touches.behind(start, memory))
    if memory not in entering:
        return not behind
    return (
        operand.op == "placeholder"
        and len(behind) == 1
        and behind[0].target is torch.ops.aten.copy_.default
        and behind[0].args[0] is operand
        and isinstance(source := behind[0].args[1], fx.Node)
        and source.op == "call_function"
        and spec_of(source).is_wait
        and source.args[0] is start
        and aliases.of(start).isdisjoint(returned)
    )
