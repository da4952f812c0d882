# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The versions of PyTorch that the front end is made for. It uses private parts of Inductor, which change with every
version, so another one is refused in one line, before anything of it is imported. test/python/test_contract.py lists
the parts.
"""

from __future__ import annotations

import importlib.metadata
import os

from .. import __version__

#: The versions on which the tests have passed, oldest first; python/pyproject.toml has the same range in the extra
#: `torch`.
SUPPORTED = ("2.13", "2.14", "2.15")
#: Set to 1 to try another version all the same.
ANY_TORCH = "COMMSCHED_ANY_TORCH"


def _asked_for() -> str:
    """What pip has to be asked for."""
    major, minor = SUPPORTED[-1].split(".")
    return f"torch>={SUPPORTED[0]},<{major}.{int(minor) + 1}"


def _is_supported(found: str) -> bool:
    return ".".join(found.split(".")[:2]) in SUPPORTED


def check() -> None:
    """Raises ImportError if PyTorch is missing or has another version than those that are supported."""
    needs = f"commsched.torch {__version__} needs PyTorch {SUPPORTED[0]} to {SUPPORTED[-1]}"
    try:
        found = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(f"{needs}, which is not installed: pip install 'commsched[torch]'") from None
    if not _is_supported(found) and os.environ.get(ANY_TORCH) != "1":
        raise ImportError(
            f"{needs}, got {found}: pip install '{_asked_for()}', or set {ANY_TORCH}=1 to try it, on which nothing has "
            "been tested"
        )


def explained(error: ImportError) -> ImportError:
    """`error`, or one line in its place if this version of PyTorch lacks what the front end needs."""
    found = importlib.metadata.version("torch")
    if _is_supported(found):
        return error
    return ImportError(
        f"commsched.torch {__version__} cannot work with PyTorch {found}, which lacks a part that it needs ({error}): "
        f"pip install '{_asked_for()}'"
    )
