"""Tensors of an FX graph as the importer sees them: an MLIR type, a size in bytes, a storage."""

from __future__ import annotations

import torch

from ..semantics.operators import hint

# bool is a byte in memory, and kept apart from int8 so that the two are not merged into one bucket.
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
    """One SSA value. `storage` identifies what it shares memory with; 0 for what is no tensor."""

    __slots__ = ("ssa", "type", "shape", "bytes", "traffic", "storage", "dynamic", "waitable")

    def __init__(self, ssa, type_, shape=(), bytes_=0, traffic=0, storage=0, dynamic=False):
        self.ssa, self.type, self.shape = ssa, type_, shape
        self.bytes = bytes_  # of all elements
        self.traffic = traffic  # what reading it once moves: expanded dimensions count once
        self.storage = storage
        self.dynamic = dynamic
        self.waitable = False  # a collective in flight


_types: dict = {}


def _describe(val: torch.Tensor):
    """(type, shape, bytes, traffic, dynamic) of a tensor; cached by shape, strides that are zero, and element type."""
    shape, dtype = tuple(val.shape), val.dtype
    static = all(type(d) is int for d in shape)
    strides = val.stride() if static and val.layout is torch.strided else ()
    key = (shape, dtype, 0 in strides and strides)
    if static:
        known = _types.get(key)
        if known is not None:
            return known
    element = ELEMENT_TYPES.get(dtype, f"i{8 * dtype.itemsize}")
    sizes = tuple(hint(d) for d in shape)
    dims = "".join(f"{d}x" if type(d) is int else "?x" for d in shape)
    elements = read = dtype.itemsize
    for i, d in enumerate(sizes):
        elements *= d
        if not strides or strides[i]:
            read *= d
    described = (f"tensor<{dims}{element}>", sizes, elements, min(read, elements), not static)
    if static:
        _types[key] = described
    return described


def tensor_value(ssa: str, val: torch.Tensor, storage: int) -> Value:
    type_, sizes, bytes_, traffic, dynamic = _describe(val)
    return Value(ssa, type_, sizes, bytes_, traffic, storage, dynamic)


def scalar_type(val) -> str:
    """The MLIR type of what is no tensor."""
    if isinstance(val, (bool, torch.SymBool)):
        return "i1"
    if isinstance(val, (int, torch.SymInt)):
        return "i64"
    if isinstance(val, (float, torch.SymFloat)):
        return "f64"
    return "none"


def flat_values(value) -> list[Value]:
    """All values of a (nested) result."""
    if value is None:
        return []
    if type(value) is Value:
        return [value]
    if type(value) is dict:
        value = value.values()
    return [v for x in value for v in flat_values(x)]
