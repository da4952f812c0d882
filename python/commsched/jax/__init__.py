# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The JAX front end: XLA:GPU's modules run in the order that CommSched gives them.

    import commsched.jax
    commsched.jax.install(machine="h100-sxm")

Importing this package does not import jax. docs/guide/Jax.md describes the options and what is understood.
"""

from __future__ import annotations

from .hook import enabled, install, reports, schedule, uninstall
from .placement import faster_mesh

__all__ = ["enabled", "faster_mesh", "install", "reports", "schedule", "uninstall"]
