# Compares the picture of a timeline with the trace of the same run:
#
#   check_card.py CARD.svg TRACE.json
#
# Of the block whose order took longest before, every kind of bar has, in each order, as much width as its time takes on an
# axis that the longer order fills, and the live bytes are highest where the larger peak is.

import json
import re
import sys
import xml.dom.minidom

LEFT, RIGHT, CURVE, SAME = 180, 1200 - 36, 50, 0.1


def orders_of(trace):
    """The orders of a trace by name: the time of each kind of bar and the makespan in us, and the peak in bytes."""
    names, orders = {}, {}
    for event in trace["traceEvents"]:
        order = orders.setdefault(event["pid"], {"times": {}, "spans": 0, "makespan": 0, "peak": 0})
        if event["ph"] == "M" and event["name"] == "process_name":
            names[event["pid"]] = event["args"]["name"]
        elif event["ph"] == "X":
            kind = event["cat"]
            order["times"][kind] = order["times"].get(kind, 0) + event["dur"]
            order["spans"] += 1
            order["makespan"] = max(order["makespan"], event["ts"] + event["dur"])
        elif event["ph"] == "C" and event["name"] == "live bytes":
            order["peak"] = max(order["peak"], event["args"]["bytes"])
    return {names[pid]: order for pid, order in orders.items()}


def panels_of(card):
    """The paths of each panel, in their order; a panel ends with its rule."""
    panels = [[]]
    for path in card.getElementsByTagName("path"):
        kind = path.getAttribute("class")
        if kind == "rule":
            panels.append([])
        else:
            panels[-1].append((kind, path.getAttribute("d")))
    return panels[:-1]


def widths(panel, kind):
    return [float(w) for k, d in panel if k == kind for w in re.findall(r"h([\d.]+)v", d)]


card, trace = xml.dom.minidom.parse(sys.argv[1]), json.load(open(sys.argv[2]))
orders = orders_of(trace)
block = max((name for name in orders if name.endswith(" before")), key=lambda name: orders[name]["makespan"])
pair = [orders[block], orders[block.removesuffix("before") + "after"]]
longest, most = (max(order[what] for order in pair) for what in ("makespan", "peak"))
panels = panels_of(card)
assert len(panels) == len(pair), f"{len(panels)} panels"
for panel, order in zip(panels, pair):
    for kind, time in order["times"].items():
        drawn, wanted = sum(widths(panel, kind)), time / longest * (RIGHT - LEFT)
        assert abs(drawn - wanted) <= 2 * SAME * order["spans"], f"{kind}: {drawn} pixels, expected {wanted}"
    ((_, area),) = [path for path in panel if path[0] == "memory"]
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", area)]
    drawn, wanted = max(heights) - min(heights), order["peak"] / most * CURVE
    assert abs(drawn - wanted) <= 0.2, f"live memory: {drawn} pixels, expected {wanted}"
text = " ".join(node.firstChild.data for node in card.getElementsByTagName("text"))
assert block.removesuffix(" before") + ":" in text, text
