// SPDX-License-Identifier: Apache-2.0
// The plan of a device's attention: walked the way the kernels walk it, every visible key of every
// (row, head) must come exactly once, in position order, in the part that its position demands, and
// each part must have one place of its own.
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "ops/attend_plan.h"
#include "test.h"

enum { SEQS = 3, LIMIT = 600, PAGES = 64, KEYS = PAGES * KV_PAGE };

struct scene {
    struct attend_args a;
    struct rows r;
    int32_t parent[LIMIT], seq[LIMIT];
    int64_t pos[LIMIT];
    struct kv_view views[SEQS];
    unsigned char *pages[SEQS][PAGES];
    struct kv_slot store[LIMIT];
    struct kv_layout layout;
};

static int64_t between(struct rng *r, int64_t lo, int64_t hi) {
    return lo + (int64_t)rng_below(r, (uint32_t)(hi - lo + 1));
}

static void add_rows(struct scene *s, struct rng *r, int seq, int n, bool tree) {
    int64_t first = s->r.n, len = between(r, 0, 3) ? between(r, 0, 2500) : 64 * between(r, 0, 30);
    s->views[seq] = (struct kv_view){s->pages[seq], len};
    for (int64_t i = first; i < first + n; i++) {
        int64_t parent = i - 1;
        if (tree && i > first && rng_below(r, 2))
            parent = between(r, first, i - 1);
        s->parent[i] = i == first ? -1 : (int32_t)parent;
        s->pos[i] = i == first ? len : s->pos[parent] + 1;
        s->seq[i] = seq;
    }
    s->r.n += n;
}

static void scene_init(struct scene *s, struct rng *r) {
    memset(s, 0, sizeof *s);
    s->r = (struct rows){.parent = s->parent, .seq = s->seq, .pos = s->pos};
    s->a = (struct attend_args){.shape = {.n_kv = (int)between(r, 1, 3),
                                          .mask = rng_below(r, 4) ? ATTEND_PATH : ATTEND_BLOCK,
                                          .window = rng_below(r, 2) ? 0 : between(r, 1, 900)},
                                .layout = &s->layout,
                                .seqs = s->views,
                                .store = s->store};
    s->a.shape.n_heads = s->a.shape.n_kv * (int)between(r, 1, 20);
    for (int q = 0; q < SEQS; q++)
        add_rows(s, r, q, (int)between(r, 1, rng_below(r, 3) ? 30 : 200), rng_below(r, 2));
}

static bool sees(const struct scene *s, int32_t row, int32_t key) {
    int64_t away = s->pos[row] - s->pos[key], w = s->a.shape.window;
    if (w > 0 && (away >= w || -away >= w))
        return false;
    if (s->a.shape.mask == ATTEND_BLOCK)
        return s->seq[row] == s->seq[key];
    while (row > key)
        row = s->parent[row];
    return row == key;
}

// Keys that (row, head 0 of a kv head) takes, by part slot.
struct seen {
    int32_t keys[2 * KEYS]; // positions, or -1 - row
    int32_t part[2 * KEYS];
    int n;
};

static int32_t part_of(const struct attend_row *x, int32_t chunk) {
    return chunk * ATTEND_CHUNK < x->split ? attend_part(chunk) : -1;
}

// What one item gives to a row, as a kernel goes through it.
static void take_item(const struct scene *s, const struct attend_plan *p,
                      const struct attend_item *t, int32_t row, struct seen *out) {
    const struct attend_row *x = (const struct attend_row *)(void *)(p->blob + p->rows) + row;
    const int32_t *path = (const int32_t *)(void *)(p->blob + p->path) + t->path;
    for (int32_t chunk = t->chunk; chunk < t->end; chunk++) {
        int32_t part = part_of(x, chunk);
        if (t->kind != ATTEND_WHOLE && (part >= 0) != (t->kind == ATTEND_SHARED))
            continue;
        for (int32_t at = chunk * ATTEND_CHUNK; at < (chunk + 1) * ATTEND_CHUNK; at++) {
            bool committed = at < t->len;
            if (!committed && at - t->len >= t->n_path)
                break;
            int32_t key = committed ? -1 : path[at - t->len];
            int64_t pos = committed ? at : s->pos[key];
            if (pos < x->first || pos > x->last)
                continue;
            out->keys[out->n] = committed ? at : -1 - key;
            out->part[out->n++] = part;
        }
    }
}

static void expect_row(const struct scene *s, const struct attend_plan *p, int32_t row,
                       const struct seen *got) {
    const struct attend_row *x = (const struct attend_row *)(void *)(p->blob + p->rows) + row;
    int64_t len = s->views[s->seq[row]].len;
    int n = 0;
    for (int64_t at = 0; at < len; at++)
        n += s->a.shape.window == 0 || s->pos[row] - at < s->a.shape.window;
    for (int32_t key = 0; key < s->r.n; key++)
        n += s->seq[key] == s->seq[row] && sees(s, row, key);
    assert_int_equal(got->n, n);
    if (s->a.shape.mask == ATTEND_PATH) // the last part depends on the position alone
        assert_int_equal(x->split, s->pos[row] < 64 ? 0 : (s->pos[row] / 64 - 1) * 64);
    bool seen[LIMIT] = {0}, at[KEYS] = {0};
    for (int i = 0; i < n; i++) {
        bool *one = got->keys[i] >= 0 ? &at[got->keys[i]] : &seen[-1 - got->keys[i]];
        assert_false(*one);
        *one = true;
        if (got->keys[i] < 0)
            assert_true(sees(s, row, -1 - got->keys[i]));
        if (got->part[i] >= 0)
            assert_true(got->part[i] - p->part0 >= 0 && got->part[i] - p->part0 < p->slots - 1);
    }
}

static bool holds(const struct attend_plan *p, const struct attend_item *t, int group, int64_t row,
                  int head) {
    const int32_t *list = (const int32_t *)(void *)(p->blob + p->list) + t->list;
    for (int32_t x = t->pair; x < t->pair + t->n_pairs; x++)
        if (x % group == head && list[x / group] == row)
            return true;
    return false;
}

// One pair: the items that hold it, shared parts first.
static void walk_pair(const struct scene *s, const struct attend_plan *p, int64_t row, int head) {
    const struct attend_item *items = (const struct attend_item *)(void *)(p->blob + p->items);
    int group = s->a.shape.n_heads / s->a.shape.n_kv;
    struct seen *got = malloc(sizeof *got);
    got->n = 0;
    for (int i = 0; i < 3 * p->n_items; i++) {
        const struct attend_item *t = &items[i % p->n_items];
        if (t->kind == i / p->n_items && holds(p, t, group, row, head))
            take_item(s, p, t, (int32_t)row, got);
    }
    expect_row(s, p, (int32_t)row, got);
    free(got);
}

// The text that holds an item's keys; NULL: none.
static const struct attend_text *text_of(const struct attend_plan *p, const struct attend_item *t) {
    const struct attend_text *x = (const void *)(p->blob + p->texts);
    for (int32_t i = 0; i < p->n_texts; i++)
        if (x[i].pages == t->pages && x[i].path == t->path && x[i].len == t->len &&
            x[i].n_path == t->n_path && x[i].chunk <= t->chunk && x[i].end >= t->end)
            return &x[i];
    return NULL;
}

// Texts lie one after the other and begin and end where some item of theirs does.
static void walk_texts(const struct attend_plan *p) {
    const struct attend_item *items = (const void *)(p->blob + p->items);
    const struct attend_text *x = (const void *)(p->blob + p->texts);
    int32_t before = 0, longest = 0;
    for (int32_t i = 0; i < p->n_items; i++)
        assert_non_null(text_of(p, &items[i]));
    for (int32_t i = 0; i < p->n_texts; i++) {
        int begins = 0, ends = 0;
        for (int32_t j = 0; j < p->n_items; j++) {
            const bool own = text_of(p, &items[j]) == &x[i];
            begins += own && items[j].chunk == x[i].chunk;
            ends += own && items[j].end == x[i].end;
        }
        assert_true(begins && ends);
        assert_int_equal(x[i].before, before);
        before += x[i].end - x[i].chunk;
        longest = longest > x[i].end - x[i].chunk ? longest : x[i].end - x[i].chunk;
    }
    assert_int_equal(p->text_chunks, before);
    assert_int_equal(p->longest_text, longest);
}

static void walk_plan(const struct scene *s, const struct attend_plan *p) {
    int group = s->a.shape.n_heads / s->a.shape.n_kv;
    assert_true(p->bytes >= p->items + (size_t)p->n_items * sizeof(struct attend_item));
    for (int64_t row = p->begin; row < p->end; row++)
        for (int head = 0; head < group; head += group > 1 ? group - 1 : 1)
            walk_pair(s, p, row, head);
    if (p->whole)
        walk_texts(p);
    else
        assert_int_equal(p->n_texts, 0);
}

static void random_forests(void **state) {
    (void)state;
    struct rng r = {7};
    struct scene *s = malloc(sizeof *s);
    struct attend_plan p = {0}; // its memory is used again
    for (int i = 0; i < 120; i++) {
        struct attend_limits m = {(int)between(&r, 1, 8), (int)between(&r, 1, 8),
                                  (int)between(&r, 1, 300)};
        scene_init(s, &r);
        int64_t step = rng_below(&r, 2) ? s->r.n : between(&r, 1, s->r.n);
        bool whole = rng_below(&r, 2);
        for (int64_t begin = 0; begin < s->r.n; begin += step) {
            int64_t end = begin + step < s->r.n ? begin + step : s->r.n;
            assert_true(attend_plan_build(&p, &s->a, &s->r, begin, end, whole, &m));
            walk_plan(s, &p);
        }
    }
    attend_plan_fini(&p);
    free(s);
}

static int32_t size_at(int32_t chunk) {
    static const int32_t ends[][2] = {{8, 1}, {32, 2}, {128, 4}, {512, 8}, {1024, 16}, {2048, 32}};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (chunk < ends[i][0])
            return ends[i][1];
    return chunk < 4096 ? 64 : chunk < 8192 ? 128 : 256;
}

// Parts follow each other without a gap, and double.
static void parts(void **state) {
    (void)state;
    int32_t part = 0;
    for (int32_t chunk = 0; chunk < 10000; chunk++) {
        part += chunk == attend_part_begin(part + 1);
        int32_t size = attend_part_begin(part + 1) - attend_part_begin(part);
        assert_int_equal(size, size_at(chunk));
        assert_int_equal(attend_part(chunk), part);
        assert_int_equal(attend_parts(64 * (chunk + 1)), part + 1);
    }
    assert_int_equal(attend_parts(0), 0);
    assert_int_equal(attend_parts(262144), 188);
}

// Long chains fill the device by themselves, trees do not.
static void whole_or_parts(void **state) {
    (void)state;
    struct rng r = {9};
    struct scene *s = malloc(sizeof *s);
    struct attend_limits m = {6, 4, 132};
    scene_init(s, &r);
    s->a.shape.n_heads = 24;
    s->a.shape.n_kv = 4;
    s->r.n = 0;
    add_rows(s, &r, 0, 512, false);
    assert_true(attend_plan_whole(&s->a, &s->r, &m, 132));
    s->r.n = 32;
    assert_false(attend_plan_whole(&s->a, &s->r, &m, 132));
    s->r.n = 0;
    add_rows(s, &r, 0, 512, true);
    assert_false(attend_plan_whole(&s->a, &s->r, &m, 132));
    free(s);
}

// A block that takes all parts of a row folds exactly where one part ends and the next begins:
// never within the last part, even where it holds a multiple of 512.
static void folds(void **state) {
    (void)state;
    for (int32_t pos = 0; pos < 70000; pos += 61) {
        int32_t split = pos / ATTEND_CHUNK > 0 ? (pos / ATTEND_CHUNK - 1) * ATTEND_CHUNK : 0;
        int32_t parts = attend_parts(split), part = split > 0 ? 0 : parts;
        for (int32_t chunk = 1; chunk <= pos / ATTEND_CHUNK; chunk++) {
            int32_t now = chunk * ATTEND_CHUNK < split ? attend_part(chunk) : parts;
            assert_int_equal(attend_folds(chunk, split), now != part);
            part = now;
        }
        assert_int_equal(part, parts);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_forests),
        cmocka_unit_test(parts),
        cmocka_unit_test(folds),
        cmocka_unit_test(whole_or_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
