// SPDX-License-Identifier: Apache-2.0
// The items and the JSON of answers; see answer.h.
#include "serve/reply/answer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/vec.h"

void answer_items_fini(struct answer_items *l) {
    for (int i = 0; i < l->n; i++) {
        str_fini(&l->at[i].name);
        str_fini(&l->at[i].text);
    }
    free(l->at);
    *l = (struct answer_items){0};
}

struct answer_item *answer_items_open(struct answer_items *l) {
    return l->n > 0 && l->at[l->n - 1].open ? &l->at[l->n - 1] : NULL;
}

struct answer_item *answer_items_begin(struct answer_items *l, enum answer_item_kind kind) {
    if (vec_reserve(&l->at, &l->cap, l->n + 1, sizeof *l->at, NULL)) {
        l->failed = true;
        return NULL;
    }
    struct answer_item *it = &l->at[l->n];
    *it = (struct answer_item){.kind = kind, .index = l->n, .open = true};
    if (kind == ITEM_CALL)
        it->call = l->calls++;
    l->n++;
    return it;
}

// Microseconds are all that clocks are worth.
static void put_ms(struct json_writer *w, const char *key, double ms) {
    jw_key_num(w, key, (double)(int64_t)(ms * 1e3 + 0.5) / 1e3);
}

static void put_function(struct json_writer *w, const struct answer_call *c) {
    jw_begin(w, '{');
    if (c->id)
        jw_key_str(w, "name", c->name);
    jw_key_text(w, c->custom ? "input" : "arguments", c->text.s, c->text.n);
    jw_end(w, '}');
}

static void put_answer_call(struct json_writer *w, const struct answer_call *c, bool whole) {
    const char *kind = c->custom ? "custom" : "function";
    jw_begin(w, '{');
    if (!whole)
        jw_key_int(w, "index", c->index);
    if (c->id) {
        jw_key_str(w, "id", c->id);
        jw_key_str(w, "type", kind);
    }
    jw_key(w, kind);
    put_function(w, c);
    jw_end(w, '}');
}

static void put_answer_calls(struct json_writer *w, const struct answer_choice *c, bool whole) {
    if (c->n_calls == 0)
        return;
    if (c->older) {
        jw_key(w, "function_call");
        put_function(w, &c->calls[0]);
        return;
    }
    jw_key_begin(w, "tool_calls", '[');
    for (int i = 0; i < c->n_calls; i++)
        put_answer_call(w, &c->calls[i], whole);
    jw_end(w, ']');
}

// "content": the answer and all that is known of where it came from.
static void put_answer_message(struct json_writer *w, const struct answer_choice *c, bool whole) {
    if (c->role)
        jw_key_str(w, "role", "assistant");
    if (c->reasoning.s)
        jw_key_text(w, "reasoning_content", c->reasoning.s, c->reasoning.n);
    if (whole && c->n_calls > 0 && !c->content.s) {
        jw_key_null(w, "content");
    } else if (whole || c->content.s) {
        jw_key_text(w, "content", c->content.s, c->content.n);
    }
    put_answer_calls(w, c, whole);
}

const char *answer_finish(enum end_reason r) {
    return r == END_LENGTH || r == END_CONTEXT ? "length" : "stop";
}

double answer_accept_length(const struct answer_totals *t) {
    return t->steps > 0 ? (double)(t->tokens - t->choices) / (double)t->steps : 0;
}

double answer_speed(const struct answer_totals *t) {
    int64_t n = t->tokens - t->choices;
    return t->decode_ms > 0 && n > 0 ? (double)n * 1e3 / t->decode_ms : 0;
}

void answer_hashes(struct json_writer *w, const struct answer_totals *t) {
    char hash[17];
    if (!t->hashes)
        return;
    jw_key_begin(w, "logit_hash", '[');
    for (int64_t i = 0; i < t->choices; i++) {
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)t->hashes[i]);
        jw_cstr(w, hash);
    }
    jw_end(w, ']');
}

void answer_usage(struct json_writer *w, const struct answer_totals *t) {
    jw_key_begin(w, "usage", '{');
    jw_key_int(w, "prompt_tokens", t->prompt);
    jw_key_int(w, "completion_tokens", t->tokens);
    jw_key_int(w, "total_tokens", t->prompt + t->tokens);
    jw_key_begin(w, "prompt_tokens_details", '{');
    jw_key_int(w, "cached_tokens", t->cached);
    jw_end(w, '}');
    jw_key_begin(w, "completion_tokens_details", '{');
    jw_key_int(w, "reasoning_tokens", t->reasoning);
    jw_key_int(w, "accepted_prediction_tokens", t->accepted);
    jw_key_int(w, "rejected_prediction_tokens", t->drafted - t->accepted);
    jw_end(w, '}');
    answer_hashes(w, t);
    jw_end(w, '}');
}

void answer_view(struct json_writer *w, const struct view_rule *r) {
    if (r->pool) {
        jw_key_int(w, "kv_pool", r->pool);
        jw_key_str(w, "kv_pool_policy", view_policy(r));
    } else if (r->window) {
        jw_key_int(w, "fa_window", r->window);
    }
}

void answer_timings(struct json_writer *w, const struct answer_totals *t) {
    int64_t run = t->prompt - t->cached;
    jw_key_begin(w, "timings", '{');
    put_ms(w, "queue_ms", t->queue_ms);
    jw_key_int(w, "cache_n", t->cached);
    jw_key_int(w, "prompt_n", run);
    put_ms(w, "prompt_ms", t->prompt_ms);
    put_ms(w, "prompt_per_second", t->prompt_ms > 0 ? (double)run * 1e3 / t->prompt_ms : 0);
    jw_key_int(w, "predicted_n", t->tokens);
    put_ms(w, "predicted_ms", t->decode_ms);
    put_ms(w, "predicted_per_second", answer_speed(t));
    put_ms(w, "decode_ms", t->decode_ms);
    jw_key_int(w, "draft_n", t->drafted);
    jw_key_int(w, "draft_n_accepted", t->accepted);
    jw_key_int(w, "steps", t->steps);
    put_ms(w, "accept_length", answer_accept_length(t));
    if (t->speculate)
        jw_key_str(w, "speculate", t->speculate);
    answer_view(w, &t->view);
    if (t->drafted || guess_counts_unknown(&t->guesses)) {
        jw_key(w, "guesses");
        guess_counts_json(&t->guesses, t->drafts, w);
    }
    if (t->compression.tried) {
        jw_key(w, "compression");
        prefill_report_write(w, &t->compression);
    }
    if (t->tool_format)
        jw_key_str(w, "tool_format", t->tool_format);
    jw_end(w, '}');
}

static void write_choice(struct json_writer *w, const struct answer_choice *c, const char *body) {
    bool whole = !body || body[0] == 'm';
    jw_begin(w, '{');
    jw_key_int(w, "index", c->index);
    if (body) {
        jw_key_begin(w, body, '{');
        put_answer_message(w, c, whole);
        jw_end(w, '}');
    } else {
        jw_key_text(w, "text", c->content.s, c->content.n);
    }
    if (c->logprobs || whole)
        jw_key(w, "logprobs");
    if (!c->logprobs && whole)
        jw_null(w);
    else if (c->logprobs && body)
        answer_logprobs_chat(w, c->logprobs);
    else if (c->logprobs)
        answer_logprobs_text(w, c->logprobs, c->n_logprobs);
    jw_key_str(w, "finish_reason", c->finish);
    jw_end(w, '}');
}

void answer_delta(struct json_writer *w, const struct answer_choice *c) {
    write_choice(w, c, "delta");
}

void answer_message(struct json_writer *w, const struct answer_choice *c) {
    write_choice(w, c, "message");
}

void answer_completion(struct json_writer *w, const struct answer_choice *c) {
    write_choice(w, c, NULL);
}
