#===- dress_programs.py - One program in several dialects ------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===------------------------------------------------------------------------------------------------===#
#
# Makes random programs of products, elementwise operations and collectives, writes each in six dresses, and schedules
# all: comm with linalg, shard with linalg, StableHLO, comm with TOSA, operations of a dialect that nobody knows with
# attributes, and comm on buffers. The times before and after have to be equal within 1 %.
#
#   dress_programs.py --bin FOLDER --count N [--first N]

import argparse
import json
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

RANKS = 8
TOLERANCE = 0.01
DRESSES = {
    "comm": ["--reorder-comm-overlap"],
    "shard": ["--convert-shard-to-comm", "--reorder-comm-overlap"],
    "stablehlo": ["--convert-stablehlo-to-comm", "--reorder-comm-overlap"],
    "tosa": ["--reorder-comm-overlap"],
    "unknown": ["--reorder-comm-overlap=assume-pure=my"],
    "buffers": ["--comm-bufferize", "--reorder-comm-overlap"],
}
GROUPS = "dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids"
CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = "


@dataclass
class Step:
    """An operation on values of rows x columns, and the numbers of those that it reads."""

    kind: str
    rows: int
    columns: int
    reads: list[int]


def type_of(rows: int, columns: int) -> str:
    return f"tensor<{rows}x{columns}xbf16>"


def generate(seed: int) -> tuple[list[tuple[int, int]], list[Step]]:
    """The shapes of the arguments, which have the first numbers, and the steps."""
    rng = random.Random(seed)
    width = rng.choice([1024, 2048, 4096])
    layers = rng.randint(2, 4)
    arguments = [(width, width)] + [(width // RANKS, width)] * layers
    steps: list[Step] = []

    def add(kind: str, rows: int, columns: int, *reads: int) -> int:
        steps.append(Step(kind, rows, columns, list(reads)))
        return len(arguments) + len(steps) - 1

    x = 0
    for layer in range(layers):
        weight = add("all_gather", width, width, 1 + layer)
        x = add("product", width, width, x, weight)
        if rng.random() < 0.6:
            x = add("tanh", width, width, x)
        if rng.random() < 0.4:
            x = add("add", width, width, x, 0)
        if rng.random() < 0.5:
            x = add("all_reduce", width, width, x)
        if rng.random() < 0.3:
            add("reduce_scatter", width // RANKS, width, x)
    return arguments, steps


def write(dress: str, arguments: list[tuple[int, int]], steps: list[Step]) -> str:
    shapes = arguments + [(step.rows, step.columns) for step in steps]
    lines = []
    for number, step in enumerate(steps, len(arguments)):
        read = [type_of(*shapes[at]) for at in step.reads]
        lines.append(line(dress, number, step, read, type_of(step.rows, step.columns)))
    used = {at for step in steps for at in step.reads}
    returned = [number for number in range(len(arguments), len(shapes)) if number not in used]
    names = ", ".join(f"%v{number}" for number in returned)
    types = ", ".join(type_of(*shapes[number]) for number in returned)
    given = ", ".join(f"%v{number}: {type_of(*shape)}" for number, shape in enumerate(arguments))
    body = "\n".join(lines)
    head = "comm.group @dp #comm.iota<[1, 8]>" if dress not in ("shard", "stablehlo") else ""
    head = "shard.grid @dp(shape = 8)" if dress == "shard" else head
    return (
        f"module attributes {{mhlo.num_partitions = 8 : i32}} {{\n{head}\n"
        f"func.func @main({given}) -> ({types}) {{\n{body}\nreturn {names} : {types}\n}}\n}}\n"
    )


def line(dress: str, number: int, step: Step, read: list[str], made: str) -> str:
    operands = ", ".join(f"%v{at}" for at in step.reads)
    if step.kind in ("all_gather", "all_reduce", "reduce_scatter"):
        return collective(dress, number, step.kind, operands, read[0], made)
    if dress == "tosa":
        return tosa(number, step, read, made)
    signature = f"({', '.join(read)}) -> {made}"
    if dress == "stablehlo":
        name = {"product": "dot_general", "tanh": "tanh", "add": "add"}[step.kind]
        numbers = "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]"
        attributes = f" <{{dot_dimension_numbers = #stablehlo.dot<{numbers}>}}>" if name == "dot_general" else ""
        return f'%v{number} = "stablehlo.{name}"({operands}){attributes} : {signature}'
    if dress == "unknown":
        elements = step.rows * step.columns
        size = 2 * (len(step.reads) + 1) * elements
        # Memory bounds the others. Flops without a model would count as those of a product.
        flops = f"flops = {2 * elements * step.rows}, " if step.kind == "product" else ""
        return (
            f'%v{number} = "my.{step.kind}"({operands}) {{comm.cost = #comm.cost<{flops}bytes = {size}>}} : {signature}'
        )
    if step.kind == "product":
        product = f"linalg.matmul ins({operands} : {', '.join(read)}) outs(%e{number} : {made}) -> {made}"
        return f"%e{number} = tensor.empty() : {made}\n%v{number} = {product}"
    names = f"%v{step.reads[0]}" if step.kind == "tanh" else operands
    name = "linalg.tanh" if step.kind == "tanh" else "linalg.add"
    whole = f"{name} ins({names} : {', '.join(read)}) outs(%e{number} : {made}) -> {made}"
    return f"%e{number} = tensor.empty() : {made}\n%v{number} = {whole}"


def tosa(number: int, step: Step, read: list[str], made: str) -> str:
    """Products of TOSA have batches, so that reshapes surround one of matrices, which are all square here."""
    if step.kind != "product":
        operands = ", ".join(f"%v{at}" for at in step.reads)
        return f"%v{number} = tosa.{step.kind} {operands} : ({', '.join(read)}) -> {made}"
    batch, zero = made.replace("<", "<1x"), "tensor<1xbf16>"
    sizes = f"{step.rows}, {step.columns}"
    inputs = ", ".join(f"%{name}{number}" for name in "abzz")
    lines = [f'%z{number} = "tosa.const"() {{values = dense<0.0> : {zero}}} : () -> {zero}']
    for name, rank, shape in (("s", 3, f"1, {sizes}"), ("t", 2, sizes)):
        values = f"dense<[{shape}]> : tensor<{rank}xindex>"
        lines.append(f"%{name}{number} = tosa.const_shape {{values = {values}}} : () -> !tosa.shape<{rank}>")
    for name, at in zip("ab", step.reads, strict=True):
        lines.append(f"%{name}{number} = tosa.reshape %v{at}, %s{number} : ({made}, !tosa.shape<3>) -> {batch}")
    lines.append(f"%c{number} = tosa.matmul {inputs} : ({batch}, {batch}, {zero}, {zero}) -> {batch}")
    lines.append(f"%v{number} = tosa.reshape %c{number}, %t{number} : ({batch}, !tosa.shape<2>) -> {made}")
    return "\n".join(lines)


def collective(dress: str, number: int, kind: str, operand: str, read: str, made: str) -> str:
    if dress == "shard":
        more = {"all_gather": "gather_axis = 0 ", "all_reduce": "", "reduce_scatter": "scatter_axis = 0 "}[kind]
        return f"%v{number} = shard.{kind} {operand} on @dp grid_axes = [0] {more}: {read} -> {made}"
    if dress == "stablehlo":
        more = {
            "all_gather": "all_gather_dim = 0 : i64, ",
            "all_reduce": "",
            "reduce_scatter": "scatter_dimension = 0 : i64, ",
        }
        region = """ ({
  ^bb0(%p: tensor<bf16>, %q: tensor<bf16>):
    %s = "stablehlo.add"(%p, %q) : (tensor<bf16>, tensor<bf16>) -> tensor<bf16>
    "stablehlo.return"(%s) : (tensor<bf16>) -> ()
  })"""
        region = "" if kind == "all_gather" else region
        attributes = f"<{{{more[kind]}{CHANNEL}{GROUPS}}}>"
        return f'%v{number} = "stablehlo.{kind}"({operand}) {attributes}{region} : ({read}) -> {made}'
    reduction = "" if kind == "all_gather" else " sum"
    start = f"%f{number} = comm.{kind}{reduction} {operand} on @dp : ({read}) -> !comm.future<{made}>"
    return f"{start}\n%v{number} = comm.wait %f{number} : !comm.future<{made}>"


def times_of(comm_opt: Path, text: str, passes: list[str]) -> tuple[int, int]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [comm_opt, "--allow-unregistered-dialect", *passes, f"--comm-report={report}", "-o", "/dev/null"]
        run = subprocess.run(command, input=text, capture_output=True, text=True)
        if run.returncode:
            raise SystemExit(f"{text}{run.stderr}")
        makespan = json.loads(report.read_text())["functions"][0]["makespan_ns"]
        return makespan["before"], makespan["after"]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    gained = 0
    for seed in range(arguments.first, arguments.first + arguments.count):
        program = generate(seed)
        times = {
            dress: times_of(arguments.bin / "comm-opt", write(dress, *program), passes)
            for dress, passes in DRESSES.items()
        }
        gained += times["comm"][1] < times["comm"][0]
        for moment in (0, 1):
            all_times = [time[moment] for time in times.values()]
            if max(all_times) > min(all_times) * (1 + TOLERANCE):
                print(f"{write('comm', *program)}seed {seed}, {('before', 'after')[moment]}: {times}")
                return 1
    print(f"{arguments.count} programs in {len(DRESSES)} dialects: equal times, {gained} of them gain")
    return 0


if __name__ == "__main__":
    sys.exit(main())
