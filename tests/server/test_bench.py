#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`coppice bench --url` against the scripted server: what it counts, every fault that it must tell
apart, hundreds of streams, and its own cost.
"""
import json
import resource
import subprocess

from suite import PROGRAM, check, equal, finish, mock, part


def bench(port, *options, path=""):
    done = subprocess.run([PROGRAM, "bench", "--url", f"http://127.0.0.1:{port}{path}", "--json", *options],
                          capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def counting():
    port = mock("--first", "30", "--gap", "10").port
    for endpoint in ["chat", "completions"]:
        status, r, _ = bench(port, "--endpoint", endpoint, "--clients", "4", "--requests", "12",
                             "--input-tokens", "40", "--output-tokens", "5",
                             "--goodput", "ttft=1000,tpot=0.01")
        equal(f"{endpoint}: status", status, 0)
        equal(f"{endpoint}: requests", (r["requests"], r["done"], r["failed"]), (12, 12, 0))
        equal(f"{endpoint}: tokens", (r["input_tokens"], r["output_tokens"], r["cached_tokens"]),
              (12 * 40, 12 * 5, 12 * 2))
        check(f"{endpoint}: times", 30 <= r["ttft_ms"]["p50"] < 150 and 10 <= r["tpot_ms"]["p50"] < 50
              and 70 <= r["latency_ms"]["p50"] < 350, r)
        check(f"{endpoint}: closed loop", 0.2 < r["seconds"] < 1.2, r["seconds"])
        equal(f"{endpoint}: goodput", r["goodput"]["requests"], 0)
    equal("the model is the server's", r["model"], "mock")


def random_arrivals():
    port = mock("--first", "200").port
    status, r, _ = bench(port, "--rate", "100", "--requests", "200", "--output-tokens", "2")
    equal("rate: status", status, 0)
    check("rate: they take 2 s, whatever each takes", 1.6 < r["seconds"] < 5, r["seconds"])
    check("rate: none waits for another", r["ttft_ms"]["p50"] < 2000, r["ttft_ms"])
    status, r, _ = bench(port, "--rate", "100", "--clients", "1", "--requests", "10", "--output-tokens", "2")
    check("rate with a bound: the wait counts", r["ttft_ms"]["max"] > 1500, r["ttft_ms"])


def faults():
    wanted = {"status": "HTTP 429", "error": "error event", "cut": "cut off", "garbage": "not understood",
              "plain": "not understood", "hang": "timeout", "split": None, "nousage": None, "close": None}
    for fault, kind in wanted.items():
        port = mock("--fault", fault, "--every", "3").port
        status, r, stderr = bench(port, "--clients", "3", "--requests", "12", "--warmup", "0",
                                  "--output-tokens", "6", "--timeout", "1")
        errors = [(e["kind"], e["count"]) for e in r["errors"]]
        equal(f"{fault}: errors", errors, [(kind, 4)] if kind else [])
        equal(f"{fault}: status", status, 1 if kind else 0)
        equal(f"{fault}: sentence", stderr, "coppice bench: 4 of 12 requests failed\n" if kind else "")
        equal(f"{fault}: counted by", r["tokens_by"], "events" if fault == "nousage" else "usage")
        equal(f"{fault}: events", r["events"], r["done"] * 6)


def many_streams():
    port = mock("--first", "100", "--gap", "20").port
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status, r, _ = bench(port, "--clients", "512", "--requests", "512", "--warmup", "0",
                         "--output-tokens", "50")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    equal("512 streams: all done", (status, r["done"], r["events"]), (0, 512, 512 * 50))
    check("512 streams: less than 50 us of its own an event", used / r["events"] < 50e-6, used)


if __name__ == "__main__":
    for function in [counting, random_arrivals, faults, many_streams]:
        part(function)
    finish()
