// SPDX-License-Identifier: Apache-2.0
// Kept responses as events; see replay.h.
#include "serve/reply/replay.h"

#include <stdio.h>
#include <string.h>

#include "serve/http/sse.h"

struct replay {
    struct json_writer w;
    struct str *out;
    int64_t next, after;
};

static struct json_writer *open_event(struct replay *r, const char *type) {
    jw_begin(&r->w, '{');
    jw_key_str(&r->w, "type", type);
    jw_key_int(&r->w, "sequence_number", r->next);
    return &r->w;
}

static void close_event(struct replay *r, const char *type) {
    jw_end(&r->w, '}');
    if (r->next++ > r->after) {
        sse_write(r->out, type, &r->w);
    } else {
        r->out->failed |= r->w.out.failed;
        str_clear(&r->w.out);
        r->w.comma = false;
    }
}

static bool among(const char *key, const char *const *list) {
    while (*list && strcmp(*list, key) != 0)
        list++;
    return *list != NULL;
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
    if (among(key, end))
        return 0;
    jw_key(w, key);
    if (!strcmp(key, "status")) {
        jw_cstr(w, "in_progress");
    } else if (among(key, later)) {
        jw_null(w);
    } else if (among(key, lists)) {
        jw_begin(w, '[');
        jw_end(w, ']');
    } else if (among(key, texts)) {
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

static void put_state(struct replay *r, const char *type, const struct json *response, bool begun) {
    struct json_writer *w = open_event(r, type);
    jw_key(w, "response");
    if (begun)
        put_begun_object(w, response);
    else
        jw_value(w, response);
    close_event(r, type);
}

static void put_item(struct replay *r, const char *type, const struct json *item, int64_t at,
                     bool begun) {
    struct json_writer *w = open_event(r, type);
    jw_key_int(w, "output_index", at);
    jw_key(w, "item");
    if (begun)
        put_begun_object(w, item);
    else
        jw_value(w, item);
    close_event(r, type);
}

// A text of an item: a part of its content, or what a call is made with.
struct place {
    const struct json *item, *part; // part NULL: of a call
    int64_t at, index;              // of the item; of the part
    bool summary;
};

static struct json_writer *open_place(struct replay *r, const char *type, const struct place *p) {
    struct json_writer *w = open_event(r, type);
    jw_key(w, "item_id");
    jw_value(w, json_get(p->item, "id"));
    jw_key_int(w, "output_index", p->at);
    if (p->part)
        jw_key_int(w, p->summary ? "summary_index" : "content_index", p->index);
    return w;
}

static void put_logprobs(struct json_writer *w, const struct json *part) {
    const struct json *l = json_get(part, "logprobs");
    if (!l)
        return;
    jw_key(w, "logprobs");
    jw_value(w, l);
}

// `name`: of the text's events, without ".delta" and ".done"; `key`: where it stands.
static void put_text(struct replay *r, const struct place *p, const char *name, const char *key) {
    const struct json *text = json_get(p->part ? p->part : p->item, key);
    size_t n = 0;
    char type[64];
    if (json_str(text, &n) && n) {
        snprintf(type, sizeof type, "%s.delta", name);
        struct json_writer *w = open_place(r, type, p);
        jw_key(w, "delta");
        jw_value(w, text);
        put_logprobs(w, p->part);
        close_event(r, type);
    }
    snprintf(type, sizeof type, "%s.done", name);
    struct json_writer *w = open_place(r, type, p);
    if (!strcmp(key, "arguments")) {
        jw_key(w, "name");
        jw_value(w, json_get(p->item, "name"));
        if (json_get(p->item, "namespace")) {
            jw_key(w, "namespace");
            jw_value(w, json_get(p->item, "namespace"));
        }
    }
    jw_key(w, key);
    jw_value(w, text);
    put_logprobs(w, p->part);
    close_event(r, type);
}

static void put_part(struct replay *r, const struct place *p, bool begun) {
    const char *type = p->summary ? begun ? "response.reasoning_summary_part.added"
                                          : "response.reasoning_summary_part.done"
                       : begun    ? "response.content_part.added"
                                  : "response.content_part.done";
    struct json_writer *w = open_place(r, type, p);
    bool said = !strcmp(json_str(json_get(p->part, "type"), NULL), "output_text");
    jw_key(w, "part");
    if (begun) {
        jw_begin(w, '{');
        jw_key(w, "type");
        jw_value(w, json_get(p->part, "type"));
        jw_key_str(w, "text", "");
        for (int i = 0; said && i < 2; i++) {
            jw_key(w, i ? "logprobs" : "annotations");
            jw_begin(w, '[');
            jw_end(w, ']');
        }
        jw_end(w, '}');
    } else {
        jw_value(w, p->part);
    }
    close_event(r, type);
}

static void put_parts(struct replay *r, const struct json *item, int64_t at, bool summary) {
    const struct json *parts = json_get(item, summary ? "summary" : "content");
    char name[64];
    for (size_t i = 0; i < json_len(parts); i++) {
        struct place p = {item, json_at(parts, i), at, (int64_t)i, summary};
        const char *type = json_str(json_get(p.part, "type"), NULL);
        if (!type)
            continue;
        snprintf(name, sizeof name, "response.%s%.40s", summary ? "reasoning_" : "", type);
        put_part(r, &p, true);
        put_text(r, &p, name, "text");
        put_part(r, &p, false);
    }
}

static void put_whole_item(struct replay *r, const struct json *item, int64_t at) {
    const char *type = json_str(json_get(item, "type"), NULL);
    struct place p = {.item = item, .at = at};
    put_item(r, "response.output_item.added", item, at, true);
    if (type && !strcmp(type, "function_call")) {
        put_text(r, &p, "response.function_call_arguments", "arguments");
    } else if (type && !strcmp(type, "custom_tool_call")) {
        put_text(r, &p, "response.custom_tool_call_input", "input");
    } else {
        put_parts(r, item, at, true);
        put_parts(r, item, at, false);
    }
    put_item(r, "response.output_item.done", item, at, false);
}

int64_t response_replay(const struct json *response, int64_t after, struct str *out) {
    struct replay r = {.out = out, .after = after};
    const struct json *output = json_get(response, "output");
    const char *status = json_str(json_get(response, "status"), NULL);
    char end[64];
    put_state(&r, "response.created", response, true);
    put_state(&r, "response.in_progress", response, true);
    for (size_t i = 0; i < json_len(output); i++)
        put_whole_item(&r, json_at(output, i), (int64_t)i);
    snprintf(end, sizeof end, "response.%.40s", status ? status : "completed");
    put_state(&r, end, response, false);
    str_fini(&r.w.out);
    return r.next - 1;
}
