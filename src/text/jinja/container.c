// SPDX-License-Identifier: Apache-2.0
// Lists and dictionaries with equality, hashes and order, which they need of each other; see
// container.h. A dictionary keeps its entries in order in an array; from nine entries on a table of
// positions finds them by hash.
#include "text/jinja/container.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/num.h"

enum { INDEX_FROM = 9 };

// Keys cannot be chosen to collide: the address of the program differs from run to run.
static uint64_t seed_of_run(void) {
    static const char anchor;
    return (uint64_t)(uintptr_t)&anchor;
}

static uint64_t mix_hash(uint64_t x) {
    x ^= x >> 33;
    x *= 0xFF51AFD7ED558CCDu;
    x ^= x >> 33;
    return x;
}

static uint64_t hash_text(const struct jinja_string *s) {
    if (s->hash)
        return s->hash;
    uint64_t h = hash_bytes(s->bytes, s->n, seed_of_run()) | 1;
    ((struct jinja_string *)(uintptr_t)s)->hash = h; // only in strings that belong to one context
    return h;
}

int jinja_hash(struct jinja_context *c, struct jinja_value v, uint64_t *hash) {
    int rc = 0;
    switch ((enum jinja_kind)v.kind) {
    case JINJA_STRING:
    case JINJA_BIG:
        *hash = hash_text(v.as.s);
        break;
    case JINJA_BOOL:
        *hash = mix_hash(v.as.b);
        break;
    case JINJA_INT:
        *hash = mix_hash((uint64_t)v.as.i);
        break;
    case JINJA_FLOAT:
        if (fabs(v.as.d) < 9e18 && v.as.d == floor(v.as.d)) {
            *hash = mix_hash((uint64_t)(int64_t)v.as.d);
            break;
        }
        memcpy(hash, &v.as.d, sizeof *hash);
        *hash = mix_hash(*hash);
        break;
    case JINJA_LIST:
    case JINJA_DICT:
        return jinja_fail(c, ERR_USAGE, "unhashable type: '%s'", jinja_type(v));
    case JINJA_TUPLE:
        rc = jinja_enter(c);
        if (rc)
            return rc;
        *hash = mix_hash(v.as.l->n);
        for (size_t i = 0; i < v.as.l->n && !rc; i++) {
            uint64_t h = 0;
            rc = jinja_hash(c, v.as.l->items[i], &h);
            *hash = mix_hash(*hash * 31 + h);
        }
        jinja_leave(c);
        break;
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        *hash = mix_hash(v.kind);
        break;
    default:
        *hash = mix_hash((uint64_t)(uintptr_t)v.as.p);
        break;
    }
    return rc;
}

static bool is_number(struct jinja_value v) {
    return v.kind == JINJA_BOOL || v.kind == JINJA_INT || v.kind == JINJA_FLOAT;
}

static bool same_number(struct jinja_value a, struct jinja_value b) {
    if (a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT)
        return jinja_as_double(a) == jinja_as_double(b);
    return jinja_as_int(a) == jinja_as_int(b);
}

static int equal_items(struct jinja_context *c, struct jinja_value a, struct jinja_value b,
                       bool *same) {
    int rc = 0;
    *same = a.as.l->n == b.as.l->n;
    for (size_t i = 0; i < a.as.l->n && *same && !rc; i++) {
        if (i % 4 == 3 && (rc = jinja_charge(c, 1)))
            break;
        rc = jinja_equal(c, a.as.l->items[i], b.as.l->items[i], same);
    }
    return rc;
}

static int equal_members(struct jinja_context *c, const struct jinja_dict *a,
                         const struct jinja_dict *b, bool *same) {
    int rc = 0;
    *same = a->n == b->n;
    for (size_t i = 0; i < a->n && *same && !rc; i++) {
        if ((rc = jinja_charge(c, 1)))
            break;
        const struct jinja_entry *other = jinja_dict_find(b, a->entries[i].key, a->entries[i].hash);
        *same = other != NULL;
        if (other)
            rc = jinja_equal(c, a->entries[i].value, other->value, same);
    }
    return rc;
}

static bool same_range(const struct jinja_range *a, const struct jinja_range *b) {
    return a->n == b->n &&
           (a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step)));
}

// Values that hold no others, and whether that is so.
static bool equal_plain(struct jinja_value a, struct jinja_value b, bool *same) {
    *same = false;
    if (is_number(a) && is_number(b))
        *same = same_number(a, b);
    else if (a.kind != b.kind)
        return true;
    else if (a.kind == JINJA_STRING || a.kind == JINJA_BIG)
        *same = jinja_same_text(a.as.s, b.as.s);
    else if (a.kind == JINJA_NONE || a.kind == JINJA_UNDEFINED)
        *same = true;
    else if (a.kind == JINJA_RANGE)
        *same = same_range(a.as.p, b.as.p);
    else if (a.as.p == b.as.p)
        *same = true;
    else
        return a.kind != JINJA_LIST && a.kind != JINJA_TUPLE && a.kind != JINJA_DICT;
    return true;
}

int jinja_equal(struct jinja_context *c, struct jinja_value a, struct jinja_value b, bool *same) {
    if (equal_plain(a, b, same))
        return a.kind == JINJA_STRING && b.kind == JINJA_STRING && a.as.s->n == b.as.s->n
                   ? jinja_charge(c, a.as.s->n / 64)
                   : 0;
    int rc = jinja_charge(c, 1);
    if (!rc)
        rc = jinja_enter(c);
    if (rc)
        return rc;
    rc = a.kind == JINJA_DICT ? equal_members(c, a.as.m, b.as.m, same) : equal_items(c, a, b, same);
    jinja_leave(c);
    return rc;
}

// Keys are equal only with equal hashes, and those of tuples are compared item by item.
static bool same_key(struct jinja_value a, struct jinja_value b) {
    bool same;
    if (equal_plain(a, b, &same))
        return same;
    if (a.as.l->n != b.as.l->n)
        return false;
    for (size_t i = 0; i < a.as.l->n; i++)
        if (!same_key(a.as.l->items[i], b.as.l->items[i]))
            return false;
    return true;
}

struct jinja_entry *jinja_dict_find(const struct jinja_dict *m, struct jinja_value key,
                                    uint64_t hash) {
    if (!m->index) {
        for (size_t i = 0; i < m->n; i++)
            if (m->entries[i].hash == hash && same_key(m->entries[i].key, key))
                return m->entries + i;
        return NULL;
    }
    for (size_t i = hash & (m->index_cap - 1); m->index[i]; i = (i + 1) & (m->index_cap - 1)) {
        struct jinja_entry *e = m->entries + (m->index[i] - 1);
        if (e->hash == hash && same_key(e->key, key))
            return e;
    }
    return NULL;
}

struct jinja_entry *jinja_dict_text(const struct jinja_dict *m, const char *key, size_t n) {
    struct jinja_string s = {.bytes = key, .n = n};
    struct jinja_value v = {.kind = JINJA_STRING, .as.s = &s};
    return jinja_dict_find(m, v, hash_text(&s));
}

static void index_add(struct jinja_dict *m, size_t entry) {
    size_t i = m->entries[entry].hash & (m->index_cap - 1);
    while (m->index[i])
        i = (i + 1) & (m->index_cap - 1);
    m->index[i] = (uint32_t)entry + 1;
}

static void index_all(struct jinja_dict *m) {
    for (size_t i = 0; i < m->n; i++)
        index_add(m, i);
}

static int dict_grow(struct jinja_context *c, struct jinja_dict *m) {
    size_t cap = max_size(4, 2 * m->cap);
    struct jinja_entry *entries = jinja_array(c, cap, sizeof *entries);
    if (!entries)
        return c->e.code;
    if (m->n)
        memcpy(entries, m->entries, m->n * sizeof *entries);
    m->entries = entries;
    m->cap = cap;
    if (cap < INDEX_FROM)
        return 0;
    m->index_cap = 2 * cap; // a power of two, at most half full
    m->index = jinja_array(c, m->index_cap, sizeof *m->index);
    if (!m->index)
        return c->e.code;
    index_all(m);
    return 0;
}

int jinja_dict_set(struct jinja_context *c, struct jinja_dict *m, struct jinja_value key,
                   struct jinja_value value) {
    uint64_t hash = 0;
    int rc = jinja_hash(c, key, &hash);
    if (rc)
        return rc;
    struct jinja_entry *e = jinja_dict_find(m, key, hash);
    if (e) {
        e->value = value;
        return 0;
    }
    if (m->n == m->cap && (rc = dict_grow(c, m)))
        return rc;
    m->entries[m->n++] = (struct jinja_entry){.key = key, .value = value, .hash = hash};
    if (m->index)
        index_add(m, m->n - 1);
    return 0;
}

int jinja_push(struct jinja_context *c, struct jinja_list *l, struct jinja_value v) {
    if (l->n == l->cap) {
        size_t cap = max_size(4, 2 * l->cap);
        struct jinja_value *items = jinja_array(c, cap, sizeof *items);
        if (!items)
            return c->e.code;
        if (l->n)
            memcpy(items, l->items, l->n * sizeof *items);
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = v;
    return 0;
}

struct jinja_value jinja_list(struct jinja_context *c, bool untrusted) {
    struct jinja_list *l = jinja_alloc(c, sizeof *l);
    if (!l)
        return (struct jinja_value){0};
    *l = (struct jinja_list){.untrusted = untrusted};
    return (struct jinja_value){.kind = JINJA_LIST, .as.l = l};
}

struct jinja_value jinja_tuple(struct jinja_context *c, size_t n) {
    struct jinja_value v = jinja_list(c, false);
    if (!v.kind)
        return v;
    if (n && !(v.as.l->items = jinja_array(c, n, sizeof *v.as.l->items)))
        return (struct jinja_value){0};
    v.kind = JINJA_TUPLE;
    v.as.l->n = v.as.l->cap = n;
    return v;
}

struct jinja_value jinja_dict(struct jinja_context *c, bool untrusted) {
    struct jinja_dict *m = jinja_alloc(c, sizeof *m);
    if (!m)
        return (struct jinja_value){0};
    *m = (struct jinja_dict){.untrusted = untrusted};
    return (struct jinja_value){.kind = JINJA_DICT, .as.m = m};
}

// What callers outside use.

void jinja_append(struct jinja_context *c, struct jinja_value list, struct jinja_value item) {
    if (list.kind == JINJA_LIST)
        jinja_push(c, list.as.l, item);
}

static void put_member(struct jinja_context *c, struct jinja_value dict, const char *key,
                       struct jinja_value value, bool untrusted) {
    struct jinja_value k =
        dict.kind == JINJA_DICT ? jinja_string(c, key, strlen(key), untrusted) : dict;
    if (k.kind == JINJA_STRING)
        jinja_dict_set(c, dict.as.m, k, value);
}

void jinja_put_member(struct jinja_context *c, struct jinja_value dict, const char *key,
                      struct jinja_value value) {
    put_member(c, dict, key, value, false);
}

void jinja_put_untrusted_member(struct jinja_context *c, struct jinja_value dict, const char *key,
                                struct jinja_value value) {
    put_member(c, dict, key, value, true);
}

void jinja_remove_member(struct jinja_value dict, const char *key) {
    if (dict.kind != JINJA_DICT)
        return;
    struct jinja_dict *m = dict.as.m;
    struct jinja_entry *e = jinja_dict_text(m, key, strlen(key));
    if (!e)
        return;
    size_t at = (size_t)(e - m->entries);
    memmove(e, e + 1, (m->n - at - 1) * sizeof *e);
    m->n--;
    if (m->index) {
        memset(m->index, 0, m->index_cap * sizeof *m->index);
        index_all(m);
    }
}

struct jinja_value jinja_copy(struct jinja_context *c, struct jinja_value v) {
    struct jinja_value copy = v;
    if (v.kind == JINJA_LIST || v.kind == JINJA_TUPLE) {
        copy = jinja_list(c, v.as.l->untrusted);
        for (size_t i = 0; i < v.as.l->n && copy.kind; i++)
            if (jinja_push(c, copy.as.l, v.as.l->items[i]))
                copy = (struct jinja_value){0};
        copy.kind = copy.kind ? v.kind : JINJA_ABSENT;
    } else if (v.kind == JINJA_DICT) {
        copy = jinja_dict(c, v.as.m->untrusted);
        for (size_t i = 0; i < v.as.m->n && copy.kind; i++)
            if (jinja_dict_set(c, copy.as.m, v.as.m->entries[i].key, v.as.m->entries[i].value))
                copy = (struct jinja_value){0};
    }
    return copy;
}

struct jinja_value jinja_member(struct jinja_value dict, const char *key) {
    struct jinja_entry *e =
        dict.kind == JINJA_DICT ? jinja_dict_text(dict.as.m, key, strlen(key)) : NULL;
    return e ? e->value : (struct jinja_value){0};
}

size_t jinja_count(struct jinja_value v) {
    if (v.kind == JINJA_LIST || v.kind == JINJA_TUPLE)
        return v.as.l->n;
    return v.kind == JINJA_DICT ? v.as.m->n : 0;
}

struct jinja_value jinja_at(struct jinja_value v, size_t i) {
    if (i >= jinja_count(v))
        return (struct jinja_value){0};
    return v.kind == JINJA_DICT ? v.as.m->entries[i].value : v.as.l->items[i];
}

const char *jinja_bytes(struct jinja_value string, size_t *n) {
    if (n)
        *n = string.kind == JINJA_STRING ? string.as.s->n : 0;
    return string.kind == JINJA_STRING ? string.as.s->bytes : NULL;
}

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
    struct jinja_value i = jinja_int(0);
    const char *text = json_number_text(v);
    bool over;
    if (!text || !jinja_parse_integer(text, strlen(text), &i.as.i, &over))
        return (struct jinja_value){0};
    if (over) {
        i = jinja_string(c, text, strlen(text), untrusted);
        i.kind = i.kind ? JINJA_BIG : JINJA_ABSENT;
    }
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

enum { UNORDERED = 2 };

static int sign_of(double a, double b) {
    return a < b ? -1 : a > b ? 1 : a == b ? 0 : UNORDERED;
}

static int order_numbers(struct jinja_value a, struct jinja_value b) {
    if (a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT)
        return sign_of(jinja_as_double(a), jinja_as_double(b));
    int64_t x = jinja_as_int(a), y = jinja_as_int(b);
    return x < y ? -1 : x > y;
}

static int order_text(const struct jinja_string *a, const struct jinja_string *b) {
    int order = memcmp(a->bytes, b->bytes, min_size(a->n, b->n));
    if (order == 0)
        return a->n < b->n ? -1 : a->n > b->n;
    return order < 0 ? -1 : 1;
}

static int order_lists(struct jinja_context *c, const struct jinja_list *a,
                       const struct jinja_list *b, const char *op, int *order) {
    int rc = jinja_enter(c);
    if (rc)
        return rc;
    *order = a->n < b->n ? -1 : a->n > b->n;
    for (size_t i = 0; i < min_size(a->n, b->n) && !rc; i++) {
        bool same = false;
        rc = i % 4 == 3 ? jinja_charge(c, 1) : 0;
        if (!rc)
            rc = jinja_equal(c, a->items[i], b->items[i], &same);
        if (rc || same)
            continue;
        rc = jinja_order(c, a->items[i], b->items[i], op, order);
        break;
    }
    jinja_leave(c);
    return rc;
}

int jinja_order(struct jinja_context *c, struct jinja_value a, struct jinja_value b, const char *op,
                int *order) {
    int rc = jinja_charge(c, 1);
    if (rc)
        return rc;
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, a.kind == JINJA_UNDEFINED ? a : b);
    if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
        *order = order_text(a.as.s, b.as.s);
        return jinja_charge(c, min_size(a.as.s->n, b.as.s->n) / 64);
    }
    if (a.kind == JINJA_BIG || b.kind == JINJA_BIG)
        return jinja_fail_big(c);
    if (jinja_is_number(a) && jinja_is_number(b))
        *order = order_numbers(a, b);
    else if (a.kind == b.kind && (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE))
        return order_lists(c, a.as.l, b.as.l, op, order);
    else
        return jinja_fail(c, ERR_USAGE, "'%s' not supported between instances of '%s' and '%s'", op,
                          jinja_type(a), jinja_type(b));
    return 0;
}

// A merge sort. As in Python, reversed order keeps equal items as they were.
int jinja_sort(struct jinja_context *c, struct jinja_keyed *a, struct jinja_keyed *work, size_t n,
               bool reverse) {
    if (n < 2)
        return 0;
    size_t half = n / 2, i = 0, j = half;
    int rc = jinja_sort(c, a, work, half, reverse);
    if (!rc)
        rc = jinja_sort(c, a + half, work + half, n - half, reverse);
    for (size_t k = 0; k < n && !rc; k++) {
        int order = 0;
        if (i < half && j < n)
            rc = jinja_order(c, a[j].key, a[i].key, "<", &order);
        bool right = i == half || (j < n && order == (reverse ? 1 : -1));
        work[k] = right ? a[j++] : a[i++];
    }
    if (!rc)
        memcpy(a, work, n * sizeof *a);
    return rc;
}
