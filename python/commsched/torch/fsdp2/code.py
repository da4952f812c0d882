# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A setting of FSDP2 as lines of Python that need no CommSched."""

from __future__ import annotations

from .layout import Layout
from .setting import Setting


def code_of(setting: Setting, names: list[list[str]], layout: Layout, lists_only: bool) -> str:
    """Lines that make the groups and set the lists.

    Args:
        names: indexed by group, without the root's: the names of its modules.
        lists_only: the groups are there.
    """
    groups = setting.groups
    others = {i: g.reshard for i, g in enumerate(groups[1:]) if g.reshard is not True}
    forward = {i: t for i in range(len(groups)) if (t := setting.forward_targets(i))}
    backward = {i: t for i in range(len(groups)) if (t := setting.backward_targets(i))}
    lines = []
    if not lists_only:
        mesh = f"mesh ({layout}), " if layout.replicas else "mesh, "
        lines += [
            "from torch.distributed.fsdp import fully_shard",
            "",
            f"options = {{}}  # {mesh}mp_policy, offload_policy: those of your job",
        ]
    lines += [f"groups = {names!r}", "groups = [[model.get_submodule(name) for name in names] for names in groups]"]
    if not lists_only:
        reshard = f"{others!r}.get(i, True)" if others else "True"
        lines += [
            "for i, modules in enumerate(groups):",
            f"    fully_shard(modules, reshard_after_forward={reshard}, **options)",
            f"fully_shard(model, reshard_after_forward={groups[0].reshard}, **options)",
        ]
    if forward or backward:
        lines.append("heads = [model, *(modules[0] for modules in groups)]")
    for targets, pass_ in ((forward, "forward"), (backward, "backward")):
        if targets:
            lines += [
                f"for i, targets in {targets!r}.items():",
                f"    heads[i].set_modules_to_{pass_}_prefetch([heads[t] for t in targets])",
            ]
    if not lists_only and setting.reduce_buffers > 1:
        lines.append(f"model.set_reduce_scatter_max_input_buffers({setting.reduce_buffers})")
    return "\n".join(lines) + "\n"
