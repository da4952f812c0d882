#!/usr/bin/env python3
"""Checks that the arrows between the project's folders point one way, and that every source file bears the banner.

    check_layers.py [--root DIR]

Each room may include itself and the rooms that MAY names. A room is the deepest folder that MAY knows. The rule holds for
headers and sources alike, so a wrong include is found where it is written. Exit code 1, with one line for each fault.
"""

import argparse
import re
import sys
from pathlib import Path

PROBLEM = ["Scheduling/Problem", "Support"]
MODEL = ["Scheduling/Time", "Scheduling/Memory", "Scheduling/Buckets", "Scheduling/Answer", "Scheduling/Check", *PROBLEM]
HLO = ["Frontends/Hlo/Write", "Frontends/Hlo/Graph", "Frontends/Hlo/Reader"]
MAY = {
    "Support": [],
    "Machine": ["Support"],
    "Scheduling/Problem": ["Support"],
    "Scheduling/Time": PROBLEM,
    "Scheduling/Memory": PROBLEM,
    "Scheduling/Buckets": PROBLEM,
    "Scheduling/Answer": ["Scheduling/Time", "Scheduling/Memory", "Scheduling/Buckets", *PROBLEM],
    "Scheduling/Check": ["Scheduling/Answer", "Scheduling/Time", "Scheduling/Memory", "Scheduling/Buckets", *PROBLEM],
    "Scheduling/Bounds": MODEL,
    "Scheduling/Bounds/Arguments": ["Scheduling/Bounds", *MODEL],
    "Scheduling/Solver/Decode": MODEL,
    "Scheduling/Solver/Moves": ["Scheduling/Solver/Decode", *MODEL],
    "Scheduling/Solver": ["Scheduling/Bounds", *MODEL],
    "Scheduling/Inductor": MODEL,
    "Scheduling/BufferPlan": MODEL,
    "Scheduling/Lenses": ["Scheduling/BufferPlan", "Scheduling/Solver", "Scheduling/Bounds", *MODEL],
    "Frontends/Hlo/Reader": ["Machine", "Support"],
    "Frontends/Hlo/Graph": ["Frontends/Hlo/Reader", "Machine", *MODEL],
    "Frontends/Hlo/Write": ["Frontends/Hlo/Graph", "Frontends/Hlo/Reader", "Support"],
    "Frontends/Hlo/Schedule": [*HLO, "Scheduling/Lenses", "Scheduling/Solver", "Scheduling/Bounds", "Machine", *MODEL],
    "Frontends/Hlo/Pjrt": ["Frontends/Hlo/Schedule", *HLO, "Machine", "Support"],
    "Dialect": ["Support"],
    "Analysis": ["Dialect", "Machine", *MODEL],
    "Report": ["Analysis", "Dialect", "Machine", "Scheduling", *MODEL],
    "Transforms/Scheduling": ["Transforms", "Report", "Analysis", "Dialect", "Machine", "Scheduling", "Support"],
    "Transforms/Rewrites": ["Transforms", "Report", "Analysis", "Dialect", "Machine", "Scheduling", "Support"],
    "Transforms/MemoryPlan": ["Transforms", "Report", "Analysis", "Dialect", "Machine", "Scheduling", "Support"],
    "Transforms/Strands": ["Transforms", "Report", "Analysis", "Dialect", "Machine", "Scheduling", "Support"],
    "Transforms": ["Report", "Analysis", "Dialect", "Machine", "Scheduling", "Support"],
    "Conversion": ["Transforms", "Analysis", "Dialect", "Machine", "Scheduling", "Support", "Runtime"],
    "Runtime": [],
    "Calibration": ["Machine", "Support", "Runtime"],
    "InitAll": ["Conversion", "Transforms", "Report", "Analysis", "Dialect", "Machine", "Scheduling", "Support"],
    "Execution": ["InitAll", "Conversion", "Transforms", "Report", "Analysis", "Dialect", "Machine", "Scheduling", "Support", "Runtime", "Calibration"],
    "CAPI": ["Frontends", "Calibration", "InitAll", "Conversion", "Transforms", "Report", "Analysis", "Dialect", "Machine", "Scheduling", "Support"],
    "Plugin": ["InitAll", "Conversion", "Transforms", "Report", "Analysis", "Dialect", "Machine", "Scheduling", "Support"],
}
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
    return any(target == other or target.startswith(other + "/") for other in [room, *MAY[room]])


def below(root: Path, folder: str, patterns: list[str]) -> list[Path]:
    return sorted(path for pattern in patterns for path in (root / folder).rglob(pattern))


def layer_faults(root: Path) -> list[str]:
    faults = []
    sources = [(path, path.relative_to(root / base)) for base in ("include/CommSched", "lib") for path in below(root, base, ["*.h", "*.cpp"])]
    for path, inside in sources:
        room = room_of(str(inside))
        if room not in MAY:
            continue  # InitAll.h stands at the top
        for text in INCLUDE.findall(path.read_text()):
            if text.startswith("CommSched/"):
                target = room_of(text.removeprefix("CommSched/"))
            elif (root / "lib" / inside.parts[0] / text).is_file() and "/" in text:
                target = room_of(f"{inside.parts[0]}/{text}")
            else:
                continue
            if not allowed(room, target):
                faults.append(f"{path.relative_to(root)}: {room} must not include {text} ({target})")
    return faults


def banner_faults(root: Path) -> list[str]:
    faults = []
    for folder in ("include", "lib", "tools", "test", "benchmarks"):
        for path in below(root, folder, ["*.h", "*.cpp", "*.c", "*.td"]):
            head = "\n".join(path.read_text().splitlines()[:BANNER_LINES])
            if SPDX not in head:
                faults.append(f"{path.relative_to(root)}: expected the banner with '{SPDX}' in the first {BANNER_LINES} lines")
            elif f"- {path.name} " not in head and f"-- {path.name} " not in head and path.suffix != ".c":
                faults.append(f"{path.relative_to(root)}: expected the banner to name {path.name}")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    root = parser.parse_args().root
    faults = layer_faults(root) + banner_faults(root)
    print("\n".join(faults) if faults else "every include points down, and every source bears its banner")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
