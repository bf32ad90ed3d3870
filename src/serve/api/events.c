// SPDX-License-Identifier: Apache-2.0
// Events of responses; see events.h.
#include "serve/api/events.h"

#include <stdio.h>
#include <string.h>

#include "serve/http/sse.h"
#include "text/chat/conversation.h"

struct json_writer *response_event_open(struct response_events *r, const char *type) {
    jw_begin(r->w, '{');
    jw_key_str(r->w, "type", type);
    jw_key_int(r->w, "sequence_number", r->next);
    return r->w;
}

void response_event_close(struct response_events *r, const char *type) {
    jw_end(r->w, '}');
    if (r->next++ > r->after) {
        sse_write(r->out, type, r->w);
    } else {
        r->out->failed |= r->w->out.failed;
        str_clear(&r->w->out);
        r->w->comma = false;
    }
}

static void put_value(struct response_events *r, const struct json *v);

static int put_member(void *arg, const char *key, size_t n, const struct json *v) {
    struct response_events *r = arg;
    (void)n;
    jw_key(r->w, key);
    if (r->put_logprobs && !strcmp(key, "logprobs"))
        r->put_logprobs(r->logprobs_arg, r->w);
    else
        put_value(r, v);
    return 0;
}

// A value of an item or a response, with its log-probabilities.
static void put_value(struct response_events *r, const struct json *v) {
    enum json_kind kind = json_kind_of(v);
    bool opens = r->put_logprobs && (kind == JSON_OBJECT || kind == JSON_ARRAY);
    if (!opens) {
        jw_value(r->w, v);
        return;
    }
    jw_begin(r->w, kind == JSON_OBJECT ? '{' : '[');
    if (kind == JSON_OBJECT)
        json_each(v, put_member, r);
    for (size_t i = 0; kind == JSON_ARRAY && i < json_len(v); i++)
        put_value(r, json_at(v, i));
    jw_end(r->w, kind == JSON_OBJECT ? '}' : ']');
}

// A member of a response or an item as it was at its beginning.
static int put_begun(void *arg, const char *key, size_t n, const struct json *v) {
    static const char *const later[] = {"completed_at", "usage", "incomplete_details",
                                        "encrypted_content", NULL};
    static const char *const lists[] = {"output", "content", "summary", NULL};
    static const char *const texts[] = {"arguments", "input", NULL};
    static const char *const end[] = {"timings", "coppice", NULL};
    struct json_writer *w = arg;
    (void)n;
    if (words_among(end, key))
        return 0;
    jw_key(w, key);
    if (!strcmp(key, "status")) {
        jw_cstr(w, "in_progress");
    } else if (words_among(later, key)) {
        jw_null(w);
    } else if (words_among(lists, key)) {
        jw_begin(w, '[');
        jw_end(w, ']');
    } else if (words_among(texts, key)) {
        jw_cstr(w, "");
    } else {
        jw_value(w, v);
    }
    return 0;
}

static void put_begun_object(struct json_writer *w, const struct json *v) {
    jw_begin(w, '{');
    json_each(v, put_begun, w);
    jw_end(w, '}');
}

// of: what the event says of a response or an item, as it is or as it was at its beginning.
static void put_object_event(struct response_events *r, const char *type, const char *key,
                             const struct json *of, int64_t at, bool begun) {
    struct json_writer *w = response_event_open(r, type);
    if (at >= 0)
        jw_key_int(w, "output_index", at);
    jw_key(w, key);
    if (begun)
        put_begun_object(w, of);
    else
        put_value(r, of);
    response_event_close(r, type);
}

// A text of an item: a part of its content, or what a call is made with.
struct place {
    const struct json *item, *part; // part NULL: of a call
    int64_t at, index;              // of the item; of the part
    bool summary;
};

static struct json_writer *open_place(struct response_events *r, const char *type,
                                      const struct place *p) {
    struct json_writer *w = response_event_open(r, type);
    jw_key_value(w, "item_id", json_get(p->item, "id"));
    jw_key_int(w, "output_index", p->at);
    if (p->part)
        jw_key_int(w, p->summary ? "summary_index" : "content_index", p->index);
    return w;
}

static void put_known(struct response_events *r, const struct json *of, const char *key) {
    if (json_get(of, key))
        put_member(r, key, strlen(key), json_get(of, key));
}

// `name`: of the text's events, without ".delta" and ".done"; `key`: where it stands.
static void put_text_events(struct response_events *r, const struct place *p, const char *name,
                            const char *key, int what) {
    const struct json *text = json_get(p->part ? p->part : p->item, key);
    size_t n = 0;
    char type[64];
    json_str(text, &n);
    if ((what & ITEM_SAYS_ALL) && n) {
        snprintf(type, sizeof type, "%s.delta", name);
        struct json_writer *w = open_place(r, type, p);
        jw_key_value(w, "delta", text);
        put_known(r, p->part, "logprobs");
        response_event_close(r, type);
    }
    if (!(what & ITEM_ENDS))
        return;
    snprintf(type, sizeof type, "%s.done", name);
    struct json_writer *w = open_place(r, type, p);
    if (!strcmp(key, "arguments")) {
        put_known(r, p->item, "namespace");
        put_known(r, p->item, "name");
    }
    jw_key_value(w, key, text);
    put_known(r, p->part, "logprobs");
    response_event_close(r, type);
}

static void put_part_event(struct response_events *r, const struct place *p, bool begun) {
    const char *type = p->summary ? begun ? "response.reasoning_summary_part.added"
                                          : "response.reasoning_summary_part.done"
                       : begun    ? "response.content_part.added"
                                  : "response.content_part.done";
    struct json_writer *w = open_place(r, type, p);
    bool said = words_equal(words_of(json_get(p->part, "type")), "output_text");
    jw_key(w, "part");
    if (begun) {
        jw_begin(w, '{');
        jw_key_value(w, "type", json_get(p->part, "type"));
        jw_key_str(w, "text", "");
        for (int i = 0; said && i < 2; i++) {
            jw_key_begin(w, i ? "logprobs" : "annotations", '[');
            jw_end(w, ']');
        }
        jw_end(w, '}');
    } else {
        put_value(r, p->part);
    }
    response_event_close(r, type);
}

static void put_parts_events(struct response_events *r, const struct json *item, int64_t at,
                             bool summary, int what) {
    const struct json *parts = json_get(item, summary ? "summary" : "content");
    char name[64];
    for (size_t i = 0; i < json_len(parts); i++) {
        struct place p = {item, json_at(parts, i), at, (int64_t)i, summary};
        const char *type = json_str(json_get(p.part, "type"), NULL);
        if (!type)
            continue;
        snprintf(name, sizeof name, "response.%s%.40s", summary ? "reasoning_" : "", type);
        if (what & ITEM_BEGINS)
            put_part_event(r, &p, true);
        put_text_events(r, &p, name, "text", what);
        if (what & ITEM_ENDS)
            put_part_event(r, &p, false);
    }
}

void response_events_item(struct response_events *r, const struct json *item, int64_t at,
                          int what) {
    struct words type = words_of(json_get(item, "type"));
    struct place p = {.item = item, .at = at};
    if (what & ITEM_BEGINS)
        put_object_event(r, "response.output_item.added", "item", item, at, true);
    if (words_equal(type, "function_call")) {
        put_text_events(r, &p, "response.function_call_arguments", "arguments", what);
    } else if (words_equal(type, "custom_tool_call")) {
        put_text_events(r, &p, "response.custom_tool_call_input", "input", what);
    } else {
        put_parts_events(r, item, at, true, what);
        put_parts_events(r, item, at, false, what);
    }
    if (what & ITEM_ENDS)
        put_object_event(r, "response.output_item.done", "item", item, at, false);
}

void response_events_all(struct response_events *r, const struct json *response) {
    const struct json *output = json_get(response, "output");
    const char *status = json_str(json_get(response, "status"), NULL);
    char end[64];
    put_object_event(r, "response.created", "response", response, -1, true);
    put_object_event(r, "response.in_progress", "response", response, -1, true);
    for (size_t i = 0; i < json_len(output); i++)
        response_events_item(r, json_at(output, i), (int64_t)i,
                             ITEM_BEGINS | ITEM_SAYS_ALL | ITEM_ENDS);
    snprintf(end, sizeof end, "response.%.40s", status ? status : "completed");
    put_object_event(r, end, "response", response, -1, false);
}
