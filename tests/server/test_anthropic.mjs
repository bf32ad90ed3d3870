// SPDX-License-Identifier: Apache-2.0
// The official Anthropic SDK for JavaScript and the AI SDK's provider for Anthropic, as their users
// call them. Usage: node test_anthropic.mjs URL KEYED-URL, servers without a key and with the key "k1".
import { createAnthropic } from "@ai-sdk/anthropic";
import Anthropic from "@anthropic-ai/sdk";
import { generateText, streamText } from "ai";

import { calm, check, equal, keyed, run, url } from "./suite.mjs";

const messages = [{ role: "user", content: "Say hello." }];
const ask = { model: "m", max_tokens: 24, system: "Be brief.", messages };

const client = new Anthropic({ baseURL: url, apiKey: "x", maxRetries: 0 });

async function message() {
  const whole = await client.messages.create({ ...ask, temperature: 0 });
  equal("js message: what it is", [whole.type, whole.role, whole.model], ["message", "assistant", "m"]);
  const stream = client.messages.stream({ ...ask, temperature: 0 });
  let text = "";
  stream.on("text", (delta) => (text += delta));
  const final = await stream.finalMessage();
  equal("js stream: the text of the whole message", text, whole.content[0].text);
  equal("js stream: put together", final.content[0].text, whole.content[0].text);
  equal("js stream: its end", final.stop_reason, whole.stop_reason);
  equal("js stream: usage", final.usage.output_tokens, whole.usage.output_tokens);
  const { input_tokens: n } = await client.messages.countTokens({ model: "m", system: ask.system, messages });
  equal("js count_tokens", n, whole.usage.input_tokens + whole.usage.cache_read_input_tokens);
  const word = text.slice(2, 5);
  const stopped = await client.messages.create({ ...ask, temperature: 0, stop_sequences: [word] });
  equal("js stop", [stopped.stop_reason, stopped.stop_sequence], ["stop_sequence", word]);
  const models = [];
  for await (const model of client.models.list()) models.push(model.type);
  equal("js models", models, ["model"]);
}

async function errors() {
  try {
    await client.messages.create({ ...ask, temperature: 1000 });
    check("js errors: bad request", false);
  } catch (error) {
    check("js errors: bad request", error instanceof Anthropic.BadRequestError
      && error.error.error.type === "invalid_request_error" && error.requestID, error.error);
  }
  for (const [key, status] of [["wrong", 401], ["k1", 200]]) {
    const other = new Anthropic({ baseURL: keyed, apiKey: key, maxRetries: 0 });
    const seen = await other.messages.create({ ...ask, max_tokens: 1 }).then(() => 200, (error) => error.status);
    equal(`js key ${key}`, seen, status);
  }
}

async function aborts() {
  for (const stream of [true, false]) {
    const controller = new AbortController();
    const long = { ...ask, max_tokens: 3000, ignore_eos: true, stream };
    try {
      const running = client.messages.create(long, { signal: controller.signal });
      if (!stream) setTimeout(() => controller.abort(), 50);
      const answer = await running;
      let n = 0;
      for await (const event of answer) if (event && ++n === 5) controller.abort();
    } catch (error) {
      check("js abort: as the SDK says it", error instanceof Anthropic.APIUserAbortError, String(error));
    }
    check(`js abort, streamed ${stream}: the slot is free again`, await calm());
  }
}

async function provider() {
  const model = createAnthropic({ baseURL: `${url}/v1`, apiKey: "x" })("m");
  const prompt = { model, system: ask.system, messages, maxOutputTokens: 24, temperature: 0 };
  const whole = await generateText(prompt);
  check("ai sdk: text", typeof whole.text === "string" && whole.usage.outputTokens > 0, whole.usage);
  const stream = streamText(prompt);
  let text = "";
  for await (const delta of stream.textStream) text += delta;
  equal("ai sdk: streamed the same", text, whole.text);
  equal("ai sdk: its end", await stream.finishReason, whole.finishReason);
}

await run(message, errors, aborts, provider);
