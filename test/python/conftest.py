# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Fixtures and helpers of the Python tests: a fake process group, and small graphs traced with fake tensors."""

import contextlib
import filecmp
import os
import pathlib
import sys

import pytest

os.environ.setdefault("COMMSCHED_STRICT", "1")  # Warnings fail the test.

torch = pytest.importorskip("torch")

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))

from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from commsched.torch.trace import fake_world

RANKS = 8


def pytest_sessionstart(session):
    """Refuses to test a library that is not the one that was built last (COMMSCHED_LIBRARY)."""
    from commsched import _commsched

    built = os.environ.get("COMMSCHED_LIBRARY")
    if built is None:
        return
    if not filecmp.cmp(built, _commsched.LIBRARY, shallow=False):
        pytest.exit(f"{_commsched.LIBRARY} is not {built}: scripts/test.sh installs the package again", returncode=1)


@pytest.fixture(autouse=True)
def _inductor_is_left_as_it_was():
    """Fails a test that leaves Inductor's configuration changed: the tests after it would compile something else."""
    from torch._inductor import config

    before, compile = config.get_config_copy(), torch.compile
    yield
    assert config.get_config_copy() == before
    assert torch.compile is compile


@pytest.fixture
def world():
    """A fake process group of 8 ranks. The value is its name."""
    with fake_world(RANKS):
        yield torch.distributed.group.WORLD.group_name


def trace(f, *shapes, dtype=torch.float32, symbolic=False):
    """The graph of `f` over tensors of these shapes."""
    if symbolic:
        return make_fx(f, tracing_mode="symbolic")(*[torch.zeros(s, dtype=dtype) for s in shapes])
    with FakeTensorMode(allow_non_fake_inputs=True):
        args = [torch.empty(s, dtype=dtype) for s in shapes]
    return make_fx(f)(*args)


@contextlib.contextmanager
def world_of(ranks):
    with fake_world(ranks):
        yield torch.distributed.group.WORLD.group_name
