#!/usr/bin/env python3
"""Checks that the arrows between the project's folders point one way, and that every source file bears the banner.

    check_layers.py [--root DIR]

Each room may include itself and the rooms that MAY names, with the folders in them. Of a folder that the room itself is in, it
may include the files of that folder only, not those of its neighbours. A room is the deepest folder that MAY knows; a public
header is in the room of the source that implements it. The rule holds for headers and sources alike, so a wrong include is found
where it is written. The rooms that MAY names do not use each other in a circle, and a room is small: a source with its headers,
or a folder in the room, is a box, and an arrow says that one box includes another. Exit code 1, with one line for each fault.
"""

import argparse
import re
import sys
from pathlib import Path

PROBLEM = ["Scheduling/Problem", "Support"]
MODEL = [
    "Scheduling/Time",
    "Scheduling/Memory",
    "Scheduling/Buckets",
    "Scheduling/Answer",
    "Scheduling/Check",
    *PROBLEM,
]
HLO = ["Frontends/Hlo/Write", "Frontends/Hlo/Graph", "Frontends/Hlo/Reader"]
CORE = ["Runtime", "Runtime/Core", "Runtime/Core/Support", "Runtime/Kernels/Device"]
IR = ["Dialect", "Machine", *MODEL]
PASSES = ["Report", "Analysis", "Dialect", "Machine", "Scheduling", "Support"]
FRAME = ["Transforms", "Transforms/PassBase", "Transforms/Rewrites", "Transforms/Scheduling", *PASSES]
LOWERED = ["Transforms", "Analysis", "Dialect", "Machine", "Scheduling", "Support", "Runtime"]
LOWERING = ["Conversion", *LOWERED]
MAY = {
    "Support": [],
    "Machine": ["Support"],
    "Scheduling/Problem": ["Support"],
    "Scheduling/Time": PROBLEM,
    "Scheduling/Memory": PROBLEM,
    "Scheduling/Buckets": PROBLEM,
    "Scheduling/Answer": ["Scheduling/Time", "Scheduling/Memory", "Scheduling/Buckets", *PROBLEM],
    "Scheduling/Check": ["Scheduling/Answer", "Scheduling/Time", "Scheduling/Memory", "Scheduling/Buckets", *PROBLEM],
    "Scheduling/Bounds": ["Scheduling/Bounds/Arguments", *MODEL],
    "Scheduling/Bounds/Arguments": ["Scheduling/Bounds", *MODEL],
    "Scheduling/Solver/Decode": MODEL,
    "Scheduling/Solver/Moves": ["Scheduling/Solver/Decode", *MODEL],
    "Scheduling/Solver/Exact": MODEL,
    "Scheduling/Solver": [
        "Scheduling/Solver/Exact",
        "Scheduling/Solver/Moves",
        "Scheduling/Solver/Decode",
        "Scheduling/Bounds",
        *MODEL,
    ],
    "Scheduling/Inductor": MODEL,
    "Scheduling/BufferPlan": MODEL,
    "Scheduling/Lenses": ["Scheduling/BufferPlan", "Scheduling/Solver", "Scheduling/Bounds", *MODEL],
    "Scheduling/Lenses/MemoryPlan": ["Scheduling/Lenses", "Scheduling/Solver", "Scheduling/Bounds", *MODEL],
    "Frontends/Hlo/Reader": ["Machine", "Support"],
    "Frontends/Hlo/Graph": ["Frontends/Hlo/Reader", "Machine", *MODEL],
    "Frontends/Hlo/Write": ["Frontends/Hlo/Graph", "Frontends/Hlo/Reader", "Support"],
    "Frontends/Hlo/Schedule": [*HLO, "Scheduling/Lenses", "Scheduling/Solver", "Scheduling/Bounds", "Machine", *MODEL],
    "Frontends/Hlo/Pjrt": ["Frontends/Hlo/Schedule", *HLO, "Machine", "Support"],
    "Dialect": ["Support"],
    "Analysis": IR,
    "Analysis/Storage": ["Dialect", "Support"],
    "Analysis/Dependence": ["Analysis/Storage", *IR],
    "Analysis/Spmd": ["Analysis", "Analysis/Dependence", *IR],
    "Analysis/Split": ["Analysis/Storage", "Dialect", "Support"],
    "Analysis/Costs": ["Analysis", "Analysis/Storage", *IR],
    "Analysis/Costs/Models": ["Analysis/Costs", "Analysis/Storage", *IR],
    "Analysis/Loader": ["Analysis", "Analysis/Costs", "Analysis/Dependence", "Analysis/Storage", *IR],
    "Report": ["Analysis", "Dialect", "Machine", "Scheduling", *MODEL],
    "Report/Certificate": PASSES,
    "Report/Page": PASSES,
    "Report/Text": PASSES,
    "Report/Trace": PASSES,
    "Transforms": PASSES,
    "Transforms/PassBase": ["Transforms", *PASSES],
    "Transforms/Rewrites": ["Transforms", "Transforms/PassBase", *PASSES],
    "Transforms/Scheduling": ["Transforms", "Transforms/PassBase", "Transforms/Rewrites", *PASSES],
    "Transforms/Scheduling/Inductor": FRAME,
    "Transforms/Scheduling/Placement": FRAME,
    "Transforms/Scheduling/Reporting": FRAME,
    "Transforms/Loops": FRAME,
    "Transforms/MemoryPlan": FRAME,
    "Transforms/Strands": FRAME,
    "Transforms/Verify": FRAME,
    "Transforms/Pipelines": ["Transforms/Verify", *FRAME],
    "Conversion": LOWERED,
    "Conversion/Shard": LOWERING,
    "Conversion/Stablehlo": LOWERING,
    "Conversion/Bufferization": LOWERING,
    "Conversion/RuntimeCalls": LOWERING,
    "Conversion/CommToLLVM": ["Conversion/RuntimeCalls", *LOWERING],
    "Conversion/BufferPlan": ["Conversion/Bufferization", "Conversion/CommToLLVM", *LOWERING],
    "Runtime": [],
    "Runtime/Kernels/Device": ["Runtime"],
    "Runtime/Core/Support": ["Runtime", "Runtime/Kernels/Device"],
    "Runtime/Core": ["Runtime", "Runtime/Core/Support", "Runtime/Kernels/Device"],
    "Runtime/Core/Trace": CORE,
    "Runtime/Core/Calls": ["Runtime/Core/Trace", *CORE],
    "Runtime/Core/Consistency": CORE,
    "Runtime/Kernels": CORE,
    "Runtime/Threads": CORE,
    "Runtime/Control": ["Runtime/Threads", *CORE],
    "Runtime/Mpi": ["Runtime", "Runtime/Core/Support"],
    "Runtime/Nccl/Libraries": ["Runtime", "Runtime/Core/Support", "Runtime/Kernels/Device"],
    "Runtime/Nccl": ["Runtime/Nccl/Libraries", *CORE],
    "Runtime/Nccl/Collectives": ["Runtime/Nccl", *CORE],
    "Runtime/Nccl/Device": ["Runtime/Nccl", "Runtime/Nccl/Libraries", *CORE],
    "Calibration": ["Machine", "Support"],
    "Calibration/Cache": ["Calibration", "Machine", "Support"],
    "Calibration/Traces": ["Calibration", "Machine", "Support"],
    "Calibration/Bench": ["Calibration", "Calibration/Cache", "Machine", "Support", "Runtime"],
    "Calibration/Session": ["Calibration", "Calibration/Cache", "Calibration/Bench", "Machine", "Support"],
    "InitAll": ["Conversion", "Transforms", *PASSES],
    "Execution": ["InitAll", "Conversion", "Transforms", *PASSES, "Runtime", "Calibration"],
    "CAPI": ["Frontends", "Calibration", "InitAll", "Conversion", "Transforms", *PASSES],
    "Plugin": ["InitAll", "Conversion", "Transforms", *PASSES],
}
# A room that is above a folder of its own and below it: the table of arguments is in Bounds, and so are their types.
MUTUAL = {("Scheduling/Bounds", "Scheduling/Bounds/Arguments")}
BOXES = 12
ARROWS = 20
Include = tuple[Path, str, Path]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
SPDX = "SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception"
BANNER_LINES = 12


def room_of(path: str) -> str:
    """The room of a path below include/CommSched or lib: the longest prefix that MAY knows, else the first folder."""
    parts = path.split("/")
    for length in range(len(parts) - 1, 0, -1):
        if (room := "/".join(parts[:length])) in MAY:
            return room
    return parts[0].removesuffix(".h")


def allowed(room: str, target: str) -> bool:
    inside = (other for other in MAY[room] if target.startswith(other + "/") and not room.startswith(other + "/"))
    return target == room or target in MAY[room] or any(inside)


def below(root: Path, folder: str, patterns: list[str]) -> list[Path]:
    return sorted(path for pattern in patterns for path in (root / folder).rglob(pattern))


def homes(root: Path) -> dict[Path, str]:
    """The place of each file below lib without its ending. A public header is at the only source of its name in its folder."""
    result = {
        path: str(path.relative_to(root / "lib").with_suffix("")) for path in below(root, "lib", ["*.h", "*.cpp"])
    }
    for path in below(root, "include/CommSched", ["*.h"]):
        inside = path.relative_to(root / "include/CommSched").with_suffix("")
        sources = list((root / "lib" / inside.parent).rglob(f"{inside.name}.cpp"))
        result[path] = result[sources[0]] if len(sources) == 1 else str(inside)
    return result


def includes(root: Path, places: dict[Path, str]) -> list[Include]:
    """Each include of one file of the project by another: the file, the text of the include, and the other file."""
    result = []
    for path, place in places.items():
        for text in INCLUDE.findall(path.read_text()):
            folders = [path.parent, root / "lib" / place.split("/")[0], root / "include"]
            if target := next((folder / text for folder in folders if folder / text in places), None):
                result.append((path, text, target))
    return result


def layer_faults(root: Path, places: dict[Path, str], arrows: list[Include]) -> list[str]:
    faults = []
    for path, text, target in arrows:
        room, other = room_of(places[path]), room_of(places[target])
        if room in MAY and not allowed(room, other):  # InitAll.h stands at the top
            faults.append(f"{path.relative_to(root)}: {room} must not include {text} ({other})")
    return faults


def circle_faults() -> list[str]:
    """Rooms that MAY lets reach themselves."""
    uses = {
        room: [other for other in MAY if other != room and allowed(room, other) and (room, other) not in MUTUAL]
        for room in MAY
    }

    def reached(room: str) -> set[str]:
        found: set[str] = set()
        pending = [room]
        while pending:
            new = [other for other in uses[pending.pop()] if other not in found]
            found.update(new)
            pending += new
        return found

    return [
        f"check_layers.py: room {room} must not reach itself through the rooms that it may include"
        for room in MAY
        if room in reached(room)
    ]


def size_faults(root: Path, places: dict[Path, str], arrows: list[Include]) -> list[str]:
    """Folders of lib with more boxes or arrows than a picture shows at once."""
    faults = []
    for folder in sorted({str(Path(places[path]).parent) for path in places if path.suffix == ".cpp"}):
        inside = {
            path: place.removeprefix(folder + "/").split("/")
            for path, place in places.items()
            if place.startswith(folder + "/")
        }
        box = {path: (parts[0], len(parts) > 1) for path, parts in inside.items()}
        boxes = {box[path] for path in box if (root / "lib") in path.parents}
        drawn = {(box[path], box[target]) for path, _, target in arrows if path in box and target in box}
        drawn = {(one, other) for one, other in drawn if one != other and {one, other} <= boxes}
        if len(boxes) > BOXES or len(drawn) > ARROWS:
            faults.append(
                f"lib/{folder}: expected at most {BOXES} boxes and {ARROWS} arrows, got {len(boxes)} and {len(drawn)}"
            )
    return faults


def banner_faults(root: Path) -> list[str]:
    faults = []
    for folder in ("include", "lib", "tools", "test", "benchmarks"):
        for path in below(root, folder, ["*.h", "*.cpp", "*.c", "*.td"]):
            head = "\n".join(path.read_text().splitlines()[:BANNER_LINES])
            if SPDX not in head:
                faults.append(
                    f"{path.relative_to(root)}: expected the banner with '{SPDX}' in the first {BANNER_LINES} lines"
                )
            elif f"- {path.name} " not in head and f"-- {path.name} " not in head and path.suffix != ".c":
                faults.append(f"{path.relative_to(root)}: expected the banner to name {path.name}")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    root = parser.parse_args().root
    places = homes(root)
    arrows = includes(root, places)
    faults = (
        layer_faults(root, places, arrows) + circle_faults() + size_faults(root, places, arrows) + banner_faults(root)
    )
    print(
        "\n".join(faults)
        if faults
        else "every include points down, no room is too large, and every source bears its banner"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
