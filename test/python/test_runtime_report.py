# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`ct.runtime_report`: generated code records itself, and what was put into a made-up clock comes out of the report."""

import collections
import json
import re

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist

import commsched.torch as ct
import gloo
from commsched.torch.recording import analysis, stamps
from pages import sides_of

US = 1000


def _clock(delays):
    """A clock by which each part takes what was predicted of it, and what `delays(code, part index)` adds."""
    now = [0]

    def begin(self):
        self._stamps = [now[0]]

    def stamp(self):
        part = len(self._stamps or self.code["parts"]) - 1  # `end` has taken the stamps.
        now[0] += self.code["parts"][part]["ns"] + delays(self.code, part)
        return now[0]

    return begin, stamp


def _compiled(loss, **options):
    import torch._inductor.config as ic

    torch._dynamo.reset()
    stamps._recorders.clear()
    with ic.patch(force_disable_caches=True), ct.enabled(machine="cpu-mpi", effort=0, bucketing=False, **options):
        return torch.compile(loss)


def _run(rank, ranks, runs, delays=None):
    from torch._inductor.utils import run_and_get_code

    loss, step = gloo.sharded_step(ranks, layers=3, width=16)
    compiled = _compiled(loss, record=True)
    with pytest.MonkeyPatch.context() as patch, gloo.without_kernels():
        if delays is not None:
            begin, stamp = _clock(delays)
            patch.setattr(stamps.Recorder, "begin", begin)
            patch.setattr(stamps.Recorder, "_stamp", stamp)
        _, codes = run_and_get_code(step, compiled, torch.ones(4, 16))
        for _ in range(runs):
            step(compiled, torch.ones(4, 16))
        return {r["direction"]: r for r in ct.runtime_report()}, codes


def _real(rank, ranks):
    """The code has a mark on each side of every start and wait, and the parts of its runs add up."""
    reports, codes = _run(rank, ranks, 6)
    call, mark = re.compile(r"\s*(\w+ = )?torch\.ops\._c10d_functional\."), f"{stamps.VARIABLE}.mark("
    for code in codes:
        lines = [line for line in code.splitlines() if call.match(line) or mark in line]
        calls = [i for i, line in enumerate(lines) if call.match(line)]
        assert calls and len(lines) == 3 * len(calls)
        for number, i in enumerate(calls):
            assert f"{mark}{2 * number + 1})" in lines[i - 1] and f"{mark}{2 * number + 2})" in lines[i + 1]
        assert code.count(f"{stamps.VARIABLE}.begin()") == code.count(f"{stamps.VARIABLE}.end()") == 1
    assert set(reports) == {"forward", "backward"}
    for r in stamps.recorders():
        assert r.broken == 0 and r.count == 7 and len(r.runs) == 6
        assert all(p >= 0 for parts in r.parts() for p in parts)
        counted = collections.Counter(p["part"] for p in r.code["parts"])
        assert counted["kernels"] == counted["start"] + counted["wait"] + 1 and counted["start"] == counted["wait"]
        assert sum(p["ns"] for p in r.code["parts"]) == pytest.approx(r.code["makespan_ns"], rel=0.02)
    for report in reports.values():
        measured = report["measured_ns"]
        assert measured["n"] == 6 and 0 < measured["lo"] <= measured["value"] <= measured["hi"]
        assert report["ranks"] == 2 and 0 < len(report["sites"]) <= 10
        assert report["error_percent"] == pytest.approx(
            100 * (report["predicted_ns"] - measured["value"]) / measured["value"], abs=0.01
        )
        assert f"median of 6 runs on {ranks} ranks" in report["text"]


def _known(rank, ranks):
    """Rank 1 comes late to one collective; a launch, a collective and kernels are slower than predicted."""
    named = {}

    def delays(code, part):
        parts = code["parts"]
        if code["direction"] != "forward":
            return 0
        waits = [i for i, p in enumerate(parts) if p["part"] == "wait"]
        late, slow = waits[0], waits[1]
        launch = next(i for i, p in enumerate(parts) if p["part"] == "start")
        kernels = len(parts) - 1
        named.update(late=parts[late]["name"], slow=parts[slow]["name"], launch=parts[launch]["name"])
        added = {slow: 300 * US, launch: 50 * US, kernels: 200 * US}
        added[late] = 400 * US if rank == 0 else 0
        return added.get(part, 0)

    reports, _ = _run(rank, ranks, 5, delays)
    exact = reports["backward"]
    assert abs(exact["error_percent"]) <= 2 and {s["why"] for s in exact["sites"]} == {"as predicted"}
    report = reports["forward"]
    # The late rank's own run is shorter.
    assert report["measured_ns"]["value"] == pytest.approx(report["predicted_ns"] + 950 * US, rel=0.02)
    assert report["measured_ns"]["lo"] == report["measured_ns"]["hi"]
    sites = {s["name"]: s for s in report["sites"]}
    assert [s["off_ns"] for s in report["sites"][:4]] == [300 * US, 200 * US, 200 * US, 50 * US]
    assert sites[named["slow"]]["why"].startswith("slower than the model")
    assert sites[named["late"]]["why"] == "rank 1 comes 400.0 us later than another"
    assert sites[named["launch"]]["why"] == "launching it takes longer than the model says"
    assert [s["why"] for s in report["sites"] if s["part"] == "kernels"][0] == "slower kernels than the model's"
    everyone = [None] * ranks
    dist.all_gather_object(everyone, report)
    assert everyone[0] == everyone[1]  # All ranks tell the same.


def _quiet(rank, ranks):
    """Without the option, code has no marks, and nothing is reported."""
    from torch._inductor.utils import run_and_get_code

    loss, step = gloo.sharded_step(ranks, layers=2, width=16)
    with gloo.without_kernels():
        _, codes = run_and_get_code(step, _compiled(loss), torch.ones(4, 16))
    assert not any("recorder" in code for code in codes)
    assert ct.runtime_report() == []


def _all(rank, ranks):
    for case in (_real, _known, _quiet):
        case(rank, ranks)
        dist.barrier()


def test_on_two_ranks():
    gloo.run(2, _all)


def _code(*parts):
    described = [{"part": p, "name": f"{p}{i}", "ns": ns, **more} for i, (p, ns, more) in enumerate(parts)]
    return {"direction": "forward", "makespan_ns": sum(p["ns"] for p in described), "parts": described}


COLLECTIVE = {"kind": "all_gather", "bytes": 64, "cost_ns": 110 * US}
CODE = _code(
    ("kernels", 0, {}),
    ("start", 10 * US, COLLECTIVE),
    ("kernels", 60 * US, {}),
    ("wait", 40 * US, {**COLLECTIVE, "start": 1}),
    ("kernels", 50 * US, {}),
)


@pytest.mark.parametrize(
    "parts, off, why",
    [
        ([0, 10, 60, 41, 50], 1, "as predicted"),
        ([0, 10, 60, 90, 50], 50, "slower than the model: it is there after 160.0 us, not 110.0 us"),
        ([0, 10, 5, 95, 50], 55, "the work that was to hide it takes less time"),
        ([0, 10, 60, 5, 50], -35, "faster than the model"),
        ([0, 10, 99, 1, 50], -39, "slower work hides more of it"),
    ],
)
def test_the_reason_of_a_wait(parts, off, why):
    report = analysis.compared(CODE, [[[p * US for p in parts]] * 3])
    (site,) = [s for s in report["sites"] if s["part"] == "wait"]
    assert site["off_ns"] == off * US and site["why"] == why
    assert sum(s["off_ns"] for s in report["sites"]) == report["measured_ns"]["value"] - report["predicted_ns"]


def test_a_run_that_was_cut_short_does_not_count():
    r = stamps.Recorder({**CODE, "device": "cpu"})
    for marks in ([1, 2, 3, 4], [1, 2], [1, 3, 2, 4], [1, 2, 3, 4]):
        r.begin()
        for m in marks:
            r.mark(m)
        r.end()
    assert (r.count, r.broken, len(r.runs)) == (4, 2, 1)  # Nor does the first one.


def test_devices_are_stamped_by_events(monkeypatch):
    class Event:
        now = 0

        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            Event.now += 2
            self.at = Event.now

        def synchronize(self):
            pass

        def elapsed_time(self, other):
            return float(other.at - self.at)

    monkeypatch.setattr(torch, "get_device_module", lambda device: type("module", (), {"Event": Event}))
    r = stamps.Recorder({**CODE, "device": "cuda"})
    for _ in range(2):
        r.begin()
        for m in (1, 2, 3, 4):
            r.mark(m)
        r.end()
    assert r.parts() == [[2_000_000] * 5]


# Three collectives: one of ours beside one that another graph waits for, and one that another graph started.
CROSSING = _code(
    ("kernels", 30 * US, {}),
    ("start", 10 * US, COLLECTIVE),
    ("kernels", 5 * US, {}),
    ("start", 0, {"kind": "all_reduce", "bytes": 32, "cost_ns": 20 * US}),
    ("kernels", 60 * US, {}),
    ("wait", 40 * US, {**COLLECTIVE, "start": 1}),
    ("kernels", 50 * US, {}),
    ("wait", 0, {}),
    ("kernels", 7 * US, {}),
)


def _recorded(code, factor):
    """A recorder of a code, each run of which takes `factor` times what was predicted of each part."""
    found = stamps.recorder(json.dumps({**code, "device": "cpu"}))
    for _ in range(3):
        now = 0
        found.runs.append([0] + [now := now + factor * p["ns"] for p in code["parts"]])
    return found


def test_a_page_has_both_timelines(tmp_path, monkeypatch):
    """Predicted and measured, part by part: each moment is computation or exposed, and each collective is in flight."""
    monkeypatch.setattr(stamps, "_recorders", {})
    for code, factor in ((CROSSING, 3), (CODE, 2)):
        _recorded(code, factor)
    page = tmp_path / "page.html"
    ct.runtime_report(page=str(page))
    notes, sides = sides_of(page)
    assert "may have been complete before" in notes[0]
    assert [s["title"] for s in sides] == ["forward, predicted", "forward, measured"] * 2
    for side, factor in zip(sides, (1, 3, 1, 2)):
        code = CROSSING if factor == 3 or side is sides[0] else CODE
        total = factor * sum(p["ns"] for p in code["parts"])
        waits = factor * sum(p["ns"] for p in code["parts"] if p["part"] == "wait")
        assert side["figures"] == {"makespan": total, "computation": total - waits, "exposed": waits}
        first = sorted((s["start"], s["length"], s["stall"]) for s in side["spans"] if s["row"] == 0)
        assert first[0][0] == 0 and sum(length for _, length, _ in first) == total
        assert all(a + length == b for (a, length, _), (b, _, _) in zip(first, first[1:]))
        assert sum(length for _, length, stall in first if stall) == waits
    flights = {(s["row"], s["start"], s["length"]) for s in sides[1]["spans"] if s["row"]}
    assert flights == {(1, 0, 3 * 195 * US), (2, 3 * 30 * US, 3 * 115 * US), (3, 3 * 45 * US, 3 * 157 * US)}
    matches = [[s["match"] for s in side["starts"]] for side in sides]
    assert matches == [[0, 1, 2], [0, 1, 2], [3], [3]]  # Both sides of a code, and no other code.
    kinds = [[side["ops"][s["op"]]["kind"] for s in side["starts"]] for side in sides]
    assert kinds[0] == ["collective", "all_gather", "all_reduce"] and kinds[3] == ["all_gather"]


def test_a_page_needs_a_code_and_a_place(tmp_path, monkeypatch):
    monkeypatch.setattr(stamps, "_recorders", {})
    with pytest.raises(ValueError, match="expected a code that has run twice"):
        ct.runtime_report(page=str(tmp_path / "page.html"))
    _recorded(CODE, 2)
    with pytest.raises(ValueError, match="nowhere"):
        ct.runtime_report(page=str(tmp_path / "nowhere" / "page.html"))
    assert not list(tmp_path.iterdir())
