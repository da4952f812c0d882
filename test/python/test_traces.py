# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Costs from the traces of PyTorch's profiler and of nsys, and predicted times beside measured ones."""

import json
import pathlib
import sqlite3
import struct

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist

import commsched.torch as ct
import gloo
from commsched import nsys, traces
from commsched.torch.measured import Measured

# Every product of the step has operands of its own, so that the profiler's sums are times of single calls.
WIDTHS = [(48, 40), (40, 24), (24, 56)]


def _graphs_of_step(ranks):
    """The forward graph of a step whose graphs run node by node, and a function that runs the step."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, init_device_mesh

    mesh = init_device_mesh("cpu", (ranks,))
    weights = [torch.nn.Parameter(distribute_tensor(torch.ones(s) / 8, mesh, [Shard(0)])) for s in WIDTHS]
    graphs = []

    def keep(gm, _):
        graphs.append(gm)
        return make_boxed_func(gm)

    def loss(x):
        for w in weights:
            x = (x @ w.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial("avg")])).relu()
        return x.square().mean()

    compiled = torch.compile(loss, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep))

    def step():
        compiled(torch.ones(16, WIDTHS[0][0])).backward()

    step()
    return graphs[0], step


def _profiled(step, path):
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        step()
    profiler.export_chrome_trace(str(path))
    return {(row.key, str(row.input_shapes)): row for row in profiler.key_averages(group_by_input_shape=True)}


def _entries(profile, name):
    return {tuple(op["shapes"]): op for op in profile["ops"] if op["name"] == name}


def _products_are_the_profilers(profile, sums):
    """The times of all products are those that PyTorch's own averages add up."""
    entries = _entries(profile, "aten.mm")
    truth = {shapes: row for (key, shapes), row in sums.items() if key == "aten::mm"}
    assert len(truth) == len(entries) == 3 * len(WIDTHS) - 1  # The first layer's input needs no gradient.
    for shapes, row in truth.items():
        dims = tuple("x".join(map(str, s)) + "xf32" for s in json.loads(shapes))
        assert row.count == entries[dims]["n"] == 1
        assert entries[dims]["ns"] == pytest.approx(1000 * row.cpu_time_total, abs=1)


def _collectives_are_the_profilers(profile, sums, ranks):
    """A gather takes as long as on the rank that waits least for the others."""
    everyone = [None] * ranks
    own = {shapes: row.cpu_time_total for (key, shapes), row in sums.items() if key == "gloo:all_gather"}
    dist.all_gather_object(everyone, own)
    (table,) = [t for t in profile["collectives"] if t["kind"] == "all_gather" and t["element"] == "f32"]
    points = {p["bytes"]: p["ns"] for p in table["points"]}
    assert (table["ranks"], table["nodes"], len(points)) == (ranks, 1, len(WIDTHS))
    for shapes in own:
        (rows, columns), *_ = json.loads(shapes)
        least = min(times[shapes] for times in everyone)
        assert points[4 * ranks * rows * columns] == pytest.approx(1000 * least, abs=1)


def _of_real_traces(rank, ranks, folder):
    graph, step = _graphs_of_step(ranks)
    own = pathlib.Path(folder, f"rank{rank}.json")
    sums = _profiled(step, own)
    dist.barrier()
    files = [str(pathlib.Path(folder, f"rank{r}.json")) for r in range(ranks)]
    _products_are_the_profilers(json.loads(traces.profile_from_traces([own]).read_text()), sums)
    profile = json.loads(traces.profile_from_traces(files).read_text())
    _collectives_are_the_profilers(profile, sums, ranks)
    machine = f"profile:{','.join(files)}"
    _, report = ct.schedule_overlap(graph, machine=machine, fusion=False, bucketing=False)
    times = report["cost_times_ns"]
    assert times["measured"] >= 0.99 * sum(times.values()) > 0 and times["unknown"] == 0
    assert {r["known_from"] for r in report["per_operation"] if r["name"] == "aten.mm.default"} == {"measured"}
    gathers = {4 * ranks * (r // ranks) * c for r, c in WIDTHS}
    assert {r["bytes"] for r in report["per_collective"] if r["kind"] == "all_gather"} >= gathers
    # What such a schedule predicts of operators is what was measured. A curve of collectives never falls with bytes.
    rows = [r for r in Measured(profile).compared(report) if r.name.startswith("aten.")]
    assert rows and all(r.off == 0 and r.measured is not None for r in rows)
    # One that knows nothing of the traces is off by their difference.
    fresh, _ = _graphs_of_step(ranks)
    _, plain = ct.schedule_overlap(fresh, machine="cpu-mpi", fusion=False, bucketing=False)
    rows = {(r.name, r.what): r for r in Measured(profile).compared(plain)}
    for shapes, entry in _entries(profile, "aten.mm").items():
        if row := rows.get(("aten.mm.default", ", ".join(shapes[:2]))):
            assert row.measured == entry["ns"] and row.off == row.count * (entry["ns"] - row.predicted)
    assert sum(r.measured is not None for r in rows.values()) >= 2 * len(WIDTHS)


def test_times_are_those_of_the_profiler(tmp_path, monkeypatch):
    monkeypatch.setenv("COMMSCHED_CALIBRATION_CACHE", str(tmp_path / "cache"))
    gloo.run(2, _of_real_traces, str(tmp_path))


def test_a_report_has_the_measured_times(tmp_path, monkeypatch):
    from commsched.torch import reporting

    monkeypatch.setenv("COMMSCHED_CALIBRATION_CACHE", str(tmp_path / "cache"))
    path = _kineto(tmp_path / "rank0.json", [("aten::mm", 12.5, [[64, 64], [64, 64]], ["float"] * 2)])
    row = {"name": "aten.mm.default", "operands": ["64x64xf32"] * 2, "results": ["64x64xf32"], "count": 3}
    other = {"name": "aten.exp.default", "operands": ["64x64xf32"], "results": ["64x64xf32"], "count": 1}
    graph = {"place": "graph", "direction": "forward", "collectives": 0, "per_collective": []}
    graph["per_operation"] = [{**other, "cost_ns": 10_000}, {**row, "cost_ns": 30_000}]
    monkeypatch.setattr(reporting, "_all_reports", [graph])
    report = ct.report(path)
    text = str(report)
    assert "forward graph: 75.0 % of 40 us are in the traces: 30 us predicted, 37.5 us measured" in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "aten.mm.default 64x64xf32, 64x64xf32 3 10 us 12.5 us +25.0 %" in lines
    assert "aten.exp.default 64x64xf32 1 10 us not in the traces" in lines
    assert "<td>12.5 us</td>" in report.html
    assert "12.5 us" not in str(ct.report())


def _kineto(path, operators):
    """A trace of these operators on the host: name, us, dimensions and types."""
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 100.0 * i, "dur": dur,
         "args": {"External id": i, "Input Dims": dims, "Input type": types}}
        for i, (name, dur, dims, types) in enumerate(operators)
    ]  # fmt: skip
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}))
    return str(path)


@pytest.mark.parametrize(
    "machine, text",
    [
        ("profile:", "expected files behind 'profile:', got 'profile:'"),
        ("profile:{}/nowhere.json", "nowhere.json': no such file"),
        ("profile:{}/cut.json", r"cut.json': \[1:"),
        ("profile:{}/fdo.pbtxt", "expected the name of a base profile, since PGLE does not name the device"),
        ("profile:{}/gpu.json", "expected the name of a base profile, since there is none for 'Vector Engine'"),
        ("profile:{}/rank0.json@no-such", "machine 'no-such'"),
    ],
)
def test_what_cannot_be_read_is_an_error(machine, text, tmp_path, monkeypatch):
    monkeypatch.setenv("COMMSCHED_CALIBRATION_CACHE", str(tmp_path / "cache"))
    path = _kineto(tmp_path / "rank0.json", [("aten::mm", 12.5, [[64, 64], [64, 64]], ["float"] * 2)])
    whole = pathlib.Path(path).read_text()
    (tmp_path / "cut.json").write_text(whole[:100])
    (tmp_path / "gpu.json").write_text(
        whole.replace('"deviceProperties": []', '"deviceProperties": [{"name": "Vector Engine"}]')
    )
    (tmp_path / "fdo.pbtxt").write_text('costs { name: "fusion.1" cost_us: 5 }\n')
    with pytest.raises(ValueError, match=text):
        ct.inductor_options(machine=machine.format(tmp_path))
    assert not list(tmp_path.glob("cache/traced-*"))


def _export(path, ranges, kernels, devices=("NVIDIA H100 80GB HBM3",)):
    """An export of nsys, by the documented schema: ranges as (start, end, text), kernels as (start, end, launched)."""
    thread, process = (7 << 24) + 9, 7 << 24
    with sqlite3.connect(path) as database:
        database.executescript("""
            CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
            CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
            CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT,
                                      globalTid INTEGER, textId INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER,
                                                      correlationId INTEGER, nameId INTEGER NOT NULL);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
                                                     deviceId INTEGER NOT NULL, correlationId INTEGER,
                                                     globalPid INTEGER, shortName INTEGER NOT NULL);
        """)
        database.executemany("INSERT INTO TARGET_INFO_GPU VALUES (?, ?)", enumerate(devices))
        database.execute("INSERT INTO StringIds VALUES (1, 'a_kernel')")
        for number, (start, end, text) in enumerate(ranges, start=2):
            database.execute("INSERT INTO StringIds VALUES (?, ?)", (number, text))
            # Registered strings are in the other table.
            own, registered = (None, number) if number % 2 else (text, None)
            database.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, ?)", (start, end, own, thread, registered)
            )
        for number, (start, end, launched) in enumerate(kernels):
            call = (launched, launched + 1, thread, number, 1)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", call)
            kernel = (start, end, 0, number, process, 1)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?)", kernel)
    database.close()
    return str(path)


def test_an_export_of_nsys_with_operators(tmp_path, monkeypatch):
    """Kernels count for the operators around their launch, although they run later."""
    monkeypatch.setenv("COMMSCHED_CALIBRATION_CACHE", str(tmp_path / "cache"))
    ranges = [
        (0, 10_000, "aten::linear, seq = 3, sizes = [[64, 64], [64, 64], []]"),
        (1000, 5000, "aten::mm, op_id = 12, sizes = [[64, 64], [64, 64]], input_op_ids = [[11,0]]"),
        (20_000, 30_000, "aten::view, seq = 4, sizes = [[64, 64], []]"),
        (40_000, 50_000, "aten::cat, sizes = [[], []]"),
        (60_000, 70_000, "my range"),
    ]
    kernels = [
        (100_000, 120_000, 2000),
        (130_000, 137_000, 6000),
        (140_000, 141_000, 65_000),
        (150_000, 151_000, 80_000),
    ]
    export = _export(tmp_path / "report.sqlite", ranges, kernels)
    profile = json.loads(traces.profile_from_traces([export]).read_text())
    ops = {op["name"]: op for op in profile["ops"]}
    assert ops["aten.mm"]["shapes"] == ["64x64", "64x64"] and ops["aten.mm"]["ns"] == 20_000
    assert ops["aten.linear"]["ns"] == 27_000  # With that of the operator in it.
    assert "aten.view" not in ops and "aten.cat" not in ops
    assert profile["node"]["ranks"] == 8 and "H100" in profile["description"] + profile["name"] + json.dumps(profile)
    row = {"name": "aten.mm.default", "operands": ["64x64xbf16"] * 2, "results": ["64x64xbf16"]}
    assert Measured(profile).operation(row) == 20_000


def test_an_export_of_nsys_with_instructions(tmp_path):
    ranges = [
        (0, 100_000, "TSL:XlaModule:#hlo_module=jit_step,program_id=1#"),
        (1000, 5000, "TSL:Thunk:#name=jit(step)/dot,hlo_op=gemm_fusion.1,unique_hlo_op_id=4#"),
        (6000, 9000, "TSL:Thunk:#hlo_op=all-gather-start.2#"),
        (11_000, 15_000, "TSL:Thunk:#name=jit(step)/dot,hlo_op=gemm_fusion.1,unique_hlo_op_id=4#"),
    ]
    kernels = [(20_000, 30_000, 2000), (30_000, 32_000, 3000), (40_000, 90_000, 7000), (95_000, 115_000, 12_000)]
    text = nsys.convert(_export(tmp_path / "report.sqlite", ranges, kernels))
    assert text.splitlines() == [
        'costs { name: "gemm_fusion.1" cost_us: 12.000 }',
        'costs { name: "all-gather-start.2" cost_us: 50.000 }',
        'costs { name: "gemm_fusion.1" cost_us: 20.000 }',
    ]


def test_a_serialized_profile_is_what_jaxlib_writes(tmp_path, monkeypatch):
    """The encoder is jaxlib's: it reads two profiles and writes the median of each instruction."""
    profiler = pytest.importorskip("jax._src.lib", reason="jax is not installed")._profiler
    monkeypatch.setenv("COMMSCHED_CALIBRATION_CACHE", str(tmp_path / "cache"))

    def serialized(us):
        cost = b"\x0a\x08fusion.1\x11" + struct.pack("<d", us)
        return b"\x0a" + bytes([len(cost)]) + cost

    path = tmp_path / "fdo.pb"
    path.write_bytes(profiler.aggregate_profiled_instructions([serialized(us) for us in (10.0, 12.5, 40.0)], 50))
    profile = json.loads(traces.profile_from_traces([path], "h100-sxm").read_text())
    assert [(op["name"], op["ns"]) for op in profile["ops"]] == [("fusion.1", 12_500)]


@pytest.mark.parametrize("fault", ["cut", "no kernels", "no ranges", "backwards"])
def test_what_is_no_export_is_an_error(fault, tmp_path, capsys):
    ranges = [(0, 10, "my range")] if fault == "no ranges" else [(0, 10, "aten::mm, sizes = [[4, 4], [4, 4]]")]
    path = pathlib.Path(_export(tmp_path / "report.sqlite", ranges, [(9, 5, 1)] if fault == "backwards" else []))
    if fault == "cut":
        path.write_bytes(path.read_bytes()[:5000])
    if fault == "no kernels":
        with sqlite3.connect(path) as database:
            database.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
        database.close()
    output = tmp_path / "trace.json"
    assert nsys.main([str(path), "-o", str(output)]) == 1
    expected = {
        "cut": "malformed",
        "no kernels": "expected a table CUPTI_ACTIVITY_KIND_KERNEL, got none",
        "no ranges": "expected ranges of XLA, or of PyTorch's emit_nvtx(record_shapes=True), got 1 others",
        "backwards": "CUPTI_ACTIVITY_KIND_KERNEL, row 1: expected an end behind the start at 9, got 5",
    }
    assert f"error: {path}: " in (said := capsys.readouterr().err) and expected[fault] in said
    assert list(tmp_path.iterdir()) == [path]
