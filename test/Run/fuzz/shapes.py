#===- shapes.py - Types, arrays and literals of random programs --------------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# numpy has no bf16: arrays of it are f32 arrays whose elements are rounded to bf16 after every operation.
#
#===---------------------------------------------------------------------------------------------------------------===#

import math
from typing import NamedTuple

import numpy as np

DTYPES = {"i8": np.int8, "i32": np.int32, "i64": np.int64, "f32": np.float32, "f64": np.float64, "bf16": np.float32}
INTEGERS = ("i8", "i32", "i64")
FLOATS = ("f32", "f64", "bf16")
BYTES = {"i8": 1, "i32": 4, "i64": 8, "f32": 4, "f64": 8, "bf16": 2}


class Type(NamedTuple):
    """A ranked tensor or memref. `layout`: strides and offset of a memref that is not contiguous, both in elements.
    `dynamic`: the dimensions that the type does not tell; `shape` has their sizes."""

    shape: tuple
    element: str
    memory: bool = False
    layout: tuple = None
    dynamic: frozenset = frozenset()

    def __str__(self):
        extents = "".join(f"{'?' if i in self.dynamic else size}x" for i, size in enumerate(self.shape))
        layout = ""
        if self.layout:
            strides, offset = self.layout
            place = f", offset: {offset}" if offset else ""
            layout = f", strided<[{', '.join(map(str, strides))}]{place}>"
        return f"{'memref' if self.memory else 'tensor'}<{extents}{self.element}{layout}>"

    @property
    def size(self):
        return math.prod(self.shape)

    def with_shape(self, shape):
        return Type(tuple(shape), self.element, self.memory)

    @property
    def is_plain(self):
        return not self.layout and not self.dynamic


def types_text(types):
    return ", ".join(map(str, types))


def future_text(types):
    return f"!comm.future<{types_text(types)}>"


def settle(array, element):
    """`array` as values of the element type: integers wrap, bf16 is rounded to the nearest, ties to even."""
    array = np.asarray(array).astype(DTYPES[element])
    if element != "bf16":
        return array
    bits = np.ascontiguousarray(array).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32).reshape(array.shape)


def raw(array, element):
    """The array as comm-run keeps it in .npy files: bf16 as 16 bits."""
    array = np.ascontiguousarray(array)
    return (array.view(np.uint32) >> np.uint32(16)).astype(np.uint16) if element == "bf16" else array


def literal(arrays, element):
    """A dense attribute of one array per rank."""
    return 'dense<"0x' + "".join(raw(array, element).tobytes().hex().upper() for array in arrays) + '">'


def number(value, element):
    return f"{float(value)}" if element in FLOATS else str(int(value))


OPERATIONS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "maximum": np.maximum,
              "min": np.minimum, "minimum": np.minimum, "sum": np.add}


def combine(kind, x, y, element):
    with np.errstate(all="ignore"):
        return settle(OPERATIONS[kind](x, y), element)


def reduce_ranks(kind, arrays, element):
    """The sum of all ranks in the order of ranks. bf16 is summed in f32 and rounded once."""
    total = arrays[0].copy()
    with np.errstate(all="ignore"):
        for array in arrays[1:]:
            total = OPERATIONS[kind](total, array).astype(DTYPES[element])
    return settle(total, element)


def mix(hash_, values):
    """One step of the runtime's hash, for a number and a number or an array, modulo 2^64."""
    with np.errstate(over="ignore"):
        x = np.asarray(hash_, np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.asarray(values, np.uint64) + np.uint64(0x632BE59BD9B4E019)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def digest(array, element):
    """Of every byte of an operand: a sum over words of eight bytes."""
    content = raw(array, element).tobytes()
    words = np.frombuffer(content + bytes(-len(content) % 8), "<u8")
    places = np.arange(len(words), dtype=np.uint64)
    with np.errstate(over="ignore"):
        return mix(~np.uint64(0), len(content)) + np.sum(mix(places, words), dtype=np.uint64)


def opaque(name, inputs, shape, element):
    """What a computation that comm-run has no kernel for makes: a function of its name and of every byte of its inputs
    (Runtime.md). `inputs`: pairs of an array and an element type."""
    hash_ = np.uint64(0)
    for character in name.encode():
        hash_ = mix(hash_, character)
    for array, kind in inputs:
        hash_ = mix(hash_, digest(array, kind))
    count = int(np.prod(shape))
    bits = (mix(mix(hash_, 1), np.arange(count, dtype=np.uint64)) >> np.uint64(57)).astype(np.int64)
    values = (bits - 64) / 64 if element in FLOATS else bits & 7
    return settle(values.reshape(shape), element)
