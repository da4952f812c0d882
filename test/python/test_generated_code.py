"""The order that was decided is that of the code that Inductor generates. Without the last hook it would not be."""

import difflib
import re

import pytest

torch = pytest.importorskip("torch")

import gloo  # noqa: E402
import torch._inductor.config as ic  # noqa: E402
from commsched.torch import inductor  # noqa: E402
from commsched.torch.options import Options  # noqa: E402
from commsched.torch.collectives import spec_of  # noqa: E402
from commsched.torch.trace import fake_world  # noqa: E402
from torch._inductor.utils import is_collective, is_wait, run_and_get_code  # noqa: E402

CALL = re.compile(r"(?:(\w+) = )?torch\.ops\._c10d_functional\.(\w+)\.default\((\w+)")
OPTIONS = dict(machine="cpu-mpi", effort=50)


def in_code(code):
    """Collectives of generated code in order: ("wait", buffer) or (operator, buffer)."""
    return [("wait", argument) if operator == "wait_tensor" else (operator, result or argument)
            for result, operator, argument in CALL.findall(code)]


def in_kernels(order):
    """The same of Inductor's scheduler nodes."""
    events = []
    for s in order:
        if is_wait(s.node):
            events.append(("wait", s.node.inputs[0].get_name()))
        elif is_collective(s.node):
            events.append((s.node.op_overload._schema.name.split("::")[1], s.node.get_name()))
    return events


def in_graph(graph):
    """The kinds of an FX graph's collectives, in order."""
    specs = [spec_of(n) for n in graph.nodes if n.op == "call_function"]
    return ["wait" if s.is_wait else s.op for s in specs if s.is_wait or s.start is not None]


def compiled_codes(compile_, **patches):
    loss, step = gloo.sharded_step(2, layers=6, width=64, extra=False)
    torch._dynamo.reset()
    with ic.patch(**patches):
        _, codes = run_and_get_code(step, compile_(loss), torch.ones(8, 64))
    return [c for c in codes if "_c10d_functional" in c]


def ours(loss):
    import commsched.torch as ct

    with ct.enabled(**OPTIONS, bucketing=False):
        return torch.compile(loss)


def as_backend(loss):
    return torch.compile(loss, backend="commsched", options=dict(OPTIONS, bucketing=False))


@pytest.mark.parametrize("compile_", [ours, as_backend])
def test_the_decided_order_arrives(monkeypatch, compile_):
    decided = []
    order_kernels = inductor.order_kernels

    def remember(snodes, options):
        order, report = order_kernels(snodes, options)
        decided.append((in_kernels(snodes), in_kernels(order)))
        return order, report

    monkeypatch.setattr(inductor, "order_kernels", remember)
    with gloo.without_kernels(), fake_world(2):
        codes = compiled_codes(compile_)
    assert len(codes) == len(decided) == 2
    assert [in_code(c) for c in codes] == [order for _, order in decided]
    assert any(given != order for given, order in decided)  # and it is not the order that Inductor had


def test_inductor_undoes_an_order_of_the_graph():
    """Why there is a hook after Inductor's peak-memory pass: that pass sorts the kernels anew."""
    graphs = []

    def order_graph(graph):
        inductor.GraphPass(Options(**OPTIONS, bucketing=False))(graph)
        graphs.append(in_graph(graph))

    alike = {}
    for memory in (True, False):
        graphs.clear()
        with gloo.without_kernels(), fake_world(2):
            codes = compiled_codes(torch.compile, post_grad_custom_post_pass=order_graph,
                                   reorder_for_peak_memory=memory)
        kinds = [[kind.removesuffix("_") for kind, _ in in_code(c)] for c in codes]
        alike[memory] = [difflib.SequenceMatcher(None, a, b).ratio() for a, b in zip(graphs, kinds)]
    print("similarity of the collectives' order in graph and code, with and without the peak-memory pass:", alike)
    assert alike[True][1] < 1.0  # the backward graph's order is lost
    assert alike[True][1] < alike[False][1]
