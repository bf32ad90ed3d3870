#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Needles in a haystack, over a server's interface: facts hidden in long texts, questions for them, and
how many of the answers hold them.

Usage: bench/niah.py PROGRAM -m T.gguf [OPTIONS] [-- OPTIONS OF coppice serve]

PROGRAM is coppice. It serves the model on a free port, counts tokens and answers; with --prefill-drafter
it also shortens texts (`coppice compress`). A case is a text of at most --prompt-tokens tokens, short of
it by 0.5 % or a line. The same seed and tokenizer give the same bytes on every machine. docs/cli.md,
Needles, has the options, the columns and the fields of the JSON.
"""
import argparse
import glob
import http.client
import json
import os
import re
import subprocess
import sys
import time
from urllib.parse import urlsplit

from cache_server import Server

MASK = (1 << 64) - 1
GRAM, WORDINGS, ROUNDS, SLACK, MAX_NEEDLES, ANSWER_TOKENS = 4, 256, 12, 48, 8, 64
FILLERS, KINDS = ["phrases", "prose", "code", "file"], ["number", "uuid", "password"]
DEPTHS = list(range(0, 101, 10))
WAYS = ["dense", "scorer", "anchors", "random"]
PREFILL = {"--prefill-keep-ratio": "R", "--prefill-curve": "T:R,...", "--prefill-mass": "M", "--prefill-least": "R",
           "--prefill-most": "R", "--prefill-layers": "N", "--prefill-score-layers": "N", "--prefill-alpha": "A",
           "--prefill-density": "D"}


def words(text):
    return text.split("|")


PHRASES = words("The grass is wet.|The hills are far.|The moon is pale.|Off they went.|Home again by dusk.")
NOUNS = words("captain|valley|baker|storm|village|mirror|horse|garden|letter|winter|stranger|forest|window|soldier|kitchen|"
              "river|candle|teacher|mountain|carriage|shepherd|harvest|cottage|island|painter|lantern|meadow|merchant|chimney|"
              "traveller|library|fisherman|orchestra|staircase|neighbour|widow|blacksmith|pilgrim|rooftop|courtyard")
ADJECTIVES = words("quiet|narrow|golden|tired|ancient|cheerful|distant|hollow|gentle|broken|curious|silver|patient|crooked|"
                   "famous|lonely|muddy|bright|stubborn|forgotten|careful|heavy|early|foreign")
VERBS = words("followed|remembered|crossed|described|repaired|admired|left|painted|watched|visited|ignored|praised|measured|"
              "carried|searched|welcomed|avoided|inherited|protected|questioned")
TIMES = words("in the evening|after the long rain|before breakfast|for many years|on a Sunday|without a word|during the "
              "festival|late at night|with great care|against all advice|once more|at the end of summer|from time to time|as "
              "everybody expected")
LINKS = words("and|but|while|because|although|so that|until|whereas")
SENTENCES = words("The %a %n %v the %n %t.|%T, the %n %v a %a %n.|A %n and a %n %v the %a %n, %l the %n %v the %n.|Nobody knew "
                  "why the %n %v the %a %n.|The %n was %a, %l the %n of the %n %v it %t.|It is said that every %a %n %v some "
                  "%n %t.|The %n, %a as ever, %v the %n.|There was no %n in the %n, %l the %a %n %v another one.")
ACTIONS = words("read|copy|merge|flush|count|reset|parse|split|find|pack|sort|trim|close|hash|swap|scan|emit|drop|link|load")
THINGS = words("buffer|queue|record|index|stream|block|table|header|frame|cursor|packet|region|bucket|symbol|segment|handle|"
               "range|batch|window|slot")
STATEMENTS = ["    %o->%f = %d;", "    if (%o->%f > %d)\n        return -%d;",
              "    for (int i = 0; i < %o->%f; i++)\n        %c_%g(%o, i);", "    %o->%f += %c_%g(%o, %d);",
              "    size_t %f = %o->%g & 0x%x;", "    memset(&%o->%f, 0, sizeof %o->%f);", "    %c_%g(%o, %o->%f, %d);",
              "    /* the %g follows the %f */", "    while (%o->%f < %d)\n        %o->%f <<= 1;",
              "    assert(%o->%g != NULL);"]
# Names of places: a beginning and an end, short enough to be few tokens.
BEGINS = words("Bal|Cor|Dun|Fen|Gar|Hal|Ist|Jor|Kel|Lom|Mar|Nor|Ost|Pel|Quar|Ras|Sel|Tor|Ull|Ven|Wyn|Yar|Zim|Arn")
ENDS = words("on|er|ix|us|am|ia|en|or|el|is|ar|um|ot|ek|il|as")
SECRETS = words("OTTER|LANTERN|COPPER|WILLOW|FALCON|GRANITE|VELVET|HARBOR|PEPPER|COMET|BADGER|MAPLE|SILVER|TUNDRA|WALNUT|ZEPHYR")
# %k is the key, %v the value, %K all keys.
FACTS = {"number": ["The special number for %k is %v.", "Whoever asks about %k gets the number %v.",
                    "Of all numbers, %v was picked for %k.", "%k answers to the number %v."],
         "uuid": ["%k is filed under the UUID %v.", "The record of %k carries UUID %v.",
                  "In the database the UUID %v stands for %k.", "UUID %v was generated for %k."],
         "password": ["To enter %k, say the password %v.", "%k opens with the password %v.",
                      "The guards of %k accept one password only: %v.", "Since the last change, %v is the password at %k."]}
QUESTIONS = {"number": ["Which digits were chosen when people spoke about %K?", "Name the number connected with %K.",
                        "What number did the text reserve for %K?"],
             "uuid": ["By which UUID can one find %K?", "Which UUID identifies %K?", "Quote the UUID given to %K, please."],
             "password": ["How does one get into %K? Only the password counts.",
                          "Which password do I need in order to visit %K?", "Name the password for going to %K."]}


def mix(x):
    """One round of splitmix64, as src/base/rng.h has it."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def mixed(seed, *counters):
    x = mix(seed)
    for counter in counters:
        x = mix(x ^ counter)
    return x


class Random:
    def __init__(self, state):
        self.state = state

    def next(self):
        self.state = self.state + 1 & MASK
        return mix(self.state - 1 & MASK)

    def below(self, n):
        return (self.next() >> 32) * n >> 32

    def pick(self, choices):
        return choices[self.below(len(choices))]


def fill(pattern, word):
    """A pattern whose %x are replaced by word(x), in order."""
    parts = pattern.split("%")
    return parts[0] + "".join(word(part[0]) + part[1:] for part in parts[1:])


class Filler:
    """An endless text: each call of next() gives a blank or newlines and the next sentence or line."""

    def __init__(self, kind, text, seed):
        self.kind, self.text, self.random, self.unit, self.left, self.name = kind, text, Random(seed), 0, 0, ""
        if kind == "file":  # some line: the one after this place
            self.at = text.find(b"\n", self.random.next() % len(text)) + 1

    def sentence(self):
        r = self.random
        lists = {"a": ADJECTIVES, "n": NOUNS, "v": VERBS, "t": TIMES, "l": LINKS}
        capital = lambda: (lambda word: word[0].upper() + word[1:])(r.pick(TIMES))
        return fill(r.pick(SENTENCES), lambda x: capital() if x == "T" else r.pick(lists[x]))

    def statement(self):
        r = self.random
        given = {"o": self.name, "f": r.pick(THINGS), "g": r.pick(THINGS), "c": r.pick(ACTIONS)}
        return fill(r.pick(STATEMENTS), lambda x: given[x] if x in given else
                    f"{r.below(65536):x}" if x == "x" else str(r.below(1000)))

    def code(self):
        r = self.random
        if self.left == 0:
            thing = r.pick(THINGS)
            self.name = f"{thing[0]}{r.below(10)}"
            second = r.pick(THINGS)
            head = f"int {r.pick(ACTIONS)}_{second}(struct {thing} *{self.name}) {{"
            self.left = 4 + r.below(9)
            return head
        self.left -= 1
        return self.statement() if self.left else f"    return {self.name}->{r.pick(THINGS)};\n}}\n"

    def next(self):
        if self.kind == "phrases":
            self.unit += 1
            return " " + PHRASES[(self.unit - 1) % len(PHRASES)]
        if self.kind == "prose":
            gap = " " if self.left else "\n\n"
            self.left = (self.left or 3 + self.random.below(6)) - 1
            return gap + self.sentence()
        if self.kind == "code":
            return "\n" + self.code()
        end = self.text.find(b"\n", self.at)
        line = self.text[self.at:end if end >= 0 else None]
        self.at += len(line) + 1
        if self.at >= len(self.text):
            self.at = 0
        return "\n" + line.decode()


def draw_facts(n, kind, r):
    """[(key, value)] whose keys share neither beginning nor end."""
    begun, ended, facts = set(), set(), []
    for _ in range(n):
        while (begin := r.pick(BEGINS)) in begun:
            pass
        while (end := r.pick(ENDS)) in ended:
            pass
        begun.add(begin)
        ended.add(end)
        if kind == "number":
            value = str(1000000 + r.below(9000000))
        elif kind == "password":
            a, b = r.below(len(SECRETS)), r.below(len(SECRETS) - 1)
            value = f"{SECRETS[a]}-{SECRETS[b + (b >= a)]}-{r.below(10000):04}"
        else:
            a, b = r.next(), r.next()
            value = (f"{a & 0xffffffff:08x}-{a >> 32 & 0xffff:04x}-4{a >> 48 & 0xfff:03x}-"
                     f"{8 + (a >> 60 & 3):x}{b & 0xfff:03x}-{b >> 12 & 0xffffffffffff:012x}")
        facts.append((begin + end, value))
    return facts


def draw_words(spec, tokens):
    """Facts, the sentences that state them, and a question that repeats no four tokens of a sentence."""
    kind, filler = spec["kind"], spec["filler"]
    r = Random(mixed(spec["seed"], KINDS.index(kind), spec["needles"], spec["depth"]))
    r.state ^= mixed(FILLERS.index(filler), spec["tokens"], 1, 0)
    mark = {"code": "\n// ", "file": "\n"}.get(filler, " ")
    for _ in range(WORDINGS):
        facts = draw_facts(spec["needles"], kind, r)
        keys = [key for key, _ in facts]
        every = " and ".join([", ".join(keys[:-1])] * (len(keys) > 1) + keys[-1:])
        question = "\n\n" + fill(r.pick(QUESTIONS[kind]), lambda x: every)
        said = [mark + fill(r.pick(FACTS[kind]), lambda x, f=fact: f[x == "v"]) for fact in facts]
        ids = [tokens(text) for text in [question, *said]]
        grams = [{tuple(i[at:at + GRAM]) for at in range(len(i) - GRAM + 1)} for i in ids]
        if not any(grams[0] & other for other in grams[1:]):
            return facts, said, question, sum(map(len, ids))
    sys.exit("niah: with this tokenizer every question repeats four tokens of a fact")


def build(spec, told, room, tokens, counts):
    """The text with a filler of at most `room` tokens, counted sentence by sentence, and its needles."""
    facts, said, question, _ = told
    filler = Filler(spec["filler"], spec["text"],
                    mixed(spec["seed"], FILLERS.index(spec["filler"]), spec["depth"], 2))
    depths = [spec["depth"] + 100 * i // max(spec["needles"], 4) for i in range(len(facts))]
    depths = [d - 100 if d > 100 else d for d in depths]
    parts, size, done, needles = [], 0, 0, [None] * len(facts)

    def put(sentence):
        nonlocal size
        parts.append(sentence if size else sentence.lstrip(" \n"))
        begin, size = size, size + len(parts[-1].encode())
        return begin

    last = False
    while not last:
        unit = filler.next()
        if unit not in counts:
            counts[unit] = len(tokens(unit))
        last = done + counts[unit] > room
        for i, depth in enumerate(depths):
            if needles[i] is None and (last or (depth < 100 and done * 100 >= room * depth)):
                begin = put(said[i])
                at = begin + len(parts[-1][:parts[-1].index(facts[i][1])].encode())
                needles[i] = {"key": facts[i][0], "value": facts[i][1], "begin": begin, "end": size, "value_begin": at}
        if not last:
            put(unit)
            done += counts[unit]
    return "".join(parts), size, question, needles


def make_case(spec, tokens):
    told = draw_words(spec, tokens)
    goal, counts = spec["tokens"], {}
    room, allowed = goal - told[3], max(goal // 200, SLACK)
    for _ in range(ROUNDS):
        if room < goal // 2:
            raise SystemExit(f"niah: {goal} tokens are too few: half of them are to be filler besides facts and question "
                             f"of {told[3]}")
        context, size, question, needles = build(spec, told, room, tokens, counts)
        text = context + question
        missing = goal - (n := len(tokens(text)))
        if 0 <= missing <= allowed:
            break
        # What is too much comes of sentences that are counted one by one; the next one may add.
        room += missing if missing > 0 else missing - SLACK // 4
    if missing < 0:
        sys.exit(f"niah: no text of {goal} tokens comes of this filler")
    name = f"{goal}-{spec['filler']}-{spec['kind']}-x{spec['needles']}-{spec['depth']:03}"
    return {"id": name, "group": spec["filler"], "kind": spec["kind"], "depth": spec["depth"], "tokens": n,
            "seed": spec["seed"], "question": size + 2, "needles": needles, "max_tokens": ANSWER_TOKENS * len(needles),
            "prompt": text}


class Client:
    """A server that stays connected: a text's tokens are counted sentence by sentence."""

    def __init__(self, url):
        self.at = urlsplit(url)
        self.line = http.client.HTTPConnection(self.at.hostname, self.at.port, timeout=3600)

    def post(self, path, body):
        self.line.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return self.line.getresponse()

    def tokens(self, text):
        answer = self.post("/tokenize", {"content": text, "add_special": False, "parse_special": False})
        read = json.load(answer)
        if answer.status != 200:
            sys.exit(f"niah: {read}")
        return read["tokens"]

    def ask(self, text, max_tokens):
        """The answer, milliseconds until its first piece, tokens of the prompt; None: the context is too small."""
        start = time.monotonic()
        answer = self.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": text}], "max_tokens": max_tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}})
        if answer.status != 200:
            error = json.load(answer)["error"]
            if error.get("code") in ("context_length_exceeded", "exceed_context_size_error"):
                return None
            sys.exit(f"niah: {error['message']}")
        said, first, used = "", 0, 0
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            used = (event.get("usage") or {}).get("prompt_tokens", used)
            for choice in event.get("choices", []):
                piece = choice["delta"].get("content") or choice["delta"].get("reasoning_content") or ""
                first = first or bool(piece) * (time.monotonic() - start) * 1e3
                said += piece
        return said, first, used


def shorten(options, case, anchors):
    """What `coppice compress` leaves of a case: text, facts that stand whole in it, tokens before and after, ms."""
    command = [options.program, "compress", "--messages", "/dev/stdin", "--prefill-drafter", options.prefill_drafter, "--json",
               *options.both, *options.prefill]
    if not anchors:
        command.append("--prefill-no-anchors")
    done = subprocess.run(command, input=json.dumps({"messages": [{"role": "user", "content": case["prompt"]}]}),
                          capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.strip())
    left = json.loads(done.stdout)
    spans = [(s["begin"], s["end"]) for s in left["spans"]]
    kept = sum(any(a <= d["value_begin"] and d["value_begin"] + len(d["value"]) <= b for a, b in spans)
               for d in case["needles"])
    return (left["messages"][0]["content"], kept, left["from"], left["to"],
            left["encode_ms"] + left["score_ms"] + left["select_ms"])


def by_chance(case, share, r, tokens):
    """Pieces of 128 characters by chance, as many as make the share, and the question."""
    context, question = case["prompt"].rsplit("\n\n", 1)
    cut = [context[i:i + 128] for i in range(0, len(context), 128)]
    order = list(range(len(cut)))
    for i in reversed(range(1, len(order))):
        j = r.below(i + 1)
        order[i], order[j] = order[j], order[i]
    want = max(0, int(share * len(context)) - len(question))
    text = "".join(cut[i] for i in sorted(order[:want // 128])) + "\n\n" + question
    return text, sum(d["value"] in text for d in case["needles"]), case["tokens"], len(tokens(text)), 0


SUMS = ["cases", "facts", "kept", "from", "to", "shorten_ms", "asked", "sought", "found", "too_long", "prompt_tokens",
        "first_token_ms"]


def run_case(options, client, case):
    """One dictionary of SUMS, the way and the answer for each way."""
    share, n = 0, len(case["needles"])
    for way in options.ways:
        if way == "dense":
            text, kept, tokens, left, ms = case["prompt"], n, case["tokens"], case["tokens"], 0
        elif way == "random":
            text, kept, tokens, left, ms = by_chance(case, share or options.prefill_keep_ratio or 0.1, options.random,
                                                     client.tokens)
        else:
            text, kept, tokens, left, ms = shorten(options, case, way == "anchors")
            share = left / max(tokens, 1)
        run = dict.fromkeys(SUMS, 0) | {"id": case["id"], "way": way, "cases": 1, "facts": n, "kept": kept, "from": tokens,
                                        "to": left, "shorten_ms": ms}
        most = options.n if options.n is not None else case["max_tokens"]
        answer = client.ask(text, most) if most else ("", 0, 0)
        if answer is None:
            run["too_long"] = 1
        elif most:
            run |= {"asked": 1, "sought": n, "found": sum(d["value"] in answer[0] for d in case["needles"]),
                    "prompt_tokens": answer[2], "first_token_ms": ms + answer[1], "answer": answer[0]}
        yield run


def total(runs):
    """Sums over runs; times and lengths of prompts are means."""
    t = {name: sum(run[name] for run in runs) for name in SUMS}
    t["shorten_ms"] /= max(t["cases"], 1)
    for name in ["prompt_tokens", "first_token_ms"]:
        t[name] /= max(t["asked"], 1)
    return t


def table(groups, ways):
    def share(width, part, whole):
        return f" {100 * part / whole:{width}.1f}" if whole else f" {'-':>{width}}"

    def line(label, way, runs):
        t = total([run for run in runs if run["way"] == way])
        print(f"{label} {way:7} {t['cases']:5} {t['facts']:5}" + share(7, t["to"], t["from"]) +
              share(6, t["kept"], t["facts"]) + f" {t['asked']:5}" + share(7, t["found"], t["sought"]) +
              f" {t['too_long']:8}" + (f" {t['first_token_ms']:14.1f}" if t["asked"] else ""))

    print(" tokens needles filler  kind     way     cases facts tokens%  kept% asked  found% too long first token ms")
    for (tokens, needles, filler, kind), runs in groups:
        for way in ways:
            line(f"{tokens:7} {needles:7} {filler:7} {kind:8}", way, runs)
    for way in ways:
        line(f"{'all':32}", way, [run for _, runs in groups for run in runs])


def as_json(groups, ways):
    def each(runs):
        return [{"way": way} | total([run for run in runs if run["way"] == way]) for way in ways]

    every = [run for _, runs in groups for run in runs]
    print(json.dumps({"overall": each(every),
                      "groups": [dict(zip(["tokens", "needles", "filler", "kind"], key)) | {"ways": each(runs)}
                                 for key, runs in groups], "runs": every}))


def parts_of(model):
    """The files of a model: all parts of one that was written in parts."""
    cut = re.fullmatch(r"(.*)-[0-9]{5}(-of-[0-9]{5}[.]gguf)", model or "")
    return glob.glob(glob.escape(cut[1]) + "-?????" + cut[2]) if cut else [model]


def arguments():
    p = argparse.ArgumentParser(prog="niah", description="Needles in a haystack, asked of `coppice serve`.")

    def numbers(low, high):
        def read(text):
            values = [int(word) for word in text.split(",")]
            if not all(low <= v <= high for v in values):
                raise argparse.ArgumentTypeError(f"'{text}' is no list of numbers from {low} to {high}")
            return values
        return read

    def names(known):
        def read(text):
            for word in (got := text.split(",")):
                if word not in known or got.count(word) > 1:
                    raise argparse.ArgumentTypeError(f"'{word}' is none of {', '.join(known)}, or comes twice")
            return got
        return read

    p.add_argument("program")
    p.add_argument("-m", required=True, metavar="FILE", help="target")
    p.add_argument("-n", type=int, metavar="N", help="tokens of an answer; 0 asks nothing")
    p.add_argument("--prompt-tokens", type=numbers(1, 1 << 24), default=[4096], metavar="LIST")
    p.add_argument("--needles", type=numbers(1, MAX_NEEDLES), default=[1, 4], metavar="LIST")
    p.add_argument("--fillers", type=names(FILLERS[:3]), metavar="LIST")
    p.add_argument("--filler-file", metavar="FILE")
    p.add_argument("--kinds", type=names(KINDS), default=KINDS, metavar="LIST")
    p.add_argument("--depths", type=numbers(0, 100), default=DEPTHS, metavar="LIST")
    p.add_argument("--ways", type=names(WAYS), metavar="LIST")
    p.add_argument("--seed", type=int, default=0, metavar="N")
    p.add_argument("--out", metavar="FILE", help="write the cases there and ask nothing")
    p.add_argument("--json", action="store_true")
    p.add_argument("--device", metavar="NAME")
    p.add_argument("--threads", metavar="N")
    p.add_argument("--prefill-drafter", metavar="FILE")
    p.add_argument("--prefill-dense", action="store_true")
    for name, metavar in PREFILL.items():
        p.add_argument(name, metavar=metavar, type=float if name.endswith("keep-ratio") else str)
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    o = p.parse_args(given[:cut])
    o.both = [w for name in ["device", "threads"] if vars(o)[name] for w in ("--" + name, vars(o)[name])]
    o.serve = [*o.both, *given[cut + 1:]]
    values = {name: vars(o)[name[2:].replace("-", "_")] for name in PREFILL}
    o.prefill = [word for name, value in values.items() if value is not None for word in (name, str(value))]
    o.prefill += ["--prefill-dense"] * o.prefill_dense
    o.ways = o.ways or (WAYS if o.prefill_drafter else WAYS[:1])
    used = bool({"scorer", "anchors"} & set(o.ways))
    if used != bool(o.prefill_drafter):
        p.error("the ways scorer and anchors need --prefill-drafter FILE, and it needs one of them")
    o.random = Random(mixed(o.seed, 0x64696365))
    o.text = b""
    for read in parts_of(o.m) + parts_of(o.prefill_drafter) + [o.filler_file]:
        if o.out and read and os.path.isfile(o.out) and os.path.isfile(read) and os.path.samefile(o.out, read):
            p.error(f"{o.out} is read and cannot be written over; give another name")
    if o.filler_file:
        with open(o.filler_file, "rb") as file:
            o.text = file.read()
        if not o.text.decode().strip():
            p.error(f"{o.filler_file} is empty; a filler needs lines of text")
    o.fillers = (o.fillers or ([] if o.filler_file else FILLERS[:3])) + ["file"] * bool(o.filler_file)
    return o


def main():
    o = arguments()
    server = Server(o.program, "-m", o.m, "-d", "none", "--cache-ram", "0", *o.serve)
    try:
        client, groups = Client(server.url), []
        out = open(o.out + ".part", "w", encoding="utf-8") if o.out else None
        for key in [(t, n, f, k) for t in o.prompt_tokens for n in o.needles for f in o.fillers for k in o.kinds]:
            runs = []
            for depth in o.depths:
                spec = dict(zip(["tokens", "needles", "filler", "kind"], key)) | {"depth": depth, "seed": o.seed, "text": o.text}
                case = make_case(spec, client.tokens)
                if out:
                    out.write(json.dumps(case, ensure_ascii=False, separators=(",", ":")) + "\n")
                else:
                    runs += run_case(o, client, case)
            groups.append((key, runs))
        if out:
            out.close()
            os.replace(out.name, o.out)
        else:
            (as_json if o.json else table)(groups, o.ways)
    finally:
        server.end()


if __name__ == "__main__":
    main()
