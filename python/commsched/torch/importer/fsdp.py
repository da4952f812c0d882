# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The operators of `torch.ops.fsdp`, and the storage of parameters, as the dialect's own FSDP operations.

A handler returns False if the dialect does not have that form: dynamic sizes, another dimension, or an unnamed group.
The node is then imported as an opaque operation that writes what its schema says.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch.fx as fx

from ..options import to_ns
from ..semantics import operators
from ..semantics.operators import hint, nodes_in
from .collectives import CollectiveImports
from .mlir_text import cost_attribute
from .values import Value, flat_values


class FsdpImports(CollectiveImports):
    """The part of the importer for FSDP's copies."""

    def all_gather_copy_in(self, node: fx.Node, spec: operators.Spec) -> bool:
        """`fsdp.all_gather_copy_in`: packs shards into this rank's slice of the whole."""
        shards, whole = (operators.argument(node, spec, a) for a in ("all_gather_inputs", "all_gather_output"))
        inputs, dests = self.operands(node, nodes_in(shards)), self.operands(node, nodes_in(whole))
        group = self._group_of_gather(node)
        if group is None or len(dests) != 1 or len(dests[0].shape) != 1 or not _static(inputs + dests):
            return False
        result = self.bind(node, f"%{node.name}", node.meta["val"])
        values = flat_values(result)
        ranks = self.groups.size(group)
        if (
            len(values) != 2
            or values[0].shape != (sum(math.prod(v.shape) for v in inputs),)
            or any(v.storage != dests[0].storage for v in values)
            or dests[0].shape[0] != ranks * values[0].shape[0]
        ):
            return False
        self.printer.operation(
            node.name,
            2,
            "comm.fsdp.all_gather_copy_in",
            f" {_names(inputs)} into {dests[0].ssa} : {dests[0].type} on {group}",
            "",
            self._estimated(node),
            f"({_types(inputs)}) -> ({values[0].type}, {values[1].type})",
            node.name,
        )
        self.values[node] = result
        return True

    def _group_of_gather(self, node: fx.Node) -> str | None:
        """The group of the all-gather that takes the slice, for the copy itself does not name it."""
        for element in node.users:
            if element.target is operator.getitem:
                for user in element.users:
                    spec = operators.spec_of(user)
                    if spec.start is not None and spec.start.kind == "all_gather":
                        return self.groups.group(user, spec)
        return None

    def split_with_sizes_copy(self, node: fx.Node, spec: operators.Spec) -> bool:
        """`fsdp.split_with_sizes_copy`: unpacks gathered parameters."""
        source = operators.argument(node, spec, "all_gather_output")
        sizes = operators.argument(node, spec, "all_gather_input_split_sizes")
        dim, out = operators.argument(node, spec, "dim", 0), operators.argument(node, spec, "out")
        if any(isinstance(s, fx.Node) for s in (source, *sizes, *out) if not _is_tensor(s)):
            return False
        source, dests = self.operands(node, [source])[0], self.operands(node, nodes_in(out))
        rows = source.shape[0] if len(source.shape) == 2 else 1
        if (
            dim != len(source.shape) - 1
            or not _static([source, *dests])
            or len(dests) != len(sizes)
            or any(math.prod(d.shape) != rows * s for d, s in zip(dests, sizes))
        ):
            return False
        flat = self._flat(source)
        types = _types(dests)
        self.printer.operation(
            f"commsched_pieces_{self.number()}",
            len(dests),
            "comm.fsdp.split_with_sizes_copy",
            f" {flat.ssa} into {_names(dests)} : {types} sizes [{', '.join(map(str, sizes))}]",
            "",
            self._estimated(node),
            f"({flat.type}) -> {types if len(dests) == 1 else f'({types})'}",
            node.name,
        )
        return True

    def chunk_cat(self, node: fx.Node, spec: operators.Spec) -> bool:
        """`fsdp.chunk_cat`: packs gradients for a reduce-scatter."""
        tensors, out = (operators.argument(node, spec, a) for a in ("tensors", "out"))
        dim, chunks = (operators.argument(node, spec, a) for a in ("dim", "num_chunks"))
        inputs, dests = self.operands(node, nodes_in(tensors)), self.operands(node, nodes_in(out))
        if dim != 0 or type(chunks) is not int or len(dests) != 1 or not _static(inputs + dests):
            return False
        if any(not v.shape for v in inputs) or math.prod(dests[0].shape) != sum(
            -(-v.shape[0] // chunks) * chunks * math.prod(v.shape[1:]) for v in inputs
        ):
            return False
        flat = self._flat(dests[0])
        self.printer.operation(
            f"commsched_pieces_{self.number()}",
            1,
            "comm.fsdp.chunk_cat",
            f" {_names(inputs)} into {flat.ssa} : {flat.type} chunks {chunks}",
            "",
            self._estimated(node),
            f"({_types(inputs)}) -> {flat.type}",
            node.name,
        )
        return True

    def fsdp_copy(self, node: fx.Node, spec: operators.Spec) -> bool:
        """`fsdp.copy_`."""
        dest, source = self.operands(node, [node.args[0]])[0], self.operands(node, [node.args[1]])[0]
        if dest.type != source.type:
            return False
        self.printer.operation(
            None,
            0,
            "comm.fsdp.copy",
            f" {source.ssa} into {dest.ssa}",
            "",
            self._estimated(node),
            f"{source.type} into {dest.type}",
            node.name,
        )
        return True

    def resize_storage(self, node: fx.Node, spec: operators.Spec) -> bool:
        """`inductor.resize_storage_bytes_`: frees or allocates the storage of a parameter."""
        size = node.args[1].meta["val"] if isinstance(node.args[1], fx.Node) else node.args[1]
        value = self.operands(node, [node.args[0]])[0]
        self.printer.operation(
            None, 0, "comm.resize_storage", f" {value.ssa} to {hint(size)}", "", [], value.type, node.name
        )
        return True

    def _flat(self, value: Value) -> Value:
        """`value` with one dimension.

        The view has a name of its own: it may be moved alone, and the place of a node is that of its first operation.
        """
        if len(value.shape) == 1:
            return value
        element = value.type[value.type.rfind("x") + 1 : -1]
        number = math.prod(value.shape)
        flat = Value(
            f"%commsched_flat_{self.number()}",
            f"tensor<{number}x{element}>",
            (number,),
            value.bytes,
            value.traffic,
            value.storage,
        )
        self.printer.operation(
            flat.ssa[1:],
            1,
            'comm.compute "view"',
            f"({value.ssa})",
            " aliases [0]",
            [],
            f"({value.type}) -> {flat.type}",
            flat.ssa[1:],
        )
        return flat

    def _estimated(self, node: fx.Node) -> list[str]:
        """The user's estimate as an attribute. Empty if the machine profile decides."""
        ms = None if self.estimation is None else self.estimation(node)
        return [] if ms is None else [f"comm.cost = {cost_attribute(None, None, to_ns(ms))}"]


def _is_tensor(arg: Any) -> bool:
    return isinstance(arg, fx.Node) and hasattr(arg.meta.get("val"), "dtype")


def _static(values: list[Value]) -> bool:
    return not any(v.dynamic or not v.storage for v in values)


def _names(values: list[Value]) -> str:
    return ", ".join(v.ssa for v in values)


def _types(values: list[Value]) -> str:
    return ", ".join(v.type for v in values)
