#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cline's command line (npm cline) over chat completions."""
from harness import Trial, part, program
from suite import check

trial = Trial()
CLINE = program("node_modules/@cline/cli-linux-x64/bin/cline", "node_modules/.bin/cline")
DATA = f"{trial.home}/.cline/data"
TEAM = ["spawn_teammate", "shutdown_teammate", "status", "task", "run_task", "cancel_run", "list_runs", "await_runs",
        "send_message", "broadcast", "read_mailbox", "mission_log", "cleanup", "create_outcome", "attach_outcome_fragment",
        "review_outcome_fragment", "finalize_outcome", "list_outcomes"]
SYSTEM = "You are a coding agent. " + "Use the tools to read and change files, and say shortly what you did. " * 4
SETTINGS = {"telemetryOptOut": True, "autoUpdateEnabled": False, "compactionEnabled": False,
            "disabledTools": ["search_codebase", "run_commands", "fetch_web_content", "ask_question", "spawn_agent",
                              *("team_" + name for name in TEAM)]}
trial.env |= {"CLINE_NO_AUTO_UPDATE": "1", "CLINE_DATA_DIR": DATA,
              "CLINE_GLOBAL_SETTINGS_PATH": f"{DATA}/settings/global-settings.json"}
trial.write(".cline/data/settings/global-settings.json", SETTINGS)


def command(prompt, _goes_on):
    if prompt is None:
        return [CLINE, "auth", "--provider", "openai", "--apikey", "none", "--modelid", "coppice", "--baseurl",
                f"{trial.url}/v1", "--data-dir", DATA]
    # --id goes on in its terminal interface only, so the second turn is a conversation that begins with the same words.
    return [CLINE, "--json", "--data-dir", DATA, "--system", SYSTEM, "--retries", "1", prompt]


def result(lines):
    return [v for v in lines if v.get("type") == "run_result"][-1]


def reported(lines, _):
    usage = result(lines)["usage"]
    return usage["inputTokens"], usage["cacheReadTokens"], usage["outputTokens"]


trial.command = command
trial.calls = lambda lines: [str(v["event"]["output"]) for v in lines if v.get("type") == "agent_event"
                             and (v["event"]["type"], v["event"].get("contentType")) == ("content_end", "tool")]
trial.replies = lambda lines, _: [result(lines)["text"]]
trial.reported = reported
trial.slack = 64


def settings():
    rc, _, text, _ = trial.ask(None)
    check("settings: the server is its provider", rc == 0, text)


part(settings)
part(trial.chat)
READ = 'Call the tool read_files with files=[{"path": "notes.txt"}]'
EDIT = 'Call the tool editor with path="notes.txt", old_text="heron" and new_text="egret"'
part(lambda: trial.tools(READ, EDIT))
part(trial.abort)
trial.finish("data.cline.bot:443")
