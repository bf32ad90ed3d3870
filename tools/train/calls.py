# SPDX-License-Identifier: Apache-2.0
"""Conversations with tools, in the chat template of tokenizer.py: requests, calls, results, answers.

A sample is a list of (text, carries loss) segments. What a call needs stands in the request
(toolkit.py), and the last answer quotes the result. Some requests fit no tool and are answered in
words. `fill` asks for JSON made out of a sentence.
"""

import json
import re

import tasks
from toolkit import (RULES, Tool, call, describe, explicit, line, natural, path, shell, text, value,
                     words)  # fmt: skip

END = "<|im_end|>"
HOW = (
    "\n\nTo call one:\n<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n"
    "</function>\n</tool_call>"
)


def turn(role, words):
    return f"<|im_start|>{role}\n{words}{END}\n"


def system_of(r, pool, size):
    """Instructions of about `size` words."""
    if size == 0:
        return None
    rules = r.sample(RULES, r.randint(1, 4))
    if size < 40:
        return " ".join(rules)
    parts = [" ".join(rules)]
    while size > 0:
        n = min(size, r.randint(20, 400))
        head = r.choice(("# ", "## ", "")) + words(r, pool, 1, 3).title()
        body = describe(r, pool, n) if r.random() < 0.8 else "\n".join(
            "- " + words(r, pool, 3, 12).capitalize() + "." for _ in range(n // 9 + 1))  # fmt: skip
        parts.append(f"{head}\n\n{body}")
        size -= n
    return "\n\n".join(parts)


def head_of(r, pool, tools, system, wordy, long):
    """The system turn with its tools, as the template writes it."""
    if not tools:
        return turn("system", system) if system else ""
    lines = "".join("\n" + t.declare(r, pool, wordy, r.randint(0, long) if long else 0) for t in tools)
    return turn("system", (system + "\n\n" if system else "") + "# Tools\n" + lines + HOW)


def numbered(r, s):
    """A file as agents' tools give it back."""
    rows = s.split("\n")
    form = r.choice((None, None, "{i:6d}\u2192{s}", "{i}\t{s}", "{i:05d}| {s}", "{i}: {s}", "L{i}: {s}"))
    out = s if not form else "\n".join(form.format(i=i, s=x) for i, x in enumerate(rows, 1))
    return r.choice((out, out, f"<file>\n{out}\n</file>", f"<content>\n{out}\n</content>"))


def printed(r, s, code):
    """What a command printed, as agents' tools give it back."""
    x = r.random()
    if x < 0.45:
        return s if code == 0 else f"{s}\nexit code {code}"
    if x < 0.65:
        meta = {"exit_code": code, "duration_seconds": round(r.uniform(0, 3), 1)}
        return json.dumps({"output": s, "metadata": meta})
    if x < 0.85:
        return f"Exit code: {code}\nWall time: {r.uniform(0, 3):.1f} seconds\nOutput:\n{s}"
    return f"<output>\n{s}\n</output>\n<exit_code>{code}</exit_code>"


def block(s):
    return f"\n\n```\n{s}\n```"


def read_answer(r, p, s):
    rows = [x for x in s.split("\n") if x.strip()]
    if not rows:
        return f"The file `{p}` is empty."
    if len(rows) == 1:
        return f"The file `{p}` says: {rows[0].strip()}"
    if s.count("\n") < 12 and len(s) < 500:
        return f"The file `{p}` says:" + block(s)
    return f"The file `{p}` begins with: {rows[0].strip()}"


def result_of(r, pool, tool, what, args, long):
    """-> what the tool gives back, the answer to the user"""
    k, fail = tool.kind, r.random() < 0.07
    if fail:
        s = r.choice((f"Error: {words(r, pool, 2, 6)}", f"{pool.word(r)}: {words(r, pool, 2, 5)}",
                      f"File not found: {path(r, pool)}", "No such file or directory"))  # fmt: skip
        if k == "run":
            return printed(r, s, r.randint(1, 127)), f"The command failed: {s}"
        s = s if s.startswith("Error") else "Error: " + s
        return s, f"The call failed: {s}"
    if k in ("read", "fetch"):
        s = text(r, pool, 30 if long else 8)
        if long:
            s += "\n" + describe(r, pool, long)
        if k == "fetch":
            return s, read_answer(r, what, s).replace("The file", "The page")
        return numbered(r, s), read_answer(r, what, s)
    if k == "run":
        n = r.choice((0, 1, 1, 2, 3, 5))
        s = "\n".join(line(r, pool) if r.random() < 0.5 else path(r, pool) for _ in range(n))
        if not s:
            return printed(r, "", 0), f"The command `{what}` printed nothing."
        say = f"The command printed: {s.strip()}" if n == 1 else "The command printed:" + block(s)
        return printed(r, s, 0), say
    if k == "edit":
        p, a, b = what
        s = r.choice((f"The file {p} has been updated.", "ok", "Edit applied successfully.", "done",
                      f"Success. Updated the following files:\nM {p}", f"{p}: 1 replacement",
                      f"The file {p} has been updated. Here's the result:\n     1\u2192{b}"))  # fmt: skip
        return s, f"In `{p}`, `{a}` is now `{b}`."
    if k == "write":
        s = r.choice((f"File created successfully at: {what}", "ok", f"Wrote file {what}", "done"))
        return s, f"The file `{what}` has been written."
    if k == "patch":
        return r.choice(("ok", "Done!", "Success.")), "The patch has been applied."
    if k in ("grep", "glob", "list"):
        s = "\n".join(path(r, pool) + (f":{r.randint(1, 300)}: {line(r, pool).strip()}" if k == "grep"
                                       else "") for _ in range(r.randint(1, 6)))  # fmt: skip
        return s, "Found:" + block(s)
    x = r.random()
    if x < 0.5:
        s = json.dumps({pool.word(r): value(r, pool, r.choice(("string", "integer", "boolean")), None)
                        for _ in range(r.randint(1, 3))})  # fmt: skip
    else:
        s = r.choice((words(r, pool, 1, 8), str(value(r, pool, "number", None)), "ok", line(r, pool).strip()))
    return s, f"The tool {tool.name} returned: {s}"


def lookup(r, pool, tool):
    """A question that one line of a file answers -> request, args, result, answer"""
    _, args, p = natural(r, pool, tool)
    keys = list(dict.fromkeys(pool.ident(r) if r.random() < 0.5 else pool.word(r) for _ in range(r.randint(2, 12))))
    sep = r.choice((" = ", ": ", "=", " is "))
    vals = {k: pool.value(r, r.choice(tasks.FIELDS)) for k in keys}
    k = r.choice(keys)
    ask = r.choice((f"What is the {k} in {p}?", f"Look up {k} in the file {p}.",
                    f"Read {p} and tell me the {k}.", f"Which {k} does {p} give?",
                    f"Find out the value of `{k}` in `{p}`."))  # fmt: skip
    return ask, args, numbered(r, "\n".join(f"{a}{sep}{b}" for a, b in vals.items())), f"The {k} is {vals[k]}."


def read_and_edit(r, pool, reader, editor, long):
    """Two calls, one after the other."""
    p, s = path(r, pool), text(r, pool, 8)
    some = [w for w in re.findall(r"[A-Za-z_]{3,20}", s)] or ["pass"]
    a = r.choice(some)
    _, first, _ = natural(r, pool, reader, p)
    _, second, what = natural(r, pool, editor, p, a)
    b = what[2]
    ask = r.choice((f"Read {p}, then replace `{a}` by `{b}` in it.", f"Read the file {p} and change {a} to {b}.",
                    f"Look at {p} first. Then replace {a} with {b}.",
                    f"Open {p} and replace \"{a}\" with \"{b}\"."))  # fmt: skip
    done, say = result_of(r, pool, editor, what, second, 0)
    return ask, [(reader, first, numbered(r, s)), (editor, second, done)], say


def plain(r, pool):
    """A request for words, of tasks.py -> user, answer"""
    made = [t for t in tasks.TASKS if t.__name__.startswith("chat_")]
    while True:
        _, _, prompt, answer = tasks.draw(r, pool, made)
        user = re.search(r"<\|im_start\|>user\n(.*)<\|im_end\|>\n<\|im_start\|>assistant\n$", prompt, re.S)
        if user:
            return user.group(1), answer.removesuffix(END)


def round_of(r, pool, tools, long):
    """One request up to its last answer -> user's words, calls with results, answer"""
    x = r.random()
    of = {t.kind: t for t in tools if t.kind}
    known = list(of.values())
    if x < 0.1 or not tools:
        user, answer = plain(r, pool)
        return user, [], answer
    if x < 0.22 and "read" in of:
        ask, args, got, say = lookup(r, pool, of["read"])
        return ask, [(of["read"], args, got)], say
    if x < 0.34 and "read" in of and "edit" in of:
        return read_and_edit(r, pool, of["read"], of["edit"], long)
    if x < 0.46 and "run" in of and "read" not in of and "edit" not in of:
        p = path(r, pool)
        ask, args, v, what = shell(r, pool, p, of["run"])
        s = text(r, pool, 8) if not what else ""
        say = f"In `{p}`, `{what[1]}` is now `{what[2]}`." if what else read_answer(r, p, s)
        return ask, [(of["run"], args, printed(r, s, 0))], say
    t = r.choice(known) if known and x < 0.85 else r.choice(tools)
    if t.kind and r.random() < 0.8:
        ask, args, what = natural(r, pool, t)
    else:
        ask, args = explicit(r, pool, t)
        of = lambda i: str(list(args.values())[i]) if i < len(args) else ""
        strings = [v for v in args.values() if isinstance(v, str)] + [""] * 3
        what = tuple(strings[:3]) if t.kind == "edit" else of(0)
    got, say = result_of(r, pool, t, what, args, long)
    return ask, [(t, args, got)], say


def wrapped(r, pool, ask, size):
    """The request among other things that agents put into the user's turn."""
    if r.random() < 0.7:
        return ask
    tag = r.choice(("context", "system-reminder", "environment_context", "info", pool.word(r)))
    inner = "\n".join(f"{pool.word(r)}: {words(r, pool, 1, 5)}" for _ in range(r.randint(1, 5)))
    if size:
        inner = describe(r, pool, r.randint(0, size))
    note = f"<{tag}>\n{inner}\n</{tag}>"
    return f"{ask}\n\n{note}" if r.random() < 0.2 else f"{note}\n{ask}"


def conversation(r, pool, size):
    """About `size` tokens at most: declarations, then one or more rounds."""
    kinds = ["read", "edit", "run", "write", "grep", "glob", "list", "fetch", "patch"]
    n = r.randint(1, max(1, min(25, size // 150)))
    share = r.choice((0.0, 0.4, 0.6, 0.9))
    picked = [k for k in r.sample(kinds, min(len(kinds), max(n, 2))) if r.random() < share]
    tools = [Tool(r, pool, k) for k in picked]
    tools += [Tool(r, pool) for _ in range(n - len(tools))]
    r.shuffle(tools)
    if len({t.name for t in tools}) < len(tools):
        tools = tools[:1]
    left = max(0, size - 100 * len(tools) - 250)
    words_left = int(left / 2.2 * r.uniform(0.3 if size > 2500 else 0.0, 0.85))
    system = int(words_left * r.choice((0, 0, 0.1, 0.5, 0.8)))
    long = (words_left - system) * 2 // len(tools) if tools and r.random() < 0.8 else 0
    system = r.choice((0, 10, 20)) if system == 0 else system
    head = head_of(r, pool, tools, system_of(r, pool, system), r.random(), min(long, 900))
    out, used = [(head, False)], len(head) // 3
    while r.random() < 0.2:
        note = describe(r, pool, r.randint(5, min(150, 10 + size // 20)))
        out.append((turn(r.choice(("user", "system")), note), False))
        used += len(note) // 3
    rounds = r.choice((1, 2, 3, 4, 6)) if r.random() < 0.9 else 20
    while rounds > 0 and (used < size * 0.75 or rounds > 99 or len(out) == 1):
        rounds -= 1
        room = max(0, (size - used) // 5)
        ask, calls, say = round_of(r, pool, tools, r.choice((0, 0, 0, room)))
        user = turn("user", wrapped(r, pool, ask, min(120, room)))
        if r.random() < 0.12:  # instructions that come behind the request
            user += turn("system", describe(r, pool, r.randint(5, 30 + room // 2)))
        part = [(user + "<|im_start|>assistant\n", False)]
        for tool, args, got in calls:
            part += [(call(tool, args) + END, True),
                     ("\n" + turn("tool", got) + "<|im_start|>assistant\n", False)]  # fmt: skip
        part += [(say + END, True), ("\n", False)]
        out += part
        used += sum(len(s) for s, _ in part) // 3
    return out


FIRST = ["Ann", "Bo", "Carla", "Dirk", "Eve", "Finn", "Gita", "Hans", "Ines", "Jack", "Kim", "Lea",
         "Max", "Nora", "Otto", "Pia", "Ravi", "Sara", "Tom", "Uma", "Viktor", "Zara", "Alice", "Bob"]  # fmt: skip
TOWN = ["Paris", "Rome", "Oslo", "Berlin", "Madrid", "London", "Vienna", "Lima", "Tokyo", "Delhi"]

def field(r, pool):
    """-> key, JSON type, value, how a sentence tells it"""
    w = pool.word(r)
    return r.choice((
        lambda: ("name", "string", *[v := r.choice(FIRST)], r.choice((f"{v}", f"the name is {v}", f"called {v}"))),
        lambda: ("age", "integer", *[v := r.randint(1, 99)], r.choice((f"{v} years old", f"aged {v}", f"is {v}"))),
        lambda: ("city", "string", *[v := r.choice(TOWN)], r.choice((f"lives in {v}", f"from {v}", f"in {v}"))),
        lambda: ("price", "number", *[v := round(r.uniform(1, 900), 2)], r.choice((f"costs {v}", f"for {v} euros"))),
        lambda: ("email", "string", *[v := f"{w}@{pool.word(r)}.com"], r.choice((f"writes from {v}", f"mail {v}"))),
        lambda: ("color", "string", *[v := r.choice(("red", "green", "blue", "black"))], r.choice((f"is {v}", f"painted {v}"))),
        lambda: ("count", "integer", *[v := r.randint(0, 500)], r.choice((f"there are {v}", f"{v} of them"))),
        lambda: ("active", "boolean", *[v := r.random() < 0.5], "is active" if v else "is not active"),
        lambda: ("tags", "array", *[v := [pool.word(r) for _ in range(r.randint(1, 4))]], "tagged " + ", ".join(v)),
        lambda: (w, "string", *[v := pool.value(r, r.choice(("name", "city", "path", "code")))], r.choice((f"{w}: {v}", f"the {w} is {v}"))),
        lambda: (w, "integer", *[v := r.randint(0, 10**5)], r.choice((f"{w} is {v}", f"{w} {v}"))),
    ))()  # fmt: skip


def fill(r, pool, size):
    """A sentence and the JSON object that it fills."""
    rows = {}
    for _ in range(r.randint(1, 5)):
        k, *rest = field(r, pool)
        rows.setdefault(k, rest)
    facts = [how for _, _, how in rows.values()]
    said = r.choice((", ", " and ", ", ", "; ")).join(facts)
    said = said[0].upper() + said[1:] + "."
    keys = list(rows)
    if r.random() < 0.4:
        r.shuffle(keys)
    named = ", ".join(keys[:-1]) + " and " + keys[-1] if keys[1:] else keys[0]
    schema = {"type": "object", "properties": {
        k: {"type": "array", "items": {"type": "string"}} if rows[k][0] == "array" else {"type": rows[k][0]}
        for k in keys}, "required": keys}  # fmt: skip
    ask = r.choice((f"Answer as JSON with {named}: {said}", f"Extract {named} as JSON.\n\n{said}",
                    f"{said}\n\nGive {named} as JSON.", f"{said} Return a JSON object with {named}.",
                    f"Fill this schema: {json.dumps(schema)}\n\n{said}", f"Extract the {named}: {said}",
                    f"{said}\n\nAnswer with JSON that matches this schema:\n{json.dumps(schema)}"))  # fmt: skip
    system = r.choice((None, None, "Answer with JSON only.", "You extract data."))
    head = turn("system", system) if system else ""
    answer = json.dumps({k: rows[k][1] for k in keys}, ensure_ascii=False)
    return [(head + turn("user", ask) + "<|im_start|>assistant\n", False), (answer + END, True), ("\n", False)]


def draw(r, pool, size):
    return fill(r, pool, size) if r.random() < 0.08 else conversation(r, pool, size)
