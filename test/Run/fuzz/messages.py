#===- messages.py - Sends, receives, and exchanges of uneven sizes ------------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#

import numpy as np

from .collectives import outcome
from .shapes import FLOATS, Type, future_text, settle
from .tree import Step, each

FAR_MESSAGES_SHARE = 0.15  # of programs


def ends(ranks, groups, talking, between, events):
    """Whether all ranks come to the end of the events. A rank waits for a collective until all members of its subgroup have
    started it, for a message until its sender has come to the send, and there until the receiver has come to the receive."""
    at, peers = [0] * ranks, {a: b for pair in talking for a, b in (pair, pair[::-1])}
    senders = {first for first, _ in talking}

    def may_pass(rank):
        event = events[at[rank]]
        if event in ("receive", "send"):
            takes_part = rank in peers and (rank in senders) == (event == "send")
            other = "receive" if event == "send" else "send"
            return not takes_part or at[peers[rank]] >= events.index(other)
        if event[0] == "start":
            return True
        members = next(members for members in groups[between[event[1]]] if rank in members)
        return all(at[member] > events.index(("start", event[1])) for member in members)

    is_moving = True
    while is_moving:
        is_moving = False
        for rank in range(ranks):
            while at[rank] < len(events) and may_pass(rank):
                at[rank] += 1
                is_moving = True
    return min(at) == len(events)


class Messages:
    """The part of the generator that talks to single ranks."""

    def exchange(self, out):
        """The two members of a group send to each other, or one to the other, in branches by their place. Of two messages in
        one direction the order tells which is which."""
        pairs = [g for g, groups in self.groups.items() if len(groups[0]) == 2 and
                 sum(map(len, groups)) == self.ranks]
        value = self.pick_pure(lambda v: not v.type.dynamic)
        if not pairs or not value or self.is_split or not self.rank_name:
            return
        group, is_one_way, tag = self.rng.choice(pairs), self.rng.random() < 0.5, self.rng.randint(0, 2)
        groups = self.groups[group]
        selector = self.mask(out, {members[0] for members in groups})
        other = self.pick_pure(lambda v: v.type == value.type) if is_one_way and self.rng.random() < 0.7 else None
        result = self.new_tensor(value.type)
        n, x, type_ = result.name, value.name, value.type
        last = other.name if other else x
        future = future_text([type_])
        send = lambda i, peer, what=x: f"{n}s{i} = comm.send {what} on {group} peer {peer} tag {tag}{self.cost()} : ({type_}) -> " \
                                       "!comm.future<>"
        receive = lambda i, peer: f"{n}r{i} = comm.recv on {group} peer {peer} tag {tag}{self.cost()} : () -> {future}"
        sent, received = (lambda i: f"comm.wait {n}s{i} : !comm.future<>"), (lambda i: f"{n}v{i} = comm.wait {n}r{i} : {future}")
        if other:
            first = [send(0, 1), send(2, 1, last), sent(2), sent(0)]
            second = [receive(2, 0), receive(1, 0), received(1), received(2)]
        elif is_one_way:
            first, second = [send(0, 1), sent(0)], [receive(1, 0), received(1)]
        else:
            first = [send(0, 1), receive(0, 1), received(0), sent(0)]
            second = [receive(1, 0), send(1, 0), received(1), sent(1)]
        lines = [f"{n} = scf.if {selector} -> ({type_}) {{", *("  " + line for line in first),
                 f"  scf.yield {last if is_one_way else n + 'v0'} : {type_}", "} else {", *("  " + line for line in second),
                 f"  scf.yield {n}v1 : {type_}", "}"]

        def action(state, env, active):
            given = list(env[last])
            for a, b in groups:
                given[b] = env[last][a].copy()
                if not is_one_way:
                    given[a] = env[x][b].copy()
            env[n] = given
        out.append(Step(lines, action, [n], [x, last, selector]))

    def far_message(self, out):
        """A message that its receiver waits for early and its sender sends late. In between, the others and the sender start
        collectives and wait for some of them, so that the receivers come late to all of these."""
        rng = self.rng
        pairs = [g for g, groups in self.groups.items() if len(groups[0]) == 2 and sum(map(len, groups)) == self.ranks]
        value = self.pick_pure(lambda v: not v.type.dynamic and v.type.size)
        covering = [g for g in self.allowed_groups if sum(map(len, self.groups[g])) == self.ranks]
        if not pairs or not value or self.is_split or not self.rank_name or not covering:
            return
        group = rng.choice(pairs)
        talking = rng.sample(self.groups[group], rng.randint(1, len(self.groups[group])))
        between = [rng.choice(covering) for _ in range(rng.randint(1, 4))]
        receives = self.mask(out, {second for _, second in talking})
        sends = self.mask(out, {first for first, _ in talking})
        message, sums = self.new_tensor(value.type), [self.new_tensor(value.type) for _ in between]
        n, x, type_ = message.name, value.name, value.type
        future = future_text([type_])
        texts = {"receive": [f"{n} = scf.if {receives} -> ({type_}) {{",
                             f"  {n}r = comm.recv on {group} peer 0{self.cost()} : () -> {future}",
                             f"  {n}v = comm.wait {n}r : {future}", f"  scf.yield {n}v : {type_}", "} else {",
                             f"  scf.yield {x} : {type_}", "}"],
                 "send": [f"scf.if {sends} {{",
                          f"  {n}s = comm.send {x} on {group} peer 1{self.cost()} : ({type_}) -> !comm.future<>",
                          f"  comm.wait {n}s : !comm.future<>", "}"]}
        for i, (other, result) in enumerate(zip(between, sums)):
            texts["start", i] = [f"{n}f{i} = comm.all_reduce max {x} on {other}{self.cost()} : ({type_}) -> {future}"]
            texts["wait", i] = [f"{result.name} = comm.wait {n}f{i} : {future}"]
        lines = [line for event in self.far_events(talking, between) for line in texts[event]]

        def action(state, env, active):
            given = list(env[x])
            for first, second in talking:
                given[second] = env[x][first].copy()
            env[n] = given
            for other, result in zip(between, sums):
                env[result.name] = [None] * state.ranks
                for members in state.groups[other]:
                    values = outcome("all_reduce", {"reduction": "max", "root": 0, "dim": 0},
                                     [env[x][rank] for rank in members], type_.element)
                    for rank, reduced in zip(members, values):
                        env[result.name][rank] = np.array(reduced)
        out.append(Step(lines, action, [n, *(result.name for result in sums)], [x, receives, sends]))

    def far_events(self, talking, between):
        """An order of the receive, the send, and starts and waits of collectives of these groups in which no rank waits for
        ever: the first of some random ones, or else the one with all waits at the end."""
        count = range(len(between))
        for _ in range(30):
            body = [("start", i) for i in count] + [("wait", i) for i in count]
            self.rng.shuffle(body)
            for i in count:
                a, b = sorted((body.index(("start", i)), body.index(("wait", i))))
                body[a], body[b] = ("start", i), ("wait", i)
            receive = self.rng.randint(0, len(body) // 2)
            events = body[:receive] + ["receive"] + body[receive:]
            events.insert(self.rng.randint(receive + 1, len(events)), "send")
            if ends(self.ranks, self.groups, talking, between, events):
                return events
        return [*(("start", i) for i in count), "receive", "send", *(("wait", i) for i in count)]

    def uneven(self, out):
        """An exchange in which each rank sends a number of rows of its own, zero among them, to each other one. The table of
        all ranks is a constant; a rank takes its row by its number."""
        candidates = [g for g in self.allowed_groups if sum(map(len, self.groups[g])) == self.ranks]
        if not candidates or not self.rank_name:
            return
        group, rng = self.rng.choice(candidates), self.rng
        groups, members, ranks = self.groups[group], len(self.groups[group][0]), self.ranks
        element, width = rng.choice(["f32", "i32", "i8", "f64"]), rng.choice([1, 2])
        none = rng.random() < 0.2
        table = [[0 if none else rng.choice([0, 0, 1, 2]) for _ in range(members)] for _ in range(ranks)]
        place = {rank: i for row in groups for i, rank in enumerate(row)}
        whole = {rank: row for row in groups for rank in row}
        back = [[table[whole[rank][i]][place[rank]] for i in range(members)] for rank in range(ranks)]
        n, fill = self.name("e"), rng.randint(1, 5)
        result = self.new_tensor(Type((width,), element))
        data, out_type = f"tensor<?x{width}x{element}>", result.type
        lines = [f"{n}k = tensor.extract {self.rank_name}[%c0] : tensor<1xi64>", f"{n}x = arith.index_cast {n}k : i64 to index",
                 f"{n}y = arith.trunci {n}k : i64 to i8",
                 f"{n}t = arith.constant dense<{table}> : tensor<{ranks}x{members}xindex>",
                 f"{n}u = arith.constant dense<{back}> : tensor<{ranks}x{members}xindex>"]
        total = "%c0"
        for i in range(members):
            lines += [f"{n}i{i} = tensor.extract {n}t[{n}x, %c{i}] : tensor<{ranks}x{members}xindex>",
                      f"{n}o{i} = tensor.extract {n}u[{n}x, %c{i}] : tensor<{ranks}x{members}xindex>",
                      f"{n}a{i} = arith.addi {total}, {n}i{i} : index"]
            total = f"{n}a{i}"
        ins, outs = (", ".join(f"{n}{way}{i}" for i in range(members)) for way in "io")
        convert = "arith.sitofp" if element in FLOATS else "arith.extsi"
        number = [f"{n}z = {convert} {n}y : i8 to {element}"] if element != "i8" else [f"{n}z = arith.addi {n}y, {n}y : i8"]
        scale = 2 if element == "i8" else 1
        add = "arith.addf" if element in FLOATS else "arith.addi"
        zero = "0.0" if element in FLOATS else "0"
        lines += [*number, f"{n}e = tensor.empty({total}) : {data}",
                  f"{n}d = linalg.fill ins({n}z : {element}) outs({n}e : {data}) -> {data}",
                  f"{n}f = comm.all_to_all {n}d on {group} input_splits [{ins}] output_splits [{outs}]{self.cost()} : ({data}) -> "
                  f"!comm.future<{data}>", f"{n}w = comm.wait {n}f : !comm.future<{data}>",
                  f"{n}c = arith.constant {zero} : {element}", f"{n}p = tensor.empty() : {out_type}",
                  f"{n}g = linalg.fill ins({n}c : {element}) outs({n}p : {out_type}) -> {out_type}",
                  f"{result.name} = linalg.reduce ins({n}w : {data}) outs({n}g : {out_type}) dimensions = [0]",
                  f"  (%in: {element}, %acc: {element}) {{", f"    %next = {add} %in, %acc : {element}",
                  f"    linalg.yield %next : {element}", "  }"]

        def action(state, env, active):
            def summed(rank):
                rows = sum(scale * source * table[source][place[rank]] for source in whole[rank])
                return settle(np.full((width,), rows), element)
            env[result.name] = each(state, active, summed)
        out.append(Step(lines, action, [result.name], [self.rank_name]))
