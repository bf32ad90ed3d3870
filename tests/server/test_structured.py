#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Structured output through the server: every field that requests it, in each interface; the same tokens
and hash however tokens are guessed and among others; what is refused is refused in the field's name.
"""
import json
import re
import threading

from suite import Server, ask, check, equal, finish, part, request

SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "age", "kind", "tags"], "properties": {
    "name": {"type": "string", "maxLength": 30}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "kind": {"enum": ["cat", "dog", "a bird of prey"]},
    "tags": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 12}}}}
GBNF = 'root ::= ("yes" | "no") " because " [a-z ]{1,30} "."'
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
GUESSES = ["off", "lookup", "chain", "tree"]
server = None


def good_person(text):
    v = json.loads(text)
    return (list(v) == list(SCHEMA["properties"]) and isinstance(v["age"], int) and 0 <= v["age"] <= 150
            and v["kind"] in SCHEMA["properties"]["kind"]["enum"] and len(v["name"]) <= 30 and len(v["tags"]) <= 3)


def is_object(text):
    return isinstance(json.loads(text), dict)


WAYS = [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA}}}, good_person),
    ({"guided_json": SCHEMA}, good_person),
    ({"json_schema": json.dumps(SCHEMA)}, good_person),
    ({"guided_grammar": GBNF}, lambda t: re.fullmatch(r"(yes|no) because [a-z ]{1,30}\.", t)),
    ({"guided_regex": "[0-9]{3}-[a-f]{2,4}"}, lambda t: re.fullmatch("[0-9]{3}-[a-f]{2,4}", t)),
    ({"guided_choice": ["a \"quoted\" word", "two\nlines", "back\\slash"]},
     lambda t: t in ["a \"quoted\" word", "two\nlines", "back\\slash"]),
    ({"structured_outputs": {"regex": "x{4}y"}}, lambda t: t == "xxxxy"),
]


def run(extra, path=CHAT, how="tree", seed=1, stream=False, n=1):
    prompt = {"messages": [{"role": "user", "content": "Describe an animal."}]} if path == CHAT else {
        "prompt": "Describe an animal:"}
    body = {**prompt, **extra, "max_tokens": 300, "temperature": 0.8, "seed": seed, "stream": stream, "n": n,
            "coppice": {"logit_hash": True, "token_ids": True, "speculate": how}}
    if stream:
        body["stream_options"] = {"include_usage": True}
    return ask(server.port, path, body)


def forms():
    for extra, good in WAYS:
        name = next(iter(extra))
        for path in (CHAT, TEXT):
            first = None
            for how in GUESSES:
                r = run(extra, path, how, stream=how == "chain")
                same = (r["coppice"]["token_ids"], r["coppice"]["logit_hash"])
                first = first or same
                equal(f"{path} {name} {how}: as plainly", same, first)
                equal(f"{path} {name} {how}: the end", list(r["finishes"].values()), ["stop"])
                check(f"{path} {name} {how}: its form", good(r["texts"][0]), r["texts"][0])


def any_object():
    r = run({"response_format": {"type": "json_object"}}, seed=3)
    if r["finishes"][0] == "stop":
        check("json_object", is_object(r["texts"][0]), r["texts"][0])
    else:
        check("json_object: a beginning", r["texts"][0].lstrip().startswith("{"), r["texts"][0])


def together():
    """Many at once, with choices: each as alone."""
    alone = [run(extra, seed=i, how="off", n=2)["texts"] for i, (extra, _) in enumerate(WAYS)]
    seen = [None] * len(WAYS)

    def one(i):
        seen[i] = run(WAYS[i][0], seed=i, n=2)["texts"]
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(WAYS))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal("all at once as each alone", seen, alone)


def other_interfaces():
    status, _, answer = request(server.port, "POST", "/v1/responses", {
        "input": "Describe an animal.", "max_output_tokens": 300,
        "text": {"format": {"type": "json_schema", "name": "p", "schema": SCHEMA}}})
    equal("responses: status", status, 200)
    text = "".join(c["text"] for o in json.loads(answer)["output"] if o["type"] == "message" for c in o["content"])
    check("responses: its form", good_person(text), text)
    status, _, answer = request(server.port, "POST", "/v1/messages", {
        "messages": [{"role": "user", "content": "Describe an animal."}], "max_tokens": 300, "model": "m",
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}})
    equal("messages: status", status, 200)
    text = "".join(b["text"] for b in json.loads(answer)["content"] if b["type"] == "text")
    check("messages: its form", good_person(text), text)


def refusals():
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    cases = [({"guided_regex": "a(b"}, "guided_regex"), ({"guided_grammar": "root ::= ("}, "guided_grammar"),
             ({"guided_json": {"type": "array", "uniqueItems": True}}, "guided_json"),
             ({"guided_json": {"type": "integer", "minimum": 3, "maximum": 2}}, "guided_json"),
             ({"guided_json": "{"}, "guided_json"),
             ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#/no"}}}},
              "response_format.json_schema.schema"),
             ({"guided_regex": "a", "guided_choice": ["a"]}, None),
             ({"guided_regex": "a+", "tools": tools}, "guided_regex")]
    for extra, param in cases:
        status, _, answer = request(server.port, "POST", CHAT, {
            "messages": [{"role": "user", "content": "x"}], **extra})
        error = json.loads(answer).get("error", {})
        equal(f"refused: {extra}", status, 400)
        check(f"refused: {extra}: {error.get('message')}", len(error.get("message", "")) > 10)
        if param:
            equal(f"refused: {extra}: the field", error.get("param"), param)
    status, _, answer = request(server.port, "POST", CHAT, {
        "messages": [{"role": "user", "content": "x"}], "max_tokens": 60, "temperature": 0,
        "response_format": {"type": "json_object"}, "tools": tools})
    message = json.loads(answer)["choices"][0]["message"]
    check("a form together with tools: a call or the form",
          status == 200 and (message.get("tool_calls") or (message["content"] or "").lstrip()[:1] in ("{", "<", "")), answer)
    r = run({"response_format": {"type": "json_object"}, "tools": tools, "tool_choice": "none"})
    check("tools that may not be called", r["texts"][0].lstrip().startswith("{"), r["texts"][0])


def hostile():
    """Schemas made to cost much: a grammar or one sentence that names the place, in seconds and in bounded memory."""
    words = [f"{i:x}" for i in range(100001)]
    nested = {"type": "integer"}
    for _ in range(100):
        nested = {"type": "array", "items": nested}
    double = {"allOf": [{"anyOf": [{"minLength": i}, {"maxLength": i + 70}, {"minimum": i}]} for i in range(60)]}
    inside = lambda schema: {"type": "object", "properties": {"here": schema}, "required": ["here"]}
    cases = [("100,000 values", {"enum": words[:100000]}, None), ("100,001 values", inside({"enum": words}), "/here"),
             ("1 MB", {"type": "object", "properties": {f"p{i}": {"type": "integer", "description": "d" * 350}
                                                        for i in range(2500)}}, None),
             ("a pattern that doubles", inside({"type": "string", "pattern": "(a|b)*a(a|b){60}", "maxLength": 900}), "/here"),
             ("choices that multiply", inside(double), "/"), ("nested 100 deep", nested, None),
             ("recursive", {"$ref": "#/$defs/a", "$defs": {"a": {
                 "type": "array", "items": {"$ref": "#/$defs/a"}}}}, None),
             ("recursive without an end", {"$ref": "#/$defs/a", "$defs": {"a": {
                 "type": "array", "minItems": 1, "items": {"$ref": "#/$defs/a"}}}}, "#"),
             ("a reference to itself", {"$ref": "#"}, None)]
    before = server.memory()
    for name, schema, place in cases:
        status, _, answer = request(server.port, "POST", CHAT, {
            "messages": [{"role": "user", "content": "x"}], "max_tokens": 4,
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}, timeout=120)
        message = json.loads(answer).get("error", {}).get("message", "")
        check(f"hostile: {name}: {message[:150]}", status == (400 if place else 200) and (place or "") in message, answer[:300])
        # As the schema of a tool it makes no error: what no grammar holds is left to the model.
        status, _, answer = request(server.port, "POST", CHAT, {
            "messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "tools": [{"type": "function", "function": {
                "name": "f", "parameters": inside(schema)}}]}, timeout=120)
        told = b"context_length_exceeded" in answer  # its text is part of the prompt
        check(f"hostile: {name} of a tool", status == 200 or told, answer[:300])
    check("hostile: memory", server.memory() - before < 1 << 30, server.memory() - before)


if __name__ == "__main__":
    server = Server()
    for function in [forms, any_object, together, other_interfaces, refusals, hostile]:
        part(function)
    finish()
