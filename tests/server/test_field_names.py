"""Fields under the name of another endpoint, in a form that means two things, or with a reserved name: taken or refused by name."""

import httpx
import pytest

import served

CHAT = {"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True}
PLAIN = {"prompt": "Tom", "ignore_eos": True}


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_new_tokens"])
@pytest.mark.parametrize("path,body", [("/v1/completions", PLAIN), ("/v1/chat/completions", CHAT)])
def test_every_name_of_the_length_is_taken(server, path, body, name):
    assert server.post(path, {**body, name: 3}).json()["usage"]["completion_tokens"] == 3
    assert server.post(path, {**body, name: 3, "max_tokens": 3}).json()["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize("path,body", [("/v1/completions", PLAIN), ("/v1/chat/completions", CHAT)])
@pytest.mark.parametrize("more,param", [
    ({"max_tokens": 3, "max_completion_tokens": 4}, "max_completion_tokens"), ({"max_tokens": 3, "max_new_tokens": 4}, "max_new_tokens"),
    ({"max_output_tokens": 3}, "max_output_tokens"), ({"sampling_params": {"max_new_tokens": 3}}, "sampling_params"),
    ({"min_tokens": 5, "max_tokens": 3}, "min_tokens"), ({"min_new_tokens": 5, "max_tokens": 3}, "min_new_tokens"),
    ({"min_new_tokens": 1, "min_tokens": 1}, "min_new_tokens"), ({"top_p": 0}, "top_p"), ({"seed": 9223372036854775808}, "seed"),
    ({"seed": -9300000000000000000}, "seed"), ({"thinking": {"type": "disabled"}}, "thinking"), ({"enable_thinking": False}, "enable_thinking"),
    ({"reasoning_budget": 5}, "reasoning_budget"), ({"repeat_last_n": 64}, "repeat_last_n"), ({"logit_bias": {"05": 1, "5": 2}}, "logit_bias"),
    ({"prompt": "x", "messages": CHAT["messages"]}, ("prompt", "messages"))])
def test_what_would_mean_something_else_is_refused_by_name(server, path, body, more, param):
    answer = server.post(path, {**body, **more})
    assert answer.status_code == 400 and answer.json()["error"]["param"] in (param if isinstance(param, tuple) else (param,)), answer.text
    assert answer.json()["error"]["code"] != "invalid_json"


@pytest.mark.parametrize("more,param", [
    ({"max_tokens": 3}, "max_tokens"), ({"max_new_tokens": 3}, "max_new_tokens"), ({"temperature": 0}, "temperature"), ({"stop": "x"}, "stop"),
    ({"prompt": "x"}, "prompt"), ({"sampling_params": {"min_new_tokens": 5, "max_new_tokens": 3}}, "sampling_params.min_new_tokens"),
    ({"sampling_params": {"top_p": 0}}, "sampling_params.top_p")])
def test_generate_takes_no_field_of_openai(server, more, param):
    answer = server.post("/generate", {"text": "Tom", **more})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param, answer.text


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/apply-template", "/tokenize"])
@pytest.mark.parametrize("name,value", [("messages", []), ("bos_token", "x"), ("eos_token", "x"), ("add_generation_prompt", False), ("tools", [])])
def test_arguments_of_the_template_do_not_replace_the_request(server, path, name, value):
    answer = server.post(path, {**CHAT, "chat_template_kwargs": {name: value}})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "chat_template_kwargs" and name in answer.json()["error"]["message"]


@pytest.mark.parametrize("headers,status", [
    ({"content-encoding": "gzip"}, 415), ({"content-encoding": "identity"}, 200), ({"content-type": "application/json; charset=utf-16"}, 415),
    ({"content-type": 'application/json; charset="UTF-8"'}, 200), ({"content-type": "application/json;charset=us-ascii"}, 200)])
def test_a_body_is_utf8_as_it_is(server, headers, status):
    answer = httpx.post(server.url + "/tokenize", content=b'{"prompt": "7"}', headers={"content-type": "application/json", **headers},
                        timeout=served.PATIENCE)
    assert answer.status_code == status, answer.text


def test_every_sample_names_the_model(server):
    lines = [line for line in server.get("/metrics").text.splitlines() if not line.startswith("#")]
    assert len(lines) > 100 and all('model_name="words"' in line for line in lines)
