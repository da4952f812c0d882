# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Random SPMD steps as Python source, a line for each operation. `fuzz.py` runs them.

A step takes small whole numbers, and every value is limited again after it was computed, so sums are exact in any order
and results can be compared bit for bit. Nothing writes what a collective in flight reads, so running a step eagerly is
no race: a collective is waited for in the same line, or reads a value that nobody writes (`late`).
"""

from __future__ import annotations

import random
from typing import NamedTuple

# Types, each with the reductions that gloo has for it.
FLOATS = ("float32", "float64", "bfloat16", "float16")
INTEGERS = ("int32", "int64", "uint8", "int8")
LIMIT = 8


class Value(NamedTuple):
    """What the generator knows of a tensor.

    Args:
        shape: the sizes.
        dtype: the name of the type.
        written: whether some line may write its memory.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    written: bool = False


class Step:
    """A random step: `lines` of the body, `returned` expressions, and the `arguments` with their values.

    Args:
        seed: decides everything.
        ranks: the number of ranks.
        gradient: whether the step is differentiated: collectives are those that autograd knows.
        traced: whether PyTorch's compiler traces the step, so that in-place collectives are those of torch.distributed.
        variant: another step that differs in its scalars alone.

    Attributes:
        chained: whether the step begins with layers that are worth splitting into strands.
        joined: whether the argument `l` is a view of `a`.
    """

    joined = False

    def __init__(self, seed: int, ranks: int, gradient: bool = False, traced: bool = False, variant: int = 0):
        self.r, self.ranks, self.gradient, self.traced, self.variant = (
            random.Random(seed),
            ranks,
            gradient,
            traced,
            variant,
        )
        rows, columns = self.r.choice([4, 8, 12]), self.r.choice([4, 6, 8])
        floating = Value((rows, columns))
        self.arguments = {
            "x": floating,
            "w": Value((columns, columns)),
            "i": Value((4,), "int64"),
            "a": Value((rows, columns), written=True),
            "b": Value((ranks * 2, columns), written=True),
            "e": Value((0, columns)),
        }
        self.values = {k: v for k, v in self.arguments.items() if k != "i"}
        self.lines: list[str] = []
        self.made: dict[str, Value] = {}
        self.late: list[tuple[str, Value]] = []
        operations = [getattr(self, n) for n in dir(Step) if n.startswith(("one_", "two_"))]
        operations = [op for op in operations if not (gradient and op.__name__.startswith("two_"))]
        collectives = [op for op in operations if op.__doc__ and op.__doc__.startswith("Collective")]
        self.chained = not gradient and self.r.random() < 0.2
        if self.chained:
            self._chain()
        for _ in range(self.r.randint(0, 4) if self.chained else self.r.randint(6, 18)):
            if self.late and self.r.random() < 0.3:
                self._land()
            self.r.choice(collectives if self.r.random() < 0.45 else operations)()
        while self.late:
            self._land()
        if traced and not gradient:
            self._add_of_compilers(random.Random(-1 - seed))
        names = [n for n in self.made if self.r.random() < 0.5] + list(self.made)[-2:]
        self.returned = list(dict.fromkeys(names)) or ["x + 1"]
        if not gradient and self.r.random() < 0.3:
            self.returned.append("a[:2]")

    def source(self, lines: list[str] | None = None, returned: list[str] | None = None) -> str:
        """The function `step`."""
        returned = self.returned if returned is None else returned
        if self.gradient:
            terms = [f"(({n}).float() * ({n}).float()).sum()" for n in returned]
            result = f"{' + '.join([*terms, '(x @ w).sum()'])}"
        else:
            result = f"({', '.join(returned)},)"
        body = "\n    ".join([*(self.lines if lines is None else lines), f"return {result}"])
        return f"def step({', '.join(self.arguments)}):\n    {body}\n"

    # Pieces

    def _add_of_compilers(self, r: random.Random) -> None:
        """Adds lines that only a compiler makes one step of: writes of an argument that may be a view of another one,
        and exchanges of other numbers of rows on each rank. They have random numbers of their own.
        """
        columns = self.arguments["x"].shape[1]
        self.arguments["l"] = Value((2, columns), written=True)
        self.joined, added = r.random() < 0.5, []
        if r.random() < 0.3:
            added += r.sample(["l.add_(1)", "a[:3].sub_(l[:1].clone())", "l.copy_(x[1:3])", "dist.all_reduce(l)"], 2)
            added.append(f"l.clamp_(-{LIMIT}, {LIMIT}); a.clamp_(-{LIMIT}, {LIMIT})")
        if self.ranks == 2 and r.random() < 0.3:
            name, rows = f"v{len(self.made)}", [[r.randint(0, 2) for _ in range(2)] for _ in range(2)]
            gives, takes = (f"({a} if R == 0 else {b})" for a, b in (rows, map(list, zip(*rows))))
            call = f"C.all_to_all_single(x[: sum({gives})].contiguous(), {takes}, {gives}, G)"
            added.append(f"{name} = W({call}).sum(0, keepdim=True)")
            self.made[name] = Value((1, columns))
        if r.random() < 0.2:  # A graph inside, which writes memory of its own, while what it reads is reduced.
            name, flies = (
                f"v{len(self.made)}",
                r.choice(['C.all_reduce(x, "max", G)', f"C.all_gather_into_tensor(x, {self.ranks}, G)"]),
            )
            inside = r.choice(
                [
                    "scan(lambda s, t: ((s + t).clamp(-8, 8), s - t), x[0] * 0, x, dim=0)[1]",
                    "while_loop(lambda j, t: j < 2, lambda j, t: (j + 1, (t + x).clamp(-8, 8)), (i[0] * 0, x * 1))[1]",
                    "torch.cond(x.sum() > 0, lambda t: t - 1, lambda t: t * 2, (x,))",
                ]
            )
            added.append(f"h = {flies}; {name} = {inside}; {name} = {name} + W(h)[: x.shape[0]]")
            self.made[name] = self.arguments["x"]
        for line in added:
            self.lines.insert(r.randint(0, len(self.lines)), line)

    def _pick(self, *, floating=False, integral=False, rows=0, dims=2, dtypes=None, fresh=False) -> tuple[str, Value]:
        """A value that qualifies, one of the newest if possible. `rows`: it divides the leading size."""
        found = []
        for name, v in self.values.items():
            if (
                dims
                and len(v.shape) != dims
                or floating
                and v.dtype not in FLOATS
                or integral
                and v.dtype not in INTEGERS
            ):
                continue
            if (
                rows
                and (v.shape[0] % rows or not v.shape[0])
                or dtypes
                and v.dtype not in dtypes
                or fresh
                and v.written
            ):
                continue
            found.append(name)
        name = self.r.choice(found[-6:] if self.r.random() < 0.7 else found)
        return name, self.values[name]

    def _new(self, text: str, value: Value, limited: bool = True) -> str:
        name = f"v{len(self.made)}"
        if limited and value.dtype in FLOATS:
            text = f"torch.clamp({text}, -{LIMIT}, {LIMIT})"
        self.lines.append(f"{name} = {text}")
        self.values[name] = self.made[name] = value
        return name

    def _collective(self, call: str, value: Value, reads: Value, autograd: str = "") -> None:
        """A collective that is waited for at once, again, as a view, or later."""
        if self.gradient:
            if autograd:
                self._new(f"fc.{autograd}", value)
            return
        how = self.r.choice(["at once"] * 4 + ["again", "view", "late", "late", "late"])
        if how == "late" and not reads.written:
            name = f"s{len(self.lines)}"
            self.lines.append(f"{name} = {call}")
            self.late.append((name, value))
        elif how == "again":
            self._new(f"W(W({call}))", value, False)
        elif how == "view" and 0 not in value.shape:
            self._new(f"W(W({call}).view(-1)).view({list(value.shape)})", value, False)
        else:
            self._new(f"W({call})", value, False)

    def _land(self) -> None:
        name, value = self.late.pop(self.r.randrange(len(self.late)))
        self._new(f"W({name})", value, False)

    def _group(self) -> tuple[str, int]:
        return self.r.choice([("G", self.ranks), ("G", self.ranks), ("H", self.ranks), ("S", 1)])

    def _reduction(self) -> str:
        return self.r.choice(["sum", "max", "min"])

    def _along(self, n: str) -> list[str]:
        """Forms that run along a dimension, another one in another variant."""
        d = (self.r.randrange(2) + self.variant) % 2
        return [
            f"torch.cumsum({n}, {d})",
            f"torch.sort({n}, {d})[0]",
            f"{n}.amax({d}, keepdim=True) + {n} * 0",
            f"torch.softmax({n}, {d}).mul(4).round()",
        ]

    def _scalar(self) -> int:
        """A scalar that differs between variants."""
        return self.r.choice([1, 2, 3]) + self.variant

    def _chain(self) -> None:
        """Layers of a tensor-parallel model: strands pay here, since nothing else hides the reductions."""
        n, value = "x", self.arguments["x"]
        for _ in range(self.r.randint(2, 4)):
            n = self._new(f"torch.relu({n} @ w)", value)
            n = self._new(f'W(C.all_reduce({n}, "{self._reduction()}", G))', value, False)
            if self.r.random() < 0.7:
                n = self._new(self.r.choice([*self._along(n), f"{n} * {self._scalar()} - {n}", f"{n}.flip(0)"]), value)

    # Collectives

    def one_gather(self):
        """Collective."""
        n, v = self._pick()
        g, size = self._group()
        if size * v.shape[0] <= 64:
            result = Value((size * v.shape[0], *v.shape[1:]), v.dtype)
            self._collective(
                f"C.all_gather_into_tensor({n}.contiguous(), {size}, {g})",
                result,
                v,
                f"all_gather_tensor_autograd({n}, 0, {g})",
            )

    def one_gather_more(self):
        """Collective."""
        self.one_gather()
        self.one_gather()

    def one_scatter(self):
        """Collective."""
        g, size = self._group()
        n, v = self._pick(rows=size, dtypes=("float32", "float64", "bfloat16", "int32"))
        result = Value((v.shape[0] // size, *v.shape[1:]), v.dtype)
        op = self._reduction()
        self._collective(
            f'C.reduce_scatter_tensor({n}.contiguous(), "{op}", {size}, {g})',
            result,
            v,
            f'reduce_scatter_tensor_autograd({n}, "sum", 0, {g})',
        )

    def one_reduce(self):
        """Collective."""
        n, v = self._pick()
        call = f'C.all_reduce({n}, "{self._reduction()}", {self._group()[0]})'
        self._collective(call, Value(v.shape, v.dtype), v)

    def one_reduce_view(self):
        """Collective."""
        n, v = self._pick(rows=2)
        part = self.r.choice(["[1:]", "[::2]", ".t()", "[:, :2]"])
        shape = {
            "[1:]": (v.shape[0] - 1, v.shape[1]),
            "[::2]": (v.shape[0] // 2, v.shape[1]),
            ".t()": v.shape[::-1],
            "[:, :2]": (v.shape[0], min(2, v.shape[1])),
        }[part]
        self._collective(
            f'C.all_reduce({n}{part}, "{self._reduction()}", {self._group()[0]})', Value(shape, v.dtype), v
        )

    def one_exchange(self):
        """Collective."""
        n, v = self._pick(rows=self.ranks)
        piece = v.shape[0] // self.ranks
        text = str([piece] * self.ranks)
        if self.ranks == 2 and v.shape[0] > 2:  # What one rank keeps, the other one gets.
            k = self.r.randint(0, v.shape[0])
            text = f"([{k}, {v.shape[0] - k}] if R == 0 else [{v.shape[0] - k}, {k}])"
        self._collective(
            f"C.all_to_all_single({n}.contiguous(), {text}, {text}, G)",
            Value(v.shape, v.dtype),
            v,
            f"all_to_all_single_autograd({n}.contiguous(), {text}, {text}, G)",
        )

    def two_broadcast(self):
        """Collective."""
        n, v = self._pick()
        self._collective(f"C.broadcast({n}, {self.r.randrange(self.ranks)}, G)", Value(v.shape, v.dtype), v)

    def two_coalesced(self):
        """Collective."""
        (n, v), (m, u) = (
            self._pick(rows=self.ranks, dtypes=("float32", "int32")),
            self._pick(rows=self.ranks, dtypes=("float32",)),
        )
        if v.dtype != u.dtype:
            return
        kind = self.r.choice(["all_reduce", "all_gather", "reduce_scatter"])
        both = f"[{n}.contiguous(), {m}.contiguous()]"
        call, scale = {
            "all_reduce": (f'C.all_reduce_coalesced({both}, "sum", G)', (1, 1)),
            "all_gather": (f"C.all_gather_into_tensor_coalesced({both}, {self.ranks}, G)", (self.ranks, 1)),
            "reduce_scatter": (f'C.reduce_scatter_tensor_coalesced({both}, "sum", {self.ranks}, G)', (1, self.ranks)),
        }[kind]
        name = f"s{len(self.lines)}"
        self.lines.append(f"{name} = {call}")
        for i, value in enumerate((v, u)):
            self._new(
                f"W({name}[{i}])", Value((value.shape[0] * scale[0] // scale[1], *value.shape[1:]), value.dtype), False
            )

    def two_reduce_in_place(self):
        """Collective."""
        n = self.r.choice(["a", "b"])
        if self.traced:
            self.lines.append(f"dist.all_reduce({n})")
        else:
            self.lines.append(
                self.r.choice([f'W(C.all_reduce_({n}, "max", G))', f'W(C.all_reduce_coalesced_([{n}], "min", G)[0])'])
            )
        self.lines.append(f"{n}.clamp_(-{LIMIT}, {LIMIT})")

    def two_gather_into(self):
        """Collective."""
        n, v = self._pick(dtypes=("float32",))
        if v.shape[1:] == self.arguments["b"].shape[1:] and v.shape[0] >= 2:
            part = f"{n}[:2].contiguous()"
            self.lines.append(
                f"dist.all_gather_into_tensor(b, {part})"
                if self.traced
                else f"W(C.all_gather_into_tensor_out({part}, {self.ranks}, G, out=b))"
            )

    # Views

    def one_view(self):
        n, v = self._pick()
        rows, columns = v.shape
        views = [
            (f"{n}.t()", (columns, rows)),
            (f"{n}.narrow(1, {columns // 2}, {columns - columns // 2})", (rows, columns - columns // 2)),
        ]
        if rows > 1:
            views += [
                (f"{n}[1:]", (rows - 1, columns)),
                (f"{n}[::2]", ((rows + 1) // 2, columns)),
                (f"{n}.chunk(2)[0]", ((rows + 1) // 2, columns)),
            ]
            views += [
                (f"{n}.select(0, 1).unsqueeze(0)", (1, columns)),
                (f"{n}.select(0, 0).expand(3, {columns})", (3, columns)),
            ]
        if 0 not in v.shape:
            views += [(f"{n}.reshape(-1).reshape({columns}, {rows})", (columns, rows)), (f"{n}.flip(0)", v.shape)]
            views += [
                (f"{n}.contiguous().as_strided(({rows}, 1), ({columns}, 1))", (rows, 1)),
                (f"{n}.diagonal().unsqueeze(0)", (1, min(v.shape))),
            ]
        text, shape = self.r.choice(views)
        self._new(text, Value(shape, v.dtype, v.written), False)

    def one_dense_view(self):
        n, v = self._pick(dtypes=("float32",))
        if v.shape[1] % 2 or 0 in v.shape:
            return
        if self.r.random() < 0.5:
            pairs = f"torch.view_as_complex({n}.contiguous().view({v.shape[0]}, -1, 2))"
            self._new(f"torch.view_as_real({pairs} * 1).reshape({list(v.shape)})", Value(v.shape))
        elif not self.gradient:
            self._new(f"{n}.contiguous().view(torch.int32)", Value(v.shape, "int32"), False)

    def one_strided(self):
        n, v = self._pick(dtypes=("float32",))
        if 0 not in v.shape and not self.gradient:
            self._new(
                f"torch.as_strided({n}.abs() + {n}, ({v.shape[1]}, {v.shape[0]}), (1, {v.shape[1]}), 0)",
                Value(v.shape[::-1]),
            )

    def one_cast(self):
        n, v = self._pick()
        dtype = self.r.choice(FLOATS if self.gradient else FLOATS + INTEGERS)
        text = f"{n}.abs()" if dtype == "uint8" and v.dtype in (*FLOATS, "int32", "int64", "int8") else n
        self._new(f"torch.clamp({text}, -{LIMIT}, {LIMIT}).to(torch.{dtype})", Value(v.shape, dtype), False)

    # Computation

    def one_product(self):
        n, v = self._pick(dtypes=("float32",))
        k = v.shape[1]
        other = [
            m
            for m, u in self.values.items()
            if u.dtype == "float32" and len(u.shape) == 2 and u.shape[0] == k and 0 not in u.shape
        ]
        if other and 0 not in v.shape:
            m = self.r.choice(other)
            self._new(f"{n} @ {m}", Value((v.shape[0], self.values[m].shape[1])))

    def one_pointwise(self):
        n, v = self._pick(floating=True)
        k = self._scalar()
        self._new(
            self.r.choice([f"torch.relu({n})", f"{n} * {k} - {n}", f"{n} + {k}", f"torch.where({n} > {k}, {n}, -{n})"]),
            Value(v.shape, v.dtype),
        )

    def one_along(self):
        n, v = self._pick(dtypes=("float32", "float64"))
        if 0 in v.shape:
            return
        self._new(self.r.choice(self._along(n)), Value(v.shape, v.dtype))

    def one_concatenation(self):
        n, v = self._pick()
        if v.shape[0] < 24:
            self._new(f"torch.cat([{n}, {n}.flip(0)])", Value((2 * v.shape[0], v.shape[1]), v.dtype), False)

    def one_rows(self):
        n, v = self._pick(dtypes=("float32",))
        if v.shape[0]:
            self._new(
                f"{n}.index_add(0, i % {v.shape[0]}, x[:1].narrow(1, 0, 1).expand(4, {v.shape[1]}))", Value(v.shape)
            )

    # Writes

    def _part(self, shape: tuple[int, int]) -> str | None:
        """An expression of these sizes, made of a value of type float32."""
        n, v = self._pick(dtypes=("float32",))
        if 0 in v.shape:
            return None
        rows, columns = (-(-want // has) for want, has in zip(shape, v.shape))
        return f"{n}.repeat({rows}, {columns})[:{shape[0]}, :{shape[1]}]"

    def two_write(self):
        n = self.r.choice(["a", "b"])
        rows, columns = self.arguments[n].shape
        k = self.r.randrange(rows)
        whole, row, pair, four = (self._part(s) for s in ((rows, columns), (1, columns), (rows, 2), (4, columns)))
        if whole is None or row is None or pair is None or four is None:
            return
        self.lines.append(
            self.r.choice(
                [
                    f"{n}[{k}] = {row}[0]",
                    f"{n}[:, 1:3] = {pair}",
                    f"{n}.copy_({whole})",
                    f"{n}.add_({whole}).clamp_(-{LIMIT}, {LIMIT})",
                    f"{n}.mul_({self._scalar()}).clamp_(-{LIMIT}, {LIMIT})",
                    f"{n}.index_put_((i[:1] % {rows},), {row})",
                    f"{n}.index_add_(0, i % {rows}, {four}).clamp_(-{LIMIT}, {LIMIT})",
                    f"{n}[1:].copy_({n}.clone()[:-1])",
                    f"torch.ops.commsched_steps.bump({n}, {whole}.contiguous())",
                    f"torch._foreach_add_([{n}], 1); {n}.clamp_(-{LIMIT}, {LIMIT})",
                ]
            )
        )

    def two_alias(self):
        n = self.r.choice(["a", "b"])
        self._new(f"{n}[1:3]", Value((2, self.arguments[n].shape[1]), "float32", True), False)
