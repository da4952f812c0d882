# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""CommSched inside torch.compile: real ranks compute the same bits, and the order reaches the generated code."""

import os
import pickle
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")

import gloo
from commsched.torch import reporting
from commsched.torch.inductor.kernel_order import Kernels
from commsched.torch.inductor.passes import GraphPass, KernelOrder
from commsched.torch.inductor.rivals import RIVALS
from commsched.torch.inductor.ways_in import config_patches
from commsched.torch.options import Options
from commsched.torch.reporting import (
    STRICT,
    Unscheduled,
)


def _compiled(rank, ranks):
    import torch._inductor.config as ic

    import commsched.torch as ct

    loss, step = gloo.sharded_step(ranks, layers=2, width=64)
    x = torch.arange(8 * 64, dtype=torch.float32).view(8, 64) / 512 + rank
    with ic.patch(force_disable_caches=True):  # Inductor's own arithmetic. Eager mode may round otherwise.
        expected = step(torch.compile(loss), x)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="CommSched")
        for options in (dict(bucketing=False), dict(memory_budget_ratio=1.0)):
            if ranks > 2 and options.get("bucketing", True):
                continue  # Merged sums of more than two may round differently.
            torch._dynamo.reset()
            ct.reports()
            with (
                ic.patch(force_disable_caches=True),
                ct.enabled(machine="cpu-mpi", effort=20, **options),
            ):
                compiled = torch.compile(loss)
            with ic.patch(force_disable_caches=True):  # On a hit no hook would run, and no report would come.
                got = step(compiled, x)
            assert all(map(torch.equal, expected, got)), options
            ct.verify_ranks()
            places = [r["place"] for r in ct.reports()]
            assert all(places.count(p) == 2 for p in ("graph", "kernels", "code")), places
    if ranks == 2:
        torch._dynamo.reset()
        with ic.patch(force_disable_caches=True):
            got = step(
                torch.compile(loss, backend="commsched", options=dict(machine="cpu-mpi", effort=0)),
                x,
            )
        assert all(map(torch.equal, expected, got))


@pytest.mark.parametrize("ranks", [2, 4])
def test_compiled_steps_compute_the_same_bits(ranks):
    gloo.run(ranks, _compiled)


def test_nothing_to_communicate():
    import commsched.torch as ct

    ct.reports()  # Drops those of the tests before.
    torch._dynamo.reset()
    with ct.enabled(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="CommSched")
        f = torch.compile(lambda x: x.cos() + 1)
        assert torch.allclose(f(torch.zeros(4)), torch.full((4,), 2.0))
    assert ct.reports() == []


@pytest.mark.parametrize("answered", ["pointwise", "products"])
def test_estimates_of_all_nodes_price_the_kernels(answered):
    """What the user says of a pointwise node counts as much as what is said of a product, and once."""
    import torch._inductor.config as ic

    import commsched.torch as ct
    from commsched.torch.trace import fake_world

    c10d, asked = torch.ops._c10d_functional, set()

    def estimate(node, override_bytes=None):
        asked.add(node.target)
        name = str(node.target)
        if ("mm" in name) == (answered == "products") and ("aten.cos" in name or "aten.mm" in name):
            return 3.0
        return None

    with fake_world(8):
        group = torch.distributed.group.WORLD.group_name

        def f(x, w):
            flying = c10d.all_gather_into_tensor(w, 8, group)
            return (x.cos() @ c10d.wait_tensor(flying)).sin()

        torch._dynamo.reset()
        ct.reports()
        with ic.patch(force_disable_caches=True):
            options = ct.inductor_options(runtime_estimation=estimate, machine="cpu-mpi")
            torch.compile(f, options=options)(torch.ones(64, 64), torch.ones(8, 64))
        (report,) = (r for r in ct.reports() if r["place"] == "kernels")
    assert torch.ops.aten.cos.default in asked
    assert 3_000_000 <= report["makespan_ns"]["after"] < 4_000_000


def test_a_kernel_is_not_free_because_its_views_are():
    from commsched.torch.inductor.kernels import KernelImporter

    graph, aten = torch.fx.Graph(), torch.ops.aten
    x = graph.placeholder("x")
    view = graph.call_function(aten.view.default, (x, [4]))
    cos = graph.call_function(aten.cos.default, (view,))
    kernel = type("Kernel", (), {"get_name": lambda self: "op0"})()

    def estimated(answers):
        importer = KernelImporter.__new__(KernelImporter)
        importer.options = Options(runtime_estimation=lambda node, override_bytes=None: answers.get(node))
        importer.charged = {view: "op0", cos: "op0"}
        return importer._estimated_ns(kernel, [view, cos])

    assert estimated({view: 0.0}) is None and estimated({}) is None
    assert estimated({cos: 0.0}) == 0 and estimated({view: 0.0, cos: 2.0}) == estimated({cos: 2.0}) == 2_000_000


class _Broken:
    """A node that Inductor would never give to a pass."""

    node = None

    def get_nodes(self):
        raise KeyError("no such thing")


def _run_broken(monkeypatch):
    from torch._inductor import utils, virtualized

    monkeypatch.setattr(utils, "contains_collective", lambda s: True)
    module = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())
    snodes = [_Broken()]
    with virtualized.V.set_graph_handler(type("Lowering", (), {"module": module, "cpp_wrapper": True})()):
        return KernelOrder(Options())(snodes) is snodes


def test_failures_are_said_once_and_break_nothing(monkeypatch):
    monkeypatch.delenv(STRICT)
    reporting._warned.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert _run_broken(monkeypatch) and _run_broken(monkeypatch)
    assert len([w for w in caught if "keep Inductor's order" in str(w.message)]) == 1


def test_failures_are_raised_if_strict(monkeypatch):
    with pytest.raises(AttributeError):
        _run_broken(monkeypatch)


def test_an_illegal_order_is_refused():
    class Kernel(str):
        get_name = str.__str__

    a, b = Kernel("a"), Kernel("b")
    kernels = Kernels.__new__(Kernels)
    kernels.snodes, kernels.before = [a, b], {a: set(), b: {a}}
    kernels.check([a, b])
    with pytest.raises(Unscheduled, match="expected b behind a"):
        kernels.check([b, a])
    with pytest.raises(Unscheduled, match="not a permutation"):
        kernels.check([a, a])


@pytest.mark.parametrize(
    ("decided", "given", "limit", "slack", "taken", "most"),
    [
        (10, 8, None, 2.0, "decided", 10),  # Nothing was promised.
        (10, 8, 12, 1.0, "decided", 10),
        (10, 8, 12, 1.1, "decided", 11),
        (10, 8, 12, 1.5, "decided", 12),  # The limit holds, whatever the graph has left of it.
        (10, 8, 9, 1.5, "given", 9),
        (10, 11, 9, 1.0, "decided", 10),  # The given order is not better.
        (10, 8, 7, 1.5, "given", 8),
    ],
)
def test_the_peak_is_within_the_limit_or_that_of_inductors_order(
    monkeypatch, decided, given, limit, slack, taken, most
):
    kernels = Kernels.__new__(Kernels)
    kernels.snodes = ["given"]
    spread = lambda order, limit=None: (order, limit)
    monkeypatch.setattr(kernels, "peak", lambda order: {"decided": decided, "given": given}[order[0]], raising=False)
    monkeypatch.setattr(kernels, "spread", spread, raising=False)
    order, bound = kernels.within(["decided"], limit, slack)
    assert order == [taken] and (bound == most if limit is not None else bound is None)


def test_caches_see_the_options():
    one, two = GraphPass(Options()), GraphPass(Options(effort=7))
    assert one.uuid() and one.uuid() != two.uuid()
    assert KernelOrder(Options()).uuid() == one.uuid() != KernelOrder(Options(effort=7)).uuid()
    assert pickle.dumps(KernelOrder(Options())) == pickle.dumps(KernelOrder(Options()))
    assert set(RIVALS) < set(config_patches(Options()))


def test_the_package_does_not_import_torch():
    code = "import sys, commsched; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
