# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Compares the collectives of all ranks when compiled code first runs: all must issue the same ones in the same order.

Inside a compiler's hooks no rank may talk to another, for on a hit of Inductor's cache no hook runs at all. So a hook
only writes a line into the generated code, which is cached with it:

    _commsched_first_run((('0', '3f0c...', '91ab...'),), ...)

For each process group of the code, the line holds a hash of the program (the collectives on that group) and a hash of
the decision about it (`agreement`). All ranks that run the same program on the same group must have decided alike. The
comparison uses the store of the process group, and issues no collective. A rank that compiles more graphs than others,
or other ones, waits for them only until a deadline. Then it warns and runs on: the others may never come, and may be
right. Only if all ranks of a group wait, and for different programs, are they about to hang. Several groups may have
the same ranks: each has comparisons of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import torch
import torch.distributed as dist
import torch.fx as fx
from torch._guards import detect_fake_mode

from .. import reporting
from ..semantics.operators import group_of, nodes_in, spec_of
from . import agreement
from .channel import job_store

FUNCTION = "_commsched_first_run"
# A rank waits at most this long for the others to come to the same program, in seconds.
DEADLINE_S = 30
# The variable of the environment that overrides it.
DEADLINE = "COMMSCHED_RANKS_DEADLINE_S"
# A rank that is about to fail waits at most this long for the others to learn of it, in seconds.
GOODBYE_S = 10
# A group as all of its ranks know it: its ranks, and its number among the groups of these ranks. Names may differ.
Group = tuple[tuple[int, ...], int]
# The comparisons of this process: (group, program, decision).
_checked: set[tuple[Group, str, str]] = set()
# How often `compare` was called: (group, program).
_calls: Counter[tuple[Group, str]] = Counter()
# Arguments of `first_run` that have passed.
_passed: set[tuple] = set()
# The keys of all comparisons that this process has come to.
_visited: set[str] = set()
# Tells the waits of this process apart.
_waits = itertools.count()


def deadline_s(default: float) -> float:
    """How long a rank waits for the others, in seconds. A value that is not one warns once, and does not count."""
    given = os.environ.get(DEADLINE, "")
    try:
        seconds = float(given or default)
    except ValueError:
        seconds = -1.0
    if 0 <= seconds < float("inf"):
        return seconds
    reporting.warn_once(f"{DEADLINE}: expected a number of seconds, at least 0, got {given!r}; {default:g} s hold")
    return default


def checked() -> int:
    """The number of programs that have been compared with other ranks."""
    return len(_checked)


def group_named(name: str) -> Group:
    """The process group of a name. Its ranks make groups in one order, so its number is the same on all of them."""
    c10d = dist.distributed_c10d
    group = c10d._resolve_process_group(name)
    ranks = tuple(sorted(dist.get_process_group_ranks(group)))
    known = c10d._world.pg_group_ranks
    same = [other for other, members in known.items() if len(members) == len(ranks) and set(members) == set(ranks)]
    return ranks, same.index(group) if group in same else 0


def hashes(sequences: dict[str, list[str]]) -> tuple[tuple[str, str], ...]:
    """(name, hash of the collectives) of each group."""
    return tuple(
        (group, hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16])
        for group, lines in sorted(sequences.items())
    )


def described(collectives: int, report: dict) -> str:
    """What an error says of a graph's collectives, for the ranks to tell how they differ.

    Args:
        report: what is reported of its schedule. {} if it has none.
    """
    text, strands = f"{collectives} collective{'s' if collectives != 1 else ''}", report.get("strands")
    if strands is None:
        return text
    split = f"split into {strands['parts']} strands"
    return f"{text}, {split}" if strands["parts"] > 1 else f"{text}, not split into strands ({strands['reason']})"


def guard(wrapper: Any, sequences: dict[str, list[str]], report: dict | None = None) -> None:
    """Makes the code that `wrapper` (Inductor's) is going to write compare ranks when it first runs.

    Args:
        report: what is reported of the graph's schedule.
    """
    from torch._inductor.virtualized import V

    module = getattr(V.graph, "module", None)
    bodies = _of_bodies(module)
    if not sequences and not bodies:
        return
    nothing: tuple[None, None, dict[str, tuple[str, str]]] = (None, None, {})
    program, decision, by_group = getattr(module, "meta", {}).get(agreement.META) or nothing
    # A graph that was not scheduled is a program and a decision of its own.
    own = {group: by_group.get(group, (value, value)) for group, value in hashes(sequences)}
    groups = tuple(
        (group, *_joined([*([own[group]] if group in own else []), *bodies.get(group, [])]))
        for group in sorted({*own, *bodies})
    )
    wrapper.header.writeline(f"from commsched.torch.ranks import first_run as {FUNCTION}")
    about = described(sum(map(len, sequences.values())), report or {})
    wrapper.writeline(f"{FUNCTION}({groups!r}, {program!r}, {decision!r}, {about!r})")


def _of_bodies(module: Any) -> dict[str, list[tuple[str, str]]]:
    """Indexed by group: hashes of the program and of the decision of each body of a loop or a branch in a graph."""
    found: dict[str, list[tuple[str, str]]] = {}
    for inner in module.modules() if isinstance(module, fx.GraphModule) else ():
        if inner is module or not isinstance(inner, fx.GraphModule):
            continue
        noted = inner.meta.get(agreement.META)
        shape = agreement.collectives_of(inner.graph) if noted is None else None
        for group, hashed in (noted[2] if shape is None else shape.by_group(shape.as_given())).items():
            found.setdefault(group, []).append(hashed)
    return found


def _joined(pairs: list[tuple[str, str]]) -> tuple[str, str]:
    """One program and one decision for those of several graphs that run as one."""
    if len(pairs) == 1:
        return pairs[0]
    programs, decisions = (hashlib.sha256(" ".join(column).encode()).hexdigest()[:16] for column in zip(*pairs))
    return programs, decisions


def first_run(
    groups: tuple[tuple[str, str, str], ...], program: str | None = None, decision: Any = None, about: str = ""
) -> None:
    """Compares this rank's decisions with those of the other ranks of each group, the first time only.

    The decision about `program` holds for later graphs of it.

    Args:
        about: what an error says of this rank's graph (`described`).

    Raises:
        RuntimeError: two ranks of a group have decided differently about one program, or all ranks of a group
            wait for each
            other at different programs. Every rank of that group raises it.
    """
    if groups in _passed:
        return
    if program is not None:
        agreement.remember(program, decision)
    pending = []
    for name, own, value in groups:
        group = group_named(name)
        if (group, own, value) not in _checked:
            pending.append((group, own, value))
    # All ranks visit the groups in one order, so that no two of them wait for each other.
    for group, own, value in sorted(pending):
        _compare(group, own, value, about)
    _passed.add(groups)


def gone_on(names: Iterable[str]) -> list[int]:
    """The ranks of these groups that wait in `first_run` for a program to which this rank has not come.

    A rank that compiles a graph together with others and finds them here has lost them: they run code already.
    """
    found: set[int] = set()
    for ranks, _ in {group_named(name) for name in names}:
        store, same = dist.distributed_c10d._get_default_store(), _same(ranks)
        if not store.add(f"{same}/waiting", 0):
            continue
        for rank in ranks:
            key = f"{same}/at/{rank}"
            program = store.get(key).decode().partition(" ")[2] if store.check([key]) else ""
            if program and program not in _visited:
                found.add(rank)
    return sorted(found)


def _same(ranks: tuple[int, ...]) -> str:
    """Where all groups of these ranks have their keys."""
    return f"commsched/{hashlib.sha256(repr(ranks).encode()).hexdigest()[:16]}"


def compare(ranks: Iterable[int], program: str, decision: str) -> None:
    """Compares this rank's decision about a program with those of other ranks. They need no process group.

    All ranks call it equally often for a program: each call is compared with the calls of others that are as many.

    Raises:
        RuntimeError: two ranks have decided differently, or all wait at different programs. Every rank raises it.
    """
    group = tuple(sorted(ranks)), 0
    _calls[group, program] += 1
    if len(group[0]) > 1 and dist.get_backend() != "fake":
        _Comparison(group, f"{program}.call{_calls[group, program]}").compare(decision)


class _BeforeFirstCall:
    """A hook of a graph's module that compares the graph's decision when the graph first runs.

    Attributes:
        by_group: indexed by name of a group: hashes of the program and of the decision, as its ranks see them.
        about: what an error says of the graph (`described`).
    """

    def __init__(self, by_group: dict[str, tuple[str, str]], about: str):
        self.by_group, self.about = by_group, about

    def __call__(self, gm: torch.nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling() or detect_fake_mode(args) is not None:
            return  # It is traced, and runs nothing.
        named = ((group_named(name), *hashed) for name, hashed in self.by_group.items())
        for group, program, decision in sorted(named):
            if len(group[0]) > 1:
                _calls[group, program] += 1
                _Comparison(group, f"{program}.graph{_calls[group, program]}", self.about).compare(decision)
        self.by_group = {}


@contextlib.contextmanager
def compared_at_first_call(gm: fx.GraphModule, report: dict) -> Iterator[list]:
    """A graph that is scheduled in this block compares its decision with other ranks when its module is first called.

    This is for graphs that run as they stand, such as those of `schedule_overlap`. The n-th graph of these collectives
    on one rank is compared with the n-th one on the others, whatever the options. The block puts the decision into the
    list. An empty list, also after an error, stands for the order as given.

    Args:
        report: what is known of the schedule so far: what was split into strands.
    """
    hooks, decided = gm._forward_pre_hooks, list[Any]()
    for key in [k for k, hook in hooks.items() if isinstance(hook, _BeforeFirstCall)]:
        del hooks[key]  # The graph was scheduled before.
    shape = None
    try:
        shape = None if job_store() is None else agreement.collectives_of(gm.graph)
    except Exception as error:
        reporting.survive("ranks will not be compared", error)
    try:
        yield decided
    finally:
        if shape is not None and shape.lines:
            by_group = shape.by_group(tuple(decided) or shape.as_given())
            gm.register_forward_pre_hook(_BeforeFirstCall(by_group, described(len(shape.lines), report)))


def _compare(group: Group, program: str, decision: str, about: str = "") -> None:
    # Another program whose collectives on this group are alike may have another decision: it is compared by itself.
    earlier = sum((group, program) == known[:2] for known in _checked)
    if len(group[0]) > 1 and dist.get_backend() != "fake":
        _Comparison(group, f"{program}.{earlier}" if earlier else program, about).compare(decision)
    _checked.add((group, program, decision))


class _Comparison:
    """The work of one rank in the store, for one program on one group.

    Keys below `same` belong to all groups of the same ranks, and those below `key` to the program on its group.

    Args:
        about: what an error says of this rank's graph (`described`).
    """

    def __init__(self, group: Group, program: str, about: str = ""):
        self.ranks, number = group
        self.about = about
        self.me = dist.get_rank()
        self.store = dist.distributed_c10d._get_default_store()
        self.same = _same(self.ranks)
        self.key = f"{self.same}/{number}/{program}"

    def compare(self, value: str) -> None:
        """The first rank leaves its decision. The last rank leaves a word that all have come."""
        _visited.add(self.key)
        self.store.set(f"{self.same}/about/{self.me}", self.about)
        held, first = self.store.compare_set(f"{self.key}/value", "", f"{value} {self.me}").decode().split()
        if held != value:
            self.store.set(f"{self.key}/wrong", f"{self.me} {first}")
            self._fail(str(self.me), first)
        if self.store.add(f"{self.key}/arrived", 1) == len(self.ranks):
            self.store.set(f"{self.key}/all", "1")
            return
        self.store.set(f"{self.same}/at/{self.me}", f"{next(_waits)} {self.key}")
        self.store.add(f"{self.same}/waiting", 1)
        self._wait()
        self.store.set(f"{self.same}/at/{self.me}", "nowhere")
        self.store.add(f"{self.same}/waiting", -1)

    def _wait(self) -> None:
        """Waits until all ranks of the group have come to this program, or until the deadline."""
        seconds = deadline_s(DEADLINE_S)
        deadline, pause = time.monotonic() + seconds, 0.005
        while not self.store.check([f"{self.key}/all"]):
            if self.store.check([f"{self.key}/wrong"]):
                self._fail(*self.store.get(f"{self.key}/wrong").decode().split())
            # A rank that is no longer waited for may still be counted, so the count only tells when to look.
            if self.store.add(f"{self.same}/waiting", 0) >= len(self.ranks) and (two := self._two_that_differ()):
                self._fail(*two)
            if time.monotonic() > deadline:
                warnings.warn(
                    f"CommSched: rank {self.me} has waited {seconds:g} s for all ranks of {self._name()} to come to "
                    "a program, and runs on. This is right if those ranks compile other graphs or take longer; "
                    "otherwise the ranks are going to wait for each other",
                    stacklevel=4,
                )
                return
            time.sleep(pause)
            pause = min(0.5, pause * 1.5)

    def _two_that_differ(self) -> tuple[str, str] | None:
        """Two ranks that wait for each other at different programs. None unless all ranks wait, each in vain.

        A rank whose program all ranks have come to is about to go on. If all ranks stand at the same waits before and
        after this was looked up, none of them has moved in between.
        """
        places = self._places()
        programs = [place.partition(" ")[2] for place in places]
        if len(set(programs)) < 2 or "" in programs:
            return None
        if any(self.store.check([f"{program}/all"]) for program in set(programs)) or self._places() != places:
            return None
        return str(next(r for r, p in zip(self.ranks, programs) if p != programs[0])), str(self.ranks[0])

    def _places(self) -> list[str]:
        """Indexed by rank of the group: the number of its wait, and the program. Empty if a rank has never waited."""
        keys = [f"{self.same}/at/{r}" for r in self.ranks]
        return [place.decode() for place in self.store.multi_get(keys)] if self.store.check(keys) else []

    def _fail(self, one: str, other: str) -> NoReturn:
        abouts = [self._about(rank) for rank in (one, other)]
        _let_all_read(self.store, f"{self.same}/read", len(self.ranks))
        raise RuntimeError(
            f"CommSched: rank {one} is about to run another sequence of collectives on {self._name()} than rank "
            f"{other}; the ranks would hang or mix up their data. {_difference(one, other, *abouts)}"
        )

    def _about(self, rank: str) -> str:
        """What a rank has left about its graph. "" if there is nothing."""
        key = f"{self.same}/about/{rank}"
        return self.store.get(key).decode() if self.store.check([key]) else ""

    def _name(self) -> str:
        few = len(self.ranks) <= 16
        return f"the group of ranks {list(self.ranks)}" if few else f"a group of {len(self.ranks)} ranks"


def _difference(one: str, other: str, about_one: str, about_other: str) -> str:
    """How the graphs of two ranks differ, and which options keep ranks from deciding differently."""
    text = ""
    if about_one != about_other:
        known = (
            f"that of rank {other} has {about_other}" if about_other else f"nothing is known of that of rank {other}"
        )
        text = f"The graph of rank {one} has {about_one}; {known}. "
    off = ""
    if "strands" in about_one + about_other:
        off = 'strands="off", '
        text += (
            "Ranks that compute different things may split differently into strands, or only one of them can: "
            'strands="off" splits no graph. '
        )
    return (
        f"{text}All ranks need the same versions, options and machine profile, and the same shapes in the first graph. "
        f'With {off}collective_order="program" and bucketing=False every rank keeps PyTorch\'s own sequence'
    )


def _let_all_read(store: Any, key: str, count: int) -> None:
    """Waits until the others have read why they fail: the process that serves the store must not end before."""
    read, deadline = store.add(key, 1), time.monotonic() + GOODBYE_S
    while read < count and time.monotonic() < deadline:
        time.sleep(0.05)
        read = store.add(key, 0)


def collective_sequences(snodes: Iterable[Any]) -> dict[str, list[str]]:
    """The collectives on each group in this order of Inductor's kernels: operator, sizes and element type."""
    from torch._inductor import ir

    sequences: dict[str, list[str]] = {}
    for s in snodes:
        for leaf in s.get_nodes():
            kernel = leaf.node
            target = getattr(kernel, "op_overload", None)
            if not isinstance(kernel, ir._CollectiveKernel) or target is None:
                continue
            group = _group_argument(kernel, target)
            if group is not None:
                sizes = [
                    [str(d) for d in i.get_size()] + [str(i.get_dtype())]
                    for i in kernel.inputs
                    if hasattr(i, "get_size")
                ]
                sequences.setdefault(group, []).append(f"{target} {sizes}")
    return sequences


def sequences_of(graph: fx.Graph) -> dict[str, list[str]]:
    """The collectives on each group in the order of an FX graph: operator, sizes and element type.

    This is for a graph whose collectives Inductor does not know as such, for they remain calls of ATen.
    """
    sequences: dict[str, list[str]] = {}
    for start in agreement.starts_of(graph):
        operands = [n.meta.get("val") for n in nodes_in(start.args[0])]
        sizes = [[*map(str, v.shape), str(v.dtype)] for v in operands if isinstance(v, torch.Tensor)]
        sequences.setdefault(group_of(start, spec_of(start))[0], []).append(f"{start.target} {sizes}")
    return sequences


def _group_argument(kernel: Any, target: Any) -> str | None:
    """The name of a kernel's group. None if it is not a constant."""
    names = [a.name for a in target._schema.arguments if not a.kwarg_only]
    kwargs = dict(kernel.kwargs)
    try:
        args, more = kernel.unflatten_args(kernel.inputs, kernel.constant_args)
        kwargs.update(more)
    except (AssertionError, AttributeError, TypeError, ValueError):
        return None
    given = {**dict(zip(names, args)), **kwargs}
    for wanted in ("group_name", "process_group"):
        if isinstance(given.get(wanted), str):
            return given[wanted]
    return None
