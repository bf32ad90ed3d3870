// SPDX-License-Identifier: Apache-2.0
// The JavaScript SDKs: openai, @anthropic-ai/sdk, the AI SDK and, where it is installed, LangChain. Each reads and changes a
// file by calls of the model, goes on from the cache, and is aborted.
// Usage: node test_sdk.mjs URL FILE TEXT-OF-FILE
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { readFileSync, writeFileSync } from "node:fs";
import OpenAI from "openai";

import { calm, check, equal, run, url } from "./suite.mjs";

const [file, note] = process.argv.slice(3);
const system = "You are a coding agent. " + "Use the tools to read and change files, and say shortly what you did. ".repeat(4);
const ask = "Read notes.txt, then edit it.";
const path = { type: "string", enum: ["notes.txt"] };
const tools = {
  read: { description: "Reads a file.", properties: { path } },
  edit: {
    description: "Puts one word for another in a file.",
    properties: { path, old: { type: "string", enum: ["heron"] }, new: { type: "string", enum: ["egret"] } },
  },
};
for (const t of Object.values(tools)) {
  t.schema = { type: "object", properties: t.properties, required: Object.keys(t.properties), additionalProperties: false };
}

function carryOut(name, input) {
  if (input.path !== "notes.txt") throw new Error(`path ${input.path}`);
  const text = readFileSync(file, "utf8");
  if (name === "read") return text;
  writeFileSync(file, text.replace(input.old, input.new));
  return "done";
}

// A conversation of two calls and an answer; step(tool or undefined) adds a turn and gives { calls: [[tool, result]], text,
// prompt, cached }.
async function turns(kind, step) {
  writeFileSync(file, note);
  const done = [];
  let before = 0;
  for (const name of ["read", "edit", undefined]) {
    const { calls, text, prompt, cached } = await step(name);
    if (name) equal(`${kind}: it calls ${name}`, calls.map((call) => call[0]), [name]);
    else check(`${kind}: it ends with words`, text && calls.length === 0, { calls, text });
    done.push(...calls.map((call) => call[1]));
    if (before) check(`${kind}: what was read before comes from the cache`, before - 32 <= cached && cached < prompt, { before, cached });
    before = prompt;
  }
  equal(`${kind}: what the tools did`, [done, readFileSync(file, "utf8")], [[note, "done"], note.replace("heron", "egret")]);
}

const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
const anthropic = new Anthropic({ baseURL: url, apiKey: "none" });

async function chatCompletions() {
  const messages = [{ role: "system", content: system }, { role: "user", content: ask }];
  const declared = Object.entries(tools).map(([name, t]) =>
    ({ type: "function", function: { name, description: t.description, parameters: t.schema } }));
  await turns("chat completions", async (name) => {
    const stream = openai.chat.completions.stream({
      model: "m", messages, tools: declared, max_tokens: 200, stream_options: { include_usage: true },
      tool_choice: name ? { type: "function", function: { name } } : "auto",
    });
    const { choices: [{ message }], usage } = await stream.finalChatCompletion();
    messages.push(message);
    const calls = (message.tool_calls ?? []).map((call) => {
      const result = carryOut(call.function.name, JSON.parse(call.function.arguments));
      messages.push({ role: "tool", tool_call_id: call.id, content: result });
      return [call.function.name, result];
    });
    return { calls, text: message.content, prompt: usage.prompt_tokens, cached: usage.prompt_tokens_details.cached_tokens };
  });
}

async function responses() {
  const input = [{ role: "user", content: ask }];
  const declared = Object.entries(tools).map(([name, t]) =>
    ({ type: "function", name, description: t.description, parameters: t.schema, strict: true }));
  await turns("responses", async (name) => {
    const stream = openai.responses.stream({
      model: "m", instructions: system, input, tools: declared, max_output_tokens: 200, store: false,
      tool_choice: name ? { type: "function", name } : "auto",
    });
    let answer;
    for await (const event of stream) answer = event.response ?? answer;
    const calls = [];
    for (const item of answer.output) {
      input.push(item);
      if (item.type !== "function_call") continue;
      const result = carryOut(item.name, JSON.parse(item.arguments));
      calls.push([item.name, result]);
      input.push({ type: "function_call_output", call_id: item.call_id, output: result });
    }
    const text = answer.output.flatMap((item) => item.content ?? []).map((part) => part.text).join("");
    return { calls, text, prompt: answer.usage.input_tokens, cached: answer.usage.input_tokens_details.cached_tokens };
  });
}

async function messagesApi() {
  const messages = [{ role: "user", content: ask }];
  const declared = Object.entries(tools).map(([name, t]) => ({ name, description: t.description, input_schema: t.schema }));
  await turns("messages", async (name) => {
    const stream = anthropic.messages.stream({
      model: "m", system, messages, tools: declared, max_tokens: 200,
      tool_choice: name ? { type: "tool", name } : { type: "auto" },
    });
    const { content, usage } = await stream.finalMessage();
    messages.push({ role: "assistant", content });
    const uses = content.filter((block) => block.type === "tool_use");
    const calls = uses.map((block) => [block.name, carryOut(block.name, block.input)]);
    if (calls.length) {
      messages.push({ role: "user",
        content: uses.map((block, i) => ({ type: "tool_result", tool_use_id: block.id, content: calls[i][1] })) });
    }
    const text = content.filter((block) => block.type === "text").map((block) => block.text).join("");
    const cached = usage.cache_read_input_tokens;
    return { calls, text, prompt: usage.input_tokens + cached, cached };
  });
}

// The AI SDK's own loop over steps, with both providers, whole and streamed.
async function aiSdk() {
  const models = {
    "openai-compatible": createOpenAICompatible({ name: "coppice", baseURL: `${url}/v1`, apiKey: "none", includeUsage: true })("m"),
    anthropic: createAnthropic({ baseURL: `${url}/v1`, apiKey: "none" })("m"),
  };
  for (const [provider, model] of Object.entries(models)) {
    for (const streamed of [false, true]) {
      const kind = `ai sdk, ${provider}${streamed ? ", streamed" : ""}`;
      const done = [];
      writeFileSync(file, note);
      const settings = {
        model, system, prompt: ask, maxOutputTokens: 200, stopWhen: stepCountIs(3),
        tools: Object.fromEntries(Object.entries(tools).map(([name, t]) => [name, tool({
          description: t.description, inputSchema: jsonSchema(t.schema),
          execute: async (input) => { done.push(carryOut(name, input)); return done.at(-1); },
        })])),
        prepareStep: ({ stepNumber }) =>
          ({ toolChoice: [{ type: "tool", toolName: "read" }, { type: "tool", toolName: "edit" }][stepNumber] ?? "auto" }),
      };
      const answer = streamed ? streamText(settings) : await generateText(settings);
      const steps = await answer.steps;
      equal(`${kind}: calls`, steps.map((step) => step.toolCalls.map((call) => call.toolName)), [["read"], ["edit"], []]);
      check(`${kind}: it ends with words`, await answer.text);
      equal(`${kind}: what the tools did`, [done, readFileSync(file, "utf8")], [[note, "done"], note.replace("heron", "egret")]);
      const usages = steps.map((step) => step.usage);
      const cached = usages.map((usage) => usage.cachedInputTokens ?? usage.inputTokenDetails?.cacheReadTokens ?? 0);
      for (const i of [1, 2]) {
        check(`${kind}: what was read before comes from the cache`, cached[i] >= 128, { usages, cached });
      }
    }
    const controller = new AbortController();
    const reading = generateText({ model, prompt: "word ".repeat(20000), maxRetries: 0, abortSignal: controller.signal })
      .catch((error) => error);
    setTimeout(() => controller.abort(), 700);
    const error = await reading;
    check(`ai sdk, ${provider}: an abort while the prompt is read`, error.name === "AbortError", String(error));
    check(`ai sdk, ${provider}: the slot is free`, await calm());
  }
}

async function aborts() {
  const long = [{ role: "user", content: "word ".repeat(20000) }];
  const requests = {
    "chat completions": (signal) => openai.chat.completions.create({ model: "m", messages: long }, { signal }),
    responses: (signal) => openai.responses.create({ model: "m", input: long }, { signal }),
    messages: (signal) => anthropic.messages.create({ model: "m", max_tokens: 10, messages: long }, { signal }),
  };
  for (const [kind, send] of Object.entries(requests)) {
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 700);
    const error = await send(controller.signal).catch((e) => e);
    check(`${kind}: an abort while the prompt is read`, error instanceof (kind === "messages" ? Anthropic : OpenAI).APIUserAbortError,
      String(error));
    check(`${kind}: the slot is free`, await calm());
  }
}

async function langchain() {
  const [{ ChatOpenAI }, { ChatAnthropic }, { HumanMessage, SystemMessage, ToolMessage }] = await Promise.all([
    import("@langchain/openai"), import("@langchain/anthropic"), import("@langchain/core/messages"),
  ]);
  const models = {
    ChatOpenAI: new ChatOpenAI({ model: "m", maxTokens: 200, apiKey: "none", configuration: { baseURL: `${url}/v1` } }),
    ChatAnthropic: new ChatAnthropic({ model: "m", maxTokens: 200, apiKey: "none", anthropicApiUrl: url }),
  };
  const declared = Object.entries(tools).map(([name, t]) =>
    ({ type: "function", function: { name, description: t.description, parameters: t.schema } }));
  for (const [kind, model] of Object.entries(models)) {
    const messages = [new SystemMessage(system), new HumanMessage(ask)];
    await turns(`LangChain ${kind}`, async (name) => {
      const answer = await model.bindTools(declared, { tool_choice: name ?? "auto" }).invoke(messages);
      messages.push(answer);
      const calls = answer.tool_calls.map((call) => {
        const result = carryOut(call.name, call.args);
        messages.push(new ToolMessage({ content: result, tool_call_id: call.id }));
        return [call.name, result];
      });
      const usage = answer.usage_metadata;
      return { calls, text: answer.text, prompt: usage.input_tokens, cached: usage.input_token_details.cache_read };
    });
  }
}

const parts = [chatCompletions, responses, messagesApi, aiSdk, aborts];
try {
  import.meta.resolve("@langchain/openai");
  parts.push(langchain);
} catch {
  console.log("note     LangChain is not installed beside these");
}
await run(...parts);
