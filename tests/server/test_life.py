#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signs of life and clients that go away, in each interface: a stream's first byte comes while it waits and
while its prompt is read; a client that leaves (in order, by a reset, by half a close and silence) frees its
work long before that is done, whether it was waiting, being read or answered, and whether it wanted a stream.
The requests are of MANY tokens in a long context, which takes minutes on any machine, and each step waits for
what it needs, so that nothing here depends on how fast the machine is.
"""
import json
import socket
import struct

from suite import Server, check, equal, finish, part, request, until

CONTEXT = 65536
MANY = 60000  # tokens; read or written, minutes of work
WORDS = "word " * (MANY // 2)
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


PHASES = {
    "reading": lambda: server.slots("reading"),
    "decoding": lambda: any(slot["n_tokens"] for slot in server.slots("decoding")),
    "waiting": lambda: server.metric("coppice_requests_waiting"),
}


def one(name, make, stream, phase, how):
    what = f"{name}, {'streamed' if stream else 'whole'}, {phase}, {how}"
    busy = None
    if phase == "waiting":
        busy = connect(*completions("x", max_tokens=MANY, ignore_eos=True, stream=True))
        busy.recv(100)
    s = connect(*make(WORDS if phase == "reading" else "Hi", max_tokens=100 if phase == "reading" else MANY,
                      ignore_eos=True, stream=stream))
    check(f"{what}: so far", until(PHASES[phase]))
    leave(s, how)
    if busy:
        check(f"{what}: its place is free", until(lambda: not PHASES["waiting"]()))
        leave(busy, "close")
    check(f"{what}: the slot is free before the work is done", server.calm(60))


def leave_after_half():
    """A client that has finished sending, reads on and then goes does so without a word."""
    for stream in (True, False):
        what = f"half a close, then all of it, {'streamed' if stream else 'whole'}"
        s = connect(*chat("Hi", max_tokens=MANY, ignore_eos=True, stream=stream))
        s.shutdown(socket.SHUT_WR)
        s.settimeout(60)
        found, wanted = b"", b"HTTP/1.1 200" if stream else b"HTTP/1.1 100"
        while wanted not in found and (more := s.recv(100)):  # before a stream there may be a 100, too
            found += more
        check(f"{what}: something comes", wanted in found, found)
        check(f"{what}: it is still served", until(PHASES["decoding"]))
        leave(s, "close")
        check(f"{what}: the slot is free before the work is done", server.calm(60))


def first_bytes():
    busy = connect(*completions("x", max_tokens=MANY, ignore_eos=True, stream=True))
    check("first bytes: one is answered", until(PHASES["decoding"]))
    for name, make in INTERFACES.items():
        s = connect(*make("Hi", max_tokens=2, stream=True))
        data = s.recv(100)
        check(f"{name}: the first byte of a stream that waits",
              data.startswith(b"HTTP/1.1 200") and PHASES["decoding"](), data)
        leave(s, "close")
        s = connect(*make("words " * 1000000, max_tokens=2, stream=True))
        data = s.recv(100)
        check(f"{name}: the first byte where 6 MB wait", data.startswith(b"HTTP/1.1 ") and PHASES["decoding"](), data)
        leave(s, "close")
    leave(busy, "close")
    check("first bytes: all is free", server.calm(60))


def many_leave():
    """A hundred clients that come and go leave nothing behind."""
    sockets = [connect(*make("Hi", max_tokens=MANY, ignore_eos=True, stream=i % 2 == 0))
               for i in range(25) for make in INTERFACES.values()]
    check("a hundred: all have come", until(lambda: server.metric("coppice_requests_waiting") == 99))
    for i, s in enumerate(sockets):
        leave(s, "reset" if i % 3 else "close")
    check("a hundred leave: all is free", server.calm(60))
    check("a hundred leave: no request waits", until(lambda: not PHASES["waiting"]()))


if __name__ == "__main__":
    server = Server("--parallel", "1", "--queue", "200", "--max-ctx", str(CONTEXT))
    for function in [clients_leave, leave_after_half, first_bytes, many_leave]:
        part(function)
    equal("the server ends well", server.end(), 0)
    finish()
