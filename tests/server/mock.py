#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A scripted OpenAI server for tests of clients: no model, only the bytes that one would send.

Usage: mock.py [--port N] [--first MS] [--gap MS] [--fault KIND] [--every N]
Prints "listening on PORT" and serves until it is ended. Every answer has as many tokens as
max_tokens says; the first comes after --first milliseconds, the others --gap apart. With --fault,
every N-th generation goes wrong: status (429), error (an event), cut (the connection ends in the
middle), garbage (no JSON), plain (no stream), hang (nothing more comes), split (whole, but a byte
at a time), nousage (without usage), close (whole, without keep-alive).
"""
import argparse
import asyncio
import json
import sys

FAULTS = ["status", "error", "cut", "garbage", "plain", "hang", "split", "nousage", "close"]


class Gone(Exception):
    """The script says to end this connection."""


class Mock:
    def __init__(self, options):
        self.options = options
        self.generations = 0

    async def read_request(self, reader):
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        method, path, _ = lines[0].split(" ")
        headers = {k.strip().lower(): v.strip() for k, v in (s.split(":", 1) for s in lines[1:] if s)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        return method, path, body

    def reply(self, writer, status, value, kind="application/json"):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n"
                     f"Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async def send(self, writer, data, fault):
        if fault == "close":
            writer.write(data)
        elif fault == "split":
            for byte in f"{len(data):x}\r\n".encode() + data + b"\r\n":
                writer.write(bytes([byte]))
                await writer.drain()
        else:
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await writer.drain()

    def chunk(self, chat, text, reason=None):
        choice = {"index": 0, "finish_reason": reason}
        choice.update({"delta": {"content": text} if text else {}} if chat else {"text": text})
        return {"id": "x", "object": "chunk", "created": 1, "model": "mock", "choices": [choice]}

    async def stream(self, writer, chat, wanted, prompt, fault):
        kind = "application/json" if fault == "plain" else "text/event-stream"
        end = "Connection: close" if fault == "close" else "Transfer-Encoding: chunked"
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{end}\r\n\r\n".encode())
        if chat:
            role = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
            await self.send(writer, b"data: " + json.dumps(role).encode() + b"\n\n", fault)
        await asyncio.sleep(self.options.first / 1000)
        for i in range(wanted):
            if i:
                await asyncio.sleep(self.options.gap / 1000)
            if i == wanted // 2 and fault in ("error", "cut", "garbage", "hang"):
                await self.break_off(writer, fault)
            data = json.dumps(self.chunk(chat, f"w{i} ")).encode()
            await self.send(writer, b"data: " + data + b"\r\n\r\n", fault)
        last = self.chunk(chat, "", "length")
        usage = {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": wanted,
                                          "prompt_tokens_details": {"cached_tokens": 2}},
                 "timings": {"queue_ms": 0, "prompt_ms": self.options.first}}
        for value in [last] if fault == "nousage" else [last, usage]:
            await self.send(writer, b": note\ndata: " + json.dumps(value).encode() + b"\n\n", fault)
        await self.send(writer, b"data: [DONE]\n\n", fault)
        if fault == "close":
            raise Gone
        writer.write(b"0\r\n\r\n")

    async def break_off(self, writer, fault):
        if fault == "hang":
            await asyncio.sleep(3600)
        if fault == "error":
            value = b'data: {"error":{"message":"the mock broke","type":"server_error"}}\n\n'
            await self.send(writer, value, None)
        if fault == "garbage":
            await self.send(writer, b"data: {nonsense\n\n", None)
        raise Gone

    async def answer(self, writer, path, body):
        chat = path.endswith("/chat/completions")
        if path.endswith("/models"):
            self.reply(writer, 200, {"object": "list", "data": [{"id": "mock", "object": "model"}]})
            return
        request = json.loads(body)
        text = request["messages"][0]["content"] if chat else request["prompt"]
        prompt = len(text.split()) + (7 if chat else 0)
        if not request.get("stream"):
            self.reply(writer, 200, {"choices": [{"index": 0, "text": "w"}], "usage": {
                "prompt_tokens": prompt, "completion_tokens": 1}})
            return
        self.generations += 1
        fault = self.options.fault if self.generations % self.options.every == 0 else None
        if fault == "status":
            self.reply(writer, 429, {"error": {"message": "the queue is full"}})
            return
        await self.stream(writer, chat, request["max_tokens"], prompt, fault)

    async def connection(self, reader, writer):
        try:
            while True:
                _, path, body = await self.read_request(reader)
                await self.answer(writer, path, body)
                await writer.drain()
        except (Gone, asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def serve(self):
        server = await asyncio.start_server(self.connection, "127.0.0.1", self.options.port,
                                            backlog=4096)
        print("listening on", server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--first", type=float, default=0)
    parser.add_argument("--gap", type=float, default=0)
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("--every", type=int, default=1)
    try:
        asyncio.run(Mock(parser.parse_args()).serve())
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
