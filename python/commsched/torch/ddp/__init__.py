# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A plan for `DistributedDataParallel`: buckets whose all-reduces hide behind the backward pass."""

from .plan import DdpPlan, plan_ddp

__all__ = ["DdpPlan", "plan_ddp"]
