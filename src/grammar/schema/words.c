// SPDX-License-Identifier: Apache-2.0
// Schemas that say in other words what not, if, dependentRequired and dependentSchemas ask for:
// choices between schemas, so that nothing behind them knows these keywords. Each is made once.
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "grammar/schema/schema.h"

enum { MOST_BYTES = 8 << 20, MOST_DEPENDENT = 10 };

static void put_or_true(struct json_writer *w, const struct json *object, const char *key) {
    if (json_has(object, key))
        jw_value(w, json_get(object, key));
    else
        jw_bool(w, true);
}

static void choose_if(struct json_writer *w, const struct json *v) {
    for (int i = 0; i < 2; i++) {
        jw_begin(w, '{');
        jw_key(w, "allOf");
        jw_begin(w, '[');
        if (i)
            schema_put_not(w, json_get(v, "if"));
        else
            jw_value(w, json_get(v, "if"));
        put_or_true(w, v, i ? "else" : "then");
        jw_end(w, ']');
        jw_end(w, '}');
    }
}

// The property is not there, or it is and what depends on it holds.
static int put_dependent(void *arg, const char *key, size_t n, const struct json *v) {
    struct json_writer *w = arg;
    jw_begin(w, '{');
    jw_key(w, "anyOf");
    jw_begin(w, '[');
    jw_begin(w, '{');
    schema_put_property(w, key, n, NULL);
    jw_end(w, '}');
    schema_open_type(w, "object");
    schema_put_list(w, "required", key, n);
    jw_key(w, "allOf");
    jw_begin(w, '[');
    if (json_kind_of(v) == JSON_ARRAY) {
        jw_begin(w, '{');
        jw_key(w, "required");
        jw_value(w, v);
        jw_end(w, '}');
    } else {
        jw_value(w, v);
    }
    jw_end(w, ']');
    jw_end(w, '}');
    jw_end(w, ']');
    jw_end(w, '}');
    return w->out.failed;
}

static void put_tag(struct json_writer *w, const struct tag *tag) {
    schema_open_type(w, "object");
    schema_put_list(w, "required", tag->name, strlen(tag->name));
    if (tag->value) {
        jw_key(w, "properties");
        jw_begin(w, '{');
        jw_key(w, tag->name);
        jw_begin(w, '{');
        jw_key_str(w, "const", tag->value);
        jw_end(w, '}');
        jw_end(w, '}');
    }
    jw_end(w, '}');
}

// ---- what is made, once for each schema

static void write_words(struct schema *s, struct json_writer *w, enum schema_words what,
                        const struct json *v) {
    static const char *const names[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    if (what == WORDS_NOT) {
        schema_negate(s, w, v, 0);
        return;
    }
    if (what == WORDS_TAG) {
        put_tag(w, &s->tag);
        return;
    }
    jw_begin(w, '{');
    jw_key(w, what == WORDS_IF ? "anyOf" : "allOf");
    jw_begin(w, '[');
    if (what == WORDS_IF)
        choose_if(w, v);
    for (size_t i = 0; what == WORDS_DEPENDENT && i < sizeof names / sizeof *names; i++) {
        const struct json *list = json_get(v, names[i]);
        if (list && json_kind_of(list) != JSON_OBJECT)
            schema_fail(s, ERR_FORMAT, v, names[i], "it must be an object");
        if (json_len(list) > MOST_DEPENDENT) // each doubles the forms that the object may have
            schema_fail(s, ERR_LIMIT, v, names[i], "it has more than 10 properties");
        json_each(list, put_dependent, w);
    }
    jw_end(w, ']');
    jw_end(w, '}');
}

// What a schema that is a reference only refers to: the same for all such references.
static const struct json *referred(struct schema *s, const struct json *v) {
    for (int i = 0; i < SCHEMA_DEEPEST && json_kind_of(v) == JSON_OBJECT && json_len(v) == 1; i++) {
        const char *ref = json_str(json_get(v, "$ref"), NULL);
        const struct json *to = ref ? schema_target(s, v, ref) : NULL;
        if (!to)
            break;
        v = to;
    }
    return v;
}

const struct json *schema_in_words(struct schema *s, enum schema_words what, const struct json *v) {
    struct json_writer w = {0};
    struct json *doc = NULL;
    if (what == WORDS_NOT)
        v = referred(s, v);
    build_work(s->b, s->worded_count / 4);
    for (int64_t i = 0; i < s->worded_count; i++)
        if (s->worded[i].of == v && s->worded[i].what == what)
            return s->worded[i].doc;
    write_words(s, &w, what, v);
    struct err *e = &s->b->e;
    s->worded_bytes += w.out.len;
    build_work(s->b, (int64_t)w.out.len * 4);
    if (w.out.failed)
        build_fail(s->b, ERR_MEMORY, "no memory for a schema");
    else if (s->worded_bytes > MOST_BYTES)
        schema_fail(s, ERR_LIMIT, v, NULL,
                    "not, if and dependent keywords become more than 8 MB of choices");
    if (!e->code &&
        !vec_reserve(&s->worded, &s->worded_cap, s->worded_count + 1, sizeof *s->worded, e) &&
        !json_parse(&doc, w.out.data, w.out.len, e))
        s->worded[s->worded_count++] = (struct worded){doc, v, what};
    str_fini(&w.out);
    return doc;
}

void schema_words_fini(struct schema *s) {
    for (int64_t i = 0; i < s->worded_count; i++)
        json_free(s->worded[i].doc);
    free(s->worded);
}

bool schema_plain_not(const struct json *v) {
    const struct json *no = json_get(v, "not"), *list = json_get(no, "enum");
    const char *type = json_str(json_get(v, "type"), NULL);
    if (!type || strcmp(type, "string") != 0 || json_kind_of(no) != JSON_OBJECT ||
        json_len(no) != 1)
        return false;
    for (size_t i = 0; i < json_len(list); i++)
        if (!json_str(json_at(list, i), NULL))
            return false;
    return json_kind_of(list) == JSON_ARRAY || json_str(json_get(no, "pattern"), NULL);
}
