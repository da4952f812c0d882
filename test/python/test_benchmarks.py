# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The benchmark of the generated code runs, with both schedulers, on a small model; what predictions are worth."""

import argparse
import random

import pytest

pytest.importorskip("torch")

import hidden_truth
import overlap_prediction
import overlap_strands
import torch_code


def test_every_scheduler_is_measured():
    results = {"command": "test", "machine": "h100-sxm", "graphs": {}}
    assert len(list(torch_code.rows("tiny:8", "h100-sxm", results["graphs"]))) == 2 * len(torch_code.VARIANTS)
    for rows in results["graphs"].values():
        assert not [r["error"] for r in rows.values() if "error" in r]
        assert rows["Inductor"]["adjacent"] == rows["Inductor"]["collectives"]
        for kind in ("order only", "bucketing"):
            ours = rows["CommSched" if kind == "bucketing" else "CommSched, order only"]
            assert ours["adjacent"] <= rows["Inductor"]["adjacent"] // 5
            assert ours["exposed_ms"] < rows["Inductor"]["exposed_ms"]
    assert "CommSched, order only" in torch_code.page(results)


def _schedule(predicted, measured, spread=1):
    error = round(100 * (predicted - measured) / measured, 2)
    span = dict(lo_ns=measured - spread, hi_ns=measured + spread)
    return dict(predicted_ns=predicted, measured_ns=measured, n=9, error_percent=error, **span)


def test_orders_of_schedules_count_if_the_difference_is_no_noise():
    verdict = lambda a, b: overlap_prediction.order({"a": a, "b": b}, "a", "b")["verdict"]
    assert verdict(_schedule(90, 100), _schedule(70, 80)) == "right"
    assert verdict(_schedule(70, 100), _schedule(90, 80)) == "wrong"
    assert verdict(_schedule(90, 100), _schedule(90, 80)) == "wrong"  # No difference was predicted.
    assert verdict(_schedule(70, 100, 15), _schedule(90, 80, 15)) == "within noise"


def test_the_table_of_predictions():
    schedules = {name: _schedule(80, 100) for name in overlap_prediction.SCHEDULES}
    orders = [overlap_prediction.order(schedules, "as written", "more memory")]
    rows = [dict(bytes=1 << 20, pieces=2, kernel_ns=1_000_000, schedules=schedules, orders=orders)]
    summary = overlap_prediction.summary(rows)
    assert summary.startswith("error: median 20.0 %, worst 20.0 %, 0 of 3 within 15 %")
    assert "0 right, 0 wrong, 1 within noise" in summary
    text = overlap_prediction.table(dict(title="t", rows=rows, summary=summary))
    assert text.count("-20.0%") == 3 and "as written or more memory: within noise" in text
    assert overlap_prediction.interval(list(range(11))) == (5, 2, 9)


def test_hidden_coefficients_and_what_a_calibration_knows_of_them():
    truth = hidden_truth.draw_truth(random.Random(1))
    assert truth == hidden_truth.draw_truth(random.Random(1)) != hidden_truth.draw_truth(random.Random(2))
    products = [entry["compute_permille"] for entry in truth if entry["against"] == "matrix"]
    assert abs(sum(products) / len(products) - hidden_truth.MEAN_OF_MATRIX) < 1
    known = hidden_truth.calibrate(truth, random.Random(3))
    assert known != truth
    for true, estimate in zip(truth, known, strict=True):
        assert {name: true[name] for name in ("kind", "bytes", "against")}.items() <= estimate.items()
        for name in ("compute_permille", "collective_permille"):
            assert abs(estimate[name] - true[name]) <= hidden_truth.ERROR * true[name] + 0.5
    result = dict(program="p", seed=0, given=300.0, none=200.0, estimate=190.0, truth=188.0, bound=150.0)
    settings = argparse.Namespace(programs=["p.mlir"], seeds=1, machine="h100-sxm")
    assert "| p | 0 | 300.0 | 200.0 | 190.0 | 188.0 | 150.0 | +1.06 | 5.00 |" in hidden_truth.page(settings, [result])


def test_the_page_of_a_chain_in_strands():
    measured = dict(written=(4e6, 3e6, 5e6), unsplit=(3e6, 2e6, 5e6), strands=(2e6, 1e6, 3e6))
    row = dict(bytes=1 << 24, kernel_ms=2.0, strands=3, measured=measured, ratio=1.5)
    row["predicted"] = dict(written=30, unsplit=20, strands=10)
    settings = dict(command="c", ranks=2, layers=8, samples=20, cores=2, loads="1.0 and 2.0")
    line = "| 16 MiB | 2.0 ms | 4.0 (3.0 to 5.0) | 3.0 (2.0 to 5.0) | 3 | 2.0 (1.0 to 3.0) | 1.50 | 2.00 |"
    assert line in overlap_strands.page(settings, [row])
