// SPDX-License-Identifier: Apache-2.0
// Objects of a schema. Declared properties come in their order, each once; after them come others,
// where they are allowed: names that match patterns, and names that nothing declares. A rule stands
// for "the properties from this one on", so that optional ones cost one rule each.
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"
#include "grammar/automaton/tables.h"
#include "grammar/schema/schema.h"

enum { PATTERNS = 4, COUNTED = 256, PATTERN_BYTES = 16 << 20 };

struct property {
    const char *name;
    size_t n;
    bool required;
    uint32_t value;
};

struct pattern {
    const char *text;
    size_t n;
    uint32_t names;    // texts between quotes
    struct grammar *g; // the same, in UTF-8
};

struct object {
    struct schema *s;
    const struct conj *c;
    struct property *list;
    int64_t count, cap;
    struct map known; // name -> index
    struct pattern patterns[PATTERNS];
    int pattern_count;
    struct conj names;        // what every name must be
    bool named, names_listed; // there is such a thing; it is a list of names
    uint32_t texts;           // between the quotes, as `names` has it
    uint32_t comma, colon, space;
    uint32_t others;         // a member that is not declared, BUILD_NEVER: none may come
    int64_t min, max;        // members
    int64_t counts;          // how far members are counted; 0: not at all
    struct build_grid rules; // of the members from a property on
};

// ---- names

static void add_property(struct object *o, const char *name, size_t n, bool required) {
    uint32_t at;
    if (map_find(&o->known, name, n, &at)) {
        o->list[at].required |= required;
        return;
    }
    struct build *b = o->s->b;
    if (b->e.code || vec_reserve(&o->list, &o->cap, o->count + 1, sizeof *o->list, &b->e))
        return;
    o->list[o->count] = (struct property){.name = name, .n = n, .required = required};
    if (map_insert(&o->known, name, n, (uint32_t)o->count) < 0)
        build_fail(b, ERR_MEMORY, "no memory for a schema");
    o->count++;
}

static int declare_property(void *arg, const char *key, size_t n, const struct json *v) {
    (void)v;
    add_property(arg, key, n, false);
    return 0;
}

static int add_pattern(void *arg, const char *key, size_t n, const struct json *v) {
    struct object *o = arg;
    (void)v;
    for (int i = 0; i < o->pattern_count; i++)
        if (o->patterns[i].n == n && memcmp(o->patterns[i].text, key, n) == 0)
            return 0;
    if (o->pattern_count == PATTERNS) {
        schema_fail(o->s, ERR_LIMIT, o->c->list[0].schema, "patternProperties",
                    "more than 4 patterns at one place are not supported");
        return 1;
    }
    struct pattern *p = &o->patterns[o->pattern_count++];
    *p = (struct pattern){.text = key, .n = n};
    p->names = schema_regex(o->s, o->c->list[0].schema, key, n, false,
                            o->s->b->how.marks ? BUILD_PLAIN : BUILD_JSON);
    return 0;
}

static void read_names(struct object *o) {
    static const char *const objects[] = {"properties", "patternProperties"};
    for (int64_t i = 0; i < o->c->count; i++) {
        const struct json *v = o->c->list[i].schema, *required = json_get(v, "required");
        for (int k = 0; k < 2; k++) {
            const struct json *at = json_get(v, objects[k]);
            if (at && json_kind_of(at) != JSON_OBJECT)
                schema_fail(o->s, ERR_FORMAT, v, objects[k], "it must be an object");
            json_each(at, k ? add_pattern : declare_property, o);
        }
        if (required && json_kind_of(required) != JSON_ARRAY)
            schema_fail(o->s, ERR_FORMAT, v, "required", "it must be an array of names");
    }
    for (int64_t i = 0; i < o->c->count; i++) {
        const struct json *required = json_get(o->c->list[i].schema, "required");
        for (size_t k = 0; k < json_len(required); k++) {
            size_t n;
            const char *name = json_str(json_at(required, k), &n);
            if (name)
                add_property(o, name, n, true);
            else
                schema_fail(o->s, ERR_FORMAT, o->c->list[i].schema, "required",
                            "it must be an array of names");
        }
    }
}

// Names of propertyNames: a list of them is declared, so that each comes once.
static void read_name_rules(struct object *o) {
    static const char *const choices[] = {"anyOf", "oneOf"};
    const struct json *from = NULL, *list;
    for (int64_t i = 0; i < o->c->count; i++) {
        const struct json *v = o->c->list[i].schema;
        if (!json_has(v, "propertyNames"))
            continue;
        o->named = true;
        conj_add(o->s, &o->names, json_get(v, "propertyNames"));
        from = v;
    }
    for (int64_t i = 0; i < o->names.count; i++) {
        const struct json *v = o->names.list[i].schema;
        for (int k = 0; k < 2; k++)
            if (json_has(v, choices[k]))
                schema_fail(o->s, ERR_UNSUPPORTED, from, "propertyNames",
                            "only enum, const, pattern, format and lengths of names are "
                            "supported, and allOf and $ref of these");
        list = json_get(v, "enum");
        for (size_t k = 0; k < json_len(list) + json_has(v, "const"); k++) {
            size_t n;
            const char *name =
                json_str(k < json_len(list) ? json_at(list, k) : json_get(v, "const"), &n);
            if (name)
                add_property(o, name, n, false);
        }
        o->names_listed |= json_has(v, "enum") || json_has(v, "const");
    }
    o->names.never |= o->named && o->names.count && !(schema_types(o->s, &o->names) & TYPE_STRING);
    if (o->named && o->names.count && !o->names.never)
        o->texts = build_shared(o->s->b, o->s->b->how.marks ? schema_bare(o->s, &o->names)
                                                            : schema_string_text(o->s, &o->names));
}

// A declared name as it stands between quotes or alone.
static uint32_t name_text(struct object *o, const struct property *p) {
    return o->s->b->how.marks ? build_bytes(o->s->b, p->name, p->n)
                              : schema_escaped(o->s, p->name, p->n);
}

// With its quotes, BUILD_NEVER where it must not be one.
static uint32_t property_name(struct object *o, const struct property *p) {
    struct build *b = o->s->b;
    uint32_t text = name_text(o, p), whole = build_json_name(b, p->name, p->n);
    if (!o->named || (!o->names.never && o->names.count == 0))
        return whole;
    for (int64_t i = 0; i < o->names.count; i++)
        if (!schema_listed(o->s, o->names.list[i].schema, p->name, p->n))
            return BUILD_NEVER;
    if (o->names.never)
        return BUILD_NEVER;
    uint32_t quote = build_text(b, !b->how.marks                  ? "\""
                                   : build_is_word(p->name, p->n) ? ""
                                                                  : b->how.marks);
    return build_seq(b, (uint32_t[]){quote, build_and(b, text, o->texts), quote}, 3);
}

// Does a pattern match somewhere in a name?
static bool matches_pattern(struct object *o, struct pattern *p, const char *name, size_t n) {
    struct err *e = &o->s->b->e;
    struct tables t;
    struct build *b;
    int64_t steps = 0;
    if (e->code)
        return false;
    if (!p->g && !build_create(&b, o->s->b->work, p->n, e)) {
        uint32_t x = build_regex(b, p->text, p->n, false, BUILD_PLAIN, "the pattern");
        int rc = build_finish(b, x, &p->g, e);
        if (rc == ERR_MISMATCH) // a pattern that nothing matches
            e->code = 0;
        build_destroy(b);
    }
    if (!p->g || tables_init(&t, p->g, PATTERN_BYTES, e))
        return false;
    uint32_t state = tables_start(&t);
    for (size_t i = 0; i < n && state != STATE_ERROR; i++) {
        state = tables_step(&t, state, (uint8_t)name[i]);
        steps += 1 + t.work;
    }
    bool may_end = state != STATE_ERROR && t.states[state].may_end;
    if (t.rc)
        build_fail(o->s->b, t.rc, "%s", t.e.text);
    build_work(o->s->b, steps + UNIONS / 4 + p->g->node_count / 4);
    tables_fini(&t);
    return may_end;
}

// ---- values

// Does member i say of a name what its value must be? *own: by properties or a pattern.
static bool says_of_others(struct object *o, int64_t i, const char *name, unsigned set, bool *own) {
    const struct json *v = o->c->list[i].schema, *named = json_get(v, "properties");
    const struct json *patterns = json_get(v, "patternProperties");
    *own = name && named && json_has(named, name);
    for (int k = 0; k < o->pattern_count; k++)
        *own |= set >> k & 1 && patterns && json_has(patterns, o->patterns[k].text);
    return *own || json_has(v, "additionalProperties");
}

// What unevaluatedProperties of member u says: only where no part of it in place says anything.
static void add_rest(struct object *o, int64_t u, const char *name, unsigned set,
                     struct conj *value) {
    const struct json *v = o->c->list[u].schema;
    bool own;
    if (!json_has(v, "unevaluatedProperties"))
        return;
    build_work(o->s->b, o->c->count * o->c->count);
    for (int64_t i = 0; i < o->c->count; i++)
        if ((says_of_others(o, i, name, set, &own) ||
             (i != u && json_has(o->c->list[i].schema, "unevaluatedProperties"))) &&
            conj_within(o->c, i, u))
            return;
    conj_add(o->s, value, json_get(v, "unevaluatedProperties"));
}

// The conditions of members on the value of a name: `set` has the patterns that it matches; name
// NULL: it is not declared.
static uint32_t property_value(struct object *o, const char *name, unsigned set) {
    struct conj value = {0};
    build_work(o->s->b, o->c->count * (4 + o->pattern_count));
    for (int64_t i = 0; i < o->c->count && !o->s->b->e.code; i++) {
        const struct json *v = o->c->list[i].schema, *own = json_get(v, "properties");
        const struct json *patterns = json_get(v, "patternProperties");
        bool named = name && own && json_has(own, name);
        if (named)
            conj_add(o->s, &value, json_get(own, name));
        for (int k = 0; k < o->pattern_count; k++) {
            if (!(set >> k & 1) || !patterns || !json_has(patterns, o->patterns[k].text))
                continue;
            conj_add(o->s, &value, json_get(patterns, o->patterns[k].text));
            named = true;
        }
        if (!named && json_has(v, "additionalProperties"))
            conj_add(o->s, &value, json_get(v, "additionalProperties"));
        add_rest(o, i, name, set, &value);
    }
    return schema_rule(o->s, &value);
}

static void read_values(struct object *o) {
    for (int64_t i = 0; i < o->count && !o->s->b->e.code; i++) {
        unsigned set = 0;
        for (int k = 0; k < o->pattern_count; k++)
            set |= (unsigned)matches_pattern(o, &o->patterns[k], o->list[i].name, o->list[i].n)
                   << k;
        o->list[i].value = property_value(o, o->list[i].name, set);
    }
}

// Texts between quotes that are declared names.
static uint32_t declared(struct object *o) {
    struct build *b = o->s->b;
    uint32_t *names = calloc((size_t)o->count + 1, sizeof *names);
    if (!names)
        return build_fail(b, ERR_MEMORY, "no memory for a schema");
    for (int64_t i = 0; i < o->count; i++)
        names[i] = name_text(o, &o->list[i]);
    uint32_t x = build_alt(b, names, (size_t)o->count);
    free(names);
    return x;
}

// Whether names that match no pattern are left out although no keyword forbids them.
static bool declared_only(const struct object *o) {
    bool lists = false;
    if (!o->s->b->how.declared_only ||
        schema_count(o->s, o->c, "minProperties", true, 0) > o->count)
        return false;
    for (int64_t i = 0; i < o->c->count; i++) {
        const struct json *v = o->c->list[i].schema;
        if (json_has(v, "additionalProperties") || json_has(v, "unevaluatedProperties"))
            return false;
        lists |= json_has(v, "properties");
    }
    return lists;
}

// Members that are not declared, for each set of patterns that a name can match.
static uint32_t other_members(struct object *o) {
    struct build *b = o->s->b;
    bool alone = b->how.marks != NULL;
    uint32_t parts[1 << PATTERNS], quote = build_text(b, alone ? "" : "\""), no = declared(o);
    uint32_t text = alone ? build_word(b) : build_repeat(b, schema_text(o->s), 0, BUILD_ENDLESS);
    size_t n = 0;
    if (o->names_listed || o->names.never)
        return BUILD_NEVER;
    for (unsigned set = declared_only(o); set < 1u << o->pattern_count; set++) {
        uint32_t value = property_value(o, NULL, set), names = text;
        if (value == BUILD_NEVER)
            continue;
        for (int k = 0; k < o->pattern_count; k++)
            names = set >> k & 1 ? build_and(b, names, o->patterns[k].names)
                                 : build_without(b, names, o->patterns[k].names);
        if (o->count)
            names = build_without(b, names, no);
        if (o->named && o->names.count)
            names = build_and(b, names, o->texts);
        names = build_shared(b, build_seq(b, (uint32_t[]){quote, names, quote}, 3));
        parts[n++] = build_seq(b, (uint32_t[]){names, o->colon, value}, 3);
    }
    return build_shared(b, build_alt(b, parts, n));
}

// ---- members in order

static uint32_t others_from(struct object *o, bool first, int64_t count) {
    struct build *b = o->s->b;
    int64_t min = max_i64(o->min - count, 0);
    bool endless = o->max == BUILD_ENDLESS;
    int64_t max = endless ? BUILD_ENDLESS : o->max - count;
    uint32_t next = build_cat(b, o->comma, o->others);
    if (!endless && (max < 0 || max < min))
        return BUILD_NEVER;
    if (!first)
        return build_repeat(b, next, min, max);
    if (max == 0)
        return BUILD_EMPTY;
    uint32_t more = build_repeat(b, next, max_i64(min - 1, 0), endless ? BUILD_ENDLESS : max - 1);
    uint32_t some = build_seq(b, (uint32_t[]){o->space, o->others, more}, 3);
    return min ? some : build_or(b, BUILD_EMPTY, some);
}

// A call of the rule for the members from property i on, after `count` of them.
static uint32_t members_from(struct object *o, int64_t i, int64_t count, bool first) {
    return build_grid_call(&o->rules, i, 2 * min_i64(count, o->counts) + !first);
}

// k: twice the number of members before, and 1 more after a member.
static uint32_t members_text(void *arg, int64_t i, int64_t k) {
    struct object *o = arg;
    struct build *b = o->s->b;
    int64_t count = k / 2;
    bool first = k % 2 == 0;
    if (i == o->count)
        return others_from(o, first, count);
    const struct property *p = &o->list[i];
    uint32_t parts[] = {first ? o->space : o->comma, property_name(o, p), o->colon, p->value,
                        members_from(o, i + 1, count + 1, false)};
    uint32_t with = build_seq(b, parts, 5);
    return p->required ? with : build_or(b, with, members_from(o, i + 1, count, first));
}

// Counting takes rules for each count, so it is done only where the bounds can matter.
static void read_counts(struct object *o) {
    int64_t required = 0, bound = 0;
    const struct json *at = o->c->list[0].schema;
    o->min = schema_count(o->s, o->c, "minProperties", true, 0);
    o->max = schema_count(o->s, o->c, "maxProperties", false, BUILD_ENDLESS);
    for (int64_t i = 0; i < o->count; i++)
        required += o->list[i].required;
    bool others = o->others != BUILD_NEVER;
    if (o->min <= required)
        o->min = 0;
    else if (others && o->min > 1)
        schema_fail(o->s, ERR_UNSUPPORTED, at, "minProperties",
                    "with names that are not declared, only what is required can be counted");
    if (o->max != BUILD_ENDLESS && !others && o->max >= o->count)
        o->max = BUILD_ENDLESS;
    bound = max_i64(o->min, o->max == BUILD_ENDLESS ? 0 : o->max + 1);
    o->counts = bound;
    if (bound > COUNTED) {
        o->counts = 0;
        schema_fail(o->s, ERR_LIMIT, at, o->min > COUNTED ? "minProperties" : "maxProperties",
                    "more than 256 members are not counted");
    }
}

uint32_t schema_object(struct schema *s, const struct conj *c) {
    struct build *b = s->b;
    struct object o = {.s = s, .c = c, .space = build_json_space(b)};
    o.comma = build_json_comma(b);
    o.colon = build_json_colon(b);
    read_names(&o);
    read_name_rules(&o);
    read_values(&o);
    o.others = b->e.code ? (uint32_t)BUILD_NEVER : other_members(&o);
    read_counts(&o);
    uint32_t all[] = {build_text(b, "{"), BUILD_NEVER, o.space, build_text(b, "}")};
    o.rules = (struct build_grid){b, members_text, &o, o.count + 1, 2 * (o.counts + 1), NULL};
    all[1] = b->e.code ? (uint32_t)BUILD_NEVER : build_grid(&o.rules);
    for (int i = 0; i < o.pattern_count; i++)
        grammar_unref(o.patterns[i].g);
    conj_fini(&o.names);
    free(o.list);
    map_fini(&o.known);
    return build_seq(b, all, 4);
}
