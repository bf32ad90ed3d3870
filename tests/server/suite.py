# SPDX-License-Identifier: Apache-2.0
"""What the parts of the server suite share: checks that count, programs that listen on a free port
and end with the part, requests as bytes over a socket. Standard library only. The program under test is the first
argument of each part, or that of the release build.
"""
import atexit
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build/release/coppice")
TARGET = os.path.join(ROOT, "models/coppice-tiny-q8_0.gguf")
DRAFT = os.path.join(ROOT, "models/coppice-tiny-dflash-q8_0.gguf")
SCORER = os.path.join(ROOT, "models/coppice-tiny-scorer-q8_0.gguf")
counts = {"passed": 0, "failed": 0}
running = []


def check(name, ok, why=""):
    """One check; why: what was seen, printed when it failed."""
    counts["passed" if ok else "failed"] += 1
    print(f"{'ok' if ok else 'FAILED':8} {name}{'' if ok or why == '' else ': ' + str(why)}", flush=True)
    return ok


def equal(name, seen, wanted):
    return check(name, seen == wanted, f"{seen!r}, not {wanted!r}")


def part(function):
    """Runs one part and gives what it gives; an exception is one failed check."""
    try:
        return function()
    except Exception:
        return check(function.__name__, False, traceback.format_exc())


def until(condition, timeout=60):
    """Waits until condition() is true, which fails after `timeout` seconds; whether it came."""
    end = time.monotonic() + timeout
    while not (reached := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return bool(reached)


def finish():
    """Prints the sum and ends with the status."""
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    sys.exit(1 if counts["failed"] else 0)


class Process:
    """A program that prints the port it listens on."""

    def __init__(self, command, pattern, timeout=60):
        self.log = open(os.path.join(ROOT, "build", f"server-{len(running)}-{os.getpid()}.log"), "w+b")
        self.child = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT,
                                      stdin=subprocess.DEVNULL)
        running.append(self)
        until(lambda: re.search(pattern, self.output()) or self.child.poll() is not None, timeout)
        found = re.search(pattern, self.output())
        if not found:
            raise RuntimeError(f"{command[0]} did not start: {self.output()}")
        self.port = int(found[1]) if found.groups() else 0

    def output(self):
        with open(self.log.name, encoding="utf-8", errors="replace") as file:
            return file.read()

    def end(self, number=signal.SIGTERM, timeout=30):
        """Sends a signal, waits and gives the exit status."""
        if self.child.poll() is None:
            self.child.send_signal(number)
        try:
            return self.child.wait(timeout)
        finally:
            if self.child.poll() is None:
                self.child.kill()
                self.child.wait()

    def memory(self):
        """Resident bytes."""
        with open(f"/proc/{self.child.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Server(Process):
    """`coppice serve` with the bundled pair, or another, and a context of 4,096, on a free port, once it is ready.
    draft: a file, or False; by: a command in front."""

    def __init__(self, *options, model=TARGET, draft=DRAFT, by=()):
        port = free_port()
        room = [] if {"--max-ctx", "-c"} & set(options) else ["--max-ctx", "4096"]
        command = [*by, PROGRAM, "serve", "-m", model, *(["-d", draft] if draft else []),
                   "--port", str(port), *room, *options]
        super().__init__(command, "")
        self.port = port
        until(lambda: self.health() == 200 or self.child.poll() is not None)
        if self.health() != 200:
            raise RuntimeError(f"the server is not ready: {self.output()}")

    def health(self):
        try:
            return request(self.port, "GET", "/health", timeout=5)[0]
        except OSError:
            return None

    def metric(self, name):
        """The value of a metric without labels."""
        text = request(self.port, "GET", "/metrics")[2].decode()
        found = re.search(rf"^{re.escape(name)} ([0-9.e+-]+)$", text, re.M)
        return float(found[1]) if found else None

    def slots(self, state=None):
        """What GET /slots says of the requests in progress, or of those in that state."""
        slots = json.loads(request(self.port, "GET", "/slots")[2])
        return [slot for slot in slots if slot["is_processing"] and state in (None, slot["state"])]

    def calm(self, timeout=60):
        """Waits until no request is in progress; whether there came such a time."""
        return until(lambda: not self.slots(), timeout)


def unjudged(path, row, names):
    """Those names of a client's fields that POST path does not read (docs/openapi.json) and that docs/server-api.md
    does not list, in that row, as fields that do nothing."""
    with open(os.path.join(ROOT, "docs/openapi.json"), encoding="utf-8") as file:
        document = json.load(file)
    schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    read = {name for part in schema["allOf"] for name in part.get("properties", ())}
    with open(os.path.join(ROOT, "docs/server-api.md"), encoding="utf-8") as file:
        nothing = re.search(rf"^## Fields that do nothing$.*?^\| {row} \|(.*?)$", file.read(), re.M | re.S)[1]
    return sorted(set(names) - read - set(re.findall("`(.*?)`", nothing)))


@atexit.register
def end_all():
    for process in running:
        if process.child.poll() is None:
            process.child.kill()
            process.child.wait()
        process.log.close()
        os.unlink(process.log.name)


def mock(*options):
    return Process([sys.executable, os.path.join(ROOT, "tests/server/mock.py"), *options],
                   r"listening on (\d+)")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def request(port, method, path, body=None, headers=None, timeout=60):
    """One request; (status, headers, body as bytes)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode("utf-8", "surrogatepass")
        connection.request(method, path, body,
                           {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def events(answer):
    """The data of each server-sent event of an answer that is being read, as bytes."""
    data = []
    for line in answer:
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            yield b"\n".join(data)
            data = []


def ask(port, path, body, timeout=120):
    """A generation, streamed or not, joined to one dictionary: text of choice 0, finish, coppice,
    usage, n_events. Raises where the answer is an error."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {answer.read()!r}")
        if not body.get("stream"):
            return joined([json.loads(answer.read())])
        found = list(events(answer))
        if not found or found[-1] != b"[DONE]":
            raise RuntimeError(f"the stream ended without [DONE], with {found[-1:]!r}")
        return joined([json.loads(data) for data in found[:-1]])
    finally:
        connection.close()


def joined(values):
    result = {"texts": {}, "reasonings": {}, "finishes": {}, "n_events": 0}
    for value in values:
        if "error" in value:
            raise RuntimeError(value["error"])
        for key in ("coppice", "usage", "timings", "id", "model", "object"):
            if value.get(key) is not None:
                result[key] = value[key]
        for choice in value["choices"]:
            i = choice["index"]
            message = choice.get("delta") or choice.get("message") or choice
            text = message.get("content") or message.get("text") or ""
            result["n_events"] += bool(text)
            result["texts"][i] = result["texts"].get(i, "") + text
            result["reasonings"][i] = (result["reasonings"].get(i, "")
                                       + (message.get("reasoning_content") or ""))
            if choice.get("finish_reason"):
                result["finishes"][i] = choice["finish_reason"]
    return result
