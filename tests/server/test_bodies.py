"""Bodies of many MB hold up nobody: they are read beside the loop, within limits, and whoever sent them may leave or be ended.

What happens while a body is read can only be seen when it is still being read. No machine has to be slow enough for that: `served.caught` tries
until it was so, and every try asserts what holds either way.
"""

import json
import select

import pytest

import served

MANY = ",".join(['{"a":1}'] * 500_000)
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


class Held:
    """A request that has been sent whole, but for its last byte."""

    def __init__(self, server, path):
        body = BODIES[path].encode()
        self.sock = server.raw()
        self.sock.sendall(b"POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                          % (path.encode(), len(body)) + body[:-1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def release(self):
        self.sock.sendall(b"}")

    def in_work(self, server):
        """Waits until the server has all of it; whether it was in work then, and not answered already."""
        while server.metric("num_open_requests") == 0:
            if self.answered():
                return False
        return True

    def answered(self):
        return bool(select.select([self.sock], [], [], 0)[0])

    def answer(self):
        return served.answer_of(self.sock)


def until_left(server):
    """Until nothing is in work and nobody is connected, but for the one who asks."""
    while server.metric("num_connections") > 1:
        pass
    server.wait_idle()


@pytest.mark.parametrize("path", BODIES)
def test_others_are_answered_first(roomy, path):
    def attempt():
        with Held(roomy, path) as held, roomy.raw() as other:
            held.release()
            read_before = held.in_work(roomy)
            for request in (b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n",
                            b"POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"7\"}"):
                other.sendall(request)
                assert served.answer_of(other)[0] == 200
            read_after = not held.answered()
            assert held.answer()[0] == 200
            return read_before and read_after
    served.caught(attempt)


def test_one_who_leaves_is_forgotten(roomy):
    def attempt():
        until_left(roomy)
        before = roomy.metric("num_requests_total")
        with Held(roomy, "/v1/completions") as held:
            held.release()
        until_left(roomy)
        started = roomy.metric("num_requests_total") - before
        assert started in (0, 1)
        return started == 0
    served.caught(attempt)
    before = roomy.metric("num_requests_total")
    assert roomy.post("/v1/completions", {"prompt": "Question:", "max_tokens": 1}).status_code == 200
    assert roomy.metric("num_requests_total") == before + 1


@pytest.mark.parametrize("whom", [{"rid": "mine"}, {"abort_all": True}])
def test_a_request_can_be_aborted_while_it_is_read(roomy, whom):
    def attempt():
        with Held(roomy, "/generate") as held:
            held.release()
            assert roomy.post("/abort_request", whom).status_code in (200, 404)
            status, _, body = held.answer()
            assert status == 200 or (status == 400 and "aborted" in json.loads(body)["error"]["message"])
        roomy.wait_idle()
        return status == 400
    served.caught(attempt)
    with Held(roomy, "/generate") as held:
        held.release()
        assert held.answer()[0] == 200  # the next one with this id is another one
    assert roomy.post("/abort_request", {"rid": "mine"}).status_code == 404


def test_an_abort_concerns_nobody_who_comes_later(roomy):
    def attempt():
        with Held(roomy, "/tokenize") as first, Held(roomy, "/tokenize") as second:
            first.release()
            second.release()
            early = roomy.post("/abort_request", {"rid": "later"}).status_code
            assert early in (200, 404)
            assert first.answer()[0] == 200
            later = roomy.post("/generate", {"text": "Question:", "rid": "later", "sampling_params": {"max_new_tokens": 1}})
            read_after = not second.answered()
            assert later.status_code == 200, later.text
            assert second.answer()[0] == 200
            return early == 200 and read_after
    served.caught(attempt)


def test_long_answers_hold_up_nobody_either(roomy):
    context = roomy.get("/v1/models").json()["data"][0]["max_model_len"]
    body = {"prompt": [5] * (context - 1), "max_tokens": 1, "echo": True, "logprobs": 20}
    answer = roomy.post("/v1/completions", body).json()["choices"][0]
    assert len(answer["logprobs"]["top_logprobs"]) == context and answer["finish_reason"] == "length"
    roomy.wait_idle()


def test_bodies_that_wait_are_limited(tmp_path):
    request = b"POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"7\"}"
    with served.serving(tmp_path / "log", "--max-running-requests", "1", "--max-queued-requests", "1") as server:
        with server.raw() as first, server.raw() as second, server.raw() as third:
            def attempt():
                with server.frozen():  # so that all three are there when it looks
                    for sock in (first, second, third):
                        sock.sendall(request)
                answers = [served.answer_of(sock) for sock in (first, second, third)]
                refused = [answer for answer in answers if answer[0] != 200]
                for status, headers, body in refused:
                    assert status == 429 and json.loads(body)["error"]["code"] == "queue_full" and "retry-after" in headers
                assert len(refused) <= 1
                return len(refused) == 1
            served.caught(attempt)
        assert server.post("/tokenize", {"prompt": "7"}).status_code == 200


def test_a_request_that_is_being_read_is_drained(tmp_path):
    def attempt():
        with served.serving(tmp_path / "log", "--drain-timeout", served.PATIENCE) as server:
            with Held(server, "/v1/completions") as held:
                held.release()
                in_work = held.in_work(server)
                server.send()
                assert held.answer()[0] == 200
            assert server.process.wait(served.PATIENCE) == 0, server.text()
        return in_work
    served.caught(attempt)


def test_the_limit_of_the_drain_ends_it(tmp_path):
    def attempt():
        with served.serving(tmp_path / "log", "--drain-timeout", "0") as server:
            with Held(server, "/v1/completions") as held:
                held.release()
                held.in_work(server)
                server.send()
                status, _, body = held.answer()
                assert status == 200 or (status == 503 and "shutting down" in json.loads(body)["error"]["message"])
            assert server.process.wait(served.PATIENCE) == 0, server.text()
        return status == 503
    served.caught(attempt)


def test_bodies_that_arrive_are_limited_together(tmp_path):
    """Sixteen of the largest size; one more is told to come again, and who leaves makes room."""
    size = 64 << 10
    head = b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % size
    with served.serving(tmp_path / "log", "--max-body-bytes", size) as server:
        socks = [server.raw() for _ in range(17)]
        for sock in socks:
            sock.sendall(head + b" " * (size - 1))
        (refused,) = select.select(socks, [], [], served.PATIENCE)[0]  # whichever the server took in last
        status, headers, body = served.answer_of(refused)
        assert status == 503 and "retry-after" in headers and "arriving" in json.loads(body)["error"]["message"]
        socks.remove(refused)
        assert not select.select(socks, [], [], 0)[0]
        for sock in [refused, *socks]:
            sock.close()
        until_left(server)
        assert server.post("/v1/completions", {"prompt": "Question:", "max_tokens": 1, "user": "x" * (size // 2)}).status_code == 200
