"""Checks that a schedule under limit=arena needs no larger arena than its input, is shorter, and that without it the arena grows.

  check_arena.py ARENA.json LIVE.json
"""

import json
import sys


def read(path):
    functions = json.load(open(path))["functions"]
    assert len(functions) == 1, path
    return functions[0]


arena, live = read(sys.argv[1]), read(sys.argv[2])
plan = arena["buffer_plan_bytes"]
assert plan["after"] <= plan["before"], plan
assert arena["makespan_ns"]["after"] < arena["makespan_ns"]["before"], arena["makespan_ns"]
assert live["buffer_plan_bytes"]["after"] > live["buffer_plan_bytes"]["before"], "this graph shows nothing any more"
