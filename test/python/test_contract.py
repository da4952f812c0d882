# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The private parts of PyTorch that the front end uses. They change from version to version, and nobody tells.

What a version lacks, takes other arguments for, or does behind CommSched's last pass is named here, before it shows as
a schedule that is lost.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pathlib
import textwrap
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")

from torch._inductor import config, memory
from torch._inductor.scheduler import Scheduler

import commsched.torch
from commsched.torch.inductor import rivals
from commsched.torch.inductor.gate import NEITHER
from commsched.torch.semantics.operators import Spec

PACKAGE = pathlib.Path(commsched.torch.__file__).parent
# Indexed by function that we take the place of: the parameters of ours.
REPLACED = {"torch._inductor.compile_fx.post_grad_passes": ("gm", "is_inference")}
# Indexed by class: what we read off its objects, or call on them.
MEMBERS = {
    "torch._inductor.codegen.wrapper.PythonWrapperCodegen": ("generate_return", "writeline"),
    "torch._inductor.compile_fx._InProcessFxCompile": ("codegen_and_compile",),
    "torch._inductor.memory.FreeableInputBuffer": ("get_name",),
    "torch._inductor.scheduler.BaseSchedulerNode": (
        "add_fake_dep",
        "get_buffer_names",
        "get_name",
        "get_nodes",
        "get_outputs",
        "is_extern",
    ),
    "torch._inductor.scheduler.Scheduler": ("compute_ancestors", "compute_last_usage"),
    "torch._inductor.scheduler.SchedulerBuffer": ("get_mutations", "get_name"),
}
# What can change the order of kernels behind `_post_fusion_custom_pass`, by the settings in the conditions. Off where
# CommSched is on (reorder_*, enable_simple_overlap), or they move no collective: combo kernels join kernels, and the
# partition for CUDA graphs keeps dependences.
BEHIND_US = {
    "combo_kernels",
    "deterministic",
    "enable_simple_overlap",
    "graph_partition",
    "reorder_for_compute_comm_overlap",
    "reorder_for_peak_memory",
}
# Inductor's settings for distributed programs. A new one may be a pass that moves what was decided: look at it, name it
# in commsched/torch/inductor/rivals.py if it is, and add it here.
DISTRIBUTED_SETTINGS = set(
    """allow_comms_decompositions bucket_exposed_first bucket_mode bucket_only_internode_comms collective_bucketing
    collective_estimator compute_estimator compute_overlap_multipler custom_runtime_estimation enable_fusion_regions
    enable_low_contention_collectives enable_overlap_scheduling enable_simple_overlap insert_overlap_deps
    log_final_collectives_estimations low_contention_all_gather_ce_multicast low_contention_min_bytes_per_rank
    low_contention_skip_overlap_check max_coll_distance max_compute_pre_fetch max_in_flight_gb max_memory_increase_gb
    max_memory_increase_ratio overlap_scheduling_autofix_cycles pre_bucketing_fsdp_collectives
    pre_bucketing_fsdp_collectives_bucket_cap_mb pre_bucketing_fsdp_collectives_max_bucket_cap_mb
    pre_bucketing_fsdp_collectives_min_bucket_cap_mb
    pre_bucketing_fsdp_collectives_saturation_calibration_multiplier pre_bucketing_fsdp_collectives_verbose
    prioritize_bucketing_during_scheduling profile_guided_estimations_profile_path spmd_check spmd_mismatch""".split()
)


def found(path: str) -> object:
    """A module, or an attribute of one, by its full name. Raises ImportError or AttributeError."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        owner, _, name = path.rpartition(".")
        if not owner:
            raise
        return getattr(found(owner), name)


def names_of(tree: ast.Module) -> dict[str, str]:
    """Indexed by a name in a file: the full name of the module of PyTorch, or its attribute, that it stands for."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update({a.asname: a.name for a in node.names if a.asname and a.name.startswith("torch")})
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch" and not node.level:
            names.update({a.asname or a.name: f"{node.module}.{a.name}" for a in node.names})
    return {"torch": "torch", **names}


def chain(node: ast.AST) -> list[str]:
    """The names of `a.b.c`. Empty if it does not begin with a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *parts][:1] + parts[::-1] if isinstance(node, ast.Name) else []


class Use(NamedTuple):
    """A use of a part of PyTorch in our sources: the full name, the file with the line, and the call, if it is one."""

    path: str
    place: str
    call: ast.Call | None


def uses() -> list[Use]:
    """All uses of modules of PyTorch and of their attributes. Attributes of classes and of objects are not followed."""
    every = []
    for file in sorted(PACKAGE.rglob("*.py")):
        tree, place = ast.parse(file.read_text()), f"commsched/torch/{file.relative_to(PACKAGE)}"
        names = names_of(tree)
        # Another meaning of the same name in some function.
        assigned = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        assigned |= {a.arg for n in ast.walk(tree) if isinstance(n, ast.arguments) for a in (*n.args, *n.kwonlyargs)}
        every += [Use(full, place, None) for full in names.values()]
        calls = {n.func: n for n in ast.walk(tree) if isinstance(n, ast.Call)}
        for node in ast.walk(tree):
            first, *rest = chain(node) or [""]
            if first not in names or first in assigned:
                continue
            path = names[first]
            while rest and is_module(path) and path != "torch.ops":
                path = f"{path}.{rest.pop(0)}"
            every.append(Use(path, f"{place}:{node.lineno}", None if rest else calls.get(node)))
    return every


def is_module(path: str) -> bool:
    try:
        return inspect.ismodule(found(path))
    except (ImportError, AttributeError):
        return False


def test_every_part_is_there():
    missing, places = [], {use.path: use.place for use in uses()}
    assert {"torch._inductor.config.custom_partitioner_fn", "torch._guards.TracingContext"} <= set(places)
    for path, place in places.items():
        try:
            found(path)
        except (ImportError, AttributeError):
            missing.append(f"{path} ({place})")
    assert not missing, f"PyTorch {torch.__version__} lacks {', '.join(missing)}"


def test_a_missing_part_would_be_found():
    with pytest.raises(AttributeError):
        found("torch._inductor.memory.estimate_nothing")


def test_every_function_takes_our_arguments():
    refused, checked = [], set()
    for use in uses():
        if use.call is None or any(isinstance(a, ast.Starred) for a in use.call.args):
            continue
        if any(k.arg is None for k in use.call.keywords):
            continue
        try:
            signature = inspect.signature(found(use.path))
        except (TypeError, ValueError):  # It is written in C++ and does not tell.
            continue
        checked.add(use.path)
        try:
            signature.bind(*use.call.args, **{str(k.arg): k.value for k in use.call.keywords})
        except TypeError as error:
            refused.append(f"{use.path}{signature}: {error} ({use.place})")
    assert {"torch._inductor.memory.estimate_peak_memory", "torch._inductor.utils.is_wait"} <= checked
    assert not refused, f"PyTorch {torch.__version__}: {', '.join(refused)}"


@pytest.mark.parametrize("path", REPLACED)
def test_functions_in_whose_place_we_are_have_our_parameters(path):
    function = inspect.unwrap(found(path))
    assert tuple(inspect.signature(function).parameters) == REPLACED[path], f"PyTorch {torch.__version__}: {path}"


@pytest.mark.parametrize("path", MEMBERS)
def test_classes_have_what_is_read(path):
    missing = [name for name in MEMBERS[path] if not hasattr(found(path), name)]
    assert not missing, f"PyTorch {torch.__version__}: {path} has no {', '.join(missing)}"


def test_settings_are_there():
    for name, off in rivals.RIVALS.items():
        assert type(rivals.value(name)) is type(off), f"PyTorch {torch.__version__} has another {name}"
    for name in ("post_grad_custom_post_pass", "_pre_fusion_custom_pass", "_post_fusion_custom_pass"):
        assert hasattr(config, name), f"PyTorch {torch.__version__} has no {name}"


def test_no_setting_for_distributed_programs_is_new():
    prefix = "aten_distributed_optimizations."
    settings = {name.removeprefix(prefix) for name in config.get_config_copy() if name.startswith(prefix)}
    new = settings - DISTRIBUTED_SETTINGS
    assert settings and not new, f"PyTorch {torch.__version__} has the new {', '.join(sorted(new))}: may it move waits?"


def test_no_pass_behind_ours_is_new():
    tree = ast.parse(textwrap.dedent(inspect.getsource(Scheduler._init)))
    (body,) = [n.body for n in tree.body if isinstance(n, ast.FunctionDef)]
    names = lambda node: {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    ours = [i for i, n in enumerate(body) if isinstance(n, ast.If) and "_post_fusion_custom_pass" in names(n.test)]
    assert len(ours) == 1, f"PyTorch {torch.__version__} calls _post_fusion_custom_pass in another way"
    settings, unguarded = set(), []
    for statement in body[ours[0] + 1 :]:
        stored = [n for n in ast.walk(statement) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)]
        if not any(n.attr == "nodes" for n in stored):
            continue
        if isinstance(statement, ast.If):
            settings |= {n for n in names(statement.test) if hasattr(config, n) or n in DISTRIBUTED_SETTINGS}
        else:
            unguarded.append(ast.unparse(statement))
    assert not unguarded, f"PyTorch {torch.__version__} always reorders kernels behind ours: {unguarded}"
    new = settings - BEHIND_US - {"aten_distributed_optimizations", "triton"}
    assert not new, f"PyTorch {torch.__version__} reorders kernels behind ours with {', '.join(sorted(new))}"


def test_memory_estimates_have_the_fields_that_are_read():
    fields = {"buffer", "size_alloc", "size_free", "start_step", "end_step"}
    missing = fields - set(memory.BufferInfo.__dataclass_fields__)
    assert not missing, f"PyTorch {torch.__version__}: BufferInfo has no {', '.join(sorted(missing))}"


# Tests that every functional collective of this version starts, waits, or is known to do both at once. `split_waits`
# (commsched/torch/semantics/landing.py) takes waits for lists apart.
def test_no_functional_collective_is_unknown():
    unknown = []
    for name in torch._C._dispatch_get_registrations_for_dispatch_key(""):
        namespace, _, packet = name.partition("::")
        if namespace != "_c10d_functional" or name.split(".")[0] in {*NEITHER, "_c10d_functional::wait_tensors"}:
            continue
        packet = packet.split(".")[0]
        for overload in getattr(torch.ops._c10d_functional, packet).overloads():
            spec = Spec(getattr(getattr(torch.ops._c10d_functional, packet), overload))
            if spec.start is None and not spec.is_wait and not spec.hybrid:
                unknown.append(f"{packet}.{overload}")
    assert not unknown, f"PyTorch {torch.__version__} has {', '.join(unknown)}"
