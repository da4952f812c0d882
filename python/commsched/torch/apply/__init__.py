# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Carries a schedule out on an FX graph: reads the plan, writes the buckets, moves the nodes, and counts the memory."""
