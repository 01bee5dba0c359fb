"""Parts of a stream with the log-probabilities of a long prompt: written by a thread of their own, in their place in the stream.

What happens while such a part waits for that thread is the same as before and after: tests that keep the thread busy need it not to be.
"""

import contextlib
import json

import pytest

import served

LONG = [5, 7, 11] * 1000
ECHO = {"prompt": LONG, "echo": True, "logprobs": 20, "stream": True, "temperature": 0}
WHOLE_SO_FAR = {"input_ids": LONG, "stream": True, "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 20}
SHORT = [5, 7, 11] * 50  # long enough for that thread, and leaves room for answers that do not end by themselves
BUSY = b'{"tokens":[' + b",".join([b"7"] * 1_000_000) + b"]}"  # keeps the thread of long bodies and answers busy for a while


@pytest.fixture(scope="module")
def roomy(tmp_path_factory):
    with served.serving(tmp_path_factory.mktemp("roomy") / "log", "--max-unsent-bytes", 1 << 30) as running:
        yield running
        running.wait_idle()


def ask(server, path, body):
    """A connection whose request has been sent whole; one request only."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sock = server.raw()
    sock.sendall(b"POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
                 % (path.encode(), len(data)) + data)
    return sock


def rest_of(sock):
    """The events of a stream up to the end of its connection."""
    data = b""
    while part := sock.recv(1 << 20):
        data += part
    body, chunked = b"", data.split(b"\r\n\r\n", 1)[1]
    while (size := int(chunked.split(b"\r\n", 1)[0], 16)) > 0:
        start = chunked.index(b"\r\n") + 2
        body, chunked = body + chunked[start:start + size], chunked[start + size + 2:]
    events = [event.removeprefix("data: ") for event in body.decode().split("\n\n") if event]
    assert events[-1] == "[DONE]" and "[DONE]" not in events[:-1]
    return [json.loads(event) for event in events[:-1]]


def stream(server, path, body):
    with ask(server, path, body) as sock:
        return rest_of(sock)


@contextlib.contextmanager
def writer_is_busy(server):
    with ask(server, "/detokenize", BUSY) as other:
        yield
        assert served.answer_of(other)[0] == 200


def test_the_parts_of_an_echo_add_up(roomy):
    before = roomy.metric("answers_written_aside_total")
    body = {**ECHO, "n": 2, "max_tokens": 5}
    parts = stream(roomy, "/v1/completions", body)
    assert roomy.metric("answers_written_aside_total") == before + 2  # the first part of each choice
    whole = roomy.post("/v1/completions", {**body, "stream": False}).json()
    for index in range(2):
        own = [part["choices"][0] for part in parts if part["choices"][0]["index"] == index]
        assert "".join(part["text"] for part in own) == whole["choices"][index]["text"]
        assert [part["finish_reason"] for part in own] == [None] * (len(own) - 1) + ["length"]
        for field in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
            assert sum((part["logprobs"][field] for part in own), []) == whole["choices"][index]["logprobs"][field]
            assert len(whole["choices"][index]["logprobs"][field]) == len(LONG) + 5


def test_parts_that_have_everything_so_far(roomy):
    before = roomy.metric("answers_written_aside_total")
    body = {**WHOLE_SO_FAR, "sampling_params": {"max_new_tokens": 40, "temperature": 0, "ignore_eos": True}}
    parts = stream(roomy, "/generate", body)
    assert 0 < roomy.metric("answers_written_aside_total") - before <= len(parts)
    whole = roomy.post("/generate", {**body, "stream": False}).json()
    for answer in (whole, *parts):
        for name in ("id", "e2e_latency", "cached_tokens"):
            answer["meta_info"].pop(name)
    assert parts[-1] == whole
    for earlier, later in zip(parts, parts[1:]):
        assert later["output_ids"][:len(earlier["output_ids"])] == earlier["output_ids"] != later["output_ids"]
        assert earlier["meta_info"]["finish_reason"] is None


@pytest.mark.parametrize("path,body", [
    ("/v1/completions", {**ECHO, "prompt": SHORT, "n": 2, "max_tokens": 3900, "ignore_eos": True}),
    ("/generate", {**WHOLE_SO_FAR, "input_ids": SHORT, "sampling_params": {"n": 2, "max_new_tokens": 3900, "ignore_eos": True}})])
def test_a_stream_may_be_aborted_meanwhile(roomy, path, body):
    with writer_is_busy(roomy), ask(roomy, path, {**body, "rid": "mine"}) as sock:
        assert sock.recv(12) == b"HTTP/1.1 200"
        assert roomy.post("/abort_request", {"rid": "mine"}).status_code == 200
        parts = rest_of(sock)
    reasons = {0: [], 1: []}
    for part in parts:
        choice = part if path == "/generate" else part["choices"][0]
        reason = part["meta_info"]["finish_reason"] if path == "/generate" else choice["finish_reason"]
        reasons[choice["index"]].append(reason["type"] if isinstance(reason, dict) else reason)
    for own in reasons.values():
        assert own[-1] == "abort" and not any(own[:-1])
    roomy.wait_idle()


def test_a_client_may_leave_meanwhile(roomy):
    before = roomy.metric("answers_written_aside_total")
    with writer_is_busy(roomy):
        with ask(roomy, "/v1/completions", {**ECHO, "prompt": SHORT, "max_tokens": 3900, "ignore_eos": True}) as sock:
            assert sock.recv(12) == b"HTTP/1.1 200"
        while roomy.metric("num_running_reqs"):
            pass
    roomy.wait_idle()
    assert roomy.metric("answers_written_aside_total") == before + 1
    assert roomy.post("/v1/completions", {"prompt": "Tom", "max_tokens": 1}).status_code == 200


def test_such_a_stream_is_drained(tmp_path):
    with served.serving(tmp_path / "log", "--drain-timeout", served.PATIENCE) as server:
        with writer_is_busy(server), ask(server, "/v1/completions", {**ECHO, "max_tokens": 3}) as sock:
            assert sock.recv(12) == b"HTTP/1.1 200"
            server.send()
            parts = rest_of(sock)
        assert parts[-1]["choices"][0]["finish_reason"] == "length"
        assert server.process.wait(served.PATIENCE) == 0, server.text()
