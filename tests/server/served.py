"""A server under test: started on a free port, asked over HTTP, ended by a signal."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

import httpx

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLUICE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "bin" / "sluice"
MODEL = ROOT / "models" / "qwen3_moe"
QUESTION = "Ivy buys 7 packs of cards. Each pack holds 5 cards. Ivy gives 11 cards to Gus. How many cards does Ivy have left?"
MESSAGES = [{"role": "user", "content": QUESTION}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
PROMPT = f"Question: {QUESTION}\nAnswer:"
PATIENCE = 300  # seconds; for machines with other work
ENDLESS = 100_000  # tokens that take any machine longer than any test: the last ones attend to all before them


def endless_model(folder):
    """The bundled model with a context in which an answer does not end while a test looks at it."""
    folder.mkdir()
    for path in MODEL.iterdir():
        if path.name != "config.json":
            (folder / path.name).symlink_to(path)
    config = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": ENDLESS + 4096}), encoding="utf-8")
    return folder


class Server:
    """The process, and what it wrote to standard error."""

    def __init__(self, log, *flags, model=MODEL, env=None):
        self.log = pathlib.Path(log)
        self.file = open(self.log, "w", encoding="utf-8")
        self.process = subprocess.Popen([str(SLUICE), "serve", str(model), "--port", "0", *map(str, flags)], stdout=self.file,
                                        stderr=self.file, env={**os.environ, **(env or {})})
        self.port = int(self.wait_for(r"listening at http://\S+:(\d+)").group(1))
        self.url = f"http://127.0.0.1:{self.port}"

    def wait_for(self, pattern):
        """The match of a line of the log."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = re.search(pattern, self.text())
            if found:
                return found
            assert self.process.poll() is None, self.text()
            time.sleep(0.01)
        raise AssertionError(f"no line like {pattern}: {self.text()}")

    def text(self):
        return self.log.read_text(encoding="utf-8")

    def wait_ready(self):
        self.wait_for(r"ready after")
        return self

    def post(self, path, body, **more):
        return httpx.post(self.url + path, json=body, timeout=PATIENCE, **more)

    def get(self, path, **more):
        return httpx.get(self.url + path, timeout=PATIENCE, **more)

    def raw(self):
        """A plain connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def metric(self, name, **labels):
        """Sum of the samples with these labels."""
        from prometheus_client.parser import text_string_to_metric_families
        return sum(sample.value for family in text_string_to_metric_families(self.get("/metrics").text)
                   for sample in family.samples
                   if sample.name == "sluice:" + name and all(sample.labels.get(k) == v for k, v in labels.items()))

    def wait_idle(self):
        """Until nothing is in work any more, neither in the engine nor before it."""
        end = time.monotonic() + PATIENCE
        names = ["num_running_reqs", "num_queue_reqs", "num_open_requests", "num_used_tokens"]
        while any(self.metric(name) for name in names):
            assert time.monotonic() < end, {name: self.metric(name) for name in names}
            time.sleep(0.02)

    def occupy(self, count):
        """Connections with an endless request each, all of which are in work or wait. They end when they are closed."""
        before = self.metric("num_running_reqs") + self.metric("num_queue_reqs")
        data = json.dumps({"prompt": "Question:", "max_tokens": ENDLESS, "ignore_eos": True, "temperature": 1}).encode()
        socks = [self.raw() for _ in range(count)]
        for sock in socks:
            sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        while self.metric("num_running_reqs") + self.metric("num_queue_reqs") < before + count:
            time.sleep(0.01)
        return socks

    @contextlib.contextmanager
    def frozen(self):
        """Meanwhile no thread of the server runs; what is sent waits, and is there at once when it goes on."""
        self.send(signal.SIGSTOP)
        end = time.monotonic() + PATIENCE
        while not self.stands_still():
            assert time.monotonic() < end, "the server does not stop"
        try:
            yield
        finally:
            self.send(signal.SIGCONT)

    def stands_still(self):
        states = [(task / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
                  for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()]
        return all(state == "T" for state in states)

    def send(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def stop(self, number=signal.SIGTERM):
        """The exit code."""
        self.send(number)
        code = self.process.wait(PATIENCE)
        self.file.close()
        return code


class Asked(threading.Thread):
    """A request in the background, of which `answer` is what came."""

    def __init__(self, server, path, body):
        super().__init__()
        self.server, self.path, self.body, self.answer = server, path, body, None
        self.start()

    def run(self):
        self.answer = self.server.post(self.path, self.body)


def caught(attempt, rounds=100):
    """Tries until `attempt` says that it came at the right moment; whatever the moment, it asserts what holds then."""
    assert any(attempt() for _ in range(rounds)), f"in none of {rounds} rounds"


@contextlib.contextmanager
def serving(log, *flags, **more):
    server = Server(log, *flags, **more)
    try:
        yield server.wait_ready()
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait(PATIENCE)
        server.file.close()


def answer_of(sock):
    """Status, headers and body of one answer on a plain connection that the server closes or that has a length."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = sock.recv(65536)
        if not part:
            return None
        data += part
    head, body = data.split(b"\r\n\r\n", 1)
    lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines[1:])}
    while len(body) < int(headers.get("content-length", 0)):
        part = sock.recv(65536)
        if not part:
            break
        body += part
    return int(lines[0].split()[1]), headers, body
