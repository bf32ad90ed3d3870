// SPDX-License-Identifier: Apache-2.0
// Device memory of the CUDA backend: allocations counted against a limit, scratch, and the stage
// that carries small host arrays over. Nothing here waits, except when the stage comes round.
#include <stdlib.h>
#include <string.h>

#include "ops/cuda/cuda.h"

bool gpu_check(struct gpu *g, gpu_error code, const char *where) {
    if (code == GPU_OK)
        return true;
    if (g->fault == GPU_OK) {
        g->fault = code;
        g->fault_where = where;
    }
    return false;
}

static bool keep_block(struct gpu *g, void *p, size_t bytes) {
    if (g->n_blocks == g->cap_blocks) {
        int64_t cap = g->cap_blocks ? 2 * g->cap_blocks : 256;
        struct gpu_block *blocks = realloc(g->blocks, (size_t)cap * sizeof *blocks);
        if (!blocks)
            return false;
        g->blocks = blocks;
        g->cap_blocks = cap;
    }
    g->blocks[g->n_blocks++] = (struct gpu_block){p, bytes};
    g->used += (int64_t)bytes;
    if (g->used > g->peak)
        g->peak = g->used;
    return true;
}

void *gpu_alloc(struct gpu *g, size_t bytes) {
    void *p = NULL;
    if (bytes == 0)
        bytes = 1;
    if (bytes > INT64_MAX / 2 || (g->limit > 0 && (int64_t)bytes > g->limit - g->used))
        return NULL;
    if (gpu_malloc(&p, bytes) != GPU_OK) {
        gpu_last_error(); // an allocation that fails is an answer, not a fault
        return NULL;
    }
    if (!keep_block(g, p, bytes)) {
        gpu_free(p);
        return NULL;
    }
    gpu_check(g, gpu_zero(p, 0, bytes, g->stream), "clearing memory");
    return p;
}

void gpu_release(struct gpu *g, void *p) {
    if (!p)
        return;
    for (int64_t i = g->n_blocks - 1; i >= 0; i--) {
        if (g->blocks[i].p != p)
            continue;
        g->used -= (int64_t)g->blocks[i].bytes;
        g->blocks[i] = g->blocks[--g->n_blocks];
        break;
    }
    // Frees wait for the work that is queued, so nothing can still be using the memory.
    gpu_check(g, gpu_free(p), "freeing memory");
}

void *gpu_scratch(struct gpu *g, size_t bytes) {
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
    for (int i = 0; i < s->n_entries; i++) {
        const struct stage_entry *t = &s->entries[i];
        if (t->hash == hash && t->bytes == bytes && !memcmp(s->host + t->offset, host, bytes))
            return s->device + t->offset;
    }
    size_t room = (bytes + 15) / 16 * 16;
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
    if (s->n_entries < ENTRIES)
        s->entries[s->n_entries++] = (struct stage_entry){hash, s->used, bytes};
    s->used += room;
    return to;
}
