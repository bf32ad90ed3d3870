// SPDX-License-Identifier: Apache-2.0
// What $ref names: "#", JSON pointers (RFC 6901) and anchors within the document. Nothing is ever
// fetched.
#include <stdlib.h>
#include <string.h>

#include "grammar/schema/schema.h"

struct anchor {
    struct build *b;
    const char *name;
    const struct json *found;
};

static void find_anchor(struct anchor *a, const struct json *at);

static int anchor_in(void *arg, const char *key, size_t n, const struct json *v) {
    struct anchor *a = arg;
    bool value =
        (n == 4 && memcmp(key, "enum", n) == 0) || (n == 5 && memcmp(key, "const", n) == 0);
    if (!value)
        find_anchor(a, v);
    return a->found || a->b->e.code;
}

static void find_anchor(struct anchor *a, const struct json *at) {
    if (!build_work(a->b, 3))
        return;
    if (json_kind_of(at) == JSON_OBJECT) {
        static const char *const names[] = {"$anchor", "$dynamicAnchor", "$id"};
        for (int i = 0; i < 3; i++) {
            const char *name = json_str(json_get(at, names[i]), NULL);
            if (name && i == 2) // draft 7
                name = *name == '#' ? name + 1 : NULL;
            if (name && strcmp(name, a->name) == 0)
                a->found = at;
        }
        if (!a->found)
            json_each(at, anchor_in, a);
    }
    for (size_t i = 0; json_kind_of(at) == JSON_ARRAY && i < json_len(at) && !a->found; i++)
        find_anchor(a, json_at(at, i));
}

static int hex_of(char c) {
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

// Undoes %XX.
static void percent(struct str *out, const char *s) {
    for (; *s; s++) {
        bool coded = *s == '%' && hex_of(s[1]) >= 0 && hex_of(s[2]) >= 0;
        str_putc(out, coded ? (char)(hex_of(s[1]) * 16 + hex_of(s[2])) : *s);
        s += coded ? 2 : 0;
    }
}

// The child that the next part of a pointer names; *p goes on to the '/' behind it, or the end.
static const struct json *child(const struct json *at, const char **p, struct str *name) {
    str_clear(name);
    str_puts(name, "");
    for (; **p && **p != '/'; ++*p) {
        bool coded = **p == '~' && ((*p)[1] == '0' || (*p)[1] == '1');
        str_putc(name, !coded ? **p : (*p)[1] == '0' ? '~' : '/');
        *p += coded;
    }
    if (name->failed)
        return NULL;
    if (json_kind_of(at) != JSON_ARRAY)
        return json_kind_of(at) == JSON_OBJECT ? json_get(at, name->data) : NULL;
    char *end;
    unsigned long i = strtoul(name->data, &end, 10);
    bool is = name->len && *end == '\0' && name->data[0] >= '0' && name->data[0] <= '9';
    return is && i < json_len(at) ? json_at(at, i) : NULL;
}

const struct json *schema_target(struct schema *s, const struct json *at, const char *ref) {
    const char *id = json_str(json_get(s->root, "$id"), NULL), *p;
    struct str text = {0}, name = {0};
    const struct json *found = s->root;
    size_t n = id ? strcspn(id, "#") : 0;
    if (n && strncmp(ref, id, n) == 0)
        ref += n;
    if (*ref && *ref != '#') {
        schema_fail(s, ERR_UNSUPPORTED, at, "$ref",
                    "references to other documents are not supported; put the schema into $defs");
        return NULL;
    }
    build_work(s->b, 4 + (int64_t)strlen(ref));
    percent(&text, *ref ? ref + 1 : ref);
    str_puts(&text, "");
    p = text.data;
    if (!text.failed && *p && *p != '/') {
        struct anchor a = {.b = s->b, .name = p};
        find_anchor(&a, s->root);
        found = a.found;
    }
    while (!text.failed && found && *p == '/') {
        p++;
        found = child(found, &p, &name);
    }
    if (text.failed || name.failed)
        build_fail(s->b, ERR_MEMORY, "no memory for a schema");
    else if (!found)
        schema_fail(s, ERR_FORMAT, at, "$ref", "nothing is there where it points to");
    str_fini(&text);
    str_fini(&name);
    return found;
}
