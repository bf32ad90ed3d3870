#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lm-evaluation-harness (PyPI lm_eval, its model local-completions) on a task of multiple choice and one of answers, from
files made here: scores, log-probabilities and texts are the same with guesses and without, alone and in a crowd.
"""
import glob
import json
import os
import random
import threading

from harness import Server, check, equal, finish, part, program, request

import subprocess
import tempfile

LM_EVAL = program("venv/bin/lm_eval")
folder = tempfile.TemporaryDirectory()
QUESTIONS = 40
CHOICE = """task: coppice_choice
dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}\\nAnswer:"
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list:
  - metric: acc
  - metric: acc_norm
"""
ANSWER = """task: coppice_answer
dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}\\nAnswer:"
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 48, temperature: 0}
metric_list:
  - metric: exact_match
"""


def write_tasks():
    rng = random.Random(36)
    words = "heron river seven stone lantern garden winter copper violin harbour".split()
    data = os.path.join(folder.name, "questions.jsonl")
    with open(data, "w", encoding="utf-8") as file:
        for i in range(QUESTIONS):
            a, b = rng.randrange(2, 50), rng.randrange(2, 50)
            right = rng.randrange(4)
            choices = [f"{a + b + (k - right) * 3} {rng.choice(words)}s" for k in range(4)]
            question = f"{rng.choice(words).title()} number {i}: {a} and {b} " + " ".join(rng.choices(words, k=rng.randrange(60)))
            file.write(json.dumps({"question": question, "choices": choices, "answer": right}) + "\n")
    for name, text in (("choice", CHOICE), ("answer", ANSWER)):
        with open(os.path.join(folder.name, f"{name}.yaml"), "w", encoding="utf-8") as file:
            file.write(text % json.dumps(data))


def evaluate(name, server, concurrent):
    """The metrics of both tasks, and each answer of the server as lm_eval keeps it."""
    out = os.path.join(folder.name, name)
    arguments = f"model=coppice,base_url=http://127.0.0.1:{server.port}/v1/completions,num_concurrent={concurrent}"
    done = subprocess.run(
        [LM_EVAL, "run", "--model", "local-completions", "--model_args", arguments, "--tasks", "coppice_choice,coppice_answer",
         "--include_path", folder.name, "--output_path", out, "--log_samples"], check=False, capture_output=True, text=True, timeout=900,
        env={"PATH": os.environ["PATH"], "HOME": folder.name, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"})
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    with open(glob.glob(f"{out}/**/results_*.json", recursive=True)[0], encoding="utf-8") as file:
        results = json.load(file)["results"]
    samples = {}
    for path in glob.glob(f"{out}/**/samples_*.jsonl", recursive=True):
        with open(path, encoding="utf-8") as file:
            for line in map(json.loads, file):
                samples[os.path.basename(path).split("_20")[0], line["doc_id"]] = line["resps"]
    metrics = {(task, key): value for task, row in results.items() for key, value in row.items() if isinstance(value, float)}
    return metrics, samples


def talk(server, ended):
    """Other requests until the end: the crowd."""
    rng = random.Random(threading.get_ident())
    while not ended.is_set():
        request(server.port, "POST", "/v1/completions", {"prompt": f"Tell me of {rng.random()}", "max_tokens": 40, "temperature": 1,
                                                         "ignore_eos": True})


def scores():
    plain = Server("--speculate", "off", draft=False)
    metrics, samples = evaluate("plain", plain, 1)
    plain.end()
    equal("each question has its answers", len(samples), 2 * QUESTIONS)
    probabilities = [float(one[0]) for key, resps in samples.items() if key[0].endswith("choice") for resp in resps for one in resp]
    check("choices have log-probabilities of their own", len(set(probabilities)) > QUESTIONS and max(probabilities) < 0,
          probabilities[:4])
    check("there are scores", ("coppice_choice", "acc,none") in metrics, metrics)
    print("note    ", {f"{task} {key}": value for (task, key), value in metrics.items()})
    guessing = Server("--budget", "8", "--min-prob", "0")  # as many as pay may be none
    equal("the same scores with guesses", evaluate("guessing", guessing, 1), (metrics, samples))
    ended = threading.Event()
    crowd = [threading.Thread(target=talk, args=(guessing, ended)) for _ in range(3)]
    for thread in crowd:
        thread.start()
    try:
        seen = evaluate("crowd", guessing, 8)
    finally:
        ended.set()
        for thread in crowd:
            thread.join()
    equal("the same scores in a crowd", seen, (metrics, samples))
    check("there were guesses", guessing.metric("coppice_drafted_tokens_total") > 0)
    guessing.end()


write_tasks()
part(scores)
folder.cleanup()
finish()
