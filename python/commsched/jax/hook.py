# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Switches CommSched on inside XLA's plugins for CUDA, and collects its reports.

The transformation itself is C++ inside libCommSched-c.so: XLA calls it with every module after scheduling, on whatever
thread compiles, and it takes no lock of Python's. So is the second compilation of modules with donated parameters.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from .. import _commsched, traces
from ..program import Error, version
from . import ranks as _ranks

# The versions whose modules and whose C API were tested; python/pyproject.toml has the same range in the extra `jax`.
# Another one gives a warning.
TESTED_JAXLIB = ("0.10", "0.11", "0.12")
# Packages of plugins, and the library in them.
PLUGINS = ("jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13")
LIBRARY = "xla_cuda_plugin.so"
# At most this many reports are kept, the newest ones.
MAX_REPORTS = 10_000

# The flag with which XLA writes its own estimates of times into modules, and what its error says of flags that it does
# not know.
ESTIMATES = "xla_gpu_collect_cost_model_stats"
UNKNOWN_FLAG = f"No such compile option: '{ESTIMATES}'"
# The flag with which XLA decides by a profile.
PROFILE = "xla_gpu_pgle_profile_file_or_directory_path"
# The event that jax tells its listeners of when XLA has compiled a module.
COMPILED = "/jax/core/compile/backend_compile_duration"

_lock = threading.Lock()
_listening = False
# What the transformation does now, as JSON; None: nothing.
_current: str | None = None
# What to do if ranks differ (ranks.CHOICES), and how many seconds to wait for another rank.
_agreement: tuple[str, float] = ("compare", 600.0)
# How many compilations leave modules as they are for the time being.
_paused = 0
_wrapped = False
_keyed = False
_has_estimates = True
_reports: list[dict] = []
_warned: set[str] = set()
# Plugins stay loaded for as long as the process runs.
_libraries: dict[pathlib.Path, ctypes.CDLL] = {}


def install(
    *,
    machine: str = "h100-sxm",
    memory_budget_ratio: float = 0.0,
    memory_limit_bytes: int | None = None,
    effort: int | None = None,
    objective: str = "robust",
    donation: str = "keep",
    loops: str = "keep",
    buckets: bool = True,
    asynchronous: bool = False,
    dump: str | None = None,
    ranks: str = "compare",
    rank_timeout: float = 600.0,
) -> None:
    """Schedules every module that XLA:GPU compiles from now on, for devices here or on paper.

    Args:
        machine: machine profile, by name or path, or `profile:FILE@BASE` (`commsched.traces.machine_of`).
        memory_budget_ratio: how far the peak of each computation may rise above that of XLA's order, as a fraction.
        memory_limit_bytes: the most that a scheduled program may need for temporaries, by XLA's own count
            (`temp_size_in_bytes`), whatever XLA's order needs. If XLA needs more for the order that it got, the program
            is compiled once more with less memory for the search, and then in XLA's own order.
        effort: steps of the search per computation. None leaves it to the library.
        objective: what the search minimizes. "robust": the makespan, and among answers within 0.1 % of it the one that
            loses least if collectives take 0.75 to 2 times as long; "regret": that alone; "makespan": that alone. With
            the first two, no program is taken that is slower than XLA's by more than 1 % if XLA's own estimates of
            kernels and collectives are right, unless a limit below XLA's own peak is asked for.
        donation: "keep" keeps the donations of a scheduled module: XLA's backend compiles it by itself. "drop" hands
            the module back to the compilation that XLA is in, which forgets them.
        loops: "keep" compiles loops with the flags that the program has. "pipeline" lets XLA's collective pipeliner run
            gathers one iteration ahead and reductions one behind, with and without double buffering, and takes what is
            fastest, if loops wait for collectives and copy for more than 1 % of the time. What crosses iterations needs
            memory.
        buckets: take the collectives apart that XLA has merged, and merge collectives anew, together with the order.
        asynchronous: make collectives asynchronous that XLA's flags made synchronous.
        dump: a folder into which the modules are written that XLA hands over.
        ranks: what to do if the processes of a program differ in its schedule. "compare" runs XLA's own order on all of
            them, with a warning; "strict" raises an error on all of them; "off" does not compare.
        rank_timeout: how many seconds to wait for another process that compiles the same program.

    Raises:
        Error: an option is wrong, or there is no plugin for CUDA that takes transformations.
    """
    options = _options(
        machine,
        memory_budget_ratio,
        memory_limit_bytes,
        effort,
        objective,
        donation,
        loops,
        buckets,
        asynchronous,
        dump,
    )
    if ranks not in _ranks.CHOICES or not rank_timeout > 0:
        raise Error(f"expected ranks to be one of {', '.join(_ranks.CHOICES)} and a positive rank_timeout, got "
                    f"{ranks!r} and {rank_timeout!r}")  # fmt: skip
    _warn_of_version()
    if loops == "pipeline":
        _warn_of_pipelining()
    _register()
    _listen()
    _wrap_compiler()
    _extend_cache_key()
    _configure(options, (ranks, rank_timeout))


def uninstall() -> None:
    """Leaves modules as they are from now on."""
    _configure(None)


@contextlib.contextmanager
def enabled(**options: Any) -> Iterator[None]:
    """`install` with these options for the time of a `with` statement, for all threads; then as it was before."""
    before = _current, _agreement
    install(**options)
    try:
        yield
    finally:
        _configure(*before)


def reports(clear: bool = False) -> list[dict]:
    """One report per module that XLA compiled, oldest first. docs/guide/Jax.md lists the fields.

    Args:
        clear: forget the reports that are returned.
    """
    _collect()
    with _lock:
        result = list(_reports)
        if clear:
            _reports.clear()
    return result


def schedule(module: bytes, **options: Any) -> tuple[bytes, dict]:
    """Schedules a serialized HloModuleProto. Needs no jax.

    Args:
        options: those of `install` but for `dump`; `donation` and `loops` matter to compilations alone. `shuffle`, a
            seed, gives a random legal order in place of a good one, for tests.

    Returns:
        The module, which is `module` itself if it stays as it was, and the report.
    """
    scheduled, report = _commsched.schedule_hlo(module, _options(**{**_DEFAULTS, **options}))
    return module if scheduled is None else scheduled, json.loads(report)


_DEFAULTS: dict[str, Any] = {"machine": "h100-sxm", "memory_budget_ratio": 0.0, "memory_limit_bytes": None}
_DEFAULTS |= {"effort": None, "donation": "drop", "loops": "keep"}
_DEFAULTS |= {"objective": "robust", "buckets": True, "asynchronous": False}


def _options(
    machine: str,
    memory_budget_ratio: float,
    memory_limit_bytes: int | None,
    effort: int | None,
    objective: str,
    donation: str,
    loops: str,
    buckets: bool,
    asynchronous: bool,
    dump: str | None = None,
    shuffle: int | None = None,
) -> str:
    options: dict[str, Any] = {"machine": traces.machine_of(str(machine)), "donation": donation, "loops": loops}
    options |= {"objective": objective, "memory_budget_ratio": float(memory_budget_ratio)}
    options |= {"buckets": bool(buckets), "asynchronous": bool(asynchronous)}
    if memory_limit_bytes is not None:
        options["memory_limit_bytes"] = int(memory_limit_bytes)
    if effort is not None:
        options["effort"] = int(effort)
    if dump is not None:
        options["dump"] = str(dump)
    if shuffle is not None:
        options["shuffle"] = int(shuffle)
    return json.dumps(options)


def _configure(options: str | None, agreement: tuple[str, float] | None = None) -> None:
    global _current, _agreement
    with _lock:
        _commsched.xla_configure(None if _paused else options)
        _current = options
        _agreement = agreement or _agreement


@contextlib.contextmanager
def _switched_off() -> Iterator[None]:
    """Leaves modules as they are, on all threads."""
    global _paused
    with _lock:
        _paused += 1
        _commsched.xla_configure(None)
    try:
        yield
    finally:
        with _lock:
            _paused -= 1
            if not _paused:
                _commsched.xla_configure(_current)


def _wrap_compiler() -> None:
    """Compares the schedules of programs that run on several processes, before they run."""
    global _wrapped
    with _lock:
        first, _wrapped = not _wrapped, True
    if not first:
        return
    try:
        from jax._src import compiler

        compile_or_get_cached, backend_compile = compiler.compile_or_get_cached, compiler.backend_compile_and_load
    except (ImportError, AttributeError) as error:
        _warn_once(f"this version of jax compiles in another way, so ranks do not compare schedules: {error}")
        return

    @functools.wraps(compile_or_get_cached)
    def compile_alike(
        backend: Any, computation: Any, devices: Any, options: Any, callbacks: Any, placement: Any, *rest: Any
    ) -> Any:
        def compile_once() -> Any:
            with _estimates_in(options) as asks:
                try:
                    return compile_or_get_cached(backend, computation, devices, options, callbacks, placement, *rest)
                except Exception as error:
                    if not (asks and UNKNOWN_FLAG in str(error)):
                        raise
            _miss_estimates()
            return compile_or_get_cached(backend, computation, devices, options, callbacks, placement, *rest)

        choice, timeout = _agreement
        others = _processes_beside(devices, backend) if _current is not None and choice != "off" else None
        if others is None:
            return compile_once()
        processes, me, store = others
        name = str(computation.operation.attributes["sym_name"]).strip('"')

        def compile_uncached() -> Any:
            return backend_compile(backend, computation, placement, options, callbacks)

        return _comparison.compile(
            name, processes, me, store, compile_once, compile_uncached, _collect, choice, timeout
        )

    compiler.compile_or_get_cached = compile_alike


@contextlib.contextmanager
def _estimates_in(options: Any) -> Iterator[bool]:
    """Asks XLA for its own estimates, in the options of one compilation, if the objective needs them and the user has
    not set the flag. Says whether it does. XLA decides by a profile where there is one, and finds it by a fingerprint
    of the module, in which estimates would count."""
    given = list(getattr(options, "env_option_overrides", []))
    wanted = _current is not None and json.loads(_current)["objective"] != "makespan" and _has_estimates
    has_profile = PROFILE in os.environ.get("XLA_FLAGS", "") or PROFILE in dict(given)
    if not wanted or has_profile or ESTIMATES in dict(given) or not hasattr(options, "env_option_overrides"):
        yield False
        return
    options.env_option_overrides = [*given, (ESTIMATES, True)]
    try:
        yield True
    finally:
        options.env_option_overrides = given


def _miss_estimates() -> None:
    """Asks no more for what this version of XLA does not have."""
    global _has_estimates
    _has_estimates = False
    _warn_once(f"this version of XLA has no flag {ESTIMATES}, so schedules are not compared by XLA's own costs")


def _extend_cache_key() -> None:
    """Gives each setting of CommSched, and none, keys of their own in jax's persistent cache."""
    global _keyed
    with _lock:
        first, _keyed = not _keyed, True
    if not first:
        return
    try:
        from jax._src import cache_key

        theirs = cache_key.custom_hook
    except (ImportError, AttributeError) as error:
        _warn_once(
            "this version of jax has no hook for the keys of its persistent cache, so each setting of CommSched "
            f"needs a folder of its own: {error}"
        )
        return

    @functools.wraps(theirs)
    def with_settings() -> str:
        return theirs() + _settings_of_executables()

    cache_key.custom_hook = with_settings


def _settings_of_executables() -> str:
    """What decides how modules are scheduled now, as text; empty if they are not. A profile in a file counts by its
    text."""
    if _current is None or _paused:
        return ""
    options = json.loads(_current)
    options.pop("dump", None)
    profile = pathlib.Path(options["machine"])
    if profile.is_file():
        options["machine"] = hashlib.sha256(profile.read_bytes()).hexdigest()
    return f"commsched {version()} {json.dumps(options, sort_keys=True)}"


def _processes_beside(devices: Any, backend: Any) -> tuple[list[int], int, Any] | None:
    """The processes of a program, this one, and their store. None if there is only one, or if nothing runs here."""
    import jax
    from jax._src import distributed

    processes = sorted({device.process_index for device in devices.flatten()})
    store = distributed.global_state.client
    if len(processes) < 2 or jax.config.jax_share_binary_between_hosts or not hasattr(backend, "compile_and_load"):
        return None
    if store is None:
        _warn_once("there is no jax.distributed client, so ranks do not compare schedules")
        return None
    me = backend.process_index()
    return (processes, me, store) if me in processes else None


def _warn_of_version() -> None:
    try:
        version = importlib.metadata.version("jaxlib")
    except importlib.metadata.PackageNotFoundError:
        raise Error("commsched.jax needs jaxlib, which is not installed") from None
    if ".".join(version.split(".")[:2]) not in TESTED_JAXLIB:
        _warn_once(f"jaxlib is {version}; CommSched was tested with {TESTED_JAXLIB[0]} to {TESTED_JAXLIB[-1]}")


def _warn_of_pipelining() -> None:
    version = importlib.metadata.version("jaxlib")
    if not version.startswith("0.10."):
        _warn_once(f'loops="pipeline" was tested with jaxlib 0.10; with {version}, loops may stay as they are')


def _listen() -> None:
    """Collects reports whenever jax has compiled something, so that a warning comes when its reason does."""
    global _listening
    with _lock:
        first, _listening = not _listening, True
    if first:
        import jax.monitoring

        jax.monitoring.register_event_duration_secs_listener(_compiled)


def _compiled(event: str, duration: float, **facts: Any) -> None:
    if event == COMPILED:
        _collect()


def _register() -> None:
    """Registers with every plugin for CUDA that is installed."""
    refused = []
    for package in PLUGINS:
        path = _library_of(package)
        if path is None:
            continue
        library = _libraries.setdefault(path, ctypes.CDLL(str(path)))
        library.GetPjrtApi.restype = ctypes.c_void_p
        try:
            _commsched.xla_install(library.GetPjrtApi())
            return
        except Error as error:
            refused.append(f"{package}: {error}")
    raise Error("; ".join(refused) or f"expected one of the packages {', '.join(PLUGINS)}, got none")


def _library_of(package: str) -> pathlib.Path | None:
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = pathlib.Path(folder) / LIBRARY
        if path.exists():
            return path
    return None


def _collect() -> None:
    """Takes the reports of the library, and says once per reason why a module stayed as it was."""
    new = json.loads(_commsched.xla_take_reports())
    with _lock:
        _reports.extend(new)
        del _reports[:-MAX_REPORTS]
    _comparison.take(new)
    for report in new:
        reason = report.get("kept_because")
        if reason and reason not in QUIET:
            _warn_once(f"the module {report['module']} stays as it was: {_in_one_line(reason)}")
        reason = report.get("not_rewritten_because")
        if reason and reason not in QUIET:
            _warn_once(f"the module {report['module']} keeps its collectives: {reason}")
        _recommend_flags(report)


# Loops are worth a word if they wait and copy for more than this share of the program's time.
WORTH_SAYING = 0.02


def _recommend_flags(report: dict) -> None:
    """Says what loops lose at the borders of their iterations, if it is much and nobody has asked to pipeline them, and
    what keeps gathers of loops from it."""
    loops, idle = report.get("loops", []), report.get("idle_in_loops_ns", 0)
    step = report.get("makespan_ns", {}).get("after", 0)
    if idle > WORTH_SAYING * step and json.loads(_current or "{}").get("loops") != "pipeline":
        gain = sum(loop["gain_ns"] for loop in loops)
        forecast = f"; that should save about {gain / 1e6:.2f} ms" if gain else ""
        _warn_once(
            f"the loops of the module {report['module']} wait for collectives and copy for {idle / 1e6:.2f} of "
            f'{step / 1e6:.2f} ms: try loops="pipeline"{forecast}'
        )
    if barred := sum(len(loop["behind_barriers"]) for loop in loops):
        _warn_once(
            f"a barrier keeps {barred} gathers in the loops of the module {report['module']} from running ahead; it is "
            "jax.checkpoint's, prevent_cse=False leaves it out, and a scan does not need it"
        )


# What XLA says if it has to assemble a kernel and finds no PTX compiler. It then lists all places where it looked.
NO_PTX_COMPILER = "No PTX compilation provider"


def _in_one_line(reason: str) -> str:
    if NO_PTX_COMPILER in reason:
        return "XLA found no PTX compiler; `pip install nvidia-cuda-nvcc-cu12` installs one"
    return reason


# Reasons that are no surprise.
QUIET = ("it has no asynchronous work", "no faster order was found", "other collectives are not faster")


def _warn_once(text: str) -> None:
    with _lock:
        new = text not in _warned
        _warned.add(text)
    if new:
        warnings.warn(f"CommSched: {text}", stacklevel=4)


_comparison = _ranks.Comparison(_switched_off, _warn_once)
