"""From the start to the end of a server: flags, keys, limits of the queue, signals, and the commands that ask it."""

import json
import signal
import socket
import subprocess
import threading
import time

import httpx
import pytest

import served

LONG = {"prompt": "Question:", "max_tokens": 300, "ignore_eos": True, "temperature": 1, "stream": True}
ENDLESS = {**LONG, "max_tokens": served.ENDLESS}


def run(*arguments, **more):
    return subprocess.run([str(served.SLUICE), *map(str, arguments)], capture_output=True, text=True, check=False,
                          timeout=served.PATIENCE, **more)


def streams(server, count, body=LONG):
    """Open streams of which each has sent something."""
    socks = []
    for _ in range(count):
        sock = server.raw()
        data = json.dumps(body).encode()
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        assert sock.recv(100)
        socks.append(sock)
    return socks


def rest_of(sock):
    data = b""
    while part := sock.recv(65536):
        data += part
    return data


def test_sigterm_drains(tmp_path, endless_model):
    """One request does not end by itself, so that the drain takes until the test aborts it. The abort is let in before the signal: after
    it, it would be refused."""
    ready = b"GET /ready HTTP/1.1\r\nHost: h\r\n\r\n"
    abort = b"POST /abort_request HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 18\r\n\r\n{\"abort_all\":true}"
    let_in = b"HTTP/1.1 100 Continue\r\n\r\n"

    def attempt():
        limits = [word for name in ("drain", "request", "write") for word in (f"--{name}-timeout", served.PATIENCE)]
        limits += ["--timeout-keep-alive", 2 * served.PATIENCE]
        with served.serving(tmp_path / "log", *limits, **endless_model) as server:
            (asked,) = server.occupy(1)
            open_streams = streams(server, 4)
            idle, *kept = [server.raw() for _ in range(3)]
            for sock, request in zip(kept, (ready, abort)):
                sock.sendall(request[:-1])
            assert kept[1].recv(len(let_in), socket.MSG_WAITALL) == let_in
            server.send()
            in_work = int(server.wait_for(r"shutting down: (\d+) requests").group(1))
            kept[0].sendall(ready[-1:])
            assert served.answer_of(kept[0])[0] == 503  # not ready any more
            assert idle.recv(1) == b""
            with pytest.raises(OSError):
                server.raw()
            for sock in open_streams:
                data = rest_of(sock)
                assert data.count(b'"finish_reason":"length"') == 1 and data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), data[-300:]
            kept[1].sendall(abort[-1:])
            assert served.answer_of(kept[1])[0] == 200
            status, _, body = served.answer_of(asked)
            assert status == 200 and json.loads(body)["choices"][0]["finish_reason"] == "abort"
            assert server.process.wait(served.PATIENCE) == 0, server.text()
        return in_work == 5  # some streams may have ended before the signal came
    served.caught(attempt)


def test_the_drain_has_a_limit(tmp_path, endless_model):
    with served.serving(tmp_path / "log", "--drain-timeout", "0.1", **endless_model) as server:
        (sock,) = streams(server, 1, ENDLESS)
        server.send()
        data = rest_of(sock)
        assert b"shutting down" in data and data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert server.process.wait(served.PATIENCE) == 0


@pytest.mark.parametrize("signals", [(signal.SIGHUP,), (signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)])
def test_other_signals_end_at_once(tmp_path, endless_model, signals):
    with served.serving(tmp_path / "log", "--drain-timeout", served.PATIENCE, **endless_model) as server:
        (sock,) = streams(server, 1, ENDLESS)
        for number in signals[:-1]:
            server.send(number)
            server.wait_for("shutting down")  # two at once would be one
        server.send(signals[-1])
        assert server.process.wait(served.PATIENCE) == 128 + signals[-1]
        assert b"[DONE]" not in rest_of(sock)


def test_the_key_is_asked_for_everywhere_but_at_health(tmp_path):
    with served.serving(tmp_path / "log", env={"SLUICE_API_KEY": "secret"}) as server:
        assert server.get("/health").status_code == 200
        for path in ("/ready", "/metrics", "/v1/models", "/nowhere", "/health/"):
            for header in ({}, {"Authorization": "Bearer wrong!"}, {"Authorization": "secret"}, {"Authorization": "Bearer secre"},
                           {"Authorization": "Bearer secretsecret"}):
                answer = server.get(path, headers=header)
                assert answer.status_code == 401 and answer.json()["error"]["code"] == "invalid_api_key", (path, header)
        assert server.get("/v1/models", headers={"Authorization": "Bearer secret"}).status_code == 200
        assert server.get("/v1/models", headers={"Authorization": "bearer secret"}).status_code == 200
        assert "secret" not in server.text()


def test_a_full_queue_is_told_at_once(tmp_path, endless_model):
    with served.serving(tmp_path / "log", "--max-running-requests", "2", "--max-queued-requests", "3", **endless_model) as server:
        busy = server.occupy(2)
        body = {"prompt": "Question:", "max_tokens": 2}
        waiting = [served.Asked(server, "/v1/completions", body) for _ in range(3)]
        while server.metric("num_open_requests") < 5:
            time.sleep(0.01)
        refused = server.post("/v1/completions", body)
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "queue_full" and "5" in refused.json()["error"]["message"]
        never = server.post("/v1/completions", {**body, "n": 6})  # coming again would not help
        assert never.status_code == 400 and never.json()["error"]["param"] == "n"
        for sock in busy:
            sock.close()
        for asked in waiting:
            asked.join()
        assert [asked.answer.status_code for asked in waiting] == [200] * 3
        server.wait_idle()
        assert server.post("/v1/completions", body).status_code == 200


def test_prompts_that_wait_are_limited_by_their_tokens(tmp_path, endless_model):
    with served.serving(tmp_path / "log", "--max-running-requests", "1", "--max-queued-tokens", "1000", **endless_model) as server:
        (busy,) = server.occupy(1)
        waiting = served.Asked(server, "/v1/completions", {"prompt": [5] * 900, "max_tokens": 1})
        while server.metric("num_open_requests") < 2:
            time.sleep(0.01)
        assert server.post("/v1/completions", {"prompt": [5] * 200, "max_tokens": 1}).status_code == 429
        busy.close()
        waiting.join()
        assert waiting.answer.status_code == 200


@pytest.mark.parametrize("flag,allowed,refused", [("http://a,http://b:1", ["http://a", "http://b:1"], ["http://b", "null"]),
                                                  ('["http://a"]', ["http://a"], ["http://b"]), ("none", [], ["http://a", "null"])])
def test_pages_that_may_read_answers_can_be_named(tmp_path, flag, allowed, refused):
    with served.serving(tmp_path / "log", "--allowed-origins", flag) as server:
        for origin in allowed + refused:
            answer = server.get("/health", headers={"Origin": origin})
            assert answer.headers.get("access-control-allow-origin") == (origin if origin in allowed else None)
            assert answer.headers.get("vary") == ("Origin" if allowed else None)  # what a cache may keep


def test_flags_that_cannot_be(tmp_path):
    for origins in ("a", "http://a/", "http://a,b", "*,b"):
        assert "--allowed-origins" in run("serve", served.MODEL, "--allowed-origins", origins, "--port", "0").stderr
    assert run("serve").returncode == 2
    assert run("serve", served.MODEL, "--port", "70000").returncode == 2
    assert run("serve", served.MODEL, "--log-level", "loud").returncode == 2
    assert run("serve", served.MODEL, "--sampling-defaults", "x").returncode == 2
    assert run("serve", served.MODEL, "--schedule-policy", "best").returncode == 2
    assert run("serve", served.MODEL, "--host", "256.1.1.1", "--port", "0").returncode == 2
    assert run("serve", tmp_path).returncode == 3
    assert run("serve", served.MODEL, "--speculative-algorithm", "EAGLE").returncode == 4
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run("serve", served.MODEL, "--port", taken.getsockname()[1])
        assert done.returncode == 5 and "--port" in done.stderr


def test_a_model_that_cannot_be_loaded_ends_the_server(tmp_path):
    """Found after the server has begun to listen."""
    import shutil
    shutil.copytree(served.MODEL, tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").write_text("{% for %}")
    done = run("serve", tmp_path / "model", "--port", "0")
    assert done.returncode == 3 and "listening" in done.stderr and "chat_template.jinja" in done.stderr


def test_flags_from_the_environment_and_a_file(tmp_path):
    (tmp_path / "serve.yaml").write_text("# as SGLang has it\nserved-model-name: from-file\nmax-running-requests: 3\n")
    with served.serving(tmp_path / "log", "--config", tmp_path / "serve.yaml", env={"SLUICE_CONTEXT_LENGTH": "99", "SLUICE_WEIGHT_VERSION": "v7"}) as server:
        info = server.get("/server_info").json()
        assert (info["served_model_name"], info["max_running_requests"], info["context_length"]) == ("from-file", 3, 99)
        answer = server.post("/generate", {"text": "Tom", "sampling_params": {"max_new_tokens": 1}}).json()
        assert answer["meta_info"]["weight_version"] == server.get("/model_info").json()["weight_version"] == "v7"


def test_the_server_of_the_seeds(tmp_path):
    """The launch line of SGLang's test, on an NVFP4 export of the bundled model; accuracy as there, but over 24 questions."""
    model = tmp_path / "nvfp4"
    done = run("quantize", served.MODEL, model, "--format", "nvfp4", "--calibrate", served.ROOT / "models" / "word_problems.shots.jsonl", "-q")
    assert done.returncode == 0, done.stderr
    line = ["--tp", "4", "--ep", "4", "--mem-fraction-static", "0.75", "--attention-backend", "trtllm_mla", "--moe-runner-backend",
            "flashinfer_cutedsl", "--quantization", "modelopt_fp4", "--model-loader-extra-config", '{"enable_multithread_load": true}']
    with served.serving(tmp_path / "log", *line, model=model) as server:
        assert "4 ranks, experts over 4, each whole" in server.text()
        data = served.ROOT / "models"
        done = run("eval", "gsm8k", "--base-url", server.url, "--data", data / "word_problems.test.jsonl", "--shots",
                   data / "word_problems.shots.jsonl", "--num-shots", "2", "--num-questions", "24", "--parallel", "24",
                   "--threshold", "0.9", "--json", tmp_path / "eval.json")
        assert done.returncode == 0, done.stdout + done.stderr
        result = json.loads((tmp_path / "eval.json").read_text())
        assert result["questions"] == 24 and result["generated_tokens"] > 24


def test_eval_asks_again_when_the_server_is_busy(tmp_path, endless_model):
    data = served.ROOT / "models" / "word_problems.test.jsonl"
    with served.serving(tmp_path / "log", "--max-running-requests", "2", "--max-queued-requests", "1", **endless_model) as server:
        busy = server.occupy(3)
        flags = ["eval", "gsm8k", "--base-url", server.url + "/v1", "--data", data, "--num-shots", "1", "--num-questions", "8", "-q"]
        evaluation = subprocess.Popen([str(served.SLUICE), *map(str, flags), "--parallel", "8", "--threshold", "0.9"], text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        while server.metric("http_responses_total", status="429") < 8:
            time.sleep(0.01)
        for sock in busy:
            sock.close()
        out, _ = evaluation.communicate(timeout=served.PATIENCE)
        assert evaluation.returncode == 0, out


def test_what_eval_is_refused(tmp_path):
    data = served.ROOT / "models" / "word_problems.test.jsonl"
    with served.serving(tmp_path / "log", "--api-key", "k") as server:
        flags = ["eval", "gsm8k", "--base-url", server.url + "/v1", "--data", data, "--num-shots", "1", "--num-questions", "8", "-q"]
        done = run(*flags, "--api-key", "k", "--threshold", "0.9")
        assert done.returncode == 0, done.stdout + done.stderr
        assert run(*flags).returncode == 5
        assert run(*flags, "--api-key", "k", "--model", "other").returncode == 5
    assert run(*flags).returncode == 5  # nobody listens there any more
    assert run("eval", "gsm8k", "--base-url", "https://h", "--data", data).returncode == 4
    assert run("eval", "gsm8k", "--base-url", "http://", "--data", data).returncode == 2
    assert run("eval", "gsm8k", "--data", data).returncode == 2


def test_bench_serve(tmp_path, server):
    done = run("bench", "serve", "--base-url", server.url, "--num-prompts", "12", "--max-concurrency", "4", "--input-length", "40",
               "--output-length", "10", "--length-range", "0.5", "--request-rate", "200", "--json", tmp_path / "b.json", "--svg", tmp_path / "b.svg")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "b.json").read_text())
    assert result["completed"] == 12 and result["failed"] == 0 and len(result["requests"]) == 12
    sent = [request["sent"] for request in result["requests"]]
    assert sent == sorted(sent) and sent[-1] > sent[0]
    for request in result["requests"]:
        assert 20 <= request["prompt_tokens"] <= 60 and 5 <= request["output_tokens"] <= 15
        assert request["sent"] <= request["first_token"] <= request["done"] <= result["seconds"]
    lengths = {request["prompt_tokens"] for request in result["requests"]}
    assert len(lengths) > 3
    assert result["output_tokens"] == sum(request["output_tokens"] for request in result["requests"])
    ttft = sorted((request["first_token"] - request["sent"]) * 1e3 for request in result["requests"])
    assert result["ttft_ms"]["max"] == pytest.approx(ttft[-1]) and ttft[5] - 1e-9 <= result["ttft_ms"]["p50"] <= ttft[6] + 1e-9
    assert (tmp_path / "b.svg").read_text().startswith("<svg")
    refused = run("bench", "serve", "--base-url", server.url, "--num-prompts", "2", "--input-length", "100000")
    assert refused.returncode == 1 and "400" in refused.stderr


def test_many_streams_and_aborts_leave_nothing_behind(server):
    """The long runs are scripts/server_load.py; this is a small one of each kind."""
    server.wait_idle()
    texts, finished = [], []
    body = {"prompt": served.PROMPT, "max_tokens": 120, "temperature": 0, "stream": True}

    def one(index):
        with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=served.PATIENCE) as answer:
            text = ""
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    text += json.loads(line[6:])["choices"][0]["text"]
                if index % 3 == 0 and len(text) > 5:
                    return  # leaves in the middle
            finished.append(line if line else "data: [DONE]")
            texts.append(text)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(48)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.wait_idle()
    assert len(texts) == 32 and set(texts) == {server.post("/v1/completions", {**body, "stream": False}).json()["choices"][0]["text"]}
