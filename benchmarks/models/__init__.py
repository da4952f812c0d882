# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Models and parallelisms, for graphs to try the scheduler on. The benchmarks and tests use them."""
