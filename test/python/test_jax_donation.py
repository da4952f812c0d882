# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""XLA forgets donations of a module that a transformation returns: the reproducer for docs/Jax.md.

It needs nothing of CommSched and no GPU. A failure is good news: XLA keeps donations, so `donation="keep"` may schedule
such modules.
"""

import importlib.util
import json
import os
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import json, sys
    import jax, jax.numpy as jnp
    import jax.extend.xla as xla

    def field(number, payload):  # of a message, with a length below 128
        return bytes([number << 3 & 127 | 2 | (128 if number > 15 else 0)]) + (
            bytes([number >> 4]) if number > 15 else b"") + bytes([len(payload)]) + payload

    # HloModuleProto.buffer_donor (18): parameters 0 and 1 may be overwritten.
    DONORS = field(18, field(1, bytes([8, 0])) + field(1, bytes([8, 1])))
    CHANGES = {"none": None, "same": b"", "donors": DONORS}
    stage, change = sys.argv[1:]

    def transform(module):
        return None if CHANGES[change] is None else module + CHANGES[change]

    xla.register_hlo_module_transformation(
        transform, name="probe", stage=xla.PipelineStage[stage], platforms="cpu"
    )

    def step(parameters, moments, x):
        moments = 0.9 * moments + jnp.tanh(parameters @ x)
        return parameters - moments @ x, moments

    abstract = jax.ShapeDtypeStruct((256, 256), jnp.float32)
    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(abstract, abstract, abstract).compile()
    print(json.dumps(compiled.memory_analysis().alias_size_in_bytes))
"""


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax 0.10.2, which nobody installed here")
@pytest.mark.parametrize("stage", ["PRE_SCHEDULER", "POST_SCHEDULER"])
@pytest.mark.parametrize("change, aliased", [("none", 2 * 256 * 256 * 4), ("same", 0), ("donors", 0)])
def test_xla_forgets_donations_of_a_returned_module(stage, change, aliased):
    environment = dict(os.environ, JAX_PLATFORMS="cpu")
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), stage, change]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == aliased
