#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What clients may send, field by field: each does what it says, is refused by its name, or is named by the header
x-ignored-fields. The lists of what may come are the types of the official SDKs for Python.
"""
import functools
import http.client
import json
import os
import re
import tempfile

import anthropic
import pydantic
from anthropic.types.beta import message_create_params as messages_types
from openai.types import Completion
from openai.types import completion_create_params as completion_types
from openai.types import responses as responses_types
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat import completion_create_params as chat_types
from openai.types.responses import response_create_params as response_types

import sdk_types
from cut import first_layers
from suite import ROOT, TARGET, Server, check, equal, finish, part, request

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


# The types whose members clients send, and where they send them.
ROOTS = {CHAT: chat_types.CompletionCreateParamsStreaming, TEXT: completion_types.CompletionCreateParamsStreaming,
         RESPONSES: response_types.ResponseCreateParamsStreaming, MESSAGES: messages_types.MessageCreateParamsStreaming}
# Results need the call that they are of.
CALLED = {(CHAT, "messages"): [*TURN, {"role": "assistant", "tool_calls": [
              {"id": "x", "type": "function", "function": {"name": "x", "arguments": "{}"}}]}],
          (MESSAGES, "messages"): [*TURN, {"role": "assistant", "content": [
              {"type": "tool_use", "id": "x", "name": "x", "input": {}}]}],
          (RESPONSES, "input"): [*TURN, {"type": "function_call", "call_id": "x", "name": "x", "arguments": "{}"}]}


def known_effects():
    """sdk_fields.txt: for each interface and each type, the members that are read, and do what they say."""
    found, path = {}, None
    with open(os.path.join(ROOT, "tests/server/sdk_fields.txt"), encoding="utf-8") as file:
        for line in file:
            if line.startswith("/"):
                path = line.strip()
            elif line.strip() and not line.startswith("#"):
                kind, _, names = line.partition(":")
                found[path, kind.strip()] = set(names.split())
    return found


def every_member():
    """Each member of the SDKs' types, sent alone: read, refused by its name or its place, or named by the header."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    effects, told = known_effects(), {"read": 0, "refused": 0, "named": 0}
    for path, root in ROOTS.items():
        silent = []
        for field, kind, _ in sdk_types.members(root):
            for where, value in sdk_types.values(kind):
                before = CALLED.get((path, field), [])
                body = {**BASE[path], field: before + value if before and isinstance(value, list) else value}
                if field == "stream":
                    continue
                connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
                answer = connection.getresponse()
                text, header = answer.read().decode(), answer.getheader("x-ignored-fields") or ""
                inner = re.search(r"\(([^()]*)\)\.([^().]+)$", field + where)
                owner, name = inner.groups() if inner else ("request", field)
                place = re.compile(rf"\b{field}(\[\d+\])*\b" if inner else rf"\b{field}\b")
                if answer.status == 400 and (re.search(rf"\b{re.escape(name)}\b", text) or place.search(text)):
                    told["refused"] += 1
                elif answer.status == 200 and place.search(header):
                    told["named"] += 1
                elif answer.status == 200 and name in effects.get((path, owner), ()):
                    told["read"] += 1
                else:
                    silent.append(f"{field}{where}: {answer.status}, {header or 'no header'}, {text[:150] if answer.status != 200 else ''}")
        check(f"{path}: every member of {root.__name__} is read, refused or named (a new one belongs into a table of "
              "src/serve/request/body.c, or with what it does into tests/server/sdk_fields.txt)", not silent, silent[:40])
    check("every member: as many as ever", told["read"] > 500 and told["refused"] > 200 and told["named"] > 800, told)


def ignored(path, where="", **fields):
    """What the header of an answer names; None where it is refused."""
    status, headers, _ = request(server.port, "POST", where or path, {**BASE[path], **fields})
    return headers.get("x-ignored-fields", "") if status == 200 else None


def names():
    """The header names what did nothing, in all depths, and nothing else."""
    for path in (CHAT, TEXT, RESPONSES, MESSAGES):
        equal(f"names: {path}, nothing", ignored(path), "")
        equal(f"names: {path}, null is nothing", ignored(path, made_up=None, user=None, bad_words=None), "")
        equal(f"names: {path}, unknown", ignored(path, made_up=[1, {"x": 2}]), "made_up")
        equal(f"names: {path}, streamed", ignored(path, made_up=1, stream=True), "made_up")
        equal(f"names: {path}, letters of a header", ignored(path, **{"a\r\nSet-Cookie: b\u00e9": 1}), "a??Set-Cookie??b??")
        many = ignored(path, **{f"unknown_{i}": 1 for i in range(500)})
        check(f"names: {path}, no more than a header holds", 900 < len(many) <= 1024 and many.endswith(", ..."), many[-40:])
    chat = [{"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}, "odd": 1}], "odd": {}},
            {"role": "assistant", "content": "Hm", "odd": 1}, {"role": "user", "content": "Well?"}]
    equal("names: of a message", ignored(CHAT, messages=chat),
          "messages[0].content[0].cache_control, messages[0].content[0].odd, messages[0].odd, messages[1].odd")
    equal("names: neutral values", ignored(CHAT, service_tier="auto", store=False, metadata={}, verbosity="medium",
                                           stream_options={"include_obfuscation": False}), "")
    equal("names: others", ignored(CHAT, service_tier="flex", store=True, stream_options={"include_obfuscation": True}, stream=True),
          "service_tier, store, stream_options.include_obfuscation")
    equal("names: of Responses", ignored(RESPONSES, include=["file_search_call.results"], truncation="auto",
                                         tools=[{"type": "web_search"}], text={"verbosity": "low"},
                                         input=[{"type": "compaction", "encrypted_content": "x"}, *TURN]),
          "include[0], input[0], truncation, tools[0], text.verbosity")
    turns = [{"role": "user", "content": [{"type": "text", "text": "Hi", "citations": [{"type": "x"}]}]},
             {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "sealed elsewhere"}, {"type": "text", "text": "Hm"}]},
             {"role": "user", "content": "Well?"}]
    equal("names: of Messages", ignored(MESSAGES, messages=turns, tools=[{"type": "web_search_20250305", "name": "web_search"}]),
          "messages[0].content[0].citations, messages[1].content[0].data, tools[0]")
    equal("names: counts", ignored(MESSAGES, "/v1/messages/count_tokens", made_up=1, mirostat=2), "max_tokens, made_up, mirostat")
    equal("names: a template", ignored(CHAT, "/apply-template", made_up=1), "max_tokens, made_up")


def other_interfaces():
    """A field of another interface is refused where an answer without it would be another."""
    form = {"type": "json_object"}
    for path, fields in ((RESPONSES, {"response_format": form, "n": 2, "messages": TURN, "max_completion_tokens": 5, "system": "x"}),
                         (MESSAGES, {"response_format": form, "n": 2, "instructions": "x", "max_output_tokens": 5, "logprobs": True}),
                         (CHAT, {"system": "x", "instructions": "x", "input": "x", "prompt": "x", "echo": True, "best_of": 2}),
                         (TEXT, {"messages": TURN, "input": "x", "functions": [{"name": "f"}]})):
        for name, value in fields.items():
            status, _, sentence = refusal(post(path, **{name: value}))
            check(f"of another interface: {path} {name}", status == 400 and name in sentence, (status, sentence))
    equal("of another interface: one answer is one answer", ignored(RESPONSES, n=1, best_of=1, echo=False), "")
    equal("within others: this server's own", ignored(CHAT, coppice={"token_ids": True, "odd": 1}), "coppice.odd")
    equal("within others: log-probabilities that are not requested", ignored(RESPONSES, top_logprobs=2), "top_logprobs")
    equal("within others: chances", ignored(RESPONSES, top_logprobs=2, include=["message.output_text.logprobs"]), "")
    status, param, _ = refusal(post(CHAT, structured_outputs={"regex": "a", "whitespace_pattern": " "}))
    equal("within others: vLLM's forms", (status, param), (400, "structured_outputs.whitespace_pattern"))


def others():
    """Fields of other servers: refused by their name, unless they say what happens anyway."""
    refused = {"use_beam_search": True, "length_penalty": 1.5, "skip_special_tokens": False, "bad_words": ["a"],
               "allowed_token_ids": [1], "prompt_logprobs": 0, "truncate_prompt_tokens": 5, "chat_template": "x", "typical_p": 0.5,
               "mirostat": 2, "dry_multiplier": 0.8, "xtc_probability": 0.1, "dynatemp_range": 0.5, "top_n_sigma": 1.0, "n_probs": 3,
               "samplers": ["top_k"], "lora": [{"id": 0, "scale": 1}], "regex": "a+", "ebnf": "root ::= x", "do_sample": False,
               "options": {"num_ctx": 5}, "think": True, "num_beams": 4, "cache_salt": "x", "n_keep": 4, "t_max_predict_ms": 5,
               "return_hidden_states": True, "provider": {"order": ["x"]}, "n_cmpl": 2, "id_slot": 0, "logits_processors": ["x"]}
    neutral = {"use_beam_search": False, "length_penalty": 1, "skip_special_tokens": True, "bad_words": [], "typical_p": 1.0,
               "mirostat": 0, "mirostat_tau": 5, "dry_multiplier": 0, "dry_base": 1.75, "xtc_probability": 0.0, "xtc_threshold": 0.1,
               "dynatemp_range": 0, "dynatemp_exponent": 1, "top_n_sigma": -1, "n_probs": 0, "samplers": [], "lora": [], "do_sample": True,
               "options": {}, "num_beams": 1, "n_keep": 0, "t_max_predict_ms": -1, "n_cmpl": 1, "id_slot": -1, "cache_prompt": True}
    for path in (CHAT, TEXT, RESPONSES, MESSAGES):
        for name, value in refused.items():
            status, param, sentence = refusal(post(path, **{name: value}))
            check(f"others: {path} {name}", status == 400 and name in sentence and (path == MESSAGES or param == name),
                  (status, param, sentence))
            equal(f"others: {path} {name}: null", ignored(path, **{name: None}), "")
        equal(f"others: {path}, as by default", ignored(path, **neutral), "")
        equal(f"others: {path}, without effect", ignored(path, cache_prompt=False, priority=3, rid="x"), "cache_prompt, priority, rid")


def places():
    """Parts and items at their places: what they say is in the prompt, or they are refused there."""
    declined = [*TURN, {"role": "assistant", "content": None, "refusal": "I would rather not say anything about that."}, *TURN]
    silent = [*TURN, {"role": "assistant", "content": ""}, *TURN]
    check("places: a refusal", prompt_tokens(CHAT, messages=declined) > prompt_tokens(CHAT, messages=silent) + 5)
    ran = {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "container_id": "c", "code": "print('a very long word')",
           "outputs": [{"type": "logs", "logs": "first second third fourth fifth"}]}
    counts = [prompt_tokens(RESPONSES, input=[*TURN, {**ran, **less}, *TURN]) for less in ({}, {"outputs": []}, {"code": ""})]
    check("places: all that a call of an unknown kind says", counts[0] > counts[1] + 4 and counts[0] > counts[2] + 4, counts)
    failed = {"type": "apply_patch_call_output", "call_id": "x", "output": "no", "status": "failed"}
    call = {"type": "apply_patch_call", "call_id": "x", "status": "completed", "operation": {"type": "delete_file", "path": "a"}}
    counts = [prompt_tokens(RESPONSES, input=[*TURN, call, {**failed, "status": status}]) for status in ("failed", "completed")]
    check("places: that it failed", counts[0] > counts[1], counts)
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}
    counts = [prompt_tokens(MESSAGES, messages=[{"role": "user", "content": [{**document, **more}]}])
              for more in ({}, {"context": "It was written by somebody else."})]
    check("places: the context of a document", counts[1] > counts[0] + 4, counts)
    for role, block in (("user", {"type": "thinking", "thinking": "x", "signature": "x"}), ("user", {"type": "redacted_thinking", "data": "x"}),
                        ("user", {"type": "tool_use", "id": "x", "name": "x", "input": {}}),
                        ("assistant", {"type": "tool_result", "tool_use_id": "x", "content": "x"})):
        status, _, sentence = refusal(post(MESSAGES, messages=[*TURN, {"role": role, "content": [block]}]))
        check(f"places: {block['type']} of the {role}", status == 400 and "messages[1].content[0]" in sentence, (status, sentence))
    for item, place in (({"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "f"}]}, "input[1].tools"),
                        ({"type": "configuration_update", "reasoning": {"effort": "low"}}, "input[1].reasoning"),
                        ({"type": "computer_call_output", "call_id": "x", "output": {"type": "computer_screenshot", "image_url": "u"}},
                         "input[1].output.image_url")):
        status, param, _ = refusal(post(RESPONSES, input=[*TURN, item]))
        equal(f"places: {item['type']}", (status, param), (400, place))


# What answers are in the SDKs, whole and event by event.
WHOLE = {CHAT: ChatCompletion, TEXT: Completion, RESPONSES: responses_types.Response, MESSAGES: anthropic.types.Message}
EVENT = {CHAT: ChatCompletionChunk, TEXT: Completion, RESPONSES: responses_types.ResponseStreamEvent,
         MESSAGES: anthropic.types.RawMessageStreamEvent}
# Members that this server's answers have besides those; penalties and store are Open Responses'.
OWN = {"timings", "coppice", "reasoning_content", "frequency_penalty", "presence_penalty", "store", "name", "bytes", "status"}
# Opens a block of thinking, so that a tiny model seems to think.
THINKING = """{%- for m in messages -%}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor -%}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}"""


def extras(value, at=""):
    """The places of members that a validated value's types do not have."""
    if isinstance(value, list):
        return [place for i, v in enumerate(value) for place in extras(v, f"{at}[{i}]")]
    if not isinstance(value, pydantic.BaseModel):
        return []
    found = [f"{at}.{name}" for name in value.model_extra or {} if name not in OWN]
    return found + [place for name in type(value).model_fields for place in extras(getattr(value, name), f"{at}.{name}")]


def as_typed(value):
    """What OpenAI's own servers send although the types do not have it, as the types have it: no reason yet to end a
    completion, no chance of the first token of a prompt, pieces of a custom tool's call."""
    if value.get("object") not in ("text_completion", "chat.completion.chunk"):
        return value
    value = json.loads(json.dumps(value))
    for choice in value["choices"]:
        if value["object"] == "text_completion":
            choice["finish_reason"] = choice["finish_reason"] or "stop"
            for key, least in (("token_logprobs", 0.0), ("top_logprobs", {})):
                if choice["logprobs"]:
                    choice["logprobs"][key] = [least if v is None else v for v in choice["logprobs"][key]]
        calls = choice.get("delta", {}).get("tool_calls", [])
        choice.get("delta", {})["tool_calls"] = [c for c in calls if "custom" not in c]
    return value


adapter = functools.cache(pydantic.TypeAdapter)  # made once for each type: the largest takes longer than an answer


def strictly(name, kind, value):
    """A value against its published type: all that must be there, of the right types, and nothing unknown."""
    value = as_typed(value)
    try:
        seen = adapter(kind).validate_json(json.dumps(value), strict=True)
        check(f"{name}: nothing unknown", not extras(seen), extras(seen))
        return True
    except pydantic.ValidationError as error:
        return check(f"{name}: of its type", False, f"{error} in {json.dumps(value)[:600]}")


def order_of_chunks(values, n):
    """Choices begin with a role, where they have one, and end once; counts stand alone after all."""
    ended, why = set(), []
    for i, v in enumerate(values):
        why += [f"{i}: no choice and no usage"] * (not v["choices"] and not v.get("usage"))
        why += [f"{i}: usage before the end"] * (not v["choices"] and (len(ended) < n or i < len(values) - 1))
        for choice in v["choices"]:
            why += [f"{i}: words after the end of {choice['index']}"] * (choice["index"] in ended)
            if choice["finish_reason"]:
                ended.add(choice["index"])
    why += [f"{len(ended)} of {n} ended"] * (len(ended) != n)
    return why + ["different ids"] * (len({v["id"] for v in values}) != 1)


def order_of_events(values):
    """Responses: numbers rise by one; an item's events lie between its beginning and its end, a part's within."""
    why, item, part_open, ended = [], None, False, 0
    kinds = [v["type"].removeprefix("response.") for v in values]
    why += ["does not begin with created, in_progress"] * (kinds[:2] != ["created", "in_progress"])
    why += ["does not end once"] * (kinds[-1] not in ("completed", "incomplete", "failed"))
    for i, (kind, v) in enumerate(zip(kinds, values)):
        why += [f"{i}: number {v['sequence_number']}"] * (v["sequence_number"] != i)
        if kind == "output_item.added":
            why += [f"{i}: an item within an item, or not the next"] * (item is not None or v["output_index"] != ended)
            item = v["item"]["id"]
        elif kind == "output_item.done":
            why += [f"{i}: an end without its beginning"] * (item != v["item"]["id"] or part_open)
            item, ended = None, ended + 1
        elif kind.endswith("part.added") or kind.endswith("part.done"):
            why += [f"{i}: {kind} out of place"] * (v["item_id"] != item or part_open == kind.endswith("added"))
            part_open = kind.endswith("added")
        elif kind.endswith((".delta", ".done")):
            why += [f"{i}: {kind} of another item"] * (v["item_id"] != item)
    return why + ["an item is left open"] * (item is not None or part_open) + [
        "not all items ended"] * (ended != len(values[-1]["response"]["output"]))


def order_of_blocks(values):
    """Messages: blocks one after the other between message_start and message_delta."""
    why, block, n = [], None, 0
    kinds = [v["type"] for v in values]
    why += ["begins or ends otherwise"] * ([kinds[0], *kinds[-2:]] != ["message_start", "message_delta", "message_stop"])
    for i, v in enumerate(values):
        if v["type"] == "content_block_start":
            why += [f"{i}: a block within a block, or not the next"] * (block is not None or v["index"] != n)
            block, n = v["index"], n + 1
        elif v["type"] in ("content_block_delta", "content_block_stop"):
            why += [f"{i}: of another block"] * (v["index"] != block)
            block = None if v["type"].endswith("stop") else block
    return why + ["a block is left open"] * (block is not None)


def answers():
    """Whole answers and streams of every kind, strictly by the SDKs' models, and the order of events."""
    schema = {"type": "object", "properties": {"path": {"type": "string", "maxLength": 8}}, "required": ["path"],
              "additionalProperties": False}
    openai_tools = {"tools": [{"type": "function", "name": "read", "parameters": schema}], "tool_choice": "required", "max_tokens": 200}
    kinds = {
        CHAT: {"words": {}, "cut off": {"max_tokens": 2}, "two": {"n": 2, "temperature": 1}, "a call": openai_tools,
               "chances": {"logprobs": True, "top_logprobs": 2}, "a stop": {"stop": "e"},
               "a custom call": {**openai_tools, "tools": [{"type": "custom", "custom": {"name": "patch"}}], "max_tokens": 40}},
        TEXT: {"words": {}, "two": {"n": 2, "temperature": 1}, "chances": {"logprobs": 2, "echo": True}, "prompts": {"prompt": ["a", "b"]}},
        RESPONSES: {"words": {}, "cut off": {"max_tokens": 2}, "a call": openai_tools,
                    "chances": {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
                    "a custom call": {**openai_tools, "tools": [{"type": "custom", "name": "patch"}], "max_tokens": 40},
                    "sealed": {"include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}}, "prewarmed": {"prompt_cache_options": {"prewarm": True}}},
        MESSAGES: {"words": {}, "cut off": {"max_tokens": 2}, "a stop": {"stop_sequences": ["e"]}, "thinking": {"thinking": {"type": "adaptive"}},
                   "omitted": {"thinking": {"type": "adaptive", "display": "omitted"}},
                   "a call": {"tools": [{"name": "read", "input_schema": schema}], "tool_choice": {"type": "any"}, "max_tokens": 200}}}
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
        file.write(THINKING)
        file.flush()
        thinker = Server("--temp", "0", "--chat-template-file", file.name)
    for port, which in ((server.port, ""), (thinker.port, ", thinking")):
        for path, cases in kinds.items():
            for case, fields in cases.items():
                name = f"answers: {path}, {case}{which}"
                body = {**BASE[path], "max_tokens": 24, **fields}
                if path == RESPONSES:
                    body["max_output_tokens"] = body.pop("max_tokens")
                status, _, text = request(port, "POST", path, body)
                if check(name, status == 200, text[:300]):
                    strictly(name, WHOLE[path], json.loads(text))
                more = {"stream_options": {"include_usage": True}} if path in (CHAT, TEXT) else {}
                text = request(port, "POST", path, {**body, **more, "stream": True})[2].decode()
                values = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]
                if not check(f"{name}, streamed", values and "error" not in values[-1], text[:300]):
                    continue
                for v in values:
                    if v["type"] != "ping" if path == MESSAGES else True:
                        if not strictly(f"{name}, streamed, {v.get('type', 'chunk')}", EVENT[path], v):
                            break
                n = len(body["prompt"]) if isinstance(body.get("prompt"), list) else body.get("n", 1)
                why = order_of_chunks(values, n) if path in (CHAT, TEXT) else \
                    order_of_events(values) if path == RESPONSES else order_of_blocks([v for v in values if v["type"] != "ping"])
                check(f"{name}, streamed: order", not why, why)
    equal("answers: the thinking server ends", thinker.end(), 0)


# What answers say matters; how requests are read, refused and named, which is most of the requests, does not depend on
# the model.
OF_ANSWERS = [names_of_tools, response_says_again, biases, ends, answers]
OF_REQUESTS = [names, other_interfaces, others, places, every_member]


def on(parts, **options):
    """Runs parts on a server of their own."""
    global server
    server = Server("--temp", "0", **options)
    for one in parts:
        part(one)
    equal("the server ends in order", server.end(), 0)


if __name__ == "__main__":
    on(OF_ANSWERS)
    with tempfile.NamedTemporaryFile(suffix=".gguf") as model:
        first_layers(TARGET, 4, model.name)
        on(OF_REQUESTS, model=model.name, draft=False)
    finish()
