#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Responses interface through the official OpenAI SDK for Python, as its users call it."""
import json
import os
import tempfile

import openai
from openai.types import responses as types
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from suite import Server, check, equal, finish, part, unjudged

INPUT = [{"role": "user", "content": "Say hello."}]
TOOL = {"type": "function", "name": "read", "description": "Reads a file.", "strict": True,
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"],
                       "additionalProperties": False}}
# Opens a block of thinking, so that a tiny model seems to think.
TEMPLATE = """{%- for m in messages -%}
<|im_start|>{{ m.role }}
{% if m.role == 'assistant' and m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}<|im_end|>
{% endfor -%}
{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}"""
# What each kind of event is in the SDK.
EVENTS = {
    "response.created": types.ResponseCreatedEvent,
    "response.in_progress": types.ResponseInProgressEvent,
    "response.output_item.added": types.ResponseOutputItemAddedEvent,
    "response.content_part.added": types.ResponseContentPartAddedEvent,
    "response.output_text.delta": types.ResponseTextDeltaEvent,
    "response.output_text.done": types.ResponseTextDoneEvent,
    "response.reasoning_text.delta": types.ResponseReasoningTextDeltaEvent,
    "response.reasoning_text.done": types.ResponseReasoningTextDoneEvent,
    "response.reasoning_summary_part.added": types.ResponseReasoningSummaryPartAddedEvent,
    "response.reasoning_summary_part.done": types.ResponseReasoningSummaryPartDoneEvent,
    "response.reasoning_summary_text.delta": types.ResponseReasoningSummaryTextDeltaEvent,
    "response.reasoning_summary_text.done": types.ResponseReasoningSummaryTextDoneEvent,
    "response.content_part.done": types.ResponseContentPartDoneEvent,
    "response.output_item.done": types.ResponseOutputItemDoneEvent,
    "response.function_call_arguments.delta": types.ResponseFunctionCallArgumentsDeltaEvent,
    "response.function_call_arguments.done": types.ResponseFunctionCallArgumentsDoneEvent,
    "response.custom_tool_call_input.delta": types.ResponseCustomToolCallInputDeltaEvent,
    "response.custom_tool_call_input.done": types.ResponseCustomToolCallInputDoneEvent,
    "response.completed": types.ResponseCompletedEvent,
    "response.incomplete": types.ResponseIncompleteEvent,
}
server = client = None


def connect(port, **more):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x", **{"max_retries": 0, **more})


def create(by=None, **fields):
    return (by or client).responses.create(**{"model": "m", "max_output_tokens": 24, "input": INPUT, "temperature": 0,
                                              "instructions": "Be brief.", **fields})


def validated(events):
    """The events, each checked against the SDK's own type, field by field."""
    seen = list(events)
    for i, event in enumerate(seen):
        kind = EVENTS.get(event.type)
        if not check(f"event {event.type} is known", kind is not None):
            continue
        try:
            kind.model_validate(event.model_dump(), strict=False)
        except ValueError as error:
            check(f"event {event.type} is of its type", False, error)
        if event.sequence_number != i:
            equal(f"event {event.type}: number", event.sequence_number, i)
    return seen


def response():
    r = create()
    equal("response: what it is", (r.object, r.model, r.error), ("response", "m", None))
    check("response: id", r.id.startswith("resp_") and r._request_id, r)
    check("response: text", r.output_text and r.output[0].content[0].annotations == [], r)
    check("response: status", r.status in ("completed", "incomplete"), r.status)
    check("response: usage", r.usage.input_tokens > 5 and 0 < r.usage.output_tokens <= 24
          and r.usage.total_tokens == r.usage.input_tokens + r.usage.output_tokens
          and r.usage.input_tokens_details.cached_tokens >= 0
          and r.usage.output_tokens_details.reasoning_tokens == 0, r.usage)
    equal("response: echoes", (r.instructions, r.temperature, r.max_output_tokens, r.tool_choice, r.truncation),
          ("Be brief.", 0.0, 24, "auto", "disabled"))
    types.Response.model_validate(r.model_dump())
    equal("response: again the same", create().output_text, r.output_text)


def stream():
    whole = create()
    seen = validated(create(stream=True))
    names = [e.type.removeprefix("response.") for e in seen]
    equal("stream: begins", names[:4], ["created", "in_progress", "output_item.added", "content_part.added"])
    equal("stream: ends", names[-4:], ["output_text.done", "content_part.done", "output_item.done", whole.status])
    equal("stream: deltas join", "".join(e.delta for e in seen if e.type.endswith("text.delta")), whole.output_text)
    equal("stream: last response", seen[-1].response.output_text, whole.output_text)
    equal("stream: counts", seen[-1].response.usage.output_tokens, whole.usage.output_tokens)


def chances():
    """Log-probabilities of the words' tokens, whole and streamed, and none that are not asked for."""
    more = {"include": ["message.output_text.logprobs"], "top_logprobs": 3}
    whole = create(**more)
    part = whole.output[0].content[0]
    equal("chances: tokens join", b"".join(bytes(p.bytes) for p in part.logprobs).decode(), part.text)
    check("chances: the likeliest first", all(p.logprob <= 0 and len(p.top_logprobs) == 3
                                              and p.top_logprobs[0].token == p.token for p in part.logprobs), part)
    seen = validated(create(stream=True, **more))
    deltas = [e for e in seen if e.type == "response.output_text.delta"]
    equal("chances: streamed", [p.logprob for e in deltas for p in e.logprobs], [p.logprob for p in part.logprobs])
    check("chances: each piece has its own", all(b"".join(s.encode() for s in [e.delta]) ==
                                                 "".join(p.token for p in e.logprobs).encode() for e in deltas
                                                 if e.delta.isascii()), deltas[:3])
    equal("chances: none", create().output[0].content[0].logprobs, [])
    calls = {**more, "tools": [TOOL], "tool_choice": "required", "max_output_tokens": 200}
    seen = validated(create(stream=True, **calls))
    equal("chances: a call comes without empty texts next to it", [i.type for i in seen[-1].response.output],
          [i.type for i in create(**calls).output])
    calls.update(input="def add(a, b):\n", extra_body={"ignore_eos": True})  # what goes on is like the call
    after = [i.content[0] for i in create(**calls).output if i.type == "message"]
    seen = validated(create(stream=True, **calls))
    words = lambda lists: [(p.token, p.logprob) for l in lists for p in l if p.token != "<|im_end|>"]
    streamed = words(e.logprobs for e in seen if e.type == "response.output_text.delta")
    check("chances: words after a call", len("".join(p.text for p in after)) > 20, after)
    equal("chances: of words after a call, streamed", streamed, words(p.logprobs for p in after))
    equal("chances: of these words and no others", "".join(t for t, _ in streamed), "".join(p.text for p in after))


def stream_helper():
    with client.responses.stream(model="m", input="Count.", max_output_tokens=400, temperature=0) as s:
        text = "".join(e.delta for e in s if e.type == "response.output_text.delta")
        try:
            equal("helper: the whole of it", s.get_final_response().output_text, text)
        except RuntimeError as error:  # it was cut off, which the helper does not take for an end
            check("helper: cut off", "completed" in str(error), error)


def conversation():
    said = [{"role": "user", "content": "Say hello. " * 40}]  # long enough that the cache keeps it
    first = create(input=said)
    second = create(input="And again.", previous_response_id=first.id)
    items = [*said, *[i.model_dump(exclude_none=True) for i in first.output], {"role": "user", "content": "And again."}]
    third = create(input=items, store=False)
    equal("kept: the same as all of it", second.output_text, third.output_text)
    equal("kept: shown", client.responses.retrieve(first.id).output_text, first.output_text)
    texts = [said[0]["content"], first.output_text, "And again."]
    for order, wanted in (("", texts[::-1]), ("desc", texts[::-1]), ("asc", texts)):
        listed = client.responses.input_items.list(second.id, limit=50, **({"order": order} if order else {}))
        equal(f"kept: its input, {order}", [i.content[0].text for i in listed], wanted)
    pages = client.responses.input_items.list(second.id, limit=2)
    equal("kept: a page of its input", (len(pages.data), pages.has_more), (2, True))
    equal("kept: all pages of it", [i.content[0].text for i in pages], texts[::-1])
    equal("kept: ids", [i.id for i in pages][::-1], [i.id for i in client.responses.input_items.list(second.id, order="asc")])
    check("kept: what users said is of its type", isinstance(pages.data[0], types.ResponseInputMessageItem), pages.data[0])
    again = create(input=[{"type": "item_reference", "id": pages.data[0].id}])
    equal("kept: an item of its input, by its id",
          [i.content[0].text for i in client.responses.input_items.list(again.id)], ["And again."])
    again = create(input=[{"type": None, "id": pages.data[0].id}])
    equal("kept: an item by its id alone",
          [i.content[0].text for i in client.responses.input_items.list(again.id)], ["And again."])
    refused("kept: a page after nothing", lambda: client.responses.input_items.list(second.id, after="msg_x"), 400)
    refused("kept: a page of nothing", lambda: client.responses.input_items.list(second.id, limit=0), 400)
    check("kept: cached", second.usage.input_tokens_details.cached_tokens > 0, second.usage)
    call = {"type": "kind_of_tomorrow", "n": 2 ** 70, "deep": json.loads("[" * 200 + "]" * 200)}
    odd = create(input=[call, *said])
    items = client.get(f"/responses/{odd.id}/input_items?order=asc", cast_to=object)["data"]
    equal("kept: items as they came, deep and with large numbers", items[0], call)
    client.responses.delete(first.id)
    for name, call in (("deleted", lambda: client.responses.retrieve(first.id)),
                       ("not stored", lambda: client.responses.retrieve(third.id))):
        try:
            check(f"kept: {name}", False, call())
        except openai.NotFoundError as error:
            check(f"kept: {name}", "is kept here" in str(error), error)


def kept_streams():
    for made in ("whole", "streamed"):
        if made == "whole":
            first = create(include=["message.output_text.logprobs"])
        else:
            first = list(create(stream=True))[-1].response
        events = validated(client.responses.retrieve(first.id, stream=True))
        equal(f"kept, {made}: its last event is the response", events[-1].response, client.responses.retrieve(first.id))
        equal(f"kept, {made}: the words", "".join(e.delta for e in events if e.type == "response.output_text.delta"),
              first.output_text)
        rest = list(client.responses.retrieve(first.id, stream=True, starting_after=4))
        equal(f"kept, {made}: after a number", rest, events[5:])
    refused("kept: after the end", lambda: list(client.responses.retrieve(first.id, stream=True, starting_after=99)), 400)
    refused("cancel", lambda: client.responses.cancel(first.id), 400)
    refused("cancel: unknown", lambda: client.responses.cancel("resp_none"), 404)
    refused("compact", lambda: client.responses.compact(model="m", input=INPUT), 404)


def refused(name, call, status):
    try:
        call()
        check(f"{name}: refused", False)
    except openai.APIStatusError as error:
        equal(f"{name}: refused", error.status_code, status)


def input_tokens():
    """What a request's prompt counts is what its answer says that it counted."""
    count = client.responses.input_tokens.count
    fields = {"model": "m", "input": INPUT, "instructions": "Be brief."}
    n = count(**fields)
    equal("count: what it is", n.object, "response.input_tokens")
    equal("count: as the answer", n.input_tokens, create().usage.input_tokens)
    equal("count: a string", count(input="Say hello.", instructions="Be brief.").input_tokens, n.input_tokens)
    more = {"tools": [TOOL, {"type": "web_search"}], "reasoning": {"effort": "none"}}
    equal("count: with tools", count(**fields, **more).input_tokens, create(**more).usage.input_tokens)
    first = create()
    equal("count: after a response", count(input="And again.", previous_response_id=first.id).input_tokens,
          create(input="And again.", instructions=None, previous_response_id=first.id).usage.input_tokens)
    for name, wrong in (("no input", {}), ("a number", {"input": 5}),
                        ("a picture", {"input": [{"role": "user", "content": [
                            {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AA=="}]}]})):
        try:
            check(f"count: {name}", False, count(**wrong))
        except openai.BadRequestError as error:
            check(f"count: {name}", "input" in str(error), error)


def custom():
    """The input of a custom tool comes in pieces, which join to the item's."""
    patch = {"type": "custom", "name": "apply_patch", "description": "Changes files."}
    lines = "\n".join(f"+{word} {word}" for word in "alpha beta gamma delta epsilon zeta eta theta".split())
    ask = f"Apply this patch:\n\n*** Begin Patch\n*** Add File: a.txt\n{lines}\n*** End Patch"
    for choice in ({"type": "custom", "name": "apply_patch"}, "required"):
        seen = validated(create(input=ask, tools=[patch], tool_choice=choice, stream=True, max_output_tokens=160))
        deltas = [e.delta for e in seen if e.type == "response.custom_tool_call_input.delta"]
        items = [e.item for e in seen if e.type == "response.output_item.done" and e.item.type == "custom_tool_call"]
        check("custom: a call", len(items) >= 1 and items[0].name == "apply_patch", seen[-1])
        equal("custom: pieces join", "".join(deltas), "".join(i.input for i in items))
        check("custom: several pieces", len(deltas) > 2 * len(items), deltas)
        check("custom: text, not JSON", not items[0].input.startswith("{\"input\""), items[0].input)


def tools():
    call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path": "a.txt"}'}
    r = create(tools=[TOOL, {"type": "web_search"}, {"type": "custom", "name": "apply_patch"},
                      {"type": "namespace", "name": "mcp__x", "description": "d", "tools": [TOOL]},
                      {"type": "kind_of_tomorrow"}],
               input=[*INPUT, call, {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
                      {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin Patch"},
                      {"type": "custom_tool_call_output", "call_id": "c2", "output": "Done."},
                      {"role": "user", "content": "Go on."}])
    check("tools: an answer", r.output, r)
    equal("tools: come back", [t.type for t in r.tools][:3], ["function", "web_search", "custom"])
    equal("tools: none", create(tools=[TOOL], tool_choice="none").output[0].type, "message")


def reasoning():
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
        file.write(TEMPLATE)
        file.flush()
        thinker = Server("--chat-template-file", file.name)
        by = connect(thinker.port)
        seen = validated(create(by, stream=True))
        thought = "".join(e.delta for e in seen if e.type == "response.reasoning_text.delta")
        item = seen[-1].response.output[0]
        equal("reasoning: an item", (item.type, item.content[0].text, item.summary), ("reasoning", thought, []))
        check("reasoning: counted", seen[-1].response.usage.output_tokens_details.reasoning_tokens > 0, seen[-1])
        r = create(by, reasoning={"summary": "auto"}, include=["reasoning.encrypted_content"])
        equal("reasoning: as a summary", r.output[0].summary[0].text, thought)
        older = create(by, reasoning={"generate_summary": "auto"})
        equal("reasoning: as a summary, by its older name", older.output[0].summary[0].text, thought)
        names = [e.type for e in validated(create(by, stream=True, reasoning={"summary": "auto"}))]
        check("reasoning: summary events", names.count("response.reasoning_summary_part.done") == 1, names)
        sealed = [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": r.output[0].encrypted_content}]
        plain = [{"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": thought}]}]
        said = [{"role": "assistant", "content": "Hi."}, {"role": "user", "content": "More."}]
        counts = [create(by, input=INPUT + i + said).usage.input_tokens for i in (sealed, plain, [])]
        check("reasoning: comes back sealed", counts[0] == counts[1] > counts[2], counts)
        check("reasoning: the server ends", thinker.end() == 0)


def errors():
    cases = (({"input": []}, "input is empty"), ({"input": [{"role": "king", "content": "x"}]}, "input[0].role"),
             ({"previous_response_id": "resp_0"}, "is kept here"),
             ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "u"}]}]}, "reads text only"),
             ({"input": "x " * 20000}, "too long"))
    for fields, words in cases:
        try:
            check(f"errors: {words}", False, create(**fields))
        except openai.BadRequestError as error:
            check(f"errors: {words}", words in str(error), error)
            equal(f"errors: {words}: no retry", error.response.headers.get("x-should-retry"), "false")
    try:
        check("errors: a long input", False, create(input="x " * 20000))
    except openai.BadRequestError as error:
        equal("errors: its code and field", (error.code, error.param), ("context_length_exceeded", "input"))


def fields():
    """Each field that the SDK can send is read, or named as one that does nothing."""
    for path, kind in (("/v1/responses", ResponseCreateParamsStreaming),
                       ("/v1/responses/input_tokens", types.InputTokenCountParams)):
        equal(f"fields: {path}", unjudged(path, "Responses", kind.__annotations__), [])


def prewarm():
    """A prompt is read for the cache alone, and the next request finds it there."""
    long = [{"role": "developer", "content": "".join(f"Rule {i}: be brief. " for i in range(60))}]
    for stream in (False, True):
        if stream:
            long[0]["content"] = "Other rules. " + long[0]["content"]
        r = create(input=long, prompt_cache_options={"prewarm": True}, max_output_tokens=9, stream=stream)
        r = validated(r)[-1].response if stream else r
        equal(f"prewarm: nothing is answered, stream {stream}", (r.status, r.output, r.usage.output_tokens),
              ("completed", [], 0))
        after = create(input=long + [{"role": "user", "content": "Hello."}], max_output_tokens=2)
        check("prewarm: the cache has it", after.usage.input_tokens_details.cached_tokens > 0.8 * r.usage.input_tokens,
              after.usage)
    refused("prewarm: a word", lambda: create(prompt_cache_options={"prewarm": "yes"}), 400)


def abort():
    with create(stream=True, max_output_tokens=4000, extra_body={"ignore_eos": True}) as s:
        for event in s:
            if event.type == "response.output_text.delta":
                break
    check("abort: the work ends", server.calm())
    part(cut_off)
    check("abort: of a whole answer", server.calm())


def cut_off():
    try:
        create(connect(server.port, timeout=0.2), max_output_tokens=4000, extra_body={"ignore_eos": True})
        check("abort: no answer in time", False)
    except openai.APITimeoutError:
        check("abort: no answer in time", True)


if __name__ == "__main__":
    os.makedirs("build", exist_ok=True)
    server = Server()
    client = connect(server.port)
    for one in (response, stream, chances, stream_helper, conversation, kept_streams, input_tokens, custom, tools, reasoning,
                errors, fields, prewarm, abort):
        part(one)
    equal("the server ends in order", server.end(), 0)
    finish()
