#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a command some of whose standard streams are pipes that nobody reads: closed_pipes.py FOLDER CODE STREAMS COMMAND...

FOLDER is made if it does not exist. CODE is the exit code that is expected. STREAMS names the closed streams: 1, 2 or 12.
A stream that is not closed has to stay free of complaints about the closed one.
"""

import os
import pathlib
import subprocess
import sys

folder, code, streams, *command = sys.argv[1:]
pathlib.Path(folder).mkdir(exist_ok=True)
reader, writer = os.pipe()
os.close(reader)
done = subprocess.run(
    command,
    stdout=writer if "1" in streams else subprocess.PIPE,
    stderr=writer if "2" in streams else subprocess.PIPE,
    restore_signals=True,
)
said = (done.stdout or b"") + (done.stderr or b"")
assert done.returncode == int(code), (done.returncode, said)
assert b"pipe" not in said.lower() and b"stack dump" not in said.lower(), said
