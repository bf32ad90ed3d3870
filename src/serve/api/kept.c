// SPDX-License-Identifier: Apache-2.0
// Kept responses; see kept.h.
#include "serve/api/kept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/api/events.h"
#include "serve/api/handlers.h"

enum { ITEM_ID = 96 };

struct kept {
    char id[RANDOM_ID];
    struct json *answer, *input;
};

bool kept_no_memory(struct api_error *x) {
    api_fail(x, 503, NULL, "no memory for the conversation");
    return false;
}

bool kept_parse(const struct str *text, struct json **out, struct api_error *x) {
    struct err e = {0};
    const struct json_rules rules = {
        .depth = 512, .values = 1 << 21, .objects = 1 << 18, .big_integers = true};
    if (text->failed)
        return kept_no_memory(x);
    if (!json_parse_with(out, text->data ? text->data : "", text->len, &rules, &e))
        return true;
    api_error_of(x, &e);
    return false;
}

// The prefix of ids of that kind of item; NULL: kinds that are unknown stay as they came.
static const char *id_prefix(const struct json *item) {
    static const struct {
        const char *type, *prefix;
    } table[] = {{"message", "msg"},          {"reasoning", "rs"},
                 {"function_call", "fc"},     {"function_call_output", "fco"},
                 {"custom_tool_call", "ctc"}, {"custom_tool_call_output", "ctco"}};
    struct words type = words_of(json_get(item, "type"));
    for (size_t i = 0; type.s && i < sizeof table / sizeof table[0]; i++)
        if (words_equal(type, table[i].type))
            return table[i].prefix;
    return NULL;
}

// The id of item i: its own, or one made in `made`; NULL: it has none.
static const char *item_id(const struct json *items, const char *response, size_t i,
                           char made[static ITEM_ID]) {
    const struct json *item = json_at(items, i);
    const char *own = json_str(json_get(item, "id"), NULL), *prefix = id_prefix(item);
    const char *digits = strchr(response, '_');
    if (own || !prefix)
        return own;
    snprintf(made, ITEM_ID, "%s_%.40s_i%zu", prefix, digits ? digits + 1 : response, i);
    return made;
}

static int put_item_member(void *w, const char *key, size_t n, const struct json *v) {
    return !strcmp(key, "id") ? 0 : jw_member(w, key, n, v); // written already, or null
}

static void put_input_item(const struct json *item, const char *id, struct json_writer *w) {
    if (!id || json_kind_of(item) != JSON_OBJECT || json_get(item, "id")) {
        jw_value(w, item);
        return;
    }
    jw_begin(w, '{');
    jw_key_str(w, "id", id);
    json_each(item, put_item_member, w);
    jw_end(w, '}');
}

// Items from `from` on, in the order of the page.
static void put_page(const struct json *items, const struct input_page *page, size_t from,
                     struct json_writer *w) {
    size_t n = json_len(items), end = page->limit < n - from ? from + page->limit : n;
    char made[ITEM_ID], first[ITEM_ID] = "", last[ITEM_ID] = "";
    jw_begin(w, '{');
    jw_key_str(w, "object", "list");
    jw_key_begin(w, "data", '[');
    for (size_t k = from; k < end; k++) {
        size_t i = page->ascending ? k : n - 1 - k;
        const char *id = item_id(items, page->response, i, made);
        put_input_item(json_at(items, i), id, w);
        snprintf(last, sizeof last, "%s", id ? id : "");
        if (k == from)
            memcpy(first, last, sizeof first);
    }
    jw_end(w, ']');
    jw_key_str(w, "first_id", first[0] ? first : NULL);
    jw_key_str(w, "last_id", last[0] ? last : NULL);
    jw_key_bool(w, "has_more", end < n);
    jw_end(w, '}');
}

// The place of the item of that id; the number of items: there is none.
static size_t item_at(const struct json *items, const char *response, struct words id) {
    char made[ITEM_ID];
    size_t n = json_len(items), i = 0;
    for (; i < n; i++) {
        const char *is = item_id(items, response, i, made);
        if (is && words_equal(id, is))
            break;
    }
    return i;
}

bool input_items_write(const struct json *items, const struct input_page *page,
                       struct json_writer *w) {
    size_t n = json_len(items), from = 0;
    if (page->after.s) {
        size_t at = item_at(items, page->response, page->after);
        if (at == n)
            return false;
        from = (page->ascending ? at : n - 1 - at) + 1;
    }
    put_page(items, page, from, w);
    return true;
}

static bool find_input_item(const struct json *items, const char *response, struct words id,
                            struct json_writer *w) {
    char made[ITEM_ID];
    size_t i = item_at(items, response, id);
    if (i == json_len(items))
        return false;
    put_input_item(json_at(items, i), item_id(items, response, i, made), w);
    return true;
}

// The kept response of that id, read; NULL: there is none, or x says why it cannot be read.
static const struct kept *find_kept(struct kept_references *r, const char *id,
                                    struct api_error *x) {
    struct kept k = {0}, *more;
    struct str text = {0}, input = {0};
    for (size_t i = r->n; i-- > 0;)
        if (!strcmp(r->list[i].id, id))
            return &r->list[i];
    bool found = response_store_get(r->store, id, &text, &input) &&
                 kept_parse(&text, &k.answer, x) && kept_parse(&input, &k.input, x);
    str_fini(&text);
    str_fini(&input);
    more = found ? realloc(r->list, (r->n + 1) * sizeof *more) : NULL;
    if (!more) {
        if (found)
            (void)kept_no_memory(x);
        json_free(k.answer);
        json_free(k.input);
        return NULL;
    }
    snprintf(k.id, sizeof k.id, "%s", id);
    r->list = more;
    r->list[r->n] = k;
    return &r->list[r->n++];
}

// "resp_" and the digits of an item's id: "msg_" and the digits of the response. False: it has
// none.
bool kept_response_of_item(const char *id, char response[static RANDOM_ID]) {
    const char *digits = id ? strchr(id, '_') : NULL;
    int n = digits ? (int)strcspn(++digits, "_") : 0;
    if (!digits || n > 24)
        return false;
    snprintf(response, RANDOM_ID, "resp_%.*s", n, digits);
    return true;
}

// Writes the item of that id: one of a kept response's output, or of what it answered.
bool kept_find_item(struct kept_references *r, const char *id, struct json_writer *w,
                    struct api_error *x) {
    char response[RANDOM_ID];
    const struct kept *k = kept_response_of_item(id, response) ? find_kept(r, response, x) : NULL;
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
    return find_input_item(k->input, response, words_of_text(id), w);
}

void kept_references_fini(struct kept_references *r) {
    for (size_t i = 0; i < r->n; i++) {
        json_free(r->list[i].answer);
        json_free(r->list[i].input);
    }
    free(r->list);
}

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

// The value of `key` in the query, as it came; false where it is silent.
static bool find_query_value(const char *query, const char *key, struct words *out) {
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
static bool read_query_number(const char *query, const char *key, int64_t *out) {
    struct words w;
    int64_t v = 0;
    if (!find_query_value(query, key, &w))
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
    bool ok = kept_parse(input, &items, x);
    page.ascending = find_query_value(query, "order", &order) && words_equal(order, "asc");
    if (ok && (!read_query_number(query, "limit", &limit) || limit < 1))
        ok = api_refuse(x, "limit", "limit must be a number of items, 1 at least");
    page.limit = (size_t)limit;
    if (ok && find_query_value(query, "after", &page.after) && page.after.n == 0)
        page.after.s = NULL;
    if (ok && !input_items_write(items, &page, &w))
        ok = api_refuse(x, "after", "after is '%.*s', and no item of the list has that id",
                        (int)(page.after.n < 60 ? page.after.n : 60), page.after.s);
    json_free(items);
    *out = w.out;
    return ok;
}

// The id of what follows "/v1/responses/"; true: its input items are requested.
static bool parse_kept_path(const char *rest, char id[static RANDOM_ID]) {
    static const char tail[] = "/input_items";
    size_t n = strlen(rest), m = sizeof tail - 1;
    bool items = n > m && !strcmp(rest + n - m, tail);
    snprintf(id, RANDOM_ID, "%.*s", (int)(items ? n - m : n), rest);
    return items;
}

bool response_view_streams(const struct response_view *v) {
    char id[RANDOM_ID];
    struct words w;
    return !parse_kept_path(v->rest, id) && find_query_value(v->query, "stream", &w) &&
           (words_equal(w, "true") || words_equal(w, "True") || words_equal(w, "1"));
}

// A kept response as a stream. Its events have numbers of their own: texts come in one piece.
static bool write_events(const char *query, const struct str *text, struct str *out,
                         struct api_error *x) {
    struct json *response = NULL;
    struct json_writer w = {0};
    struct response_events events = {.w = &w, .out = out, .after = -1};
    if (!kept_parse(text, &response, x))
        return false;
    bool ok = read_query_number(query, "starting_after", &events.after) ||
              api_refuse(x, "starting_after", "starting_after must be the number of an event");
    if (ok)
        response_events_all(&events, response);
    if (ok && events.after >= events.next)
        ok = api_refuse(x, "starting_after",
                        "starting_after is %lld and the last event of a kept response is %lld, as "
                        "its texts come in one piece; ask without it",
                        (long long)events.after, (long long)events.next - 1);
    str_fini(&w.out);
    json_free(response);
    return ok;
}

size_t api_response_size(struct service *s, const char *rest) {
    char id[RANDOM_ID];
    parse_kept_path(rest, id);
    return response_store_size(&s->responses, id);
}

bool api_response_write(struct service *s, const struct response_view *v, struct str *out,
                        struct api_error *x) {
    char id[RANDOM_ID];
    struct str text = {0};
    bool items = parse_kept_path(v->rest, id), ok = true;
    if (!response_store_get(&s->responses, id, items ? NULL : &text, items ? &text : NULL))
        ok = fail_unknown(x, v->rest);
    else if (items)
        ok = write_items(id, v->query, &text, out, x);
    else if (response_view_streams(v))
        ok = write_events(v->query, &text, out, x);
    else
        str_append(out, text.data ? text.data : "", text.len);
    str_fini(&text);
    return ok && (!out->failed || kept_no_memory(x));
}

static void refuse_kept(struct exchange *x, int status, const char *sentence) {
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
        refuse_kept(x, 400,
                    "Cannot cancel a synchronous response: only one made with background can "
                    "be, and none is here; close the connection of a request to end it");
}

void api_responses_compact(struct service *s, struct exchange *x, const char *rest) {
    (void)s, (void)rest;
    refuse_kept(x, 404,
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
