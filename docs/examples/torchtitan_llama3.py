# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A job of torchtitan 0.3 with CommSched: Llama-3 by GraphTrainer. Run it in this folder:

torchrun --nproc-per-node 8 -m torchtitan.train --module torchtitan_llama3 --config llama3_8b
"""

from torchtitan.experiments.graph_trainer.llama3.config_registry import (
    graph_trainer_llama3_8b,
    graph_trainer_llama3_debugmodel_sdpa,
)

OVERRIDE = ("commsched.torch.titan.schedule", {"machine": "h100-sxm"})


def llama3_8b():
    config = graph_trainer_llama3_8b()
    config.override.imports = [OVERRIDE]
    return config


def tiny():
    config = graph_trainer_llama3_debugmodel_sdpa()
    config.override.imports = [OVERRIDE]
    return config
