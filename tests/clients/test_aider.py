#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""aider (PyPI aider-chat) over chat completions. It calls no tools: files go into the prompt, and it changes them by what the
answer says."""
import re

from harness import Trial, check, part, program

trial = Trial()
AIDER = program("venv/bin/aider")
trial.env |= {"OPENAI_API_BASE": f"{trial.url}/v1", "OPENAI_API_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
              "AIDER_ANALYTICS_DISABLE": "1", "COLUMNS": "200"}
trial.write("model.yml", "- name: openai/coppice\n  extra_params:\n    max_tokens: 400\n")


def command(prompt, goes_on, *more):
    return [AIDER, "--model", "openai/coppice", "--model-settings-file", "model.yml", "--no-check-update",
            "--analytics-disable", "--no-git", "--no-gitignore", "--yes-always", "--no-show-model-warnings",
            "--no-show-release-notes", "--no-pretty", "--no-fancy-input", "--no-detect-urls", "--no-suggest-shell-commands",
            "--map-tokens", "0", "--chat-mode", "ask", *(["--restore-chat-history"] if goes_on else []), *more,
            "--message", prompt]


trial.command = command
trial.slack = 80  # what it puts before the question moves after the earlier turns
trial.replies = lambda _, text: re.findall(r"^Tokens: .* received\.", text, re.M)


def file():
    """The words of a file are in the prompt."""
    command_ = trial.command
    trial.command = lambda prompt, goes_on: command_(prompt, goes_on, "--file", "notes.txt")
    without = trial.records()[-1]["usage"]["prompt_tokens"]
    rc, _, text, seen = trial.ask("What is the secret word?")
    check("file: it is in the prompt", rc == 0 and seen and "Added notes.txt to the chat" in text, text[-1500:])
    print(f"note     {without} tokens without it, {seen[-1]['usage']['prompt_tokens']} with it")
    trial.command = command_


part(trial.chat)
part(file)
part(trial.abort)
trial.finish("raw.githubusercontent.com:443")
