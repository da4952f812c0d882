# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The version of PyTorch that the front end is made for. It uses private parts of Inductor, which change with every
version, so another one is refused in one line, before anything of it is imported.
"""

from __future__ import annotations

import importlib.metadata
import os

from .. import __version__

#: The versions whose Inductor the front end knows; python/pyproject.toml has the same in the extra `torch`.
SUPPORTED = "2.13"
#: Set to 1 to try another version all the same.
ANY_TORCH = "COMMSCHED_ANY_TORCH"


def check() -> None:
    """Raises ImportError if PyTorch is missing or has another version than the one that is supported."""
    try:
        found = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(
            f"commsched.torch {__version__} needs PyTorch {SUPPORTED}, which is not installed: "
            "pip install 'commsched[torch]'"
        ) from None
    if found.split(".")[:2] != SUPPORTED.split(".") and os.environ.get(ANY_TORCH) != "1":
        raise ImportError(
            f"commsched.torch {__version__} needs PyTorch {SUPPORTED}, got {found}: "
            f"pip install 'torch=={SUPPORTED}.*', or set {ANY_TORCH}=1 to try it, on which nothing has been tested"
        )


def explained(error: ImportError) -> ImportError:
    """`error`, or one line in its place if this version of PyTorch lacks what the front end needs."""
    found = importlib.metadata.version("torch")
    if found.split(".")[:2] == SUPPORTED.split("."):
        return error
    return ImportError(
        f"commsched.torch {__version__} cannot work with PyTorch {found}, which lacks a part that it needs ({error}): "
        f"pip install 'torch=={SUPPORTED}.*'"
    )
