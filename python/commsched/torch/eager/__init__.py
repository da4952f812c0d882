# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One training step of a module that runs eagerly, traced with fake tensors, and the prices of its operators."""
