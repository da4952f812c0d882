#!/usr/bin/env python3
#===- same_figures.py - Compare what a report foretold with a report of the result ------------------------------===#
#
# Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
#
# The first report's figures after a pipeline have to be the second one's, which was made of the pipeline's output.
#
#   same_figures.py FORETOLD.json FOUND.json
#
#===-------------------------------------------------------------------------------------------------------------===#

import json
import sys


def figures(path):
    with open(path) as file:
        return {entry["name"]: {key: entry[key]["after"] for key in ("makespan_ns", "exposed_ns", "peak_bytes", "traffic")}
                for entry in json.load(file)["functions"]}


foretold, found = figures(sys.argv[1]), figures(sys.argv[2])
wrong = [f"{name}: foretold {foretold[name]}, found {found.get(name)}" for name in foretold
         if foretold[name] != found.get(name)]
if wrong or foretold.keys() != found.keys() or not foretold:
    sys.exit("\n".join(["the figures differ:"] + wrong))
print(f"{len(foretold)} functions: the same figures")
