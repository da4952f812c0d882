"""A user's runtime estimates as an amendment of a machine profile.

Single nodes carry their estimates in the module. A bucket is no node yet: its cost comes from a curve, sampled here from
the same estimator for every kind, group and element type of collective, as a measured table of the profile. An estimator
that does not know what `override_bytes` means gives a curve that contradicts what it says of the nodes; the curve is then
drawn through the nodes' own estimates.
"""

from __future__ import annotations

import json
import warnings

from ..options import NS_PER_MS, machine_file, to_ns
from .graph import Importer

# 4 KiB to 16 GiB, one point per octave: the tables are interpolated in between, log-log.
SAMPLED_BYTES = [1 << k for k in range(12, 35)]
# Kinds that are merged, and for which override_bytes has a meaning.
SAMPLED_KINDS = ("all_gather", "reduce_scatter", "all_reduce")
ELEMENTS = {"bf16", "f16", "f32", "f64", "i64", "i32", "i16", "i8"}
# A curve contradicts a node if it is off by more than this factor there. Interpolated between octaves, an honest one is
# off by much less.
CONTRADICTION = 2.0


def override_bytes(kind: str, bytes_: int, ranks: int) -> int:
    """What PyTorch's estimators mean by the size of a collective: inputs and outputs together. `bytes_` is the larger
    of the two."""
    return 2 * bytes_ if kind == "all_reduce" else bytes_ + bytes_ // ranks


def sampled_tables(importer: Importer) -> list[dict]:
    """One table per kind, group and element type of the graph; none where the estimator gives no answers."""
    tables, contradicted = [], []
    for (kind, group, element), samples in importer.samples.items():
        if kind not in SAMPLED_KINDS:
            continue
        ranks = len(importer.group_ranks[group.strip('"')])
        known = _known(importer, samples)
        points = _sampled(importer, samples[0][0], kind, ranks)
        wrong = _contradiction(importer, known, kind, ranks) if points and known else None
        if wrong is not None:
            contradicted.append(wrong)
            points = _through(known)
        if points:
            table = {"kind": kind, "group": group.strip('"'), "points": points}
            if element in ELEMENTS:
                table["element"] = element
            tables.append(table)
    if contradicted:
        node, own, curve = contradicted[0]
        warnings.warn(
            f"CommSched: runtime_estimation says {own / NS_PER_MS:.4g} ms of {node.name} but {curve / NS_PER_MS:.4g} ms when it "
            "is asked with override_bytes for the same size; collectives are taken to cost what it says of the nodes, and "
            "merged ones what lies between",
            stacklevel=2,
        )
    return tables


def _known(importer: Importer, samples: list) -> list[tuple]:
    """(bytes, ns, node) of the nodes that the estimator gives an answer for, by size."""
    known = []
    for node, bytes_ in samples:
        ms = importer.estimation(node)
        if ms is not None and bytes_ > 0:
            known.append((bytes_, max(1, to_ns(ms)), node))
    return sorted(known, key=lambda k: k[:2])


def _sampled(importer: Importer, node, kind: str, ranks: int) -> list[dict]:
    points, floor = [], 1
    for size in SAMPLED_BYTES:
        ms = importer.estimation(node, override_bytes(kind, size, ranks))
        if ms is None:
            return []
        floor = max(floor, to_ns(ms))
        points.append({"bytes": size, "ns": floor})
    return points


def _contradiction(importer: Importer, known: list, kind: str, ranks: int):
    """(node, its own estimate, the curve's) of the smallest or largest node that the two disagree about; or None. Asked
    with the node's own size, and with another: an estimator that ignores `override_bytes` is right about the first."""
    for bytes_, own, node in (known[0], known[-1]):
        curve = to_ns(importer.estimation(node, override_bytes(kind, bytes_, ranks)))
        if max(own, curve) > CONTRADICTION * max(1, min(own, curve)):
            return node, own, curve
    (small, _, node), (large, dear, _) = known[0], known[-1]
    other = to_ns(importer.estimation(node, override_bytes(kind, large, ranks)))
    wrong = large > small and max(dear, other) > CONTRADICTION * max(1, min(dear, other))
    return (node, dear, other) if wrong else None


def _through(known: list) -> list[dict]:
    """A curve through the nodes' own estimates: level below the smallest, in proportion to the bytes above the largest."""
    own: dict[int, int] = {}
    floor = 1
    for bytes_, ns, _ in known:
        own[bytes_] = floor = max(floor, ns)
    largest = max(own)
    points = {
        SAMPLED_BYTES[0]: own[min(own)],
        **own,
        SAMPLED_BYTES[-1]: round(own[largest] * SAMPLED_BYTES[-1] / largest),
    }
    return [{"bytes": b, "ns": points[b]} for b in sorted(points) if b >= min(own) or b == SAMPLED_BYTES[0]]


def amended_profile(machine: str, importer: Importer) -> str | None:
    """The profile `machine` with the tables first, as JSON; None where there is nothing to amend."""
    tables = sampled_tables(importer)
    path = machine_file(machine)
    if not tables or path is None:
        return None
    profile = json.loads(path.read_text())
    profile["collectives"] = tables + profile.get("collectives", [])
    return json.dumps(profile)
