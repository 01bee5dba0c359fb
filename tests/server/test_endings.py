"""Requests that end before their last token: aborted by their id, or left by the engine."""

import json
import os
import pathlib
import signal
import threading
import time

import httpx
import pytest

import served

GENERATE = {"text": "Question:", "sampling_params": {"max_new_tokens": 3000, "ignore_eos": True}}
PLAIN = {"prompt": "Question:", "max_tokens": 3000, "ignore_eos": True}
CHAT = {"messages": [{"role": "user", "content": "Question:"}], "max_tokens": 3000, "ignore_eos": True}


class Asked(threading.Thread):
    """A request in the background, of which `answer` is what came."""

    def __init__(self, server, path, body):
        super().__init__()
        self.server, self.path, self.body, self.answer = server, path, body, None
        self.start()

    def run(self):
        self.answer = self.server.post(self.path, self.body)


def until_tokens(server):
    before = server.metric("generation_tokens_total")
    while server.metric("generation_tokens_total") < before + 5:
        time.sleep(0.005)


@pytest.mark.parametrize("how", [{"rid": "mine"}, {"abort_all": True}])
@pytest.mark.parametrize("path,body", [("/generate", GENERATE), ("/v1/completions", PLAIN), ("/v1/chat/completions", CHAT)])
def test_an_aborted_request_is_answered_with_what_there_is(server, path, body, how):
    server.wait_idle()
    asked = Asked(server, path, {**body, "rid": "mine"})
    until_tokens(server)
    assert server.post("/abort_request", how).status_code == 200
    asked.join()
    assert asked.answer.status_code == 200, asked.answer.text
    answer = asked.answer.json()
    if path == "/generate":
        assert answer["meta_info"]["finish_reason"]["type"] == "abort" and answer["text"]
        assert 0 < answer["meta_info"]["completion_tokens"] == len(answer["output_ids"]) < 3000
    else:
        choice = answer["choices"][0]
        assert choice["finish_reason"] == "abort" and (choice["text"] if "text" in choice else choice["message"]["content"])
        assert 0 < answer["usage"]["completion_tokens"] < 3000
    server.wait_idle()


def test_a_stream_that_is_aborted_has_a_last_part(server):
    with httpx.stream("POST", server.url + "/v1/completions", json={**PLAIN, "rid": "mine", "stream": True}, timeout=served.PATIENCE) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert server.post("/abort_request", {"rid": "mine"}).status_code == 200
        rest = [line.removeprefix("data: ") for line in lines if line]
    assert rest[-1] == "[DONE]" and json.loads(rest[-2])["choices"][0]["finish_reason"] == "abort"
    server.wait_idle()


def test_an_id_in_use_is_not_taken_again(server):
    server.wait_idle()
    asked = Asked(server, "/generate", {**GENERATE, "rid": "mine"})
    until_tokens(server)
    for path, body in (("/generate", GENERATE), ("/v1/completions", PLAIN), ("/v1/chat/completions", CHAT)):
        again = server.post(path, {**body, "rid": "mine"})
        assert again.status_code == 400 and again.json()["error"]["param"] == "rid"
    assert asked.is_alive() and server.post("/abort_request", {"rid": "mine"}).status_code == 200
    asked.join()
    short = {"text": "Question:", "rid": "mine", "sampling_params": {"max_new_tokens": 1}}
    assert asked.answer.status_code == 200 and server.post("/generate", short).status_code == 200


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


def test_a_failed_engine_is_not_called_a_shutdown(tmp_path):
    with served.serving(tmp_path / "log", "--tp", "2", env={"SLUICE_TEST_RUN": str(tmp_path)}) as server:
        asked = Asked(server, "/generate", GENERATE)
        until_tokens(server)
        os.kill(rank_one(tmp_path), signal.SIGKILL)
        asked.join()
        assert asked.answer.status_code == 500 and "the engine has failed" in asked.answer.json()["error"]["message"]
        assert server.process.wait(served.PATIENCE) == 5, server.text()


def test_metrics_can_be_switched_off(tmp_path):
    (tmp_path / "serve.yaml").write_text("enable-metrics: false\n")
    with served.serving(tmp_path / "log", "--config", tmp_path / "serve.yaml") as server:
        assert server.get("/metrics").status_code == 404 and server.get("/health").status_code == 200
