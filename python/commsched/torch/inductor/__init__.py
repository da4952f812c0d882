# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""CommSched inside torch.compile. `ways_in` holds the ways to turn it on, `passes` what then runs inside Inductor.

The entry point of `torch.compile(backend="commsched")` is `backend`.
"""

from .ways_in import backend, config_patches, enabled, inductor_options, install, uninstall, verify_ranks

__all__ = ["backend", "config_patches", "enabled", "inductor_options", "install", "uninstall", "verify_ranks"]
