#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The official Anthropic SDK for Python, as its users call it."""
import asyncio
import json
import os
import signal
import tempfile
import threading

import anthropic
from anthropic.types import beta, message_create_params, message_count_tokens_params

from suite import Server, check, equal, finish, part, unjudged

MESSAGES = [{"role": "user", "content": "Say hello."}]
TOOLS = [{"name": "read", "description": "Reads a file.", "input_schema": {
    "type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}]
# Opens a block of thinking unless told not to, and writes it again after the last question.
TEMPLATE = """{%- for m in messages -%}
<|im_start|>{{ m.role }}
{% if m.role == 'assistant' and m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}<|im_end|>
{% endfor -%}
{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is not defined or enable_thinking %}<think>
{% else %}<think>

</think>

{% endif %}{% endif %}"""
server = client = None


def connect(port, **more):
    return anthropic.Anthropic(base_url=f"http://127.0.0.1:{port}", api_key="x", **{"max_retries": 0, **more})


def create(**fields):
    return client.messages.create(**{"model": "m", "max_tokens": 24, "messages": MESSAGES, "system": "Be brief.",
                                     "extra_body": {"temperature": 0}, **fields})


def message():
    r = create()
    equal("message: what it is", (r.type, r.role, r.model), ("message", "assistant", "m"))
    check("message: id", r.id.startswith("msg_") and r._request_id, r)
    check("message: a block of text", len(r.content) == 1 and r.content[0].type == "text" and r.content[0].text, r)
    check("message: stop", r.stop_reason in ("end_turn", "max_tokens") and r.stop_sequence is None, r)
    check("message: usage", r.usage.input_tokens > 5 and 0 < r.usage.output_tokens <= 24
          and r.usage.cache_read_input_tokens >= 0, r.usage)
    equal("message: again the same", create().content[0].text, r.content[0].text)


def message_stream():
    whole = create()
    with client.messages.stream(model="m", max_tokens=24, messages=MESSAGES, system="Be brief.",
                                extra_body={"temperature": 0}) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
        request_id = stream.request_id
    equal("stream: the text of the whole message", final.content[0].text, whole.content[0].text)
    equal("stream: its end", final.stop_reason, whole.stop_reason)
    equal("stream: its usage", final.usage.output_tokens, whole.usage.output_tokens)
    check("stream: events", kinds[0] == "message_start" and kinds[-1] == "message_stop" and "text" in kinds, kinds)
    equal("stream: a name for the request", request_id, final.id)
    raw = [event.type for event in client.messages.create(model="m", max_tokens=4, messages=MESSAGES, stream=True)]
    equal("stream: raw events", (raw[0], raw[-2], raw[-1]), ("message_start", "message_delta", "message_stop"))


def stops():
    whole = create(max_tokens=60).content[0].text
    word = whole[4:8]
    r = create(max_tokens=60, stop_sequences=["nothing like it", word])
    equal("stop: cut before it", r.content[0].text, whole[:whole.index(word)])
    equal("stop: which one", (r.stop_reason, r.stop_sequence), ("stop_sequence", word))
    with client.messages.stream(model="m", max_tokens=60, messages=MESSAGES, system="Be brief.", stop_sequences=[word],
                                extra_body={"temperature": 0}) as stream:
        final = stream.get_final_message()
    equal("stop: streamed", (final.content[0].text, final.stop_reason, final.stop_sequence),
          (r.content[0].text, "stop_sequence", word))
    r = create(max_tokens=3, extra_body={"temperature": 0, "ignore_eos": True})
    equal("stop: max_tokens", (r.stop_reason, r.usage.output_tokens), ("max_tokens", 3))


def conversation():
    """Everything that a client may send back is taken."""
    history = [
        {"role": "user", "content": [{"type": "text", "text": "Read it.", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "I must read.", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "Reading."},
            {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}},
            {"type": "tool_use", "id": "toolu_2", "name": "read", "input": {"path": "b"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True, "content": "no such file"},
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "words " * 200}]},
            {"type": "text", "text": "Go on."}]},
        {"role": "system", "content": "1000 tokens are left."},
        {"role": "user", "content": "Well?"},
    ]
    for stream in (False, True):
        r = create(messages=history, tools=TOOLS + [{"type": "web_search_20250305", "name": "web_search"}],
                   tool_choice={"type": "auto", "disable_parallel_tool_use": True}, stream=stream,
                   metadata={"user_id": "u"}, thinking={"type": "adaptive"})
        if stream:
            r = list(r)
            equal("conversation: streamed", r[-1].type, "message_stop")
        else:
            check("conversation: the prompt holds it", r.usage.input_tokens + r.usage.cache_read_input_tokens > 200, r)
    r = create(messages=[{"role": "user", "content": "Count."}, {"role": "assistant", "content": "One, two,"}])
    check("conversation: an answer that has begun goes on", r.type == "message", r)
    big = [{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "read", "input": {}}]},
           {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x" * (10 << 20)}]}]
    try:
        create(messages=big)
        check("10 MB: too long", False)
    except anthropic.BadRequestError as error:
        check("10 MB: too long", "prompt is too long: " in str(error), error)


def counts():
    n = client.messages.count_tokens(model="m", messages=MESSAGES, system="Be brief.").input_tokens
    usage = create().usage
    equal("count_tokens: what the prompt takes", n, usage.input_tokens + usage.cache_read_input_tokens)
    more = client.messages.count_tokens(model="m", messages=MESSAGES, system=[
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=0815;"},
        {"type": "text", "text": "Be brief."}]).input_tokens
    equal("count_tokens: a billing line is none", more, n)


def runs_tools():
    """The SDK's runner asks for a thread, which is not had here, and must go on without one."""
    asked = []

    @anthropic.beta_tool
    def weather(city: str) -> str:
        """Gives the weather of a city."""
        asked.append(city)
        return "sunny"
    for stream in (False, True):
        name, before = f"runner of tools, {'streamed' if stream else 'whole'}", len(asked)
        turns = client.beta.messages.tool_runner(
            model="m", max_tokens=200, tools=[weather], messages=[{"role": "user", "content": "Weather in Paris?"}],
            tool_choice={"type": "any"}, max_iterations=2, stream=stream, extra_body={"temperature": 0})
        ends = [(t.get_final_message() if stream else t).stop_reason for t in turns]
        equal(f"{name}: two turns", ends, ["tool_use", "tool_use"])
        check(f"{name}: the tool was called", len(asked) > before, asked)


def beta_fields():
    """Turns of the system that newer clients send, and what older ones call the form of an answer."""
    note = {"role": "system", "content": "There are many tokens left, and they are counted with care.",
            "clear_at": "next_user_message"}
    effort = {"role": "system", "output_config": {"effort": "low"}}

    def count(*turns):
        return client.beta.messages.count_tokens(model="m", messages=[*MESSAGES, *turns]).input_tokens

    later = [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Go on."}]
    check("system turn: it is read", count(note) > count() + 10, count(note))
    equal("system turn: cleared at the next user's message", count(note, *later), count(*later))
    check("system turn: never cleared", count({**note, "clear_at": "never"}, *later) > count(*later) + 10)
    equal("system turn: one that only sets something", count(effort), count())
    schema = {"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"], "additionalProperties": False}
    r = create(extra_body={"output_format": {"type": "json_schema", "schema": schema}})
    equal("output_format: the answer has it", json.loads(r.content[0].text), {"n": 7})
    try:
        check("compaction: refused", False, client.beta.messages.create(
            model="m", max_tokens=8, messages=MESSAGES, compaction={"type": "summarize"}))
    except anthropic.BadRequestError as error:
        check("compaction: refused", "compaction is not supported" in error.body["error"]["message"], error.body)


def changes_tools():
    """The SDK's runner adds tools and takes them away within a conversation."""
    @anthropic.beta_tool
    def weather(city: str) -> str:
        """Gives the weather of a city."""
        return "sunny in " + city

    @anthropic.beta_tool
    def price(name: str) -> str:
        """Gives the price of a thing."""
        return "3 for " + name
    runner = client.beta.messages.tool_runner(
        model="m", max_tokens=200, tools=[weather], messages=[{"role": "user", "content": "Weather in Paris?"}],
        tool_choice={"type": "any"}, max_iterations=3, extra_body={"temperature": 0})
    called = []
    for turn in runner:
        called.append({b.name for b in turn.content if b.type == "tool_use"})
        if len(called) == 1:
            runner.add_tools(price)
            runner.remove_tools("weather")
        if len(called) == 2:
            runner.remove_tools("price")
            runner.add_tools(weather)
    equal("tools that come and go", called, [{"weather"}, {"price"}, {"weather"}])


def fields():
    """Each field that the SDK can send is read, or named as one that does nothing."""
    for path, kinds in (("/v1/messages", (message_create_params.MessageCreateParamsStreaming,
                                          beta.message_create_params.MessageCreateParamsStreaming)),
                        ("/v1/messages/count_tokens", (message_count_tokens_params.MessageCountTokensParams,
                                                       beta.message_count_tokens_params.MessageCountTokensParams))):
        for kind in kinds:
            equal(f"fields: {kind.__module__}", unjudged(path, "Messages", kind.__annotations__), [])


def models():
    found = list(client.models.list())
    for query in ({"after_id": found[0].id}, {"before_id": found[0].id}, {"lifecycle": ["retired"]}):
        equal(f"models: {query}", list(client.models.list(**query)), [])
    equal("models: active ones", len(list(client.models.list(limit=1, lifecycle=["active"]))), 1)
    equal("models: one", [m.type for m in found], ["model"])
    check("models: its window", found[0].max_input_tokens == 4096 and found[0].created_at, found)
    equal("models: by its name", client.models.retrieve(found[0].id).display_name, found[0].id)
    try:
        client.models.retrieve("no-such-model")
        check("models: another name is 404", False)
    except anthropic.NotFoundError as error:
        equal("models: another name is 404", error.body["error"]["type"], "not_found_error")


def errors():
    for name, change in [("an image", {"messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}]}]}),
                         ("temperature", {"extra_body": {"temperature": 1000}}),
                         ("thinking.type", {"thinking": {}})]:
        try:
            create(**change)
            check(f"errors: {name}", False)
        except anthropic.BadRequestError as error:
            check(f"errors: {name}", name in error.body["error"]["message"] and error.request_id
                  and error.body["request_id"] == error.request_id, error.body)
    locked = Server("--api-key", "k1")
    for key, status in (("wrong", 401), ("k1", 200)):
        for header in ("api_key", "auth_token"):
            other = anthropic.Anthropic(base_url=f"http://127.0.0.1:{locked.port}", max_retries=0,
                                        **{header: key, **({"api_key": None} if header != "api_key" else {})})
            try:
                other.messages.create(model="m", max_tokens=1, messages=MESSAGES)
                equal(f"errors: key {key} as {header}", status, 200)
            except anthropic.AuthenticationError as error:
                equal(f"errors: key {key} as {header}", (status, error.body["error"]["type"]),
                      (401, "authentication_error"))
    equal("the server with a key ends well", locked.end(), 0)


def full_queue():
    """529 while the queue is full; the SDK comes back by itself."""
    small = Server("--parallel", "1", "--queue", "1")
    body = {"ignore_eos": True}
    seen, statuses = [], []

    def one(patient):
        try:
            r = connect(small.port, max_retries=10 if patient else 0).messages.create(
                model="m", max_tokens=60, messages=MESSAGES, extra_body=body)
            seen.append(r.usage.output_tokens)
        except anthropic.APIStatusError as error:
            statuses.append((error.status_code, error.body["error"]["type"]))

    for patient in (True, False):
        threads = [threading.Thread(target=one, args=(patient,)) for _ in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if patient:
            equal("queue: all come through in the end", (seen, statuses), ([60] * 6, []))
    check("queue: 529 when it is full", set(statuses) <= {(529, "overloaded_error")}, statuses)
    equal("queue: the server ends well", small.end(), 0)


def aborts():
    long = {"model": "m", "max_tokens": 3000, "messages": MESSAGES, "extra_body": {"ignore_eos": True}}
    try:
        connect(server.port, timeout=0.05).messages.create(**long)
        check("timeout: raised", False)
    except anthropic.APITimeoutError:
        check("timeout: raised", True)
    check("timeout: the slot is free again", server.calm(5))
    with client.messages.stream(**long) as stream:
        for i, _ in enumerate(stream):
            if i == 5:
                break
    check("abort: the slot is free again", server.calm(5))


def thinking():
    with tempfile.NamedTemporaryFile("w", suffix=".jinja", delete=False) as file:
        file.write(TEMPLATE)
    thoughtful = Server("--chat-template-file", file.name)
    other = connect(thoughtful.port)
    os.unlink(file.name)
    ask = {"model": "m", "max_tokens": 60, "messages": MESSAGES,
           "extra_body": {"temperature": 0, "ignore_eos": True}}
    r = other.messages.create(**ask)
    equal("thinking: none unless asked for", [b.type for b in r.content], ["text"])
    r = other.messages.create(**ask, thinking={"type": "enabled", "budget_tokens": 1024})
    check("thinking: a block with a signature", r.content[0].type == "thinking" and r.content[0].signature, r.content)
    with other.messages.stream(**ask, thinking={"type": "enabled", "budget_tokens": 1024}) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_message()
    equal("thinking: streamed the same", final.content[0].thinking, r.content[0].thinking)
    check("thinking: events", {"thinking", "signature"} <= kinds, kinds)
    history = MESSAGES + [{"role": "assistant", "content": [b.model_dump() for b in r.content]},
                          {"role": "user", "content": "Go on."}]
    n = other.messages.count_tokens(model="m", messages=history).input_tokens
    bare = [m for m in history if m["role"] == "user"]
    check("thinking: what was thought comes back", n > other.messages.count_tokens(
        model="m", messages=bare).input_tokens + 20, n)
    omitted(other, ask, r)
    equal("thinking: the server ends well", thoughtful.end(), 0)


def omitted(other, ask, shown):
    """display: the text goes out within the signature alone, and counts as if it had been shown."""
    ask = {**ask, "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"}}
    r = other.messages.create(**ask)
    block = r.content[0]
    equal("omitted: a block without text", (block.type, block.thinking), ("thinking", ""))
    check("omitted: all of it in the signature", len(block.signature) > len(shown.content[0].thinking), block)
    equal("omitted: the words after it are the same", [b.text for b in r.content[1:]], [b.text for b in shown.content[1:]])
    equal("omitted: it counts as before", r.usage.output_tokens, shown.usage.output_tokens)
    raw = list(other.messages.create(**ask, stream=True))
    of_block = [e for e in raw if getattr(e, "index", None) == 0]
    equal("omitted: streamed, what the block is made of",
          [e.delta.type if e.type == "content_block_delta" else e.type for e in of_block],
          ["content_block_start", "signature_delta", "content_block_stop"])
    with other.messages.stream(**ask) as stream:
        final = stream.get_final_message()
    equal("omitted: streamed the same", [b.model_dump() for b in final.content], [b.model_dump() for b in r.content])

    def goes_on(content, **more):
        """The tokens of a prompt that has it, and what is said next."""
        turn = MESSAGES + [{"role": "assistant", "content": [b.model_dump() for b in content]},
                           {"role": "user", "content": "Go on."}]
        said = other.messages.create(**{**ask, "messages": turn, **more})
        return said.usage.input_tokens + said.usage.cache_read_input_tokens, [b.model_dump() for b in said.content]

    equal("omitted: the next turn is as if it had been shown", goes_on(r.content), goes_on(shown.content))
    r.content[0].thinking = "(thinking)"
    equal("omitted: text that was put next to it is passed over", goes_on(r.content), goes_on(shown.content))
    summarized = {"type": "enabled", "budget_tokens": 1024, "display": "summarized"}
    equal("summarized: the text", other.messages.create(**{**ask, "thinking": summarized}).content[0].thinking,
          shown.content[0].thinking)
    for change, words in [({"display": "none"}, "thinking.display is 'none' and must be summarized or omitted"),
                          ({"display": 1}, "thinking.display is a number and must be"),
                          ({"display": "omitted", "type": "disabled"}, "leave display out"),
                          ({"display": None}, None), ({"display": None, "type": "disabled"}, None)]:
        for send in (other.messages.create, other.messages.count_tokens):
            fields = dict(ask, thinking={"type": "adaptive", **change})
            if send == other.messages.count_tokens:
                del fields["max_tokens"], fields["extra_body"]
            try:
                send(**fields)
                equal(f"display: {change}", words, None)
            except anthropic.BadRequestError as error:
                check(f"display: {change}", words and words in error.body["error"]["message"], error.body)


def life_signs():
    """A stream that waits says so by events that count."""
    slow = Server("--parallel", "1", "--queue", "8", "--max-ctx", "32768")
    busy = connect(slow.port).messages.create(model="m", max_tokens=30000, messages=MESSAGES, stream=True,
                                              extra_body={"ignore_eos": True})
    next(iter(busy))
    stream = iter(connect(slow.port).messages.create(model="m", max_tokens=2, messages=MESSAGES, stream=True))
    equal("waiting: the first event", next(stream).type, "message_start")
    equal("waiting: it comes before there is a slot", slow.metric("coppice_requests_waiting"), 1)
    busy.close()
    equal("waiting: the answer comes when there is one", [event.type for event in stream][-1], "message_stop")
    equal("waiting: the server ends well", slow.end(), 0)


def many_at_once():
    async def run():
        async with anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="x") as many:
            async def one(i):
                r = await many.messages.create(model="m", max_tokens=16, extra_body={"temperature": 0},
                                               messages=[{"role": "user", "content": f"Number {i}"}])
                return r.content[0].text if r.content else ""
            together = await asyncio.gather(*[one(i) for i in range(16)])
            return together, [await one(i) for i in range(0, 16, 8)]

    together, alone = asyncio.run(run())
    equal("16 at once: each the answer that it gets alone", together[::8], alone)


def broken_stream():
    dying = Server("--grace", "0")
    with connect(dying.port).messages.stream(model="m", max_tokens=4000, messages=MESSAGES,
                                             extra_body={"ignore_eos": True}) as stream:
        iterator = iter(stream)
        next(iterator)
        dying.child.send_signal(signal.SIGTERM)
        try:
            for _ in iterator:
                pass
            check("a cut stream raises", False)
        except anthropic.APIError as error:
            check("a cut stream raises", "shutting down" in json.dumps(error.body), error)
    equal("and the server ends well", dying.end(), 0)


if __name__ == "__main__":
    server = Server()
    client = connect(server.port)
    for function in [message, message_stream, stops, conversation, counts, fields, beta_fields, runs_tools, changes_tools, models, errors,
                     full_queue, aborts, thinking, life_signs, many_at_once, broken_stream]:
        part(function)
    check("nothing is left in progress", server.calm())
    finish()
