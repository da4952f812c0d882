#===- random_program.py - Random programs of collectives ----------------------------------------------------------===#
#
# Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
#
# Makes programs on tensors from a seed: every collective of the dialect on several groups, coalesced and in place, the
# FSDP operations, parameters whose storage comes and goes, sends and receives, views, mutation, loops within loops, some of
# which do not run, waits under conditions, events on several streams. Knows what depends on what, by rules that it shares
# with no pass, so that it can put a program into another legal order.
#
#===-------------------------------------------------------------------------------------------------------------===#

import random
import re
from collections import Counter

FLOATS = ["f32", "bf16", "f16", "f64"]
INTEGERS = ["i32", "i8", "i64"]
LARGEST = 8192  # elements of a value
CONDITIONS = ["%p0", "%p1"]  # arguments of type i1, which differ by rank


def elements(shape):
    total = 1
    for extent in shape:
        total *= extent
    return total


def text(type_):
    shape, element = type_
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + element + ">"


def texts(types):
    return ", ".join(text(t) for t in types)


class Op:
    """One operation: its text, what it defines and uses, whose storage it writes, what it starts or waits for.

    A loop has a body, a list of operations, and what it yields; its text is made from them."""

    def __init__(self, text, defines=(), uses=(), writes=(), starts=None, waits=None, exchange=None, event=False):
        self.text, self.defines, self.uses, self.writes = text, list(defines), list(uses), list(writes)
        self.starts, self.waits = starts, waits
        # Messages that belong together, as (name, how many operations): they keep their order, and go together or not.
        self.exchange = exchange
        self.event = event  # it records or awaits one, which covers the messages that were started before
        self.body = None

    @staticmethod
    def loop(name, count, inits, iterators, types, body, yields):
        op = Op("", [f"{name}#{i}" for i in range(len(inits))] if len(inits) > 1 else [name])
        op.name, op.count, op.inits, op.iterators, op.types = name, count, inits, iterators, types
        op.body, op.yields = body, yields
        op.refresh()
        return op

    def with_body(self, body):
        return Op.loop(self.name, self.count, self.inits, self.iterators, self.types, body, self.yields)

    def waits_for_messages(self):
        """Whether it starts or waits for messages, itself or in its body."""
        return bool(self.exchange) or self.event or any(op.waits_for_messages() for op in self.body or [])

    def refresh(self):
        """What a loop uses and writes is what its body does."""
        inner = {v for op in self.body for v in op.defines} | set(self.iterators)
        outer = lambda values: [v for v in values if v not in inner]
        self.uses = self.inits + outer([v for op in self.body for v in op.uses]) + outer(self.yields)
        # An iterator is the storage of its initial value in the first iteration.
        storage = dict(zip(self.iterators, self.inits))
        writes = [storage.get(v, v) for op in self.body for v in op.writes]
        self.writes = outer(writes) + ([] if not any(v in inner for v in writes) else list(self.inits))

    def lines(self, indent="  "):
        if self.body is None:
            return [indent + line for line in self.text.split("\n")]
        results = f"{self.name}:{len(self.inits)}" if len(self.inits) > 1 else self.name
        pairs = ", ".join(f"{i} = {v}" for i, v in zip(self.iterators, self.inits))
        loop = f"%i{self.name[1:]}"
        head = (f"{results} = scf.for {loop} = %c0 to %c{self.count} step %c1 iter_args({pairs}) -> "
                f"({texts(self.types)}) {{")
        tail = f"  scf.yield {', '.join(self.yields)} : {texts(self.types)}"
        inner = [line for op in self.body for line in op.lines(indent + "  ")]
        return [indent + head, *inner, indent + tail, indent + "}"]


class Generator:
    def __init__(self, seed, ranks, size, siblings=False, messages=True):
        """With `siblings`, many collectives come in groups that could be one. `messages`: sends and receives, "together" only
        those that one operation starts and waits for."""
        self.rng = random.Random(seed)
        self.has_siblings, self.has_messages = siblings, messages
        self.ranks, self.counter, self.depth = ranks, 0, 0
        self.ops, self.values = [], {}
        self.storage = {}  # value -> the value whose storage it is
        self.arguments, self.types, self.freed = [], {}, set()
        # Storage that is not to be written any more: what may be in flight until the end of the block, as its wait may not
        # run, and what a loop that does not run gives as its own result.
        self.frozen = set()
        # Operations without memory effects know values alone: storage that somebody writes, and that they know.
        self.places, self.pure = set(), set()
        half = ranks // 2
        self.groups = {"@world": [list(range(ranks))],
                       "@halves": [list(range(half)), list(range(half, ranks))],
                       "@strided": [list(range(0, ranks, 2)), list(range(1, ranks, 2))]}
        for _ in range(self.rng.randint(1, 4)):
            name = self.new()
            self.define(name, self.random_type())
            self.arguments.append(name)
        while len(self.ops) < size:
            self.step()

    # -- values

    def new(self):
        self.counter += 1
        return f"%v{self.counter}"

    def random_type(self):
        rng = self.rng
        rows = self.ranks * rng.randint(1, 3)
        shape = (rows,) if rng.random() < 0.3 else (rows, self.ranks * rng.randint(1, 2))
        if rng.random() < 0.05:  # large enough for the worker threads
            shape = (self.ranks * 16, 64)
        return shape, rng.choice(FLOATS + INTEGERS)

    def define(self, name, type_, storage=None):
        self.values[name] = self.types[name] = type_
        self.storage[name] = self.storage.get(storage, storage) if storage else name

    def pick(self, accept=lambda type_: True):
        fitting = [v for v, t in self.values.items() if accept(t)]
        return self.rng.choice(fitting) if fitting else None

    def emit(self, *arguments, **keywords):
        self.ops.append(Op(*arguments, **keywords))
        self.places.update(self.storage.get(v, v) for v in self.ops[-1].writes)

    def as_value(self, value):
        """The same contents, or other ones, that nothing writes: what an operation without memory effects may read."""
        if self.depth or self.storage[value] in self.places or self.rng.random() < 0.3:
            value = self.fresh(self.types[value], [value])
        self.pure.add(self.storage[value])
        return value

    # -- steps

    def step(self):
        rng = self.rng
        kinds = [self.compute] * 6 + [self.collective] * 8 + [self.coalesced, self.gather_fsdp, self.scatter_fsdp,
                                                              self.view, self.mutate, self.messages, self.parameter,
                                                              self.linalg, self.loop, self.event]
        kinds += [self.conditional] * 2
        if self.has_messages:
            kinds += [self.members]
        if self.has_siblings:
            kinds += [self.siblings] * 8
        rng.choice(kinds)()

    def fresh(self, type_, inputs):
        """A new value that a computation makes."""
        result = self.new()
        cost = f" {{comm.cost = #comm.cost<time = {self.rng.randint(1, 200) * 1000}>}}"
        self.emit(f'{result} = comm.compute "op{self.rng.randint(0, 9)}"({", ".join(inputs)})'
                  f'{cost if self.rng.random() < 0.5 else ""} : ({texts(self.types[v] for v in inputs)}) -> '
                  f"{text(type_)}", [result], inputs)
        self.define(result, type_)
        return result

    def compute(self):
        self.fresh(self.random_type(), [self.pick() for _ in range(self.rng.randint(1, 3))])

    def linalg(self):
        value = self.pick(lambda t: t[1] in ("f32", "f64", "i32"))
        if not value:
            return
        value, other = self.as_value(value), self.as_value(self.pick(lambda t: t == self.types[value]))
        empty, result, type_ = self.new(), self.new(), text(self.types[value])
        self.emit(f"{empty} = tensor.empty() : {type_}\n{result} = linalg.add ins({value}, {other} : {type_}, {type_}) "
                  f"outs({empty} : {type_}) -> {type_}", [result], [value, other])
        self.define(result, self.types[value])
        self.pure.add(result)

    def view(self):
        value = self.pick()
        shape, element = self.types[value]
        type_ = ((self.ranks, elements(shape) // self.ranks), element)
        if elements(type_[0]) != elements(shape):
            return
        result = self.new()
        self.emit(f'{result} = comm.compute "view"({value}) aliases [0] : ({text(self.types[value])}) -> {text(type_)}',
                  [result], [value])
        self.define(result, type_, value)

    def is_writable(self, value):
        return self.storage[value] not in self.frozen | self.pure

    def mutate(self):
        targets = [v for v in self.values if self.is_writable(v)]
        if not targets:
            return
        target, other = self.rng.choice(targets), self.pick()
        self.emit(f'comm.compute "update"({target}, {other}) mutates [0] : '
                  f"({texts([self.types[target], self.types[other]])}) -> ()", [], [target, other], [target])

    def start_and_wait(self, head, inputs, tail, results, dests=(), scalars=()):
        """results: types; scalars: what `tail` uses. Both operations are made next to each other."""
        future, names = self.new(), [self.new() for _ in results]
        types = texts(results)
        into = f" into {', '.join(dests)}" if dests else ""
        given = f"{', '.join(inputs)}{into} " if inputs else ""
        self.emit(f"{future} = comm.{head} {given}on {tail} : ({texts(self.types[v] for v in inputs)}) -> "
                  f"!comm.future<{types}>", [future], [*inputs, *dests, *scalars], dests, starts=future)
        left = f"{names[0]}:{len(names)} = " if len(names) > 1 else f"{names[0]} = " if names else ""
        printed = [f"{names[0]}#{i}" for i in range(len(names))] if len(names) > 1 else names
        # The destination is written until here.
        self.emit(f"{left}comm.wait {future} : !comm.future<{types}>", printed, [future, *dests], dests, waits=future)
        for i, (name, type_) in enumerate(zip(printed, results)):
            self.define(name, type_, dests[i] if dests else None)

    def reduction(self, element):
        kinds = ["sum", "product", "min", "max"]
        if element in FLOATS:
            kinds += ["avg", "scaled_sum scale 5.000000e-01"]
        return self.rng.choice(kinds)

    def group(self):
        name = self.rng.choice(list(self.groups))
        return name, len(self.groups[name][0])

    def dests(self, type_, value, in_place):
        """Sometimes where the result goes: the input itself, a fresh value, or a value of that type."""
        rng = self.rng
        if rng.random() < 0.6:
            return ()
        if in_place and self.is_writable(value) and rng.random() < 0.5:
            return (value,)
        others = [v for v in self.values if self.types[v] == type_ and self.storage[v] != self.storage[value] and
                  self.is_writable(v)]
        return (rng.choice(others) if others and rng.random() < 0.5 else self.fresh(type_, [self.pick()]),)

    def collective(self):
        rng = self.rng
        name, n = self.group()
        value = self.pick()
        shape, element = type_ = self.types[value]
        dim = rng.randrange(len(shape))
        grown = (tuple(e * n if i == dim else e for i, e in enumerate(shape)), element)
        shrunk = (tuple(e // n if i == dim else e for i, e in enumerate(shape)), element)
        divides, small, root = shape[dim] % n == 0, elements(shape) * n <= LARGEST, rng.randrange(n)
        if rng.random() < 0.05:
            return self.start_and_wait("barrier", [], name, [])
        kind = rng.choice(["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "uneven", "broadcast", "reduce",
                           "gather", "scatter", "permute"])
        head, tail, result, in_place = kind, None, type_, False
        if kind == "all_gather" and small:
            tail, result = f"{name} dim {dim}", grown
        elif kind == "reduce_scatter" and divides:
            head, tail, result = f"{kind} {self.reduction(element)}", f"{name} dim {dim}", shrunk
        elif kind == "all_reduce":
            head, tail, in_place = f"{kind} {self.reduction(element)}", name, True
        elif kind == "all_to_all" and divides:
            concat = rng.randrange(len(shape))
            split = tuple(e // (n if i == dim else 1) * (n if i == concat else 1) for i, e in enumerate(shape))
            tail, result = f"{name} split {dim} concat {concat}", (split, element)
        elif kind == "uneven" and rng.random() < 0.5:
            return self.uneven(name, n, value)
        elif kind == "uneven" and shape[0] % n == 0:
            splits = [shape[0] // n] * n
            head, tail = "all_to_all", f"{name} input_splits {splits} output_splits {splits}"
        elif kind == "broadcast":
            tail, in_place = f"{name} root {root}", True
        elif kind == "reduce":
            # Only the root's result is defined: the others keep what the destination held.
            head = f"{kind} {self.reduction(element)}"
            return self.start_and_wait(head, [value], f"{name} root {root}", [type_], self.written(type_, value))
        elif kind == "gather" and small:
            return self.start_and_wait(kind, [value], f"{name} root {root} dim {dim}", [grown], self.written(grown))
        elif kind == "permute":
            pairs = ", ".join(f"{i}, {(i + 1) % n}" for i in range(n) if rng.random() < 0.8)
            tail = f"{name} pairs [{pairs}]"
        elif kind == "scatter" and divides:
            tail, result = f"{name} root {root} dim {dim}", shrunk
        if tail:
            self.start_and_wait(head, [value], tail, [result], self.dests(result, value, in_place))

    def place(self, name, n):
        """The place of the rank in its group, as tensor<1xi32>."""
        places = self.new()
        self.types[places] = ((n,), "i32")
        self.emit(f"{places} = arith.constant dense<{list(range(n))}> : tensor<{n}xi32>", [places])
        self.start_and_wait("scatter", [places], f"{name} root 0", [((1,), "i32")])
        place = f"%v{self.counter}"
        self.pure.add(self.storage.get(place, place))
        return place

    def uneven(self, name, n, value):
        """An exchange in which each rank finds its splits by its place in the group. What rank i sends to rank j depends on
        j - i only, so that what a rank sends and what it receives add up to the same."""
        place, result, type_ = self.place(name, n), self.new(), self.types[value]
        rows = type_[0][0]
        cuts = sorted(self.rng.randint(0, rows) for _ in range(n - 1))
        shares = [end - begin for begin, end in zip([0, *cuts], [*cuts, rows])]
        counts = [[shares[(j - i) % n] for j in range(n)] for i in range(n)]
        lines = [f"{result}_place = tensor.extract {place}[%c0] : tensor<1xi32>",
                 f"{result}_rank = arith.index_cast {result}_place : i32 to index",
                 f"{result}_counts = arith.constant dense<{counts}> : tensor<{n}x{n}xindex>"]
        for j in range(n):
            lines += [f"{result}_{j} = arith.constant {j} : index",
                      f"{result}_in{j} = tensor.extract {result}_counts[{result}_rank, {result}_{j}] : tensor<{n}x{n}xindex>",
                      f"{result}_out{j} = tensor.extract {result}_counts[{result}_{j}, {result}_rank] : tensor<{n}x{n}xindex>"]
        splits = {way: [f"{result}_{way}{j}" for j in range(n)] for way in ("in", "out")}
        self.emit("\n".join(lines), splits["in"] + splits["out"], [place])
        self.start_and_wait("all_to_all", [value], f"{name} input_splits [{', '.join(splits['in'])}] output_splits "
                            f"[{', '.join(splits['out'])}]", [type_], self.dests(type_, value, False),
                            splits["in"] + splits["out"])

    def written(self, type_, value=None):
        is_given = value and self.is_writable(value) and self.rng.random() < 0.5
        return (value,) if is_given else (self.fresh(type_, [self.pick()]),)

    def conditional(self):
        """A collective whose wait stands in a branch, on one side or on both, or in a loop that may not run. Ranks may take
        different ways: the start is the same for all."""
        rng = self.rng
        name, n = self.group()
        value = self.pick()
        shape, element = type_ = self.types[value]
        if rng.random() < 0.3 and elements(shape) * n <= LARGEST:
            head, tail, result = "all_gather", f"{name} dim 0", ((shape[0] * n, *shape[1:]), element)
        elif rng.random() < 0.5:
            head, tail, result = "all_reduce max", name, type_
        else:
            head, tail, result = "broadcast", f"{name} root {rng.randrange(n)}", type_
        future, waited, printed = self.new(), self.new(), text(result)
        self.emit(f"{future} = comm.{head} {value} on {tail} : ({text(type_)}) -> !comm.future<{printed}>", [future],
                  [value], starts=future)
        wait = f"  {waited} = comm.wait {future} : !comm.future<{printed}>"
        read = f'  comm.compute "sink"({waited}) side_effects : ({printed}) -> ()'
        condition = rng.choice(CONDITIONS)
        if rng.random() < 0.3:
            other, made, either = self.new(), self.new(), self.new()
            self.emit(f"{either} = scf.if {condition} -> ({printed}) {{\n{wait}\n  scf.yield {waited} : {printed}\n"
                      f"}} else {{\n{wait.replace(waited, other)}\n"
                      f'  {made} = comm.compute "other"({other}) : ({printed}) -> {printed}\n'
                      f"  scf.yield {made} : {printed}\n}}", [either], [future], waits=future)
            self.define(either, result)
            return
        if rng.random() < 0.5:
            head = f"scf.if {condition}"
        else:
            head = f"scf.for {self.new()} = %c0 to %c{rng.randint(0, 2)} step %c1"
        self.emit(f"{head} {{\n{wait}\n{read}\n}}", [], [future], waits=future)
        self.frozen.add(self.storage[value])

    def event(self):
        event, streams = self.new(), [self.rng.randrange(3) for _ in range(2)]
        self.emit(f"{event} = comm.record on {streams[0]} : !comm.event", [event], event=True)
        self.emit(f"comm.await_event {event} on {streams[1]} : !comm.event", [], [event], event=True)

    def coalesced(self):
        rng = self.rng
        name, n = self.group()
        inputs = [self.pick() for _ in range(rng.randint(2, 4))]
        types = [self.types[v] for v in inputs]
        kind = rng.randrange(3)
        if kind == 0:
            self.start_and_wait(f"all_reduce {rng.choice(['sum', 'max'])}", inputs, name, types)
        elif kind == 1 and all(elements(s) * n <= LARGEST for s, _ in types):
            self.start_and_wait("all_gather", inputs, f"{name} dim 0", [((s[0] * n, *s[1:]), e) for s, e in types])
        elif kind == 2 and all(s[0] % n == 0 for s, _ in types):
            self.start_and_wait("reduce_scatter max", inputs, f"{name} dim 0",
                                [((s[0] // n, *s[1:]), e) for s, e in types])

    def siblings(self):
        """Collectives of one kind and group, along dimension 0; sometimes behind a cast."""
        rng, (name, n), kind = self.rng, self.group(), self.rng.randrange(3)
        reduction = self.reduction("f32") if rng.random() < 0.5 else "sum"
        for value in [self.pick() for _ in range(rng.randint(2, 4))]:
            shape, element = self.types[value]
            if element in FLOATS and rng.random() < 0.3:
                type_, cast = (shape, rng.choice(FLOATS)), self.new()
                self.emit(f'{cast} = comm.compute "cast"({value}) : ({text(self.types[value])}) -> {text(type_)}', [cast],
                          [value])
                self.define(cast, type_)
                value, element = cast, type_[1]
            if kind == 0 and elements(shape) * n <= LARGEST:
                self.start_and_wait("all_gather", [value], f"{name} dim 0", [((shape[0] * n, *shape[1:]), element)])
            elif kind == 1 and element in FLOATS and shape[0] % n == 0:
                self.start_and_wait(f"reduce_scatter {reduction}", [value], f"{name} dim 0",
                                    [((shape[0] // n, *shape[1:]), element)])
            elif kind == 2 and element in FLOATS:
                self.start_and_wait(f"all_reduce {reduction}", [value], name, [(shape, element)])

    def messages(self):
        """Everyone sends to everyone and receives from everyone."""
        name, n = self.group()
        value = self.pick(lambda t: elements(t[0]) <= 256)
        if not value or n > 4 or self.has_messages is not True:
            return
        type_, futures, tag = self.types[value], [], self.rng.randrange(3)
        exchange = (self.new(), 4 * n)
        for peer in range(n):
            future = self.new()
            futures.append((future, ""))
            self.emit(f"{future} = comm.send {value} on {name} peer {peer} tag {tag} : ({text(type_)}) -> "
                      "!comm.future<>", [future], [value], starts=future, exchange=exchange)
        for peer in range(n):
            future, result = self.new(), self.new()
            futures.append((future, result))
            self.emit(f"{future} = comm.recv on {name} peer {peer} tag {tag} : () -> !comm.future<{text(type_)}>",
                      [future], starts=future, exchange=exchange)
        for future, result in futures:
            types = text(type_) if result else ""
            self.emit(f"{result + ' = ' if result else ''}comm.wait {future} : !comm.future<{types}>",
                      [result] if result else [], [future], waits=future, exchange=exchange)
            if result:
                self.define(result, type_)

    def members(self):
        """One message, or one from each member to another: in the branch of a member, which starts its messages together and
        waits for them. So all is one operation, and nothing comes between that another member may wait for."""
        rng = self.rng
        name, n = self.group()
        value = self.pick(lambda t: elements(t[0]) <= 256)
        if not value or n < 2 or n > 4:
            return
        tag, distance = rng.randrange(3), rng.randrange(1, n)
        pairs = [(k, (k + distance) % n) for k in range(n)]
        if rng.random() < 0.5:
            pairs = [rng.choice(pairs)]
        place, result, printed = self.place(name, n), self.new(), text(self.types[value])
        lines = [f"{result}_place = tensor.extract {place}[%c0] : tensor<1xi32>",
                 f"{result}_rank = arith.index_cast {result}_place : i32 to index"]

        def branch(member, depth):
            """The text that gives the result of the members from this one on, and the result's name."""
            pad, here = "  " * depth, f"{result}_m{member}"
            if member == n:
                return [f'{pad}{here} = comm.compute "other"({value}) : ({printed}) -> {printed}'], here
            body, given = [], f"{here}_other"
            waits = []
            for sender, receiver in pairs:
                if sender == member:
                    body.append(f"{here}_s = comm.send {value} on {name} peer {receiver} tag {tag} : ({printed}) -> "
                                "!comm.future<>")
                    waits.append(f"comm.wait {here}_s : !comm.future<>")
                if receiver == member:
                    given = f"{here}_w"
                    body.append(f"{here}_r = comm.recv on {name} peer {sender} tag {tag} : () -> "
                                f"!comm.future<{printed}>")
                    waits.append(f"{given} = comm.wait {here}_r : !comm.future<{printed}>")
            rng.shuffle(body)
            rng.shuffle(waits)
            if given.endswith("_other"):
                waits.append(f'{given} = comm.compute "other"({value}) : ({printed}) -> {printed}')
            others, other = branch(member + 1, depth + 1)
            return [f"{pad}{here}_is = arith.cmpi eq, {result}_rank, %c{member} : index",
                    f"{pad}{here} = scf.if {here}_is -> ({printed}) {{",
                    *(f"{pad}  {line}" for line in body + waits), f"{pad}  scf.yield {given} : {printed}", f"{pad}}} else {{",
                    *others, f"{pad}  scf.yield {other} : {printed}", f"{pad}}}"], here

        made, last = branch(0, 0)
        self.emit("\n".join(lines + made), [last], [place, value], exchange=(last, 1))
        self.define(last, self.types[value])

    # -- FSDP

    def shards(self):
        inputs = [self.pick(lambda t: t[1] in FLOATS) for _ in range(self.rng.randint(1, 3))]
        if None in inputs or sum(elements(self.types[v][0]) for v in inputs) * self.ranks > LARGEST:
            return []
        return inputs

    def gather_fsdp(self):
        inputs, (name, n) = self.shards(), self.group()
        if not inputs:
            return
        sizes = [elements(self.types[v][0]) for v in inputs]
        element = self.rng.choice(FLOATS)
        slice_type, buffer_type = ((sum(sizes),), element), ((sum(sizes) * n,), element)
        slice_, buffer = self.new(), self.new()
        self.emit(f"{slice_}, {buffer} = comm.fsdp.all_gather_copy_in {', '.join(inputs)} on {name} : "
                  f"({texts(self.types[v] for v in inputs)}) -> ({text(slice_type)}, {text(buffer_type)})",
                  [slice_, buffer], inputs)
        for value, type_ in ((slice_, slice_type), (buffer, buffer_type)):
            self.types[value], self.storage[value] = type_, buffer
        in_place = (buffer,) if self.rng.random() < 0.5 else ()
        self.start_and_wait("all_gather", [slice_], f"{name} dim 0", [buffer_type], in_place)
        full = self.ops[-1].defines[0]
        members = self.rng.sample(range(len(sizes)), self.rng.randint(1, len(sizes)))
        pieces = [self.new() for _ in members]
        types = [((n, sizes[m]), element) for m in members]
        listed = f" members {members}" if members != list(range(len(sizes))) else ""
        printed = f"({texts(types)})" if len(types) > 1 else texts(types)
        self.emit(f"{', '.join(pieces)} = comm.fsdp.split_with_sizes_copy {full} sizes {sizes}{listed} : "
                  f"({text(buffer_type)}) -> {printed}", pieces, [full])
        for piece, type_ in zip(pieces, types):
            self.define(piece, type_)

    def scatter_fsdp(self):
        inputs, (name, n) = self.shards(), self.group()
        if not inputs:
            return
        # Rows that do not divide are padded.
        rows = [-(-self.types[v][0][0] // n) * elements(self.types[v][0][1:]) for v in inputs]
        cat, type_ = self.new(), ((sum(rows) * n,), self.rng.choice(["f32", "bf16"]))
        self.emit(f"{cat} = comm.fsdp.chunk_cat {', '.join(inputs)} chunks {n} : "
                  f"({texts(self.types[v] for v in inputs)}) -> {text(type_)}", [cat], inputs)
        self.define(cat, type_)
        shard = ((sum(rows),), type_[1])
        self.start_and_wait(f"reduce_scatter {self.reduction(type_[1])}", [cat], f"{name} dim 0", [shard])
        pieces = [self.new() for _ in rows]
        source = self.ops[-1].defines[0]
        types = [((size,), type_[1]) for size in rows]
        printed = f"({texts(types)})" if len(types) > 1 else texts(types)
        self.emit(f"{', '.join(pieces)} = comm.fsdp.split_with_sizes {source} sizes {rows} : ({text(shard)}) -> {printed}",
                  pieces, [source])
        for piece, piece_type in zip(pieces, types):
            self.define(piece, piece_type, source)

    def parameter(self):
        """An argument whose storage is filled, used and freed."""
        if self.depth:
            return
        param, source = self.new(), self.pick()
        type_ = self.types[source]
        width = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "i8": 1}.get(type_[1], 2)
        self.arguments.append(param)
        self.types[param], self.storage[param] = type_, param
        self.freed.add(param)
        self.emit(f"comm.resize_storage {param} to {elements(type_[0]) * width} : {text(type_)}", [], [param], [param])
        self.emit(f"comm.fsdp.copy {source} into {param} : {text(type_)} into {text(type_)}", [], [source, param], [param])
        for _ in range(self.rng.randint(1, 2)):
            self.fresh(self.random_type(), [param, self.pick()])
        self.emit(f"comm.resize_storage {param} to 0 : {text(type_)}", [], [param], [param])

    # -- loops

    def loop(self):
        if self.depth >= 2:
            return
        rng = self.rng
        inits = [self.pick() for _ in range(rng.randint(1, 2))]
        # A loop carries values, which nobody writes.
        inits = [self.as_value(v) for v in inits]
        types = [self.types[v] for v in inits]
        iterators = [self.new() for _ in inits]
        outer_ops, outer_values = self.ops, dict(self.values)
        outer_storage = {self.storage[v] for v in outer_values} | {self.storage[v] for v in self.arguments}
        self.ops, self.depth, frozen = [], self.depth + 1, set(self.frozen)
        for iterator, init, type_ in zip(iterators, inits, types):
            self.define(iterator, type_, init)
        for _ in range(rng.randint(1, 4)):
            self.step()
        yields = []
        for type_ in types:
            # Storage of its own: what a loop yields aliases nothing outside, and no other result.
            made = [v for v in self.values if v not in outer_values and self.types[v] == type_ and
                    self.storage[v] not in outer_storage | {self.storage[y] for y in yields}]
            made = [v for v in made if self.storage[v] not in self.places]
            yields.append(rng.choice(made) if made and rng.random() < 0.8 else self.fresh(type_, [self.pick()]))
            self.pure.add(self.storage[yields[-1]])
        body, self.ops, self.values, self.depth, self.frozen = self.ops, outer_ops, outer_values, self.depth - 1, frozen
        count = rng.choice([0, 1, 1, 2, 2, 3, 3])
        op = Op.loop(self.new(), count, inits, iterators, types, body, yields)
        self.ops.append(op)
        for name, type_, init in zip(op.defines, types, inits):
            self.define(name, type_, init if count == 0 else None)
            self.pure.add(self.storage[name])
            if count == 0:
                self.frozen.add(self.storage[init])


def dependences(generator, ops):
    """Sets of operations that must come before each one."""
    before = [set() for _ in ops]
    defined, writer, readers, inflight, last_ordered = {}, {}, {}, {}, None
    storage_of = lambda values: {generator.storage.get(v, v) for v in values}
    waits = {op.waits: i for i, op in enumerate(ops) if op.waits}
    for i, op in enumerate(ops):
        before[i].update(defined[v] for v in op.uses if v in defined)
        touched, written = storage_of(op.uses), storage_of(op.writes)
        before[i].update(writer[s] for s in touched if s in writer)
        for storage in written:
            before[i].update(readers.get(storage, ()))
            # What a collective in flight reads is free after its wait.
            before[i].update(waits[f] for f, held in inflight.items() if storage in held and waits.get(f, i) < i)
            writer[storage] = i
            readers[storage] = set()
        for storage in touched:
            readers.setdefault(storage, set()).add(i)
        if op.starts:
            inflight[op.starts] = touched
        if op.waits_for_messages():
            # A send is complete when it is received: everyone offers to receive before it waits, for a message or for an
            # event. A loop with an exchange in it would wait within another one, whose messages may have the same tags.
            before[i].update(() if last_ordered is None else (last_ordered,))
            last_ordered = last_ordered if op.exchange and op.waits else i
        for value in op.defines:
            defined[value] = i
        before[i].discard(i)
    return before


def reorder(generator, ops, rng):
    """A random order that the dependences allow; starts tend to come early and waits late."""
    before = dependences(generator, ops)
    left, done, order = set(range(len(ops))), set(), []
    while left:
        ready = [i for i in sorted(left) if before[i] <= done]
        weights = [8 if ops[i].starts else 1 if ops[i].waits else 3 for i in ready]
        chosen = rng.choices(ready, weights)[0]
        order.append(ops[chosen].with_body(reorder(generator, ops[chosen].body, rng)) if ops[chosen].body else ops[chosen])
        left.remove(chosen)
        done.add(chosen)
    return order


def module(generator, ops):
    """The program. It returns the values of the outermost level that nothing else uses, and a third of the others: what it
    does not return has a life that ends, and memory that others take over."""
    defined = {v for op in ops for v in op.defines}
    used = {v for op in ops for v in op.uses}
    # A loop's result may be its iterator: storage that a later mutation would write.
    results = sorted(v for v in defined if v in generator.values and
                     (v not in used or int(re.match(r"%v(\d+)", v)[1]) % 3 == 0))
    listed = ", ".join([f"{v}: {text(generator.types[v])}" for v in generator.arguments] +
                       [f"{condition}: i1" for condition in CONDITIONS])
    types = texts(generator.types[v] for v in results)
    lines = [f"comm.group {name} #comm.ranks<{subsets}>" for name, subsets in generator.groups.items()]
    lines += [f"func.func @main({listed}) -> ({types}) {{"]
    lines += [f"  %c{i} = arith.constant {i} : index" for i in range(4)]
    lines += [line for op in ops for line in op.lines()]
    lines += [f"  return {', '.join(results)} : {types}" if results else "  return", "}"]
    return "\n".join(lines) + "\n"


def close(generator, ops, known=None):
    """Without operations whose operands are gone, starts that nobody waits for, and parts of an exchange."""
    outer = set(generator.arguments) if known is None else set(known)
    while True:
        defined = outer | {v for op in ops for v in op.defines}
        waited = {op.waits for op in ops}
        messages = Counter(op.exchange for op in ops)
        kept = [op for op in ops if set(op.uses) <= defined and (not op.starts or op.starts in waited) and
                (not op.exchange or messages[op.exchange] == op.exchange[1])]
        if len(kept) == len(ops):
            return kept
        ops = kept
