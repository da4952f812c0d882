#===- whole_numbers.py - Arrays of small whole numbers ---------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===------------------------------------------------------------------------------------------------===#
#
# Writes FOLDER/0.npy, 1.npy and so on, with 32-bit floating-point numbers that are whole: sums and products of them are
# exact, whatever their order.
#
#   whole_numbers.py FOLDER SHAPE...      such as 8x16

import math
import random
import struct
import sys
from pathlib import Path

rng = random.Random(7)
folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for number, text in enumerate(sys.argv[2:]):
    shape = tuple(map(int, text.split("x")))
    values = [float(rng.randint(-4, 4)) for _ in range(math.prod(shape))]
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    content = b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(values)}f", *values)
    (folder / f"{number}.npy").write_bytes(content)
