# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Values as the importer sees them: an MLIR type, a size in bytes, a storage."""

from __future__ import annotations

from typing import Any

import torch

from ..semantics.operators import hint

# Indexed by PyTorch's element type: MLIR's. bool is a byte in memory, but not i8: a bucket must not mix the two.
ELEMENT_TYPES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "ui8",
    torch.uint16: "ui16",
    torch.uint32: "ui32",
    torch.uint64: "ui64",
    torch.bool: "si8",
    torch.complex32: "complex<f16>",
    torch.complex64: "complex<f32>",
    torch.complex128: "complex<f64>",
    torch.float8_e4m3fn: "f8E4M3FN",
    torch.float8_e5m2: "f8E5M2",
    torch.float8_e4m3fnuz: "f8E4M3FNUZ",
    torch.float8_e5m2fnuz: "f8E5M2FNUZ",
    torch.float8_e8m0fnu: "f8E8M0FNU",
}


class Value:
    """One SSA value.

    Args:
        shape: sizes, with symbolic ones as hints.
        bytes_: bytes of all elements.
        traffic: bytes that one reader moves. Expanded dimensions count once.
        storage: equal for values that share memory; 0 if the value is not a tensor.
        dynamic: a size is only known at run time.
    """

    __slots__ = ("ssa", "type", "shape", "bytes", "traffic", "storage", "dynamic", "waitable")

    def __init__(
        self,
        ssa: str,
        type_: str,
        shape: tuple[int, ...] = (),
        bytes_: int = 0,
        traffic: int = 0,
        storage: int = 0,
        dynamic: bool = False,
    ):
        self.ssa, self.type, self.shape = ssa, type_, shape
        self.bytes, self.traffic, self.storage, self.dynamic = bytes_, traffic, storage, dynamic
        # Whether it is the result of a collective in flight.
        self.waitable = False


Described = tuple[str, tuple[int, ...], int, int, bool]
_types: dict[tuple, Described] = {}


def describe(val: torch.Tensor) -> Described:
    """The type, shape, bytes, traffic and dynamism of a tensor. Cached by shape, zero strides, and element type."""
    shape, dtype = val.shape, val.dtype
    static = not val._has_symbolic_sizes_strides or all(type(d) is int for d in shape)
    strides = val.stride() if static and val.layout is torch.strided else ()
    key = (shape, dtype, 0 in strides and strides)
    if static:
        known = _types.get(key)
        if known is not None:
            return known
    element = ELEMENT_TYPES.get(dtype, f"i{8 * dtype.itemsize}")
    sizes = tuple(hint(d) for d in shape)
    dims = "".join(f"{d}x" if type(d) is int else "?x" for d in shape)
    bytes_ = traffic = dtype.itemsize
    for i, d in enumerate(sizes):
        bytes_ *= d
        if not strides or strides[i]:
            traffic *= d
    described = (f"tensor<{dims}{element}>", sizes, bytes_, min(traffic, bytes_), not static)
    if static:
        _types[key] = described
    return described


def tensor_value(ssa: str, val: torch.Tensor, storage: int) -> Value:
    """The value of a tensor."""
    type_, sizes, bytes_, traffic, dynamic = describe(val)
    return Value(ssa, type_, sizes, bytes_, traffic, storage, dynamic)


def scalar_type(val: Any) -> str:
    """The MLIR type of a value that is not a tensor."""
    if isinstance(val, (bool, torch.SymBool)):
        return "i1"
    if isinstance(val, (int, torch.SymInt)):
        return "i64"
    if isinstance(val, (float, torch.SymFloat)):
        return "f64"
    return "none"


def flat_values(value: Any) -> list[Value]:
    """All values of a (nested) result."""
    if value is None:
        return []
    if type(value) is Value:
        return [value]
    if type(value) is dict:
        value = value.values()
    return [v for x in value for v in flat_values(x)]
