# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A zoo: small copies of real models (`benchmarks/models/zoo`) in training, on a few processes of one machine.

`python -m zoo` (in the folder above) trains them with and without CommSched, compares every bit, and prints a table.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "benchmarks"))
