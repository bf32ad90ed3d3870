#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Load and bad company: 256 streams at once, clients that stall, half-close, vanish, send one byte at
a time or garbage, a full queue, memory over many requests and with 1,000 idle connections.
Usage: test_load.py PROGRAM [--long]  (--long: 20,000 requests for the memory, not 500)
"""
import http.client
import json
import os
import random
import resource
import socket
import struct
import subprocess
import sys
import threading
import time

from suite import PROGRAM, Server, ask, check, equal, finish, part, request, until

LONG = "--long" in sys.argv
server = None


def bench(port, *options):
    """The report of `bench --url`, and the failures that it reports."""
    done = subprocess.run([PROGRAM, "bench", "--url", f"http://127.0.0.1:{port}", "--json", *options],
                          capture_output=True, text=True, timeout=900, check=False)
    if not done.stdout:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def streams():
    for endpoint in ("chat", "completions"):
        r = bench(server.port, "--endpoint", endpoint, "--clients", "256", "--requests", "256", "--warmup", "0",
                  "--input-tokens", "8-64", "--output-tokens", "8-24", "--seed", "3", "--ignore-eos",
                  "--timeout", "300")
        equal(f"256 streams of {endpoint}: all done", (r["done"], r["errors"]), (256, []))
        check(f"256 streams of {endpoint}: all tokens", 256 * 8 <= r["output_tokens"] <= 256 * 24,
              r["output_tokens"])
        print(f"         {r['output_tokens_per_second']:.0f} tok/s, first token {r['ttft_ms']['p50']:.0f} ms")
    check("nothing is left of them", server.calm())


def body(tokens, stream=True):
    return json.dumps({"prompt": "Once upon a time", "max_tokens": tokens, "ignore_eos": True,
                       "stream": stream}).encode()


def head(data, extra=b""):
    return (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n"
            % (len(data), extra))


def connect():
    return socket.create_connection(("127.0.0.1", server.port), 30)


def stall(held):
    """Asks for a long stream and never reads."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", server.port))
    data = body(3000)
    s.sendall(head(data) + data)
    held.append(s)


def vanish(_):
    """Resets the connection in the middle of a stream, or before its first byte."""
    s = connect()
    data = body(3000)
    s.sendall(head(data) + data)
    if random.random() < 0.5:
        s.recv(2000)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def leave_plain(_):
    """Goes away from an answer that is not streamed."""
    s = connect()
    data = body(3000, False)
    s.sendall(head(data) + data)
    until(server.slots)
    s.close()


def half_request(held):
    """Sends half of a request and waits."""
    s = connect()
    data = body(5)
    s.sendall((head(data) + data)[:-10])
    held.append(s)


def garbage(_):
    s = connect()
    try:
        s.sendall(os.urandom(3000) + b"\r\n\r\n")
        s.recv(1000)
    except OSError:
        pass
    s.close()


def slow(held):
    """One byte at a time; the whole takes longer than the test."""
    s = connect()
    held.append(s)
    data = head(body(5)) + body(5)

    def send():
        try:
            for i in range(len(data)):
                s.sendall(data[i:i + 1])
                time.sleep(1)
        except OSError:
            pass

    threading.Thread(target=send, daemon=True).start()


def company():
    """40 bad clients, and good ones at the same time that must get what they get alone."""
    wanted = ask(server.port, "/v1/completions", {"prompt": "def f(x):", "max_tokens": 30, "seed": 1})["texts"]
    held, seen = [], []
    bad = [stall, vanish, leave_plain, half_request, garbage, slow, vanish, leave_plain] * 5

    def good():
        for _ in range(3):
            try:
                seen.append(ask(server.port, "/v1/completions", {
                    "prompt": "def f(x):", "max_tokens": 30, "seed": 1, "stream": True})["texts"])
            except Exception as error:
                seen.append(error)

    threads = [threading.Thread(target=good) for _ in range(8)]
    threads += [threading.Thread(target=b, args=(held,)) for b in bad]
    random.Random(5).shuffle(threads)
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    equal("bad company: good clients get their answers", [s for s in seen if s != wanted], [])
    equal("bad company: all of them", len(seen), 24)
    equal("bad company: the server is well", server.health(), 200)
    for s in held:
        s.close()
    check("bad company: nothing is left of it", server.calm(60))


def half_close():
    """A client that has sent all it will still gets its answer."""
    data = body(20)
    with connect() as s:
        s.sendall(head(data, b"Connection: close\r\n") + data)
        s.shutdown(socket.SHUT_WR)
        found = b""
        while piece := s.recv(65536):
            found += piece
    check("half-closed: the whole answer comes", b"data: [DONE]" in found, found[-300:])


def byte_by_byte():
    data = body(3, False)
    with connect() as s:
        for i in range(0, len(whole := head(data, b"Connection: close\r\n") + data)):
            s.sendall(whole[i:i + 1])
        found = b""
        while piece := s.recv(65536):
            found += piece
    check("byte by byte: answered", found.startswith(b"HTTP/1.1 200"), found[:200])


def pipelined():
    """Several requests on one connection are answered in order."""
    small = body(2, False)
    with connect() as s:
        s.sendall((head(small) + small) * 3 + b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        found = b""
        while piece := s.recv(65536):
            found += piece
    equal("pipelined: four answers", found.count(b"HTTP/1.1 200"), 4)
    check("pipelined: in order", json.loads(found.rpartition(b"\r\n")[2])["status"] == "ok", found[-100:])


def queue():
    """A full queue says so, and when to come back."""
    small = Server("--parallel", "1", "--queue", "2")
    connections = []
    answers = []
    for _ in range(12):
        c = http.client.HTTPConnection("127.0.0.1", small.port, timeout=120)
        c.request("POST", "/v1/completions", body(400, False))
        connections.append(c)
    for c in connections:
        a = c.getresponse()
        answers.append((a.status, a.getheader("retry-after"), a.read()))
    full = [a for a in answers if a[0] == 429]
    check("queue: some are served, some refused", full and len(full) < 12, [a[0] for a in answers])
    equal("queue: nothing else", [a for a in answers if a[0] not in (200, 429)], [])
    check("queue: Retry-After", all(a[1] and int(a[1]) >= 1 for a in full), full[:1])
    check("queue: the shape", all(json.loads(a[2])["error"]["type"] == "rate_limit_error" for a in full), full[:1])
    small.end()


def flat():
    """Resident memory after many requests is that after the first part of them, which fill the cache."""
    n, bound = (20000, 8 << 20) if LONG else (500, 4 << 20)
    own = Server("--parallel", "16", "--cache-ram", "8M")
    options = ["--clients", "16", "--warmup", "0", "--input-tokens", "4-40", "--output-tokens", "2-12"]
    r = bench(own.port, *options, "--requests", str(n // 4), "--seed", "1")
    first = own.memory()
    failed = r["failed"]
    sizes = []
    for i in range(3):
        r = bench(own.port, *options, "--requests", str(n // 4), "--seed", str(2 + i))
        failed += r["failed"]
        sizes.append(own.memory())
    equal(f"memory: {n} requests, none failed", failed, 0)
    print(f"         {first / 1e6:.1f} MB, then", ", ".join(f"{s / 1e6:.1f}" for s in sizes))
    check(f"memory: flat over {n} requests", sizes[-1] < first + bound, (first, sizes))
    equal("memory: exit status", own.end(), 0)


def idle():
    own = Server()
    request(own.port, "GET", "/health")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    before = own.memory()
    connections = []
    for _ in range(1000):
        s = socket.create_connection(("127.0.0.1", own.port), 10)
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connections.append(s)
    for s in connections:
        s.recv(4096)
    each = (own.memory() - before) / 1000
    print(f"         {each / 1024:.1f} KiB for each idle connection")
    check("idle: less than 64 KiB for each of 1,000", each < 65536, each)
    equal("idle: the server answers", own.health(), 200)
    for s in connections:
        s.close()
    equal("idle: exit status", own.end(), 0)


if __name__ == "__main__":
    server = Server()
    for function in [streams, company, half_close, byte_by_byte, pipelined]:
        part(function)
    equal("the server is well", server.health(), 200)
    equal("and ends in order", server.end(), 0)
    for function in [queue, flat, idle]:
        part(function)
    finish()
