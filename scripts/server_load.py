#!/usr/bin/env python3
"""Long runs against a server: many streams, a burst, aborts, a repeated prefix, the share of the front end.

    scripts/server_load.py BINARY MODEL [--seconds 60]

Starts a server of its own on this machine, prints one line for each run with what was measured and PASS or FAIL, and exits with 1 if
any failed. The client is one process with plain sockets; it takes its own share of the processors.
"""

import argparse
import json
import os
import random
import re
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

PROMPT = "Question: Ivy buys 7 packs of cards. Each pack holds 5 cards. Ivy gives 11 cards to Gus. How many cards does Ivy have left?\nAnswer:"


class Server:
    """A server process on a free port."""

    def __init__(self, binary, model, *flags):
        self.log = tempfile.NamedTemporaryFile("r", suffix=".log")
        self.begin = time.monotonic()
        self.process = subprocess.Popen([binary, "serve", model, "--port", "0", "--served-model-name", "m", *flags],
                                        stderr=open(self.log.name, "w", encoding="utf-8"))
        self.port = int(self.wait_for(r"listening at http://\S+:(\d+)").group(1))
        self.wait_for("ready after")
        self.ready_seconds = time.monotonic() - self.begin

    def wait_for(self, pattern):
        while self.process.poll() is None:
            found = re.search(pattern, open(self.log.name, encoding="utf-8").read())
            if found:
                return found
            time.sleep(0.005)
        sys.exit(open(self.log.name, encoding="utf-8").read())

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=600) as answer:
            return answer.read().decode()

    def metrics(self):
        found = {}
        for line in self.get("/metrics").splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found[re.sub(r'model_name="[^"]*",?', "", name).replace("{}", "").removeprefix("sluice:")] = float(value)
        return found

    def wait_idle(self):
        while True:
            m = self.metrics()
            if not (m["num_running_reqs"] or m["num_queue_reqs"] or m["num_open_requests"]):
                return m
            time.sleep(0.05)

    def resident(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1)) * 1024

    def processor_seconds(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as file:
            user, system = file.read().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


class Call:
    """One request on a connection of its own; an answer in parts."""

    def __init__(self, port, body, path="/v1/completions"):
        data = json.dumps(body).encode()
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode()
                          + data)
        self.sent = time.monotonic()
        self.data = b""
        self.first = self.done = None
        self.events = 0
        self.leave_after = None  # bytes

    def read(self):
        """False when it is over."""
        try:
            part = self.sock.recv(65536)
        except ConnectionError:
            part = b""
        if part and self.first is None:
            self.first = time.monotonic()
        self.data += part
        self.events += part.count(b"data: ")
        if part and not (self.leave_after is not None and len(self.data) > self.leave_after):
            return True
        self.sock.close()
        self.done = time.monotonic()
        return False

    @property
    def status(self):
        return int(self.data[9:12]) if len(self.data) > 12 else 0

    @property
    def text(self):
        return "".join(json.loads(e)["choices"][0]["text"] for e in re.findall(rb"data: (\{.*?\})\n\n", self.data)
                       if json.loads(e).get("choices"))


class Calls:
    """Many at once."""

    def __init__(self):
        self.selector = selectors.DefaultSelector()
        self.open = 0

    def add(self, call):
        self.selector.register(call.sock, selectors.EVENT_READ, call)
        self.open += 1

    def round(self, timeout=1.0):
        """Calls that ended meanwhile."""
        ended = []
        for key, _ in self.selector.select(timeout):
            sock, call = key.fileobj, key.data
            if not call.read():
                self.selector.unregister(sock)
                self.open -= 1
                ended.append(call)
        return ended

    def all(self):
        ended = []
        while self.open:
            ended += self.round()
        return ended


def report(name, good, text):
    print(f"{'PASS' if good else 'FAIL'}  {name}: {text}", flush=True)
    return good


def streams(server, count, seconds):
    """`count` streams open at all times. No error, the same text for all, memory flat, and nobody left behind."""
    body = {"prompt": PROMPT, "max_tokens": 120, "temperature": 0, "stream": True}
    calls, ended, memory = Calls(), [], []
    for _ in range(count):
        calls.add(Call(server.port, body))
    begin = time.monotonic()
    while calls.open:
        now = time.monotonic() - begin
        for call in calls.round():
            ended.append(call)
            if now < seconds:
                calls.add(Call(server.port, body))
        if not memory or now - memory[-1][0] > seconds / 20:
            memory.append((now, server.resident()))
    texts = {call.text for call in ended}
    bad = [call for call in ended if call.status != 200 or not call.data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")]
    warm = [bytes_ for t, bytes_ in memory if t > seconds / 3]
    growth = (warm[-1] - warm[0]) / warm[0] * 100
    times = sorted(call.done - call.sent for call in ended)
    fair = times[-1] / statistics.median(times)
    server.wait_idle()
    return report(f"{count} streams for {seconds:.0f} s", not bad and len(texts) == 1 and abs(growth) < 2 and fair < 3,
                  f"{len(ended)} answers, {len(bad)} errors, {len(texts)} different texts, memory {warm[-1] / 1e6:.0f} MB ({growth:+.2f} % "
                  f"after warm-up), time of an answer: median {statistics.median(times):.2f} s, longest {times[-1]:.2f} s")


def burst(binary, model):
    """1,000 requests at once at a server that takes 200: the others are told at once, these finish."""
    server = Server(binary, model, "--max-running-requests", "50", "--max-queued-requests", "150")
    calls = Calls()
    for _ in range(1000):
        calls.add(Call(server.port, {"prompt": PROMPT, "max_tokens": 120, "temperature": 0}))
    ended = calls.all()
    by_status = {status: [c for c in ended if c.status == status] for status in {c.status for c in ended}}
    good, told = by_status.get(200, []), by_status.get(429, [])
    slowest = max((call.done - call.sent for call in told), default=0)
    server.wait_idle()
    code = server.stop()
    return report("1,000 at once", len(good) >= 200 and len(good) + len(told) == 1000 and code == 0 and all(b"Retry-After" in c.data for c in told),
                  f"{len(good)} answered, {len(told)} told to come again (the slowest after {slowest:.2f} s), exit {code}")


def throughput(server, count=64, rounds=4):
    """Answers a second of the server's processor time: what else the machine does takes nothing from it. Best of a few rounds."""
    best = 0
    for _ in range(rounds):
        calls = Calls()
        begin = server.processor_seconds()
        for _ in range(count):
            calls.add(Call(server.port, {"prompt": PROMPT, "max_tokens": 120, "temperature": 0}))
        calls.all()
        best = max(best, count / (server.processor_seconds() - begin))
    return best


def aborts(server):
    """500 clients that leave, streaming or not, early or late."""
    random.seed(7)
    before = throughput(server)
    calls = Calls()
    for index in range(500):
        stream = index % 2 == 0
        call = Call(server.port, {"prompt": PROMPT, "max_tokens": 2000, "ignore_eos": True, "temperature": 1, "stream": stream})
        if stream:
            call.leave_after = random.choice([0, 300, 3000])
            calls.add(call)
        else:
            time.sleep(random.choice([0, 0.002]))
            call.sock.close()
    calls.all()
    m = server.wait_idle()
    after = throughput(server)
    gone = m['num_finished_total{finish_reason="gone"}']
    return report("500 aborts", m["num_used_tokens"] == 0 and after > 0.8 * before,
                  f"counters at zero, {gone:.0f} sequences ended early; {before:.1f} answers a processor second before, {after:.1f} after")


def overhead(server):
    """Share of a step's time that is not the model, with 32 streams."""
    before, calls, ended = server.metrics(), Calls(), 0
    body = {"prompt": PROMPT, "max_tokens": 400, "ignore_eos": True, "temperature": 0, "stream": True}
    for _ in range(32):
        calls.add(Call(server.port, body))
    while calls.open:
        for _ in calls.round():
            ended += 1
            if ended < 200:
                calls.add(Call(server.port, body))
    after = server.metrics()
    part = {p: after[name] - before[name] for p in ("schedule", "execute", "sample", "output")
            for name in [f'engine_step_seconds_total{{part="{p}"}}']}
    front = after["frontend_cpu_seconds_total"] - before["frontend_cpu_seconds_total"]
    steps = sum(part.values())
    share = (steps - part["execute"] + front) / steps
    return report("overhead at 32 streams", share <= 0.15,
                  f"{100 * share:.1f} % of the step time ({', '.join(f'{k} {100 * v / steps:.1f} %' for k, v in part.items())}; "
                  f"HTTP, JSON and text {100 * front / steps:.1f} % in processor time)")


def prefix(server, shots):
    """Time to the first token of a prompt of 8 examples, the first time and again."""
    lines = [json.loads(line) for line in open(shots, encoding="utf-8")][:8]
    prompt = "".join(f"Question: {q['question']}\nAnswer: {q['answer']}\n\n" for q in lines) + PROMPT

    def once():
        call = Call(server.port, {"prompt": prompt, "max_tokens": 8, "temperature": 0, "stream": True})
        while call.read():
            pass
        return call.first - call.sent, call.text
    cold, warm = [], []
    for _ in range(7):
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{server.port}/flush_cache", data=b"{}", headers={"Content-Type": "application/json"}))
        cold.append(once())
        warm += [once(), once()]
    ratio = statistics.median(t for t, _ in cold) / statistics.median(t for t, _ in warm)
    same = len({text for _, text in cold + warm}) == 1
    return report("a prompt of 8 examples again", ratio >= 5 and same,
                  f"first token after {1e3 * statistics.median(t for t, _ in cold):.1f} ms, then {1e3 * statistics.median(t for t, _ in warm):.1f} ms: "
                  f"{ratio:.1f} times; the same text: {same}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    shots = os.path.join(os.path.dirname(os.path.abspath(options.model)), "word_problems.shots.jsonl")
    server = Server(options.binary, options.model, "--max-running-requests", "512")
    good = [report("start", server.ready_seconds < 2, f"ready {server.ready_seconds:.2f} s after the process was started"),
            prefix(server, shots), overhead(server), aborts(server), streams(server, 500, options.seconds)]
    code = server.stop()
    good.append(report("end", code == 0, f"exit {code}"))
    good.append(burst(options.binary, options.model))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
