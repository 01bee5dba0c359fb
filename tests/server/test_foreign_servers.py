"""`eval gsm8k --base-url` and `bench serve` ask servers of others, each with its own way of answering."""

import contextlib
import http.server
import json
import subprocess
import threading

import pytest

import served

DATA = served.ROOT / "models" / "word_problems.test.jsonl"
ANSWERS = {json.loads(line)["question"]: json.loads(line)["answer"] for line in DATA.read_text(encoding="utf-8").splitlines()}
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


class Foreign(http.server.BaseHTTPRequestHandler):
    """`self.server.manner`: what is unusual here."""

    def log_message(self, *_):
        pass

    def send_body(self, parts, kind):
        """In chunks of HTTP/1.1, or up to the end of the connection."""
        chunked = self.protocol_version == "HTTP/1.1"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Connection", "close")))
        self.end_headers()
        for part in parts:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def do_GET(self):
        self.send_body([json.dumps({"object": "list", "data": [{"id": "theirs"}]}).encode()], "application/json")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/completions" and body["model"] == "theirs"
        manner = self.server.manner
        if not body.get("stream"):
            question = body["prompt"].rpartition("Question: ")[2].partition("\n")[0]
            answer = {"choices": [{"index": 0, "text": " " + ANSWERS[question], "finish_reason": "stop"}], **manner.get("more", {"usage": USAGE})}
            return self.send_body([json.dumps(answer).encode()], "application/json")
        events = [{"choices": [{"index": 0, "text": f" {i}", "finish_reason": None}], "usage": None} for i in range(5)]
        events.append({"choices": [], **manner.get("more", {"usage": USAGE})})
        lines = [manner.get("data", "data: ") + json.dumps(event) for event in events] + manner.get("last", ["data: [DONE]"])
        end = manner.get("end", "\n")
        text = "".join(manner.get("between", "") + line + end + end for line in lines).encode()
        self.send_body([text[i:i + 1] for i in range(len(text))] if manner.get("bytewise") else [text], "text/event-stream")


@contextlib.contextmanager
def foreign(manner):
    handler = type("Handler", (Foreign,), {"protocol_version": manner.get("http", "HTTP/1.1")})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.manner = manner
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def run(*words):
    return subprocess.run([str(served.SLUICE), *map(str, words)], capture_output=True, text=True, check=False, timeout=served.PATIENCE)


def bench(url, tmp_path):
    done = run("bench", "serve", "--base-url", url, "--num-prompts", "4", "--max-concurrency", "2", "--data", DATA, "-q", "--json", tmp_path / "b.json")
    return done, json.loads((tmp_path / "b.json").read_text())


@pytest.mark.parametrize("manner", [{}, {"http": "HTTP/1.0"}, {"end": "\r\n"}, {"data": "data:"}, {"between": ": still here\n\nid: 5\n"}, {"bytewise": True},
                                    {"bytewise": True, "end": "\r\n"}, {"last": []}])
def test_streams_of_others_are_measured(tmp_path, manner):
    with foreign(manner) as url:
        done, result = bench(url, tmp_path)
    assert done.returncode == 0 and result["completed"] == 4 and result["failed"] == 0, done.stderr
    assert (result["output_tokens"], result["prompt_tokens"]) == (20, 28)


@pytest.mark.parametrize("manner,part", [({"more": {}}, "without its usage"), ({"more": {"usage": {}}}, "without its usage"),
                                         ({"last": ["data: {nonsense"]}, "event"), ({"last": ['data: {"error": {"message": "no more"}}']}, "no more")])
def test_what_cannot_be_measured_is_told(tmp_path, manner, part):
    with foreign(manner) as url:
        done, result = bench(url, tmp_path)
    assert done.returncode == 1 and result["failed"] == 4 and part in done.stderr


@pytest.mark.parametrize("manner", [{}, {"http": "HTTP/1.0"}, {"more": {}}, {"more": {"usage": None}}])
def test_answers_of_others_are_scored(manner):
    with foreign(manner) as url:
        done = run("eval", "gsm8k", "--base-url", url + "/v1", "--data", DATA, "--num-shots", "1", "--num-questions", "8", "--parallel", "4",
                   "--threshold", "0.99", "-q")
    assert done.returncode == 0 and "8 of 8" in done.stdout, done.stdout + done.stderr
