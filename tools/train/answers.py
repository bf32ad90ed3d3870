# SPDX-License-Identifier: Apache-2.0
"""Questions about facts among pieces of other text, as a shortened long prompt looks.

Written apart from `coppice bench niah`, which measures the result: none of its fillers, wordings, or
kinds of values (numbers of seven digits, UUIDs, two capital words with four digits) is made here. A
sample is a list of (text, carries loss) segments: a text of small pieces with one to eight facts, a
question for one or several of them, the answer (one line a fact: key, colon, value), and sometimes
more questions about the same text. Wordings are many, and some are words without sense, so that key
and value are found by standing together.
"""

import re

import tasks

END = "<|im_end|>"
HEX, DIGITS = "0123456789abcdef", "0123456789"
CAPS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LETTERS = CAPS + CAPS.lower()
MARKS = "!#$%&*+-./:;=?@_~^"
NOUNS = ["code", "token", "serial", "badge", "extension", "key", "label", "phone", "ticket", "address",
         "reference", "licence", "tag", "pin", "account", "hash", "digest", "seal", "plate", "id",
         "identifier", "passphrase", "entry code", "secret", "combination", "signature", "version",
         "shelf mark", "batch", "lot", "route", "channel", "login", "credential", "case", "figure"]  # fmt: skip
FACTS = [
    "The {n} of {k} is {v}.", "{k} has the {n} {v}.", "{v} is the {n} of {k}.", "{n} for {k}: {v}",
    "{k} = {v}", "{k}: {v}", "{k} uses {v} as its {n}.", "Remember: {k} -> {v}.", "{k} ({n} {v})",
    "They gave {k} the {n} {v}.", "The {n} {v} belongs to {k}.", "For {k}, the {n} reads {v}.",
    "If you meet {k}, mention {v}.", "It was {k} who received {n} {v}.", "Only {v} works with {k}.",
    "Note {v} down: that is the {n} for {k}.", "{k} was registered with {v}.", "We wrote {v} on {k}.",
    "{k} only reacts to {v}.", "On the door of {k} it says {v}.", "{v} ({n} of {k})", "{v} - {k}",
    "Somebody changed the {n} at {k} to {v} last week.", "Between us: {v} is what {k} wants to hear.",
    "As {n}, {v} was taken for {k}.", "{k}'s {n} happens to be {v}.", "Among {n}s, {v} went to {k}.",
    "The clerk found {v} next to the word {k}.", "{k} can be reached with {v}.", "{v} means {k}.",
    "In our table {k} comes with {n} {v}.", "Every visitor of {k} must know {v}.", "{v} -> {k}",
    "Anybody who wants {k} has to type {v}.", "The people at {k} insist on {v}.", "{v}, says {k}.",
    "{n} {v} was issued to {k}.", "{n} {v} is for {k}.", "By {n} {v} we mean {k}.", "{k} | {v}",
    "the {n} {v} points at {k}", "{k} keeps {v}.", "When it comes to {k}, use {v}.", "{v} leads to {k}.",
    "From the {n}s, {k} picked {v}.", "To get to {k} one needs {v}.", "{k} listens to the {n} {v}.",
]  # fmt: skip
ONE = [
    "What is the {n} of {k}?", "Which {n} does {k} have?", "Tell me the {n} for {k}.", "{k}?",
    "What does the text say about {k}?", "What goes with {k}?", "I forgot the {n} of {k}.",
    "Look for {k} and give its {n}.", "What was noted for {k}?", "Please repeat the {n} of {k}.",
    "Can you find the {n} that {k} got?", "Somewhere above there is a {n} for {k}. Which one?",
    "How do I reach {k}?", "What do I have to say at {k}?", "Which value stands beside {k}?",
    "Search the text: {k}.", "Name what {k} is known by.", "Under what {n} is {k} kept?",
    "I want to go to {k}; what is needed?", "Print the {n} of {k} and nothing else.",
    "Give the {n} for {k}, please.", "What should one type for {k}?", "{k}: which {n}?",
]  # fmt: skip
MANY = [
    "What are the {n}s of {k}?", "List the {n}s for {k}.", "Tell me about {k}.", "{k}?",
    "What does the text say about {k}?", "Give what was noted for {k}.", "Which {n}s do {k} have?",
    "Look up {k}.", "I need the {n}s of {k}.", "How do I reach {k}?", "What belongs to {k}?",
    "Name the {n}s that {k} got.", "Which {n} is for which: {k}?", "Find {k} and print the {n}s.",
    "Repeat the {n}s of {k}, one a line.", "What should one know about {k}?",
]  # fmt: skip


def chars(r, of, n):
    return "".join(r.choice(of) for _ in range(n))


def groups(r, of, sep):
    """Groups of characters; never the five groups of a UUID."""
    while True:
        sizes = [r.choice((1, 2, 3, 4, 4, 5, 6, 8, 8, 10, 12)) for _ in range(r.randint(2, 6))]
        if sum(sizes) <= 40 and sizes != [8, 4, 4, 4, 12]:
            return sep.join(chars(r, of, n) for n in sizes)


def digits(r):
    return chars(r, "123456789", 1) + chars(r, DIGITS, r.choice((2, 3, 4, 5, 5, 7, 7, 8, 9, 10, 11)))


def password(r, pool):
    n = r.randint(2, 4)
    style = r.choice((str.upper, str.title, str.lower, str.upper))
    parts = [style(pool.word(r)) for _ in range(n)]
    tail = chars(r, DIGITS, r.choice((0, 1, 2, 3, 4, 5, 6)))
    if tail:
        parts.insert(r.choice((n, n, n, 0, 1)), tail)
    sep = r.choice("-_.-+:/-")
    out = sep.join(parts)
    return password(r, pool) if re.fullmatch(r"[A-Z]+-[A-Z]+-\d{4}", out) else out


def value(r, pool):
    x = r.random()
    if x < 0.22:
        return digits(r)
    if x < 0.5:
        return groups(r, r.choice((HEX, HEX, HEX, HEX.upper(), DIGITS, CAPS + DIGITS, LETTERS + DIGITS)),
                      r.choice(("-", "-", "-", "-", ":", ".", "_", "/", " ", "")))  # fmt: skip
    if x < 0.68:
        return password(r, pool)
    if x < 0.76:
        return chars(r, LETTERS + DIGITS + MARKS, r.randint(6, 24)) + r.choice(LETTERS)
    if x < 0.84:
        return chars(r, r.choice((HEX, LETTERS, CAPS, LETTERS + DIGITS, CAPS + DIGITS)), r.randint(4, 32))
    if x < 0.9:
        return r.choice((f"{r.randint(1, 28)} {r.choice(('March', 'May', 'July', 'November'))} {r.randint(1900, 2090)}",
                         f"{r.randint(1900, 2090)}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}",
                         f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}:{r.randint(0, 59):02d}",
                         f"{r.randint(1, 999)}.{r.randint(0, 99):02d} EUR", ".".join(str(r.randint(0, 255)) for _ in range(4)),
                         f"+{r.randint(1, 99)} {chars(r, DIGITS, 3)} {chars(r, DIGITS, 6)}"))  # fmt: skip
    return pool.value(r, r.choice(tasks.FIELDS))


def name(r):
    """A name made of syllables."""
    s = ""
    for _ in range(r.choice((1, 2, 2, 2, 3, 3))):
        s += r.choice(("", "b", "c", "ch", "d", "f", "g", "gr", "h", "j", "k", "kl", "l", "m", "n", "p", "pr",
                       "qu", "r", "s", "st", "t", "tr", "v", "w", "x", "y", "z"))  # fmt: skip
        s += r.choice("aeiouaeiouy") + r.choice(("", "", "l", "n", "r", "s", "m", "x", "t", "k", "nd", "rt", "ll"))
    return s.capitalize() if len(s) > 2 else name(r)


def key(r, pool):
    x = r.random()
    if x < 0.6:
        return name(r)
    if x < 0.68:
        return name(r) + " " + name(r)
    if x < 0.76:
        return "the " + pool.word(r) + " " + pool.word(r)
    if x < 0.84:
        return pool.ident(r)
    if x < 0.92:
        return pool.word(r)
    return pool.word(r).title() + " " + name(r)


def senseless(r, pool):
    """A wording of any words, with key and value in it."""
    ws = [pool.word(r) for _ in range(r.randint(1, 7))]
    a, b = "{k}", "{v}"
    if r.random() < 0.5:
        a, b = b, a
    i = r.randint(0, len(ws))
    ws[i:i] = [a]
    j = min(len(ws), i + 1 + r.randint(0, 4))
    ws[j:j] = [b]
    s = " ".join(ws)
    return s[0].upper() + s[1:] + r.choice((".", ".", ""))


def state(r, pool, f):
    s = senseless(r, pool) if r.random() < 0.3 else r.choice(FACTS)
    s = s.replace("{n}", f["n"]).replace("{k}", f["k"]).replace("{v}", f["v"])
    return s[0].upper() + s[1:] if s.startswith(("the ", f["n"])) else s


def code_lines(r, pool, n):
    """Lines that look like C, JavaScript, Go or shell."""
    w, i = lambda: pool.word(r), lambda: pool.ident(r)
    form = r.choice((
        (lambda: f"  {w()}.{w()}({w()}, {r.randint(0, 99)});", lambda: f"  const {w()} = {w()}({w()});",
         lambda: f"function {i()}({w()}) {{", lambda: "}", lambda: f"  return {w()}[{w()}];"),
        (lambda: f"\t{w()}, err := {w()}.{w().title()}({w()})", lambda: f"func {w()}({w()} int) error {{",
         lambda: "\tif err != nil {\n\t\treturn err\n\t}", lambda: "}"),
        (lambda: f"  {i()}[{w()}] = {r.randint(0, 255)};", lambda: f"static int {i()}(const char *{w()})\n{{",
         lambda: f"  if ({w()} == {w()}) goto {w()};", lambda: f"  {w()} = {w()} ? {w()} : {r.randint(0, 9)};",
         lambda: f"#define {i().upper()} {r.randint(0, 999)}", lambda: "}"),
        (lambda: f"{i().upper()}=${{{w()}}}", lambda: f"{w()} --{w()}={w()} | {w()} -{w()[0]}", lambda: f"cd {w()}/{w()}"),
    ))  # fmt: skip
    return "\n".join(r.choice(form)() for _ in range(n))


def log_lines(r, pool, n):
    form = r.choice(("{t} {l} {w}: {w} {w} {n}", "[{t}] {w} {w} {w}", "{n} {w} {w} {h}", "{w},{n},{w},{n}",
                     "| {w} | {n} | {w} |", '{{"{w}": {n}, "{w}": "{w}"}}', "{w} = {n}"))  # fmt: skip
    fill = {"t": lambda: f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}:{r.randint(0, 59):02d}",
            "l": lambda: r.choice(("INFO", "WARN", "DEBUG", "ERROR")), "w": lambda: pool.word(r),
            "n": lambda: str(r.randint(0, 9999)), "h": lambda: chars(r, HEX, 8)}  # fmt: skip
    return "\n".join(re.sub(r"\{(\w)\}", lambda m: fill[m.group(1)](), form) for _ in range(n))


def sentences(r, pool, n):
    """Short sentences of random words; few words again and again make them alike."""
    some = [pool.word(r) for _ in range(r.choice((6, 20, 60)))]
    forms = r.sample(("The {w} {w} a {w}.", "A {w} was {w} and {w}.", "{w} {w} {w}.", "It {w} the {w} {w} in {w}.",
                      "When the {w} {w}, the {w} {w}.", "No {w} {w} without {w}."), r.randint(1, 4))  # fmt: skip
    out = []
    for _ in range(n):
        s = re.sub(r"\{w\}", lambda _: r.choice(some), r.choice(forms))
        out.append(s[0].upper() + s[1:])
    return " ".join(out)


def again(r, pool, n):
    """The same few sentences, in order, again and again."""
    some = [sentences(r, pool, 1) for _ in range(r.randint(2, 7))]
    return " ".join(some[i % len(some)] for i in range(n))


MAKERS = {"code": lambda r, p, n: r.choice(p.funcs)["text"], "doc": lambda r, p, n: r.choice(p.docs),
          "lines": code_lines, "log": log_lines, "prose": sentences, "again": again,
          "words": lambda r, p, n: " ".join(p.word(r) for _ in range(8 * n))}  # fmt: skip


def piece(r, pool, kind):
    """About 32 tokens out of a longer text, cut at line or sentence ends where there are any."""
    s = MAKERS[kind](r, pool, 8)
    n = r.randint(50, 130)
    if len(s) <= n:
        return s
    at = r.randrange(len(s) - n)
    cut = s[at : at + n]
    if r.random() < 0.85:
        m = re.search(r"(\n|\. )", cut)
        if m and m.end() < len(cut) - 15:
            cut = cut[m.end() :]
        end = max(cut.rfind("\n"), cut.rfind(". "))
        if end > 25:
            cut = cut[: end + 1]
    return cut


def context(r, pool, facts, size):
    """Pieces of about `size` characters in all, the facts between them."""
    kinds = r.sample(list(MAKERS), r.choice((1, 1, 1, 2, 3)))
    parts, n = [], 0
    glue = {"code": "\n", "lines": "\n", "log": "\n"}.get(kinds[0], r.choice((" ", " ", "\n", "")))
    whole = r.random() < 0.15
    while n < size:
        p = MAKERS[r.choice(kinds)](r, pool, 12) if whole else piece(r, pool, r.choice(kinds))
        parts.append(p)
        n += len(p)
    lead = r.choice(("# ", "// ", "", "-- ", "/* ", "* ")) if glue == "\n" and r.random() < 0.7 else ""
    for f in facts:
        s = lead + state(r, pool, f) + (" */" if lead == "/* " else "")
        if r.random() < 0.3:
            s = r.choice(("\n", " ", "\n\n")) + s
        parts.insert(r.randint(0, len(parts)), s)
    return glue.join(parts)


def draw(r, pool, size):
    """A sample of at most about `size` tokens."""
    count = r.choice((1, 1, 2, 3, 4, 4, 4, 5, 6, 8))
    noun, same = r.choice(NOUNS), r.random() < 0.6
    facts, kind = [], r.random()
    while len(facts) < count:
        f = {"k": key(r, pool), "n": noun if same else r.choice(NOUNS)}
        f["v"] = like(r, pool, kind) if same else value(r, pool)
        if any(f["k"] in g["k"] or g["k"] in f["k"] or f["v"] == g["v"] for g in facts):
            continue
        facts.append(f)
    room = size - sum(len(f["v"]) for f in facts) * 3 // 2 - 60 * (1 + count // 2)
    short = r.random()
    n = max(120, room) if short < 0.15 else r.randint(120, max(130, room))
    text = context(r, pool, facts, int(n * 2.6))
    head = r.choice((None,) * 9 + ("You are a helpful assistant.",))
    head = f"<|im_start|>system\n{head}{END}\n" if head else ""
    out, rounds = [], r.choice((1, 1, 2, 3, 4))
    for i in range(rounds):
        few = r.sample(facts, 1 if r.random() < 0.45 else r.randint(1, min(4, count)))
        ks = [f["k"] for f in few]
        named = ", ".join(ks[:-1]) + r.choice((" and ", ", and ", " and ")) + ks[-1] if ks[1:] else ks[0]
        q = r.choice(MANY if ks[1:] else ONE).format(n=few[0]["n"], k=named)
        q = q[0].upper() + q[1:]
        user = f"{text}\n\n{q}" if i == 0 else q
        answer = "\n".join(f"{f['k']}: {f['v']}" for f in few)
        out += [(f"{head if i == 0 else ''}<|im_start|>user\n{user}{END}\n<|im_start|>assistant\n", False),
                (answer + END, True), ("\n", False)]  # fmt: skip
    return out


def like(r, pool, form):
    """Values of one kind: `form` in [0, 1) picks it."""
    if form < 0.3:
        return digits(r)
    if form < 0.6:
        return groups(r, HEX, "-")
    if form < 0.75:
        return password(r, pool)
    return value(r, pool)
