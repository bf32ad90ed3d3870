# SPDX-License-Identifier: Apache-2.0
"""Training samples for the tiny scorer: facts hidden in fillers, and questions about them.

Written apart from `bench/niah.py`, which measures the result: other fillers, other wordings,
other kinds of values. A sample is one context with several facts and several questions, each with
the tokens that it asks for. Half of the wordings of a fact name its attribute otherwise than the
question does, so that matching words alone is not enough.
"""

import ast
import random
import re

import numpy as np
from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

import scorer_sources
from tokenizer import SPLIT

# Attributes of things: how a fact may call it, how a question may, and the maker of its value.
ATTRIBUTES = [
    (["delivery date", "day of arrival"], ["date of delivery", "arrival day"], "date"),
    (["birthday", "date of birth"], ["birth date", "day of birth"], "date"),
    (["opening time", "opening hour"], ["hour of opening", "time it opens"], "time"),
    (["departure", "time of departure"], ["departure time", "hour it leaves"], "time"),
    (["room", "office"], ["place to meet", "room label"], "room"),
    (["phone extension", "extension"], ["telephone line", "extension to dial"], "short"),
    (["price", "cost"], ["amount to pay", "price tag"], "price"),
    (["network address", "address on the network"], ["IP", "host address"], "ip"),
    (["colour", "paint colour"], ["shade", "hex colour"], "color"),
    (["hardware address", "MAC"], ["MAC address", "card address"], "mac"),
    (["licence plate", "plate"], ["car plate", "registration"], "plate"),
    (["serial code", "serial"], ["series code", "serial label"], "serial"),
    (["favourite dish", "preferred meal"], ["best liked food", "dish"], "words"),
    (["flight", "plane"], ["airline connection", "flight label"], "flight"),
    (["position", "location"], ["coordinates", "place on the map"], "place"),
    (["release", "version"], ["version in use", "release label"], "version"),
    (["checksum", "digest"], ["hash", "fingerprint"], "hash"),
    (["commit", "revision"], ["change set", "revision hash"], "hash"),
    (["mail address", "mailbox"], ["e-mail", "contact"], "mail"),
    (["folder", "directory"], ["path", "place on disk"], "path"),
    (["invoice", "bill"], ["invoice label", "billing reference"], "invoice"),
    (["nickname", "call sign"], ["other name", "radio name"], "words"),
    (["phone", "telephone"], ["line to call", "phone contact"], "phone"),
    (["key", "token"], ["credential", "key material"], "base"),
    (["weight", "mass"], ["how heavy", "weight in kilograms"], "decimal"),
    (["score", "result"], ["points", "final score"], "short"),
    (["ticket", "case"], ["case reference", "ticket label"], "ticket"),
    (["signature", "seal"], ["stamp", "sign-off"], "caps"),
]
FACTS = [
    "The {a} of {e} is {v}.",
    "{e} has the {a} {v}.",
    "For {e}, the {a} was set to {v}.",
    "Note: {a} for {e} = {v}.",
    "According to the register, {e}'s {a} reads {v}.",
    "They wrote down {v} as the {a} of {e}.",
    "{v} is the {a} that belongs to {e}.",
    "It was decided that {e} keeps {v} for its {a}.",
    "By the way, {e} goes with {a} {v}.",
    "If anybody asks for the {a} of {e}: it is {v}.",
    "{e}: {a} {v}",
    "{a} ({e}): {v}",
    "Since Monday the {a} of {e} has been {v}.",
    "Please keep in mind that {e} now has {a} {v}.",
    "A small label on {e} shows its {a}, {v}.",
    "{e} -> {a} -> {v}",
    "# {a} of {e}: {v}",
    "// {e}, {a}: {v}",
    "In the {a} column of {e} you will find {v}.",
    "The clerk assigned {v} to {e}; that is the {a}.",
]
QUESTIONS = [
    "What is the {a} of {e}?",
    "Tell me {e}'s {a}.",
    "Which {a} belongs to {e}?",
    "Give the {a} that was noted for {e}.",
    "I need one thing about {e}: the {a}.",
    "{e}, which {a}?",
    "Can you look up the {a} for {e}",
    "Somewhere above {e} is mentioned. Report the {a}.",
    "Read the text and answer: what {a} does {e} have?",
    "Find {e} and print its {a}, nothing else.",
    "What was said about {e}?",
    "Repeat whatever the text tells about {e}.",
    "{e}?",
    "Answer with the {a} only. Whose? {e}.",
    "Do you remember the {a} we gave to {e}?",
    "Search for: {e} {a}",
    "One more time, please, the {a} of {e}.",
    "how do I get at {e}, I forgot the {a}",
]
ANY = [  # questions that name no thing
    "What {a} is mentioned in the text?",
    "Which {a} was hidden above?",
    "Somewhere a {a} is given. Print it.",
    "Find the {a} in the document.",
]
KINDS = ["harbour", "depot", "garage", "printer", "ferry", "clinic", "server", "bakery", "tower",
         "archive", "bridge", "orchard", "studio", "mill", "chapel", "tram", "kiosk", "lab",
         "museum", "engine", "gate", "cellar", "ledger", "boiler", "turbine", "school", "farm"]
FIRST = ["Anna", "Boris", "Clara", "Dmitri", "Edith", "Farid", "Greta", "Hugo", "Irma", "Jonas",
         "Kira", "Lars", "Mona", "Nils", "Olga", "Pavel", "Rosa", "Sven", "Tara", "Umar", "Vera",
         "Wanda", "Yusuf", "Zoe"]  # fmt: skip
CITIES = ["Bergen", "Lyon", "Porto", "Turin", "Graz", "Leiden", "Tartu", "Gdansk", "Malmo",
          "Ghent", "Cork", "Basel", "Split", "Varna", "Oulu", "Trier", "Brno", "Cadiz"]  # fmt: skip
DISHES = ["lentil soup", "rice pudding", "baked fish", "onion tart", "plum cake", "barley stew",
          "white beans", "goat cheese", "rye bread", "pear salad"]  # fmt: skip
SHORT = ["Snow lay on the hills.", "A dog barked twice.", "The train was late.", "We ate soup.",
         "Nobody came.", "Rain fell all night.", "The door stood open.", "Time went by.",
         "Bread was baked at dawn.", "The lamp burned low.", "Children sang outside.",
         "He closed the book.", "Wind moved the curtain.", "The road turns left.", "Tea was cold.",
         "A boat left the shore.", "She wrote a letter.", "The clock struck ten.", "Wheat is gold.",
         "Milk is white.", "Coal is black.", "Over and over.", "On and on.", "Then it stopped.",
         "Two birds sat on the roof.", "The well was deep.", "Iron rusts.", "Moss grows slowly.",
         "A cat slept.", "The market closed early.", "Fires need wood.", "Salt melts ice.",
         "Ask again later.", "Nothing changed.", "It was the same as before."]  # fmt: skip


def read_tokenizer(path):
    """The tokenizer and the float embeddings [vocab, width] of a GGUF file."""
    g = GGUFReader(path)
    text = lambda k: [bytes(g.fields[k].parts[i]).decode() for i in g.fields[k].data]
    kinds = [int(g.fields["tokenizer.ggml.token_type"].parts[i][0])
             for i in g.fields["tokenizer.ggml.token_type"].data]  # fmt: skip
    tokens = text("tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ")) for m in text("tokenizer.ggml.merges")]
    plain = {t: i for i, t in enumerate(tokens) if kinds[i] == 1}
    tok = Tokenizer(models.BPE(vocab=plain, merges=merges))
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    tok.add_tokens([AddedToken(t, special=kinds[i] == 3, normalized=False)
                    for i, t in enumerate(tokens) if kinds[i] != 1])  # fmt: skip
    assert all(tok.token_to_id(t) == i for i, t in enumerate(tokens))
    raw = next(t for t in g.tensors if t.name == "token_embd.weight")
    blocks = raw.data.reshape(len(tokens), -1, 34)
    scale = blocks[..., :2].copy().view(np.float16).astype(np.float32)
    return tok, (blocks[..., 2:].view(np.int8) * scale).reshape(len(tokens), -1)


def read_corpus(stdlib, site, tok, limit=3_000_000):
    """Tokens of code (Python and C++ headers, half each) and of prose: docstrings, pydoc topics,
    of the sources that scorer_sources.tsv lists."""
    got = {"py": [], "h": [], "prose": []}
    size = dict.fromkeys(got, 0)
    most = {"py": limit // 2, "h": limit // 2, "prose": limit}

    def add(kind, text):
        if size[kind] < most[kind]:
            got[kind].append(np.array(tok.encode(text).ids, np.int16))
            size[kind] += len(got[kind][-1])

    files = [f for _, some in scorer_sources.sources(stdlib, site) for f in some]
    random.Random(7).shuffle(files)
    for path, text in files:
        try:
            tree = ast.parse(text) if path.suffix == ".py" else None
        except (SyntaxError, ValueError, RecursionError):
            continue
        add(path.suffix[1:], text)
        if not tree:
            continue
        docs = [ast.get_docstring(n) for n in ast.walk(tree)
                if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.Module))]  # fmt: skip
        docs = [re.sub(r"\s*\n\s*", " ", d) for d in docs if d and len(d) > 150]
        if path.name == "topics.py":
            docs += [v.value for n in ast.walk(tree) if isinstance(n, ast.Dict) for v in n.values]
        if docs:
            add("prose", "\n".join(docs))
    return np.concatenate(got["py"] + got["h"]), np.concatenate(got["prose"])


class Maker:
    """Draws samples; r decides everything."""

    def __init__(self, tok, code, prose, seed):
        self.tok, self.code, self.prose, self.r = tok, code, prose, random.Random(seed)
        counts = np.bincount(prose, minlength=tok.get_vocab_size())
        names = [tok.decode([int(i)]) for i in np.argsort(-counts)[:3000]]
        self.words = sorted({w.strip() for w in names if re.fullmatch(r" [a-z]{4,10}", w)})

    def ids(self, text):
        return self.tok.encode(text, add_special_tokens=False).ids

    def digits(self, n):
        return "".join(self.r.choice("0123456789") for _ in range(n))

    def chars(self, n, of):
        return "".join(self.r.choice(of) for _ in range(n))

    def syllables(self):
        r = self.r
        s = "".join(r.choice("bcdfghjklmnprstvwz") + r.choice("aeiou") + r.choice(["", "n", "r",
                    "l", "s", "m"]) for _ in range(r.choice((2, 2, 3))))  # fmt: skip
        return s.capitalize()

    def value(self, kind):
        r, hexa = self.r, "0123456789abcdef"
        caps = "ABCDEFGHJKLMNPQRSTUVWXYZ"
        if kind == "date":
            return r.choice((f"{r.randint(1, 28)} {r.choice(('March', 'June', 'May', 'October'))}",
                             f"20{self.digits(2)}/{r.randint(1, 12):02d}/{r.randint(1, 28):02d}",
                             f"{r.randint(1, 28)}.{r.randint(1, 12)}.19{self.digits(2)}"))  # fmt: skip
        return {
            "time": lambda: f"{r.randint(0, 23)}:{self.digits(2)}",
            "room": lambda: f"{r.choice(caps)}{r.randint(1, 9)}.{self.digits(2)}",
            "short": lambda: str(r.randint(10, 99999)),
            "price": lambda: f"{r.randint(1, 9999)}.{self.digits(2)} {r.choice(('EUR', 'USD'))}",
            "ip": lambda: ".".join(str(r.randint(1, 254)) for _ in range(4)),
            "color": lambda: "#" + self.chars(6, hexa),
            "mac": lambda: ":".join(self.chars(2, hexa) for _ in range(6)),
            "plate": lambda: f"{self.chars(2, caps)} {self.digits(3)} {self.chars(2, caps)}",
            "serial": lambda: "-".join(self.chars(4, caps + "0123456789")
                                       for _ in range(r.randint(2, 5))),
            "words": lambda: r.choice((r.choice(DISHES), r.choice(self.words) + " "
                                       + r.choice(self.words))),
            "flight": lambda: self.chars(2, caps) + self.digits(4),
            "place": lambda: f"{r.randint(1, 80)}.{self.digits(4)} N, {r.randint(1, 170)}."
                             f"{self.digits(4)} E",
            "version": lambda: f"v{r.randint(0, 20)}.{r.randint(0, 30)}.{r.randint(0, 99)}",
            "hash": lambda: self.chars(r.choice((8, 16, 24, 32, 40)), hexa),
            "mail": lambda: f"{r.choice(self.words)}@{r.choice(self.words)}.org",
            "path": lambda: "/" + "/".join(r.choice(self.words) for _ in range(3)),
            "invoice": lambda: f"RE/{self.digits(4)}/{self.digits(r.choice((3, 6)))}",
            "phone": lambda: f"+{r.randint(20, 99)} {self.digits(3)} {self.digits(6)}",
            "base": lambda: self.chars(r.randint(12, 36), caps + caps.lower() + "0123456789"),
            "decimal": lambda: f"{r.randint(0, 999)}.{self.digits(r.randint(1, 6))}",
            "ticket": lambda: f"{self.chars(3, caps)}-{self.digits(5)}",
            "caps": lambda: "".join(r.choice(self.words) for _ in range(2)).upper()
                            + r.choice(("", "_", "!")) + self.digits(r.randint(0, 3)),
        }[kind]()  # fmt: skip

    def entity(self):
        r = self.r
        return r.choice(
            (
                lambda: self.syllables(),
                lambda: f"the {r.choice(KINDS)} in {r.choice(CITIES)}",
                lambda: f"{r.choice(FIRST)} {self.syllables()}",
                lambda: f"{r.choice(FIRST)}'s {r.choice(KINDS)}",
                lambda: f"the {r.choice(self.words)} {r.choice(KINDS)}",
                lambda: f"the {self.syllables()} {r.choice(KINDS)}",
                lambda: f"{r.choice(self.words)} {r.choice(self.words)}",
                lambda: f"{r.choice(self.words)}_{r.choice(self.words)}",
                lambda: f"{self.syllables()} {r.choice(('Ltd', 'Street', 'Hall', 'Two'))}",
                lambda: r.choice(self.words) + "-" + r.choice(self.words),
            )
        )()

    def fact(self):
        said, asked, kind = self.r.choice(ATTRIBUTES)
        return {"e": self.entity(), "said": self.r.choice(said), "v": self.value(kind),
                "asked": self.r.choice(asked if self.r.random() < 0.5 else said)}  # fmt: skip

    def state(self, f):
        s = self.r.choice(FACTS).format(a=f["said"], e=f["e"], v=f["v"])
        return s[0].upper() + s[1:] if self.r.random() < 0.8 else s

    def ask(self, facts):
        r, f = self.r, facts[0]
        if len(facts) > 1:
            names = [g["e"] for g in facts]
            names = ", ".join(names[:-1]) + " and " + names[-1]
            return r.choice(("Give the values of {n}.", "What is noted about {n}?",
                             "List these: {n}.", "I forgot {n}, what were they?")).format(n=names)  # fmt: skip
        if f.get("alone") and r.random() < 0.3:
            return r.choice(ANY).format(a=f["asked"])
        return r.choice(QUESTIONS).format(a=f["asked"], e=f["e"])

    def slice(self, of, n):
        i = self.r.randrange(len(of) - n)
        return of[i : i + n].tolist()

    def filler(self, n):
        """n tokens of one kind."""
        r, x = self.r, self.r.random()
        if x < 0.22:  # a few short sentences again and again
            some = r.sample(SHORT, r.randint(2, 8))
            ids = self.ids(" ".join(some) + r.choice((" ", "\n")))
            ids = ids * (n // len(ids) + 2)
        elif x < 0.5:
            return self.slice(self.prose, n)
        elif x < 0.8:
            return self.slice(self.code, n)
        elif x < 0.9:  # words without sense
            ids = self.ids(" ".join(r.choice(self.words) + r.choice(("", "", "", "", ".", ","))
                                    for _ in range(n)))  # fmt: skip
        else:  # lines of a log or a table
            form = r.choice(("{t} {w} {w}: {n}", "{w},{n},{w},{n}", "| {w} | {n} | {w} |",
                             '{{"{w}": {n}, "{w}": "{w}"}}', "{w} = {n}", "{n} {h} {w}"))  # fmt: skip
            lines = "\n".join(
                re.sub(r"\{(\w)\}", lambda m: {"t": lambda: self.value("time"),
                       "w": lambda: r.choice(self.words), "n": lambda: str(r.randint(0, 9999)),
                       "h": lambda: self.chars(6, "0123456789abcdef")}[m.group(1)](), form)
                for _ in range(n // 8 + 1))  # fmt: skip
            ids = self.ids(lines)
        i = r.randrange(max(1, len(ids) - n))
        return (ids[i:] + self.slice(self.code, n))[:n]

    def sample(self, length, questions, width):
        """(context ids, positions of all facts, questions); a question is (ids before it, its ids,
        positions that it asks for), the ids together at most `width`."""
        r = self.r
        facts = [self.fact() for _ in range(r.choice((1, 2, 3, 4, 6, 8)))]
        facts[0]["alone"] = len(facts) == 1
        told = [self.ids(r.choice((" ", "\n", "\n\n")) + self.state(f)) for f in facts]
        told = [t + (self.ids("\n") if r.random() < 0.4 else []) for t in told]
        room = length - sum(map(len, told))
        fill = self.filler(room) if r.random() < 0.8 else self.filler(room // 2) + self.filler(
            room - room // 2)  # fmt: skip
        ends = [i + 1 for i, t in enumerate(fill) if t in self.stops()]
        at = sorted(
            r.choice(ends) if ends and r.random() < 0.85 else r.randrange(room + 1) for _ in facts
        )
        context, where, last = [], [], 0
        for t, a in zip(told, at):
            context += fill[last:a]
            where.append(range(len(context), len(context) + len(t)))
            context += t
            last = a
        context += fill[last:]
        out = []
        for _ in range(questions):
            few = r.sample(range(len(facts)), 1 if r.random() < 0.65 else min(4, len(facts)))
            before, q = self.layout(self.ask([facts[i] for i in few]))
            before, q = self.ids(before), self.ids(q)
            out.append((before, q[: width - len(before)], [p for i in few for p in where[i]]))
        return context, [p for w in where for p in w], out

    def layout(self, q):
        """What stands between context and question, and the tokens that ask."""
        return self.r.choice(
            (
                ("<|im_end|>\n<|im_start|>user\n", q),
                ("<|im_end|>\n<|im_start|>user\n", q),
                ("\n\n", q),
                ("\n", q),
                ("\n\n", f"Question: {q}\nAnswer:"),
                (" ", q),
            )
        )

    def stops(self):
        if not hasattr(self, "_stops"):
            vocab = range(self.tok.get_vocab_size())
            self._stops = {i for i in vocab if re.search(r"(\.|\n)$", self.tok.decode([i]))}
        return self._stops
