#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds the documentation's site with `mkdocs build --strict`, and opens it in a headless Chromium, wide and narrow.

    site_test.py [--screenshots DIR]

Runs with the Python that has the packages of python/requirements-docs.txt. Exit code 77 if they, or Chromium, are not
installed.
"""

import argparse
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections import Counter
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "test/Report"))
from browser import Browser, find_browser  # noqa: E402

SKIPPED = 77
PACKAGES = ("mkdocs", "material", "mkdocstrings_handlers", "markdown_it")
arguments = argparse.Namespace()

WIDE, NARROW = 1280, 390
SECTIONS = ["Start", "Guides", "Concepts", "Reference", "Research", "Contribute"]
# Indexed by page: its heading. They have a picture, wide tables, long lines of code, and docstrings.
PAGES = {
    "index.html": "CommSched: hide communication behind computation, and prove how close you are",
    "docs/guide/PyTorch.html": "CommSched for PyTorch",
    "docs/research/results/overlap.html": "Results: CommSched and PyTorch's overlap scheduler",
    "docs/guide/PythonApi.html": "Python API",
}


class SiteBrowser(Browser):
    """A browser that notes which addresses a page asks for, and which it does not get."""

    def __init__(self, path: str):
        self.requests: list[str] = []
        self.failures: list[str] = []
        super().__init__(path, WIDE, 900)
        self.call("Network.enable")

    def note(self, message: dict) -> None:
        super().note(message)
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Network.responseReceived" and parameters["response"]["status"] >= 400:
            self.failures.append(f"{parameters['response']['status']} {parameters['response']['url']}")
        elif method == "Network.loadingFailed" and not parameters.get("canceled"):
            self.failures.append(f"{parameters['errorText']} {parameters['type']}")


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def blocks_of(html: str) -> Counter[str]:
    """The numbers of lists, code blocks, tables and headings. The theme adds a first heading if there is none."""
    return Counter(re.findall(r"<(ul|ol|li|pre|table|tr|h[2-6])[ >]", html))


class SiteTest(unittest.TestCase):
    """One site and one browser for all tests."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.site = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        # Without the variable, mkdocs-material speaks of its successor.
        environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
        command = [sys.executable, "-B", "-m", "mkdocs", "build", "--strict", "--site-dir", str(cls.site)]
        built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if built.returncode != 0:
            raise AssertionError(f"mkdocs build --strict failed:\n{built.stdout}{built.stderr}")
        handler = functools.partial(Handler, directory=str(cls.site))
        server = cls.enterClassContext(ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cls.addClassCleanup(server.shutdown)
        cls.address = f"http://127.0.0.1:{server.server_port}/"
        cls.browser = cls.enterClassContext(SiteBrowser(find_browser()))

    def tearDown(self) -> None:
        self.assertEqual(self.browser.exceptions, [])
        self.assertEqual(self.browser.failures, [])
        elsewhere = [address for address in self.browser.requests if not address.startswith((self.address, "data:"))]
        self.assertEqual(elsewhere, [], "a page asks another host")

    def resize(self, width: int) -> None:
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.browser.call("Emulation.setDeviceMetricsOverride", **metrics)
        self.browser.frame()

    def open(self, page: str) -> None:
        """Opens a page in a wide window. This is what takes the time: every page makes the index of the search anew."""
        self.resize(WIDE)
        self.browser.open(self.address + page)

    def ask(self, expression: str) -> object:
        return self.browser.ask(expression)

    def seen(self, selector: str) -> list[str]:
        """The texts of the elements that are not hidden and whose whole width is in the window."""
        return self.ask(f"""[...document.querySelectorAll({json.dumps(selector)})].filter(element => {{
            const box = element.getBoundingClientRect();
            return element.checkVisibility({{visibilityProperty: true, opacityProperty: true}})
                && box.width > 0 && box.left >= 0 && box.right <= innerWidth;
        }}).map(element => element.innerText.replace("\u00b6", "").trim())""")

    def click(self, selector: str) -> None:
        """Clicks on an element, and waits until nothing moves any more."""
        self.browser.click(
            *self.ask(f"""(() => {{
            const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();
            return [box.left + box.width / 2, box.top + box.height / 2];
        }})()""")
        )
        self.ask("Promise.allSettled(document.getAnimations().map(animation => animation.finished)).then(() => 1)")

    def test_pages_fit_both_widths(self) -> None:
        for page, heading in PAGES.items():
            self.open(page)
            images = "[...document.querySelectorAll('article img')]"
            pictures = self.ask(f"{images}.filter(image => image.naturalWidth > 0).length")
            self.assertEqual(pictures, (self.site / page).read_text().count("<img "))
            for width in (WIDE, NARROW):
                with self.subTest(page=page, width=width):
                    self.resize(width)
                    self.assertEqual(self.seen("article h1"), [heading])
                    self.assertEqual(len(self.seen("article img")), pictures)
                    self.assertLessEqual(self.ask("document.documentElement.scrollWidth"), width)
                    if arguments.screenshots:
                        name = page.removesuffix(".html").replace("/", "-")
                        self.browser.screenshot(arguments.screenshots / f"{name}-{width}.png")

    def test_navigation(self) -> None:
        self.open("docs/guide/PyTorch.html")
        self.assertEqual(self.seen(".md-tabs__link"), SECTIONS)
        self.assertIn("JAX", self.seen(".md-sidebar--primary a"))
        self.assertIn("Install", self.seen(".md-sidebar--secondary a"))
        # A narrow window has all of it in a drawer.
        self.resize(NARROW)
        self.assertEqual(self.seen(".md-tabs__link, .md-sidebar a"), [])
        self.click(".md-header label[for=__drawer]")
        self.assertIn("JAX", self.seen(".md-sidebar--primary a"))

    def test_both_themes(self) -> None:
        self.open("docs/guide/Glossary.html")
        self.assertEqual(self.ask("document.body.dataset.mdColorScheme"), "default")
        self.click("label[title='Dark theme']")
        self.assertEqual(self.ask("document.body.dataset.mdColorScheme"), "slate")
        self.click("label[title='Light theme']")

    def test_search_finds_pages(self) -> None:
        self.open("docs/guide/Glossary.html")
        self.ask("document.querySelector('.md-search__input').focus()")
        for key in "certificate":
            self.browser.key(key)
        while "matching document" not in self.ask("document.querySelector('.md-search-result__meta').innerText"):
            time.sleep(0.02)
        found = self.ask("[...document.querySelectorAll('.md-search-result__link')].map(link => link.pathname)")
        self.assertIn("/docs/guide/Certificate.html", found)

    def test_pages_read_as_on_github(self) -> None:
        """mkdocs' Markdown is not CommonMark: it needs an empty line before a list, and nests by four blanks."""
        from markdown_it import MarkdownIt

        commonmark = MarkdownIt("commonmark").enable("table")
        for built in sorted(self.site.rglob("*.html")):
            page = ROOT / built.relative_to(self.site).with_suffix(".md")
            if page.stem in ("404", "PythonApi"):
                continue
            if page.stem == "index":
                page = page.with_name("README.md")
            with self.subTest(page=str(page.relative_to(ROOT))):
                article = re.search(r"<article.*?</article>", built.read_text(), re.DOTALL).group()
                article = re.sub(r'<div class="toc">.*?</div>', "", article, flags=re.DOTALL)
                self.assertEqual(blocks_of(article), blocks_of(commonmark.render(page.read_text())))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--screenshots", type=Path, help="folder for a picture of each page that is opened")
    parser.parse_known_args(namespace=arguments)
    # The words that scripts/test.sh looks for.
    skipped = "SKIPPED [1] test/docs/site_test.py: the site of the documentation is not built:"
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        print(skipped, f"no {', '.join(missing)} (scripts/setup.sh installs python/requirements-docs.txt)")
        return SKIPPED
    if find_browser() is None:
        print(skipped, "no Chromium is installed (Debian package chromium)")
        return SKIPPED
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(SiteTest)
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
