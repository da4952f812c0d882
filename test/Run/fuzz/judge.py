#===- judge.py - Puts batches of programs through passes and backends ---------------------------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# A batch takes one process per pipeline and one per backend. Only if one of them finds something is each program looked at
# alone.
#
#===---------------------------------------------------------------------------------------------------------------===#

import os
import random
import re
from collections import Counter

from .generator import Generator, Signature
from .oracle import oracle_text, write_inputs
from .passes import has_certificate, has_streams, pipelines
from .refusals import reason
from .tools import MARKER, failures_by_part
from .tree import Unusable

BATCH = 16  # programs with the same arguments
CONTRADICTION = re.compile(r"please report this|: the new order does not verify: ")
WAITED = re.compile(r"\bwaited \d+ ms\b")  # the runtime's own report of a rank that nobody meets


class Candidate:
    """A program, what numpy computed for it, and how it was made."""

    def __init__(self, program, seed=None, style="", breaks_rules=False):
        self.program, self.seed, self.style, self.breaks_rules = program, seed, style, breaks_rules
        self.text = program.text()
        self.oracle = oracle_text(program, *program.evaluate())


class Failure:
    """A candidate that a pipeline and a backend make wrong. `kind`: wrong, crash, hang, contradiction (the compiler says
    that two of its own derivations disagree), certificate (the checker says that a statement is false) or refused."""

    def __init__(self, candidate, passes, backend, kind, said):
        self.candidate, self.passes, self.backend, self.kind, self.said = candidate, passes, backend, kind, said

    def title(self):
        return f"seed {self.candidate.seed}, {self.candidate.program.ranks} ranks, {self.backend}, {' '.join(self.passes) or 'as written'}: {self.kind}"


def make_batch(number, skip=lambda reason: None):
    """The programs of seeds number * BATCH and following."""
    signature, made = Signature(number), []
    for seed in range(number * BATCH, (number + 1) * BATCH):
        generator = Generator(signature, seed)
        try:
            made.append(Candidate(generator.program, seed, generator.style, generator.breaks_rules))
        except Unusable as error:
            skip(str(error))
    return made


class Enough(Exception):
    """Nothing more has to be known."""


class Judge:
    """Counts what happens. `failures`: what no document explains. `stop_after`: with a number, raises Enough as soon as
    something else than a refusal is found, or more refusals than that."""

    def __init__(self, tools, folder, backends, stop_after=None):
        self.tools, self.folder, self.backends, self.stop_after = tools, folder, backends, stop_after
        self.counts, self.refused, self.failures = Counter(), Counter(), []

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, parts):
        with open(self.path(name), "w") as file:
            file.write(MARKER.join(parts))
        return self.path(name)

    def batch(self, number, count):
        """Runs a batch after `count` pipelines on threads, and after some of them on one of the other backends."""
        made = make_batch(number, lambda why: self.counts.update([f"not used: {why}"]))
        if not made:
            return
        self.counts["programs"] += len(made)
        chosen = pipelines(number, count, "nccl" in self.backends)
        options = write_inputs(made[0].program, self.folder)
        given = self.write("given.mlir", [c.text for c in made])
        expected = self.write("expected.mlir", [c.oracle for c in made])
        changed = []
        for i, passes in enumerate(chosen):
            texts = self.optimized(given, passes, made)
            # A program that was refused is not run: the oracle takes its place, and a text is not run twice.
            changed.append(self.write(f"after{i}.mlir", [t or c.oracle for t, c in zip(texts, made)]))
            self.counts["executions on threads"] += sum(text is not None for text in texts)
        variants = [([], given), *zip(chosen, changed)]
        self.execute(made, expected, variants, options, "threads", number)
        others = [b for b in self.backends if b != "threads"]
        if others:
            backend = others[number % len(others)]
            streamed = [v for v in variants if has_streams(v[0])] if backend == "nccl" else []
            some = [variants[0], streamed[0] if streamed else variants[1 + number % count]]
            self.counts[f"executions on {backend}"] += 2 * len(made)
            self.execute(made, expected, some, options, backend, number)
        self.certify(random.Random(f"certificate {number}"), made, chosen)

    def certify(self, rng, made, chosen):
        """Checks the certificate of one program."""
        fitting = [passes for passes in chosen if has_certificate(passes)] or [["--comm-schedule=effort=3000"]]
        candidate, passes = rng.choice(made), rng.choice(fitting)
        done = self.certificate(candidate, passes)
        self.counts["certificates checked"] += done is not None
        if done and done.code == 1:
            self.counts["certificate"] += 1
            self.fail(Failure(candidate, passes, "comm-opt", "certificate", done.out + done.err))

    def certificate(self, candidate, passes):
        return self.tools.certify(self.write("alone.mlir", [candidate.text]), passes, self.path("alone.cert"))

    def optimized(self, given, passes, made):
        """The programs after the passes; None for those that were refused or crashed."""
        texts, said, done = self.tools.optimize(given, passes)
        self.counts["runs of comm-opt"] += len(made)
        if done.code != 0:
            for i, candidate in enumerate(made):
                if texts[i] is None:
                    texts[i] = self.optimize_alone(candidate, passes)
        return texts

    def optimize_alone(self, candidate, passes):
        path = self.write("alone.mlir", [candidate.text])
        texts, _, done = self.tools.optimize(path, passes)
        if done.code == 0:
            return texts[0]
        self.note(candidate, passes, "comm-opt", done)
        return None

    def execute(self, made, expected, variants, options, backend, seed):
        done = self.tools.execute([expected, *(path for _, path in variants)], made[0].program.ranks, options, backend, seed)
        if done.code == 0:
            return
        said, known = failures_by_part(done), len(self.failures)
        failed = list(said)
        # Without a list of what failed, or where ranks are processes, any of them may be the one.
        if not failed or done.crashed or done.code is None or backend == "mpi":
            failed = range(len(made))
        for i in failed:
            for passes, path in variants:
                with open(path) as file:
                    text = file.read().split(MARKER)[i]
                # What is wrong as it is written is no fault of a pass.
                if text != made[i].oracle and not self.check(made[i], passes, text, options, backend, seed) and not passes:
                    break
        # Other bits, or a crash, that no program shows alone: it depends on who is first.
        if (done.code == 2 or done.crashed) and all(f.kind == "refused" for f in self.failures[known:]):
            first = next((i for i in failed if "elements differ" in said.get(i, "")), failed[0])
            kind = "crash" if done.crashed else "wrong"
            self.counts[f"{kind} ({backend}), not repeated"] += 1
            self.fail(Failure(made[first], variants[-1][0], backend, kind, "not repeated by the program alone\n" + done.err))

    def check(self, candidate, passes, text, options, backend, seed):
        """Whether one program is right after one pipeline, alone."""
        expected, path = self.write("one.mlir", [candidate.oracle]), self.write("other.mlir", [text])
        done = self.tools.execute([expected, path], candidate.program.ranks, options, backend, seed, timeout=60)
        if done.code != 0:
            self.note(candidate, passes, backend, done)
        return done.code == 0

    def note(self, candidate, passes, backend, done):
        kind, why = classify(done, candidate, passes)
        if why:
            self.refused[why] += 1
            return
        if kind == "wrong" and has_certificate(passes):
            proof = self.certificate(candidate, passes)
            self.counts["wrong with a valid certificate"] += bool(proof and proof.code == 0)
        self.counts[f"{kind} ({'broken rule, ' if candidate.breaks_rules else ''}{backend})"] += 1
        self.fail(Failure(candidate, passes, backend, kind, done.err))

    def fail(self, failure):
        self.failures.append(failure)
        if self.stop_after is not None and (
                failure.kind != "refused" or len({f.candidate.seed for f in self.failures}) > self.stop_after):
            raise Enough


def classify(done, candidate, passes=()):
    """What went wrong with a candidate, and the documented reason if there is one."""
    if done.code is None or WAITED.search(done.err):
        return "hang", None
    if done.crashed:
        return "crash", None
    if done.code == 2:
        return "wrong", None
    if CONTRADICTION.search(done.err):
        return "contradiction", None
    return "refused", reason(done.err, candidate.breaks_rules, candidate.text, passes)


def verdict(tools, folder, candidate, passes, backend, seed):
    """Whether one candidate fails, and how: (kind, what was said, the text that was run). Kind "given" if the program fails
    as it is written. None if all is well."""
    judge = Judge(tools, folder, [])
    options = write_inputs(candidate.program, folder)
    given, expected = judge.write("alone.mlir", [candidate.text]), judge.write("one.mlir", [candidate.oracle])
    path = given
    if passes:
        texts, _, done = tools.optimize(given, passes, timeout=60)
        if done.code != 0:
            return classify(done, candidate)[0] + " by comm-opt", done.err, candidate.text
        path = judge.write("other.mlir", texts)
    if backend == "comm-opt":
        return None
    done = tools.execute([expected, path], candidate.program.ranks, options, backend, seed, timeout=30)
    if done.code == 0:
        return None
    return classify(done, candidate)[0], done.err, open(path).read()
