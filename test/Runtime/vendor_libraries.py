# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Opens the nccl backend with the vendors' own libraries where they cannot work: without a GPU, old, swapped, broken.

    vendor_libraries.py RuntimeNcclScenario --emulated FOLDER --fakes FOLDER [FOLDER...]

Every rank has to end with one line that says what is wrong, and exit code 1. The libraries are looked for in the
folders given, in the Python packages of the project and in CUDA's usual places; what is not there is left out, with a
reason.
"""

import argparse
import ctypes
import glob
import pathlib
import re
import subprocess
import sys
import tempfile

import tcp_job

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACES = [
    f"{ROOT}/build/venv/lib/python3*/site-packages/nvidia/*/lib",
    "/usr/local/cuda*/lib64",
    "/usr/lib/x86_64-linux-gnu",
]
# A net against hangs; no case ends by it.
NET_S = 120
CUDA_DRIVER_INSUFFICIENT, CUDA_NO_DEVICE = 35, 100
# What ctest takes for a test that was skipped.
SKIPPED = 77


def find(folders, names):
    """The first file of that name, or None."""
    for folder in folders:
        for name in names:
            if pathlib.Path(folder, name).exists():
                return str(pathlib.Path(folder, name))
    return None


def count_devices(cudart):
    """(CUDA's result, devices)."""
    count = ctypes.c_int()
    return ctypes.CDLL(cudart).cudaGetDeviceCount(ctypes.byref(count)), count.value


def open_ranks(program, nccl, cudart, ranks=1, **environment):
    """What each rank ends with; asserts one line, exit code 1, and nothing left running."""
    port = tcp_job.free_port()
    with tempfile.TemporaryDirectory() as folder:
        common = dict(
            tcp_job.clean_environment(),
            COMMRT_NCCL_LIBRARY=nccl,
            COMMRT_CUDART_LIBRARY=cudart,
            CUDA_EMU_SHARED=f"{folder}/memory",
            CUDA_EMU_LEAKS="0",
            **environment,
        )
        processes = [
            subprocess.Popen(
                [program, "healthy", "60000"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=dict(common, **tcp_job.variables("commrt", rank, ranks, port)),
            )
            for rank in range(ranks)
        ]
        lines = []
        try:
            for process in processes:
                out, err = process.communicate(timeout=NET_S)
                assert process.returncode == 1, f"exit code {process.returncode}: {out}{err}"
                found = re.findall(r"^rank -?\d+: (.*)$", out, re.M)
                assert len(found) == 1 and len(out.splitlines()) == 1, out
                lines.append(found[0])
        finally:
            for process in processes:
                process.kill()
                process.wait()
        return lines


def cases(options, folder):
    """(name, libraries that have to be there, how to open, what each line has to match)."""
    folders = options.folders + [path for place in PLACES for path in sorted(glob.glob(place))]
    nccl, cudart = find(folders, ["libnccl.so.2"]), find(folders, ["libcudart.so.13", "libcudart.so.12"])
    emulated = {name: f"{options.emulated}/lib{name}.so" for name in ("nccl_emu", "nccl_emu_2_18", "cudart_emu")}
    fake = {name: f"{options.fakes}/lib{name}.so" for name in ("FakeNcclOld", "FakeNcclIncomplete", "FakeCudartOld")}
    text = pathlib.Path(folder, "text.so")
    text.write_text("not a library\n")
    nothing = f"{folder}/nothing.so"
    refused = r"backend failure: nccl: "
    absent = (
        refused
        + r"no GPU can be used: CUDA driver version is insufficient|"
        + refused
        + r"(no GPU can be used: no CUDA|this machine has no GPU)"
    )
    yield "no driver or no device", nccl, cudart, absent, "no-gpu"
    yield "emulated NCCL, no driver", emulated["nccl_emu"], cudart, absent, "no-gpu"
    yield "NCCL 2.18 (emulated), no driver", emulated["nccl_emu_2_18"], cudart, absent, "no-gpu"
    yield (
        "old NCCL",
        fake["FakeNcclOld"],
        cudart,
        refused + r"NCCL is version 2\.8\.4; at least 2\.18\.0 is needed$",
        "",
    )
    yield (
        "incomplete NCCL",
        fake["FakeNcclIncomplete"],
        cudart,
        refused + r"NCCL \(.*\) lacks ncclCommSplit, ncclAllGather$",
        "",
    )
    yield (
        "old CUDA runtime",
        nccl,
        fake["FakeCudartOld"],
        refused + r"the CUDA runtime is version 11\.8; at least 12\.0 is needed$",
        "",
    )
    yield "no NCCL", nothing, cudart, refused + r"cannot load NCCL: .*nothing\.so: cannot open shared object file", ""
    yield "no CUDA runtime", nccl, nothing, refused + r"cannot load the CUDA runtime: .*nothing\.so: cannot open", ""
    yield "a file that is no library", str(text), cudart, refused + r"cannot load NCCL: .*text\.so: ", ""
    yield "the CUDA runtime for NCCL", cudart, cudart, refused + r"NCCL \(.*\) lacks ncclGetVersion, ", ""
    yield (
        "NCCL for the CUDA runtime",
        nccl,
        nccl,
        refused + r"the CUDA runtime \(.*\) lacks cudaRuntimeGetVersion, ",
        "",
    )
    # NCCL itself notices that there is no driver, when the first communicator is made.
    failed = r"backend failure: rank [01]: group @world: .*nccl\w+ failed: |backend failure: rank [01]: .*NCCL failed: "
    yield "NCCL over an emulated CUDA runtime", nccl, emulated["cudart_emu"], failed, "no-gpu two"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--emulated", required=True)
    parser.add_argument("--fakes", required=True)
    parser.add_argument("folders", nargs="*")
    options = parser.parse_intermixed_args()
    bad = ran = 0
    lacking = set()
    with tempfile.TemporaryDirectory() as folder:
        for name, nccl, cudart, expected, needs in cases(options, folder):
            if not nccl or not cudart:
                lacking.add("libnccl.so.2" if not nccl else "libcudart.so.13")
                continue
            if "no-gpu" in needs and "emu" not in cudart:
                code, devices = count_devices(cudart)
                if devices > 0:
                    print(f"{name}: left out, this machine has {devices} GPUs")
                    continue
                assert code in (0, CUDA_DRIVER_INSUFFICIENT, CUDA_NO_DEVICE), code
            lines = open_ranks(options.program, nccl, cudart, ranks=2 if "two" in needs else 1)
            good = all(re.match(expected, line) for line in lines)
            ran += 1
            bad += not good
            print(f"{name}: {'as it should' if good else f'expected {expected!r}'}: {lines[0][:240]}", flush=True)
    for library in sorted(lacking):
        print(f"SKIPPED [1] cases of vendor_libraries.py that need {library}, which was not found")
    return 1 if bad else 0 if ran else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
