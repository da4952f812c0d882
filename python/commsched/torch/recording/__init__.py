# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Records of the runs of generated code, beside predictions.

Generated code imports `recorder` from here. `analysis` compares, and `report` gathers the ranks.
"""

from .report import runtime_report
from .stamps import recorder

__all__ = ["recorder", "runtime_report"]
