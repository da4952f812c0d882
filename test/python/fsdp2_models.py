# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Small models for eager FSDP2, and what their steps do when they run: collectives, lifetimes and live storages."""

import contextlib
import math
import weakref

import torch
import torch.nn as nn
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.profiler import profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.checkpoint import checkpoint

WIDTH = 64


class Block(nn.Module):
    """A layer whose width differs from layer to layer, so that no two gathers are alike."""

    def __init__(self, inner):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, inner), nn.Linear(inner, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    """An embedding, some layers and a head, as in most tutorials."""

    def __init__(self, layers=4, inner=64, step=32):
        super().__init__()
        self.embed = nn.Embedding(48, WIDTH)
        self.layers = nn.ModuleList(Block(inner + step * i) for i in range(layers))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 48, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def loss_of(logits):
    """The mean of squares."""
    return logits.float().square().mean()


def batch(rank=0, rows=8):
    """The tokens of a rank."""
    return torch.randint(0, 48, (rows, 16), generator=torch.Generator().manual_seed(rank))


def in_tensor_parallel(model, mesh):
    """The model, with layers, embedding and head split over the ranks of a mesh, and the sequence between them."""
    ends = {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    inside = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    }
    parallelize_module(model, mesh, ends)
    for layer in model.layers:
        parallelize_module(layer, mesh, inside)
    return model


class Storages(TorchDispatchMode):
    """The most bytes of storages that are live behind any operator. FSDP2 resizes some, so sizes are read each time."""

    def __init__(self, known):
        super().__init__()
        self.live = {}
        self.peak = 0
        for t in known:
            self._add(t)

    def _add(self, t):
        storage = t.untyped_storage()
        key = storage._cdata
        if key not in self.live:
            self.live[key] = weakref.ref(storage, lambda _, key=key: self.live.pop(key, None))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented  # It calls operators on this rank's part.
        result = func(*args, **(kwargs or {}))
        for leaf in tree_flatten(result)[0]:
            # A DTensor's storage is as large as the whole and takes no memory, nor does that of a result in flight. Its
            # part is seen when it is made. Gloo reduces a copy of its input, which it then splits. No other library of
            # collectives makes one.
            if type(leaf) in (torch.Tensor, nn.Parameter) and func is not torch.ops.aten.split.Tensor:
                self._add(leaf)
        sizes = [s.nbytes() for ref in list(self.live.values()) if (s := ref()) is not None]
        self.peak = max(self.peak, sum(sizes))
        return result


@contextlib.contextmanager
def marked():
    """The profiler sees when whole parameters are freed."""
    before = FSDPParamGroup._to_sharded, FSDPParamGroup._to_sharded_post_forward

    def to_sharded(self):
        if not self.is_sharded:
            with record_function(f"test::reshard ({self._module_fqn})"):
                before[0](self)

    def to_part(self):
        with record_function(f"test::reshard ({self._module_fqn})"):
            before[1](self)

    FSDPParamGroup._to_sharded, FSDPParamGroup._to_sharded_post_forward = to_sharded, to_part
    try:
        yield
    finally:
        FSDPParamGroup._to_sharded, FSDPParamGroup._to_sharded_post_forward = before


KINDS = {
    "FSDP::all_gather": "all_gather",
    "FSDP::all_gather_copy_out": "copy_out",
    "FSDP::post_backward_reduce": "reduce_scatter",
    "test::reshard": "reshard",
}
COLLECTIVES = {
    "c10d::_allgather_base_": "all_gather",
    "c10d::_reduce_scatter_base_": "reduce_scatter",
    "c10d::allreduce_": "all_reduce",
}


def seen(step):
    """What a step does, by the profiler: pairs of a kind and the modules of a group; and the collectives of FSDP2, as
    pairs of a kind and the number of ranks if that follows from the sizes, otherwise 0."""
    with marked(), profile(record_shapes=True) as prof:
        step()
    events = sorted(((e.time_range.start, e.name, e.input_shapes) for e in prof.events()), key=lambda e: e[:2])
    own = [e.time_range for e in prof.events() if e.name.startswith("_c10d_functional::")]
    named, collectives = [], []
    for start, name, shapes in events:
        kind, _, group = name.partition(" (")
        if kind in KINDS:
            named.append((KINDS[kind], group[:-1]))
        if name in COLLECTIVES and not any(o.start <= start < o.end for o in own):
            sizes = sorted(math.prod(s) for s in shapes if s)
            collectives.append((COLLECTIVES[name], sizes[-1] // sizes[0] if len(sizes) == 2 else 0))
    return named, collectives


class Twice(Model):
    """The second layer is called twice in a step."""

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in (*self.layers, self.layers[1]):
            x = layer(x)
        return self.head(self.norm(x))


class Uncalled(Model):
    """A layer and a head are never called."""

    def __init__(self):
        super().__init__()
        self.other_head = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens):
        x = self.embed(tokens)
        for i, layer in enumerate(self.layers):
            if i != 2:
                x = layer(x)
        return self.head(self.norm(x))


class Frozen(Model):
    """The embedding and the first layer are not trained, nor is a weight of the third."""

    def __init__(self):
        super().__init__()
        for part in (self.embed, self.layers[0], self.layers[2].up):
            part.requires_grad_(False)


class Tied(Model):
    """The head has the embedding's weight."""

    def __init__(self):
        super().__init__()
        self.head.weight = self.embed.weight


class Checkpointed(Model):
    """Layers are computed again in the backward pass."""

    def forward(self, tokens):
        x = self.embed(tokens)
        for i, layer in enumerate(self.layers):
            x = checkpoint(layer, x, use_reentrant=False) if i % 2 else layer(x)
        return self.head(self.norm(x))


class Routed(Block):
    """A layer that asks for a value of its input."""

    def forward(self, x):
        return super().forward(x) if x.sum() > -1e9 else x


class DependsOnData(Model):
    """The third layer depends on values."""

    def __init__(self):
        super().__init__()
        self.layers[2] = Routed(96)
