// SPDX-License-Identifier: Apache-2.0
// One answer while it is being written: asks the server, fills the message, reads the feed of its
// trees beside it. Tells `onchange` and nobody else; draws nothing.
import * as api from "./api.js";
import { messagesFor } from "./conversation.js";
import { readSchema, readStop } from "./format.js";
import { TreeLog } from "./treelog.js";

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];

// Fields that were not set are left out, so that the server's own defaults count.
export function bodyFor(settings, messages) {
    const body = { model: settings.model || "coppice", messages, stream: true,
        stream_options: { include_usage: true } };
    for (const name of NUMBERS)
        if (settings[name] !== null) body[name] = settings[name];
    if (settings.thinking !== "default")
        body.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
    const { schema } = readSchema(settings.schema);
    if (schema)
        body.response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema } };
    const stop = readStop(settings.stop);
    if (stop.length > 0) body.stop = stop;
    const own = {};
    if (!settings.speculation) own.speculate = "off";
    if (settings.tree) own.trees = true;
    return Object.keys(own).length > 0 ? { ...body, coppice: own } : body;
}

export class Run {
    constructor(conversation, node, settings, onchange) {
        this.conversation = conversation;
        this.node = node;
        this.onchange = onchange;
        this.body = bodyFor(settings, messagesFor(conversation, node.text ? node.id : node.parent, settings.system));
        if (node.text) this.continueLast();
        if (this.body.response_format) node.json = true;
        this.log = settings.tree ? new TreeLog() : null;
        this.abort = new AbortController();
        this.began = performance.now();
        this.active = true;
    }

    // Words of the answer that are there already stay, and the model goes on behind them.
    continueLast() {
        const { node } = this;
        this.body.continue_final_message = true;
        if (node.reasoning) this.body.messages.at(-1).reasoning_content = node.reasoning;
        for (const name of ["finish", "error", "status", "code", "stats"]) delete node[name];
    }

    stop() {
        this.abort.abort();
    }

    async go() {
        const { node } = this;
        try {
            for await (const chunk of api.chat(this.body, this.abort.signal)) this.take(chunk);
            if (!node.finish) throw new api.ApiError(0, "The connection to the server broke off.");
            await this.feed;
        } catch (error) {
            if (error.name === "AbortError") {
                node.finish = "stopped";
            } else {
                node.error = error.message;
                node.status = error.status ?? null;
                node.code = error.code ?? null;
                if (!(error instanceof api.ApiError)) console.error(error);
            }
        }
        this.active = false;
        this.sum();
        this.onchange(this);
    }

    take(chunk) {
        const { node } = this;
        node.model ??= chunk.model;
        const choice = chunk.choices?.[0];
        const delta = choice?.delta ?? {};
        const thought = delta.reasoning_content ?? delta.reasoning ?? "";
        if (thought) {
            node.reasoning = (node.reasoning ?? "") + thought;
            this.thinking ??= performance.now();
            node.reasonedMs = performance.now() - this.thinking;
        }
        if (delta.content) node.text += delta.content;
        // Before that its prompt may still be in the making, and a request without one has no trees yet.
        if (this.log && !this.feed && chunk.id && (thought || delta.content || choice?.finish_reason))
            this.feed = this.readTrees(chunk.id);
        if (thought || delta.content) this.firstMs ??= performance.now() - this.began;
        if (choice?.finish_reason) node.finish = choice.finish_reason;
        if (chunk.usage) this.usage = chunk.usage;
        if (chunk.timings) this.timings = chunk.timings;
        this.onchange(this);
    }

    async readTrees(id) {
        try {
            for await (const event of api.trees(id, this.abort.signal)) {
                if (event.type === "tree") this.log.add(event);
                this.onchange(this);
            }
        } catch (error) {
            if (error.name !== "AbortError")
                this.log.refused = `This server did not tell its trees: ${error.message}`;
        }
        this.log.ended = true;
    }

    // What is kept of the numbers. The server's count; without it (stopped) the feed's.
    sum() {
        const { node, usage, timings, log } = this;
        const tokens = timings?.predicted_n ?? usage?.completion_tokens ?? log?.tokens ?? null;
        if (!tokens) return;
        const drafted = timings?.draft_n ?? log?.drafted ?? 0;
        const accepted = timings?.draft_n_accepted ?? log?.accepted ?? 0;
        const seconds = (performance.now() - this.began - (this.firstMs ?? 0)) / 1000;
        node.stats = { tokens, drafted, accepted, firstMs: this.firstMs ?? null,
            perSecond: timings?.predicted_per_second ?? tokens / seconds,
            // Every pass gives one token of its own beside the guesses that it accepts.
            perPass: timings?.accept_length ?? log?.perPass ?? tokens / Math.max(1, tokens - accepted),
            prompt: usage?.prompt_tokens ?? null,
            shortened: timings?.compression && !timings.compression.reason ?
                [timings.compression.from, timings.compression.to] : null,
            cached: usage?.prompt_tokens_details?.cached_tokens ?? 0 };
        if (log) log.speed = node.stats.perSecond;
    }
}
