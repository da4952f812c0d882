"""CommSched inside torch.compile: the same bits on real ranks, and an order that reaches the generated code."""

import os
import pickle
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")

import gloo  # noqa: E402
from commsched.torch.inductor import GraphPass, KernelPass, _check_order, config_patches  # noqa: E402
from commsched.torch.options import Options  # noqa: E402
from commsched.torch.schedule import Unscheduled  # noqa: E402


def _compiled(rank, ranks):
    import torch._inductor.config as ic

    import commsched.torch as ct

    loss, step = gloo.sharded_step(ranks, layers=3, width=64)
    x = torch.arange(8 * 64, dtype=torch.float32).view(8, 64) / 512 + rank
    with ic.patch(force_disable_caches=True):  # Inductor's own arithmetic; eager's may round otherwise
        expected = step(torch.compile(loss), x)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="CommSched")
        for options in (dict(bucketing=False), dict(memory_budget_ratio=1.0)):
            if ranks > 2 and options.get("bucketing", True):
                continue  # merged sums of more than two round differently
            torch._dynamo.reset()
            ct.reports()
            with ic.patch(force_disable_caches=True), ct.enabled(machine="cpu-mpi", effort=20, **options):
                compiled = torch.compile(loss)
            with ic.patch(force_disable_caches=True):  # on a hit no hook would run, and there would be no report
                got = step(compiled, x)
            assert all(map(torch.equal, expected, got)), options
            ct.verify_ranks()
            places = [r["place"] for r in ct.reports()]
            assert places.count("kernels") == 2, places
    if ranks == 2:
        torch._dynamo.reset()
        with ic.patch(force_disable_caches=True):
            got = step(torch.compile(loss, backend="commsched", options=dict(machine="cpu-mpi", effort=0)), x)
        assert all(map(torch.equal, expected, got))


@pytest.mark.parametrize("ranks", [2, 4])
def test_compiled_steps_compute_the_same_bits(ranks):
    gloo.run(ranks, _compiled)


def test_nothing_to_communicate():
    import commsched.torch as ct

    ct.reports()  # of the tests before
    torch._dynamo.reset()
    with ct.enabled(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="CommSched")
        f = torch.compile(lambda x: x.cos() + 1)
        assert torch.allclose(f(torch.zeros(4)), torch.full((4,), 2.0))
    assert ct.reports() == []


def test_failures_are_said_once_and_break_nothing():
    snodes = [object()]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import torch._inductor.utils as utils

        original, utils.contains_collective = utils.contains_collective, lambda s: True
        try:
            run = KernelPass(Options())
            assert run(snodes) is snodes and run(snodes) is snodes
        finally:
            utils.contains_collective = original
    assert len([w for w in caught if "CommSched" in str(w.message)]) == 1


def test_an_illegal_order_is_refused():
    class Kernel(str):
        get_name = str.__str__

    a, b = Kernel("a"), Kernel("b")
    _check_order([a, b], [a, b], {a: set(), b: {a}})
    with pytest.raises(Unscheduled, match="b would come before a"):
        _check_order([a, b], [b, a], {a: set(), b: {a}})
    with pytest.raises(Unscheduled, match="no permutation"):
        _check_order([a, b], [a, a], {a: set(), b: {a}})


def test_caches_see_the_options():
    one, two = GraphPass(Options()), GraphPass(Options(effort=7))
    assert one.uuid() and one.uuid() != two.uuid()
    assert pickle.dumps(KernelPass(Options())) == pickle.dumps(KernelPass(Options()))
    assert pickle.dumps(KernelPass(Options())) != pickle.dumps(KernelPass(Options(effort=7)))
    assert set(config_patches(Options())) == {"post_grad_custom_post_pass", "reorder_for_compute_comm_overlap",
                                              "reorder_for_compute_comm_overlap_passes"}


def test_install_and_uninstall():
    import torch._inductor.config as ic

    import commsched.torch as ct

    ct.install(machine="cpu-mpi")
    try:
        assert isinstance(ic.post_grad_custom_post_pass, GraphPass)
        ct.install(machine="h100-sxm")  # replaces, does not add
        assert len(ic.reorder_for_compute_comm_overlap_passes) == 1
    finally:
        ct.uninstall()
    assert ic.post_grad_custom_post_pass is None and not ic.reorder_for_compute_comm_overlap


def test_the_package_does_not_import_torch():
    code = "import sys, commsched; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
