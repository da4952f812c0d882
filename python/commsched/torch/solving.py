# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Imports a graph and runs passes over it. The graph is only read."""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
import time

import torch.distributed as dist
import torch.fx as fx

from ..program import Error, Program
from .importer.estimates import sampled
from .importer.export import import_program
from .importer.graph import Importer, donated_placeholders
from .importer.state import SplitRules
from .options import Options, option_value
from .ranks.costs import gather_costs
from .reporting import Unscheduled, function_report, strict, wants_listing
from .second_opinion import SecondOpinion, second_opinion
from .semantics.stale import refresh
from .stages import ALIGN_COSTS, MEASURES

FUNCTION = "main"


@dataclasses.dataclass
class Imported:
    """A graph as a module.

    Args:
        donated: names of the placeholders that are freed after their last use.
        import_ns: the processor's time that the import took.
        opinion: PyTorch's costs, if a search of this module is to take them as a second opinion, or why they failed.
        listing: the schedule as text (`reporting.list_overlap`), if somebody wants it.
    """

    program: Program
    importer: Importer
    donated: set[str]
    import_ns: int
    opinion: SecondOpinion | str | None = None
    listing: str = ""

    def run(self, options: Options, pipeline: str | None = None) -> dict:
        """Runs a pipeline over the module and returns the report that it writes.

        Costs are aligned first, so that both sides of the report are measured by the same costs.

        Args:
            pipeline: another pipeline than that of the options.

        Raises:
            Unscheduled: a pass failed.
        """
        with tempfile.TemporaryDirectory(prefix="commsched") as folder:
            report_file, overlap_file = (pathlib.Path(folder, name) for name in ("report.json", "overlap.txt"))
            listed = str(overlap_file) if wants_listing() and options.passes[-1:] != (MEASURES,) else None
            try:
                for curve in sampled(self.importer):
                    self.program.set_curve(curve.kind, curve.group, curve.element, curve.points)
                if isinstance(self.opinion, SecondOpinion):
                    self.opinion.tell(self.program)
                self.program.run(pipeline or self._aligned(options).pipeline(str(report_file), listed))
            except Error as error:
                raise Unscheduled(str(error)) from error
            self.listing = overlap_file.read_text() if overlap_file.is_file() else ""
            return self._with_opinion(function_report(report_file))

    def _with_opinion(self, report: dict) -> dict:
        """Adds what is known here of the second opinion to what the last pass says that took it."""
        if isinstance(self.opinion, str):
            report["second_opinion"] = {"failure": self.opinion}
        elif self.opinion is not None and "second_opinion" in report:
            report["second_opinion"] |= self.opinion.facts()
        return report

    def _aligned(self, options: Options) -> Options:
        """Aligns the costs if that is the first pass. Returns the options with the other passes."""
        if not options.aligns():
            return options
        if dist.is_available() and dist.is_initialized():
            self.program.set_gather(gather_costs(), dist.get_world_size())
        first, *others = options.passes
        if not isinstance(first, str) or not first.startswith(ALIGN_COSTS):
            return options
        given = first.removeprefix(ALIGN_COSTS).strip("{}")
        if "machine=" not in given:
            given = f"machine={option_value(options.machine)} {given}".strip()
        self.program.run(f"{ALIGN_COSTS}{{{given}}}")
        return dataclasses.replace(options, passes=others or (MEASURES,))


def imported(
    graph: fx.Graph,
    options: Options,
    fused: bool,
    split_rules: SplitRules | None = None,
    apart: frozenset[str] = frozenset(),
    opines: bool = False,
) -> Imported:
    """Imports `graph`, after its stale fake values are computed anew.

    Args:
        apart: the names of collectives that are not to be merged.
        opines: whether the passes of the options are going to search a schedule, with a second opinion.

    Raises:
        Unscheduled: the graph cannot be imported.
    """
    started = time.process_time_ns()
    donated = donated_placeholders(graph, options.donated)

    def import_graph(other: fx.Graph) -> tuple[Program, Importer]:
        refresh(other)
        program, _, importer = import_program(
            other,
            runtime_estimation=options.runtime_estimation,
            donated=donated,
            name=FUNCTION,
            fused=fused and options.fusion,
            fusion=options.fusion,
            split_rules=split_rules,
            apart=apart,
        )
        return program, importer

    try:
        program, importer = import_graph(graph)
    except Exception as error:  # No graph, however odd, may break a compilation.
        if strict():
            raise
        raise Unscheduled(f"import: {type(error).__name__}: {error}") from error
    import_ns = time.process_time_ns() - started
    opinion = second_opinion(graph, options, importer, import_graph) if opines else None
    return Imported(program, importer, donated, import_ns, opinion)
