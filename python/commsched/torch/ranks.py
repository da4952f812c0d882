"""All ranks have to issue the same collectives in the same order: this compares them, when compiled code first runs.

Inside a compiler's hooks no rank may talk to another: on a hit of Inductor's cache no hook runs at all. So a hook only
writes a line into the generated code, which is cached with it:

    _commsched_first_run((('0', '3f0c...'),))

It gives, for each process group that the code uses, a hash of the sequence of collectives on it. Groups are compared
one by one, through the store that the process group was made with: no collective is issued, and a rank that runs another
program (another pipeline stage, say) is compared only where they share a group.
"""

from __future__ import annotations

import hashlib
import time

import torch.distributed as dist

FUNCTION = "_commsched_first_run"
# How long a rank that is about to fail waits for others to learn of it, in seconds.
GOODBYE_S = 10
# What this process has compared: (ranks of the group, hash).
_checked: set[tuple[tuple[int, ...], str]] = set()
# Arguments of `first_run` that need no second look.
_passed: set[tuple[tuple[str, str], ...]] = set()
# Of each group: how many comparisons there were. Equal on all its ranks, or they are not running the same program.
_rounds: dict[tuple[int, ...], int] = {}


def checked() -> int:
    """How many sequences of collectives have been compared with other ranks'."""
    return len(_checked)


def hashes(sequences: dict[str, list[str]]) -> tuple[tuple[str, str], ...]:
    """(group's name, hash of what is done on it) of each group."""
    return tuple((group, hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16])
                 for group, lines in sorted(sequences.items()))


def guard(wrapper, sequences: dict[str, list[str]]) -> None:
    """Makes the code that `wrapper` (Inductor's) is going to write compare ranks when it first runs."""
    if sequences:
        wrapper.header.writeline(f"from commsched.torch.ranks import first_run as {FUNCTION}")
        wrapper.writeline(f"{FUNCTION}({hashes(sequences)!r})")


def first_run(groups: tuple[tuple[str, str], ...]) -> None:
    """Compares this rank's hashes with those of the other ranks of each group; nothing to do after the first time.

    Raises:
        RuntimeError: on every rank of a group of which two ranks are about to run different sequences of collectives,
            or when a rank does not come to the comparison within the store's timeout.
    """
    if groups in _passed:
        return
    pending = []
    for name, value in groups:
        ranks = tuple(sorted(dist.get_process_group_ranks(dist.distributed_c10d._resolve_process_group(name))))
        if (ranks, value) not in _checked:
            pending.append((ranks, value))
    for ranks, value in sorted(pending):  # one order of groups for all ranks: no two of them wait for each other
        if len(ranks) > 1 and dist.get_backend() != "fake":
            _compare(ranks, value)
        _checked.add((ranks, value))
    _passed.add(groups)


def _compare(ranks: tuple[int, ...], value: str) -> None:
    number = _rounds[ranks] = _rounds.get(ranks, 0) + 1
    store, me = dist.distributed_c10d._get_default_store(), dist.get_rank()
    name = hashlib.sha256(repr(ranks).encode()).hexdigest()[:16]
    key = f"commsched/{name}/{number}"
    group = f"the group of ranks {list(ranks)}" if len(ranks) <= 16 else f"a group of {len(ranks)} ranks"
    store.set(f"{key}/{me}", value)
    try:
        first = store.get(f"{key}/{ranks[0]}").decode()
        if first != value:
            store.set(f"{key}/wrong", str(me))
        if store.add(f"{key}/arrived", 1) == len(ranks):
            store.set(f"{key}/verdict", store.get(f"{key}/wrong") if store.check([f"{key}/wrong"]) else "")
        other = store.get(f"{key}/verdict").decode()
    except RuntimeError as error:
        raise RuntimeError(f"CommSched: not every rank of {group} came to its compiled graph number {number}: some "
                           f"ranks compiled fewer graphs with collectives, or failed ({error})") from error
    if other:
        _let_all_read(store, f"{key}/read", len(ranks))
        raise RuntimeError(
            f"CommSched: rank {other} is about to run another sequence of collectives on {group} than rank {ranks[0]}; "
            "the ranks would hang or mix up their data. Do all ranks have the same versions, options, machine profile "
            "and shapes?")


def _let_all_read(store, key: str, count: int) -> None:
    """Waits a little: the process that serves the store must not end before the others know why they have to."""
    read, deadline = store.add(key, 1), time.monotonic() + GOODBYE_S
    while read < count and time.monotonic() < deadline:
        time.sleep(0.05)
        read = store.add(key, 0)


def collective_sequences(snodes) -> dict[str, list[str]]:
    """What is done on each group, in this order of Inductor's kernels: operator, sizes and element type."""
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
                sizes = [[str(d) for d in i.get_size()] + [str(i.get_dtype())] for i in kernel.inputs
                         if hasattr(i, "get_size")]
                sequences.setdefault(group, []).append(f"{target} {sizes}")
    return sequences


def _group_argument(kernel, target) -> str | None:
    """The name of a kernel's group; None where it is no constant."""
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
