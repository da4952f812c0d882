"""Whether what goes wrong is raised: the tests want to see it, a training run wants to go on."""

import os

STRICT = "COMMSCHED_STRICT"


def strict() -> bool:
    """Whether faults are raised instead of being survived (the environment's `COMMSCHED_STRICT`)."""
    return os.environ.get(STRICT, "0") not in ("", "0")
