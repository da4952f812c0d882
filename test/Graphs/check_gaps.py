"""Checks how close schedules with and without buckets come to their bounds, and that buckets never cost time.

  check_gaps.py WITH.json WITHOUT.json PERCENT_WITH PERCENT_WITHOUT [PERCENT_OF_ARENA]

Each gap is counted from the bound that knows the memory limit. Searches are counted in steps: the figures are the same on
every machine.
"""

import json
import sys


# The buffers of a schedule fit into an arena that is at most this much larger than what is live, in %. Orders of Llama
# that were seen take up to 5.1 %. Placed by size or by first position alone, they take up to 16.9 % more.
ARENA = float(sys.argv[5]) if len(sys.argv) > 5 else 5.2


def times(path):
    functions = json.load(open(path))["functions"]
    assert len(functions) == 1, path
    plan = functions[0]["buffer_plan_bytes"]
    excess = 100 * (plan["after"] / plan["lower_bound"] - 1)
    assert 0 <= excess <= ARENA, f"the arena is {excess:.2f} % above the live bytes, expected at most {ARENA} %"
    return functions[0]["makespan_ns"]


together, apart = times(sys.argv[1]), times(sys.argv[2])
assert together["after"] <= apart["after"], f"with buckets {together['after']} ns, without {apart['after']} ns"
for name, time, allowed in (("with", together, sys.argv[3]), ("without", apart, sys.argv[4])):
    gap = 100 * (time["after"] / time["limit_lower_bound"] - 1)
    assert 0 <= gap <= float(allowed), f"{name} buckets: {gap:.3f} % from the bound, expected at most {allowed} %"
