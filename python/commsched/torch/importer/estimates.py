# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A user's runtime estimates of collectives that are not nodes.

Single nodes have their estimates in the module. A bucket is not a node yet, so its cost comes from a curve. The curve
is sampled here from the same estimator for every kind, group and element type of collective. The program takes it as
data and not as a function, because ranks that align their costs compare it and agree on one.

An estimator that does not know `override_bytes` gives a curve that contradicts its own estimates of the nodes. The
curve is then drawn through these estimates.
"""

from __future__ import annotations

import dataclasses
import warnings

import torch.fx as fx

from ..options import NS_PER_MS, Estimation, to_ns
from .graph import Importer

# Pairs of bytes and nanoseconds, with strictly ascending bytes.
Points = list[tuple[int, int]]
# A node's bytes, its own estimate in nanoseconds, and the node.
Known = tuple[int, int, fx.Node]
# The sampled sizes: 4 KiB to 16 GiB, one point per octave. The curves are interpolated in between, log-log.
SAMPLED_BYTES = [1 << k for k in range(12, 35)]
# The kinds that are merged, for which override_bytes has a meaning.
SAMPLED_KINDS = ("all_gather", "reduce_scatter", "all_reduce")
# The element types that a curve may name.
ELEMENTS = {"bf16", "f16", "f32", "f64", "i64", "i32", "i16", "i8"}
# A curve contradicts a node if the two differ by more than this factor. An honest curve differs by much less, though it
# is interpolated between octaves.
CONTRADICTION = 2.0


@dataclasses.dataclass(frozen=True)
class Estimates:
    """The times of collectives of one kind on one group: the arguments of `Program.set_curve`."""

    kind: str
    group: str
    element: str | None
    points: Points


def override_bytes(kind: str, bytes_: int, ranks: int) -> int:
    """The size of a collective as PyTorch's estimators count it: inputs and outputs together.

    `bytes_` is the larger of the two.
    """
    return 2 * bytes_ if kind == "all_reduce" else bytes_ + bytes_ // ranks


def sampled(importer: Importer) -> list[Estimates]:
    """What the user's estimator says (`sampled_by`). Empty if there is none."""
    return [] if importer.estimation is None else sampled_by(importer, importer.estimation)


def sampled_by(importer: Importer, estimation: Estimation) -> list[Estimates]:
    """The estimates for each kind, group and element type of the graph. Empty if the estimator gives no answers."""
    estimates, contradicted = [], []
    for (kind, group, element), all_samples in importer.samples.items():
        samples = [s for s in all_samples if isinstance(s[0].args[0], fx.Node)]  # No lists.
        if kind not in SAMPLED_KINDS or not samples:
            continue
        curve = _Curve(estimation, kind, importer.groups.size(group))
        known = _known(estimation, samples)
        points = curve.sampled(samples[0][0])
        wrong = curve.contradiction(known) if points and known else None
        if wrong is not None:
            contradicted.append(wrong)
            points = _through(known)
        if points:
            known_element = element if element in ELEMENTS else None
            estimates.append(Estimates(kind, group[1:].strip('"'), known_element, points))
    if contradicted:
        node, own, asked = contradicted[0]
        warnings.warn(
            f"CommSched: runtime_estimation says {own / NS_PER_MS:.4g} ms of {node.name}, but "
            f"{asked / NS_PER_MS:.4g} ms when it is asked with override_bytes for the same size; collectives cost what "
            "it says of the nodes, and merged ones are interpolated",
            stacklevel=2,
        )
    return estimates


def _known(estimation: Estimation, samples: list[tuple[fx.Node, int]]) -> list[Known]:
    """The nodes that the estimator gives an answer for, by size."""
    known = []
    for node, bytes_ in samples:
        ms = estimation(node)
        if ms is not None and bytes_ > 0:
            known.append((bytes_, max(1, to_ns(ms)), node))
    return sorted(known, key=lambda k: k[:2])


@dataclasses.dataclass
class _Curve:
    """What an estimator says with `override_bytes` about collectives of one kind on groups of `ranks` ranks."""

    estimation: Estimation
    kind: str
    ranks: int

    def at(self, node: fx.Node, bytes_: int) -> int | None:
        """The time in nanoseconds for `bytes_` bytes; None if the estimator gives no answer."""
        ms = self.estimation(node, override_bytes(self.kind, bytes_, self.ranks))
        return None if ms is None else to_ns(ms)

    def sampled(self, node: fx.Node) -> Points:
        """The points of the curve, made monotone. Empty if the estimator has no answer for one of them."""
        points: Points = []
        floor = 1
        for size in SAMPLED_BYTES:
            ns = self.at(node, size)
            if ns is None:
                return []
            floor = max(floor, ns)
            points.append((size, floor))
        return points

    def contradiction(self, known: list[Known]) -> tuple[fx.Node, int, int] | None:
        """(node, its own estimate, the curve's) of the smallest or the largest node if the two disagree about it.

        The estimator is asked with the node's own size, and with another one: an estimator that ignores
        `override_bytes` is right about the first.
        """
        for bytes_, own, node in (known[0], known[-1]):
            asked = self.at(node, bytes_)
            if asked is not None and _disagree(own, asked):
                return node, own, asked
        (small, _, node), (large, dear, _) = known[0], known[-1]
        other = self.at(node, large)
        return (node, dear, other) if other is not None and large > small and _disagree(dear, other) else None


def _disagree(one: int, other: int) -> bool:
    """Whether two times are too far apart to be of one curve."""
    return max(one, other) > CONTRADICTION * max(1, min(one, other))


def _through(known: list[Known]) -> Points:
    """A curve through the nodes' own estimates: level below the smallest, in proportion to bytes above the largest."""
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
    return [(b, points[b]) for b in sorted(points) if b >= min(own) or b == SAMPLED_BYTES[0]]
