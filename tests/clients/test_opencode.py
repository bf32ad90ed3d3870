#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""OpenCode (npm opencode-ai) over chat completions, through @ai-sdk/openai-compatible."""
from harness import CONTEXT, Trial, part, program
from suite import check

trial = Trial()
OPENCODE = program("node_modules/opencode-linux-x64/bin/opencode", "node_modules/.bin/opencode")
CONFIG = {
    "$schema": "https://opencode.ai/config.json", "model": "coppice/coppice", "small_model": "coppice/coppice",
    "enabled_providers": ["coppice"], "autoupdate": False, "share": "disabled", "snapshot": False, "lsp": False,
    "formatter": False, "default_agent": "small",
    "agent": {
        "small": {"mode": "primary", "prompt": "You are a coding agent.", "tools": {"*": False, "read": True, "edit": True}},
        "title": {"disable": True},
    },
    "provider": {"coppice": {
        "npm": "@ai-sdk/openai-compatible", "name": "coppice", "options": {"baseURL": f"{trial.url}/v1", "apiKey": "none"},
        "models": {"coppice": {"name": "coppice", "limit": {"context": CONTEXT, "output": 4096}}}}},
}
trial.env |= {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_SHARE": "1",
              "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}
trial.write("opencode.json", CONFIG)


def command(prompt, goes_on):
    return [OPENCODE, "run", "--pure", "--format", "json", *(["--continue"] if goes_on else []), *prompt.split(" ")]


def reported(lines, _):
    tokens = [v["part"]["tokens"] for v in lines if v["type"] == "step_finish"][-1]
    return tokens["input"] + tokens["cache"]["read"], tokens["cache"]["read"], tokens["output"]


trial.command = command
trial.calls = lambda lines: [str(v["part"]["state"].get("output")) for v in lines if v["type"] == "tool_use"]
trial.replies = lambda lines, _: [v["part"]["text"] for v in lines if v["type"] == "text"]
trial.reported = reported


def whole():
    """With its own agent, which asks for a title at the same time."""
    trial.write("opencode.json", {**CONFIG, "default_agent": "build", "agent": {}})
    rc, lines, text, seen = trial.ask("Hello")
    check("as it is: it ends in order", rc == 0 and any(trial.replies(lines, text)), text[-2000:])
    check("as it is: the title was requested in addition to the answer", len(seen) == 2, seen)
    print(f"note     its first prompts have {[r['usage']['prompt_tokens'] for r in seen]} tokens here")
    rc, lines, text, seen = trial.ask("Thank you.", goes_on=True)
    usage = seen[-1]["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    check("as it is: the second turn begins from the cache", cached >= 0.9 * usage["prompt_tokens"], seen[-1])
    trial.write("opencode.json", CONFIG)


part(trial.chat)
EDIT = f'Call the tool edit with filePath="{trial.work}/notes.txt", oldString="heron" and newString="egret"'
part(lambda: trial.tools(f"Read the file {trial.work}/notes.txt", EDIT))
part(trial.abort)
part(whole)
trial.finish("registry.npmjs.org:443")
