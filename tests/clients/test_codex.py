#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Codex CLI (npm @openai/codex) over Responses."""
import json

from harness import CONTEXT, Trial, part, program
from suite import check, request

trial = Trial()
CONFIG = f"""
model = "coppice-tiny-q8_0"
model_provider = "coppice"
model_catalog_json = "{trial.home}/.codex/models.json"
model_context_window = {CONTEXT}
approval_policy = "never"
sandbox_mode = "danger-full-access"
web_search = "disabled"
check_for_update_on_startup = false
include_permissions_instructions = false
include_apps_instructions = false
include_environment_context = false

[model_providers.coppice]
name = "coppice"
base_url = "{trial.url}/v1"
wire_api = "responses"

[analytics]
enabled = false

[agents]
enabled = false

[skills]
include_instructions = false

[features]
apps = false
goals = false
hooks = false
image_generation = false
plugins = false
shell_snapshot = false
skill_search = false
tool_suggest = false
view_image = false
"""
CODEX = program("node_modules/.bin/codex")


def command(prompt, goes_on):
    return [CODEX, "exec", "--strict-config", "--skip-git-repo-check", "--json", *(["resume", "--last"] if goes_on else []),
            prompt]


def items(lines, kind):
    return [v["item"] for v in lines if v.get("type") == "item.completed" and v["item"].get("type") == kind]


def reported(lines, _):
    usage = [v["usage"] for v in lines if v.get("type") == "turn.completed"][-1]
    return usage["input_tokens"], usage["cached_input_tokens"], usage["output_tokens"]


trial.command = command
trial.calls = lambda lines: [item["aggregated_output"] for item in items(lines, "command_execution")]
trial.replies = lambda lines, _: [item["text"] for item in items(lines, "agent_message")]
trial.reported = reported
trial.total = True


def chat():
    """What the server says of its model is what Codex reads as its catalogue of models."""
    status, _, body = request(trial.server.port, "GET", "/v1/models?client_version=0.169.0")
    trial.write(".codex/models.json", body.decode())
    trial.write(".codex/config.toml", CONFIG)
    check("catalogue: there", status == 200 and json.loads(body)["models"], body)
    seen = trial.chat()
    check("catalogue: taken without a word", not items(seen, "error"), seen)


part(chat)
part(lambda: trial.tools('Run the command: cat notes.txt', 'Run the command: sed -i s/heron/egret/ notes.txt'))
part(trial.abort)
trial.finish()
