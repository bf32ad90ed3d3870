// SPDX-License-Identifier: Apache-2.0
// The scorer of prompts on a device: close to the scalar CPU's where everything is seen, and the
// same bits for any chunk and with what was kept of earlier texts, where blocks are chosen.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/rng.h"
#include "compress/score/score.h"
#include "gpu/suites.h"
#include "support/device.h"
#include "support/tiny_gguf.h"

enum { MOST = 128 * 9 + 77, QUERIES = 20 };

struct rig {
    struct exec *cpu, *device;
    struct gguf *g;
    const char *level;
    struct gpu_counts *n;
    int32_t ids[MOST];
    float a[MOST], b[MOST];
};

// Scores of the first n ids by a scorer of its own; with `again` after a text that begins alike.
static int score(struct rig *r, struct exec *x, const struct score_options *o, int64_t n,
                 bool again, float *out, struct err *e) {
    struct scorer *s = NULL;
    int rc = score_open(&s, x, r->g, o, e);
    if (!rc && again)
        rc = s->kind->score(s, &(struct score_call){r->ids, n - 200, n - 250, out}, e);
    if (!rc)
        rc = s->kind->score(s, &(struct score_call){r->ids, n, n - QUERIES, out}, e);
    if (!rc && again && score_known(s) == 0)
        rc = err_set(e, ERR_STATE, "nothing of the text before was kept");
    if (s)
        s->kind->destroy(s);
    return rc;
}

static double error_of(const float *got, const float *want, int64_t n) {
    double d = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        d += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        size += (double)want[i] * (double)want[i];
    }
    return isfinite(d) ? sqrt(d / size) : INFINITY;
}

static int64_t differences(const float *a, const float *b, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += a[i] < b[i] || a[i] > b[i] || isnan(a[i]);
    return count;
}

// All blocks, by sparse or dense attention, against the CPU.
static void check_close(struct rig *r, int64_t n, bool dense, const char *shape) {
    struct score_options o = score_options_default();
    struct err e = {0};
    o.sparse.alpha = 0;
    o.chunk = 512;
    int rc = score(r, r->cpu, &o, n, false, r->a, &e);
    o.dense = dense;
    if (!rc)
        rc = score(r, r->device, &o, n, false, r->b, &e);
    double error = rc ? INFINITY : error_of(r->b, r->a, n);
    gpu_line(r->n, error < 2e-2, r->level, "score", shape, "%lld tokens, %s: error %.1e%s%s",
             (long long)n, dense ? "dense" : "all blocks", error, rc ? ": " : "", e.text);
}

// Chosen blocks: one chunk against chunks of 128, and with a memory of the text before.
static void check_same(struct rig *r, int64_t n, const char *shape) {
    struct score_options o = score_options_default();
    struct err e = {0};
    o.sparse = (struct sparse_options){.alpha = 0.6f, .sinks = 1, .window = 1, .last_full = 1};
    o.chunk = 2048;
    int rc = score(r, r->device, &o, n, false, r->a, &e);
    o.chunk = 128;
    if (!rc)
        rc = score(r, r->device, &o, n, false, r->b, &e);
    int64_t cut = rc ? -1 : differences(r->a, r->b, n);
    o.chunk = 384;
    o.keep = 64 << 20;
    if (!rc)
        rc = score(r, r->device, &o, n, true, r->b, &e);
    int64_t kept = rc ? -1 : differences(r->a, r->b, n);
    gpu_line(r->n, cut == 0 && kept == 0, r->level, "score", shape,
             "%lld tokens: %lld other bits in chunks, %lld with what was kept%s%s", (long long)n,
             (long long)cut, (long long)kept, rc ? ": " : "", e.text);
}

static void check_shape(struct rig *r, const struct tiny_shape *t, const char *shape) {
    static const int64_t lengths[] = {128 * 9 + 77, 128 * 6, 128 * 4 + 1};
    struct err e = {0};
    char path[96];
    struct rng g = {7};
    snprintf(path, sizeof path, "/tmp/suite_score.%d.gguf", (int)getpid());
    if (tiny_target_write(t, path, &e) || gguf_open(&r->g, path, &e)) {
        gpu_line(r->n, false, r->level, "score", shape, "%s", e.text);
        return;
    }
    for (int i = 0; i < MOST; i++)
        r->ids[i] = (int32_t)rng_below(&g, 250);
    for (int i = 0; i < 3; i++) {
        check_close(r, lengths[i], i == 1, shape);
        check_same(r, lengths[i], shape);
    }
    gguf_close(r->g);
    remove(path);
}

void suite_score(const char *level, const struct gpu_options *o, struct gpu_counts *n) {
    struct rig *r = calloc(1, sizeof *r);
    struct err e = {0};
    (void)o;
    if (!r)
        abort();
    r->level = level;
    r->n = n;
    if (exec_create_cpu(&r->cpu, "auto", 0, &e) || device_open(&r->device, level, 0, &e)) {
        gpu_line(n, false, level, "score", "open", "%s", e.text);
    } else {
        struct tiny_shape t = tiny_shape_plain();
        t.layers = 3;
        check_shape(r, &t, "2/1 heads of 64, F32");
        t.heads = 4;
        t.kv_heads = 2;
        t.head_dim = t.rope_dims = 128;
        t.type = TYPE_BF16;
        check_shape(r, &t, "4/2 heads of 128, BF16");
    }
    if (r->device)
        exec_destroy(r->device);
    if (r->cpu)
        exec_destroy(r->cpu);
    free(r);
}
