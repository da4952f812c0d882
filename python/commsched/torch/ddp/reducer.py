# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A training step as `DistributedDataParallel` (DDP) runs it from its second iteration on.

When a gradient is complete, DDP copies it into its bucket and divides it by the number of ranks. A bucket is reduced
when it and all buckets before it are complete. The backward pass ends with a wait for all buckets. In the first
iteration, DDP notes the order in which gradients become complete, and divides them into buckets in that order
(`Reducer::rebuild_buckets` in torch/csrc/distributed/c10d/reducer.cpp).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist

MIB = 1 << 20
# DDP's own limits: the first bucket, and all others (`_DEFAULT_BUCKET_CAP_MB`).
DEFAULT_LIMITS = (dist._DEFAULT_FIRST_BUCKET_BYTES, 25 * MIB)

Buckets = list[list[int]]


@dataclasses.dataclass(frozen=True)
class Gradient:
    """The gradient of a parameter.

    Args:
        name: the first name of the parameter in the model.
        shape: its sizes.
        dtype: its element type.
        before_ns: the time of the computation between the gradient before it and this one.
        copy_ns: the time of the copy into the bucket, which is that of the copy back.
    """

    name: str
    shape: torch.Size
    dtype: torch.dtype
    before_ns: int
    copy_ns: int

    @property
    def nbytes(self) -> int:
        return self.shape.numel() * self.dtype.itemsize


@dataclasses.dataclass(frozen=True)
class Backward:
    """A step with its backward pass cut at the gradients.

    Args:
        gradients: in the order in which they become complete.
        after_ns: the time of the computation behind the last one.
        views: gradients are views of the buckets (`gradient_as_bucket_view`), so they are not copied back.
    """

    gradients: tuple[Gradient, ...]
    after_ns: int
    views: bool

    def ready_ns(self) -> list[int]:
        """Indexed by gradient: when it is in its bucket."""
        ready, now = [], 0
        for g in self.gradients:
            now += g.before_ns + g.copy_ns
            ready.append(now)
        return ready

    def compute_ns(self) -> int:
        """The time of all computation, with the copies."""
        back = 0 if self.views else sum(g.copy_ns for g in self.gradients)
        return sum(g.before_ns + g.copy_ns for g in self.gradients) + self.after_ns + back

    def buckets(self, limits: Sequence[int]) -> Buckets:
        """The numbers of the gradients of each bucket, by PyTorch's own function.

        Args:
            limits: bytes at which a bucket is full. The last one is the limit of all further buckets. Gradients of each
                element type have buckets of their own, which begin with the first limit.
        """
        like = [torch.empty(g.shape, dtype=g.dtype, device="meta") for g in self.gradients]
        found, _ = dist._compute_bucket_assignment_by_size(like, list(limits), [False] * len(like), [*range(len(like))])
        return found

    def nbytes(self, bucket: Sequence[int]) -> int:
        """The bytes of a bucket."""
        return sum(self.gradients[i].nbytes for i in bucket)

    def step_ns(self, buckets: Buckets, prices: Iterable[float]) -> float:
        """When the step ends.

        Args:
            prices: indexed by bucket: the time of its all-reduce, ns.

        Complexity: linear in the number of gradients.
        """
        ready = self.ready_ns()
        computed = ready[-1] + self.after_ns if ready else self.after_ns
        link = 0.0
        end = float(computed)
        for bucket, price in zip(buckets, prices):
            link = max(link, ready[max(bucket)]) + price
            end = max(end, link)
            if not self.views:
                end += sum(self.gradients[i].copy_ns for i in bucket)
        return end
