// SPDX-License-Identifier: Apache-2.0
// See slabs.h. A slab's place in the list is never another slab's while blocks lie in it, since
// blocks know it by its number; places of slabs that were given back are used again.
#include "base/memory/slabs.h"

#include <stdlib.h>

#include "base/num.h"

// Room for one more entry in a growing array.
static bool room_for_one(void **array, int64_t n, int64_t *cap, size_t size) {
    if (n < *cap)
        return true;
    int64_t more = *cap ? 2 * *cap : 64;
    void *p = realloc(*array, (size_t)more * size);
    if (!p)
        return false;
    *array = p;
    *cap = more;
    return true;
}

// A place in the list without a slab, or -1.
static int64_t free_place(struct slabs *s) {
    for (int64_t i = 0; i < s->n; i++)
        if (!s->slabs[i].base)
            return i;
    void *array = s->slabs;
    bool room = room_for_one(&array, s->n, &s->cap, sizeof *s->slabs);
    s->slabs = array;
    if (!room)
        return -1;
    s->slabs[s->n] = (struct slab){0};
    return s->n++;
}

// The new slab's number, or -1.
static int64_t add_slab(struct slabs *s, int arena, size_t bytes) {
    struct ranges ranges;
    int64_t at = free_place(s);
    if (at < 0 || (s->limit > 0 && (int64_t)bytes > s->limit - s->held) ||
        ranges_init(&ranges, bytes))
        return -1;
    unsigned char *p = s->source.take(s->source.arg, bytes);
    if (!p) {
        ranges_fini(&ranges);
        return -1;
    }
    s->slabs[at] = (struct slab){p, ranges, arena};
    s->held += (int64_t)bytes;
    s->peak = max_i64(s->peak, s->held);
    return at;
}

static void drop_slab(struct slabs *s, int64_t i) {
    struct slab *b = &s->slabs[i];
    s->source.give(s->source.arg, b->base);
    s->held -= (int64_t)b->ranges.size;
    ranges_fini(&b->ranges);
    *b = (struct slab){0};
}

void slabs_trim(struct slabs *s) {
    for (int64_t i = 0; i < s->n; i++)
        if (s->slabs[i].base && ranges_all_free(&s->slabs[i].ranges))
            drop_slab(s, i);
}

enum { STEP = 2 << 20, LEAST = 16 << 20, MOST = 256 << 20 };

// A slab's bytes, where memory is not short, for an arena with so many bytes of blocks.
static size_t wished(int64_t used) {
    return clamp_size((size_t)used / 32 / STEP * STEP, LEAST, MOST);
}

int64_t slabs_vain(void) {
    return (int64_t)SLABS_ARENAS * LEAST;
}

int64_t slabs_vain_beyond(int64_t used) {
    return (int64_t)wished(used) - LEAST;
}

// The bytes of a slab of `wish` bytes or somewhat less that leaves least behind its last block
// where all are of this size.
static size_t fitted(size_t wish, size_t block) {
    enum { TRIES = 64 };
    size_t most = max_size(wish / block, 1), best = 0, least = STEP;
    for (size_t n = most; n > most / 2 && most - n < TRIES && least > 0; n--) {
        size_t whole = round_up_size(n * block, STEP);
        if (whole - n * block < least) {
            least = whole - n * block;
            best = whole;
        }
    }
    return best;
}

int64_t slabs_vain_filled(int64_t used, int64_t block) {
    int64_t vain = 0;
    for (int64_t at = 0; block > 0 && at < used;) {
        int64_t slab = (int64_t)fitted(max_size(wished(at), (size_t)block), (size_t)block);
        vain += slab % block;
        at += slab / block * block;
    }
    return vain;
}

// A slab for a block that fits no other: a 32nd of what its arena holds, so that no more than that
// is held in vain, and less where memory is short, down to what is needed.
static int64_t grow(struct slabs *s, int arena, size_t bytes) {
    size_t need = round_up_size(bytes, STEP);
    int64_t at = -1;
    if (s->separate)
        return add_slab(s, arena, bytes);
    for (size_t wish = wished(s->used[arena]); at < 0 && need < wish; wish /= 2)
        at = add_slab(s, arena, fitted(wish, bytes));
    if (at < 0)
        at = add_slab(s, arena, need);
    if (at >= 0)
        return at;
    slabs_trim(s);
    return add_slab(s, arena, need);
}

static bool place(struct slabs *s, int arena, struct slab_block *b) {
    size_t at;
    for (int64_t i = 0; !s->separate && i < s->n; i++) {
        struct slab *slab = &s->slabs[i];
        if (slab->base && slab->arena == arena && !ranges_take(&slab->ranges, b->bytes, &at)) {
            b->p = slab->base + at;
            b->slab = i;
            return true;
        }
    }
    b->slab = grow(s, arena, b->bytes);
    if (b->slab < 0 || ranges_take(&s->slabs[b->slab].ranges, b->bytes, &at))
        return false;
    b->p = s->slabs[b->slab].base + at;
    return true;
}

void *slabs_take(struct slabs *s, int arena, size_t bytes) {
    void *array = s->blocks;
    bool room = room_for_one(&array, s->n_blocks, &s->cap_blocks, sizeof *s->blocks);
    s->blocks = array;
    if (!room || bytes > INT64_MAX / 2)
        return NULL;
    size_t whole = s->separate ? bytes : (bytes + SLABS_ALIGN - 1) / SLABS_ALIGN * SLABS_ALIGN;
    struct slab_block b = {.bytes = whole ? whole : SLABS_ALIGN};
    if (!place(s, arena, &b))
        return NULL;
    s->blocks[s->n_blocks++] = b;
    s->used[arena] += (int64_t)b.bytes;
    return b.p;
}

void slabs_give(struct slabs *s, void *p) {
    for (int64_t i = s->n_blocks - 1; p && i >= 0; i--) {
        struct slab_block b = s->blocks[i];
        if (b.p != p)
            continue;
        s->blocks[i] = s->blocks[--s->n_blocks];
        struct slab *slab = &s->slabs[b.slab];
        ranges_give(&slab->ranges, (size_t)(b.p - slab->base), b.bytes);
        s->used[slab->arena] -= (int64_t)b.bytes;
        if (s->separate && ranges_all_free(&slab->ranges))
            drop_slab(s, b.slab);
        return;
    }
}

void slabs_fini(struct slabs *s) {
    for (int64_t i = 0; i < s->n; i++)
        if (s->slabs[i].base)
            drop_slab(s, i);
    free(s->slabs);
    free(s->blocks);
    s->slabs = NULL;
    s->blocks = NULL;
    s->n = s->cap = s->n_blocks = s->cap_blocks = 0;
}

static int64_t sum(const struct slabs *s, int arena, bool spare) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < s->n; i++) {
        const struct slab *b = &s->slabs[i];
        if (b->base && b->arena == arena && (!spare || ranges_all_free(&b->ranges)))
            bytes += (int64_t)b->ranges.size;
    }
    return bytes;
}

int64_t slabs_held(const struct slabs *s, int arena) {
    return sum(s, arena, false);
}

int64_t slabs_spare(const struct slabs *s, int arena) {
    return sum(s, arena, true);
}
