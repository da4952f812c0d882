# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""torchtitan's GraphTrainer with and without CommSched: two steps of a tiny Llama-3 on two gloo processes, bit for bit.

python/requirements-torchtitan.txt names what this needs. torchtitan's own bucketing pass asks the GPU for its
bandwidth, so the run without CommSched is one without any bucketing.
"""

import pathlib
import runpy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchtitan", reason="torchtitan is not installed: python/requirements-torchtitan.txt")

import commsched.torch as ct
import gloo

JOB = pathlib.Path(__file__).parents[2] / "docs" / "examples" / "torchtitan_llama3.py"
RANKS, SEQUENCE, LAYERS = 2, 32, 2
# What needs a GPU: CUDA graphs, recomputation of CPU attention, and torchtitan's bucketing.
DISABLED = [
    "cudagraph_pass",
    "tag_with_memory_policy_pass",
    "selective_activation_remat_pass",
    "joint_transformer_block_bucketing_reordering_pass",
]


def trainer_of(config):
    """GraphTrainer's step on this process's shard of the job's model, as torchtitan's own tests build it."""
    import torchtitan.distributed.parallel_dims as parallel_dims
    from torchtitan.distributed import ParallelDims
    from torchtitan.experiments.graph_trainer.common_utils import apply_simple_fsdp
    from torchtitan.experiments.graph_trainer.llama3.parallelize import annotate_llama
    from torchtitan.experiments.graph_trainer.tests._trainer_test_utils import build_minimal_trainer
    from torchtitan.experiments.graph_trainer.trainer import GraphTrainer

    parallel_dims.device_type = "cpu"
    degrees = dict(dp_shard=-1, dp_replicate=1, cp=1, tp=1, pp=1, ep=1)
    dims = ParallelDims(**degrees, world_size=RANKS, spmd_backend="partial_dtensor")
    model_config = config.model_spec.model
    model_config.layers = model_config.layers[:LAYERS]
    torch.manual_seed(0)
    with torch.device("meta"):
        model = model_config.build()
    annotate_llama(model)
    config.training.mixed_precision_param = config.training.mixed_precision_reduce = "float32"
    model = apply_simple_fsdp(model, parallel_dims=dims, training=config.training)
    model.to_empty(device="cpu")
    with torch.no_grad():
        model.init_states(buffer_device=None)
    trainer = build_minimal_trainer(model.train(), model_config, GraphTrainer, compile_disable_passes=DISABLED)
    trainer.device = torch.device("cpu")
    return trainer


def worker(rank, ranks, scheduled, folder):
    config = runpy.run_path(str(JOB))["tiny"]()
    trainer = trainer_of(config)
    if scheduled:
        from torchtitan.config.override import apply_overrides

        (replaced,) = apply_overrides(config.override, config)
        assert "commsched.torch.titan.schedule: metrics" in replaced
    model, generator = trainer.model_parts[0], torch.Generator().manual_seed(rank)
    vocabulary = trainer.model_config.vocab_size
    losses = []
    for _ in range(2):
        tokens = torch.randint(0, vocabulary, (2, 2, SEQUENCE), generator=generator)
        batch = {"input": tokens[0], "positions": torch.arange(SEQUENCE, dtype=torch.int32).expand(2, SEQUENCE)}
        valid = torch.tensor(float(RANKS * tokens[1].numel()))
        losses.append(
            trainer.forward_backward_step(input_dict=batch, labels=tokens[1], global_valid_tokens=valid).detach()
        )
    gradients = [p.grad.to_local() for p in model.parameters()]
    graphs = [r for r in ct.reports() if r["place"] == "graph"]
    torch.save((losses, gradients, graphs), pathlib.Path(folder, f"{scheduled}-{rank}"))


def test_graph_trainer_computes_the_same_bits(tmp_path):
    for scheduled in (False, True):
        gloo.run(RANKS, worker, scheduled, str(tmp_path))
    for rank in range(RANKS):
        given, own = (torch.load(tmp_path / f"{s}-{rank}") for s in (False, True))
        assert all(map(torch.equal, given[0], own[0]))
        assert len(given[1]) == len(own[1]) > 0 and all(map(torch.equal, given[1], own[1]))
        assert given[2] == []
        (report,) = own[2]
        assert report["holds"] and report["direction"] == "step" and report["collectives"] > 0
        assert report["exposed_ns"]["after"] < report["exposed_ns"]["before"]
        assert report["peak_bytes"]["after"] <= report["peak_bytes"]["limit"]
