# SPDX-License-Identifier: Apache-2.0
"""Questions about facts among pieces of other text, as a shortened long prompt looks.

Written apart from `bench/niah.py`, which measures the result: of its fillers, sentences,
questions, and word lists nothing is made here, only values of the same kinds (numbers, UUIDs,
passwords) among others. A sample is a list of (text, carries loss) segments: a text of small pieces
with facts between them, a question for one or several of them, the answer (one line a fact: key,
colon, value), and more questions about the same text. What is easily mistaken is made often: values
of one kind that share words or digits, keys that share syllables, values before their keys.
"""

import re

import tasks

END = "<|im_end|>"
HEX, DIGITS = "0123456789abcdef", "0123456789"
CAPS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LETTERS = CAPS + CAPS.lower()
MARKS = "!#$%&*+-./:;=?@_~^"
NOUNS = ["code", "token", "serial", "badge", "extension", "key", "label", "ticket", "address",
         "reference", "licence", "tag", "account", "hash", "digest", "seal", "plate", "id",
         "identifier", "combination", "signature", "version", "shelf mark", "batch", "lot", "route",
         "channel", "login", "credential", "case", "figure"]  # fmt: skip
OF_DIGITS = ["number", "number", "code", "pin", "extension", "serial number", "phone", "digits", "figure",
             "account", "ticket", "room number", "lucky number"]  # fmt: skip
OF_UUIDS = ["UUID", "UUID", "UUID", "uuid", "GUID", "id", "identifier", "record id", "key", "unique id"]
OF_WORDS = ["password", "password", "password", "passphrase", "entry code", "secret", "secret word", "login",
            "watchword", "credential"]  # fmt: skip
# {k} key, {n} noun, {v} value; the parts of OPEN and CLOSE stand around some of them
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
    "From the {n}s, {k} took {v}.", "To get to {k} one needs {v}.", "{k} listens to the {n} {v}.",
    "There is a {n} for {k}, and it is {v}.", "Out of many {n}s {v} went to {k}.",
    "The entry about {k} shows {n} {v}.", "The page on {k} mentions the {n} {v} twice.",
    "Whoever wrote to {k} had to put the {n} {v} on the envelope.", "{n} {v} has been kept for {k}.",
    "{k} is listed with {n} {v}.", "You find {k} by its {n} {v}.", "Our list has {n} {v} beside {k}.",
    "At {k} nothing but {v} is accepted as {n}.", "Say {v} and {k} lets you in.", "The doors of {k}"
    " move at the word {v}.", "The keeper of {k} waits for one {n}: {v}.", "{v} is today's {n} at {k}.",
    "Without {v} nobody passes {k}.", "{k} unlocks when it hears the {n} {v}.", "{v} was drawn for {k}.",
    "The {n} meant for {k} turned out to be {v}.", "Among all {n}s, {v} is that of {k}.",
]  # fmt: skip
OPEN = ["By the way, ", "For the record, ", "As of today, ", "In the ledger, ", "According to the list, ",
        "After the move, ", "On page 9, ", "During the meeting they said: ", "Since spring, ", "Mind you, ",
        "As we know, ", "Officially, "]  # fmt: skip
CLOSE = [", nothing else.", " until further notice.", " these days.", ", they say.", ", as agreed.",
         " for the time being.", " (checked twice).", "; please keep it."]  # fmt: skip
# {k} is a key or several of them
ASK = [
    "What is the {n} of {k}?", "Which {n} belongs to {k}?", "Tell me the {n} for {k}.", "{k}?",
    "What does the text say about {k}?", "What goes with {k}?", "I forgot the {n} of {k}.",
    "Look for {k} and give the {n}.", "What was noted for {k}?", "Please repeat the {n} of {k}.",
    "Can you find the {n} for {k}?", "Somewhere above there is a {n} for {k}. Which one?",
    "How do I reach {k}?", "What do I have to say at {k}?", "Which value stands beside {k}?",
    "Search the text: {k}.", "Under what {n} is {k} kept?", "What opens {k}?", "{k}: which {n}?",
    "I want to go to {k}; what is needed?", "Print the {n} of {k} and nothing else.",
    "Give the {n} for {k}.", "What should one type for {k}?", "List the {n}s for {k}.",
    "Tell me about {k}.", "Give what was noted for {k}.", "I need the {n} of {k}.", "Look up {k}.",
    "Which {n} is for {k}?", "Find {k} and print the {n}.", "What should one know about {k}?",
    "Suppose I stand before {k}. What do I say?", "Which {n} lets me into {k}?",
    "Somebody asks for {k}. What {n} do you tell them?", "What {n} did {k} get in the end?",
    "Which of the {n}s above is for {k}?", "The {n} that was set aside for {k} is what I want.",
    "How is {k} listed?", "In which way can {k} be looked up? I mean the {n}.",
    "Which {n} would take me to {k}?", "Before I travel to {k}: what {n} should I learn by heart?",
    "A letter for {k} has come. Which {n} goes on it?", "How would you prove at {k} that you may enter?",
    "People talked of {k}; which {n} did they mention?", "What {n} is tied to {k} in this text?",
    "Copy the {n} that was assigned to {k}", "Write down the {n} for {k}", "State the {n} of {k}",
    "Only the {n} for {k} matters", "Entering {k} takes a {n}. Which?",
]  # fmt: skip
BEFORE = ["Hey, ", "Quick question: ", "Now then. ", "After reading this: ", "Question: ", "Q: ",
          "One more thing. ", "Read the text again. ", "Hello! "]  # fmt: skip
AFTER = [" Thanks.", " Be brief.", " Nothing else is needed.", " I forgot.", " It is urgent.",
         " The {n} is enough.", " Do not explain.", " Just the {n}.", ", please", ", if you can"]  # fmt: skip


def chars(r, of, n):
    return "".join(r.choice(of) for _ in range(n))


def groups(r, of, sep):
    sizes = [r.choice((1, 2, 3, 4, 4, 5, 6, 8, 8, 10, 12)) for _ in range(r.randint(2, 6))]
    return sep.join(chars(r, of, n) for n in sizes)[:44]


def uuid(r):
    s = "-".join(chars(r, HEX, n) for n in (8, 4, 4, 4, 12))
    if r.random() < 0.5:
        s = s[:14] + "4" + s[15:]
    return s.upper() if r.random() < 0.06 else s


def digits(r, n=None):
    n = n or r.choice((3, 4, 5, 6, 7, 7, 7, 8, 9, 10, 12))
    return chars(r, "123456789", 1) + chars(r, DIGITS, n - 1)


def phrase(r, some, n, style, sep, tail):
    """A password of n words out of `some`."""
    parts = [style(r.choice(some)) for _ in range(n)]
    return sep.join(parts + [chars(r, DIGITS, tail)] if tail else parts)


def value(r, pool):
    """A value of any kind."""
    x = r.random()
    if x < 0.2:
        return digits(r)
    if x < 0.4:
        return groups(r, r.choice((HEX, HEX, HEX.upper(), DIGITS, CAPS + DIGITS, LETTERS + DIGITS)),
                      r.choice(("-", "-", "-", ":", ".", "_", "/", "")))  # fmt: skip
    if x < 0.55:
        some = [pool.word(r) for _ in range(4)]
        return phrase(r, some, r.randint(1, 4), r.choice((str.upper, str.title, str.lower)),
                      r.choice("-_.-+:/-"), r.choice((1, 2, 3, 4, 5, 6)))  # fmt: skip
    if x < 0.65:
        return uuid(r)
    if x < 0.75:
        return chars(r, LETTERS + DIGITS + MARKS, r.randint(6, 24)) + r.choice(LETTERS)
    if x < 0.87:
        return chars(r, r.choice((HEX, CAPS + DIGITS, LETTERS + DIGITS)), r.randint(4, 31)) + r.choice(DIGITS)
    return r.choice((f"{r.randint(1, 28)} {r.choice(('March', 'May', 'July', 'November'))} {r.randint(1900, 2090)}",
                     f"{r.randint(1900, 2090)}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}",
                     f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}:{r.randint(0, 59):02d}",
                     f"{r.randint(1, 999)}.{r.randint(0, 99):02d} EUR", ".".join(str(r.randint(0, 255)) for _ in range(4)),
                     f"+{r.randint(1, 99)} {chars(r, DIGITS, 3)} {chars(r, DIGITS, 6)}",
                     pool.code(r), pool.value(r, "version"), pool.value(r, "path"), pool.value(r, "email")))  # fmt: skip


def family(r, pool):
    """-> a maker of values of one kind, nouns for them, whether they look unlike words"""
    x = r.random()
    if x < 0.22:
        n = r.choice((4, 5, 6, 7, 7, 7, 8, 9, 10))
        return lambda: digits(r, n), OF_DIGITS, True
    if x < 0.5:
        return lambda: uuid(r), OF_UUIDS, True
    if x < 0.6:
        of, sep = r.choice((HEX, HEX, DIGITS, CAPS + DIGITS)), r.choice("--.:")
        return lambda: groups(r, of, sep), NOUNS, True
    if x < 0.86:
        some = [pool.word(r) for _ in range(r.choice((4, 6, 10, 16, 30)))]
        style, sep = r.choice((str.upper, str.upper, str.title, str.lower)), r.choice("---_.+/")
        n, tail = r.choice((1, 2, 2, 2, 2, 3)), r.choice((0, 2, 3, 4, 4, 4, 4, 5))
        return lambda: phrase(r, some, n, style, sep, tail), OF_WORDS, tail > 0
    if x < 0.93:
        return lambda: value(r, pool), NOUNS, True
    return lambda: pool.value(r, r.choice(tasks.FIELDS)), NOUNS, False


STARTS = ["", "b", "c", "ch", "d", "f", "g", "gr", "h", "j", "k", "kl", "l", "m", "n", "p", "pr",
          "qu", "r", "s", "st", "t", "tr", "v", "w", "x", "y", "z"]  # fmt: skip
STOPS = ["", "", "l", "n", "r", "s", "m", "x", "t", "k", "nd", "rt", "ll"]


def syllable(r):
    return r.choice(STARTS) + r.choice("aeiouaeiouy") + r.choice(STOPS)


def name(r, some=None):
    """A name made of syllables, of `some` where they are given."""
    one = (lambda: r.choice(some)) if some else (lambda: syllable(r))
    s = "".join(one() for _ in range(r.choice((2, 2, 2, 3) if some else (1, 2, 2, 2, 3, 3))))
    return s.capitalize() if len(s) > 2 else name(r)


def key(r, pool, some):
    x = r.random()
    if x < 0.8:
        return name(r, some)
    if x < 0.87:
        return name(r, some) + " " + name(r)
    if x < 0.93:
        return pool.word(r) + "_" + pool.ident(r)
    if x < 0.96:
        return "the " + pool.word(r) + " " + pool.word(r)
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
    if f["odd"] and r.random() < 0.25:
        s = senseless(r, pool)
    else:
        s = r.choice(FACTS)
        if s.endswith(".") and r.random() < 0.2:
            s = s[:-1] + r.choice(CLOSE)
        if s[-1] in ".;)" and r.random() < 0.2:
            s = r.choice(OPEN) + (s[0].lower() + s[1:] if s[1:2] != "{" and s[0] != "{" else s)
    s = s.replace("{n}", f["n"]).replace("{k}", f["k"]).replace("{v}", f["v"])
    return s[0].upper() + s[1:] if s.startswith(("the ", f["n"])) and not s.startswith(f["v"]) else s


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
    whole = r.random() < 0.25
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


def make_facts(r, pool, count):
    """Facts of one kind of value, or of any; keys that share syllables or not."""
    some = [syllable(r) or "a" for _ in range(r.choice((4, 6, 9)))] if r.random() < 0.5 else None
    same = r.random() < 0.8
    make, nouns, odd = family(r, pool)
    noun, facts, tries = r.choice(nouns), [], 0
    while len(facts) < count and tries < 20 * count:
        tries += 1
        f = {"k": key(r, pool, some), "n": noun, "odd": odd}
        if not same:
            make, nouns, f["odd"] = family(r, pool)
            f["n"] = r.choice(nouns)
        f["v"] = make()
        clash = lambda g: f["k"] in g["k"] or g["k"] in f["k"] or f["v"] in g["v"] or g["v"] in f["v"]
        if not any(clash(g) for g in facts):
            facts.append(f)
    return facts


def question(r, few):
    ks = [f["k"] for f in few]
    named = ", ".join(ks[:-1]) + r.choice((" and ", ", and ", " and ")) + ks[-1] if ks[1:] else ks[0]
    q, n = r.choice(ASK), few[0]["n"]
    if r.random() < 0.2 and q[-1] in ".?" and ", please" not in q:
        end = r.choice(AFTER)
        q = q[:-1] + end if end[0] == "," else q + end
    if r.random() < 0.15:
        q = r.choice(BEFORE) + q
    q = q.format(n=n, k=named)
    return q[0].upper() + q[1:] + ("" if q[-1] in ".?" else r.choice(".?."))


def draw(r, pool, size):
    """A sample of at most about `size` tokens."""
    most = max(1, size // 60)
    long = size > 1200
    count = min(most, r.choice((1, 2, 4, 4, 4, 5, 6, 8, 12, 18, 24) if long else (1, 1, 2, 3, 4, 4, 4, 5, 6, 8, 12)))
    facts = make_facts(r, pool, count)
    asked, cost = [], 0
    for _ in range(r.choice((1, 3, 5, 8, 12, 16) if long else (1, 1, 2, 3, 4, 6, 9))):
        few = r.sample(facts, 1 if r.random() < 0.4 else r.randint(1, min(4, len(facts))))
        took = sum(len(f["v"]) * 4 // 5 + 10 for f in few) + 30
        if asked and cost + took > size // 2:
            break
        asked.append(few)
        cost += took
    room = size - cost - sum(len(f["v"]) * 4 // 5 + 22 for f in facts)
    short = r.random()
    n = max(120, room) if short < 0.35 else r.randint(120, max(130, room))
    text = context(r, pool, facts, int(n * 2.6))
    head = r.choice((None,) * 9 + ("You are a helpful assistant.",))
    head = f"<|im_start|>system\n{head}{END}\n" if head else ""
    out = []
    for i, few in enumerate(asked):
        q = question(r, few)
        user = f"{text}\n\n{q}" if i == 0 else q
        answer = "\n".join(f"{f['k']}: {f['v']}" for f in few)
        out += [(f"{head if i == 0 else ''}<|im_start|>user\n{user}{END}\n<|im_start|>assistant\n", False),
                (answer + END, True), ("\n", False)]  # fmt: skip
    return out
