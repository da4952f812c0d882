#===- oracle.py - What numpy computed, as a program ---------------------------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# A program that returns constants: each rank takes its rows of a table, and writes the arguments that have other contents
# at the end. comm-run compares every other program with it, so that many programs fit one process and no file is read.
#
#===---------------------------------------------------------------------------------------------------------------===#

import os

import numpy as np

from .shapes import literal, raw
from .values import ones, sizes


def table(name, type_, arrays, lines):
    """The rank's row of a constant, as a tensor of static sizes."""
    plain = type_._replace(memory=False, layout=None, dynamic=frozenset())
    if not plain.size:
        lines.append(f"  {name} = tensor.empty() : {plain}")
        return plain
    whole = plain.with_shape((len(arrays), *plain.shape))
    rank = len(plain.shape)
    lines += [f"  {name}t = arith.constant {literal(arrays, plain.element)} : {whole}",
              f"  {name} = tensor.extract_slice {name}t[{', '.join(['%row'] + ['0'] * rank)}] "
              f"{sizes((1, *plain.shape))} {ones(rank + 1)} : {whole} to {plain}"]
    return plain


def oracle_text(program, results, arguments):
    lines = ["  %zero = arith.constant 0 : index", "  %number = tensor.extract %rank[%zero] : tensor<1xi64>",
             "  %row = arith.index_cast %number : i64 to index"]
    for i, ((name, type_), before, after) in enumerate(zip(program.main.parameters, program.inputs, arguments)):
        if all(np.array_equal(a, b) for a, b in zip(before, after)):
            continue
        plain = table(f"%after{i}", type_, after, lines)
        if type_.memory:
            lines.append(f"  bufferization.materialize_in_destination %after{i} in writable {name} : ({plain}, {type_}) -> ()")
        else:
            lines.append(f"  comm.fsdp.copy %after{i} into {name} : {plain} into {type_}")
    names, types = [], []
    for i, ((_, type_), arrays) in enumerate(zip(program.main.results, results)):
        name = f"%result{i}"
        plain = table(name, type_, arrays, lines)
        if type_.memory:
            buffer = plain._replace(memory=True)
            lines += [f"  {name}m = memref.alloc() : {buffer}",
                      f"  bufferization.materialize_in_destination {name} in writable {name}m : ({plain}, {buffer}) -> ()"]
            plain, name = buffer, name + "m"
        elif type_.dynamic:
            lines.append(f"  {name}d = tensor.cast {name} : {plain} to {type_}")
            plain, name = type_, name + "d"
        names.append(name)
        types.append(str(plain))
    parameters = ", ".join(f"{name}: {type_}" for name, type_ in program.main.parameters)
    returned = f"  return {', '.join(names)} : {', '.join(types)}" if names else "  return"
    return "\n".join([*program.group_lines(), f"func.func @main({parameters}) -> ({', '.join(types)}) {{", *lines, returned, "}"]) + "\n"


def write_inputs(program, folder):
    """Files of all arguments, and the options of comm-run that name them."""
    options = []
    for i, ((_, type_), arrays) in enumerate(zip(program.main.parameters, program.inputs)):
        for rank, array in enumerate(arrays):
            np.save(os.path.join(folder, f"argument{i}_rank{rank}.npy"), raw(array, type_.element))
        options.append(f"--input={i}={folder}/argument{i}_rank%r.npy")
    return options
