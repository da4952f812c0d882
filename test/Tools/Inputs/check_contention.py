# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checks the contention of a profile of one kind of collective: each pair is measured, or listed with the reason."""

import json
import sys

profile = json.load(open(sys.argv[1]))
measured = {entry["against"]: entry for entry in profile.get("contention", [])}
skipped = {entry.get("what"): entry["reason"] for entry in profile["calibration"]["skipped"]}
for against in ("matrix", "memory"):
    if against in measured:
        assert measured[against]["bytes"] == 1024 and measured[against]["compute_permille"] >= 0, measured
    else:
        assert "does not outlast" in skipped[f"all_gather of 1024 bytes beside {against}"], skipped
(pair,) = profile["calibration"]["pairs"]
assert pair["alone_ns"] > 0 and pair["both_ns"] > 0, pair
expected = max(0, (pair["both_ns"] - pair["alone_ns"]) * 1000 // pair["alone_ns"])
assert pair["permille"] == expected, profile
