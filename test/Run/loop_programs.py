#!/usr/bin/env python3
#===- loop_programs.py - Random loops whose collectives run in other iterations ------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# Makes programs with loops over layers: gathers that depend on the number of the iteration or on what the loop carries,
# reductions that are collected or read at once, branches, loops in loops, and no, one, or few iterations. Puts them
# through comm-pipeline-loops, with and without other passes, runs all of them, and compares the results bit for bit.
#
#   loop_programs.py --bin FOLDER [--count 60] [--first 0] [--ranks 2,4] [--batch 10]
#
#===---------------------------------------------------------------------------------------------------------------===#

import argparse
import random
import re
import sys
import tempfile

from strand_programs import MARKER, Runner, compare_in_batches

PIPELINE = "--comm-pipeline-loops=force"
# The passes that each program is put through.
VARIANTS = [[PIPELINE], [PIPELINE, "--comm-schedule=effort=500 memory-budget-ratio=1"],
            ["--reorder-comm-overlap=loops=pipeline memory-budget-ratio=9 effort=200"], ["--comm-bufferize", PIPELINE],
            [PIPELINE, "--comm-bufferize", "--comm-plan-buffers"], ["--canonicalize", PIPELINE, "--canonicalize", "--cse"]]
LAYERS, COLUMNS = 8, 4


class LoopProgram:
    """A random program of one or two loops over stacked layers."""

    def __init__(self, seed, ranks):
        self.rng = random.Random(f"loops {seed}")
        self.ranks, self.count, self.lines, self.indent = ranks, 0, [], "  "
        self.shard = f"tensor<2x{COLUMNS}xf32>"
        self.whole = f"tensor<{2 * ranks}x{COLUMNS}xf32>"
        self.stack = f"tensor<{LAYERS}x2x{COLUMNS}xf32>"

    def say(self, text):
        self.lines.append(self.indent + text)

    def name(self):
        self.count += 1
        return f"%v{self.count}"

    def value(self, text):
        name = self.name()
        self.say(f"{name} = {text}")
        return name

    def constant(self, number):
        return self.value(f"arith.constant {number} : index")

    def waited(self, text, source, result):
        future = self.value(f"{text} : ({source}) -> !comm.future<{result}>")
        return self.value(f"comm.wait {future} : !comm.future<{result}>")

    def sum(self, a, b, shape, operation=None):
        operation = operation or self.rng.choice(["linalg.add", "linalg.max", "linalg.sub"])
        empty = self.value(f"tensor.empty() : {shape}")
        return self.value(f"{operation} ins({a}, {b} : {shape}, {shape}) outs({empty} : {shape}) -> {shape}")

    def layer(self, i):
        """The number of a layer, from the number of the iteration."""
        shifted = self.value(f"arith.addi {i}, {self.constant(self.rng.randint(0, 3))} : index")
        return self.value(f"arith.remui {shifted}, {self.constant(LAYERS)} : index")

    def shard_of(self, layer, stack="%params"):
        return self.value(f"tensor.extract_slice {stack}[{layer}, 0, 0] [1, 2, {COLUMNS}] [1, 1, 1] : {self.stack} to {self.shard}")

    def group(self):
        return self.rng.choice(["@all", "@all", "@same"])

    def gathered(self, shard):
        return self.waited(f"comm.all_gather {shard} on {self.group()}", self.shard, self.whole)

    def scattered(self, whole):
        return self.waited(f"comm.reduce_scatter {self.rng.choice(['sum', 'max'])} {whole} on {self.group()}", self.whole, self.shard)

    def statement(self, i, state):
        """One step of a body. `state` has what the loop carries by now."""
        rng = self.rng
        kind = rng.choice(["gather", "gather", "collect", "collect", "count", "block", "branch", "inner", "early", "alone", "exchange",
                           "swap", "into", "collected"])
        if kind == "gather":
            source = self.shard_of(self.layer(i)) if rng.random() < 0.8 else self.scattered(state["h"])
            state["h"] = self.sum(state["h"], self.gathered(source), self.whole)
        elif kind == "collect":
            piece = self.scattered(self.sum(state["h"], state["h"], self.whole, "linalg.add"))
            layer = self.layer(i)
            if rng.random() < 0.3:
                piece = self.sum(piece, self.shard_of(layer, state["acc"]), self.shard)
            state["acc"] = self.value(f"tensor.insert_slice {piece} into {state['acc']}[{layer}, 0, 0] [1, 2, {COLUMNS}] "
                                      f"[1, 1, 1] : {self.shard} into {self.stack}")
        elif kind == "count":
            total = self.waited(f"comm.all_reduce {rng.choice(['sum', 'max'])} {state['h']} on @all", self.whole, self.whole)
            state["m"] = self.sum(state["m"], total, self.whole)
            if rng.random() < 0.15:
                state["h"] = self.sum(state["h"], state["m"], self.whole)
        elif kind == "block":
            state["h"] = self.waited(f"comm.all_reduce max {state['h']} on @all", self.whole, self.whole)
        elif kind == "alone":
            state["m"] = self.waited(f"comm.all_reduce sum {state['m']} on @one", self.whole, self.whole)
        elif kind == "exchange":
            given = state["h"] if rng.random() < 0.5 else self.gathered(self.shard_of(self.layer(i)))
            state["h"] = self.sum(state["h"], self.waited(f"comm.all_to_all {given} on {self.group()}", self.whole, self.whole), self.whole)
        elif kind == "swap":
            # The next iteration gets one value as another, or one value twice.
            state["h"], state["m"] = (state["m"], state["h"]) if rng.random() < 0.6 else (state["h"], state["h"])
        elif kind == "into":
            into = self.value(f"tensor.empty() : {self.whole}")
            shard = self.shard_of(self.layer(i))
            future = self.value(f"comm.all_gather {shard} into {into} on {self.group()} : ({self.shard}) -> "
                                f"!comm.future<{self.whole}>")
            state["h"] = self.sum(state["h"], self.value(f"comm.wait {future} : !comm.future<{self.whole}>"), self.whole)
        elif kind == "collected":
            # A gather of what earlier iterations have collected.
            state["h"] = self.sum(state["h"], self.gathered(self.shard_of(self.layer(i), state["acc"])), self.whole)
        elif kind == "early":
            # A chain of collectives that needs the number of the iteration only.
            whole = self.gathered(self.shard_of(self.layer(i)))
            state["h"] = self.sum(state["h"], self.gathered(self.scattered(whole)), self.whole)
        elif kind == "branch":
            wanted = self.value(f"arith.cmpi ult, {self.layer(i)}, {self.constant(rng.randint(0, LAYERS))} : index")
            result = self.name()
            self.say(f"{result} = scf.if {wanted} -> ({self.whole}) {{")
            self.nested(lambda: self.say(f"scf.yield {self.sum(state['h'], state['m'] if rng.random() < 0.2 else state['h'], self.whole)} : {self.whole}"))
            self.say("} else {")
            self.nested(lambda: self.say(f"scf.yield {self.gathered(self.shard_of(self.layer(i))) if rng.random() < 0.5 else state['h']} : {self.whole}"))
            self.say("}")
            state["h"] = result
        elif self.indent.count("  ") < 4:
            state.update(self.loop(state, statements=rng.randint(1, 3)))

    def nested(self, write):
        self.indent += "  "
        write()
        self.indent = self.indent[2:]

    def loop(self, state, statements):
        """A loop that carries the state. Returns what it is then."""
        rng = self.rng
        lower, step, trips = rng.randint(0, 2), rng.randint(1, 2), rng.choice([0, 1, 2, 3, 3, 5, 7])
        bounds = [self.constant(n) for n in (lower, lower + trips * step - rng.randint(0, step - 1) * (trips > 0), step)]
        names = sorted(state)
        types = {"h": self.whole, "m": self.whole, "acc": self.stack}
        inside = {n: self.name() for n in names}
        result, i = self.name(), self.name()
        carried = ", ".join(f"{inside[n]} = {state[n]}" for n in names)
        shapes = ", ".join(types[n] for n in names)
        self.say(f"{result}:{len(names)} = scf.for {i} = {bounds[0]} to {bounds[1]} step {bounds[2]} iter_args({carried}) -> ({shapes}) {{")

        def body():
            now = dict(inside)
            for _ in range(statements):
                self.statement(i, now)
            # What no step has changed is carried all the same.
            for n in names:
                if now[n] == inside[n] and rng.random() < 0.9:
                    now[n] = self.sum(now[n], now[n], types[n], "linalg.max")
            self.say(f"scf.yield {', '.join(now[n] for n in names)} : {shapes}")

        self.nested(body)
        self.say("}")
        return {n: f"{result}#{k}" for k, n in enumerate(names)}

    def module(self):
        state = {"h": "%x", "m": "%x", "acc": "%zero"}
        for _ in range(self.rng.randint(1, 2)):
            state = self.loop(state, statements=self.rng.randint(1, 5))
        body = "\n".join(self.lines)
        return (f"comm.group @all #comm.iota<[1, {self.ranks}]>\ncomm.group @same #comm.iota<[1, {self.ranks}]>\n"
                f"comm.group @one #comm.iota<[{self.ranks}, 1]>\n"
                f"func.func @main(%params: {self.stack}, %zero: {self.stack}, %x: {self.whole}) -> ({self.whole}, {self.whole}, {self.stack}) {{\n"
                f"{body}\n  return {state['h']}, {state['m']}, {state['acc']} : {self.whole}, {self.whole}, {self.stack}\n}}\n")


def starts(text):
    return len(re.findall(r"comm\.(all_gather|reduce_scatter|all_reduce) ", text))


class LoopRunner(Runner):
    def compare(self, modules, ranks, seed):
        """Puts the modules through every variant. Returns what was said if one differs, and how many were changed."""
        given, files, changed = self.path("given.mlir"), [], [0] * len(VARIANTS)
        with open(given, "w") as file:
            file.write(MARKER.join(modules))
        for number, passes in enumerate(VARIANTS):
            target = self.path(f"pipelined{number}.mlir")
            code, said = self.run(self.opt, "--split-input-file", "--remarks-filter=comm-pipeline-loops", given, *passes, "-o", target)
            if code:
                return f"{' '.join(passes)}: {said}", changed
            # The pipeliner repeats collectives before and behind the loop.
            written = open(target).read().split(MARKER)
            changed[number] += sum(starts(after) > starts(before) for before, after in zip(modules, written))
            files += ["--compare", target]
        code, said = self.run(self.runner, "--split-input-file", given, *files, "--ranks", str(ranks), "--seed", str(seed),
                              "--timeout-ms", "20000")
        return (said if code else None), changed


def check(runner, options):
    changed = compare_in_batches(runner, options, LoopProgram, len(VARIANTS))
    if changed is None:
        return 1
    # Programs whose loops stay as they are would agree, too.
    for passes, number in zip(VARIANTS, changed):
        if passes[0] == PIPELINE and number * 3 < options.count:
            print(f"only {number} of {options.count} programs were changed by {' '.join(passes)}")
            return 1
    print(f"{options.count} programs, changed {sum(changed)} times: equal bit for bit")
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="folder of comm-opt and comm-run")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--batch", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return check(LoopRunner(options, folder), options)


if __name__ == "__main__":
    sys.exit(main())
