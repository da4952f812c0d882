#===- messages.py - Sends, receives, and exchanges of uneven sizes ------------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#

import numpy as np

from .shapes import FLOATS, Type, future_text, settle
from .tree import Step, each


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
