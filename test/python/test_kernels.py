# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""comm-run's reference kernels against PyTorch's own operators, through .npy files."""

import os
import subprocess

import numpy as np
import pytest
import torch

COMM_RUN = os.environ.get("COMMSCHED_COMM_RUN", "")
aten = torch.ops.aten


def randn(*shape):
    return torch.randn(
        shape, generator=torch.Generator().manual_seed(len(shape) * 1000 + shape[-1]), dtype=torch.float64
    )


GRADIENT, PROBABILITIES = randn(6, 9), torch.softmax(randn(6, 9), -1)
# Indexed by kernels that take only tensors: the further arguments of PyTorch's operator, which the kernel implies.
CASES = {
    "aten.relu.default": ((randn(7, 5),), aten.relu),
    "aten.sigmoid.default": ((randn(7, 5),), aten.sigmoid),
    "aten.silu.default": ((randn(7, 5),), aten.silu),
    "aten.gelu.default": ((randn(7, 5),), aten.gelu),
    "aten.rsqrt.default": ((randn(7, 5).abs() + 0.1,), aten.rsqrt),
    "aten.reciprocal.default": ((randn(7, 5).abs() + 0.1,), aten.reciprocal),
    "aten.add.Tensor": ((randn(7, 5), randn(5)), aten.add),
    "aten.div.Tensor": ((randn(7, 5), randn(7, 1).abs() + 1), aten.div),
    "aten.pow.Tensor_Tensor": ((randn(7, 5).abs(), randn(7, 5)), aten.pow),
    "aten.threshold_backward.default": (
        (randn(7, 5), randn(7, 5).flip(0)),
        lambda g, x: aten.threshold_backward(g, x, 0),
    ),
    "aten._softmax.default": ((randn(6, 9),), lambda x: aten._softmax(x, -1, False)),
    "aten._softmax_backward_data.default": (
        (GRADIENT, PROBABILITIES),
        lambda g, y: aten._softmax_backward_data(g, y, -1, torch.float64),
    ),
    "aten.t.default": ((randn(3, 4),), aten.t),
    "aten.mm.default": ((randn(33, 70), randn(70, 41)), aten.mm),
    "aten.addmm.default": ((randn(41), randn(33, 70), randn(70, 41)), aten.addmm),
    "aten.bmm.default": ((randn(3, 6, 8), randn(3, 8, 7)), aten.bmm),
}


def type_of(value):
    return f"tensor<{'x'.join(map(str, value.shape))}xf64>"


@pytest.mark.skipif(not COMM_RUN, reason="COMMSCHED_COMM_RUN does not name comm-run; ctest sets it")
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_is_pytorchs_operator(name, tmp_path):
    arguments, operator = CASES[name]
    expected = operator(*arguments).contiguous()
    types = [type_of(argument) for argument in arguments]
    parameters = ", ".join(f"%a{i}: {text}" for i, text in enumerate(types))
    uses = ", ".join(f"%a{i}" for i in range(len(types)))
    program = tmp_path / "program.mlir"
    program.write_text(f"""func.func @main({parameters}) -> {type_of(expected)} {{
  %r = comm.compute "{name}"({uses}) : ({", ".join(types)}) -> {type_of(expected)}
  return %r : {type_of(expected)}
}}
""")
    command = [COMM_RUN, program, "--output", tmp_path]
    for i, argument in enumerate(arguments):
        np.save(tmp_path / f"in{i}.npy", argument.contiguous().numpy())
        command.append(f"--input={i}={tmp_path}/in{i}.npy")
    subprocess.run(command, check=True, capture_output=True, text=True)
    result = np.load(tmp_path / "rank0_result0.npy")
    assert result.shape == tuple(expected.shape)
    np.testing.assert_allclose(result, expected.numpy(), rtol=1e-12, atol=1e-14)
