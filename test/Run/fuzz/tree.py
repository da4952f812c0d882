#===- tree.py - Random programs as trees: their text, and their meaning for all ranks ----------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# A step has lines of MLIR and a function that carries it out on numpy arrays. An environment maps a value's name to one
# entry per rank: an array, which is the storage itself and not a copy of it, a number, or a future's list of arrays.
# Two names of one storage are two references to one array, so that a write through one of them is seen through the other.
#
#===---------------------------------------------------------------------------------------------------------------===#

import re

import numpy as np

from .shapes import types_text

MOST_STEPS = 4000  # of one evaluation: a program that takes more is not used


class Unusable(Exception):
    """The program is not worth a run: it is too long, or has numbers that are not finite."""


class State:
    """What an evaluation shares: groups, functions, the globals of each rank. `poison`: what new storage contains."""

    def __init__(self, program, poison):
        self.ranks, self.groups = program.ranks, program.groups
        self.functions = {function.name: function for function in program.functions}
        self.globals = {name: [value.copy() for _ in range(self.ranks)] for name, (_, value) in program.globals.items()}
        self.steps, self.poison = 0, poison

    def run(self, block, env, active):
        for step in block:
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise Unusable("too many steps")
            step.run(self, env, active)


def each(state, active, function):
    """One entry per rank: what the function gives for those that take part."""
    return [function(rank) if rank in active else None for rank in range(state.ranks)]


class Step:
    """One or more lines that belong together. `action(state, env, active)` carries them out."""

    blocks = ()

    def __init__(self, text, action, defines=(), uses=()):
        self.text = [text] if isinstance(text, str) else list(text)
        self.action, self.defines, self.uses = action, list(defines), list(uses)

    def lines(self, indent):
        return [indent + line for line in self.text]

    def run(self, state, env, active):
        if self.action:
            self.action(state, env, active)

    def needs(self):
        return set(self.uses)


class Region(Step):
    """An operation with blocks. `pieces`: the lines before, between and behind the blocks; the lines behind a block that
    belong to it, as its yield does, are a part of the piece. `action` takes the blocks, too. `yields`: names that the
    pieces use and blocks may define."""

    def __init__(self, pieces, blocks, action, defines=(), uses=(), inner=(), yields=()):
        super().__init__([], action, defines, uses)
        self.pieces, self.blocks, self.inner, self.yields = pieces, blocks, list(inner), list(yields)

    def with_blocks(self, blocks):
        return Region(self.pieces, blocks, self.action, self.defines, self.uses, self.inner, self.yields)

    def lines(self, indent):
        out = [indent + line for line in self.pieces[0]]
        for piece, block in zip(self.pieces[1:], self.blocks):
            for step in block:
                out += step.lines(indent + "  ")
            out += [indent + line for line in piece]
        return out

    def run(self, state, env, active):
        self.action(state, env, active, self.blocks)

    def needs(self):
        made = set(self.inner)
        wanted = set(self.uses) | set(self.yields)
        for block in self.blocks:
            for step in block:
                wanted |= step.needs()
                made |= set(step.defines)
        return wanted - made


class Function:
    """parameters and results: (name, type)."""

    def __init__(self, name, parameters, block, results, is_private=True):
        self.name, self.parameters, self.block, self.results = name, list(parameters), block, list(results)
        self.is_private = is_private

    def text(self):
        parameters = ", ".join(f"{name}: {type_}" for name, type_ in self.parameters)
        types = types_text(type_ for _, type_ in self.results)
        body = [line for step in self.block for line in step.lines("  ")]
        body += [f"  return {', '.join(name for name, _ in self.results)} : {types}" if types else "  return"]
        return "\n".join([f"func.func {'private ' if self.is_private else ''}{self.name}({parameters})"
                          f"{f' -> ({types})' if types else ''} {{", *prelude(body), *body, "}"])

    def with_block(self, block):
        return Function(self.name, self.parameters, block, self.results, self.is_private)


def prelude(body):
    """The constants that the lines use."""
    used = sorted({int(n) for line in body for n in re.findall(r"%c(\d+)\b", line)})
    return [f"  %c{n} = arith.constant {n} : index" for n in used]


class Program:
    """A module. `inputs`: per argument of main, one array per rank. `globals`: name -> (type, initial value)."""

    def __init__(self, ranks, groups, functions, main, inputs, globals_):
        self.ranks, self.groups, self.functions, self.main = ranks, groups, functions, main
        self.inputs, self.globals = inputs, globals_

    def text(self):
        functions = "\n".join(function.text() for function in [*self.functions, self.main])
        lines = self.group_lines()
        for name, (type_, value) in self.globals.items():
            if re.search(name + r"\b", functions):
                lines.append(f'memref.global "private" {name} : {type_} = dense<{value.ravel()[0]}>')
        return "\n".join(lines + [functions]) + "\n"

    def group_lines(self):
        return [f"comm.group {name} #comm.ranks<{groups}>" for name, groups in self.groups.items()]

    def evaluate(self):
        """What main returns and leaves in its arguments: lists by result and by argument of arrays by rank."""
        first, second = self.evaluate_once(poison=1), self.evaluate_once(poison=3)
        for arrays, others in zip(first[0] + first[1], second[0] + second[1]):
            for array, other in zip(arrays, others):
                if np.asarray(array).dtype.kind == "f" and not np.isfinite(array).all():
                    raise Unusable("not finite")
                if not np.array_equal(array, other):
                    raise Unusable("reads storage without contents")
        return first

    def evaluate_once(self, poison):
        state = State(self, poison)
        env = {name: [array.copy() for array in arrays]
               for (name, _), arrays in zip(self.main.parameters, self.inputs)}
        given = [env[name] for name, _ in self.main.parameters]
        state.run(self.main.block, env, list(range(self.ranks)))
        return [env[name] for name, _ in self.main.results], given

    def changed(self, functions=None, main=None):
        return Program(self.ranks, self.groups, self.functions if functions is None else functions, main or self.main,
                       self.inputs, self.globals)
