# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Graphs with the oddities of real models are scheduled legally, within the limit, and never broken."""

import operator
import warnings

import pytest

torch = pytest.importorskip("torch")

from conftest import RANKS, trace
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import commsched
import commsched.torch as ct
import gloo
from commsched.torch.semantics import effects

aten, c10d = torch.ops.aten, torch.ops._c10d_functional


def captured(f, *args, **config):
    """The post-AOT graphs of `f`, which runs once."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    graphs = []

    def compiler(gm, _):
        graphs.append(gm)
        return make_boxed_func(gm.forward)

    torch._dynamo.reset()
    with torch._dynamo.config.patch(**config):
        out = torch.compile(f, backend=aot_autograd(fw_compiler=compiler, bw_compiler=compiler), fullgraph=True)(*args)
        leaves = [o for o in torch.utils._pytree.tree_leaves(out) if isinstance(o, torch.Tensor) and o.requires_grad]
        if leaves:
            sum(o.sum() for o in leaves).backward()
    return graphs


def scheduled(gm, **options):
    """Schedules `gm` without a warning and checks what every schedule has to keep. Returns the report."""
    nodes = {n.name for n in gm.graph.nodes}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="CommSched")
        gm, report = ct.schedule_overlap(gm, memory_budget_ratio=0.1, **options)
    assert "error" not in report
    gm.graph.lint()
    position = {n: i for i, n in enumerate(gm.graph.nodes)}
    assert all(position[a] < position[b] for a, b in effects.edges(gm.graph))
    if report["collectives"]:
        assert report["peak_bytes"]["after"] <= report["peak_bytes"]["limit"]
    if not report["buckets"]:
        assert {n.name for n in gm.graph.nodes} == nodes
    commsched.Program(ct.export_mlir(gm))  # It can be imported again.
    return report


class Builder:
    """Writes a graph by hand, for calls that cannot be traced without a GPU."""

    def __init__(self):
        self.graph, self.mode = torch.fx.Graph(), FakeTensorMode()

    def tensor(self, *shape, dtype=torch.float32, device="cpu"):
        with torch.utils._mode_utils.no_dispatch():
            return FakeTensor(self.mode, torch.empty(shape, dtype=dtype, device="meta"), torch.device(device))

    def input(self, name, *shape, **options):
        node = self.graph.placeholder(name)
        node.meta["val"] = self.tensor(*shape, **options)
        return node

    def call(self, val, target, *args, **kwargs):
        node = self.graph.call_function(target, args, kwargs)
        node.meta["val"] = val
        return node

    def gathered(self, x, world):
        val = x.meta["val"]
        flying, landed = (
            self.tensor(val.shape[0] * RANKS, *val.shape[1:], dtype=val.dtype, device=val.device) for _ in range(2)
        )
        return self.call(
            landed, c10d.wait_tensor.default, self.call(flying, c10d.all_gather_into_tensor.default, x, RANKS, world)
        )

    def module(self, *outputs):
        self.graph.output(outputs)
        return torch.fx.GraphModule(torch.nn.Module(), self.graph)


def names_of(gm):
    return [n.name for n in gm.graph.nodes]


def test_flex_attention(world):
    from torch.nn.attention.flex_attention import flex_attention

    def f(q, k, v, w):
        full = c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, world))
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: torch.where(i >= j, s, -float("inf"))) @ full

    graphs = captured(f, *[torch.randn(1, 2, 128, 16) for _ in range(3)], torch.randn(2, 8))
    assert any("flex_attention" in n for n in names_of(graphs[0]))
    scheduled(graphs[0])


def test_grouped_matmul(world):
    def f(x, w, offsets):
        w = c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, world))
        return torch._grouped_mm(x, w, offs=offsets)

    from torch.fx.experimental.proxy_tensor import make_fx

    with FakeTensorMode():
        x, w = torch.empty(64, 32, dtype=torch.bfloat16), torch.empty(1, 32, 16, dtype=torch.bfloat16)
        offsets = torch.empty(RANKS, dtype=torch.int32)
    gm = make_fx(f)(x, w, offsets)
    assert "_grouped_mm" in names_of(gm)
    scheduled(gm)


def test_all_to_all_of_unknown_sizes(world):
    """A mixture of experts that sends what the router decided. Its sizes are unbacked symbols."""

    def f(x, counts, w):
        sizes = counts.tolist()
        for s in sizes:
            torch._check(s >= 0)
        received = c10d.wait_tensor(c10d.all_to_all_single(counts, [1] * RANKS, [1] * RANKS, world)).tolist()
        y = c10d.wait_tensor(c10d.all_to_all_single(x, received, sizes, world))
        w1, w2 = (c10d.wait_tensor(c10d.all_gather_into_tensor(v, RANKS, world)) for v in (w, w * 2))
        return (y @ w1).relu() @ w2.t()

    gm = captured(f, torch.randn(16, 8), torch.full((RANKS,), 2), torch.randn(1, 6), capture_scalar_outputs=True)[0]
    assert any(
        torch.fx.experimental.symbolic_shapes.free_unbacked_symbols(n.meta.get("val"))
        for n in gm.graph.nodes
        if isinstance(n.meta.get("val"), torch.Tensor)
    )
    # The second exchange reads the sizes that the first one brings.
    text = ct.export_mlir(gm).splitlines()
    exchange = next(line for line in text if "input_splits" in line)
    for n in gm.graph.find_nodes(op="call_function", target=aten._local_scalar_dense.default):
        index = next(line for line in text if "commsched.index" in line and f"(%{n.name})" in line)
        assert index.split()[0] in exchange
    # Nobody knows how much comes in. It counts like the outgoing rows, not as 8192 rows from each rank.
    assert f"comm.bytes_hint = array<i64: {16 * 8 * 4}>" in exchange
    report = scheduled(gm)
    assert report["unknown_sizes"] == 0 and not report["opaque"]


@pytest.mark.parametrize("bound, summed", [(1024, False), (16, False), (None, True)])
def test_all_to_all_of_bounded_sizes(world, bound, summed):
    """The program's checks on sizes make some shapes static, and give the others hints."""

    def f(x, counts, w):
        received = c10d.wait_tensor(c10d.all_to_all_single(counts, [1] * RANKS, [1] * RANKS, world))
        ins, outs = counts.tolist(), received.tolist()
        for s in ins + outs:
            torch._check(s >= 0)
            if bound:
                torch._check(s <= bound)
        if summed:
            torch._check(sum(ins) == x.shape[0])
        y = c10d.wait_tensor(c10d.all_to_all_single(x, outs, ins, world))
        y = y @ c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, world))
        return c10d.wait_tensor(c10d.all_to_all_single(y, ins, outs, world)) + 1

    gm = captured(f, torch.randn(16, 8), torch.full((RANKS,), 2), torch.randn(1, 6), capture_scalar_outputs=True)[0]
    assert ct.export_mlir(gm).count("input_splits") == 2
    assert not scheduled(gm)["opaque"]


def test_all_to_all_of_unequal_constants(world):
    def f(x, w):
        full = c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, world))
        return c10d.wait_tensor(c10d.all_to_all_single(x, [1] * RANKS, [6] * RANKS, world)) @ full

    gm = trace(f, (6 * RANKS, 16), (2, 4))
    assert "input_splits [6" in ct.export_mlir(gm)
    assert not scheduled(gm)["opaque"]


@pytest.fixture
def lenient(monkeypatch):
    """Faults are survived, as in a training run."""
    monkeypatch.delenv("COMMSCHED_STRICT", raising=False)


def test_what_the_dialect_refuses_is_opaque_by_itself(world, lenient):
    """An exchange whose result does not fit its input, by a fake tensor that is not the operator's."""
    b = Builder()
    x, w = b.input("x", 16, 4), b.input("w", 4, 8)
    flying = b.call(b.tensor(16, 5), c10d.all_to_all_single.default, x, [], [], world)
    landed = b.call(b.tensor(16, 5), c10d.wait_tensor.default, flying)
    scattered = b.call(b.tensor(7, 8), c10d.reduce_scatter_tensor.default, w, "sum", RANKS, world)
    done = b.call(b.tensor(7, 8), c10d.wait_tensor.default, scattered)
    gathered = b.gathered(w, world)
    later = b.call(b.tensor(16, 5), aten.cos.default, landed)
    gm = b.module(later, done, gathered)
    report = scheduled(gm)
    assert set(report["opaque"]) == {flying.name, scattered.name} and report["collectives"] == 1
    order = names_of(gm)
    assert order.index(flying.name) < order.index(landed.name) < order.index(later.name)


def test_what_the_importer_cannot_read_is_opaque_by_itself(world, lenient, monkeypatch):
    from commsched.torch.importer import graph as importer

    def f(x, w):
        return (x @ c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, world))).cos().sin()

    gm = trace(f, (4, 16), (2, 4))
    cost = importer.Importer._cost
    monkeypatch.setattr(
        importer.Importer,
        "_cost",
        lambda self, parts, spec, *rest: (
            cost(self, parts, spec, *rest) if parts[-1].name != "cos" or spec.hybrid else {}["surprise"]
        ),
    )
    assert "surprise" in scheduled(gm)["opaque"]["cos"]


def test_a_collective_that_was_waited_for_leaves_as_what_it_gave(world):
    """The start itself is returned. Its input is needed until the wait, not until the end."""

    def f(x, w):
        flying = c10d.all_gather_into_tensor(w * 2, RANKS, world)
        return x @ c10d.wait_tensor(flying), flying

    gm = trace(f, (4, 16), (2, 4))
    line = next(line for line in ct.export_mlir(gm).splitlines() if "return" in line)
    assert "future" not in line and "%wait_tensor" in line
    scheduled(gm)


def test_dynamic_shapes_through_dynamo(world):
    def f(x, w):
        a, b = (c10d.wait_tensor(c10d.all_gather_into_tensor(v, RANKS, world)) for v in (w, w + 1))
        return (x @ a).relu() @ b.t()

    x = torch.randn(6, 16, requires_grad=True)
    torch._dynamo.mark_dynamic(x, 0)
    for gm in captured(f, x, torch.randn(2, 4)):
        assert scheduled(gm)["unknown_sizes"] == 0


@pytest.mark.parametrize("device", ["cuda:0", "xpu:0"])
def test_copies_between_devices(world, device):
    """A copy to another device is not a cast that a packed gather could do itself."""
    b = Builder()
    parameters = [b.input(f"p{i}", 4, 8) for i in range(2)]
    outputs = []
    for p in parameters:
        there = b.call(b.tensor(4, 8, device=device), torch.ops.prims.device_put.default, p, torch.device(device))
        low = b.call(
            b.tensor(4, 8, dtype=torch.bfloat16),
            aten._to_copy.default,
            there,
            dtype=torch.bfloat16,
            device=torch.device("cpu"),
        )
        outputs.append(b.gathered(low, world))
    gm = b.module(*outputs)
    assert f'"prims.device_put.default@{device}"' in ct.export_mlir(gm)
    scheduled(gm)
    assert sum(n.target is aten._to_copy.default for n in gm.graph.nodes) == 2


@pytest.mark.parametrize("functional", [False, True])
def test_triton_kernels(world, functional):
    from torch._higher_order_ops import triton_kernel_wrap as wrap

    b = Builder()
    x = b.input("x", 64)
    out = b.call(b.tensor(64), aten.cos.default, x)
    arguments = dict(
        kernel_idx=0,
        constant_args_idx=0,
        grid=[(1, 1, 1)],
        tma_descriptor_metadata={},
        kwargs={"in_ptr": x, "out_ptr": out},
    )
    if functional:
        val = b.tensor(64)
        kernel = b.call(
            {"out_ptr": val}, wrap.triton_kernel_wrapper_functional, **arguments, tensors_to_clone=["out_ptr"]
        )
        out = b.call(val, operator.getitem, kernel, "out_ptr")
    else:
        b.call(None, wrap.triton_kernel_wrapper_mutation, **arguments)
    after = b.call(b.tensor(64), aten.sin.default, out)
    gm = b.module(b.gathered(after, world), out)
    scheduled(gm)
    order = names_of(gm)
    kernel = next(n for n in order if n.startswith("triton"))
    assert order.index("cos_default") < order.index(kernel) < order.index("sin_default")


def test_batched_sends_and_receives(world):
    """They keep their places among communication, and nothing reads a buffer before its wait."""
    b = Builder()
    x, y, w = b.input("x", 64), b.input("y", 64), b.input("w", 64)
    op = b.call(
        [b.tensor(64), b.tensor(64)], c10d.batch_p2p_ops.default, ["isend", "irecv"], [1, 1], [0, 0], [x, y], world
    )
    waits = [
        b.call(b.tensor(64), c10d.wait_tensor.default, b.call(op.meta["val"][i], operator.getitem, op, i))
        for i in range(2)
    ]
    b.call(x.meta["val"], aten.add_.Tensor, x, 1.0)
    received = b.call(b.tensor(64), aten.cos.default, waits[1])
    gm = b.module(received, b.gathered(w, world))
    text = ct.export_mlir(gm)
    assert "side_effects" in text and "mutates [0, 1]" in text
    scheduled(gm)
    order = names_of(gm)
    assert order.index("batch_p2p_ops_default") < order.index("wait_tensor_default") < order.index("add__tensor")
    edges = {(a.name, b.name) for a, b in effects.edges(gm.graph)}
    assert ("wait_tensor_default", "add__tensor") in edges


def test_graph_breaks(world):
    """Each piece is scheduled by itself."""

    def f(x, w):
        y = x @ c10d.wait_tensor(c10d.all_gather_into_tensor(w, RANKS, world))
        torch._dynamo.graph_break()
        return y @ c10d.wait_tensor(c10d.all_gather_into_tensor(w + 1, RANKS, world)).t()

    torch._dynamo.reset()
    with gloo.without_kernels(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="CommSched")
        with ct.enabled(effort=0):
            compiled = torch.compile(f)
        ct.reports()
        compiled(torch.randn(3, 16), torch.randn(2, 4))
    assert [r["place"] for r in ct.reports()].count("kernels") == 2


def test_collectives_that_nobody_waits_for(world):
    """In place, with an unused result. It leaves the graph in flight, or is reported as an error."""
    gm = trace(lambda x: (c10d.all_reduce_(x, "sum", world), x.new_ones(2))[1], (4,))
    before = names_of(gm)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        gm, report = ct.schedule_overlap(gm)
    gm.graph.lint()
    assert sorted(names_of(gm)) == sorted(before) or "error" in report


def test_whatever_goes_wrong_is_said_and_changes_nothing(world, monkeypatch):
    from commsched.torch import schedule
    from commsched.torch.importer import graph as importer

    monkeypatch.setenv("COMMSCHED_STRICT", "0")

    def f(x):
        return c10d.wait_tensor(c10d.all_gather_into_tensor(x, RANKS, world)) + 1

    for target, name in ((importer.Importer, "run"), (schedule, "read_plan"), (schedule, "apply_plan")):
        gm = trace(f, (4,))
        before = names_of(gm)
        with monkeypatch.context() as patch:
            patch.setattr(target, name, lambda *_, **__: {}["surprise"])
            with pytest.warns(UserWarning, match="surprise"):
                gm, report = ct.schedule_overlap(gm)
        assert "surprise" in report["error"] and names_of(gm) == before


def test_a_collective_of_eager_code_is_refused_by_name(world):
    """Only torch.compile makes functional collectives of those of torch.distributed."""

    def f(a, x):
        torch.distributed.all_reduce(a)
        return a * 2, c10d.wait_tensor(c10d.all_gather_into_tensor(x, RANKS, world))

    gm = trace(f, (4, 4), (4, 4))
    with pytest.raises(ValueError, match="allreduce_ calls c10d.allreduce_.default, a collective of eager code"):
        ct.export_mlir(gm)
