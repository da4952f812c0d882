# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Turns an FX graph into a module of `comm` operations. `export` is the way in, `graph` is the walk over the nodes."""
