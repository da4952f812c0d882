# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the library says of functions of `comm` operations in the order in which they are written."""

from __future__ import annotations

import json
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

from ...program import Program
from ..importer.mlir_text import cost_attribute
from ..options import option_value


def module(groups: Sequence[str], functions: Sequence[str]) -> str:
    """A module of functions behind the declarations of groups."""
    return "\n".join(["module {", *groups, *functions, "}", ""])


def copy_cost(nbytes: int) -> str:
    """The cost of a copy: everything is read and written once."""
    return cost_attribute(None, 2 * nbytes, None)


def measured(text: str, machine: Any) -> list[dict[str, Any]]:
    """The report about each function of a module."""
    program = Program(text, "plan")
    with tempfile.TemporaryDirectory(prefix="commsched") as folder:
        file = pathlib.Path(folder, "report.json")
        program.run(f"comm-report{{machine={option_value(machine)} report-file={option_value(file)} table=false}}")
        return json.loads(file.read_text())["functions"]
