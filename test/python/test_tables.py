# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What tools print as tables they also write as JSON, with the same figures, as the schemas say.

Printed times have three digits. A figure of the JSON has to be what a printed one is rounded from.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import commsched_tools
import jsonschema
import pytest

from commsched.exposed.__main__ import main

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
FSDP = ROOT / "docs/examples/two_layer_fsdp.mlir"
STEP = """comm.group @dp #comm.ranks<[[0, 1]]>
func.func @step(%x: tensor<512xf32>) -> tensor<1024xf32> {
  %g = comm.all_gather %x on @dp : (tensor<512xf32>) -> !comm.future<tensor<1024xf32>>
  %full = comm.wait %g : !comm.future<tensor<1024xf32>>
  return %full : tensor<1024xf32>
}
"""


def run(folder, tool, *arguments, code=0):
    """Standard output and standard error of a tool, which has to end with this code."""
    command = [commsched_tools.find(tool)] if tool != "commsched-verify" else [sys.executable, "-m", "commsched_verify"]
    done = subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == code, (done.returncode, done.stderr)
    return done.stdout, done.stderr


def shows(printed, value, units):
    """Whether a printed figure, such as "25.8 us", is rounded from a value."""
    number, unit = printed.split()
    last = 10.0 ** -len(number.partition(".")[2]) * units[unit]
    return abs(float(number) * units[unit] - value) <= last / 2 + 1e-6


def check_schema(name, document):
    """The document is as the schema says, and has no fields that the schema does not list."""

    def closed(part):
        if isinstance(part, list):
            return [closed(each) for each in part]
        if not isinstance(part, dict):
            return part
        result = {key: closed(value) for key, value in part.items()}
        return {"additionalProperties": False, **result} if "properties" in result else result

    schema = json.loads((ROOT / "schemas" / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator(closed(schema)).validate(document)
    return document


def read(path, name):
    return check_schema(name, json.loads(path.read_text()))


# --- commsched-verify ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    path = tmp_path_factory.mktemp("certificate") / "step.cert"
    options = ["--reorder-comm-overlap=effort=2000", f"--comm-certificate={path}", "-o", os.devnull]
    run(path.parent, "comm-opt", FSDP, *options)
    return path


def forged(certificate, path, edit):
    header, block = map(json.loads, certificate.read_text().splitlines())
    edit(header, block)
    path.write_text(json.dumps(header) + "\n" + json.dumps(block) + "\n")
    return path


def verdict_lines(block):
    """What the checker prints of a block that is wholly checked, made of its JSON."""
    yield f"{block['name']}: proven: the answer keeps {block['dependences']} dependences of {block['nodes']} nodes;"
    size = f"its peak {block['peak_bytes']} bytes, within the limit of {block['limit_bytes']};"
    yield f"  its makespan is {block['makespan_ns']} ns and {size}"
    regret = f", and at most {block['regret_percent']:.2f} % if collectives take 0.75 to 2 times as long"
    gap = f"so it is at most {block['gap_percent']:.2f} % from optimal{regret}"
    yield f"  no {block['freedom']} is faster than {block['bound_ns']} ns, {gap}"
    reasons = ", ".join(f"{name}: {count}" for name, count in block["reasons"].items())
    yield f"  sizes and aliases; that these are all dependences ({reasons})"


def test_verdicts(certificate, tmp_path):
    false = forged(certificate, tmp_path / "false.cert", lambda _, block: block["claims"].update(peak_bytes=1))
    printed, said = run(tmp_path, "commsched-verify", certificate, false, "--json=verdicts.json", code=1)
    document = read(tmp_path / "verdicts.json", "verification")
    good, bad = document["files"]
    assert (good["verdict"], bad["verdict"]) == ("valid", "not valid")
    assert said == f"{false}: not valid: {bad['refusal']}\n" and "blocks" not in bad and "ranks" not in document
    (block,) = good["blocks"]
    assert set(verdict_lines(block)) <= set(printed.splitlines())
    # The same, from the claims of the certificate, which the checker only accepts.
    claims = json.loads(certificate.read_text().splitlines()[1])["claims"]
    assert {name: block[name] for name in claims} == claims
    assert f"{good['output_sha256']}, made of {good['input_sha256']}; results: {good['numerics']}" in printed
    alone, _ = run(tmp_path, "commsched-verify", certificate, "--json=-")
    assert check_schema("verification", json.loads(alone))["files"] == [good]


def test_verdicts_of_files_that_prove_less(certificate, tmp_path):
    """A certificate without blocks, no certificate, and one that is not wholly checked."""
    (tmp_path / "nothing.cert").write_text(
        json.dumps({**json.loads(certificate.read_text().splitlines()[0]), "blocks": 0})
    )
    (tmp_path / "other.cert").write_bytes(b"\xff\n")
    run(tmp_path, "commsched-verify", "nothing.cert", "--json=a.json", code=2)
    assert read(tmp_path / "a.json", "verification")["files"][0]["verdict"] == "nothing proven"
    _, said = run(tmp_path, "commsched-verify", "other.cert", "missing.cert", "--json=b.json", code=1)
    files = read(tmp_path / "b.json", "verification")["files"]
    assert said == "".join(f"{file['file']}: not valid: {file['refusal']}\n" for file in files)
    package = tmp_path / "commsched_verify"
    package.mkdir()
    for file in (ROOT / "python/commsched_verify").glob("*.py"):
        if file.stem != "shares":
            (package / file.name).write_text(file.read_text())
    command = [sys.executable, "-S", "-m", "commsched_verify", certificate, "--json=c.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": "."})
    (file,) = read(tmp_path / "c.json", "verification")["files"]
    assert done.returncode == 2 and file["verdict"] == "valid in part"
    missing = re.findall(r"NOT CHECKED: (.*)", done.stdout)
    assert missing == file["blocks"][0]["not_checked"] != []


def test_verdicts_of_ranks(certificate, tmp_path):
    other = forged(certificate, tmp_path / "b.cert", lambda header, _: header.update(groups={"dp": [[0, 2, 8]]}))
    printed, _ = run(tmp_path, "commsched-verify", "--spmd", certificate, certificate, "--json=same.json")
    assert read(tmp_path / "same.json", "verification")["ranks"] == {"ranks": [0, 1], "agree": True}
    assert "the ranks agree" in printed
    _, said = run(tmp_path, "commsched-verify", "--spmd", certificate, other, "--json=other.json", code=1)
    ranks = read(tmp_path / "other.json", "verification")["ranks"]
    assert not ranks["agree"] and said == f"not valid: {ranks['refusal']}\n"


def test_json_that_cannot_be_written(certificate, tmp_path):
    _, said = run(tmp_path, "commsched-verify", certificate, "--json=nowhere/x.json", code=1)
    assert "error: " in said and "'nowhere/x.json'" in said


# --- comm-verify-spmd, comm-run --------------------------------------------------------------------------------------


def test_programs_of_ranks(tmp_path):
    (tmp_path / "a.mlir").write_text(STEP)
    (tmp_path / "b.mlir").write_text(STEP.replace("512", "256").replace("1024", "512"))
    printed, _ = run(tmp_path, "comm-verify-spmd", "a.mlir", "a.mlir", "--ranks=1,0", "--json=same.json")
    same = read(tmp_path / "same.json", "agreement")
    counts = ", ".join(f"{name}: {same[name]}" for name in ("functions", "communicators", "collectives"))
    assert printed == f"the programs agree; {counts}\n" and same["ranks"] == [1, 0] and same["collectives"] == 1
    _, said = run(tmp_path, "comm-verify-spmd", "a.mlir", "b.mlir", "--json=other.json", code=1)
    other = read(tmp_path / "other.json", "agreement")
    assert not other["agree"] and "collectives" not in other
    assert [*filter(None, said.splitlines())][:-1] == other["differences"] != []
    alone, _ = run(tmp_path, "comm-verify-spmd", "a.mlir", "a.mlir", "--json=-")
    assert json.loads(alone)["agree"]


def test_runs(tmp_path):
    (tmp_path / "a.mlir").write_text(STEP)
    printed, _ = run(
        tmp_path, "comm-run", "a.mlir", "--backend=threads", "--iterations=2", "--summary", "--json=run.json"
    )
    document = read(tmp_path / "run.json", "run")
    rows = re.findall(r"rank (\d+): (.*), peak (\d+) bytes, (\d+) bytes left", printed)
    assert len(rows) == len(document["summary"]) == document["ranks"] == 2
    for (rank, time, peak, left), row in zip(rows, document["summary"]):
        assert (int(rank), int(peak), int(left)) == (row["rank"], row["peak_bytes"], row["left_bytes"])
        assert shows(time, row["ns"], UNITS)
    assert (document["backend"], document["iterations"]) == ("threads", 2)
    _, said = run(tmp_path, "comm-run", "a.mlir", "--split-input-file", "--json=x.json", code=1)
    assert "--json: expected one program without --split-input-file" in said


# --- comm-calibrate --------------------------------------------------------------------------------------------------


def calibrate(folder, *arguments, code=0):
    _, said = run(folder, "comm-calibrate", *arguments, "-o", "profile.json", "--json=figures.json", code=code)
    (profile,) = read(folder / "figures.json", "measurement")["profiles"]
    assert profile["file"] == "profile.json"
    return said, profile


def test_measured_profiles(tmp_path):
    measure = ["--measure=collectives,computations", "--kinds=all_gather,all_reduce", "--max-bytes=16384"]
    said, figures = calibrate(tmp_path, "--backend=threads", "--ranks=2", "--cache=none", "--seed-recipe", *measure)
    curves = re.findall(r"^(\w+) on (\d+) ranks, (\w+): (\d+) points(?:, .* by ([\d.]+) % .*, ([\d.]+) %)?", said, re.M)
    assert len(curves) == len(figures["curves"]) == 2
    for (kind, ranks, element, points, median, most), row in zip(curves, figures["curves"]):
        assert [kind, int(ranks), element, int(points)] == [row[k] for k in ("kind", "ranks", "element", "points")]
        assert bool(median) == ("median_permille" in row)
        if median:
            assert (float(median), float(most)) == (row["median_permille"] / 10, row["p95_permille"] / 10)
        # The profile has as many points.
    tables = {table["kind"]: table for table in json.loads((tmp_path / "profile.json").read_text())["collectives"]}
    assert {row["kind"]: row["points"] for row in figures["curves"]} == {
        kind: len(tables[kind]["points"]) for kind in ("all_gather", "all_reduce")
    }
    products = re.findall(r"products of (\w+): ([\d.]+) TFLOP/s, half of it at (\d+) operations", said)
    assert [(e, f"{row['flops_per_second'] / 1e12:.3f}") for row in figures["products"] for e in [row["element"]]] == [
        (element, rate) for element, rate, _ in products
    ]
    ((rate, kernel, copying),) = re.findall(r"copies: ([\d.]+) GB/s; a kernel: (.*); a copy: (.*)", said)
    assert abs(float(rate) - figures["copies"]["bytes_per_second"] / 1e9) <= 0.0501
    assert shows(kernel, figures["copies"]["launch_ns"], UNITS)
    assert shows(copying, figures["copies"]["copy_launch_ns"], UNITS)


def test_refined_profiles(tmp_path):
    """A run whose truth is 1000 ns and 1 ns for each 4 bytes. The size that is held out is missed by more than 5 %."""
    events = [
        {"ph": "X", "pid": rank, "tid": 1, "ts": 1e3 * call, "dur": 1 + size / 4000, "name": "all_reduce"}
        | {
            "cat": "collective",
            "args": {"site": site, "bytes": size, "ranks": 2, "nodes": 1, "ranks_per_node": 2, "element": "f32"},
        }
        for site, size in enumerate(1 << bits for bits in range(8, 16))
        for call in range(6 * site, 6 * site + 6)
        for rank in range(2)
    ]
    (tmp_path / "run.json").write_text(json.dumps({"traceEvents": events}))
    said, figures = calibrate(tmp_path, "--from-timeline=run.json", "--base=cpu-mpi", code=2)
    rows = re.findall(r"^(\w+) on (\d+) ranks, (\w+), (.*): (.*) \((.*) to (.*)\), (\d+) calls", said, re.M)
    assert len(rows) == len(figures["points"]) == 8
    for (kind, ranks, element, size, *times, calls), row in zip(rows, figures["points"]):
        assert [kind, int(ranks), element, int(calls)] == [row[k] for k in ("kind", "ranks", "element", "calls")]
        assert shows(size, row["bytes"], SIZES) and row["ns"] == 1000 + row["bytes"] // 4
        assert all(shows(time, row[key], UNITS) for time, key in zip(times, ("ns", "lo_ns", "hi_ns")))
    held = re.findall(r"validation: (\d+) of (\d+) points held out, .* ([\d.]+) % \(median\), ([\d.]+) %", said)
    found = figures["validation"]
    errors = (f"{found['median_permille'] / 10:.1f}", f"{found['p95_permille'] / 10:.1f}")
    assert held == [(str(found["held_out"]), str(found["points"]), *errors)]


def traced_step(rows):
    """A trace of one rank: operators that run one by one, each with a kernel of its own."""
    events = []
    for number, (name, shape, microseconds) in enumerate(rows):
        at = {"pid": 0, "tid": 0, "ts": 1000 * number}
        arguments = {"External id": number + 1, "Input Dims": [shape], "Input type": ["float"]}
        events.append({"ph": "X", "cat": "cpu_op", "name": name, "dur": 10, **at, "args": arguments})
        kernel = {"External id": number + 1}
        events.append({"ph": "X", "cat": "kernel", "name": f"k{number}", "dur": microseconds, **at, "args": kernel})
    return {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], "traceEvents": events}


TRACED = """func.func @step(%x: tensor<64x64xf32>, %y: tensor<8x8xf32>) -> (tensor<64x64xf32>, tensor<8x8xf32>) {
  %a = comm.compute "aten.exp.default"(%x) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %b = comm.compute "aten.sin.default"(%y) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %a, %b : tensor<64x64xf32>, tensor<8x8xf32>
}
"""


def test_traced_profiles(tmp_path):
    """The printed lists end after 20 rows, and the JSON has all of them."""
    rows = [("aten::exp", [64, 64], 20)] + [("aten::cos", [n, 8], 10 + n) for n in range(1, 31)]
    (tmp_path / "t.json").write_text(json.dumps(traced_step(rows)))
    (tmp_path / "step.mlir").write_text(TRACED)
    said, figures = calibrate(tmp_path, "--from-trace=t.json", "--base=h100-sxm", "--program=step.mlir")
    header = (
        f"{figures['writer']}: times of {figures['operations']} operations and {figures['collectives']} collectives"
    )
    assert f"{header}, added to '{figures['base']}'" in said and figures["operations"] == 31
    programs = figures["programs"]
    assert f"{programs['found']} of {programs['costly']} operations that take time are in the traces" in said
    before, after = said.split("in the traces, but not matched:\n")
    for text, key, listed, place in (
        (after, "calls", figures["unmatched"], "why"),
        (before, "operations", programs["missing"], "place"),
    ):
        separator = ": " if place == "why" else " at "
        printed = re.findall(r"^ +(\S+ [num]?s) +(\d+) x (.*)$", text, re.M)
        assert len(printed) == min(20, len(listed)) > 0
        for (time, count, rest), row in zip(printed, listed):
            assert shows(time, row["ns"], UNITS) and int(count) == row[key]
            assert rest == row["name"] + separator + row[place]
        assert [row["ns"] for row in listed] == sorted((row["ns"] for row in listed), reverse=True)
    assert len(figures["unmatched"]) == 30 and [row["ns"] for row in figures["unmatched"]][0] == 40_000
    assert "  and 10 more" in after


def test_profiles_of_several_backends_and_of_standard_output(tmp_path):
    arguments = ["--ranks=2", "--kinds=all_gather", "--max-bytes=1024", "--measure=collectives", "--cache=none"]
    run(tmp_path, "comm-calibrate", "--backend=threads,threads", *arguments, "-o", "p.json", "--json=f.json")
    files = [profile["file"] for profile in read(tmp_path / "f.json", "measurement")["profiles"]]
    assert files == ["p.threads.json"] * 2
    _, said = run(tmp_path, "comm-calibrate", *arguments, "--json=-", code=1)
    assert "--json=-: expected a file for the profile (-o)" in said


# --- Tables whose JSON has another name ------------------------------------------------------------------------------


def test_modules_of_xla(tmp_path):
    """commsched-hlo --report."""
    module = ROOT / "test/Frontends/Inputs/small-moe.pb"
    printed, _ = run(tmp_path, "commsched-hlo", module, "--report=r.json", "--effort=500", "--memory-limit-bytes=1")
    report = json.loads((tmp_path / "r.json").read_text())
    row = r"^(\S+): (\d+) nodes, (\d+) collectives, makespan (.*) us -> (.*) us \(bound (.*) us, (.*)\), "
    row += r"exposed (.*) us -> (.*) us, peak (\d+) -> (\d+) bytes(?:; kept: (.*))?$"
    rows, known = re.findall(row, printed, re.M), {c["name"]: c for c in report["computations"]}
    assert rows
    for name, nodes, collectives, *times, argument, waits, waits_after, low, high, kept in rows:
        one = known[name]
        assert (int(nodes), int(collectives)) == (one["nodes"], one["collectives"])
        assert argument == one["lower_bound_argument"] and kept == one["kept_because"]
        values = [one["makespan_ns"]["before"], one["makespan_ns"]["after"], one["lower_bound_ns"]]
        values += [one["exposed_ns"]["before"], one["exposed_ns"]["after"]]
        for text, value in zip([*times, waits, waits_after], values):
            assert shows(f"{text} us", value, UNITS)
        assert (int(low), int(high)) == (one["peak_bytes"]["before"], one["peak_bytes"]["after"])
    assert f"with nothing made again: {report['nothing_made_again_because']}\n" in printed


def test_placements(tmp_path):
    """comm-place --json."""
    program = ROOT / "docs/examples/placement.mlir"
    printed, _ = run(tmp_path, "comm-place", program, "--machine=h100-sxm", "--json=t.json")
    document = json.loads((tmp_path / "t.json").read_text())
    assert printed.startswith(f"machine {document['machine']}, nodes of {document['ranks_per_node']} ranks")
    times = [re.findall(r"[\d.]+ [num]s", line) for line in printed.splitlines()]
    times = [found for found in times if found]
    assert len(times) == len(document["placements"])
    for found, row in zip(times, document["placements"]):
        value = row["makespan_ns"] if row.get("makespan_ns") is not None else row["bound_ns"]
        assert shows(found[0], value, UNITS)


def test_steps(tmp_path, capsys):
    """python -m commsched.exposed --json."""
    gather = {"Collective name": "_allgather_base", "In msg nelems": 512, "Out msg nelems": 1024, "Group size": 2}
    gather |= {"dtype": "BFloat16", "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}
    kernels = [("ncclDevKernel_AllGather_RING_LL", 0, 50, 20, gather), ("gemm", 20, 100, 7, {})]
    events = [
        {"ph": "X", "cat": "kernel", "name": n, "pid": 0, "tid": s, "ts": t, "dur": d, "args": a}
        for n, t, d, s, a in kernels
    ]
    (tmp_path / "t.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    assert main([str(tmp_path / "t.json")]) == 0
    printed = capsys.readouterr().out
    assert main([str(tmp_path / "t.json"), "--json"]) == 0
    (figures,) = json.loads(capsys.readouterr().out)
    names = {
        "step": "step_us",
        "computation": "computation_us",
        "collectives": "collectives_us",
        "exposed": "exposed_us",
    }
    names |= {"at least, in any order": "bound_us", "gain at most": "hideable_us"}
    for line, key in names.items():
        (found,) = re.findall(rf"^ +{line} +([\d.]+) +[\d.]+ %$", printed, re.M)
        assert abs(float(found) * 1000 - figures[key]) < 0.51
    assert figures["exposed_us"] == 20
