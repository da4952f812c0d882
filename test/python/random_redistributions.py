# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Random steps of DTensors as Python source, with the arguments of `random_steps`."""

import random


def redistributions(seed: int, mesh: int) -> str:
    """A step of DTensors on a mesh of 1 or 2 dimensions: products and redistributions, forward and backward."""
    r = random.Random(seed)
    one = ["Shard(0)", "Shard(1)", "Replicate()"]

    def placements() -> str:
        return f"[{', '.join(r.choice(one) for _ in range(mesh))}]"

    lines = [
        f"p0 = DTensor.from_local(x, M, {placements()}, run_check=False)",
        "p1 = p0.redistribute(M, [Replicate()] * M.ndim)",
    ]
    names = ["p0", "p1"]
    for k in range(2, r.randint(6, 12)):
        n = r.choice(names[-3:])
        lines.append(
            f"p{k} = "
            + r.choice(
                [
                    f"{n}.redistribute(M, {placements()})",
                    f"{n}.redistribute(M, {placements()})",
                    f"({n}.t() @ {n}).clamp(-8, 8)",
                    f"({n} @ {n}.t()).clamp(-8, 8)",
                    f"{n}.t()",
                    f"{n} + {n}.redistribute(M, {placements()})",
                    f"{n}.sum({r.randrange(2)}, keepdim=True).clamp(-8, 8) + {n}",
                    f"torch.relu({n} - {r.choice([1, 2])})",
                ]
            )
        )
        names.append(f"p{k}")
    some = [n for n in names[1:] if r.random() < 0.4] + names[-1:]
    total = " + ".join(f"{n}.redistribute(M, [Replicate()] * M.ndim).to_local().sum()" for n in some)
    return "def step(x, w, i, a, b, e):\n    " + "\n    ".join([*lines, f"return {total} + (x @ w).sum()"]) + "\n"
