# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Graphs of FSDP2 are rewritten and ordered as PyTorch Inductor's passes for them do it, whose rules are here a second
time. PyTorch 2.13 has these passes no more.
"""

import collections
import operator
import random

import pytest

torch = pytest.importorskip("torch")

import torch.fx as fx
from conftest import RANKS
from fsdp_graphs import aten, c10d, fsdp, inductor, unsharded_layers

import commsched.torch as ct

REMOVE, REINPLACE = "comm-remove-unsharded-param-usage", "comm-reinplace-all-gather"
COPY, RESIZE, COPY_IN = fsdp.copy_.default, inductor.resize_storage_bytes_.default, fsdp.all_gather_copy_in.default
GATHER, GATHER_OUT = c10d.all_gather_into_tensor.default, c10d.all_gather_into_tensor_out.default


def calls(graph, target):
    return [n for n in graph.nodes if n.op == "call_function" and n.target is target]


def has_pattern(graph, parameter):
    """`check_resize_pattern`: as many resizes to the full size as to 0, each before its partner."""
    resizes = [n for n in calls(graph, RESIZE) if n.args[0] is parameter]
    place = {n: i for i, n in enumerate(graph.nodes)}
    full, empty = ([place[n] for n in resizes if (n.args[1] > 0) is wanted] for wanted in (True, False))
    return len(full) == len(empty) and all(a < b for a, b in zip(full, empty))


def is_mutated(graph, parameter):
    """Whether an operation other than copies and resizes writes the parameter or a view of it."""
    storage = parameter.meta["val"].untyped_storage()._cdata
    for node in graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload) or node.target in (COPY, RESIZE):
            continue
        for argument, value in zip(node.target._schema.arguments, node.args):
            writes = argument.alias_info is not None and argument.alias_info.is_write
            if writes and value.meta["val"].untyped_storage()._cdata == storage:
                return True
    return False


def remove_unsharded_parameters(graph):
    """`remove_fsdp2_unsharded_param_graph_input_usage`. It ends with an assertion if a parameter is written by others;
    here such a parameter stays.
    """
    nodes = list(graph.nodes)
    copies = collections.defaultdict(list)
    for node in calls(graph, COPY):
        if has_pattern(graph, node.args[0]) and not is_mutated(graph, node.args[0]):
            copies[node.args[0]].append(nodes.index(node))
    for parameter, places in copies.items():
        for begin, end in zip(places, [*places[1:], len(nodes) - 1]):
            replacement = nodes[begin].args[1]
            for node in nodes[begin + 1 : end]:
                if node.op == "call_function" and parameter in node.args and node.target is not RESIZE:
                    node.args = tuple(replacement if a is parameter else a for a in node.args)
    for node in nodes:
        if node.op == "call_function" and node.target in (COPY, RESIZE) and node.args[0] in copies:
            graph.erase_node(node)


def reinplace_gathers(graph):
    """`reinplace_fsdp_all_gather`: a gather of what a copy-in has packed writes the copy-in's buffer."""
    for start in calls(graph, GATHER):
        source, size, group = start.args
        if source.target is operator.getitem and source.args[1] == 0 and source.args[0].target is COPY_IN:
            with graph.inserting_before(start):
                buffer = graph.call_function(operator.getitem, (source.args[0], 1))
                new = graph.call_function(GATHER_OUT, (source, size, group), {"out": buffer})
            start.replace_all_uses_with(new)
            graph.erase_node(start)


def described(graph):
    """How often each value is computed, whatever the names and the order of nodes."""
    texts = {}
    for node in graph.nodes:
        operands = fx.map_arg((node.args, node.kwargs), lambda n: texts[n])
        texts[node] = hash((node.op, node.target if node.op == "placeholder" else str(node.target), str(operands)))
    return collections.Counter(text for node, text in texts.items() if node.op != "placeholder")


def random_layers(world, seed, resizes=True):
    """Layers whose pattern of one parameter may be broken: a resize is missing, or comes at the wrong place, or the
    parameter is written."""
    rng = random.Random(seed)
    layers, rounds = rng.randint(1, 2), rng.randint(1, 2)
    gm = unsharded_layers(world, RANKS, 0, layers, width=16, rounds=rounds, resizes=resizes)
    graph = gm.graph
    parameters = [n for n in graph.find_nodes(op="placeholder") if n.name.startswith("param")]
    change = rng.choice(["none", "erase", "swap", "write"])
    mine = [n for n in calls(graph, RESIZE) if n.args[0] is rng.choice(parameters)] if resizes else []
    if change == "erase" and mine:
        graph.erase_node(rng.choice(mine))
    elif change == "swap" and len(mine) > 1:
        sizes = [n.args[1] for n in mine]
        for node, size in zip(mine, [*sizes[1:], sizes[0]]):
            node.update_arg(1, size)
    elif change == "write":
        user = next(n for n in rng.choice(parameters).users if n.target is aten.t.default)
        with graph.inserting_before(user):
            written = graph.call_function(aten.add_.Tensor, (user.args[0], 1))
        written.meta["val"] = user.args[0].meta["val"]
    graph.lint()
    return gm


def test_unsharded_parameters_are_replaced_by_the_rule(world):
    changed = kept = 0
    for seed in range(12):
        gm, expected = random_layers(world, seed), random_layers(world, seed).graph
        remove_unsharded_parameters(expected)
        before = described(gm.graph)
        gm, report = ct.schedule_overlap(gm, passes=[REMOVE], memory_budget_ratio=100.0)
        assert described(gm.graph) == described(expected), f"seed {seed}"
        changed += described(gm.graph) != before
        kept += bool(calls(gm.graph, COPY))
        assert bool(calls(gm.graph, COPY)) == bool(report["rewrites"][0]["left_alone"])  # It is said.
    assert changed > 5 and kept > 2


def test_gathers_are_done_in_place_by_the_rule(world):
    for seed in range(6):
        gm, expected = random_layers(world, seed), random_layers(world, seed).graph
        reinplace_gathers(expected)
        gm, _ = ct.schedule_overlap(gm, passes=[REINPLACE], memory_budget_ratio=100.0)
        assert described(gm.graph) == described(expected), f"seed {seed}"
        assert not calls(gm.graph, GATHER)


LATER = ["comm-raise", "comm-sink-waits", "comm-reorder-compute-for-overlap", "comm-schedule{effort=1000}"]
LATER += ["comm-reorder-preserving-peak-memory", "comm-sink-waits-preserving-peak-memory"]


@pytest.mark.parametrize("later", LATER)
def test_later_passes_keep_the_order_of_gathers(world, later):
    """`enforce_comm_ordering_for_fsdp`: copy-in and gather are one unit, wait and copy-out another one, and a copy-in
    comes behind the copy-out of the gather before. Views and empty buffers are no kernels.
    """
    no_kernels = {aten.view.default, aten.empty.memory_format, operator.getitem, aten.t.default}
    for seed in range(2):
        gm = random_layers(world, seed)
        gm, report = ct.schedule_overlap(
            gm, passes=[REMOVE, REINPLACE, "comm-order-fsdp", later], memory_budget_ratio=100.0, bucketing=False
        )
        assert "error" not in report
        kernels = [n for n in gm.graph.nodes if n.op == "call_function" and n.target not in no_kernels]
        place = {n: i for i, n in enumerate(kernels)}
        before = -1
        for start in calls(gm.graph, GATHER_OUT):
            (wait,) = start.users
            (landed,) = wait.users
            copy_out = next(n for n in landed.users if n.target is fsdp.split_with_sizes_copy.default)
            copy_in = start.kwargs["out"].args[0]
            assert place[copy_in] + 1 == place[start] and place[wait] + 1 == place[copy_out], f"seed {seed}"
            assert before < place[copy_in], f"seed {seed}"
            before = place[copy_out]
