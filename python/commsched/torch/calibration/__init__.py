# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Measures collectives on the process groups of the running job, for a machine profile that tells the truth about it.

`bench` runs and times one collective, `questions` decides what is worth measuring, and `job` does the whole. How
often something runs, what ranks agree on, and how it is kept is decided by the library (docs/guide/Calibration.md).
"""

from .job import Calibration, calibrate

__all__ = ["Calibration", "calibrate"]
