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
    (r"futures? (that )?leaves? .*(function|block).*calls?", "calls on tensors beside a future that leaves (Runtime.md)"),
]
# The same for programs that keep memrefs in memory.
KEPT = [
    (r"(writes|reads) operand #\d+, which is in flight", "a loaded memref may be what is in flight (Rationale.md)"),
]
# Programs that break a rule on purpose may get these, and no other program.
RULES = [
    (r"expected an operation with memory effects that (makes|reads) a tensor whose storage is written", "a pure operation makes or reads storage that is written (Rationale.md)"),
]


def reason(text, breaks_rules, program=""):
    """Why `program` is refused, or None if no document says so."""
    kept = KEPT if "xmemref<" in program else []
    for pattern, name in REASONS + kept + (RULES if breaks_rules else []):
        if re.search(pattern, text, re.IGNORECASE):
            return name
    return None
