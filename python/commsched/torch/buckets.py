"""Merges collectives of an FX graph into one, by PyTorch's own bucketing functions where it has them.

PyTorch's `merge_*_bucket` sort the graph around every bucket; here the caller decides where each part goes, so this
takes the functions that they trace, and returns the new nodes by role.
"""

from __future__ import annotations

import dataclasses

import torch
import torch.distributed as dist
import torch.fx as fx
from torch._inductor.fx_passes import bucketing as pt

from .collectives import group_of
from .plan import Bucket, PlanError, _spec
from .values import storage_of


@dataclasses.dataclass
class Merged:
    """New nodes of a bucket in execution order: `pack`, `start`, `wait` (with views of the whole), and per member the
    nodes that make its output."""

    pack: list[fx.Node]
    start: list[fx.Node]
    wait: list[fx.Node]
    outputs: list[list[fx.Node]]


def _all_gather_coalesced(ins, group_name, group_size):
    outs = torch.ops._c10d_functional.all_gather_into_tensor_coalesced(ins, group_size, group_name)
    return [torch.ops._c10d_functional.wait_tensor(o) for o in outs]


def _all_reduce_coalesced(ins, group_name, reduce_op):
    outs = torch.ops._c10d_functional.all_reduce_coalesced(ins, reduce_op, group_name)
    return [torch.ops._c10d_functional.wait_tensor(o) for o in outs]


class Merger:
    """Merges buckets of one graph. Layers repeat, so buckets do: each distinct one is traced once."""

    def __init__(self, graph: fx.Graph):
        self.graph = graph
        self.traces: dict = {}

    def merge(self, bucket: Bucket, before: fx.Node) -> Merged:
        """Replaces the members by one collective, inserted in one piece before `before`. The members, their waits and
        the casts that a packed all-gather does itself are erased. The graph's order is not topological afterwards.

        Raises:
            PlanError: members differ in what they must agree on. The graph is unchanged then.
        """
        members = bucket.members
        first = members[0]
        keys = {(m.target, str(m.args[1:]), m.meta["val"].dtype, m.meta["val"].device) for m in members}
        if len(keys) != 1:
            raise PlanError(f"{first.name} cannot be merged with others of a different kind")
        waits = [next(iter(m.users)) for m in members]
        casts = [m.args[0] if bucket.packed and pt.has_mergeable_all_gather_convert_dtype(m) else None for m in members]
        inputs = [c.args[0] if c is not None else m.args[0] for m, c in zip(members, casts)]
        fn, args = _function(bucket, first, [m.meta["val"].dtype for m in members])
        group = first.args[-1]
        traced = self._trace(fn, [n.meta["val"] for n in inputs], args)
        new, outs = _insert(self.graph, traced, inputs + ([group] if isinstance(group, fx.Node) else []), before)
        if len(outs) != len(waits):
            raise PlanError("a merged collective has not one output per member")
        pt._populate_node_meta(members, new)
        for wait, out in zip(waits, outs):
            wait.replace_all_uses_with(out)
            _refresh_views(wait, out)
        for member, wait, cast in zip(members, waits, casts):
            self.graph.erase_node(wait)
            self.graph.erase_node(member)
            if cast is not None:
                self.graph.erase_node(cast)
        return _by_role(new, outs)

    def _trace(self, fn, tensors, args) -> fx.GraphModule:
        shapes = [tuple(t.shape) for t in tensors]
        if not all(type(d) is int for shape in shapes for d in shape):
            return pt._trace(fn, (tensors, *args))
        first = {}  # which of the tensors are the same one: that shows in the trace
        for i, t in enumerate(tensors):
            first.setdefault(id(t), i)
        key = (fn, str(args), tuple((s, t.stride(), t.dtype, first[id(t)]) for s, t in zip(shapes, tensors)))
        traced = self.traces.get(key)
        if traced is None:
            traced = self.traces[key] = pt._trace(fn, (tensors, *args))
        return traced


def _insert(graph: fx.Graph, traced: fx.GraphModule, inputs: list[fx.Node], before: fx.Node):
    """Copies a traced function into the graph, each copy with values (and storages) of its own."""
    env: dict[fx.Node, fx.Node] = {}
    given = iter(inputs)
    new: list[fx.Node] = []
    mode = inputs[0].meta["val"].fake_mode
    with mode, graph.inserting_before(before):
        for n in traced.graph.nodes:
            if n.op == "placeholder":
                env[n] = next(given, None)  # names, sizes and types come after the tensors, and have gone in
            elif n.op == "output":
                return new, [env[o] for o in n.args[0]]
            else:
                copy = env[n] = graph.node_copy(n, env.__getitem__)
                args, kwargs = fx.map_arg((copy.args, copy.kwargs), lambda m: m.meta["val"])
                copy.meta = {"val": copy.target(*args, **kwargs)}
                new.append(copy)
    raise PlanError("a traced function returns nothing")


def _refresh_views(old: fx.Node, new: fx.Node) -> None:
    """Gives the views of a wait that `new` replaced the storage that they have now: later passes read aliases off the
    metadata."""
    storage = storage_of(old.meta["val"])
    stack, seen = list(new.users), set()
    with new.meta["val"].fake_mode:
        while stack:
            node = stack.pop(0)
            val = node.meta.get("val")
            first = val[0] if isinstance(val, (list, tuple)) and val else val
            if node in seen or node.op != "call_function" or not isinstance(first, torch.Tensor):
                continue
            if storage_of(first) != storage:
                continue
            seen.add(node)
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda m: m.meta["val"])
            node.meta["val"] = node.target(*args, **kwargs)
            stack.extend(node.users)


def _function(bucket: Bucket, first: fx.Node, dtypes: list[torch.dtype]):
    """The function to trace and its arguments after the list of tensors."""
    group = first.args[-1]
    group = group.meta["val"] if isinstance(group, fx.Node) else group
    dtype, device = first.meta["val"].dtype, first.meta["val"].device
    if bucket.kind == "all_gather":
        size = first.args[1]
        if not bucket.packed:
            return _all_gather_coalesced, (group, size)
        name = group_of(first, _spec(first.target))[0]
        rank = dist.get_rank(dist.distributed_c10d._resolve_process_group(name))
        return pt.all_gather_merge_fn_to_trace, (group, size, dtype, dtypes, rank)
    if bucket.kind == "reduce_scatter":
        fn = pt.reduce_scatter_merge_fn_to_trace if bucket.packed else pt.reduce_scatter_merge_fn_coalesced
        return fn, (group, first.args[2], first.args[1], dtype, device)
    if bucket.kind == "all_reduce":
        if not bucket.packed:
            return _all_reduce_coalesced, (group, first.args[1])
        return pt.all_reduce_merge_fn_to_trace, (group, first.args[1], dtype, device)
    raise PlanError(f"a bucket of {bucket.kind} cannot be carried out")


def _by_role(new: list[fx.Node], outs: list[fx.Node]) -> Merged:
    start = next(i for i, n in enumerate(new) if n.op == "call_function" and _spec(n.target).start is not None)
    first_wait = next(i for i, n in enumerate(new) if n.op == "call_function" and _spec(n.target).is_wait)
    taken: set[fx.Node] = set()
    after = set(new[first_wait:])
    chains = []
    for out in outs:  # walk back while the chain is this output's alone
        chain, node = [], out
        while node in after and not _spec(node.target).is_wait:
            chain.append(node)
            sources = node.all_input_nodes
            if len(sources) != 1 or len(sources[0].users) != 1:
                break
            node = sources[0]
        chains.append(chain[::-1])
        taken.update(chain)
    shared = [n for n in new[start + 1:] if n not in taken]
    return Merged(new[:start], [new[start]], shared, chains)
