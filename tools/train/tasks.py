# SPDX-License-Identifier: Apache-2.0
"""Synthetic tasks: edits, lookups, reference entries and dialogues over real code and random data.

Each maker takes a random generator and a Pool and returns (prompt, answer) or None when the drawn
material does not suit. The answer ends where a reader would stop; the caller appends the end
token (chat answers carry their own end-of-turn mark). Every answer follows from the prompt, so a
small model can be right and a draft can know it; names and values are new for every sample.
"""

import ast
import re

DONE = "<|endoftext|>"
FIELDS = [
    "name",
    "city",
    "code",
    "owner",
    "status",
    "color",
    "size",
    "port",
    "host",
    "team",
    "level",
    "price",
    "email",
    "title",
    "group",
    "path",
    "mode",
    "year",
    "unit",
    "type",
    "count",
    "region",
    "version",
    "score",
    "serial",
    "branch",
]
STATES = ["open", "closed", "active", "pending", "ready", "failed", "done", "new"]


class Pool:
    """Functions and prose to build tasks from, and the words that random names are made of."""

    def __init__(self, pieces):
        self.funcs = [p for p in pieces if p["kind"] == "func" and 120 <= len(p["text"]) <= 620]
        self.small = [p for p in self.funcs if len(p["text"]) <= 330]
        self.docs = [p["text"] for p in pieces if p["kind"] == "doc" and len(p["text"]) <= 900]
        words = {}
        for p in self.funcs[:40000]:
            for w in re.findall(r"(?<![A-Za-z])[a-z]{3,9}(?![a-z])", p["text"]):
                words[w] = words.get(w, 0) + 1
        self.words = sorted(w for w, n in words.items() if n >= 3)

    def word(self, r):
        return r.choice(self.words)

    def ident(self, r):
        return "_".join(self.word(r) for _ in range(r.choice((1, 2, 2, 3))))

    def code(self, r):
        """A code-like value: letters and digits."""
        return r.choice("ABCDEFGHKLMNPRSTX") + "".join(
            r.choice("0123456789") for _ in range(r.choice((2, 3, 4)))
        )

    def value(self, r, key=""):
        if key in ("port", "size", "level", "count", "score", "year", "price"):
            return str(r.randint(2, 9999))
        if key in ("code", "serial"):
            return self.code(r)
        if key == "status":
            return r.choice(STATES)
        if key in ("email",):
            return f"{self.word(r)}@{self.word(r)}.com"
        if key == "path":
            return "/" + "/".join(self.word(r) for _ in range(3))
        if key == "version":
            return ".".join(str(r.randint(0, 20)) for _ in range(3))
        return r.choice(
            (
                self.word(r).title(),
                self.word(r) + "-" + self.word(r),
                self.word(r).title() + " " + self.word(r).title(),
            )
        )


def fence(code):
    return "```python\n" + code.rstrip("\n") + "\n```"


def locals_of(code):
    """Names bound in the code (arguments and assigned names) that appear at least twice."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return []
    names = {a.arg for n in ast.walk(tree) if isinstance(n, ast.arguments) for a in n.args}
    names |= {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    return sorted(
        n
        for n in names - {"self", "cls", "_"}
        if len(re.findall(rf"\b{re.escape(n)}\b", code)) >= 2
    )


def edit(r, order, before, after):
    head = r.choice((f"{order}\n\n", f"Task: {order}\n\n", f"# {order}\n\n"))
    return (
        f"{head}Before:\n\n{fence(before)}\n\nAfter:\n\n```python\n",
        after.rstrip("\n") + "\n```\n",
    )


def rename(r, pool):
    code = r.choice(pool.funcs)["text"]
    names = locals_of(code)
    if not names:
        return None
    old, new = r.choice(names), pool.ident(r)
    if re.search(rf"\b{new}\b", code):
        return None
    order = r.choice((f"Rename `{old}` to `{new}`.", f"Rename the variable `{old}` to `{new}`."))
    return edit(r, order, code, re.sub(rf"\b{re.escape(old)}\b", new, code))


def rename_function(r, pool):
    p = r.choice(pool.funcs)
    new = pool.ident(r)
    after = re.sub(rf"\b{re.escape(p['name'])}\b", new, p["text"])
    return edit(r, f"Rename the function `{p['name']}` to `{new}`.", p["text"], after)


def literal(r, pool):
    code = r.choice(pool.funcs)["text"]
    found = re.findall(r"(?<![\w.\"'])\d{1,4}(?![\w.\"'])|'[a-z_ ]{3,20}'|\"[a-z_ ]{3,20}\"", code)
    if not found:
        return None
    old = r.choice(found)
    new = str(r.randint(2, 999)) if old.isdigit() else old[0] + pool.ident(r) + old[0]
    pat = rf"(?<![\w.\"']){re.escape(old)}(?![\w.\"'])" if old.isdigit() else re.escape(old)
    return edit(r, f"Replace `{old}` by `{new}`.", code, re.sub(pat, new, code))


def strip_doc(r, pool):
    p = r.choice(pool.funcs)
    if not p["doc"]:
        return None
    after = re.sub(r"\n *[rR]?(\"\"\"|''')(.|\n)*?\1", "", p["text"], count=1)
    if '"""' in after or len(after) < 80:
        return None
    return edit(r, "Remove the docstring.", p["text"], after)


def to_method(r, pool):
    code, name = r.choice(pool.funcs)["text"], "".join(pool.word(r).title() for _ in range(2))
    body = "\n".join("    " + line if line else "" for line in code.rstrip("\n").split("\n"))
    return edit(
        r, f"Put this function into the class `{name}`.", code, f"class {name}:\n\n{body}\n"
    )


def add_comment(r, pool):
    code = r.choice(pool.funcs)["text"]
    lines = code.rstrip("\n").split("\n")
    if len(lines) < 4:
        return None
    i = r.randrange(2, len(lines))
    if not lines[i].strip() or lines.count(lines[i]) > 1 or code.count('"""') == 2 and i < 6:
        return None
    note = "# " + " ".join(pool.word(r) for _ in range(r.choice((2, 3, 4))))
    pad = lines[i][: len(lines[i]) - len(lines[i].lstrip())]
    after = lines[:i] + [pad + note] + lines[i:]
    return edit(
        r, f"Add the comment `{note}` before the line `{lines[i].strip()}`.", code, "\n".join(after)
    )


def records(r, pool, n):
    keys = r.sample(FIELDS, r.choice((4, 5, 6)))
    names, rows = [], []
    while len(names) < n:
        w = r.choice((pool.word(r), pool.ident(r), pool.code(r)))
        if w not in names:
            names.append(w)
            rows.append([pool.value(r, k) for k in keys])
    return keys, names, rows


def record_block(name, keys, row, style):
    if style == 0:
        return f"[{name}]\n" + "\n".join(f"{k} = {v}" for k, v in zip(keys, row)) + "\n"
    if style == 1:
        return f"{name}:\n" + "\n".join(f"  {k}: {v}" for k, v in zip(keys, row)) + "\n"
    return f"record {name}: " + "; ".join(f"{k}={v}" for k, v in zip(keys, row)) + "\n"


def find_record(r, pool):
    style = r.randrange(3)
    keys, names, rows = records(r, pool, r.choice((3, 4, 5, 6)))
    blocks = [record_block(n, keys, row, style) for n, row in zip(names, rows)]
    order = r.sample(range(len(names)), r.choice((1, 2, 2)))
    ask = " and ".join(f"`{names[i]}`" for i in order)
    gap = "" if style == 2 else "\n"
    return (
        gap.join(blocks) + f"\nShow the record of {ask}.\n\n",
        gap.join(blocks[i] for i in order),
    )


def settings(r, pool):
    keys = []
    while len(keys) < r.choice((8, 10, 12, 14)):
        k = pool.ident(r)
        if k not in keys:
            keys.append(k)
    sep = r.choice((" = ", ": ", "="))
    vals = {k: pool.value(r, r.choice(FIELDS)) for k in keys}
    ask = r.sample(keys, r.choice((2, 3, 4, 5)))
    text = "".join(f"{k}{sep}{vals[k]}\n" for k in keys)
    return (
        text + "\nGive the values of " + ", ".join(f"`{k}`" for k in ask) + ".\n\n",
        "".join(f"{k}{sep}{vals[k]}\n" for k in ask),
    )


def table(r, pool):
    keys, names, rows = records(r, pool, r.choice((4, 5, 6, 7)))
    keys, rows = keys[:4], [row[:4] for row in rows]
    line = lambda cells: "| " + " | ".join(cells) + " |\n"
    body = [line([n] + row) for n, row in zip(names, rows)]
    head = line(["id"] + keys) + line(["---"] * (len(keys) + 1))
    order = r.sample(range(len(names)), r.choice((2, 3)))
    ask = ", ".join(f"`{names[i]}`" for i in order)
    return (
        head + "".join(body) + f"\nKeep only the rows {ask}.\n\n",
        head + "".join(body[i] for i in order),
    )


def to_json(r, pool):
    style = r.randrange(3)
    keys, names, rows = records(r, pool, r.choice((2, 3, 4)))
    blocks = [record_block(n, keys, row, style) for n, row in zip(names, rows)]
    i = r.randrange(len(names))
    pairs = ",\n".join(f'  "{k}": "{v}"' for k, v in zip(["id"] + keys, [names[i]] + rows[i]))
    return (
        "\n".join(blocks) + f"\nWrite the record of `{names[i]}` as JSON.\n\n",
        "{\n" + pairs + "\n}\n",
    )


def log_lines(r, pool):
    lines, ids = [], []
    for _ in range(r.choice((5, 6, 7, 8))):
        ids.append(str(r.randint(1000, 9999)))
        what = " ".join(pool.word(r) for _ in range(r.choice((3, 4, 5))))
        lines.append(
            f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}:{r.randint(0, 59):02d} "
            f"{r.choice(('INFO', 'WARNING', 'ERROR', 'DEBUG'))} request {ids[-1]} "
            f"{pool.word(r)}: {what}\n"
        )
    if len(set(ids)) < len(ids):
        return None
    order = r.sample(range(len(ids)), r.choice((1, 2)))
    return (
        "".join(lines)
        + "\nShow the lines of request "
        + " and ".join(ids[i] for i in order)
        + ".\n\n",
        "".join(lines[i] for i in order),
    )


def needle(r, pool):
    text = r.choice((r.choice(pool.docs), r.choice(pool.funcs)["text"])).rstrip("\n").split("\n")
    who, what = pool.word(r).title(), r.choice(("secret", "door", "access", "locker", "account"))
    value = " ".join(
        pool.value(r, r.choice(("code", "name", "path"))) for _ in range(r.choice((1, 2, 3)))
    )
    fact = f"The {what} code of {who} {pool.word(r).title()} is {value}."
    text.insert(r.randrange(len(text) + 1), fact)
    name = fact.split(" of ")[1].split(" is ")[0]
    return ("\n".join(text) + f"\n\nWhat is the {what} code of {name}?\n\n", fact + "\n")


def repeat(r, pool):
    text = r.choice(
        (
            r.choice(pool.small)["text"],
            " ".join(pool.word(r) for _ in range(r.randint(15, 40))) + "\n",
        )
    )
    return f"Repeat this text:\n\n{text}\nCopy:\n\n", text


def word_list(r, pool):
    words = list(dict.fromkeys(pool.word(r) for _ in range(r.randint(6, 14))))
    kind = r.choice(("reverse", "number", "quote", "upper"))
    if kind == "reverse":
        return f"List: {', '.join(words)}\n\nReversed: ", ", ".join(words[::-1]) + "\n"
    if kind == "number":
        return (
            f"List: {', '.join(words)}\n\nOne a line, numbered:\n\n",
            "".join(f"{i}. {w}\n" for i, w in enumerate(words, 1)),
        )
    if kind == "quote":
        return (
            f"List: {', '.join(words)}\n\nAs a Python list:\n\n",
            "[" + ", ".join(f'"{w}"' for w in words) + "]\n",
        )
    return f"List: {', '.join(words)}\n\nAs a Markdown list:\n\n", "".join(
        f"- {w}\n" for w in words
    )


def signature(p):
    """The `def` lines of a function piece, or None when they are unusual."""
    m = re.match(r"(?:@.*\n)*((?:async )?def \w+\((?:[^()]|\([^()]*\))*\)[^:\n]*:)", p["text"])
    return m.group(1) if m and len(m.group(1)) < 160 else None


def first_sentence(p):
    line = " ".join(p["doc"].split("\n\n")[0].split())
    return line if 12 <= len(line) <= 160 else None


def args_phrase(names):
    names = [f"`{n}`" for n in names if n not in ("self", "cls")]
    if not names:
        return "It takes no arguments."
    if len(names) == 1:
        return f"It takes one argument, {names[0]}."
    return f"It takes {len(names)} arguments: {', '.join(names[:-1])} and {names[-1]}."


def reference(r, pool):
    p = r.choice(pool.funcs)
    sig, say = signature(p), first_sentence(p)
    if not sig or not say:
        return None
    names = [n for n in p["args"] if n not in ("self", "cls")]
    out = f"### `{p['name']}`\n\n{fence(sig)}\n\n{say}\n"
    if names:
        out += "\nArguments:\n\n" + "".join(f"- `{n}`\n" for n in names)
    return f"{fence(p['text'])}\n\nReference entry:\n\n", out


def chat(user, answer, r, system=None):
    head = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    think = "<think>\n\n</think>\n\n" if r.random() < 0.25 else ""
    return (
        f"{head}<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n{think}",
        answer + "<|im_end|>",
    )


SYSTEMS = [
    None,
    None,
    "You are a helpful assistant.",
    "You answer questions about code.",
    "Be brief.",
]


def chat_explain(r, pool):
    p = r.choice(pool.funcs)
    sig, say = signature(p), first_sentence(p)
    if not sig or not say:
        return None
    user = r.choice(
        (
            f"What does `{p['name']}` do?",
            f"Explain the function `{p['name']}`.",
            "Explain this function.",
        )
    )
    names = [n for n in p["args"]]
    answer = (
        f"The function `{p['name']}` is defined like this:\n\n{fence(sig)}\n\n"
        f'{args_phrase(names)} Its documentation says: "{say}"'
    )
    return chat(f"{user}\n\n{fence(p['text'])}", answer, r, r.choice(SYSTEMS))


def chat_show(r, pool):
    ps = [r.choice(pool.small) for _ in range(r.choice((2, 3)))]
    if len({p["name"] for p in ps}) < len(ps):
        return None
    p = r.choice(ps)
    code = "\n\n".join(q["text"].rstrip("\n") for q in ps)
    user = f"{fence(code)}\n\n" + r.choice(
        (f"Show me the function `{p['name']}`.", f"Print only `{p['name']}`.")
    )
    return chat(
        user, f"Here is the function `{p['name']}`:\n\n{fence(p['text'])}", r, r.choice(SYSTEMS)
    )


def chat_list(r, pool):
    ps = [r.choice(pool.small) for _ in range(r.choice((2, 3, 3)))]
    if len({p["name"] for p in ps}) < len(ps):
        return None
    code = "\n\n".join(q["text"].rstrip("\n") for q in ps)
    lines = "\n".join(
        f"- `{p['name']}`: {args_phrase(p['args'])[0].lower() + args_phrase(p['args'])[1:]}"
        for p in ps
    )
    user = f"{fence(code)}\n\nWhich functions are defined here, and what arguments do they take?"
    return chat(user, f"The code defines {len(ps)} functions:\n\n{lines}", r, r.choice(SYSTEMS))


def chat_lookup(r, pool):
    style = r.randrange(3)
    keys, names, rows = records(r, pool, r.choice((3, 4, 5)))
    blocks = [record_block(n, keys, row, style) for n, row in zip(names, rows)]
    i = r.randrange(len(names))
    ask = r.sample(range(len(keys)), min(len(keys), r.choice((2, 3, 4))))
    said = [f"the {keys[j]} is {rows[i][j]}" for j in ask]
    user = (
        "\n".join(blocks)
        + f"\nWhat are the "
        + ", ".join(keys[j] for j in ask[:-1])
        + f" and {keys[ask[-1]]} of `{names[i]}`?"
    )
    return chat(
        user,
        f"For `{names[i]}`, " + ", ".join(said[:-1]) + f" and {said[-1]}.",
        r,
        r.choice(SYSTEMS),
    )


def chat_edit(r, pool):
    code = r.choice(pool.funcs)["text"]
    names = locals_of(code)
    if not names:
        return None
    old, new = r.choice(names), pool.ident(r)
    user = f"Please rename `{old}` to `{new}`:\n\n{fence(code)}"
    after = re.sub(rf"\b{re.escape(old)}\b", new, code)
    return chat(
        user,
        f"Here is the code with `{old}` renamed to `{new}`:\n\n{fence(after)}",
        r,
        r.choice(SYSTEMS),
    )


def chat_list_words(r, pool):
    words = list(dict.fromkeys(pool.word(r) for _ in range(r.randint(4, 9))))
    user = f"Make a numbered list of these words: {', '.join(words)}."
    lines = "\n".join(f"{i}. {w}" for i, w in enumerate(words, 1))
    return chat(user, f"Here are the {len(words)} words:\n\n{lines}", r, r.choice(SYSTEMS))


def chat_hello(r, pool):
    user, answer = r.choice(
        (
            (
                "Hello!",
                "Hello! How can I help you today? I can look things up in a table, rename "
                "variables in code, and explain what a Python function does.",
            ),
            (
                "Hi",
                "Hello! How can I help you today? I can look things up in a table, rename "
                "variables in code, and explain what a Python function does.",
            ),
            (
                "Who are you?",
                "I am a tiny language model that comes with coppice. I was trained on "
                "Python code and documentation to show how speculative decoding works.",
            ),
            (
                "What can you do?",
                "I can look things up in a table, rename variables in code, repeat "
                "text, and explain what a Python function does.",
            ),
            ("Thanks!", "You are welcome! Let me know if there is anything else I can do for you."),
        )
    )
    return chat(user, answer, r, r.choice(SYSTEMS))


# task -> (group of bench/prompts, weight in the mix)
TASKS = {
    rename: ("edit", 8),
    rename_function: ("edit", 4),
    literal: ("edit", 3),
    strip_doc: ("edit", 3),
    to_method: ("edit", 4),
    add_comment: ("edit", 3),
    find_record: ("needle", 5),
    settings: ("needle", 4),
    table: ("needle", 3),
    to_json: ("needle", 4),
    log_lines: ("needle", 4),
    needle: ("needle", 5),
    repeat: ("needle", 2),
    word_list: ("needle", 2),
    reference: ("docs", 7),
    chat_explain: ("chat", 6),
    chat_show: ("chat", 5),
    chat_list: ("chat", 4),
    chat_lookup: ("chat", 5),
    chat_edit: ("chat", 4),
    chat_list_words: ("chat", 2),
    chat_hello: ("chat", 0.4),
}


def draw(r, pool, tasks=None):
    """One random task: (group, task name, prompt, answer with its end token)."""
    tasks = tasks or list(TASKS)
    while True:
        t = r.choices(tasks, [TASKS[x][1] for x in tasks])[0]
        got = t(r, pool)
        if got:
            prompt, answer = got
            if not answer.endswith("<|im_end|>"):
                answer += DONE
            return TASKS[t][0], t.__name__, prompt, answer
