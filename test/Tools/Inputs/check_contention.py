# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checks the contention of a profile of one kind of collective: each pair is measured, or listed with the reason.

The other arguments are the numbers of ranks of the two groups that collectives were measured on at once.
"""

import json
import sys

profile = json.load(open(sys.argv[1]))
ranks = [int(word) for word in sys.argv[2:]]
measured = {entry["against"]: entry for entry in profile.get("contention", [])}
skipped = {entry.get("what"): entry["reason"] for entry in profile["calibration"]["skipped"]}
# Of groups that are named, pairs alone are measured.
for against in () if ranks else ("matrix", "memory"):
    if against in measured:
        assert measured[against]["bytes"] == 1024 and measured[against]["compute_permille"] >= 0, measured
    else:
        assert "does not outlast" in skipped[f"all_gather of 1024 bytes beside {against}"], skipped
(pair,) = profile["calibration"]["pairs"]
assert pair["alone_ns"] > 0 and pair["both_ns"] > 0, pair
alone = sorted([pair["alone_ns"], pair["beside_alone_ns"]])
expected = max(0, (pair["both_ns"] - alone[1]) * 1000 // alone[0])
assert pair["permille"] == expected and pair["both_lo_ns"] <= pair["both_ns"] <= pair["both_hi_ns"], profile
ranks = ranks or [2, 2]
assert [pair["ranks"], pair["beside_ranks"]] == ranks, pair
# What two of such a part take by the sharing of one link, up to one after the other.
shares = profile["resources"]["shares"]
assert {share["ranks"] for share in shares} == set(ranks), shares
for share in shares:
    assert share["permille"] == min(1000, (1000 + expected + 1) // 2) and share["nodes"] == 1, (share, pair)
