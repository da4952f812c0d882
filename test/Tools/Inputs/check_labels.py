"""Checks that no two labels of a curve's picture run into each other: check_labels.py FILE.svg. Letters count with 6 pixels."""

import itertools
import re
import sys

text = open(sys.argv[1]).read()
boxes = []
for kind, x, y, anchor, label in re.findall(
    r"<text class='(label|inputlabel|boundlabel)' x='([\d.]+)' y='([\d.]+)' text-anchor='(\w+)'>([^<]*)<", text
):
    width = 6 * len(label)
    left = float(x) - (width if anchor == "end" else 0)
    boxes.append((label, left, float(y) - 10, left + width, float(y) + 3))
for x, y, label in re.findall(r"<text class='boundlabel' transform='translate\(([\d.]+) ([\d.]+)\) rotate[^>]*>([^<]*)<", text):
    boxes.append((label, float(x) - 10, float(y), float(x) + 3, float(y) + 6 * len(label)))
assert len(boxes) >= 4, boxes
for (a, *p), (b, *q) in itertools.combinations(boxes, 2):
    assert p[2] <= q[0] or q[2] <= p[0] or p[3] <= q[1] or q[3] <= p[1], f"'{a}' runs into '{b}'"
