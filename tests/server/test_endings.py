"""Requests that end before their last token: aborted by their id, left by their client or by the engine."""

import json
import os
import pathlib
import signal
import socket
import time

import httpx
import pytest

import served

GENERATE = {"text": "Question:", "sampling_params": {"max_new_tokens": served.ENDLESS, "ignore_eos": True, "temperature": 0}}
PLAIN = {"prompt": "Question:", "max_tokens": served.ENDLESS, "ignore_eos": True, "temperature": 0}
CHAT = {"messages": [{"role": "user", "content": "Question:"}], "max_tokens": served.ENDLESS, "ignore_eos": True, "temperature": 0}


def until_tokens(server):
    before = server.metric("generation_tokens_total")
    while server.metric("generation_tokens_total") < before + 5:
        time.sleep(0.005)


@pytest.mark.parametrize("how", [{"rid": "mine"}, {"abort_all": True}])
@pytest.mark.parametrize("path,body", [("/generate", GENERATE), ("/v1/completions", PLAIN), ("/v1/chat/completions", CHAT)])
def test_an_aborted_request_is_answered_with_what_there_is(endless, path, body, how):
    endless.wait_idle()
    asked = served.Asked(endless, path, {**body, "rid": "mine"})
    until_tokens(endless)
    assert endless.post("/abort_request", how).status_code == 200
    asked.join()
    assert asked.answer.status_code == 200, asked.answer.text
    answer = asked.answer.json()
    if path == "/generate":
        assert answer["meta_info"]["finish_reason"]["type"] == "abort" and answer["text"]
        assert 0 < answer["meta_info"]["completion_tokens"] == len(answer["output_ids"]) < served.ENDLESS
    else:
        choice = answer["choices"][0]
        assert choice["finish_reason"] == "abort" and (choice["text"] if "text" in choice else choice["message"]["content"])
        assert 0 < answer["usage"]["completion_tokens"] < served.ENDLESS
    endless.wait_idle()


def test_a_stream_that_is_aborted_has_a_last_part(endless):
    with httpx.stream("POST", endless.url + "/v1/completions", json={**PLAIN, "rid": "mine", "stream": True}, timeout=served.PATIENCE) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert endless.post("/abort_request", {"rid": "mine"}).status_code == 200
        rest = [line.removeprefix("data: ") for line in lines if line]
    assert rest[-1] == "[DONE]" and json.loads(rest[-2])["choices"][0]["finish_reason"] == "abort"
    endless.wait_idle()


def test_an_id_in_use_is_not_taken_again(endless):
    endless.wait_idle()
    asked = served.Asked(endless, "/generate", {**GENERATE, "rid": "mine"})
    until_tokens(endless)
    for path, body in (("/generate", GENERATE), ("/v1/completions", PLAIN), ("/v1/chat/completions", CHAT)):
        again = endless.post(path, {**body, "rid": "mine"})
        assert again.status_code == 400 and again.json()["error"]["param"] == "rid"
    assert asked.is_alive() and endless.post("/abort_request", {"rid": "mine"}).status_code == 200
    asked.join()
    short = {"text": "Question:", "rid": "mine", "sampling_params": {"max_new_tokens": 1}}
    assert asked.answer.status_code == 200 and endless.post("/generate", short).status_code == 200


def test_an_empty_id_is_none(server):
    ids = {server.post("/generate", {"text": "Tom", "rid": "", "sampling_params": {"max_new_tokens": 1}}).json()["meta_info"]["id"] for _ in range(2)}
    assert len(ids) == 2 and "" not in ids


def rank_one(mark):
    for entry in pathlib.Path("/proc").iterdir():
        try:
            variables = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue  # it ended meanwhile
        if f"SLUICE_TEST_RUN={mark}".encode() in variables and b"OMPI_COMM_WORLD_RANK=1" in variables:
            return int(entry.name)
    raise AssertionError("there is no rank 1")


def test_a_failed_engine_is_not_called_a_shutdown(tmp_path, endless_model):
    with served.serving(tmp_path / "log", "--tp", "2", model=endless_model["model"], env={**endless_model["env"], "SLUICE_TEST_RUN": str(tmp_path)}) as server:
        asked = served.Asked(server, "/generate", GENERATE)
        until_tokens(server)
        os.kill(rank_one(tmp_path), signal.SIGKILL)
        asked.join()
        assert asked.answer.status_code == 500 and "the engine has failed" in asked.answer.json()["error"]["message"]
        assert server.process.wait(served.PATIENCE) == 5, server.text()


def test_metrics_can_be_switched_off(tmp_path):
    (tmp_path / "serve.yaml").write_text("enable-metrics: false\n")
    with served.serving(tmp_path / "log", "--config", tmp_path / "serve.yaml") as server:
        assert server.get("/metrics").status_code == 404 and server.get("/health").status_code == 200


def send(server, path, body):
    """A connection on which this has been asked."""
    data = json.dumps(body).encode()
    sock = server.raw()
    sock.sendall(f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    return sock


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_place(endless, stream):
    endless.wait_idle()
    before = endless.metric("num_finished_total", finish_reason="gone")
    for _ in range(3):
        with send(endless, "/v1/completions", {**PLAIN, "stream": stream, "n": 2}) as sock:
            if stream:
                assert sock.recv(100)
            while endless.metric("num_running_reqs") < 2:
                time.sleep(0.01)
        endless.wait_idle()
    assert endless.metric("num_finished_total", finish_reason="gone") == before + 6


def test_half_a_connection_counts_as_none(endless):
    """A client that has closed its sending side is taken for gone: most that do are."""
    endless.wait_idle()
    before = endless.metric("num_finished_total", finish_reason="gone")
    with send(endless, "/v1/completions", PLAIN) as sock:
        while not endless.metric("num_running_reqs"):  # one that leaves while it is read was never a request
            time.sleep(0.01)
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(10) == b""
    endless.wait_idle()
    assert endless.metric("num_finished_total", finish_reason="gone") == before + 1


@pytest.mark.parametrize("flags", [["--write-timeout", 0.5], ["--max-unsent-bytes", "1M"]])
def test_a_reader_that_does_not_read_is_left(tmp_path, endless_model, flags):
    """Neither memory nor a place in the batch is held for it."""
    with served.serving(tmp_path / "log", *flags, **endless_model) as server, socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", server.port))
        # The whole text so far in every event: more than the buffers of the system take.
        data = json.dumps({**GENERATE, "stream": True, "return_logprob": True}).encode()
        sock.sendall(b"POST /generate HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        while server.metric("num_finished_total") == 0:
            time.sleep(0.05)
        assert server.metric("num_finished_total", finish_reason="gone") == 1
        server.wait_idle()
