#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The official OpenAI SDK for Python and LangChain's ChatOpenAI, as their users call them."""
import asyncio
import json
import math
import signal
import threading
import time

import openai
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from openai.types import completion_create_params
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

from suite import Server, check, equal, finish, part, unjudged

MESSAGES = [{"role": "system", "content": "Answer in few words."}, {"role": "user", "content": "Say hello."}]
server = client = None


def chat():
    begun = int(time.time())
    r = client.chat.completions.create(model="m", messages=MESSAGES, max_completion_tokens=24, seed=3)
    equal("chat: object", (r.object, r.model, r.choices[0].index), ("chat.completion", "m", 0))
    check("chat: id and time", r.id.startswith("chatcmpl") and begun <= r.created <= time.time(), r)
    check("chat: message", r.choices[0].message.role == "assistant"
          and isinstance(r.choices[0].message.content, str), r)
    check("chat: finish", r.choices[0].finish_reason in ("stop", "length"), r)
    u = r.usage
    check("chat: usage", u.prompt_tokens > 5 and 0 < u.completion_tokens <= 24
          and u.total_tokens == u.prompt_tokens + u.completion_tokens, u)
    check("chat: usage in detail", u.prompt_tokens_details.cached_tokens >= 0
          and u.completion_tokens_details.accepted_prediction_tokens >= 0
          and u.completion_tokens_details.rejected_prediction_tokens >= 0, u)
    again = client.chat.completions.create(model="m", messages=MESSAGES, max_completion_tokens=24, seed=3)
    equal("chat: the same seed, the same answer", again.choices[0].message.content, r.choices[0].message.content)
    check("chat: another id", again.id != r.id)
    return r


def chat_stream():
    whole = client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=24, seed=3)
    chunks = list(client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=24, seed=3, stream=True,
                                                 stream_options={"include_usage": True}))
    equal("stream: one id", len({c.id for c in chunks}), 1)
    equal("stream: object", {c.object for c in chunks}, {"chat.completion.chunk"})
    equal("stream: the role first", chunks[0].choices[0].delta.role, "assistant")
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    equal("stream: the text of the whole answer", text, whole.choices[0].message.content)
    finishes = [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason]
    equal("stream: one finish_reason", finishes, [whole.choices[0].finish_reason])
    check("stream: usage last", chunks[-1].usage and not chunks[-1].choices
          and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens, chunks[-1])
    plain = list(client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=4, stream=True))
    check("stream: no usage unasked", all(c.usage is None for c in plain), plain[-1])
    word = whole.choices[0].message.content[4:7]  # the helper raises unless an answer stops by itself
    with client.chat.completions.stream(model="m", messages=MESSAGES, max_tokens=24, seed=3, stop=word) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    check("stream helper: events", "content.delta" in kinds and "content.done" in kinds, set(kinds))
    equal("stream helper: the whole", final.choices[0].message.content,
          whole.choices[0].message.content.split(word)[0])


def sampling():
    def one(**fields):
        return client.completions.create(model="m", prompt="def add(a, b):", max_tokens=16, **fields).choices[0].text

    greedy = one(temperature=0)
    equal("temperature 0: always the same", one(temperature=0, seed=9), greedy)
    equal("top_k 1 is temperature 0", one(temperature=1, seed=9, extra_body={"top_k": 1}), greedy)
    equal("top_p 0.0001 too", one(temperature=1, seed=9, top_p=0.0001), greedy)
    equal("min_p 1 too", one(temperature=1, seed=9, extra_body={"min_p": 1}), greedy)
    check("seeds differ", len({one(temperature=1.5, seed=s) for s in range(6)}) > 3)
    check("no seed: answers differ", len({one(temperature=1.5) for _ in range(6)}) > 3)
    ids = client.post("/tokenize", body={"content": greedy}, cast_to=object)["tokens"]
    banned = one(temperature=0, logit_bias={str(ids[0]): -100})
    check("logit_bias -100 keeps a token away", banned != greedy, banned)
    loved = client.completions.create(model="m", prompt="x", max_tokens=5, temperature=0, logit_bias={"300": 100},
                                      extra_body={"coppice": {"token_ids": True}})
    equal("logit_bias 100 takes one always", loved.model_extra["coppice"]["token_ids"], [[300] * 5])
    check("frequency_penalty changes the text", one(temperature=0, frequency_penalty=2) != greedy
          or len(set(greedy.split())) == len(greedy.split()))


def stops():
    whole = client.completions.create(model="m", prompt="def add(a, b):", max_tokens=60, temperature=0).choices[0].text
    for length in (1, 2, 5):
        at = min(20, max(0, len(whole) - length))
        word = whole[at:at + length]
        want = whole[:whole.index(word)]
        for stream in (False, True):
            r = client.completions.create(model="m", prompt="def add(a, b):", max_tokens=60, temperature=0, stop=[word],
                                          stream=stream)
            parts = list(r) if stream else [r]
            text = "".join(c.choices[0].text for c in parts if c.choices)
            equal(f"stop {word!r}, streamed {stream}: cut before it", text, want)
            equal(f"stop {word!r}, streamed {stream}: finish_reason",
                  [c.choices[0].finish_reason for c in parts if c.choices and c.choices[0].finish_reason], ["stop"])
    r = client.completions.create(model="m", prompt="def add(a, b):", max_tokens=3, temperature=0)
    equal("max_tokens: finish_reason", r.choices[0].finish_reason, "length")
    equal("max_tokens: that many", r.usage.completion_tokens, 3)


def choices():
    r = client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=12, n=3, seed=1, temperature=1)
    equal("n = 3: indices", [c.index for c in r.choices], [0, 1, 2])
    parts = {}
    for chunk in client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=12, n=3, seed=1, temperature=1,
                                                stream=True):
        for c in chunk.choices:
            parts[c.index] = parts.get(c.index, "") + (c.delta.content or "")
    equal("n = 3: streamed the same", [parts[i] for i in range(3)], [c.message.content for c in r.choices])
    equal("n = 3: the prompt counts once, the tokens all",
          r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens)


def logprobs():
    r = client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=10, logprobs=True, top_logprobs=5,
                                       temperature=0)
    content = r.choices[0].logprobs.content
    check("logprobs: one a token", r.usage.completion_tokens - len(content) in (0, 1), len(content))
    for t in content:
        check("logprobs: 5 in order", len(t.top_logprobs) == 5 and t.top_logprobs == sorted(
            t.top_logprobs, key=lambda p: -p.logprob), t)
        check("logprobs: greedy is the first", abs(t.logprob - t.top_logprobs[0].logprob) < 1e-6 and t.logprob <= 0, t)
        check("logprobs: bytes", bytes(t.bytes).decode("utf-8", "replace") == t.token, t)
    joined = "".join(t.token for t in content)
    check("logprobs: tokens make the text", joined.startswith(r.choices[0].message.content), joined)
    chunks = client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=10, logprobs=True, top_logprobs=5,
                                            temperature=0, stream=True)
    streamed = [t for c in chunks if c.choices and c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    equal("logprobs: streamed the same", [(t.token, t.logprob) for t in streamed],
          [(t.token, t.logprob) for t in content])
    r = client.completions.create(model="m", prompt="def add(a, b):", max_tokens=4, logprobs=3, echo=True, temperature=0)
    l = r.choices[0].logprobs
    check("completions: echo", r.choices[0].text.startswith("def add(a, b):"), r.choices[0].text)
    equal("completions: columns", len({len(l.tokens), len(l.token_logprobs), len(l.top_logprobs), len(l.text_offset)}), 1)
    check("completions: the first token has none", l.token_logprobs[0] is None, l.token_logprobs)
    equal("completions: tokens make the text", "".join(l.tokens), r.choices[0].text)
    check("completions: all others have one", all(-100 < p <= 0 for p in l.token_logprobs[1:]), l.token_logprobs)
    check("completions: chances of the top ones", all(sum(map(math.exp, t.values())) <= 1.0001
                                                     for t in l.top_logprobs[1:]), l.top_logprobs)


def prompts():
    r = client.completions.create(model="m", prompt=["One", "Two", "Three"], max_tokens=6, temperature=0)
    equal("several prompts: indices", [c.index for c in r.choices], [0, 1, 2])
    single = client.completions.create(model="m", prompt="Two", max_tokens=6, temperature=0)
    equal("several prompts: each its own", r.choices[1].text, single.choices[0].text)
    equal("completions: object", single.object, "text_completion")
    ids = client.post("/tokenize", body={"content": "Two"}, cast_to=object)["tokens"]
    by_id = client.completions.create(model="m", prompt=ids, max_tokens=6, temperature=0)
    equal("token ids are a prompt", by_id.choices[0].text, single.choices[0].text)


def models():
    found = list(client.models.list())
    equal("models: one", len(found), 1)
    equal("models: by its name", client.models.retrieve(found[0].id).id, found[0].id)
    try:
        client.models.retrieve("no-such-model")
        check("models: another name is 404", False)
    except openai.NotFoundError as error:
        check("models: another name is 404", error.body["message"], error)


def fields():
    """Each field that the SDK can send is read, or named as one that does nothing."""
    for path, row, kind in (("/v1/chat/completions", "Chat completions", CompletionCreateParamsStreaming),
                            ("/v1/completions", "Completions", completion_create_params.CompletionCreateParamsStreaming)):
        equal(f"fields: {path}", unjudged(path, row, kind.__annotations__), [])


def errors():
    cases = [("modalities", {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}),
             ("temperature", {"temperature": 1000.0}), ("messages[0].role", {"messages": [{"role": "king",
                                                                                          "content": "x"}]})]
    for field, change in cases:
        try:
            client.chat.completions.create(**{"model": "m", "messages": MESSAGES, "max_tokens": 1, **change})
            check(f"errors: {field}", False)
        except openai.BadRequestError as error:
            check(f"errors: {field}", error.param == field and error.type == "invalid_request_error", error.body)
    locked = Server("--api-key", "k1")
    try:
        openai.OpenAI(base_url=f"http://127.0.0.1:{locked.port}/v1", api_key="wrong").models.list()
        check("errors: a wrong key", False)
    except openai.AuthenticationError as error:
        equal("errors: a wrong key", error.status_code, 401)
    equal("the right key", len(list(openai.OpenAI(base_url=f"http://127.0.0.1:{locked.port}/v1",
                                                  api_key="k1").models.list())), 1)
    locked.end()


def retries():
    """The SDK comes back by itself from a full queue, and not from what will fail again."""
    small = Server("--parallel", "1", "--queue", "1")
    patient = openai.OpenAI(base_url=f"http://127.0.0.1:{small.port}/v1", api_key="x", max_retries=10)
    seen = []

    def one():
        try:
            r = patient.completions.create(model="m", prompt="x", max_tokens=60, extra_body={"ignore_eos": True})
            seen.append(r.usage.completion_tokens)
        except openai.OpenAIError as error:
            seen.append(error)

    threads = [threading.Thread(target=one) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal("retries: all come through in the end", seen, [60] * 6)
    before = small.metric("coppice_http_requests_total")
    try:
        patient.completions.create(model="m", prompt="x", temperature=1000.0)
    except openai.BadRequestError:
        pass
    # The bad request and this look at the counter.
    equal("retries: none for a bad request", small.metric("coppice_http_requests_total") - before, 2)
    small.end()


def timeouts():
    try:
        client.with_options(timeout=0.05, max_retries=0).completions.create(
            model="m", prompt="x", max_tokens=3000, extra_body={"ignore_eos": True})
        check("timeout: raised", False)
    except openai.APITimeoutError:
        check("timeout: raised", True)
    check("timeout: the slot is free again", server.calm(5))
    stream = client.completions.create(model="m", prompt="x", max_tokens=3000, stream=True,
                                       extra_body={"ignore_eos": True})
    for i, _ in enumerate(stream):
        if i == 5:
            stream.close()
            break
    check("abort: the slot is free again", server.calm(5))


def many_at_once():
    async def run():
        async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="x") as many:
            async def one(i):
                text = ""
                async for chunk in await many.chat.completions.create(
                        model="m", messages=[{"role": "user", "content": f"Number {i}"}], max_tokens=16,
                        temperature=0, stream=True):
                    text += chunk.choices[0].delta.content or "" if chunk.choices else ""
                return text
            together = await asyncio.gather(*[one(i) for i in range(24)])
            return together, [await one(i) for i in range(0, 24, 8)]

    together, alone = asyncio.run(run())
    equal("24 at once: each the answer that it gets alone", together[::8], alone)


def broken_stream():
    """A stream that the server must cut is an error for the SDK, not a short answer."""
    dying = Server("--grace", "0")
    stream = openai.OpenAI(base_url=f"http://127.0.0.1:{dying.port}/v1", api_key="x", max_retries=0).completions.create(
        model="m", prompt="x", max_tokens=4000, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    dying.child.send_signal(signal.SIGTERM)
    try:
        for _ in stream:
            pass
        check("a cut stream raises", False)
    except openai.APIError as error:
        check("a cut stream raises", True, error)
    equal("and the server ends well", dying.end(), 0)


def langchain():
    model = ChatOpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="x", model="m", temperature=0,
                       max_tokens=20, seed=1, stream_usage=True)
    messages = [SystemMessage("Be brief."), HumanMessage("Hi"), AIMessage("Hello"), HumanMessage("Bye")]
    r = model.invoke(messages)
    check("langchain: invoke", isinstance(r.content, str) and r.response_metadata["finish_reason"] in ("stop", "length"), r)
    check("langchain: usage", r.usage_metadata["output_tokens"] > 0, r.usage_metadata)
    chunks = list(model.stream(messages))
    equal("langchain: stream", "".join(c.content for c in chunks), r.content)
    check("langchain: usage of the stream", any(c.usage_metadata and c.usage_metadata["output_tokens"]
                                               == r.usage_metadata["output_tokens"] for c in chunks))
    batch = model.batch(["One", "Two", "Three"])
    equal("langchain: batch", batch[1].content, model.invoke("Two").content)
    bound = model.bind(logprobs=True, top_logprobs=2, stop=["q"]).invoke("Hi")
    check("langchain: logprobs", len(bound.response_metadata["logprobs"]["content"]) > 0, bound)


def tools():
    declared = [{"type": "function", "function": {"name": "read", "parameters": {
        "type": "object", "properties": {"path": {"type": "string", "maxLength": 8}, "n": {"type": "integer"}},
        "required": ["path", "n"], "additionalProperties": False}}}]
    wanted = {"type": "function", "function": {"name": "read"}}
    ask = {"model": "m", "messages": MESSAGES, "max_tokens": 300, "seed": 5, "tools": declared, "tool_choice": wanted}
    whole = client.chat.completions.create(**ask)
    choice = whole.choices[0]
    equal("tools: finish", choice.finish_reason, "tool_calls")
    call = choice.message.tool_calls[0]
    equal("tools: one call of the tool", [(c.type, c.function.name) for c in choice.message.tool_calls],
          [("function", "read")])
    values = json.loads(call.function.arguments)
    check("tools: arguments as the schema has them", isinstance(values["path"], str) and isinstance(values["n"], int)
          and set(values) == {"path", "n"}, values)
    with client.chat.completions.stream(**ask) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion().choices[0]
    check("tools: events of the stream helper", "tool_calls.function.arguments.delta" in kinds
          and "tool_calls.function.arguments.done" in kinds, kinds)
    equal("tools: streamed arguments", final.message.tool_calls[0].function.arguments, call.function.arguments)
    check("tools: another id", final.message.tool_calls[0].id != call.id)
    after = MESSAGES + [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "hello"}]
    r = client.chat.completions.create(model="m", messages=after, max_tokens=8, tools=declared)
    check("tools: a result goes on", r.choices[0].finish_reason in ("stop", "length", "tool_calls"), r)
    freeform = [{"type": "custom", "custom": {"name": "patch"}}]
    choice = client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=60, tools=freeform,
                                            tool_choice="required", temperature=0).choices[0]
    call = choice.message.tool_calls[0]
    equal("tools: a custom one", (call.type, call.custom.name), ("custom", "patch"))
    after = MESSAGES + [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "hello"}]
    bare = client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=8, tools=freeform)
    r = client.chat.completions.create(model="m", messages=after, max_tokens=8, tools=freeform)
    check("tools: the result of a custom one goes on", r.usage.prompt_tokens > bare.usage.prompt_tokens + 10, r)


if __name__ == "__main__":
    server = Server()
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="x", max_retries=0)
    for function in [chat, chat_stream, sampling, stops, choices, logprobs, prompts, tools, models, fields, errors, retries,
                     timeouts, many_at_once, broken_stream, langchain]:
        part(function)
    check("nothing is left in progress", server.calm())
    finish()
