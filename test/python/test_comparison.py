# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Entries of two ranks in the store when they decide about programs and compare them, without processes."""

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist

from commsched.torch.ranks import agreement, comparison


def rank(me, store, program="p", about=""):
    """The work of one of two ranks, at a program of its only group."""
    made = comparison._Comparison.__new__(comparison._Comparison)
    made.ranks, made.me, made.store, made.about = (0, 1), me, store, about
    made.same, made.key = "same", f"same/0/{program}"
    return made


@pytest.mark.parametrize("other", ["one", "two"])
def test_ranks_that_decide_otherwise_about_one_program_fail(monkeypatch, other):
    monkeypatch.setenv(comparison.DEADLINE, "0")
    monkeypatch.setattr(comparison, "GOODBYE_S", 0)
    store = dist.HashStore()
    with pytest.warns(UserWarning, match="has waited 0 s"):
        rank(0, store).compare("one")
    if other == "one":
        rank(1, store).compare(other)
        assert store.check(["same/0/p/all"])
        return
    with pytest.raises(RuntimeError, match="rank 1 is about to run another sequence of collectives"):
        rank(1, store).compare(other)
    assert store.get("same/0/p/wrong") == b"1 0"


SPLIT, WHOLE = {"strands": {"parts": 2}}, {"strands": {"parts": 1, "reason": "nothing divides"}}


@pytest.mark.parametrize(
    "one, other, said",
    [
        (
            comparison.described(4, SPLIT),
            comparison.described(1, WHOLE),
            "rank 1 has 4 collectives, split into 2 strands; that of rank 0 has 1 collective, not split into strands "
            "(nothing divides). Ranks that compute different things may split differently into strands, or only one of "
            'them can: strands="off" splits no graph. All ranks need the same versions, options and machine profile, '
            'and the same shapes in the first graph. With strands="off", collective_order="program" and ',
        ),
        (comparison.described(4, {}), comparison.described(4, {}), "mix up their data. All ranks need the same"),
        (comparison.described(4, {}), "", "has 4 collectives; nothing is known of that of rank 0. All ranks need the"),
    ],
)
def test_the_error_says_how_the_graphs_of_two_ranks_differ(monkeypatch, one, other, said):
    monkeypatch.setattr(comparison, "GOODBYE_S", 0)
    store = dist.HashStore()
    if other:
        store.set("same/about/0", other)
    store.set("same/0/p/value", "decided 0")
    with pytest.raises(RuntimeError) as raised:
        rank(1, store, about=one).compare("otherwise")
    assert said in str(raised.value)
    assert (store.get("same/0/p/wrong"), store.get("same/about/1")) == (b"1 0", one.encode())


@pytest.mark.parametrize("came", [False, True])
def test_a_rank_whose_program_all_have_come_to_does_not_wait_in_vain(came):
    store = dist.HashStore()
    store.set("same/at/0", "0 same/0/p")
    store.set("same/at/1", "0 same/0/q")
    if came:
        store.set("same/0/p/all", "1")
    assert rank(1, store, "q")._two_that_differ() == (None if came else ("1", "0"))


def test_a_rank_that_decides_second_takes_over_the_decision(monkeypatch):
    first = (((0, 1), True),)
    monkeypatch.setattr(agreement, "settled", lambda program, own: first)

    def run(graph, options, agree):
        agree((((0,), False), ((1,), False)))
        return {}

    shape = agreement.Shape(["gather f32 g", "gather f32 g"], ["g", "g"], "key")
    with pytest.raises(agreement.Disagreed) as raised:
        agreement._decide(torch.fx.Graph(), None, shape, run)
    assert raised.value.decision == first
