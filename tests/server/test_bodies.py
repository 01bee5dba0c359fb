"""Bodies of many MB hold up nobody: they are read beside the loop, within limits, and whoever sent them may leave or be ended."""

import json
import select
import time

import pytest

import served

MANY = ",".join(['{"a":1}'] * 500_000)  # takes longer to read than anything else here
BODIES = {
    "/v1/completions": '{"prompt":"Question:","max_tokens":1,"x":[' + MANY + "]}",
    "/v1/chat/completions": '{"messages":[{"role":"user","content":"Hi"}],"max_tokens":1,"x":[' + MANY + "]}",
    "/generate": '{"text":"Question:","rid":"mine","sampling_params":{"max_new_tokens":1},"x":[' + MANY + "]}",
    "/tokenize": '{"prompt":"Question:","x":[' + MANY + "]}",
    "/detokenize": '{"tokens":[' + ",".join(["7"] * 1_000_000) + '],"x":[' + MANY + "]}",
    "/apply-template": '{"messages":[{"role":"user","content":"Hi"}],"x":[' + MANY + "]}",
    "/abort_request": '{"abort_all":true,"x":[' + MANY + "]}",
}


@pytest.fixture(scope="module")
def roomy(tmp_path_factory):
    with served.serving(tmp_path_factory.mktemp("roomy") / "log") as running:
        yield running
        running.wait_idle()


def sent(server, path):
    """A connection whose request has been sent whole."""
    body = BODIES[path].encode()
    sock = server.raw()
    sock.sendall(b"POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body)
    return sock


def being_read(server):
    """Until the body of one request has come and nothing more."""
    while server.metric("num_open_requests") != 1:
        time.sleep(0.001)


def answered(sock):
    return bool(select.select([sock], [], [], 0)[0])


@pytest.mark.parametrize("path", BODIES)
def test_others_are_answered_first(roomy, path):
    with roomy.raw() as other, sent(roomy, path) as sock:
        for request in (b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n", b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n",
                        b"POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"7\"}"):
            other.sendall(request)
            assert served.answer_of(other)[0] == 200
        assert not answered(sock)
        assert served.answer_of(sock)[0] == 200


def test_one_who_leaves_is_forgotten(roomy):
    for _ in range(3):
        sent(roomy, "/v1/completions").close()
    roomy.wait_idle()
    before = roomy.metric("num_requests_total")
    assert roomy.post("/v1/completions", {"prompt": "Question:", "max_tokens": 1}).status_code == 200
    assert roomy.metric("num_requests_total") == before + 1


def test_a_request_can_be_aborted_while_it_is_read(roomy):
    with sent(roomy, "/generate") as sock:
        being_read(roomy)
        assert roomy.post("/abort_request", {"rid": "mine"}).status_code == 200
        status, _, body = served.answer_of(sock)
        assert status == 400 and "aborted" in json.loads(body)["error"]["message"]
    with sent(roomy, "/generate") as sock:
        assert served.answer_of(sock)[0] == 200  # the next one with this id is another one
    assert roomy.post("/abort_request", {"rid": "mine"}).status_code == 404
    with sent(roomy, "/generate") as sock:
        being_read(roomy)
        assert roomy.post("/abort_request", {"abort_all": True}).status_code == 200
        assert served.answer_of(sock)[0] == 400


def test_long_answers_hold_up_nobody_either(roomy):
    context = roomy.get("/v1/models").json()["data"][0]["max_model_len"]
    body = {"prompt": [5] * (context - 1), "max_tokens": 1, "echo": True, "logprobs": 20}
    answer = roomy.post("/v1/completions", body).json()["choices"][0]
    assert len(answer["logprobs"]["top_logprobs"]) == context and answer["finish_reason"] == "length"
    roomy.wait_idle()


def test_bodies_that_wait_are_limited(tmp_path):
    with served.serving(tmp_path / "log", "--max-running-requests", "1", "--max-queued-requests", "1") as server:
        with sent(server, "/detokenize") as first, sent(server, "/detokenize") as second:
            refused = server.post("/tokenize", {"prompt": "7"})
            assert refused.status_code == 429 and refused.json()["error"]["code"] == "queue_full" and "retry-after" in refused.headers
            assert served.answer_of(first)[0] == served.answer_of(second)[0] == 200
        assert server.post("/tokenize", {"prompt": "7"}).status_code == 200


def test_a_request_that_is_being_read_is_drained(tmp_path):
    with served.serving(tmp_path / "log", "--drain-timeout", served.PATIENCE) as server:
        with sent(server, "/v1/completions") as sock:
            being_read(server)
            server.send()
            assert served.answer_of(sock)[0] == 200
        assert server.process.wait(served.PATIENCE) == 0, server.text()


def test_the_limit_of_the_drain_ends_it(tmp_path):
    with served.serving(tmp_path / "log", "--drain-timeout", "0") as server:
        with sent(server, "/v1/completions") as sock:
            being_read(server)
            server.send()
            status, _, body = served.answer_of(sock)
            assert status == 503 and "shutting down" in json.loads(body)["error"]["message"]
        assert server.process.wait(served.PATIENCE) == 0, server.text()


def test_bodies_that_arrive_are_limited_together(tmp_path):
    """Sixteen of the largest size; one more is told to come again, and who leaves makes room."""
    size = 64 << 10
    head = b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % size
    with served.serving(tmp_path / "log", "--max-body-bytes", size) as server:
        socks = []
        for _ in range(17):
            sock = server.raw()
            sock.sendall(head + b" " * (size - 1))
            for _ in range(3):  # so that all of it has arrived
                assert server.get("/health").status_code == 200
            socks.append(sock)
        status, headers, body = served.answer_of(socks[-1])
        assert status == 503 and "retry-after" in headers and "arriving" in json.loads(body)["error"]["message"]
        assert not any(answered(sock) for sock in socks[:-1])
        for sock in socks:
            sock.close()
        while server.metric("num_connections") > 1:
            time.sleep(0.01)
        assert server.post("/v1/completions", {"prompt": "Question:", "max_tokens": 1, "user": "x" * (size // 2)}).status_code == 200
