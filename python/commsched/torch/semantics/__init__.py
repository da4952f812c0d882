# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Meaning of the nodes of an FX graph: which operators communicate, and what each node reads, writes and aliases.

This is the ground floor. It knows nothing of MLIR, of schedules, or of Inductor.
"""
