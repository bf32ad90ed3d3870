// SPDX-License-Identifier: Apache-2.0
// See slabs.h. A slab's place in the list is never another slab's while blocks lie in it, since
// blocks refer to it by its number; places of slabs that were given back are used again.
#include "base/memory/slabs.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"

// Free ranges: an ascending array. Taking shortens a range or removes it, giving joins the
// neighbours that it touches.

static int insert_range(struct ranges *r, size_t i, struct range v) {
    if (vec_reserve(&r->free, &r->cap, (int64_t)r->n + 1, sizeof *r->free, NULL))
        return -1;
    memmove(r->free + i + 1, r->free + i, (r->n - i) * sizeof *r->free);
    r->free[i] = v;
    r->n++;
    return 0;
}

static void erase_range(struct ranges *r, size_t i) {
    r->n--;
    memmove(r->free + i, r->free + i + 1, (r->n - i) * sizeof *r->free);
}

int ranges_init(struct ranges *r, size_t size) {
    *r = (struct ranges){.size = size};
    return size ? insert_range(r, 0, (struct range){0, size}) : 0;
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
            erase_range(r, i);
        return 0;
    }
    return -1;
}

int ranges_give(struct ranges *r, size_t at, size_t bytes) {
    size_t i = 0;
    while (i < r->n && r->free[i].begin < at)
        i++;
    bool before = i > 0 && r->free[i - 1].end == at;
    bool after = i < r->n && r->free[i].begin == at + bytes;
    if (before && after) {
        r->free[i - 1].end = r->free[i].end;
        erase_range(r, i);
    } else if (before) {
        r->free[i - 1].end += bytes;
    } else if (after) {
        r->free[i].begin = at;
    } else {
        return insert_range(r, i, (struct range){at, at + bytes});
    }
    return 0;
}

bool ranges_all_free(const struct ranges *r) {
    return r->size == 0 || (r->n == 1 && r->free[0].begin == 0 && r->free[0].end == r->size);
}

// A place in the list without a slab, or -1.
static int64_t free_place(struct slabs *s) {
    for (int64_t i = 0; i < s->n; i++)
        if (!s->slabs[i].base)
            return i;
    if (vec_reserve(&s->slabs, &s->cap, s->n + 1, sizeof *s->slabs, NULL))
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

enum { STEP = 2 << 20, LEAST = 16 << 20, LIMIT = 256 << 20 };

// A slab's bytes, where memory is not short, for an arena with that many bytes of blocks.
static size_t wished_slab_bytes(int64_t used) {
    return clamp_size((size_t)used / 32 / STEP * STEP, LEAST, LIMIT);
}

int64_t slabs_vain(void) {
    return (int64_t)SLABS_ARENAS * LEAST;
}

int64_t slabs_vain_beyond(int64_t used) {
    return (int64_t)wished_slab_bytes(used) - LEAST;
}

// The bytes of a slab of `wish` bytes or somewhat less that leaves least after its last block
// where all are of this size.
static size_t fitted_slab_bytes(size_t wish, size_t block) {
    enum { TRIES = 64 };
    size_t max = max_size(wish / block, 1), best = 0, min = STEP;
    for (size_t n = max; n > max / 2 && max - n < TRIES && min > 0; n--) {
        size_t whole = round_up_size(n * block, STEP);
        if (whole - n * block < min) {
            min = whole - n * block;
            best = whole;
        }
    }
    return best;
}

int64_t slabs_vain_filled(int64_t used, int64_t block) {
    int64_t vain = 0;
    for (int64_t at = 0; block > 0 && at < used;) {
        int64_t slab = (int64_t)fitted_slab_bytes(max_size(wished_slab_bytes(at), (size_t)block),
                                                  (size_t)block);
        vain += slab % block;
        at += slab / block * block;
    }
    return vain;
}

// A slab for a block that fits no other: a 32nd of what its arena holds, so that no more than that
// is held in vain, and less where memory is short, down to what is needed.
static int64_t add_slab_for(struct slabs *s, int arena, size_t bytes) {
    size_t need = round_up_size(bytes, STEP);
    int64_t at = -1;
    if (s->separate)
        return add_slab(s, arena, bytes);
    for (size_t wish = wished_slab_bytes(s->used[arena]); at < 0 && need < wish; wish /= 2)
        at = add_slab(s, arena, fitted_slab_bytes(wish, bytes));
    if (at < 0)
        at = add_slab(s, arena, need);
    if (at >= 0)
        return at;
    slabs_trim(s);
    return add_slab(s, arena, need);
}

static bool place_block(struct slabs *s, int arena, struct slab_block *b) {
    size_t at;
    for (int64_t i = 0; !s->separate && i < s->n; i++) {
        struct slab *slab = &s->slabs[i];
        if (slab->base && slab->arena == arena && !ranges_take(&slab->ranges, b->bytes, &at)) {
            b->p = slab->base + at;
            b->slab = i;
            return true;
        }
    }
    b->slab = add_slab_for(s, arena, b->bytes);
    if (b->slab < 0 || ranges_take(&s->slabs[b->slab].ranges, b->bytes, &at))
        return false;
    b->p = s->slabs[b->slab].base + at;
    return true;
}

void *slabs_take(struct slabs *s, int arena, size_t bytes) {
    if (bytes > INT64_MAX / 2 ||
        vec_reserve(&s->blocks, &s->cap_blocks, s->n_blocks + 1, sizeof *s->blocks, NULL))
        return NULL;
    size_t whole = s->separate ? bytes : round_up_size(bytes, SLABS_ALIGN);
    struct slab_block b = {.bytes = whole ? whole : SLABS_ALIGN};
    if (!place_block(s, arena, &b))
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

static int64_t sum_slabs(const struct slabs *s, int arena, bool all_free) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < s->n; i++) {
        const struct slab *b = &s->slabs[i];
        if (b->base && b->arena == arena && (!all_free || ranges_all_free(&b->ranges)))
            bytes += (int64_t)b->ranges.size;
    }
    return bytes;
}

int64_t slabs_held(const struct slabs *s, int arena) {
    return sum_slabs(s, arena, false);
}

int64_t slabs_free_bytes(const struct slabs *s, int arena) {
    return sum_slabs(s, arena, true);
}

// Parked slabs: while they are away they count as not held.

static void *take_parkable_slab(void *arg, size_t bytes) {
    struct parked *k = arg;
    if (!k->open)
        return k->take(k->arg, bytes);
    size_t all = round_up_size(bytes, k->from.grain);
    if (vec_reserve(&k->all, &k->cap, k->n + 1, sizeof *k->all, NULL))
        return NULL;
    void *p = k->from.reserve(k->from.arg, all);
    if (!p)
        return NULL;
    if (!k->from.back(k->from.arg, p, all)) {
        k->from.release(k->from.arg, p, all);
        return NULL;
    }
    k->all[k->n++] = (struct parked_slab){.p = p, .bytes = all};
    return p;
}

static struct parked_slab *find_parked_slab(struct parked *k, const void *p) {
    for (int64_t i = 0; i < k->n; i++)
        if (k->all[i].p == p)
            return &k->all[i];
    return NULL;
}

static void give_parkable_slab(void *arg, void *p) {
    struct parked *k = arg;
    struct parked_slab *s = find_parked_slab(k, p);
    if (!s) {
        k->give(k->arg, p);
        return;
    }
    if (s->away) {
        k->slabs->held += (int64_t)s->bytes; // as slabs.c counts it until now
    } else {
        size_t after = s->hole + s->hole_bytes;
        k->slabs->held += (int64_t)s->hole_bytes;
        if (s->hole_bytes && s->hole)
            k->from.strip(k->from.arg, s->p, s->hole);
        if (s->bytes > after)
            k->from.strip(k->from.arg, s->p + after, s->bytes - after);
    }
    k->from.release(k->from.arg, s->p, s->bytes);
    if (s->host)
        k->from.host_give(k->from.arg, s->host);
    *s = k->all[--k->n];
}

void parked_init(struct parked *k, struct slabs *s, const struct parked_source *from) {
    *k = (struct parked){.slabs = s,
                         .from = *from,
                         .take = s->source.take,
                         .give = s->source.give,
                         .arg = s->source.arg,
                         .open = true};
    s->source.take = take_parkable_slab;
    s->source.give = give_parkable_slab;
    s->source.arg = k;
}

void parked_finish(struct parked *k) {
    k->open = false;
}

static int arena_of_slab(const struct parked *k, const unsigned char *p) {
    for (int64_t i = 0; i < k->slabs->n; i++)
        if (k->slabs->slabs[i].base == p)
            return k->slabs->slabs[i].arena;
    return -1;
}

int64_t parked_kept(const struct parked *k) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < k->n; i++)
        bytes += k->all[i].host ? (int64_t)k->all[i].bytes : 0;
    return bytes;
}

int parked_keep(struct parked *k, int arena, int64_t bytes, struct err *e) {
    int64_t have = parked_kept(k);
    for (int64_t i = 0; i < k->n && have < bytes; i++) {
        struct parked_slab *s = &k->all[i];
        if (s->host || s->away || arena_of_slab(k, s->p) != arena)
            continue;
        void *host = k->from.host_take(k->from.arg, s->bytes);
        if (!host || !k->from.save(k->from.arg, host, s->p, s->bytes)) {
            if (host)
                k->from.host_give(k->from.arg, host);
            return err_set(e, ERR_MEMORY,
                           "the host has no %lld MiB of memory to keep weights in while their "
                           "place is lent",
                           (long long)(bytes >> 20));
        }
        s->host = host;
        have += (int64_t)s->bytes;
    }
    return have >= bytes
               ? 0
               : err_set(e, ERR_MEMORY, "%lld MiB are to be lent, and weights take %lld MiB",
                         (long long)(bytes >> 20), (long long)(have >> 20));
}

void parked_leave(struct parked *k) {
    for (int64_t i = 0; i < k->n; i++) {
        struct parked_slab *s = &k->all[i];
        if (!s->host || s->away)
            continue;
        k->from.strip(k->from.arg, s->p, s->bytes);
        s->away = true;
        k->slabs->held -= (int64_t)s->bytes;
    }
}

int parked_return(struct parked *k, struct err *e) {
    for (int64_t i = 0; i < k->n; i++) {
        struct parked_slab *s = &k->all[i];
        if (!s->away)
            continue;
        if (!k->from.back(k->from.arg, s->p, s->bytes))
            return err_set(e, ERR_MEMORY,
                           "%lld MiB of memory that weights had lent do not come back; something "
                           "else has taken them",
                           (long long)(s->bytes >> 20));
        s->away = false;
        k->slabs->held += (int64_t)s->bytes;
        k->slabs->peak = max_i64(k->slabs->peak, k->slabs->held);
        if (!k->from.load(k->from.arg, s->p, s->host, s->bytes))
            return err_set(e, ERR_MEMORY, "weights could not be copied back to where they were");
    }
    return 0;
}

int64_t parked_open(struct parked *k, void *p, size_t bytes) {
    const unsigned char *at = p;
    size_t piece = k->from.piece;
    for (int64_t i = 0; i < k->n; i++) {
        struct parked_slab *s = &k->all[i];
        if (at < s->p || at >= s->p + s->bytes || s->away || s->hole_bytes || !piece)
            continue;
        size_t from = ((size_t)(at - s->p) + piece - 1) / piece * piece;
        size_t to = (size_t)(at - s->p) + bytes;
        to = to >= s->bytes ? s->bytes : to / piece * piece;
        if (to <= from)
            return 0;
        s->hole = from;
        s->hole_bytes = to - from;
        k->from.strip(k->from.arg, s->p + from, to - from);
        k->slabs->held -= (int64_t)s->hole_bytes;
        return (int64_t)s->hole_bytes;
    }
    return 0;
}

int parked_close(struct parked *k, struct err *e) {
    for (int64_t i = 0; i < k->n; i++) {
        struct parked_slab *s = &k->all[i];
        if (!s->hole_bytes)
            continue;
        if (!k->from.back(k->from.arg, s->p + s->hole, s->hole_bytes))
            return err_set(e, ERR_MEMORY,
                           "%lld MiB of memory that slots of experts had lent do not come back; "
                           "something else has taken them",
                           (long long)(s->hole_bytes >> 20));
        k->slabs->held += (int64_t)s->hole_bytes;
        k->slabs->peak = max_i64(k->slabs->peak, k->slabs->held);
        s->hole = s->hole_bytes = 0;
    }
    return 0;
}

void parked_fini(struct parked *k) {
    free(k->all);
    *k = (struct parked){0};
}
