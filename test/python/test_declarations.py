# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the package declares of the C API is what the headers declare, as clang reads them."""

import ctypes
import json
import pathlib
import re
import shutil
import subprocess

import pytest

from commsched import _commsched

INCLUDE = pathlib.Path(__file__).resolve().parents[2] / "include"
HEADERS = ("CommSched.h", "Calibration.h", "Hlo.h", "Timeline.h")
STRUCTS = {
    "CommSchedBuffer": _commsched._Buffer,
    "CommSchedMessage": _commsched._Message,
    "CommSchedProbe": _commsched._Probe,
    "CommSchedBench": _commsched._Bench,
}
SCALARS = {
    "void": None,
    "int": ctypes.c_int,
    "CommSchedMessageKind": ctypes.c_int,
    "size_t": ctypes.c_size_t,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "const char *": ctypes.c_char_p,
    "CommSchedGather": _commsched._Gather,
    "CommSchedPeerAnswers": _commsched._PeerAnswers,
    **STRUCTS,
}


@pytest.fixture(scope="module")
def declared():
    """The declarations of the headers: functions, and the fields of structs, as C writes their types."""
    clang = shutil.which("clang-22") or pytest.skip("clang-22 is not installed")
    source = "".join(f'#include "CommSched-c/{name}"\n' for name in HEADERS)
    command = [clang, "-xc", "-", f"-I{INCLUDE}", "-fsyntax-only", "-Xclang", "-ast-dump=json"]
    tree = json.loads(subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout)["inner"]
    functions = {d["name"]: d["type"]["qualType"] for d in tree if d["kind"] == "FunctionDecl"}
    types = {d["name"]: d["type"]["qualType"] for d in tree if d["kind"] == "TypedefDecl"}
    fields = {
        d["name"]: [(f["name"], f["type"]["qualType"]) for f in d["inner"] if f["kind"] == "FieldDecl"]
        for d in tree
        if d["kind"] == "RecordDecl" and "name" in d and "inner" in d
    }
    return functions, types, fields


def _accepted(written):
    """The types of ctypes that stand for a type of C."""
    if written in SCALARS:
        return [SCALARS[written]]
    assert written.endswith("*"), written
    pointee = written.removeprefix("const ").removesuffix("*").strip()
    pointee_type = SCALARS.get(pointee)
    pointers = [ctypes.POINTER(pointee_type)] if pointee_type is not None else []
    # Only what is never looked into may be a plain address.
    return pointers if pointee in STRUCTS else [*pointers, ctypes.c_void_p]


def _check(written, result, arguments):
    """A function's type against what stands for it."""
    match = re.fullmatch(r"(.*?) ?(?:\(\*\))?\((.*)\)", written)
    parts = [] if match[2] == "void" else match[2].split(", ")
    assert result in _accepted(match[1]), written
    assert len(parts) == len(arguments), written
    for part, argument in zip(parts, arguments):
        assert argument in _accepted(part), (written, part)


def test_functions_are_those_of_the_headers(declared):
    functions, _, _ = declared
    for name, (result, arguments) in _commsched._FUNCTIONS.items():
        _check(functions[name], result, arguments)


def test_every_function_is_declared_or_known_to_be_unused(declared):
    functions, _, _ = declared
    unused = {
        "commschedContextClearMessages",
        "commschedContextSetEstimate",
        "commschedContextSetMachine",
        "commschedModuleRunPipelineWithReport",
        "commschedModuleVerify",
    }
    of_library = {name for name in functions if name.startswith("commsched")}
    assert of_library - _commsched._FUNCTIONS.keys() == unused


def test_structs_and_callbacks_are_those_of_the_headers(declared):
    _, types, fields = declared
    callbacks = {"CommSchedGather": _commsched._Gather, "CommSchedPeerAnswers": _commsched._PeerAnswers}
    for name, struct in STRUCTS.items():
        written = fields[name]
        assert [field for field, _ in written] == [field for field, _ in struct._fields_]
        for (field, text), (_, ours) in zip(written, struct._fields_):
            if "(*)" in text:
                callbacks[text] = ours
            else:
                assert ours in _accepted(text) or (field == "data" and ours is ctypes.c_void_p), (name, field)
    for text, ours in callbacks.items():
        signature = types.get(text, text)
        # ctypes keeps no bytes alive that a callback returns: this one returns an address.
        result = ctypes.c_char_p if signature.startswith("const char *") else ours._restype_
        _check(signature, result, ours._argtypes_)
