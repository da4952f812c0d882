# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`python3 -m commsched_verify FILE...`."""

import sys

from .checker import main

sys.exit(main())
