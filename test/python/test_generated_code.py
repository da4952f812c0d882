# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The generated code has the order that was decided. The tests read it off the text of the code."""

import ast
import copy
import json
import re
import warnings
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

import torch._inductor.config as ic
from conftest import trace as trace_function
from models.graphs import TraceConfig, graphs_of
from torch._guards import TracingContext, tracing
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.graph import GraphLowering
from torch._inductor.scheduler import Scheduler
from torch._inductor.utils import is_wait

import gloo
from commsched.torch import reporting
from commsched.torch.inductor import config_patches, passes, rivals
from commsched.torch.inductor.kernel_order import Kernels, is_kernel, real_name
from commsched.torch.inductor.kernels import KernelImporter
from commsched.torch.inductor.passes import direction
from commsched.torch.options import Options
from commsched.torch.trace import fake_world

START = re.compile(r"(?:(\w+) = )?torch\.ops\._c10d_functional\.(\w+)\.default\((?:\[)?(\w+)(.*)")
KERNEL = re.compile(r"extern_kernels\.|cpp_fused|torch\.ops\.(?!_c10d_functional)\w+\.")
RANKS = 8
EFFORT = 200_000  # Steps of the search: enough for orders that are worth being kept.


def in_flight(code):
    """The number of kernels between the start and the first wait of each collective of generated code."""
    started, counts, kernels = {}, {}, 0  # `started` is indexed by buffer in flight.
    for number, line in enumerate(code[code.index("def call(") :].splitlines()):
        call = START.search(line)
        element = re.match(r"\s*(\w+) = (\w+)\[\d+\]$", line)
        if element and element.group(2) in started:  # This is one result of a coalesced collective.
            started[element.group(1)] = started[element.group(2)]
        elif call is None:
            kernels += KERNEL.search(line) is not None and "_commsched" not in line
        elif call.group(2) == "wait_tensor":
            if call.group(3) in started:
                number, before = started[call.group(3)]
                counts.setdefault(number, kernels - before)
        else:
            out = re.search(r"out=(\w+)", call.group(4))
            started[out.group(1) if out else call.group(1) or call.group(3)] = number, kernels
    return list(counts.values())


@pytest.fixture(scope="module")
def graphs():
    """Forward and backward graphs of small models: attention in all, all-to-alls and topk in one, a loss that scatters
    into zeros as large as the logits in one.
    """
    with fake_world(RANKS):
        yield {
            "tiny": graphs_of(TraceConfig("tiny", RANKS)),
            "tiny-moe": graphs_of(TraceConfig("tiny-moe", RANKS, ep=RANKS)),
            "llama3-8b": graphs_of(TraceConfig("llama3-8b", RANKS, layers=2)),
        }


def generated(gm, options, **patches):
    """The code that Inductor generates for a graph, and the reports before it runs. Without `options`, CommSched is
    off.
    """
    import commsched.torch as ct

    ct.reports()
    gm = copy.deepcopy(gm)
    inputs = [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"]
    mode = next(v.fake_mode for v in inputs if isinstance(v, torch.Tensor))
    ours = {} if options is None else config_patches(Options(machine="h100-sxm", effort=EFFORT, **options))
    codes = []
    with (
        mock.patch.object(GraphLowering, "save_output_code", codes.append),
        gloo.without_kernels(),
        ic.patch({**ours, **patches}),
        tracing(TracingContext(mode)),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("error", message="CommSched")
        compile_fx_inner(gm, inputs, is_backward=direction(gm.graph) == "backward")
    return codes[0], {r["place"]: r for r in ct.reports()}


def said(code):
    """The report that generated code is going to give of itself."""
    return json.loads(ast.literal_eval(re.search(rf"{reporting.FUNCTION}\((.*)\)", code).group(1)))


@pytest.mark.parametrize("which", ["fw", "bw"])
@pytest.mark.parametrize("name", ["tiny", "tiny-moe"])
@pytest.mark.parametrize("options", [dict(bucketing=False), dict()], ids=["order", "defaults"])
def test_kernels_run_between_start_and_wait(graphs, name, which, options):
    """The code keeps what the graph's report promises, with attention, packed gathers and all-to-alls."""
    code, reports = generated(graphs[name][which], options)
    counts, report = in_flight(code), said(code)
    assert set(reports) == {"graph", "kernels"}
    assert report["collectives"] == reports["kernels"]["collectives"] == len(counts)
    assert report["adjacent"] == reports["kernels"]["adjacent"] == counts.count(0)
    assert report["holds"] and report["as_decided"] and not any(r["holds"] for r in reports.values())
    assert counts.count(0) <= 1 + len(counts) // 8, counts  # Nothing is left to run at the end of a graph.
    promised = reports["graph"]["exposed_ns"]
    assert report["exposed_ns"]["promised"] == promised["after"] < promised["before"]
    kept = promised["before"] - report["exposed_ns"]["after"]
    assert kept >= 0.9 * (promised["before"] - promised["after"])
    assert report["peak_bytes"]["after"] <= 1.1 * report["peak_bytes"]["before"]


def _costs(gm, options, kinds):
    """The costs of the kernels of these kinds: made by Inductor ("fused"), or called by it ("extern")."""
    costs, original = [], Scheduler.compute_last_usage

    def look(scheduler):  # This is the last step before code is written.
        original(scheduler)
        importer = KernelImporter(scheduler.nodes, Options(machine="h100-sxm"), RANKS)
        kernels = [s for s in scheduler.nodes if is_kernel(s) and ("extern" if s.is_extern() else "fused") in kinds]
        costs.extend(importer._cost(s) for s in kernels)

    with mock.patch.object(Scheduler, "compute_last_usage", look):
        generated(gm, options)
    return sorted(costs)


def test_dependences_that_only_order_kernels_move_no_bytes(graphs):
    gm = graphs["llama3-8b"]["fw"]
    alone = _costs(gm, None, ["extern"])
    assert len(alone) > 10 and alone == _costs(gm, dict(bucketing=False), ["extern"])


def test_a_kernel_reads_its_part_of_a_bucket():
    """A norm and a product take their weights out of a buffer that is much larger."""

    def f(x, bucket):
        normed = x * torch.rsqrt((x * x).mean(-1, keepdim=True)) * bucket[:64]
        return (normed @ bucket[64 : 64 + 4096].view(64, 64),)

    gm = trace_function(f, (8192, 64), (1 << 22,))
    (product,), (norm,) = (_costs(gm, None, [kind]) for kind in ("extern", "fused"))
    rows = 4 * 8192 * 64
    assert norm == f"#comm.cost<bytes = {2 * rows + 4 * 64}>"
    assert product == f"#comm.cost<flops = {2 * 8192 * 64 * 64}, bytes = {2 * rows + 4 * 4096}>"


def test_inductor_alone_waits_at_once(graphs):
    """This shows the possible gain, and that the counting above can fail. Without `simple_overlap`, as before 2.15."""
    off = {rivals.SIMPLE_OVERLAP: False} if rivals.simple_overlap() else {}
    for gm in graphs["tiny"].values():
        counts = in_flight(generated(gm, None, **off)[0])
        assert counts.count(0) == len(counts) > 5, counts


@pytest.mark.skipif(not rivals.simple_overlap(), reason="this version of PyTorch has no simple_overlap")
def test_simple_overlap_is_off_for_the_orders_that_we_decide_alone(graphs, monkeypatch):
    """Inductor's own pass runs over Inductor's own orders, ours over ours, and the report says which."""
    from torch._inductor import comms

    ran, simple_overlap = [], comms.simple_overlap
    monkeypatch.setattr(comms, "simple_overlap", lambda snodes: (ran.append(len(snodes)), simple_overlap(snodes))[1])
    gm, hidden = graphs["tiny"]["fw"], {}
    for options in (None, {}):
        ran.clear()
        code, _ = generated(gm, options)
        hidden[options is None] = len(in_flight(code)) - in_flight(code).count(0)
        assert bool(ran) == (options is None) and rivals.simple_overlap()
    assert said(code)["switched_off"] == "simple_overlap" and said(code)["as_decided"]
    assert hidden[True] > 0 and hidden[False] > 0
    # Without an order of ours, PyTorch's is what PyTorch makes of it. Warnings are errors in `generated`.
    monkeypatch.setenv(reporting.STRICT, "0")
    monkeypatch.setattr(reporting, "_warned", set())
    with mock.patch.object(passes, "_ordered", side_effect=reporting.Unscheduled("no order")):
        with pytest.raises(Exception, match="keep Inductor's order: no order"):
            generated(gm, {})
        assert rivals.simple_overlap() and not ran
        code, _ = generated(gm, {})  # The warning comes once.
    assert ran and "switched_off" not in said(code) and rivals.simple_overlap()


def test_a_later_change_of_the_order_is_told(graphs):
    """The report of the code describes the written code, not the decision."""

    def undo(self):  # It stands for a pass of Inductor that runs after CommSched's: every wait is early again.
        waits = [s for s in self.nodes if is_wait(s.node)]
        self.nodes = [s for s in self.nodes if s not in waits]
        for wait in waits:
            needed = {d.name for d in wait.unmet_dependencies}
            places = [i for i, s in enumerate(self.nodes) if needed & set(s.get_buffer_names())]
            self.nodes.insert(max(places) + 1, wait)

    with mock.patch.object(Scheduler, "process_grouped_nodes", undo):
        code, _ = generated(graphs["tiny"]["fw"], dict(bucketing=False))
    report = said(code)
    assert not report["as_decided"] and "exposed_ns" not in report
    assert report["adjacent"] == in_flight(code).count(0) > 1


@pytest.mark.parametrize("options", [dict(bucketing=False), dict()], ids=["order", "defaults"])
def test_the_peak_of_kernels_is_that_of_the_given_order(graphs, options):
    """Zeros as large as the logits are never in memory, and give the schedule no room."""
    peaks = []

    def look(scheduler, original=Scheduler.compute_last_usage):
        original(scheduler)
        peaks.append(Kernels(scheduler.nodes).peak(scheduler.nodes))

    gm = graphs["llama3-8b"]["bw"]
    with mock.patch.object(Scheduler, "compute_last_usage", look):
        generated(gm, None, reorder_for_peak_memory=False)
        _, reports = generated(gm, options)
    given, scheduled = peaks
    assert scheduled == reports["kernels"]["peak_bytes"]["after"] <= given + 2**20


def test_kernels_with_other_loops_follow_the_waits_that_they_read(graphs):
    """Fusion for CPUs gives a node the loops of its partner, and forgets that a wait has written what it reads."""

    def f(x, y):
        world = torch.distributed.group.WORLD.group_name
        c10d = torch.ops._c10d_functional
        landed = c10d.wait_tensor(c10d.all_gather_into_tensor(y, RANKS, world))
        reduced = c10d.wait_tensor(c10d.all_reduce(x * 2, "sum", world))
        return x + landed[:3].sum(0), torch.relu(x) + reduced

    found = []

    def look(snodes, promised):
        before = Kernels(snodes).before
        for wait in (s for s in snodes if is_wait(s.node)):
            name = real_name(wait.node.inputs[0].get_name())
            readers = [
                s for s in snodes if is_kernel(s) and any(real_name(d.name) == name for d in s.read_writes.reads)
            ]
            found.extend((len(s.get_nodes()), wait in before[s]) for s in readers)
        return ordered(snodes, promised)

    ordered = passes._ordered
    gm = trace_function(f, (8, 4), (1, 4))
    with mock.patch.object(passes, "_ordered", look):
        generated(gm, dict(bucketing=False))
    assert found == [(2, True)] * 2  # One fused kernel reads both results.
