# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The models of the zoo in the dimensions of published ones, for graphs that nobody has to run."""

from __future__ import annotations

from collections.abc import Callable

from . import models, parallel
from .job import Sizes

LLAMA = Sizes(
    rows=1, layers=32, width=4096, heads=32, head=128, kv_heads=8, inner=14336, vocabulary=128256, sequence=8192
)

# Indexed by name: the model, and its sizes on the given number of ranks.
REAL: dict[str, tuple[Callable, Callable[[int], Sizes]]] = {
    # Qwen3-30B-A3B: 128 experts of 768, of which a token chooses 8.
    "qwen3-moe": (
        models.qwen3_moe,
        lambda ranks: Sizes(
            rows=1,
            layers=48,
            width=2048,
            heads=32,
            head=128,
            kv_heads=4,
            vocabulary=151936,
            sequence=4096,
            own_experts=max(1, 128 // ranks),
            chosen=8,
            expert_inner=768,
        ),
    ),
    # 256 experts of 2048 and a shared one, of which a token chooses 8; the first three layers are dense.
    "deepseek-v3": (
        models.deepseek_v3,
        lambda ranks: Sizes(
            rows=1,
            layers=61,
            width=7168,
            heads=128,
            head=128,
            inner=18432,
            vocabulary=129280,
            sequence=4096,
            dense=3,
            own_experts=max(1, 256 // ranks),
            chosen=8,
            expert_inner=2048,
            query=1536,
            narrow=512,
            rotary=64,
        ),
    ),
    # The widths of Jamba, without its experts. The states of a scan are stored, which a fused kernel does not do.
    "mamba-hybrid": (
        models.mamba_hybrid,
        lambda ranks: Sizes(
            rows=1, layers=32, width=4096, heads=32, head=128, kv_heads=8, vocabulary=65536, sequence=2048, state=16
        ),
    ),
    # DiT-XL/2 on latents of 32 x 32 with 4 channels.
    "dit": (
        models.dit,
        lambda ranks: Sizes(
            rows=32, layers=28, width=1152, heads=16, head=72, inner=4608, image=32, channels=4, patch=2, classes=1000
        ),
    ),
    # ViT-L/16 on images of 224 x 224.
    "vit": (
        models.vit_replicated,
        lambda ranks: Sizes(
            rows=64, layers=24, width=1024, heads=16, head=64, inner=4096, image=224, patch=16, classes=1000
        ),
    ),
    # 26 tables and more, so that every rank has the same number of them.
    "dlrm": (
        models.dlrm,
        lambda ranks: Sizes(rows=2048, width=128, inner=1024, tables=-(-26 // ranks), entries=4_000_000, lookups=20),
    ),
    # Llama-3-8B. Each rank has `sequence` positions of a longer sequence, or a piece of every layer.
    "context-gather": (parallel.context_gather, lambda ranks: LLAMA),
    "context-ulysses": (parallel.context_ulysses, lambda ranks: LLAMA),
    "context-ring": (parallel.context_ring, lambda ranks: LLAMA),
    "hybrid": (parallel.hybrid, lambda ranks: LLAMA),
    "two-d": (parallel.two_d, lambda ranks: LLAMA),
    "three-d": (parallel.three_d, lambda ranks: LLAMA),
}
