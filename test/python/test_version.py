# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The version is written in one place, the root CMakeLists.txt."""

import importlib.metadata
import pathlib
import re
import subprocess
import sys

import commsched


def test_every_version_is_that_of_the_project():
    project = (pathlib.Path(__file__).parents[2] / "CMakeLists.txt").read_text()
    version = re.search(r"^project\(CommSched VERSION ([0-9.]+)", project, re.MULTILINE)[1]
    assert commsched.version() == commsched.__version__ == version
    assert importlib.metadata.version("commsched") == version
    checker = subprocess.run(
        [sys.executable, "-m", "commsched_verify", "--version"], capture_output=True, text=True, check=True
    )
    assert checker.stdout == f"commsched-verify, CommSched {version}\n"
