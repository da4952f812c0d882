# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The benchmark of the generated code runs, with both schedulers, on a small model."""

import pathlib
import sys

import pytest

pytest.importorskip("torch")

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))

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
