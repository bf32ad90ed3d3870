#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What clients may send, field by field: each does what it says, is refused by its name, or is named by the header
x-ignored-fields. The lists of what may come are the types of the official SDKs for Python.
"""
import json

from openai.types import responses as responses_types

from suite import Server, check, equal, finish, part, request

CHAT, TEXT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
TURN = [{"role": "user", "content": "Hi"}]
BASE = {CHAT: {"messages": TURN, "max_tokens": 1}, TEXT: {"prompt": "Hi", "max_tokens": 1},
        RESPONSES: {"input": "Hi", "max_output_tokens": 1, "store": False}, MESSAGES: {"messages": TURN, "max_tokens": 1}}
server = None


def post(path, **fields):
    """Status, headers and value of an answer to the smallest request with these fields."""
    status, headers, body = request(server.port, "POST", path, {**BASE[path], **fields})
    try:
        return status, headers, json.loads(body)
    except ValueError:
        return status, headers, body


def refusal(answer):
    """Status, field and sentence of an answer."""
    status, _, value = answer
    error = value.get("error") or {}
    return status, error.get("param") or "", error.get("message") or ""


def prompt_tokens(path, **fields):
    status, _, value = post(path, **fields)
    if status != 200:
        return None
    usage = value["usage"]
    return usage.get("prompt_tokens") or usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)


def names_of_tools():
    """A function is declared with a name, in the form of chat completions or that of Responses, or it is refused."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    flat = {"type": "function", "name": "weather", "parameters": schema}
    nested = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    custom = [{"type": "custom", "name": "patch"}, {"type": "custom", "custom": {"name": "patch"}}]
    counts = {}
    for path in (CHAT, RESPONSES):
        bare = prompt_tokens(path)
        counts[path] = [prompt_tokens(path, tools=[tool]) for tool in (flat, nested, *custom)]
        check(f"{path}: flat and nested are the same", counts[path][0] == counts[path][1] > bare, counts[path])
        check(f"{path}: custom tools too", counts[path][2] == counts[path][3] > bare, counts[path])
        for choice in ({"type": "function", "name": "weather"}, {"type": "function", "function": {"name": "weather"}}):
            status, _, value = post(path, tools=[flat], tool_choice=choice, max_tokens=400, temperature=0)
            found = "function_call" if path == RESPONSES else "tool_calls"
            check(f"{path}: {choice} is kept", status == 200 and f'"{found}"' in json.dumps(value), value)
        for tool, place in ([{"type": "function", "parameters": schema}, "name"], [{"type": "function"}, "name"],
                            [{"type": "function", "name": ""}, "name"], [{"type": "function", "name": 5}, "name"],
                            [{"type": "function", "function": {"parameters": schema}}, "function.name"],
                            [{"type": "function", "function": "weather"}, ""], [{"type": "function", "name": None}, "name"],
                            [{"type": "custom"}, "name"], [{"type": "custom", "custom": {}}, "custom.name"], [{}, ""],
                            [{"type": 5}, ""]):
            status, param, sentence = refusal(post(path, tools=[flat, tool]))
            check(f"{path}: {tool} is refused", status == 400 and param == "tools"
                  and "tools[1]" in sentence and place in sentence, (status, param, sentence))
    equal("both interfaces give the same prompt", counts[CHAT], counts[RESPONSES])
    known = {"name": "weather", "input_schema": schema}
    check("messages: a tool is in the prompt", prompt_tokens(MESSAGES, tools=[known]) > prompt_tokens(MESSAGES))
    for tool in ({"input_schema": schema}, {"type": "custom", "input_schema": schema}, {"type": "custom"}, {}, nested, flat,
                 {"type": "function"}, {"name": "", "input_schema": schema}, {"type": "bash_20250124"}, {"type": 5, "name": "x"}):
        status, _, sentence = refusal(post(MESSAGES, tools=[known, tool]))
        check(f"messages: {tool} is refused", status == 400 and "tools[1]" in sentence, (status, sentence))
    group = {"type": "namespace", "name": "g", "description": "d"}
    counts = [prompt_tokens(RESPONSES, tools=[{**group, "tools": inner}]) for inner in ([], [flat], [flat, custom[0]])]
    check("responses: all tools of a group are in the prompt", counts[0] < counts[1] < counts[2], counts)
    for tool in ({**group, "tools": [flat, {"type": "function"}]}, {**group, "tools": None}, {**group, "name": None, "tools": [flat]}):
        status, _, sentence = refusal(post(RESPONSES, tools=[tool]))
        check(f"responses: {tool} is refused", status == 400 and "tools[0]" in sentence, (status, sentence))
    for path, tool in ((RESPONSES, {"type": "web_search"}), (MESSAGES, {"type": "web_search_20250305", "name": "web_search"})):
        equal(f"{path}: a provider's own tool is no error", post(path, tools=[tool])[0], 200)


def response_says_again():
    """A response has all members of its published form, with what the request asked for."""
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    tools = [{"type": "function", "name": "f"}, {"type": "function", "name": "g", "strict": True, "parameters": schema},
             {"type": "function", "function": {"name": "h", "description": "d"}}, {"type": "custom", "name": "c"}]
    status, _, value = post(RESPONSES, tools=tools, presence_penalty=0.5, tool_choice="none",
                            text={"format": {"type": "json_schema", "name": "n", "schema": schema}})
    equal("again: an answer", status, 200)
    equal("again: penalties", (value["presence_penalty"], value["frequency_penalty"]), (0.5, 0))
    equal("again: functions", value["tools"][:3], [
        {"type": "function", "name": "f", "description": None, "parameters": None, "strict": None},
        {"type": "function", "name": "g", "description": None, "parameters": schema, "strict": True},
        {"type": "function", "name": "h", "description": "d", "parameters": None, "strict": None}])
    equal("again: a custom tool", value["tools"][3], tools[3])
    equal("again: the form", value["text"]["format"],
          {"type": "json_schema", "name": "n", "schema": schema, "description": None, "strict": None})
    required = [name for name, field in responses_types.Response.model_fields.items() if field.is_required()]
    equal("again: what the published type needs", [name for name in required if name not in value], [])


def biases():
    """Biases of tokens in the form of OpenAI and in that of llama-server."""
    def ids(**fields):
        status, _, value = post(TEXT, max_tokens=4, temperature=0, coppice={"token_ids": True}, **fields)
        return value["coppice"]["token_ids"][0] if status == 200 else (status, value)

    plain = ids()
    equal("bias: empty is nothing", [ids(logit_bias=b) for b in ([], {}, None)], [plain] * 3)
    other = 300 if plain[0] != 300 else 301
    equal("bias: an object", ids(logit_bias={str(other): 100}), [other] * 4)
    equal("bias: pairs", ids(logit_bias=[[other, 100]]), [other] * 4)
    equal("bias: of one token they add up", ids(logit_bias=[[other, 60], [other, 60], [plain[0], 10]]), [other] * 4)
    for bias in ([[plain[0], False]], {str(plain[0]): False}):
        got = ids(logit_bias=bias)
        check(f"bias: {bias} forbids", plain[0] not in got and len(got) == 4, got)
    word = json.loads(request(server.port, "POST", "/v1/detokenize", {"tokens": [other]})[2])["content"]
    named = json.loads(request(server.port, "POST", "/v1/tokenize", {"content": word})[2])["tokens"]
    check("bias: a text's tokens", set(ids(logit_bias=[[word, 100]])) <= set(named), (word, named))
    equal("bias: a text that is forbidden", set(named) & set(ids(logit_bias=[[word, 100], [word, False]])), set())
    shown = [post(TEXT, max_tokens=4, temperature=0, logit_bias=[["\ufffd", b], *more])[2]["choices"][0]["text"]
             for b, more in ((100, []), (False, [["\ufffd", 100]]))]
    check("bias: tokens that are shown as U+FFFD", "\ufffd" in shown[0] and "\ufffd" not in shown[1], shown)
    for bias in ("x" * 5000, ["x" * 5000, 1], [["x" * 5000, 1]], [["a b " * 2000, 1]]):
        check(f"bias: {str(bias)[:20]} is refused", post(TEXT, logit_bias=bias)[0] == 400)
    many = [[i, False] for i in range(1025)]
    check("bias: too many are refused", refusal(post(TEXT, logit_bias=many))[:2] == (400, "logit_bias"))


def told(path, stream=False, **fields):
    """Text, ids, why it ended, and the tokens that are counted, of an answer."""
    body = {**BASE[path], "temperature": 0, "coppice": {"token_ids": True}, "ignore_eos": True, "stream": stream, **fields}
    if path == RESPONSES:
        body["max_output_tokens"] = body.pop("max_tokens")
    if stream and path in (CHAT, TEXT):
        body["stream_options"] = {"include_usage": True}
    data = request(server.port, "POST", path, body)[2].decode()
    values = [json.loads(line[6:]) for line in data.split("\n") if line.startswith("data: {")] if stream else [json.loads(data)]
    text, found = "", {}
    for v in values:
        if path in (CHAT, TEXT):
            choice = (v.get("choices") or [{}])[0]
            text += choice.get("text") or (choice.get("delta") or choice.get("message") or {}).get("content") or ""
            found["end"] = choice.get("finish_reason") or found.get("end")
        elif path == MESSAGES:
            delta = v.get("delta") or {}
            text += delta.get("text", "") + "".join(block["text"] for block in v.get("content", []))
            found["end"] = v.get("stop_reason") or delta.get("stop_reason") or found.get("end")
        elif not stream or v["type"] in ("response.completed", "response.incomplete"):
            v = v.get("response", v)
            text += "".join(part["text"] for item in v["output"] for part in item["content"])
            found["end"] = v["status"]
        for key in ("coppice", "usage"):
            found[key] = v.get(key) or found.get(key)
    usage = found["usage"] or {}
    return text, found["coppice"]["token_ids"][0], found["end"], usage.get("completion_tokens", usage.get("output_tokens"))


def text_of(ids):
    return json.loads(request(server.port, "POST", "/v1/detokenize", {"tokens": ids})[2])["content"]


def ends():
    """Tokens that end an answer, and least lengths: everywhere the same, however tokens are guessed."""
    stopped = {CHAT: "stop", TEXT: "stop", RESPONSES: "completed", MESSAGES: "end_turn"}
    for path in (CHAT, TEXT, RESPONSES, MESSAGES):
        text, ids, _, n = told(path, max_tokens=24)
        at = next(i for i in range(5, 24) if ids.index(ids[i]) == i)
        before, with_it = text_of(ids[:at]), text_of(ids[:at + 1])
        rare = next(i for i in range(4000) if i not in ids)
        for stream in (False, True):
            for how in ("tree", "off"):
                base = {"max_tokens": 24, "stop_token_ids": [rare, ids[at]], "stream": stream,
                        "coppice": {"token_ids": True, "speculate": how}}
                where = f"ends: {path}, streamed {stream}, {how}"
                equal(where, told(path, **base), (before, ids[:at + 1], stopped[path], at + 1))
                equal(f"{where}, kept", told(path, include_stop_str_in_output=True, **base),
                      (with_it, ids[:at + 1], stopped[path], at + 1))
                late = told(path, min_tokens=at + 3, **base)
                check(f"{where}, not before", late[1][:at] == ids[:at] and ids[at] not in late[1][:at + 3]
                      and late[3] >= at + 3, late)
        word = before[-3:] or before
        short = told(path, max_tokens=24, stop=[word])
        kept = told(path, max_tokens=24, stop=[word], include_stop_str_in_output=True)
        check(f"ends: {path}, a string kept", kept[0] == short[0] + word and kept[1] == short[1], (kept, short))
        equal(f"ends: {path}, by another name", told(path, max_tokens=24, stop=[word], no_stop_trim=True), kept)
        late = told(path, max_tokens=24, stop=[word], min_tokens=24)
        equal(f"ends: {path}, a string does not count before", late[:2], (text, ids))
        equal(f"ends: {path}, nothing", told(path, max_tokens=24, stop_token_ids=[], min_tokens=0), (text, ids, *told(path, max_tokens=24)[2:]))
        for wrong in ({"stop_token_ids": [-1]}, {"stop_token_ids": ["a"]}, {"stop_token_ids": 5}, {"stop_token_ids": [10 ** 9]},
                      {"stop_token_ids": [1] * 1025}, {"min_tokens": -1}, {"min_tokens": "a"}, {"min_tokens": 5, "max_tokens": 4},
                      {"include_stop_str_in_output": "yes"}):
            status, _, value = post(path, **({"max_output_tokens": 4, "min_tokens": 5} if len(wrong) == 2 and path == RESPONSES else wrong))
            check(f"ends: {path}, {str(wrong)[:40]} is refused", status == 400 and next(iter(wrong)) in value["error"]["message"], value)
    last = int(json.loads(request(server.port, "POST", "/v1/tokenize", {"content": "<|im_end|>"})[2])["tokens"][0])
    for how in ("tree", "off"):
        got = [told(TEXT, max_tokens=9, ignore_eos=False, logit_bias={str(last): 100}, coppice={"token_ids": True, "speculate": how},
                    **more)[1] for more in ({}, {"min_tokens": 4}, {"min_tokens": 4, "guided_choice": ["a", "bcd"]})]
        check(f"ends: the model's own end, {how}", len(got[0]) == 1 and len(got[1]) == 5 and got[1][4] == last, got)
        check(f"ends: a form that is complete goes before, {how}", got[2][-1] == last and text_of(got[2][:-1]) in ("a", "bcd"), got)


PARTS = [names_of_tools, response_says_again, biases, ends]

if __name__ == "__main__":
    server = Server("--temp", "0")
    for one in PARTS:
        part(one)
    equal("the server ends in order", server.end(), 0)
    finish()
