# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which modules of a model can be sharded by themselves, and what FSDP2 has sharded already."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.distributed.tensor import DTensor

from ..eager.step import ROOT, Parameter, Step, Unit
from ..eager.tracing import Shared, Whole
from .layout import Layout
from .setting import Setting, step_group

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


@dataclasses.dataclass
class Found:
    """The units of a model.

    Args:
        modules: the name and the module of each, the root first, then in the order of the model.
        blocks: the numbers of those that the tutorial of FSDP2 shards by themselves: the elements of lists of modules,
            or those that the user names.
        applied: the groups that the user has made with `fully_shard`, as numbers of units. None if there are none.
        facts: what the user has set: indexed by number of the group's first unit, its `Group.reshard`.
        mesh: that of the groups.
        gathered: the sizes of parameters that FSDP2 has sharded when it has gathered them, and which ranks share them
            then. Indexed by identity.
    """

    modules: list[tuple[str, nn.Module]]
    blocks: set[int]
    applied: list[tuple[int, ...]] | None = None
    facts: dict[int, bool | int] = dataclasses.field(default_factory=dict)
    policy: MixedPrecisionPolicy | None = None
    mesh: DeviceMesh | None = None
    reduce_buffers: int = 1
    gathered: dict[int, tuple[torch.Size, Shared | None]] = dataclasses.field(default_factory=dict)


def find(model: nn.Module, chosen: Iterable[nn.Module | str] | None) -> Found:
    """The units of a model.

    Args:
        chosen: modules, or their names, that are to be blocks. None: the elements of its lists of modules.

    Raises:
        ValueError: a chosen module is not in the model, or is inside of another one.
    """
    if any(isinstance(m, FSDPModule) for m in model.modules()):
        if chosen is not None:
            raise ValueError("units: expected None for a model on which fully_shard was called: its groups hold")
        return _applied(model)
    names = {id(m): n for n, m in model.named_modules()}
    blocks: list[nn.Module] = []
    rest: list[nn.Module] = []
    if chosen is None:
        _walk(model, blocks, rest)
    else:
        for m in chosen:
            module = model.get_submodule(m) if isinstance(m, str) else m
            if id(module) not in names or module is model:
                raise ValueError(f"units: expected modules inside of the model, got {names.get(id(module), module)!r}")
            blocks.append(module)
        _walk(model, [], rest, {id(m) for m in blocks})
        inside = {id(x) for m in blocks for x in m.modules() if x is not m}
        if nested := [names[id(m)] for m in blocks if id(m) in inside]:
            raise ValueError(f"units: expected modules that are not inside of each other, got {nested[0]!r}")
    order = {id(m): i for i, (_, m) in enumerate(model.named_modules())}
    found = sorted({id(m): m for m in [*blocks, *rest]}.values(), key=lambda m: order[id(m)])
    modules = [("", model), *((names[id(m)], m) for m in found)]
    own = {id(m) for m in blocks}
    return Found(modules, {i for i, (_, m) in enumerate(modules) if id(m) in own})


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _walk(module: nn.Module, blocks: list[nn.Module], rest: list[nn.Module], known: set[int] | None = None) -> None:
    """Sorts the modules below `module` into elements of lists, and others.

    Args:
        known: identities of the blocks if the user has named them.
    """
    elements = isinstance(module, _CONTAINERS)
    for child in module.children():
        if known is not None and id(child) in known or not _has_parameters(child):
            continue
        if known is None and elements and not isinstance(child, (nn.ModuleList, nn.ModuleDict)):
            blocks.append(child)
            continue
        holds = any(isinstance(m, _CONTAINERS) and _has_parameters(m) for m in child.children())
        inside = known is not None and any(id(m) in known for m in child.modules())
        if inside or known is None and (isinstance(child, _CONTAINERS) or holds):
            _walk(child, blocks, rest, known)
        else:
            rest.append(child)


def _applied(model: nn.Module) -> Found:
    """The groups of a model on which `fully_shard` was called. Reads FSDP2's state and changes nothing."""
    if not isinstance(model, FSDPModule):
        raise ValueError("model: expected fully_shard on the model itself, too: FSDP2 needs one root")
    order = [(n, m) for n, m in model.named_modules() if isinstance(m, FSDPModule)]
    found = Found([("", model)], set(), [])
    states: dict[int, list[int]] = {}
    for name, module in order:
        state = module._get_fsdp_state()
        groups = state._fsdp_param_groups
        if len(groups) > 1:
            raise ValueError(f"{name}: a module with parameters on several meshes cannot be planned")
        if module is not model:
            found.modules.append((name, module))
            found.blocks.add(len(found.modules) - 1)
        number = 0 if module is model else len(found.modules) - 1
        members = states.setdefault(id(state), [])
        members.append(number)
        found.facts[number] = False
        if groups:
            found.facts[number] = _reshard_of(groups[0])
            for own in groups[0].fsdp_params:
                spec = own._unsharded_dtensor_spec
                shared = None if spec is None else (spec.mesh, spec.placements, spec.shape)
                found.gathered[id(own.sharded_param)] = own._orig_size, shared
            found.mesh = _mesh_of(groups[0], name, found.mesh)
            found.reduce_buffers = groups[0].reduce_scatter_max_input_buffers
        found.policy = state._mp_policy
        if number == 0 and state._auto_reshard_after_forward:
            found.facts[0] = False
    assert found.applied is not None
    found.applied += [tuple(members) for members in states.values()]
    return found


def _reshard_of(group: Any) -> bool | int:
    """`Group.reshard` of a group that FSDP2 has made."""
    if group.post_forward_mesh_info is None:
        return False
    return int(group.post_forward_mesh_info.shard_mesh_size) if group._use_post_forward_mesh else True


def _mesh_of(group: Any, name: str, others: DeviceMesh | None) -> DeviceMesh:
    """The mesh of a group that FSDP2 has made.

    Raises:
        ValueError: it differs from that of the other groups, or only a part of it is for sharding.
    """
    info = group.mesh_info
    if info.shard_mesh_dim is None or info.is_spmd_mesh:
        raise ValueError(
            f"{name}: a mesh with dimensions for other things than sharding (dp_mesh_dims) cannot be planned"
        )
    if others is not None and info.mesh != others:
        raise ValueError(f"{name}: expected the mesh of the other groups, {others}, got {info.mesh}")
    return info.mesh


def layout_of(mesh: DeviceMesh | None, ranks: int | tuple[int, int] | None, found: Found, node: int) -> Layout:
    """The ranks of the job.

    Args:
        node: the number of ranks of a node.

    Raises:
        ValueError: nothing tells them, or FSDP2 does not take such a mesh.
    """
    given = {name: value for name, value in (("mesh", mesh), ("ranks", ranks)) if value is not None}
    if len(given) > 1:
        raise ValueError("ranks: expected None with a mesh")
    if given and found.mesh is not None:
        raise ValueError(
            f"{next(iter(given))}: expected None for a model on which fully_shard was called: its mesh holds"
        )
    mesh = mesh or found.mesh
    if mesh is not None:
        return _layout_of_mesh(mesh, node)
    if ranks is None:
        if not dist.is_initialized():
            raise ValueError("ranks: expected the number of ranks, or a mesh, where no process group is initialized")
        return Layout(dist.get_world_size(), node=node)
    sizes = tuple(ranks) if isinstance(ranks, (tuple, list)) else (ranks,)
    if len(sizes) > 2 or min(sizes, default=0) < 1:
        raise ValueError(f"ranks: expected at least 1, or a pair of replicas and ranks of each, got {ranks}")
    return _layout(sizes, node, "ranks")


def _layout_of_mesh(mesh: DeviceMesh, node: int) -> Layout:
    if mesh.ndim > 2:
        raise ValueError(f"mesh: expected one dimension, or two for hybrid sharding, got {mesh.ndim}")
    if mesh.ndim == 2 and not mesh.mesh_dim_names:
        raise ValueError(
            "mesh: expected names of its two dimensions (mesh_dim_names), without which FSDP2 takes no such mesh"
        )
    layout = _layout(tuple(mesh.mesh.shape), node, "mesh")
    numbers = tuple(mesh.mesh.flatten().tolist())
    world = dist.get_world_size()
    return layout if numbers == tuple(range(world)) else dataclasses.replace(layout, numbers=numbers, world=world)


def _layout(sizes: tuple[int, ...], node: int, name: str) -> Layout:
    if len(sizes) == 1:
        return Layout(sizes[0], node=node)
    if sizes[1] < 2:
        raise ValueError(f"{name}: expected at least 2 ranks in a replica, got 1: without shards, use DDP")
    return Layout(sizes[1], sizes[0], node)


def whole_parameters(
    model: nn.Module, policy: MixedPrecisionPolicy, mesh: DeviceMesh | None, found: Found
) -> dict[int, Whole]:
    """The parameters as modules read them when FSDP2 has gathered them. Indexed by identity.

    Args:
        mesh: that of `fully_shard`. None: all ranks.

    Raises:
        ValueError: the ranks of other meshes share a parameter, and nothing tells which ranks FSDP2 shards it over.
    """
    result = {}
    for name, p in model.named_parameters():
        dtype = (policy.param_dtype or p.dtype) if p.is_floating_point() else p.dtype
        own = found.gathered.get(id(p))
        if own is None and isinstance(p, DTensor):
            _refuse_ranks(name, p, mesh)
            own = p._local_tensor.shape, (p.device_mesh, p.placements, p.shape)
        size, shared = own if own is not None else (p.shape, None)
        result[id(p)] = Whole(size, dtype, shared)
    return result


def _refuse_ranks(name: str, p: DTensor, mesh: DeviceMesh | None) -> None:
    """Raises ValueError if FSDP2 would shard a parameter over ranks that share it already (tensor parallelism)."""
    if mesh is None:
        raise ValueError(
            f"{name}: expected mesh=, the mesh of fully_shard, for a parameter that ranks of {p.device_mesh} share"
        )
    if common := set(mesh.mesh.flatten().tolist()) & set(p.device_mesh.mesh.flatten().tolist()) - {dist.get_rank()}:
        raise ValueError(f"{name}: expected other ranks than those that share it, got {sorted(common)} in {mesh}")


def step_units(
    model: nn.Module, found: Found, order: Sequence[int], policy: MixedPrecisionPolicy, whole: dict[int, Whole]
) -> tuple[list[Unit], dict[int, int]]:
    """The units of a step, and their numbers by those that the trace used.

    Args:
        order: units in the order of their first forward; others were not called.
        whole: the parameters as modules read them.
    """
    positions = {id(m): i for i, (_, m) in enumerate(model.named_modules())}
    holders: dict[int, list[int]] = {}
    for number, (_, module) in enumerate(found.modules[1:], 1):
        for p in module.parameters():
            holders.setdefault(id(p), []).append(number)
    groups = {u: g for g, members in enumerate(found.applied or ()) for u in members}
    pinned: dict[int, str] = {}
    own: dict[int, list[Parameter]] = {i: [] for i in range(len(found.modules))}
    names = {id(p): n for n, p in model.named_parameters(remove_duplicate=False)}
    for name, p in model.named_parameters():
        where = sorted(set(holders.get(id(p), [ROOT])), key=lambda u: -positions[id(found.modules[u][1])])
        # With modules inside of each other, the innermost one has the parameter.
        outer = [
            u for u in where[1:] if not any(m is found.modules[where[0]][1] for m in found.modules[u][1].modules())
        ]
        owner = where[0]
        if outer and len({groups.get(u) for u in [owner, *outer]} if groups else {None, 0}) > 1:
            for u in (owner, *outer):
                pinned[u] = f"it shares {names[id(p)]}"
            owner = ROOT
        gathered = policy.param_dtype or p.dtype if p.is_floating_point() else p.dtype
        reduced = policy.reduce_dtype or gathered
        sizes = (p.dtype.itemsize, gathered.itemsize, reduced.itemsize)
        own[owner].append(Parameter(name, tuple(whole[id(p)].size), *sizes, p.requires_grad))
    called = [u for u in order if u != ROOT]
    numbers = [ROOT, *called, *(u for u in range(1, len(found.modules)) if u not in set(called))]
    units = [
        Unit(found.modules[u][0], tuple(own[u]), positions[id(found.modules[u][1])], pinned.get(u, "")) for u in numbers
    ]
    return units, {u: i for i, u in enumerate(numbers)}


def applied_setting(step: Step, found: Found, numbers: dict[int, int]) -> Setting:
    """The setting that the user has made, without lists of prefetches."""
    assert found.applied is not None
    groups = []
    for members in found.applied:
        units = tuple(sorted(numbers[u] for u in members))
        groups.append(step_group(step, units, found.facts[members[0]]))
    groups.sort(key=lambda g: g.units[0])
    return Setting(tuple(groups), found.reduce_buffers)
