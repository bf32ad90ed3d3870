# SPDX-License-Identifier: Apache-2.0
"""What the trials of clients share: a server with the bundled pair, a home and a work folder that are thrown away, no way
to the network, and the questions that each client is asked. A trial is `test_NAME.py PROGRAM FOLDER`, where FOLDER holds
what was installed from the registries (scripts/test_clients.sh).
"""
import fcntl
import http.server
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/server"))

from suite import Server, check, equal, finish, part, request, until  # noqa: E402 (found by the line above)

FOLDER = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else os.path.join(ROOT, "build/clients")
CONTEXT = 65536
WORD = "heron"
OTHER = "egret"
NOTE = f"The secret word is {WORD}.\n"


def isolate():
    """Goes on in a network namespace of its own, where there is nothing but this machine's loopback; where that is not
    allowed, the refusing proxy has to do."""
    if os.environ.get("COPPICE_ISOLATED") != "1":
        how = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
        if shutil.which("unshare") and subprocess.run([*how, "true"], capture_output=True, check=False).returncode == 0:
            os.execvpe(how[0], [*how, sys.executable, *sys.argv], {**os.environ, "COPPICE_ISOLATED": "1"})
        print("note     no network namespace can be made here; clients are only held back by a proxy that refuses")
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:  # ip link set lo up
        name, up = b"lo", 1
        flags = struct.unpack("16sh", fcntl.ioctl(s, 0x8913, struct.pack("16sh", name, 0))[:18])[1]
        fcntl.ioctl(s, 0x8914, struct.pack("16sh", name, flags | up))


class Refusal(http.server.BaseHTTPRequestHandler):
    """A proxy that refuses all connections and logs them."""

    def refuse(self):
        self.server.asked.append(self.path)
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.close_connection = True

    do_CONNECT = do_GET = do_HEAD = do_POST = do_PUT = refuse

    def log_message(self, *_):
        pass


class Trial:
    """One client against one server. Its script sets `command`, a function of the prompt and of whether the
    conversation before goes on, that gives the command line; `replies`, which gives from the client's output the words
    that it shows; and `reported`, which gives (prompt tokens, cached, new tokens) as the client counts them."""

    command = replies = reported = calls = None
    total = False  # whether the client counts tokens over the whole conversation
    slack = 32  # tokens of the first prompt that the second one may have to read again: states lie at multiples of 32

    def __init__(self, *options):
        self.home = tempfile.mkdtemp(prefix="coppice-client-")
        self.work = os.path.join(self.home, "work")
        os.mkdir(self.work)
        self.proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusal)
        self.proxy.asked = []
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()
        self.server = Server("--temp", "0", "-c", str(CONTEXT), "--log-json", "--log-prompts", *options)
        self.url = f"http://127.0.0.1:{self.server.port}"
        out = f"http://127.0.0.1:{self.proxy.server_port}"
        self.env = {"PATH": os.environ["PATH"], "HOME": self.home, "TERM": "dumb", "LANG": "C.UTF-8", "CI": "1",
                    "DO_NOT_TRACK": "1", "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            self.env[name] = self.env[name.lower()] = out
        self.write("notes.txt", NOTE)

    def write(self, name, text):
        """A file in the work folder; a name with a slash is one below the home."""
        path = os.path.join(self.home if "/" in name else self.work, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text if isinstance(text, str) else json.dumps(text, indent=2))
        return path

    def read(self, name):
        with open(os.path.join(self.work, name), encoding="utf-8") as file:
            return file.read()

    def records(self):
        """The server's log of requests for text, oldest first."""
        found = [json.loads(line) for line in self.server.output().splitlines() if line.startswith("{")]
        return [r for r in found if r.get("timings")]

    def ask(self, prompt, goes_on=False, timeout=180):
        """Runs the client; (exit status, its lines that are JSON, all that it printed, the server's new records)."""
        before = len(self.records())
        done = subprocess.run(self.command(prompt, goes_on), cwd=self.work, env=self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, check=False)
        text = done.stdout.decode("utf-8", "replace")
        self.server.calm()
        return done.returncode, lines_of(text), text, self.records()[before:]

    def chat(self):
        """A question, and another one after it that goes on from the cache; the client's lines."""
        rc, lines, text, seen = self.ask("Hello there")
        if not check("chat: the client ends in order", rc == 0, text[-2000:]):
            return lines
        check("chat: words come back", any(self.replies(lines, text)), text[-2000:])
        check("chat: the server answered it", len(seen) > 0 and all(r["status"] == 200 for r in seen), seen)
        self.counts("chat", lines, text, seen[-1])
        before, first = seen[-1], lines
        rc, lines, text, seen = self.ask("Thank you.", goes_on=True)
        if not check("second turn: the client ends in order", rc == 0 and len(seen) > 0, text[-2000:]):
            return first
        held, prompt = seen[-1]["usage"]["prompt_tokens_details"]["cached_tokens"], before["usage"]["prompt_tokens"]
        check("second turn: what was read before comes from the cache", held > 0 and held >= prompt - self.slack,
              f"{held} of {prompt} tokens: {seen[-1].get('cache')}")
        self.counts("second turn", lines, text, *([before] if self.total else []), seen[-1])
        return first + lines

    def tools(self, read, edit):
        """Two tasks that need tools: a file is read, and changed. calls(lines) gives what came back from each tool, as the
        client shows it."""
        if "tools" not in json.loads(request(self.server.port, "GET", "/props")[2])["chat_template"]:
            print("skipped  tools: the template of the bundled target has none")
            return
        self.write("notes.txt", NOTE)
        for name, prompt in (("read", read), ("edit", edit)):
            rc, lines, text, seen = self.ask(prompt)
            results = self.calls(lines)
            check(f"{name}: the client ends in order", rc == 0, text[-1500:])
            check(f"{name}: a tool was called", len(results) > 0 and len(seen) > 1, text[-1500:])
            if name == "read":
                check("read: its result is the file", any(WORD in result for result in results), results)
            check(f"{name}: words come back after the result", any(self.replies(lines, text)), text[-1500:])
            for one, two in zip(seen, seen[1:]):
                held, prompt = two["usage"]["prompt_tokens_details"]["cached_tokens"], one["usage"]["prompt_tokens"]
                check(f"{name}: the request with the result goes on from the cache", held >= prompt - self.slack,
                      f"{held} of {prompt} tokens: {two.get('cache')}")
        equal("edit: the file has changed", self.read("notes.txt"), NOTE.replace(WORD, OTHER))

    def counts(self, name, lines, text, *records):
        said = self.reported and self.reported(lines, text)
        if said:
            usages = [r["usage"] for r in records]
            wanted = [(u["prompt_tokens"], u["prompt_tokens_details"]["cached_tokens"], u["completion_tokens"])
                      for u in usages]
            equal(f"{name}: tokens as the client counts them", said, tuple(sum(column) for column in zip(*wanted)))

    def abort(self, number=signal.SIGINT):
        """A client that is stopped while its prompt is read; the work for it ends too."""
        ended = 'coppice_requests_total{end="cancelled"}'
        before = self.counted(ended)
        child = subprocess.Popen(self.command("Say no more. " + "word " * 20000, False), cwd=self.work, env=self.env,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 start_new_session=True)
        try:
            check("abort: the prompt is being read", until(lambda: self.server.metric("coppice_requests_reading")), "")
            os.killpg(child.pid, number)
            check("abort: the server's work ends", until(lambda: self.counted(ended) > before), self.records()[-1:])
            check("abort: nothing is left of it", self.server.calm())
            child.wait(30)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()

    def counted(self, name):
        return self.server.metric(name) or 0

    def finish(self, *wanted_out):
        """What went elsewhere: nothing; who asked: only those that are known to."""
        equal("outside: no other host was contacted", sorted(set(self.proxy.asked) - set(wanted_out)), [])
        for name in sorted(set(self.proxy.asked)):
            print(f"note     it asked for {name}, and was refused")
        equal("the server ends in order", self.server.end(), 0)
        shutil.rmtree(self.home, ignore_errors=True)
        finish()


def lines_of(text):
    """The lines that are JSON objects."""
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [value for value in found if isinstance(value, dict)]


def program(*names):
    """An installed program of FOLDER, by the end of its path."""
    for name in names:
        path = os.path.join(FOLDER, name)
        if os.path.exists(path):
            return path
    raise FileNotFoundError(f"none of {names} is in {FOLDER}")


isolate()
