# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Writes the small modules of test/Frontends/Inputs: what XLA hands to a transformation after scheduling, without the
parts that name source files and shardings, and the temporaries that XLA's buffer assignment finds for them."""

from __future__ import annotations

import json
import pathlib
import tempfile
from collections.abc import Iterator

# Fields by message (xla/service/hlo.proto): those of a module with others' computations in field 3, those of a
# computation with instructions in field 2, and those of an instruction.
MODULE_DROPS = {4, 12, 14, 17, 19}  # program shape, shardings, stack frames, frontend attributes
COMPUTATION_DROPS = {4}  # program shape
INSTRUCTION_DROPS = {7, 40, 57, 82, 88}  # metadata, sharding, operand layouts, statistics, original values

Field = tuple[int, int, "int | bytes"]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _fields(data: bytes) -> Iterator[Field]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, wire, value
            continue
        size = {1: 8, 5: 4}.get(wire)
        if size is None:
            size, at = _varint(data, at)
        yield number, wire, data[at : at + size]
        at += size


def _write_varint(value: int) -> bytes:
    out = b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def _write(number: int, wire: int, value: int | bytes) -> bytes:
    tag = _write_varint(number << 3 | wire)
    if isinstance(value, int):
        return tag + _write_varint(value)
    return tag + (_write_varint(len(value)) if wire == 2 else b"") + value


def strip(module: bytes) -> bytes:
    """A module without the parts that scheduling does not read."""

    def instruction(data: bytes) -> bytes:
        return b"".join(_write(n, w, v) for n, w, v in _fields(data) if n not in INSTRUCTION_DROPS)

    def computation(data: bytes) -> bytes:
        kept = [(n, w, v) for n, w, v in _fields(data) if n not in COMPUTATION_DROPS]
        return b"".join(_write(n, w, instruction(v) if n == 2 and isinstance(v, bytes) else v) for n, w, v in kept)

    kept = [(n, w, v) for n, w, v in _fields(module) if n not in MODULE_DROPS]
    return b"".join(_write(n, w, computation(v) if n == 3 and isinstance(v, bytes) else v) for n, w, v in kept)


def write_small(folder: pathlib.Path) -> int:
    """Compiles the small programs and writes their modules."""
    import jax
    import jax_programs

    import commsched.jax

    temporaries = {}
    programs = {config.name: jax_programs.training_step(config) for config in jax_programs.SMALL}
    programs["small-branches"] = jax_programs.branching_step()
    programs["small-scan-pipelined"] = programs["small-scan"]
    for name, (step, arguments) in programs.items():
        flags = jax_programs.PIPELINED if name.endswith("-pipelined") else {}
        with tempfile.TemporaryDirectory() as dump, commsched.jax.enabled(dump=dump):
            step.trace(*arguments).lower(lowering_platforms=("cuda",)).compile(flags)
            module = max((p.read_bytes() for p in pathlib.Path(dump).iterdir()), key=len)
        jax.clear_caches()
        (folder / f"{name}.pb").write_bytes(strip(module))
        compiled = step.trace(*arguments).lower(lowering_platforms=("cuda",)).compile(flags)  # In XLA's own order.
        temporaries[name] = compiled.memory_analysis().temp_size_in_bytes
    (folder / "temporaries.json").write_text(json.dumps(temporaries) + "\n")
    return 0
