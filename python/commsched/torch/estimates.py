"""A user's runtime estimates as an amendment of a machine profile.

Single nodes carry their estimates in the module. A bucket is no node yet: its cost comes from a curve, sampled here from
the same estimator for every kind, group and element type of collective, as a measured table of the profile.
"""

from __future__ import annotations

import json

from .importer import Importer
from .options import machine_file


NS_PER_MS = 1_000_000
# 4 KiB to 16 GiB, four points per octave pair: the tables are interpolated in between, log-log.
SAMPLED_BYTES = [1 << k for k in range(12, 35)]
# Kinds that are merged, and for which override_bytes has a meaning.
SAMPLED_KINDS = ("all_gather", "reduce_scatter", "all_reduce")
ELEMENTS = {"bf16", "f16", "f32", "f64", "i64", "i32", "i16", "i8"}


def override_bytes(kind: str, bytes_: int, ranks: int) -> int:
    """What PyTorch's estimators mean by the size of a collective: inputs and outputs together. `bytes_` is the larger
    of the two."""
    return 2 * bytes_ if kind == "all_reduce" else bytes_ + bytes_ // ranks


def sampled_tables(importer: Importer) -> list[dict]:
    """One table per kind, group and element type of the graph; none where the estimator gives no answers."""
    tables = []
    for (kind, group, element), node in importer.samples.items():
        if kind not in SAMPLED_KINDS:
            continue
        ranks = len(importer.group_ranks[group.strip('"')])
        points, floor = [], 1
        for size in SAMPLED_BYTES:
            ms = importer.estimation(node, override_bytes(kind, size, ranks))
            if ms is None:
                break
            floor = max(floor, round(ms * NS_PER_MS))
            points.append({"bytes": size, "ns": floor})
        if len(points) == len(SAMPLED_BYTES):
            table = {"kind": kind, "group": group.strip('"'), "points": points}
            if element in ELEMENTS:
                table["element"] = element
            tables.append(table)
    return tables


def amended_profile(machine: str, importer: Importer) -> str | None:
    """The profile `machine` with the tables first, as JSON; None where there is nothing to amend."""
    tables = sampled_tables(importer)
    path = machine_file(machine)
    if not tables or path is None:
        return None
    profile = json.loads(path.read_text())
    profile["collectives"] = tables + profile.get("collectives", [])
    return json.dumps(profile)



