# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reads the data of a page with timelines, as a browser finds it."""

import html.parser
import json
import pathlib


class Scripts(html.parser.HTMLParser):
    """The texts of a page's scripts, as a parser of HTML finds their ends."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.is_inside = False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.is_inside = tag == "script"
        if self.is_inside:
            self.found.append((dict(attributes), ""))

    def handle_endtag(self, tag):
        self.is_inside = False

    def handle_data(self, data):
        if self.is_inside:
            attributes, text = self.found[-1]
            self.found[-1] = (attributes, text + data)


def sides_of(page):
    """The data of a page: its notes, and each side with its tables as lists of dicts with texts in place of numbers."""
    scripts = Scripts(pathlib.Path(page).read_text()).found
    assert [attributes.get("id") for attributes, _ in scripts] == ["data", None]
    data = json.loads(scripts[0][1])
    (block,) = data["blocks"]
    sides = []
    for side in block["sides"]:
        for name in ("ops", "starts", "waits", "spans"):
            side[name] = [dict(zip(side[name], row)) for row in zip(*side[name].values())]
        for op in side["ops"]:
            op["kind"], op["group"] = (data["strings"][n] if n >= 0 else "" for n in (op["kind"], op["group"]))
        side["figures"] = {f["name"]: f["ns"] for f in side["figures"]}
        sides.append(side)
    return data["notes"], sides
