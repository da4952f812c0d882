#!/usr/bin/env python3
#===- many_collectives.py - Large inputs for comm-bucket --------------------------------------------------------===#
#
# Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
#
# Prints a function with many collectives, each followed by so many computes:
#   apart     gathers of the arguments, all of one key
#   chain     each gathers what was made of the one before
#   turns     gathers over eight groups of four element types, in turns
#
#   many_collectives.py apart|chain|turns COLLECTIVES [COMPUTES]
#
#===-------------------------------------------------------------------------------------------------------------===#

import sys

kind, count = sys.argv[1], int(sys.argv[2])
computes = int(sys.argv[3]) if len(sys.argv) > 3 else 0
groups = 8 if kind == "turns" else 1
types = ["f32", "bf16", "f16", "f64"] if kind == "turns" else ["f32"]

for group in range(groups):
    print(f"comm.group @g{group} #comm.iota<[1, 4]>")
arguments = ", ".join(f"%a{i}: tensor<4x{element}>" for i, element in enumerate(types))
print(f"func.func @f({arguments}) {{")
x = "%a0"
for i in range(count):
    element = types[i // groups % len(types)]
    shard, full = f"tensor<4x{element}>", f"tensor<16x{element}>"
    source = x if kind == "chain" else f"%a{i // groups % len(types)}"
    print(f"  %f{i} = comm.all_gather {source} on @g{i % groups} : ({shard}) -> !comm.future<{full}>")
    print(f"  %w{i} = comm.wait %f{i} : !comm.future<{full}>")
    x = f"%x{i}_0"
    print(f'  {x} = comm.compute "use"(%w{i}) : ({full}) -> tensor<4xf32>')
    for j in range(1, computes):
        print(f'  %x{i}_{j} = comm.compute "more"({x}) : (tensor<4xf32>) -> tensor<4xf32>')
        x = f"%x{i}_{j}"
print("  return\n}")
