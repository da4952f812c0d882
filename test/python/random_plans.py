# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Random legal schedules of an FX graph, buckets included, as the operations of a scheduled module."""

import random

from commsched import Operation
from commsched.torch.semantics import effects
from commsched.torch.semantics.operators import spec_of

MERGEABLE = ("all_gather", "reduce_scatter", "all_reduce")
PACK = {
    "all_gather": "comm.fsdp.all_gather_copy_in",
    "reduce_scatter": "comm.fsdp.chunk_cat",
    "all_reduce": "comm.fsdp.chunk_cat",
}
UNPACK = {
    "all_gather": "comm.fsdp.split_with_sizes_copy",
    "reduce_scatter": "comm.fsdp.split_with_sizes",
    "all_reduce": "comm.fsdp.split_with_sizes",
}


def key_of(node):
    """Starts with equal keys may be merged. None for a node that may not."""
    if node.op != "call_function":
        return None
    start = spec_of(node).start
    if start is None or start.kind not in MERGEABLE or start.coalesced or start.in_place or start.out:
        return None
    if len(node.users) != 1 or not spec_of(next(iter(node.users))).is_wait:
        return None
    return start.kind, str(node.args[1:]), node.meta["val"].dtype


def random_operations(graph, seed, packed=True, merge=0.7, kinds=MERGEABLE):
    """A random order of the graph's calls as operations, with random buckets of the given kinds."""
    rng = random.Random(seed)
    calls = [n for n in graph.nodes if n.op not in ("placeholder", "get_attr", "output")]
    before = {n: {m for m in n.all_input_nodes if m.op not in ("placeholder", "get_attr")} for n in calls}
    for a, b in effects.edges(graph):
        if b in before and a in before:
            before[b].add(a)
    ops, done, waiting = [], set(), list(calls)
    pending = {}  # Indexed by a member's wait: its bucket (waits, whether the wait was emitted, kind).
    while waiting:
        ready = [n for n in waiting if before[n] <= done]
        node = rng.choice(ready)
        key = key_of(node)
        members = [node]
        if key and key[0] in kinds and rng.random() < merge:
            others = [n for n in ready if n is not node and key_of(n) == key]
            members += rng.sample(others, rng.randint(0, len(others)))
        if len(members) > 1:
            waits = [next(iter(m.users)) for m in members]
            names = tuple(m.name for m in members)
            if packed:
                ops.append(Operation(PACK[key[0]], names))
            ops.append(Operation(f"comm.{key[0]}", names))
            bucket = {"waits": waits, "landed": False, "kind": key[0]}
            pending.update((w, bucket) for w in waits)
        elif node in pending:
            bucket = pending[node]
            names = tuple(w.name for w in bucket["waits"])
            if not bucket["landed"]:
                ops.append(Operation("comm.wait", names))
                bucket["landed"] = True
            if packed:
                ops.append(Operation(UNPACK[bucket["kind"]], (node.name,)))
        else:
            spec = spec_of(node)
            opcode = f"comm.{spec.start.kind}" if spec.start else "comm.wait" if spec.is_wait else "comm.compute"
            ops.append(Operation(opcode, (node.name,)))
        done.update(members)
        waiting = [n for n in waiting if n not in done]
    return ops
