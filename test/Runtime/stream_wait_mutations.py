"""Removes each wait of a stream for an event, one after the other, and names the tests that notice.

    stream_wait_mutations.py --build build/tsan [--random build] [--only NAME]

It edits the sources of the runtime, builds the two libraries, runs the tests over the emulated CUDA and NCCL, and puts
the sources back. With --build a folder that was configured with the thread sanitizer, where a missing order is a data
race; with --random also one without, where operations run in random legal orders.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
START, TOKENS, DEVICE, GRAPHS = "Nccl/Collectives/NcclStart.cpp", "Core/Calls/Tokens.cpp", "Core/Calls/Device.cpp", "Nccl/Device/NcclGraphs.cpp"
# (name, file below lib/Runtime, text, what it becomes)
MUTATIONS = [
    ("the lane's stream does not wait for the producer", START,
     "std::string text = awaitEvent(peer, flight.lane->stream, ready)", "std::string text"),
    ("before NCCL 2.26, groups do not wait for each other", START,
     "std::string text = awaitEvent(peer, flight.lane->stream, peer.newest->done)", "std::string text"),
    ("commrt_wait does not make the stream wait for the collective", START,
     "std::string text = awaitEvent(peer, stream, flight.done)", "std::string text"),
    ("commrt_event_await does not wait for the stream's event", TOKENS,
     "device->stream_wait(context->peer, streamHandle(context, stream), event->handle)", "COMMRT_OK"),
    ("commrt_event_await does not wait for the collectives started on the stream", TOKENS,
     "waitOnStream(event->stream->tokens[i], stream);", ";"),
    ("streams do not wait for each other when memory comes or goes", DEVICE,
     "context->job->device->stream_wait(context->peer, stream->handle, events[i])", "COMMRT_OK"),
    ("streams do not join a capture", GRAPHS, "      error = joinCapture(peer, stream);", "      ;"),
    ("streams are not joined back at the end of a capture", GRAPHS,
     "std::string text = order(peer, stream, originOf(peer));", "std::string text;"),
    ("a launch does not wait for the memory of its graph", GRAPHS,
     "std::string text = order(peer, peer.graphStream, originOf(peer))", "std::string text"),
    ("a stream that is made in a capture does not join it", "Nccl/Device/NcclDevice.cpp",
     "error = joinCapture(peer, slot);", ";"),
    ("a launch does not wait for the other compute streams", "Core/Calls/Graphs.cpp",
     "  reclaimCompleted(context);\n  joinComputeStreams(context);\n", "  reclaimCompleted(context);\n"),
    ("the other compute streams do not wait for a launch", "Core/Calls/Graphs.cpp",
     "    return fail(context, status, text);\n  joinComputeStreams(context);", "    return fail(context, status, text);"),
]
TESTS = [("RuntimeNcclTests", "*"), ("RuntimeTests", "Sizes/*:AllToAll*:Groups*:Determinism*:StreamPrograms.*")]


def run(build, tool, tests, **variables):
    """What notices: names of failed tests, data races, or a rule of the emulator that was broken."""
    environment = dict(os.environ, COMMRT_CUDART_LIBRARY=str(build / "lib/libcudart_emu.so"),
                       COMMRT_NCCL_LIBRARY=str(build / "lib/libnccl_emu.so"), COMMRT_TEST_BACKEND="nccl",
                       TSAN_OPTIONS="exitcode=66", **variables)
    done = subprocess.run([build / "bin" / tool, f"--gtest_filter={tests}"], capture_output=True, text=True,
                          env=environment, timeout=400)
    text = done.stdout + done.stderr
    found, test = [], "?"
    for line in text.splitlines():
        if begin := re.match(r"\[ RUN      \] (\S+)", line):
            test = begin.group(1)
        if "WARNING: ThreadSanitizer" in line:
            found.append(f"{test} (data race)")
        elif line.startswith("emulator: ") and "leak" not in line:
            found.append(f"{test} ({line.strip()})")
        elif failed := re.match(r"\[  FAILED  \] (\S+?),? .*ms\)", line):
            found.append(f"{failed.group(1)} (wrong result)")
    if done.returncode and not found:
        found.append(f"{tool}: exit code {done.returncode}")
    return list(dict.fromkeys(found))


def build(folder):
    subprocess.run(["ninja", "-C", folder, "CommSchedRuntime", "CommSchedRuntimeNccl", "RuntimeNcclTests", "RuntimeTests",
                    "cudart_emu", "nccl_emu"], check=True, stdout=subprocess.DEVNULL)


def show(title, found):
    print(f"    {title}: " + ("NOT FOUND" if not found else f"{len(found)}, first {'; '.join(found[:2])}"), flush=True)


def judge(folders):
    """Whether any of the runs notices."""
    noticed = False
    for title, folder, variables in folders:
        build(folder)
        for tool, tests in TESTS:
            found = run(folder, tool, tests, **variables)
            show(f"{title}, {tool}", found)
            noticed |= bool(found)
    return noticed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--random", type=pathlib.Path)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    folders = [("thread sanitizer", arguments.build.resolve(), {}),
               ("thread sanitizer, NCCL 2.19", arguments.build.resolve(), {"NCCL_EMU_VERSION": "21900"})]
    if arguments.random:
        folders += [(f"random order {seed}", arguments.random.resolve(),
                     {"CUDA_EMU_SCHEDULE": "random", "CUDA_EMU_SEED": str(seed)}) for seed in (1, 2)]
    print("unchanged", flush=True)
    bad = judge(folders)
    for name, file, old, new in MUTATIONS:
        if arguments.only not in name:
            continue
        path = ROOT / "lib/Runtime" / file
        text = path.read_text()
        assert text.count(old) == 1, f"{file} has not exactly one '{old}'"
        print(name, flush=True)
        try:
            path.write_text(text.replace(old, new))
            bad |= not judge(folders)
        finally:
            path.write_text(text)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
