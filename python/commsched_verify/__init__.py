# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checks certificates of schedules, which `comm-opt --comm-certificate=FILE` writes.

A certificate holds a problem, an answer, what is claimed of it, and a witness of the lower bound. This package shares
nothing with the scheduler that wrote it, the package `commsched` included, and needs nothing but Python: its folder may
be copied. Certificate.md describes the format and what is proven; Lemmas are those of Bounds.md.
"""
