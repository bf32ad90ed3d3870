# SPDX-License-Identifier: Apache-2.0
"""Tools and requests for them: declarations, arguments, wordings. calls.py makes conversations of them.

Tools are the kinds that coding agents declare, under many names and with many parameters, and
invented ones with random schemas. All that a call needs stands in the request.
"""

import json
import re

import tasks

NAMES = {
    "read": ["Read", "read", "read_file", "ReadFile", "view", "view_file", "open_file", "fs_read",
             "readFile", "get_file", "cat", "load_file", "file_read", "mcp__fs__read_file"],
    "write": ["Write", "write", "write_file", "create_file", "WriteFile", "save_file", "put_file",
              "writeFile", "fs_write", "new_file"],
    "edit": ["Edit", "edit", "edit_file", "str_replace", "replace", "replace_in_file", "EditFile",
             "change_text", "search_replace", "editFile"],
    "run": ["Bash", "bash", "shell", "exec_command", "run_command", "execute", "terminal", "sh",
            "run_shell_command", "run_terminal_cmd", "local_shell", "exec"],
    "grep": ["Grep", "grep", "search", "search_files", "rg", "find_text", "search_file_content"],
    "glob": ["Glob", "glob", "find", "find_files", "file_search", "glob_files"],
    "list": ["LS", "ls", "list", "list_dir", "list_directory", "list_files"],
    "fetch": ["WebFetch", "webfetch", "fetch", "fetch_url", "http_get", "download", "open_url"],
    "patch": ["apply_patch", "patch", "applyPatch", "apply_diff"],
}  # fmt: skip
SAYS = {
    "read": ["Reads a file", "Read the contents of a file", "Returns what a file holds",
             "Reads a file from the local filesystem", "Shows a text file"],
    "write": ["Writes a file", "Create or overwrite a file", "Saves text into a file",
              "Writes content to a file on disk"],
    "edit": ["Replaces text in a file", "Performs exact string replacements in files",
             "Edit a file by replacing one piece of text by another", "Changes a text file"],
    "run": ["Runs a shell command", "Executes a command and returns its output",
            "Runs a command in a terminal", "Execute a bash command"],
    "grep": ["Searches files for a pattern", "Finds lines that match a regular expression",
             "Search file contents"],
    "glob": ["Finds files by name", "Lists files that match a glob pattern"],
    "list": ["Lists a directory", "Shows the entries of a folder", "List files in a directory"],
    "fetch": ["Fetches a web page", "Downloads a URL", "Gets the content of a URL"],
    "patch": ["Applies a patch to files", "Edit files with a patch"],
}  # fmt: skip
PATH = ["file_path", "filePath", "path", "filename", "file", "target_file", "absolute_path"]
KEYS = {
    "read": [(PATH, "string", True), (["offset", "start_line", "line"], "integer", False),
             (["limit", "max_lines", "count"], "integer", False)],
    "write": [(PATH, "string", True), (["content", "contents", "text", "data"], "string", True)],
    "edit": [(PATH, "string", True), (["old_string", "oldString", "old", "search", "old_str",
             "old_text"], "string", True), (["new_string", "newString", "new", "replace", "new_str",
             "new_text"], "string", True), (["replace_all", "replaceAll", "all"], "boolean", False)],
    "run": [(["command", "cmd", "script", "command_line"], "string", True),
            (["timeout", "timeout_ms", "yield_time_ms"], "integer", False),
            (["workdir", "cwd", "directory", "description"], "string", False)],
    "grep": [(["pattern", "query", "regex"], "string", True), (["path", "directory", "include"],
             "string", False)],
    "glob": [(["pattern", "glob", "glob_pattern"], "string", True), (["path", "cwd"], "string",
             False)],
    "list": [(["path", "directory", "dir_path", "folder"], "string", True)],
    "fetch": [(["url", "uri", "address"], "string", True), (["format", "prompt"], "string", False)],
    "patch": [(["input", "patch", "patchText", "diff"], "string", True)],
}  # fmt: skip
ASK = {
    "read": ["Read the file {p}.", "Read {p}.", "Please read {p}", "Show me {p}.", "What is in {p}?",
             "Open {p}.", "Look at `{p}`.", "Print the contents of {p}.", "cat {p}", "read {p}",
             "What does the file {p} say?", "Please open the file `{p}` and show it.",
             "Use {n} to read {p}.", "Read the file `{p}` with the {n} tool.",
             "read the file {p} and tell me what it says", "Tell me what {p} contains."],
    "write": ["Write `{v}` to {p}.", "Create the file {p} with the content `{v}`.",
              "Create {p} containing: {v}", "Write the following to {p}:\n\n{v}",
              "Make a new file {p} with this text:\n\n{v}", "Use {n} to save `{v}` in {p}.",
              "Save this as `{p}`:\n\n{v}"],
    "edit": ["Replace `{a}` by `{b}` in {p}.", "In {p}, change `{a}` to `{b}`.",
             "replace {a} by {b} in {p}", "Replace \"{a}\" with \"{b}\" in the file {p}.",
             "Edit {p}: `{a}` should be `{b}`.", "Change {a} to {b} in `{p}`.",
             "Please edit the file {p}, replacing {a} with {b}.", "Use {n} to replace {a} with {b} in {p}.",
             "In the file {p}, replace the word {a} by {b}.",
             "In {p} there is `{a}`. Make it `{b}`."],
    "run": ["Run `{v}`.", "run `{v}`", "Run the command `{v}`.", "Please execute `{v}`.",
            "Execute {v}", "Run {v}", "Use {n} to run `{v}`.", "What does `{v}` print?",
            "Run `{v}` and tell me what it prints.", "Use the shell: {v}"],
    "grep": ["Search for `{v}`.", "Find all lines with `{v}`.", "Where is `{v}` used?", "grep for {v}",
             "Use {n} to look for {v}."],
    "glob": ["Find all files that match `{v}`.", "Which files match {v}?", "List the files {v}.",
             "Use {n} with {v}."],
    "list": ["List the directory {p}.", "What files are in {p}?", "ls {p}", "Show the entries of `{p}`.",
             "List {p}."],
    "fetch": ["Fetch {v}.", "Download {v}", "Open {v}", "Get the page {v}", "What does {v} say?"],
    "patch": ["Apply this patch:\n\n{v}", "Apply the patch below.\n\n{v}"],
}  # fmt: skip
COMMANDS = ["ls -la", "ls", "pwd", "git status", "git log --oneline -5", "cat {p}", "wc -l {p}",
            "python {p}", "make", "make test", "pytest -q", "echo {w}", "npm test", "head -5 {p}",
            "grep -rn {w} .", "cat {p} | sort", "date", "whoami", "python3 -m {w}", "rm {p}", "mkdir {w}",
            "find . -name '*.{w}'", "cargo build", "node {p}", "git diff {p}", "du -sh {w}",
            "sed -n 1,20p {p}", "echo \"{w} {w}\"", "uname -a", "./{w}.sh --{w}"]  # fmt: skip
EXT = ["py", "txt", "md", "c", "h", "js", "ts", "json", "toml", "yaml", "cfg", "ini", "log", "rs",
       "go", "csv", "html", "sh"]  # fmt: skip
RULES = ["You are a coding agent.", "You are a helpful assistant.", "Be concise.", "Do not guess.",
         "Use tools when they help.", "Answer in English.", "Keep answers short.",
         "You are an interactive CLI tool that helps users with software engineering tasks.",
         "Never print secrets.", "Prefer editing files to creating new ones.",
         "You work in the current directory."]  # fmt: skip


def path(r, pool):
    n = r.choice((0, 0, 0, 1, 1, 2, 3))
    name = r.choice((pool.word(r), pool.ident(r), pool.word(r).upper() if r.random() < 0.2 else
                     pool.word(r))) + "." + r.choice(EXT)  # fmt: skip
    root = r.choice(("", "", "", "", "./", "/", "/home/" + pool.word(r) + "/", "/tmp/", "src/"))
    return root + "/".join([pool.word(r) for _ in range(n)] + [name])


def words(r, pool, least, most):
    return " ".join(pool.word(r) for _ in range(r.randint(least, most)))


def line(r, pool):
    """A line of text or code."""
    x = r.random()
    if x < 0.35:
        rows = [s for s in r.choice(pool.funcs)["text"].split("\n") if 4 < len(s) < 90]
        return r.choice(rows) if rows else "pass"
    if x < 0.6:
        s = words(r, pool, 3, 10)
        return s[0].upper() + s[1:] + "."
    if x < 0.8:
        return f"{pool.ident(r)} = {pool.value(r, r.choice(tasks.FIELDS))}"
    return f"{pool.word(r).title()}: {words(r, pool, 1, 4)}"


def text(r, pool, most=12):
    """A file's content; sometimes a piece of the corpus."""
    x = r.random()
    if x < 0.25:
        return r.choice(pool.small)["text"].rstrip("\n")
    if x < 0.35:
        return r.choice(pool.docs).rstrip("\n")
    n = r.choice((1, 1, 1, 2, 3, 5, most))
    return "\n".join(line(r, pool) for _ in range(n))


def shell(r, pool, p, tool):
    """Reading and editing where there is only a shell -> request, args, command, parts of an edit"""
    need = next(n for n, _, needed, _ in tool.keys if needed)
    if r.random() < 0.5:
        ask, v, what = r.choice(ASK["read"]).format(p=p, n=tool.name), f"cat {p}", None
    else:
        a, b = pool.word(r), pool.ident(r)
        ask = r.choice(ASK["edit"]).format(p=p, a=a, b=b, n=tool.name)
        v, what = f"sed -i s/{a}/{b}/ {p}", (p, a, b)
    many = tool.keys[0][1] == "array"
    return ask, {need: v.split(" ") if many else v}, v, what


def describe(r, pool, words_left):
    """Some words of documentation, about as many as asked for."""
    out, n = [], 0
    while n < words_left:
        s = r.choice(pool.docs)[: 6 * (words_left - n) + 40]
        out.append(s.strip())
        n += len(s) // 6
    return "\n\n".join(out)


class Tool:
    """A declaration; `keys` are [name, type, required, choices]."""

    def __init__(self, r, pool, kind=None):
        self.kind, self.items = kind, None  # items: members of the objects in an array
        if kind:
            self.name = r.choice(NAMES[kind]) if r.random() < 0.85 else invented_name(r, pool)
            self.says = r.choice(SAYS[kind])
            self.keys = [[r.choice(n), t, need, None] for n, t, need in KEYS[kind]
                         if need or r.random() < 0.5]  # fmt: skip
            if kind == "run" and r.random() < 0.3:
                self.keys[0][1] = "array"
            if kind == "read" and r.random() < 0.12:
                self.keys = [[r.choice(("files", "paths", "file_paths")), "array", True, None]]
                self.items = r.choice((None, [r.choice(PATH)]))
            if kind == "edit" and r.random() < 0.15:
                names = [self.keys[1][0], self.keys[2][0]]
                self.keys[1:] = [[r.choice(("edits", "changes")), "array", True, None]]
                self.items = names
        else:
            self.name, seen = invented_name(r, pool), set()
            self.says = words(r, pool, 2, 8).capitalize()
            self.keys = []
            for _ in range(r.choice((0, 1, 1, 2, 2, 3, 4))):
                n = r.choice((pool.word(r), pool.ident(r), camel(pool.ident(r)), r.choice(tasks.FIELDS)))
                if n in seen:
                    continue
                seen.add(n)
                t = r.choice(("string", "string", "string", "integer", "integer", "number", "boolean",
                              "enum", "array"))  # fmt: skip
                picks = [pool.word(r) for _ in range(r.randint(2, 5))] if t == "enum" else None
                self.keys.append([n, t, r.random() < 0.7, picks])

    def schema(self, r, pool, wordy):
        props = {}
        for n, t, _, picks in self.keys:
            p = {"type": {"enum": "string"}.get(t, t)}
            if picks:
                p["enum"] = picks
            if t == "array":
                p["items"] = {"type": "string"} if not self.items else {
                    "type": "object", "properties": {i: {"type": "string"} for i in self.items},
                    "required": self.items}  # fmt: skip
            if r.random() < wordy:
                s = words(r, pool, 2, 9).capitalize() + "."
                p = {**p, "description": s} if r.random() < 0.6 else {"description": s, **p}
            props[n] = p
        out = {"type": "object", "properties": props}
        need = [n for n, _, needed, _ in self.keys if needed]
        if need or r.random() < 0.5:
            out["required"] = need
        if r.random() < 0.3:
            out["additionalProperties"] = False
        if r.random() < 0.08:
            out = {"$schema": "http://json-schema.org/draft-07/schema#", **out}
        return out

    def declare(self, r, pool, wordy, long):
        s = self.says + r.choice((".", "", "."))
        if long:
            s += r.choice((" ", "\n\n", "\n")) + describe(r, pool, r.randint(0, long))
        d = {"name": self.name, "description": s, "parameters": self.schema(r, pool, wordy)}
        x = r.random()
        if x < 0.1:
            d = {"description": s, "name": self.name, "parameters": d["parameters"]}
        elif x < 0.25:
            d["strict"] = r.random() < 0.3
        return json.dumps(d, ensure_ascii=False)


def camel(s):
    a, *b = s.split("_")
    return a + "".join(x.title() for x in b)


def invented_name(r, pool):
    s = pool.ident(r)
    x = r.random()
    if x < 0.5:
        return s
    if x < 0.65:
        return camel(s)
    if x < 0.8:
        return "".join(w.title() for w in s.split("_"))
    return f"mcp__{pool.word(r)}__{s}" if x < 0.9 else s.replace("_", "-")


def value(r, pool, t, picks, items=None):
    if t == "integer":
        return r.choice((r.randint(0, 9), r.randint(10, 9999), r.randint(1, 10**6)))
    if t == "number":
        return r.choice((r.randint(0, 99), round(r.uniform(0, 1000), r.choice((1, 2)))))
    if t == "boolean":
        return r.random() < 0.5
    if t == "enum":
        return r.choice(picks)
    if t == "array":
        if items:
            return [{i: words(r, pool, 1, 3) for i in items}]
        return [pool.word(r) for _ in range(r.randint(1, 4))]
    return r.choice((lambda: pool.word(r), lambda: words(r, pool, 2, 6), lambda: path(r, pool),
                     lambda: pool.value(r, r.choice(tasks.FIELDS)), lambda: pool.ident(r),
                     lambda: f"https://{pool.word(r)}.org/{pool.word(r)}",
                     lambda: line(r, pool).strip()))()  # fmt: skip


def call(tool, args):
    """The text of a call, parameters in the order of the schema."""
    out = f"<tool_call>\n<function={tool.name}>\n"
    for n, *_ in tool.keys:
        if n in args:
            v = args[n] if isinstance(args[n], str) else json.dumps(args[n], ensure_ascii=False)
            out += f"<parameter={n}>\n{v}\n</parameter>\n"
    return out + "</function>\n</tool_call>"


def spoken(r, v):
    s = v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)
    if isinstance(v, list) and isinstance(v[0], str) and r.random() < 0.4:
        return ", ".join(v)
    if not isinstance(v, str):
        return s
    return r.choice((s, f'"{s}"', f"`{s}`", f"'{s}'"))


def explicit(r, pool, tool):
    """A request that names tool and arguments -> text, args."""
    args = {}
    for n, t, need, picks in tool.keys:
        if need or r.random() < 0.4:
            args[n] = value(r, pool, t, picks, tool.items)
    q = r.choice((tool.name, f"`{tool.name}`", f"the tool {tool.name}", f"the {tool.name} tool",
                  f"the function {tool.name}"))  # fmt: skip
    if r.random() < 0.3:  # by what it does
        says = tool.says[0].lower() + tool.says[1:]
        q = r.choice((f'the tool for "{says}"', f"the one that is described as: {says},", f"what {says}"))
    if not args:
        return r.choice(("Call {q}.", "Please use {q}.", "Call {q} now.", "{q}, please.")).format(q=q), args
    x = r.random()
    if x < 0.2:
        a = json.dumps(args, ensure_ascii=False)
        return r.choice((f"Call {q} with {a}.", f"Call {q} with the arguments {a}", f"Use {q}: {a}")), args
    sep = r.choice(("=", "=", ": ", " = ", " set to ", " "))
    parts = [f"{n}{sep}{spoken(r, v)}" for n, v in args.items()]
    if r.random() < 0.2:
        r.shuffle(parts)
    a = ", ".join(parts) if r.random() < 0.4 else " and ".join(
        ([", ".join(parts[:-1])] if parts[1:] else []) + parts[-1:])  # fmt: skip
    return r.choice(("Call {q} with {a}.", "Use {q} with {a}.", "Call {q} with {a}", "Please call {q} with {a}.",
                     "Run {q} with {a}.", "Invoke {q} ({a}).", "I want you to call {q} with {a}.")
                    ).format(q=q, a=a), args  # fmt: skip


def natural(r, pool, tool, p=None, old=None):
    """A request in everyday words for one of the known kinds -> text, args, file or command."""
    k, keys = tool.kind, [n for n, *_ in tool.keys]
    need = [n for n, _, needed, _ in tool.keys if needed]
    of = lambda names: next(n for n in keys if n in names)
    p = p or path(r, pool)
    form = r.choice(ASK[k])
    if k == "read":
        args = {keys[0]: [{tool.items[0]: p} if tool.items else p]} if tool.keys[0][1] == "array" else {of(PATH): p}
        return form.format(p=p, n=tool.name), args, p
    if k == "write":
        v = text(r, pool, 6)
        if "`" in form and "\n" in v:
            form = "Write the following to {p}:\n\n{v}"
        return form.format(p=p, v=v, n=tool.name), {of(PATH): p, of(KEYS[k][1][0]): v}, p
    if k == "edit":
        a = old or r.choice((pool.word(r), pool.ident(r), line(r, pool).strip(), words(r, pool, 2, 4)))
        b = r.choice((pool.word(r), pool.ident(r), line(r, pool).strip(), words(r, pool, 2, 4)))
        if tool.items:
            args = {of(PATH): p, keys[1]: [dict(zip(tool.items, (a, b)))]}
        else:
            args = {of(PATH): p, of(KEYS[k][1][0]): a, of(KEYS[k][2][0]): b}
        return form.format(p=p, a=a, b=b, n=tool.name), args, (p, a, b)
    if k == "run":
        v = re.sub(r"\{(\w)\}", lambda m: path(r, pool) if m.group(1) == "p" else pool.word(r), r.choice(COMMANDS))
        many = next(t for n, t, *_ in tool.keys if n == need[0]) == "array"
        arg = r.choice((v.split(" "),)) if many else v
        return form.format(v=v, n=tool.name), {need[0]: arg}, v
    if k == "list":
        d = r.choice((pool.word(r), ".", "src", "/tmp/" + pool.word(r), pool.word(r) + "/" + pool.word(r)))
        return form.format(p=d, n=tool.name), {need[0]: d}, d
    if k == "fetch":
        v = f"https://{pool.word(r)}.{r.choice(('org', 'com', 'dev'))}/{pool.word(r)}"
    elif k == "glob":
        v = r.choice(("*", "**/*", "src/**/*", pool.word(r) + "/*", "test_*")) + "." + r.choice(EXT)
    elif k == "patch":
        v = f"*** Begin Patch\n*** Update File: {p}\n@@\n-{line(r, pool)}\n+{line(r, pool)}\n*** End Patch"
    else:
        v = r.choice((pool.word(r), pool.ident(r), r.choice(pool.small)["name"]))
    return form.format(v=v, n=tool.name), {need[0]: v}, v
