// SPDX-License-Identifier: Apache-2.0
// Merge sort; see sort.h. As in Python, reversed order keeps equal items as they were.
#include "text/jinja/value/sort.h"

#include <string.h>

#include "text/jinja/value/access.h"
#include "text/jinja/value/compare.h"
#include "text/jinja/value/strings.h"

struct keyed {
    struct jinja_value key, item;
};

static int ignore_case(struct jinja_context *c, const struct jinja_sort *how,
                       struct jinja_value *key) {
    if (how->case_sensitive || key->kind != JINJA_STRING)
        return 0;
    return jinja_change_case(c, key->as.s, CASE_LOWER, key);
}

static int several_keys(struct jinja_context *c, const struct jinja_sort *how,
                        struct jinja_value item, struct jinja_value *key) {
    struct jinja_value parts, v;
    static const struct jinja_string comma = {.bytes = ",", .n = 1};
    int rc = jinja_split(c, how->path.as.s, &comma, -1, false, &parts);
    *key = rc ? parts : jinja_list(c, false);
    rc = rc || key->kind ? rc : c->e.code;
    for (size_t i = 0; !rc && i < parts.as.l->n; i++) {
        rc = jinja_get_path(c, item, parts.as.l->items[i], how->otherwise, &v);
        if (!rc)
            rc = ignore_case(c, how, &v);
        if (!rc)
            rc = jinja_push(c, key->as.l, v);
    }
    return rc;
}

int jinja_sort_key(struct jinja_context *c, const struct jinja_sort *how, struct jinja_value item,
                   struct jinja_value *key) {
    if (how->paths)
        return several_keys(c, how, item, key);
    int rc = jinja_get_path(c, item, how->path, how->otherwise, key);
    return rc ? rc : ignore_case(c, how, key);
}

static int merge_sort(struct jinja_context *c, struct keyed *a, struct keyed *work, size_t n,
                      bool reverse) {
    if (n < 2)
        return 0;
    size_t half = n / 2, i = 0, j = half;
    int rc = merge_sort(c, a, work, half, reverse);
    if (!rc)
        rc = merge_sort(c, a + half, work + half, n - half, reverse);
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

int jinja_sort(struct jinja_context *c, struct jinja_list *l, const struct jinja_sort *how) {
    struct keyed *a = jinja_array(c, l->n, 2 * sizeof *a);
    int rc = a ? 0 : c->e.code;
    for (size_t i = 0; i < l->n && !rc; i++) {
        a[i].item = l->items[i];
        rc = jinja_sort_key(c, how, l->items[i], &a[i].key);
    }
    if (!rc)
        rc = merge_sort(c, a, a + l->n, l->n, how->reverse);
    for (size_t i = 0; i < l->n && !rc; i++)
        l->items[i] = a[i].item;
    return rc;
}
