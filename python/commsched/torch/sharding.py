# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Shards a model's parameters in place, in a way that a compiler can see: fully sharded data parallelism.

A parameter is a `DTensor` that is split over the data-parallel mesh. Reading it redistributes it, so the graph holds
one all-gather per use and one reduce-scatter per gradient. (In PyTorch 2.13, `torch.distributed.fsdp.fully_shard`
breaks the graph at each of its hooks.) Optimizers, gradient clipping and checkpoints see the `DTensor`s.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn as nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor.placement_types import _StridedShard

# The attribute of a module that tells how its parameters are read. Indexed by parameter.
READS = "_commsched_reads"
_as_stored = False


@contextlib.contextmanager
def as_stored() -> Iterator[None]:
    """Makes reading a sharded parameter give the parameter itself, a `DTensor`, in this block. Use it to initialize."""
    global _as_stored
    before, _as_stored = _as_stored, True
    try:
        yield
    finally:
        _as_stored = before


@dataclasses.dataclass(frozen=True)
class Read:
    """How a parameter is read.

    Args:
        mesh: the mesh over which it is gathered.
        dtype: the element type in which it is gathered; None for its own.
        reduce_dtype: the element type in which its gradient is averaged; None for the parameter's own.
        tensor: the layout over other meshes (tensor parallelism), if it had one before.
    """

    mesh: DeviceMesh
    dtype: torch.dtype | None
    reduce_dtype: torch.dtype | None
    tensor: tuple[DeviceMesh, tuple, torch.Size, tuple, torch.Size, tuple] | None = None

    def __deepcopy__(self, memo: Any) -> Read:
        return self

    def __call__(self, w: DTensor) -> torch.Tensor:
        if self.tensor is not None:
            _, _, _, _, shape, stride = self.tensor
            w = DTensor.from_local(
                w.to_local(), self.mesh, _placements(self.mesh, len(shape)), run_check=False, shape=shape, stride=stride
            )
        w = w.redistribute(
            placements=[Replicate()] * self.mesh.ndim, forward_dtype=self.dtype, backward_dtype=self.reduce_dtype
        )
        w = w.to_local(grad_placements=[Partial("avg")] * self.mesh.ndim)
        if self.tensor is None:
            return w
        mesh, placements, shape, stride, _, _ = self.tensor
        return DTensor.from_local(w, mesh, placements, run_check=False, shape=shape, stride=stride)


def _placements(mesh: DeviceMesh, dims: int) -> tuple:
    """Split over the mesh's last dimension, and equal over the one before (hybrid sharding).

    A scalar is equal everywhere.
    """
    return (Replicate(),) * (mesh.ndim - 1) + (Shard(0) if dims else Replicate(),)


def _sharded(
    w: nn.Parameter, mesh: DeviceMesh, dtype: torch.dtype | None, reduce_dtype: torch.dtype | None
) -> tuple[nn.Parameter, Read]:
    """The slice of `w` that this rank owns, in memory of its own, as a parameter of the whole's shape.

    Nothing is communicated.
    """
    if mesh.ndim > 2:
        raise ValueError(f"a parameter can be sharded over a mesh of 1 or 2 dimensions (replicate, shard), got {mesh}")
    read = Read(mesh, dtype, reduce_dtype)
    if isinstance(w, DTensor):
        whole, read = _sharded_further(w, read)
    else:
        whole = distribute_tensor(w.detach(), mesh, _placements(mesh, w.dim()), src_data_rank=None)
        whole = _owned(whole, w)
    return nn.Parameter(whole, requires_grad=w.requires_grad), read


def _owned(whole: DTensor, w: torch.Tensor) -> DTensor:
    """`whole` in memory of its own, for a view would keep all of `w` alive."""
    local = whole._local_tensor
    if local.untyped_storage()._cdata == w.untyped_storage()._cdata or not local.is_contiguous():
        return DTensor(local.clone(memory_format=torch.contiguous_format), whole._spec, requires_grad=False)
    return whole


def _sharded_further(w: DTensor, read: Read) -> tuple[DTensor, Read]:
    """A parameter that is split over other ranks already, split over the mesh as well."""
    spec, local = w._spec, w._local_tensor
    splits = spec.num_shards_map[0] if spec.shape else 1
    own = _placements(read.mesh, local.dim())
    if local.dim() and splits > 1:  # The other ranks split the rows first.
        own = own[:-1] + (_StridedShard(0, split_factor=splits),)
    with unset_fake_temporarily():  # A mesh is made of real tensors, also among fake parameters.
        mesh = DeviceMesh._concatenate([read.mesh, spec.mesh])
    part = distribute_tensor(local.detach(), read.mesh, _placements(read.mesh, local.dim()), src_data_rank=None)
    part = _owned(part, local)
    layout = DTensorSpec(mesh, (*own, *spec.placements), tensor_meta=spec.tensor_meta)
    known = (spec.mesh, tuple(spec.placements), w.shape, w.stride(), local.shape, local.stride())
    return DTensor(part._local_tensor, layout, requires_grad=False), dataclasses.replace(read, tensor=known)


def _read(module: nn.Module, name: str) -> torch.Tensor:
    """The parameter `name` of a sharded module, gathered."""
    w = module._parameters[name]
    return w if _as_stored or w is None else module.__dict__[READS][name](w)


def _reading(name: str) -> property:
    """The property that stands for the parameter `name`."""
    return property(lambda module: _read(module, name))


def _initialises(base: type, name: str) -> Callable:
    """A method that fills the module's parameters. It finds them as they are stored."""

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with as_stored():
            return getattr(base, name)(self, *args, **kwargs)

    return call


_classes: dict[tuple[type[nn.Module], tuple[str, ...]], type[nn.Module]] = {}


def _class_of(base: type[nn.Module], names: tuple[str, ...]) -> type[nn.Module]:
    """`base` with the parameters `names` read through. All modules alike have one class.

    The class is made again when a module is copied or loaded.
    """
    known = _classes.get((base, names))
    if known is None:
        body: dict[str, Any] = {n: _reading(n) for n in names}
        body |= {m: _initialises(base, m) for m in ("reset_parameters", "init_weights") if hasattr(base, m)}
        body["__reduce_ex__"] = lambda self, protocol: (_rebuilt, (base, names), self.__dict__.copy())
        known = _classes[base, names] = type(f"Sharded{base.__name__}", (base,), body)
    return known


def _rebuilt(base: type[nn.Module], names: tuple[str, ...]) -> nn.Module:
    cls: Any = _class_of(base, names)
    return cls.__new__(cls)


def fully_shard_parameters(
    model: nn.Module,
    mesh_of: Callable[[nn.Module], DeviceMesh],
    dtype: torch.dtype | None,
    reduce_dtype: torch.dtype | None = None,
) -> None:
    """Splits every parameter over `mesh_of(its module)`.

    The parameter is gathered in `dtype` where it is read. Its gradient is averaged and scattered.

    All ranks must hold the same values, for nothing is sent. Tied parameters stay one parameter, frozen ones stay
    frozen, and `DTensor` parameters (tensor parallelism) are split further. `reset_parameters` and `init_weights` of a
    module fill the shards. Elsewhere, `with as_stored()` gives the parameters as they are stored.

    Args:
        mesh_of: the mesh of a module's parameters: one dimension, or two (replicate, shard) for hybrid sharding.
        dtype: the element type in which parameters are gathered and read; None for their own.
        reduce_dtype: the element type in which gradients are reduced; None for the parameters' own.

    Raises:
        ValueError: a mesh has more than two dimensions, or tied parameters have different meshes. Nothing is changed.
    """
    done: dict[int, tuple[nn.Parameter, nn.Parameter, Read]] = {}
    modules = []
    for module in model.modules():
        own = {n: w for n, w in module._parameters.items() if w is not None}
        if not own:
            continue
        mesh, reads = mesh_of(module), {}
        for name, w in own.items():
            if id(w) not in done:
                done[id(w)] = (w, *_sharded(w, mesh, dtype, reduce_dtype))
            reads[name] = done[id(w)][2]
            if reads[name].mesh != mesh:
                raise ValueError(f"{name} of {type(module).__name__} is tied to a parameter of another mesh")
        modules.append((module, own, reads))
    for module, own, reads in modules:
        for name, w in own.items():
            module._parameters[name] = done[id(w)][1]
        module.__dict__[READS] = {**module.__dict__.get(READS, {}), **reads}
        module.__class__ = _class_of(type(module), tuple(reads))
