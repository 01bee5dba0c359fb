"""OpenAI's endpoints, asked by OpenAI's own client; every answer is checked against the client's types."""

import json

import httpx
import numpy as np
import openai
import pytest
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.shared import ErrorObject
from pydantic import TypeAdapter
from safetensors.numpy import load_file

import served
from served import MESSAGES, TOOLS


def validated(kind, body):
    """The client itself takes anything; this does not."""
    return TypeAdapter(kind).validate_json(body, strict=True)


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=served.PATIENCE) as made:
        yield made


def chat(client, **more):
    return client.chat.completions.create(**{"model": "words", "messages": MESSAGES, "temperature": 0, **more})


def complete(client, **more):
    return client.completions.create(**{"model": "words", "prompt": served.PROMPT, "temperature": 0, "max_tokens": 200, **more})


def test_chat_answers_and_has_the_published_form(client):
    raw = client.chat.completions.with_raw_response.create(model="words", messages=MESSAGES, temperature=0)
    answer = validated(ChatCompletion, raw.http_response.content)
    assert answer.choices[0].message.content.endswith("#### 24")
    assert answer.choices[0].finish_reason == "stop" and answer.choices[0].message.role == "assistant"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.object == "chat.completion" and answer.model == "words" and answer.id.startswith("chatcmpl-")


def test_completions_have_the_published_form(client):
    raw = client.completions.with_raw_response.create(model="words", prompt=served.PROMPT, temperature=0, max_tokens=200)
    answer = validated(Completion, raw.http_response.content)
    assert answer.choices[0].text.endswith("#### 24") and answer.choices[0].finish_reason == "stop"


def stream_of(server, path, body):
    """The JSON texts of a stream's events, without the last, which must be [DONE]."""
    with httpx.stream("POST", server.url + path, json={**body, "stream": True}, timeout=served.PATIENCE) as answer:
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        events = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert events[-1] == "[DONE]" and "[DONE]" not in events[:-1]
    return events[:-1]


def validated_parts(events):
    """Parts of a streamed completion. All but the last have a reason of null, as OpenAI sends it; the client's type, which is that
    of whole completions, does not know that."""
    parts = [json.loads(event) for event in events]
    assert [part["choices"][0]["finish_reason"] is None for part in parts] == [True] * (len(parts) - 1) + [False]
    for part in parts[:-1]:
        part["choices"][0]["finish_reason"] = "stop"
    return [validated(Completion, json.dumps(part)) for part in parts]


@pytest.mark.parametrize("n", [1, 3])
def test_a_streamed_chat_adds_up_to_the_whole_one(server, client, n):
    body = {"model": "words", "messages": MESSAGES, "temperature": 0, "n": n, "stream_options": {"include_usage": True}}
    chunks = [validated(ChatCompletionChunk, event) for event in stream_of(server, "/v1/chat/completions", body)]
    whole = chat(client, n=n)
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1
    for index in range(n):
        own = [chunk.choices[0] for chunk in chunks[:-1] if chunk.choices[0].index == index]
        assert own[0].delta.role == "assistant"
        assert "".join(choice.delta.content or "" for choice in own) == whole.choices[index].message.content
        assert [choice.finish_reason for choice in own if choice.finish_reason] == ["stop"] and own[-1].finish_reason == "stop"


def test_a_streamed_completion_adds_up_to_the_whole_one(server, client):
    for more in ({}, {"max_tokens": 7}, {"stop": ["="]}, {"echo": True}, {"logprobs": 2}):
        body = {"model": "words", "prompt": served.PROMPT, "temperature": 0, "max_tokens": 200, **more}
        chunks = validated_parts(stream_of(server, "/v1/completions", body))
        whole = complete(client, **more)
        assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
        assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
        if "logprobs" in more:
            for field in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
                parts = [getattr(chunk.choices[0].logprobs, field) for chunk in chunks]
                assert sum(parts, []) == getattr(whole.choices[0].logprobs, field)


def test_the_client_streams(client):
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chat(client, stream=True) if chunk.choices)
    assert text == chat(client).choices[0].message.content


def test_finish_reason_says_why(client):
    cut = chat(client, max_tokens=5)
    assert cut.choices[0].finish_reason == "length" and cut.usage.completion_tokens == 5
    stopped = chat(client, stop=["<<"])
    assert stopped.choices[0].finish_reason == "stop" and "<<" not in stopped.choices[0].message.content
    assert stopped.choices[0].message.content == chat(client).choices[0].message.content.split("<<")[0]
    # Cut and stopped by the same token: it is the stop that counts, streamed or not.
    tokens = stopped.usage.completion_tokens
    both = chat(client, stop=["<<"], max_tokens=tokens)
    assert both.choices[0].finish_reason == "stop" and both.usage.completion_tokens == tokens


def test_a_stop_string_may_be_kept(client):
    kept = complete(client, stop=["<<"], extra_body={"include_stop_str_in_output": True})
    assert kept.choices[0].text == complete(client, stop=["<<"]).choices[0].text + "<<"


def test_stop_token_ids_end_an_answer(server, client):
    ids = server.post("/tokenize", {"prompt": " cards"}).json()["tokens"]
    answer = complete(client, extra_body={"stop_token_ids": ids[-1:]})
    assert answer.choices[0].finish_reason == "stop" and not answer.choices[0].text.endswith("24")
    assert answer.choices[0].model_extra["matched_stop"] == ids[-1]


def test_several_prompts_and_answers_are_in_order(client):
    other = served.PROMPT.replace("7 packs", "3 packs")
    both = complete(client, prompt=[served.PROMPT, other], n=2)
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    texts = [choice.text for choice in both.choices]
    assert texts[0] == texts[1] == complete(client).choices[0].text
    assert texts[2] == texts[3] == complete(client, prompt=other).choices[0].text != texts[0]


def test_token_ids_are_a_prompt(server, client):
    ids = server.post("/tokenize", {"prompt": served.PROMPT}).json()["tokens"]
    assert complete(client, prompt=ids).choices[0].text == complete(client).choices[0].text
    assert complete(client, prompt=[ids, ids]).choices[1].text == complete(client).choices[0].text


def test_log_probabilities_are_those_of_transformers(client):
    """reference.safetensors holds float32 results of transformers; ours are bf16."""
    reference = load_file(served.MODEL / "reference.safetensors")
    ids = reference["prompt0.input_ids"].tolist()
    answer = complete(client, prompt=ids, echo=True, logprobs=1, max_tokens=1)
    ours = answer.choices[0].logprobs
    assert ours.token_logprobs[0] is None and ours.top_logprobs[0] is None
    np.testing.assert_allclose(ours.token_logprobs[1:len(ids)], reference["prompt0.logprob_of_next"], atol=2e-2)
    logits = reference["prompt0.last_logits"].astype(np.float64)
    best = logits.max() - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    np.testing.assert_allclose(ours.token_logprobs[len(ids)], best, atol=2e-2)
    assert "".join(ours.tokens) == answer.choices[0].text
    assert ours.text_offset == np.cumsum([0] + [len(token) for token in ours.tokens[:-1]]).tolist()


def test_chat_log_probabilities(client):
    answer = chat(client, logprobs=True, top_logprobs=3, max_tokens=8)
    notes = answer.choices[0].logprobs.content
    assert len(notes) == 8 and "".join(note.token for note in notes) == answer.choices[0].message.content
    for note in notes:
        assert bytes(note.bytes).decode() == note.token
        assert [top.logprob for top in note.top_logprobs] == sorted((top.logprob for top in note.top_logprobs), reverse=True)
        assert note.top_logprobs[0].token == note.token and note.top_logprobs[0].logprob == note.logprob  # greedy
        assert sum(np.exp(top.logprob) for top in note.top_logprobs) <= 1 + 1e-5


def test_echo_of_nothing_but_the_prompt(client):
    answer = complete(client, echo=True, max_tokens=0)
    assert answer.choices[0].text == served.PROMPT and answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 0


def test_seeds_fix_answers(client):
    def sample(**more):
        return complete(client, prompt="Question:", temperature=1.5, max_tokens=24, **more).choices[0].text
    assert sample(seed=1) == sample(seed=1)
    assert len({sample(seed=seed) for seed in range(4)}) > 1
    assert len({sample() for _ in range(4)}) > 1
    several = complete(client, prompt="Question:", temperature=1.5, max_tokens=24, seed=1, n=4)
    assert len({choice.text for choice in several.choices}) > 1 and several.choices[0].text == sample(seed=1)


def test_a_bias_forces_and_bans_tokens(server, client):
    token = server.post("/tokenize", {"prompt": "7"}).json()["tokens"][0]
    assert complete(client, logit_bias={str(token): 100}, max_tokens=4).choices[0].text == "7777"
    assert "7" not in complete(client, logit_bias={str(token): -100}).choices[0].text


def test_models(client):
    assert [validated(Model, model.model_dump_json()).id for model in client.models.list()] == ["words"]
    assert client.models.retrieve("words").id == "words"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_a_streamed_chat_has_the_log_probabilities_of_text_that_is_held_back(client):
    first = chat(client, max_tokens=1, logprobs=True).choices[0].logprobs.content[0].token
    asked = {"max_tokens": 6, "logprobs": True, "stop": [first + " zzz"]}
    whole = [note.token for note in chat(client, **asked).choices[0].logprobs.content]
    parts = [note.token for part in chat(client, stream=True, **asked) for choice in part.choices if choice.logprobs
             for note in choice.logprobs.content]
    assert parts == whole and len(whole) == 6


def test_no_stop_before_the_least_number_of_tokens(client):
    early = complete(client, stop=["e"])
    assert early.choices[0].finish_reason == "stop"
    least = early.usage.completion_tokens + 5
    late = complete(client, stop=["e"], extra_body={"min_tokens": least})
    assert late.usage.completion_tokens > least and late.choices[0].text.startswith(early.choices[0].text + "e")


def test_names_and_types_are_compared_as_http_says(server):
    assert server.get("/v1/models/w%6Frds").json()["id"] == "words"
    sent = httpx.post(server.url + "/tokenize", content=b'{"prompt": "7"}', headers={"content-type": "application/JSON"},
                      timeout=served.PATIENCE)
    assert sent.status_code == 200
    cut = httpx.post(server.url + "/tokenize", content=b'{"prompt": "7"}\0{', headers={"content-type": "application/json"},
                     timeout=served.PATIENCE)
    assert cut.status_code == 400


@pytest.mark.parametrize("call", [chat, complete])
def test_errors_are_those_that_the_client_knows(client, call):
    with pytest.raises(openai.NotFoundError) as unknown:
        call(client, model="other")
    assert unknown.value.body["code"] == "model_not_found" and unknown.value.body["param"] == "model"
    with pytest.raises(openai.BadRequestError) as wrong:
        call(client, temperature=-1)
    assert wrong.value.body["param"] == "temperature" and wrong.value.body["type"] == "invalid_request_error"
    assert "-1 is not in 0 to 100" in wrong.value.body["message"]


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool", "function"])
def test_known_roles_are_taken(server, role):
    assert server.post("/apply-template", {"messages": [{"role": role, "content": "x", "name": "n"}]}).status_code == 200


def test_usage_in_every_part(server):
    for path, body in (("/v1/completions", {"prompt": served.PROMPT}), ("/v1/chat/completions", {"messages": MESSAGES})):
        options = {"include_usage": True, "continuous_usage_stats": True}
        events = stream_of(server, path, {**body, "temperature": 0, "max_tokens": 6, "stream_options": options})
        usages = [json.loads(event)["usage"] for event in events]
        made = [usage["completion_tokens"] for usage in usages]
        assert made == sorted(made) and made[-1] == 6 and len(set(made)) > 3
        assert {usage["prompt_tokens"] for usage in usages} == {usages[-1]["prompt_tokens"]}
        alone = stream_of(server, path, {**body, "max_tokens": 2, "stream_options": {"continuous_usage_stats": True}})
        assert all("usage" not in json.loads(event) for event in alone)  # as vLLM has it: with include_usage only


def test_text_offsets_of_characters_that_span_tokens(server, client):
    """An offset is the character of the text in which the token begins; a token that is not shown takes none."""
    text = "é 日本 🙂 ok"
    for prompt in (text, server.post("/tokenize", {"prompt": text}).json()["tokens"]):
        answer = complete(client, prompt=prompt, echo=True, logprobs=0, max_tokens=0)
        ids = server.post("/tokenize", {"prompt": text}).json()["tokens"]
        pieces = [server.post("/detokenize", {"tokens": ids[:i], "skip_special_tokens": False}).json()["text"] for i in range(len(ids))]
        expected = [len(piece.rstrip("\ufffd")) for piece in pieces]
        assert len(ids) > len(text) - 2 and answer.choices[0].logprobs.text_offset == expected
    special = server.post("/tokenize", {"prompt": "<|im_start|>"}).json()["tokens"]
    forced = complete(client, prompt="a", max_tokens=3, logprobs=0, logit_bias={str(special[0]): 100}, extra_body={"ignore_eos": True})
    assert len(special) == 1 and forced.choices[0].text == "" and forced.choices[0].logprobs.text_offset == [0, 0, 0]


def test_special_tokens_in_front_are_a_matter_of_the_request(server):
    for body in ({"prompt": "x"}, {"messages": MESSAGES}):
        path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
        for flag in (True, False):
            assert server.post(path, {**body, "max_tokens": 1, "add_special_tokens": flag}).status_code == 200
        assert server.post(path, {**body, "max_tokens": 1, "add_special_tokens": 1}).json()["error"]["param"] == "add_special_tokens"


def test_content_parts_of_text_are_text(client):
    parts = [{"role": "user", "content": [{"type": "text", "text": served.QUESTION}]}]
    assert chat(client, messages=parts).choices[0].message.content == chat(client).choices[0].message.content


def test_what_the_model_refused_is_text_too(server):
    said = [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No cards."}]}, {"role": "user", "content": "And now?"}]
    plain = [{"role": "assistant", "content": "No cards."}, {"role": "user", "content": "And now?"}]
    prompts = [server.post("/apply-template", {"messages": messages}).json()["prompt"] for messages in (said, plain)]
    assert prompts[0] == prompts[1] and "No cards." in prompts[0]


def test_nothing_is_said_twice_in_a_body(server):
    """Keys that come twice would mean different things to different readers."""
    body = '{"prompt": "a", "prompt": "b", "max_tokens": 1}'
    answer = httpx.post(server.url + "/v1/completions", content=body, headers={"content-type": "application/json"}, timeout=served.PATIENCE)
    assert answer.status_code == 400 and "duplicate key" in answer.json()["error"]["message"]


def test_streams_say_what_is_json(server):
    for event in stream_of(server, "/v1/completions", {"prompt": served.PROMPT, "max_tokens": 30, "temperature": 0, "logprobs": 1}):
        assert set(json.loads(event)) >= {"id", "object", "created", "model", "choices"}


FORMS = [{}, {"n": 2}, {"logprobs": True}, {"logprobs": True, "top_logprobs": 3}, {"max_tokens": 3}, {"stop": ["="]}, {"seed": 1, "temperature": 1},
         {"max_tokens": None, "max_completion_tokens": 1}, {"stop": ["="], "n": 2, "logprobs": True, "top_logprobs": 1}, {"chat_template_kwargs": {"enable_thinking": False}}]


@pytest.mark.parametrize("more", FORMS)
def test_every_chat_has_the_published_form(server, more):
    body = {"messages": MESSAGES, "temperature": 0, "max_tokens": 12, **more}
    validated(ChatCompletion, server.post("/v1/chat/completions", body).content)
    for options in ({}, {"stream_options": {"include_usage": True}}, {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}):
        for event in stream_of(server, "/v1/chat/completions", {**body, **options}):
            validated(ChatCompletionChunk, event)


def as_typed(text):
    """OpenAI sends null where its types know none: as the reason of a part, and as log-probability of an echoed first token."""
    body = json.loads(text)
    for choice in body["choices"]:
        choice["finish_reason"] = choice["finish_reason"] or "stop"
        noted = choice["logprobs"] or {"token_logprobs": []}
        if noted["token_logprobs"] and noted["token_logprobs"][0] is None:
            noted["token_logprobs"][0] = 0.0
            noted["top_logprobs"] = noted["top_logprobs"] and [{}] + noted["top_logprobs"][1:]
    return json.dumps(body)


@pytest.mark.parametrize("more", [{}, {"n": 2}, {"logprobs": 0}, {"logprobs": 3, "echo": True}, {"echo": True, "max_tokens": 0}, {"max_tokens": 1},
                                  {"prompt": ["a", "b"]}, {"prompt": [[5, 6], [7]], "echo": True}, {"stop": "e", "logprobs": 1}])
def test_every_completion_has_the_published_form(server, more):
    body = {"prompt": "Question:", "temperature": 0, "max_tokens": 12, **more}
    validated(Completion, as_typed(server.post("/v1/completions", body).text))
    for event in stream_of(server, "/v1/completions", {**body, "stream_options": {"include_usage": True}}):
        validated(Completion, as_typed(event))


@pytest.mark.parametrize("method,path,body", [
    ("POST", "/v1/chat/completions", {}), ("POST", "/v1/completions", {"prompt": "a", "n": 0}), ("POST", "/v1/chat/completions", {"messages": MESSAGES, "tools": TOOLS}),
    ("POST", "/v1/completions", {"prompt": "a", "model": "other"}), ("GET", "/v1/completions", None), ("GET", "/v1/models/other", None),
    ("GET", "/nowhere", None), ("POST", "/v1/completions", [])])
def test_every_refusal_has_the_published_form(server, method, path, body):
    answer = httpx.request(method, server.url + path, json=body, timeout=served.PATIENCE)
    assert answer.status_code >= 400 and validated(ErrorObject, json.dumps(answer.json()["error"])).message
