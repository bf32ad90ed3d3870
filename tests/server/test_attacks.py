#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A hostile client slows only itself: during each of these attacks, which go on until they are stopped, a stream
goes on and short requests are answered. By default order is looked at, and no clock, so that a busy machine changes
nothing; --strict also requires gaps of the stream under 150 ms and a short answer within 1 s, on two quiet cores.
The attacker is a process of its own: this file with --attack NAME PORT.
"""
import http.client
import itertools
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time

from suite import PROGRAM, Server, check, equal, events, finish, part, request

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
STRICT = "--strict" in sys.argv
GAP, FIRST = 0.15, 1.0
EVENTS, SHORT, CLIENTS = 100 if STRICT else 40, 5 if STRICT else 3, 4
ONLY = [a for a in sys.argv[2:] if not a.startswith("--")]


def head(path, length, more=b""):
    return (b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n"
            % (path.encode(), more, length))


def user(text):
    return [{"role": "user", "content": text}]


def chat(**fields):
    return CHAT, {"messages": user("hi"), "max_tokens": 1, **fields}


def tool(i):
    return {"type": "function", "function": {"name": f"f{i}", "description": "d" * 200, "parameters": {
        "type": "object", "properties": {f"p{j}": {"type": "string", "description": "x" * 50} for j in range(10)}}}}


def nested(depth):
    return "[" * depth + "]" * depth


# Bodies that are sent over and over by some clients at once.
BODIES = {
    "a big prompt": lambda: (TEXT, {"prompt": "word " * 2000000, "max_tokens": 1}),
    "a prompt without spaces": lambda: (TEXT, {"prompt": "x" * 4000000, "max_tokens": 1}),
    "a big text to tokenise": lambda: ("/v1/tokenize", {"content": "word " * 2000000}),
    "a big prompt to count": lambda: ("/v1/messages/count_tokens", {"messages": user("word " * 2000000), "max_tokens": 1}),
    "a huge history": lambda: chat(messages=user("hi") * 50000),
    "thousands of tools": lambda: chat(tools=[tool(i) for i in range(3000)]),
    "a thousand tools, one to be called": lambda: chat(tools=[tool(i) for i in range(1000)], tool_choice="required"),
    "many documents": lambda: chat(documents=[{"title": f"t{i}", "text": "word " * 20} for i in range(20000)]),
    "a schema of many unions": lambda: chat(guided_json={"anyOf": [{"type": "object", "properties": {
        f"p{i}{j}": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"enum": list(range(50))}}]} for j in range(20)}}
        for i in range(40)]}),
    "a schema of large counts": lambda: chat(guided_json={"type": "array", "minItems": 5000, "maxItems": 10000, "items": {
        "type": "string", "minLength": 500, "maxLength": 10000, "pattern": "^(a|b){0,500}$"}}),
    "a pattern of nested counts": lambda: chat(guided_regex="((a{0,99}b){0,99}c){0,99}"),
    "logit_bias of the whole vocabulary": lambda: chat(logit_bias={str(i): 1 for i in range(4096)}),
    "deep JSON": lambda: (CHAT, '{"messages":' + nested(500000) + "}"),
    "JSON of many members": lambda: (CHAT, "{" + ",".join(f'"k{i}":1' for i in range(300000)) + "}"),
    "many stop strings": lambda: chat(stop=["s" * 1000 + str(i) for i in range(5000)]),
    "a bad body of some MB": lambda: (CHAT, "\\" * 8000000),
}


def ambiguous(i):
    """A schema of which each mask takes a tenth of a second, and no two requests the same."""
    return {"anyOf": [{"type": "string", "pattern": f"^([a-z ]{{0,60}}){{0,60}}[b-z]{i}x{j}$"} for j in range(20)]}


def wide(i):
    """A schema of less than 64 KB that takes a fifth of a second to compile."""
    return {"anyOf": [{"type": "object", "properties": {f"p{i}_{k}_{j}": {"anyOf": [
        {"type": "string"}, {"type": "array", "items": {"enum": list(range(20))}}]} for j in range(20)}} for k in range(16)]}


# The same with a body of its own each time: how many clients, and the body by its number.
OWN = {
    "ambiguous schemas": (8, lambda i: chat(max_tokens=64, response_format={
        "type": "json_schema", "json_schema": {"name": "x", "schema": ambiguous(i)}})),
    "ambiguous expressions": (8, lambda i: chat(max_tokens=64, guided_regex=[
        f"(((a{{0,300}}b?){{0,300}}c?){{0,300}}d?){{0,300}}{i}", "|".join(f"[ -~]*{k + i}[ -~]*" for k in range(1500)),
        f"( ?[a-z]{{1,20}}){{0,1000}}{i}"][i % 3])),
    "ambiguous grammars": (8, lambda i: chat(max_tokens=64, grammar=[
        f'root ::= s "{i}"\ns ::= [a-z ] s [a-z ] | [a-z ] s | [a-z ] s s "x" | [a-z ]\n',
        f'root ::= "{i}"? a*\na ::= b? b?\nb ::= [a-z]* c? [a-z]*\nc ::= [a-z] a\n'][i % 2])),
    "schemas that take long to compile": (32, lambda i: chat(guided_json=wide(i))),
}


def began():
    """Called by the attacker: from here on the attack runs."""
    try:
        os.write(1, b"on\n")
    except OSError:
        pass


def written(made):
    path, body = made
    return path, (body if isinstance(body, str) else json.dumps(body)).encode()


def send_over_and_over(port, clients, make):
    """make: of a number that is never the same, the path and the bytes of a body."""
    numbers = itertools.count()

    def client():
        while True:
            path, data = make(next(numbers))
            try:
                with socket.create_connection(("127.0.0.1", port), 30) as s:
                    s.sendall(head(path, len(data), b"Connection: close\r\n") + data)
                    began()
                    while s.recv(65536):
                        pass
            except OSError:
                pass
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for t in threads:
        t.start()
    threads[0].join()


def hold(port, n, data):
    """Connections on which these bytes are sent, and then nothing; those that the server ends are made again."""
    kept = []
    while True:
        kept = kept[-n:]
        try:
            if len(kept) < n:
                kept.append(socket.create_connection(("127.0.0.1", port), 30))
                kept[-1].sendall(data)
            else:
                time.sleep(0.2)
                kept.pop(0).close()
        except OSError:
            pass


def slow_heads(port):
    kept = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(200)]
    for s in kept:
        s.sendall(b"GET /health HTTP/1.1\r\n")
    while True:
        for s in kept:
            try:
                s.sendall(b"A: b\r\n" if len(kept) % 2 == 0 else b"A")
            except OSError:
                pass
        time.sleep(0.05)


def resets(port):
    data = json.dumps(chat(stream=True, max_tokens=2000, ignore_eos=True)[1]).encode()
    while True:
        s = socket.create_connection(("127.0.0.1", port), 30)
        s.sendall(head(CHAT, len(data)) + data)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()


def pipelined(port):
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 30) as s:
                s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000)
                s.recv(1000)
        except OSError:
            pass


def slow_reader(port):
    """Asks for large answers and reads none of them."""
    hold(port, 50, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)


SOCKETS = {
    "seventeen silent bodies": lambda port: hold(port, 17, head(CHAT, 64 << 20)),
    "hundreds of silent connections": lambda port: hold(port, 500, b""),
    "slow heads": slow_heads,
    "large heads": lambda port: hold(port, 100, b"GET /health HTTP/1.1\r\n" + b"A: " + b"x" * 60000),
    "tiny chunks": lambda port: hold(port, 20, head(CHAT, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
                                     + b"1\r\nx\r\n" * 100000),
    "resets": resets,
    "pipelined requests": pipelined,
    "slow readers": slow_reader,
}


class Stream(threading.Thread):
    """A well-behaved stream: how many events have come, and how long the longest wait for one was."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.connection.request("POST", TEXT, json.dumps({"prompt": "Once", "max_tokens": 60000, "ignore_eos": True, "stream": True}))
        self.answer = self.connection.getresponse()
        self.count, self.gap, self.over = 0, 0.0, False
        self.more = threading.Condition()
        self.start()

    def run(self):
        last = time.monotonic()
        try:
            for _ in events(self.answer):
                now = time.monotonic()
                with self.more:
                    self.count, self.gap, last = self.count + 1, max(self.gap, now - last), now
                    self.more.notify_all()
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass
        with self.more:
            self.over = True
            self.more.notify_all()

    def goes_on(self, n):
        """Whether n further events come."""
        with self.more:
            target = self.count + n
            self.more.wait_for(lambda: self.count >= target or self.over, 120)
            return self.count >= target


def short_request(port):
    return request(port, "POST", CHAT, {"messages": user("hi"), "max_tokens": 1}, timeout=120)[0]


def beside(server, name):
    """The stream and short requests before an attack and in it."""
    stream = Stream(server.port)
    check(f"{name}: the stream begins", stream.goes_on(EVENTS))
    attacker = subprocess.Popen([sys.executable, __file__, PROGRAM, "--attack", name, str(server.port)],
                                stdout=subprocess.PIPE)
    try:
        check(f"{name}: the attack begins", attacker.stdout.readline() == b"on\n")
        attacker.stdout.close()
        stream.goes_on(EVENTS)
        stream.gap = 0.0
        slowest = 0.0
        for _ in range(SHORT):
            start = time.monotonic()
            status = short_request(server.port)
            slowest = max(slowest, time.monotonic() - start)
            if status != 200:
                check(f"{name}: a short request", False, status)
        check(f"{name}: the stream goes on", stream.goes_on(EVENTS))
        check(f"{name}: the attack goes on", attacker.poll() is None, attacker.poll())
        print(f"         {name}: gap {1e3 * stream.gap:.0f} ms, short {1e3 * slowest:.0f} ms")
        if STRICT:
            check(f"{name}: the stream's gap", stream.gap < GAP, stream.gap)
            check(f"{name}: a short answer", slowest < FIRST, slowest)
    finally:
        attacker.kill()
        attacker.wait()
        stream.connection.sock.shutdown(socket.SHUT_RDWR)
    stream.join(30)


def attacks(names, slots):
    names = [name for name in names if not ONLY or name in ONLY]
    if not names:
        return
    server = Server("-c", "65536", "--parallel", str(slots))
    for name in names:
        part(lambda name=name: beside(server, name))
    equal("attacks: the server is well", server.health(), 200)
    equal("attacks: the end", server.end(), 0)


def main():
    attacks([*SOCKETS, *BODIES], 8)
    attacks(OWN, 16)
    finish()


if __name__ == "__main__":
    if "--attack" in sys.argv:
        attack, to = sys.argv[-2], int(sys.argv[-1])
        if attack in SOCKETS:
            began()
            SOCKETS[attack](to)
        elif attack in OWN:
            n, own = OWN[attack]
            send_over_and_over(to, n, lambda i: written(own(i)))
        else:
            same = written(BODIES[attack]())
            send_over_and_over(to, CLIENTS, lambda i: same)
        os._exit(0)
    main()
