# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Some models of the zoo on two ranks: scheduled, their training steps give the bits of plain Inductor.

Inductor calls ATen for everything, as in test_steps.py. `python -m zoo` trains all of them in all modes; its result is
docs/research/results/zoo.md.
"""

import pytest

torch = pytest.importorskip("torch")

from zoo.training import MODELS, compare, faults, prepared

import gloo

# Models and modes that no other test has, in about a minute of processor time.
CELLS = (("vit_ddp", "plain"), ("deepseek_v3", "plain"), ("dlrm", "plain"))


def _all(rank, ranks):
    with prepared():
        for name, mode in CELLS:
            result = compare(name, mode, rank, ranks, machine="cpu-mpi", memory_budget_ratio=5.0)
            assert faults(result) == [], (name, mode)


def test_the_bits_of_plain_inductor():
    assert {MODELS[name][1] for name, _ in CELLS} == {2}
    gloo.run(2, _all)


def test_a_fault_is_found():
    good = {"same": True, "itself": True, "said": [], "outside": False}
    graph = {"place": "graph", "collectives": 2, "opaque": [], "peak_bytes": {"after": 8, "limit": 8}}
    code = {"place": "code", "as_decided": True}
    assert faults({**good, "graphs": [graph, code]}) == []
    assert faults({**good, "same": False, "graphs": [graph]}) == ["other bits"]
    other = {"same": False, "itself": False, "graphs": [graph]}
    assert faults({**good, **other}) == ["plain Inductor differs from itself"]
    assert faults({**good, "graphs": [{**graph, "collectives": 0}]}) == ["no collective scheduled"]
    assert faults({**good, "graphs": [{**graph, "peak_bytes": {"after": 9, "limit": 8}}]}) == ["memory above the limit"]
    assert faults({**good, "graphs": [graph, {**code, "as_decided": False}]}) == [
        "another order of the code than decided"
    ]
    assert faults({**good, "said": ["a warning"], "graphs": [graph]}) == ["a warning"]
    outside = {**good, "outside": True, "graphs": []}
    assert faults({**outside, "compiled": 1}) == ["no warning"]
    assert faults({**outside, "compiled": 0}) == []  # Without a graph, nobody asks CommSched.
