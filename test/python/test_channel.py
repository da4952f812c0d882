# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A compilation talks to other ranks through one module, which cannot hang there."""

import ast
import faulthandler
import pathlib

import pytest

torch = pytest.importorskip("torch")

import commsched.torch
import gloo
from commsched.torch.ranks import channel

PACKAGE = pathlib.Path(commsched.torch.__file__).parent
# What may be called of torch.distributed without talking to anybody.
SILENT = {
    "ProcessGroup",
    "_compute_bucket_assignment_by_size",
    "get_backend",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "is_available",
    "is_initialized",
    "_get_object_coll_device",
    "_resolve_process_group",
}
# What runs outside of compilations: functions that users call, and what generated code calls.
OUTSIDE = ("recording/report.py", "ranks/comparison.py", "ranks/trial.py")
# What `machine="measure"` calls in a compilation, and only as `channel.undisturbed` allows it.
UNDISTURBED = tuple(f"calibration/{name}.py" for name in ("bench", "job", "questions"))
OUTSIDE_FUNCTIONS = {("inductor/ways_in.py", "verify_ranks"), ("trace.py", "fake_world")}


def name_of(node):
    """The dotted name of an expression, or ""."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def talks(source):
    """(function, call) of every call of torch.distributed in a file that may talk to other ranks."""
    found = []

    def visit(node, function):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = node.name
        if isinstance(node, ast.Call):
            name = name_of(node.func)
            of_module = name.startswith(("dist.", "torch.distributed.", "c10d."))
            if of_module and name.rsplit(".", 1)[1] not in SILENT:
                found.append((function, name))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.distributed"):
            names = {a.name for a in node.names if a.name.islower()} - SILENT
            found.extend((function, name) for name in names if hasattr(torch.distributed, name))
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(ast.parse(source), "")
    return [call for call in found if call[1] not in ("distributed_c10d", "torch.distributed.distributed_c10d")]


def test_nothing_else_in_a_compilation_talks_to_other_ranks():
    wrong = []
    for file in sorted(PACKAGE.rglob("*.py")):
        place = file.relative_to(PACKAGE).as_posix()
        if place.startswith(OUTSIDE + UNDISTURBED) or place == "ranks/channel.py":
            continue
        wrong += [(place, *call) for call in talks(file.read_text()) if (place, call[0]) not in OUTSIDE_FUNCTIONS]
    assert wrong == []


def test_a_collective_in_a_compilation_is_found():
    assert talks("def f(x):\n    dist.all_gather([x], x)\n") == [("f", "dist.all_gather")]
    assert talks("def f(x):\n    dist.distributed_c10d._get_default_store().get(x)\n")
    assert talks("from torch.distributed import all_reduce\n") == [("", "all_reduce")]
    assert talks("def f():\n    return dist.get_rank()\n") == []
    assert talks((PACKAGE / "ranks/channel.py").read_text())


def _gathers(rank, ranks, count):
    from torch._dispatch.python import enable_python_dispatcher
    from torch._subclasses.fake_tensor import FakeTensorMode

    faulthandler.dump_traceback_later(300, exit=True)  # A rank that hangs here holds Python's lock.
    with FakeTensorMode(), enable_python_dispatcher():
        for i in range(count):
            assert channel.gather_integers([i, rank] * 50) == [n for r in range(ranks) for n in [i, r] * 50]
    faulthandler.cancel_dump_traceback_later()


def test_ranks_gather_in_a_compilation_without_hanging():
    """Without the guards, 4 of 4 such runs hung before the 500th gather."""
    gloo.run(2, _gathers, 1500)


def _measures(rank, ranks, count):
    from torch._dispatch.python import enable_python_dispatcher
    from torch._subclasses.fake_tensor import FakeTensorMode

    faulthandler.dump_traceback_later(300, exit=True)
    sizes = [1024 + 8 * i for i in range(count)]
    given = dict(kinds=["all_reduce", "all_gather"], base="cpu-mpi", recipe="seed", cache="none", budget_seconds=0)
    with FakeTensorMode(), enable_python_dispatcher(), channel.undisturbed():
        result = commsched.torch.calibrate(sizes=sizes, **given)
    assert (result.measured, result.skipped) == (2 * count, [])
    faulthandler.cancel_dump_traceback_later()


def test_ranks_measure_in_a_compilation_without_hanging():
    """There are 1500 collectives, and a barrier before two of three."""
    gloo.run(2, _measures, 250)


def test_nobody_is_asked_without_other_ranks(world):
    assert channel.job_store() is None
