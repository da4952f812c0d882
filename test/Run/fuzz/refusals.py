#===- refusals.py - What may be refused, and where it is documented -----------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# A program that is refused for any other reason is a failure.
#
#===---------------------------------------------------------------------------------------------------------------===#

import re

# (what the message contains, the reason and the page that has it)
REASONS = [
    (r"expected to pass no tensor whose storage is written to a function that calls itself",
     "recursion with a tensor that is written (Rationale.md)"),
    (r"expected to pass no part of a tensor whose storage is written to a function",
     "a call with a part of a tensor that is written (Rationale.md)"),
    (r"cannot be bufferized: expected a contiguous buffer to view in another shape",
     "a view of elements that do not lie beside each other (Runtime.md)"),
    (r"futures? (that )?leaves? .*(function|block).*calls?", "calls on tensors beside a future that leaves (Runtime.md)"),
    (r"'comm\.compute' op cannot be bufferized: expected a known size for its result",
     "the result of a computation on tensors has a symbolic size (Runtime.md)"),
    (r"expected a contiguous destination, or exactly one wait in the block of the start",
     "a part of a buffer that is not contiguous is written, and its future has another use than one wait (Runtime.md)"),
    (r"expected no calls on tensors in a module in which every write copies", "calls on tensors beside a loop of basic blocks "
     "with tensors (Runtime.md)"),
    (r"could not infer buffer type of block argument", "a loop of basic blocks passes on a part of a tensor (Runtime.md)"),
    (r"expected no future of tensors as an argument of a basic block", "a future of tensors passes from block to block "
     "(Runtime.md)"),
    (r"what this call returns may be whatever it is given", "an access to what may be in flight, by the result of a call "
     "(Runtime.md)"),
]
# The same for programs that keep memrefs in memory.
KEPT = [
    (r"(writes|reads) operand #\d+, which is in flight", "a loaded memref may be what is in flight (Rationale.md)"),
]
# Programs that a pass of another project changed behind comm-multi-stream.
STREAMS = [
    (r"runs on stream \d+( and depends on an operation of stream \d+)?; expected stream \d+ to await an event",
     "a pass that knows no streams runs behind comm-multi-stream (ReorderingPasses.md)"),
]
MOVERS = ("--canonicalize", "--cse", "--inline", "--loop-invariant-code-motion", "--control-flow-sink", "--sccp")
# Programs that break a rule on purpose may get these, and no other program.
RULES = [
    (r"expected an operation with memory effects that (makes|reads) a tensor whose storage is written", "a pure operation makes or reads storage that is written (Rationale.md)"),
]


def moves_behind_streams(passes):
    """Whether a pass of another project runs behind comm-multi-stream."""
    names = [p.split("=")[0] for p in passes]
    return "--comm-multi-stream" in names and any(p in MOVERS for p in names[names.index("--comm-multi-stream"):])


def reason(text, breaks_rules, program="", passes=()):
    """Why `program` is refused after the passes, or None if no document says so."""
    patterns = REASONS + (KEPT if "xmemref<" in program else []) + (RULES if breaks_rules else [])
    if moves_behind_streams(passes):
        patterns = patterns + STREAMS
    for pattern, name in patterns:
        if re.search(pattern, text, re.IGNORECASE):
            return name
    return None
