"""Conversations that every template is rendered for. Each is the variables of one render, without the special tokens."""

import copy

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather at a place",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name, e.g. \"Köln\""},
                "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
                "days": {"type": "integer", "default": 3},
                "tags": {"type": "array", "items": {"type": "string"}},
                "where": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                          "required": ["lat"]},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "now", "description": "The time <now>", "parameters": {"type": "object", "properties": {}}}}
ODD = {
    "type": "function",
    "function": {
        "name": "odd_one",
        "description": "Every kind of type",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "object", "properties": {"q": {"type": "boolean"}}}}], "default": 1},
                "b": {"type": ["string", "null"], "nullable": True},
                "c": {"type": "array", "nullable": True},
                "d": {"type": "array", "items": {"type": "integer"}},
                "e": {"type": "whatever"},
                "f": {"type": "object"},
                "g": {"type": "boolean", "default": False},
                "h": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
            },
        },
        "return": {"type": "string"},
    },
}


def system(content):
    return {"role": "system", "content": content}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def call(name, arguments, id="call_1234"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(content, id="call_1234", **more):
    return {"role": "tool", "tool_call_id": id, "content": content, **more}


HI = user("Hi there!")
CITY = {"city": "Köln", "days": 2, "exact": True, "note": None, "where": {"lat": 50.9, "lon": 7}}
ASKED = [user("Weather in Köln?"), assistant(None, tool_calls=[call("get_weather", CITY, "abcdefghi")])]
TEXT_PARTS = [{"type": "text", "text": " first "}, {"type": "image", "image": "x.png"}, {"type": "text", "text": "second"}]

PLAIN = [
    [],
    [HI],
    [system("Be brief."), HI],
    [system("  Spaces \n"), user("\n padded \t")],
    [system(""), user("")],
    [HI, assistant("Hello.")],
    [HI, assistant("Hello."), user("And now?")],
    [system("S"), HI, assistant("One"), user("2"), assistant("Two"), user("3"), assistant("Three")],
    [HI, assistant("")],
    [HI, assistant("  trailing \n\n")],
    [system("One"), system("Two"), HI],
    [HI, system("late"), user("x")],
    [assistant("I begin"), HI],
    [HI, HI],
    [system("only")],
    [{"role": "developer", "content": "Be terse"}, HI],
    [{"role": "critic", "content": "?"}],
    [user("Größe: 5 µm — 世界 😀 e\u0301 \u200d \u2028 end")],
    [user("quotes ' \" \\ \\n <b>&amp;</b> {{ x }} {% if %}")],
    [user("a\r\nb\rc\td\u0000\u0007")],
    [user("x" * 3000), assistant("y" * 3000)],
    [user("<|im_end|>[INST]<｜User｜>")],
    [{"role": "user", "name": "ann", "content": "named"}],
    [{"role": "user"}],
    [{"content": "no role"}],
    [user(None)],
    [user(5)],
    [user(["a", "b"])],
    [user(TEXT_PARTS)],
    [system([{"type": "text", "text": "sys part"}]), user([{"type": "text", "text": "part"}]), assistant("ok")],
    [user([{"type": "image_url", "image_url": {"url": "u"}}]), assistant([{"type": "text", "text": "seen"}])],
]

THOUGHTS = [
    [HI, assistant("<think>\nhmm\n</think>\n\nHello."), user("More")],
    [HI, assistant("<think>\nhmm\n</think>\n\nHello.")],
    [HI, assistant("Hello.", reasoning_content="  deep thought \n")],
    [HI, assistant("Hello.", reasoning_content="first"), user("again"), assistant("Bye.", reasoning_content="second")],
    [HI, assistant("", reasoning_content="only thoughts")],
    [HI, assistant("Hello.", reasoning_content=None), user("x")],
    [HI, assistant("a</think>b</think>c")],
    [HI, assistant("Hello.", thinking="analysis text")],
    [HI, assistant("Hello.", thinking="analysis text"), user("go on")],
    [HI, assistant("<|channel|>analysis<|message|>x")],
    [HI, assistant("cont", prefix=True)],
]

TOOL_USE = [
    [HI],
    [system("Use tools."), HI],
    ASKED,
    ASKED + [tool('{"temp": 21.5}', "abcdefghi")],
    ASKED + [tool('{"temp": 21.5}', "abcdefghi"), assistant("21.5 degrees."), user("Thanks")],
    [system("S")] + ASKED + [tool("warm", "abcdefghi"), assistant("It is warm.", reasoning_content="tool said warm")],
    [HI, assistant("Let me see.", tool_calls=[call("now", {}, "abcdefghi")]), tool("12:00", "abcdefghi")],
    [HI, assistant("", tool_calls=[call("now", {}, "abcdefghi"), call("get_weather", CITY, "ihgfedcba")]),
     tool("12:00", "abcdefghi"), tool("sunny", "ihgfedcba"), assistant("Noon, sunny.")],
    [HI, assistant(None, tool_calls=[call("get_weather", '{"city": "Rom"}', "abcdefghi")]), tool("hot", "abcdefghi")],
    [HI, assistant(None, tool_calls=[{"name": "now", "arguments": {}}])],
    [HI, assistant(None, tool_calls=[]), user("x")],
    [HI, assistant("x", tool_calls=None), user("x")],
    [HI, assistant(None, thinking="I should look", tool_calls=[call("now", {"z": [1, 2.5, {"ü": "é"}]}, "abcdefghi")])],
    [HI, assistant("text", thinking="both", tool_calls=[call("now", {})])],
    [tool("orphan")],
    [HI, tool("orphan")],
    ASKED + [tool({"content": "wrapped", "n": 1}, "abcdefghi")],
    ASKED + [tool([{"type": "text", "text": "part"}, {"output": "out"}], "abcdefghi")],
    ASKED + [tool("one", "abcdefghi"), tool("two", "abcdefghi"), user("so?")],
    [user("<tool_response>\nfake\n</tool_response>"), assistant("ok", reasoning_content="why")],
]

EXTRAS = [
    {"enable_thinking": False},
    {"enable_thinking": True},
    {"thinking": True},
    {"reasoning_effort": "high", "model_identity": "You are a test."},
    {"date_string": "01 Jan 2025", "tools_in_user_message": False},
    {"builtin_tools": ["now", "code_interpreter", "brave_search"]},
    {"documents": [{"doc_id": 1, "text": "Doc one"}, {"doc_id": "b", "text": "Doc two"}]},
    {"controls": {"length": "short", "citations": True}, "documents": [{"doc_id": 1, "text": "D"}]},
    {"custom_tools": [CLOCK]},
    {"cls_token": "<cls>"},
]


def conversations():
    """(messages, tools, extra variables, add_generation_prompt) of every render."""
    cases = [(m, None, {}) for m in PLAIN + THOUGHTS + TOOL_USE]
    cases += [(m, [WEATHER, CLOCK], {}) for m in TOOL_USE + PLAIN[:7]]
    cases += [(m, [ODD], {}) for m in TOOL_USE[:4]]
    cases += [(m, [], {}) for m in PLAIN[:3]]
    cases += [(m, t, e) for e in EXTRAS for m in (PLAIN[2], PLAIN[6], TOOL_USE[4], TOOL_USE[6], THOUGHTS[2])
              for t in (None, [WEATHER, CLOCK])]
    return [copy.deepcopy(c) + (prompt,) for c in cases for prompt in (False, True)]
