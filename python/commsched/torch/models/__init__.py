# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A small zoo of models and parallelisms, for graphs to try the scheduler on. Nothing else in the package needs it."""
