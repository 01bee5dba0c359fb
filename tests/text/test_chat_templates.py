"""Chat templates against jinja2, set up as transformers sets it up (jinja_oracle.py). Texts are compared byte for byte."""

import collections
import json
import pathlib

import pytest

import jinja_conversations
import jinja_expressions
import jinja_oracle
import jinja_random

HERE = pathlib.Path(__file__).parent
TEMPLATES = sorted((HERE / "templates").glob("*.jinja"))
MODELS = sorted((HERE.parents[1] / "models").glob("*/chat_template.jinja"))
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def variables_of(case, special):
    messages, tools, extra, prompt = case
    return {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": prompt, **special, **extra}


def job_of(case, special):
    messages, tools, extra, prompt = case
    return {"messages": messages, "tools": tools, "add_generation_prompt": prompt, "variables": extra, **special}


def assert_same(differences):
    assert not differences, f"{len(differences)} differences, the first:\n" + "\n".join(differences[:5])


@pytest.mark.parametrize("path", TEMPLATES + MODELS, ids=lambda p: p.stem if p in TEMPLATES else p.parent.name)
def test_template_renders_as_jinja2(path):
    template = path.read_text(encoding="utf-8")
    cases = jinja_conversations.conversations()
    results = jinja_oracle.run_probe([{"template": template, **job_of(c, SPECIAL)} for c in cases])
    differences = jinja_oracle.compare([(template, variables_of(c, SPECIAL)) for c in cases], results)
    assert_same(differences)
    # A template that refuses everything would prove nothing.
    kinds = collections.Counter(kind for kind, _ in results)
    assert kinds["text"] >= len(cases) // 4, kinds


def test_every_family_has_a_template():
    assert len(TEMPLATES) == 18 and len(MODELS) == 3


def test_without_special_tokens():
    for path in TEMPLATES:
        template = path.read_text(encoding="utf-8")
        cases = jinja_conversations.conversations()[:8]
        results = jinja_oracle.run_probe([{"template": template, **job_of(c, {})} for c in cases])
        assert_same(jinja_oracle.compare([(template, variables_of(c, {})) for c in cases], results))


def test_expressions_and_statements():
    cases = jinja_expressions.cases()
    assert len(cases) > 1000
    results = jinja_oracle.run_probe([{"template": t, "variables": v} for t, v in cases])
    assert_same(jinja_oracle.compare(cases, results))


def test_random_templates():
    templates = jinja_random.expressions(20, 2000) + jinja_random.templates(21, 500)
    variables = jinja_random.VARIABLES
    results = jinja_oracle.run_probe([{"template": t, "variables": variables} for t in templates])
    differences = []
    both_text = 0
    for template, ours in zip(templates, results):
        reference = jinja_oracle.render(template, variables, jinja_oracle.UNFOLDED)
        if reference[0] == ours[0] == "error" or not jinja_random.is_comparable(reference, ours):
            continue
        both_text += reference == ours
        if reference != ours:
            differences.append(f"template: {template!r}\n  jinja2: {reference!r}\n  ours:   {ours!r}")
    assert_same(differences)
    assert both_text > 500


def write_model(folder, template=None, config=None):
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def run_model(folder, **job):
    messages = [{"role": "user", "content": "hi"}]
    return jinja_oracle.run_probe([{"model_dir": str(folder), "messages": messages, **job}])[0]


def test_loader_prefers_the_file(tmp_path):
    write_model(tmp_path, "file {{ bos_token }}", {"chat_template": "config", "bos_token": {"content": "<b>"}})
    assert run_model(tmp_path) == ("text", "file <b>")


def test_loader_reads_a_string_of_the_config(tmp_path):
    write_model(tmp_path, config={"chat_template": "{{ messages[0].content }}{{ eos_token }}", "eos_token": "</s>"})
    assert run_model(tmp_path) == ("text", "hi</s>")


def test_loader_picks_a_named_template(tmp_path):
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    write_model(tmp_path, config={"chat_template": named})
    assert run_model(tmp_path) == ("text", "plain")
    assert run_model(tmp_path, tools=[]) == ("text", "tools")
    write_model(tmp_path, config={"chat_template": named[:1]})
    assert run_model(tmp_path, tools=[]) == ("text", "plain")


def test_loader_says_what_is_wrong(tmp_path):
    assert run_model(tmp_path) == ("text", "no template")
    write_model(tmp_path, config={"chat_template": [{"name": "rag", "template": "x"}]})
    kind, message = run_model(tmp_path)
    assert kind == "error" and "tokenizer_config.json" in message and '"default"' in message
    write_model(tmp_path, template="line one\n{{ messages[0].content | shout }}")
    kind, message = run_model(tmp_path)
    assert kind == "error" and "chat_template.jinja line 2" in message and "'shout'" in message
