# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The JSON schemas of profiles, reports, certificates and curves.

What the tools write is what the schemas describe, and the schema of profiles refuses exactly what the reader refuses.
"""

import copy
import json
import os
import pathlib
import random
import re
import subprocess

import commsched_tools
import jsonschema
import pytest
from commsched_verify import core

from commsched import Program, program

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ("profile", "report", "certificate", "curve", "verification", "agreement", "measurement", "run")
SHIPPED = sorted((ROOT / "machines").glob("*.json"))


def schema_of(name):
    return json.loads((ROOT / "schemas" / f"{name}.schema.json").read_text())


def validator(schema):
    return jsonschema.Draft202012Validator(schema)


def closed(schema):
    """The schema with no other properties than those that it lists, in any object."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(part) for key, part in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        result.setdefault("additionalProperties", False)
    return result


def faults(schema, document):
    return [f"{error.json_path}: {error.message}" for error in validator(schema).iter_errors(document)]


def properties_of(schema, part=None, path=()):
    """The paths of all properties, with their descriptions. `*` stands for the elements of a list, or for any key."""
    part = schema if part is None else part
    if reference := part.get("$ref"):
        yield from properties_of(schema, schema["$defs"][reference.removeprefix("#/$defs/")], path)
    for key, value in part.get("properties", {}).items():
        target = schema["$defs"][value["$ref"].removeprefix("#/$defs/")] if "$ref" in value else {}
        yield (*path, key), value.get("description") or target.get("description")
        yield from properties_of(schema, value, (*path, key))
    for key in ("items", "additionalProperties"):
        if isinstance(part.get(key), dict):
            yield from properties_of(schema, part[key], (*path, "*"))
    for key in ("then", "else"):
        if key in part:
            yield from properties_of(schema, part[key], path)
    for choice in part.get("oneOf", ()):
        yield from properties_of(schema, choice, path)


def paths_in(document, path=()):
    """The paths of all keys of a document. `*` stands for the elements of a list."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield (*path, key)
            yield from paths_in(value, (*path, key))
    elif isinstance(document, list):
        for value in document:
            yield from paths_in(value, (*path, "*"))


# --- The schemas themselves ------------------------------------------------------------------------------------------

UNITS = {"ns": "ns", "us": "us", "ps": "ps", "bytes": "bytes", "permille": "permille", "ppm": "millionths"}
UNITS |= {"gbps": "GB/s", "tflops": "TFLOP/s"}


@pytest.mark.parametrize("name", NAMES)
def test_every_property_has_a_description_with_its_unit(name):
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    names = re.compile("_(" + "|".join(UNITS) + ")$")
    described = {}
    for path, description in properties_of(schema):
        described[path] = described.get(path) or description
    wrong = []
    for path, description in described.items():
        unit = names.search(path[-1])
        # An element type of a table of rates, and the alternatives of a `bound`, have the description of the whole.
        inherited = path[-1] in ELEMENTS and path[-2].endswith(("tflops", "flops")) or path[-1] == "argument"
        if not inherited and (not description or unit and not re.search(rf"\b{UNITS[unit[1]]}\b", description)):
            wrong.append((path, description))
    assert not wrong


def test_words_that_several_files_have_are_the_same():
    """Kinds of collectives and element types. Each schema is complete by itself, so they are written several times."""
    profile, report, certificate = (schema_of(name)["$defs"] for name in ("profile", "report", "certificate"))
    kinds = profile["kind"]["enum"]
    assert kinds == report["kind"]["enum"] == certificate["key"]["properties"]["collective"]["enum"]
    assert profile["elementOfTable"]["enum"] == ["any", *report["element"]["enum"]] == ["any", *ELEMENTS]
    assert {*profile["rates"]["properties"]} == {"source", "note", *ELEMENTS}


# --- Profiles: the schema and the reader agree -----------------------------------------------------------------------

ELEMENTS = ["f64", "f32", "tf32", "bf16", "f16", "f8", "f4", "i64", "i32", "i16", "i8", "other"]

# What the reader refuses and a schema cannot say. Each is one of the reader's messages, with the reason.
BEYOND_SCHEMAS = {
    "expected more bytes than at the previous point": "no keyword compares an element of a list with the one before",
    "expected at most 'ns'": "no keyword compares a number with another property",
    "expected at most 'ranks'": "no keyword compares a number with another property",
    "expected at least 'ns'": "no keyword compares a number with another property",
    "of the level below": "no keyword compares an element of a list with the one before",
    "there is another variant": "uniqueItems compares whole elements, and variants differ in two of their properties",
}


def full_profile():
    """A profile with every key that the reader knows, and `source` and `note` in every object."""
    rates = dict.fromkeys(ELEMENTS, 1.5)
    points = [
        {"bytes": 1, "ns": 10, "lo_ns": 9, "hi_ns": 11, "n": 3, "rejected": 1, "single_ns": 12},
        {"bytes": 1024, "ns": 20},
    ]
    shape, table = {"ranks": 8, "nodes": 1}, {"element": "any", "points": points, "flags": ["skew"]}
    link = {"type": "nvlink", "bandwidth_gbps": 250, "latency_ns": 3000, "message_ns": 0}
    graph = {"channels": 12, "channel_gbps": 20.5}
    slower = {"bytes": 1, "against": "matrix", "compute_permille": 1, "collective_permille": 2, "flags": ["unstable"]}
    profile = {
        "schema_version": 1,
        "name": "full",
        "description": "all keys",
        "node": {"ranks": 8},
        "memory": {"capacity_bytes": 1 << 30, "bandwidth_gbps": 2000, "efficiency_permille": 900},
        "compute": {
            "peak_tflops": rates,
            "sustained_tflops": rates,
            "vector_tflops": rates,
            "half_flops": dict.fromkeys(ELEMENTS, 1000),
            "matmul_tiles": {"units": 4, "depth": 2, "sizes": [{"rows": 8, "columns": 8, "permille": 900}]},
            "efficiency_permille": 800,
            "launch_ns": 1000,
        },
        "copy": {"launch_ns": 1000, "bandwidth_gbps": 1800},
        "overheads": {"issue_ns": 1, "record_ns": 2, "wait_ns": 3, "hop_ns": 4},
        "lanes": "per_link",
        "links": {"base_ns": 8000, "intra": link, "inter": link},
        "levels": [{"name": "rail", "ranks": 64, "links": link}, {"name": "pod", "ranks": 1 << 20, "links": link}],
        "nccl": {"generation": "hopper", "cpu": "amd", "net_latency_us": 1.5}
        | {"ring": graph, "nvls": graph, "rail": graph, "nvls_rail": graph},
        "resources": {"compute_units": 132, "ctas": 16, "traffic_permille": 2500, "vector_units_permille": 500}
        | {"network": {"bandwidth_gbps": 48}, "node_links": {"bandwidth_gbps": 370.8}}
        | {"shares": [{"kind": "all_gather", "bytes": 1, **shape, "permille": 750}]},
        "collectives": [{"kind": "all_gather", **shape, **table}, {"kind": "recv", "group": "dp", **table}],
        "ops": [{"name": "aten.mm", "shapes": ["4x4xf32"], "form": "ab", "ns": 5, "lo_ns": 4, "hi_ns": 6, "n": 2}],
        "contention": [{"kind": "all_gather", "ctas": 0, **slower}],
        "variants": [
            {"kind": "all_gather", "means": "ring", "ctas": 4, "time_permille": 1800, "latency_ns": 4000}
            | {"curves": [{**shape, **table}, {"group": "dp", **table}], "contention": [slower]},
            {"kind": "all_gather", "means": "copy_engine"},
            {"kind": "all_gather", "means": "symmetric"},
        ],
        "calibration": {
            "pairs": [
                {"kind": "all_gather", "bytes": 1, **shape, "alone_ns": 10, "both_ns": 15, "permille": 500}
                | {"beside_ranks": 4, "beside_nodes": 1, "beside_alone_ns": 11, "both_lo_ns": 14, "both_hi_ns": 16},
            ]
        },
    }
    return annotated(profile)


def annotated(value):
    if isinstance(value, list):
        return [annotated(element) for element in value]
    if not isinstance(value, dict):
        return value
    more = {} if "pairs" in value else {"source": "a test", "note": ""}
    return {**{key: annotated(element) for key, element in value.items()}, **more}


# Values of all types, and numbers around the limits that the reader has.
VALUES = [None, True, "word", -1, [], {}]
MORE = {
    str: ["", "copy_engine", "symmetric", "all_reduce", "barrier", "any", "f32", "memory", "amd", "one", 1],
    int: [-0.5, 0, 0.5, 1, 2.0, 64, 65, 1000, 1001, 1 << 20, 1 + (1 << 20), 100_001, 1_000_000, 1_000_001]
    + [1e9, 1.001e9, 1 << 53, 1 + (1 << 53), 1e18, 1.001e18, 1e300],
    list: [[1], [{}], ["word"]],
    dict: [[{}], {"f32": 1}],
}
MORE[float] = MORE[int]


def places_in(document, path=()):
    """The paths of all values of a document, with the indices of elements."""
    pairs = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in pairs:
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from places_in(value, (*path, key))


def changes_of(key, value):
    """What may happen to a value: it is removed, its key is another one, or it is replaced."""
    if key in ("source", "note"):  # Every object has them.
        return [("renamed", None), ("replaced", None), ("replaced", 1), ("replaced", "")]
    # All element types but the last one have the same schema.
    others = VALUES + (MORE[type(value)] if key not in ELEMENTS[:-1] else [0])
    return [("removed", None), ("renamed", None), *(("replaced", other) for other in others)]


def change(document, path, how, other):
    """Changes a document in place. False if the path is not there any more."""
    *parents, key = path
    for parent in parents:
        try:
            document = document[parent]
        except (KeyError, IndexError, TypeError):
            return False
    if isinstance(document, dict):
        if key not in document:
            return False
        value = document.pop(key)
        if how != "removed":
            document["other" + key if how == "renamed" else key] = value if how == "renamed" else other
        return True
    if not isinstance(document, list) or not isinstance(key, int) or key >= len(document) or how == "renamed":
        return False
    document[key : key + 1] = [] if how == "removed" else [other]
    return True


class Judges:
    """Asks the schema and the reader about profiles, and collects what they do not agree on."""

    def __init__(self, path):
        self.path, self.schema = path, validator(schema_of("profile"))
        self.wrong, self.beyond, self.verdicts = [], set(), {True: 0, False: 0}

    def reads(self, profile):
        """What the reader of lib/Machine says of a profile; None if it accepts it."""
        self.path.write_text(json.dumps(profile))
        try:
            program.Program("module {}").run(f"comm-schedule{{machine={self.path}}}")
        except program.Error as error:
            return str(error)
        return None

    def compare(self, profile, what):
        refusal, accepted = self.reads(profile), self.schema.is_valid(profile)
        self.verdicts[refusal is None] += 1
        if refusal and accepted:
            rule = next((rule for rule in BEYOND_SCHEMAS if rule in refusal), None)
            self.beyond.add(rule)
            if rule is None:
                self.wrong.append((what, refusal))
        elif not refusal and not accepted:
            self.wrong.append((what, next(self.schema.iter_errors(profile)).message))


def test_the_reader_and_the_schema_know_the_same_keys():
    profile = full_profile()
    assert {*paths_in(profile)} == {path for path, _ in properties_of(schema_of("profile"))} - {("$schema",)}
    assert not faults(schema_of("profile"), profile)


def parts_of(profile):
    """Profiles that are short but for one part each, which take far less time to check."""
    for key, value in profile.items():
        needs = ("resources", "contention") if key == "variants" else ()
        yield key, {**MINIMAL, **{other: profile[other] for other in needs}, key: value}


def test_the_schema_refuses_what_the_reader_refuses(tmp_path):
    """Every value of a full profile is removed, renamed and replaced."""
    judges = Judges(tmp_path / "machine.json")
    for part, given in parts_of(full_profile()):
        judges.compare(given, part)
        for path in places_in({part: given[part]}):
            if "points" in path and path[:2] != ("collectives", 0):
                continue  # All tables share the definition of points.
            *parents, key = path
            value = given
            for step in path:
                value = value[step]
            for how, other in changes_of(key, value):
                # Copies only what leads to the place, which is much faster than a copy of all.
                profile = inner = copy.copy(given)
                for parent in parents:
                    inner[parent] = copy.copy(inner[parent])
                    inner = inner[parent]
                if change(inner, (key,), how, other):
                    judges.compare(profile, (path, how, other))
    assert not judges.wrong
    assert min(judges.verdicts.values()) > 100
    # Each reason is one that some profile meets.
    assert judges.beyond == {*BEYOND_SCHEMAS}


def test_the_schema_refuses_what_the_reader_refuses_after_several_edits(tmp_path):
    """What one value of a variant may be depends on others."""
    judges, draw = Judges(tmp_path / "machine.json"), random.Random(7)
    given = {**MINIMAL, **{key: full_profile()[key] for key in ("contention", "variants")}}
    part = {"variants": given["variants"], "contention": []}
    related = [path for path in places_in(part) if path[-1] not in ("source", "note")]
    for _ in range(300):
        profile = copy.deepcopy(given)
        edits = [(draw.choice(related), *draw.choice(EDITS)) for _ in range(draw.choice((2, 3)))]
        for edit in edits:
            change(profile, *edit)
        judges.compare(profile, edits)
    assert not judges.wrong
    assert min(judges.verdicts.values()) > 10


EDITS = [("removed", None)] * 6 + [
    ("replaced", other) for other in ([], 0, 1, 64, "copy_engine", "symmetric", "reduce")
]

MINIMAL = {
    "schema_version": 1,
    "name": "tiny",
    "node": {"ranks": 2},
    "memory": {"capacity_bytes": 1_000_000, "bandwidth_gbps": 100},
    "compute": {"peak_tflops": {"f32": 1}},
    "copy": {"launch_ns": 10, "bandwidth_gbps": 50},
    "links": {"base_ns": 100, "intra": {"bandwidth_gbps": 10, "latency_ns": 5}},
}


@pytest.mark.parametrize(
    ("edit", "refusal"),
    [
        ({}, None),
        ({"source": "a data sheet", "note": ""}, None),
        ({"$schema": "../schemas/profile.schema.json"}, None),
        ({"overheads": {}}, None),
        ({"calibration": "by hand"}, None),
        ({"links": {"base_ns": 0.0, "intra": {"bandwidth_gbps": 0.1, "latency_ns": 0}}}, None),
        ({"link": {}}, "field 'link': unknown field"),
        ({"$schema": 1}, r"field '\$schema': expected a non-empty string"),
        ({"node": {"ranks": 2, "$schema": "x"}}, r"field 'node.\$schema': unknown field"),
        ({"node": {}}, "field 'node.ranks': expected an integer of at least 1"),
        ({"node": {"ranks": 0}}, "field 'node.ranks': expected an integer of at least 1"),
        ({"node": {"ranks": "2"}}, "field 'node.ranks': expected an integer of at least 1"),
        ({"node": {"ranks": 2.5}}, "field 'node.ranks': expected an integer of at least 1"),
        ({"node": 2}, "field 'node': expected an object"),
        ({"name": ""}, "field 'name': expected a non-empty string"),
        ({"schema_version": 2}, "field 'schema_version': expected 1"),
        (
            {"copy": {"launch_ns": -1, "bandwidth_gbps": 50}},
            "field 'copy.launch_ns': expected an integer of at least 0",
        ),
        ({"copy": {"launch_ns": 1, "bandwidth_gbps": 0}}, "field 'copy.bandwidth_gbps': expected a positive number"),
        ({"lanes": "two"}, "field 'lanes': expected one of per_group, per_link, one"),
    ],
)
def test_comm_opt_and_the_schema_agree(edit, refusal, tmp_path):
    """The same through the command line, for faults that people make."""
    (tmp_path / "machine.json").write_text(json.dumps({**MINIMAL, **edit}))
    (tmp_path / "empty.mlir").write_text("module {}")
    run = comm_opt(tmp_path, "empty.mlir", "--comm-machine=./machine.json", check=False)
    assert bool(faults(schema_of("profile"), {**MINIMAL, **edit})) == (run.returncode != 0) == bool(refusal)
    assert re.search(refusal or "", run.stderr)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_profiles_name_their_schema(path, tmp_path):
    profile = json.loads(path.read_text())
    assert not faults(schema_of("profile"), profile)
    assert next(iter(profile)) == "$schema"
    assert (path.parent / profile["$schema"]).resolve() == ROOT / "schemas" / "profile.schema.json"
    assert Judges(tmp_path / "machine.json").reads(profile) is None


# --- What the tools write --------------------------------------------------------------------------------------------


def comm_opt(folder, *arguments, check=True, tool="comm-opt"):
    run = subprocess.run([commsched_tools.find(tool), *arguments], cwd=folder, capture_output=True, text=True)
    assert not check or run.returncode == 0, run.stderr
    return run


def measured_profile():
    """Tables with error bars and flags, and contention, at the sizes of docs/examples/two_layer_fsdp.mlir."""
    point = {"bytes": 1 << 20, "ns": 90000, "lo_ns": 80000, "hi_ns": 110000, "n": 20, "rejected": 1}
    table = {"kind": "all_gather", "ranks": 8, "nodes": 1, "points": [point], "flags": ["skew"]}
    op = {"name": "linalg.matmul", "ns": 100000, "lo_ns": 95000, "hi_ns": 105000, "n": 30}
    return {"collectives": [table], "ops": [op]}


def contended_profile():
    entries = [{"kind": "all_gather", "bytes": 1 << 20, "against": a} for a in ("matrix", "memory")]
    variants = [{"kind": "all_gather", "means": "copy_engine", "time_permille": 1100}]
    variants += [{"kind": "all_gather", "means": "symmetric", "ctas": 16, "time_permille": 900}]
    slower = {"compute_permille": 400, "collective_permille": 100}
    return {"resources": {"compute_units": 132}, "contention": [e | slower for e in entries], "variants": variants}


NO_COLLECTIVES = "func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> {\n  return %x : tensor<8xf32>\n}\n"

FSDP, GRAPHS, CASES = "docs/examples/two_layer_fsdp.mlir", "test/Graphs/", "test/Transforms/"
# By name: the program, and the options of one run. The effort is small, so that all runs together take few seconds.
RUNS = {
    "buckets": (FSDP, "--reorder-comm-overlap=effort=2000"),
    "order": (FSDP, "--reorder-comm-overlap=effort=2000 bucketing=false memory-budget-ratio=1 objective=regret"),
    "makespan": (FSDP, "--reorder-comm-overlap=effort=2000 objective=makespan"),
    "arena": (CASES + "arena-limit.mlir", "--comm-schedule=limit=arena"),
    "streams": (FSDP, "--reorder-comm-overlap=multi-stream=true effort=500"),
    "inductor": (FSDP, "--reorder-comm-overlap=passes=comm-reorder-preserving-peak-memory"),
    "noise": (CASES + "noise.mlir", "--reorder-comm-overlap=bucketing=false scenarios=8 effort=500"),
    "error-bars": (FSDP, "--comm-machine=./measured.json", "--reorder-comm-overlap=effort=500"),
    "contention": (FSDP, "--comm-machine=./contended.json", "--reorder-comm-overlap=effort=2000"),
    "strands": ("docs/examples/tensor_parallel.mlir", "--comm-split-strands=max-strands=2"),
    "nested": (CASES + "comm-schedule-regions.mlir", "--reorder-comm-overlap=effort=500"),
    "inlined": (CASES + "report-blocks.mlir", "--reorder-comm-overlap=passes=func.func(canonicalize)"),
    "peeled": (CASES + "report-blocks.mlir", "--reorder-comm-overlap=passes=func.func(scf-for-loop-peeling)"),
    "sizes": (CASES + "size-hints.mlir", "--comm-raise"),
    "lanes": (CASES + "comm-schedule-regions.mlir", "--comm-machine=cpu-mpi", "--comm-schedule=effort=500"),
    "sums": (
        CASES + "comm-move-casts-sums.mlir",
        "--reorder-comm-overlap=passes=comm-move-casts{numerics=reduced-precision-sums},comm-schedule",
    ),
    "gathers": (
        CASES + "comm-quantise-gathers.mlir",
        "--reorder-comm-overlap=passes=comm-quantise-gathers,comm-schedule",
    ),
    "caps": (CASES + "comm-schedule-modes.mlir", "--comm-schedule=effort=500 bucket-cap-bytes=1000000"),
    "coalesced": (CASES + "comm-schedule-modes.mlir", "--comm-machine=./contended.json", "--comm-schedule=effort=500"),
    "product": (CASES + "contention.mlir", "--comm-machine=./contended.json", "--comm-schedule=effort=500"),
    "captured": (CASES + "comm-schedule-captured.mlir", "--comm-schedule=effort=500"),
    "units": (CASES + "unit-numbers.mlir", "--comm-schedule=effort=500"),
    "late": (CASES + "comm-schedule-large-values.mlir", "--comm-schedule=effort=500"),
    "small": ("docs/examples/two_gathers.mlir", "--comm-schedule"),
    "graph": (GRAPHS + "mamba-hybrid-32-bw.mlirbc", "--reorder-comm-overlap=effort=500"),
    "loops": (
        "docs/examples/layer_loop.mlir",
        "--reorder-comm-overlap=loops=pipeline memory-budget-ratio=1 effort=500",
    ),
    "nothing": ("nothing.mlir", "--reorder-comm-overlap"),
}
# The run of a program that is given a second opinion.
OPINION = "opinion"
# The runs in which comm-schedule decides nothing.
UNCERTIFIED = {"streams", "inductor", "strands", "inlined", "peeled", "sizes"}
CURVES = {"fsdp": FSDP, "two": "docs/examples/two_gathers.mlir", "nothing": "nothing.mlir"}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of what all runs write."""
    folder = tmp_path_factory.mktemp("written")
    base = json.loads((ROOT / "machines" / "h100-sxm.json").read_text())
    for name, more in (("measured", measured_profile()), ("contended", contended_profile())):
        (folder / f"{name}.json").write_text(json.dumps({**base, **more}))
    (folder / "nothing.mlir").write_text(NO_COLLECTIVES)
    for name, (file, *options) in RUNS.items():
        outputs = [f"--comm-report={name}.report", "-o", os.devnull]
        outputs += [] if name in UNCERTIFIED else [f"--comm-certificate={name}.cert"]
        comm_opt(folder, place(folder, file), *options, *outputs)
    program = Program((ROOT / FSDP).read_text())  # No tool takes a second opinion.
    program.set_peer_times({})
    program.run(f"reorder-comm-overlap{{effort=2000 table=false report-file={folder / OPINION}.report}}")
    for name, file in CURVES.items():
        pareto = f"--comm-pareto=file={name}.curve limits=4 effort=500"
        comm_opt(folder, place(folder, file), pareto, "-o", os.devnull)
    return folder


def place(folder, file):
    return folder / file if (folder / file).exists() else ROOT / file


def documents(folder, kind):
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob(f"*.{kind}"))}


def lines(folder):
    return {path.stem: [*map(json.loads, path.read_text().splitlines())] for path in sorted(folder.glob("*.cert"))}


def covered(name, found):
    """The properties of a schema that are in no document."""
    return {path for path, _ in properties_of(schema_of(name))} - found


def test_reports_are_as_the_schema_says(written):
    reports = documents(written, "report")
    assert {*reports} == {*RUNS, OPINION}
    for name, report in reports.items():
        assert not faults(closed(schema_of("report")), report), name
    assert reports["nothing"]["functions"] == [] != reports["nested"]["functions"]
    found = set()
    for report in reports.values():
        found |= {*paths_in(report)}
    # The names of phases and of flags are keys.
    phases = ("passes", "*", "search", "phases")
    found |= {(*phases, "*", *path[5:]) for path in found if path[:4] == phases}
    assert covered("report", found) == set()


def test_curves_are_as_the_schema_says(written):
    curves = documents(written, "curve")
    assert {*curves} == {*CURVES} and len(curves["fsdp"]["functions"][0]["points"]) > 1
    for name, curve in curves.items():
        assert not faults(closed(schema_of("curve")), curve), name
    assert covered("curve", {*paths_in(curves["fsdp"])}) == set()


def test_certificates_are_as_the_schema_says(written):
    certificates = lines(written)
    assert {*certificates} == {*RUNS} - UNCERTIFIED
    found = set()
    for name, (header, *blocks) in certificates.items():
        assert "format" in header and len(blocks) == header["blocks"]
        for line in (header, *blocks):
            assert not faults(closed(schema_of("certificate")), line), name
            found |= {*paths_in(line)}
    # Witnesses at other scales are like the block's own.
    found |= {("scales", "at", "*", *path) for path in found if path[0] == "bound"}
    # The work of a loop is like a block's. A lane of it has more work than any resource.
    found |= {("loop", *path) for path in found if path[0] == "problem"}
    assert covered("certificate", found) == {("loop", "resource")}


def test_the_checker_and_the_schema_want_the_same_fields(written):
    """Fields of certificates are removed, and unknown ones added: the schema refuses what the checker refuses."""
    schema, wrong, verdicts = validator(schema_of("certificate")), [], set()
    for name in ("caps", "product", "captured", "loops"):
        header, *blocks = lines(written)[name]
        given = [{**header, "blocks": 1}, blocks[0]]
        core.verify(map(json.dumps, given))
        for path in [(0,), (1,), *places_in(given)]:
            value = given
            for step in path:
                value = value[step]
            edits = [(path, "removed", None)] if isinstance(path[-1], str) else []
            edits += [((*path, "other"), "added", 0)] if isinstance(value, dict) else []
            for place, how, other in edits:
                if place[-1] in ("groups", "reason_names") or "reason_names" in place or "groups" in place:
                    continue  # The checker of one file reads no groups. The keys of both objects are any names.
                edited = copy.deepcopy(given)
                inner = edited
                for step in place[:-1]:
                    inner = inner[step]
                if how == "added":
                    inner[place[-1]] = other
                else:
                    del inner[place[-1]]
                if edited[1].get("accesses") == {}:
                    continue  # The checker takes it for none, and the scheduler does not write it.
                accepted = all(map(schema.is_valid, edited))
                try:
                    core.verify(map(json.dumps, edited))
                    refusal = ""
                except core.Invalid as error:
                    refusal = str(error)
                verdicts.add((accepted, not refusal))
                # What an optional field says may be needed for the proof, which only the checker knows.
                form = re.search(r"unknown fields|malformed \((TypeError|KeyError)", refusal)
                if (not accepted) != bool(refusal) and (form or not refusal):
                    wrong.append((name, place, how, accepted, refusal))
    assert not wrong
    assert {(True, True), (False, False)} <= verdicts


RUN_EVENTS = [
    {"ph": "X", "pid": rank, "tid": 1, "ts": 10 * call, "dur": 2.5 + call, "name": "all_reduce", "cat": "collective"}
    | {"args": {"site": 0, "bytes": 4096, "ranks": 2, "nodes": 1, "ranks_per_node": 2, "element": "f32"}}
    for call in range(4)
    for rank in range(2)
]


def test_calibrated_profiles_are_as_the_schema_says(tmp_path):
    """They are derived from shipped profiles, and do not name the schema: its place is relative to the file."""
    (tmp_path / "run.json").write_text(json.dumps({"traceEvents": RUN_EVENTS}))
    (tmp_path / "fdo.pbtxt").write_text('costs { name: "fusion.1" cost_us: 12.5 }\n')
    measure = ["--backend=threads", "--ranks=2", "--kinds=all_gather", "--max-bytes=1024", "--cache=none"]
    ways = {
        "measured": [*measure, "--measure=collectives,computations", "--seed-recipe"],
        "refined": ["--from-timeline=run.json", "--base=cpu-mpi"],
        "traced": ["--from-trace=fdo.pbtxt", "--base=h100-sxm"],
    }
    for name, arguments in ways.items():
        comm_opt(tmp_path, *arguments, "-o", f"{name}.json", "--quiet", tool="comm-calibrate")
        profile = json.loads((tmp_path / f"{name}.json").read_text())
        assert not faults(schema_of("profile"), profile), name
        assert "$schema" not in profile
        assert profile["ops" if name == "traced" else "collectives"]


# --- Report.md -------------------------------------------------------------------------------------------------------

# By the heading in Report.md and the first cell of a table: the schema, and the place of the object.
TABLES = {
    ("The report", "field"): ("report", ()),
    ("`functions`", "field"): ("report", ("functions", "*")),
    ("`error_bars`", "field"): ("report", ("functions", "*", "error_bars")),
    ("`scenarios`", "field"): ("report", ("functions", "*", "scenarios")),
    ("`passes`", "field"): ("report", ("passes", "*")),
    ("`passes`", "field of a row"): ("report", ("passes", "*", "per_collective", "*")),
    ("Curve", "field"): ("curve", ()),
    ("Curve", "field of a function"): ("curve", ("functions", "*")),
    ("Curve", "field of a point"): ("curve", ("functions", "*", "points", "*")),
}
# Words in the tables that are no fields, and no values that a field may have.
OTHER_WORDS = {
    "f.0",
    "f.1",
    "f.new0",
    "comm.cost",
    "comm.ready_ns",
    "comm.variant",
    "comm.schedule_signature",
    "ops",
    "wait",
    "skew",
    "unstable",
}


def documented(heading, first_cell):
    """A section of the page, and the rows of one of its tables: the first cell, and the others."""
    page = (ROOT / "docs" / "guide" / "Report.md").read_text()
    (section,) = re.findall(rf"^#+ {re.escape(heading)}$(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL)
    (table,) = re.findall(rf"^\| {first_cell} \| .*\n\|---.*\n((?:\|.*\n)+)", section, re.MULTILINE)
    rows = [line.strip("| ").split(" | ", 1) for line in table.splitlines()]
    return section, rows


def words_of(text):
    return {*re.findall(r"`([a-z_0-9.]+)`", text)}


def values_of(schema):
    """All words of enumerations."""
    if isinstance(schema, list):
        return set().union(*map(values_of, schema))
    if not isinstance(schema, dict):
        return set()
    return set(schema.get("enum", ())) | set().union(*map(values_of, schema.values()))


@pytest.mark.parametrize("table", TABLES, ids=" ".join)
def test_the_page_and_the_schema_have_the_same_fields(table):
    name, place = TABLES[table]
    (section, rows), schema = documented(*table), schema_of(name)
    fields = {path for path, _ in properties_of(schema)}
    listed = set().union(*(words_of(first) for first, _ in rows))
    assert listed == {path[-1] for path in fields if path[:-1] == place}
    for first, text in rows:
        # What is inside of a field is in the same section, unless it has a table of its own.
        for field in words_of(first):
            own = [other for of, other in TABLES.values() if of == name and other[: len(place) + 1] == (*place, field)]
            inside = {path[len(place) + 1 :] for path in fields if path[: len(place) + 1] == (*place, field)} - {()}
            inside = set() if own else {path[-1] for path in inside} - {"before", "after"}
            assert inside <= words_of(section), field
        assert words_of(text) <= {path[-1] for path in fields} | values_of(schema) | OTHER_WORDS
