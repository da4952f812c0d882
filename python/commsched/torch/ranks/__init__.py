# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Keeps the ranks together: `agreement` makes all ranks decide alike, and `comparison` checks that they did.

Generated code imports `first_run` from here. `compare` is for decisions that ranks carry out without generated code.
"""

from .comparison import compare, first_run

__all__ = ["compare", "first_run"]
