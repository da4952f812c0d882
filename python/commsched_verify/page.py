# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Certificates as one HTML page that a stranger understands. It needs nothing from a network, and no scripts.

Whatever is a text of a certificate, or the name of a file, is escaped, and stands in an element of its own direction.
"""

from __future__ import annotations

import html
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from . import sentences
from .lanes import picture
from .sentences import name, size, time
from .style import STYLE
from .verdict import Verdict

# By verdict: the class of its colour, and what it means.
VERDICTS = {
    "valid": (
        "valid",
        "All that this certificate claims was checked and holds, if what is listed as believed is true.",
    ),
    "valid in part": (
        "part",
        "Nothing that was checked is false, but not everything was checked. See below what was not.",
    ),
    "nothing proven": ("part", "This certificate is about no block of a program, so it proves nothing."),
    "not valid": (
        "not",
        "A statement does not hold, or the file is no certificate. Do not rely on any of its numbers.",
    ),
}
LEGEND = (
    ("compute", "computes"),
    ("waits", "nothing computes"),
    ("collective", "communicates"),
    ("text", "lower bound"),
)


def items(rows: Iterable[str], kind: str = "") -> str:
    return f'<ul class="{kind}">' + "".join(f"<li>{row}</li>" for row in rows) + "</ul>"


def figure(text: str) -> str:
    """A time or a size, with the number that was rounded on a line of its own."""
    short, _, exact = text.partition(" (")
    return short + (f"<small>{exact.rstrip(')')}</small>" if exact else "")


def claims_of(block: dict[str, Any], facts: dict[str, Any], numerics: str) -> str:
    """The numbers of a block, each with one sentence that says what it is. Numbers that were not checked say so."""
    rows = []
    makespan, peak = facts.get("makespan_ns"), facts.get("peak_bytes")
    known = "not checked" if makespan is None else figure(time(makespan))
    rows.append(("Makespan", known, "From the first operation to the end of the last one."))
    rows.append(("Lower bound", figure(time(facts["bound_ns"])), f"{sentences.nothing_else(block, facts)} is faster."))
    if "gap_percent" in facts:
        rows.append(("Gap", f"at most {facts['gap_percent']:.2f} %", "How far the schedule can be from the best one."))
    if "regret_percent" in facts:
        what = "The same, if collectives take 0.75 to 2 times as long as planned."
        rows.append(("Gap with other times", f"at most {facts['regret_percent']:.2f} %", what))
    known = "not checked" if peak is None else figure(size(peak))
    if loop := facts.get("loop"):
        what = "No pipeline of the loop whose body this block is has a shorter iteration."
        rows.append(("Shortest iteration", figure(time(loop["bound_ns"])), what))
    rows.append(("Peak of memory", known, "The most bytes that are live at once."))
    limit = figure(size(block["claims"]["limit_bytes"])) if sentences.has_limit(block) else "none"
    rows.append(("Limit of memory", limit, "The peak must not be above it."))
    exact = (
        "The schedule computes the same bits as the given program." if numerics == "exact" else "Results may differ."
    )
    rows.append(("Results", name(numerics), exact + " The certificate says so; it is not proven."))
    cell = '<div><dt>{}</dt><dd>{}</dd><dd class="what">{}</dd></div>'
    cells = "".join(cell.format(term, value, what) for term, value, what in rows)
    return f'<dl class="claims">{cells}</dl>'


def picture_of(block: dict[str, Any], facts: dict[str, Any]) -> str:
    makespan = facts.get("makespan_ns") or 0
    drawn = picture(block, makespan, facts["bound_ns"])
    if not drawn:
        return ""
    colours = "".join(f'<span><i style="background: var(--{kind})"></i>{what}</span>' for kind, what in LEGEND)
    return (
        "<h3>The schedule</h3><p>One row for each lane: a stream of computations, or of collectives. Time runs to the "
        f'right. A line marks the lower bound.</p><p class="legend">{colours}</p>\n{drawn}\n'
        f'<div class="axis"><span>0</span><span>{time(makespan)}</span></div>'
    )


def block_of(block: dict[str, Any], facts: dict[str, Any], numerics: str) -> str:
    parts = [f"<section><h2>Block {name(block['name'])}</h2>", "<h3>What is claimed</h3>"]
    parts += [claims_of(block, facts, numerics), picture_of(block, facts)]
    parts += ["<h3>What was checked</h3>", items(sentences.checked(block, facts), "yes")]
    if facts["not_checked"]:
        rows = (f"Not checked: {html.escape(what)}." for what in facts["not_checked"])
        parts += ["<h3>What was not checked</h3>", items(rows, "no")]
    parts += ["<h3>What is only believed</h3>", items(sentences.believed(block, facts)), "</section>"]
    return "\n".join(parts)


REPEAT = """<section><h2>Repeat the check</h2>
<p>{about}</p>
<pre>{command}</pre>
<p>The checker is the folder <code>commsched_verify</code>, which needs Python and nothing else. Its core is one
file of 400 lines that you can read, and shares no code with the scheduler.</p>
{program}</section>"""
PROGRAM = """<p>The certificate is about the program with the SHA-256 {after}, which was made of the one with
{before}. That these are the programs is believed: compare the first with <code>sha256sum</code> of the scheduled
file.</p>
"""


def repeat_of(verdict: Verdict, header: dict[str, Any] | None) -> str:
    """How a reader checks the same file again, and sees that this page is about it."""
    file, program = shlex.quote(verdict.file), ""
    if header is not None:
        program = PROGRAM.format(after=name(header["output_sha256"]), before=name(header["input_sha256"]))
    command = html.escape(f"sha256sum {file}\npython3 -m commsched_verify {file}")
    about = f"This page is about the file with the SHA-256 {name(verdict.sha256)}."
    about = about if verdict.sha256 else "The file could not be read."
    return REPEAT.format(about=about, command=command, program=program)


INTRODUCTION = """<p>A program computes and communicates at the same time. A scheduler put its operations into an
order and claims how long that takes. This page says what an independent checker proved of these claims, and what
it takes on trust. A <em>block</em> is a function of the program, or a part of one such as the body of a loop. A
<em>collective</em> is a transfer in which several devices take part.</p>"""


def file_of(verdict: Verdict, introduction: str) -> str:
    colour, meaning = VERDICTS[verdict.word]
    parts = [f'<article><h1>Certificate of a schedule: {name(verdict.file)}</h1><div class="verdict {colour}">']
    parts.append(f"<strong>{verdict.word.capitalize()}</strong><br>{meaning}</div>")
    if verdict.refusal:
        parts.append("<section><h2>Why it is not valid</h2><p>The first thing that the checker found:</p>")
        parts.append(f"<pre><bdi>{html.escape(verdict.refusal)}</bdi></pre></section>")
        return "\n".join([*parts, repeat_of(verdict, None), "</article>"])
    header, *blocks = verdict.documents()
    parts.append(introduction)
    numerics = str(header.get("numerics", "exact"))
    parts += [block_of(block, facts, numerics) for block, facts in zip(blocks, verdict.facts)]
    return "\n".join([*parts, repeat_of(verdict, header), "</article>"])


def page_of(verdicts: Sequence[Verdict], ranks: str, version: str) -> str:
    """The page. `ranks` is what the comparison of ranks said, agreement or not; empty without one."""
    title = html.escape(", ".join(f"{verdict.file}: {verdict.word}" for verdict in verdicts))
    compared = (
        f"<article><h1>Comparison of ranks</h1><pre><bdi>{html.escape(ranks)}</bdi></pre></article>" if ranks else ""
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join([*(file_of(v, "" if at else INTRODUCTION) for at, v in enumerate(verdicts)), compared])
        + f"<footer>Written by commsched-verify, CommSched {html.escape(version)}. The page Bounds of its "
        "documentation has the lemmas.</footer>\n</body>\n</html>\n"
    )
