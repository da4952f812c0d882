# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How much of a step is exposed, from traces: counted tick by tick, of real ranks, and of ranks that come late. The
page of the same traces: its data, and what a browser makes of it.
"""

import gzip
import json
import pathlib
import random
import sqlite3
import sys

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist

import gloo
from commsched import exposed
from commsched.exposed.__main__ import main
from pages import sides_of


def _kernel(name, start, duration, stream, **args):
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": stream,
        "ts": start,
        "dur": duration,
        "args": args,
    }


def _gather(start, duration, stream=20, elements=1024):
    return _kernel(
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        start,
        duration,
        stream,
        **{"Collective name": "_allgather_base", "In msg nelems": elements // 2, "Out msg nelems": elements},
        **{"Group size": 2, "dtype": "BFloat16", "Process Group Name": "0", "Process Group Ranks": "[0, 1]"},
    )


def _written(folder, name, events, rank=None):
    info = {} if rank is None else {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}}
    path = folder / name
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **info}))
    return str(path)


def _random_trace(rng):
    """Events in a random order, and by tick (1 us) how many kernels and how many collectives run."""
    events, ticks = [], {}
    for stream in range(rng.randint(1, 3)):
        now = rng.randint(0, 20)
        for _ in range(rng.randint(0, 6)):
            duration = rng.randint(0, 15)
            events.append(_kernel("gemm", now, duration, stream))
            for t in range(now, now + duration):
                ticks.setdefault(t, [0, 0])[0] += 1
            now += duration + rng.randint(0, 10)
    for stream in range(20, 20 + rng.randint(1, 3)):
        now = rng.randint(0, 20)
        for _ in range(rng.randint(1, 6)):
            duration = rng.randint(1, 15)
            events.append(_gather(now, duration, stream, rng.choice([64, 256])))
            for t in range(now, now + duration):
                ticks.setdefault(t, [0, 0])[1] += 1
            now += duration + rng.randint(0, 10)
    rng.shuffle(events)
    return events, ticks


# Tests every figure against a count of the ticks of random traces, with several streams of both kinds.
def test_ticks(tmp_path):
    rng = random.Random(20261129)
    for _ in range(100):
        events, ticks = _random_trace(rng)
        (a,) = exposed.analyse([exposed.read(_written(tmp_path, "t.json", events))])
        assert a.computation == sum(c > 0 for c, _ in ticks.values())
        assert a.collectives == sum(n > 0 for _, n in ticks.values())
        assert a.exposed == pytest.approx(sum(n > 0 and c == 0 for c, n in ticks.values()))
        assert a.idle == a.span - len(ticks)
        assert a.bound <= a.span and a.computation + a.exposed + a.idle == pytest.approx(a.span)
        assert sum(r.exposed for r in a.rows) == pytest.approx(a.exposed)
        assert sum(r.calls for r in a.rows) == sum("nccl" in e["name"] for e in events)
        assert {r.nbytes for r in a.rows} <= {128, 512} and a.waited is None


# Tests that the time for which a rank waits for a late one is told apart, and what is hidden of it is not counted.
def test_a_late_rank(tmp_path):
    early = [_kernel("gemm", 0, 100, 7), _gather(80, 170), _kernel("gemm", 250, 50, 7), _gather(300, 40)]
    late = [_kernel("gemm", 0, 200, 7), _gather(200, 50), _kernel("gemm", 250, 50, 7), _gather(300, 40)]
    steps = [{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "ts": 0, "dur": 1} for i in (3, 4)]
    paths = [_written(tmp_path, f"{i}.json", e + steps, i) for i, e in enumerate((early, late))]
    first, second = exposed.analyse([exposed.read(path) for path in paths])
    assert (first.exposed, first.waited, first.idle, first.bound) == (190, 100, 0, 150)
    assert (second.exposed, second.waited, second.idle, second.bound) == (90, 0, 0, 250)
    assert first.hideable == 90 and second.hideable == 90 and first.trace.steps == 2
    assert first.to_json()["waited_us"] == 50


# Tests that one rank with another number of calls says nothing about waiting.
def test_other_numbers_of_calls(tmp_path):
    paths = [_written(tmp_path, f"{i}.json", [_gather(100 * n, 50 + i) for n in range(2 + i)], i) for i in range(2)]
    for a in exposed.analyse([exposed.read(path) for path in paths]):
        assert a.waited == 0 and a.exposed == a.collectives


def _profiled_job(rank, ranks, folder):
    from torch.profiler import ProfilerActivity, profile, schedule

    x = torch.ones(400, 400)
    with profile(
        activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=2, repeat=1)
    ) as profiler:
        for _ in range(3):
            work = dist.all_reduce(x, async_op=True)
            y = torch.ones(300, 300)
            for _ in range(5):
                y = y @ y.relu()
            work.wait()
            profiler.step()
    profiler.export_chrome_trace(f"{folder}/rank{rank}.json")


def _ticks_of(spans):
    """The microseconds that spans cover, with how many do."""
    ticks = {}
    for span in spans:
        for t in range(span["start"] // 1000, (span["start"] + span["length"]) // 1000):
            ticks[t] = ticks.get(t, 0) + 1
    return ticks


# Tests the rectangles and the figures of pages against the ticks of random traces.
def test_ticks_of_pages(tmp_path, capsys):
    rng = random.Random(20261130)
    for _ in range(40):
        events, ticks = _random_trace(rng)
        page = str(tmp_path / "t.html")
        assert main([_written(tmp_path, "t.json", events), f"--page={page}"]) == 0
        assert "gain at most" in capsys.readouterr().out
        notes, (side,) = sides_of(page)
        first = min(e["ts"] for e in events)
        ticks = {t - first: count for t, count in ticks.items()}
        bare = {t for t, (c, n) in ticks.items() if n > 0 and c == 0}
        lane = [s for s in side["spans"] if s["row"] == 0]
        assert notes == [] and side["begin"] == 0 and side["title"] == "t.json"
        assert _ticks_of(s for s in lane if s["stall"]) == dict.fromkeys(bare, 1)
        assert _ticks_of(s for s in lane if not s["stall"]) == {t: c for t, (c, _) in ticks.items() if c > 0}
        assert _ticks_of(s for s in side["spans"] if s["row"] > 0) == {t: n for t, (_, n) in ticks.items() if n > 0}
        figures = side["figures"]
        assert figures["step"] == side["makespan"] == 1000 * max(e["ts"] + e["dur"] - first for e in events)
        assert figures["exposed"] == 1000 * len(bare) and figures["idle"] == figures["step"] - 1000 * len(ticks)
        assert figures["computation"] == side["loads"][0] == 1000 * sum(c > 0 for c, _ in ticks.values())
        assert figures["collectives"] == 1000 * sum(n > 0 for _, n in ticks.values())
        assert "waiting" not in figures and figures["at least, in any order"] == side["bound"] <= figures["step"]
        # Every collective has its lane and its bytes, and during its exposed time it runs.
        wanted = sorted((f"stream {e['tid']}", e["ts"] - first, e["dur"]) for e in events if "nccl" in e["name"])
        of = {s["op"]: s for s in side["spans"]}
        calls = [(side["lanes"][of[c["op"]]["row"]], of[c["op"]]) for c in side["starts"]]
        assert sorted((name, s["start"] / 1000, s["length"] / 1000) for name, s in calls) == wanted
        assert all(c["bytes"] in (128, 512) and c["ranks"] == 2 and c["match"] == -1 for c in side["starts"])
        assert sum(c["exposed"] for c in side["starts"]) == pytest.approx(figures["exposed"], abs=len(side["starts"]))
        for wait in side["waits"]:
            inner, outer = of[wait["op"]], of[wait["start"]]
            assert outer["start"] <= inner["start"] and inner["length"] == wait["exposed"]
            assert inner["start"] + inner["length"] <= outer["start"] + outer["length"]
        # What only a schedule has is not there.
        assert not {"memory", "buffers", "peak", "arguments", "exposed", "streamRow"} & side.keys()


# Tests that ranks whose clocks differ are aligned by their collectives, and the time for which one waits is marked.
@pytest.mark.parametrize("apart", [0, 5_000_000, -123.456])
def test_page_of_a_late_rank(tmp_path, apart):
    early = [_kernel("gemm", 0, 100, 7), _gather(80, 170), _kernel("gemm", 250, 50, 7), _gather(300, 40)]
    late = [_kernel("gemm", 0, 200, 7), _gather(200, 50), _kernel("gemm", 250, 50, 7), _gather(300, 40)]
    late = [{**e, "ts": e["ts"] + apart} for e in late]
    paths = [_written(tmp_path, f"{i}.json", e, i) for i, e in enumerate((early, late))]
    page = str(tmp_path / "page.html")
    assert main([*paths, "--page", page, "--json"]) == 0
    notes, sides = sides_of(page)
    assert notes == ["The ranks are aligned by the ends of the collectives that they share."]
    for side, gemms, stalls in [
        (sides[0], [(0, 100), (250, 50)], [(100, 100, True), (200, 50, False), (300, 40, False)]),
        (sides[1], [(0, 200), (250, 50)], [(200, 50, False), (300, 40, False)]),
    ]:
        of = {s["op"]: (s["start"] / 1000, s["length"] / 1000) for s in side["spans"]}
        assert [of[s["op"]] for s in side["spans"] if s["row"] == 0 and not s["stall"]] == gemms
        assert [(*of[w["op"]], w["factor"] >= 0) for w in side["waits"]] == stalls
        assert [c["match"] for c in side["starts"]] == [0, 1]
    assert [s["figures"]["waiting"] for s in sides] == [100_000, 0]
    assert [[c["late"] for c in s["starts"]] for s in sides] == [[100_000, 0], [0, 0]]
    assert [s["figures"]["gain at most"] for s in sides] == [90_000, 90_000]


# Tests times since 1970, which a page holds only if it counts from its first moment. They are exact to a quarter of a
# microsecond.
def test_page_of_times_since_1970(tmp_path):
    rng = random.Random(20261201)
    page = str(tmp_path / "page.html")
    for _ in range(20):
        paths = []
        for rank in range(3):
            began = 1.7e15 + rng.uniform(0, 1e9)
            starts = [began + 100 * n + rng.uniform(0, 10) for n in range(4)]
            events = [_gather(start, rng.uniform(5, 50)) for start in starts]
            paths.append(_written(tmp_path, f"{rank}.json", events, rank))
        assert main([*paths, f"--page={page}"]) == 0
        _, sides = sides_of(page)
        assert min(side["begin"] for side in sides) <= 1000
        for side in sides:
            stalls = sum(s["length"] for s in side["spans"] if s["stall"])
            assert stalls == pytest.approx(side["figures"]["exposed"], abs=5000)


# Tests that ranks without common collectives begin together, and the page says so.
def test_page_of_strangers(tmp_path):
    paths = [_written(tmp_path, f"{i}.json", [_gather(1e6 * i + 100 * n, 50) for n in range(2 + i)], i) for i in (0, 1)]
    page = str(tmp_path / "page.html")
    assert main([*paths, f"--page={page}"]) == 0
    notes, sides = sides_of(page)
    assert len(notes) == 1 and "begin at the same moment" in notes[0]
    assert [(s["begin"], s["makespan"]) for s in sides] == [(0, 150_000), (0, 250_000)]


# Tests that neighbours are one rectangle where there are many, that none covers exposed time, and the page says so.
def test_page_of_many_kernels(tmp_path, monkeypatch):
    monkeypatch.setattr("commsched.exposed.page._MOST_COMPUTATIONS", 50)
    names = ["short", "long"]
    events = [_kernel(names[n % 10 == 3], 10 * n, 9 if n % 10 == 3 else 5, 7) for n in range(1000)]
    events += [_gather(3000 + 1000 * n, 100) for n in range(3)]
    page = str(tmp_path / "page.html")
    path = _written(tmp_path, "t.json", events)
    assert main([path, f"--page={page}"]) == 0
    notes, (side,) = sides_of(page)
    assert notes == [f"Neighbouring kernels are drawn as one if they run within {2 * 9995 / 50:.3g} us."]
    lane = [s for s in side["spans"] if s["row"] == 0]
    kernels, stalls = ([s for s in lane if s["stall"] == n] for n in (0, 1))
    assert sum(side["ops"][s["op"]]["count"] for s in kernels) == 1000
    # At most 50 for all of the time, and one more for each exposed gap.
    assert len(stalls) == 30 and len(kernels) <= 51 + len(stalls)
    assert all(s["length"] <= 399_800 for s in kernels)
    assert all(count == 1 for count in _ticks_of(lane).values())
    assert _ticks_of(stalls) == {t: 1 for n in range(3) for t in range(3000 + 1000 * n, 3100 + 1000 * n)
                                 if t % 10 >= (9 if t // 10 % 10 == 3 else 5)}  # fmt: skip
    (a,) = exposed.analyse([exposed.read(path)])
    assert side["loads"][0] == side["figures"]["computation"] == 1000 * a.computation == 1000 * (900 * 5 + 100 * 9)
    assert {side["ops"][s["op"]]["kind"] for s in kernels if side["ops"][s["op"]]["count"] > 10} == {"long"}


_HOSTILE = [
    "</script><script>window.broken = 1</script>",
    "<!--<script>",
    "]]></SCRIPT ><img src=x onerror='window.broken = 1'>",
    "quotes \" ' \\ and \u2028 \x00 lines\n",
    "&lt;b&gt; ${window.broken = 1}",
]


# Tests names that would end the element of the data or the quotes of a text, by a parser of HTML.
def test_page_of_hostile_names(tmp_path):
    events = [_kernel(name, 10 * n, 5, 7) for n, name in enumerate(_HOSTILE)]
    events += [{**_gather(60 + 10 * n, 5), "tid": name} for n, name in enumerate(_HOSTILE)]
    for event, name in zip(events[len(_HOSTILE) :], _HOSTILE):
        event["args"] = {
            "Collective name": name,
            "Process Group Ranks": name,
            "Group size": -1,
            "In msg nelems": 10**40,
        }
    events += [_kernel("\ud800", 200, 5, 7), _kernel("", 210, 5, 7)]
    page = tmp_path / "<b>&.html"
    assert main([_written(tmp_path, "<i>&amp;.json", events), f"--page={page}"]) == 0
    _, (side,) = sides_of(page)
    kinds = [side["ops"][s["op"]]["kind"] for s in side["spans"] if s["row"] == 0 and not s["stall"]]
    assert kinds == [*_HOSTILE, "\ufffd", "?"] and side["lanes"] == ["computation", *_HOSTILE]
    assert [(side["ops"][c["op"]]["kind"], side["ops"][c["op"]]["group"]) for c in side["starts"]] == [
        (name, name) for name in _HOSTILE
    ]
    assert all(c["bytes"] == -1 and c["ranks"] == 0 for c in side["starts"])
    assert side["title"] == "<i>&amp;.json"


# Tests what a browser makes of a page: names as they are, the figures, and nothing that only a schedule has.
def test_page_in_a_browser(tmp_path):
    sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "Report"))
    from browser import Browser, find_browser

    path = find_browser() or pytest.skip("no Chromium is installed")
    early = [_kernel(_HOSTILE[0], 0, 100, 7), _gather(80, 170), _kernel(_HOSTILE[1], 250, 50, 7), _gather(300, 40)]
    late = [_kernel("gemm", 0, 200, 7), _gather(200, 50), _kernel("gemm", 250, 50, 7), _gather(300, 40)]
    page = tmp_path / "page.html"
    paths = [_written(tmp_path, f"{i}.json", e, i) for i, e in enumerate((early, late))]
    assert main([*paths, f"--page={page}"]) == 0
    with Browser(path) as browser:

        def text(selector):
            return browser.ask(f"document.querySelector({json.dumps(selector)}).innerText")

        def point_at(side, op):
            where = (
                f"(() => {{ const {{view}} = timelinePage, box = view.boxOf({side}, {op});"
                " const at = view.rows.getBoundingClientRect();"
                " return [at.left + box.x + box.width / 2, at.top + box.y + box.height / 2].map(Math.round); })()"
            )
            x, y = browser.ask(where)
            browser.mouse("mouseMoved", x, y)
            browser.click(x, y)

        browser.open(page.as_uri())
        assert browser.ask("timelinePage.view.sides.map(side => side.title)") == ["rank 0", "rank 1"]
        for part in (
            "step 340 us",
            "exposed 190 us",
            "waiting 100 us",
            "gain at most 90.0 us",
            "order 150 us",
        ):
            assert part in text("#gutter .title"), part
        assert "90.0 us \u2013 190 us" in text("#summary")
        # The first collective waits 100 us for the other rank.
        gather = browser.ask("timelinePage.view.sides[0].data.starts.op[0]")
        point_at(0, gather)
        assert text("#tip").split("\n\n") == ["_allgather_base", "170 us", "2.00 KiB, 2 ranks, [0, 1]"]
        facts = (
            "Object.fromEntries([...document.querySelectorAll('#details dt')]"
            ".map(name => [name.innerText, name.nextSibling.innerText]))"
        )
        assert browser.ask(facts) == {
            "runs": "170 us", "from": "80 us", "to": "250 us", "group": "[0, 1]", "bytes": "2.00 KiB", "ranks": "2",
            "exposed": "150 us", "waiting for others": "100 us of it", "rank 1": "at 200 us, 120 us later",
        }  # fmt: skip
        point_at(0, browser.ask("timelinePage.view.sides[0].data.waits.op[0]"))
        assert text("#tip").split("\n\n") == [
            "exposed", "100 us, while _allgather_base runs and no computation", "other ranks have not come yet"
        ]  # fmt: skip
        spans = browser.ask("timelinePage.view.sides[0].data.spans")
        rows = zip(spans["op"], spans["row"], spans["stall"])
        point_at(0, next(op for op, row, stall in rows if row == 0 and not stall))
        assert text("#details h2").split("\n")[0] == _HOSTILE[0]
        for key in ("p", "b", "[", "]", "f", "n", "0", "Escape", "t", "?"):
            browser.key(key)
        for word in ("memory", "peak", "machine", "function", "bound", "NaN", "undefined", "makespan", "optimal"):
            assert word not in text("body"), word
        assert browser.ask("window.broken === undefined") and browser.exceptions == []


# Tests the lane of a job without devices: the outermost operators of each thread, without the time in which one waits.
def test_page_of_operators(tmp_path):
    def operator(name, start, end, thread, cat="cpu_op"):
        return {"ph": "X", "cat": cat, "name": name, "pid": 5, "tid": thread, "ts": start, "dur": end - start}

    events = [
        operator("backward", 0, 100, 1),
        operator("aten::mm", 10, 30, 1),
        operator("c10d::allreduce_", 40, 70, 1),
        operator("aten::empty", 45, 50, 1),
        operator("aten::add", 100, 110, 1),
        operator("aten::relu", 60, 90, 2),
        operator("gloo:all_reduce", 35, 95, 3, "user_annotation"),
    ]
    page = str(tmp_path / "page.html")
    assert main([_written(tmp_path, "t.json", events), f"--page={page}"]) == 0
    _, (side,) = sides_of(page)
    drawn = [
        (side["ops"][s["op"]]["kind"], s["start"] // 1000, (s["start"] + s["length"]) // 1000)
        for s in side["spans"]
        if s["row"] == 0
    ]
    assert sorted(drawn) == [
        ("aten::add", 100, 110),
        ("aten::relu", 70, 90),
        ("backward", 0, 40),
        ("backward", 70, 100),
        ("exposed", 40, 70),
    ]
    assert side["lanes"] == ["computation", "thread 3"] and side["loads"] == [80_000, 60_000]


# Tests a page of an export of nsys, which does not tell one stream from another.
def test_page_of_nsys(tmp_path):
    from test_traces import _export

    ranges = [(0, 10_000, "aten::mm, sizes = [[64, 64], [64, 64]]")]
    path = _export(tmp_path / "report.sqlite", ranges, [(20_000, 50_000, 1000), (40_000, 80_000, 2000)])
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO StringIds VALUES (100, 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL')")
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET shortName = 100 WHERE start = 40000")
    database.close()
    page = str(tmp_path / "page.html")
    assert main([path, f"--page={page}"]) == 0
    _, (side,) = sides_of(page)
    assert side["lanes"] == ["computation", "all streams"] and side["loads"] == [30_000, 40_000]
    assert [(s["start"], s["length"]) for s in side["spans"] if s["stall"]] == [(30_000, 30_000)]


# Tests that a page that cannot be written is an error, and leaves what was there.
def test_pages_that_cannot_be_written(tmp_path, capsys):
    path = _written(tmp_path, "t.json", [_gather(0, 5), _kernel("gemm", 5, 5, 7)])
    (tmp_path / "folder").mkdir()
    for page, message in (
        ("no/page.html", "No such file"),
        ("folder", "s a directory"),
        ("-", "got '-'"),
        ("", "got ''"),
    ):
        target = str(tmp_path / page) if "/" in page or page == "folder" else page
        assert main([path, f"--page={target}"]) == 1
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith("error: ") and message in said.err and target in said.err
    (tmp_path / "page.html").write_text("before")
    far = _written(tmp_path, "far.json", [_gather(0, 5), _kernel("gemm", 1e14, 5, 7)])
    assert main([far, f"--page={tmp_path / 'page.html'}"]) == 1
    assert "for a page" in capsys.readouterr().err
    assert (tmp_path / "page.html").read_text() == "before"
    assert main([path, f"--page={tmp_path / 'page.html'}"]) == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["far.json", "folder", "page.html", "t.json"]


# Tests real traces of two ranks of gloo, compressed, through the command line.
def test_real_ranks(tmp_path, capsys):
    gloo.run(2, _profiled_job, str(tmp_path))
    paths = []
    for rank in range(2):
        paths.append(str(tmp_path / f"{rank}.json.gz"))
        data = (tmp_path / f"rank{rank}.json").read_bytes()
        (tmp_path / f"{rank}.json.gz").write_bytes(gzip.compress(data))
    assert main(["--json", f"--page={tmp_path / 'page.html'}", *paths]) == 0
    everything = json.loads(capsys.readouterr().out)
    _, sides = sides_of(tmp_path / "page.html")
    for rank, (figures, side) in enumerate(zip(everything, sides)):
        assert side["title"] == f"rank {rank}" and side["note"] == f"{rank}.json.gz, figures of one of 2 steps"
        names = ("step", "computation", "collectives", "exposed", "idle")
        names += ("at least, in any order", "gain at most")
        keys = ("step", "computation", "collectives", "exposed", "idle", "bound", "hideable")
        for name, key in zip(names, keys):
            assert side["figures"][name] == pytest.approx(1000 * figures[f"{key}_us"], abs=1), name
        stalls = [s["length"] for s in side["spans"] if s["stall"]]
        assert sum(stalls) == pytest.approx(2000 * figures["exposed_us"], abs=1 + len(stalls))
        kinds = {side["ops"][c["op"]]["kind"] for c in side["starts"]}
        assert kinds == {"all_reduce"} and len(side["starts"]) == 2 and {c["match"] for c in side["starts"]} == {0, 1}
        computed = {side["ops"][s["op"]]["kind"] for s in side["spans"] if s["row"] == 0 and not s["stall"]}
        assert {"aten::matmul", "aten::relu", "aten::ones"} <= computed and "c10d::allreduce_" not in computed
        assert side["lanes"][0] == "computation" and all(name.startswith("thread ") for name in side["lanes"][1:])
    for rank, figures in enumerate(everything):
        assert figures["rank"] == rank and figures["steps"] == 2
        assert 0 < figures["collectives_us"] <= figures["step_us"] and figures["computation_us"] > 0
        assert figures["exposed_us"] <= figures["collectives_us"]
        sum_us = figures["computation_us"] + figures["exposed_us"] + figures["idle_us"]
        assert sum_us == pytest.approx(figures["step_us"])
        (row,) = figures["rows"]
        assert row["kind"] == "all_reduce" and row["calls"] == 1
    assert main(paths) == 0
    said = capsys.readouterr().out
    assert "rank 1" in said and "gain at most" in said
    # On a busy machine, a collective may end before anybody waits for it.
    assert ("all_reduce" in said) == any(figures["exposed_us"] > 0 for figures in everything)


# Tests what is refused, with the place.
def test_bad_input(tmp_path, capsys):
    cases = {
        "cut.json": ('{"traceEvents": [', "cut.json:1:18"),
        "list.json": ("[]", "expected a trace of torch.profiler"),
        "time.json": ('{"traceEvents": [{"ph": "M"}, {"ph": "X", "ts": 1, "dur": -2}]}', r"traceEvents[1]"),
        "text.json": ('{"traceEvents": [{"ph": "X", "ts": "a"}]}', "traceEvents[0]: expected the numbers"),
        "empty.json": ('{"traceEvents": []}', "nothing to look at"),
    }
    for name, (text, message) in cases.items():
        (tmp_path / name).write_text(text)
        assert main([str(tmp_path / name)]) == 1
        assert message in capsys.readouterr().err
    whole = gzip.compress(b'{"traceEvents": []}' * 50)
    for name, data in (("cut.json.gz", whole[:-12]), ("bad.json.gz", whole[:10] + b"\xff" * 20)):
        (tmp_path / name).write_bytes(data)
        assert main([str(tmp_path / name)]) == 1
        assert name in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--top", "-1", str(tmp_path / "empty.json")])
    assert main([str(tmp_path / "none.json")]) == 1
    assert "No such file" in capsys.readouterr().err
    twice = [_written(tmp_path, f"{i}.json", [_gather(0, 5)], 3) for i in range(2)]
    assert main(twice) == 1
    assert "rank 3 has a trace already" in capsys.readouterr().err
