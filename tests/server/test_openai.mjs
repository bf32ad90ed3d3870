// SPDX-License-Identifier: Apache-2.0
// The official OpenAI SDK for JavaScript and the AI SDK's openai-compatible provider, as their users
// call them. Usage: node test_openai.mjs URL KEYED-URL, servers without a key and with the key "k1".
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
import OpenAI from "openai";

import { calm, check, equal, keyed, run, url } from "./suite.mjs";

const messages = [
  { role: "system", content: "Answer in few words." },
  { role: "user", content: "Say hello." },
];

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "x", maxRetries: 0 });

async function chat() {
  const r = await client.chat.completions.create({ model: "m", messages, max_tokens: 24, seed: 3 });
  equal("js chat: object", [r.object, r.model, r.choices[0].message.role], ["chat.completion", "m", "assistant"]);
  check("js chat: usage", r.usage.total_tokens === r.usage.prompt_tokens + r.usage.completion_tokens, r.usage);
  let text = "";
  const stream = await client.chat.completions.create({
    model: "m", messages, max_tokens: 24, seed: 3, stream: true, stream_options: { include_usage: true },
  });
  let usage, finish;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  equal("js chat: streamed the same", [text, finish, usage.completion_tokens],
    [r.choices[0].message.content, r.choices[0].finish_reason, r.usage.completion_tokens]);
  const helper = client.chat.completions.stream({ model: "m", messages, max_tokens: 24, seed: 3 });
  let deltas = "";
  helper.on("content", (delta) => (deltas += delta));
  const final = await helper.finalChatCompletion();
  equal("js stream helper: the whole", final.choices[0].message.content, r.choices[0].message.content);
  equal("js stream helper: its deltas", deltas, r.choices[0].message.content);
}

async function completions() {
  const r = await client.completions.create({
    model: "m", prompt: "def add(a, b):", max_tokens: 12, temperature: 0, n: 2, logprobs: 2,
  });
  equal("js completions: two alike", r.choices[0].text, r.choices[1].text);
  check("js completions: logprobs", r.choices[0].logprobs.tokens.join("").startsWith(r.choices[0].text), r.choices[0]);
  const word = r.choices[0].text.slice(4, 7);
  const cut = await client.completions.create({
    model: "m", prompt: "def add(a, b):", max_tokens: 12, temperature: 0, stop: word,
  });
  equal("js completions: stop", [cut.choices[0].text, cut.choices[0].finish_reason],
    [r.choices[0].text.slice(0, r.choices[0].text.indexOf(word)), "stop"]);
}

async function models() {
  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  equal("js models: one", ids.length, 1);
  equal("js models: by its name", (await client.models.retrieve(ids[0])).id, ids[0]);
}

async function errors() {
  for (const [kind, field, body] of [
    [OpenAI.BadRequestError, "temperature", { temperature: 1000 }],
    [OpenAI.BadRequestError, "messages[0].content", { messages: [{ role: "user", content: 5 }] }],
  ]) {
    const error = await client.chat.completions.create({ model: "m", messages, max_tokens: 1, ...body }).catch((e) => e);
    check(`js errors: ${field}`, error instanceof kind && error.param === field, error);
  }
  const bad = await new OpenAI({ baseURL: `${keyed}/v1`, apiKey: "no", maxRetries: 0 }).models.list().catch((e) => e);
  check("js errors: a wrong key", bad instanceof OpenAI.AuthenticationError, bad);
  const good = await new OpenAI({ baseURL: `${keyed}/v1`, apiKey: "k1" }).models.list();
  equal("js: the right key", good.data.length, 1);
}

async function aborts() {
  const long = { model: "m", prompt: "x", max_tokens: 3000, ignore_eos: true };
  const stream = await client.completions.create({ ...long, stream: true });
  for await (const chunk of stream) {
    if (chunk.choices[0].text) break; // leaves the loop: the SDK aborts
  }
  check("js abort of a stream: the slot is free", await calm());
  const controller = new AbortController();
  const pending = client.completions.create(long, { signal: controller.signal }).catch((e) => e);
  setTimeout(() => controller.abort(), 100);
  check("js abort of a plain request: raised", (await pending) instanceof OpenAI.APIUserAbortError);
  check("js abort of a plain request: the slot is free", await calm());
  const prompt = { ...long, prompt: "word ".repeat(1500) };
  const reading = client.completions.create(prompt, { timeout: 30 }).catch((e) => e);
  check("js timeout while the prompt is read: raised", (await reading) instanceof OpenAI.APIConnectionTimeoutError);
  check("js timeout while the prompt is read: the slot is free", await calm());
}

async function aiSdk() {
  const provider = createOpenAICompatible({ name: "coppice", baseURL: `${url}/v1`, apiKey: "x", includeUsage: true });
  const settings = { model: provider("m"), temperature: 0, maxOutputTokens: 20, seed: 1, maxRetries: 0 };
  const whole = await generateText({ ...settings, system: "Be brief.", prompt: "Hello" });
  check("ai sdk: generateText", typeof whole.text === "string" && ["stop", "length"].includes(whole.finishReason), whole);
  check("ai sdk: usage", whole.usage.inputTokens > 0 && whole.usage.outputTokens > 0, whole.usage);
  const stream = streamText({ ...settings, system: "Be brief.", prompt: "Hello" });
  let text = "";
  for await (const piece of stream.textStream) text += piece;
  equal("ai sdk: streamText the same", [text, await stream.finishReason], [whole.text, whole.finishReason]);
  equal("ai sdk: usage of the stream", (await stream.usage).outputTokens, whole.usage.outputTokens);
  const turns = await generateText({
    ...settings,
    messages: [
      { role: "user", content: "Hi" },
      { role: "assistant", content: [{ type: "text", text: "Hello" }] },
      { role: "user", content: [{ type: "text", text: "Bye" }] },
    ],
  });
  check("ai sdk: several turns", turns.usage.outputTokens > 0, turns.usage);
  const controller = new AbortController();
  const long = streamText({ ...settings, maxOutputTokens: 3000, prompt: "x", abortSignal: controller.signal,
    onError() {} });
  for await (const _ of long.textStream) {
    controller.abort();
    break;
  }
  check("ai sdk: abort frees the slot", await calm());
  const failed = await generateText({ ...settings, temperature: 1000, prompt: "x" }).catch((e) => e);
  check("ai sdk: a refusal is told", failed.statusCode === 400 && /temperature/.test(failed.message), String(failed));
}

await run(chat, completions, models, errors, aborts, aiSdk);
