// SPDX-License-Identifier: Apache-2.0
// Conversations in JSON; see compress_json.h.
#include "compress/compress_json.h"

#include <stdlib.h>
#include <string.h>

// The text of a content or of a part of one; NULL: none.
static const char *text_of(const struct json *v, size_t *n) {
    if (json_kind_of(v) == JSON_STRING)
        return json_str(v, n);
    return json_kind_of(v) == JSON_OBJECT ? json_str(json_get(v, "text"), n) : NULL;
}

static int64_t count_parts(const struct json *content) {
    return json_kind_of(content) == JSON_ARRAY ? (int64_t)json_len(content) : 1;
}

// A part for each element of a content, empty where it is no text, so that places agree.
static void take_parts(const struct json *content, int64_t n, struct compress_part *out) {
    bool array = json_kind_of(content) == JSON_ARRAY;
    for (int64_t i = 0; i < n; i++) {
        size_t len = 0;
        const struct json *v = array ? json_at(content, (size_t)i) : content;
        const char *text = array || json_kind_of(v) == JSON_STRING ? text_of(v, &len) : NULL;
        out[i] = (struct compress_part){text ? text : "", text ? len : 0};
    }
}

static int check(const struct json *messages, int64_t *parts, struct err *e) {
    if (json_kind_of(messages) != JSON_ARRAY)
        return err_set(e, ERR_FORMAT, "messages must be an array of objects with a role");
    *parts = 0;
    for (size_t i = 0; i < json_len(messages); i++) {
        const struct json *m = json_at(messages, i);
        if (json_kind_of(m) != JSON_OBJECT || !json_str(json_get(m, "role"), NULL))
            return err_set(e, ERR_FORMAT, "messages[%zu] is no object with a role", i);
        *parts += count_parts(json_get(m, "content"));
    }
    return 0;
}

int compress_json_read(struct compress_json *c, const struct json *messages, struct err *e) {
    int64_t n_parts = 0;
    *c = (struct compress_json){.from = messages};
    int rc = check(messages, &n_parts, e);
    if (rc)
        return rc;
    size_t n = json_len(messages);
    c->messages = calloc(n + 1, sizeof *c->messages);
    c->parts = calloc((size_t)n_parts + 1, sizeof *c->parts);
    if (!c->messages || !c->parts)
        return err_set(e, ERR_MEMORY, "no memory for %zu messages", n);
    struct compress_part *next = c->parts;
    for (size_t i = 0; i < n; i++) {
        const struct json *m = json_at(messages, i), *content = json_get(m, "content");
        int64_t k = count_parts(content);
        take_parts(content, k, next);
        c->messages[i] = (struct compress_message){json_str(json_get(m, "role"), NULL), next, k};
        next += k;
    }
    c->v = (struct compress_conversation){c->messages, (int64_t)n};
    return 0;
}

void compress_json_fini(struct compress_json *c) {
    free(c->messages);
    free(c->parts);
    *c = (struct compress_json){0};
}

struct writing {
    struct json_writer *w;
    const struct compress_json *c;
    const struct compress_result *r;
    const char *gap;
    int64_t message, part;
    struct str kept;
};

static void put_kept(struct writing *p) {
    str_clear(&p->kept);
    compress_kept(p->r, &p->c->v, p->message, p->part, p->gap, &p->kept);
    jw_str(p->w, p->kept.data ? p->kept.data : "", p->kept.len);
    p->w->out.failed |= p->kept.failed;
}

static int copy_part(void *arg, const char *key, size_t n, const struct json *v) {
    struct writing *p = arg;
    (void)n;
    jw_key(p->w, key);
    if (!strcmp(key, "text") && json_kind_of(v) == JSON_STRING)
        put_kept(p);
    else
        jw_value(p->w, v);
    return 0;
}

static void put_array(struct writing *p, const struct json *content) {
    jw_begin(p->w, '[');
    for (size_t i = 0; i < json_len(content); i++) {
        const struct json *v = json_at(content, i);
        p->part = (int64_t)i;
        if (json_kind_of(v) == JSON_STRING) {
            put_kept(p);
        } else if (json_kind_of(v) == JSON_OBJECT) {
            jw_begin(p->w, '{');
            json_each(v, copy_part, p);
            jw_end(p->w, '}');
        } else {
            jw_value(p->w, v);
        }
    }
    jw_end(p->w, ']');
}

static int copy_message(void *arg, const char *key, size_t n, const struct json *v) {
    struct writing *p = arg;
    (void)n;
    jw_key(p->w, key);
    p->part = 0;
    if (!strcmp(key, "content") && json_kind_of(v) == JSON_STRING)
        put_kept(p);
    else if (!strcmp(key, "content") && json_kind_of(v) == JSON_ARRAY)
        put_array(p, v);
    else
        jw_value(p->w, v);
    return 0;
}

void compress_json_write(struct json_writer *w, const struct compress_json *c,
                         const struct compress_result *r, const char *gap) {
    struct writing p = {.w = w, .c = c, .r = r, .gap = gap};
    jw_begin(w, '[');
    for (; p.message < c->v.n; p.message++) {
        jw_begin(w, '{');
        json_each(json_at(c->from, (size_t)p.message), copy_message, &p);
        jw_end(w, '}');
    }
    jw_end(w, ']');
    str_fini(&p.kept);
}
