// SPDX-License-Identifier: Apache-2.0
// Device memory of the CUDA backend: blocks out of slabs that are counted against a limit, scratch,
// and the stage that carries small host arrays over. All work is ordered by one stream, so a block
// may be released and handed out again while earlier work still uses it. Nothing here waits, except
// when the stage comes round or empty slabs go back to the device.
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"
#include "ops/gpu/runtime/cuda.h"

static bool add_slab(struct gpu *g, size_t bytes) {
    void *p = NULL;
    if (vec_reserve(&g->slabs, &g->cap_slabs, g->n_slabs + 1, sizeof *g->slabs, NULL) ||
        (g->limit > 0 && (int64_t)bytes > g->limit - g->used))
        return false;
    if (gpu_malloc(&p, bytes) != GPU_OK) {
        gpu_last_error(); // an allocation that fails is an answer, not a fault
        return false;
    }
    struct gpu_slab *s = &g->slabs[g->n_slabs];
    *s = (struct gpu_slab){.base = p};
    if (ranges_init(&s->ranges, bytes)) {
        gpu_free(p);
        return false;
    }
    g->n_slabs++;
    g->used += (int64_t)bytes;
    g->peak = max_i64(g->peak, g->used);
    return true;
}

// Gives slabs back to the device; all of them, or those without blocks.
static void drop_slabs(struct gpu *g, bool all) {
    int64_t kept = 0;
    for (int64_t i = 0; i < g->n_slabs; i++) {
        struct gpu_slab s = g->slabs[i];
        bool drop = s.base && (all || ranges_all_free(&s.ranges));
        if (drop) {
            // This waits for the work that is queued, so nothing can still be using the memory.
            gpu_check(g, gpu_free(s.base), "freeing memory");
            g->used -= (int64_t)s.ranges.size;
            ranges_fini(&s.ranges);
            s = (struct gpu_slab){0};
        }
        g->slabs[i] = s; // blocks know their slab by its index, so empty places stay
        kept = s.base ? i + 1 : kept;
    }
    g->n_slabs = kept;
}

// A slab for a block that fits no other: large ones in a process that holds much, and only what is
// needed where memory is short.
static bool grow(struct gpu *g, size_t bytes) {
    enum { STEP = 2 << 20, LEAST = 16 << 20, MOST = 256 << 20 };
    size_t need = round_up_size(bytes, STEP), wish = (size_t)g->used / 8 / STEP * STEP;
    wish = clamp_size(wish, LEAST, MOST);
    if (g->separate)
        return add_slab(g, bytes);
    if (need < wish && add_slab(g, wish))
        return true;
    if (add_slab(g, need))
        return true;
    drop_slabs(g, false);
    return add_slab(g, need);
}

static bool take(struct gpu *g, size_t bytes, struct gpu_block *b) {
    for (int64_t i = g->separate ? g->n_slabs : 0; i < g->n_slabs; i++) {
        size_t at;
        if (g->slabs[i].base && !ranges_take(&g->slabs[i].ranges, bytes, &at)) {
            *b = (struct gpu_block){g->slabs[i].base + at, bytes, i};
            return true;
        }
    }
    size_t at = 0;
    if (!grow(g, bytes) || ranges_take(&g->slabs[g->n_slabs - 1].ranges, bytes, &at))
        return false;
    *b = (struct gpu_block){g->slabs[g->n_slabs - 1].base + at, bytes, g->n_slabs - 1};
    return true;
}

void *gpu_alloc(struct gpu *g, size_t bytes) {
    enum { ALIGN = 512 };
    if (vec_reserve(&g->blocks, &g->cap_blocks, g->n_blocks + 1, sizeof *g->blocks, NULL) ||
        bytes > INT64_MAX / 2)
        return NULL;
    struct gpu_block *b = &g->blocks[g->n_blocks];
    size_t whole = g->separate ? bytes : round_up_size(bytes, ALIGN);
    if (!take(g, whole ? whole : ALIGN, b))
        return NULL;
    g->n_blocks++;
    gpu_check(g, gpu_zero(b->p, 0, b->bytes, g->stream), "clearing memory");
    return b->p;
}

void gpu_release(struct gpu *g, void *p) {
    for (int64_t i = g->n_blocks - 1; p && i >= 0; i--) {
        struct gpu_block b = g->blocks[i];
        if (b.p != p)
            continue;
        g->blocks[i] = g->blocks[--g->n_blocks];
        struct gpu_slab *s = &g->slabs[b.slab];
        ranges_give(&s->ranges, (size_t)((unsigned char *)p - s->base), b.bytes);
        if (g->separate)
            drop_slabs(g, false);
        return;
    }
}

void gpu_memory_fini(struct gpu *g) {
    drop_slabs(g, true);
    free(g->slabs);
    free(g->blocks);
    g->slabs = NULL;
    g->blocks = NULL;
    g->n_blocks = g->cap_blocks = g->cap_slabs = 0;
}

void *gpu_scratch(struct gpu *g, size_t bytes) {
    gpu_flush(g);
    if (bytes <= g->scratch_bytes)
        return g->scratch;
    gpu_release(g, g->scratch);
    g->scratch = gpu_alloc(g, bytes);
    g->scratch_bytes = g->scratch ? bytes : 0;
    if (!g->scratch)
        gpu_check(g, GPU_OUT_OF_MEMORY, "scratch memory of an op");
    return g->scratch;
}

static uint64_t hash_of(const unsigned char *p, size_t bytes) {
    uint64_t h = 0x9E3779B97F4A7C15u ^ bytes;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        h = (h ^ v) * 0xFF51AFD7ED558CCDu;
        h ^= h >> 32;
    }
    for (; bytes; p++, bytes--)
        h = (h ^ *p) * 0x100000001B3u;
    return h ^ h >> 29;
}

const void *gpu_stage(struct gpu *g, const void *host, size_t bytes) {
    struct gpu_stage *s = &g->stage;
    enum { ENTRIES = sizeof s->entries / sizeof s->entries[0] };
    uint64_t hash = hash_of(host, bytes);
    for (int i = 0; i < s->n_entries && i < ENTRIES; i++) {
        const struct stage_entry *t = &s->entries[i];
        if (t->hash == hash && t->bytes == bytes && !memcmp(s->host + t->offset, host, bytes))
            return s->device + t->offset;
    }
    size_t room = round_up_size(bytes, 16);
    if (room > STAGE_BYTES / 4) {
        gpu_check(g, GPU_OUT_OF_MEMORY, "staging an array of more than 8 MiB");
        return NULL;
    }
    if (s->used + room > STAGE_BYTES) {
        if (!gpu_check(g, gpu_stream_wait(g->stream), "waiting for the device"))
            return NULL;
        s->used = 0;
        s->n_entries = 0;
    }
    unsigned char *to = s->device + s->used;
    memcpy(s->host + s->used, host, bytes);
    if (!gpu_check(g, gpu_to_device(to, s->host + s->used, bytes, g->stream), "sending an array"))
        return NULL;
    s->entries[s->n_entries++ % ENTRIES] = (struct stage_entry){hash, s->used, bytes};
    s->used += room;
    return to;
}
