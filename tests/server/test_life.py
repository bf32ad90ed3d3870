#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signs of life and clients that go away, in each interface: a stream's first byte comes within a second
and an event at least every five, while it waits and while its prompt is read; a client that leaves (in
order, by a reset, by half a close and silence) frees its work at once, whether it was waiting, being read
or answered, and whether it wanted a stream.
"""
import json
import socket
import struct
import time

from suite import Server, check, equal, finish, part

WORDS = "word " * 1800
server = None


def chat(words, **more):
    return "/v1/chat/completions", {"messages": [{"role": "user", "content": words}], **more}


def completions(words, **more):
    return "/v1/completions", {"prompt": words, **more}


def messages(words, **more):
    return "/v1/messages", {"messages": [{"role": "user", "content": words}], **more}


def responses(words, max_tokens, **more):
    return "/v1/responses", {"input": words, "max_output_tokens": max_tokens, **more}


INTERFACES = {"chat": chat, "completions": completions, "messages": messages, "responses": responses}


def connect(path, body):
    """Sends a request and gives its socket."""
    data = json.dumps(body).encode()
    s = socket.create_connection(("127.0.0.1", server.port), 30)
    s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
              % (path.encode(), len(data)) + data)
    return s


def leave(s, how):
    if how == "reset":
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def clients_leave():
    for name, make in INTERFACES.items():
        for stream in (True, False):
            for phase in ("decoding", "reading", "waiting"):
                for how in ("close", "reset"):
                    one(name, make, stream, phase, how)


def one(name, make, stream, phase, how):
    what = f"{name}, {'streamed' if stream else 'whole'}, {phase}, {how}"
    busy = None
    if phase == "waiting":
        busy = connect(*completions("x", max_tokens=4000, ignore_eos=True, stream=True))
        busy.recv(100)
    s = connect(*make(WORDS if phase == "reading" else "Hi", max_tokens=2000, ignore_eos=True, stream=stream))
    time.sleep({"decoding": 0.25, "reading": 0.1, "waiting": 0.2}[phase])
    start = time.monotonic()
    leave(s, how)
    if busy:
        time.sleep(0.05)
        leave(busy, "close")
    calm = server.calm(5)
    took = time.monotonic() - start
    check(f"{what}: the slot is free within a second", calm and took < 1, took)


def leave_after_half():
    """A client that has finished sending, reads on and then goes does so without a word."""
    for stream in (True, False):
        what = f"half a close, then all of it, {'streamed' if stream else 'whole'}"
        s = connect(*chat("Hi", max_tokens=60000, ignore_eos=True, stream=stream))
        s.shutdown(socket.SHUT_WR)
        s.settimeout(0.05)
        start, found = time.monotonic(), b""
        while time.monotonic() - start < 3:
            try:
                found = (found + s.recv(1 << 20))[:100]
            except TimeoutError:
                pass
        check(f"{what}: it is still served", not server.calm(0.1))
        check(f"{what}: something comes", (b"HTTP/1.1 200" in found) == stream and found, found)
        leave(s, "close")
        check(f"{what}: the slot is free within four seconds", server.calm(4))


def first_bytes():
    busy = connect(*completions("x", max_tokens=4000, ignore_eos=True, stream=True))
    busy.recv(100)
    for name, make in INTERFACES.items():
        start = time.monotonic()
        s = connect(*make("Hi", max_tokens=2, stream=True))
        data = s.recv(100)
        took = time.monotonic() - start
        check(f"{name}: the first byte of a stream that waits", data.startswith(b"HTTP/1.1 200") and took < 1, took)
        leave(s, "close")
        start = time.monotonic()
        s = connect(*make("words " * 1000000, max_tokens=2, stream=True))
        data = s.recv(100)
        took = time.monotonic() - start
        check(f"{name}: the first byte while 6 MB are being read", data.startswith(b"HTTP/1.1 ") and took < 2, took)
        leave(s, "close")
    leave(busy, "close")
    check("first bytes: all is free", server.calm(5))


def many_leave():
    """A hundred clients that come and go leave nothing behind."""
    sockets = [connect(*make("Hi", max_tokens=1000, ignore_eos=True, stream=i % 2 == 0))
               for i in range(25) for make in INTERFACES.values()]
    time.sleep(0.3)
    for i, s in enumerate(sockets):
        leave(s, "reset" if i % 3 else "close")
    start = time.monotonic()
    check("a hundred leave: all is free", server.calm(5))
    check("a hundred leave: within two seconds", time.monotonic() - start < 2, time.monotonic() - start)


if __name__ == "__main__":
    server = Server("--parallel", "1", "--queue", "200")
    for function in [clients_leave, leave_after_half, first_bytes, many_leave]:
        part(function)
    equal("the server ends well", server.end(), 0)
    finish()
