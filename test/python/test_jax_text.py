# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""XLA's own parser reads the HLO text that commsched-hlo writes, and finds the order that the message has."""

import importlib.util
import os
import pathlib
import subprocess

import pytest

import commsched.jax

INPUTS = pathlib.Path(__file__).resolve().parents[2] / "test" / "Frontends" / "Inputs"
TOOL = pathlib.Path(os.environ.get("COMMSCHED_COMM_RUN", "comm-run")).with_name("commsched-hlo")


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax 0.10.2, which scripts/setup.sh installs")
@pytest.mark.skipif(not TOOL.exists(), reason=f"needs {TOOL}, beside the comm-run that COMMSCHED_COMM_RUN names")
@pytest.mark.parametrize("name", ["small-fsdp", "small-scan", "small-moe", "forms"])
def test_xla_reads_what_is_written_as_text(name, tmp_path):
    import jax  # noqa: F401 - jaxlib's types need it
    from jaxlib import _hlo

    written = tmp_path / "written.txt"
    subprocess.run([TOOL, INPUTS / f"{name}.txt", "-o", written], check=True, capture_output=True)
    read = _hlo.hlo_module_from_text(written.read_text()).as_serialized_hlo_module_proto()
    # What XLA read has the time of what was scheduled, and nothing more to gain that the message does not have.
    message = commsched.jax.schedule((INPUTS / f"{name}.pb").read_bytes(), buckets=False)[1]
    given = _hlo.hlo_module_from_text((INPUTS / f"{name}.txt").read_text()).as_serialized_hlo_module_proto()
    again = commsched.jax.schedule(read, buckets=False)[1]
    if name != "forms":  # One of its collectives is over all devices, whose number XLA does not write into a message.
        assert commsched.jax.schedule(given, buckets=False)[1]["signature"] == message["signature"]
        assert again["makespan_ns"]["before"] == message["makespan_ns"]["after"]
        assert again["peak_bytes"]["before"] == message["peak_bytes"]["after"]
    assert again["makespan_ns"]["before"] <= commsched.jax.schedule(given, buckets=False)[1]["makespan_ns"]["before"]


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax 0.10.2, which scripts/setup.sh installs")
@pytest.mark.skipif(not TOOL.exists(), reason=f"needs {TOOL}, beside the comm-run that COMMSCHED_COMM_RUN names")
def test_a_convolution_costs_the_same_as_message_and_as_text(tmp_path):
    """XLA's own message of a text has the dimension of the features where the reader looks for it."""
    import jax  # noqa: F401 - jaxlib's types need it
    from jaxlib import _hlo

    said = set()
    for labels in ("b01f_o01i->b01f", "b01f_01io->b01f"):
        text = f"""HloModule m, is_scheduled=true

ENTRY %main (x: bf16[16,56,56,256], w: bf16[256,3,3,64]) -> (bf16[16,56,56,64], u8[0]) {{
  %x = bf16[16,56,56,256]{{3,2,1,0}} parameter(0)
  %w = bf16[256,3,3,64]{{3,2,1,0}} parameter(1)
  ROOT %c = (bf16[16,56,56,64]{{3,2,1,0}}, u8[0]{{0}}) custom-call(%x, %w), window={{size=3x3}},
    dim_labels={labels}, custom_call_target="__cudnn$convForward"
}}
""".replace(",\n   ", ",")
        (tmp_path / "c.txt").write_text(text)
        (tmp_path / "c.pb").write_bytes(_hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
        answers = set()
        for name in ("c.txt", "c.pb"):
            command = [TOOL, tmp_path / name, "-o", tmp_path / f"out-{name}"]
            answers.add(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert len(answers) == 1
        said |= answers
    # 256 features, and 64: another number of operations.
    assert len(said) == 2 and all("makespan" in answer for answer in said)
