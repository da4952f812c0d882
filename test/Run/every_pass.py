#!/usr/bin/env python3
#===- every_pass.py - One program after every pass ----------------------------------------------------------------===#
#
# Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
#
# Puts each program through every pass of comm-opt that changes programs, and compares what is computed bit for bit.
#
#   every_pass.py COMM-OPT COMM-RUN PROGRAM...
#
#===-------------------------------------------------------------------------------------------------------------===#

import os
import shlex
import subprocess
import sys
import tempfile

from random_programs import transforms


def main():
    opt, runner, *programs = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        for program in programs:
            changed = []
            for number, passes in enumerate(transforms(opt)):
                path = os.path.join(folder, f"{number}.mlir")
                subprocess.run([opt, program, *shlex.split(passes), "-o", path], check=True, stderr=subprocess.DEVNULL)
                changed += ["--compare", path]
                print(f"{number}.mlir is after {passes}")
            subprocess.run([runner, program, *changed], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
