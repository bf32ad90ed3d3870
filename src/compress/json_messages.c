// SPDX-License-Identifier: Apache-2.0
// Messages from JSON and back.
#include "compress/json_messages.h"

#include <string.h>

// The text of a part of type "text", as a value; NULL for parts of other types.
static const struct json *text_of(const struct json *part) {
    const char *type = json_str(json_get(part, "type"), NULL);
    return !type || strcmp(type, "text") ? NULL : json_get(part, "text");
}

static bool is_text_part(const struct json *part) {
    const char *type = json_str(json_get(part, "type"), NULL);
    return type && !strcmp(type, "text");
}

static int wrong(size_t i, const char *what, struct err *e) {
    return err_set(e, ERR_FORMAT, "message %zu %s", i + 1, what);
}

static int read_parts(struct json_messages *m, const struct json *content, size_t i,
                      struct compress_message *out, struct err *e) {
    size_t n = json_kind_of(content) == JSON_ARRAY ? json_len(content) : 1;
    struct compress_part *parts = arena_array(&m->arena, n + 1, sizeof *parts);
    if (!parts)
        return err_set(e, ERR_MEMORY, "no memory for %zu parts of a message", n);
    out->parts = parts;
    if (json_kind_of(content) == JSON_STRING) {
        parts[0].text = json_str(content, &parts[0].n);
        out->n_parts = 1;
        return 0;
    }
    for (size_t k = 0; k < n; k++) {
        const struct json *part = json_at(content, k);
        if (json_kind_of(part) != JSON_OBJECT)
            return wrong(i, "has a content with a part that is no object", e);
        if (!is_text_part(part))
            continue;
        struct compress_part *p = &parts[out->n_parts++];
        p->text = json_str(text_of(part), &p->n);
        if (!p->text)
            return wrong(i, "has a part of type text without a text", e);
    }
    return 0;
}

static int read_message(struct json_messages *m, size_t i, struct compress_message *out,
                        struct err *e) {
    const struct json *from = json_at(m->from, i), *content = json_get(from, "content");
    enum json_kind kind = json_kind_of(content);
    if (json_kind_of(from) != JSON_OBJECT)
        return wrong(i, "is no object", e);
    out->role = json_str(json_get(from, "role"), NULL);
    if (!out->role)
        return wrong(i, "has no role that is a text", e);
    if (kind == JSON_NULL)
        return 0;
    if (kind != JSON_STRING && kind != JSON_ARRAY)
        return wrong(i, "has a content that is neither a text nor an array of parts", e);
    return read_parts(m, content, i, out, e);
}

int json_messages_read(struct json_messages *m, const struct json *messages, struct err *e) {
    *m = (struct json_messages){.from = messages};
    if (json_kind_of(messages) != JSON_ARRAY)
        return err_set(e, ERR_FORMAT, "messages are an array of objects with role and content");
    size_t n = json_len(messages);
    struct compress_message *list = arena_array(&m->arena, n + 1, sizeof *list);
    if (!list)
        return err_set(e, ERR_MEMORY, "no memory for %zu messages", n);
    m->v = (struct compress_conversation){list, (int64_t)n};
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++)
        rc = read_message(m, i, &list[i], e);
    return rc;
}

// What is being written: a message, and the number of its next text.
struct writing {
    const struct json_messages *m;
    const struct compress_result *r;
    const char *gap;
    struct json_writer *w;
    int64_t message, part;
};

static void write_text(struct writing *x) {
    struct str s = {0};
    compress_kept(x->r, &x->m->v, x->message, x->part++, x->gap, &s);
    jw_str(x->w, s.data ? s.data : "", s.len);
    x->w->out.failed |= s.failed;
    str_fini(&s);
}

static int write_part_member(void *arg, const char *key, size_t n, const struct json *v) {
    struct writing *x = arg;
    (void)n;
    jw_key(x->w, key);
    if (!strcmp(key, "text"))
        write_text(x);
    else
        jw_value(x->w, v);
    return 0;
}

static void write_content(struct writing *x, const struct json *content) {
    if (json_kind_of(content) == JSON_STRING)
        write_text(x);
    else if (json_kind_of(content) != JSON_ARRAY)
        jw_value(x->w, content);
    else {
        jw_begin(x->w, '[');
        for (size_t k = 0; k < json_len(content); k++) {
            const struct json *part = json_at(content, k);
            if (is_text_part(part)) {
                jw_begin(x->w, '{');
                json_each(part, write_part_member, x);
                jw_end(x->w, '}');
            } else
                jw_value(x->w, part);
        }
        jw_end(x->w, ']');
    }
}

static int write_member(void *arg, const char *key, size_t n, const struct json *v) {
    struct writing *x = arg;
    (void)n;
    jw_key(x->w, key);
    if (!strcmp(key, "content"))
        write_content(x, v);
    else
        jw_value(x->w, v);
    return 0;
}

void json_messages_write(const struct json_messages *m, const struct compress_result *r,
                         const char *gap, struct json_writer *w) {
    struct writing x = {.m = m, .r = r, .gap = gap, .w = w};
    jw_begin(w, '[');
    for (; x.message < m->v.n; x.message++) {
        x.part = 0;
        jw_begin(w, '{');
        json_each(json_at(m->from, (size_t)x.message), write_member, &x);
        jw_end(w, '}');
    }
    jw_end(w, ']');
}

void json_messages_fini(struct json_messages *m) {
    arena_fini(&m->arena);
    *m = (struct json_messages){0};
}
