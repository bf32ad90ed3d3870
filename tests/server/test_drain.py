#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The orderly end: SIGTERM and SIGINT with streams in progress, with idle connections, twice."""
import http.client
import json
import signal
import socket
import threading
import time

from suite import Server, check, equal, events, finish, part

GRACE = 2


class Stream(threading.Thread):
    """One stream, read to its end."""

    def __init__(self, port, tokens):
        super().__init__()
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
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
    server = Server("--grace", str(GRACE), "--parallel", "8")
    idle = socket.create_connection(("127.0.0.1", server.port))
    long = [Stream(server.port, 4000) for _ in range(4)]
    short = Stream(server.port, 20)
    for s in [*long, short]:
        s.first.wait(20)
    start = time.monotonic()
    server.child.send_signal(number)
    idle.settimeout(GRACE + 3)
    equal(f"{name}: an idle connection is closed", idle.recv(1), b"")
    check(f"{name}: at once", time.monotonic() - start < 1.5, time.monotonic() - start)
    try:
        socket.create_connection(("127.0.0.1", server.port), 1).close()
        check(f"{name}: no new connection", False)
    except OSError:
        check(f"{name}: no new connection", True)
    status = server.end(0, GRACE + 10)
    took = time.monotonic() - start
    equal(f"{name}: exit status", status, 0)
    check(f"{name}: within grace + 2 s", took < GRACE + 2, took)
    for s in [*long, short]:
        s.join(10)
    equal(f"{name}: a stream that had the time is whole", short.reason(), "length")
    check(f"{name}: the others end with an event", all(s.reason() in ("length", "server_error")
                                                      for s in long), [s.reason() for s in long])
    check(f"{name}: some had to be cut", took < GRACE or any(s.reason() == "server_error" for s in long),
          [s.reason() for s in long])


def waiting():
    """Requests that had no slot yet end in order, too, streamed or not."""
    server = Server("--grace", str(GRACE), "--parallel", "1")
    running = Stream(server.port, 4000)
    running.first.wait(20)
    queued = Stream(server.port, 4000)
    plain = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    plain.request("POST", "/v1/completions", json.dumps(
        {"prompt": "Once", "max_tokens": 4000, "ignore_eos": True}))
    time.sleep(0.3)
    status = server.end(signal.SIGTERM, GRACE + 10)
    equal("waiting: exit status", status, 0)
    answer = plain.getresponse()
    equal("waiting: a plain request is told", answer.status, 503)
    check("waiting: in the form of errors", "message" in json.loads(answer.read())["error"])
    queued.join(5)
    check("waiting: a queued stream is told", queued.reason() in ("server_error", "length"), queued.reason())


def twice():
    server = Server("--grace", "30")
    stream = Stream(server.port, 4000)
    stream.first.wait(20)
    start = time.monotonic()
    server.child.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    status = server.end(signal.SIGTERM, 20)
    equal("twice: exit status", status, 0)
    check("twice: the second one does not wait", time.monotonic() - start < 3, time.monotonic() - start)
    stream.join(5)
    check("twice: the stream ends with an event", stream.reason() in ("server_error", "length"), stream.reason())


if __name__ == "__main__":
    part(lambda: streams(signal.SIGTERM, "SIGTERM"))
    part(lambda: streams(signal.SIGINT, "SIGINT"))
    part(waiting)
    part(twice)
    finish()
