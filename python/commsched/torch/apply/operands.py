# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Carries rewrites out on an FX graph: other operands, destinations, calls that are gone, and casts that moved.

The checks do not trust the pass that decided. Whether a reader finds the same value in the new operand, whether anybody
looks at the memory that a collective is going to write, and whether a call that is gone had an effect, is read off the
graph alone (`semantics.effects`), before anything is touched.
"""

from __future__ import annotations

import operator

import torch
import torch.fx as fx

from ..semantics.effects import Aliases, start_of, writes_of
from ..semantics.operators import spec_of
from ..semantics.stale import refresh
from .casts import Move
from .plan import PlanError
from .readers import looks
from .rewrites import Holder, Rewrites
from .snapshot import Snapshot
from .values import described

c10d = torch.ops._c10d_functional
RESIZE = "inductor::resize_storage_bytes_"
COPY = "fsdp::copy_"
COPY_IN = "fsdp::all_gather_copy_in"
# Indexed by collective: the one that writes a given tensor.
WITH_DESTINATION = {c10d.all_gather_into_tensor.default: c10d.all_gather_into_tensor_out.default}


def apply_rewrites(graph: fx.Graph, rewrites: Rewrites) -> None:
    """Changes `graph` in place, and computes the fake values that follow from it.

    Near-linear, except for replaced operands whose memory is written often.

    Raises:
        PlanError: a rewrite would change what the graph computes, or what its caller sees. The graph is unchanged.
    """
    checks, given = _Checks(graph, rewrites), Snapshot(graph)
    checks.before()
    try:
        for start, (parent, place) in checks.destinations.items():
            buffer = parent if place is None else _element(graph, parent, place)
            start.target = WITH_DESTINATION[start.target]
            start.kwargs = {**start.kwargs, "out": buffer}
            start.meta["val"] = buffer.meta["val"]
        for reader, old, new in checks.operands:
            reader.replace_input_with(old, new)
        for move in rewrites.moved:
            move.carry_out()
        for node in reversed(rewrites.erased):
            if node.users:
                raise PlanError(f"{next(iter(node.users)).name} reads {node.name}, which is gone")
            graph.erase_node(node)
        checks.behind()
        refresh(graph)
        graph.lint()
    except Exception as error:  # Whatever happened, half of the rewrites must not stay.
        given.restore()
        if isinstance(error, PlanError):
            raise
        raise PlanError(f"the rewrites cannot be carried out: {type(error).__name__}: {error}") from error


def _element(graph: fx.Graph, parent: fx.Node, place: int) -> fx.Node:
    """The call that takes an element of a list, right behind the list if it is new."""
    for user in parent.users:
        if user.target is operator.getitem and user.args[1] == place:
            if user is not parent.next:
                parent.append(user)  # The collective may come before it.
            return user
    with graph.inserting_after(parent):
        node = graph.call_function(operator.getitem, (parent, place))
    node.meta.update({k: v for k, v in parent.meta.items() if k not in ("val", "tensor_meta")})
    node.meta["val"] = parent.meta["val"][place]
    return node


class _Checks:
    """What the rewrites of one graph rely on.

    `operands` and `destinations` are what is to be done, when `before` has not raised.
    """

    def __init__(self, graph: fx.Graph, rewrites: Rewrites):
        self.graph, self.rewrites = graph, rewrites
        self.aliases = Aliases(graph)
        self.index = {n: i for i, n in enumerate(graph.nodes)}
        # Indexed by memory: the calls that write it, in the order of the graph.
        self.writers: dict[int, list[fx.Node]] = {}
        self.touching = _touching(graph, self.aliases)
        self.operands: list[tuple[fx.Node, fx.Node, fx.Node]] = []
        self.destinations: dict[fx.Node, Holder] = {}
        # The parameters whose copies and resizes are gone, each with these calls and their arguments.
        self._parameters: dict[fx.Node, list[tuple[fx.Node, tuple]]] = {}

    def before(self) -> None:
        """Checks what can be seen in the graph as it is. Raises PlanError."""
        for node in self.graph.nodes:
            if node.op == "call_function":
                for memory in writes_of(node, spec_of(node), self.aliases):
                    self.writers.setdefault(memory, []).append(node)
        for reader, old, new in self.rewrites.replaced:
            self._operand(reader, old, new)
        for start, buffer in self.rewrites.destinations:
            self._destination(start, buffer)
        for node in self.rewrites.erased:
            self._erasure(node)
        for move in self.rewrites.moved:
            self._move(move)

    def behind(self) -> None:
        """Checks that parameters whose copies and resizes are gone hold what their readers and the caller expect.

        This looks at the changed graph. Raises PlanError.
        """
        touching = _touching(self.graph, aliases := Aliases(self.graph))
        for parameter, gone in self._parameters.items():
            stay = [n for memory in aliases.of(parameter) for n in touching.get(memory, ())]
            resizes = [args[1] for node, args in gone if _is(node, RESIZE)]
            if resizes and stay:
                raise PlanError(f"{stay[0].name} uses the parameter {parameter.name}, whose storage would not exist")
            if resizes and (resizes[0] == 0 or resizes[-1] != 0):
                raise PlanError(f"the storage of {parameter.name} would not be as it was")
            for node, _ in [] if resizes else gone:
                behind = next((n for n in stay if self.index[n] > self.index[node]), None)
                if behind is None or not _is(behind, COPY) or behind.args[0] is not parameter:
                    raise PlanError(f"somebody reads what {node.name}, which is gone, copied into {parameter.name}")

    def _operand(self, reader: fx.Node, old: list[Holder], new: list[Holder]) -> None:
        held = {node for node, place in old if place is None}
        read = [n for n in reader.all_input_nodes if n in held]
        values = [node for node, place in new if place is None and self.index[node] < self.index[reader]]
        if not read or not values:
            raise PlanError(f"{reader.name} does not read a node that holds the replaced value")
        for was in read:
            self._same_value(reader, was, values[0])
            self.operands.append((reader, was, values[0]))

    def _same_value(self, reader: fx.Node, was: fx.Node, value: fx.Node) -> None:
        """Checks that a reader finds in `value` what it finds in `was`."""
        old, new = described(was.meta.get("val")), described(value.meta.get("val"))
        if [(*d[:2], *d[3:]) for d in old if d] != [(*d[:2], *d[3:]) for d in new if d]:
            raise PlanError(f"expected sizes, strides and type of {was.name} for {reader.name}, got {value.name}")
        if old != new and (reader.op == "output" or looks(reader)):
            raise PlanError(f"{reader.name} may look at the storage of {was.name}, which {value.name} does not have")
        at = self.index[reader]
        if reader.op == "call_function" and writes_of(reader, spec_of(reader), self.aliases) & self.aliases.of(was):
            raise PlanError(f"{reader.name} writes {was.name}")
        since = self._copied(was, value, at)
        if since is None:
            if not _equal_calls(was, value):
                raise PlanError(f"nothing says that {value.name} has the value of {was.name}")
            since = min(self.index[was], self.index[value])
        for memory in self.aliases.of(was) | self.aliases.of(value):
            for writer in self.writers.get(memory, ()):
                if since < self.index[writer] < at and start_of_wait(value) is not writer:
                    raise PlanError(f"{writer.name} writes {was.name} or {value.name} before {reader.name}")

    def _copied(self, was: fx.Node, value: fx.Node, at: int) -> int | None:
        """The position of the copy that made `was` equal to `value`, the last one before position `at`."""
        copies = [
            n
            for memory in self.aliases.of(was)
            for n in self.writers.get(memory, ())
            if self.index[n] < at and _is(n, COPY) and n.args[0] is was
        ]
        last = max(copies, key=self.index.__getitem__, default=None)
        return self.index[last] if last is not None and last.args[1] is value else None

    def _move(self, move: Move) -> None:
        """Checks that nobody writes what a cast reads or makes, on either side of its collectives."""
        for memory in self.aliases.of_all(move.reading):
            for writer in self.writers.get(memory, ()):
                if writer not in move.starts and writer not in move.waits:
                    raise PlanError(f"{writer.name} writes what {move.cast.name} reads or makes")

    def _destination(self, start: fx.Node, buffer: list[Holder]) -> None:
        """Checks that a collective may write a buffer."""
        if start.target not in WITH_DESTINATION or start in self.destinations:
            raise PlanError(f"PyTorch has no form of {start.name} that writes a given tensor")
        if not buffer:
            raise PlanError(f"no node holds the tensor that {start.name} is to write")
        parent, place = next(((n, p) for n, p in buffer if p is None and self.index[n] < self.index[start]), buffer[0])
        val = parent.meta["val"] if place is None else parent.meta["val"][place]
        result = start.meta["val"]
        if (val.shape, val.stride(), val.dtype) != (result.shape, result.stride(), result.dtype):
            raise PlanError(f"the tensor that {start.name} is to write does not have the form of its result")
        copy_in = parent if place is not None else parent.args[0] if parent.target is operator.getitem else None
        if not isinstance(copy_in, fx.Node) or not _is(copy_in, COPY_IN):
            raise PlanError(f"{start.name} may only write the buffer of its copy-in")
        for memory in self.aliases.of(copy_in):
            for node in self.touching[memory]:
                waits = node.op == "call_function" and spec_of(node).is_wait and start_of(node) is start
                if self.index[node] > self.index[start] and not waits:
                    raise PlanError(f"{node.name} reads the buffer that {start.name} is to write")
        self.destinations[start] = (parent, place)

    def _erasure(self, node: fx.Node) -> None:
        """Checks that a call that is gone has no effect, or one on the storage of a parameter alone."""
        spec = spec_of(node)
        if (_is(node, RESIZE) or _is(node, COPY)) and node.args[0].op == "placeholder":
            self._parameters.setdefault(node.args[0], []).append((node, node.args))
        elif spec.start or spec.mutated or spec.ordered or spec.hybrid or spec.is_wait and not self._landed(node):
            raise PlanError(f"{node.name}, which is gone, has an effect")

    def _landed(self, wait: fx.Node) -> bool:
        """Whether another wait, which stays, has landed what this one waits for."""
        start, gone = start_of(wait), set(self.rewrites.erased)
        return any(
            n.op == "call_function" and spec_of(n).is_wait and start_of(n) is start and self.index[n] < self.index[wait]
            for n in self.graph.nodes
            if n not in gone
        )


def _touching(graph: fx.Graph, aliases: Aliases) -> dict[int, list[fx.Node]]:
    """Indexed by memory: the calls that touch it, with the output, in the order of the graph.

    A wait touches what its collective touches.
    """
    touching: dict[int, list[fx.Node]] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr") or node.target is operator.getitem:
            continue
        touched = aliases.of_all(list(node.all_input_nodes)) | aliases.of(node)
        if isinstance(start := start_of_wait(node), fx.Node):
            touched |= aliases.of_all(list(start.all_input_nodes))
        for memory in touched:
            touching.setdefault(memory, []).append(node)
    return touching


def start_of_wait(value: fx.Node) -> fx.Node | None:
    """The collective that a wait waits for. None for other nodes."""
    return start_of(value) if value.op == "call_function" and spec_of(value).is_wait else None


def _is(node: fx.Node, name: str) -> bool:
    """Whether a node calls the operator of this name."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.name == name


def _equal_calls(a: fx.Node, b: fx.Node) -> bool:
    """Whether two nodes are calls of one operator with equal arguments, and the operator always gives the same."""
    if a.op != "call_function" or b.op != "call_function" or a.target is not b.target:
        return False
    spec = spec_of(a)
    if spec.start or spec.mutated or spec.ordered or spec.hybrid or not isinstance(a.target, torch._ops.OpOverload):
        return False
    return repr((a.args, a.kwargs)) == repr((b.args, b.kwargs))  # The name of a node is unique.
