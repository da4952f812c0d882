#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Shows what XLA:GPU does with a module that a transformation changes before scheduling (see docs/guide/Jax.md).

    jax_pre_scheduler.py same       the module comes back unchanged: donations are forgotten
    jax_pre_scheduler.py start      the first all-gather becomes a start and a done: the compilation fails

Needs jax, jaxlib, jax-cuda12-plugin and jax-cuda12-pjrt 0.10.2, and no GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import sys
from typing import Any

XLA_FLAGS = "--xla_gpu_autotune_level=0"
# PJRT_Extension_Type_XlaTransform, and the stage before scheduling.
EXTENSION, PRE_SCHEDULER = 24, 0
# An all-gather in HLO text: its name, shape and operand, and the rest.
GATHER = re.compile(r"  %(\S+) = (\S+) all-gather\(%([\w.-]+)\), (.*)")


class Extension(ctypes.Structure):
    pass


Extension._fields_ = [
    ("size", ctypes.c_size_t),
    ("type", ctypes.c_int),
    ("next", ctypes.POINTER(Extension)),
    ("register", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)),
]


class Api(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("extension", ctypes.POINTER(Extension))]


class Arguments(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("version", ctypes.c_int64),
        ("data", ctypes.c_void_p),
        ("clean_up", ctypes.c_void_p),
        ("has_error", ctypes.c_bool),
        ("code", ctypes.c_int),
        ("message", ctypes.c_size_t * 2),
        ("module", ctypes.c_void_p),
        ("module_size", ctypes.c_size_t),
        ("transformed", ctypes.c_void_p),
        ("transformed_size", ctypes.c_size_t),
        ("changed", ctypes.c_bool),
    ]


TRANSFORM = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Arguments))


class Callbacks(ctypes.Structure):
    _fields_ = [("version", ctypes.c_int64), ("destroy", ctypes.c_void_p), ("transform", TRANSFORM)]


class Registration(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("name_size", ctypes.c_size_t),
        ("stage", ctypes.c_int),
        ("callbacks", ctypes.POINTER(Callbacks)),
    ]


def with_start(text: str) -> str:
    """The module with its first all-gather as a pair."""
    gather = next(filter(None, map(GATHER.match, text.split("\n"))))
    name, shape, operand, rest = gather.groups()
    given = re.search(rf"%{re.escape(operand)} = (\S+) ", text)
    assert given, operand
    pair = f"  %pair = ({given.group(1)}, {shape}) all-gather-start(%{operand}), {rest}\n"
    return text.replace(gather.group(), f"{pair}  %{name} = {shape} all-gather-done(%pair)", 1)


def register(library: str, mode: str) -> list[Any]:
    """Registers the transformation. What is returned has to stay alive."""
    from jaxlib import _hlo

    alive: list[Any] = []

    def transform(_: int, pointer: Any) -> None:
        arguments = pointer.contents
        given = _hlo.HloModule.from_serialized_hlo_module_proto(
            ctypes.string_at(arguments.module, arguments.module_size)
        )
        text = given.to_string()
        if "all-gather(" not in text:
            return
        module = _hlo.hlo_module_from_text(with_start(text)) if mode == "start" else given
        data = module.as_serialized_hlo_module_proto()
        alive.append(ctypes.create_string_buffer(data, len(data)))
        arguments.transformed, arguments.transformed_size = ctypes.addressof(alive[-1]), len(data)
        arguments.changed = True

    plugin = ctypes.CDLL(library)
    plugin.GetPjrtApi.restype = ctypes.POINTER(Api)
    extension = plugin.GetPjrtApi().contents.extension
    while extension.contents.type != EXTENSION:
        extension = extension.contents.next
    callbacks = Callbacks(1, None, TRANSFORM(transform))
    name = b"pre-scheduler"
    registration = Registration(ctypes.sizeof(Registration), name, len(name), PRE_SCHEDULER, ctypes.pointer(callbacks))
    if extension.contents.register(ctypes.addressof(registration)):
        sys.exit("the plugin refused to register a transformation")
    return [alive, callbacks, name, registration]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("same", "start"))
    mode = parser.parse_args().mode
    os.environ |= {"XLA_FLAGS": XLA_FLAGS, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    import jax
    import jax_programs
    from jax_plugins import xla_cuda12

    def donated() -> int:
        step, arguments = jax_programs.training_step(jax_programs.find("small-moe"))
        compiled = step.trace(*arguments).lower(lowering_platforms=("cuda",)).compile()
        jax.clear_caches()
        return int(compiled.memory_analysis().alias_size_in_bytes)

    print(f"without a transformation, {donated()} bytes of results are in memory of donated parameters")
    alive = register(os.path.join(os.path.dirname(xla_cuda12.__file__), "xla_cuda_plugin.so"), mode)
    try:
        print(f"with it, {donated()} bytes")
    except jax.errors.JaxRuntimeError as error:
        print(f"with it, XLA fails: {str(error).splitlines()[0]}")
    return 0 if alive else 1


if __name__ == "__main__":
    sys.exit(main())
