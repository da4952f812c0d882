# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The page of commsched-verify --html: its form, its numbers, what it says of forged files, and how it looks."""

import contextlib
import copy
import html.parser
import io
import json
import os
import pathlib
import random
import re
import subprocess
import sys

import commsched_tools
import pytest
from commsched_verify import core, lanes, page, verdict
from commsched_verify.__main__ import main

ROOT = pathlib.Path(__file__).resolve().parents[2]
VOID = {"meta", "br"}
# What a page may have, and no more: nothing of this loads or runs anything.
TAGS = set(
    "html head meta title style body article section header footer h1 h2 h3 p pre code bdi em strong br ul li".split()
)
TAGS |= set("dl div dt dd small span i svg rect".split())
HOSTILE = '</title></style><script>alert("1")</script>&amp;\u202e\' onload=x {0} %s'
PROFILE = {
    "resources": {"compute_units": 132},
    "contention": [
        {"kind": "all_gather", "bytes": 1 << 20, "against": a, "compute_permille": 400, "collective_permille": 100}
        for a in ("matrix", "memory")
    ],
    "variants": [{"kind": "all_gather", "means": "copy_engine", "time_permille": 1100}],
}
# By name: the program and the options.
RUNS = {
    "plain": ("docs/examples/two_layer_fsdp.mlir", "--reorder-comm-overlap=effort=2000"),
    "merged": ("docs/examples/hide_one_gather.mlir", "--comm-schedule=effort=500 memory-budget-ratio=1"),
    "shared": (
        "docs/examples/two_layer_fsdp.mlir",
        "--reorder-comm-overlap=effort=2000",
        "--comm-machine=./shared.json",
    ),
    "modes": ("test/Transforms/comm-schedule-modes.mlir", "--comm-schedule=effort=500", "--comm-machine=./shared.json"),
    "loops": (
        "docs/examples/layer_loop.mlir",
        "--reorder-comm-overlap=loops=pipeline memory-budget-ratio=1 effort=500",
    ),
    "large": ("test/Graphs/llama3-8b-64-fsdp-bw.mlirbc", "--reorder-comm-overlap=effort=500"),
}


class Page(html.parser.HTMLParser):
    """The elements, the text, and whether each element that begins also ends."""

    def __init__(self, text):
        super().__init__()
        self.stack, self.elements, self.texts, self.by_tag = [], [], [], {}
        self.feed(text)
        self.close()
        assert self.stack == [], self.stack
        self.text = re.sub(r"\s+", " ", "".join(self.texts))

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag, (tag, self.stack)

    def handle_data(self, data):
        self.by_tag.setdefault(self.stack[-1] if self.stack else "", []).append(data)
        if "style" not in self.stack:
            self.texts.append(data)

    def count(self, tag):
        return sum(tag == other for other, _ in self.elements)


def check_form(text):
    """One page that needs nothing else: no scripts, no addresses, and a policy that forbids both."""
    parsed = Page(text)
    assert {tag for tag, _ in parsed.elements} <= TAGS | {"title"}
    for tag, attributes in parsed.elements:
        assert not any(key.startswith("on") or key in ("src", "href", "xlink:href") for key in attributes), (
            tag,
            attributes,
        )
        assert "url(" not in attributes.get("style", "")
    style = "".join(parsed.by_tag["style"])
    assert "url(" not in style and "@import" not in style and "prefers-color-scheme: dark" in style
    policies = [a["content"] for tag, a in parsed.elements if "http-equiv" in a]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert text.startswith("<!DOCTYPE html>") and parsed.count("title") >= 1
    return parsed


def verify(*arguments):
    """The exit code of the checker, and what it prints on both streams."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["commsched-verify", *map(str, arguments)])
        return main(), said.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    base = json.loads((ROOT / "machines/h100-sxm.json").read_text())
    (folder / "shared.json").write_text(json.dumps({**base, **PROFILE}))
    for name, (program, *options) in RUNS.items():
        command = [commsched_tools.find("comm-opt"), ROOT / program, *options, f"--comm-certificate={name}.cert"]
        subprocess.run([*command, "-o", os.devnull], cwd=folder, check=True, capture_output=True)
    return folder


def written(folder, path, *documents):
    (folder / path).write_text("".join(json.dumps(document) + "\n" for document in documents))
    return folder / path


def documents_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def spelled(facts):
    """The numbers of a block as the page writes them."""
    for key in ("nodes", "dependences", "makespan_ns", "peak_bytes", "bound_ns"):
        yield f"{facts[key]:,}"
    yield f"at most {facts['gap_percent']:.2f} %"


@pytest.mark.parametrize("name", RUNS)
def test_pages_have_all_numbers(folder, name, tmp_path):
    path = folder / f"{name}.cert"
    assert verify(path, f"--html={tmp_path / 'page.html'}")[0] == 0
    text = (tmp_path / "page.html").read_text()
    parsed = check_form(text)
    found = verdict.examine(str(path))
    header, *blocks = documents_of(path)
    assert parsed.count("section") == len(blocks) + 1 and parsed.count("h1") == 1
    assert header["output_sha256"] in parsed.text and header["input_sha256"] in parsed.text
    hashed = subprocess.run(
        ["sha256sum"], stdin=path.open(), capture_output=True, text=True, check=True
    ).stdout.split()[0]
    assert hashed in parsed.text and f"python3 -m commsched_verify {path}" in parsed.text
    for block, facts in zip(blocks, found.facts):
        assert block["name"] in parsed.by_tag["code"]
        for number in spelled(facts):
            assert number in parsed.text, number
        assert ("0.75 to 2" in parsed.text) == any("scales" in other for other in blocks)
    assert "Valid" in parsed.by_tag["strong"] and "What was not checked" not in parsed.text
    assert len(text) < 400_000


def test_the_interval_of_a_loop(folder):
    """What is claimed, checked and believed of a loop, in the block of its body and in the one around it."""
    parsed = Page(page.page_of([verdict.examine(str(folder / "loops.cert"))], "", "1"))
    assert "Shortest iteration3.00 ms3,000,000 ns" in parsed.text
    assert "has an iteration of less than 3.00 ms (3,000,000 ns)" in parsed.text
    assert "all cycles of the 4 dependences, were compared" in parsed.text
    assert "is a loop, and takes as long as 15 iterations of block forward.new0" in parsed.text
    assert (
        "That these are the 4 dependences of the loop" in parsed.text
        and "How many iterations a loop has." in parsed.text
    )


@pytest.mark.parametrize("name", ["plain", "merged", "large"])
def test_the_picture_has_the_times_of_the_certificate(folder, name):
    """Without contention, a collective takes its cost, and computations take the sum of theirs."""
    _, block = documents_of(folder / f"{name}.cert")
    cost, starts = block["problem"]["cost_ns"], set(block["problem"]["starts"])
    (_, compute), *others = lanes.lanes_of(block)
    events, makespan = block["answer"]["events"], block["claims"]["makespan_ns"]
    took = sorted(cost[e] if isinstance(e, int) else e[2] for e in events if (e if isinstance(e, int) else -1) in starts
                  or not isinstance(e, int) and e[0] == "start")  # fmt: skip
    assert sorted(bar.end - bar.begin for _, bars in others for bar in bars) == [each for each in took if each]
    computed = sum(cost[e] for e in events if isinstance(e, int) and e not in starts)
    computed += sum(e[2] for e in events if not isinstance(e, int) and e[0] in ("pack", "unpack"))
    issued = sum(block["problem"].get("issue_ns", [])[1::2])
    inside = sum(bar.end - bar.begin for bar in compute if bar.kind == "compute")
    assert computed <= inside <= computed + issued
    # Together with the times in which nothing computes, they are the makespan, and nothing overlaps.
    assert sum(bar.end - bar.begin for bar in compute) == makespan
    for bars in [compute, *(bars for _, bars in others)]:
        assert all(one.end <= two.begin for one, two in zip(bars, bars[1:])) and bars[-1].end <= makespan


def test_the_picture_with_contention(folder):
    """What runs beside others takes longer than alone, and the play of the picture is that of the checker."""
    _, block = documents_of(folder / "shared.cert")
    (_, compute), (_, collectives) = lanes.lanes_of(block)
    alone = sum(cost for cost in map(block["problem"]["cost_ns"].__getitem__, range(28)))
    busy = sum(bar.end - bar.begin for bar in [*compute, *collectives] if bar.kind != "waits")
    assert busy > alone and max(compute[-1].end, collectives[-1].end) == block["claims"]["makespan_ns"]
    assert sum(bar.end - bar.begin for bar in compute) == block["claims"]["makespan_ns"]


def test_rectangles_are_inside_of_the_picture(folder):
    for name in RUNS:
        found = verdict.examine(str(folder / f"{name}.cert"))
        parsed = Page(page.page_of([found], "", "1"))
        rectangles = [attributes for tag, attributes in parsed.elements if tag == "rect"]
        assert len(rectangles) < 5000 and any(r["class"] == "bound" for r in rectangles)
        for each in rectangles:
            assert 0 <= int(each["x"]) and int(each["x"]) + int(each["width"]) <= lanes.UNITS + 1


# --- Files that are not what they say --------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", ["makespan_ns", "peak_bytes", "bound_ns", "limit_bytes"])
def test_forged_claims(folder, tmp_path, claim):
    header, block = documents_of(folder / "plain.cert")
    block["claims"][claim] += 1 << 20 if claim == "bound_ns" else -1
    path = written(tmp_path, "forged.cert", header, block)
    code, said = verify(path, f"--html={tmp_path / 'page.html'}")
    parsed = check_form((tmp_path / "page.html").read_text())
    assert code == 1 and "Not valid" in parsed.by_tag["strong"]
    (refusal,) = re.findall(r"not valid: (.*)", said)
    assert refusal in parsed.by_tag["bdi"]
    # No number of the certificate stands there as a claim, and nothing is said to be checked.
    for heading in ("What is claimed", "What was checked", "What is only believed", "The schedule"):
        assert heading not in parsed.text
    assert f"{block['claims']['bound_ns']:,}" not in parsed.text


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"{}\n", b"[" * 5000, b"null\n"], ids=range(5))
def test_files_that_are_no_certificates(tmp_path, text):
    (tmp_path / "other.cert").write_bytes(text)
    code, _ = verify(tmp_path / "other.cert", tmp_path / "missing.cert", f"--html={tmp_path / 'page.html'}")
    parsed = check_form((tmp_path / "page.html").read_text())
    assert code == 1 and parsed.by_tag["strong"] == ["Not valid"] * 2 and "The file could not be read." in parsed.text


def test_hostile_names(folder, tmp_path):
    header, block = documents_of(folder / "plain.cert")
    block["name"], block["problem"]["lanes"][1] = HOSTILE, f"lane {HOSTILE}\ud800"
    block["problem"]["reason_names"]["a"] = f"reason {HOSTILE}"
    block["collectives"] = [[node, HOSTILE, HOSTILE, HOSTILE] for node in block["problem"]["starts"]]
    header |= {"numerics": HOSTILE, "output_sha256": HOSTILE}
    path = written(tmp_path, "<b>'; rm -rf x; '.cert", header, block)
    code, _ = verify(path, f"--html={tmp_path / 'page.html'}")
    parsed = check_form((tmp_path / "page.html").read_text())
    assert code == 0 and f"{HOSTILE} ({HOSTILE})" in parsed.by_tag["title"]
    for text in (HOSTILE, f"reason {HOSTILE}"):
        assert text in parsed.by_tag["code"]
    assert f"lane {HOSTILE}\\ud800" in parsed.by_tag["bdi"]
    # The command that readers copy has the file as one word.
    command = next(text for text in parsed.by_tag["pre"] if "python3" in text).splitlines()[1]
    words = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {command}"], capture_output=True, text=True
    ).stdout.splitlines()
    assert words == ["python3", "-m", "commsched_verify", str(path)]


def test_what_proves_less(folder, tmp_path):
    header, block = documents_of(folder / "plain.cert")
    written(tmp_path, "nothing.cert", {**header, "blocks": 0})
    code, _ = verify(tmp_path / "nothing.cert", f"--html={tmp_path / 'page.html'}")
    assert code == 2 and "Nothing proven" in check_form((tmp_path / "page.html").read_text()).by_tag["strong"]
    for module in ("shares", "scales", "accesses", "levels"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, f"commsched_verify.{module}", None)
            code, said = verify(folder / "plain.cert", f"--html={tmp_path / 'page.html'}")
        parsed = check_form((tmp_path / "page.html").read_text())
        assert code == 2 and "Valid in part" in parsed.by_tag["strong"]
        for what in re.findall(r"NOT CHECKED: (.*)", said):
            assert f"Not checked: {what}." in parsed.by_tag["li"]
        assert "The reason:" not in parsed.text


def test_a_checker_without_the_page(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "commsched_verify.page", None)
        assert verify(folder / "plain.cert")[0] == 0
        with pytest.raises(SystemExit) as ended:
            verify(folder / "plain.cert", "--html=x.html")
    assert ended.value.code == 2


def test_ranks(folder, tmp_path):
    header, block = documents_of(folder / "plain.cert")
    other = written(tmp_path, "other.cert", {**header, "groups": {"dp": [[0, 2, 8]]}}, block)
    assert verify("--spmd", folder / "plain.cert", folder / "plain.cert", f"--html={tmp_path / 'a.html'}")[0] == 0
    assert "the ranks agree" in check_form((tmp_path / "a.html").read_text()).text
    assert verify("--spmd", folder / "plain.cert", other, f"--html={tmp_path / 'b.html'}")[0] == 1
    assert "group @dp has other ranks" in check_form((tmp_path / "b.html").read_text()).text


def test_every_accepted_certificate_has_a_page(folder):
    """Parts of certificates are replaced. What the checker accepts nevertheless has a page, however odd it is."""

    def places(value, path=()):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*path, key)
            if isinstance(entry, (dict, list)):
                yield from places(entry, (*path, key))

    draw, accepted = random.Random(3), 0
    sources = [documents_of(folder / f"{name}.cert") for name in ("plain", "merged", "modes")]
    for _ in range(1500):
        documents = copy.deepcopy(draw.choice(sources))
        documents = [{**documents[0], "blocks": 1}, draw.choice(documents[1:])]
        path = draw.choice([p for p in places(documents) if p[:2] != (1, "problem") or draw.random() < 0.1])
        parent = documents
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = draw.choice([0, 1, 99, "", "x", [], {}, None, [1], True, "\ud800"])
        found = verdict.Verdict("x", [json.dumps(document) for document in documents] if len(path) > 1 else [])
        try:
            found.said = core.verify(found.lines, found.facts)
        except core.Invalid:
            continue
        accepted += 1
        check_form(page.page_of([found], "", "1").encode("utf-8", "backslashreplace").decode())
        json.dumps(found.to_json())
    assert accepted > 50


# --- How it is written, and how it looks -----------------------------------------------------------------------------


def test_where_pages_are_written(folder, tmp_path):
    command = [sys.executable, "-m", "commsched_verify", str(folder / "plain.cert")]
    done = subprocess.run([*command, "--html=-"], capture_output=True, text=True)
    check_form(done.stdout)
    assert done.returncode == 0 and "proven:" not in done.stdout
    done = subprocess.run([*command, "--html=-", "--json=-"], capture_output=True, text=True)
    assert done.returncode == 2 and "expected a file for one of them" in done.stderr
    done = subprocess.run([*command, f"--html={tmp_path}/none/x.html"], capture_output=True, text=True)
    assert done.returncode == 1 and "No such file" in done.stderr and "proven:" in done.stdout
    # Who reads the text may end early.
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*command, f"--html={tmp_path}/early.html"], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert done.returncode == 141 and check_form((tmp_path / "early.html").read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["early.html"]


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_in_a_browser(folder, tmp_path, width, scheme):
    sys.path.append(str(ROOT / "test/Report"))
    from browser import Browser, find_browser

    path = find_browser() or pytest.skip("no Chromium is installed")
    header, block = documents_of(folder / "plain.cert")
    block["name"] = "a_very_long_name_" * 20
    long = written(tmp_path, "long.cert", header, block)
    verify(folder / "modes.cert", long, tmp_path / "missing.cert", f"--html={tmp_path / 'page.html'}")
    with Browser(path, width=width) as browser:
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        browser.open((tmp_path / "page.html").as_uri())
        # Nothing is wider than the window, and text can be told from its ground.
        assert browser.ask("document.documentElement.scrollWidth") == width
        lightness = "(c => { const [r, g, b] = c.match(/[0-9.]+/g).map(Number); return (r + g + b) / 765; })"
        ground, text = (
            browser.ask(f"{lightness}(getComputedStyle(document.body).{key})") for key in ("backgroundColor", "color")
        )
        assert (ground < 0.2 and text > 0.8) if scheme == "dark" else (ground > 0.9 and text < 0.3)
        # Lanes are as wide as the column, and high enough to be seen.
        column = browser.ask("document.querySelector('article').getBoundingClientRect().width")
        sizes = browser.ask(
            "[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect()).map(r => [r.width, r.height])"
        )
        assert sizes and all(wide == column and high >= 20 for wide, high in sizes)
        assert browser.exceptions == []
