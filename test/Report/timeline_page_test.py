#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Opens timeline pages in a headless Chromium, uses mouse and keys, and compares what the page says with known facts.

    timeline_page_test.py --comm-opt PATH [--screenshots DIR]

The times and sizes of STEP below are worked out by hand. Exit code 77 if no Chromium is installed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
from browser import Browser, find_browser  # noqa: E402

SKIPPED = 77
ROOT = Path(__file__).resolve().parents[2]
arguments = argparse.Namespace()

# Before: a 0-200, b 200-400, the gather 400-700 while compute waits, c 700-750. After: the gather begins at 0.
STEP = """comm.group @dp #comm.iota<[1, 4]>
func.func @step(%x: tensor<32xf32>, %y: tensor<64xf32>) -> tensor<64xf32> {
  %a = comm.compute "a"(%y) {comm.cost = #comm.cost<time = 200>} : (tensor<64xf32>) -> tensor<64xf32> loc("layer_a"("model.py":3:5))
  %b = comm.compute "b"(%a) {comm.cost = #comm.cost<time = 200, workspace = 4096>} : (tensor<64xf32>) -> tensor<64xf32> loc("layer_b"("model.py":4:5))
  %f = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<32xf32>) -> !comm.future<tensor<128xf32>> loc("weights"("model.py":7:9))
  %w = comm.wait %f : !comm.future<tensor<128xf32>> loc("weights_wait"("model.py":8:9))
  %c = comm.compute "c"(%b, %w) {comm.cost = #comm.cost<time = 50, workspace = 8192>} : (tensor<64xf32>, tensor<128xf32>) -> tensor<64xf32> loc("</script><b>c")
  return %c : tensor<64xf32>
}
"""
# Bytes by moment: values of 256 bytes, a gathered value of 512, and workspaces.
LIVE_BEFORE = {0: 256, 199: 256, 200: 256 + 256 + 4096, 399: 4608, 400: 256 + 512, 699: 768, 700: 256 + 512 + 256 + 8192, 749: 9216}
LIVE_AFTER = {0: 512 + 256, 199: 768, 200: 512 + 256 + 256 + 4096, 399: 5120, 400: 9216, 449: 9216}

# Two computations that do not depend on each other, and a gather.
TWO_STREAMS = """comm.group @dp #comm.iota<[1, 4]>
func.func @two(%x: tensor<32xf32>, %y: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<128xf32>) {
  %f = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 30000>} : (tensor<32xf32>) -> !comm.future<tensor<128xf32>>
  %a = comm.compute "a"(%y) {comm.cost = #comm.cost<time = 20000, workspace = 4096>} : (tensor<64xf32>) -> tensor<64xf32>
  %b = comm.compute "b"(%y) {comm.cost = #comm.cost<time = 20000>} : (tensor<64xf32>) -> tensor<64xf32>
  %w = comm.wait %f : !comm.future<tensor<128xf32>>
  return %a, %b, %w : tensor<64xf32>, tensor<64xf32>, tensor<128xf32>
}
"""


def chain(length: int, collectives_every: int) -> str:
    """A program of `length` computations in a chain, some of which read what they gather."""
    lines = ["comm.group @g0 #comm.iota<[1, 8]>", "comm.group @g1 #comm.iota<[8, 8] from [8, 8] transpose [1, 0]>",
             "func.func @chain(%v: tensor<64xf32>, %s: tensor<8xf32>) -> tensor<64xf32> {"]
    value, kind = "%v", "tensor<64xf32>"
    for index in range(length):
        operands, kinds = value, kind
        if index % collectives_every == 0:
            group = index // collectives_every % 2
            lines.append(f'  %f{index} = comm.all_gather %s on @g{group} {{comm.cost = #comm.cost<time = 900>}} : (tensor<8xf32>) -> !comm.future<{kind}> loc("gather_{index}")')
            lines.append(f'  %w{index} = comm.wait %f{index} : !comm.future<{kind}> loc("wait_{index}")')
            operands, kinds = f"{value}, %w{index}", f"{kind}, {kind}"
        cost = 300 + index * 7919 % 1000
        lines.append(f'  %c{index} = comm.compute "step"({operands}) {{comm.cost = #comm.cost<time = {cost}>}} : ({kinds}) -> {kind} loc("layer_{index}")')
        value = f"%c{index}"
    return "\n".join([*lines, f"  return {value} : {kind}", "}", ""])


class PageTest(unittest.TestCase):
    """One folder and one browser for all tests."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.browser = cls.enterClassContext(Browser(find_browser()))

    def tearDown(self) -> None:
        if arguments.screenshots:
            self.browser.screenshot(arguments.screenshots / f"{self.id().split('.')[-1]}.png")
        self.assertEqual(self.browser.exceptions, [])

    def make(self, name: str, program: str | Path, *options: str) -> Path:
        """Runs comm-opt and returns the page."""
        page, report = self.folder / f"{name}.html", self.folder / f"{name}.json"
        source = program
        if isinstance(program, str):
            source = self.folder / f"{name}.mlir"
            source.write_text(program)
        subprocess.run([arguments.comm_opt, str(source), *options, f"--comm-timeline={page}", f"--comm-report={report}", "-o", "/dev/null"],
                       check=True, capture_output=True)
        return page

    def open(self, page: Path, fragment: str = "") -> None:
        self.browser.open(page.as_uri() + fragment)

    def open_step(self) -> None:
        self.open(self.make("step", STEP, "--reorder-comm-overlap=passes=comm-reorder-preserving-peak-memory,comm-sink-waits-preserving-peak-memory"))

    def ask(self, expression: str) -> object:
        return self.browser.ask(expression)

    def text(self, selector: str) -> str:
        return self.ask(f"document.querySelector({json.dumps(selector)}).innerText")

    def facts(self) -> dict[str, str]:
        """The list of facts beside the timeline."""
        return self.ask("Object.fromEntries([...document.querySelectorAll('#details dt')].map(name => [name.innerText, name.nextElementSibling.innerText]))")

    def operation(self, side: int, label: str) -> int:
        found = self.ask(f"[...Array(timelinePage.view.sides[{side}].count).keys()].filter(op => timelinePage.view.sides[{side}].label(op) === {json.dumps(label)})")
        self.assertEqual(len(found), 1, label)
        return found[0]

    def centre(self, side: int, operation: int) -> tuple[float, float]:
        """The middle of an operation's rectangle, in the window."""
        # Whole pixels, as mice have them.
        return tuple(self.ask(f"(() => {{ const {{view}} = timelinePage, box = view.boxOf({side}, {operation}), at = view.rows.getBoundingClientRect();"
                              " return [at.left + box.x + box.width / 2, at.top + box.y + box.height / 2].map(Math.round); })()"))

    def range(self) -> tuple[float, float]:
        return tuple(self.ask("[timelinePage.view.from, timelinePage.view.to]"))

    #===- One step, worked out by hand --------------------------------------------------------------===#

    def test_ticks_have_units_and_one_scale_for_both_sides(self) -> None:
        self.open_step()
        self.assertEqual(self.ask("[...document.querySelectorAll('#axis span')].map(tick => tick.innerText)"), [f"{n}00 ns" for n in range(1, 8)])
        # Before and after have one axis: the same moment is at the same place.
        box = "timelinePage.view.boxOf({}, {}).x"
        a, gather = self.operation(0, "layer_a"), self.operation(1, "weights")
        self.assertEqual(self.ask(box.format(0, a)), self.ask(box.format(1, gather)))
        self.assertEqual(self.ask("timelinePage.view.sides.map(side => side.makespan)"), [750, 450])

    def test_a_run_stands_below_its_prediction(self) -> None:
        program, page = self.folder / "run.mlir", self.folder / "run.html"
        program.write_text(STEP.replace('"a"', '"exp"').replace('"b"', '"exp"').replace('"c"', '"add"'))
        run = Path(arguments.comm_opt).with_name("comm-run")
        subprocess.run([run, program, "--backend=sim", f"--timeline={page}", "--machine=h100-sxm"], check=True, capture_output=True)
        self.open(page)
        # The clock of this run is the model's.
        self.assertEqual(self.ask("timelinePage.view.sides.map(side => [side.title, side.makespan])"), [["predicted", 750], ["measured", 750]])
        self.assertEqual(self.ask("timelinePage.blocks.map(block => block.name.split(', ')[1])"), [f"rank {n}" for n in range(4)])
        self.browser.click(*self.centre(0, self.operation(0, "weights")))
        self.assertEqual(self.text("#details h2"), "weights\ncomm.all_gather, predicted")
        self.browser.key("b")
        self.assertEqual(self.text("#details h2"), "weights\ncomm.all_gather, measured")

    def test_memory_is_a_step_curve(self) -> None:
        self.open_step()
        for side, expected in ((0, LIVE_BEFORE), (1, LIVE_AFTER)):
            for when, live in expected.items():
                self.assertEqual(self.ask(f"timelinePage.view.sides[{side}].liveAt({when})"), live, (side, when))
        # The path of the curve has horizontal and vertical pieces alone.
        pieces = self.ask("""(() => {
          const {view} = timelinePage, {context} = view.painter, pieces = [];
          let last = null;
          context.moveTo = function (x, y) { last = [x, y]; };
          context.lineTo = function (x, y) { pieces.push([...last, x, y]); last = [x, y]; };
          view.painter.drawSteps(view.sides[0].when, view.sides[0].live, 750, bytes => 10000 - bytes, 10000, "black");
          return pieces;
        })()""")
        self.assertTrue(all(abs(x0 - x1) < 1e-6 or abs(y0 - y1) < 1e-6 for x0, y0, x1, y1 in pieces), pieces)
        flat = [round(10000 - y0) for x0, y0, x1, y1 in pieces if x1 - x0 > 10]
        self.assertEqual(flat, [256, 4608, 768, 9216])

    def test_a_click_tells_operation_place_cost_and_limit(self) -> None:
        self.open_step()
        self.browser.click(*self.centre(0, self.operation(0, "weights")))
        self.assertEqual(self.text("#details h2"), "weights\ncomm.all_gather, before")
        facts = self.facts()
        for name, value in {"runs": "300 ns", "from": "400 ns", "to": "700 ns", "cost": "300 ns (given)", "group": "@dp", "bytes": "512 B",
                            "issued": "400 ns", "exposed": "300 ns", "limited by": "order alone: no constraint prevents a shorter order",
                            "location": "model.py:7:9", "in the program": "number 3 of 5", "after": "at 0 ns, 400 ns earlier"}.items():
            self.assertEqual(facts[name].split("\n")[0], value, name)
        # The wait: compute stands still, and the panel leads to the collective.
        self.browser.click(*self.centre(0, self.operation(0, "weights_wait")))
        facts = self.facts()
        self.assertEqual((facts["waits"], facts["waits for"]), ("300 ns", "weights"))
        self.ask("[...document.querySelectorAll('#details button')].find(button => button.innerText === 'weights').click()")
        self.assertEqual(self.text("#details h2"), "weights\ncomm.all_gather, before")
        # The same operation afterwards, by key.
        self.browser.key("b")
        self.assertEqual(self.text("#details h2"), "weights\ncomm.all_gather, after")
        self.assertEqual(self.facts()["limited by"], "already hidden")
        row = json.loads((self.folder / "step.json").read_text())["functions"][0]["per_collective"][0]
        self.assertEqual(row["limiting_factor"], "already hidden")

    def test_what_is_live_at_the_cursor(self) -> None:
        self.open_step()
        x, y = self.centre(0, self.operation(0, "layer_b"))
        self.browser.click(x, y)
        self.assertEqual(self.text("#live h2"), "Live: 4.50 KiB\nbefore, at 200 ns, 3 buffers")
        self.assertEqual(self.ask("[...document.querySelectorAll('#live tr')].map(row => row.innerText)"),
                         ["4.00 KiB\tlayer_b workspace", "256 B\tlayer_a", "256 B\tlayer_b"])
        # A click into the memory band: at 550 ns the gathered value and b are live.
        box = self.ask("(() => { const {view} = timelinePage, band = view.bands.find(band => band.type === 'memory'), at = view.rows.getBoundingClientRect();"
                       " return [at.left + view.xOf(550), at.top + band.top + 10]; })()")
        self.browser.click(*box)
        self.assertEqual(self.text("#live h2"), "Live: 768 B\nbefore, at 400 ns, 2 buffers")
        self.assertEqual(self.text("#axis b"), "550 ns")
        self.browser.key("p")
        self.assertEqual(self.text("#live h2"), "Live: 9.00 KiB\nbefore, at 700 ns, 4 buffers")

    def test_search_finds_names_kinds_places_and_groups(self) -> None:
        self.open_step()
        for query, hits in {"layer_": 4, "WEIGHTS": 3, "model.py:7": 2, "@dp": 2, "comm.wait": 1, "nothing": 0}.items():
            self.ask(f"(() => {{ const query = document.getElementById('query'); query.value = {json.dumps(query)}; query.dispatchEvent(new Event('input')); }})()")
            self.assertEqual(self.ask("timelinePage.found.length"), hits, query)
            self.assertEqual(self.text("#hits"), f"{hits} hits" if hits else "none")
        self.browser.key("Escape")
        self.browser.key("/")
        for letter in "layer_b":
            self.browser.key(letter)
        self.browser.key("Enter")
        self.assertEqual((self.text("#hits"), self.text("#details h2")), ("1 of 2", "layer_b\nb, before"))
        self.browser.key("Enter")
        self.assertEqual((self.text("#hits"), self.text("#details h2")), ("2 of 2", "layer_b\nb, after"))

    def test_texts_of_the_program_are_shown_as_they_are(self) -> None:
        self.open_step()
        self.browser.click(*self.centre(0, self.operation(0, "</script><b>c")))
        self.assertEqual(self.text("#details h2"), "</script><b>c\nc, before")

    def test_wheel_drag_and_keys(self) -> None:
        self.open_step()
        x, y = self.centre(0, self.operation(0, "layer_b"))
        at = "timelinePage.view.whenAt({} - timelinePage.view.rows.getBoundingClientRect().left)"
        whole, before = self.range(), self.ask(at.format(x))
        self.browser.wheel(x, y, -200)
        zoomed = self.range()
        self.assertLess(zoomed[1] - zoomed[0], 0.8 * (whole[1] - whole[0]))
        self.assertAlmostEqual(self.ask(at.format(x)), before, places=6)
        # What is under the pointer stays under it.
        self.browser.drag(x, y, x - 120, y)
        self.assertAlmostEqual(self.ask(at.format(x - 120)), before, places=6)
        self.browser.key("ArrowLeft")
        self.assertLess(self.range()[0], zoomed[1])
        self.browser.key("0")
        self.assertEqual(self.range(), whole)
        self.browser.key("+")
        self.assertAlmostEqual((self.range()[1] - self.range()[0]) / (whole[1] - whole[0]), 0.7)
        self.browser.key("Home")
        expected = sorted((self.ask(at.format(x)), self.ask(at.format(x + 200))))
        self.browser.drag(x, y, x + 200, y, modifiers=8)
        for value, wanted in zip(self.range(), expected, strict=True):
            self.assertAlmostEqual(value, wanted, places=6)
        # Never beyond the block, never closer than 20 ns; then ticks count from a round moment.
        self.ask("timelinePage.view.setRange(400.2, 400.3)")
        self.assertAlmostEqual(self.range()[1] - self.range()[0], 20)
        self.ask("timelinePage.view.setRange(-1e9, 1e9)")
        self.assertEqual(self.range(), whole)

    def test_ticks_far_from_zero_count_from_a_round_moment(self) -> None:
        self.open_step()
        axis = self.ask("(() => { const {base, ticks} = timeTicks(933029400, 933029500, 800, 90); return [base, ticks.map(tick => tick.label)]; })()")
        self.assertEqual(axis, [933029400, [f"+{n} ns" for n in range(0, 101, 20)]])
        axis = self.ask("(() => { const {base, ticks} = timeTicks(0, 2400000, 800, 90); return [base, ticks.map(tick => tick.label)]; })()")
        self.assertEqual(axis, [0, ["0.0 ms", "0.5 ms", "1.0 ms", "1.5 ms", "2.0 ms"]])

    def test_readable_in_light_and_dark(self) -> None:
        self.open_step()
        contrast = """(() => {
          const luminance = name => {
            const value = getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim().slice(1);
            const parts = [0, 2, 4].map(at => parseInt(value.slice(at, at + 2), 16) / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
          };
          const ratio = (a, b) => { const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y); return (high + 0.05) / (low + 0.05); };
          const spans = ['compute', 'stall', 'kind-0', 'kind-1', 'kind-2', 'kind-3', 'kind-4', 'kind-5'];
          return [Math.min(ratio('text', 'page'), ratio('text', 'raised')), Math.min(ratio('quiet', 'page'), ratio('quiet', 'raised')),
                  Math.min(...spans.map(name => ratio('on-span', name)))];
        })()"""
        themes = []
        for _ in range(2):
            themes.append(self.ask("document.documentElement.dataset.theme"))
            text, quiet, spans = self.ask(contrast)
            # The ratios that WCAG asks of text, and of large text and graphics.
            self.assertGreater(text, 7)
            self.assertGreater(quiet, 4.5)
            self.assertGreater(spans, 3)
            self.browser.key("t")
        self.assertEqual(sorted(themes), ["dark", "light"])

    #===- Other programs ----------------------------------------------------------------------------===#

    def assert_no_labels_overlap(self) -> None:
        faults = self.ask("""(() => {
          const faults = [];
          for (const list of ['#axis span, #axis b', '#gutter span, #gutter small', '#summary .value, #summary .more, #summary .name']) {
            const boxes = [...document.querySelectorAll(list)].filter(part => part.innerText).map(part => [part.innerText, part.getBoundingClientRect()]);
            boxes.forEach(([text, a], index) => boxes.slice(index + 1).forEach(([other, b]) => {
              if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5)
                faults.push(text + ' | ' + other);
            }));
          }
          return faults;
        })()""")
        self.assertEqual(faults, [])

    def assert_buffers_add_up(self) -> None:
        """At every entry of the curve, the buffers that the page lists have the bytes of the curve."""
        self.assertEqual(self.ask("""timelinePage.view.sides.map(side => {
          const {first, last, bytes} = side.data.buffers, change = new Float64Array(side.live.length + 1);
          first.forEach((entry, buffer) => { change[entry] += bytes[buffer]; change[last[buffer] + 1] -= bytes[buffer]; });
          let sum = 0;
          return side.live.filter((live, entry) => live !== (sum += change[entry])).length;
        })"""), [0] * self.ask("timelinePage.view.sides.length"))

    def test_a_traced_graph(self) -> None:
        page = self.make("llama", ROOT / "test/Graphs/llama3-8b-64-fsdp-tp8-fw.mlirbc", "--reorder-comm-overlap=passes=comm-reorder-preserving-peak-memory,comm-sink-waits-preserving-peak-memory", "--comm-machine=h100-sxm")
        self.open(page)
        report = json.loads((self.folder / "llama.json").read_text())["functions"][0]
        sides = self.ask("timelinePage.view.sides.map(side => [side.makespan, side.data.exposed, side.data.peak])")
        for index, when in enumerate(("before", "after")):
            self.assertEqual(sides[index], [report["makespan_ns"][when], report["exposed_ns"][when], report["peak_bytes"][when]])
        self.assertEqual(self.ask("timelinePage.view.limit"), report["peak_bytes"]["limit"])
        # The curve reaches the peak of the report, and the stalls add up to what is exposed.
        self.assertEqual(self.ask("timelinePage.view.sides.map(side => side.live[side.peakEntry()])"), [side[2] for side in sides])
        stalls = "timelinePage.view.sides.map(({data}) => data.spans.length.reduce((sum, length, at) => sum + length * data.spans.stall[at], 0))"
        self.assertEqual(self.ask(stalls), [side[1] for side in sides])
        factors = self.ask("(() => { const side = timelinePage.view.sides[1]; return side.data.starts.op.map(op => side.facts(op).factor); })()")
        self.assertEqual(factors, [row["limiting_factor"] for row in report["per_collective"]])
        self.assert_buffers_add_up()
        groups = self.ask("[...document.querySelectorAll('#gutter .lane span:first-child')].map(lane => lane.innerText).filter(name => name.startsWith('@'))")
        self.assertGreaterEqual(len(set(groups)), 2)
        for width, height in ((1400, 900), (1000, 600), (700, 900)):
            self.browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
            for start, length in ((0, 1), (0.4, 1e-2), (0.7, 1e-4)):
                self.ask(f"timelinePage.view.setRange(timelinePage.view.span * {start}, timelinePage.view.span * {start + length})")
                self.browser.frame()
                self.assert_no_labels_overlap()
        self.browser.call("Emulation.setDeviceMetricsOverride", width=1400, height=900, deviceScaleFactor=1, mobile=False)

    def test_several_streams_are_rows(self) -> None:
        page = self.make("streams", TWO_STREAMS, "--comm-multi-stream=compute-streams=0,2 gate=false shared-resources=false")
        self.open(page)
        rows = self.ask("timelinePage.view.sides.map(side => side.rows.map(row => row.name))")
        self.assertEqual(rows[0], ["compute", "@dp"])
        self.assertEqual(rows[1], ["compute, stream 0", "@dp", "stream 1", "stream 2"])
        # One computation of 20 us on each stream, in turns, and 1.3 us until stream 0 learns of the end; stream 1 only issues
        # the gather, so it has no row.
        shown = self.ask("[...document.querySelectorAll('#gutter .lane')].map(lane => lane.innerText.split('\\n'))")
        self.assertEqual([row for row in shown if row[0] != "live memory"],
                         [["compute", "100 %"], ["@dp", "75 %"], ["compute, stream 0", "48 %"], ["@dp", "73 %"], ["stream 2", "48 %"]])
        self.assert_buffers_add_up()
        self.assert_no_labels_overlap()

    def test_resources_have_rows(self) -> None:
        # The program of contention.mlir, where the figures are worked out: the gather and the elementwise kernel get half of
        # the memory each until 10 us; the gather ends at 15 us, and the product at 19 us.
        inputs, machine = ROOT / "test/Transforms", self.folder / "contention-machine.json"
        subprocess.run([sys.executable, inputs / "Inputs/with_contention.py", ROOT / "machines/h100-sxm.json", machine,
                        "all_gather:matrix:250:0", "all_gather:memory:1000:1000"], check=True)
        self.open(self.make("contention", inputs / "contention.mlir", f"--comm-machine={machine}"))
        side = "timelinePage.view.sides[0]"
        memory = self.ask(f"{side}.resources.findIndex(resource => resource.name === 'memory')")
        self.assertGreaterEqual(memory, 0)
        level = f"{side}.resources[{memory}].level[upperBound({side}.resources[{memory}].when, {{}}) - 1]"
        self.assertAlmostEqual(self.ask(level.format(5000)), 1, places=3)
        self.assertLess(self.ask(level.format(17000)), 0.01)
        rows = self.ask("[...document.querySelectorAll('#gutter .lane')].map(lane => lane.innerText.split('\\n')[0])")
        self.assertEqual(rows.count("memory"), 2)
        x, y = self.ask(f"(() => {{ const {{view}} = timelinePage, band = view.bands.find(band => band.type === 'resource' && band.resource === {memory});"
                        " const at = view.rows.getBoundingClientRect(); return [at.left + view.xOf(5000), at.top + band.top + 10].map(Math.round); })()")
        self.browser.mouse("mouseMoved", x, y)
        self.browser.frame()
        self.assertEqual(self.text("#tip"), "memory: 100 %")
        self.browser.click(*self.centre(0, self.ask(f"{side}.data.starts.op[0]")))
        facts = self.facts()
        self.assertEqual((facts["runs"], facts["cost"].split(" (")[0], facts["slowed down by"]),
                         ("15.0 us", "10.0 us", "50 %, by what runs at the same time"))
        self.assertIn("6.00 us by contention", self.text("#gutter .title"))
        self.assert_no_labels_overlap()

    def test_one_measurement_has_one_side(self) -> None:
        self.open(self.make("once", STEP, f"--comm-report=timeline-file={self.folder / 'point.html'}"))
        self.open(self.folder / "point.html")
        self.assertEqual(self.ask("timelinePage.view.sides.map(side => side.title)"), ["schedule"])
        self.assertIn("750 ns", self.text("#summary"))

    def test_a_program_without_collectives(self) -> None:
        self.open(self.make("empty", "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %x : tensor<4xf32>\n}\n"))
        self.assertEqual(self.text("#summary"), "No block of this program has collectives.")
        for key in "0p/":
            self.browser.key(key)
        self.browser.click(400, 400)

    def test_several_blocks(self) -> None:
        other = STEP.replace("@step", "@other").replace("time = 300", "time = 500").split("\n", 1)[1]
        self.open(self.make("blocks", STEP + other, "--reorder-comm-overlap=passes=comm-reorder-preserving-peak-memory,comm-sink-waits-preserving-peak-memory"), "#block=other")
        self.assertEqual(self.ask("[...document.getElementById('block').options].map(option => option.text)"), ["step (450 ns)", "other (550 ns)"])
        self.assertIn("550 ns", self.text("#summary"))
        self.ask("(() => { const select = document.getElementById('block'); select.value = 0; select.dispatchEvent(new Event('change')); })()")
        self.browser.frame()
        self.assertIn("450 ns", self.text("#summary"))

    def test_the_page_needs_nothing_else(self) -> None:
        page = self.make("offline", STEP, "--reorder-comm-overlap=passes=comm-reorder-preserving-peak-memory,comm-sink-waits-preserving-peak-memory")
        self.assertNotRegex(page.read_text(), r"https?:|@import|url\(")
        self.open(page)
        self.assertEqual(self.ask("performance.getEntriesByType('resource').length"), 0)

    def test_the_address_holds_the_part_in_view(self) -> None:
        self.open(self.make("address", STEP, "--reorder-comm-overlap=passes=comm-reorder-preserving-peak-memory,comm-sink-waits-preserving-peak-memory"), "#from=100&to=300&side=1&op=0")
        self.assertEqual(self.range(), (100, 300))
        self.assertEqual(self.text("#details h2"), "weights\ncomm.all_gather, after")

    def test_large_graphs(self) -> None:
        for length in (10_000, 100_000):
            self.open(self.make(f"chain-{length}", chain(length, 20)))
            self.assertEqual(self.ask("timelinePage.view.sides[0].count"), length + 2 * ((length + 19) // 20))
            # A frame draws a bounded number of rectangles per pixel and row, whatever is in view.
            most = self.ask("timelinePage.view.bands.filter(band => band.type === 'row').length * (timelinePage.view.plotWidth + 8) * 4")
            for share in (1, 0.1, 0.001):
                self.ask(f"timelinePage.view.setRange(0, timelinePage.view.span * {share}); timelinePage.view.frame()")
                self.assertLess(self.ask("timelinePage.view.statistics.rectangles"), most)
            self.browser.key("0")
            self.ask(f"timelinePage.search('layer_{length - 1}')")
            self.browser.key("n")
            self.assertEqual(self.text("#details h2").split("\n")[0], f"layer_{length - 1}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comm-opt", required=True)
    parser.add_argument("--screenshots", type=Path, help="folder for a picture of the page after each test")
    parser.parse_known_args(namespace=arguments)
    if find_browser() is None:
        print("the timeline page is not opened: no Chromium is installed (Debian package chromium)")
        return SKIPPED
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(PageTest)
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
