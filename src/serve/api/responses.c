// SPDX-License-Identifier: Apache-2.0
// The Responses interface: POST /v1/responses, and the prompt of POST /v1/responses/input_tokens.
// The body's items, with those of kept responses that it refers to, become a conversation that is
// rendered as a chat; the answer is written as typed events with ascending numbers, or as one
// object; one choice a request. The writer is of the loop thread only.
#include "serve/api/handlers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve/api/kept.h"
#include "serve/completion/prompt.h"
#include "serve/completion/write.h"
#include "serve/conversation/interfaces.h"
#include "serve/conversation/plain.h"
#include "serve/http/sse.h"
#include "serve/reply/opaque.h"
#include "serve/workers.h"

static struct responses_own *own_of(const struct completion *c) {
    return c->own;
}

// An item's own id tells the response and the place in it.
static void put_item_id(const struct completion *c, struct json_writer *w, const char *key,
                        const struct answer_item *it) {
    static const char *const prefixes[] = {
        [ITEM_REASONING] = "rs", [ITEM_TEXT] = "msg", [ITEM_CALL] = "fc"};
    const char *prefix = it->kind == ITEM_CALL && it->custom ? "ctc" : prefixes[it->kind];
    char id[RANDOM_ID + 16];
    snprintf(id, sizeof id, "%s_%s_%d", prefix, c->id + strlen(c->d->id_prefix), it->index);
    jw_key_str(w, key, id);
}

static void put_empty_list(struct json_writer *w, const char *key) {
    jw_key_begin(w, key, '[');
    jw_end(w, ']');
}

struct item_of {
    const struct completion *c;
    const struct answer_item *item;
};

// The list of an item's log-probabilities, as far as they are requested.
static void put_item_logprobs(void *arg, struct json_writer *w) {
    const struct item_of *of = arg;
    const struct completion *c = of->c;
    const struct reply *r = c->p.logprobs ? stream_reply(c->choices->stream) : NULL;
    struct answer_logprobs l = {.t = c->s->tokenizer, .top = (int)c->p.top_logprobs};
    if (r) {
        l.ids = r->ids + of->item->first_token;
        l.n = of->item->tokens;
        l.at = &r->logprobs;
        l.from = of->item->first_token;
    }
    answer_logprobs_list(w, &l);
}

// One part of an item's content.
static void put_content_part(const struct completion *c, struct json_writer *w, const char *type,
                             const struct answer_item *it) {
    jw_begin(w, '{');
    jw_key_str(w, "type", type);
    jw_key_text(w, "text", it->text.data, it->text.len);
    if (type[0] == 'o') {
        put_empty_list(w, "annotations");
        if (w->builder) {
            put_empty_list(w, "logprobs"); // its events write them
        } else {
            jw_key(w, "logprobs");
            put_item_logprobs(&(struct item_of){c, it}, w);
        }
    }
    jw_end(w, '}');
}

static const char *part_type(const struct completion *c, const struct answer_item *it) {
    if (it->kind == ITEM_TEXT)
        return "output_text";
    return own_of(c)->summarises ? "summary_text" : "reasoning_text";
}

static void put_reasoning_item(const struct completion *c, struct json_writer *w,
                               const struct answer_item *it) {
    bool summary = own_of(c)->summarises;
    for (int i = 0; i < 2; i++) {
        jw_key_begin(w, i ? "content" : "summary", '[');
        if ((i == 0) == summary)
            put_content_part(c, w, part_type(c, it), it);
        jw_end(w, ']');
    }
    if (!own_of(c)->opaque) {
        jw_key_null(w, "encrypted_content");
        return;
    }
    struct str encoded = {0};
    opaque_encode(it->text.data ? it->text.data : "", it->text.len, &encoded);
    jw_key_text(w, "encrypted_content", encoded.data, encoded.len);
    w->out.failed |= encoded.failed;
    str_fini(&encoded);
}

// The name of a tool, and that of the group it was declared in.
static void put_name(const struct completion *c, struct json_writer *w,
                     const struct answer_item *it) {
    struct words group, name = {it->name.data ? it->name.data : "", it->name.len};
    if (conversation_part_name(json_get(own_of(c)->echo, "tools"), &name, &group)) {
        jw_key_text(w, "namespace", group.s, group.n);
    }
    jw_key_text(w, "name", name.s, name.n);
}

static void put_item(const struct completion *c, struct json_writer *w,
                     const struct answer_item *it, const char *status) {
    static const char *const types[] = {
        [ITEM_REASONING] = "reasoning", [ITEM_TEXT] = "message", [ITEM_CALL] = "function_call"};
    jw_begin(w, '{');
    put_item_id(c, w, "id", it);
    jw_key_str(w, "type",
               it->kind == ITEM_CALL && it->custom ? "custom_tool_call" : types[it->kind]);
    jw_key_str(w, "status", status);
    if (it->kind == ITEM_REASONING) {
        put_reasoning_item(c, w, it);
    } else if (it->kind == ITEM_TEXT) {
        jw_key_str(w, "role", "assistant");
        jw_key_begin(w, "content", '[');
        put_content_part(c, w, "output_text", it);
        jw_end(w, ']');
    } else {
        jw_key_str(w, "call_id", it->id);
        put_name(c, w, it);
        jw_key_text(w, it->custom ? "input" : "arguments", it->text.data, it->text.len);
    }
    jw_end(w, '}');
}

static bool is_incomplete(const struct completion *c, const struct choice *k) {
    return k->ended && answer_finish(k->end.reason)[0] == 'l' && !c->disconnected && !c->p.prewarms;
}

static void put_response_usage(const struct completion *c, struct json_writer *w) {
    struct answer_totals t = completion_totals(c);
    jw_key_begin(w, "usage", '{');
    jw_key_int(w, "input_tokens", t.prompt);
    jw_key_begin(w, "input_tokens_details", '{');
    jw_key_int(w, "cached_tokens", t.cached);
    jw_key_int(w, "cache_write_tokens", 0);
    jw_end(w, '}');
    jw_key_int(w, "output_tokens", t.tokens);
    jw_key_begin(w, "output_tokens_details", '{');
    jw_key_int(w, "reasoning_tokens", t.reasoning);
    jw_end(w, '}');
    jw_key_int(w, "total_tokens", t.prompt + t.tokens);
    answer_hashes(w, &t);
    jw_end(w, '}');
    answer_timings(w, &t);
    completion_extra(c, w);
}

struct echo {
    struct json_writer *w;
    bool brief;
};

static int put_echoed(void *arg, const char *key, size_t n, const struct json *v) {
    struct echo *e = arg;
    bool left = e->brief && (!strcmp(key, "tools") || !strcmp(key, "instructions"));
    return left ? 0 : jw_member(e->w, key, n, v);
}

// The codes that the interface knows, so far as clients act on them.
static void put_response_error(struct json_writer *w, const struct api_error *why) {
    jw_key_begin(w, "error", '{');
    jw_key_str(w, "code",
               why->code            ? why->code
               : why->status == 429 ? "rate_limit_exceeded"
                                    : "server_error");
    jw_key_str(w, "message", why->text);
    jw_end(w, '}');
}

// The response as far as it is; brief: as a sign of life.
static void put_response(const struct completion *c, struct json_writer *w, const char *status,
                         const struct api_error *why, bool brief) {
    const struct choice *k = c->choices;
    bool done = strcmp(status, "in_progress") != 0, cut = !strcmp(status, "incomplete");
    struct echo e = {w, brief};
    jw_begin(w, '{');
    jw_key_str(w, "id", c->id);
    jw_key_str(w, "object", "response");
    jw_key_int(w, "created_at", c->created);
    jw_key_str(w, "status", status);
    jw_key_bool(w, "background", false);
    if (done && !why)
        jw_key_int(w, "completed_at", (int64_t)time(NULL));
    else
        jw_key_null(w, "completed_at");
    if (why)
        put_response_error(w, why);
    else
        jw_key_null(w, "error");
    jw_key(w, "incomplete_details");
    if (cut) {
        jw_begin(w, '{');
        jw_key_str(w, "reason", "max_output_tokens");
        jw_end(w, '}');
    } else {
        jw_null(w);
    }
    jw_key_str(w, "model", c->p.model ? c->p.model : c->s->model);
    jw_key_begin(w, "output", '[');
    for (int i = 0; done && c->prepared && k && i < k->items.n; i++) {
        bool last = i == k->items.n - 1;
        put_item(c, w, &k->items.at[i], (cut || why) && last ? "incomplete" : "completed");
    }
    jw_end(w, ']');
    json_each(own_of(c)->echo, put_echoed, &e);
    if (done && !why)
        put_response_usage(c, w);
    else
        jw_key_null(w, "usage");
    jw_end(w, '}');
}

static void put_state(struct completion *c, const char *type, const char *status,
                      const struct api_error *why, bool brief) {
    struct json_writer *w = response_event_open(&own_of(c)->events, type);
    jw_key(w, "response");
    put_response(c, w, status, why, brief);
    response_event_close(&own_of(c)->events, type);
}

static void responses_start(struct completion *c) {
    own_of(c)->events.next = 0;
    put_state(c, "response.created", "in_progress", NULL, false);
    put_state(c, "response.in_progress", "in_progress", NULL, false);
}

static void responses_alive(struct completion *c) {
    put_state(c, "response.in_progress", "in_progress", NULL, true);
}

// Events of an item as it is.
static void put_item_events(struct completion *c, const struct answer_item *it, const char *status,
                            int what) {
    struct json_builder built = {0};
    struct json_writer w = {.builder = &built};
    struct item_of of = {c, it};
    struct response_events *events = &own_of(c)->events;
    struct json *item;
    put_item(c, &w, it, status);
    built.failed |= w.out.failed;
    c->s->out.failed |= json_built(&built, &item, "an item", NULL) != 0;
    events->put_logprobs = put_item_logprobs;
    events->logprobs_arg = &of;
    if (item)
        response_events_item(events, item, it->index, what);
    events->put_logprobs = NULL;
    json_free(item);
}

static void responses_item_begin(struct completion *c, struct choice *k,
                                 const struct answer_item *it) {
    (void)k;
    put_item_events(c, it, "in_progress", ITEM_BEGINS);
}

// The names of the events of an item's text, without ".delta" and ".done".
static const char *text_event(const struct completion *c, const struct answer_item *it) {
    if (it->kind == ITEM_CALL)
        return it->custom ? "response.custom_tool_call_input" : "response.function_call_arguments";
    if (it->kind == ITEM_TEXT)
        return "response.output_text";
    return own_of(c)->summarises ? "response.reasoning_summary_text" : "response.reasoning_text";
}

static void responses_item_delta(struct completion *c, struct choice *k,
                                 const struct answer_item *it, const struct item_text *p) {
    char type[64];
    (void)k;
    if (p->text.n == 0)
        return;
    snprintf(type, sizeof type, "%s.delta", text_event(c, it));
    struct json_writer *w = response_event_open(&own_of(c)->events, type);
    put_item_id(c, w, "item_id", it);
    jw_key_int(w, "output_index", it->index);
    if (it->kind != ITEM_CALL)
        jw_key_int(w, !strcmp(part_type(c, it), "summary_text") ? "summary_index" : "content_index",
                   0);
    jw_key_text(w, "delta", p->text.s, p->text.n);
    if (it->kind == ITEM_TEXT && p->logprobs) {
        jw_key(w, "logprobs");
        answer_logprobs_list(w, p->logprobs);
    } else if (it->kind == ITEM_TEXT) {
        put_empty_list(w, "logprobs");
    }
    response_event_close(&own_of(c)->events, type);
}

static void responses_item_end(struct completion *c, struct choice *k,
                               const struct answer_item *it) {
    put_item_events(c, it, is_incomplete(c, k) ? "incomplete" : "completed", ITEM_ENDS);
}

// Keeps the response as it is given to the client.
static void keep_response(struct completion *c, const char *status) {
    struct json_writer w = {0};
    put_response(c, &w, status, NULL, false);
    if (!w.out.failed && own_of(c)->input.data)
        response_store_put(&c->s->responses, c->id, &w.out, &own_of(c)->input);
    str_fini(&w.out);
}

static const char *status_of(const struct completion *c) {
    return is_incomplete(c, c->choices) ? "incomplete" : "completed";
}

static void responses_end(struct completion *c) {
    const char *status = status_of(c);
    if (own_of(c)->keeps)
        keep_response(c, status);
    put_state(c, status[0] == 'i' ? "response.incomplete" : "response.completed", status, NULL,
              false);
}

static void responses_error(struct completion *c, const struct api_error *why) {
    put_state(c, "response.failed", "failed", why, false);
}

static void responses_whole(struct completion *c, struct json_writer *w) {
    const char *status = status_of(c);
    put_response(c, w, status, NULL, false);
    if (own_of(c)->keeps && !w->out.failed && own_of(c)->input.data)
        response_store_put(&c->s->responses, c->id, &w->out, &own_of(c)->input);
}

// What a request is made of, while its prompt is made.
struct source {
    struct service *s;
    const struct json *body;
    struct api_error *error;
    struct kept_references kept;
    struct conversation *v;
};

static int count_member(void *arg, const char *key, size_t n, const struct json *v) {
    (void)key, (void)n;
    *(int *)arg += json_kind_of(v) != JSON_NULL;
    return 0;
}

// By its type, or an id and nothing else.
static bool is_reference(const struct json *item) {
    struct words type = words_of(json_get(item, "type"));
    if (type.s)
        return words_equal(type, "item_reference");
    int members = 0;
    json_each(item, count_member, &members);
    return json_get(item, "id") && members == 1;
}

// Whether what references stand for is within what a body may be: a few bytes of a request can
// stand for any number of copies.
static bool check_referred_size(const struct source *r, size_t bytes) {
    enum { LOOKED_AT = 1 << 22 }; // items
    if (bytes <= (size_t)RESPONSE_STORE_BYTES && r->kept.looked <= LOOKED_AT)
        return true;
    return api_refuse(r->error, "input",
                      "input refers to more of kept responses than one request may; send the items "
                      "themselves, or go on with previous_response_id");
}

// Puts items that kept responses hold in the place of references to them. *at stays as it is
// where it has none.
static bool resolve_references(struct source *r, const struct json **at) {
    const struct json *input = *at;
    struct json *resolved = NULL;
    struct json_writer w = {0};
    struct api_error *x = r->error;
    char place[48];
    bool any = false, ok = true;
    for (size_t i = 0; i < json_len(input) && !any; i++)
        any = is_reference(json_at(input, i));
    if (!any)
        return true;
    jw_begin(&w, '[');
    for (size_t i = 0; i < json_len(input) && ok; i++) {
        const struct json *item = json_at(input, i);
        const char *id = json_str(json_get(item, "id"), NULL);
        if (!is_reference(item)) {
            jw_value(&w, item);
        } else if (!kept_find_item(&r->kept, id, &w, x)) {
            snprintf(place, sizeof place, "input[%zu].id", i);
            ok = !x->status &&
                 api_refuse(x, place,
                            "%s: no item '%.60s' is kept here; send the item itself in its place",
                            place, id ? id : "");
        }
        ok = ok && check_referred_size(r, w.out.len);
    }
    jw_end(&w, ']');
    ok = ok && kept_parse(&w.out, &resolved, x);
    str_fini(&w.out);
    if (ok)
        *at = conversation_adopt(r->v, resolved);
    return ok;
}

// What an earlier response answered, and its answer.
static bool read_previous(struct source *r) {
    struct api_error *x = r->error;
    const char *id = json_str(json_get(r->body, "previous_response_id"), NULL);
    struct str response = {0}, input = {0};
    struct json *before = NULL, *answer = NULL;
    bool ok = true;
    if (!id)
        return true;
    if (!response_store_get(&r->s->responses, id, &response, &input)) {
        api_refuse(x, "previous_response_id",
                   "no response '%.60s' is kept here: it had to be made with store, and only the "
                   "newest are kept; send the whole conversation as input",
                   id);
        x->code = "previous_response_not_found";
        return false;
    }
    ok = kept_parse(&input, &before, x);
    conversation_adopt(r->v, before);
    ok = ok && kept_parse(&response, &answer, x);
    conversation_adopt(r->v, answer);
    // Where memory was short read_source says so.
    ok = ok && (r->v->failed || (conversation_read_responses(r->v, before, x) &&
                                 conversation_read_responses(r->v, json_get(answer, "output"), x)));
    str_fini(&response);
    str_fini(&input);
    return ok;
}

static void put_value_or(struct json_writer *w, const char *key, const struct json *v,
                         const char *otherwise) {
    jw_key(w, key);
    if (v)
        jw_value(w, v);
    else
        jw_cstr(w, otherwise);
}

static int put_known_member(void *w, const char *key, size_t n, const struct json *v) {
    return json_kind_of(v) == JSON_NULL ? 0 : jw_member(w, key, n, v);
}

// An object's members, and null for each that its published type has and it has not.
static void put_object_with(struct json_writer *w, const struct json *object,
                            const char *const *members) {
    jw_begin(w, '{');
    json_each(object, put_known_member, w);
    for (; *members; members++)
        if (!json_get(object, *members))
            jw_key_value(w, *members, NULL);
    jw_end(w, '}');
}

// Functions in the flat form of this interface, whichever they came in.
static void put_tools(struct json_writer *w, const struct json *tools) {
    static const char *const function[] = {"name", "description", "parameters", "strict", NULL};
    jw_key_begin(w, "tools", '[');
    for (size_t i = 0; i < json_len(tools); i++) {
        const struct json *t = json_at(tools, i), *inner = json_get(t, "function");
        if (!words_equal(words_of(json_get(t, "type")), "function")) {
            jw_value(w, t);
        } else if (json_kind_of(inner) != JSON_OBJECT) {
            put_object_with(w, t, function);
        } else {
            jw_begin(w, '{');
            jw_key_str(w, "type", "function");
            for (int k = 0; function[k]; k++)
                jw_key_value(w, function[k], json_get(inner, function[k]));
            jw_end(w, '}');
        }
    }
    jw_end(w, ']');
}

static void put_text_options(struct json_writer *w, const struct json *text) {
    static const char *const schema[] = {"description", "strict", NULL};
    static const char *const others[] = {NULL};
    const struct json *format = json_get(text, "format");
    jw_key_begin(w, "text", '{');
    jw_key(w, "format");
    if (json_kind_of(format) == JSON_OBJECT) {
        bool schemed = words_equal(words_of(json_get(format, "type")), "json_schema");
        put_object_with(w, format, schemed ? schema : others);
    } else {
        jw_begin(w, '{');
        jw_key_str(w, "type", "text");
        jw_end(w, '}');
    }
    put_value_or(w, "verbosity", json_get(text, "verbosity"), "medium");
    jw_end(w, '}');
}

static void put_reasoning(struct json_writer *w, const struct json *reasoning) {
    jw_key_begin(w, "reasoning", '{');
    jw_key_value(w, "effort", json_get(reasoning, "effort"));
    jw_key_value(w, "summary", json_get(reasoning, "summary"));
    jw_end(w, '}');
}

// Fields of the request that the answer repeats.
static bool make_echo(struct completion *c, struct responses_own *own) {
    const struct json *b = c->body;
    struct json_writer w = {0};
    jw_begin(&w, '{');
    jw_key_num(&w, "frequency_penalty", c->p.sample.frequency);
    jw_key_value(&w, "instructions", json_get(b, "instructions"));
    jw_key_value(&w, "max_output_tokens", json_get(b, "max_output_tokens"));
    jw_key_value(&w, "max_tool_calls", json_get(b, "max_tool_calls"));
    jw_key_bool(&w, "parallel_tool_calls", json_bool(json_get(b, "parallel_tool_calls"), true));
    jw_key_num(&w, "presence_penalty", c->p.sample.presence);
    jw_key_value(&w, "previous_response_id", json_get(b, "previous_response_id"));
    jw_key_value(&w, "prompt_cache_key", json_get(b, "prompt_cache_key"));
    put_reasoning(&w, json_get(b, "reasoning"));
    jw_key_value(&w, "safety_identifier", json_get(b, "safety_identifier"));
    jw_key_str(&w, "service_tier", "default");
    jw_key_bool(&w, "store", own->keeps);
    jw_key_num(&w, "temperature", (double)c->p.sample.temperature);
    put_text_options(&w, json_get(b, "text"));
    put_value_or(&w, "tool_choice", json_get(b, "tool_choice"), "auto");
    put_tools(&w, json_get(b, "tools"));
    jw_key_int(&w, "top_logprobs", c->p.top_logprobs > 0 ? c->p.top_logprobs : 0);
    jw_key_num(&w, "top_p", (double)c->p.sample.top_p);
    put_value_or(&w, "truncation", json_get(b, "truncation"), "disabled");
    jw_key_value(&w, "user", json_get(b, "user"));
    jw_key_begin(&w, "metadata", '{');
    json_each(json_get(b, "metadata"), jw_member, &w);
    jw_end(&w, '}');
    jw_end(&w, '}');
    bool ok = kept_parse(&w.out, &own->echo, &c->error);
    str_fini(&w.out);
    return ok;
}

static bool includes(const struct json *include, const char *what) {
    for (size_t i = 0; i < json_len(include); i++)
        if (words_equal(words_of(json_at(include, i)), what))
            return true;
    return false;
}

// The conversation of the body with its tools; kept: what is to be kept of it is written there, or
// NULL.
static bool read_source(struct source *r, const struct params *p, struct str *kept) {
    struct conversation *v = r->v;
    struct words instructions = words_of(json_get(r->body, "instructions"));
    const struct json *input = json_get(r->body, "input");
    if (instructions.n) {
        struct conversation_part *part =
            conversation_part(v, conversation_turn(v, CONVERSATION_SYSTEM, PART_TEXT), PART_TEXT);
        if (part)
            part->text = instructions;
    }
    if (!read_previous(r) || !resolve_references(r, &input) ||
        (!v->failed && !conversation_read_responses(v, input, r->error)))
        return false;
    if (kept) { // without the instructions, which each request has its own of
        struct conversation rest = *v;
        struct json_writer w = {0};
        rest.turns += instructions.n > 0;
        rest.n_turns -= instructions.n > 0;
        if (!v->failed)
            conversation_write_responses(&rest, &w);
        *kept = w.out;
    }
    if (v->failed)
        return kept_no_memory(r->error);
    if (v->n_turns == (instructions.n > 0))
        return api_refuse(r->error, "input", "input is empty: at least one item is needed");
    conversation_read_tools(v, p->tools, json_get(r->body, "tool_choice"),
                            json_get(r->body, "parallel_tool_calls"), false);
    return true;
}

static bool read_responses(struct service *s, struct params *p, const struct json *body,
                           struct conversation *v, struct api_error *x) {
    struct source r = {.s = s, .body = body, .error = x, .kept.store = &s->responses, .v = v};
    bool ok = read_source(&r, p, NULL);
    kept_references_fini(&r.kept);
    return ok;
}

size_t api_responses_referred(struct service *s, const struct json *body) {
    const struct json *input = json_get(body, "input");
    const char *id = json_str(json_get(body, "previous_response_id"), NULL);
    size_t n = id ? response_store_size(&s->responses, id) : 0;
    char response[RANDOM_ID];
    for (size_t i = 0; i < json_len(input) && n < WORKERS_LONG; i++) {
        id = json_str(json_get(json_at(input, i), "id"), NULL);
        if (is_reference(json_at(input, i)) && kept_response_of_item(id, response))
            n += response_store_size(&s->responses, response);
    }
    return n;
}

static bool prepare_response(struct completion *c) {
    struct responses_own *own = c->own = calloc(1, sizeof *own);
    struct source r = {.s = c->s,
                       .body = c->body,
                       .error = &c->error,
                       .kept.store = &c->s->responses,
                       .v = &c->said};
    if (!own)
        return kept_no_memory(&c->error);
    own->events = (struct response_events){.w = &c->s->json, .out = &c->s->out, .after = -1};
    own->keeps = json_bool(json_get(c->body, "store"), true);
    const struct json *reasoning = json_get(c->body, "reasoning");
    own->summarises = json_str(json_get(reasoning, "summary"), NULL) ||
                      json_str(json_get(reasoning, "generate_summary"), NULL); // its older name
    own->opaque = includes(json_get(c->body, "include"), "reasoning.encrypted_content");
    bool ok = make_echo(c, own) && read_source(&r, &c->p, own->keeps ? &own->input : NULL) &&
              prompt_make_of(c);
    kept_references_fini(&r.kept);
    return ok;
}

static void free_own(struct completion *c) {
    struct responses_own *own = c->own;
    if (!own)
        return;
    json_free(own->echo);
    str_fini(&own->input);
    free(own);
}

const struct dialect api_responses_dialect = {
    .endpoint = ENDPOINT_RESPONSES,
    .path = "/v1/responses",
    .id_prefix = "resp_",
    .read = read_responses,
    .prepare = prepare_response,
    .shorten = prompt_shorten,
    .drop = free_own,
    .start = responses_start,
    .item_begin = responses_item_begin,
    .item_delta = responses_item_delta,
    .item_end = responses_item_end,
    .end = responses_end,
    .error = responses_error,
    .alive = responses_alive,
    .whole = responses_whole,
    .keeps_text = true,
    .referred = api_responses_referred,
};
