"""The command `python -m commsched.torch.trace`, and the public names of `models.trace`."""

import sys

from .models.trace import TraceConfig, build, fake_world, main, meshes, partition, trace

__all__ = ["TraceConfig", "build", "fake_world", "main", "meshes", "partition", "trace"]

if __name__ == "__main__":
    sys.exit(main())
