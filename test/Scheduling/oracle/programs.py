# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small random programs and machines.

A program is a straight line of computations, casts, views, starts and waits over tensors of one dimension. A machine
is a profile as users write it. Both depend on the seed alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

WIDTHS = {"f32": 4, "bf16": 2, "f16": 2, "f64": 8}
RANKS = 8
# No tensor is larger, in elements: gathers of gathers would otherwise dwarf everything else.
MOST_ELEMENTS = 1 << 22
KIB = 1024


@dataclass
class Value:
    """A tensor. `storage` is the number of the value whose storage it is: its own, or that which it is a view of."""

    number: int
    elements: int
    element: str
    storage: int
    is_argument: bool = False
    is_donated: bool = False

    @property
    def bytes(self) -> int:
        return self.elements * WIDTHS[self.element]

    @property
    def type(self) -> str:
        return f"tensor<{self.elements}x{self.element}>"

    @property
    def name(self) -> str:
        return f"%{'a' if self.is_argument else 'v'}{self.number}"


@dataclass
class Step:
    """An operation: "compute", "cast", "view", "start" or "wait"."""

    kind: str
    reads: list[int]
    # The number of the value that it makes; of a start, the value that its wait will make.
    makes: int
    # Of a computation: its time, or the bytes that it moves; of a start, a measured time. None: not given.
    time: int | None = None
    moved: int | None = None
    workspace: int = 0
    # Of a start.
    collective: str = ""
    group: str = ""
    reduction: str = ""
    # Of a wait: the position of its start.
    start: int = -1


@dataclass
class Program:
    """Values by number, and steps in their order. Groups are lists of ranks by name."""

    groups: dict[str, list[list[int]]]
    values: list[Value] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)

    def text(self) -> str:
        """The program in MLIR."""
        lines = [f"comm.group @{name} #comm.ranks<{ranks}>" for name, ranks in self.groups.items()]
        arguments = [value for value in self.values if value.is_argument]
        given = ", ".join(f"{v.name}: {v.type}{' {comm.donated}' if v.is_donated else ''}" for v in arguments)
        results = ", ".join(self.values[number].type for number in self.returned)
        lines.append(f"func.func @step({given}) -> ({results}) {{")
        lines += [f"  {self.line(step)}" for step in self.steps]
        names = ", ".join(self.values[number].name for number in self.returned)
        lines += [f"  return {names} : {results}" if names else "  return", "}"]
        return "\n".join(lines) + "\n"

    def line(self, step: Step) -> str:
        made, read = self.values[step.makes], [self.values[number] for number in step.reads]
        if step.kind == "wait":
            return f"{made.name} = comm.wait %f{made.number} : !comm.future<{made.type}>"
        operands, types = ", ".join(v.name for v in read), ", ".join(v.type for v in read)
        if step.kind == "start":
            what = f"comm.{step.collective} {step.reduction}".strip()
            given = f" {{comm.cost = #comm.cost<time = {step.time}>}}" if step.time is not None else ""
            return (
                f"%f{made.number} = {what} {operands} on @{step.group}{given} : ({types}) -> !comm.future<{made.type}>"
            )
        parts = [f"time = {step.time}"] if step.time is not None else []
        parts += [f"bytes = {step.moved}"] if step.moved is not None else []
        parts += [f"workspace = {step.workspace}"] if step.workspace else []
        aliases = " aliases [0]" if step.kind == "view" else ""
        name = {"compute": "work", "cast": "cast", "view": "aten.view"}[step.kind]
        cost = f" {{comm.cost = #comm.cost<{', '.join(parts)}>}}"
        return f'{made.name} = comm.compute "{name}"({operands}){aliases}{cost} : ({types}) -> {made.type}'


def random_machine(rng: random.Random, groups: dict[str, list[list[int]]], node: int) -> dict:
    """A profile. A kind of collective has an alpha-beta cost, or a table for every group."""
    per_second = rng.choice([20, 50, 100, 200])
    machine: dict = {
        "schema_version": 1,
        "name": "random",
        "node": {"ranks": node},
        "memory": {"capacity_bytes": 1 << 36, "bandwidth_gbps": rng.choice([500, 1000, 2000])},
        "compute": {"peak_tflops": {"f32": 100}, "launch_ns": rng.choice([0, 500, 1500])},
        "copy": {"launch_ns": rng.choice([0, 300, 1000, 3000]), "bandwidth_gbps": rng.choice([200, 600, 2000])},
        "lanes": rng.choice(["per_group"] * 5 + ["per_link", "one"]),
        "links": {
            "base_ns": rng.randint(500, 15000),
            "intra": {"bandwidth_gbps": per_second, "latency_ns": rng.randint(0, 3000)},
            "inter": {"bandwidth_gbps": per_second // 2, "latency_ns": rng.randint(0, 6000)},
        },
        "overheads": {"issue_ns": rng.choice([0, 0, 0, rng.randint(1, 3000)])},
    }
    shapes = {shape_of(ranks, node): name for name, ranks in groups.items()}
    tables = []
    for kind in ("all_gather", "reduce_scatter", "all_reduce"):
        if rng.random() < 0.4:
            continue
        for ranks, nodes, _ in shapes:
            tables.append(
                {"kind": kind, "ranks": ranks, "nodes": nodes, "element": "any", "points": random_points(rng)}
            )
        if rng.random() < 0.2:
            name = rng.choice(sorted(groups))
            tables.append({"kind": kind, "group": name, "element": "any", "points": random_points(rng)})
        if rng.random() < 0.15:
            ranks, nodes, _ = rng.choice(sorted(shapes))
            tables.append(
                {"kind": kind, "ranks": ranks, "nodes": nodes, "element": "bf16", "points": random_points(rng)}
            )
    if tables:
        machine["collectives"] = tables
    return machine


def shape_of(partition: list[list[int]], node: int) -> tuple[int, int, int]:
    """Ranks, nodes, and most ranks of one node, of the group of a partition that is on most nodes."""
    shapes = []
    for ranks in partition:
        places = [rank // node for rank in ranks]
        shapes.append((len(set(places)), len(ranks), max(places.count(place) for place in places)))
    nodes, size, most = max(shapes, key=lambda shape: shape[0])
    return size, nodes, most


def random_points(rng: random.Random) -> list[dict[str, int]]:
    """A measured table: concave, with a kink, or with noise that lets times fall."""
    fixed, slope, power = rng.randint(1000, 20000), rng.randint(2000, 30000), rng.uniform(0.35, 0.95)
    shape = rng.choice(["concave", "concave", "kink", "noise"])
    knee, jump, later = 2.0 ** rng.randint(-1, 3), rng.randint(0, 20000), rng.uniform(0.2, 1.5)
    points, size = [], 2.0 ** rng.randint(-6, -3)
    for _ in range(rng.randint(2, 8)):
        time = fixed + slope * size**power
        if shape == "kink":
            time = fixed + slope * (min(size, knee) + later * max(0.0, size - knee)) + (jump if size >= knee else 0)
        if shape == "noise":
            time *= rng.uniform(0.7, 1.3)
        points.append({"bytes": int(size * KIB * KIB), "ns": max(1, int(time))})
        size *= rng.choice([2, 4, 4, 8])
    return points


class Writer:
    """Appends random steps to a program."""

    def __init__(self, rng: random.Random, groups: dict[str, list[list[int]]]):
        self.rng = rng
        self.program = Program(groups)
        self.unread: set[int] = set()
        self.pending: list[int] = []
        kinds = ["all_gather"] * 4 + ["reduce_scatter"] * 3 + ["all_reduce"] * 2
        self.favourites = [
            (rng.choice(kinds), rng.choice(sorted(groups)), rng.choice(["f32", "bf16"]))
            for _ in range(rng.choice([1, 1, 2, 2, 3]))
        ]
        self.reduction = rng.choice(["sum", "avg"])
        self.scale = 2 ** rng.randint(11, 16)
        self.times = rng.choice([2000, 20000, 60000])
        self.measures = rng.random() < 0.2

    def size(self) -> int:
        return min(self.rng.choice([1, 2, 3, 4, 6, 8, 12, 16, 24]) * self.scale, MOST_ELEMENTS // 4)

    def add_value(self, elements: int, element: str, storage: int = -1) -> Value:
        number = len(self.program.values)
        value = Value(number, elements, element, storage if storage >= 0 else number)
        self.program.values.append(value)
        return value

    def argument(self, elements: int, element: str, may_be_donated: bool = True) -> Value:
        value = self.add_value(elements, element)
        value.is_argument = True
        value.is_donated = may_be_donated and self.rng.random() < 0.3
        return value

    def readable(self) -> list[Value]:
        hidden = {self.program.steps[at].makes for at in self.pending}
        return [value for value in self.program.values if value.number not in hidden]

    def read(self, value: Value) -> int:
        self.unread.discard(value.number)
        return value.number

    def make(self, step: Step) -> Value:
        self.program.steps.append(step)
        if step.kind != "start":
            self.unread.add(step.makes)
        return self.program.values[step.makes]

    def time(self) -> int:
        return 0 if self.rng.random() < 0.05 else self.rng.randint(1, self.times)

    def pick(self, candidates: list[Value]) -> Value:
        unread = [value for value in candidates if value.number in self.unread]
        return self.rng.choice(unread if unread and self.rng.random() < 0.6 else candidates)

    def compute(self) -> None:
        known = self.readable()
        reads = [self.read(self.pick(known)) for _ in range(self.rng.randint(1, 3))] if known else []
        if not reads or self.rng.random() < 0.2:
            reads.append(self.read(self.argument(self.size(), self.rng.choice(["f32", "bf16"]))))
        made = self.add_value(self.size(), self.rng.choice(["f32", "bf16"]))
        workspace = self.size() if self.rng.random() < 0.15 else 0
        if self.rng.random() < 0.1:
            self.make(Step("compute", reads, made.number, moved=self.rng.randint(1, 1 << 24), workspace=workspace))
        else:
            self.make(Step("compute", reads, made.number, time=self.time(), workspace=workspace))

    def cast(self, value: Value, element: str) -> Value:
        made = self.add_value(value.elements, element)
        return self.make(Step("cast", [self.read(value)], made.number, time=self.rng.randint(0, self.times // 2)))

    def view(self) -> None:
        known = [value for value in self.readable() if value.elements > 8]
        if known:
            value = self.pick(known)
            made = self.add_value(value.elements // self.rng.choice([1, 2]), value.element, value.storage)
            self.make(Step("view", [self.read(value)], made.number, time=0))

    def collective_input(self, kind: str, element: str) -> Value:
        made = [
            v
            for v in self.readable()
            if not v.is_argument and v.elements <= MOST_ELEMENTS // 4 and v.elements % RANKS == 0
        ]
        from_argument = 0.65 if kind == "all_gather" else 0.3
        if not made or self.rng.random() < from_argument:
            wanted = self.rng.choice([element, element, *WIDTHS])
            return self.argument(self.size(), wanted, may_be_donated=self.rng.random() < 0.3)
        return self.pick(made)

    def collective(self) -> None:
        kind, group, element = self.rng.choice(self.favourites)
        value = self.collective_input(kind, element)
        if value.element != element and self.rng.random() < 0.9:
            value = self.cast(value, element)
        ranks = len(self.program.groups[group][0])
        elements = {
            "all_gather": value.elements * ranks,
            "reduce_scatter": value.elements // ranks,
            "all_reduce": value.elements,
        }[kind]
        step = Step(
            "start", [self.read(value)], self.add_value(elements, value.element).number, collective=kind, group=group
        )
        step.reduction = "" if kind == "all_gather" else self.reduction
        if self.measures and self.rng.random() < 0.5:
            step.time = self.rng.randint(1000, self.times * 2)
        self.make(step)
        self.pending.append(len(self.program.steps) - 1)
        if self.rng.random() < 0.6:
            self.wait(self.pending[-1])

    def wait(self, at: int) -> None:
        self.pending.remove(at)
        made = self.make(Step("wait", [], self.program.steps[at].makes, start=at))
        if self.rng.random() < 0.15:
            self.cast(made, self.rng.choice([element for element in ("f32", "bf16") if element != made.element]))

    def end(self) -> Program:
        while self.pending:
            self.wait(self.rng.choice(self.pending))
        seen: set[int] = set()
        for value in self.program.values:
            share = 0.7 if value.number in self.unread else 0.08
            if not value.is_argument and value.storage not in seen and self.rng.random() < share:
                if not self.program.values[value.storage].is_argument:
                    self.program.returned.append(value.number)
                    seen.add(value.storage)
        return self.program


def random_problem(seed: int, most_collectives: int = 5) -> tuple[Program, dict]:
    """The program and the machine profile of a seed."""
    rng = random.Random(f"bucket oracle {seed}")
    size = rng.choice([2, 4])
    groups = {
        "dp": [list(range(first, first + size)) for first in range(0, RANKS, size)],
        "tp": [list(range(first, RANKS, RANKS // 2)) for first in range(RANKS // 2)],
    }
    node = rng.choice([4, RANKS])
    machine = random_machine(rng, groups, node)
    writer = Writer(rng, groups)
    collectives = rng.choice([number for number in (1, 2, 3, 3, 4, 4, 5, 5) if number <= most_collectives])
    events = (
        ["collective"] * collectives
        + ["compute"] * rng.choice([1, 2, 3, 4, 5, 7, 10, 14])
        + ["view"] * (rng.random() < 0.25)
    )
    rng.shuffle(events)
    for event in events:
        getattr(writer, event)()
        if writer.pending and rng.random() < 0.3:
            writer.wait(rng.choice(writer.pending))
    return writer.end(), machine
