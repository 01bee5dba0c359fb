"""Whatever a client does, it gets the right status and the next request is served."""

import json
import select
import socket

import httpx
import pytest

import served

SMALL = {"prompt": "Question:", "max_tokens": 2}


@pytest.fixture(autouse=True)
def the_server_lives_on(server):
    yield
    assert server.process.poll() is None, server.text()
    assert server.post("/v1/completions", SMALL).status_code == 200


def send(server, data, then_close=False):
    with server.raw() as sock:
        sock.sendall(data)
        if then_close:
            sock.shutdown(socket.SHUT_WR)
        return served.answer_of(sock)


def request_bytes(body, path="/v1/completions", more=""):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n{more}\r\n".encode() + data


@pytest.mark.parametrize("data,status", [
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100), 400),   # TLS
    (bytes(range(256)) * 10 + b"\r\n\r\n", 400),
    (b"GET / HTTP/9.9\r\n\r\n", 400),
    (b"GARBAGE / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: h\r\nBad Header: x\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: h\r\nA: " + b"a" * 40000 + b"\r\n\r\n", 431),
    (b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\nHost: h\r\n\r\n", 431),
    (b"GET /health HTTP/1.1\r\nHost: h\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
    (b"POST /generate HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\nContent-Length: 11\r\n\r\n", 400),
    (b"POST /generate HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    (b"POST /generate HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", 400),
    (b"POST /generate HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    (b"GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n", 404),
    (b"GET /v1/completions HTTP/1.1\r\nHost: h\r\n\r\n", 405),
    (b"DELETE /health HTTP/1.1\r\nHost: h\r\n\r\n", 405),
    (b"POST /generate HTTP/1.1\r\nHost: h\r\nContent-Type: text/xml\r\nContent-Length: 0\r\n\r\n", 415),
])
def test_what_is_no_request_of_this_server(server, data, status):
    answer = send(server, data)
    assert answer is not None and answer[0] == status, answer
    assert set(json.loads(answer[2])["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"null", b"\"text\"", b"{\"prompt\": NaN}", b"{\"prompt\": \"a\", \"temperature\": NaN}",
    b"{\"prompt\": \"a\", \"temperature\": Infinity}", b"{\"prompt\": \"a\", \"temperature\": 1e999}", b"{\"prompt\": \"\xff\xfe\"}",
    b"{\"prompt\": \"\xed\xa0\x80\"}", b"[" * 100000, b"{\"a\":" * 5000 + b"1" + b"}" * 5000, b"{\"prompt\": \"a\"} trailing",
    b"{\"prompt\": \"a\", \"max_tokens\": 99999999999999999999999}"])
def test_bodies_that_are_no_json_object(server, body):
    answer = send(server, request_bytes(body))
    assert answer[0] == 400, answer


@pytest.mark.parametrize("more,param", [
    ({"max_tokens": -1}, "max_tokens"), ({"max_tokens": 1.5}, "max_tokens"), ({"max_tokens": "5"}, "max_tokens"),
    ({"temperature": -0.1}, "temperature"), ({"temperature": 1e9}, "temperature"), ({"temperature": True}, "temperature"),
    ({"top_p": 1.01}, "top_p"), ({"min_p": -1}, "min_p"), ({"top_k": -2}, "top_k"), ({"n": 0}, "n"), ({"n": 100000}, "n"), ({"n": 1e300}, "n"), ({"n": -1e19}, "n"), ({"n": 1.5}, "n"),
    ({"presence_penalty": 3}, "presence_penalty"), ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"logprobs": 21}, "logprobs"), ({"logprobs": -1}, "logprobs"),
    ({"stop": [""]}, "stop"), ({"stop": ["x"] * 100}, "stop"), ({"stop": 5}, "stop"), ({"stop": [1]}, "stop"),
    ({"stop": "x" * 5000}, "stop"), ({"stop_token_ids": [1024]}, "stop_token_ids"), ({"stop_token_ids": ["a"]}, "stop_token_ids"),
    ({"logit_bias": {str(i): 1 for i in range(5000)}}, "logit_bias"), ({"logit_bias": {"5": 101}}, "logit_bias"),
    ({"logit_bias": {"-5": 1}}, "logit_bias"), ({"logit_bias": {"1024": 1}}, "logit_bias"), ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": [1]}, "logit_bias"), ({"logit_bias": {"5": None}}, "logit_bias"),
    ({"prompt": None}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": ""}, "prompt"), ({"prompt": [[]]}, "prompt"),
    ({"prompt": {}}, "prompt"), ({"prompt": [1, "a"]}, "prompt"), ({"prompt": [1024]}, "prompt"), ({"prompt": [-1]}, "prompt"),
    ({"stream": "yes"}, "stream"), ({"stream_options": {"include_usage": True}}, "stream_options"), ({"echo": 1}, "echo"),
    ({"seed": 1.5}, "seed"), ({"seed": "a"}, "seed"), ({"model": 5}, "model"),
])
def test_fields_out_of_range_are_named(server, more, param):
    answer = server.post("/v1/completions", {**SMALL, **more})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param, answer.text


@pytest.mark.parametrize("messages", [None, [], {}, "x", [1], [{}], [{"role": "user"}], [{"role": 5, "content": "x"}],
                                      [{"role": "user", "content": 5}], [{"role": "user", "content": [{"type": "text"}]}],
                                      [{"role": "user", "content": [5]}]])
def test_conversations_that_are_none(server, messages):
    assert server.post("/v1/chat/completions", {"messages": messages}).status_code == 400


def test_prompts_up_to_the_limit_and_beyond(server):
    context = server.get("/v1/models").json()["data"][0]["max_model_len"]
    fits = server.post("/v1/completions", {"prompt": [5] * (context - 1), "max_tokens": 1})
    assert fits.status_code == 200 and fits.json()["usage"]["total_tokens"] == context
    for prompt, new in ((context, 1), (context - 1, 2), (context + 1, 1), (10, context)):
        answer = server.post("/v1/completions", {"prompt": [5] * prompt, "max_tokens": new})
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "context_length_exceeded"
        for number in (context, prompt, new):
            assert str(number) in answer.json()["error"]["message"]
    scored = server.post("/v1/completions", {"prompt": [5] * context, "max_tokens": 0, "echo": True, "logprobs": 0})
    assert scored.status_code == 200 and len(scored.json()["choices"][0]["logprobs"]["tokens"]) == context
    text = server.post("/v1/completions", {"prompt": "long " * 100000, "max_tokens": 1})
    assert text.status_code == 400 and text.json()["error"]["code"] == "context_length_exceeded"
    chat = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "long " * 10000}]})
    assert chat.status_code == 400 and chat.json()["error"]["code"] == "context_length_exceeded"


def test_a_body_beyond_the_limit_is_refused_before_it_is_read(server):
    size = 16 << 20
    with server.raw() as sock:
        sock.sendall(f"POST /generate HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n".encode())
        assert served.answer_of(sock)[0] == 413
    # A client that sends everything before it reads gets the answer too.
    answer = httpx.post(server.url + "/generate", content=b" " * size, headers={"content-type": "application/json"}, timeout=served.PATIENCE)
    assert answer.status_code == 413
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    data = b"POST /generate HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 20
    assert send(server, data)[0] == 413


def test_chunked_bodies_are_read(server):
    body = json.dumps(SMALL).encode()
    parts = b"".join(b"%x\r\n%c\r\n" % (1, byte) for byte in body) + b"0\r\n\r\n"
    head = b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert send(server, head + parts)[0] == 200


def test_requests_may_come_a_byte_at_a_time_and_many_at_once(server):
    one = request_bytes(SMALL)
    with server.raw() as sock:
        for i in range(len(one)):
            sock.sendall(one[i:i + 1])
        assert served.answer_of(sock)[0] == 200
        sock.sendall(one * 3)  # the answers come in order
        data = b""
        while data.count(b'"usage"') < 3:
            part = sock.recv(65536)
            assert part
            data += part
        assert data.count(b"HTTP/1.1 200 OK") == 3


def test_old_clients_are_answered(server):
    with server.raw() as sock:
        sock.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert served.answer_of(sock)[0] == 200
        assert sock.recv(1) == b""  # and the connection is closed
    body = json.dumps({**SMALL, "stream": True}).encode()
    with server.raw() as sock:
        sock.sendall(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        data = b""
        while part := sock.recv(65536):
            data += part
    assert b"chunked" not in data and data.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("path,status", [("/health", 200), ("/nowhere", 404), ("/generate", 405), ("/v1/models/other", 404)])
def test_head_has_no_body(server, path, status):
    with server.raw() as sock:
        sock.sendall(f"HEAD {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
        data = b""
        while part := sock.recv(65536):
            data += part
    head, body = data.split(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status) and body == b"" and b"Content-Length: 0" not in head


@pytest.mark.parametrize("head,status", [
    ("GET /health HTTP/1.1\r\nAccept: */*", 400), ("GET /health HTTP/1.1\r\nHost: a\r\nHost: b", 400), ("GET /health HTTP/1.0", 200),
    ("GET http://any.where:80/health HTTP/1.1\r\nHost: h", 200), ("GET http://any.where HTTP/1.1\r\nHost: h", 404)])
def test_hosts_and_targets(server, head, status):
    assert send(server, head.encode() + b"\r\n\r\n")[0] == status


def test_another_method_is_told_which_ones_there_are(server):
    for method, path, allowed in (("DELETE", "/health", "GET, HEAD, OPTIONS"), ("GET", "/generate", "POST, OPTIONS"),
                                  ("PUT", "/flush_cache", "GET, HEAD, POST, OPTIONS")):
        answer = httpx.request(method, server.url + path, timeout=served.PATIENCE)
        assert answer.status_code == 405 and answer.headers["allow"] == allowed
        asked = httpx.options(server.url + path, timeout=served.PATIENCE)
        assert asked.status_code == 204 and asked.headers["allow"] == allowed and asked.content == b""
        assert "content-length" not in asked.headers and "content-type" not in asked.headers
    assert httpx.options(server.url + "/nowhere", timeout=served.PATIENCE).status_code == 404


def test_pages_of_any_origin_may_read_answers(server):
    """As SGLang and vLLM have it."""
    asked = httpx.options(server.url + "/v1/chat/completions", timeout=served.PATIENCE, headers={
        "Origin": "http://page", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"})
    assert asked.status_code == 204 and asked.headers["access-control-allow-origin"] == "*"
    assert asked.headers["access-control-allow-headers"] == "authorization,content-type" and "POST" in asked.headers["access-control-allow-methods"]
    for method, path, body, status in (("GET", "/health", None, 200), ("POST", "/v1/completions", {**SMALL, "stream": True}, 200),
                                       ("POST", "/v1/completions", {}, 400), ("GET", "/nowhere", None, 404)):
        answer = httpx.request(method, server.url + path, json=body, headers={"Origin": "http://page"}, timeout=served.PATIENCE)
        assert answer.status_code == status and answer.headers["access-control-allow-origin"] == "*", path
    assert "access-control-allow-origin" not in server.get("/health").headers


def test_expect_continue(server):
    body = json.dumps(SMALL).encode()
    with server.raw() as sock:
        sock.sendall(request_bytes(SMALL, more="Expect: 100-continue\r\n")[:-len(body)])
        assert sock.recv(1000).startswith(b"HTTP/1.1 100 Continue")
        sock.sendall(body)
        assert served.answer_of(sock)[0] == 200


def test_a_request_that_does_not_end_is_ended(tmp_path):
    """The limit counts from the first byte; single bytes now and then do not put it off."""
    with served.serving(tmp_path / "log", "--request-timeout", "0.5") as server, server.raw() as sock:
        sock.sendall(b"POST /generate HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n")
        while not select.select([sock], [], [], 0.02)[0]:
            sock.sendall(b" ")
        assert served.answer_of(sock)[0] == 408


def test_connections_that_nobody_uses_do_no_harm(server):
    idle = [server.raw() for _ in range(200)]
    half = [server.raw() for _ in range(50)]
    for sock in half:
        sock.sendall(b"POST /generate HTTP/1.1\r\nHost: h\r\nContent-Le")
    assert server.post("/v1/completions", SMALL).status_code == 200
    for sock in idle + half:
        sock.close()
