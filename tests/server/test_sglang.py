"""The endpoints beside OpenAI's: SGLang's, and those that tell about text, load and the server."""

import json
import xml.etree.ElementTree as ElementTree

import httpx
import jinja2
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from safetensors.numpy import load_file
from tokenizers import Tokenizer

import served

GREEDY = {"temperature": 0, "max_new_tokens": 120}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(served.MODEL / "tokenizer.json"))


def generate(server, **more):
    answer = server.post("/generate", {"text": served.PROMPT, "sampling_params": GREEDY, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_generate(server, tokenizer):
    answer = generate(server)
    assert answer["text"].endswith("#### 24")
    info = answer["meta_info"]
    assert info["finish_reason"] == {"type": "stop", "matched": "\n\n"}
    assert info["prompt_tokens"] == len(tokenizer.encode(served.PROMPT).ids) and info["completion_tokens"] == len(answer["output_ids"])
    assert tokenizer.decode(answer["output_ids"]).startswith(answer["text"])
    cut = generate(server, sampling_params={**GREEDY, "max_new_tokens": 3})
    assert cut["meta_info"]["finish_reason"] == {"type": "length", "length": 3} and len(cut["output_ids"]) == 3


def test_generate_takes_ids_and_lists(server, tokenizer):
    ids = tokenizer.encode(served.PROMPT).ids
    text = generate(server)["text"]
    assert generate(server, text=None, input_ids=ids)["text"] == text
    assert [answer["text"] for answer in generate(server, text=None, input_ids=[ids, ids])] == [text, text]
    assert [answer["text"] for answer in generate(server, text=[served.PROMPT])] == [text]
    assert [answer["index"] for answer in generate(server, sampling_params={**GREEDY, "n": 2})] == [0, 1]


def test_a_stream_of_generate_has_the_whole_text_so_far(server):
    body = {"text": served.PROMPT, "sampling_params": GREEDY, "stream": True, "return_logprob": True}
    with httpx.stream("POST", server.url + "/generate", json=body, timeout=served.PATIENCE) as answer:
        events = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert events.pop() == "[DONE]"
    parts = [json.loads(event) for event in events]
    for before, after in zip(parts, parts[1:]):
        assert after["text"].startswith(before["text"])
        assert after["output_ids"][:len(before["output_ids"])] == before["output_ids"]
    whole = generate(server, return_logprob=True)
    assert parts[-1]["text"] == whole["text"] and parts[-1]["meta_info"]["finish_reason"] == whole["meta_info"]["finish_reason"]
    assert parts[-1]["meta_info"]["output_token_logprobs"] == whole["meta_info"]["output_token_logprobs"]


def test_log_probabilities_of_generate(server):
    reference = load_file(served.MODEL / "reference.safetensors")
    ids = reference["prompt1.input_ids"].tolist()
    info = generate(server, text=None, input_ids=ids, return_logprob=True, logprob_start_len=0, top_logprobs_num=2,
                    sampling_params={"temperature": 0, "max_new_tokens": 4})["meta_info"]
    assert [entry[1] for entry in info["input_token_logprobs"]] == ids and info["input_token_logprobs"][0][0] is None
    values = [entry[0] for entry in info["input_token_logprobs"][1:]]
    np.testing.assert_allclose(values, reference["prompt1.logprob_of_next"], atol=2e-2)
    greedy = [entry[1] for entry in info["output_token_logprobs"]]
    assert greedy == reference["prompt1.greedy"][:4].tolist()
    assert [top[0][1] for top in info["output_top_logprobs"]] == greedy
    assert len(info["input_top_logprobs"]) == len(ids) and info["input_top_logprobs"][0] is None


def test_tokens_are_those_of_the_tokenizers_package(server, tokenizer):
    for text in ("", "Hello 12,345!", "naïve 日本語 🙂\n\n", "<|im_start|>user"):
        answer = server.post("/tokenize", {"prompt": text, "return_token_strs": True}).json()
        assert answer["tokens"] == tokenizer.encode(text).ids and answer["count"] == len(answer["tokens"])
        assert answer["token_strs"] == [tokenizer.id_to_token(i) for i in answer["tokens"]]
        back = server.post("/detokenize", {"tokens": answer["tokens"], "skip_special_tokens": False}).json()
        assert back["text"] == back["prompt"] == text


def test_the_template_is_rendered_as_jinja2_renders_it(server, tokenizer):
    messages = [{"role": "user", "content": " one "}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}]
    template = jinja2.Environment().from_string((served.MODEL / "chat_template.jinja").read_text())
    expected = template.render(messages=messages, add_generation_prompt=True)
    assert server.post("/apply-template", {"messages": messages}).json() == {"prompt": expected}
    assert server.post("/tokenize", {"messages": messages}).json()["tokens"] == tokenizer.encode(expected).ids


def test_what_the_server_tells_of_itself(server):
    assert server.get("/health").status_code == 200 and server.get("/ready").status_code == 200
    assert server.get("/health_generate").status_code == 200
    assert set(server.get("/version").json()) == {"version"}
    model = server.get("/get_model_info").json()
    assert model["model_path"] == str(served.MODEL) and model["is_generation"] is True and model["max_model_len"] == 4096
    info = server.get("/server_info").json()
    assert info == {**server.get("/get_server_info").json(), "uptime_seconds": info["uptime_seconds"], "engine": info["engine"]}
    table = info["runners"]
    assert len(table) == 1 and table[0]["first_layer"] == 0 and table[0]["recipe"] == info["recipe"] == "bf16"
    assert table[0]["chosen"] == info["runner"] == "cpu"
    assert {entry["runner"]: entry["ok"] for entry in table[0]["candidates"]}.items() >= {"cpu": True, "reference": True}.items()


def test_metrics_are_prometheus_text_and_count(server):
    def families():
        return {family.name: family for family in text_string_to_metric_families(server.get("/metrics").text)}
    server.wait_idle()
    before, tokens = families(), generate(server)["meta_info"]["completion_tokens"]
    server.wait_idle()  # the engine learns of a stop string after the client
    after = families()

    def grown(name, sample):
        values = [sum(s.value for s in f[name].samples if s.name == sample) for f in (before, after)]
        return values[1] - values[0]
    assert grown("sluice:generation_tokens", "sluice:generation_tokens_total") == tokens
    assert grown("sluice:time_to_first_token_seconds", "sluice:time_to_first_token_seconds_count") == 1
    assert grown("sluice:inter_token_latency_seconds", "sluice:inter_token_latency_seconds_count") == tokens - 1
    assert grown("sluice:e2e_request_latency_seconds", "sluice:e2e_request_latency_seconds_count") == 1
    assert grown("sluice:num_requests", "sluice:num_requests_total") == 1
    for name in ("time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds"):
        buckets = [s.value for s in after["sluice:" + name].samples if s.name.endswith("_bucket")]
        assert buckets == sorted(buckets)
    assert after["sluice:num_running_reqs"].samples[0].value == 0


def test_the_load_of_experts_is_counted(server):
    server.wait_idle()
    before = server.get("/expert_load").json()
    generate(server)
    server.wait_idle()
    after = server.get("/expert_load").json()
    tokens = after["tokens"] - before["tokens"]
    assert tokens > 0 and [layer["layer"] for layer in after["layers"]] == [0, 1, 2, 3]
    for old, new in zip(before["layers"], after["layers"]):
        assert len(new["choices"]) == 16 and sum(new["choices"]) - sum(old["choices"]) == 4 * tokens  # top-4
        assert new["imbalance"] == pytest.approx(max(new["choices"]) * 16 / sum(new["choices"]))
    for path in ("/expert_load.svg", "/expert_load?format=svg"):
        picture = server.get(path)
        assert picture.headers["content-type"] == "image/svg+xml"
        root = ElementTree.fromstring(picture.text)
        for text in (e for e in root.iter() if e.tag.endswith("text") and e.get("text-anchor") != "end"):
            assert float(text.get("x")) + 6 * len(text.text) <= float(root.get("width")), text.text  # letters of about 6 pixels
        titles = [e.text for e in root.iter() if e.tag.endswith("title")]
        assert f"layer 0, expert 0: {after['layers'][0]['choices'][0]}" in titles and len(titles) == 64


def test_the_prefix_cache_is_told_and_can_be_flushed(server):
    prompt = {"text": "A prefix of its own. " * 20 + served.PROMPT}
    assert server.post("/flush_cache", {}).status_code == 200
    first, second = (generate(server, **prompt) for _ in range(2))
    assert first["meta_info"]["cached_tokens"] == 0 < second["meta_info"]["cached_tokens"] < second["meta_info"]["prompt_tokens"]
    assert first["output_ids"] == second["output_ids"]
    server.post("/flush_cache", {})
    assert generate(server, **prompt)["meta_info"]["cached_tokens"] == 0


def test_a_request_can_be_aborted_by_its_id(endless):
    assert endless.post("/abort_request", {"rid": "nobody"}).status_code == 404
    body = {"text": "Question:", "rid": "mine", "stream": True, "sampling_params": {"max_new_tokens": served.ENDLESS, "ignore_eos": True}}
    with httpx.stream("POST", endless.url + "/generate", json=body, timeout=served.PATIENCE) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        assert endless.post("/abort_request", {"rid": "mine"}).status_code == 200
        rest = [line for line in lines if line]
    reason = json.loads(rest[-2].removeprefix("data: "))["meta_info"]["finish_reason"]
    assert reason["type"] == "abort" and rest[-1] == "data: [DONE]"
    endless.wait_idle()


def test_log_probabilities_may_begin_in_the_middle_of_the_prompt(server, tokenizer):
    ids = tokenizer.encode(served.PROMPT).ids

    def info(start, **more):
        return generate(server, return_logprob=True, logprob_start_len=start, top_logprobs_num=1, return_text_in_logprobs=True,
                        sampling_params={"temperature": 0, "max_new_tokens": 3}, **more)["meta_info"]
    whole, part, none = info(0), info(10), info(-1)
    assert [entry[1] for entry in part["input_token_logprobs"]] == ids[10:] and part["input_token_logprobs"][0][0] is None
    assert part["input_token_logprobs"][1:] == whole["input_token_logprobs"][11:]
    assert part["input_top_logprobs"] == [None] + whole["input_top_logprobs"][11:]
    assert none["input_token_logprobs"] == none["input_top_logprobs"] == []
    assert served.PROMPT == "".join(entry[2] for entry in whole["input_token_logprobs"])
    for entries in (part["output_token_logprobs"], part["output_top_logprobs"][0], part["input_token_logprobs"]):
        assert [entry[2] for entry in entries] == [tokenizer.decode([entry[1]], skip_special_tokens=False) for entry in entries]
    assert len(info(len(ids) - 1)["input_token_logprobs"]) == 1
    behind = server.post("/generate", {"text": served.PROMPT, "return_logprob": True, "logprob_start_len": len(ids)})
    assert behind.status_code == 400 and behind.json()["error"]["param"] == "logprob_start_len"
    plain = generate(server, return_logprob=True, sampling_params={"max_new_tokens": 1})["meta_info"]
    assert plain["output_token_logprobs"][0][2] is None


def test_every_prompt_of_a_list_may_have_parameters_of_its_own(server):
    whole = generate(server)["text"]
    params = [{"temperature": 0, "max_new_tokens": 2}, {**GREEDY, "stop": "="}, {**GREEDY, "stop": "=", "no_stop_trim": True},
              {**GREEDY, "min_new_tokens": 30, "stop": "="}]
    answers = generate(server, text=[served.PROMPT] * 4, sampling_params=params)
    assert answers[0]["meta_info"]["finish_reason"] == {"type": "length", "length": 2}
    assert answers[1]["text"] == whole.split("=")[0] and answers[2]["text"] == answers[1]["text"] + "="
    assert len(answers[3]["output_ids"]) >= 30
    for bad in (params, [{"n": 1}, {"n": 2}], [{}, {"temperature": -1}], [{}, 5]):
        answer = server.post("/generate", {"text": ["a", "b"], "sampling_params": bad})
        assert answer.status_code == 400 and answer.json()["error"]["param"].startswith("sampling_params"), answer.text
    assert server.post("/generate", {"text": ["a", "b"], "sampling_params": [{}, {"temperature": -1}]}).json()["error"]["param"] \
        == "sampling_params[1].temperature"
    assert server.post("/generate", {"text": "a", "sampling_params": [{}]}).status_code == 400


def test_what_generate_refuses(server, tokenizer):
    ids = tokenizer.encode("Question:").ids
    for body, param in (({"text": "a", "input_ids": ids}, "input_ids"), ({"input_ids": [[0]] * 1025}, "input_ids"), ({"text": "a", "token_ids_logprob": [1]}, "token_ids_logprob"),
                        ({"text": "a", "sampling_params": {"max_tokens": 5}}, "sampling_params.max_tokens"),
                        ({"text": "a", "sampling_params": "x"}, "sampling_params"), ({"text": "a", "rid": ["x"]}, "rid"),
                        ({"text": "a", "sampling_params": {"stop_regex": "a+"}}, "sampling_params.stop_regex"),
                        ({"text": "a", "session_params": {"id": "s"}}, "session_params"), ({}, "text"),
                        ({"text": "a", "tools": [{"type": "function"}]}, "tools"),
                        ({"text": "a", "sampling_params": {"json_schema": {}}}, "sampling_params.json_schema")):
        answer = server.post("/generate", body)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == param, answer.text


def test_seeds_and_salts_have_sglangs_names_too(server):
    def sample(**more):
        return generate(server, text="Question:", sampling_params={"temperature": 1.5, "max_new_tokens": 24, **more})["output_ids"]
    assert sample(sampling_seed=3) == sample(seed=3) == sample(sampling_seed=3) != sample(seed=4)
    prompt = {"text": "A prefix that has a salt. " * 20}
    assert generate(server, **prompt, extra_key="one")["meta_info"]["cached_tokens"] == 0
    assert generate(server, **prompt, extra_key="two")["meta_info"]["cached_tokens"] == 0
    assert generate(server, **prompt, extra_key="two")["meta_info"]["cached_tokens"] > 0
    assert generate(server, **prompt, cache_salt="t", extra_key="wo")["meta_info"]["cached_tokens"] == 0


def test_the_cache_is_flushed_by_get_too(server):
    prompt = {"text": "Another prefix of its own. " * 20}
    generate(server, **prompt)
    assert server.get("/flush_cache").status_code == 200
    assert generate(server, **prompt)["meta_info"]["cached_tokens"] == 0


def test_the_length_that_is_told_is_the_one_that_fits(tmp_path):
    with served.serving(tmp_path / "log", "--max-total-tokens", "256") as small:
        told = small.get("/v1/models").json()["data"][0]["max_model_len"]
        assert told == 256 == small.get("/get_model_info").json()["max_model_len"]
        assert small.post("/v1/completions", {"prompt": [5] * (told - 1), "max_tokens": 1}).status_code == 200
        for prompt in ([5] * told, "word " * 2000):
            answer = small.post("/v1/completions", {"prompt": prompt, "max_tokens": 1})
            assert answer.status_code == 400 and "256 tokens" in answer.json()["error"]["message"]
