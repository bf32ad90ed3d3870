// SPDX-License-Identifier: Apache-2.0
// A handful of texts, looked through one by one.
#include "compress/score/kept.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

size_t score_kept_part(const struct score_kept *k, int layer, enum score_kept_part part) {
    return part == SCORE_KEPT_KEYS || layer < k->layers - 1 ? k->bytes[part] : 0;
}

// Of the array i of a text.
static size_t part_bytes(const struct score_kept *k, int i) {
    return score_kept_part(k, i / SCORE_KEPT_PARTS, (enum score_kept_part)(i % SCORE_KEPT_PARTS));
}

static int64_t score_kept_block(const struct score_kept *k) {
    size_t sum = SCORE_KEPT_BLOCK * sizeof(int32_t);
    for (int i = 0; i < k->layers * SCORE_KEPT_PARTS; i++)
        sum += part_bytes(k, i);
    return (int64_t)sum;
}

int64_t score_kept_bytes(const struct score_kept *k) {
    int64_t blocks = 0;
    for (int i = 0; i < k->n; i++)
        blocks += k->texts[i].blocks;
    return blocks * score_kept_block(k);
}

static void text_fini(const struct score_kept *k, struct score_kept_text *t) {
    for (int i = 0; t->parts && i < k->layers * SCORE_KEPT_PARTS; i++)
        free(t->parts[i]);
    free(t->parts);
    free(t->ids);
    *t = (struct score_kept_text){0};
}

void score_kept_fini(struct score_kept *k) {
    for (int i = 0; i < k->n; i++)
        text_fini(k, &k->texts[i]);
    k->n = 0;
}

void score_kept_drop(struct score_kept *k, struct score_kept_text *t) {
    text_fini(k, t);
    *t = k->texts[--k->n];
    k->texts[k->n] = (struct score_kept_text){0};
}

static int64_t in_common(const struct score_kept_text *t, const int32_t *ids, int64_t max) {
    size_t block = SCORE_KEPT_BLOCK * sizeof *ids;
    int64_t i = 0;
    while (i < max && i < t->blocks &&
           !memcmp(t->ids + i * SCORE_KEPT_BLOCK, ids + i * SCORE_KEPT_BLOCK, block))
        i++;
    return i;
}

struct score_kept_text *score_kept_find(struct score_kept *k, const int32_t *ids, int64_t n,
                                        int64_t max, int64_t *common) {
    struct score_kept_text *best = NULL;
    *common = 0;
    max = min_i64(max, n / SCORE_KEPT_BLOCK);
    for (int i = 0; i < k->n; i++) {
        int64_t have = in_common(&k->texts[i], ids, max);
        if (have > *common) {
            *common = have;
            best = &k->texts[i];
        }
    }
    if (best)
        best->used = ++k->clock;
    return best;
}

// Its arrays hold that many blocks from now on; the first ones that it had stay.
static bool resize_text(const struct score_kept *k, struct score_kept_text *t, int64_t blocks) {
    size_t n = (size_t)blocks;
    int32_t *ids = realloc(t->ids, n * SCORE_KEPT_BLOCK * sizeof *ids);
    if (!ids)
        return false;
    t->ids = ids;
    if (!t->parts)
        t->parts = calloc((size_t)(k->layers * SCORE_KEPT_PARTS), sizeof *t->parts);
    if (!t->parts)
        return false;
    for (int i = 0; i < k->layers * SCORE_KEPT_PARTS; i++) {
        size_t bytes = part_bytes(k, i);
        unsigned char *p = bytes ? realloc(t->parts[i], n * bytes) : NULL;
        if (bytes && !p)
            return false;
        t->parts[i] = p;
    }
    t->blocks = blocks;
    return true;
}

// Drops texts, the longest unused first, until `blocks` more have room besides `stays`.
static bool make_room(struct score_kept *k, uint64_t stays, int64_t blocks) {
    while (k->n == SCORE_KEPT_TEXTS ||
           score_kept_bytes(k) + blocks * score_kept_block(k) > k->limit) {
        struct score_kept_text *oldest = NULL;
        for (int i = 0; i < k->n; i++)
            if (k->texts[i].used != stays && (!oldest || k->texts[i].used < oldest->used))
                oldest = &k->texts[i];
        if (!oldest)
            return false;
        score_kept_drop(k, oldest);
    }
    return true;
}

static struct score_kept_text *by_use(struct score_kept *k, uint64_t used) {
    for (int i = 0; i < k->n; i++)
        if (k->texts[i].used == used)
            return &k->texts[i];
    return NULL;
}

static void copy_blocks(const struct score_kept *k, struct score_kept_text *to,
                        const struct score_kept_text *from, int64_t n) {
    for (int i = 0; i < k->layers * SCORE_KEPT_PARTS; i++)
        if (part_bytes(k, i))
            memcpy(to->parts[i], from->parts[i], (size_t)n * part_bytes(k, i));
}

// A text of its own besides `from`, which is named by its use: texts move when others are dropped.
static struct score_kept_text *add_text(struct score_kept *k, uint64_t from, int64_t common,
                                        int64_t blocks) {
    if (!make_room(k, from, blocks))
        return NULL;
    struct score_kept_text *t = &k->texts[k->n++];
    *t = (struct score_kept_text){0};
    if (!resize_text(k, t, blocks)) {
        score_kept_drop(k, t);
        return NULL;
    }
    if (common)
        copy_blocks(k, t, by_use(k, from), common);
    return t;
}

// `from` becomes the new text.
static struct score_kept_text *extend_text(struct score_kept *k, uint64_t from, int64_t common,
                                           int64_t blocks) {
    struct score_kept_text *t = by_use(k, from);
    t->blocks = min_i64(t->blocks, common);
    if (!make_room(k, from, blocks - t->blocks))
        return NULL;
    t = by_use(k, from);
    if (resize_text(k, t, blocks))
        return t;
    score_kept_drop(k, t);
    return NULL;
}

struct score_kept_text *score_kept_room(struct score_kept *k, struct score_kept_text *from,
                                        int64_t common, const int32_t *ids, int64_t blocks) {
    int64_t max = min_i64(blocks, k->limit / score_kept_block(k));
    if (max < 1 || max < common || max * 4 < blocks)
        return NULL;
    uint64_t use = from ? from->used : 0;
    bool whole = from && common * 2 >= from->blocks;
    struct score_kept_text *t = whole ? NULL : add_text(k, use, common, max);
    if (!t && from && by_use(k, use))
        t = extend_text(k, use, common, max);
    if (!t)
        return NULL;
    memcpy(t->ids, ids, (size_t)max * SCORE_KEPT_BLOCK * sizeof *ids);
    t->used = ++k->clock;
    return t;
}

unsigned char *score_kept_at(const struct score_kept *k, const struct score_kept_text *t, int layer,
                             enum score_kept_part part, int64_t block) {
    return t->parts[layer * SCORE_KEPT_PARTS + (int)part] + (size_t)block * k->bytes[part];
}
