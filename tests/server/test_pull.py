#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`coppice pull`, `list`, `remove` and models named OWNER/REPO:QUANT, against a Hub on this machine that misbehaves: what
is fetched has the right bytes, a failure is one sentence, and the next run goes on where it ended. With the package
huggingface_hub, each finds what the other fetched.
"""
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

from hub import COMMIT, Hub, sha256
from suite import DRAFT, PROGRAM, ROOT, SCORER, TARGET, check, equal, finish, part, until

MODEL = "acme/Tiny-GGUF"
TOKEN = "hf_secret"
hub = None
work = tempfile.mkdtemp(prefix="pull-", dir=os.path.join(ROOT, "build"))
homes = 0


def read(path):
    with open(path, "rb") as file:
        return file.read()


def with_tensors(content, wanted):
    """A GGUF file with the tensors whose names are wanted, and all of its metadata."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def number(form, at):
        return struct.unpack_from(form, content, at)[0], at + struct.calcsize(form)

    def text(at):
        n, at = number("<Q", at)
        return content[at:at + n], at + n

    def skip(kind, at):
        if kind == 8:
            return text(at)[1]
        if kind != 9:
            return at + sizes[kind]
        (kind, count), at = struct.unpack_from("<IQ", content, at), at + 12
        for _ in range(count):
            at = skip(kind, at)
        return at

    magic, version, tensors, keys = struct.unpack_from("<4sIQQ", content)
    at = 24
    for _ in range(keys):
        kind, at = number("<I", text(at)[1])
        at = skip(kind, at)
    metadata, infos = content[24:at], []
    for _ in range(tensors):
        name, begin = text(at)
        dims, at = number("<I", begin)
        at += 8 * dims + 4
        offset, after = number("<Q", at)
        infos.append((offset, name, content[begin:at]))
        at = after
    data = -(-at // 32) * 32
    ends = sorted(o for o, *_ in infos)[1:] + [len(content) - data]
    head, body = b"", b""
    for (offset, name, shape), end in zip(sorted(infos), ends):
        if wanted(name.decode()):
            head += struct.pack("<Q", len(name)) + name + shape + struct.pack("<Q", len(body))
            body += content[data + offset:data + end]
            body += bytes(-len(body) % 32)
    n = sum(wanted(name.decode()) for _, name, _ in infos)
    out = struct.pack("<4sIQQ", magic, version, n, keys) + metadata + head
    return out + bytes(-len(out) % 32) + body


def repositories():
    target, draft, scorer = read(TARGET), read(DRAFT), read(SCORER)
    block = os.path.join(work, "block.gguf")
    subprocess.run([PROGRAM, "synth", "--shape", "qwen35-tiny-mtp", block], check=True, capture_output=True)
    whole = read(block)
    fixture = os.path.join(ROOT, "tests/fixtures/convert/draft")
    parts = os.path.join(work, "parts.gguf")
    subprocess.run([PROGRAM, "quantize", TARGET, parts, "Q8_0", "--split-size", "6M"], check=True, capture_output=True)
    split = {name: read(os.path.join(work, name)) for name in sorted(os.listdir(work)) if name.startswith("parts-")}
    names = {"Tiny-Q8_0.gguf": target, "README.md": b"words", "mmproj-F16.gguf": b"x"}
    return {
        MODEL: names,
        "acme/Tiny-DFlash": {"Tiny-DFlash-Q8_0.gguf": draft},
        "acme/Side-GGUF": {"Side-Q8_0.gguf": target, "Side-dflash-Q8_0.gguf": draft},
        "acme/Block-GGUF": {"Block-Q4_K.gguf": whole, "Block-dflash-Q8_0.gguf": draft},
        "acme/Half-GGUF": {"Half-Q4_K.gguf": with_tensors(whole, lambda name: name != "blk.4.nextn.enorm.weight"),
                           "mtp-Half.gguf": with_tensors(whole, lambda name: not re.match("blk.[0-3][.]", name))},
        "acme/Apart-GGUF": {"Apart-Q4_K.gguf": with_tensors(whole, lambda name: not name.startswith("blk.4.")),
                            "mtp-Apart.gguf": with_tensors(whole, lambda name: not re.match("blk.[0-3][.]", name))},
        "someone/Qwen3-4B-GGUF": {"Qwen3-4B-Q4_K_M.gguf": target},
        "z-lab/Qwen3-4B-DFlash-b16": {"d.gguf": draft},
        "acme/Other-GGUF": {"Other-Q8_0.gguf": target},
        "acme/Other-DFlash": {name: read(os.path.join(fixture, name)) for name in os.listdir(fixture)},
        "acme/Split-GGUF": {f"Q8_0/Split-Q8_0{name[5:]}": data for name, data in split.items()},
        "acme/Gap-GGUF": {f"Gap-Q8_0{name[5:]}": data for name, data in list(split.items())[:-1]},
        "acme/Twin-GGUF": {f"Twin-Q8_0-0000{i}-of-00002.gguf": split[min(split)] for i in (1, 2)},
        "acme/Two-GGUF": {"a-Q8_0.gguf": target, "b-Q8_0.gguf": scorer},
        "acme/Many-GGUF": {"m-Q2_K.gguf": target, "m-Q3_K_S.gguf": scorer},
        "acme/Plain": {"model.safetensors": b"x", "config.json": b"{}"},
        "acme/Empty": {},
        "acme/Evil": {"../evil.gguf": target, "/tmp/evil.gguf": target, "a/../../evil.gguf": target, ".../../e.gguf": target},
        "acme/Broken-GGUF": {"Broken-Q8_0.gguf": b"GGUF" + b"\0" * 4000},
    }


def home(name=None):
    """A new folder of caches."""
    global homes
    homes += 1
    return os.path.join(work, name or f"home{homes}")


def environment(where, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING")) and "proxy" not in k.lower()}
    return {**env, "HOME": where, "HF_HOME": os.path.join(where, "hf"), "HF_ENDPOINT": hub.url, **more}


def run(where, *words, text=None, limit=None, **more):
    def bound():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return subprocess.run([PROGRAM, *words], env=environment(where, **more), input=text, capture_output=True, text=True,
                          timeout=300, preexec_fn=bound if limit else None)


def pull(where, name=MODEL, *words, **more):
    return run(where, "pull", name, *words, **more)


def folder(where, name):
    return os.path.join(where, "hf/hub", "models--" + name.replace("/", "--"))


def blobs(where, name=MODEL):
    path = os.path.join(folder(where, name), "blobs")
    return sorted(os.listdir(path)) if os.path.isdir(path) else []


def good(what, seen, data=None):
    """It was fetched, and its path was printed."""
    path = seen.stdout.strip()
    ok = seen.returncode == 0 and os.path.isfile(path)
    return check(what, ok and (data is None or read(path) == data), seen.stderr[-800:])


def refused(what, seen, words, status=1):
    """One sentence after the lines that say what is done."""
    lines = [line for line in seen.stderr.splitlines() if line.startswith("coppice pull: ")]
    check(what, seen.returncode == status and len(lines) == 1 and re.search(words, lines[0]) and not seen.stdout,
          f"{seen.returncode}: {seen.stderr[-600:]}")


def usual():
    where, target = home("first"), read(TARGET)
    hub.calm()
    seen = pull(where, HF_TOKEN=TOKEN)
    good("a model is fetched", seen, target)
    check("a plan is said first", re.search(r"fits in \d+ GB with", seen.stderr), seen.stderr)
    check("the draft is found by its name", "the draft Tiny-DFlash-Q8_0.gguf of acme/Tiny-DFlash fits" in seen.stderr,
          seen.stderr)
    equal("blobs", blobs(where), [sha256(target)])
    equal("the revision", read(os.path.join(folder(where, MODEL), "refs/main")), COMMIT.encode())
    link = os.path.join(folder(where, MODEL), "snapshots", COMMIT, "Tiny-Q8_0.gguf")
    equal("the link", os.readlink(link), f"../../blobs/{sha256(target)}")
    check("the token goes to the Hub", all(r[4] == f"Bearer {TOKEN}" for r in hub.requests("hub")))
    check("and to no other host", hub.requests("cdn") and not any(r[4] for r in hub.requests("cdn")))
    check("ranges", len(hub.requests("cdn")) > 10, len(hub.requests("cdn")))
    hub.calm()
    good("again", pull(where), target)
    equal("nothing is fetched twice", hub.requests("cdn"), [])


def names_of_models():
    where = home("first")
    words = ["generate", "--ids", "1,2,3", "-n", "8", "--speculate", "off"]
    hub.calm()
    one, other = run(where, *words, "-m", f"{MODEL}:q8_0"), run(where, *words, "-m", TARGET)
    equal("-m OWNER/REPO:QUANT", (one.returncode, one.stdout), (0, other.stdout))
    equal("from the cache without a request", hub.seen, [])
    seen = run(where, "chat", "-m", MODEL, "-n", "4", text="Hello\n")
    check("chat guesses with the draft of the cache", seen.returncode == 0 and
          re.search(r"guessing with the draft \S+Tiny-DFlash-Q8_0.gguf, which is in the cache", seen.stderr), seen.stderr)
    seen = run(where, "inspect", f"{MODEL}:Tiny-Q8_0.gguf", "--offline")
    check("inspect", seen.returncode == 0 and "qwen35" in seen.stdout, seen.stderr)
    fresh = home()
    seen = run(fresh, *words, "-m", MODEL)
    check("-m fetches what is not there", (seen.returncode, seen.stdout) == (0, other.stdout), seen.stderr)
    equal("generate wants no draft", blobs(fresh, "acme/Tiny-DFlash"), [])
    seen = run(home(), "chat", "-m", MODEL, "-n", "4", text="Hello\n")
    check("chat fetches the draft too", seen.returncode == 0 and "the draft Tiny-DFlash-Q8_0.gguf of" in seen.stderr and
          "which is in the cache" in seen.stderr, seen.stderr)
    fresh = home()
    seen = run(fresh, "chat", "-m", MODEL, "-d", "none", "-n", "4", text="Hello\n")
    equal("-d none fetches none", (seen.returncode, blobs(fresh, "acme/Tiny-DFlash")), (0, []))
    hub.calm()
    seen = run(home(), *words, "-m", MODEL, "--offline")
    check("--offline", seen.returncode == 1 and "is not in the cache" in seen.stderr, seen.stderr)
    seen = run(home(), *words, "-m", MODEL, HF_HUB_OFFLINE="1")
    check("HF_HUB_OFFLINE", seen.returncode == 1 and "is not in the cache" in seen.stderr, seen.stderr)
    equal("no request either", hub.seen, [])
    seen = run(where, *words, "-d", "acme/Tiny-DFlash", "-m", MODEL)
    check("-d OWNER/REPO", seen.returncode == 0 and seen.stdout == other.stdout, seen.stderr)


def drafts():
    hub.calm()
    where = home()
    check("a draft in the same repository", "the draft Side-dflash-Q8_0.gguf of acme/Side-GGUF fits" in
          pull(where, "acme/Side-GGUF").stderr)
    seen = pull(where, "acme/Block-GGUF")
    check("none where the model's file predicts further tokens", seen.returncode == 0 and "draft" not in seen.stderr and
          len(blobs(where, "acme/Block-GGUF")) == 1, seen.stderr)
    check("which list says", re.search(r"^acme/Block-GGUF:\S+ +\S+ MB +predicts further tokens$", run(where, "list").stdout, re.M))
    seen = pull(where, "acme/Half-GGUF")
    check("a block that cannot be used is said, and a draft found", "enorm" in seen.stderr and
          "the draft mtp-Half.gguf of acme/Half-GGUF fits" in seen.stderr and len(blobs(where, "acme/Half-GGUF")) == 2, seen.stderr)
    check("nor does list say that it predicts", re.search(r"^acme/Half-GGUF:Q4_K +\S+ MB +its prediction block cannot be used$",
                                                          run(where, "list").stdout, re.M), run(where, "list").stdout)
    words = ["generate", "-m", "acme/Half-GGUF:Q4_K", "--ids", "1,2,3,1,2,3", "-n", "16"]
    seen = run(where, *words, "-d", "auto")
    check("which then guesses", seen.returncode == 0 and "guessing with the draft" in seen.stderr, seen.stderr)
    seen = pull(where, "acme/Apart-GGUF")
    check("a prediction block in a file of its own", "the draft mtp-Apart.gguf of acme/Apart-GGUF fits" in seen.stderr, seen.stderr)
    words = ["generate", "-m", "acme/Apart-GGUF:Q4_K", "--ids", "1,2,3,1,2,3", "-n", "16"]
    seen, plain = run(where, *words, "-d", "auto"), run(where, *words, "-d", "none")
    check("with which it guesses, and says the same", (seen.returncode, seen.stdout) == (0, plain.stdout) and
          re.search(r"guessing with the draft \S+mtp-Apart.gguf, which lies next to", seen.stderr), seen.stderr)
    seen = pull(where, "someone/Qwen3-4B-GGUF")
    check("a draft of a known pair", "the draft d.gguf of z-lab/Qwen3-4B-DFlash-b16 fits" in seen.stderr, seen.stderr)
    seen = pull(where, "acme/Other-GGUF")
    check("one that does not fit is said and not taken", seen.returncode == 0 and "is not used" in seen.stderr,
          seen.stderr)
    equal("nothing of it stays", blobs(where, "acme/Other-DFlash"), [])
    fresh = home()
    good("--no-draft", pull(fresh, MODEL, "--no-draft"))
    equal("takes none", blobs(fresh, "acme/Tiny-DFlash"), [])


def parts():
    hub.calm()
    where = home()
    seen = pull(where, "acme/Split-GGUF:Q8_0")
    good("a model in parts", seen)
    equal("all of them", len(blobs(where, "acme/Split-GGUF")), len(hub.repos["acme/Split-GGUF"]))
    seen = run(where, "generate", "-m", "acme/Split-GGUF", "--ids", "1,2,3", "-n", "8", "--offline")
    equal("runs", seen.returncode, 0)
    refused("a part that is missing", pull(where, "acme/Gap-GGUF"), r"part \d of \d of Gap-Q8_0\S+ is missing")
    seen = pull(where, MODEL, HF_HOME=os.path.relpath(os.path.join(where, "hf")))
    check("a plan of what is in a relative folder", seen.returncode == 0 and "fits in" in seen.stderr, seen.stderr)
    refused("a temporary folder that is not there", pull(where, "acme/Two-GGUF:a-Q8_0.gguf", TMPDIR="/nowhere"),
            "cannot make a folder in /nowhere: No such file or directory; set TMPDIR")
    refused("parts of the same bytes", pull(where, "acme/Twin-GGUF"), "has the bytes of another file of the model")


def lists():
    hub.calm()
    where = home()
    path = pull(where, "acme/Other-DFlash").stdout
    check("a model without GGUF is not pulled as one", path == "", path)
    run(where, "generate", "-m", TARGET, "-d", "acme/Other-DFlash", "--ids", "1,2", "-n", "2")
    seen = run(where, "list")
    check("a draft as safetensors is listed", re.search(r"^acme/Other-DFlash +\S+ \S+ +draft", seen.stdout, re.M),
          seen.stdout + seen.stderr)
    run(where, "remove", "acme/Other-DFlash")
    equal("and removed", blobs(where, "acme/Other-DFlash"), [])
    where = home("first")
    seen = run(where, "list")
    check("list", re.search(r"^acme/Tiny-GGUF:Q8_0 +15.7 MB", seen.stdout, re.M) and
          re.search(r"^acme/Tiny-DFlash:\S+ +2.85 MB +draft", seen.stdout, re.M), seen.stdout)
    rows = json.loads(run(where, "list", "--json").stdout)
    equal("list --json", [(r["repo"], r["name"], os.path.isfile(r["path"])) for r in rows],
          [("acme/Tiny-DFlash", "Tiny-DFlash-Q8_0.gguf", True), (MODEL, "Q8_0", True)])
    path = os.path.join(folder(where, MODEL), "snapshots", COMMIT)
    with open(os.path.join(path, "README.md"), "w", encoding="ascii") as file:
        file.write("another tool's")
    plain = os.path.join(folder(where, "acme/Plain"), "snapshots", COMMIT)
    os.makedirs(plain)
    with open(os.path.join(plain, "model.safetensors"), "w", encoding="ascii") as file:
        file.write("another tool's model")
    seen = run(where, "remove", "acme/Plain")
    check("remove what list does not show", seen.returncode == 1 and "there is no acme/Plain in the cache" in seen.stderr,
          seen.stderr)
    equal("it stays", os.listdir(plain), ["model.safetensors"])
    seen = run(where, "remove", f"{MODEL}@other")
    check("remove another revision", seen.returncode == 1 and "no acme/Tiny-GGUF@other in the cache" in seen.stderr,
          seen.stderr)
    equal("the model stays", len(blobs(where)), 1)
    seen = run(where, "remove", f"{MODEL}:Q8_0")
    check("remove", seen.returncode == 0 and "removed 15.7 MB" in seen.stderr, seen.stderr)
    equal("its blob is gone", blobs(where), [])
    equal("other files stay", os.listdir(path), ["README.md"])
    run(where, "remove", "acme/Tiny-DFlash")
    check("an empty repository goes", not os.path.exists(folder(where, "acme/Tiny-DFlash")))
    seen = run(where, "remove", MODEL)
    check("what is not there", seen.returncode == 1 and "there is no acme/Tiny-GGUF in the cache" in seen.stderr,
          seen.stderr)
    seen = run(where, "list")
    check("nothing is left", seen.stdout == "" and "there are no models" in seen.stderr, seen.stderr)


def removal():
    """What remove cannot look into may use the same bytes; a snapshot may have more files than a model has parts."""
    hub.calm()
    where = home()
    path = pull(where, MODEL, "--no-draft").stdout.strip()
    other = os.path.join(folder(where, MODEL), "snapshots", "ab" * 20)
    os.makedirs(os.path.join(other, *"123456789"))
    seen = run(where, "remove", MODEL)
    check("a snapshot that is not read to its end", seen.returncode == 1 and
          re.search(r"cannot read \S+/9 \(too many .*nothing of it was removed", seen.stderr), seen.stderr)
    check("the model stays", os.path.isfile(path))
    shutil.rmtree(other)
    os.makedirs(other)
    os.symlink("loop", os.path.join(other, "loop"))
    seen = run(where, "remove", MODEL)
    check("a link that leads nowhere", seen.returncode == 1 and "/loop (Too many levels" in seen.stderr, seen.stderr)
    os.unlink(os.path.join(other, "loop"))
    os.symlink("../../blobs/" + sha256(read(TARGET)), os.path.join(other, "same.gguf"))
    run(where, "remove", MODEL + "@" + COMMIT)
    equal("one that another revision uses", (os.path.lexists(path), len(blobs(where))), (False, 1))
    run(where, "remove", MODEL)
    equal("goes with the last use", blobs(where), [])
    many = folder(where, "acme/Lots-GGUF")
    os.makedirs(os.path.join(many, "blobs"))
    os.makedirs(os.path.join(many, "snapshots", COMMIT))
    for i in range(600):
        with open(os.path.join(many, "blobs", f"{i:064x}"), "wb") as file:
            file.write(b"x")
        os.symlink(f"../../blobs/{i:064x}", os.path.join(many, "snapshots", COMMIT, f"m{i}.gguf"))
    seen = run(where, "remove", "acme/Lots-GGUF")
    check("600 files", seen.returncode == 0 and "removed 600 bytes" in seen.stderr and not os.path.exists(many), seen.stderr)


def cdn(rule):
    return lambda handler, server: server == "cdn" and rule(handler, hub.blobs[sha_of(handler)])


def sha_of(handler):
    return handler.path.partition("?")[0].rpartition("/")[2]


def misbehaviour():
    target = read(TARGET)
    plain = (MODEL, "--no-draft")
    hub.calm(cdn(lambda h, data: h.answer(200, data)))
    good("a server without ranges", pull(home(), *plain), target)
    counter = {"n": 0}

    def cut(h, data):
        first, last = h.range_of(data)
        return h.answer(206, data[first:last + 1], {"Content-Range": f"bytes {first}-{last}/{len(data)}"},
                        send=(last + 1 - first) // 2) if last - first > 1000 else False
    hub.calm(cdn(cut))
    good("each connection is cut midway", pull(home(), *plain), target)

    def cut_whole(h, data):
        counter["n"] += 1
        return h.answer(200, data, send=len(data) * counter["n"] // 4 if counter["n"] < 4 else None)
    hub.calm(cdn(cut_whole))
    good("cut midway, without ranges", pull(home(), *plain), target)
    hub.calm(cdn(lambda h, data: h.answer(206, data[:10], {"Content-Range": f"bytes 0-9/{len(data) + 5}"})))
    refused("other bytes than asked for", pull(home(), *plain), "answers with other bytes than it was asked for")
    hub.calm(lambda h, server: server == "hub" and "/resolve/" in h.path and
             h.answer(307, b"", {"Location": h.path}))
    refused("a circle of redirects", pull(home(), *plain), "is redirected more than 8 times")

    def moved(h, server):
        return (server == "hub" and "/resolve/" in h.path and "moved" not in h.path and
                h.answer(307, b"", {"Location": h.path + "?moved"}))
    hub.calm(moved)
    good("a relative redirect", pull(home(), *plain, HF_TOKEN=TOKEN), target)
    check("keeps the token", all(r[4] for r in hub.requests("hub")))

    def another(h, server):
        return server == "hub" and "/resolve/" in h.path and h.answer(
            302, b"", {"X-Linked-Etag": '"' + "0" * 64 + '"', "Location": f"{hub.cdn_url}/{sha256(target)}"})
    hub.calm(another)
    refused("a file that has changed since it was listed", pull(home(), *plain), "is another file now")


def passing():
    target, counter = read(TARGET), {"n": 0}

    def some(status, more, times):
        counter["n"] = 0

        def rule(h, server):
            if "/resolve/" in h.path and server == "hub":
                counter["n"] += 1
                counter["at"] = counter.get("at", [])[-1:] + [time.monotonic()]
                return counter["n"] <= times and h.answer(status, b"", more)
            return False
        return rule
    hub.calm(some(503, {}, 2))
    good("503 twice", pull(home(), MODEL, "--no-draft"), target)
    hub.calm(some(429, {"Retry-After": "1"}, 1))
    good("429 with Retry-After", pull(home(), MODEL, "--no-draft"), target)
    equal("one request more", counter["n"], 2)
    check("not before the second is over", counter["at"][1] - counter["at"][0] >= 1, counter["at"])
    hub.calm(some(429, {"Retry-After": "3600"}, 9))
    refused("429 for an hour", pull(home(), MODEL, "--no-draft"), "it asks to wait 3600 s")
    hub.calm(some(503, {"Retry-After": "3600"}, 9))
    refused("503 for an hour", pull(home(), MODEL, "--no-draft"), "answers 503; it asks to wait 3600 s")
    expired = set()

    def expire(h, data):
        key = h.headers.get("Range")
        fresh = key not in expired and len(expired) < 3
        expired.add(key)
        return fresh and h.answer(403, b"expired")
    hub.calm(cdn(expire))
    good("addresses that expire", pull(home(), MODEL, "--no-draft"), target)
    silent = threading.Event()

    def stall(h, data):
        if silent.is_set():
            return False
        silent.set()
        h.send_response(206)
        h.send_header("Content-Length", "1000")
        h.end_headers()
        h.connection.recv(1)  # until the client has given up
        h.close_connection = True
        return True
    hub.calm(cdn(stall))
    good("a server that falls silent", pull(home(), MODEL, "--no-draft", HF_HUB_DOWNLOAD_TIMEOUT="1"), target)


def refusals():
    hub.calm()
    where = home()
    refused("no such repository", pull(where, "acme/Nothing"), "acme/Nothing does not exist at http://127.* or is private")
    refused("with a token", pull(where, "acme/Nothing", HF_TOKEN=TOKEN), "does not let this token read acme/Nothing")
    refused("no such revision", pull(where, MODEL + "@v9"), "acme/Tiny-GGUF has no revision v9")
    refused("an empty one", pull(where, "acme/Empty"), "acme/Empty holds no files")
    refused("one without GGUF", pull(where, "acme/Plain"), "acme/Plain holds no model as GGUF")
    refused("a type that is not there", pull(where, MODEL + ":Q4_K_M"), "acme/Tiny-GGUF has no Q4_K_M; it has Q8_0")
    refused("two matches", pull(where, "acme/Two-GGUF:Q8_0"), "several models, among them a-Q8_0.gguf and b-Q8_0.gguf")
    refused("two usual ones", pull(where, "acme/Two-GGUF"), "several models, among them a-Q8_0.gguf and b-Q8_0.gguf")
    refused("several types", pull(where, "acme/Many-GGUF"), "several models; name one .* Q2_K, Q3_K_S")
    refused("what is no model", pull(where, "acme/Broken-GGUF", "--no-draft"), "Broken-Q8_0.gguf cannot be run: ")
    refused("no name", pull(where, "acme"), "'acme' is no name of a model", 2)
    refused("hostile names", pull(where, "acme/Evil"), "acme/Evil holds no files")
    refused("one of them", pull(where, "acme/Evil:../evil.gguf"), "acme/Evil")
    check("nothing leads out of the cache", not any("evil" in name for _, _, names in os.walk(work) for name in names))
    hub.calm(lambda h, server: h.answer(403, b"", {"X-Error-Code": "GatedRepo"}))
    refused("a gated one", pull(where), "acme/Tiny-GGUF is gated: request access at http")
    hub.calm(lambda h, server: server == "hub" and "/resolve/" in h.path and
             h.answer(403, b"", {"X-Error-Code": "GatedRepo"}))
    refused("files that are gated", pull(where), "acme/Tiny-GGUF is gated")
    hub.calm(lambda h, server: h.answer(200, b'{"sha":"' + b"x" * (40 << 20) + b'"}'))
    refused("a list that is too long", pull(where), "sends more than 33554432 bytes")
    hub.calm(lambda h, server: h.answer(200, b"[" * 100000))
    refused("a list that is too deep", pull(where), "the list of files of acme/Tiny-GGUF")
    hub.calm(lambda h, server: h.answer(200, b'{"siblings": []}'))
    refused("no commit", pull(where), "names no commit")
    seen = pull(where, HF_ENDPOINT="http://127.0.0.1:1")
    refused("nobody answers", seen, "cannot be fetched")
    refused("a token with a line break", pull(where, HF_TOKEN="a\nb"), "holds a blank or control character", 2)
    hub.calm()
    hub.wrong["Tiny-Q8_0.gguf"] = "1" * 64
    hub.blobs["1" * 64] = read(TARGET)
    hub.calm(lambda h, server: server == "hub" and "/resolve/" in h.path and
             h.answer(302, b"", {"Location": f"{hub.cdn_url}/{sha256(read(TARGET))}"}))
    fresh = home()
    refused("a wrong hash", pull(fresh, MODEL, "--no-draft"), f"has SHA-256 {sha256(read(TARGET))} where the Hub says 1111")
    equal("nothing of it stays", blobs(fresh), [])
    hub.wrong.clear()
    hub.calm()
    hub.sizes["Tiny-Q8_0.gguf"] = 10 ** 16
    refused("more than the disk holds", pull(home(), MODEL, "--no-draft"), "has room for .* and 10.0 PB are still to come")
    hub.sizes.clear()


def full_disk():
    where, target = home(), read(TARGET)
    hub.calm()
    refused("a full disk", pull(where, MODEL, "--no-draft", limit=5 << 20), "cannot write Tiny-Q8_0.gguf: File too large")
    begun = os.path.getsize(os.path.join(folder(where, MODEL), "blobs", sha256(target) + ".incomplete"))
    check("what has come stays", 1 << 20 <= begun <= 5 << 20, begun)
    seen = run(where, "list")
    check("and is listed", "not complete" in seen.stdout, seen.stdout)
    hub.calm()
    good("it goes on", pull(where, MODEL, "--no-draft"), target)
    check("from there", hub.sent <= len(target) - begun, (hub.sent, begun))
    equal("one blob", blobs(where), [sha256(target)])


class Gate:
    """Holds the requests for bytes from `first` on, until it is opened."""

    def __init__(self, first):
        self.first, self.held, self.open = first, threading.Event(), threading.Event()

    def __call__(self, h, server):
        found = h.range_of(b"") if server == "cdn" else None
        if found and found[0] >= self.first and not self.open.is_set():
            self.held.set()
            self.open.wait(60)
        return False


def start(where, name=MODEL, **more):
    return subprocess.Popen([PROGRAM, "pull", name, "--no-draft"], env=environment(where, **more), text=True,
                            stdout=subprocess.PIPE, stderr=open(os.path.join(where + ".log"), "w", encoding="utf-8"))


def interrupted():
    where, target = home(), read(TARGET)
    gate = Gate(4 << 20)
    hub.calm(gate)
    child = start(where)
    begun = os.path.join(folder(where, MODEL), "blobs", sha256(target) + ".incomplete")
    check("it is under way", gate.held.wait(60) and
          until(lambda: os.path.exists(begun) and os.path.getsize(begun) >= 4 << 20))
    child.send_signal(signal.SIGINT)
    equal("ctrl-C", child.wait(60), 130)
    gate.open.set()
    check("is said", "interrupted; what has come stays" in open(where + ".log", encoding="utf-8").read())
    had = os.path.getsize(begun)
    hub.calm()
    good("the next run goes on", pull(where, MODEL, "--no-draft"), target)
    equal("with the rest alone", hub.sent, len(target) - had)


def killed():
    """What a killed program left in TMPDIR goes with the next one; what one in progress has there stays."""
    place = home("tmp")
    os.makedirs(place)
    gate = Gate(4 << 20)
    hub.calm(gate)
    first, second = (start(home(), TMPDIR=place) for _ in range(2))
    check("two are under way", until(lambda: len(os.listdir(place)) == 2 and gate.held.is_set()))
    first.kill()
    first.wait(60)
    equal("a killed one leaves its folder", len(os.listdir(place)), 2)
    refused("the next one", pull(home(), "acme/Broken-GGUF", "--no-draft", TMPDIR=place), "cannot be run")
    equal("removes that alone", len(os.listdir(place)), 1)
    gate.open.set()
    equal("the other one ends well", (second.wait(60), os.listdir(place)), (0, []))


def two_at_once():
    where, target = home(), read(TARGET)
    gate = Gate(4 << 20)
    hub.calm(gate)
    first = start(where)
    check("one is under way", gate.held.wait(60))
    log = open(where + ".second", "w", encoding="utf-8")
    second = subprocess.Popen([PROGRAM, "pull", MODEL, "--no-draft"], env=environment(where), stdout=subprocess.PIPE,
                              stderr=log, text=True)
    check("another one waits", until(lambda: "another program fetches" in open(where + ".second", encoding="utf-8").read()))
    log = open(where + ".third", "w", encoding="utf-8")
    third = subprocess.Popen([PROGRAM, "pull", MODEL, "--no-draft"], env=environment(where), stdout=log, stderr=log)
    until(lambda: "another program fetches" in open(where + ".third", encoding="utf-8").read())
    third.send_signal(signal.SIGINT)
    equal("ctrl-C ends the waiting", third.wait(60), 130)
    gate.open.set()
    outputs = [child.communicate(timeout=60)[0] for child in (first, second)]
    equal("both end well", (first.returncode, second.returncode, outputs[0]), (0, 0, outputs[1]))
    check("with the right bytes", read(outputs[0].strip()) == target)
    equal("fetched once", hub.sent, len(target))


def side_by_side():
    """Requests for ranges are in progress together: none of four is answered before all are there."""
    together = threading.Barrier(4)

    def rule(h, server):
        found = h.range_of(b"") if server == "cdn" else None
        if found and 1 << 20 <= found[0] < 5 << 20:
            together.wait(60)
        return False
    hub.calm(rule)
    good("four connections", pull(home(), MODEL, "--no-draft"), read(TARGET))


def other_tools():
    try:
        import huggingface_hub  # noqa: F401 (the version is what was installed)
    except ImportError:
        print("skipped  other tools: no package huggingface_hub")
        return
    ask = ("import sys, huggingface_hub as h\n"
           "print(h.hf_hub_download(sys.argv[1], sys.argv[2], local_files_only=sys.argv[3] == 'local'))")

    def theirs(where, name, file, how):
        return subprocess.run([sys.executable, "-c", ask, name, file, how], capture_output=True, text=True, timeout=120,
                              env=environment(where, HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_PROGRESS_BARS="1"))
    hub.calm()
    where = home()
    ours = pull(where)
    seen = theirs(where, MODEL, "Tiny-Q8_0.gguf", "local")
    equal("huggingface_hub finds ours", seen.stdout.strip() or seen.stderr[-500:], ours.stdout.strip())
    fresh = home()
    seen = theirs(fresh, MODEL, "Tiny-Q8_0.gguf", "fetch")
    check("it fetches", os.path.isfile(seen.stdout.strip()), seen.stderr[-500:])
    hub.calm()
    mine = run(fresh, "inspect", MODEL, "--offline")
    equal("its file is found", mine.returncode, 0)
    equal("and pulled without a byte", (pull(fresh, MODEL, "--no-draft").stdout, hub.requests("cdn")), (seen.stdout, []))


hub = Hub(repositories())
try:
    for one in (usual, names_of_models, drafts, parts, lists, removal, misbehaviour, passing, refusals, full_disk, interrupted, killed,
                two_at_once, side_by_side, other_tools):
        part(one)
finally:
    shutil.rmtree(work, ignore_errors=True)
finish()
