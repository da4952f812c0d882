# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Merged collectives of every kind: every value is right to the bit, and the metadata is what the operators say."""

import pytest

torch = pytest.importorskip("torch")

from conftest import RANKS, trace
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

import commsched.torch as ct
import gloo
from commsched import Operation
from commsched.torch.apply.plan import PlanError, read_plan
from commsched.torch.apply.rewrite import apply_plan
from commsched.torch.ranks import agreement
from commsched.torch.semantics.operators import storage_of
from random_plans import random_operations

c10d = torch.ops._c10d_functional
KINDS = ("all_gather", "reduce_scatter", "all_reduce")


def everything(world, ranks):
    """A function with several collectives of every kind: odd shapes, casts, permuted and sliced inputs, views of
    results, results that are returned."""

    def gather(x):
        return c10d.wait_tensor(c10d.all_gather_into_tensor(x, ranks, world))

    def scatter(x):
        return c10d.wait_tensor(c10d.reduce_scatter_tensor(x, "sum", ranks, world))

    def reduce(x):
        return c10d.wait_tensor(c10d.all_reduce(x, "sum", world))

    def f(a, b, c):
        low = torch.bfloat16
        gathers = [
            gather(a.to(low)).t(),
            gather(b.to(low)),
            gather((c * 2).to(low)),
            gather(a[0].to(low)),
            gather(b.t().contiguous().to(low)).view(-1)[3:],
            gather(a),
            gather(b),
        ]
        wide = [x.repeat(ranks, 1) for x in (a, b)]
        scatters = [
            scatter(wide[0]) + 1,
            scatter(wide[1]).view(-1),
            scatter(wide[0].t().repeat(ranks, 1)),
            scatter(wide[1].to(low)),
            scatter((wide[0] * 3).to(low)),
        ]
        reduces = [
            reduce(a),
            reduce(b.t()) * 2,
            reduce(c).view(-1)[1:],
            reduce(a * 2).t(),
            reduce(c[:, 0]),
        ]
        return (*gathers, *scatters, *reduces)

    return f


def shapes(graph):
    return [
        None if n is None else (tuple(n.meta["val"].shape), n.meta["val"].stride(), n.meta["val"].dtype)
        for n in graph.output_node().args[0]
    ]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_metadata_is_what_the_operators_say(world, packed, seed):
    gm = trace(everything(world, RANKS), (3, 8), (8, 5), (2, 6))
    before = shapes(gm.graph)
    plan = read_plan(gm.graph, random_operations(gm.graph, seed, packed, merge=1.0))
    assert plan.buckets
    apply_plan(gm.graph, plan)
    gm.graph.lint()
    assert shapes(gm.graph) == before
    said = {n: n.meta["val"] for n in gm.graph.nodes if n.op == "call_function"}
    values = [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"]
    FakeTensorProp(gm, values[0].fake_mode).propagate_dont_convert_inputs(*values)
    for n, mine in said.items():
        for a, b in zip(*(v if isinstance(v, (list, tuple)) else [v] for v in (mine, n.meta["val"]))):
            assert (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device), n
            if a.numel() > 1 and "c10d" not in str(n.target):
                assert [s for s, d in zip(a.stride(), a.shape) if d > 1] == [
                    s for s, d in zip(b.stride(), b.shape) if d > 1
                ], n
    # What shares storage by our metadata shares it by the operators' own, waits aside, which their metadata copies.
    for n in said:
        for source in n.all_input_nodes:
            ours, theirs = said.get(source), source.meta["val"]
            if (
                "c10d" in str(n.target) + str(source.target)
                or not isinstance(ours, torch.Tensor)
                or not isinstance(said[n], torch.Tensor)
            ):
                continue
            assert (storage_of(ours) == storage_of(said[n])) == (storage_of(theirs) == storage_of(n.meta["val"])), n


def _values(rank, ranks):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    name = torch.distributed.group.WORLD.group_name
    f = everything(name, ranks)
    torch.manual_seed(rank)
    # Small whole numbers: their sums are exact in any order, so every element has to be right to the bit.
    args = [torch.randint(-8, 8, s).float() for s in ((3, 2 * ranks), (2 * ranks, 5), (2, 6))]
    expected = f(*args)
    kinds = set()
    for packed in (True, False):
        for seed in range(6):
            mode = FakeTensorMode()
            gm = make_fx(f)(*[mode.from_tensor(a) for a in args])
            plan = read_plan(gm.graph, random_operations(gm.graph, seed, packed, merge=1.0))
            apply_plan(gm.graph, plan)
            gm.recompile()
            kinds |= {(b.kind, b.packed) for b in plan.buckets}
            for i, (a, b) in enumerate(zip(expected, gm(*args))):
                assert torch.equal(a, b), (packed, seed, i)
    assert kinds == {(k, p) for k in KINDS for p in (True, False)}


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_element_lands_in_its_place(ranks):
    gloo.run(ranks, _values)


def test_undone_buckets_leave_the_graph_as_it_was(world):
    """The last bucket fails: everything done before it is taken back, metadata included."""
    gm = trace(everything(world, RANKS), (3, 8), (8, 5), (2, 6))
    before = [(n.op, n.name, str(n.args), id(n.meta.get("val"))) for n in gm.graph.nodes]
    plan = read_plan(gm.graph, random_operations(gm.graph, 0, True, merge=1.0))
    plan.buckets[-1].kind = "all_to_all"
    with pytest.raises(PlanError, match="all_to_all"):
        apply_plan(gm.graph, plan)
    assert [(n.op, n.name, str(n.args), id(n.meta.get("val"))) for n in gm.graph.nodes] == before
    gm.graph.lint()


@pytest.mark.parametrize("packed", [True, False])
def test_what_a_pack_has_copied_may_be_written_while_its_collective_flies(world, packed):
    """In the coalesced form, the collective reads the operand itself, until its wait."""

    def f(x, y, z):
        a, b = (c10d.wait_tensor(c10d.all_gather_into_tensor(t, RANKS, world)) for t in (x, y))
        x.mul_(2)
        return a + 1, b + 1, z @ z

    gm = trace(f, (4, 4), (4, 4), (64, 64))
    starts, waits = ([n for n in gm.graph.nodes if name in n.name] for name in ("all_gather", "wait"))
    (write,) = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.mul_.Tensor)
    others = [n for n in gm.graph.nodes if n.target in (torch.ops.aten.add.Tensor, torch.ops.aten.mm.default)]
    names, landed = tuple(s.name for s in starts), tuple(w.name for w in waits)
    steps = [
        Operation("comm.all_gather", names),
        Operation("comm.compute", (write.name,)),
        Operation("comm.wait", landed),
    ]
    if packed:
        steps.insert(0, Operation("comm.fsdp.all_gather_copy_in", names))
        steps += [Operation("comm.fsdp.split_with_sizes_copy", (w.name,)) for w in waits]
    steps += [Operation("comm.compute", (n.name,)) for n in others]
    if packed:
        apply_plan(gm.graph, read_plan(gm.graph, steps))
        order = list(gm.graph.nodes)
        cat, start = (next(n for n in order if part in n.name) for part in ("cat", "all_gather_into_tensor_out"))
        assert order.index(cat) < order.index(start) < order.index(write)
        return
    with pytest.raises(PlanError, match="expected mul_ behind"):
        apply_plan(gm.graph, read_plan(gm.graph, steps))


def test_casts_of_memory_that_is_written_later_stay_before_the_write(world):
    """An optimizer writes the parameters in place. Their casts are read before, wherever the gathers are merged."""

    def f(x, *weights):
        for w in weights:
            low = w.to(torch.bfloat16)
            x = torch.relu(x @ c10d.wait_tensor(c10d.all_gather_into_tensor(low, RANKS, world)))
        for w in weights:
            w.add_(1.0)
        return x

    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.empty(4096, 512, dtype=torch.bfloat16)
        gm = make_fx(f)(x, *[torch.empty(512 // RANKS, 512) for _ in range(6)])
    gm, report = ct.schedule_overlap(gm, memory_budget_ratio=5.0)
    assert report["buckets"]
    index = {n: i for i, n in enumerate(gm.graph.nodes)}
    for write in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.add_.Tensor):
        readers = [n for n in write.args[0].users if n is not write]
        assert readers and all(index[n] < index[write] for n in readers)


def _reduce(x):
    return c10d.wait_tensor(c10d.all_reduce(x, "sum", torch.distributed.group.WORLD.group_name))


def _scatter(x):
    group = torch.distributed.group.WORLD
    return c10d.wait_tensor(c10d.reduce_scatter_tensor(x, "sum", group.size(), group.group_name))


def _freed(a):
    torch.ops.inductor.resize_storage_bytes_(a, 0)


# The decision to merge two collectives by packing them.
BOTH = (((0, 1), True),)
# Readers of a reduced tensor of an even number of elements, behind one of an odd number: they look at its storage.
LOOKING = {
    "as_strided": lambda a: torch.as_strided(a, (2, 2), (2, 1), 0) + 0,
    "as_strided of a view": lambda a: torch.as_strided(a.view(-1)[1:], (2,), (1,), 0) + 0,
    "as_strided_scatter": lambda a: torch.as_strided_scatter(a, torch.ones(2), (2,), (1,), 0),
    "view_as_complex": lambda a: torch.view_as_complex(a.view(-1, 2)) * 2,
    "view in another type": lambda a: a.view(-1).view(torch.float64) + 0,
    "the caller": lambda a: a,
    "the caller, of a view": lambda a: a.view(-1)[1:],
}


def _members(read, reduce):
    """Two collectives whose results become views if they are merged, the second behind an odd number of elements."""

    def f(x, y):
        return [reduce(x * 2) + 1, read(reduce(y * 2))]

    return f


def _readers_that_look(rank, ranks):
    """Forced into one bucket, a result that is looked at gets memory of its own. Every value stays right to the bit."""
    torch.manual_seed(rank)
    for reduce, rows in ((_reduce, (3, 4)), (_scatter, (3 * ranks, 4 * ranks))):
        args = [torch.randint(-8, 8, (n, 1 + i)).float() for i, n in enumerate(rows)]
        for name, read in LOOKING.items():
            f = _members(read, reduce)
            expected = f(*args)
            gm = make_fx(f, tracing_mode="fake")(*args)
            agreement.impose(gm.graph, BOTH)
            gm.recompile()
            got = gm(*args)
            assert all(map(torch.equal, expected, got)), name
            if "caller" in name:
                assert got[1].storage_offset() == expected[1].storage_offset(), name
                assert got[1].untyped_storage().nbytes() == expected[1].untyped_storage().nbytes(), name


def _freed_member(rank, ranks):
    """Freeing the storage of one member's result leaves the others."""

    def f(x, y):
        a, b = _reduce(x), _reduce(y)
        first = a.sum()
        _freed(a)
        return first, b + 1

    args = [torch.full((4, 4), float(rank)), torch.full((4, 4), 2.0)]
    expected = f(*[a.clone() for a in args])
    gm = make_fx(f, tracing_mode="fake")(*args)
    agreement.impose(gm.graph, BOTH)
    gm.recompile()
    assert all(map(torch.equal, expected, gm(*args)))


def _complex_gathers(rank, ranks):
    group = torch.distributed.group.WORLD.group_name

    def f(x, y):
        gathered = [c10d.wait_tensor(c10d.all_gather_into_tensor(v * 1j, ranks, group)) for v in (x, y)]
        return gathered[0], gathered[1].t() * 2

    args = [torch.randn(3, 2), torch.randn(2, 5)]
    expected = f(*args)
    for packed in (True, False):
        gm = make_fx(f, tracing_mode="fake")(*args)
        agreement.impose(gm.graph, (((0, 1), packed),))
        gm.recompile()
        assert all(map(torch.equal, expected, gm(*args))), packed


def _in_real_code(rank, ranks):
    """Generated code of a function whose readers look, against plain Inductor."""

    def f(x, y):
        odd, even = _reduce(x * 2), _reduce(y * 2)
        return odd + 1, torch.as_strided(even, (2, 2), (2, 1), 0) + 0, torch.view_as_complex(even) * 2

    args = [torch.randint(-8, 8, (3, 1)).float() + rank, torch.randint(-8, 8, (4, 2)).float()]
    with torch._inductor.config.patch(force_disable_caches=True):
        expected = torch.compile(f)(*args)
        torch._dynamo.reset()
        options = ct.inductor_options(machine="cpu-mpi", memory_budget_ratio=4.0)
        assert all(map(torch.equal, expected, torch.compile(f, options=options)(*args)))


@pytest.mark.parametrize("case", [_readers_that_look, _freed_member, _complex_gathers, _in_real_code])
def test_merged_results_are_what_their_readers_expect(case):
    gloo.run(2, case)


def test_gradients_are_merged_and_results_of_a_forward_graph_are_not(world):
    """The caller may look at the storage of a result. Autograd gives views as gradients, too."""
    from commsched.torch.apply.readers import unmergeable

    def returned(prefix):
        gm = trace(lambda x, y: [_reduce(x * 2).view(-1), _reduce(y * 2).to(torch.float64)], (4,), (6,))
        for n in gm.graph.find_nodes(op="placeholder"):
            n.name = f"{prefix}_{n.name}"
        return unmergeable(gm.graph)

    assert returned("primals") == {"all_reduce"}  # The other one is read by a cast.
    assert not returned("tangents")


def test_unknown_readers_look(world):
    from commsched.torch.apply.readers import unmergeable

    with torch.library._scoped_library("commsched_test", "FRAGMENT") as library:
        library.define("seen(Tensor x) -> Tensor")
        library.impl("seen", lambda x: x + 1, "CompositeExplicitAutograd")
        gm = trace(lambda x: torch.ops.commsched_test.seen(_reduce(x)[1:]) + _reduce(x * 2).sum(), (4,))
    assert unmergeable(gm.graph) == {"all_reduce"}


@pytest.mark.parametrize("operator", ["all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce"])
def test_a_list_of_one_tensor_stays_beside_what_is_merged(world, operator):
    """It looks like the collective of that tensor, but its result is a list."""
    arguments = {"all_gather_into_tensor": (8, world), "reduce_scatter_tensor": ("sum", 8, world)}
    rest = arguments.get(operator, ("sum", world))
    one, listed = getattr(c10d, operator), getattr(c10d, f"{operator}_coalesced")

    def f(*xs):
        flying = [one(xs[0], *rest), listed([xs[1]], *rest)[0], one(xs[2], *rest), listed([xs[3]], *rest)[0]]
        return [c10d.wait_tensor(x) + 1 for x in flying]

    gm, report = ct.schedule_overlap(trace(f, *[(64, 64)] * 4), memory_budget_ratio=4.0)
    assert report["buckets"] == [[operator, f"{operator}_1"]]


def test_a_merge_that_changes_a_value_is_undone(world, monkeypatch):
    """A reader that is wrongly taken for one that does not look refuses the offset. The others are still merged."""
    from commsched.torch.apply import readers

    monkeypatch.setattr(readers, "LOOKING", readers.LOOKING - {"view_as_complex"})

    def f(*xs):
        reduced = [_reduce(x * 2) for x in xs]
        return [*(r + 1 for r in reduced[:3]), torch.view_as_complex(reduced[3]) * 2]

    gm = trace(f, (3,), (3,), (3,), (4, 2))
    gm, report = ct.schedule_overlap(gm, machine="cpu-mpi", memory_budget_ratio=4.0)
    assert report["buckets"] and all("all_reduce_3" not in bucket for bucket in report["buckets"])
    gm.graph.lint()
