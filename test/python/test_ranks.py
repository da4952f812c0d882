"""Ranks compare their collectives when compiled code first runs, without being asked to, and never inside a hook."""

import pytest

torch = pytest.importorskip("torch")

import gloo  # noqa: E402
from commsched.torch import ranks as comparison  # noqa: E402


def _compile(loss, **options):
    import commsched.torch as ct

    with ct.enabled(machine="cpu-mpi", effort=0, **options):
        return torch.compile(loss)


def _agree(rank, ranks):
    from torch._inductor.utils import run_and_get_code

    loss, step = gloo.sharded_step(ranks, layers=2, width=16, extra=False)
    x = torch.ones(4, 16)
    inside = []
    compare = comparison._compare
    comparison._compare = lambda *a: inside.append(torch._dynamo.is_compiling()) or compare(*a)
    compiled = _compile(loss, bucketing=False)
    with gloo.without_kernels():
        _, codes = run_and_get_code(step, compiled, x)
    assert comparison.checked() == 2  # forward and backward
    assert sum(comparison.FUNCTION + "(" in c for c in codes) == 2
    step(compiled, x)
    assert inside == [False, False]  # once each


def _disagree(rank, ranks):
    c10d, group = torch.ops._c10d_functional, torch.distributed.group.WORLD.group_name

    def loss(x):
        a, b = c10d.all_reduce(x, "sum", group), c10d.all_reduce(x[:2], "sum", group)
        if rank == 1:  # two ranks that run other code: what a wrong option or version comes down to
            return c10d.wait_tensor(c10d.all_reduce(x, "max", group)).sum()
        return c10d.wait_tensor(a).sum() + c10d.wait_tensor(b).sum()

    compiled = _compile(loss)
    with gloo.without_kernels(), pytest.raises(RuntimeError, match=r"rank 1 .* than rank 0"):
        compiled(torch.ones(4, 16))


def _missing(rank, ranks):
    import datetime

    c10d, group = torch.ops._c10d_functional, torch.distributed.group.WORLD.group_name
    store = torch.distributed.distributed_c10d._get_default_store()
    store.set_timeout(datetime.timedelta(seconds=3))
    if rank == 0:
        compiled = _compile(lambda x: c10d.wait_tensor(c10d.all_reduce(x, "sum", group)) + 1)
        with gloo.without_kernels(), pytest.raises(RuntimeError, match="not every rank"):
            compiled(torch.ones(4))
        store.set("done", "1")
    else:
        store.set_timeout(datetime.timedelta(seconds=200))
        store.wait(["done"])


@pytest.mark.parametrize("case", [_agree, _disagree, _missing], ids=lambda f: f.__name__)
def test_on_two_ranks(case):
    gloo.run(2, case)


def test_hashes_are_by_group_and_depend_on_the_order():
    one = comparison.hashes({"1": ["b"], "0": ["a", "c"]})
    assert [g for g, _ in one] == ["0", "1"]
    other = comparison.hashes({"1": ["b"], "0": ["c", "a"]})
    assert one[1] == other[1] and one[0] != other[0]


def test_groups_of_one_rank_and_fake_ones_are_not_compared(world):
    before = comparison.checked()
    comparison.first_run(((world, "abc"),))
    comparison.first_run(((world, "abc"),))
    assert comparison.checked() == before + 1
