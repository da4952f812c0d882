"""Checks what every report of a scheduled training graph must say."""

import json
import sys

for function in json.load(open(sys.argv[1]))["functions"]:
    time, peak = function["makespan_ns"], function["peak_bytes"]
    assert time["lower_bound"] <= time["limit_lower_bound"] <= time["after"] < time["before"], time
    assert peak["after"] <= peak["limit"] == peak["before"], peak
    assert function["exposed_ns"]["after"] < function["exposed_ns"]["before"]
    assert abs(function["gap"] - (time["after"] / time["lower_bound"] - 1)) < 1e-9
    assert sum(row["exposed_ns"]["after"] for row in function["per_collective"]) == function["exposed_ns"]["after"]
    assert function["unknown_sizes"] == 0 and len(function["signature"]) == 16
    plan = function["buffer_plan_bytes"]
    assert plan["lower_bound"] <= plan["after"] <= 1.1 * plan["lower_bound"], plan
    assert plan["lower_bound"] <= peak["after"], (plan, peak)
