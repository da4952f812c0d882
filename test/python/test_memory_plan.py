# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Memory plans in PyTorch: what the backward graph of a step gets from its forward graph, and what it makes again."""

import contextlib
import dataclasses
import functools

import pytest

torch = pytest.importorskip("torch")

from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.checkpoint import CheckpointPolicy

import commsched.torch as ct
import gloo
from commsched.torch import memory_plan
from commsched.torch.options import Options
from commsched.torch.sharding import fully_shard_parameters
from commsched.torch.trace import fake_world, preserve_node_meta

RANKS, WIDTH, TOKENS = 2, 128, 512


def layers(dropout=0.0, count=4):
    parts = []
    for _ in range(count):
        parts += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), *[torch.nn.Dropout(dropout)] * (dropout > 0)]
    return torch.nn.Sequential(*parts)


@contextlib.contextmanager
def joint_of(model, change=None):
    """The graph of a training step of a sharded model, with what PyTorch's partitioner gets beside it."""
    with fake_world(RANKS):
        mesh = init_device_mesh("cpu", (RANKS,))
        with FakeTensorMode(allow_non_fake_inputs=True), contextlib.ExitStack() as stack, preserve_node_meta():
            fully_shard_parameters(model, lambda _: mesh, torch.float32)
            joint = aot_export_joint_with_descriptors(
                stack, model, (torch.empty(TOKENS, WIDTH),), decompositions=select_decomp_table()
            )
            if change is not None:
                change(joint.graph_module.graph)
            state = joint._aot_state
            given = {"num_fwd_outputs": state.fw_metadata.num_forward_returns}
            yield joint.graph_module, state.flat_args, given


def cut(model, change=None, **options):
    """What PyTorch's partitioner saves, what the plan saves, and what the report says."""
    with joint_of(model, change) as (joint, inputs, given):
        own = memory_plan._partitioned(joint, inputs, lambda _, saved: saved, given)
        found, facts = memory_plan.cut_step(joint, inputs, Options(machine="cpu-mpi", effort=200, **options), **given)
    return own, found, facts


def computed(gm):
    return {node.name for node in gm.graph.nodes if node.op == "call_function"}


def saved(found):
    """The saved values that are no arguments of the step."""
    return set(found.saved) & computed(found.forward)


def test_a_limit_below_what_pytorch_needs_is_kept():
    """The first plan for this limit needs more once it is cut in two."""
    limit = int(0.84 * given_peak())
    own, found, facts = cut(layers(), memory_limit_bytes=limit)
    assert facts["peak_bytes"]["after"] <= limit < facts["peak_bytes"]["before"]
    assert facts["again"] > 0
    before, after = saved(own), saved(found)
    assert after < before
    # What is no longer saved is made again.
    assert before - after <= computed(found.backward)


@functools.cache
def given_peak(dropout=0.0):
    model = layers(dropout)
    with joint_of(model) as (joint, inputs, given):
        own = memory_plan._partitioned(joint, inputs, lambda _, saved: saved, given)
        return memory_plan._peak(own, Options(machine="cpu-mpi"))


def test_a_limit_that_nothing_keeps_leaves_pytorchs_cut():
    own, found, facts = cut(layers(), memory_limit_bytes=1000)
    assert found.saved == own.saved and "reason" in facts


def test_what_a_policy_fixes_stays():
    """Activation checkpointing says of each product that it is saved."""

    def fix(graph):
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default):
            node.meta.update(recompute=CheckpointPolicy.MUST_SAVE, ac_graph_id=0)

    limit = int(0.8 * given_peak())
    own, found, _ = cut(layers(), fix, memory_limit_bytes=limit)
    products = {name for name in own.saved if name.startswith("addmm")}
    assert products and products <= set(found.saved)


def test_random_operators_are_not_repeated():
    limit = int(0.8 * given_peak(0.5))
    _, found, _ = cut(layers(dropout=0.5), memory_limit_bytes=limit)
    repeated = computed(found.forward) & computed(found.backward)
    random = {
        node.name
        for node in found.forward.graph.nodes
        if node.op == "call_function" and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    }
    assert random and not random & repeated


def test_a_cut_that_repeats_a_random_operator_is_refused():
    with joint_of(layers(dropout=0.5)) as (joint, inputs, given):
        cut = memory_plan._imposed(joint, inputs, [], given)
        memory_plan._check_repeated(cut)  # Although nothing is to be saved.
        with pytest.raises(memory_plan.Unplanned, match="random"):
            memory_plan._check_repeated(dataclasses.replace(cut, backward=cut.forward))


def test_the_first_rank_decides(monkeypatch):
    """Another rank may see other costs. What it saves is saved here, and what it gathers again is gathered again."""
    limit = int(0.8 * given_peak())
    _, found, _ = cut(layers(), memory_limit_bytes=limit)
    decided = {"saved": found.saved, "repeated": found.repeated()}
    monkeypatch.setattr(memory_plan, "first_of", lambda question, own: decided)
    _, imposed, facts = cut(layers(), memory_budget_ratio=10.0)
    assert imposed.saved == found.saved and facts["decided_by"] == memory_plan.OTHER
    # Its values have other names, but its collectives are those of this graph.
    decided["saved"] = ["no_such_value"]
    _, imposed, facts = cut(layers(), memory_budget_ratio=10.0)
    assert imposed.saved != found.saved and "reason" not in facts
    assert imposed.repeated() == found.repeated() != []
    decided["repeated"] = []
    _, imposed, facts = cut(layers(), memory_budget_ratio=10.0)
    assert imposed.repeated() == [] and "reason" not in facts


@pytest.mark.parametrize(
    "refused",
    [
        lambda: Options(memory_plan="always"),
        lambda: Options(memory_plan="on", tune="measure"),
        lambda: ct.schedule_overlap(torch.fx.symbolic_trace(lambda x: x), memory_plan="on"),
    ],
)
def test_what_does_not_go_together_is_refused(refused):
    with pytest.raises(ValueError, match="memory_plan: expected"):
        refused()


def _train(rank, ranks, folder, plan, limit):
    """Two steps; the results of the first, and the peak of the allocations of the second."""
    torch.manual_seed(0)
    model = layers()
    fully_shard_parameters(model, lambda _: init_device_mesh("cpu", (ranks,)), torch.float32)
    # gloo copies what is gathered together into buffers of its own.
    given = dict(machine="cpu-mpi", memory_limit_bytes=limit, bucketing=False, effort=200)
    options = ct.inductor_options(memory_plan=plan, **given)
    step = torch.compile(lambda x: model(x).square().mean(), options=options)
    torch.manual_seed(1 + rank)
    x = torch.randn(TOKENS, WIDTH)
    loss = step(x)
    loss.backward()
    results = [loss.detach(), *[p.grad.to_local().clone() for p in model.parameters()]]
    model.zero_grad()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step(x).backward()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        most = max(most, live)
    plans = [r for r in ct.reports() if r["place"] == "plan"]
    torch.save((results, most, plans), f"{folder}/{plan}{rank}")


def test_training_needs_less_memory_and_gives_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setenv("COMMSCHED_STRICT", "0")  # Without a plan, the limit cannot be kept, and a warning says so.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))  # What comes from a cache is not reported.
    limit = int(0.8 * given_peak())
    for plan in ("off", "on"):
        gloo.run(RANKS, _train, str(tmp_path), plan, limit)
    deciders = 0
    for rank in range(RANKS):
        results, most, plans = torch.load(tmp_path / f"off{rank}", weights_only=False)
        planned, less, made = torch.load(tmp_path / f"on{rank}", weights_only=False)
        assert all(map(torch.equal, results, planned))
        assert less <= limit < most
        # A rank that asks when another has decided takes that plan, and makes none of its own.
        assert not plans and made and "reason" not in made[0]
        deciders += made[0].get("again", 0) > 0
        assert made[0].get("again", 0) > 0 or made[0]["decided_by"] == memory_plan.OTHER
    assert deciders > 0
