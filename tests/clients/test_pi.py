#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pi (npm @mariozechner/pi-coding-agent) over chat completions, Responses and Messages."""
from harness import CONTEXT, Trial, part, program

trial = Trial()
PI = program("node_modules/@mariozechner/pi-coding-agent/dist/cli.js")
trial.env |= {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"}
APIS = {"chat": ("openai-completions", "/v1"), "responses": ("openai-responses", "/v1"), "messages": ("anthropic-messages", "")}
trial.write(".pi/agent/models.json", {"providers": {
    name: {"baseUrl": trial.url + path, "apiKey": "none", "api": api,
           "models": [{"id": "coppice", "contextWindow": CONTEXT, "maxTokens": 4096}]}
    for name, (api, path) in APIS.items()}})
EDIT = 'Call the tool edit with path="notes.txt" and edits=[{"oldText": "heron", "newText": "egret"}]'
provider = "chat"


def command(prompt, goes_on):
    return ["node", PI, "--offline", "--provider", provider, "--model", "coppice", "--tools", "read,edit",
            "--mode", "json", "--print", *(["--continue"] if goes_on else []), prompt]


def answers(lines):
    return [v["message"] for v in lines if v["type"] == "message_end" and v["message"]["role"] == "assistant"]


def reported(lines, _):
    usage = answers(lines)[-1]["usage"]
    if provider == "responses" and not usage["output"]:
        return None  # it reads no usage from an answer that was cut off
    return usage["input"] + usage["cacheRead"], usage["cacheRead"], usage["output"]


trial.command = command
trial.calls = lambda lines: [str(v["result"]) for v in lines if v["type"] == "tool_execution_end"]
trial.replies = lambda lines, _: [c["text"] for m in answers(lines) for c in m["content"] if c["type"] == "text"]
trial.reported = reported

for provider in APIS:
    print(f"note     over {APIS[provider][0]}")
    part(trial.chat)
    part(lambda: trial.tools("Read the file notes.txt", EDIT))
    part(trial.abort)
trial.finish()
