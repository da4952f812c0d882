# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The library's C API (include/CommSched-c) by ctypes, for every version of Python. Use the package `commsched`.

ctypes releases Python's lock while a function of the library runs. No exception may pass through the library: what a
function that it calls raises becomes a reason, or, if it is no `Exception` (an interrupt), is raised when the library
has returned.
"""

from __future__ import annotations

import array
import ctypes
import pathlib
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any


class Error(RuntimeError):
    """The library refused its input, or a pass failed. The text holds its messages, with their places."""


class _Buffer(ctypes.Structure):
    """CommSchedBuffer."""

    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class _Message(ctypes.Structure):
    """CommSchedMessage."""

    _fields_ = [("kind", ctypes.c_int)] + [(n, ctypes.c_char_p) for n in ("location", "category", "name", "text")]


class _Probe(ctypes.Structure):
    """CommSchedProbe."""

    _fields_ = [("kind", ctypes.c_char_p), ("element", ctypes.c_char_p)] + [
        (n, ctypes.c_int64) for n in ("ranks", "nodes", "bytes")
    ]


_Int64s = ctypes.POINTER(ctypes.c_int64)
_Gather = ctypes.CFUNCTYPE(ctypes.c_int, _Int64s, ctypes.c_size_t, _Int64s, ctypes.c_void_p)
_PeerAnswers = ctypes.CFUNCTYPE(ctypes.c_size_t, _Int64s, ctypes.c_size_t, ctypes.c_void_p)
# The numbers that commschedModulePlay writes (COMMSCHED_PLAYED).
_PLAYED = 11
_Prepare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Probe), ctypes.c_void_p)
_Run = ctypes.CFUNCTYPE(ctypes.c_int, _Int64s, _Int64s, ctypes.c_void_p)
_Now = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_Progress = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)
# The text's address: ctypes keeps no bytes alive that a callback returns.
_Reason = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class _Bench(ctypes.Structure):
    """CommSchedBench."""

    _fields_ = [
        ("rank", ctypes.c_int32),
        ("ranks", ctypes.c_int32),
        ("prepare", _Prepare),
        ("run", _Run),
        ("gather", _Gather),
        ("now", _Now),
        ("progress", _Progress),
        ("reason", _Reason),
        ("data", ctypes.c_void_p),
    ]


_pointer, _text, _status, _size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
_buffer = ctypes.POINTER(_Buffer)
# The functions of the headers that are used here: the result, and the arguments.
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "commschedGetVersion": (_text, []),
    "commschedContextCreate": (_pointer, []),
    "commschedContextDestroy": (None, [_pointer]),
    "commschedContextAllowUnregisteredDialects": (None, [_pointer, ctypes.c_int]),
    "commschedContextGetNumMessages": (_size, [_pointer]),
    "commschedContextGetMessage": (_Message, [_pointer, _size]),
    "commschedContextSetCurve": (_status, [_pointer, _text, _text, _text, _size, _pointer, _pointer]),
    "commschedContextSetGather": (None, [_pointer, _size, _Gather, _pointer]),
    "commschedContextSetPeerTimes": (_status, [_pointer, _size, _pointer, _pointer]),
    "commschedContextSetPeerCurve": (_status, [_pointer, _text, _text, _text, _size, _pointer, _pointer]),
    "commschedContextSetPeerAnswers": (None, [_pointer, _PeerAnswers, _pointer]),
    "commschedContextSetPeerOrder": (_status, [_pointer, _size, _size, _pointer, _pointer]),
    "commschedModulePlay": (_status, [_pointer, _text, _Int64s]),
    "commschedBufferDestroy": (None, [_Buffer]),
    "commschedModuleParse": (_pointer, [_pointer, _text, _size, _text]),
    "commschedModuleDestroy": (None, [_pointer]),
    "commschedModuleRunPipeline": (_status, [_pointer, _text]),
    "commschedModulePrint": (_Buffer, [_pointer, ctypes.c_int]),
    "commschedModuleWriteBytecode": (_Buffer, [_pointer]),
    "commschedModuleListOperations": (_Buffer, [_pointer]),
    "commschedModuleListDataflow": (_Buffer, [_pointer]),
    "commschedCalibrate": (_status, [ctypes.POINTER(_Bench), _text, _buffer]),
    "commschedProfileFromTraces": (_status, [_text, _buffer]),
    "commschedCalibrationFolder": (_Buffer, []),
    "commschedTimelineWritePage": (_status, [_text, _size, _text, _buffer]),
    "commschedScheduleHlo": (_status, [_text, _size, _text, _buffer, _buffer]),
    "commschedXlaInstall": (_status, [_pointer, _buffer]),
    "commschedXlaConfigure": (_status, [_text, _buffer]),
    "commschedXlaTakeReports": (_Buffer, []),
}


def _find_library() -> pathlib.Path:
    """The library in the package, whose folders are two if it is installed in place."""
    folders = [pathlib.Path(folder) for folder in sys.modules[__package__].__path__]
    found = [file for folder in folders for file in sorted(folder.glob("libCommSched-c.so*"))]
    if not found:
        raise ImportError(f"libCommSched-c.so is missing in {', '.join(map(str, folders))}; install the package again")
    return found[0]


def _load(path: pathlib.Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


LIBRARY = _find_library()
_library = _load(LIBRARY)


def _encode(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _decode(text: bytes | None) -> str:
    return (text or b"").decode(errors="replace")


def _take(buffer: _Buffer) -> bytes:
    """Takes the bytes over and frees the buffer."""
    if not buffer.data:
        raise MemoryError("the library has no memory left")
    data = ctypes.string_at(buffer.data, buffer.length)
    _library.commschedBufferDestroy(buffer)
    return data


def _ask(function: Any, *arguments: Any) -> str:
    """Calls a function whose last argument is its result, or its reason if it fails."""
    result = _Buffer()
    status = function(*arguments, ctypes.byref(result))
    text = _decode(_take(result))
    if status:
        raise Error(text)
    return text


def _copy_all(values: Sequence[int], count: int, to: Any) -> None:
    """Copies what a gather returned, which has to be `count` numbers, to where the library wants it."""
    numbers = array.array("q", values)
    if len(numbers) != count:
        raise Error("a gather returned another number of values than there are ranks")
    if count:
        ctypes.memmove(to, numbers.buffer_info()[0], count * numbers.itemsize)


class _Calls:
    """Calls that the library makes into Python. After an interrupt, later ones fail at once."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.interrupt: BaseException | None = None
        self.fail("")

    def fail(self, reason: str) -> None:
        self.reason = reason
        self.text = ctypes.create_string_buffer(_encode(reason))

    def status_of(self, call: Callable[[], None]) -> int:
        """Returns 0, or 1 with a reason."""
        if self.interrupt is not None:
            return 1
        try:
            call()
            return 0
        except Error as error:
            self.fail(str(error))
        except Exception as error:
            self.fail(f"{type(error).__name__}: {error}")
        except BaseException as error:
            self.interrupt = error
        return 1

    def raise_interrupt(self) -> None:
        if self.interrupt is not None:
            raise self.interrupt


def _destroy(context: int, module: int | None) -> None:
    """The module goes before its context."""
    _library.commschedModuleDestroy(module)
    _library.commschedContextDestroy(context)


class Program:
    """A context with one module in it."""

    def __init__(self, source: bytes, name: str = "<memory>", allow_unregistered: bool = False) -> None:
        self._context = _library.commschedContextCreate()
        if not self._context:
            raise MemoryError("the library has no memory left")
        self._calls = _Calls()
        self._gather: Any = None
        self._peer_orders: Any = None
        _library.commschedContextAllowUnregisteredDialects(self._context, allow_unregistered)
        self._module = _library.commschedModuleParse(self._context, source, len(source), _encode(name))
        weakref.finalize(self, _destroy, self._context, self._module)
        if not self._module:
            raise Error(self._errors())

    def run(self, pipeline: str) -> None:
        self._calls.forget()
        status = _library.commschedModuleRunPipeline(self._module, _encode(pipeline))
        self._calls.raise_interrupt()
        if status:
            raise Error("\n".join(filter(None, [self._errors(), self._calls.reason])))

    def set_curve(self, kind: str, group: str, element: str | None, points: list[tuple[int, int]]) -> None:
        self._set_curve(_library.commschedContextSetCurve, kind, group, element, points)

    def _set_curve(
        self, function: Any, kind: str, group: str, element: str | None, points: list[tuple[int, int]]
    ) -> None:
        columns = [array.array("q", [point[i] for point in points]) for i in (0, 1)]
        names = [_encode(kind), _encode(group), None if element is None else _encode(element)]
        starts = [column.buffer_info()[0] for column in columns]
        if function(self._context, *names, len(points), *starts):
            raise Error(self._errors())

    def set_peer_times(self, times: dict[str, int]) -> None:
        names = (ctypes.c_char_p * len(times))(*map(_encode, times))
        column = array.array("q", times.values())
        starts = [ctypes.addressof(names), column.buffer_info()[0]]
        if _library.commschedContextSetPeerTimes(self._context, len(times), *starts):
            raise Error(self._errors())

    def set_peer_curve(self, kind: str, group: str, element: str | None, points: list[tuple[int, int]]) -> None:
        self._set_curve(_library.commschedContextSetPeerCurve, kind, group, element, points)

    def set_peer_orders(self, orders: Callable[[], list[tuple[list[int], dict[str, int]]]]) -> None:
        calls = self._calls

        def call(played: Any, capacity: int, _: Any) -> int:
            found: list[tuple[list[int], dict[str, int]]] = []
            calls.status_of(lambda: found.extend(orders()))
            del found[capacity // _PLAYED :]
            for index, (numbers, buckets) in enumerate(found):
                for offset, number in enumerate(numbers):
                    played[index * _PLAYED + offset] = number
                names = (ctypes.c_char_p * len(buckets))(*map(_encode, buckets))
                column = array.array("q", buckets.values())
                starts = [ctypes.addressof(names), column.buffer_info()[0]]
                _library.commschedContextSetPeerOrder(self._context, index, len(buckets), *starts)
            return len(found)

        self._peer_orders = _PeerAnswers(call)
        _library.commschedContextSetPeerAnswers(self._context, self._peer_orders, None)

    def play(self, machine: str) -> list[int]:
        played = (ctypes.c_int64 * _PLAYED)()
        if _library.commschedModulePlay(self._module, _encode(machine), played):
            raise Error(self._errors())
        return list(played)

    def set_gather(self, ranks: int, gather: Callable[[list[int]], list[int]] | None) -> None:
        calls = self._calls

        def call(own: Any, count: int, everyone: Any, _: Any) -> int:
            assert gather is not None
            return calls.status_of(lambda: _copy_all(gather(own[:count]), count * ranks, everyone))

        self._gather = _Gather() if gather is None else _Gather(call)
        _library.commschedContextSetGather(self._context, ranks, self._gather, None)

    def print(self, locations: bool = False) -> str:
        return _decode(_take(_library.commschedModulePrint(self._module, locations)))

    def bytecode(self) -> bytes:
        return _take(_library.commschedModuleWriteBytecode(self._module))

    def list_operations(self) -> str:
        return _decode(_take(_library.commschedModuleListOperations(self._module)))

    def list_dataflow(self) -> str:
        return _decode(_take(_library.commschedModuleListDataflow(self._module)))

    def messages(self) -> list[tuple[int, str, str, str, str]]:
        """(kind, location, category, name, text) of every message so far."""
        return list(self._messages())

    def _messages(self) -> Iterator[tuple[int, str, str, str, str]]:
        for index in range(_library.commschedContextGetNumMessages(self._context)):
            m = _library.commschedContextGetMessage(self._context, index)
            yield m.kind, _decode(m.location), _decode(m.category), _decode(m.name), _decode(m.text)

    def _errors(self) -> str:
        """The errors among the messages, with their notes, one per line."""
        error, note = 0, 2
        lines, belongs = [], False
        for kind, location, _, _, text in self._messages():
            belongs = kind == error or (kind == note and belongs)
            if belongs:
                lines.append((f"{location}: " if location else "") + ("note: " if kind == note else "") + text)
        return "\n".join(lines) or "failed without a message"


def calibrate(bench: Any, request: str) -> str:
    """Measures what a request asks for (CommSched-c/Calibration.h).

    `bench` is any object with `rank`, `ranks`, `prepare(kind, element, ranks, nodes, bytes)`,
    `run() -> (total, issue)`, `gather(list) -> list`, `now()` and `progress(line)`.
    """
    calls = _Calls()

    def prepare(probe: Any, _: Any) -> int:
        p = probe.contents
        return calls.status_of(lambda: bench.prepare(_decode(p.kind), _decode(p.element), p.ranks, p.nodes, p.bytes))

    def run(total: Any, issue: Any, _: Any) -> int:
        def measure() -> None:
            total[0], issue[0] = bench.run()

        return calls.status_of(measure)

    def gather(own: Any, count: int, everyone: Any, _: Any) -> int:
        return calls.status_of(lambda: _copy_all(bench.gather(own[:count]), count * bench.ranks, everyone))

    def now(_: Any) -> int:
        times = [0]

        def read() -> None:
            times[0] = int(bench.now())

        calls.status_of(read)
        return times[0]

    def progress(line: bytes, _: Any) -> None:
        calls.status_of(lambda: bench.progress(_decode(line)))

    def reason(_: Any) -> int:
        return ctypes.addressof(calls.text)

    caller = _Bench(
        bench.rank,
        bench.ranks,
        _Prepare(prepare),
        _Run(run),
        _Gather(gather),
        _Now(now),
        _Progress(progress),
        _Reason(reason),
        None,
    )
    try:
        return _ask(_library.commschedCalibrate, ctypes.byref(caller), _encode(request))
    finally:
        calls.raise_interrupt()


def profile_from_traces(request: str) -> str:
    return _ask(_library.commschedProfileFromTraces, _encode(request))


def calibration_folder() -> str:
    return _decode(_take(_library.commschedCalibrationFolder()))


def schedule_hlo(module: bytes, options: str = "{}") -> tuple[bytes | None, str]:
    """The module, or None if it stays as it was, and the report."""
    scheduled = _Buffer()
    try:
        arguments = (module, len(module), _encode(options), ctypes.byref(scheduled))
        report = _ask(_library.commschedScheduleHlo, *arguments)
    finally:
        changed = _take(scheduled)
    return changed or None, report


def write_timeline_page(request: bytes, path: str) -> None:
    """Writes a page of what a request describes (CommSched-c/Timeline.h)."""
    _ask(_library.commschedTimelineWritePage, request, len(request), _encode(path))


def version() -> str:
    return _decode(_library.commschedGetVersion())


def xla_configure(options: str | None) -> None:
    _ask(_library.commschedXlaConfigure, None if options is None else _encode(options))


def xla_install(api: int) -> None:
    _ask(_library.commschedXlaInstall, api)


def xla_take_reports() -> str:
    return _decode(_take(_library.commschedXlaTakeReports()))
