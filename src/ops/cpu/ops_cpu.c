// SPDX-License-Identifier: Apache-2.0
// The CPU backend: its exec, memory and activations, and the table of its ops. The levels differ
// only in their row kernels (ops/cpu/simd/row/row.h); every op above them is written once.
#include <stdio.h>
#include <stdlib.h>

#include "base/num.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/pages.h"
#include "ops/exec.h"

// Whether memory checkers look, which have to see the ends of each block: then none shares a slab.
#ifdef COPPICE_CHECKED
static const bool CHECKED = true;
#else
static const bool CHECKED = false;
#endif

static void *memory_alloc(struct exec *x, size_t bytes) {
    (void)x;
    return cpu_alloc(bytes);
}

static void *map_slab(void *arg, size_t bytes) {
    (void)arg;
    return pages_map(bytes);
}

static void free_slab(void *arg, void *p) {
    (void)arg;
    free(p);
}

static void *memory_alloc_in(struct exec *x, enum exec_arena arena, size_t bytes) {
    if (arena != ARENA_PAGES || CHECKED)
        return cpu_alloc(bytes);
    void *p = slabs_take(&cpu_of(x)->kv, (int)arena, bytes);
    return p ? memset(p, 0, bytes) : NULL;
}

// Slabs without a block are kept up to this size: mapping one anew clears its pages.
enum { SPARE_SLABS = 64 << 20 };

static void memory_free(struct exec *x, void *p) {
    struct slabs *kv = &cpu_of(x)->kv;
    int64_t blocks = kv->n_blocks;
    slabs_give(kv, p);
    if (kv->n_blocks == blocks)
        free(p);
    else if (slabs_free_bytes(kv, ARENA_PAGES) > SPARE_SLABS)
        slabs_trim(kv);
}

static void memory_copy(struct exec *x, void *dst, const void *src, size_t bytes) {
    (void)x;
    if (bytes)
        memmove(dst, src, bytes);
}

static void memory_zero(struct exec *x, void *dst, size_t bytes) {
    (void)x;
    memset(dst, 0, bytes);
}

static int64_t act_bytes(const struct exec *x, int64_t n, int64_t k) {
    (void)x;
    int64_t stride = round_up(k, GROUP);
    return n * stride * 7 + n * stride / GROUP * (int64_t)sizeof(struct act_alone) +
           ceil_div(n, ROWS) * (stride / GROUP) * (int64_t)sizeof(struct act_block);
}

static void act_read(struct exec *x, const struct act *a, int64_t n, float *out) {
    (void)x;
    for (int64_t i = 0; i < n; i++)
        memcpy(out + i * a->k, a->x + i * a->stride, (size_t)a->k * sizeof *out);
}

static const struct ops cpu_table = {.alloc = memory_alloc,
                                     .free = memory_free,
                                     .upload = memory_copy,
                                     .download = memory_copy,
                                     .copy = memory_copy,
                                     .zero = memory_zero,
#define X(result, op, parameters, arguments) .op = cpu_##op,
                                     OPS_OPERANDS(X) OPS_COMPUTING(X)
#undef X
};

static void cpu_destroy(struct exec *x) {
    struct cpu *c = cpu_of(x);
    pool_destroy(c->pool);
    cpu_moe_release(x);
    slabs_fini(&c->kv);
    free(c->rope);
    free(c->angles);
    free(c->attend);
    free(c->gdn);
    free(c->sparse);
    free(c);
}

static int level_of(const char *name, enum row_level *level, struct err *e) {
    static const char *const names[ROW_LEVELS] = {"scalar", "avx2",    "avx512", "amx",
                                                  "neon",   "dotprod", "i8mm"};
    if (!name || !strcmp(name, "auto")) {
        *level = ROW_LEVELS - 1;
        return 0;
    }
    for (int i = 0; i < ROW_LEVELS; i++) {
        if (strcmp(name, names[i]))
            continue;
        struct row_kernels probe;
        *level = (enum row_level)i;
        if (row_kernels_fill(&probe, *level) == *level)
            return 0;
        return err_set(e, ERR_UNSUPPORTED, "this CPU lacks the instructions of level %s; use auto",
                       name);
    }
    return err_set(
        e, ERR_USAGE,
        "unknown CPU level \"%.40s\"; use auto, scalar, avx2, avx512 or amx, on ARM neon, "
        "dotprod or i8mm",
        name);
}

int exec_create_cpu(struct exec **out, const char *level, int threads, struct err *e) {
    enum row_level max;
    *out = NULL;
    int rc = level_of(level, &max, e);
    if (rc)
        return rc;
    // The table and the exec are one allocation, since each level's table has its own name.
    struct {
        struct cpu cpu;
        struct ops ops;
    } *both = cpu_alloc(sizeof *both);
    if (!both)
        return err_set(e, ERR_MEMORY, "out of memory for the CPU backend");
    struct cpu *c = &both->cpu;
    row_kernels_fill(&c->row, max);
    both->ops = cpu_table;
    both->ops.name = c->row.name;
    c->base.ops = &both->ops;
    snprintf(c->base.label, sizeof c->base.label, "%s", c->row.name);
    c->base.destroy = cpu_destroy;
    c->base.weight_bytes = cpu_weight_bytes;
    c->base.act_bytes = act_bytes;
    c->base.act_read = act_read;
    c->base.host_rows = &cpu_host_rows;
    c->base.copies = cpu_copies;
    c->base.alloc_in = memory_alloc_in;
    c->kv.source.take = map_slab;
    c->kv.source.give = free_slab;
    rc = pool_create(&c->pool, threads, e);
    if (rc)
        goto out;
    c->base.threads = pool_threads(c->pool);
    c->rope = calloc(ROPE_SLOTS, sizeof *c->rope);
    c->angles = calloc(ROPE_ROWS, sizeof *c->angles);
    c->attend = calloc((size_t)c->base.threads, sizeof *c->attend);
    c->gdn = calloc((size_t)c->base.threads, sizeof *c->gdn);
    c->sparse = calloc((size_t)c->base.threads, sizeof *c->sparse);
    if (!c->rope || !c->angles || !c->attend || !c->gdn || !c->sparse) {
        rc = err_set(e, ERR_MEMORY, "out of memory for %d threads; ask for fewer", c->base.threads);
        goto out;
    }
    *out = &c->base;
    return 0;
out:
    cpu_destroy(&c->base);
    return rc;
}
