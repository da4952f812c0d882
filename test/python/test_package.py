# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Parts of an installation: console scripts, and one line where PyTorch has another version. That the wheel runs
without LLVM is for scripts/test-wheel.sh.
"""

import importlib.metadata
import pathlib
import re
import subprocess
import sys

import commsched_tools
import pytest

from commsched.torch import pytorch

PYPROJECT = pathlib.Path(__file__).parents[2] / "python" / "pyproject.toml"


def test_the_console_script_is_the_tool():
    script = "import sys, commsched_tools; sys.argv = ['comm-opt', '--version']; commsched_tools.comm_opt()"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    tool = subprocess.run([commsched_tools.find("comm-opt"), "--version"], capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout == tool.stdout
    assert run.stdout.startswith("comm-opt, CommSched ")


def test_a_missing_tool_is_named():
    with pytest.raises(FileNotFoundError, match="expected comm-bake at .*comm-bake or .*build/bin/comm-bake"):
        commsched_tools.find("comm-bake")


def test_the_extra_asks_for_the_supported_versions():
    first, end = re.search(r'^torch = \["torch>=2\.(\d+),<2\.(\d+)"\]', PYPROJECT.read_text(), re.MULTILINE).groups()
    assert pytorch.SUPPORTED == tuple(f"2.{minor}" for minor in range(int(first), int(end)))


@pytest.mark.parametrize("found", ["2.12.1", "2.16.0+cu130", "3.2.13", "2.1.0"])
def test_another_pytorch_is_refused_in_one_line(monkeypatch, found):
    monkeypatch.delenv(pytorch.ANY_TORCH, raising=False)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: found)
    with pytest.raises(ImportError) as error:
        pytorch.check()
    message = str(error.value)
    assert f"needs PyTorch 2.13 to 2.15, got {found}: pip install 'torch>=2.13,<2.16'" in message
    assert "\n" not in message
    monkeypatch.setenv(pytorch.ANY_TORCH, "1")
    pytorch.check()


@pytest.mark.parametrize("found", ["2.13.0+cpu", "2.14.1", "2.15.0", "2.15.1+cu132"])
def test_supported_versions_are_taken(monkeypatch, found):
    monkeypatch.delenv(pytorch.ANY_TORCH, raising=False)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: found)
    pytorch.check()


@pytest.mark.parametrize(("found", "lines"), [("2.12.1", "cannot work with PyTorch 2.12.1"), ("2.13.0", "no part")])
def test_a_part_that_another_pytorch_lacks_is_one_line(monkeypatch, found, lines):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: found)
    error = pytorch.explained(ImportError("no part"))
    assert lines in str(error) and "no part" in str(error) and "\n" not in str(error)


def test_a_missing_pytorch_is_said_in_one_line(monkeypatch):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(ImportError, match=r"which is not installed: pip install 'commsched\[torch\]'$"):
        pytorch.check()
