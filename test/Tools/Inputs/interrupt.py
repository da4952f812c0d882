# Interrupts a search in a terminal, and prints what the tool writes to it:
#
#   interrupt.py COMMAND...
#
# The search of COMMAND has to take longer than a second. The interrupt comes when its progress is shown.

import os
import pty
import signal
import sys

child, terminal = pty.fork()
if child == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
said, interrupted = b"", False
while True:
    try:
        piece = os.read(terminal, 4096)
    except OSError:  # The other side is closed.
        break
    if not piece:
        break
    said += piece
    if not interrupted and b"Ctrl-C takes the best so far" in said:
        os.kill(child, signal.SIGINT)
        interrupted = True
_, status = os.waitpid(child, 0)
sys.stdout.write(said.decode().replace("\r", "\n"))
print("interrupted" if interrupted else "never interrupted", "exit code", os.waitstatus_to_exitcode(status))
