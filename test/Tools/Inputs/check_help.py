#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Whether the manual pages and the completion of bash have all that --help has: check_help.py MAN-FOLDER SOURCE

Options are read off the help by rules of this file. They have to be terms of the page as it is
shown, with their meanings.
Formatters that are installed have to accept the page without a warning.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

folder, source = sys.argv[1:]
tools = sorted(page.stem for page in pathlib.Path(folder).glob("*.1"))
OPTION = re.compile(r"^( +)(-{1,2}\w[\w-]*)")
FORMATTERS = {
    "groff": ["groff", "-man", "-ww", "-Tascii", "-rLL=2000n"],
    "man": ["man", "--warnings=w", "-l"],
    "mandoc": ["mandoc", "-Tlint", "-Wwarning"],
}


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done


def options_of(text):
    """Indentation and names of the options of a help, in its order."""
    for line in text.splitlines():
        if found := OPTION.match(line):
            # A name that is as long as the column has the dash of the meaning behind it.
            yield len(found[1]), [found[2].rstrip("-"), *re.findall(r"^ +-\w, (--[\w-]+)", line)]


def squeezed(text):
    return re.sub(r"\s+", " ", text)


def check_page(tool, text, formatters):
    page = pathlib.Path(folder) / f"{tool}.1"
    for name in formatters:
        said = run(*FORMATTERS[name], str(page), env={**os.environ, "LC_ALL": "C.UTF-8"})
        assert not said.stderr, f"{name}: {page}: {said.stderr}"
    if "groff" not in formatters:
        return
    shown = run(*FORMATTERS["groff"], "-P-c", "-P-b", "-P-u", str(page)).stdout
    terms = [re.match(r"^ +(-\S*)(?: (--\S+))?", line) for line in shown.splitlines()]
    names = {re.split(r"[=\[,]", term)[0] for found in terms if found for term in found.groups() if term}
    missing = [name for _, names_here in options_of(text) for name in names_here if name not in names]
    assert not missing, f"{page} lacks {missing}"
    whole = squeezed(shown)
    for line in text.splitlines():
        # What is behind a term and its dash, or behind two blanks; a value with its meaning; or the whole line.
        meaning = re.sub(r"^ +=(\S+)\s+-\s+", r"\1 ", line)
        meaning = re.sub(r"^ +(-{1,2}\w\S*( <[^>]+>|, --\S+)?( \S+)?)?(\s+-|-| )\s+", "", meaning)
        meaning = squeezed(re.sub(r"^(OVERVIEW|USAGE|usage): ", "", meaning)).strip().rstrip(":.")
        assert meaning in ("OPTIONS", "") or meaning in whole, f"{page} lacks: {meaning}"


def completed(line):
    script = str(pathlib.Path(__file__).with_name("complete.sh"))
    said = run("bash", script, str(pathlib.Path(source) / "scripts/completion.bash"), line).stdout
    return {word.rstrip("=") for word in said.partition("<Tab> ")[2].split()}


def check_completion(tool, text):
    options, above = {"": set()}, ""
    for indent, names in options_of(text):
        above = above if indent == 8 else names[0].lstrip("-")
        options.setdefault(above if indent == 8 else "", set()).update(names if indent < 8 else [names[0][2:]])
    for above, names in options.items():
        offered = completed(f"{tool} --{above}=" if above else f"{tool} -")
        assert offered == names, (
            f"{tool} {above}: offered, but no option: {offered - names}; not offered: {names - offered}"
        )
    return sum(map(len, options.values()))


found = [name for name in FORMATTERS if shutil.which(name)]
print("formatters:", ", ".join(found) or "none")
print("left out, since they are not installed:", ", ".join(name for name in FORMATTERS if name not in found) or "none")
with tempfile.TemporaryDirectory() as scratch:
    # The checker is a module of Python here, and a command of the wheel.
    checker = pathlib.Path(scratch) / "commsched-verify"
    checker.write_text(f'#!/bin/sh\nPYTHONPATH={source}/python exec {sys.executable} -B -m commsched_verify "$@"\n')
    checker.chmod(0o755)
    os.environ["PATH"] = f"{scratch}:{os.environ['PATH']}"
    os.environ["COLUMNS"] = "10000"
    for tool in tools:
        text = run(tool, "--help").stdout
        count = check_completion(tool, text)
        check_page(tool, text, found)
        print(f"{tool}: {count} options")
