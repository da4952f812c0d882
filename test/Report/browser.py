# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A headless Chromium that a test drives through the DevTools protocol, over a pair of pipes: no port, no library."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Containers run as root and have a small /dev/shm.
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"]


def find_browser() -> str | None:
    """The path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class PageError(Exception):
    """The page raised an exception."""


class Browser:
    """One tab. Use as a context manager."""

    def __init__(self, path: str, width: int = 1400, height: int = 900):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self.to_write = os.pipe()
        self.from_read, from_write = os.pipe()
        # Chromium reads commands from descriptor 3 and writes answers to descriptor 4. dup2 through high numbers, because
        # the pipes themselves may be 3 or 4.
        def connect() -> None:
            high = [os.dup2(to_read, 100), os.dup2(from_write, 101)]
            for source, target in zip(high, (3, 4), strict=True):
                os.dup2(source, target)

        self.process = subprocess.Popen(
            [path, *FLAGS, f"--user-data-dir={self.folder.name}", f"--window-size={width},{height}", "about:blank"],
            preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.buffer = b""
        self.next_id = 0
        self.session = None
        self.exceptions: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        tab = next(target["targetId"] for target in targets if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.to_write)
        os.close(self.from_read)
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def receive(self) -> dict:
        """The next message, which ends in a zero byte."""
        while b"\0" not in self.buffer:
            data = os.read(self.from_read, 1 << 16)
            if not data:
                raise PageError("the browser has ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def note(self, message: dict) -> None:
        if message.get("method") == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            self.exceptions.append(details.get("exception", {}).get("description", details["text"]))

    def call(self, method: str, **parameters: object) -> dict:
        """Sends a command and waits for its answer."""
        self.next_id += 1
        command = {"id": self.next_id, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.to_write, json.dumps(command).encode() + b"\0")
        while True:
            message = self.receive()
            if message.get("id") == self.next_id:
                if "error" in message:
                    raise PageError(f"{method}: {message['error']['message']}")
                return message["result"]
            self.note(message)

    def open(self, address: str) -> None:
        """Opens a page and waits until it is loaded. A page that is open at another fragment is loaded anew."""
        for url in ("about:blank", address):
            protocol = url.partition(":")[0] + ":"
            self.call("Page.navigate", url=url)
            while self.ask("location.protocol + document.readyState") != protocol + "complete":
                time.sleep(0.02)
        self.frame()

    def ask(self, expression: str) -> object:
        """The value of a JavaScript expression; promises are awaited."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise PageError(f"{expression}: {details.get('exception', {}).get('description', details['text'])}")
        return result["result"].get("value")

    def frame(self) -> None:
        """Waits until the page has drawn what it was asked to."""
        self.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def mouse(self, kind: str, x: float, y: float, **more: object) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        self.mouse("mousePressed", x, y, button="left", clickCount=1, buttons=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)
        self.frame()

    def drag(self, x0: float, y0: float, x1: float, y1: float, modifiers: int = 0) -> None:
        self.mouse("mousePressed", x0, y0, button="left", clickCount=1, buttons=1, modifiers=modifiers)
        for share in (0.5, 1):
            self.mouse("mouseMoved", x0 + (x1 - x0) * share, y0 + (y1 - y0) * share, button="left", buttons=1, modifiers=modifiers)
        self.mouse("mouseReleased", x1, y1, button="left", clickCount=1, modifiers=modifiers)
        self.frame()

    def wheel(self, x: float, y: float, delta: float, modifiers: int = 0) -> None:
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=delta, modifiers=modifiers)
        self.frame()

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.frame()

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
