#!/usr/bin/env python3
#===- check_scenarios.py - Compare a report with the table of scenarios -----------------------------------------===#
#
# Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
#
# Reads the lines "// EXPECT: function exposed collectives why" of a test, and the report of the same file: no function may
# be slower or have more exposed time than before, nor miss what its line asks for. The bytes must be what they were.
#
#   check_scenarios.py REPORT.json TEST.mlir
#
#===-------------------------------------------------------------------------------------------------------------===#

import json
import sys

with open(sys.argv[1]) as file:
    functions = {entry["name"]: entry for entry in json.load(file)["functions"]}
with open(sys.argv[2]) as file:
    rows = [line.split()[2:] for line in file if line.startswith("// EXPECT:")][1:]

wrong = []
for name, exposed, collectives, *_ in rows:
    entry = functions.pop(name)
    makespan, traffic = entry["makespan_ns"], entry["traffic"]
    count = sum(row["collectives"] for row in traffic["after"])
    bytes_before, bytes_after = (sum(row["bytes"] for row in traffic[when]) for when in ("before", "after"))
    found = f"{name}: makespan {makespan}, exposed {entry['exposed_ns']}, {count} collectives, {bytes_after} bytes"
    print(found)
    if (makespan["after"] > makespan["before"] or entry["exposed_ns"]["after"] > entry["exposed_ns"]["before"]
            or entry["exposed_ns"]["after"] > int(exposed) or count < int(collectives) or bytes_before != bytes_after):
        wrong.append(found)
if functions:
    wrong.append(f"no line for {', '.join(functions)}")
sys.exit("\n".join(["not as expected:"] + wrong) if wrong else 0)
