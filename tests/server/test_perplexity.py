#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`coppice perplexity` against the server: the same text, window for window, from log-probabilities of echoed prompts;
its reference files; and that neither passes nor the files change a digit of the result.
"""
import json
import math
import os
import struct
import subprocess
import tempfile

from suite import PROGRAM, ROOT, TARGET, Server, check, equal, finish, part, request

WINDOW, WINDOWS = 64, 5
folder = tempfile.TemporaryDirectory()
text = os.path.join(folder.name, "text")
reference = os.path.join(folder.name, "reference")


def perplexity(*options, source=("-f", text), model=TARGET):
    """The JSON of a run."""
    done = subprocess.run([PROGRAM, "perplexity", "-m", model, *source, "--json", *options],
                          capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def write_text():
    """The first WINDOWS windows of a text, and a few tokens more, which are not read."""
    with open(os.path.join(ROOT, "LICENSE"), encoding="utf-8") as file:
        words = file.read()[:16000]
    with open(text, "w", encoding="utf-8") as file:
        file.write(words)


def tokens():
    done = subprocess.run([PROGRAM, "tokenize", "-m", TARGET, "-f", text, "--no-special", "--json"],
                          capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)["ids"]


def echoed(server, ids):
    """Log-probabilities of the tokens of a prompt of ids, None of the first."""
    status, _, body = request(server.port, "POST", "/v1/completions",
                              {"prompt": ids, "echo": True, "logprobs": 0, "max_tokens": 0, "temperature": 0})
    if status != 200:
        raise RuntimeError(body)
    return json.loads(body)["choices"][0]["logprobs"]["token_logprobs"]


def against_server():
    """The bundled model requires no begin-of-text token, so its windows are the text itself."""
    ids = tokens()
    seen = perplexity("-c", str(WINDOW), "--windows", str(WINDOWS))
    server = Server()
    scores = []
    for i in range(WINDOWS):
        scores += echoed(server, ids[i * WINDOW:(i + 1) * WINDOW])[WINDOW // 2 + 1:]
    server.end()
    mean = -math.fsum(scores) / len(scores)
    spread = math.sqrt(math.fsum((mean + y) ** 2 for y in scores) / len(scores) / (len(scores) - 1))
    equal("as many tokens are scored", (seen["tokens"], seen["windows"], seen["window"]),
          (len(scores), WINDOWS, WINDOW))
    check("the perplexity is that of the server's log-probabilities",
          math.isclose(seen["perplexity"], math.exp(mean), rel_tol=2e-6), f"{seen['perplexity']}, {math.exp(mean)}")
    check("and so is its error", math.isclose(seen["error"], math.exp(mean) * spread, rel_tol=1e-4),
          f"{seen['error']}, {math.exp(mean) * spread}")


def begin_of_text():
    """A model that requires a begin-of-text token, which is the bundled one's end of a turn here: it stands at the beginning
    of the text, and in the place of each window's first token."""
    with open(TARGET, "rb") as file:
        content = file.read()
    add, bos = b"tokenizer.ggml.add_bos_token" + struct.pack("<I", 7), b"tokenizer.ggml.eot_token_id" + struct.pack("<I", 4)
    mark = struct.unpack_from("<I", content, content.index(bos) + len(bos))[0]
    at = content.index(add) + len(add)
    content = (content[:at] + b"\1" + content[at + 1:]).replace(bos, bos.replace(b"eot", b"bos"), 1)
    path = os.path.join(folder.name, "bos.gguf")
    with open(path, "wb") as file:
        file.write(content)
    ids, scores = [mark, *tokens()], []
    server = Server()
    for i in range(WINDOWS):
        scores += echoed(server, [mark, *ids[i * WINDOW + 1:(i + 1) * WINDOW]])[WINDOW // 2 + 1:]
    server.end()
    seen = perplexity("-c", str(WINDOW), "--windows", str(WINDOWS), "--parallel", "2", model=path)
    check("with a begin-of-text token, the server's perplexity", math.isclose(seen["nll"], -math.fsum(scores) / len(scores), rel_tol=2e-6),
          f"{seen['nll']}, {-math.fsum(scores) / len(scores)}")
    other = perplexity("-c", str(WINDOW), "--windows", str(WINDOWS))
    check("which is another one than without", abs(seen["nll"] - other["nll"]) > 1e-4, f"{seen['nll']}, {other['nll']}")


def passes():
    """How windows share passes changes nothing."""
    plain = perplexity("-c", str(WINDOW), "--windows", str(WINDOWS))
    for options in (["--parallel", "1"], ["--parallel", "3"], ["--parallel", "5", "--chunk", "160"],
                    ["--chunk", "7"], ["--parallel", "4", "--chunk", "9"], ["--threads", "1"]):
        seen = perplexity("-c", str(WINDOW), "--windows", str(WINDOWS), *options)
        equal(f"the same digits with {' '.join(options)}", (seen["nll"], seen["error"], seen["tokens"]),
              (plain["nll"], plain["error"], plain["tokens"]))


def from_ids():
    """Token ids in place of the text."""
    ids = subprocess.run([PROGRAM, "tokenize", "-m", TARGET, "-f", text], capture_output=True, text=True, check=True).stdout
    options = ["-c", str(WINDOW), "--windows", str(WINDOWS)]
    equal("the ids of a text", perplexity(*options, source=("--ids", ids.strip()))["nll"], perplexity(*options)["nll"])
    refused("ids and a text", "choose one", "--ids", "1,2,3", "-f", text)
    refused("too few ids", "'--ids' has 3 tokens, less than a window", "--ids", "1,2,3")


def row_of(content, shape, window, i):
    """Log-probabilities of a row of a reference file."""
    size, vocab, windows = shape
    units = 2 * ((vocab + 1) // 2) + 4
    at = 20 + 4 * size * windows + 2 * units * (window * (size - 1 - size // 2) + i)
    step, least = struct.unpack_from("<ff", content, at)
    return [step * code + least for code in struct.unpack_from(f"<{vocab}H", content, at + 8)]


def files():
    """The file that is written is what its format says, and a model is at no distance from itself."""
    plain = perplexity("-c", str(WINDOW), "--windows", str(WINDOWS), "--save-logits", reference)
    with open(reference, "rb") as file:
        content = file.read()
    shape = struct.unpack_from("<iii", content, 8)
    ids = tokens()[:WINDOW * WINDOWS]
    equal("a reference begins with its name, windows and vocabulary",
          (content[:8], shape[0], shape[2]), (b"_logits_", WINDOW, WINDOWS))
    equal("it holds the tokens", list(struct.unpack_from(f"<{len(ids)}i", content, 20)), ids)
    scored = WINDOW - 1 - WINDOW // 2
    equal("and nothing else than the rows", len(content),
          20 + 4 * len(ids) + 2 * (2 * ((shape[1] + 1) // 2) + 4) * scored * WINDOWS)
    scores, sums = [], []
    for window in range(WINDOWS):
        for i in range(scored):
            row = row_of(content, shape, window, i)
            scores.append(row[ids[window * WINDOW + WINDOW // 2 + 1 + i]])
            sums.append(math.fsum(map(math.exp, row)))
    check("its rows are log-probabilities", max(abs(s - 1) for s in sums) < 1e-3, max(sums))
    check("and give the same perplexity", math.isclose(-math.fsum(scores) / len(scores), plain["nll"], abs_tol=1e-4),
          f"{-math.fsum(scores) / len(scores)}, {plain['nll']}")
    again = perplexity("--kl-reference", reference, source=())
    equal("without a text its own is read", (again["nll"], again["window"]), (plain["nll"], WINDOW))
    equal("a model is at no distance from itself", (again["kl"]["mean"], again["kl"]["max"], again["same_top"]),
          (0, 0, 1))
    other = os.path.join(folder.name, "other")
    perplexity("-c", str(WINDOW), "--windows", str(WINDOWS), "--save-logits", other, "--parallel", "3", "--chunk", "50")
    with open(other, "rb") as file:
        equal("a reference does not depend on passes either", file.read(), content)


def distance():
    """Divergence from the same model with coarser keys, by the formula in Python."""
    coarse = ["--kv-type", "q8_0", "--windows", str(WINDOWS)]
    seen = perplexity("--kl-reference", reference, *coarse, source=())
    own = os.path.join(folder.name, "own")
    perplexity("-c", str(WINDOW), "--save-logits", own, *coarse)
    with open(reference, "rb") as file:
        p = file.read()
    with open(own, "rb") as file:
        q = file.read()
    shape = struct.unpack_from("<iii", p, 8)
    values, same = [], 0
    for window in range(WINDOWS):
        for i in range(WINDOW - 1 - WINDOW // 2):
            a, b = row_of(p, shape, window, i), row_of(q, shape, window, i)
            values.append(math.fsum(math.exp(x) * (x - y) for x, y in zip(a, b)))
            same += a.index(max(a)) == b.index(max(b))
    mean = math.fsum(values) / len(values)
    check("coarser keys are at some distance", seen["kl"]["mean"] > 1e-6, seen["kl"])
    check("the mean divergence", abs(seen["kl"]["mean"] - mean) < 3e-5, f"{seen['kl']['mean']}, {mean}")
    check("the largest divergence", abs(seen["kl"]["max"] - max(values)) < 3e-4, f"{seen['kl']['max']}, {max(values)}")
    check("the same likeliest tokens", abs(seen["same_top"] - same / len(values)) < 0.02,
          f"{seen['same_top']}, {same / len(values)}")


def refused(name, words, *options):
    done = subprocess.run([PROGRAM, "perplexity", "-m", TARGET, *options], capture_output=True, text=True,
                          timeout=120, stdin=subprocess.DEVNULL)
    check(name, done.returncode in (1, 2) and words in done.stderr and done.stderr.count("\n") == 1 and not done.stdout,
          f"{done.returncode} {done.stderr!r}")


def bad_input():
    def changed(name, edit):
        with open(reference, "rb") as file:
            content = bytearray(file.read())
        path = os.path.join(folder.name, name)
        with open(path, "wb") as file:
            file.write(edit(content))
        return path

    def put(content, at, form, value):
        struct.pack_into(form, content, at, value)
        return content

    empty, short = os.path.join(folder.name, "empty"), os.path.join(folder.name, "short")
    for path, words in ((empty, ""), (short, "a few words")):
        with open(path, "w", encoding="utf-8") as file:
            file.write(words)
    refused("no text", "-f", "--windows", "1")
    refused("an empty file", "holds no text", "-f", empty)
    refused("a file shorter than a window", "less than a window of 512", "-f", short)
    refused("no reference", "--save-logits", "--kl-reference", text)
    refused("a reference that is cut", "is cut", "--kl-reference", changed("cut", lambda c: c[:-1]))
    refused("a reference that ends in its head", "--save-logits", "--kl-reference", changed("head", lambda c: c[:15]))
    refused("a reference of another vocabulary", "the same vocabulary", "--kl-reference",
            changed("vocabulary", lambda c: put(c, 12, "<i", struct.unpack_from("<i", c, 12)[0] - 2)))
    refused("impossible numbers", "no reference", "--kl-reference", changed("numbers", lambda c: put(c, 16, "<i", -1)))
    refused("more windows than there are", "is cut", "--kl-reference",
            changed("windows", lambda c: put(c, 16, "<i", 2**31 - 1)))
    refused("a token outside the vocabulary", "token 3 is", "--kl-reference",
            changed("token", lambda c: put(c, 32, "<i", 2**30)))
    refused("rows that are no log-probabilities", "row 0 of window 0", "--kl-reference",
            changed("rows", lambda c: put(c, 20 + 4 * WINDOW * WINDOWS, "<f", math.nan)))
    refused("rows above all probabilities", "row 0 of window 0", "--kl-reference",
            changed("large", lambda c: put(c, 20 + 4 * WINDOW * WINDOWS, "<f", 3e38)))
    refused("windows of another size", "leave out -c", "--kl-reference", reference, "-c", "128")
    refused("another text", "of another text", "--kl-reference", reference, "-f", __file__)
    refused("both directions", "choose one", "--kl-reference", reference, "--save-logits", empty)
    refused("a folder that is not there", "nowhere", "-f", text, "-c", "64", "--save-logits",
            os.path.join(folder.name, "nowhere", "file"))
    refused("what is read stays", "is read and cannot be written over", "-f", text, "--save-logits", text)


write_text()
for function in (against_server, begin_of_text, passes, from_ids, files, distance, bad_input):
    part(function)
folder.cleanup()
finish()
