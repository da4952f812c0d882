# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`machine="profile:FILE"`: a machine profile from the traces of a profiler (docs/guide/Calibration.md)."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import pathlib
import tempfile
from collections.abc import Sequence

from . import _commsched, nsys

log = logging.getLogger("commsched")

#: What a machine begins with if traces follow: "profile:rank0.json,rank1.json@h100-sxm".
PREFIX = "profile:"


def machine_of(machine: str | os.PathLike) -> str:
    """The name or the path of a machine profile.

    Args:
        machine: a name, a path, or `profile:FILE`: one trace, or one of each rank separated by commas, and behind an @
            the profile that they complete. Without it, the device in the traces decides.

    Raises:
        ValueError: a trace cannot be read. The text names the file and the place in it.
    """
    text = os.fspath(machine)
    if not text.startswith(PREFIX):
        return text
    files, _, base = text[len(PREFIX) :].partition("@")
    paths = tuple(filter(None, files.split(",")))
    if not paths:
        raise ValueError(f"machine: expected files behind {PREFIX!r}, got {text!r}")
    return str(profile_from_traces(paths, base))


def profile_from_traces(paths: Sequence[str | os.PathLike], base: str | os.PathLike = "") -> pathlib.Path:
    """The file of a machine profile with the times of the traces.

    Args:
        paths: traces of PyTorch's profiler (one per rank), XLA's profile (PGLE), a log of XLA's estimates, or exports
            of nsys.
        base: the profile that is completed: a name or a path. By default, that of the device in the traces.

    Raises:
        ValueError: a trace cannot be read, or the traces contradict each other.
    """
    named = tuple(os.fspath(path) for path in paths)
    for path in named:
        if not os.path.isfile(path):
            raise ValueError(f"machine: '{path}': no such file")
    # A file that is written anew is read anew.
    return _profile(named, os.fspath(base), tuple(os.stat(path).st_mtime_ns for path in named))


@functools.cache
def _profile(paths: tuple[str, ...], base: str, _times: tuple[int, ...]) -> pathlib.Path:
    with tempfile.TemporaryDirectory() as folder:
        readable = [_readable(path, pathlib.Path(folder, str(i))) for i, path in enumerate(paths)]
        request = {"traces": readable, "base": base, "name": "traced"}
        try:
            text = _commsched.profile_from_traces(json.dumps(request))
        except _commsched.Error as error:
            raise ValueError(f"machine: {error}") from error
    trace = json.loads(text)["calibration"]["trace"]
    unmatched = trace["unmatched"]
    log.info(
        "%s: times of %d operations and %d collectives; %d names are not matched, for %.3g ms",
        ", ".join(paths), trace["operations"], trace["collectives"], len(unmatched),
        sum(u["ns"] for u in unmatched) / 1e6,
    )  # fmt: skip
    if trace["writer"] == "Kineto" and not trace["compiled_graphs"]:
        log.info(
            "no graph of Inductor is in the traces: the times are those of operators that run one by one, and of one "
            "that is going to be a part of a fused kernel, too high"
        )
    return _kept(text)


def _readable(path: str, converted: pathlib.Path) -> str:
    """The path of a trace that the library reads."""
    if not nsys.is_export(path):
        return path
    try:
        converted.write_text(nsys.convert(path))
    except ValueError as error:
        raise ValueError(f"machine: {error}") from error
    return str(converted)


def _kept(text: str) -> pathlib.Path:
    """A file with the profile, whole or not there. Its name holds the hash of its contents."""
    folder = pathlib.Path(_commsched.calibration_folder() or tempfile.gettempdir())
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"traced-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if not path.is_file():
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(text)
        temporary.replace(path)
    return path
