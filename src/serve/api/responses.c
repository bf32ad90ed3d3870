// SPDX-License-Identifier: Apache-2.0
// The Responses interface; see responses.h.
#include "serve/api/responses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/conversation/input_items.h"
#include "serve/conversation/prompt.h"
#include "serve/conversation/responses.h"
#include "serve/reply/replay.h"
#include "serve/reply/responses.h"
#include "serve/workers.h"

// A kept response that a request refers to, and what it answered.
struct kept {
    char id[RANDOM_ID];
    struct json *answer, *input;
};

// What a request is made of, while its prompt is made.
struct source {
    struct service *s;
    const struct json *body;
    struct api_error *error;
    struct json *before, *answer; // input and response of previous_response_id
    struct kept *kept;            // of references, each read once
    size_t n_kept, looked;        // at items of them
    struct json *resolved;        // `input` with what it refers to in its place; NULL: as it came
    struct conversation v;
};

static bool no_memory(struct api_error *x) {
    api_fail(x, 503, NULL, "no memory for the conversation");
    return false;
}

static bool parse(const struct str *text, struct json **out, struct api_error *x) {
    struct err e = {0};
    const struct json_rules rules = {
        .depth = 512, .values = 1 << 21, .objects = 1 << 18, .big_integers = true};
    if (text->failed)
        return no_memory(x);
    if (!json_parse_with(out, text->data ? text->data : "", text->len, &rules, &e))
        return true;
    api_error_of(x, &e);
    return false;
}

// The kept response of that id, read; NULL: there is none, or it cannot be read.
static const struct kept *find_kept(struct source *r, const char *id) {
    struct kept k = {0}, *more;
    struct str text = {0}, input = {0};
    struct api_error ignored = {0};
    for (size_t i = r->n_kept; i-- > 0;)
        if (!strcmp(r->kept[i].id, id))
            return &r->kept[i];
    bool found = response_store_get(&r->s->responses, id, &text, &input) &&
                 parse(&text, &k.answer, &ignored) && parse(&input, &k.input, &ignored);
    str_fini(&text);
    str_fini(&input);
    more = found ? realloc(r->kept, (r->n_kept + 1) * sizeof *more) : NULL;
    if (!more) {
        json_free(k.answer);
        json_free(k.input);
        return NULL;
    }
    snprintf(k.id, sizeof k.id, "%s", id);
    r->kept = more;
    r->kept[r->n_kept] = k;
    return &r->kept[r->n_kept++];
}

// "resp_" and the digits of an item's id: "msg_" and the digits of the response. False: it has
// none.
static bool response_of_item(const char *id, char response[static RANDOM_ID]) {
    const char *digits = id ? strchr(id, '_') : NULL;
    int n = digits ? (int)strcspn(++digits, "_") : 0;
    if (!digits || n > 24)
        return false;
    snprintf(response, RANDOM_ID, "resp_%.*s", n, digits);
    return true;
}

// Writes the item of that id: one of a kept response's output, or of what it answered.
static bool find_item(struct source *r, const char *id, struct json_writer *w) {
    char response[RANDOM_ID];
    const struct kept *k = response_of_item(id, response) ? find_kept(r, response) : NULL;
    if (!k)
        return false;
    const struct json *output = json_get(k->answer, "output");
    r->looked += json_len(output) + json_len(k->input);
    for (size_t i = 0; i < json_len(output); i++) {
        const struct json *item = json_at(output, i);
        if (words_equal(words_of(json_get(item, "id")), id)) {
            jw_value(w, item);
            return true;
        }
    }
    return input_items_find(k->input, response, words_of_text(id), w);
}

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
static bool within(const struct source *r, size_t bytes) {
    enum { LOOKED_AT = 1 << 22 }; // items
    if (bytes <= (size_t)RESPONSE_STORE_BYTES && r->looked <= LOOKED_AT)
        return true;
    return api_refuse(r->error, "input",
                      "input refers to more of kept responses than one request may; send the items "
                      "themselves, or go on with previous_response_id");
}

// Puts items that kept responses hold in the place of references to them.
static bool resolve(struct source *r, const struct json *input) {
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
        } else if (!find_item(r, id, &w)) {
            snprintf(place, sizeof place, "input[%zu].id", i);
            ok = api_refuse(x, place,
                            "%s: no item '%.60s' is kept here; send the item itself in its place",
                            place, id ? id : "");
        }
        ok = ok && within(r, w.out.len);
    }
    jw_end(&w, ']');
    ok = ok && parse(&w.out, &r->resolved, x);
    str_fini(&w.out);
    return ok;
}

// What an earlier response answered, and its answer.
static bool read_previous(struct source *r) {
    struct api_error *x = r->error;
    const char *id = json_str(json_get(r->body, "previous_response_id"), NULL);
    struct str response = {0}, input = {0};
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
    ok = parse(&input, &r->before, x) && parse(&response, &r->answer, x) &&
         conversation_read_responses(&r->v, r->before, x) &&
         conversation_read_responses(&r->v, json_get(r->answer, "output"), x);
    str_fini(&response);
    str_fini(&input);
    return ok;
}

static void put_or(struct json_writer *w, const char *key, const struct json *v,
                   const char *otherwise) {
    jw_key(w, key);
    if (v)
        jw_value(w, v);
    else if (otherwise)
        jw_cstr(w, otherwise);
    else
        jw_null(w);
}

static int put_member(void *arg, const char *key, size_t n, const struct json *v) {
    (void)n;
    if (json_kind_of(v) == JSON_NULL)
        return 0;
    jw_key(arg, key);
    jw_value(arg, v);
    return 0;
}

// An object's members, and null for each that its published type has and it has not.
static void put_with(struct json_writer *w, const struct json *object, const char *const *members) {
    jw_begin(w, '{');
    json_each(object, put_member, w);
    for (; *members; members++)
        if (!json_get(object, *members))
            put_or(w, *members, NULL, NULL);
    jw_end(w, '}');
}

// Functions in the flat form of this interface, whichever they came in.
static void put_tools(struct json_writer *w, const struct json *tools) {
    static const char *const function[] = {"name", "description", "parameters", "strict", NULL};
    jw_key(w, "tools");
    jw_begin(w, '[');
    for (size_t i = 0; i < json_len(tools); i++) {
        const struct json *t = json_at(tools, i), *inner = json_get(t, "function");
        if (!words_equal(words_of(json_get(t, "type")), "function")) {
            jw_value(w, t);
        } else if (json_kind_of(inner) != JSON_OBJECT) {
            put_with(w, t, function);
        } else {
            jw_begin(w, '{');
            jw_key_str(w, "type", "function");
            for (int k = 0; function[k]; k++)
                put_or(w, function[k], json_get(inner, function[k]), NULL);
            jw_end(w, '}');
        }
    }
    jw_end(w, ']');
}

static void put_text_options(struct json_writer *w, const struct json *text) {
    static const char *const schema[] = {"description", "strict", NULL};
    static const char *const others[] = {NULL};
    const struct json *format = json_get(text, "format");
    jw_key(w, "text");
    jw_begin(w, '{');
    jw_key(w, "format");
    if (json_kind_of(format) == JSON_OBJECT) {
        bool schemed = words_equal(words_of(json_get(format, "type")), "json_schema");
        put_with(w, format, schemed ? schema : others);
    } else {
        jw_begin(w, '{');
        jw_key_str(w, "type", "text");
        jw_end(w, '}');
    }
    put_or(w, "verbosity", json_get(text, "verbosity"), "medium");
    jw_end(w, '}');
}

static void put_reasoning(struct json_writer *w, const struct json *reasoning) {
    jw_key(w, "reasoning");
    jw_begin(w, '{');
    put_or(w, "effort", json_get(reasoning, "effort"), NULL);
    put_or(w, "summary", json_get(reasoning, "summary"), NULL);
    jw_end(w, '}');
}

// What the answer says again of the request.
static bool make_echo(struct completion *c, struct responses_own *own) {
    const struct json *b = c->body, *metadata;
    struct json_writer w = {0};
    jw_begin(&w, '{');
    jw_key_num(&w, "frequency_penalty", c->p.sample.frequency);
    put_or(&w, "instructions", json_get(b, "instructions"), NULL);
    put_or(&w, "max_output_tokens", json_get(b, "max_output_tokens"), NULL);
    put_or(&w, "max_tool_calls", json_get(b, "max_tool_calls"), NULL);
    jw_key(&w, "parallel_tool_calls");
    jw_bool(&w, json_bool(json_get(b, "parallel_tool_calls"), true));
    jw_key_num(&w, "presence_penalty", c->p.sample.presence);
    put_or(&w, "previous_response_id", json_get(b, "previous_response_id"), NULL);
    put_or(&w, "prompt_cache_key", json_get(b, "prompt_cache_key"), NULL);
    put_reasoning(&w, json_get(b, "reasoning"));
    put_or(&w, "safety_identifier", json_get(b, "safety_identifier"), NULL);
    jw_key_str(&w, "service_tier", "default");
    jw_key_bool(&w, "store", own->keeps);
    jw_key_num(&w, "temperature", (double)c->p.sample.temperature);
    put_text_options(&w, json_get(b, "text"));
    put_or(&w, "tool_choice", json_get(b, "tool_choice"), "auto");
    put_tools(&w, json_get(b, "tools"));
    jw_key_int(&w, "top_logprobs", c->p.top_logprobs > 0 ? c->p.top_logprobs : 0);
    jw_key_num(&w, "top_p", (double)c->p.sample.top_p);
    put_or(&w, "truncation", json_get(b, "truncation"), "disabled");
    put_or(&w, "user", json_get(b, "user"), NULL);
    jw_key(&w, "metadata");
    if ((metadata = json_get(b, "metadata")) != NULL) {
        jw_value(&w, metadata);
    } else {
        jw_begin(&w, '{');
        jw_end(&w, '}');
    }
    jw_end(&w, '}');
    bool ok = parse(&w.out, &own->echo, &c->error);
    str_fini(&w.out);
    return ok;
}

static bool asks_for(const struct json *include, const char *what) {
    for (size_t i = 0; i < json_len(include); i++)
        if (words_equal(words_of(json_at(include, i)), what))
            return true;
    return false;
}

// The conversation of the body; kept: what is to be kept of it is written there, or NULL.
static bool read_conversation(struct source *r, struct str *kept) {
    struct words instructions = words_of(json_get(r->body, "instructions"));
    const struct json *input = json_get(r->body, "input");
    if (instructions.n) {
        struct conversation_part *p = conversation_part(
            &r->v, conversation_turn(&r->v, CONVERSATION_SYSTEM, PART_TEXT), PART_TEXT);
        if (p)
            p->text = instructions;
    }
    if (!read_previous(r) || !resolve(r, input) ||
        !conversation_read_responses(&r->v, r->resolved ? r->resolved : input, r->error))
        return false;
    if (kept) { // without the instructions, which each request has its own of
        struct conversation rest = r->v;
        struct json_writer w = {0};
        rest.turns += instructions.n > 0;
        rest.n_turns -= instructions.n > 0;
        if (!r->v.failed)
            conversation_write_responses(&rest, &w);
        *kept = w.out;
    }
    if (r->v.failed)
        return no_memory(r->error);
    if (r->v.n_turns == (instructions.n > 0))
        return api_refuse(r->error, "input", "input is empty: at least one item is needed");
    return true;
}

// All of what the request says, with its tools.
static bool read_source(struct source *r, const struct params *p, struct str *kept) {
    if (!read_conversation(r, kept))
        return false;
    conversation_read_responses_tools(&r->v, p->tools, json_get(r->body, "tool_choice"),
                                      json_get(r->body, "parallel_tool_calls"));
    return true;
}

static void source_fini(struct source *r) {
    conversation_fini(&r->v);
    json_free(r->before);
    json_free(r->answer);
    json_free(r->resolved);
    for (size_t i = 0; i < r->n_kept; i++) {
        json_free(r->kept[i].answer);
        json_free(r->kept[i].input);
    }
    free(r->kept);
}

size_t api_responses_behind(struct service *s, const struct json *body) {
    const struct json *input = json_get(body, "input");
    const char *id = json_str(json_get(body, "previous_response_id"), NULL);
    size_t n = id ? response_store_size(&s->responses, id) : 0;
    char response[RANDOM_ID];
    for (size_t i = 0; i < json_len(input) && n < WORKERS_LONG; i++) {
        id = json_str(json_get(json_at(input, i), "id"), NULL);
        if (is_reference(json_at(input, i)) && response_of_item(id, response))
            n += response_store_size(&s->responses, response);
    }
    return n;
}

bool api_responses_render(struct service *s, const struct params *p, const struct json *body,
                          struct chat_text *out, struct api_error *x) {
    struct source r = {.s = s, .body = body, .error = x};
    struct params plain = *p; // borrows what p owns
    struct chat_words words = {0};
    bool ok = read_source(&r, p, NULL) &&
              chat_prompt_take(&plain, &r.v, "input", &words, NULL, x) &&
              chat_prompt_render(s, &plain, out, x);
    source_fini(&r);
    chat_words_fini(&words);
    return ok;
}

static bool prepare(struct completion *c) {
    struct responses_own *own = c->own = calloc(1, sizeof *own);
    struct source r = {.s = c->s, .body = c->body, .error = &c->error};
    if (!own)
        return no_memory(&c->error);
    own->keeps = json_bool(json_get(c->body, "store"), true);
    const struct json *reasoning = json_get(c->body, "reasoning");
    own->summarises = json_str(json_get(reasoning, "summary"), NULL) ||
                      json_str(json_get(reasoning, "generate_summary"), NULL); // its older name
    own->seals = asks_for(json_get(c->body, "include"), "reasoning.encrypted_content");
    bool ok = make_echo(c, own) && read_source(&r, &c->p, own->keeps ? &own->input : NULL) &&
              chat_prompt_make(c, &r.v, "input");
    source_fini(&r);
    return ok;
}

static void drop(struct completion *c) {
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
    .prepare = prepare,
    .shorten = chat_prompt_shorten,
    .drop = drop,
    .start = responses_start,
    .item_begin = responses_item_begin,
    .item_delta = responses_item_delta,
    .item_end = responses_item_end,
    .end = responses_end,
    .error = responses_error,
    .alive = responses_alive,
    .whole = responses_whole,
    .keeps_text = true,
    .behind = api_responses_behind,
};

static bool fail_unknown(struct api_error *x, const char *id) {
    api_fail(x, 404, NULL,
             "no response '%.60s' is kept here: it had to be made with store, and only the newest "
             "are kept",
             id);
    return false;
}

static void refuse_unknown(struct exchange *x, const char *id) {
    struct api_error why;
    fail_unknown(&why, id);
    service_refuse(x, &why);
}

// What the query says of `key`, as it came; false where it is silent.
static bool query_says(const char *query, const char *key, struct words *out) {
    size_t k = strlen(key);
    for (const char *p = query; p; p = strchr(p, '&')) {
        p += *p == '&';
        size_t n = strcspn(p, "&");
        if (n > k && !memcmp(p, key, k) && p[k] == '=') {
            *out = (struct words){p + k + 1, n - k - 1};
            return true;
        }
    }
    return false;
}

// A whole number of the query, of at most 15 digits. False: something else stands there.
static bool query_number(const char *query, const char *key, int64_t *out) {
    struct words w;
    int64_t v = 0;
    if (!query_says(query, key, &w))
        return true;
    for (size_t i = 0; i < w.n; i++) {
        if (w.s[i] < '0' || w.s[i] > '9' || i == 15)
            return false;
        v = 10 * v + (w.s[i] - '0');
    }
    *out = v;
    return w.n > 0;
}

// The items of a kept response's input as a list, the newest first unless the query says otherwise.
static bool write_items(const char *id, const char *query, const struct str *input, struct str *out,
                        struct api_error *x) {
    struct input_page page = {.response = id};
    struct words order;
    struct json_writer w = {0};
    struct json *items = NULL;
    int64_t limit = INT32_MAX; // all, unless the query says otherwise
    bool ok = parse(input, &items, x);
    page.ascending = query_says(query, "order", &order) && words_equal(order, "asc");
    if (ok && (!query_number(query, "limit", &limit) || limit < 1))
        ok = api_refuse(x, "limit", "limit must be a number of items, 1 at least");
    page.limit = (size_t)limit;
    if (ok && query_says(query, "after", &page.after) && page.after.n == 0)
        page.after.s = NULL;
    if (ok && !input_items_write(items, &page, &w))
        ok = api_refuse(x, "after", "after is '%.*s', and no item of the list has that id",
                        (int)(page.after.n < 60 ? page.after.n : 60), page.after.s);
    json_free(items);
    *out = w.out;
    return ok;
}

// The id of what stands behind "/v1/responses/"; true: its input items are asked for.
static bool split_rest(const char *rest, char id[static RANDOM_ID]) {
    static const char tail[] = "/input_items";
    size_t n = strlen(rest), m = sizeof tail - 1;
    bool items = n > m && !strcmp(rest + n - m, tail);
    snprintf(id, RANDOM_ID, "%.*s", (int)(items ? n - m : n), rest);
    return items;
}

bool response_view_streams(const struct response_view *v) {
    char id[RANDOM_ID];
    struct words w;
    return !split_rest(v->rest, id) && query_says(v->query, "stream", &w) &&
           (words_equal(w, "true") || words_equal(w, "True") || words_equal(w, "1"));
}

// A kept response as a stream. Its events have numbers of their own: texts come in one piece.
static bool write_events(const char *query, const struct str *text, struct str *out,
                         struct api_error *x) {
    struct json *response = NULL;
    int64_t after = -1, last = -1;
    if (!parse(text, &response, x))
        return false;
    bool ok = query_number(query, "starting_after", &after) ||
              api_refuse(x, "starting_after", "starting_after must be the number of an event");
    if (ok)
        last = response_replay(response, after, out);
    if (ok && after > last)
        ok = api_refuse(x, "starting_after",
                        "starting_after is %lld and the last event of a kept response is %lld, as "
                        "its texts come in one piece; ask without it",
                        (long long)after, (long long)last);
    json_free(response);
    return ok;
}

size_t api_response_size(struct service *s, const char *rest) {
    char id[RANDOM_ID];
    split_rest(rest, id);
    return response_store_size(&s->responses, id);
}

bool api_response_write(struct service *s, const struct response_view *v, struct str *out,
                        struct api_error *x) {
    char id[RANDOM_ID];
    struct str text = {0};
    bool items = split_rest(v->rest, id), ok = true;
    if (!response_store_get(&s->responses, id, items ? NULL : &text, items ? &text : NULL))
        ok = fail_unknown(x, v->rest);
    else if (items)
        ok = write_items(id, v->query, &text, out, x);
    else if (response_view_streams(v))
        ok = write_events(v->query, &text, out, x);
    else
        str_append(out, text.data ? text.data : "", text.len);
    str_fini(&text);
    return ok && (!out->failed || no_memory(x));
}

static void refuse(struct exchange *x, int status, const char *sentence) {
    struct api_error why;
    api_fail(&why, status, NULL, "%s", sentence);
    service_refuse(x, &why);
}

void api_response_cancel(struct service *s, struct exchange *x, const char *rest) {
    char id[RANDOM_ID];
    snprintf(id, sizeof id, "%.*s", (int)(strlen(rest) - strlen("/cancel")), rest);
    if (!response_store_get(&s->responses, id, NULL, NULL))
        refuse_unknown(x, id);
    else
        refuse(x, 400,
               "Cannot cancel a synchronous response: only one made with background can "
               "be, and none is here; close the connection of a request to end it");
}

void api_responses_compact(struct service *s, struct exchange *x, const char *rest) {
    (void)s, (void)rest;
    refuse(x, 404,
           "conversations are not compacted here: ask for a summary with /v1/responses, "
           "and go on from that");
}

void api_response_delete(struct service *s, struct exchange *x, const char *rest) {
    struct json_writer w = {0};
    if (!response_store_drop(&s->responses, rest)) {
        refuse_unknown(x, rest);
        return;
    }
    jw_begin(&w, '{');
    jw_key_str(&w, "id", rest);
    jw_key_str(&w, "object", "response");
    jw_key_bool(&w, "deleted", true);
    jw_end(&w, '}');
    service_json(x, 200, &w);
}
