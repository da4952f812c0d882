# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Meaning of a call of an FX graph: its operator, its process group, its operands, and the sizes of its tensors.

`Spec` is the one table of operators that the importer, the writer-back and the checks share.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sympy
import torch
import torch.fx as fx
from torch._higher_order_ops.effects import _get_effect
from torch.fx.experimental.symbolic_shapes import optimization_hint
from torch.fx.node import _side_effectful_functions


@dataclasses.dataclass(frozen=True)
class Collective:
    """How one operator communicates.

    Args:
        kind: the mnemonic of the dialect.
        coalesced: the first argument and the result are lists.
        in_place: the result is the input.
        out: the argument `out` is the destination.
    """

    kind: str
    coalesced: bool = False
    in_place: bool = False
    out: bool = False


# Operators of aten, without overload, that look at the memory behind a tensor: its storage, or where it begins there.
OF_MEMORY = {
    "as_strided",
    "as_strided_",
    "as_strided_copy",
    "as_strided_scatter",
    "copy_strided",
    "is_set_to",
    "resize",
    "resize_",
    "resize_as",
    "resize_as_",
    "set",
    "set_",
    "sym_storage_offset",
}
STARTS = {
    "_c10d_functional::all_gather_into_tensor": Collective("all_gather"),
    "_c10d_functional::all_gather_into_tensor_out": Collective("all_gather", out=True),
    "_c10d_functional::all_gather_into_tensor_coalesced": Collective("all_gather", coalesced=True),
    "_c10d_functional::reduce_scatter_tensor": Collective("reduce_scatter"),
    "_c10d_functional::reduce_scatter_tensor_out": Collective("reduce_scatter", out=True),
    "_c10d_functional::reduce_scatter_tensor_coalesced": Collective("reduce_scatter", coalesced=True),
    "_c10d_functional::all_reduce": Collective("all_reduce"),
    "_c10d_functional::all_reduce_": Collective("all_reduce", in_place=True),
    "_c10d_functional::all_reduce_coalesced": Collective("all_reduce", coalesced=True),
    "_c10d_functional::all_reduce_coalesced_": Collective("all_reduce", coalesced=True, in_place=True),
    "_c10d_functional::all_to_all_single": Collective("all_to_all"),
    "_c10d_functional::broadcast": Collective("broadcast"),
    "_c10d_functional::broadcast_": Collective("broadcast", in_place=True),
    "_c10d_functional::isend": Collective("send"),
    "_c10d_functional::irecv": Collective("recv", in_place=True),
    "symm_mem::_low_contention_all_gather": Collective("all_gather"),
    "symm_mem::_low_contention_reduce_scatter": Collective("reduce_scatter"),
}
WAIT = "_c10d_functional::wait_tensor"
# Starts and waits in one call. It becomes two operations with one location.
SHARD_DIM_ALL_TO_ALL = "_dtensor::shard_dim_alltoall"
# Operators of these namespaces that take a group and are not starts communicate without a wait. They hold the compute
# stream as well as the link.
HYBRID_NAMESPACES = ("symm_mem", "c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor")
# The namespaces of operators that start nothing. Any other call may start what somebody waits for.
STARTING_NOTHING = {"aten", "fsdp", "inductor", "prim", "prims", "quantized"}

REDUCTIONS = {"sum": "sum", "avg": "avg", "product": "product", "min": "min", "max": "max"}

# Indexed by operator: the arguments that it writes although its schema does not say so.
UNMARKED_MUTATIONS = {
    "inductor::resize_storage_bytes_": (0,),
    "fsdp::all_gather_copy_in": (1,),
    "_c10d_functional::batch_p2p_ops": (3,),
}
# Indexed by operator: the argument that its results alias although its schema does not say so.
UNMARKED_ALIASES = {"fsdp::all_gather_copy_in": 1, "_c10d_functional::batch_p2p_ops": 3}
# Higher-order operators without effects besides those of their subgraphs. All others keep their order: they print, call
# out, draw random numbers, write, or are unknown here.
PURE_HIGHER_ORDER = {
    "associative_scan",
    "auto_functionalized",
    "auto_functionalized_v2",
    "cond",
    "flat_apply",
    "flex_attention",
    "flex_attention_backward",
    "foreach_map",
    "inline_asm_elementwise",
    "invoke_quant",
    "invoke_quant_packed",
    "invoke_subgraph",
    "local_map_hop",
    "map_impl",
    "out_dtype",
    "run_const_graph",
    "scan",
    "strict_mode",
    "tag_activation_checkpoint",
    "triton_kernel_wrapper_functional",
    "while_loop",
    "while_loop_stack_output",
    "wrap",
    "wrap_activation_checkpoint",
    "wrap_with_autocast",
    "wrap_with_set_grad_enabled",
    "control_deps",
    "with_effects",
}
# Higher-order operators that write their tensor operands. The writes of all others are in their subgraphs.
MUTATING_HIGHER_ORDER = {"triton_kernel_wrapper_mutation", "run_with_rng_state_inplace"}


class Spec:
    """What the target of a call means. It is worked out once per target."""

    __slots__ = (
        "target",
        "name",
        "packet",
        "op",
        "start",
        "is_wait",
        "mutated",
        "ordered",
        "hybrid",
        "arguments",
        "same_as",
        "by_call",
    )

    def __init__(self, target: Any):
        self.start: Collective | None = None
        self.is_wait = self.ordered = self.hybrid = False
        self.mutated: tuple = ()
        self.arguments: dict[str, int] = {}
        self.target = self.packet = target
        # Whether the meaning of a call depends on its arguments (`spec_of`).
        self.by_call = isinstance(target, torch._ops.HigherOrderOperator)
        # The argument that the results alias although the schema does not say so.
        self.same_as: int | None = None
        if isinstance(target, torch._ops.OpOverload):
            self._from_overload(target)
            return
        self.name = self.op = getattr(target, "__name__", str(target))
        self.ordered = target in _side_effectful_functions
        if isinstance(target, torch._ops.HigherOrderOperator):
            self.name = f"hop.{self.op}"
            self.mutated = ("all",) if self.op in MUTATING_HIGHER_ORDER else ()
            self.ordered = self.op not in PURE_HIGHER_ORDER or _get_effect(target) is not None

    @property
    def collective(self) -> Collective:
        """The collective that this operator starts. Only for starts."""
        assert self.start is not None, f"{self.name} is not a collective"
        return self.start

    def with_inner(self, inner: Iterable[Spec]) -> Spec:
        """This spec for a call that holds other calls: their effects are effects of the call."""
        spec = copy.copy(self)
        for s in inner:
            if s.mutated:
                spec.mutated = ("all",)
            spec.ordered |= s.ordered
            spec.hybrid |= s.hybrid or s.is_wait or s.start is not None or s.op == "shard_dim_alltoall"
        return spec

    def unordered(self) -> Spec:
        """This spec for a call that draws no random numbers: attention without dropout."""
        spec = copy.copy(self)
        spec.ordered = False
        return spec

    def opaque(self) -> Spec:
        """This spec for a call that is imported as an opaque operation, of which only the operands are known.

        The call keeps its place among communication.
        """
        spec = copy.copy(self)
        spec.hybrid, spec.start, spec.is_wait = True, None, False
        if self.is_wait or self.start is not None and self.start.in_place:
            spec.mutated, spec.same_as = (0,), 0
        return spec

    def _from_overload(self, target: Any) -> None:
        schema = target._schema
        self.packet = target.overloadpacket
        self.name = str(target)
        self.op = schema.name.split("::")[1]
        self.start = STARTS.get(schema.name)
        self.is_wait = schema.name == WAIT
        self.arguments = {a.name: i for i, a in enumerate(schema.arguments)}
        self.mutated = tuple(
            a.name if a.kwarg_only else i
            for i, a in enumerate(schema.arguments)
            if a.alias_info is not None and a.alias_info.is_write
        )
        self.mutated += UNMARKED_MUTATIONS.get(schema.name, ())
        self.same_as = UNMARKED_ALIASES.get(schema.name)
        namespace = schema.name.split("::")[0]
        known = self.start or self.is_wait or schema.name == SHARD_DIM_ALL_TO_ALL
        self.hybrid = (
            not known
            and namespace in HYBRID_NAMESPACES
            and ("group_name" in self.arguments or "process_group" in self.arguments)
        )
        # Random numbers come in the order of the draws. An assertion or a host read keeps its place. Starts and waits
        # have effects in PyTorch's sense, but rules of their own here.
        self.ordered = (
            torch.Tag.nondeterministic_seeded in target.tags
            or (not schema.returns and not self.mutated)
            or self.op == "_local_scalar_dense"
            or (not known and not self.mutated and target in _side_effectful_functions)
            or (not known and _get_effect(target) is not None)
        )
        self.by_call = self.ordered and "dropout_p" in self.arguments


def starts_nothing(target: Any) -> bool:
    """Whether the calls of a target are known to start no collective that somebody else waits for."""
    return isinstance(target, torch._ops.OpOverload) and target.namespace in STARTING_NOTHING


# Indexed by identity of a target, which the spec keeps alive: hashing an OpOverload runs Python code.
_specs: dict[int, Spec] = {}


def spec_of(node: fx.Node) -> Spec:
    """The meaning of a call. That of a higher-order operator includes its subgraphs."""
    target = node.target
    spec = _specs.get(id(target)) or _spec_of_target(target)
    if not spec.by_call:
        return spec
    if isinstance(target, torch._ops.HigherOrderOperator):
        inner = [spec_of(n) for g in subgraphs(node) for n in g.nodes if n.op == "call_function"]
        if spec.op not in ("auto_functionalized", "auto_functionalized_v2"):
            inner += [_spec_of_target(a) for a in node.args if isinstance(a, torch._ops.OpOverload)]
        if inner:
            return spec.with_inner(inner)
    elif argument(node, spec, "dropout_p", 0.0) == 0.0:
        return spec.unordered()
    return spec


def _spec_of_target(target: Any) -> Spec:
    spec = _specs.get(id(target))
    if spec is None:
        spec = _specs[id(target)] = Spec(target)
    return spec


def subgraphs(node: fx.Node) -> list[fx.Graph]:
    """The graphs that a call takes as arguments, which the module holds as attributes."""
    owner, found = node.graph.owning_module, []
    for n in node.all_input_nodes:
        if n.op == "get_attr" and owner is not None:
            held = owner
            for part in n.target.split("."):
                held = getattr(held, part, None)
            if isinstance(held, fx.GraphModule):
                found.append(held.graph)
    return found


def argument_at(node: fx.Node, where: int | str) -> Any:
    """The argument of a node at a position, or with a name."""
    if isinstance(where, str):
        return node.kwargs.get(where)
    return node.args[where] if where < len(node.args) else None


def argument(node: fx.Node, spec: Spec, name: str, default: Any = None) -> Any:
    """The argument `name` of a node, by position or by name."""
    if name in node.kwargs:
        return node.kwargs[name]
    index = spec.arguments.get(name)
    return node.args[index] if index is not None and index < len(node.args) else default


def group_of(node: fx.Node, spec: Spec) -> tuple[str, list[int], str]:
    """(name, ranks, description) of a collective's process group, which the node names or takes from another node."""
    from torch.distributed import distributed_c10d as c10d

    group = argument(node, spec, "group_name", argument(node, spec, "process_group"))
    if isinstance(group, fx.Node):
        group = group.meta["val"]
    if isinstance(group, str):
        group = c10d._resolve_process_group(group)
    return group.group_name, c10d.get_process_group_ranks(group), group.group_desc


def unify_results(node: fx.Node, spec: Spec, canonical: dict[int, int]) -> None:
    """Notes in `canonical` that the results of a node are arguments of it (`UNMARKED_ALIASES`).

    Two lists are matched one for one. Otherwise all results are views of the one argument.
    """
    arg, val = node.args[spec.same_as], node.meta.get("val")
    sources = [a.meta.get("val") for a in nodes_in(arg)]
    results = list(val) if isinstance(val, (list, tuple)) else [val]
    if not isinstance(arg, (list, tuple)):
        sources *= len(results)
    for result, source in zip(results, sources):
        if isinstance(result, torch.Tensor) and isinstance(source, torch.Tensor):
            storage = storage_of(source)
            canonical[storage_of(result)] = canonical.get(storage, storage)


def storage_of(val: torch.Tensor) -> int:
    """A number that is equal for tensors that share memory. A tensor without a storage (sparse, nested) has its own."""
    try:
        return val.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return id(val)


def bytes_of(val: torch.Tensor) -> int:
    """The bytes of all elements of a tensor. Symbolic sizes count by their hints."""
    if not val._has_symbolic_sizes_strides:
        return val.dtype.itemsize * val.numel()
    return val.dtype.itemsize * math.prod(map(hint, val.shape))


def nodes_in(arg: Any) -> list[fx.Node]:
    """The nodes in a (nested) argument."""
    if isinstance(arg, fx.Node):
        return [arg]
    if isinstance(arg, (list, tuple)):
        return [n for a in arg for n in nodes_in(a)]
    return []


# The value of an unbacked size without any hint. PyTorch's own estimators use the same number.
UNBACKED_SIZE = 8192
# Indexed by symbol of a size that only the run time knows: a better guess than UNBACKED_SIZE.
_guesses: contextvars.ContextVar[dict | None] = contextvars.ContextVar("guesses", default=None)


@contextlib.contextmanager
def guessed_sizes(exchanges: Iterable[tuple[torch.Tensor, Sequence]]) -> Iterator[None]:
    """Gives sizes that only the run time knows a guess in this block: the pieces of an exchange are equal.

    Args:
        exchanges: the input and the splits of each all-to-all.
    """
    guesses: dict = {}
    token = _guesses.set(guesses)
    try:
        for given, splits in exchanges:
            unknown = [s.node.expr for s in splits if isinstance(s, torch.SymInt) and s.node._hint is None]
            unknown = [e for e in unknown if e.is_Symbol and e not in guesses]
            if unknown:
                piece = max(1, 2 * hint(given.shape[0]) // len(splits))  # the splits of both directions
                guesses.update(dict.fromkeys(unknown, sympy.Integer(piece)))
        yield
    finally:
        _guesses.reset(token)


def hint(size: Any) -> int:
    """A size as an integer: the size itself, or its hint. Adds no guard."""
    if type(size) is int:
        return size
    if isinstance(size, torch.SymInt):
        guesses = _guesses.get()
        if guesses and size.node._hint is None:
            guessed = size.node.expr.xreplace(guesses)
            if guessed.is_Integer:
                return max(0, int(guessed))
        return max(0, int(optimization_hint(size, fallback=UNBACKED_SIZE)))
    return int(size)
