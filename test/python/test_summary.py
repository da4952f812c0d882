# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The report in words: the line on rank 0, the table, and the page."""

import html.parser
import logging

import pytest

torch = pytest.importorskip("torch")

from commsched.torch import reporting, summary
from commsched.torch.trace import fake_world

REPORT = {
    "place": "graph",
    "direction": "backward",
    "collectives": 41,
    "makespan_ns": {"before": 800_000, "after": 600_000},
    "exposed_ns": {"before": 400_000, "after": 0},
    "peak_bytes": {"before": 2**21, "after": 2**20, "limit": 2**21},
    "gap": 0.05,
    "opaque": {"send_1": "point to point"},
    "import_ns": 1_000_000,
    "pipeline_ns": 2_000_000,
    "apply_ns": 0,
    "per_collective": [
        {"loc": f"gather<{i}>", "kind": "all_gather", "bytes": 128, "cost_ns": 10, "exposed_ns": {"after": i}}
        | {"limiting_factor": "a & b"}
        for i in range(30)
    ],
}


@pytest.fixture
def kept(monkeypatch):
    for name in ("_reports", "_all_reports"):
        monkeypatch.setattr(reporting, name, [])


def test_the_line_has_the_gain_and_what_is_opaque():
    assert summary.line(REPORT) == (
        "backward graph: 41 collectives, makespan 800 us -> 600 us -25.0 %, exposed 400 us -> 0 ns -100.0 %, "
        "peak 1 MiB, limit 2 MiB, 1 opaque nodes; scheduled in 3 ms"
    )


def test_the_table_aligns_its_columns():
    head, row, code = str(summary.Report([REPORT, {"place": "code", "direction": "backward"}])).split("\n")
    assert head.index("makespan") == row.index("800 us") and head.index("place") == code.index("code")
    assert "at most 5.00 %" in row


def test_an_empty_report_says_so():
    assert (
        "CommSched has scheduled nothing" in str(summary.Report([])) and "scheduled nothing" in summary.Report([]).html
    )


class Page(html.parser.HTMLParser):
    """Counts rows, checks that tags are closed, and keeps the text."""

    def __init__(self):
        super().__init__()
        self.open, self.rows, self.text = [], 0, ""

    def handle_starttag(self, tag, attributes):
        if tag != "meta":
            self.open.append(tag)
        self.rows += tag == "tr"

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_has_the_worst_collectives(tmp_path):
    summary.Report([REPORT]).write(tmp_path / "report.html")
    page = Page()
    page.feed((tmp_path / "report.html").read_text())
    assert page.open == [] and page.rows == 2 + 1 + summary.WORST
    assert "gather<29>" in page.text and "gather<9>" not in page.text and "a & b" in page.text


def test_one_line_names_the_pass_of_inductor_that_was_off():
    code = {"place": "code", "direction": "backward", "switched_off": "simple_overlap"}
    line = "Inductor's simple_overlap was off for 2 graphs, which have the order that CommSched decided"
    report = summary.Report([REPORT, code, code, {"place": "code", "direction": "forward"}])
    assert str(report).split("\n")[-1] == line and line.replace("'", "&#x27;") in report.html
    assert "1 graph, which has" in str(summary.Report([code]))
    assert "was off" not in str(summary.Report([REPORT])) + summary.Report([REPORT]).html


def test_reports_are_taken_and_the_report_stays(kept):
    reporting.record(REPORT)
    assert reporting.reports() == [REPORT] and reporting.reports() == []
    assert reporting.report().reports == [REPORT]


@pytest.mark.parametrize("rank", [0, 1])
def test_rank_0_speaks_for_all(kept, caplog, rank):
    with fake_world(2, rank), caplog.at_level(logging.INFO, "commsched"):
        reporting.begins("backward", 9)
        reporting.record(REPORT)
        reporting.record({"place": "code"})
    said = [r.getMessage() for r in caplog.records]
    assert said == ([] if rank else ["scheduling a backward graph of 9 nodes", summary.line(REPORT)])
