# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""CommSched hides the communication of distributed ML programs behind their computation.

`Program` holds an MLIR module and runs passes over it. `commsched.torch` is the PyTorch front end, and the only part
that needs torch: importing this package does not import it.
"""

from __future__ import annotations

from .program import Error, Message, Operation, Program, version

__all__ = ["Error", "Message", "Operation", "Program", "__version__", "version"]
__version__ = version()
