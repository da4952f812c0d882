# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""comm-bucket merges in FX graphs what the passes of PyTorch Inductor's fsdp.py merge."""

import random

import pytest

torch = pytest.importorskip("torch")

import inductor_rules as rules
import torch.distributed as dist
from conftest import RANKS
from fsdp_graphs import Builder
from torch._inductor.fx_passes import bucketing

import commsched.torch as ct
import gloo

aten, c10d, cast = torch.ops.aten, torch.ops._c10d_functional, torch.ops.prims.convert_element_type.default
GATHER, SCATTER = c10d.all_gather_into_tensor.default, c10d.reduce_scatter_tensor.default


def parameters(seed, groups, types=(torch.float32,), ranks=RANKS):
    """Gathers of arguments, and of what is made of them in ways that the filter takes or not."""
    rng, b = random.Random(seed), Builder()
    starts = []
    for number in range(rng.randint(3, 14)):
        value = b.placeholder(f"p{number}", 32 * rng.randint(1, 8), 64)
        for step in rng.choice([[], [], ["cast"], ["cast"], ["cast", "cast"], ["relu"], ["view"], ["view", "cast"]]):
            if step == "cast":
                kind = rng.choice(types) if value.meta["val"].dtype != torch.float32 else torch.bfloat16
                value = b.call(cast, value, kind)
            elif step == "relu":
                value = b.call(aten.relu.default, value)
            else:
                value = b.call(aten.view.default, value, [-1])
        starts.append(b.call(GATHER, value, ranks, rng.choice(groups)))
    waits = [b.call(c10d.wait_tensor.default, start) for start in starts]
    return b.module(*[b.call(aten.relu.default, wait) for wait in waits])


def gradients(seed, groups, types=(torch.float32,), ranks=RANKS):
    """Sums of gradients that are results, or whose conversions are, or that others read as well.

    The names of the arguments say that it is a backward graph: results of others are not merged.
    """
    rng, b = random.Random(seed), Builder()
    x = b.placeholder("x", 64, 64)
    results = []
    for number in range(rng.randint(3, 14)):
        value = b.call(aten.mm.default, b.placeholder(f"tangents_{number}", 64 * rng.randint(1, 8), 64), x)
        value = b.call(cast, value, kind) if (kind := rng.choice(types)) != torch.float32 else value
        start = b.call(SCATTER, value, rng.choice(["sum", "avg"]), ranks, rng.choice(groups))
        wait = b.call(c10d.wait_tensor.default, start)
        match rng.choice(["result", "result", "cast", "cast", "both", "relu", "read cast", "view"]):
            case "result":
                results.append(wait)
            case "cast":
                results.append(b.call(cast, wait, torch.float64))
            case "both":
                results += [wait, b.call(cast, wait, torch.float64)]
            case "relu":
                results.append(b.call(aten.relu.default, wait))
            case "read cast":
                results.append(b.call(aten.relu.default, b.call(cast, wait, torch.float64)))
            case "view":
                results.append(b.call(aten.view.default, wait, [-1]))
    return b.module(*results)


KINDS = {
    "all_gather": (parameters, GATHER, rules.is_fsdp_all_gather_wait, bucketing.bucket_all_gather_by_mb),
    "reduce_scatter": (gradients, SCATTER, rules.is_fsdp_reduce_scatter_wait, bucketing.bucket_reduce_scatter_by_mb),
}
CAPS = {"no cap": [2000.0], "one cap": [1.0], "caps": [0.25, 1.5, 0.75]}


def merged(gm, kind, caps, form="packed"):
    """The names of the collectives in each bucket."""
    cap = f" cap-bytes={','.join(str(int(c * 1024 * 1024)) for c in caps)}" if caps != CAPS["no cap"] else ""
    entry = f"comm-bucket{{fsdp-exact=true kinds={kind} form={form}{cap}}}"
    gm, report = ct.schedule_overlap(gm, passes=[entry], memory_budget_ratio=100.0)
    gm.graph.lint()
    return sorted(map(sorted, report["buckets"]))


@pytest.mark.parametrize("caps", ["no cap", "one cap"])
@pytest.mark.parametrize("kind", KINDS)
def test_buckets_are_those_of_pytorch(world, kind, caps):
    """PyTorch's own function says what to merge, with the filter of fsdp.py. It merges neighbours of one kind alone,
    so there is one kind of collective here. For all buckets it asks for the cap of the first one.
    """
    make, target, filter_wait, pytorchs = KINDS[kind]
    caps, count = CAPS[caps], 0
    for seed in range(12):
        gm = make(seed, [world])
        for node in gm.graph.find_nodes(op="call_function", target=SCATTER):
            node.update_arg(1, "sum")
        of_type = lambda wait: filter_wait(wait) and wait.meta["val"].dtype == torch.float32
        expected = pytorchs(gm, lambda number: caps[0], of_type)
        expected = sorted(sorted(n.name for n in bucket) for bucket in expected)
        others = rules.greedy_buckets(gm.graph, target, lambda w: filter_wait(w) and not of_type(w), caps)
        count += sum(map(len, expected))
        assert merged(gm, kind, caps) == sorted([*expected, *map(sorted, others)]), f"seed {seed}"
    assert count > 10


@pytest.mark.parametrize("form", ["packed", "coalesced"])
@pytest.mark.parametrize("caps", CAPS)
@pytest.mark.parametrize("kind", KINDS)
def test_buckets_hold_one_group_type_and_reduction(world, kind, caps, form):
    groups = [world, dist.new_group(range(RANKS)).group_name]
    make, target, filter_wait, _ = KINDS[kind]
    count = 0
    for seed in range(100, 112):
        gm = make(seed, groups, [torch.float32, torch.bfloat16])
        expected = rules.greedy_buckets(gm.graph, target, filter_wait, CAPS[caps])
        count += sum(map(len, expected))
        assert merged(gm, kind, CAPS[caps], form) == sorted(map(sorted, expected)), f"seed {seed}"
    assert count > 10


MODES = {
    "default": "comm-bucket{fsdp-exact=true}",
    "custom_ops_multidtype": "comm-bucket{fsdp-exact=true mixed-types=true}",
    "coalesced": "comm-bucket{fsdp-exact=true form=coalesced}",
}


def _modes(rank, ranks):
    """Sums of whole numbers are exact, in any order."""
    group, types = dist.group.WORLD.group_name, [torch.float32, torch.bfloat16]
    sizes = set()
    for make in (parameters, gradients):
        for seed in range(200, 203):
            values = [n.meta["val"] for n in make(seed, [group], types, ranks).graph.find_nodes(op="placeholder")]
            torch.manual_seed(10 * seed + rank)
            inputs = [torch.randint(-2, 3, v.shape, dtype=v.dtype) for v in values]
            expected = make(seed, [group], types, ranks)(*inputs)
            for mode, entry in MODES.items():
                gm = make(seed, [group], types, ranks)
                gm, report = ct.schedule_overlap(gm, machine="cpu-mpi", passes=[entry], memory_budget_ratio=100.0)
                sizes.update((mode, len(bucket)) for bucket in report["buckets"])
                got = gm(*inputs)
                assert all(map(torch.equal, expected, got)), f"{mode}, seed {seed}"
    assert all(any((mode, size) in sizes for size in range(2, 9)) for mode in MODES), sizes


@pytest.mark.parametrize("ranks", [2, 4])
def test_merged_collectives_compute_the_same_bits_in_every_mode(ranks):
    gloo.run(ranks, _modes)
