# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A plan for eager FSDP2: groups, resharding and prefetches that hide its collectives, through its public calls."""

from ..eager.recorder import Untraceable
from .plan import Plan, plan

__all__ = ["Plan", "Untraceable", "plan"]
