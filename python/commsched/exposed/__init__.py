# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Says how much of a step of any job its collectives are exposed, from the trace of a profiler.

    python -m commsched.exposed rank0.json rank1.json

It reads what `torch.profiler` exports, of jobs that need not know CommSched, and exports of NVIDIA Nsight Systems. A
collective is exposed while it runs and no computation does. With the traces of several ranks, the time for which a rank
waits for others to come is told apart: no schedule hides that. docs/guide/Exposed.md has an example.
"""

from .analysis import Analysis, analyse
from .page import write_page
from .reading import Trace, read
from .tables import table

__all__ = ["Analysis", "Trace", "analyse", "read", "table", "write_page"]
