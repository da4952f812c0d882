# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Runs ranks of the control plane that leave, fail, die, stop, come late or never come, and checks how each ends.

    control_scenarios.py RuntimeControlScenario ABI-VERSION [NAME...]

Timeouts are longer than the limit of this test wherever a timeout is not what has to happen, so that a rank that does
not notice fails the test, however fast or busy the machine is. What has to happen in an order is ordered by events:
ranks say where they are, and wait for a word.
"""

import concurrent.futures
import functools
import re
import signal
import socket
import struct
import sys
import threading
import time

import tcp_job

LONG_MS, SHORT_MS = 3_600_000, 4_000
OK = r"ok: $"
GONE = "its connection was closed: its process has ended, or its machine is gone"
PROGRAM = None


class Job:
    """The ranks of one scenario."""

    def __init__(self, name, ranks, timeout_ms=LONG_MS, host="127.0.0.1", **environment):
        self.name, self.ranks, self.timeout_ms, self.host, self.environment = name, ranks, timeout_ms, host, environment
        self.port = tcp_job.free_port()
        self.started = {}

    def start(self, rank, **changes):
        environment = tcp_job.variables("commrt", rank, self.ranks, self.port, self.host)
        environment.update(self.environment)
        environment.update(changes)
        self.started[rank] = tcp_job.Rank([PROGRAM, self.name, str(self.timeout_ms)], environment)
        return self.started[rank]

    def start_all(self):
        for rank in range(self.ranks):
            self.start(rank)
        return self

    def expect(self, lines):
        """Each rank's last line has to match; None: it was killed."""
        ends = {rank: process.end() for rank, process in self.started.items()}
        shown = "".join(f"\nrank {rank}: {end}" for rank, end in sorted(ends.items()))
        if "Address already in use" in shown and not any(
            "Address already in use" in (line or "") for line in lines.values()
        ):
            raise tcp_job.TakenPort
        for rank, expected in lines.items():
            code, out, err = ends[rank]
            assert code is not None, f"rank {rank} did not end{shown}"
            assert "Sanitizer" not in err, f"a sanitizer reports{shown}"
            if expected is None:
                continue
            found = re.findall(rf"^rank {rank}: (.*)$", out, re.M)
            assert found and re.match(expected, found[-1]), f"rank {rank} does not end with {expected!r}{shown}"
            assert code in (0, 1), f"exit code{shown}"


def runs(name, ranks, expected, **how):
    """A scenario without interference."""
    Job(name, ranks, **how).start_all().expect(dict(enumerate(expected)))


# ===- Coming -----------------------------------------------------------------------------------===#


def late():
    job = Job("healthy", 4)
    for rank in (2, 1, 3):
        job.start(rank).wait_for("opening")
    job.start(0).wait_for("opening")
    job.expect(dict.fromkeys(range(4), OK))


def last_comes_late():
    job = Job("healthy", 3)
    for rank in (0, 1):
        job.start(rank).wait_for("opening")
    job.start(2)
    job.expect(dict.fromkeys(range(3), OK))


def never_comes():
    job = Job("healthy", 4, COMMRT_START_TIMEOUT_MS=str(SHORT_MS))
    for rank in (0, 1, 3):
        job.start(rank)
    job.expect(
        {
            0: r"timeout: waited 4000 ms at 127\.0\.0\.1:\d+; .*rank 2.* did not come$",
            1: r"timeout: (rank 0: )?waited 4000 ms(;| at).* rank 2.* did not come",
            3: r"timeout: (rank 0: )?waited 4000 ms(;| at).* rank 2.* did not come",
        }
    )


def start_timeout():
    """The others are waited for by a deadline of their own."""
    job = Job("healthy", 2, COMMRT_START_TIMEOUT_MS="300")
    job.start(0)
    job.expect({0: r"timeout: waited 300 ms at 127\.0\.0\.1:\d+; rank 1 did not come$"})


def first_never_comes():
    job = Job("healthy", 2, COMMRT_START_TIMEOUT_MS="1000")
    job.start(1)
    job.expect({1: r"timeout: waited 1000 ms; rank 0 did not answer at 127\.0\.0\.1, port \d+: Connection refused$"})


def dies_while_others_come():
    job = Job("healthy", 3)
    job.start(0)
    wait_for_listener(job.port)
    with connect(job.port) as stranger:
        stranger.sendall(greeting(1, 3))
        read_frame(stranger)
    job.expect({0: f"peer lost: rank 1: {GONE}"})


def two_jobs_on_one_port():
    first, second = Job("healthy", 2, COMMRT_JOB="first"), Job("healthy", 2, COMMRT_JOB="second")
    second.port = first.port
    first.start(0)
    wait_for_listener(first.port)
    second.start(0)
    second.expect(
        {0: r"backend failure: cannot listen at .*: Address already in use; does another job use this port\?$"}
    )
    second.started.clear()
    second.start(1)
    second.expect({1: r"invalid argument: 127\.0\.0\.1:\d+ refused rank 1: another job uses this port$"})
    first.start(1)
    first.expect({0: OK, 1: OK})


def a_rank_twice():
    job = Job("healthy", 3)
    job.start(0)
    wait_for_listener(job.port)
    with connect(job.port) as other:
        other.sendall(greeting(1, 3))
        read_frame(other)
        job.start(1)
        code, out, _ = job.started.pop(1).end()
        assert code == 1 and "refused rank 1: rank 1 is there already; does another job use this port?" in out, out
    job.expect({0: f"peer lost: rank 1: {GONE}"})


def other_number_of_ranks():
    job = Job("healthy", 2)
    job.start(0)
    wait_for_listener(job.port)
    job.start(1, COMMRT_SIZE="3")
    code, out, _ = job.started.pop(1).end()
    assert "the job at this port has 2 ranks, not 3" in out, out
    job.start(1)
    job.expect({0: OK, 1: OK})


# ===- Secrets and addresses --------------------------------------------------------------------===#


def wrong_secret():
    job = Job("healthy", 2, COMMRT_SECRET="open sesame")
    job.start(0)
    wait_for_listener(job.port)
    for secret in ("", "open sesam", "open sesame!", "x" * 256):
        job.start(1, COMMRT_SECRET=secret)
        code, out, _ = job.started.pop(1).end()
        assert code == 1 and "refused rank 1: COMMRT_SECRET is another one on rank 0" in out, out
    job.start(1)
    job.expect({0: OK, 1: OK})


def who_was_refused():
    job = Job("healthy", 2, timeout_ms=SHORT_MS, COMMRT_SECRET="a")
    job.start(0)
    wait_for_listener(job.port)
    with connect(job.port) as stranger:
        stranger.sendall(greeting(1, 2, secret=b"b"))
        stranger.recv(1000)
    job.expect({0: r"timeout: .*rank 1 did not come; refused one that says it is rank 1: COMMRT_SECRET is another one"})


def ipv6():
    runs("healthy", 3, 3 * [OK], host="::1")
    runs("healthy", 2, 2 * [OK], host="[::1]")


def other_addresses():
    job = Job("healthy", 2, COMMRT_SECRET="a").start_all()
    job.expect({0: OK, 1: OK})
    network = r"invalid argument: (others can reach )?192\.0\.2\.1:\d+( is on the network)?: set COMMRT_SECRET to "
    runs("healthy", 2, [network, network], host="192.0.2.1")
    job = Job("healthy", 2, host="192.0.2.1", COMMRT_SECRET="a")
    job.start(0)
    job.expect(
        {0: "backend failure: cannot listen at 192.0.2.1, port .*; rank 0 has to run on the machine that has this"}
    )
    job = Job("healthy", 2, host="no.such.name.invalid")
    job.start(0)
    job.expect({0: r"invalid argument: cannot listen at no\.such\.name\.invalid, port \d+: "})


def listens_at_the_given_address_only():
    job = Job("healthy", 2)
    job.start(0)
    wait_for_listener(job.port)
    try:
        connect(job.port, "127.0.0.2").close()
        raise AssertionError("127.0.0.2 answers, too")
    except ConnectionRefusedError:
        pass
    job.start(1)
    job.expect({0: OK, 1: OK})


def bad_variables():
    for changes, expected in [
        ({"COMMRT_RANK": "2"}, "COMMRT_RANK is 2, but COMMRT_SIZE is 2: ranks are counted from 0"),
        ({"COMMRT_SIZE": "two"}, "COMMRT_SIZE is 'two', expected a number from 1 to 1048576"),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT is '70000', expected a number from 1 to 65535"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR is empty, expected a name or an address"),
    ]:
        job = Job("healthy", 2)
        job.start(0, **changes)
        code, out, _ = job.started[0].end()
        assert code == 1 and f": invalid argument: {expected}\n" in out, out


# ===- Strangers --------------------------------------------------------------------------------===#


def connect(port, host="127.0.0.1"):
    return socket.create_connection((host, port), timeout=tcp_job.NET_S)


def wait_for_listener(port):
    deadline = time.monotonic() + tcp_job.NET_S
    while time.monotonic() < deadline:
        try:
            return connect(port).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
    raise AssertionError("rank 0 does not listen")


def greeting(rank, ranks, secret=b"", version=None):
    version = version if version is not None else VERSION
    return (
        b"COMMRT\r\n"
        + struct.pack("<I256s", len(secret), secret)
        + struct.pack("<III", version, rank, ranks)
        + struct.pack("<I160sI", 0, b"", 0)
    )


def frame(kind, body=b"", length=None):
    return struct.pack("<IIQ", kind, 0, len(body) if length is None else length) + body


def read_exactly(stream, size):
    data = b""
    while len(data) < size:
        part = stream.recv(size - len(data))
        if not part:
            raise AssertionError("the connection was closed")
        data += part
    return data


def read_frame(stream):
    kind, _, length = struct.unpack("<IIQ", read_exactly(stream, 16))
    return kind, read_exactly(stream, length)


def is_closed(stream):
    try:
        while stream.recv(4096):
            pass
        return True
    except ConnectionResetError:
        return True


BEGIN, ANSWER, GROUP, START, VALUE, ASK, FAILED = 2, 5, 6, 7, 8, 9, 11


def strangers_are_harmless():
    job = Job("healthy", 2)
    job.start(0)
    wait_for_listener(job.port)
    silent = [connect(job.port) for _ in range(80)]
    for words in (
        b"GET / HTTP/1.1\r\n\r\n" + 500 * b"x",
        bytes(448),
        greeting(1, 2, version=1),
        greeting(7, 2),
        greeting(0, 2),
    ):
        with connect(job.port) as stranger:
            stranger.sendall(words)
            assert is_closed(stranger)
    half = connect(job.port)
    half.sendall(greeting(1, 2)[:100])
    job.start(1)
    job.expect({0: OK, 1: OK})
    for stream in silent + [half]:
        stream.close()


def bursts_of_strangers_keep_no_rank_out():
    """Rank 0 keeps a limited number of strangers. A rank that it drops for them comes again, until the deadline."""
    job = Job("healthy", 3)
    stop = threading.Event()

    def burst():
        while not stop.is_set():
            strangers = [socket.socket() for _ in range(150)]
            for stranger in strangers:
                stranger.setblocking(False)
                stranger.connect_ex(("127.0.0.1", job.port))
            time.sleep(0.003)
            for stranger in strangers:
                stranger.close()

    thread = threading.Thread(target=burst, daemon=True)
    job.start(0)
    wait_for_listener(job.port)
    thread.start()
    try:
        job.start(1)
        job.start(2)
        job.expect({0: OK, 1: OK, 2: OK})
    finally:
        stop.set()
        thread.join()


def greeting_in_pieces():
    job = Job("healthy", 2)
    job.start(0)
    wait_for_listener(job.port)
    with connect(job.port) as stranger:
        stranger.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in greeting(1, 2):
            stranger.sendall(bytes([byte]))
        assert read_frame(stranger)[0] == BEGIN
        stranger.sendall(frame(FAILED, struct.pack("<iiI", 5, 1, 4) + b"done"))
        job.expect({0: "aborted: rank 1: done"})


def lies():
    """What a rank that knows the secret may say wrong; the job ends, rank 0 does not."""
    group = struct.pack("<QiI", 0, 1, 1) + b"g" + struct.pack("<Iii", 2, 0, 1)
    malformed = "peer lost: rank 1: it sent something that is not a message of this version"
    for words in (
        frame(99),
        frame(FAILED, length=1 << 40),
        frame(START, length=1 << 60),
        frame(START, 100 * b"\xff"),
        frame(START),
        frame(GROUP, struct.pack("<QiI", 0, 1, 1) + b"g" + struct.pack("<Iii", 2, 0, 7)),
        frame(GROUP, struct.pack("<QiI", 0, 1, 1) + b"g" + struct.pack("<Iii", 2, 1, 1)),
        frame(GROUP, group) + frame(GROUP, group),
        frame(GROUP, group) + frame(START, struct.pack("<QQ", 0, 0) + 40 * b"\x7f"),
        frame(GROUP, group) + frame(START, struct.pack("<QQiiiQI", 0, 0, 2, 0, 0, 7, 0)),
        frame(GROUP, struct.pack("<QiI", 0, 1, 0xFFFFFFFF)),
        frame(ASK, b"x"),
        frame(FAILED, struct.pack("<iiI", 0, 1, 0)),
        frame(FAILED, struct.pack("<iiI", 5, 0, 0)),
        frame(BEGIN),
    ):
        job = Job("idle", 2)
        rank = job.start(0)
        wait_for_listener(job.port)
        with connect(job.port) as stranger:
            stranger.sendall(greeting(1, 2))
            assert read_frame(stranger)[0] == BEGIN
            rank.wait_for("ready")
            stranger.sendall(words)
            job.expect({0: malformed})


def a_long_message_that_never_comes():
    job = Job("idle", 2)
    rank = job.start(0)
    wait_for_listener(job.port)
    with connect(job.port) as stranger:
        stranger.sendall(greeting(1, 2))
        rank.wait_for("ready")
        stranger.sendall(frame(VALUE, 1000 * b"x", length=1 << 29))
    job.expect({0: f"peer lost: rank 1: {GONE}"})


# ===- Going ------------------------------------------------------------------------------------===#


def killed(victim, ranks=3):
    job = Job("needs-first" if victim == 0 else "needs-last", ranks).start_all()
    for rank in range(ranks):
        job.started[rank].wait_for("ready")
    job.started[victim].kill()
    expected = dict.fromkeys(range(ranks), f"peer lost: rank {victim}: {GONE}")
    expected[victim] = None
    job.expect(expected)


def stopped(victim, ranks=3):
    """Nobody's wait is near its deadline, but the process gives no sign of life."""
    job = Job("needs-first" if victim == 0 else "needs-last", ranks, COMMRT_SILENCE_MS="6000").start_all()
    for rank in range(ranks):
        job.started[rank].wait_for("ready")
    job.started[victim].kill(signal.SIGSTOP)
    others = {rank: f"peer lost: rank {victim}: no heartbeat for \\d+ ms" for rank in range(ranks) if rank != victim}
    ends = {rank: job.started.pop(rank) for rank in [victim]}
    try:
        job.expect(others)
    finally:
        ends[victim].kill()
        ends[victim].end()


def first_leaves_early():
    """Rank 0's process stays until the others, whose starts it compares, have left."""
    job = Job("first-leaves-early", 3).start_all()
    job.started[0].wait_for("rank 0: ok")
    for rank in (1, 2):
        job.started[rank].wait_for("ready")
        job.started[rank].tell()
    job.expect({0: OK, 1: OK, 2: OK})


def short_wait():
    job = Job("short-wait", 3).start_all()
    text = r"timeout: rank 1: no word from.* rank 2 \(has started nothing\)"
    job.started[1].wait_for("rank 1: timeout")
    job.started[2].tell()
    job.expect({0: text, 1: text, 2: text})


LEFT = r"peer lost: rank {}: left while others are in all_reduce|peer lost: rank {}: left, but rank \d is in all_reduce"
LEFT_EARLY = "peer lost: rank {}: left before all ranks had compared schedules or ended the program"
SCENARIOS = {
    "healthy": functools.partial(runs, "healthy", 4, 4 * [OK]),
    "alone": functools.partial(runs, "healthy", 1, [OK]),
    "many": functools.partial(runs, "healthy", 64, 64 * [OK]),
    "twice": functools.partial(runs, "twice", 3, 3 * [OK]),
    "large": functools.partial(runs, "large", 3, 3 * [OK]),
    "late": late,
    "last-comes-late": last_comes_late,
    "never-comes": never_comes,
    "first-never-comes": first_never_comes,
    "start-timeout": start_timeout,
    "dies-while-others-come": dies_while_others_come,
    "two-jobs-on-one-port": two_jobs_on_one_port,
    "a-rank-twice": a_rank_twice,
    "other-number-of-ranks": other_number_of_ranks,
    "wrong-secret": wrong_secret,
    "who-was-refused": who_was_refused,
    "ipv6": ipv6,
    "other-addresses": other_addresses,
    "listens-at-the-given-address-only": listens_at_the_given_address_only,
    "bad-variables": bad_variables,
    "strangers-are-harmless": strangers_are_harmless,
    "bursts-of-strangers-keep-no-rank-out": bursts_of_strangers_keep_no_rank_out,
    "greeting-in-pieces": greeting_in_pieces,
    "lies": lies,
    "a-long-message-that-never-comes": a_long_message_that_never_comes,
    "killed": functools.partial(killed, 2),
    "first-is-killed": functools.partial(killed, 0),
    "stopped": functools.partial(stopped, 2),
    "first-is-stopped": functools.partial(stopped, 0),
    "first-leaves-early": first_leaves_early,
    "short-wait": short_wait,
    "leave-before-start": functools.partial(runs, "leave-before-start", 3, [LEFT.format(1, 1), OK, LEFT.format(1, 1)]),
    "first-leaves-before-start": functools.partial(
        runs, "first-leaves-before-start", 3, [OK + "|peer lost", LEFT.format(0, 0), LEFT.format(0, 0)]
    ),
    "leave-before-combining": functools.partial(
        runs, "leave-before-combining", 3, [LEFT_EARLY.format(1), OK, LEFT_EARLY.format(1)]
    ),
    "first-leaves-before-combining": functools.partial(
        runs, "first-leaves-before-combining", 3, [OK, LEFT_EARLY.format(0), LEFT_EARLY.format(0)]
    ),
    "different-combinations": functools.partial(
        runs, "different-combinations", 3, 3 * ["mismatch: rank 0: .*some ranks compare schedules while others end"]
    ),
    "different-starts": functools.partial(
        runs,
        "different-starts",
        3,
        3 * [r"mismatch: rank \d: rank \d is in .*[ab]\.mlir:.*, but rank \d is in .*[ab]\.mlir:"],
    ),
    "data": functools.partial(runs, "data", 2, 2 * [OK]),
    "abort": functools.partial(runs, "abort", 4, 4 * ["aborted: rank 3: enough"]),
}


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
            return True
    except OSError:
        return False


def main():
    global PROGRAM, VERSION
    PROGRAM = sys.argv[1]
    VERSION = int(sys.argv[2]) << 16 | 2
    names = sys.argv[3:] or list(SCENARIOS)
    if "ipv6" in names and not has_ipv6():
        print("ipv6: skipped, this machine has no address ::1")
        names.remove("ipv6")
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for name, why in zip(names, pool.map(lambda name: tcp_job.run(SCENARIOS[name]), names)):
            print(f"{name}: {why or 'as it should'}", flush=True)
            bad += bool(why)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
