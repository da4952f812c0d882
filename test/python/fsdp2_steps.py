# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Steps of chains of modules with random sizes, and all settings of FSDP2 for them, for a search by brute force."""

import itertools
import random

from commsched.torch.eager.step import Event, Moment, Parameter, Step, Stretch, Unit
from commsched.torch.fsdp2.setting import Group, Setting

MIB = 2**20


def chain(seed, modules):
    """A step of `modules` modules that are called one after the other."""
    rng = random.Random(seed)
    units, events, level, widths, kept = (
        [Unit("", ())],
        [Stretch(), Event(Moment.ENTER, 0)],
        0,
        [],
        [],
    )

    def compute(cost, peak, end, gradients=()):
        events.append(Stretch(cost, peak, end, list(gradients)))

    for i in range(1, modules + 1):
        widths.append(64 * rng.choice([1, 4, 16, 64]))
        units.append(Unit(f"m{i}", (Parameter(f"w{i}", (widths[-1], 1024), 4, 2, 2, True),), i))
        kept.append(rng.choice([0, 1, 4]) * MIB)
        events.append(Event(Moment.ENTER, i))
        compute(
            rng.randrange(5000, 400_000),
            level + kept[-1] + rng.choice([0, MIB]),
            level + kept[-1],
        )
        level += kept[-1]
        events.append(Event(Moment.LEAVE, i))
        compute(0, level, level)
    events.append(Event(Moment.LEAVE, 0))
    compute(10_000, level, level)
    events.append(Event(Moment.ENTER_BACKWARD, 0))
    compute(1000, level, level)
    for i in range(modules, 0, -1):
        gradient = widths[i - 1] * 1024 * 2
        end = level + gradient - kept[i - 1]
        events.append(Event(Moment.ENTER_BACKWARD, i))
        compute(rng.randrange(10_000, 800_000), level + gradient, end, [(f"w{i}", gradient)])
        level = end
        if i > 1 or rng.random() < 0.5:  # The inputs of the first module may need no gradient.
            events.append(Event(Moment.LEAVE_BACKWARD, i))
            compute(0, level, level)
    return Step(units, modules + 1, events, [])


def every_setting(modules, ahead=4, buffers=4, parts=()):
    """Every way to group the modules, to leave some to the root, and to keep groups or, given `parts`, what so many
    ranks keep of them; with lists of equal lengths."""
    for count in range(modules):
        for root in itertools.combinations(range(1, modules + 1), count):
            rest = [u for u in range(1, modules + 1) if u not in root]
            for cuts in itertools.product([False, True], repeat=len(rest) - 1):
                groups = [[rest[0]]]
                for unit, cut in zip(rest[1:], cuts):
                    groups.append([unit]) if cut else groups[-1].append(unit)
                for reshard in itertools.product([True, False, *parts], repeat=len(groups)):
                    for forward, backward, held in itertools.product(range(ahead), range(ahead), range(1, buffers + 1)):
                        own = [Group(tuple(g), r, forward, backward) for g, r in zip(groups, reshard)]
                        yield Setting((Group((0, *root), False, forward, backward), *own), held)


def some_setting(seed, fine, parts=()):
    """A random setting, given the one with the smallest groups, and numbers of ranks that groups are resharded to."""
    import dataclasses

    rng = random.Random(seed)

    def lists():
        return {"forward_ahead": rng.randrange(4), "backward_ahead": rng.randrange(4)}

    root, groups = list(fine.groups[0].units), []
    for group in fine.groups[1:]:
        group = dataclasses.replace(group, reshard=rng.random() < 0.6, **lists())
        if parts and rng.random() < 0.5:
            group = dataclasses.replace(group, reshard=rng.choice(parts))
        if rng.random() < 0.2:
            root += group.units
        elif groups and rng.random() < 0.4 and not group.alone and not groups[-1].alone:
            groups[-1] = dataclasses.replace(groups[-1], units=groups[-1].units + group.units)
        else:
            groups.append(group)
    first = Group(tuple(sorted(root)), rng.random() < 0.2, **lists())
    return Setting((first, *groups), rng.randrange(1, 4))
