// SPDX-License-Identifier: Apache-2.0
// An ascending array of free ranges; see ranges.h. Taking shortens a range or removes it, giving
// joins the neighbours that it touches.
#include "base/memory/ranges.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

static int insert(struct ranges *r, size_t i, struct range v) {
    if (vec_reserve(&r->free, &r->cap, (int64_t)r->n + 1, sizeof *r->free, NULL))
        return -1;
    memmove(r->free + i + 1, r->free + i, (r->n - i) * sizeof *r->free);
    r->free[i] = v;
    r->n++;
    return 0;
}

static void erase(struct ranges *r, size_t i) {
    r->n--;
    memmove(r->free + i, r->free + i + 1, (r->n - i) * sizeof *r->free);
}

int ranges_init(struct ranges *r, size_t size) {
    *r = (struct ranges){.size = size};
    return size ? insert(r, 0, (struct range){0, size}) : 0;
}

void ranges_fini(struct ranges *r) {
    free(r->free);
    *r = (struct ranges){0};
}

int ranges_take(struct ranges *r, size_t bytes, size_t *at) {
    for (size_t i = 0; i < r->n; i++) {
        struct range *v = &r->free[i];
        if (v->end - v->begin < bytes)
            continue;
        *at = v->begin;
        v->begin += bytes;
        if (v->begin == v->end)
            erase(r, i);
        return 0;
    }
    return -1;
}

int ranges_give(struct ranges *r, size_t at, size_t bytes) {
    size_t i = 0;
    while (i < r->n && r->free[i].begin < at)
        i++;
    bool before = i > 0 && r->free[i - 1].end == at;
    bool behind = i < r->n && r->free[i].begin == at + bytes;
    if (before && behind) {
        r->free[i - 1].end = r->free[i].end;
        erase(r, i);
    } else if (before) {
        r->free[i - 1].end += bytes;
    } else if (behind) {
        r->free[i].begin = at;
    } else {
        return insert(r, i, (struct range){at, at + bytes});
    }
    return 0;
}

bool ranges_all_free(const struct ranges *r) {
    return r->size == 0 || (r->n == 1 && r->free[0].begin == 0 && r->free[0].end == r->size);
}
