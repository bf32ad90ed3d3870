// SPDX-License-Identifier: Apache-2.0
// The Responses interface through the official OpenAI SDK for JavaScript, as its users call it.
// Usage: node test_responses.mjs URL KEYED-URL, servers without a key and with the key "k1".
import OpenAI from "openai";

import { calm, check, equal, keyed, run, url } from "./suite.mjs";

const ask = { model: "m", max_output_tokens: 24, instructions: "Be brief.", input: "Say hello.", temperature: 0 };

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "x", maxRetries: 0 });

async function whole_and_stream() {
  const whole = await client.responses.create(ask);
  check("responses: text", whole.output_text.length > 0 && whole.usage.output_tokens <= 24, whole);
  const names = [];
  let text = "";
  let number = 0;
  for await (const event of await client.responses.create({ ...ask, stream: true })) {
    names.push(event.type.replace("response.", ""));
    if (event.sequence_number !== number++) check("responses: numbers", false, event);
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  equal("responses: deltas join", text, whole.output_text);
  equal("responses: begins", names.slice(0, 4), [
    "created", "in_progress", "output_item.added", "content_part.added"]);
  equal("responses: ends", names.slice(-3), ["content_part.done", "output_item.done", whole.status]);
}

// The helper puts the response together from the events itself.
async function helper() {
  const stream = client.responses.stream({ ...ask, max_output_tokens: 400 });
  let text = "";
  stream.on("response.output_text.delta", (event) => (text += event.delta));
  const final = await stream.finalResponse();
  equal("helper: the whole of it", final.output_text ?? final.output[0].content[0].text, text);
}

async function kept() {
  const first = await client.responses.create(ask);
  const second = await client.responses.create({ ...ask, input: "Again.", previous_response_id: first.id });
  check("kept: gone on from", second.usage.input_tokens > first.usage.input_tokens, second.usage);
  equal("kept: shown", (await client.responses.retrieve(first.id)).output_text, first.output_text);
  await client.responses.delete(first.id);
  const gone = await client.responses.retrieve(first.id).catch((error) => error);
  equal("kept: deleted", gone.status, 404);
}

async function errors() {
  const bad = await client.responses.create({ ...ask, input: [] }).catch((error) => error);
  check("errors: a refusal", bad instanceof OpenAI.BadRequestError && bad.param === "input", String(bad));
  equal("errors: no retry", bad.headers.get("x-should-retry"), "false");
  const closed = new OpenAI({ baseURL: `${keyed}/v1`, apiKey: "no", maxRetries: 0 });
  const refused = await closed.responses.create(ask).catch((error) => error);
  check("errors: a key is needed", refused instanceof OpenAI.AuthenticationError, String(refused));
}

async function abort() {
  const stream = await client.responses.create({ ...ask, stream: true, max_output_tokens: 4000, ignore_eos: true });
  for await (const event of stream) if (event.type === "response.output_text.delta") break;
  check("abort: a broken loop ends the work", await calm());
  const stop = new AbortController();
  const waiting = client.responses.create({ ...ask, max_output_tokens: 4000, ignore_eos: true },
    { signal: stop.signal }).catch((error) => error);
  setTimeout(() => stop.abort(), 200);
  check("abort: a whole answer", (await waiting) instanceof OpenAI.APIUserAbortError);
  check("abort: its work ends", await calm());
}

await run(whole_and_stream, helper, kept, errors, abort);
