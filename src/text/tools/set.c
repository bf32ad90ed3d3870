// SPDX-License-Identifier: Apache-2.0
// See set.h. Types of a schema are found by a walk that is bounded in depth and in steps, so
// that references in circles and schemas that branch at every level cost little.
#include "text/tools/set.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 16, MAX_STEPS = 2000 };

struct walk {
    const struct json *root;
    int steps;
};

static unsigned type_of_name(const char *name) {
    static const struct {
        const char *name;
        unsigned type;
    } names[] = {{"null", TOOL_NULL},      {"boolean", TOOL_BOOL},  {"number", TOOL_NUMBER},
                 {"integer", TOOL_NUMBER}, {"string", TOOL_STRING}, {"array", TOOL_ARRAY},
                 {"object", TOOL_OBJECT}};
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i].name))
            return names[i].type;
    return TOOL_ANY;
}

static unsigned type_of_value(const struct json *v) {
    switch (json_kind_of(v)) {
    case JSON_NULL:
        return TOOL_NULL;
    case JSON_BOOL:
        return TOOL_BOOL;
    case JSON_INT:
    case JSON_DOUBLE:
        return TOOL_NUMBER;
    case JSON_STRING:
        return TOOL_STRING;
    case JSON_ARRAY:
        return TOOL_ARRAY;
    case JSON_OBJECT:
        break;
    }
    return TOOL_OBJECT;
}

static unsigned types_named(const struct json *type) {
    unsigned types = 0;
    if (json_kind_of(type) != JSON_ARRAY)
        return type_of_name(json_str(type, NULL));
    for (size_t i = 0; i < json_len(type); i++)
        types |= type_of_name(json_str(json_at(type, i), NULL));
    return types ? types : TOOL_ANY;
}

// "#/$defs/name": the place in the schema, or NULL.
static const struct json *follow_reference(const struct json *root, const char *ref) {
    const struct json *at = root;
    char key[256];
    if (ref[0] != '#')
        return NULL;
    for (ref++; *ref == '/' && at;) {
        size_t n = 0;
        for (ref++; *ref && *ref != '/' && n < sizeof key - 1; ref++) {
            bool escape = ref[0] == '~' && (ref[1] == '0' || ref[1] == '1');
            key[n++] = !escape ? *ref : ref[1] == '0' ? '~' : '/';
            ref += escape;
        }
        key[n] = 0;
        if (json_kind_of(at) == JSON_ARRAY)
            at = json_at(at, (size_t)strtoul(key, NULL, 10));
        else
            at = json_get(at, key);
    }
    return *ref ? NULL : at;
}

static unsigned types_of(struct walk *w, const struct json *schema, int depth);

// The union of alternatives, of which there is at least one.
static unsigned types_of_any(struct walk *w, const struct json *list, int depth) {
    unsigned types = 0;
    for (size_t i = 0; i < json_len(list) && types != TOOL_ANY; i++)
        types |= types_of(w, json_at(list, i), depth);
    return types;
}

// What a schema without a type says of it by its other keywords.
static unsigned types_implied(const struct json *schema) {
    const struct json *values = json_get(schema, "enum");
    unsigned types = 0;
    if (json_len(values) > 0) {
        for (size_t i = 0; i < json_len(values); i++)
            types |= type_of_value(json_at(values, i));
        return types;
    }
    if (json_get(schema, "const"))
        return type_of_value(json_get(schema, "const"));
    if (json_get(schema, "properties"))
        return TOOL_OBJECT;
    if (json_get(schema, "items") || json_get(schema, "prefixItems"))
        return TOOL_ARRAY;
    return TOOL_ANY;
}

static unsigned types_of(struct walk *w, const struct json *schema, int depth) {
    unsigned types = TOOL_ANY;
    if (depth > MAX_DEPTH || ++w->steps > MAX_STEPS || json_kind_of(schema) != JSON_OBJECT)
        return TOOL_ANY;
    const char *ref = json_str(json_get(schema, "$ref"), NULL);
    const struct json *type = json_get(schema, "type"), *all = json_get(schema, "allOf");
    const struct json *any = json_get(schema, "anyOf"), *one = json_get(schema, "oneOf");
    types &= type ? types_named(type) : types_implied(schema);
    if (ref)
        types &= types_of(w, follow_reference(w->root, ref), depth + 1);
    if (json_len(any) > 0)
        types &= types_of_any(w, any, depth + 1);
    if (json_len(one) > 0)
        types &= types_of_any(w, one, depth + 1);
    for (size_t i = 0; i < json_len(all); i++)
        types &= types_of(w, json_at(all, i), depth + 1);
    if (json_bool(json_get(schema, "nullable"), false))
        types |= TOOL_NULL;
    return types ? types : TOOL_ANY;
}

struct adding {
    struct tool *t;
    struct walk w;
    bool failed;
};

static char *copy_text(const char *s, size_t n) {
    char *to = malloc(n + 1);
    if (to) {
        memcpy(to, s, n);
        to[n] = 0;
    }
    return to;
}

static int add_param(void *arg, const char *key, size_t n, const struct json *v) {
    struct adding *a = arg;
    struct tool *t = a->t;
    struct tool_param *p = &t->params[t->n_params];
    *p = (struct tool_param){.name = copy_text(key, n), .n = n, .types = types_of(&a->w, v, 0)};
    a->failed = !p->name;
    t->n_params += !a->failed;
    return a->failed;
}

// The object that lists the parameters: after references at the top, too.
static const struct json *find_properties(const struct json *schema) {
    const struct json *at = schema;
    for (int i = 0; i < MAX_DEPTH && at; i++) {
        const char *ref = json_str(json_get(at, "$ref"), NULL);
        if (json_get(at, "properties") || !ref)
            return json_get(at, "properties");
        at = follow_reference(schema, ref);
    }
    return NULL;
}

static bool read_parameters(struct tool *t, const struct json *schema) {
    const struct json *properties = find_properties(schema);
    const struct json *others = json_get(schema, "additionalProperties");
    struct adding a = {.t = t, .w = {.root = schema}};
    t->others = types_of(&a.w, others, 0);
    if (json_kind_of(properties) != JSON_OBJECT || json_len(properties) == 0)
        return true;
    t->params = calloc(json_len(properties), sizeof *t->params);
    if (!t->params)
        return false;
    json_each(properties, add_param, &a);
    return !a.failed;
}

static void tool_fini(struct tool *t) {
    for (int i = 0; i < t->n_params; i++)
        free(t->params[i].name);
    free(t->params);
    free(t->name);
}

int tool_set_add(struct tool_set *s, const char *name, size_t n, const struct json *schema,
                 bool freeform, struct err *e) {
    struct tool t = {.n = n, .freeform = freeform};
    if (tool_set_find(s, name, n))
        return 0;
    struct tool *list = realloc(s->list, ((size_t)s->n + 1) * sizeof *list);
    if (list)
        s->list = list;
    t.name = copy_text(name, n);
    if (!list || !t.name || !read_parameters(&t, schema)) {
        tool_fini(&t);
        return err_set(e, ERR_MEMORY, "no memory for the tools of a request");
    }
    s->list[s->n++] = t;
    return 0;
}

void tool_set_cut(struct tool_set *s, int n) {
    for (int i = n; i < s->n; i++)
        tool_fini(&s->list[i]);
    s->n = n;
}

void tool_set_fini(struct tool_set *s) {
    tool_set_cut(s, 0);
    free(s->list);
    *s = (struct tool_set){0};
}

const struct tool *tool_set_find(const struct tool_set *s, const char *name, size_t n) {
    for (int i = 0; s && i < s->n; i++)
        if (s->list[i].n == n && !memcmp(s->list[i].name, name, n))
            return &s->list[i];
    return NULL;
}

unsigned tool_param_types(const struct tool *t, const char *name, size_t n) {
    for (int i = 0; i < t->n_params; i++)
        if (t->params[i].n == n && !memcmp(t->params[i].name, name, n))
            return t->params[i].types;
    return t->freeform ? TOOL_STRING : t->others;
}
