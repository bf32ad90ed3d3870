// SPDX-License-Identifier: Apache-2.0
// What a device's arithmetic does to the predictions of a model. The judge is the same file decoded
// to F32 and run on the CPU, where F32 weights meet f32 activations. Against it stand the device,
// and the CPU with the file as it is, whose activations are int8: the device must be the nearer
// one. The tokens are the model's own, drawn at temperature 1.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "convert/convert.h"
#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"
#include "gpu/suites.h"
#include "models/model.h"
#include "support/device.h"
#include "support/tiny_gguf.h"

enum { TOKENS = 192, CHUNK = 64 };

// One model on one exec.
struct side {
    struct exec *x;
    struct gguf *file;
    struct model *m;
    struct sequence *s;
    struct forest f;
    float *logits; // [TOKENS][vocab]
};

static int side_open(struct side *d, const char *level, const char *path, struct err *e) {
    struct model_options o = model_options_default();
    o.max_ctx = TOKENS + CHUNK;
    o.max_rows = o.max_verify = CHUNK;
    o.max_seqs = 1;
    int rc = device_open(&d->x, level, 0, e);
    if (!rc)
        rc = gguf_open(&d->file, path, e);
    if (!rc)
        rc = model_load(&d->m, d->x, d->file, &o, e);
    if (!rc)
        rc = model_sequence(d->m, &d->s, e);
    if (!rc)
        rc = forest_init(&d->f, CHUNK, e);
    if (rc)
        return rc;
    d->logits = malloc((size_t)(TOKENS * model_params_of(d->m)->vocab) * sizeof *d->logits);
    return d->logits ? 0 : err_set(e, ERR_MEMORY, "no memory for %d rows of logits", TOKENS);
}

static void side_close(struct side *d) {
    free(d->logits);
    forest_fini(&d->f);
    sequence_destroy(d->s);
    model_destroy(d->m);
    if (d->file)
        gguf_close(d->file);
    if (d->x)
        exec_destroy(d->x);
}

// Runs tokens[from..from + n) and fetches their logits.
static int run(struct side *d, const int32_t *tokens, int from, int n, struct err *e) {
    int64_t vocab = model_params_of(d->m)->vocab;
    forest_reset(&d->f);
    int32_t row = forest_chain(&d->f, 0, from, &tokens[from], 1, true);
    for (int i = 1; i < n; i++)
        row = forest_add(&d->f, row, tokens[from + i], true);
    int rc = model_forward(d->m, &d->f, &d->s, 1, e);
    for (int i = 0; !rc && i < n; i++)
        exec_ops(d->x)->download(d->x, d->logits + (from + i) * vocab, model_logits_at(d->m, i),
                                 (size_t)vocab * sizeof *d->logits);
    return rc ? rc : exec_status(d->x, e);
}

// A text of the model's own; leaves the logits of its rows.
static int write_text(struct side *d, uint64_t seed, int32_t *tokens, struct err *e) {
    int64_t vocab = model_params_of(d->m)->vocab;
    struct rng g = {rng_mix(seed)};
    int rc = 0;
    tokens[0] = (int32_t)rng_below(&g, (uint32_t)vocab);
    for (int i = 0; i < TOKENS && !rc; i++) {
        struct sample_row s = {
            .pos = i + 1, .seed = seed, .temperature = 1, .top_p = 1, .repeat = 1};
        rc = run(d, tokens, i, 1, e);
        if (!rc && i + 1 < TOKENS)
            exec_ops(d->x)->sample(d->x, model_logits(d->m, 0, 1), 1, vocab, &s, &tokens[i + 1]);
    }
    return rc;
}

static int read_text(struct side *d, const int32_t *tokens, struct err *e) {
    int rc = 0;
    for (int at = 0; at < TOKENS && !rc; at += CHUNK)
        rc = run(d, tokens, at, CHUNK, e);
    return rc;
}

struct distance {
    double kl, worst_kl; // mean and largest over rows, nats
    double max;          // largest difference of a logit
    int same;            // rows whose best token is the same
};

static double log_sum(const float *x, int64_t n, int64_t *best) {
    double sum = 0;
    *best = 0;
    for (int64_t i = 1; i < n; i++)
        *best = x[i] > x[*best] ? i : *best;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)x[i] - (double)x[*best]);
    return log(sum) + (double)x[*best];
}

// How far q is from p: KL(p || q) and the rest.
static struct distance measure(const float *p, const float *q, int64_t vocab) {
    struct distance d = {0};
    for (int64_t i = 0; i < TOKENS; i++, p += vocab, q += vocab) {
        int64_t best_p, best_q;
        double zp = log_sum(p, vocab, &best_p), zq = log_sum(q, vocab, &best_q), kl = 0;
        for (int64_t j = 0; j < vocab; j++) {
            double lp = (double)p[j] - zp, lq = (double)q[j] - zq;
            kl += exp(lp) * (lp - lq);
            d.max = fmax(d.max, fabs((double)p[j] - (double)q[j]));
            if (!isfinite(q[j]))
                d.max = INFINITY;
        }
        d.kl += kl / TOKENS;
        d.worst_kl = kl > d.worst_kl || isnan(kl) ? kl : d.worst_kl;
        d.same += best_p == best_q;
    }
    return d;
}

static void line(struct gpu_counts *n, bool ok, const char *level, const char *what,
                 const char *name, const struct distance *d) {
    char text[96];
    snprintf(text, sizeof text, "%.20s: %s", name, what);
    gpu_line(n, ok, level, "compare", text,
             "KL mean %.2e, most %.2e; logit %.2e at most; same best %d of %d", d->kl, d->worst_kl,
             d->max, d->same, TOKENS);
}

static int compare_sides(struct side *judge, struct side *cpu, struct side *device,
                         const char *level, const char *name, struct gpu_counts *n, struct err *e) {
    int32_t tokens[TOKENS];
    int64_t vocab = model_params_of(cpu->m)->vocab;
    int rc = write_text(cpu, 20261121, tokens, e);
    if (!rc)
        rc = read_text(judge, tokens, e);
    if (!rc)
        rc = read_text(device, tokens, e);
    if (rc)
        return rc;
    struct distance c = measure(judge->logits, cpu->logits, vocab);
    struct distance d = measure(judge->logits, device->logits, vocab);
    struct distance both = measure(cpu->logits, device->logits, vocab);
    line(n, isfinite(c.max), level, "CPU int8 / f32", name, &c);
    line(n, isfinite(d.max) && d.kl <= c.kl + 1e-6, level, "device / f32", name, &d);
    line(n, isfinite(both.max), level, "device / CPU int8", name, &both);
    return 0;
}

static void compare_file(const char *level, const char *path, const char *name,
                         struct gpu_counts *n) {
    struct side judge = {0}, cpu = {0}, device = {0};
    struct convert_options o = {.recipe = convert_recipe("F32")};
    struct err e = {0};
    char wide[64];
    snprintf(wide, sizeof wide, "/tmp/coppice-wide-%d.gguf", (int)getpid());
    int rc = convert_quantize(path, wide, &o, &e);
    if (!rc)
        rc = side_open(&judge, "auto", wide, &e);
    if (!rc)
        rc = side_open(&cpu, "auto", path, &e);
    if (!rc)
        rc = side_open(&device, level, path, &e);
    if (!rc)
        rc = compare_sides(&judge, &cpu, &device, level, name, n, &e);
    if (rc)
        gpu_line(n, false, level, "compare", name, "%s", e.text);
    side_close(&judge);
    side_close(&cpu);
    side_close(&device);
    unlink(wide);
}

static void compare_tiny(const char *level, uint32_t type, struct gpu_counts *n) {
    struct tiny_shape t = tiny_shape_default();
    struct err e = {0};
    char path[64], name[40];
    t.type = type;
    t.dim = t.ffn = 256;
    t.seed = 77 + type;
    snprintf(path, sizeof path, "/tmp/coppice-compare-%d.gguf", (int)getpid());
    snprintf(name, sizeof name, "random %s", quant_format(type)->name);
    if (tiny_target_write(&t, path, &e))
        gpu_line(n, false, level, "compare", name, "%s", e.text);
    else
        compare_file(level, path, name, n);
    unlink(path);
}

void suite_compare(const char *level, const struct gpu_options *o, struct gpu_counts *n) {
    static const uint32_t types[] = {TYPE_Q8_0, TYPE_Q4_K, TYPE_Q6_K};
    char bundled[400];
    const char *path = o->model;
    if (!path) {
        for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
            compare_tiny(level, types[i], n);
        snprintf(bundled, sizeof bundled, "%s/../models/coppice-tiny-q8_0.gguf", o->data);
        path = bundled;
    }
    const char *slash = strrchr(path, '/');
    if (access(path, R_OK) == 0)
        compare_file(level, path, slash ? slash + 1 : path, n);
    else
        gpu_line(n, false, level, "compare", path, "the file is not there");
}
