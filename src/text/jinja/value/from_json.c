// SPDX-License-Identifier: Apache-2.0
// Values of JSON documents as values of templates.
#include <string.h>

#include "text/jinja/value/number.h"
#include "text/jinja/value/value.h"

struct member_arg {
    struct jinja_context *c;
    struct jinja_value dict;
    bool untrusted;
};

static int add_member(void *arg, const char *key, size_t key_len, const struct json *v) {
    struct member_arg *a = arg;
    struct jinja_value name = jinja_string(a->c, key, key_len, a->untrusted);
    struct jinja_value value = jinja_from_json(a->c, v, a->untrusted);
    if (!name.kind || !value.kind)
        return a->c->e.code;
    return jinja_dict_set(a->c, a->dict.as.m, name, value);
}

static struct jinja_value from_object(struct jinja_context *c, const struct json *v,
                                      bool untrusted) {
    struct member_arg a = {.c = c, .dict = jinja_dict(c, untrusted), .untrusted = untrusted};
    if (a.dict.kind && json_each(v, add_member, &a))
        a.dict.kind = JINJA_ABSENT;
    return a.dict;
}

static struct jinja_value from_array(struct jinja_context *c, const struct json *v,
                                     bool untrusted) {
    struct jinja_value list = jinja_list(c, untrusted);
    for (size_t i = 0; list.kind && i < json_len(v); i++) {
        struct jinja_value item = jinja_from_json(c, json_at(v, i), untrusted);
        if (!item.kind || jinja_push(c, list.as.l, item))
            list.kind = JINJA_ABSENT;
    }
    return list;
}

// As spelt: "-0" is 0 in Python too.
static struct jinja_value from_integer(struct jinja_context *c, const struct json *v,
                                       bool untrusted) {
    struct jinja_value i;
    const char *text = json_number_text(v);
    if (!text || !jinja_read_integer(c, text, strlen(text), 10, &i))
        i = (struct jinja_value){0};
    if (i.kind == JINJA_BIG)
        ((struct jinja_string *)(uintptr_t)i.as.s)->trusted = !untrusted;
    i.untrusted = untrusted;
    return i;
}

struct jinja_value jinja_from_json(struct jinja_context *c, const struct json *v, bool untrusted) {
    struct jinja_value out = jinja_none();
    size_t n;
    const char *s;
    switch (json_kind_of(v)) {
    case JSON_NULL:
        return out;
    case JSON_BOOL:
        out = jinja_bool(json_bool(v, false));
        out.untrusted = untrusted;
        return out;
    case JSON_INT:
        return from_integer(c, v, untrusted);
    case JSON_DOUBLE:
        return jinja_float(json_num(v, 0), untrusted);
    case JSON_STRING:
        s = json_str(v, &n);
        return jinja_string(c, s, n, untrusted);
    case JSON_ARRAY:
        return from_array(c, v, untrusted);
    case JSON_OBJECT:
        return from_object(c, v, untrusted);
    }
    return out;
}
