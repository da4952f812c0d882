# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How much of a step is exposed, from traces: counted tick by tick, of real ranks, and of ranks that come late."""

import gzip
import json
import random

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist

import gloo
from commsched import exposed


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


# Tests every figure against a count of the ticks of random traces, with several streams of both kinds.
def test_ticks(tmp_path):
    rng = random.Random(20261129)
    for _ in range(100):
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


# Tests real traces of two ranks of gloo, compressed, through the command line.
def test_real_ranks(tmp_path, capsys):
    gloo.run(2, _profiled_job, str(tmp_path))
    paths = []
    for rank in range(2):
        paths.append(str(tmp_path / f"{rank}.json.gz"))
        data = (tmp_path / f"rank{rank}.json").read_bytes()
        (tmp_path / f"{rank}.json.gz").write_bytes(gzip.compress(data))
    assert exposed.main(["--json", *paths]) == 0
    everything = json.loads(capsys.readouterr().out)
    for rank, figures in enumerate(everything):
        assert figures["rank"] == rank and figures["steps"] == 2
        assert 0 < figures["collectives_us"] <= figures["step_us"] and figures["computation_us"] > 0
        assert figures["exposed_us"] <= figures["collectives_us"]
        sum_us = figures["computation_us"] + figures["exposed_us"] + figures["idle_us"]
        assert sum_us == pytest.approx(figures["step_us"])
        (row,) = figures["rows"]
        assert row["kind"] == "all_reduce" and row["calls"] == 1
    assert exposed.main(paths) == 0
    said = capsys.readouterr().out
    assert "rank 1" in said and "another order gains at most" in said
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
        assert exposed.main([str(tmp_path / name)]) == 1
        assert message in capsys.readouterr().err
    whole = gzip.compress(b'{"traceEvents": []}' * 50)
    for name, data in (("cut.json.gz", whole[:-12]), ("bad.json.gz", whole[:10] + b"\xff" * 20)):
        (tmp_path / name).write_bytes(data)
        assert exposed.main([str(tmp_path / name)]) == 1
        assert name in capsys.readouterr().err
    with pytest.raises(SystemExit):
        exposed.main(["--top", "-1", str(tmp_path / "empty.json")])
    assert exposed.main([str(tmp_path / "none.json")]) == 1
    assert "No such file" in capsys.readouterr().err
    twice = [_written(tmp_path, f"{i}.json", [_gather(0, 5)], 3) for i in range(2)]
    assert exposed.main(twice) == 1
    assert "rank 3 has a trace already" in capsys.readouterr().err
