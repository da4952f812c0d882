#===- passes.py - Pipelines that random programs go through -------------------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# A pipeline is a list of options of comm-opt, one pass each, so that it can be made shorter.
#
#===---------------------------------------------------------------------------------------------------------------===#

import random

UPSTREAM = ["--canonicalize", "--cse", "--inline", "--loop-invariant-code-motion", "--control-flow-sink", "--sccp",
            "--symbol-dce"]
STREAMS = "--comm-multi-stream=compute-streams=0,2 comm-streams=1 shared-resources=false sync-overhead-ns=0 gate=false"
PLAN = ["--comm-bufferize", "--comm-plan-buffers"]
OURS = ["--comm-schedule=effort=3000", "--comm-schedule=effort=3000 memory-budget-ratio=1.0",
        "--comm-schedule=effort=1000 memory-budget-ratio=0.5", "--reorder-comm-overlap=effort=3000",
        "--reorder-comm-overlap=effort=3000 memory-budget-ratio=1", "--reorder-comm-overlap=passes=comm-reorder-preserving-peak-memory,comm-sink-waits-preserving-peak-memory",
        "--comm-raise", "--comm-sink-waits", "--comm-sink-waits-preserving-peak-memory",
        "--comm-reorder-preserving-peak-memory", "--comm-reorder-compute-for-overlap", "--comm-order-collectives",
        "--comm-order-fsdp", "--comm-bucket", "--comm-bucket=form=coalesced", "--comm-bucket=mixed-types",
        "--comm-realize-buffers", "--comm-realize-buffers=one-shot-threshold-bytes=0", "--comm-realize-buffers",
        "--comm-decompose-all-to-all", "--comm-move-casts", "--comm-reinplace-all-gather", "--comm-remove-unsharded-param-usage",
        "--comm-split-strands=force max-strands=2", "--comm-plan-memory=force=again effort=0",
        "--comm-plan-memory=force=mixed effort=1000", "--comm-plan-memory=force=keep effort=0",
        "--comm-plan-memory=effort=1000 memory-budget-ratio=1", STREAMS]
WHOLE = [[STREAMS, *PLAN], PLAN, ["--comm-realize-buffers", *PLAN], ["--comm-bufferize"],
         ["--reorder-comm-overlap=effort=2000 passes=func.func(canonicalize),comm-schedule"],
         ["--reorder-comm-overlap=effort=2000 passes=cse,comm-schedule"],
         ["--comm-bucket", "--comm-schedule=effort=2000", "--comm-realize-buffers"],
         ["--comm-bufferize", "--comm-plan-buffers", "--comm-schedule=effort=1000"],
         ["--comm-bufferize", "--comm-schedule=effort=1000", "--comm-plan-buffers"]]


# Only devices have streams.
STREAMED = [[STREAMS, *PLAN], ["--comm-schedule=effort=1000", STREAMS, *PLAN], [STREAMS, "--comm-bufferize"], [STREAMS]]


# Loops and branches become basic blocks.
BLOCKS = [["--lower-affine", "--convert-scf-to-cf"], ["--lower-affine", "--convert-scf-to-cf", "--comm-schedule=effort=1000"],
          ["--lower-affine", "--convert-scf-to-cf", "--canonicalize", "--comm-raise", "--comm-sink-waits"],
          ["--reorder-comm-overlap=effort=1000", "--lower-affine", "--convert-scf-to-cf"], ["--lower-affine", "--convert-scf-to-cf", *PLAN],
          ["--comm-bufferize", "--lower-affine", "--convert-scf-to-cf", "--comm-schedule=effort=1000", "--comm-sink-waits"]]
BLOCKS_SHARE = 0.4  # of batches


def has_streams(passes):
    return STREAMS in passes


def has_certificate(passes):
    """Whether comm-opt can write one of what the passes do."""
    return any(p.startswith(("--comm-schedule", "--reorder-comm-overlap")) for p in passes)


def pipeline(rng):
    """A pass alone, a known combination, or passes in a random order, upstream's among them."""
    kind = rng.random()
    if kind < 0.35:
        return [rng.choice(OURS)]
    if kind < 0.5:
        return rng.choice(WHOLE)
    if kind < 0.6:
        return [rng.choice(UPSTREAM)]
    chosen = [rng.choice(OURS + UPSTREAM) for _ in range(rng.randint(2, 4))]
    return chosen + (PLAN if rng.random() < 0.25 else [])


def pipelines(seed, count, on_device=False):
    """Different ones. With a device, one of them uses its streams in two batches of three."""
    rng = random.Random(f"passes {seed}")
    found = [rng.choice(STREAMED)] if on_device and rng.random() < 0.67 else []
    while len(found) < count:
        candidate = pipeline(rng)
        if candidate not in found:
            found.append(candidate)
    blocks = random.Random(f"blocks {seed}")
    if blocks.random() < BLOCKS_SHARE:
        found[-1] = blocks.choice(BLOCKS)
    return found
