// SPDX-License-Identifier: Apache-2.0
// A stand-in for the server with the shapes that the page reads and answers that are known in
// advance: for working on the page without a model, and for tests of what a real server does
// seldom (errors, a missing key, a slow start). It is no model of the server: tests/browser/run.mjs
// holds the page against the real one too. Usage: node tests/browser/mock.mjs [PORT]
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..", "..");
const page = () => readFileSync(path.join(root, "src", "serve", "page", "page.html"));

function policy() {
    const data = readFileSync(path.join(root, "src", "serve", "page", "data.h"), "utf8");
    const define = data.slice(data.indexOf("PAGE_POLICY"));
    return [...define.matchAll(/"([^"]*)"/g)].map((match) => match[1]).join("");
}

// The same numbers for the same seed, so that a test sees the same trees again.
function random(seed) {
    let state = seed >>> 0;
    return () => {
        state = (state + 0x6d2b79f5) >>> 0;
        let x = Math.imul(state ^ (state >>> 15), 1 | state);
        x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
        return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
    };
}

const ANSWER = `A coppice is a wood that is **cut back to the stump** and grows a crown of new shoots.

The cut does not kill the tree. Its roots stay, so the shoots grow fast: a hazel stool gives poles
after seven years, an oak after twenty.

1. In winter the stems are cut just above the ground.
2. In spring the stump throws up shoots, many more than it will need.
3. The light decides which of them stay.

| tree | years | used for |
|:-----|------:|:---------|
| hazel | 7 | hurdles, bean poles |
| ash | 15 | handles |
| oak | 20 | bark, charcoal |

\`\`\`c
// The child of \`node\` with this token, or -1.
int child(const struct tree *t, int node, int32_t token)
{
    for (int i = node + 1; i < t->n; i++)
        if (t->parent[i] == node && t->token[i] == token)
            return i;
    return -1;
}
\`\`\`

> What is cut back grows again, and *faster*.

See [the notes](https://example.org/coppice) for more.
`;
const DECOYS = (" the a of and to in is it on for as by with that old new wood tree stump shoots grow cut" +
    " light roots year winter spring poles ash oak hazel then from not so").split(" ").slice(1)
    .map((word) => " " + word).concat("<|im_end|>");

const tokens = (text) => text.match(/ ?[A-Za-z]{1,5}|\s?[0-9]+|\n+|[^\sA-Za-z0-9]{1,2}| +/g) ?? [];

// One step as the feed tells it: a tree that holds `right` tokens of what comes next and others.
function step(number, tokens, root, next, right, rows, draw) {
    const parent = [-1], token = [root], path = [0];
    for (let i = 0; i < right; i++) {
        parent.push(path[i]);
        token.push(next[i]);
        path.push(parent.length - 1);
    }
    while (parent.length < rows) {
        const at = draw() < 0.6 ? path[Math.floor(draw() * path.length)] :
            Math.floor(draw() * parent.length);
        const word = DECOYS[Math.floor(draw() * DECOYS.length)];
        const taken = parent.some((p, i) => p === at && token[i] === word) ||
            (path.includes(at) && next[path.indexOf(at)] === word);
        if (taken) continue;
        parent.push(at);
        token.push(word);
    }
    return { type: "tree", choice: 0, step: number, tokens, id: token.map((text) => text.length), token,
        parent, path, bonus: next[right] ?? "", lost: 0 };
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

export function start({ port = 0, key = "", loading = false, pause = 30, feed = true, context = 4096,
    compression = "off" } = {}) {
    const streams = new Map();
    const seen = []; // bodies of the completions that were asked for
    const left = []; // ids of those whose client went away before their end
    let count = 0, held = false; // answers stop short of their end while it is set

    const fail = (response, status, message, param = null, more = {}) => {
        const type = status === 401 ? "authentication_error" :
            status >= 500 ? "server_error" : "invalid_request_error";
        response.writeHead(status, { "Content-Type": "application/json" });
        response.end(JSON.stringify({ error: { message, type, param, code: null, ...more } }));
    };
    const json = (response, value) => {
        response.writeHead(200, { "Content-Type": "application/json" });
        response.end(JSON.stringify(value));
    };

    async function complete(request, response, body) {
        const last = body.messages.at(-1).content; // what is asked, or the words to go on behind
        // What the scorer can shorten is a text of the user's; a conversation it leaves alone.
        const shortens = compression !== "off" && body.messages.length > 1 &&
            !body.messages.some(({ role }) => role === "assistant");
        if (last.includes("too long") && !shortens)
            return fail(response, 400, "The prompt has 5000 tokens and the context holds 4096; " +
                "shorten it or start the server with a larger --max-ctx.", "messages",
            { code: "context_length_exceeded", n_prompt_tokens: 5000, n_ctx: 4096 });
        const id = `chatcmpl-${String(++count).padStart(8, "0")}`;
        const draw = random(count);
        const goesOn = body.messages.at(-1).role === "assistant";
        if (goesOn !== Boolean(body.continue_final_message))
            return fail(response, 400, "continue_final_message and the last message do not fit.");
        const text = goesOn ? " And it grows again." : last.startsWith("echo ") ? last.slice(5) : last.includes("hello") ? "Hello. What shall we grow?" :
            last.includes("again and again") ? ANSWER.repeat(40) : ANSWER;
        const all = tokens(text).slice(0, body.max_tokens ?? Infinity);
        const stream = { trees: [], ended: false, wake: [] };
        streams.set(id, stream);
        let gone = false;
        response.on("close", () => { gone = true; });
        const say = (delta, more = {}, beside = {}) => response.write(`data: ${JSON.stringify({ id,
            object: "chat.completion.chunk", created: 1795000000, model: "coppice-mock",
            choices: [{ index: 0, delta, finish_reason: null, ...more }], ...beside })}\n\n`);
        response.writeHead(200, { "Content-Type": "text/event-stream" });
        say({ role: "assistant", content: "" });
        const began = Date.now();
        await sleep(pause);
        if (last.includes("think")) {
            for (const word of tokens("The question is about trees. A short answer with an example will do.")) {
                say({ reasoning_content: word });
                await sleep(pause / 4);
            }
        }
        // The prompt's own pass chooses the first token.
        let done = 1, drafted = 0, accepted = 0, steps = 0, root = all[0];
        say({ content: root });
        for (let number = 1; done < all.length && !gone; number++) {
            if (last.includes("break off") && number === 6) {
                response.write(`data: ${JSON.stringify({ error: { message:
                    "The device failed in a pass; see the server's log.", type: "server_error",
                param: null, code: null } })}\n\n`);
                stream.ended = true;
                stream.wake.splice(0).forEach((wake) => wake());
                return response.end("data: [DONE]\n\n");
            }
            const plain = body.coppice?.speculate === "off";
            const most = all.length - done - 1;
            const right = plain ? 0 : Math.min(most, Math.floor(draw() * draw() * 9));
            const rows = plain ? 1 : right + 4 + Math.floor(draw() * 20);
            const one = step(number - 1, done, root, all.slice(done), right, rows, draw);
            steps++;
            drafted += rows - 1;
            accepted += right;
            if (body.coppice?.trees) stream.trees.push(one);
            stream.wake.splice(0).forEach((wake) => wake());
            root = all[done + right];
            say({ content: all.slice(done, done + right + 1).join("") });
            done += right + 1;
            do
                await sleep(last.includes("slowly") ? 6 * pause : pause);
            while (held && done > 0.9 * all.length && !gone);
        }
        if (gone) left.push(id);
        const ms = Date.now() - began;
        const timings = { queue_ms: 0.1, prompt_n: 31, prompt_ms: pause, predicted_n: done,
            predicted_ms: ms, predicted_per_second: 1000 * done / Math.max(1, ms),
            draft_n: drafted, draft_n_accepted: accepted, steps, accept_length: (done - 1) / steps,
            ...(shortens && { compression: { from: 5000, to: 900, ms: 1, parked_ms: 0, reason: null } }) };
        const usage = { prompt_tokens: 31, completion_tokens: done, total_tokens: 31 + done,
            completion_tokens_details: { accepted_prediction_tokens: accepted,
                rejected_prediction_tokens: drafted - accepted } };
        stream.trees.push({ type: "end", usage, timings });
        stream.ended = true;
        stream.wake.splice(0).forEach((wake) => wake());
        say({}, { finish_reason: done < tokens(text).length ? "length" : "stop" }, { timings });
        response.write(`data: ${JSON.stringify({ id, object: "chat.completion.chunk",
            created: 1795000000, model: "coppice-mock", choices: [], usage })}\n\n`);
        response.end("data: [DONE]\n\n");
    }

    async function trees(response, id) {
        const stream = streams.get(id);
        if (!stream || !feed) return fail(response, 404, `No stream '${id}' is running.`);
        response.writeHead(200, { "Content-Type": "text/event-stream" });
        for (let at = 0; ;) {
            while (at < stream.trees.length)
                response.write(`data: ${JSON.stringify(stream.trees[at++])}\n\n`);
            if (stream.ended && at === stream.trees.length) break;
            if (!stream.ended) await new Promise((wake) => stream.wake.push(wake));
        }
        response.end();
    }

    async function answer(request, response) {
        const { pathname } = new URL(request.url, "http://localhost");
        if (pathname === "/") {
            response.writeHead(200, { "Content-Type": "text/html; charset=utf-8",
                "Content-Security-Policy": policy(), "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache" });
            return response.end(page());
        }
        if (pathname === "/health") {
            if (loading) return fail(response, 503, "The model is being loaded.");
            return json(response, { status: "ok" });
        }
        if (key && request.headers.authorization !== `Bearer ${key}`)
            return fail(response, 401, "This server wants a key: send it as 'Authorization: Bearer KEY'.");
        if (pathname === "/v1/models")
            return json(response, { object: "list", data: [{ id: "coppice-mock", object: "model",
                context_length: context }] });
        if (pathname === "/props")
            return json(response, { eos_token: "<|im_end|>",
                ...(compression !== "off" && { prefill_compression: compression }) });
        if (pathname === "/v1/chat/completions") {
            let text = "";
            for await (const piece of request) text += piece;
            seen.push(JSON.parse(text));
            return complete(request, response, seen.at(-1));
        }
        const match = /^\/v1\/streams\/([^/]+)\/trees$/.exec(pathname);
        if (match) return trees(response, match[1]);
        return fail(response, 404, `There is no ${pathname} here.`);
    }

    const server = createServer((request, response) => {
        answer(request, response).catch((error) => fail(response, 500, String(error)));
    });
    return new Promise((done) => server.listen(port, "127.0.0.1", () => done({
        url: `http://127.0.0.1:${server.address().port}/`,
        seen,
        left,
        loaded: () => { loading = false; },
        hold: (on) => { held = on; },
        close: () => { server.closeAllConnections(); server.close(); },
    })));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
    const { url } = await start({ port: Number(process.argv[2] ?? 8090) });
    console.log(url);
}
