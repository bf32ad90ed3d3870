#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records plain replies of a chat model, for tests/unit/test_budget_lookup.c and bench/lookup.py.

    tests/budget/record_replies.py PROGRAM MODEL.gguf [--template chatml|gemma] >RECORD

Twelve questions at temperature 0.8 with two seeds and at 0, three texts to repeat and three to edit at 0, at most 256
tokens each. A text is a line "ID TEMPERATURE/SEED PROMPT REPLY" with its numbers of tokens, and one with their ids.
tests/fixtures/lookup/smollm2.txt is of SmolLM2-135M-Instruct, Q4_1 (Apache-2.0), on two cores of an Intel Xeon with
AVX-512; another CPU's kernels may choose other tokens.
"""
import argparse
import json
import subprocess
import tempfile

QUESTIONS = [
    "What is the capital of France and why is it famous?", "Give me three tips to sleep better.",
    "Explain how rainbows form to a ten year old.", "Write a short poem about the sea in autumn.",
    "What is the difference between a list and a tuple in Python?", "How do I cook rice without a rice cooker?",
    "Tell me a short story about a robot who learns to paint.", "What are the main causes of the First World War?",
    "Suggest a name for a small bakery and explain the choice.", "How does a refrigerator work?",
    "Write an email to my landlord asking to repair the heating.",
    "List five healthy breakfasts with one sentence each."]
TEXT = (
    "The town council met on Tuesday evening to discuss the new library. Mrs. Harrow said that the old building is "
    "too small and that the roof leaks when it rains. Mr. Bell answered that repairs would cost less than a new "
    "building. The council decided to ask two architects for plans, and to vote on them in March. Until then the "
    "library stays open from ten to six, and the reading room closes at five.")
CODE = """```python
def total(values):
    result = 0
    for value in values:
        if value is None:
            continue
        result = result + value
    return result

def mean(values):
    count = 0
    for value in values:
        if value is None:
            continue
        count = count + 1
    if count == 0:
        return 0
    return total(values) / count
```"""
WRONG = TEXT.replace("discuss", "discus").replace("answered", "anserd")
REPEAT = [f"Repeat the following text exactly, word for word:\n\n{TEXT}", f"Copy this code exactly:\n\n{CODE}",
          f"Correct the spelling in this text and repeat all of it:\n\n{WRONG}"]
EDIT = [f"Rename the variable result to sum_of_values in this code and show the whole code:\n\n{CODE}",
        f"Rewrite this text in the future tense:\n\n{TEXT}",
        f"Add a docstring to each function and show the whole code:\n\n{CODE}"]
RUNS = [("chat", QUESTIONS, "0.8", 1), ("chat", QUESTIONS, "0.8", 2), ("chat", QUESTIONS, "0", 1),
        ("rew", REPEAT, "0", 1), ("edit", EDIT, "0", 1)]
TEMPLATES = {
    "chatml": "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
              "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
    "gemma": "<start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n"}


def answer(program, model, prompt, temperature, seed):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write(prompt)
        f.flush()
        out = subprocess.run([program, "generate", "-m", model, "-f", f.name, "-n", "256", "--temp", temperature,
                              "--seed", str(seed), "--speculate", "off", "--json"], check=True, capture_output=True,
                             text=True).stdout
    return json.loads(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--template", choices=sorted(TEMPLATES), default="chatml")
    a = parser.parse_args()
    for group, prompts, temperature, seed in RUNS:
        for i, prompt in enumerate(prompts):
            got = answer(a.program, a.model, TEMPLATES[a.template].format(prompt), temperature, seed)
            print(f"{group}-{i + 1:02d} {temperature}/{seed} {len(got['prompt_ids'])} {len(got['ids'])}")
            print(*got["prompt_ids"], *got["ids"], flush=True)


if __name__ == "__main__":
    main()
