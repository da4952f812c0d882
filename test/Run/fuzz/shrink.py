#===- shrink.py - Makes a failing program small -------------------------------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# Drops passes, results, steps, functions and arguments while the program fails in the same way. numpy evaluates every
# smaller program anew; one that reads storage without contents is not taken.
#
#===---------------------------------------------------------------------------------------------------------------===#

import re
import time

from .judge import Candidate, verdict
from .tree import Function, Program, Unusable


def closed(block, known):
    """The steps whose operands are there. Blocks of steps, too; an operation whose yields are gone goes."""
    kept, known = [], set(known)
    for step in block:
        if not set(step.uses) <= known:
            continue
        if step.blocks:
            inner = [closed(b, known | set(step.inner)) for b in step.blocks]
            made = known | set(step.inner) | {d for b in inner for s in b for d in s.defines}
            if not set(step.yields) <= made:
                continue
            step = step.with_blocks(inner)
        kept.append(step)
        known |= set(step.defines)
    return kept


def paths(block, prefix=()):
    """The places of all steps, outer ones first."""
    for i, step in enumerate(block):
        yield (*prefix, i)
        for j, inner in enumerate(step.blocks):
            yield from paths(inner, (*prefix, i, j))


def without(block, path, count=1):
    if len(path) == 1:
        return block[:path[0]] + block[path[0] + count:]
    i, j, *rest = path
    if i >= len(block) or j >= len(block[i].blocks):
        return block
    blocks = list(block[i].blocks)
    blocks[j] = without(blocks[j], rest, count)
    return [*block[:i], block[i].with_blocks(blocks), *block[i + 1:]]


def size(block):
    return sum(1 for _ in paths(block))


def rebuilt(program, main=None, functions=None, results=None):
    """The program with other blocks, without what is not used any more."""
    functions = list(program.functions if functions is None else functions)
    block = main if main is not None else program.main.block
    wanted = program.main.results if results is None else results
    known = {name for name, _ in program.main.parameters}
    block = closed(block, known)
    made = known | {d for step in block for d in step.defines}
    function = Function("@main", program.main.parameters, block, [r for r in wanted if r[0] in made], False)
    text = "\n".join(f.text() for f in [function, *functions])
    used = [f for f in functions if re.search(re.escape(f.name) + r"\(|" + re.escape(f.name) + " :", text.replace(
        f"private {f.name}(", ""))]
    return Program(program.ranks, program.groups, used, function, program.inputs, program.globals)


def without_arguments(program):
    """Drops arguments that nothing uses, and groups."""
    text = program.main.text().split("\n", 1)[1]
    kept = [i for i, (name, _) in enumerate(program.main.parameters)
            if name == "%rank" or re.search(re.escape(name) + r"\b", text)]
    main = Function("@main", [program.main.parameters[i] for i in kept], program.main.block, program.main.results, False)
    whole = "\n".join(f.text() for f in [*program.functions, main])
    groups = {name: g for name, g in program.groups.items() if name == "@world" or re.search(name + r"\b", whole)}
    return Program(program.ranks, groups, program.functions, main, [program.inputs[i] for i in kept], program.globals)


class Shrinker:
    """`fails(candidate, passes)`: the kind of failure (see complaint()), or None."""

    def __init__(self, fails, kind, seconds):
        self.fails, self.kind, self.end = fails, kind, time.time() + seconds

    def holds(self, program, passes, breaks_rules):
        if time.time() > self.end:
            return None
        try:
            candidate = Candidate(program, breaks_rules=breaks_rules)
        except (Unusable, KeyError, AssertionError, IndexError, TypeError):
            return None
        return candidate if self.fails(candidate, passes) == self.kind else None

    def run(self, candidate, passes):
        best, rules = candidate, candidate.breaks_rules

        def attempt(program, with_passes):
            nonlocal best, passes
            smaller = self.holds(program, with_passes, rules)
            if smaller:
                best, passes = smaller, with_passes
            return bool(smaller)
        for i in reversed(range(len(passes))):
            attempt(best.program, passes[:i] + passes[i + 1:])
        for _ in range(3):
            before = len(best.text)
            results = best.program.main.results
            for result in list(results):
                if len(best.program.main.results) > 1:
                    attempt(rebuilt(best.program, results=[r for r in best.program.main.results if r != result]), passes)
            self.steps(lambda: best.program.main.block, lambda block: attempt(rebuilt(best.program, main=block), passes))
            for name in [f.name for f in best.program.functions]:
                self.function(name, lambda: best.program, lambda program: attempt(program, passes))
            if len(best.text) == before:
                break
        attempt(without_arguments(best.program), passes)
        return best, passes

    def function(self, name, program, attempt):
        def block():
            return next((f.block for f in program().functions if f.name == name), [])

        def replace(changed):
            functions = [self.with_block(f, changed) if f.name == name else f for f in program().functions]
            return None not in functions and attempt(rebuilt(program(), functions=functions))
        self.steps(block, replace)

    @staticmethod
    def with_block(function, block):
        known = {name for name, _ in function.parameters}
        block = closed(block, known)
        made = known | {d for step in block for d in step.defines}
        return function.with_block(block) if all(name in made for name, _ in function.results) else None

    @staticmethod
    def steps(block, attempt):
        """Drops halves, then smaller parts, then single steps wherever they are."""
        count = max(1, len(block()) // 2)
        while count > 1:
            at = 0
            while at < len(block()):
                if not attempt(without(block(), (at,), count)):
                    at += count
            count //= 2
        tried = 0
        while True:
            places = list(paths(block()))
            if tried >= len(places):
                return
            if not attempt(without(block(), places[len(places) - 1 - tried])):
                tried += 1


def complaint(found):
    """The kind of a failure. Of a refusal, what is said first, without names and numbers."""
    kind, said, _ = found
    error = re.search(r"error: (.*)", said) if kind.startswith("refused") else None
    return kind + (": " + re.sub(r"'[^']*'|\d+", "", error.group(1)) if error else "")


def shrink(tools, folder, failure, seed, seconds=60):
    """A small program that fails as this one does: the candidate, the passes, and what is said about it."""
    first = verdict(tools, folder, failure.candidate, failure.passes, failure.backend, seed)
    if not first:
        return failure.candidate, failure.passes, None

    def fails(candidate, passes):
        # What fails as it is written shows another fault than one of the passes.
        if passes and failure.backend != "comm-opt" and verdict(tools, folder, candidate, [], failure.backend, seed):
            return None
        found = verdict(tools, folder, candidate, passes, failure.backend, seed)
        return found and complaint(found)
    candidate, passes = Shrinker(fails, complaint(first), seconds).run(failure.candidate, failure.passes)
    return candidate, passes, verdict(tools, folder, candidate, passes, failure.backend, seed) or first
