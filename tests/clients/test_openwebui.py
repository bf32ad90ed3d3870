#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Open WebUI (PyPI open-webui) over chat completions, used in headless Chromium (openwebui.mjs). Two tools of its own kind, in
Python, read and change a file."""
import json
import os
import shutil
import subprocess
import sys

from harness import FOLDER, NOTE, OTHER, WORD, Trial, part, program
from suite import check, equal, free_port, request, running, until

TOOLS = '''
class Tools:
    def read(self, path: str) -> str:
        """
        Reads a file.
        :param path: Path of the file.
        """
        with open(path) as file:
            return file.read()

    def edit(self, path: str, old: str, new: str) -> str:
        """
        Puts one word for another in a file.
        :param path: Path of the file.
        :param old: The word that is there.
        :param new: The word to put there.
        """
        text = self.read(path)
        with open(path, "w") as file:
            file.write(text.replace(old, new))
        return "done"
'''
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
trial = Trial()
port = free_port()
trial.env |= {
    "OPENAI_API_BASE_URL": f"{trial.url}/v1", "OPENAI_API_KEY": "none", "ENABLE_OLLAMA_API": "False", "WEBUI_AUTH": "False",
    "WEBUI_SECRET_KEY": "x", "DATA_DIR": os.path.join(trial.home, "data"), "OFFLINE_MODE": "True", "HF_HUB_OFFLINE": "1",
    "ENABLE_VERSION_UPDATE_CHECK": "False", "RAG_EMBEDDING_ENGINE": "openai", "SCARF_NO_ANALYTICS": "true",
    "ANONYMIZED_TELEMETRY": "false", "ENABLE_PERSISTENT_CONFIG": "False"}
os.mkdir(trial.env["DATA_DIR"])


class Child:
    """A process that ends with the trial."""

    def __init__(self, command, log, **more):
        self.log = open(os.path.join(trial.home, log), "w+b")
        self.child = subprocess.Popen(command, env=trial.env, cwd=trial.home, stderr=self.log,
                                      **{"stdout": self.log, "stdin": subprocess.DEVNULL, **more})
        running.append(self)


def call(path, body, token=None):
    status, _, answer = request(port, "POST", path, body, {"Authorization": f"Bearer {token}"} if token else {})
    if status != 200:
        raise RuntimeError(f"{path}: {status} {answer[:500]}")
    return json.loads(answer)


def healthy():
    try:
        return request(port, "GET", "/health", timeout=5)[0] == 200
    except OSError:
        return False


def start():
    """Open WebUI, the tools and a model that has them."""
    Child([program("venv/bin/open-webui"), "serve", "--host", "127.0.0.1", "--port", str(port)], "open-webui.log")
    if not check("it starts without a network", until(healthy, 400)):
        return
    token = call("/api/v1/auths/signin", {"email": "", "password": ""})["token"]
    call("/api/v1/tools/create", {"id": "files", "name": "files", "content": TOOLS,
                                  "meta": {"description": "files", "manifest": {}}}, token)
    call("/api/v1/models/create", {
        "id": "small", "name": "small", "base_model_id": "coppice-tiny-q8_0", "is_active": True, "access_control": None,
        "meta": {"capabilities": {"builtin_tools": False}, "toolIds": ["files"]},
        "params": {"function_calling": "native"}}, token)


def page():
    """Turns in the page."""
    script = shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)), "openwebui.mjs"), FOLDER)
    browser = Child(["node", script, f"http://127.0.0.1:{port}", "small", CHROMIUM], "browser.log",
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(text):
        """(the answer in the page, the records of the chat itself: those with tools)."""
        before = len(trial.records())
        if text:
            browser.child.stdin.write(text + "\n")
            browser.child.stdin.flush()
        line = browser.child.stdout.readline()
        if not line:
            with open(browser.log.name, encoding="utf-8") as log:
                raise RuntimeError(log.read()[-2000:])
        trial.server.calm()
        return json.loads(line).get("answer"), [r for r in trial.records()[before:] if "# Tools" in r["prompt"]]

    def cached(name, one, two):
        held, prompt = two["usage"]["prompt_tokens_details"]["cached_tokens"], one["usage"]["prompt_tokens"]
        check(f"{name}: what was read before comes from the cache", held >= prompt - 32,
              f"{held} of {prompt} tokens: {two.get('cache')}")

    ask(None)
    answer, first = ask("Hello there")
    check("chat: words come back in the page", answer and first, answer)
    print(f"note     its first prompt has {first[0]['usage']['prompt_tokens']} tokens here")
    answer, second = ask("Thank you.")
    check("second turn: words come back in the page", answer, answer)
    cached("second turn", first[-1], second[0])
    path = os.path.join(trial.work, "notes.txt")
    answer, seen = ask(f"Read the file {path}")
    check("read: the page shows the call and what it found", "read" in answer and WORD in answer and len(seen) == 2, answer)
    cached("read", *seen[:2])
    answer, seen = ask(f"Call the tool edit with path={path} and old={WORD} and new={OTHER}")  # its input bends quotes
    check("edit: the page shows the call", "edit" in answer and len(seen) == 2, answer)
    cached("edit", *seen[:2])
    equal("edit: the file has changed", trial.read("notes.txt"), NOTE.replace(WORD, OTHER))
    ended = 'coppice_requests_total{end="cancelled"}'
    before = trial.counted(ended)
    ask("/stop " + "word " * 8000)
    check("abort: the stop button ends the server's work", until(lambda: trial.counted(ended) > before),
          trial.records()[-1:])
    browser.child.stdin.close()
    equal("the browser ends in order", browser.child.wait(60), 0)


if not CHROMIUM:
    print("skipped  no chromium")
    print("0 passed, 0 failed")
    sys.exit(0)
part(start)
part(page)
for child in [c for c in running if isinstance(c, Child)]:
    if child.child.poll() is None:
        child.child.terminate()
        child.child.wait(60)
    child.log.close()
    running.remove(child)
trial.finish()
