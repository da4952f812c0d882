# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Programs that nobody chose: model family, sizes, mesh, depth and what is recomputed are drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

from models import decoder
from models.graphs import TraceConfig

HEAD = 128
# Models of the zoo, the numbers of ranks they run on, and their largest number of layers here; 0: it has none.
ZOO = {
    "dit": ((8, 16, 32), 6),
    "vit": ((8, 16, 32), 6),
    "dlrm": ((8, 16), 0),
    "mamba-hybrid": ((8, 16), 4),
    "context-gather": ((8, 16), 2),
    "context-ulysses": ((8,), 2),
    "hybrid": ((16, 32), 2),
    "three-d": ((32, 64), 2),
    "qwen3-moe": ((8, 16), 3),
}


def _decoder(random_numbers: random.Random, name: str, experts: bool) -> TraceConfig:
    """A decoder of drawn dimensions. It is added to the models that can be traced."""
    choose = random_numbers.choice
    heads = choose((8, 16, 32, 40))
    kv_heads = choose([n for n in (8, heads) if heads % n == 0])
    width = heads * HEAD
    sizes = dict(ffn=256 * round(width * choose((2.75, 3.5, 4)) / 256), vocab=choose((32768, 65536, 131072)))
    layers, ranks = choose((2, 3, 4)), choose((8, 16, 32, 64, 128))
    mesh = {"tp": choose((1, 2, 4, 8))}
    if experts:
        mesh = {"ep": choose((4, 8))}
        routed = dict(experts=choose((16, 32, 64)), shared_experts=choose((0, 1, 2)), top_k=choose((2, 4, 6)))
        sizes |= routed | dict(expert_ffn=choose((1024, 1408, 2048)), dense_layers=1)
    decoder.CONFIGS[name] = decoder.ModelConfig(
        name, layers, width, heads, kv_heads, seq=choose((2048, 4096, 8192)), **sizes
    )
    return TraceConfig(name, ranks, **mesh, batch=choose((1, 2)), reshard=choose((True, True, False)))


def graphs(seed: int, count: int) -> Iterator[tuple[str, TraceConfig]]:
    """Models to trace, with a name that says what they are."""
    numbers = random.Random(f"graphs {seed}")
    for index in range(count):
        family = numbers.choice(("dense", "dense", "experts", "zoo"))
        if family == "zoo":
            model = numbers.choice(sorted(ZOO))
            ranks, deepest = ZOO[model]
            layers = numbers.randint(1, deepest) if deepest else None
            config = TraceConfig(model, numbers.choice(ranks), layers=layers, reshard=numbers.random() < 0.7)
            described = f"{model}, {config.ranks} ranks" + (f", {layers} layers" if layers else "")
        else:
            config = _decoder(numbers, f"generated-{seed}-{index}", family == "experts")
            c = decoder.CONFIGS[config.model]
            described = (
                f"{family}, {config.ranks} ranks, tp {config.tp}, ep {config.ep}, {c.layers} x {c.dim}, {c.seq} tokens"
            )
        yield f"g{index}: {described}{'' if config.reshard else ', no reshard'}", config


def modules(seed: int, count: int) -> Iterator[dict]:
    """Configurations of `jax_programs`."""
    numbers = random.Random(f"modules {seed}")
    for index in range(count):
        choose = numbers.choice
        heads = choose((8, 16, 32))
        experts = numbers.random() < 0.3
        devices = choose((8, 16, 32, 64))
        config = dict(
            kind="moe" if experts else "dense",
            devices=devices,
            tensor=choose((4, 8)) if experts else choose((1, 1, 2, 4, 8)),
            layers=choose((2, 3, 4, 6)),
            scanned=numbers.random() < 0.5,
            width=heads * HEAD,
            hidden=heads * HEAD * choose((2, 3, 4)),
            heads=heads,
            kv_heads=8,
            vocabulary=choose((16384, 32768, 65536)),
            sequence=choose((1024, 2048, 4096)),
            rows=choose((1, 1, 2)),
            attention=numbers.random() < 0.8,
            donates=numbers.random() < 0.3,
        )
        loop = "scanned" if config["scanned"] else "unrolled"
        name = (
            f"m{index}: {config['kind']}, {devices} devices, tensor {config['tensor']}, {config['layers']} x "
            f"{config['width']}, {loop}, {config['sequence']} tokens"
        )
        yield dict(name=name, **config)
