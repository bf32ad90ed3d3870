#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`coppice daemon` by a transcript: every command, what it says, and the ids that come of it, which are
those of `generate` however they were asked for. Bad lines get one line and end nothing.
"""
import json
import os
import re
import select
import struct
import subprocess
import tempfile

from suite import DRAFT, PROGRAM, SCORER, TARGET, check, equal, finish, part

FOLDER = tempfile.mkdtemp(prefix="coppice-daemon-")


def file(name, ids, counted=False):
    path = os.path.join(FOLDER, name)
    with open(path, "wb") as f:
        if counted:
            f.write(struct.pack("<I", len(ids)))
        f.write(struct.pack(f"<{len(ids)}i", *ids))
    return path


def read_counted(path):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<I", data[:4])[0]
    return list(struct.unpack(f"<{n}i", data[4:]))


class Daemon:
    def __init__(self, *options, stream=True):
        self.r, w = os.pipe()
        self.said = b""
        command = [PROGRAM, "daemon", *options]
        if stream:
            command += [f"--stream-fd={w}"]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                                      stderr=subprocess.DEVNULL, pass_fds=(w,))
        os.close(w)
        equal("the banner", self.line(), "[daemon] ready")

    def line(self):
        while b"\n" not in self.said:
            if not select.select([self.child.stdout], [], [], 60)[0]:
                raise RuntimeError("nothing was said")
            self.said += os.read(self.child.stdout.fileno(), 65536)
        line, _, self.said = self.said.partition(b"\n")
        return line.decode()

    def ids(self):
        """The stream up to -1."""
        found = []
        while True:
            ready, _, _ = select.select([self.r], [], [], 60)
            value = struct.unpack("<i", os.read(self.r, 4))[0] if ready else None
            if value is None:
                raise RuntimeError(f"the stream did not end: {found}")
            if value == -1:
                return found
            found.append(value)

    def send(self, line):
        self.child.stdin.write(line if isinstance(line, bytes) else line.encode() + b"\n")
        self.child.stdin.flush()

    def quiet(self):
        """Whether nothing is left to be read."""
        return not self.said and not select.select([self.r, self.child.stdout], [], [], 0.1)[0]

    def end(self, line="quit"):
        if line is not None:
            self.send(line)
        self.child.stdin.close()
        status = self.child.wait(30)
        rest = self.child.stdout.read()
        self.child.stdout.close()
        os.close(self.r)
        return status, rest


def generated(ids, n, *options):
    """What `generate` makes of them."""
    done = subprocess.run([PROGRAM, "generate", "-m", TARGET, "--ids", ",".join(map(str, ids)), "-n", str(n),
                           "--json", "--price-cache", "off", *options], capture_output=True, check=True)
    return json.loads(done.stdout)["ids"]


def tokens(text):
    done = subprocess.run([PROGRAM, "tokenize", "-m", TARGET, "-p", text], capture_output=True, check=True, text=True)
    return [int(i) for i in done.stdout.split(",")]


PROMPT = tokens("def mean(values):\n    total = 0\n" * 20)
LONGER = PROMPT + tokens("    for v in values:\n        total += v\n    return")


def whole_session():
    d = Daemon(TARGET, DRAFT, "--daemon", "--ddtree", "--ddtree-budget=22", "--max-ctx=2048", "--fast-rollback")
    wanted = generated(PROMPT, 24)
    after = PROMPT + wanted + LONGER[:40]
    longer, gen = generated(after, 24), len(wanted)
    bare, more = file("bare.bin", PROMPT), file("more.bin", after)
    counted, out = file("in.bin", PROMPT, True), os.path.join(FOLDER, "out.bin")

    d.send(f"generate {counted} 24 {out}")
    line = d.line()
    check("generate answers", re.fullmatch(
        rf"ok N={len(PROMPT)} gen={gen} prefix_len=0 prefill_s=[\d.]+ decode_s=[\d.]+ decode_tok_s=[\d.]+ out={out}",
        line), line)
    equal("its ids", read_counted(out), wanted)
    d.send(f"{bare} 24 snap=100:3")
    equal("bare ids: the stream", d.ids(), wanted)
    equal("a snapshot on the way", d.line(), "[snap] inline slot=3 cur_pos=100")
    line = d.line()
    check("bare ids: the answer", line.startswith(f"ok N={len(PROMPT)} gen={gen} prefix_len=0") and "stream_fd=" in line, line)
    d.send("SNAPSHOT 0")
    equal("a snapshot", d.line(), f"[snap] inline slot=0 cur_pos={len(PROMPT) + gen}")
    d.send("SNAPSHOT_THIN 1 0 64")
    equal("a thin one", d.line(), f"[snapshot_thin] slot=1 pos={len(PROMPT) + gen}")
    equal("with an end of its stream", d.ids(), [])
    d.send("LIST_SLOTS")
    equal("the slots", d.line(), "[snap] slots=0,1,3")
    kept = (len(PROMPT) + gen - 1) // 32 * 32
    for line, ids, wanted_ids, least in ((f"RESTORE 0 {more} 24", after, longer, kept),
                                         (f"RESTORE 3 {more} 24", after, longer, 96),
                                         (f"RESTORE_CHAIN 3 1 {more} 24", after, longer, kept),
                                         (f"RESTORE_CHAIN -1 - {more} 24", after, longer, 0),
                                         (f"RESTORE 3 {bare} 24 snap=64:9", PROMPT, wanted, 96)):
        d.send(line)
        equal(line.replace(FOLDER, ""), d.ids(), wanted_ids)
        said = d.line()
        if "snap=" in line:
            equal("its snapshot", said, "[snap] inline slot=9 cur_pos=64")
            said = d.line()
        found = re.match(rf"ok N={len(ids)} gen={len(wanted_ids)} prefix_len=(\d+) ", said)
        check("what need not be run again", found and int(found[1]) == least, (said, least))
    other = file("other.bin", [5] * 50)
    d.send(f"RESTORE 0 {other} 8")
    equal("a slot of another text does no harm", d.ids(), generated([5] * 50, 8))
    check("and is of no use", " prefix_len=0 " in d.line())
    d.send("FREE_SNAPSHOT 0")
    equal("a slot is freed", d.line(), "[snap] freed slot=0")

    d.send(f"{bare} 24 samp=0.8,0.9,40,1.1,7")
    sampled = d.ids()
    d.line()
    equal("sampling", sampled, generated(PROMPT, 24, "--temp", "0.8", "--top-p", "0.9", "--top-k", "40",
                                         "--repeat-penalty", "1.1", "--seed", "7"))
    d.send(f"{bare} 24")
    equal("is for one line", d.ids(), wanted)
    d.line()

    d.send("park draft")
    equal("the draft is parked", (d.ids(), d.line()), ([], "[park] draft rests"))
    d.send(f"{bare} 24")
    equal("which changes no id", d.ids(), wanted)
    d.line()
    d.send("park")
    equal("all is parked", (d.ids(), d.line()), ([], "[park] target released"))
    d.send(f"{bare} 24")
    line = d.line()
    check("nothing is generated then", d.ids() == [] and line.startswith("err target_parked: "), line)
    d.send("park target")
    equal("parking twice", d.ids(), [])
    d.send("unpark")
    equal("all is back", (d.ids(), d.line(), d.line()), ([], "[unpark] target restored", "[unpark] draft restored"))
    d.send(f"RESTORE 3 {more} 24")
    equal("a slot outlives parking", d.ids(), longer)
    check("as a text without its state", " prefix_len=0 " in d.line())
    d.send("free drafter")
    equal("a scorer that is not there", d.ids(), [])
    check("nothing else was said", d.quiet())
    equal("the end", d.end(), (0, b""))


def bad_lines():
    d = Daemon("-m", TARGET, "--max-ctx", "512")
    bare = file("short.bin", PROMPT[:20])
    counted = file("short-in.bin", PROMPT[:20], True)
    odd = os.path.join(FOLDER, "odd.bin")
    with open(odd, "wb") as f:
        f.write(b"12345")
    lying = os.path.join(FOLDER, "lying.bin")
    with open(lying, "wb") as f:
        f.write(struct.pack("<Iii", 3, 1, 2))
    out = os.path.join(FOLDER, "o.bin")
    streams = [("nonsense", "unknown_command"), ("", "unknown_command"), ("   ", "unknown_command"),
               ("COMPRESS x", "unknown_command"), ("x" * 20000, "bad_args"), ("a " * 40, "bad_args"),
               (f"{bare}", "bad_args"), (f"{bare} 0", "bad_args"), (f"{bare} 5x", "bad_args"),
               (f"{bare} -1", "bad_args"), (f"{bare} 99999999999999999999", "bad_args"),
               ("/nowhere/x.bin 5", "io"), (f"{FOLDER} 5", "io"), (f"{odd} 5", "bad_file"),
               (f"{file('none.bin', [])} 5", "bad_file"), (f"{file('big.bin', [4096])} 5", "bad_ids"),
               (f"{file('minus.bin', [-1])} 5", "bad_ids"), (f"{file('long.bin', [5] * 600)} 5", "too_long"),
               (f"{bare} 5 samp=x", "bad_args"), (f"{bare} 5 samp=-1", "bad_args"),
               (f"{bare} 5 samp=1,2", "bad_args"), (f"{bare} 5 samp=1,1,0,1,5,0,0,9", "bad_args"),
               (f"{bare} 5 snap=5", "bad_args"), (f"{bare} 5 snap=0:1", "bad_args"),
               (f"{bare} 5 snap=5:64", "bad_args"), (f"RESTORE 0 {bare} 5", "empty_slot"),
               (f"RESTORE 64 {bare} 5", "bad_args"), ("RESTORE 0", "bad_args"),
               (f"RESTORE_CHAIN 0 - {bare} 5", "empty_slot"), (f"RESTORE_CHAIN -1 x {bare} 5", "bad_args"),
               (f"RESTORE_CHAIN -1 1,,2 {bare} 5", "empty_slot"), ("SNAPSHOT_THIN 0", "no_text"),
               (f"compress {bare}", "bad_args"), (f"compress {bare} 0", "bad_args"),
               (f"compress {bare} 1001", "bad_args"), (f"compress {bare} 50", "no_scorer"),
               (f"compress {bare} 50 nopark", "no_scorer"), (f"compress {bare} 50 /nowhere.gguf qwen3-0.6b", "io"),
               (f"compress {bare} 50 {TARGET}", "failed"), ("free", "bad_args"), ("free target", "bad_args"),
               ("park everything", "bad_args"), ("unpark draft now", "bad_args")]
    for line, word in streams:
        d.send(line)
        said = d.line()
        check(f"{line[:50].replace(FOLDER, '')!r} is refused", said.startswith(f"err {word}: ") and len(said) > 20, said)
        equal("and its stream ends", d.ids(), [])
    alone = [("generate", "bad_args"), (f"generate {counted} 5", "bad_args"), (f"generate {counted} 0 {out}", "bad_args"),
             (f"generate {bare} 5 {out}", "bad_file"), (f"generate {lying} 5 {out}", "bad_file"),
             (f"generate {counted} 5 /nowhere/o.bin", "io"),
             (f"generate {counted} 5 {TARGET}", "bad_args"), ("SNAPSHOT", "bad_args"), ("SNAPSHOT 64", "bad_args"),
             ("SNAPSHOT -1", "bad_args"), ("FREE_SNAPSHOT x", "bad_args")]
    for line, word in alone:
        d.send(line)
        said = d.line()
        check(f"{line[:50].replace(FOLDER, '')!r} is refused", said.startswith(f"err {word}: "), said)
    d.send(b"\xff\x00\xfe\n")
    check("bytes that are no text", d.line().startswith("err unknown_command: ") and d.ids() == [])
    d.send(f"{bare} 9")
    wanted = generated(PROMPT[:20], 9)
    equal("all is well after that", d.ids(), wanted)
    d.line()
    d.send(f"{file('long.bin', [5] * 600)} 5 snap=100:7")
    said = d.line()
    check("a prompt that is too long is named as it is", said.startswith("err too_long: the prompt of 600 tokens"), said)
    equal("its stream ends", d.ids(), [])
    d.send("LIST_SLOTS")
    equal("nothing of it was kept", d.line(), "[snap] slots=")
    d.send("SNAPSHOT 7")
    equal("and the text before it still is", d.line(), f"[snap] inline slot=7 cur_pos={20 + len(wanted)}")
    check("nothing else was said", d.quiet())
    equal("the end of the input ends it", d.end(None), (0, b""))


def streams():
    d = Daemon("-m", TARGET, stream=False)
    bare = file("s.bin", PROMPT[:20])
    counted, out = file("s-in.bin", PROMPT[:20], True), os.path.join(FOLDER, "s-out.bin")
    d.send(f"{bare} 5")
    check("without a stream", d.line().startswith("err no_stream_fd: "))
    d.send(f"generate {counted} 5 {out}")
    d.line()
    equal("files do without", read_counted(out), generated(PROMPT[:20], 5))
    equal("exit", d.end("exit"), (0, b""))
    d = Daemon("-m", TARGET)
    os.close(d.r)
    d.r = os.open("/dev/null", os.O_RDONLY)
    d.send(f"{bare} 5")
    line = d.line()
    check("a reader that has gone", line.startswith("err io: "), line)
    d.send(f"generate {counted} 5 {out}")
    check("ends nothing", d.line().startswith("ok "))
    equal("the end", d.end()[0], 0)
    for words, word in ((["-m", TARGET, "--stream-fd", "77"], "no open descriptor"), ([], "-m"),
                        ([TARGET, "-m", TARGET], "give one"), ([TARGET, DRAFT, "x"], "unexpected operand"),
                        (["/nowhere.gguf"], "/nowhere.gguf")):
        done = subprocess.run([PROGRAM, "daemon", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              check=False)
        check(f"daemon {words}", done.returncode in (1, 2) and word in done.stderr and not done.stdout, done)


def compression():
    """By the bundled scorer, whose vocabulary is the target's."""
    rest = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n"
    fact = tokens("The secret name of the harbour in Cork is Wumpelstilz.")
    head = tokens("<|im_start|>user\n")
    ids = (head + tokens(rest * 60) + fact + tokens("\n" + rest * 60)
           + tokens("\nWhat is the secret name of the harbour in Cork?<|im_end|>\n<|im_start|>assistant\n"))
    long = file("long.bin", ids)
    d = Daemon("-m", TARGET, "--prefill-drafter", SCORER, "--prefill-no-anchors")
    d.send(f"compress {long} 100")
    kept = d.ids()
    d.line()
    check("a tenth of the ids stays", len(ids) // 20 < len(kept) <= len(ids) // 9 + 40, (len(kept), len(ids)))
    source = iter(ids)
    check("in their order", all(i in source for i in kept))
    check("the fact among them", any(kept[i:i + len(fact)] == fact for i in range(len(kept))))
    equal("the template's marks stay", kept[:len(head)], head)
    d.send(f"compress {long} 300 {SCORER} qwen3-0.6b nopark")
    more = iter(d.ids())
    d.line()
    check("more keeps what less keeps", all(i in more for i in kept))
    short = file("shortened.bin", kept)
    d.send(f"{short} 8")
    equal("what stays is read", d.ids(), generated(kept, 8))
    d.line()
    d.send("free drafter")
    d.ids()
    d.line()
    d.send(f"compress {long} 100")
    equal("loaded again it keeps the same", d.ids(), kept)
    d.line()
    equal("the end", d.end()[0], 0)


def sparse():
    """A prompt that goes on after a reply is one prompt, also where the reply was read in full."""
    rest = [300 + (i * i * 17 + i // 7) % 3000 for i in range(1100)]
    options = ["--sparse-prefill", "1", "--max-ctx", "2048", "--device", "cpu"]
    first, d = rest[:900], Daemon("-m", TARGET, *options)
    d.send(f"{file('first.bin', first)} 40 snap=512:1")
    after = first + d.ids() + rest[-160:]
    equal("a snapshot of a prompt", d.line(), "[snap] inline slot=1 cur_pos=512")
    d.line()
    d.send("SNAPSHOT 0")
    d.line()
    wanted = generated(after, 24, *options)
    for slot, least in ((0, 0), (1, 480)):
        d.send(f"RESTORE {slot} {file('after.bin', after)} 24")
        equal(f"read sparsely, restored from slot {slot}", d.ids(), wanted)
        said = d.line()
        check("and no more is kept than can be", least <= int(re.search(r"prefix_len=(\d+)", said)[1]) <= 900, said)
    equal("the end", d.end()[0], 0)


for function in (whole_session, bad_lines, streams, compression, sparse):
    part(function)
finish()
