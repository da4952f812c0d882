"""Checks where programs and shared libraries look for libraries: each element of a run path has to be an absolute folder or
one relative to the file. An empty one, or another relative one, is looked for in the current folder, which anybody may fill.

    runpath_check.py FOLDER...
"""

import pathlib
import re
import shutil
import subprocess
import sys

READERS = ["readelf", "llvm-readelf-22", "llvm-readelf", "/usr/lib/llvm-22/bin/llvm-readelf"]


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def main():
    reader = next((found for found in map(shutil.which, READERS) if found), None)
    if not reader:
        sys.exit("neither readelf nor llvm-readelf was found")
    files = [
        path
        for folder in sys.argv[1:]
        for path in sorted(pathlib.Path(folder).rglob("*"))
        if path.is_file() and not path.is_symlink() and path.suffix not in (".o", ".a") and is_elf(path)
    ]
    bad, paths = 0, 0
    for path in files:
        text = subprocess.run([reader, "-d", str(path)], capture_output=True, text=True, check=True).stdout
        for found in re.findall(r"\((?:RUNPATH|RPATH)\)[^\[]*\[(.*)\]", text):
            paths += 1
            wrong = [part for part in found.split(":") if not re.match(r"/|\$ORIGIN(/|$)|\$\{ORIGIN\}(/|$)", part)]
            if wrong:
                bad += 1
                print(f"{path}: {found!r} has the elements {wrong}")
    print(f"{len(files)} programs and libraries, {paths} run paths, {bad} bad")
    return 1 if bad or paths == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
