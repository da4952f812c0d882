#!/usr/bin/env python3
#===- small_steps.py - Functions of few collectives for comm-schedule -------------------------------------------===#
#
# Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
#
# Prints one function for each of: gathers that computes need, with and without a cast in front; scatters and all-reduces of
# what computes make; small and large ones; behind short and long computes.
#
#===-------------------------------------------------------------------------------------------------------------===#

STEPS = 6
RANKS = 8


def gathers(element, size, cost):
    shard, full = f"tensor<{size}x{element}>", f"tensor<{RANKS * size}x{element}>"
    arguments = ", ".join(f"%a{i}: tensor<{size}xf32>" for i in range(STEPS))
    lines, last = [], ""
    for i in range(STEPS):
        source = f"%a{i}"
        if element != "f32":
            lines.append(f"%h{i} = arith.truncf %a{i} : tensor<{size}xf32> to {shard}")
            source = f"%h{i}"
        lines.append(f"%f{i} = comm.all_gather {source} on @dp : ({shard}) -> !comm.future<{full}>")
        lines.append(f"%w{i} = comm.wait %f{i} : !comm.future<{full}>")
        lines.append(f'%m{i} = comm.compute "mm"(%w{i}{last and ", " + last}) {{comm.cost = #comm.cost<time = {cost}>}} : '
                     f'({full}{last and ", tensor<4xf32>"}) -> tensor<4xf32>')
        last = f"%m{i}"
    return arguments, lines, [last], ["tensor<4xf32>"]


def reductions(op, size, cost):
    given = f"tensor<{RANKS * size}xf32>"
    made = f"tensor<{size}xf32>" if op.startswith("reduce_scatter") else given
    lines, last = [], "%x"
    for i in range(STEPS):
        attribute = f"{{comm.cost = #comm.cost<time = {cost}>}}"
        lines.append(f'%m{i} = comm.compute "mm"({last}) {attribute} : (tensor<4xf32>) -> tensor<4xf32>')
        lines.append(f'%g{i} = comm.compute "grad"({last}) {attribute} : (tensor<4xf32>) -> {given}')
        lines.append(f"%f{i} = comm.{op} %g{i} on @dp : ({given}) -> !comm.future<{made}>")
        lines.append(f"%w{i} = comm.wait %f{i} : !comm.future<{made}>")
        last = f"%m{i}"
    return "%x: tensor<4xf32>", lines, [f"%w{i}" for i in range(STEPS)], [made] * STEPS


def show(name, arguments, lines, results, types):
    body = "\n  ".join(lines + [f"return {', '.join(results)} : {', '.join(types)}"])
    print(f"func.func @{name}({arguments}) -> ({', '.join(types)}) {{\n  {body}\n}}")


print(f"comm.group @dp #comm.iota<[{RANKS}, {RANKS}] from [{RANKS}, {RANKS}] transpose [1, 0]>")
for size in (1024, 65536):
    for cost in (2000, 30000):
        for element in ("f32", "bf16"):
            show(f"gathers_{element}_{size}_{cost}", *gathers(element, size, cost))
        for op in ("reduce_scatter sum", "all_reduce sum"):
            show(f"{op.split()[0]}s_{size}_{cost}", *reductions(op, size, cost))
