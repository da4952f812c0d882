# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Strands in an FX graph: `decision` asks comm-split-strands, `recipe` reads its answer, `rewrite` carries it out."""
