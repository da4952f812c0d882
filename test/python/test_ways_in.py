# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The ways to switch CommSched on in torch.compile, and Inductor's caches, with fake ranks and without kernels."""

import re
import types
import warnings

import pytest

torch = pytest.importorskip("torch")

import torch._inductor.config as ic
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code

import commsched.torch as ct
import gloo
from commsched.torch import reporting
from commsched.torch.inductor import hooks, passes, rivals
from commsched.torch.options import Options
from commsched.torch.trace import fake_world

RANKS = 4


def two_gathers(x, *shards):
    """Two gathers that are worth packing into one."""
    c10d, group = torch.ops._c10d_functional, torch.distributed.group.WORLD.group_name
    for full in [c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, group)) for w in shards]:
        x = x @ full
    return x


def compiled(step, rank=0, **options):
    """The codes and the reports of torch.compile for `two_gathers`, when `step` calls it."""
    torch._dynamo.reset()
    reporting._ran.clear()
    ct.reports()
    with fake_world(RANKS, rank), gloo.without_kernels(**options):
        _, codes = run_and_get_code(step(), torch.ones(4, 16), torch.ones(4, 16), torch.ones(4, 16))
    return codes, ct.reports()


def places(reports):
    return [r["place"] for r in reports]


def with_options():
    return torch.compile(two_gathers, options=ct.inductor_options(machine="cpu-mpi", memory_budget_ratio=10.0))


def within_block(**kwargs):
    with ct.enabled(machine="cpu-mpi"):
        return torch.compile(two_gathers, **kwargs)


@pytest.mark.parametrize(
    "step",
    [
        with_options,
        within_block,
        lambda: within_block(mode="max-autotune-no-cudagraphs"),
        lambda: torch.compile(two_gathers, backend="commsched", options={"machine": "cpu-mpi", "max_autotune": False}),
        lambda: torch.compile(two_gathers, backend="commsched", mode="max-autotune-no-cudagraphs"),
    ],
    ids=["options", "enabled", "enabled, mode", "backend", "backend, mode"],
)
def test_every_way_in_schedules(step):
    codes, reports = compiled(step)
    assert places(reports) == ["graph", "kernels", "code"]


def test_a_second_run_and_another_rank_find_the_right_code(tmp_path, monkeypatch):
    """All ranks share one cache, although the code of a packed gather holds the rank."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    found, slices, signatures = [], [], set()
    for rank in (0, 0, 1, 1):
        counters.clear()
        codes, reports = compiled(with_options, rank, caches=True)
        inductor, aot = counters["inductor"], counters["aot_autograd"]
        found.append(bool(inductor["fxgraph_cache_hit"] or aot["autograd_cache_hit"]))
        slices += [int(s) for c in codes for s in re.findall(r"all_gather_into_tensor_out\S*\(.*?, (\d+)\), 4", c)]
        signatures.add(ct.verify_ranks())
        assert places(reports) == (["code"] if found[-1] else ["graph", "kernels", "code"])
    assert found == [False, True, False, True]
    assert slices == [0, 0, 128, 128], slices
    assert len(signatures) == 1 and "" not in signatures  # The origin of code does not matter to verify_ranks.


def test_the_key_tells_jobs_apart():
    def key(ranks, rank, pairs=()):
        with fake_world(ranks, rank):
            for pair in pairs:
                torch.distributed.new_group(pair)
            return Options().key()

    keys = [Options().key(), key(4, 0), key(4, 1), key(8, 0), key(4, 0, [(0, 1)]), key(4, 0, [(0, 2)])]
    assert len(set(keys)) == len(keys) and key(4, 1) == keys[2]
    assert Options(effort=1).key() != Options().key()
    with fake_world(4, 1):  # The part that ranks compare does not depend on the rank.
        first = Options().shared_key()
    assert first == Options().shared_key()


def test_unknown_machines_are_found_at_once():
    for way in (ct.install, ct.inductor_options, lambda **k: ct.enabled(**k).__enter__()):
        with pytest.raises(ValueError, match="h100-sxm.*mi300x"):
            way(machine="mi300x")
    with pytest.raises(ValueError, match="expected an option.*machine.*got 'machin'"):
        from commsched.torch.inductor import backend

        backend(None, [], options={"machin": "h100-sxm"})


def test_uninstall_restores_what_was_there():
    mine = lambda graph: None
    with ic.patch(post_grad_custom_post_pass=mine, reorder_for_peak_memory=False):
        ct.install(machine="cpu-mpi")
        ct.install(machine="h100-sxm")  # It replaces the first, and does not add.
        assert [type(p) is passes.GraphPass for p in ic.post_grad_custom_post_pass] == [False, True]
        ct.uninstall()
        assert ic.post_grad_custom_post_pass is mine and not ic.reorder_for_peak_memory
        ct.uninstall()
        assert ic.post_grad_custom_post_pass is mine


def test_pytorchs_own_scheduler_is_turned_off_and_named():
    reporting._warned.clear()
    rival = "aten_distributed_optimizations.enable_overlap_scheduling"
    with ic.patch({rival: True}):
        with pytest.warns(UserWarning, match=rival):
            assert ct.inductor_options()[rival] is False
        with ic.patch(bucket_all_gathers_fx="all"):
            with pytest.warns(UserWarning, match="bucket_all_gathers_fx"):
                ct.install()
            assert not ic.aten_distributed_optimizations.enable_overlap_scheduling
            ct.uninstall()  # Inside of the block, for it restores what was there at `install`.
            assert ic.bucket_all_gathers_fx == "all"
        assert ic.aten_distributed_optimizations.enable_overlap_scheduling


@pytest.mark.parametrize("given", [True, False])
def test_simple_overlap_is_off_while_kernels_keep_our_order(monkeypatch, given):
    """The setting of PyTorch 2.15 in the place of Inductor's configuration, so that every version tests it."""
    settings = types.SimpleNamespace(enable_simple_overlap=given)
    monkeypatch.setattr(rivals, "_config", lambda: types.SimpleNamespace(aten_distributed_optimizations=settings))
    with pytest.raises(KeyError), rivals.simple_overlap_restored() as on:
        compilation = hooks.Compilation(simple_overlap=on)
        assert compilation.keeps_order(True) is given and not settings.enable_simple_overlap
        assert compilation.keeps_order(False) is False and settings.enable_simple_overlap is given
        assert compilation.keeps_order(True) is given
        raise KeyError  # The compilation fails.
    assert settings.enable_simple_overlap is given
    monkeypatch.setattr(rivals, "_config", lambda: types.SimpleNamespace(aten_distributed_optimizations=None))
    with rivals.simple_overlap_restored() as on:  # PyTorch 2.13 has no such pass.
        assert not on and not hooks.Compilation(simple_overlap=on).keeps_order(True)


def test_other_backends_and_graphs_without_collectives_are_told():
    reporting._warned.clear()
    passes._communicating.clear()
    with pytest.warns(UserWarning, match="install"), ct.enabled():
        torch.compile(lambda x: x, backend=lambda gm, _: gm.forward)
    x = torch.ones(4, requires_grad=True)
    with fake_world(RANKS), gloo.without_kernels(), pytest.warns(UserWarning, match="FSDP2"):
        torch._dynamo.reset()
        torch.compile(lambda x: x.sin().sum(), options=ct.inductor_options())(x).backward()
    with warnings.catch_warnings(), gloo.without_kernels():  # One process has nothing to communicate.
        warnings.filterwarnings("error", message="CommSched")
        torch._dynamo.reset()
        torch.compile(lambda x: x.sin().sum(), options=ct.inductor_options())(x).backward()
