#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Claude Code (npm @anthropic-ai/claude-code) over Messages."""
from harness import Trial, part, program
from suite import check

trial = Trial()
CLAUDE = program("node_modules/@anthropic-ai/claude-code-linux-x64/claude", "node_modules/.bin/claude")
trial.env |= {
    "ANTHROPIC_BASE_URL": trial.url, "ANTHROPIC_API_KEY": "none", "ANTHROPIC_MODEL": "coppice",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": "coppice", "ANTHROPIC_DEFAULT_SONNET_MODEL": "coppice",
    "ANTHROPIC_DEFAULT_OPUS_MODEL": "coppice", "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "4096",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1", "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
}
SMALL = ["--bare", "--disable-slash-commands", "--tools", "Read,Edit", "--system-prompt",
         "You are a coding agent. Use the tools to read and change files."]
options = SMALL


def command(prompt, goes_on):
    return [CLAUDE, *options, "--print", "--verbose", "--output-format", "stream-json", "--permission-mode",
            "acceptEdits", *(["--continue"] if goes_on else []), "--", prompt]


def result(lines):
    return [v for v in lines if v.get("type") == "result"][-1]


def reported(lines, _):
    usage = result(lines)["usage"]
    cached = usage["cache_read_input_tokens"]
    return usage["input_tokens"] + cached, cached, usage["output_tokens"]


trial.command = command
trial.calls = lambda lines: [str(c["content"]) for v in lines if v.get("type") == "user"
                             for c in v["message"]["content"] if c["type"] == "tool_result"]
trial.replies = lambda lines, _: [result(lines)["result"]]
trial.reported = reported


def whole():
    """With nothing left out: its own system prompt and tools, twice, the second time from the cache."""
    global options
    options = []
    for turn in ("first", "second"):
        rc, lines, text, seen = trial.ask("Hello")
        check(f"as it is, {turn} run", rc == 0 and result(lines)["is_error"] is False, text[-2000:])
    usage = seen[-1]["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    print(f"note     its first prompt has {usage['prompt_tokens']} tokens here")
    check("as it is: the second run begins from the cache", cached >= 0.9 * usage["prompt_tokens"], seen[-1])
    options = SMALL


part(trial.chat)
EDIT = f'Read the file {trial.work}/notes.txt and replace "heron" with "egret"'
part(lambda: trial.tools(f"Read the file {trial.work}/notes.txt", EDIT))
part(trial.abort)
part(whole)
trial.finish()
