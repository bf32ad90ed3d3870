#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`coppice serve --upstream`: what goes out is what came in, what comes back is what the upstream
sent, as it sends it, and an upstream that is down, slow or no OpenAI server is one sentence. The
upstream is a script that does what a request's `model` says and keeps what it was sent; then our own
server.
"""
import http.client
import json
import os
import socket
import subprocess
import threading
import time

from suite import PROGRAM, ROOT, SCORER, TARGET, Process, Server, ask, check, equal, events, finish, free_port, part, request, until

CHAT = "/v1/chat/completions"
EVENTS = [b'data: {"choices":[{"index":0,"delta":{"content":"w%d"}}]}\n\n' % i for i in range(8)]
DONE = b"data: [DONE]\n\n"
HUGE = 1000  # events of 64 KB
PATIENCE = 60

# Fields of requests and answers: what goes on, and what means one hop or the server that it was said by or to. The last two
# are named by Connection.
ON = ["Accept-Language", "Anthropic-Beta", "Content-Language", "HTTP-Referer", "Idempotency-Key", "OpenAI-Organization", "Priority",
      "Traceparent", "X-Request-Id", "X-Stainless-Lang"]
OF_HERE = ["Alt-Used", "Cookie", "Forwarded", "If-None-Match", "Keep-Alive", "Max-Forwards", "Proxy-Authorization", "Proxy-Connection",
           "Range", "Referer", "Sec-Fetch-Mode", "TE", "Trailer", "Upgrade", "X-Accel-Redirect", "X-Forwarded-For", "X-Own", "X-Real-IP",
           "OpenAI-Beta", "X-Title"]
BACK = ["Anthropic-RateLimit-Requests-Limit", "Cache-Control", "ETag", "OpenAI-Processing-Ms", "RateLimit", "Request-Id", "Retry-After",
        "Vary", "X-Ignored-Fields", "X-RateLimit-Remaining-Tokens", "X-Request-Id"]
OF_UPSTREAM = ["Access-Control-Allow-Origin", "Alt-Svc", "Clear-Site-Data", "Content-Security-Policy", "Keep-Alive", "Link", "Location",
               "Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Status", "Refresh", "Report-To", "Server", "Server-Timing", "Set-Cookie",
               "Strict-Transport-Security", "Trailer", "Upgrade", "Via", "WWW-Authenticate", "X-Accel-Redirect", "X-Frame-Options",
               "X-Own", "X-Powered-By", "X-Sendfile", "RateLimit-Policy", "OpenAI-Model"]


class Script(threading.Thread):
    """The upstream: one thread a connection."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        self.seen, self.gone, self.go, self.sent = [], threading.Event(), threading.Event(), 0
        self.start()

    def run(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        file = connection.makefile("rb")
        try:
            while True:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    line = file.readline()
                    if not line:
                        return
                    head += line
                lines = head.decode("latin-1").split("\r\n")
                fields = {k.lower(): v for k, v in (s.split(": ", 1) for s in lines[1:] if ": " in s)}
                body = file.read(int(fields.get("content-length", 0)))
                self.seen.append((lines[0], fields, body))
                self.answer(connection, lines[0].split()[1], body)
        except OSError:
            self.gone.set()
        finally:
            connection.close()

    def answer(self, c, path, body):
        try:
            how = json.loads(body).get("model", "")
        except ValueError:
            how = ""
        if path.startswith("/v1/models"):
            return reply(c, 200, b'{"object":"list","data":[{"id":"m"}]}')
        if path.startswith("/v1/audio"):
            return reply(c, 200, bytes(range(256)) * 40, "audio/wav")
        getattr(self, "do_" + how, self.do_json)(c)

    def do_json(self, c):
        reply(c, 200, b'{ "choices" : [ {"index":0} ],  "x": 1.0e0 }')

    def do_error(self, c):
        reply(c, 429, b'{"error":{"message":"full"}}', extra="Retry-After: 7\r\nX-Request-Id: up-1\r\n")

    def do_fields(self, c):
        reply(c, 200, b"{}", extra="".join(f"{name}: 1\r\n" for name in BACK + OF_UPSTREAM)
              + "Connection: x-y, RateLimit-Policy\r\nConnection: OpenAI-Model\r\n")

    def do_html(self, c):
        reply(c, 200, b"<html>hello</html>", "text/html")

    def do_html404(self, c):
        reply(c, 404, b"<html>no</html>", "text/html; charset=utf-8")

    def do_text500(self, c):
        reply(c, 500, b"Internal Server Error", "text/plain")

    def do_moved(self, c):
        reply(c, 301, b"", "text/plain", "Location: http://127.0.0.1:1/\r\n")

    def do_silent(self, c):
        c.recv(1)

    def do_close(self, c):
        c.shutdown(socket.SHUT_RDWR)

    def do_half(self, c):
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"
                  b"ETag: \"a\"\r\nX-Request-Id: up-1\r\nContent-Length: 100\r\n\r\n{\"a\":")
        c.shutdown(socket.SHUT_RDWR)

    def do_stream(self, c, events=tuple(EVENTS), gap=0.0, end=True):
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nOpenAI-Model: m-1\r\n"
                  b"Transfer-Encoding: chunked\r\n\r\n")
        for event in events:
            c.sendall(b"%x\r\n%s\r\n" % (len(event), event))
            self.sent += 1
            time.sleep(gap)
        if end:
            c.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(DONE), DONE))

    def do_paused(self, c):
        """The first event, and the others once the test has it."""
        self.do_stream(c, EVENTS[:1], end=False)
        self.go.wait(PATIENCE)
        for event in [*EVENTS[1:], DONE]:
            c.sendall(b"%x\r\n%s\r\n" % (len(event), event))
        c.sendall(b"0\r\n\r\n")

    def do_long(self, c):
        self.do_stream(c, EVENTS * 1000, 0.01)

    def do_broken(self, c):
        self.do_stream(c, EVENTS[:3], end=False)
        c.shutdown(socket.SHUT_RDWR)

    def do_torn(self, c):
        self.do_stream(c, [EVENTS[0], EVENTS[1][:20]], end=False)
        c.shutdown(socket.SHUT_RDWR)

    def do_stall(self, c):
        self.do_stream(c, EVENTS[:2], end=False)
        c.recv(1)

    def do_huge(self, c):
        self.do_stream(c, [b"data: " + b"x" * 65529 + b"\n\n"] * HUGE)


def reply(c, status, body, kind="application/json", extra=""):
    c.sendall(f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{extra}"
              f"Content-Length: {len(body)}\r\n\r\n".encode() + body)


class Relay(Process):
    def __init__(self, upstream, *options):
        port = free_port()
        super().__init__([PROGRAM, "serve", "--upstream", upstream, "--port", str(port), *options],
                         "listening on")
        self.port = port


script = Script()
BASE = f"http://127.0.0.1:{script.port}"


def chat(model, **fields):
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], **fields}


def sentence(name, answer, status, *words):
    seen, headers, body = answer
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError):
        return check(name, False, f"{seen} {body[:200]!r}")
    return check(name, seen == status and all(w in error["message"] for w in words)
                 and "\n" not in error["message"] and "x-request-id" in headers, f"{seen} {headers} {error}")


def untouched():
    relay = Relay(BASE + "/v1/")
    odd = b'{ "model":"json", "messages":[{"role":"user","content":"\\u00e9\\ud83d"}],\n "logit_bias": {}, ' \
          b'"temperature": 1.0e-0, "own" : {"deep":[1,2,{"a":null}]}, "n": 1, "n": 2 }'
    status, _, body = request(relay.port, "POST", CHAT, odd, {
        "Authorization": "Bearer client-key", "X-Title": "t", "Accept": "a/b", "Connection": "keep-alive, X-Y",
        "Cookie": "c", "Accept-Encoding": "gzip", "Expect": "100-continue", "User-Agent": "me"})
    line, fields, sent = script.seen[-1]
    equal("an answer is the upstream's", (status, body), (200, b'{ "choices" : [ {"index":0} ],  "x": 1.0e0 }'))
    equal("a body goes on byte for byte", sent, odd)
    equal("its path", line, f"POST {CHAT} HTTP/1.1")
    equal("headers go on", [fields.get(k) for k in ("authorization", "x-title", "accept", "user-agent",
                                                   "content-type", "host")],
          ["Bearer client-key", "t", "a/b", "me", "application/json", f"127.0.0.1:{script.port}"])
    equal("those of one hop do not", [fields.get(k) for k in ("connection", "cookie", "accept-encoding",
                                                             "expect")], [None] * 4)
    equal("what is no JSON goes on too", request(relay.port, "POST", CHAT, b"{nonsense")[0], 200)
    equal("as it was", script.seen[-1][2], b"{nonsense")
    equal("models", request(relay.port, "GET", "/v1/models?a=%20b")[2], b'{"object":"list","data":[{"id":"m"}]}')
    equal("a query as it was", script.seen[-1][0], "GET /v1/models?a=%20b HTTP/1.1")
    request(relay.port, "GET", "/v1/models/a%2520b%3Fc/%C3%A9")
    equal("a path as it was", script.seen[-1][0], "GET /v1/models/a%2520b%3Fc/%C3%A9 HTTP/1.1")
    status, headers, body = request(relay.port, "POST", "/v1/audio/speech", {})
    equal("other kinds of answers", (status, headers["content-type"], body),
          (200, "audio/wav", bytes(range(256)) * 40))
    status, headers, body = request(relay.port, "POST", CHAT, chat("error"))
    equal("an upstream's refusal", (status, body, headers.get("retry-after"), headers.get("x-request-id")),
          (429, b'{"error":{"message":"full"}}', "7", "up-1"))
    before = len(script.seen)
    for path in ("/", "/props", "/v1/../admin", "/v1/%2e%2e/admin", "/v1//x", "/v1/a/.."):
        equal(f"{path} stays here", request(relay.port, "GET", path)[0], 404)
    equal("and was not asked for", len(script.seen), before)
    equal("health", json.loads(request(relay.port, "GET", "/health")[2]), {"status": "ok", "upstream": BASE})
    text = request(relay.port, "GET", "/metrics")[2].decode()
    check("metrics", 'coppice_requests_total{end="answered"} 6' in text, text)
    check("metrics: what was built", '\ncoppice_build_info{version="' in text, text)
    equal("exit status", relay.end(), 0)


def fields_of_hops():
    relay = Relay(BASE)
    sent = {name: "1" for name in ON + OF_HERE} | {"Connection": "close, OpenAI-Beta,X-Title", "Via": "1.0 before"}
    status, back, said = request(relay.port, "POST", CHAT, chat("fields"), sent)
    equal("an answer", (status, said), (200, b"{}"))
    fields = script.seen[-1][1]
    equal("fields of a request that go on", [n for n in ON if fields.get(n.lower()) != "1"], [])
    equal("those that do not", [n for n in OF_HERE if n.lower() in fields], [])
    check("the hop is named", fields.get("via", "").endswith("1.1 coppice"), fields)
    equal("fields of an answer that go on", [n for n in BACK if "1" not in back.get(n.lower(), "")], [])
    equal("those that do not", [n for n in OF_UPSTREAM if n.lower() in back], [])
    equal("exit status", relay.end(), 0)


def streams():
    relay = Relay(BASE)
    connection = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=PATIENCE)
    connection.request("POST", CHAT, json.dumps(chat("paused", stream=True)))
    answer = connection.getresponse()
    first = answer.read1(1000)
    equal("an event comes before the next one is there", first, EVENTS[0])
    script.go.set()
    equal("all of it, byte for byte", first + answer.read(), b"".join(EVENTS) + DONE)
    equal("its headers", (answer.headers["content-type"], answer.headers["openai-model"]), ("text/event-stream", "m-1"))
    script.gone.clear()
    connection.request("POST", CHAT, json.dumps(chat("long", stream=True)))
    answer = connection.getresponse()
    answer.read1(1000)
    answer.close()
    connection.close()
    check("a client that goes away ends the upstream's work", script.gone.wait(PATIENCE))
    connection.request("POST", CHAT, json.dumps(chat("broken", stream=True)))
    found = list(events(connection.getresponse()))
    check("an upstream that breaks off becomes an event", len(found) == 4 and b"broke off" in found[-1], found)
    equal("with its type", json.loads(found[-1])["error"]["type"], "server_error")
    connection.request("POST", CHAT, json.dumps(chat("torn", stream=True)))
    try:
        body = connection.getresponse().read()
        check("inside of an event, the connection breaks", False, body)
    except http.client.IncompleteRead as error:
        equal("inside of an event, the connection breaks", error.partial, EVENTS[0] + EVENTS[1][:20])
    connection.close()
    many = [threading.Thread(target=lambda: whole.append(
        request(relay.port, "POST", CHAT, chat("stream", stream=True))[2])) for _ in range(64)]
    whole = []
    for thread in many:
        thread.start()
    for thread in many:
        thread.join()
    equal("64 streams at a time", set(whole), {b"".join(EVENTS) + DONE})
    equal("of which none is missing", len(whole), 64)


def slow_reader():
    relay = Relay(BASE)
    connection = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=PATIENCE)
    before, script.sent = relay.memory(), 0
    connection.request("POST", CHAT, json.dumps(chat("huge", stream=True)))
    answer = connection.getresponse()
    for _ in range(HUGE):  # until the upstream sends no more
        sent = script.sent
        if not until(lambda sent=sent: script.sent > sent, 1):
            break
    check("a slow reader holds the upstream back", script.sent < HUGE / 2, script.sent)
    grown = relay.memory() - before
    check("and this server takes little memory for it", grown < 16 << 20, grown)
    equal("and gets all of it", len(answer.read()), 65537 * HUGE + len(DONE))


def failures():
    relay = Relay(BASE, "--upstream-timeout", "1")
    ends = [("html", 502, "text/html"), ("html404", 502, "404"), ("text500", 502, "500"), ("moved", 502, "301"),
            ("close", 502, "without an answer"), ("half", 502, "broke off"), ("silent", 504, "said nothing")]
    for how, status, word in ends:
        sentence(f"an upstream that answers {how}", request(relay.port, "POST", CHAT, chat(how)), status, BASE, word)
    headers = request(relay.port, "POST", CHAT, chat("half"))[1]
    check("which has no headers of the answer that broke off", "content-encoding" not in headers and "etag" not in headers
          and headers["x-request-id"] != "up-1", headers)
    found = request(relay.port, "POST", CHAT, chat("stall", stream=True))[2]
    check("a stream that stalls ends with an event", found.startswith(EVENTS[0] + EVENTS[1])
          and b"said nothing" in found, found)
    down = Relay(f"http://127.0.0.1:{free_port()}")
    sentence("an upstream that is down", request(down.port, "POST", CHAT, chat("json")), 502, "cannot be reached")
    equal("which leaves this one healthy", request(down.port, "GET", "/health")[0], 200)
    nowhere = Relay("http://nowhere.invalid:80")
    sentence("an upstream without an address", request(nowhere.port, "GET", "/v1/models"), 502, "cannot be reached")
    check("its line in the log", " 504" in relay.output() and "said nothing" in relay.output(), relay.output())


def keys():
    folder = os.path.join(ROOT, "build")
    path = os.path.join(folder, f"relay-key-{os.getpid()}")
    with open(path, "w", encoding="ascii") as file:
        file.write("up-secret\nsecond\n")
    relay = Relay(BASE, "--api-key", "own-secret", "--prefill-upstream-key-file", path,
                  "--prefill-upstream-model", "json")
    os.unlink(path)
    equal("a key is asked for", request(relay.port, "POST", CHAT, chat("html"))[0], 401)
    odd = '{"n":2.50,"model":"html","x":[1e-7,{"b":1,"a":"é"}],"messages":[]}'
    status, _, _ = request(relay.port, "POST", CHAT, odd, {"Authorization": "Bearer own-secret",
                                                         "X-Api-Key": "own-secret"})
    line, fields, body = script.seen[-1]
    equal("and another one sent", (status, fields["authorization"], fields.get("x-api-key")),
          (200, "Bearer up-secret", None))
    equal("the model is the option's, all else as it was", body.decode(), odd.replace('"html"', '"json"'))
    request(relay.port, "POST", CHAT, {"messages": []}, {"Authorization": "Bearer own-secret"})
    equal("also where none was named", json.loads(script.seen[-1][2]), {"messages": [], "model": "json"})
    apart = Relay(BASE, "--api-key", "own-secret")
    request(apart.port, "GET", "/v1/models", headers={"Authorization": "Bearer own-secret"})
    equal("a key of this server's goes nowhere", script.seen[-1][1].get("authorization"), None)
    shown = relay.output() + apart.output()
    check("no key in the log", "secret" not in shown, shown)


def options():
    bad = [(["--upstream", "ftp://x"], "must look like"), (["--upstream", "localhost:80"], "must look like"),
           (["--upstream", "http://u:pass@x"], "before the @"), (["--upstream", "http://x/?a=1"], "without ?"),
           (["--upstream", BASE, "-m", "x.gguf"], "--model"),
           (["--upstream", BASE, "--prefill-upstream-key", "a b"], "blank"),
           (["--upstream", BASE, "--prefill-upstream-key-file", "/nowhere"], "/nowhere"),
           (["--upstream", BASE, "--prefill-upstream-template", TARGET], "--prefill-compression"),
           (["--upstream", BASE, *COMPRESS, "--prefill-upstream-template", "/nowhere"], "/nowhere"),
           (["--upstream", BASE, *COMPRESS, "--prefill-adapt"], "--prefill-adapt")]
    for words, word in bad:
        done = subprocess.run([PROGRAM, "serve", "--port", "0", *words], capture_output=True, text=True,
                              timeout=20, check=False)
        check(" ".join(words), done.returncode in (1, 2) and word in done.stderr
              and len(done.stderr.splitlines()) == 1 and "pass" not in done.stderr.replace("password", "").replace(
                  "passe", ""), done.stderr)


def our_own():
    server = Server("-c", "65536")
    relay = Relay(f"http://127.0.0.1:{server.port}", "--grace", "1")
    body = {"messages": [{"role": "user", "content": "Write a story."}], "max_tokens": 40, "temperature": 0,
            "coppice": {"logit_hash": True}}
    for stream in (False, True):
        body["stream"] = stream
        direct, passed = ask(server.port, CHAT, body), ask(relay.port, CHAT, body)
        equal(f"our own server, stream {stream}", passed["texts"], direct["texts"])
        equal("the hash of its logits", passed["coppice"], direct["coppice"])
    sentence_ = json.loads(request(relay.port, "POST", CHAT, {"messages": 5})[2])["error"]
    equal("its refusals", sentence_["param"], "messages")
    connection = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=PATIENCE)
    connection.request("POST", "/v1/completions", json.dumps(
        {"prompt": "Once", "max_tokens": 60000, "ignore_eos": True, "stream": True}))
    answer = connection.getresponse()
    answer.read1(100)
    answer.close()
    connection.close()
    check("a client that goes away frees its slot", server.calm())
    connection.request("POST", "/v1/completions", json.dumps(
        {"prompt": "Once", "max_tokens": 60000, "ignore_eos": True, "stream": True}))
    answer = connection.getresponse()
    answer.read1(100)
    relay.child.terminate()
    last = list(events(answer))
    equal("the end of this server", relay.end(0), 0)
    check("waits for answers, and cuts them with an event", b"shutting down" in last[-1], last[-1])


REST = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n"
FACT = "The secret name of the harbour in Cork is Wumpelstilz."
LONG = REST * 60 + FACT + "\n" + REST * 60 + "\nWhat is the secret name of the harbour in Cork?"
COMPRESS = ("--prefill-compression", "auto", "--prefill-threshold", "500", "--prefill-drafter", SCORER,
            "--prefill-keep-ratio", "0.1")


def raw_prompts():
    """Compressed chats to /v1/completions, by the bundled scorer and the bundled target's template."""
    relay = Relay(BASE, *COMPRESS, "--prefill-upstream-template", TARGET)
    body = {"model": "json", "messages": [{"role": "user", "content": LONG}], "max_completion_tokens": 5, "own": [1]}
    _, fields, _ = request(relay.port, "POST", CHAT, body)
    line, _, sent = script.seen[-1]
    sent = json.loads(sent)
    equal("a compressed chat goes to completions", line.split()[1], "/v1/completions")
    check("as a prompt of what stays", FACT in sent["prompt"] and len(sent["prompt"]) < len(LONG) / 5
          and sent["prompt"].startswith("<|im_start|>user\n") and "<|im_start|>assistant" in sent["prompt"], sent)
    equal("all else as it was", {k: v for k, v in sent.items() if k != "prompt"},
          {"model": "json", "max_tokens": 5, "own": [1]})
    check("and the header says so", '"reason":null' in fields.get("x-coppice-compression", ""), fields)
    request(relay.port, "POST", CHAT, {**body, "logprobs": True})
    line, _, sent = script.seen[-1]
    equal("what only chats have stays a chat", (line.split()[1], FACT in json.loads(sent)["messages"][0]["content"]),
          (CHAT, True))
    short = json.dumps({"model": "json", "messages": [{"role": "user", "content": "Hi"}]})
    request(relay.port, "POST", CHAT, short)
    equal("what is short is passed on", (script.seen[-1][0].split()[1], script.seen[-1][2].decode()), (CHAT, short))
    status, _, found = request(relay.port, "POST", CHAT, {**body, "model": "error"})
    equal("errors come back as they are", (status, found), (429, b'{"error":{"message":"full"}}'))
    server = Server(*COMPRESS)
    relay = Relay(f"http://127.0.0.1:{server.port}", *COMPRESS, "--prefill-upstream-template", TARGET)
    body = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": LONG}],
            "max_tokens": 24, "temperature": 0}
    for stream in (False, True):
        body["stream"] = stream
        if stream:
            body["stream_options"] = {"include_usage": True}
        direct, passed = ask(server.port, CHAT, body), ask(relay.port, CHAT, body)
        equal(f"our own server says the same, stream {stream}", passed["texts"], direct["texts"])
        equal("in the same shape", passed["object"], direct["object"])
        equal("having read the same", passed["usage"]["prompt_tokens"], direct["usage"]["prompt_tokens"])


for function in (untouched, fields_of_hops, streams, slow_reader, failures, keys, options, our_own, raw_prompts):
    part(function)
finish()
