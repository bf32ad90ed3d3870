#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The orderly end: SIGTERM and SIGINT with streams in progress, with idle connections, twice, while the model is being
loaded; what other signals do."""
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading

from suite import PROGRAM, TARGET, Server, check, equal, events, finish, free_port, part, request, until

PATIENCE = 60
CONTEXT = ("-c", "65536")
ENDLESS = 60000  # tokens, which take minutes


class Stream(threading.Thread):
    """One stream, read to its end."""

    def __init__(self, port, tokens):
        super().__init__()
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self.connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": "Once", "max_tokens": tokens, "ignore_eos": True, "stream": True}))
        self.answer = self.connection.getresponse()
        self.seen, self.error = [], None
        self.first = threading.Event()
        self.start()

    def run(self):
        try:
            for data in events(self.answer):
                self.seen.append(data)
                self.first.set()
        except Exception as error:
            self.error = error

    def reason(self):
        """The finish_reason, or the error's type, of a stream that ended in order."""
        if self.error:
            return f"cut: {self.error}"
        for data in self.seen[-3:]:
            value = json.loads(data) if data != b"[DONE]" else {}
            if "error" in value:
                return value["error"]["type"]
            for choice in value.get("choices", []):
                if choice["finish_reason"]:
                    return choice["finish_reason"]
        return f"none: {self.seen[-1:]}"


def streams(number, name):
    """The end waits for streams; a second signal cuts them."""
    server = Server("--grace", "600", "--parallel", "8", *CONTEXT)
    idle = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
    long = [Stream(server.port, ENDLESS) for _ in range(4)]
    short = Stream(server.port, 200)
    for s in [*long, short]:
        s.first.wait(PATIENCE)
    server.child.send_signal(number)
    equal(f"{name}: an idle connection is closed", idle.recv(1), b"")
    try:
        socket.create_connection(("127.0.0.1", server.port), 1).close()
        check(f"{name}: no new connection", False)
    except OSError:
        check(f"{name}: no new connection", True)
    short.join(PATIENCE)
    equal(f"{name}: a stream that had the time is whole", short.reason(), "length")
    check(f"{name}: the others go on", all(s.is_alive() for s in long))
    equal(f"{name}, twice: exit status", server.end(number, PATIENCE), 0)
    for s in long:
        s.join(PATIENCE)
    equal(f"{name}, twice: the others are cut with an event", {s.reason() for s in long}, {"server_error"})


def grace():
    """What has not ended by then is cut."""
    server = Server("--grace", "1", *CONTEXT)
    stream = Stream(server.port, ENDLESS)
    stream.first.wait(PATIENCE)
    equal("grace: exit status", server.end(signal.SIGTERM, PATIENCE), 0)
    stream.join(PATIENCE)
    equal("grace: the stream is cut with an event", stream.reason(), "server_error")


def waiting():
    """Requests that had no slot yet end in order, too, streamed or not."""
    server = Server("--grace", "0.5", "--parallel", "1", *CONTEXT)
    running = Stream(server.port, ENDLESS)
    running.first.wait(PATIENCE)
    queued = Stream(server.port, ENDLESS)
    plain = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    plain.request("POST", "/v1/completions", json.dumps(
        {"prompt": "Once", "max_tokens": ENDLESS, "ignore_eos": True}))
    check("waiting: both have no slot", until(lambda: server.metric("coppice_requests_waiting") == 2))
    status = server.end(signal.SIGTERM, PATIENCE)
    equal("waiting: exit status", status, 0)
    answer = plain.getresponse()
    equal("waiting: a plain request is told", answer.status, 503)
    check("waiting: in the form of errors", "message" in json.loads(answer.read())["error"])
    queued.join(PATIENCE)
    equal("waiting: a queued stream is told", queued.reason(), "server_error")


def others():
    """Whatever ends a program by custom ends this one in order; what other servers take for an order does nothing."""
    for name in ("SIGHUP", "SIGQUIT"):
        server = Server("--grace", "0", *CONTEXT)
        stream = Stream(server.port, ENDLESS)
        stream.first.wait(PATIENCE)
        equal(f"{name}: exit status", server.end(getattr(signal, name)), 0)
        stream.join(PATIENCE)
        equal(f"{name}: the stream ends with an event", stream.reason(), "server_error")
    server = Server(by=("nohup",))
    for name in ("SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGHUP"):
        server.child.send_signal(getattr(signal, name))
        equal(f"{name}{', ignored' if name == 'SIGHUP' else ''}: it goes on",
              request(server.port, "POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})[0], 200)
    equal("others: exit status", server.end(), 0)


# Holds the thread that opens the model for loading, and only that one, for ever.
HELD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
static int next(const char *name, const char *path, int flags, mode_t mode) {
    const char *held = getenv("HELD"), *told = getenv("HELD_TOLD");
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, name);
    if (held && told && gettid() != getpid() && !strcmp(path, held)) {
        close(real(told, O_WRONLY | O_CREAT, 0600));
        for (;;)
            pause();
    }
    return real(path, flags, mode);
}
#define OPEN(name)                           \
    int name(const char *path, int flags, ...) { \
        va_list a;                           \
        va_start(a, flags);                  \
        int mode = va_arg(a, int);           \
        va_end(a);                           \
        return next(#name, path, flags, (mode_t)mode); \
    }
#undef open
#undef open64
OPEN(open)
OPEN(open64)
"""


def loading():
    """A server whose model is being loaded ends without waiting for that: here it would take for ever."""
    folder = tempfile.mkdtemp(prefix="drain-")
    source, library, told = (os.path.join(folder, name) for name in ("held.c", "held.so", "told"))
    with open(source, "w", encoding="ascii") as file:
        file.write(HELD)
    built = shutil.which("cc") and subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"],
                                                  capture_output=True, check=False).returncode == 0
    if not built:
        print("skipped  loading: there is no C compiler")
        return
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        port = free_port()
        child = subprocess.Popen([PROGRAM, "serve", "-m", TARGET, "-d", "none", "--port", str(port), "-c", "512"],
                                 env={**os.environ, "LD_PRELOAD": library, "HELD": TARGET, "HELD_TOLD": told},
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        until(lambda told=told, child=child: os.path.exists(told) or child.poll() is not None)
        equal(f"loading, {name}: not ready", request(port, "GET", "/health")[0], 503)
        child.send_signal(getattr(signal, name))
        try:
            equal(f"loading, {name}: exit status", child.wait(PATIENCE), 0)
        except subprocess.TimeoutExpired:
            check(f"loading, {name}: it ends", False)
            child.kill()
            child.wait()
        os.unlink(told)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    part(lambda: streams(signal.SIGTERM, "SIGTERM"))
    part(lambda: streams(signal.SIGINT, "SIGINT"))
    part(grace)
    part(waiting)
    part(others)
    part(loading)
    finish()
