#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Measurements of other people, beside the predictions of CommSched.

Each file in `rows` is a published measurement: steps of models, or single collectives. A step is traced, its
collectives are merged and ordered as in each measured mode, and it is played with the machine profile of the row. No
number of a profile was fitted to a row. README.md beside this file describes the rows.

    python benchmarks/published/published.py --markdown docs/research/results/published.md
    python benchmarks/published/published.py --only llama3-8b-fsdp8-h100 nccl-all-reduce-8-h100
    python benchmarks/published/published.py --check

Exits with 0 if every row was predicted, 1 if one was not, 2 if a row file is wrong or no row has a given name.
Needs the package commsched. No GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from pathlib import Path

import published_page
import published_rows
from published_rows import Row, RowError

# The other benchmarks. What needs them, and PyTorch, is imported when a row is predicted.
sys.path.append(str(Path(__file__).resolve().parents[1]))


def profile_of(row: Row) -> dict:
    """The machine profile of a row, with what its source says of the hardware."""
    from commsched.torch.options import machine_file

    file = machine_file(row.profile)
    if file is None:
        raise ValueError(f"no machine profile {row.profile}")
    profile = json.loads(file.read_text())
    for section, values in row.changes.items():
        unknown = sorted(set(values) - set(profile.get(section, {})))
        if unknown:
            raise ValueError(f"machine.changes.{section}: the profile has no {', '.join(unknown)}")
        profile[section] = {**profile[section], **values}
    return profile


def predict(row: Row, layers: int | None, whole: bool) -> list[dict]:
    """What is measured and what is predicted, for each mode of a row. Times are in ms."""
    profile = profile_of(row)
    with tempfile.TemporaryDirectory() as folder:
        machine = Path(folder, "machine.json")
        machine.write_text(json.dumps(profile))
        return (
            _steps(row, str(machine), profile, layers, whole) if row.kind == "step" else _collectives(row, str(machine))
        )


def _collectives(row: Row, machine: str) -> list[dict]:
    import published_collectives

    kind, ranks, element = (row.program[key] for key in ("collective", "ranks", "element"))
    times = published_collectives.predict(kind, ranks, element, [mode.bytes for mode in row.modes], machine)
    return [
        {
            "mode": mode.name,
            "measured_ms": published_collectives.measured_us(kind, ranks, mode.bytes, row.unit, mode.measured) / 1e3,
            "predicted_ms": us / 1e3,
        }
        for mode, us in zip(row.modes, times, strict=True)
    ]


def _steps(row: Row, machine: str, profile: dict, layers: int | None, whole: bool) -> list[dict]:
    import published_steps

    found = []
    for mode in row.modes:
        program = {**row.program, **mode.program}
        found.append((program, mode, published_steps.step_ms(row, program, mode.measured)))
    predicted = {}
    for program, _, _ in found:
        key = json.dumps(program)
        if key not in predicted:
            modes = [mode for other, mode, _ in found if other == program]
            results = published_steps.predict(program, modes, machine, profile, layers, whole)
            predicted[key] = dict(zip([mode.name for mode in modes], results, strict=True))
    return [
        {
            "mode": mode.name,
            "judged": mode.judged,
            "measured_ms": measured,
            "measured_peak_gib": mode.peak_gib,
            "predicted_ms": predicted[json.dumps(program)][mode.name].ms,
            **dataclasses.asdict(predicted[json.dumps(program)][mode.name]),
        }
        for program, mode, measured in found
    ]


def chosen(names: list[str] | None) -> list[Row]:
    """The rows of these names, or all.

    Raises:
        RowError: a row file is wrong, or there is no row of a name.
    """
    rows = published_rows.load()
    missing = sorted(set(names or ()) - {row.name for row in rows})
    if missing:
        raise RowError(f"expected names of rows ({', '.join(row.name for row in rows)}), got {', '.join(missing)}")
    return [row for row in rows if names is None or row.name in names]


def run(settings: argparse.Namespace, rows: list[Row], results: dict) -> None:
    """Predicts the rows that `results` does not have yet."""
    for row in rows:
        if row.name in results["rows"]:
            continue
        start = time.process_time()
        try:
            modes = predict(row, settings.layers, settings.whole)
        except Exception as error:  # Other rows go on, and the page names this one.
            results["failed"][row.name] = f"{type(error).__name__}: {error}".splitlines()[0]
            print(f"{row.name}: {results['failed'][row.name]}", file=sys.stderr, flush=True)
            continue
        results["rows"][row.name] = {"cpu_s": time.process_time() - start, "modes": modes}
        for mode in modes:
            change = 100 * (mode["predicted_ms"] / mode["measured_ms"] - 1)
            print(
                f"{row.name}, {mode['mode']}: measured {mode['measured_ms']:.3f} ms, predicted "
                f"{mode['predicted_ms']:.3f} ms ({change:+.1f} %)",
                flush=True,
            )
        if settings.json:
            settings.json.write_text(json.dumps(results, indent=1) + "\n")


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="ROW", help="names of rows (default: all)")
    parser.add_argument("--check", action="store_true", help="check the row files, and predict nothing")
    parser.add_argument("--layers", type=int, help="trace models with this many layers, to try the command out")
    parser.add_argument("--whole", action="store_true", help="trace all layers; without it, few layers stand for all")
    parser.add_argument("--json", type=Path, help="write the results to this file, too, after each row")
    parser.add_argument("--resume", action="store_true", help="keep what the JSON file has already")
    parser.add_argument("--markdown", type=Path, help="write the page to this file")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    settings = parse(argv)
    try:
        rows = chosen(settings.only)
    except RowError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if settings.check:
        print(f"{len(rows)} rows")
        return 0
    import torch_overlap

    versions = torch_overlap.versions("those of the rows")
    results: dict = {"versions": versions, "rows": {}, "failed": {}}
    if settings.resume and settings.json and settings.json.is_file():
        results["rows"] = json.loads(settings.json.read_text())["rows"]
    run(settings, rows, results)
    if settings.markdown:
        settings.markdown.write_text(published_page.page(rows, results))
    return 1 if results["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
