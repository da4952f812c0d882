# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Processes of a JAX program agree about its schedule: over a store of this test, and over that of jax.distributed."""

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading

import pytest

import commsched.jax
from commsched import Error
from commsched.jax import ranks


class Store:
    """A key-value store. Waiting for a key that is named in `absent` times out at once, and for others never."""

    def __init__(self, absent=()):
        self.values, self.absent, self.changed = {}, set(absent), threading.Condition()

    def key_value_set(self, key, value):
        with self.changed:
            if key in self.values:
                raise RuntimeError(f"{key} exists")
            self.values[key] = value
            self.changed.notify_all()

    def blocking_key_value_get(self, key, timeout_in_ms):
        with self.changed:
            if key in self.absent and key not in self.values:
                raise RuntimeError(f"no {key} within {timeout_in_ms} ms")
            self.changed.wait_for(lambda: key in self.values)
            return self.values[key]


def in_parallel(work, processes):
    """What `work` gives on each process, each in a thread."""
    results = {}

    def run(process):
        results[process] = work(process)

    threads = [threading.Thread(target=run, args=(process,), daemon=True) for process in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[process] for process in processes]


def test_equal_signatures_are_alike():
    store = Store()
    assert in_parallel(lambda p: ranks.decide(store, "k", [0, 1, 2], p, "s", 1), range(3)) == [ranks.ALIKE] * 3


def test_all_processes_hear_who_differs():
    store = Store()
    said = in_parallel(lambda p: ranks.decide(store, "k", [0, 1, 2], p, "ab"[p == 1], 1), range(3))
    assert set(said) == {"processes 0, 2: a; process 1: b"}


def test_a_process_that_comes_late_takes_the_decision_that_was_made_without_it():
    store = Store(absent={"k/2"})
    early = in_parallel(lambda p: ranks.decide(store, "k", [0, 1, 2], p, "s", 7), range(2))
    late = ranks.decide(store, "k", [0, 1, 2], 2, "s", 7)
    assert {*early, late} == {"process 2 did not answer within 7 s"}


def test_without_the_first_process_another_one_decides_and_the_first_one_follows():
    store = Store(absent={"k/decision"})
    other = ranks.decide(store, "k", [0, 1], 1, "s", 7)
    first = ranks.decide(store, "k", [0, 1], 0, "s", 7)
    assert first == other == "process 0 did not answer within 7 s"


def test_a_store_that_takes_nothing_is_an_error_and_no_guess():
    class Broken(Store):
        def key_value_set(self, key, value):
            if key.endswith("decision"):
                raise RuntimeError("unavailable")
            super().key_value_set(key, value)

    with pytest.raises(RuntimeError, match="cannot agree"):
        ranks.decide(Broken(absent={"k/decision"}), "k", [0, 1], 1, "s", 7)


def test_signatures_are_those_of_the_new_orders():
    changed, kept = {"changed": True, "signature": "5eed"}, {"changed": False, "kept_because": "of the moon"}
    assert ranks.signature_of([kept, changed]) == "5eed; XLA's own" == ranks.signature_of([changed, kept])
    assert ranks.signature_of([]) == ranks.CACHED


class Process:
    """One process with a compiler whose schedule is named by the caller."""

    def __init__(self, store, me, schedule, processes=(0, 1)):
        self.store, self.me, self.schedule, self.processes = store, me, schedule, list(processes)
        self.off, self.warned, self.reports = False, [], []
        self.comparison = ranks.Comparison(self.switched_off, self.warned.append)

    @contextlib.contextmanager
    def switched_off(self):
        self.off = True
        yield
        self.off = False

    def collect(self):
        self.reports = [
            {"module": name, "changed": True, "signature": signature}
            for name, signature in (("jit_other", str(self.me)), ("jit_step", self.schedule))
        ]
        self.comparison.take(self.reports)

    def once(self):
        if self.schedule is None:
            raise ValueError("XLA is out of memory")
        return self.schedule

    def again(self):
        assert self.off
        return "own"

    def compile(self, choice="compare"):
        return self.comparison.compile(
            "jit_step", self.processes, self.me, self.store, self.once, self.again, self.collect, choice, 7
        )


def test_equal_schedules_run_as_they_are_and_every_compilation_is_compared_anew():
    store = Store()
    processes = [Process(store, p, "s") for p in range(2)]
    for schedule in ("s", "t"):
        for process in processes:
            process.schedule = schedule
        assert in_parallel(lambda p: processes[p].compile(), range(2)) == [schedule] * 2
    assert not processes[0].warned and sum(key.endswith("decision") for key in store.values) == 2


def test_different_schedules_run_in_xlas_own_order_everywhere_with_a_warning():
    store = Store()
    processes = [Process(store, p, "st"[p]) for p in range(2)]
    assert in_parallel(lambda p: processes[p].compile(), range(2)) == ["own"] * 2
    text = "the processes do not agree about the schedule of jit_step (process 0: s; process 1: t): all of them run it"
    for process in processes:
        assert len(process.warned) == 1 and process.warned[0].startswith(text)
        other, step = process.reports
        assert other["changed"] and not step["changed"] and text.startswith(step["kept_because"])


def test_strict_raises_on_all_processes():
    store = Store()

    def run(p):
        with pytest.raises(RuntimeError, match="process 0: s; process 1: t"):
            Process(store, p, "st"[p]).compile("strict")
        return True

    assert in_parallel(run, range(2)) == [True] * 2


def test_a_failed_compilation_keeps_its_reason_and_nobody_waits_for_it():
    store = Store()

    def run(p):
        if p == 0:
            return Process(store, 0, "s").compile()
        with pytest.raises(ValueError, match="out of memory"):
            Process(store, 1, None).compile()
        return None

    assert in_parallel(run, range(2)) == ["own", None]


@pytest.mark.parametrize("options", [{"ranks": "some"}, {"rank_timeout": 0.0}])
def test_wrong_options_are_refused(options):
    with pytest.raises(Error, match="expected ranks to be one of compare, strict, off and a positive rank_timeout"):
        commsched.jax.install(**options)


PROGRAM = """
    import json, sys, warnings
    me, address, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    import functools, jax
    from jax._src.lib import _jax
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # Gloo asks for the address of this machine's name otherwise, and a container may have none.
    _jax.make_gloo_tcp_collectives = functools.partial(_jax.make_gloo_tcp_collectives, hostname="127.0.0.1")
    jax.distributed.initialize(address, num_processes=2, process_id=me)
    import jax.numpy as jnp, numpy as np
    import jax.extend.xla as xla
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    import commsched.jax
    from commsched.jax import hook

    # The CPU backend in place of the plugin for CUDA: a random order per seed, and reports as the library has them.
    made, orders = [], []
    def reorder(module):
        own = hook._current is None or hook._paused
        orders.append("own" if own else "ours")
        if own:
            return None
        scheduled, report = commsched.jax.schedule(module, shuffle=me if mode != "alike" else 5)
        made.append(report)
        return scheduled
    def take():
        taken = json.dumps(made)
        made.clear()
        return taken
    hook._register = lambda: xla.register_hlo_module_transformation(
        reorder, name="shuffle", stage=xla.PipelineStage.POST_SCHEDULER, platforms="cpu")
    hook._commsched.xla_take_reports = take

    mesh = Mesh(np.array(jax.devices()), ("data",))
    def spread(values, spec):
        return jax.make_array_from_callback(values.shape, NamedSharding(mesh, spec), lambda index: values[index])
    x = spread(np.arange(512, dtype="f4").reshape(8, 64) / 100, P("data"))
    w = spread(np.eye(64, dtype="f4") / 2, P())
    def step(x, w):
        for _ in range(3):
            x = jnp.tanh(x @ w) + x.sum(0) / 1000
        return (x * x).sum(), x @ w.T
    def run():
        jax.clear_caches()
        return [np.asarray(part.addressable_shards[0].data) for part in jax.jit(step)(x, w)]

    given, said = run(), []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        commsched.jax.install(ranks="strict" if mode == "strict" else "compare")
        try:
            equal = all((a == b).all() for a, b in zip(given, run(), strict=True))
            said = [str(w.message) for w in caught if "CommSched" in str(w.message)]
        except RuntimeError as error:
            equal, said = None, [str(error)]
    print(json.dumps([bool(equal), said, orders]), flush=True)
"""


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax 0.10.2, which scripts/setup.sh installs")
@pytest.mark.parametrize("mode", ["alike", "differ", "strict"])
def test_two_processes_of_jax_agree(mode):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = dict(os.environ, XLA_FLAGS="--xla_force_host_platform_device_count=2", JAX_PLATFORMS="cpu")
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    running = [
        subprocess.Popen(
            [*command, str(me), address, mode],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for me in range(2)
    ]
    ends = [process.communicate() for process in running]
    for process, (out, err) in zip(running, ends, strict=True):
        assert process.returncode == 0, err[-2000:]
        equal, said, orders = json.loads(out.splitlines()[-1])
        if mode == "alike":
            assert equal and said == [] and orders == ["ours"], (said, orders)
        elif mode == "differ":
            assert equal and orders == ["ours", "own"] and len(said) == 1
            assert "do not agree about the schedule of jit_step (process 0: " in said[0]
        else:
            assert orders == ["ours"] and len(said) == 1 and "do not agree about the schedule" in said[0]
