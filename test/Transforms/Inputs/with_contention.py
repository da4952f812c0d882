#!/usr/bin/env python3
#===- with_contention.py - A machine profile with contention tables ---------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Copies a profile and adds entries to its contention table; "resources" adds the defaults of that object, and "variant"
# another way to carry out a kind of collective.
#
#   with_contention.py FROM.json TO.json KIND:AGAINST:COMPUTE_PERMILLE:COLLECTIVE_PERMILLE... [resources]
#                      variant:KIND:MEANS:CTAS:TIME_PERMILLE...
#
#===-------------------------------------------------------------------------------------------------------------===#

import json
import sys

profile = json.load(open(sys.argv[1]))
for word in sys.argv[3:]:
    if word == "resources":
        profile["resources"] = {"compute_units": 132}
        continue
    if word.startswith("variant:"):
        _, kind, means, ctas, time = word.split(":")
        variant = {"kind": kind, "means": means, "ctas": int(ctas), "time_permille": int(time)}
        profile.setdefault("variants", []).append(variant)
        continue
    kind, against, compute, collective = word.split(":")
    profile.setdefault("contention", []).append(
        {"kind": kind, "bytes": 1 << 20, "against": against, "compute_permille": int(compute), "collective_permille": int(collective)}
    )
with open(sys.argv[2], "w") as file:
    json.dump(profile, file)
