# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""commsched.jax.convert makes of HLO text the module that it was printed from, and text of a module."""

import importlib.metadata
import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

import commsched.jax
from commsched.jax import convert

INPUTS = pathlib.Path(__file__).resolve().parents[2] / "test" / "Frontends" / "Inputs"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="needs jax 0.10.2, which scripts/setup.sh installs"
)


def measured(module: bytes) -> dict:
    """The report of a module."""
    return commsched.jax.schedule(module, buckets=False)[1]


def test_the_module_of_forms_is_that_of_its_text():
    made, given = convert.to_bytes((INPUTS / "forms.txt").read_text()), (INPUTS / "forms.pb").read_bytes()
    if importlib.metadata.version("jaxlib").startswith("0.10."):  # Its XLA wrote the file. Others write other fields.
        assert made == given
    assert measured(made) == measured(given)


def test_a_program_of_jax_is_the_same_module_from_its_text():
    import jax
    import jax.numpy as jnp

    compiled = jax.jit(lambda x, y: jnp.tanh(x @ y) @ y).lower(jnp.ones((64, 64)), jnp.ones((64, 64))).compile()
    (module,) = compiled.runtime_executable().hlo_modules()
    given, again = measured(module.as_serialized_hlo_module_proto()), measured(convert.to_bytes(compiled.as_text()))
    assert again == given and given["makespan_ns"]["before"] > 0


def test_a_collective_over_all_devices_has_the_devices_of_the_text():
    def ranks(attributes):
        text = f"""HloModule m, is_scheduled=true{attributes}

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}}

ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[8] parameter(0)
  %start = f32[8] all-reduce-start(%x), replica_groups={{}}, to_apply=%add
  ROOT %done = f32[8] all-reduce-done(%start)
}}
"""
        module = convert.to_bytes(text)
        assert convert.to_text(module).startswith("HloModule m, is_scheduled=true")  # XLA takes the devices, too.
        return measured(module)["computations"][-1]["starts"][0]["ranks"]

    assert [ranks(given) for given in ("", ", num_partitions=4", ", replica_count=2, num_partitions=300")] == [
        1,
        4,
        600,
    ]


def test_text_has_the_instructions_in_the_order_of_the_module():
    module = (INPUTS / "forms.pb").read_bytes()
    given = (INPUTS / "forms.txt").read_text()

    def names(text):
        return re.findall(r"^ +(?:ROOT )?%(\S+) = ", text[text.index("ENTRY") :], re.MULTILINE)

    assert names(convert.to_text(module)) == names(given)
    scheduled, report = commsched.jax.schedule(module, buckets=False)
    assert report["changed"]
    assert names(convert.to_text(scheduled)) != names(given)
    assert sorted(names(convert.to_text(scheduled))) == sorted(names(given))


@pytest.mark.parametrize("labels, features", [("b01f_o01i->b01f", 256), ("b01f_01io->b01f", 64)])
def test_the_message_of_a_convolution_has_its_features_where_they_are_read(labels, features):
    """XLA's own message of a text has the dimension of the features where the reader looks for it."""
    call = f'custom-call(%x, %w), window={{size=3x3}}, dim_labels={labels}, custom_call_target="__cudnn$convForward"'
    text = f"""HloModule m, is_scheduled=true

ENTRY %main (x: bf16[16,56,56,256], w: bf16[256,3,3,64]) -> (bf16[16,56,56,64], u8[0]) {{
  %x = bf16[16,56,56,256]{{3,2,1,0}} parameter(0)
  %w = bf16[256,3,3,64]{{3,2,1,0}} parameter(1)
  ROOT %c = (bf16[16,56,56,64]{{3,2,1,0}}, u8[0]{{0}}) {call}
}}
"""
    flops = 2 * (16 * 56 * 56 * 64) * (256 * 3 * 3 * 64 // features)
    # Large products on an H100 run at less than the 989 TFLOP/s of its data sheet, and at more than half of it.
    assert flops / 989e3 < measured(convert.to_bytes(text))["makespan_ns"]["before"] < 2 * flops / 989e3 + 10_000


def test_the_command_converts_both_ways_and_says_what_is_wrong(tmp_path):
    command = [sys.executable, "-m", "commsched.jax.convert"]
    module, text, again = tmp_path / "a.pb", tmp_path / "a.txt", tmp_path / "b.pb"
    module.write_bytes((INPUTS / "forms.pb").read_bytes())
    subprocess.run([*command, module, text], check=True)
    subprocess.run([*command, text, again], check=True)
    assert convert.to_text(again.read_bytes()) == text.read_text()
    text.write_text(text.read_text().replace("parameter(1)", "parameter(x)"))
    again.unlink()
    done = subprocess.run([*command, text, again], capture_output=True, text=True)
    assert done.returncode == 1 and not again.exists()
    # XLA of JAX 0.11 says first that there is no GPU.
    said = re.search(r"^commsched\.jax\.convert: error: '(.*)': ", done.stderr, re.MULTILINE)
    assert said and said[1] == str(text) and "parameter(x)" in done.stderr
