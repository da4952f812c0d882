#===- multi_stream_memory.py - The memory limit of comm-multi-stream, counted a second time -------------------------===#
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===---------------------------------------------------------------------------------------------------------------===#
#
# Makes random programs of computations and collectives on tensors of several sizes, runs the pass under its default limit
# and in both orders of issue, and counts the live bytes of what comes out by brute force: a buffer is live until every
# stream that goes on knows that its last use has ended. The peak has to be the one that the pass reports, and within the
# limit, which is the peak of the input.
#
#   multi_stream_memory.py COMM-OPT FOLDER COUNT
#
#===---------------------------------------------------------------------------------------------------------------===#

import os
import random
import re
import subprocess
import sys

SETTINGS = ["comm-streams=1", "comm-streams=1,3 compute-streams=0,2 shared-resources=false", "issue-order=start-time",
            "issue-order=start-time comm-streams=1,3 compute-streams=0,2 shared-resources=false"]


def program(seed):
    """The lines of a program in which gathers and computations take turns."""
    rng = random.Random(seed)
    lines = ["comm.group @dp #comm.iota<[1, 4]>", "func.func @f(%x: tensor<4xf32>) {"]
    values, futures = [("%x", 4)], []
    for number in range(rng.randint(4, 30)):
        name, size = rng.choice(values)
        value, cost = f"%v{number}", rng.randint(0, 9) * 1000
        if rng.random() < 0.4:
            lines.append(f"{value} = comm.all_gather {name} on @dp {{comm.cost = #comm.cost<time = {cost}>}} : (tensor<{size}xf32>) -> "
                         f"!comm.future<tensor<{4 * size}xf32>>")
            futures.append((value, 4 * size))
        else:
            made = rng.choice([1, 4, 16, 64])
            lines.append(f'{value} = comm.compute "op"({name}) {{comm.cost = #comm.cost<time = {cost}>}} : (tensor<{size}xf32>) -> tensor<{made}xf32>')
            values.append((value, made))
        while futures and rng.random() < 0.5:
            future, size = futures.pop(rng.randrange(len(futures)))
            lines.append(f"{future}w = comm.wait {future} : !comm.future<tensor<{size}xf32>>")
            values.append((future + "w", size))
    for future, size in futures:
        lines.append(f"{future}w = comm.wait {future} : !comm.future<tensor<{size}xf32>>")
    return lines + ["return", "}"]


def parse(text):
    """Per operation of the function: kind, stream, result, operands, and the bytes that it allocates."""
    ops = []
    for line in text.splitlines():
        found = re.match(r"\s*(?:(%\w+) = )?comm\.(compute|all_gather|wait|record|await_event)\b(.*)", line)
        if not found:
            continue
        result, kind, rest = found.groups()
        stream = re.search(r"comm\.stream = (\d+)", rest) or re.search(r"on (\d+)", rest if kind in ("record", "await_event") else "")
        operands = re.findall(r"%\w+", rest.split(" : ")[0])
        sizes = re.findall(r"tensor<(\d+)xf32>", rest)
        allocated = 4 * int(sizes[-1]) if kind in ("compute", "all_gather") else 0
        ops.append((kind, int(stream.group(1)) if stream else 0, result, operands, allocated))
    return ops


def count(ops):
    """The peak: O(operations x buffers x streams)."""
    streams = sorted({stream for _, stream, _, _, _ in ops} | {0})
    last_use = {s: max([at for at, op in enumerate(ops) if op[1] == s and op[0] not in ("record", "await_event")], default=-1) for s in streams}
    clock = {s: dict.fromkeys(streams, -1) for s in streams}
    told, start_of, buffer_of, uses, size = {}, {}, {}, {}, {}
    for at, (kind, stream, result, operands, allocated) in enumerate(ops):
        if kind == "all_gather":
            start_of[result] = (at, operands[0])
        if kind in ("compute", "all_gather"):
            buffer_of[result], size[result], uses[result] = result, allocated, [(at, stream)]
        touched = list(operands)
        if kind == "wait":
            buffer_of[result] = operands[0]
            touched.append(start_of[operands[0]][1])
        if kind not in ("record", "await_event"):
            for value in touched:
                if value in buffer_of:
                    uses[buffer_of[value]].append((at, stream))
    alive, peak = set(), 0
    for at, (kind, stream, result, operands, allocated) in enumerate(ops):
        if kind in ("wait", "await_event"):
            for other, known in told[operands[0]].items():
                clock[stream][other] = max(clock[stream][other], known)
        clock[stream][stream] = at
        if result:
            told[result] = dict(clock[stream])
        if allocated:
            alive.add(result)
        peak = max(peak, sum(size[buffer] for buffer in alive))
        going_on = [s for s in streams if last_use[s] > at]
        for buffer in list(alive):
            if all(use <= at and all(s == where or clock[s][where] >= use for s in going_on) for use, where in uses[buffer]):
                alive.remove(buffer)
    return peak


def main():
    tool, folder, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.makedirs(folder, exist_ok=True)
    limited = several = reordered = 0
    for index, setting in enumerate(SETTINGS):
        programs = [program(seed) for seed in range(index, number, len(SETTINGS))]
        path, out = os.path.join(folder, f"{index}.mlir"), os.path.join(folder, f"{index}.out.mlir")
        with open(path, "w") as file:
            file.write("\n".join("\n".join([*lines, "// -----"]) for lines in programs))
        done = subprocess.run([tool, "--split-input-file", path, f"--comm-multi-stream=gate=false sync-overhead-ns=0 {setting}",
                               "--remarks-filter=comm-multi-stream", "-o", out], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        if subprocess.run([tool, "--split-input-file", out, "--comm-verify", "-o", os.devnull]).returncode:
            sys.exit("a dependence has no event")
        with open(out) as file:
            results = file.read().split("// -----")
        said = {int(line): dict(re.findall(r"(\w+)=(\d+)", fields)) for line, fields in
                re.findall(r":(\d+):\d+: remark: \[\w+\] streams \| (.*)", done.stderr)}
        first = 1
        for lines, result in zip(programs, results, strict=False):
            fields, first = said.get(first + 1, {}), first + len(lines) + 1  # none: nothing can be on another stream
            given, peak = count(parse("\n".join(lines))), count(parse(result))
            if peak > given:
                sys.exit(f"{path}: {peak} bytes, and {given} before:\n{result}")
            if "PeakBytesAfter" not in fields:
                continue
            several += 1
            limited += int(fields["AwaitsForMemory"]) > 0
            before = [re.match(r"(?:%\w+ = )?(\S+)", line).group(1) for line in lines[2:-2]]
            after = [op[0] for op in parse(result) if op[0] not in ("record", "await_event")]
            reordered += [name.removeprefix("comm.") for name in before] != after
            if (int(fields["PeakBytesBefore"]), int(fields["LimitBytes"]), int(fields["PeakBytesAfter"])) != (given, given, peak):
                sys.exit(f"{path}: counted {given} before and {peak} after, the pass says {fields}:\n{result}")
    print(f"{several} on several streams, {limited} with awaits for memory, {reordered} in another order: none above the limit")


if __name__ == "__main__":
    main()
