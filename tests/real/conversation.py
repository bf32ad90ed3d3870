# SPDX-License-Identifier: Apache-2.0
"""A conversation with a published file through `serve`, by the official SDKs of OpenAI and Anthropic for Python: turns
streamed and not, a call of a tool, an answer by a JSON schema; the same texts with guesses by lookup and without.
"""
import json

import anthropic
import openai

from suite import Server, check, equal

TURNS = ["What is the capital of France?", "Write the names of four animals, one a line.",
         "Repeat your last answer word for word, twice."]
SYSTEM = "You are a helpful assistant."
NAME = "get_weather"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 40}}, "required": ["city"],
              "additionalProperties": False}
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}
ENDS = (0, 2)  # <|endoftext|>, <|im_end|>
COMMON = {"model": "m", "temperature": 0}
THEIRS = {"model": "m", "extra_body": {"temperature": 0}}  # a field that the newest SDK of Anthropic lacks


class Talk:
    """Both clients of one server; the texts of all answers, in order."""

    def __init__(self, server, how):
        self.how, self.texts, self.guessed = how, [], 0
        self.openai = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", timeout=120, max_retries=0)
        self.anthropic = anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="none", timeout=120,
                                             max_retries=0)

    def chat(self, messages, **more):
        seen = self.openai.chat.completions.create(messages=messages, max_tokens=48, **COMMON, **more)
        self.guessed += seen.usage.completion_tokens_details.accepted_prediction_tokens
        return seen.choices[0].message

    def turns(self):
        messages = [{"role": "system", "content": SYSTEM}]
        first = []
        for i, text in enumerate(TURNS):
            messages.append({"role": "user", "content": text})
            whole = self.chat(messages).content
            chunks = self.openai.chat.completions.create(messages=messages, max_tokens=48, stream=True, **COMMON)
            streamed = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
            equal(f"{self.how}: openai, turn {i + 1} streamed", streamed, whole)
            turn = {"messages": messages[1:], "system": SYSTEM, "max_tokens": 48, **THEIRS}
            other = self.anthropic.messages.create(**turn)
            with self.anthropic.messages.stream(**turn) as stream:
                parts = "".join(stream.text_stream)
            equal(f"{self.how}: anthropic, turn {i + 1}, and streamed", (other.content[0].text, parts), (whole, whole))
            messages.append({"role": "assistant", "content": whole})
            first.append(whole)
        check(f"{self.how}: answers are words", all(len(text.split()) > 3 for text in first) and "Paris" in first[0], first)
        self.texts += first

    def tools(self):
        messages = [{"role": "user", "content": "What is the weather in Paris?"}]
        tool = {"type": "function", "function": {"name": NAME, "description": "The weather of a city.",
                                                 "parameters": PARAMETERS}}
        answer = self.chat(messages, tools=[tool], tool_choice={"type": "function", "function": {"name": NAME}})
        call = answer.tool_calls[0]
        city = json.loads(call.function.arguments)
        check(f"{self.how}: openai, a call", call.function.name == NAME and list(city) == ["city"], answer)
        messages += [{"role": "assistant", "tool_calls": [call.model_dump()], "content": None},
                     {"role": "tool", "tool_call_id": call.id, "content": "12 degrees, rain"}]
        end = self.chat(messages, tools=[tool], tool_choice="none").content
        check(f"{self.how}: openai, its result is read", end.strip() != "", end)
        seen = self.anthropic.messages.create(messages=messages[:1], max_tokens=48, tool_choice={"type": "any"}, tools=[
            {"name": NAME, "description": "The weather of a city.", "input_schema": PARAMETERS}], **THEIRS)
        use = seen.content[-1]
        equal(f"{self.how}: anthropic, the same call", (use.type, use.name, use.input), ("tool_use", NAME, city))
        self.texts += [call.function.arguments, end]

    def schema(self):
        answer = self.chat([{"role": "user", "content": "Anna is 31 years old. Who is it?"}], response_format={
            "type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}).content
        person = json.loads(answer)
        check(f"{self.how}: by a schema", set(person) == {"name", "age"} and isinstance(person["age"], int), answer)
        self.texts.append(answer)

    def continuations(self, cases):
        """cases: of ids with those that follow by float32, none of which a rounding changes; up to the end of a text."""
        for case in cases:
            words = case["next"][:next((i for i, t in enumerate(case["next"]) if t in ENDS), None)]
            text = self.openai.post("/detokenize", body={"tokens": words}, cast_to=object)["content"]
            seen = self.openai.completions.create(prompt=case["ids"], max_tokens=len(case["next"]), **COMMON)
            equal(f"{self.how}: the continuation of float32", seen.choices[0].text, text)


def hold(model, cases):
    talks = []
    for how in ("off", "lookup"):
        server = Server("--speculate", how, "--budget", "8", model=model, draft=False)  # auto follows measured times
        talk = Talk(server, how)
        talk.turns()
        talk.tools()
        talk.schema()
        talk.continuations(cases)
        server.end()
        talks.append(talk)
    equal("lookup: the texts of plain decoding", talks[1].texts, talks[0].texts)
    equal("off: no token was guessed", talks[0].guessed, 0)
    check("lookup: tokens were guessed", talks[1].guessed > 8, talks[1].guessed)
