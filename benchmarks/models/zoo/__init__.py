# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A zoo of models in training, in the usual kinds of parallelism.

Every model is a function of this rank, the number of ranks, and sizes. Small, it trains on a CPU: the tests compare its
steps with and without CommSched. In the sizes of `real`, `trace_model.py` makes graphs of it.
"""
