# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Graphs with the operators of FSDP2, in its order, and an interpreter that counts the bytes of live storages.

PyTorch 2.13 traces no such graph any more (its hooks break graphs), so they are built here node by node: the copy-in of
a layer's shards, the all-gather, the copy-out, the storage of the unsharded parameters, their use, and the end of their
storage.
"""

import operator

import torch
import torch.distributed.fsdp._fully_shard._fsdp_collectives  # noqa: F401 (registers torch.ops.fsdp)
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensorMode

aten, c10d, fsdp, inductor = (torch.ops.aten, torch.ops._c10d_functional, torch.ops.fsdp, torch.ops.inductor)


class Builder:
    """Adds calls to a graph, and computes their fake values."""

    def __init__(self):
        self.mode, self.graph = FakeTensorMode(), fx.Graph()

    def placeholder(self, name, *shape):
        node = self.graph.placeholder(name)
        node.meta["val"] = self.mode.from_tensor(torch.empty(*shape))
        return node

    def call(self, target, *args, **kwargs):
        node = self.graph.call_function(target, args, kwargs)
        values = fx.map_arg((args, kwargs), lambda n: n.meta["val"])
        with self.mode:
            node.meta["val"] = None if _without_result(target) else target(*values[0], **values[1])
        return node

    def element(self, node, place):
        result = self.graph.call_function(operator.getitem, (node, place))
        result.meta["val"] = node.meta["val"][place]
        return result

    def module(self, *results):
        self.graph.output(results)
        self.graph.lint()
        return fx.GraphModule(torch.nn.Module(), self.graph)


def _without_result(target):
    """Whether a call only writes. Their fake versions would change the fake parameter's storage."""
    return target in (inductor.resize_storage_bytes_.default, fsdp.copy_.default)


def unsharded_layers(group, ranks, rank, layers=2, width=8, rounds=1, resizes=True):
    """The forward graph of `layers` layers of two square weights each, which run `rounds` times.

    Its arguments are the batch, two shards per layer, and two unsharded parameters per layer, whose storage is empty
    unless `resizes` is false.
    """
    b = Builder()
    x = b.placeholder("x", 4, width)
    rows = width // ranks
    shards = [[b.placeholder(f"shard_{i}_{j}", rows, width) for j in range(2)] for i in range(layers)]
    parameters = [[b.placeholder(f"param_{i}_{j}", width, width) for j in range(2)] for i in range(layers)]
    size, full = rows * width, width * width

    def gathered(i):
        flat = [b.call(aten.view.default, shard, [size]) for shard in shards[i]]
        whole = b.call(aten.empty.memory_format, [2 * full], dtype=torch.float32, device="cpu", pin_memory=False)
        packed = b.call(fsdp.all_gather_copy_in.default, flat, whole, [size, size], 2 * size, rank)
        return b.call(c10d.all_gather_into_tensor.default, b.element(packed, 0), ranks, group)

    def copied(i, start):
        landed = b.call(aten.view.default, b.call(c10d.wait_tensor.default, start), [ranks, 2 * size])
        out = [b.call(aten.empty.memory_format, [ranks, size], dtype=torch.float32, device="cpu") for _ in range(2)]
        b.call(fsdp.split_with_sizes_copy.default, landed, [size, size], 1, out=out)
        for parameter, value in zip(parameters[i], out):
            if resizes:
                b.call(inductor.resize_storage_bytes_.default, parameter, 4 * full)
            b.call(fsdp.copy_.default, parameter, b.call(aten.view.default, value, [width, width]))

    order = [i for _ in range(rounds) for i in range(layers)]
    start = gathered(order[0])
    for i, following in zip(order, [*order[1:], None]):
        copied(i, start)
        start = None if following is None else gathered(following)  # It is in flight while layer i computes.
        for parameter in parameters[i]:
            x = b.call(aten.mm.default, x, b.call(aten.t.default, parameter))
            x = b.call(aten.tanh.default, x)
        for parameter in parameters[i] if resizes else ():
            b.call(inductor.resize_storage_bytes_.default, parameter, 0)
    return b.module(x)


class Counting(fx.Interpreter):
    """Runs a graph, and keeps the largest number of bytes of all storages that were alive behind a node.

    A storage is alive while a value that later nodes read is in it, or a collective in flight reads it. Whatever the
    threads of gloo hold longer does not count, for that differs from run to run.
    """

    def __init__(self, gm):
        super().__init__(gm)
        self.peak, self.flying = 0, {}

    def run_node(self, node):
        if node.target in (c10d.all_gather_into_tensor.default, c10d.all_gather_into_tensor_out.default):
            self.flying[node] = [self.env[n] for n in node.all_input_nodes]
        result = super().run_node(node)
        values = [*self.env.values(), *self.flying.values(), result]
        storages = {}
        for value in torch.utils._pytree.tree_leaves(values):
            if isinstance(value, torch.Tensor):
                storages[value.untyped_storage()._cdata] = value.untyped_storage().nbytes()
        self.peak = max(self.peak, sum(storages.values()))
        if node.target is c10d.wait_tensor.default:
            self.flying.pop(node.args[0])
        return result
