"""Fields of requests, of OpenAI's and of other servers', that this one does not serve: refused by name, or taken where they ask for nothing."""

import pytest

from served import MESSAGES, TOOLS

IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]
UNSUPPORTED = [
    ({"tools": TOOLS}, "tools"),
    ({"tools": TOOLS, "tool_choice": "auto"}, "tools"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}}}, "response_format"),
    ({"guided_json": {"type": "object"}}, "guided_json"),
    ({"guided_regex": "a"}, "guided_regex"),
    ({"messages": IMAGE}, "messages[0]"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"audio": {"voice": "v", "format": "wav"}}, "audio"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
    ({"tools": [], "tool_choice": "any"}, "tool_choice"),
    ({"function_call": {"name": "f"}}, "function_call"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0]"),
    ({"echo": True}, "echo"),
    ({"include_reasoning": False}, "include_reasoning"),
    ({"verbosity": "low"}, "verbosity"),
    ({"stream": True, "stream_options": 5}, "stream_options"),
    ({"stream": True, "stream_options": {"include_usage": 5}}, "stream_options.include_usage"),
    *(({name: value}, name) for name, value in [
        ("chat_template", "x"), ("documents", [{"text": "x"}]), ("allowed_token_ids", [5]), ("bad_words", ["x"]), ("guided_choice", ["x"]),
        ("guided_grammar", "x"), ("structured_outputs", {"json": {}}), ("json_schema", "{}"), ("regex", "x"), ("ebnf", "x"), ("grammar", "x"),
        ("logits_processors", ["x"]), ("custom_logit_processor", "x"), ("truncate_prompt_tokens", 5), ("prompt_logprobs", 0),
        ("return_token_ids", True), ("return_tokens_as_token_ids", True), ("return_hidden_states", True), ("use_beam_search", True),
        ("length_penalty", 0.5), ("typical_p", 0.5), ("mirostat", 2), ("dry_multiplier", 0.8), ("xtc_probability", 0.1),
        ("repeat_penalty", 1.1), ("n_predict", 5), ("thinking_budget", 5), ("mm_processor_kwargs", {"x": 1}), ("prediction", {"type": "content"}),
        ("web_search_options", {"x": 1}), ("lora_path", "x"), ("session_params", {"id": "x"}), ("kv_transfer_params", {"x": 1}),
        ("stop_regex", "x"), ("continue_final_message", True), ("best_of", 2),
        # Nothing in it, and yet asked for: any JSON, a search.
        ("guided_json", {}), ("json_schema", {}), ("web_search_options", {})]),
    ({"messages": [{"role": "assistant", "content": "x", "audio": {"id": "a"}}, *MESSAGES]}, "messages[0]"),
]


@pytest.mark.parametrize("more,param", UNSUPPORTED)
def test_what_is_not_supported_is_refused_by_name(server, more, param):
    answer = server.post("/v1/chat/completions", {"messages": MESSAGES, **more})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param and len(answer.json()["error"]["message"]) > 20


@pytest.mark.parametrize("more,param", [({"best_of": 3}, "best_of"), ({"suffix": "x"}, "suffix"), ({"lora_path": "x"}, "lora_path"),
                                        ({"tools": TOOLS}, "tools"), ({"functions": [{"name": "f"}]}, "functions")])
def test_completions_refuse_by_name(server, more, param):
    answer = server.post("/v1/completions", {"prompt": "x", **more})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param


@pytest.mark.parametrize("more", [{"tools": [], "response_format": {"type": "text"}}, {"tools": TOOLS, "tool_choice": "none"},
                                  {"stop": None, "n": None, "logit_bias": None, "user": "u", "store": False, "metadata": {}},
                                  {"tool_choice": "auto"}, {"tool_choice": None, "function_call": "none"},
                                  {"typical_p": 1, "mirostat": 0, "length_penalty": 1.0, "repeat_penalty": 1, "truncate_prompt_tokens": -1,
                                   "allowed_token_ids": [], "guided_json": None, "grammar": "", "suffix": "", "best_of": 1, "use_beam_search": False, "documents": None},
                                  {"service_tier": "auto", "prompt_cache_key": "k", "parallel_tool_calls": True, "safety_identifier": "s",
                                   "spaces_between_special_tokens": True, "some_field_of_tomorrow": 5}])
def test_fields_that_ask_for_nothing_are_taken(server, more):
    answer = server.post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1, **more})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", ["/apply-template", "/tokenize"])
def test_a_template_of_ones_own_or_tools_would_give_another_prompt(server, path):
    for more, param in (({"chat_template": "x"}, "chat_template"), ({"tools": TOOLS}, "tools")):
        answer = server.post(path, {"messages": MESSAGES, **more})
        assert answer.status_code == 400 and answer.json()["error"]["param"] == param
