# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The JAX front end: modules as bytes, and, where jax and its plugin for CUDA are installed, XLA's own compilation."""

import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import warnings

import pytest
import robustness_jax

import commsched.jax
from commsched import Error, _commsched, traces
from commsched.jax import hook

ROOT = pathlib.Path(__file__).resolve().parents[2]
INPUTS = ROOT / "test" / "Frontends" / "Inputs"
NAMES = ("small-fsdp", "small-scan", "small-moe")


def module_of(name):
    return (INPUTS / f"{name}.pb").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_module_comes_back_in_another_order_of_the_same_size(name):
    given = module_of(name)
    scheduled, report = commsched.jax.schedule(given, buckets=False)
    assert report["changed"] and scheduled != given and len(scheduled) == len(given)
    assert report["makespan_ns"]["after"] < report["makespan_ns"]["before"]
    assert report["peak_bytes"]["after"] <= report["peak_bytes"]["limit"] == report["peak_bytes"]["before"]
    assert report["lower_bound_ns"] <= report["makespan_ns"]["after"]
    # The same bytes on another rank give the same order.
    assert commsched.jax.schedule(given, buckets=False)[1]["signature"] == report["signature"]


@pytest.mark.parametrize("name", NAMES)
def test_collectives_are_merged_anew_if_that_is_faster_than_another_order(name):
    given = module_of(name)
    order = commsched.jax.schedule(given, buckets=False)[1]
    rewritten, report = commsched.jax.schedule(given)
    assert report["taken_apart"] > 0 and len(rewritten) != len(given)
    assert report["makespan_ns"]["before"] == order["makespan_ns"]["before"]
    assert report["makespan_ns"]["after"] < order["makespan_ns"]["after"]
    assert report["peak_bytes"]["after"] <= report["peak_bytes"]["limit"] == order["peak_bytes"]["limit"]
    assert report["signature"] == commsched.jax.schedule(given)[1]["signature"] != order["signature"]
    # What was written is a module whose time and peak are those of the report.
    again = commsched.jax.schedule(rewritten, buckets=False)[1]
    assert again["makespan_ns"]["before"] == report["makespan_ns"]["after"]
    assert again["peak_bytes"]["before"] == report["peak_bytes"]["after"]


def test_synchronous_collectives_become_asynchronous_if_the_user_says_so():
    # The same length, so that the bytes around it stay right.
    given = module_of("small-moe").replace(b'"is_sync":false,"', b'"is_sync":true ,"')
    kept, report = commsched.jax.schedule(given)
    assert kept is given and report["kept_because"] == "it has no asynchronous work"
    made, report = commsched.jax.schedule(given, asynchronous=True, buckets=False)
    assert report["changed"] and b'"is_sync":true' not in made and report["taken_apart"] == 11
    assert report["makespan_ns"]["after"] < report["makespan_ns"]["before"]


def test_donation_does_not_matter_to_a_module_in_bytes():
    kept, dropped = (commsched.jax.schedule(module_of("small-fsdp"), donation=d) for d in ("keep", "drop"))
    assert kept == dropped and kept[1]["changed"] and kept[1]["donated_bytes"] > 0


def test_bytes_that_are_no_module_come_back_with_the_reason():
    module, report = commsched.jax.schedule(b"no module")
    assert module == b"no module" and not report["changed"]
    assert report["kept_because"].startswith("expected a module of XLA")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"donation": "some"}, "donation"),
        ({"machine": "no-such-machine"}, "no-such-machine"),
        ({"memory_budget_ratio": -1.0}, "memory-budget-ratio"),
        ({"memory_limit_bytes": -2}, "memory-limit-bytes=-2"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(Error, match=message):
        commsched.jax.schedule(module_of("small-moe"), **options)


def test_a_budget_lets_the_peak_rise():
    given = module_of("small-scan")
    tight, wide = (commsched.jax.schedule(given, memory_budget_ratio=r)[1] for r in (0.0, 1.0))
    assert wide["peak_bytes"]["limit"] == 2 * tight["peak_bytes"]["limit"]
    assert wide["makespan_ns"]["after"] <= tight["makespan_ns"]["after"]


def test_a_limit_in_bytes_may_be_below_the_peak_of_xlas_order():
    given = module_of("small-scan")
    peak = commsched.jax.schedule(given, buckets=False)[1]["peak_bytes"]["before"]
    for percent in (80, 92, 95, 150):
        limit = peak * percent // 100
        report = commsched.jax.schedule(given, buckets=False, memory_limit_bytes=limit)[1]
        assert report["peak_bytes"]["limit"] == limit
        assert report["changed"] == (percent > 80)
        least = report["peak_bytes"]["lower_bound"]
        if report["changed"]:
            assert least <= report["peak_bytes"]["after"] <= limit
        else:
            assert least > limit and report["kept_because"] == (
                f"no order is within the limit on memory: each has {least} bytes of temporaries live at once, and the "
                f"limit is {limit}"
            )


def test_a_slower_order_is_taken_if_the_given_one_is_above_the_limit_in_bytes():
    fast, report = commsched.jax.schedule(module_of("small-scan"), buckets=False)
    peak = report["peak_bytes"]["after"]
    limit = peak * 97 // 100
    report = commsched.jax.schedule(fast, buckets=False, memory_limit_bytes=limit)[1]
    assert report["changed"] and report["peak_bytes"]["after"] <= limit < report["peak_bytes"]["before"] == peak
    assert report["makespan_ns"]["after"] > report["makespan_ns"]["before"]
    # Without a limit in bytes the given order is the limit.
    assert not commsched.jax.schedule(fast, buckets=False)[1]["changed"]


def test_another_version_gives_a_warning(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.99.0")
    monkeypatch.setattr(hook, "_warned", set())
    with pytest.warns(UserWarning, match=r"jaxlib is 0\.99\.0; CommSched was tested with 0\.10 to 0\.12"):
        hook._warn_of_version()


def test_pipelining_with_another_version_gives_a_warning(monkeypatch):
    monkeypatch.setattr(hook, "_warned", set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.10.2")
        hook._warn_of_pipelining()
        monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.12.0.1")
        with pytest.raises(UserWarning, match=r'loops="pipeline" was tested with jaxlib 0\.10; with 0\.12\.0\.1'):
            hook._warn_of_pipelining()


@pytest.mark.parametrize("found", ["0.10.0", "0.11.2", "0.12.0.1"])
def test_tested_versions_and_the_extra_agree(monkeypatch, found):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: found)
    monkeypatch.setattr(hook, "_warned", set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hook._warn_of_version()
    first, end = re.search(
        r'^jax = \["jax>=0\.(\d+),<0\.(\d+)"\]', (ROOT / "python" / "pyproject.toml").read_text(), re.MULTILINE
    ).groups()
    assert hook.TESTED_JAXLIB == tuple(f"0.{minor}" for minor in range(int(first), int(end)))


def test_without_a_plugin_the_error_says_so(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"{hook.TESTED_JAXLIB[0]}.2")
    monkeypatch.setattr(hook, "PLUGINS", ("jax_plugins.none",))
    with pytest.raises(Error, match="got none"):
        commsched.jax.install()


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_each_setting_has_its_own_key_in_the_persistent_cache(tmp_path):
    """jax's own compilation, on the CPU: one more entry for each setting that decides the order, and no other."""
    text = """
        import json, os, pathlib
        import jax
        from commsched.jax import hook

        folder = pathlib.Path(os.environ["FOLDER"])
        (folder / "keys").mkdir()
        jax.config.update("jax_compilation_cache_dir", str(folder / "keys"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        hook._extend_cache_key()
        hook._extend_cache_key()

        def keys(**changes):
            given = {"machine": "h100-sxm", "memory_budget_ratio": 0.0, "effort": None, "donation": "keep"}
            given |= {"loops": "keep"}
            given |= {"memory_limit_bytes": None, "objective": "robust", "buckets": True, "asynchronous": False}
            hook._configure(hook._options(**{**given, **changes}))
            jax.clear_caches()
            jax.jit(lambda x: x + 1).lower(1.0).compile()
            return len([name for name in os.listdir(folder / "keys") if not name.endswith("-atime")])

        profile = folder / "mine.json"
        text = pathlib.Path(os.environ["PROFILE"]).read_text()
        profile.write_text(text)
        hook._configure(None)
        jax.jit(lambda x: x + 1).lower(1.0).compile()
        counts = [keys()]
        for change in ({"machine": "a100-sxm"}, {"memory_budget_ratio": 0.5}, {"effort": 7}, {"donation": "drop"},
                       {"loops": "pipeline"}, {"buckets": False}, {"asynchronous": True},
                       {"memory_limit_bytes": 1 << 30}, {"objective": "makespan"}, {"machine": str(profile)}):
            counts.append(keys(**change))
        profile.write_text(text + " ")
        counts.append(keys(machine=str(profile)))
        same = [keys(), keys(dump=str(folder)), keys(machine=str(profile))]
        with hook._switched_off():
            same.append(keys())
        print(json.dumps([counts, same]))
    """
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "FOLDER": str(tmp_path),
        "PROFILE": str(ROOT / "machines" / "h100-sxm.json"),
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    counts, same = json.loads(done.stdout)
    # One key without CommSched, and the settings one after the other.
    assert counts == list(range(2, 2 + len(counts))) and set(same) == {counts[-1]}


def test_without_jaxlib_the_error_says_so(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(Error, match="jaxlib, which is not installed"):
        commsched.jax.install()


def test_a_report_of_a_kept_module_warns_once(monkeypatch):
    report = {"module": "jit_step", "changed": False, "kept_because": "of the moon"}
    monkeypatch.setattr(hook._commsched, "xla_take_reports", lambda: json.dumps([report, report]))
    monkeypatch.setattr(hook, "_reports", [])
    monkeypatch.setattr(hook, "_warned", set())
    with pytest.warns(UserWarning, match="jit_step stays as it was: of the moon") as caught:
        assert commsched.jax.reports(clear=True) == [report, report]
    assert len(caught) == 1


def test_a_missing_ptx_compiler_is_named_with_what_to_install(monkeypatch):
    reason = "XLA did not compile it: No PTX compilation provider is available. Could not find: /usr/bin/ptxas, /opt/"
    report = {"module": "jit_step", "changed": False, "kept_because": reason}
    monkeypatch.setattr(hook._commsched, "xla_take_reports", lambda: json.dumps([report]))
    monkeypatch.setattr(hook, "_warned", set())
    monkeypatch.setattr(hook, "_reports", [])
    with pytest.warns(UserWarning) as told:
        hook._collect()
    (warning,) = told
    assert str(warning.message).endswith("found no PTX compiler; `pip install nvidia-cuda-nvcc-cu12` installs one")


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax 0.10.2, which scripts/setup.sh installs")
def test_every_order_that_the_dependences_allow_computes_the_same():
    """Runs on four devices of the CPU: XLA's CPU backend takes orders, although its collectives are synchronous."""
    program = """
        import jax, jax.numpy as jnp, numpy as np
        import jax.extend.xla as xla
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        import commsched.jax

        seed, changed = None, 0
        def reorder(module):
            global changed
            if seed is None:
                return None
            scheduled, report = commsched.jax.schedule(module, shuffle=seed)
            assert report["changed"], report
            changed += scheduled != module
            return scheduled

        xla.register_hlo_module_transformation(
            reorder, name="shuffle", stage=xla.PipelineStage.POST_SCHEDULER, platforms="cpu"
        )
        mesh = Mesh(np.array(jax.devices()), ("data",))
        split, whole = NamedSharding(mesh, P("data", None)), NamedSharding(mesh, P())
        random = np.random.default_rng(3)
        weights = [jax.device_put((random.normal(size=(64, 64)) / 8).astype("f4"), split) for _ in range(3)]
        deep = NamedSharding(mesh, P(None, "data"))
        layers = jax.device_put((random.normal(size=(4, 64, 64)) / 8).astype("f4"), deep)
        x = jax.device_put(random.normal(size=(32, 64)).astype("f4"), split)

        def step(weights, layers, x):
            def loss(weights, layers, x):
                for w in weights:
                    x = jnp.tanh(x @ w)
                x, seen = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), x.sum()), x, layers)
                return (x * x).mean() + 0.01 * seen.sum()
            value, gradients = jax.value_and_grad(loss, argnums=(0, 1))(weights, layers, x)
            return jax.tree.map(lambda p, g: p - 0.1 * g, (weights, layers), gradients), value

        traced = jax.jit(step).trace(weights, layers, x)

        def run():
            jax.clear_caches()
            compiled = traced.lower().compile()
            return [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(weights, layers, x))]

        given = run()
        for seed in range(8):
            assert all((a == b).all() for a, b in zip(given, run(), strict=True)), seed
        assert changed == 8, changed
        print("done")
    """
    # Orders matter, and not how well LLVM optimizes.
    flags = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
    environment = dict(os.environ, XLA_FLAGS=flags, JAX_PLATFORMS="cpu")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "done", done.stderr[-2000:]


def has_plugin():
    return importlib.util.find_spec("jax") is not None and any(hook._library_of(p) for p in hook.PLUGINS)


@pytest.mark.skipif(not has_plugin(), reason="needs jax and jax-cuda12-plugin 0.10.2, which scripts/setup.sh installs")
def test_xla_takes_the_order_and_its_buffers_follow():
    program = """
        import json, sys, warnings
        sys.path.insert(0, sys.argv[1])
        import jax
        import commsched.jax, jax_programs

        def temporaries(name):
            step, arguments = jax_programs.training_step(jax_programs.find(name))
            lowered = step.trace(*arguments).lower(lowering_platforms=("cuda",))
            return lowered.compile().memory_analysis().temp_size_in_bytes

        ours = {}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for name, donation in (("small-fsdp", "keep"), ("small-moe", "drop")):
                with commsched.jax.enabled(donation=donation):
                    ours[name] = temporaries(name)
                report = max(commsched.jax.reports(clear=True), key=lambda r: r["makespan_ns"]["before"])
                assert report["changed"]
                assert report["donations_kept"] == (donation == "keep")
        jax.clear_caches()
        for name in ours:
            own = temporaries(name)
            assert ours[name] <= 1.01 * own, (name, ours[name], own)
        assert commsched.jax.reports() == [], "outside of the with statement nothing is scheduled"
        print("done")
    """
    flags = "--xla_gpu_autotune_level=0 --xla_gpu_enable_latency_hiding_scheduler=true"
    environment = dict(os.environ, XLA_FLAGS=flags, JAX_PLATFORMS="cpu")
    arguments = [sys.executable, "-c", textwrap.dedent(program), str(ROOT / "benchmarks")]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "done", done.stderr[-2000:]


@pytest.mark.skipif(not has_plugin(), reason="needs jax and jax-cuda12-plugin 0.10.2, which scripts/setup.sh installs")
def test_xlas_own_estimates_are_read_from_its_log(tmp_path, monkeypatch):
    """The log of a compilation has a time of each instruction that costs time by our model, too."""
    program = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import jax_programs

        step, arguments = jax_programs.training_step(jax_programs.find("small-fsdp"))
        module = step.trace(*arguments).lower(lowering_platforms=("cuda",)).compile()
        open(sys.argv[2], "w").write(module.as_text())
    """
    module, log = tmp_path / "module.txt", tmp_path / "xla.log"
    environment = dict(os.environ, XLA_FLAGS="--xla_gpu_autotune_level=0", JAX_PLATFORMS="cpu")
    environment |= {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "sol_latency_estimator=10"}
    arguments = [sys.executable, "-c", textwrap.dedent(program), str(ROOT / "benchmarks"), str(module)]
    with log.open("w") as file:
        subprocess.run(arguments, env=environment, stderr=file, check=True)
    monkeypatch.setenv("COMMSCHED_CALIBRATION_CACHE", str(tmp_path / "cache"))
    profile = traces.machine_of(f"profile:{log}@h100-sxm")
    times = {op["name"]: op["ns"] for op in json.loads(pathlib.Path(profile).read_text())["ops"]}
    found = re.findall(r"NodeCost: .* for (\S+): ([\d.]+) us", log.read_text())
    kernels = {name: float(us) * 1000 for name, us in found if float(us) > 0}
    assert len(kernels) > 20 and {name: times[name] for name in kernels} == pytest.approx(kernels, abs=1)
    # XLA takes some instructions out again before it schedules.
    text = module.read_text()
    assert sum(f"%{name} = " in text for name in times) >= 0.9 * len(times)
    assert any(name.startswith("all-gather-start") for name in times)
    _, report = _commsched.schedule_hlo(module_of("small-fsdp"), json.dumps({"machine": profile}))
    known = json.loads(report)["cost_times_ns"]
    assert sum(known.values()) > known["measured"] > 0


# Times by XLA's estimator: those that it writes into modules, and those that its log has.
ESTIMATED = """
    import json, pathlib, re, sys, tempfile, warnings
    sys.path.insert(0, sys.argv[1])
    import jax
    import commsched.jax, jax_programs
    from commsched.jax import hook
    from jaxlib import _hlo

    step, arguments = jax_programs.training_step(jax_programs.find("small-fsdp"))

    def compile(**options):
        jax.clear_caches()
        with tempfile.TemporaryDirectory() as folder, commsched.jax.enabled(dump=folder, effort=1000, **options):
            step.trace(*arguments).lower(lowering_platforms=("cuda",)).compile()
            given = max((path.read_bytes() for path in pathlib.Path(folder).iterdir()), key=len)
        report = max(commsched.jax.reports(clear=True), key=lambda r: r["makespan_ns"]["before"])
        return given, report

    given, report = compile()
    times = report["makespan_by_xla_ns"]
    assert 0 < times["after"] <= 1.01 * times["before"], report
    text = _hlo.XlaComputation(given).as_hlo_text()
    found = re.findall(r'%?([\\w.\\-]+) = .*"exec_time_us":([\\d.]+)[^}]*"name":"sol"', text)
    print(json.dumps({name: float(time) for name, time in found}), file=sys.stderr)

    given, report = compile(objective="makespan")
    assert b'"name":"sol"' not in given and "makespan_by_xla_ns" not in report

    hook.UNKNOWN_FLAG = hook.UNKNOWN_FLAG.replace(hook.ESTIMATES, "xla_gpu_no_such_flag")
    hook.ESTIMATES = "xla_gpu_no_such_flag"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        given, report = compile()
    assert [w for w in caught if "has no flag xla_gpu_no_such_flag" in str(w.message)], caught
    assert report["changed"] and "makespan_by_xla_ns" not in report
    print("done")
"""


@pytest.mark.skipif(not has_plugin(), reason="needs jax and jax-cuda12-plugin 0.10.2, which scripts/setup.sh installs")
def test_xlas_own_estimates_come_with_the_module():
    environment = dict(os.environ, XLA_FLAGS="--xla_gpu_autotune_level=0", JAX_PLATFORMS="cpu")
    environment |= {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "sol_latency_estimator=10"}
    arguments = [sys.executable, "-c", textwrap.dedent(ESTIMATED), str(ROOT / "benchmarks")]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "done", done.stderr[-2000:]
    (written,) = (json.loads(line) for line in done.stderr.splitlines() if line.startswith("{"))
    kernels, collectives = robustness_jax.costs_of(done.stderr)
    both = {
        name: (us * 1000, (kernels | collectives)[name])
        for name, us in written.items()
        if name in kernels | collectives
    }
    assert len(both.keys() & collectives.keys()) > 2 and len(both) > 20, both
    for name, (ours, theirs) in both.items():
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1.5), name
