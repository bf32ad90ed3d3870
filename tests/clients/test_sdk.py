#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The official Python SDKs of OpenAI and Anthropic, the newest major version and the one before, and LangChain where it is
installed: a chat, a conversation with calls that read and change a file, its second turn from the cache, an abort.
Run by the Python of FOLDER.
"""
import json
import os

import anthropic
import openai

from harness import NOTE, Trial, check, equal, part

trial = Trial()
SYSTEM = "You are a coding agent. " + "Use the tools to read and change files, and say shortly what you did. " * 4
FILE = {"type": "string", "enum": ["notes.txt"]}
TOOLS = {
    "read": ("Reads a file.", {"path": FILE}),
    "edit": ("Puts one word for another in a file.", {
        "path": FILE, "old": {"type": "string", "enum": ["heron"]}, "new": {"type": "string", "enum": ["egret"]}}),
}
SCHEMAS = {name: {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
           for name, (_, properties) in TOOLS.items()}


def carry_out(name, arguments):
    """What a tool does, with the arguments as the SDK gives them."""
    text = trial.read(arguments["path"])
    if name == "read":
        return text
    trial.write(arguments["path"], text.replace(arguments["old"], arguments["new"]))
    return "done"


def turns(kind, step):
    """A conversation of two calls and an answer; step(tool or None) adds a turn and gives ([(tool, its result)], text,
    prompt tokens, cached tokens)."""
    trial.write("notes.txt", NOTE)
    done, before = [], 0
    for name in ("read", "edit", None):
        calls, text, prompt, cached = step(name)
        if name:
            equal(f"{kind}: it calls {name}", [call[0] for call in calls], [name])
            done += [result for _, result in calls]
        else:
            check(f"{kind}: it ends with words", text and not calls, (calls, text))
        if before:
            check(f"{kind}: what was read before comes from the cache", before - 32 <= cached < prompt,
                  f"{cached} of {before} tokens")
        before = prompt
    equal(f"{kind}: what the tools did", (done, trial.read("notes.txt")), ([NOTE, "done"], NOTE.replace("heron", "egret")))


def chat_completions():
    client = openai.OpenAI(base_url=f"{trial.url}/v1", api_key="none")
    tools = [{"type": "function", "function": {"name": n, "description": TOOLS[n][0], "parameters": SCHEMAS[n]}} for n in TOOLS]
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Read notes.txt, then edit it."}]

    def step(name):
        choice = {"type": "function", "function": {"name": name}} if name else "auto"
        with client.chat.completions.stream(model="m", messages=messages, tools=tools, tool_choice=choice, max_tokens=200,
                                            stream_options={"include_usage": True}) as stream:
            answer = stream.get_final_completion()
        message, usage = answer.choices[0].message, answer.usage
        messages.append(message.to_dict())
        calls = []
        for call in message.tool_calls or []:
            result = carry_out(call.function.name, json.loads(call.function.arguments))
            calls.append((call.function.name, result))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        return calls, message.content, usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens

    turns("chat completions", step)


def responses():
    client = openai.OpenAI(base_url=f"{trial.url}/v1", api_key="none")
    tools = [{"type": "function", "name": n, "description": TOOLS[n][0], "parameters": SCHEMAS[n], "strict": True} for n in TOOLS]
    given = [{"role": "user", "content": "Read notes.txt, then edit it."}]

    def step(name):
        choice = {"type": "function", "name": name} if name else "auto"
        with client.responses.stream(model="m", instructions=SYSTEM, input=given, tools=tools, tool_choice=choice,
                                     max_output_tokens=200, store=False) as stream:
            for event in stream:
                last = event
        answer = last.response
        calls = []
        for item in answer.output:
            given.append(item.to_dict())
            if item.type == "function_call":
                calls.append((item.name, carry_out(item.name, json.loads(item.arguments))))
                given.append({"type": "function_call_output", "call_id": item.call_id, "output": calls[-1][1]})
        usage = answer.usage
        return calls, answer.output_text, usage.input_tokens, usage.input_tokens_details.cached_tokens

    turns("responses", step)


def messages_api():
    client = anthropic.Anthropic(base_url=trial.url, api_key="none")
    tools = [{"name": n, "description": TOOLS[n][0], "input_schema": SCHEMAS[n]} for n in TOOLS]
    messages = [{"role": "user", "content": "Read notes.txt, then edit it."}]

    def step(name):
        choice = {"type": "tool", "name": name} if name else {"type": "auto"}
        with client.messages.stream(model="m", system=SYSTEM, messages=messages, tools=tools, tool_choice=choice,
                                    max_tokens=200) as stream:
            answer = stream.get_final_message()
        messages.append({"role": "assistant", "content": [block.to_dict() for block in answer.content]})
        uses = [block for block in answer.content if block.type == "tool_use"]
        calls = [(block.name, carry_out(block.name, block.input)) for block in uses]
        if calls:
            messages.append({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": block.id, "content": result}
                for block, (_, result) in zip(uses, calls)]})
        text = "".join(block.text for block in answer.content if block.type == "text")
        usage = answer.usage
        return calls, text, usage.input_tokens + usage.cache_read_input_tokens, usage.cache_read_input_tokens

    turns("messages", step)


def aborts():
    """Streams that are left, and requests that time out while their prompt is read."""
    long = "word " * 6000
    for name, make in (
            ("chat completions", lambda **more: openai.OpenAI(base_url=f"{trial.url}/v1", api_key="n", max_retries=0, **more)
             .chat.completions.create),
            ("messages", lambda **more: anthropic.Anthropic(base_url=trial.url, api_key="n", max_retries=0, **more)
             .messages.create)):
        ask = {"model": "m", "max_tokens": 4000, "extra_body": {"ignore_eos": True}}
        stream = make()(messages=[{"role": "user", "content": "Count."}], stream=True, **ask)
        next(iter(stream))
        (stream.close if hasattr(stream, "close") else stream.response.close)()
        check(f"{name}: a stream that is left frees its slot", trial.server.calm(2))
        try:
            make(timeout=0.5)(messages=[{"role": "user", "content": long}], **ask)
            check(f"{name}: it times out", False)
        except (openai.APITimeoutError, anthropic.APITimeoutError):
            check(f"{name}: a request given up while its prompt is read frees its slot", trial.server.calm(2))


def langchain():
    from langchain_anthropic import ChatAnthropic
    from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def read(path: str) -> str:
        """Reads a file."""
        return trial.read(path)

    @tool
    def edit(path: str, old: str, new: str) -> str:
        """Puts one word for another in a file."""
        return carry_out("edit", {"path": path, "old": old, "new": new})

    for tool_, name in ((read, "read"), (edit, "edit")):
        tool_.args_schema = SCHEMAS[name]
    for kind, model in (("ChatOpenAI", ChatOpenAI(base_url=f"{trial.url}/v1", api_key="none", model="m", max_tokens=200)),
                        ("ChatAnthropic", ChatAnthropic(base_url=trial.url, api_key="none", model="m", max_tokens=200))):
        messages = [SystemMessage(SYSTEM), HumanMessage("Read notes.txt, then edit it.")]

        def step(name, model=model, messages=messages):
            answer = model.bind_tools([read, edit], tool_choice=name or "auto").invoke(messages)
            messages.append(answer)
            calls = []
            for call in answer.tool_calls:
                calls.append((call["name"], {"read": read, "edit": edit}[call["name"]].invoke(call["args"])))
                messages.append(ToolMessage(calls[-1][1], tool_call_id=call["id"]))
            usage = answer.usage_metadata
            text = answer.content if isinstance(answer.content, str) else "".join(
                block.get("text", "") for block in answer.content)
            return calls, text, usage["input_tokens"], usage["input_token_details"]["cache_read"]

        turns(kind, step)
        check(f"{kind}: streamed", "".join(str(piece.content) for piece in model.stream("Say hello.")))


os.environ.update({name: value for name, value in trial.env.items() if "proxy" in name.lower()})
print(f"note     openai {openai.__version__}, anthropic {anthropic.__version__}")
for function in (chat_completions, responses, messages_api, aborts):
    part(function)
try:
    import langchain_anthropic  # noqa: F401 (only whether it is there)
    import langchain_openai  # noqa: F401
    part(langchain)
except ImportError:
    print("note     LangChain is not installed next to these")
trial.finish()
