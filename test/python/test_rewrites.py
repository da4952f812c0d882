# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Passes that rewrite operations have their effect in FX graphs, or are refused by name, and nothing is half done."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import pytest

torch = pytest.importorskip("torch")

from conftest import RANKS, trace
from fsdp_graphs import Builder, Counting, unsharded_layers

import commsched
import commsched.torch as ct
import gloo
from commsched.torch import reporting
from commsched.torch.options import Options
from commsched.torch.reporting import Unscheduled, function_report
from commsched.torch.stages import ORDERING, REWRITING, name_of

aten, c10d, fsdp = torch.ops.aten, torch.ops._c10d_functional, torch.ops.fsdp
_HEADING = re.compile(r"(?m)^### `-([a-z-]+)`$")
MEASURED = ("makespan_ns", "exposed_ns", "peak_bytes")
REMOVE, REINPLACE = "comm-remove-unsharded-param-usage", "comm-reinplace-all-gather"


def targets_of(gm):
    return [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]


def described(gm):
    return [(n.name, str(n.target), str(n.args), str(n.kwargs)) for n in gm.graph.nodes]


@pytest.mark.parametrize("rounds", [1, 2])
def test_unsharded_parameters_are_used_in_place(world, rounds):
    gm = unsharded_layers(world, RANKS, 0, rounds=rounds)
    gm, report = ct.schedule_overlap(gm, passes=[REMOVE])
    targets = targets_of(gm)
    assert not any("resize_storage" in t or "fsdp.copy_" in t for t in targets)
    parameters = [n for n in gm.graph.nodes if n.op == "placeholder" and n.name.startswith("param")]
    assert not any(p.users for p in parameters)
    for node in gm.graph.find_nodes(op="call_function", target=aten.t.default):
        storage = node.args[0].meta["val"].untyped_storage()._cdata
        assert node.meta["val"].untyped_storage()._cdata == storage  # Views have the storage of what they read now.
    (row,) = report["rewrites"]
    assert row["pass"] == REMOVE and row["replaced_operands"] == 4 * rounds and row["erased"] == 12 * rounds


def test_gathers_write_the_buffer_of_their_copy_in(world):
    gm, report = ct.schedule_overlap(unsharded_layers(world, RANKS, 0), passes=[REINPLACE])
    starts = gm.graph.find_nodes(op="call_function", target=c10d.all_gather_into_tensor_out.default)
    assert len(starts) == 2 and not gm.graph.find_nodes(op="call_function", target=c10d.all_gather_into_tensor.default)
    for start in starts:
        copy_in = start.kwargs["out"].args[0]
        assert copy_in.target is fsdp.all_gather_copy_in.default and start.kwargs["out"].args[1] == 1
        assert copy_in is start.args[0].args[0]
    assert report["rewrites"][0]["destinations"] == 2
    assert report["peak_bytes"]["after"] <= report["peak_bytes"]["before"]


def test_rewrites_and_orders_follow_each_other(world):
    """The graph is scheduled behind the rewrites, and one report tells of both."""
    given = unsharded_layers(world, RANKS, 0, layers=3, width=64)
    gm, report = ct.schedule_overlap(given, passes=[REMOVE, REINPLACE, "comm-schedule"], memory_budget_ratio=2.0)
    assert [row["pass"] for row in report["rewrites"]] == [REMOVE, REINPLACE]
    names = [n.name for n in gm.graph.nodes if n.op == "call_function"]
    starts = [i for i, n in enumerate(names) if n.startswith("all_gather_into_tensor")]
    assert starts[1] < names.index(
        "mm_default_1"
    )  # The second gather is behind the computation of the first layer before.
    before = ct.schedule_overlap(unsharded_layers(world, RANKS, 0, layers=3, width=64), passes=["comm-report"])[1]
    after = ct.schedule_overlap(gm, passes=["comm-report"])[1]
    for name in ("makespan_ns", "exposed_ns", "peak_bytes"):
        assert report[name]["before"] == before[name]["after"]
        assert report[name]["after"] == after[name]["after"]


def test_copies_into_parameters_that_always_exist_stay_for_the_caller(world):
    gm, report = ct.schedule_overlap(unsharded_layers(world, RANKS, 0, rounds=2, resizes=False), passes=[REMOVE])
    copies = gm.graph.find_nodes(op="call_function", target=fsdp.copy_.default)
    assert len(copies) == 4  # Of each parameter, the last one.
    assert report["rewrites"][0]["erased"] == 4 and report["rewrites"][0]["replaced_operands"] == 8


def test_what_a_pass_leaves_alone_is_said(world):
    gm = unsharded_layers(world, RANKS, 0)
    resizes = gm.graph.find_nodes(op="call_function", target=torch.ops.inductor.resize_storage_bytes_.default)
    gm.graph.erase_node(resizes[-1])
    gm, report = ct.schedule_overlap(gm, passes=[REMOVE])
    (row,) = report["rewrites"]
    assert row["replaced_operands"] == 3  # The other three parameters.
    assert "nothing takes the storage away again" in str(row["left_alone"])


def _on_ranks(rank, ranks):
    group = torch.distributed.group.WORLD.group_name
    torch.manual_seed(0)
    width, layers = 16, 3
    x = torch.randn(4, width)
    weights = [torch.randn(width, width) for _ in range(2 * layers)]
    rows = width // ranks
    results, peaks = [], []
    for passes in ([], [REMOVE], [REINPLACE], [REMOVE, REINPLACE], [REMOVE, REINPLACE, "comm-schedule"]):
        gm = unsharded_layers(group, ranks, rank, layers, width)
        if passes:
            gm, report = ct.schedule_overlap(gm, machine="cpu-mpi", passes=passes, bucketing=False)
            assert "error" not in report
        parameters = [torch.empty(width, width) for _ in weights]
        for parameter in parameters:
            parameter.untyped_storage().resize_(0)
        run = Counting(gm)
        results.append(run.run(x, *[w[rank * rows : (rank + 1) * rows].clone() for w in weights], *parameters)[0])
        assert all(p.untyped_storage().nbytes() == 0 for p in parameters)
        peaks.append(run.peak)
    assert all(torch.equal(results[0], r) for r in results[1:])
    expected = x
    for w in weights:
        expected = torch.tanh(expected @ w.T)
    torch.testing.assert_close(results[0], expected)
    given, removed, reinplaced, both, scheduled = peaks
    assert removed <= given and reinplaced < given and both <= reinplaced and scheduled <= reinplaced
    if rank == 0:
        print(f"{ranks} ranks: peaks of storages: {peaks} bytes")


@pytest.mark.parametrize("ranks", [2, 4])
def test_rewritten_graphs_compute_the_same_bits_in_less_memory(ranks):
    gloo.run(ranks, _on_ranks)


def schedules_alike(gm, passes, **options):
    """Compares what FX holds after `passes` with what comm-opt makes of the imported graph, and returns the report.

    Both are measured by comm-report. Orders are compared by the names of all nodes, and buckets by what they send. The
    copies out of merged gathers are one operation there and one per member here, so that this takes longer.
    """
    # comm-opt knows nothing of PyTorch's own costs, which count with any other objective.
    if "comm-schedule" in passes:
        options = {"objective": "makespan", **options}
    settings = Options(machine="h100-sxm", passes=passes, **options)
    program = commsched.Program(ct.export_mlir(gm))
    program.run(settings.pipeline())
    operations = program.operations()["main"]
    wanted = measured(program.print(locations=True))
    out, report = ct.schedule_overlap(gm, machine="h100-sxm", passes=passes, **options)
    assert "error" not in report, report["error"]
    out.graph.lint()
    text = ct.export_mlir(out)
    got = measured(text)
    merged = any("all_gather_copy_in" in op.opcode and len(op.names) > 1 for op in operations)
    for name in MEASURED:
        if name in wanted:
            # Where gathers are merged, the solver has one kernel for copies that the graph has one by one.
            either = {got[name]["after"], wanted[name]["after"]}
            assert report[name]["after"] in either and (merged or len(either) == 1), name
    assert got["makespan_ns"]["after"] >= wanted["makespan_ns"]["after"]
    assert [communication(r) for r in got["per_collective"]] == [communication(r) for r in wanted["per_collective"]]
    if not report.get("buckets"):
        names = {n.name for n in out.graph.nodes}
        order = [op.names for op in operations if names.issuperset(op.names)]
        kept = [op.names for op in commsched.Program(text).operations()["main"] if names.issuperset(op.names)]
        assert order == kept
    return report


def communication(row):
    return row["kind"], row["group"], row["bytes"]


def measured(text):
    """The fields of a function in comm-report's report of a module."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "report.json")
        commsched.Program(text).run(f"comm-report{{machine=h100-sxm report-file={file} table=false}}")
        return function_report(file)


def all_passes():
    """The names of all passes of this project, from the pages that are generated of them."""
    pages = pathlib.Path(__file__).resolve().parents[2] / "docs" / "generated"
    names = [
        n
        for page in ("TransformsPasses.md", "ConversionPasses.md")
        for n in _HEADING.findall((pages / page).read_text())
    ]
    assert len(names) > 20
    return names


def sharded(world):
    def f(x, *shards):
        for shard in shards:
            whole = c10d.wait_tensor(c10d.all_gather_into_tensor(shard.to(torch.bfloat16), RANKS, world))
            x = torch.relu(x @ whole)
        return x

    return trace(f, (64, 256), *[(256 // RANKS, 256)] * 4)


def gradients(world):
    def f(x, y, z):
        first = c10d.wait_tensor(c10d.reduce_scatter_tensor(x @ y, "sum", RANKS, world))
        second = c10d.wait_tensor(c10d.reduce_scatter_tensor(x @ z, "sum", RANKS, world))
        third = c10d.wait_tensor(c10d.all_reduce(y @ z, "avg", world))
        return first + 1, second.cos(), third * 2

    return trace(f, *[(512, 512)] * 3)


def exchanges(world):
    def f(x, w):
        sent = c10d.wait_tensor(c10d.all_to_all_single(x, [8] * RANKS, [8] * RANKS, world))
        y = torch.relu(x @ w)
        return sent @ w + c10d.wait_tensor(c10d.all_reduce(y, "sum", world))

    return trace(f, (64, 64), (64, 64))


GRAPHS = {
    "sharded": sharded,
    "gradients": gradients,
    "exchanges": exchanges,
    "unsharded": lambda world: unsharded_layers(world, RANKS, 0, layers=3, width=256),
    "reused": lambda world: unsharded_layers(world, RANKS, 0, layers=2, width=64, rounds=2),
    "kept": lambda world: unsharded_layers(world, RANKS, 0, layers=2, width=64, rounds=2, resizes=False),
}


@pytest.mark.parametrize("name", sorted(ORDERING | REWRITING))
@pytest.mark.parametrize("graph", GRAPHS)
def test_each_pass_has_its_effect(world, tmp_path, graph, name):
    own = {
        "comm-pareto": f"{{file={tmp_path / 'curve.json'} limits=3}}",
        "comm-export-chakra": f"{{directory={tmp_path / 'traces'}}}",
    }
    entry = name + own.get(name, "")
    schedules_alike(GRAPHS[graph](world), [entry], memory_budget_ratio=20.0)


def test_all_other_passes_are_refused_by_name():
    """Nothing runs before: the options themselves are refused."""
    names = {*all_passes()}
    assert names > ORDERING | REWRITING
    for name in names - ORDERING - REWRITING:
        for entry in (name, f"func.func({name})", f"builtin.module(cse,{name}{{machine=cpu-mpi}})"):
            with pytest.raises(ValueError, match=f"passes: {name} has no effect that an FX graph can hold"):
                Options(passes=["comm-schedule", entry])


def raised(program):
    """A function of the user: any pass, run over the program."""
    program.run("comm-raise")


def as_text(program):
    """The same, by way of text. A new program holds other objects, and the same locations."""
    raised(program)
    return program.print(locations=True)


class Bucketing:
    """A pass as an object, which returns a new program."""

    def __call__(self, program):
        program.run("comm-bucket{form=coalesced}")
        return commsched.Program(program.bytecode())


def removed(program):
    program.run(REMOVE)


@pytest.mark.parametrize("graph", ["sharded", "unsharded"])
@pytest.mark.parametrize(
    "function, name",
    [(raised, "comm-raise"), (as_text, "comm-raise"), (Bucketing(), "comm-bucket{form=coalesced}"), (removed, REMOVE)],
)
def test_a_function_of_a_program_is_a_pass(world, graph, function, name):
    gm, report = ct.schedule_overlap(GRAPHS[graph](world), passes=[function], memory_budget_ratio=20.0)
    wanted, expected = ct.schedule_overlap(GRAPHS[graph](world), passes=[name], memory_budget_ratio=20.0)
    assert described(gm) == described(wanted)
    for field in MEASURED:
        assert report[field]["after"] == expected[field]["after"]
    assert report["rewrites"][0]["pass"].startswith("test_rewrites.")


def test_functions_and_passes_run_in_the_given_order(world):
    seen = []

    def look(program):
        seen.append([op.opcode for op in program.operations()["main"]])

    passes = [look, "comm-raise", look, REMOVE, look]
    ct.schedule_overlap(GRAPHS["unsharded"](world), passes=passes, memory_budget_ratio=20.0)
    assert sorted(seen[0]) == sorted(seen[1]) and seen[0] != seen[1]
    assert "comm.resize_storage" in seen[1] and "comm.resize_storage" not in seen[2]


def rewritten(old, new, count=1):
    """A function of a program that edits its text."""

    def edit(program):
        text = program.print(locations=True)
        assert old in text, text
        return text.replace(old, new, count)

    return edit


def without(opcode):
    """A function of a program that takes the operations of a name out of it."""

    def edit(program):
        return "\n".join(line for line in program.print(locations=True).splitlines() if opcode not in line)

    return edit


def plus(world):
    def f(x, y):
        a, b = x + 1, x + 2
        return c10d.wait_tensor(c10d.all_reduce(a * b, "sum", world)) @ y

    return trace(f, (8, 8), (8, 8))


def copied_and_written(world):
    """What is copied into the parameter is written before the parameter is read."""
    b = Builder()
    p, v = b.placeholder("p", 8), b.placeholder("v", 8)
    b.call(fsdp.copy_.default, p, v)
    written = b.call(aten.add_.Tensor, v, 1)
    y = b.call(aten.mul.Tensor, written, p)
    start = b.call(c10d.all_reduce.default, y, "sum", world)
    return b.module(b.call(c10d.wait_tensor.default, start))


def read_buffer(world):
    """Somebody reads the buffer of a copy-in behind the gather."""
    b = Builder()
    shard = b.placeholder("shard", 16)
    whole = b.call(aten.empty.memory_format, [16 * RANKS], dtype=torch.float32, device="cpu", pin_memory=False)
    packed = b.call(fsdp.all_gather_copy_in.default, [shard], whole, [16], 16, 0)
    start = b.call(c10d.all_gather_into_tensor.default, b.element(packed, 0), RANKS, world)
    landed = b.call(c10d.wait_tensor.default, start)
    return b.module(b.call(aten.add.Tensor, landed, b.element(packed, 1)))


def raises(program):
    raise LookupError("nothing is here")


REFUSALS = {
    "a new operation": (
        plus,
        lambda p: p.print(locations=True).replace("    return", '    comm.compute "new"() : () -> ()\n    return'),
        "cannot hold the new operation comm.compute",
    ),
    "sums in one shot": (
        plus,
        lambda p: p.run("comm-realize-buffers{symmetric=false}"),
        "cannot hold one_shot",
    ),
    "symmetric memory": (
        sharded,
        lambda p: p.run("comm-realize-buffers{one-shot-threshold-bytes=0}"),
        "cannot hold comm.symmetric",
    ),
    "streams": (plus, lambda p: p.run("comm-multi-stream{gate=false}"), "cannot hold comm.stream"),
    "another reduction": (
        plus,
        rewritten("comm.all_reduce sum", "comm.all_reduce max"),
        "cannot hold other attributes of comm.all_reduce",
    ),
    "another operand": (plus, rewritten('"aten.mul.Tensor"(%0, %1)', '"aten.mul.Tensor"(%0, %0)'), "nothing says that"),
    "a value that is written in between": (
        copied_and_written,
        rewritten('"aten.mul.Tensor"(%0, %arg0)', '"aten.mul.Tensor"(%0, %arg1)'),
        "add__tensor writes p or v before mul_tensor",
    ),
    "a buffer that somebody reads": (
        read_buffer,
        rewritten("comm.all_gather %slice on", "comm.all_gather %slice into %buffer on"),
        "add_tensor reads the buffer that all_gather_into_tensor_default is to write",
    ),
    "an effect that is gone": (
        lambda w: unsharded_layers(w, RANKS, 0),
        without("comm.fsdp.copy "),
        "storage|reads what",
    ),
    "half of the resizes": (
        lambda w: unsharded_layers(w, RANKS, 0),
        without(" to 0 : "),
        "uses the parameter param_0_0, whose storage would not exist",
    ),
    "an exception": (plus, raises, "LookupError: nothing is here"),
    "an object of another kind": (plus, lambda p: 3, "expected a Program, its text or None, got int"),
    "text that is not a module": (plus, lambda p: "what is this", "custom op 'what' is unknown"),
    "another function": (plus, rewritten("@main", "@other"), "expected the function 'main'"),
    "a pass that is not registered": (plus, "no-such-pass", "no-such-pass"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_a_graph_cannot_hold_is_refused_and_nothing_is_half_done(world, monkeypatch, case):
    """The first pass of the list has its effect before the second one is refused. It is undone as well."""
    graph, entry, reason = REFUSALS[case]
    gm = graph(world)
    before = described(gm)
    monkeypatch.setenv("COMMSCHED_STRICT", "0")
    with pytest.warns(UserWarning, match="left the graph as it was"):
        gm, report = ct.schedule_overlap(gm, passes=["comm-raise", entry, "comm-raise"], memory_budget_ratio=20.0)
    assert re.search(reason, report["error"]), report["error"]
    assert name_of(entry) in report["error"]
    assert described(gm) == before
    gm.graph.lint()


def test_passes_of_mlir_run_too(world):
    """Nothing is equal in these graphs, and nothing useless, so the passes change nothing."""
    gm = GRAPHS["sharded"](world)
    before = described(gm)
    gm, report = ct.schedule_overlap(gm, passes=["cse", "func.func(canonicalize)"])
    assert described(gm) == before
    assert [row["pass"] for row in report["rewrites"]] == ["cse", "func.func(canonicalize)"]


def test_a_schedule_above_the_limit_names_its_passes(world):
    with pytest.raises(Unscheduled, match="the schedule of comm-raise was refused: expected a peak within the limit"):
        ct.schedule_overlap(GRAPHS["sharded"](world), passes=["comm-raise"])


def _compiled(rank, ranks):
    """A function is a pass inside torch.compile, too."""
    loss, step = gloo.sharded_step(ranks, layers=3, width=16)
    x = torch.ones(4, 16) + rank
    expected = step(loss, x)
    ct.reports()
    options = ct.inductor_options(machine="cpu-mpi", passes=[raised, "comm-verify"], memory_budget_ratio=20.0)
    aten = dict(fallback_by_default=True, fx_graph_cache=False, reorder_for_peak_memory=False)
    got = step(torch.compile(loss, options={**options, **aten}), x)
    assert all(torch.equal(a, b) for a, b in zip(got, expected))
    graphs = [r for r in ct.reports() if r["place"] == "graph"]
    assert len(graphs) == 2 and all(r["rewrites"][0]["pass"] == "test_rewrites.raised" for r in graphs)
    assert all(r["exposed_ns"]["after"] <= r["exposed_ns"]["before"] for r in graphs)


def test_a_function_is_a_pass_inside_torch_compile():
    gloo.run(2, _compiled)


def test_code_made_with_a_function_is_not_kept_in_a_cache():
    assert Options(passes=[raised]).key() is None
    assert Options(passes=[raised]).agreed_key() != Options(passes=[removed]).agreed_key()
    with pytest.raises(ValueError, match="passes: expected a list of passes"):
        Options(passes=raised)
    with pytest.raises(ValueError, match="expected names of passes, or functions of a Program, got 3"):
        Options(passes=[3])


LISTED = """
import torch, conftest, test_rewrites
import commsched.torch as ct
with conftest.fake_world(8):
    graph = test_rewrites.GRAPHS["unsharded"](torch.distributed.group.WORLD.group_name)
    ct.schedule_overlap(graph, passes=%r, memory_budget_ratio=20.0)
"""


def test_torch_logs_list_schedules(world):
    """TORCH_LOGS=overlap lists schedules, and no measurements. Without it, nothing is listed."""
    assert not reporting.wants_listing()
    passes = [REMOVE, "comm-raise", "comm-sink-waits"]
    run = [sys.executable, "-c", LISTED % passes]
    environment = {**os.environ, "TORCH_LOGS": "overlap", "PYTHONPATH": os.path.dirname(__file__)}
    text = subprocess.run(run, env=environment, check=True, capture_output=True, text=True).stderr
    text = "\n".join(re.findall(r"(?m)\[__overlap\] (.*)$", text))
    assert re.findall(r"(?m)^(comm-\S+) of main: moved", text) == passes[1:]
    steps = re.findall(r"(?m)^ *(\d+): (\| )?(\S+)", text)
    assert steps and [int(step) for step, _, _ in steps] == list(range(len(steps)))
    assert any(bar and kind == "aten.mm.default" for _, bar, kind in steps)
    assert not any(bar for _, bar, kind in steps if kind.startswith(("comm.wait", "comm.all_gather ")))
