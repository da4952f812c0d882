# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The command `python -m commsched.torch.trace`, and the public names of `models.trace`."""

import sys

from .models.trace import TraceConfig, build, fake_world, main, meshes, partition, trace

__all__ = ["TraceConfig", "build", "fake_world", "main", "meshes", "partition", "trace"]

if __name__ == "__main__":
    sys.exit(main())
