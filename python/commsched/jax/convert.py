# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Converts programs between the forms of XLA and of CommSched, with the parsers and the printers of jaxlib.

    python -m commsched.jax.convert module.txt module.pb
    python -m commsched.jax.convert module.pb module.txt
    python -m commsched.jax.convert step.txt step.mlir

The input is HLO text if it begins with `HloModule`, as `compiled.as_text()` and XLA's --xla_dump_to print it. The
tools of CommSched read serialized modules. It is StableHLO if the output is called .mlir: `lowered.as_text()` then
becomes MLIR's generic form, which `comm-opt --allow-unregistered-dialect --convert-stablehlo-to-comm` reads without
knowing StableHLO.
"""

from __future__ import annotations

import argparse
import importlib
import math
import pathlib
import re
import sys
from typing import Any

# The groups of a collective in StableHLO of JAX 0.12: some axes of a mesh.
_MESH_AXES = re.compile(r"#stablehlo\.replica_group_mesh_axes<mesh = @(?P<mesh>[\w.$-]+), axes = \[(?P<axes>[^\]]*)\]>")
# HloModuleProto.device_assignment, and the fields of DeviceAssignmentProto in xla_data.proto.
_DEVICE_ASSIGNMENT = 15
_REPLICAS, _PARTITIONS, _DEVICES, _DEVICE_IDS = 1, 2, 3, 1


def to_bytes(text: str) -> bytes:
    """HLO text as a serialized HloModuleProto. Raises an error of jaxlib if the text has a fault."""
    module = _xla().hlo_module_from_text(text).as_serialized_hlo_module_proto()
    # XLA's message of a text lacks the number of devices, which a collective over all devices needs.
    replicas, partitions = (
        int(found[1]) if (found := re.search(rf"^HloModule .*\b{name}=(\d+)", text)) else 1
        for name in ("replica_count", "num_partitions")
    )
    return module + _devices(replicas, partitions) if replicas * partitions > 1 else module


def to_text(module: bytes) -> str:
    """A serialized HloModuleProto as HLO text, to read: it lacks the number of devices."""
    return _xla().HloModule.from_serialized_hlo_module_proto(module).to_string()


def to_generic(text: str) -> str:
    """A program of StableHLO, as `lowered.as_text()` prints it, in MLIR's generic form. With `debug_info=True`
    there, it has the places in the Python program. Groups along axes of a mesh, as JAX 0.12 writes them, become lists
    of numbers. Raises a ValueError if the text has a fault, or a group is along a part of an axis.
    """
    make_context = importlib.import_module("jax.interpreters.mlir").make_ir_context
    ir = importlib.import_module("jaxlib.mlir.ir")
    with make_context():
        try:
            module = ir.Module.parse(text)
        except ir.MLIRError as error:
            raise ValueError(str(error)) from error
        generic: str = module.operation.get_asm(print_generic_op_form=True, enable_debug_info=" loc(" in text)
        meshes = {
            str(op.attributes["sym_name"].value): str(op.attributes["mesh"])
            for op in module.body.operations
            if op.operation.name == "sdy.mesh"
        }
    return _MESH_AXES.sub(lambda found: _groups(meshes.get(found["mesh"], ""), found["axes"]), generic)


def _groups(mesh: str, axes: str) -> str:
    """The groups along axes of a mesh (`#sdy.mesh<["a"=2, "b"=4]>`) as a matrix of numbers, one row per group."""
    import numpy

    sizes = {name: int(size) for name, size in re.findall(r'"([^"]+)"=(\d+)', mesh)}
    along = re.findall(r'<name = "([^"]+)">', axes)
    if not sizes or len(along) != axes.count("axis_ref") or not sizes.keys() >= set(along):
        raise ValueError(f"expected groups along whole axes of a mesh, got [{axes}] of {mesh or 'no mesh'}")
    given = re.search(r"device_ids=\[([\d, ]+)\]", mesh)
    ids = [int(i) for i in given[1].split(",")] if given else numpy.arange(math.prod(sizes.values()))
    names = [*(name for name in sizes if name not in along), *along]
    order = [list(sizes).index(name) for name in names]
    matrix = numpy.reshape(ids, list(sizes.values())).transpose(order)
    matrix = matrix.reshape(-1, math.prod(sizes[name] for name in along))
    return f"dense<{matrix.tolist()}> : tensor<{matrix.shape[0]}x{matrix.shape[1]}xi64>"


def _xla() -> Any:
    """jaxlib's binding of XLA's modules, whose types jax registers."""
    importlib.import_module("jax")
    return importlib.import_module("jaxlib._hlo")


def _devices(replicas: int, partitions: int) -> bytes:
    """The field of a module that assigns device r * partitions + p to partition p of replica r."""
    assignment = _integer(_REPLICAS, replicas) + _integer(_PARTITIONS, partitions)
    for partition in range(partitions):
        ids = b"".join(_varint(replica * partitions + partition) for replica in range(replicas))
        assignment += _message(_DEVICES, _message(_DEVICE_IDS, ids))
    return _message(_DEVICE_ASSIGNMENT, assignment)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", type=pathlib.Path, help="HLO text, a serialized HloModuleProto, or text of StableHLO")
    parser.add_argument("output", type=pathlib.Path, help="the file that is written, in the other form")
    arguments = parser.parse_args()
    try:
        given = arguments.input.read_bytes()
        if given.lstrip().startswith(b"HloModule"):
            arguments.output.write_bytes(to_bytes(given.decode()))
        elif arguments.output.suffix == ".mlir":
            arguments.output.write_text(to_generic(given.decode()))
        else:
            arguments.output.write_text(to_text(given))
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        print(f"commsched.jax.convert: error: '{arguments.input}': {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
