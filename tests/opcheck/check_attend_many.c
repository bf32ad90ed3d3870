// SPDX-License-Identifier: Apache-2.0
// Attention of many sequences of very different lengths in one call: rows must have the bits that
// each sequence gets alone, and times against the bytes that must be read. Keys and values are
// random rows in a pool that repeats itself; each sequence has pages of its own, so that nothing
// comes from a cache.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "opcheck/families.h"
#include "support/device.h"

enum { MOST = 64, POOL = 8 };

// Sequences of these lengths, with rows in flight after them; layers take turns in timings.
struct many {
    struct check *c;
    struct attend_shape shape;
    struct kv_layout layout;
    int n, layers;
    int64_t len[MOST], n_pages;
    int rows[MOST];
    struct kv_view view[MOST];
    struct forest f;
    struct kv_slot slot[1024];
    struct buffers buffers;
    unsigned char **pages; // device, of all sequences
    float *query, *q;      // host, device [rows][n_heads][dk], then gates
};

// Heads of queries and of keys and values, and their lengths. Where keys are longer, values are a
// part of them, and nothing is gated.
struct heads {
    int q, kv, dk, dv;
};

static bool is_latent(const struct many *m) {
    return m->shape.dk > m->shape.dv;
}

static void many_plan(struct many *m, struct check *c, const struct heads *h) {
    memset(m, 0, sizeof *m);
    m->c = c;
    m->shape = (struct attend_shape){.n_heads = h->q,
                                     .n_kv = h->kv,
                                     .dk = h->dk,
                                     .dv = h->dv,
                                     .scale = 1 / sqrtf((float)h->dk),
                                     .mask = ATTEND_PATH};
    m->layers = 1;
    forest_clear(&m->f);
}

// Adds a sequence with a tree of that many rows.
static void add_sequence(struct many *m, int64_t len, int rows) {
    m->len[m->n] = len;
    m->rows[m->n] = rows;
    m->n_pages += ceil_div(len + rows, KV_PAGE);
    forest_grow(&m->f, &m->c->rng, rows > 1 ? TREE : CHAIN, m->n++, len, rows);
}

// Pages whose rows are drawn, as one layer has them.
static unsigned char *new_pool(struct many *m) {
    const struct kv_layout *l = &m->layout;
    unsigned char *pool = calloc((size_t)POOL, (size_t)l->page_bytes);
    float x[OPS_KEY_MAX];
    if (!pool)
        abort();
    for (int64_t i = 0; i < (int64_t)POOL * l->s.n_layers * l->s.n_heads * KV_PAGE * 2; i++) {
        int64_t at = i / 2, head = at / KV_PAGE % l->s.n_heads,
                layer = at / KV_PAGE / l->s.n_heads % l->s.n_layers;
        int64_t page = at / KV_PAGE / l->s.n_heads / l->s.n_layers;
        if (i % 2 && l->s.v_in_k)
            continue;
        struct kv_row to = kv_row_at(l, i % 2 ? &l->v : &l->k, pool + page * l->page_bytes,
                                     (int)layer, (int)head, (int)(at % KV_PAGE));
        fill_random(&m->c->rng, x, l->s.dk, i % 2 ? 1 : 2);
        kv_codec_of(l->s.codec_k)->encode(x, to.codes, to.scales, l->s.dk);
    }
    return pool;
}

static void place_rows(struct many *m) {
    int64_t page = 0;
    for (int64_t i = 0, s = 0, row = 0; s < m->n; s++, row = 0) {
        m->view[s] = (struct kv_view){m->pages + page, m->len[s]};
        for (; row < m->rows[s]; row++, i++) {
            int64_t at = m->len[s] + row;
            m->slot[i] = (struct kv_slot){m->pages[page + at / KV_PAGE], (int32_t)(at % KV_PAGE)};
        }
        page += ceil_div(m->len[s] + m->rows[s], KV_PAGE);
    }
}

static void many_open(struct many *m) {
    const struct attend_shape *s = &m->shape;
    m->layout = kv_layout_for(
        (struct kv_shape){m->layers, s->n_kv, s->dk, s->dv, is_latent(m), KV_F16, KV_F16});
    int64_t each = m->layout.page_bytes, q = m->f.rows.n * s->n_heads * s->dk * 2;
    unsigned char *pool = new_pool(m);
    buffers_open(&m->buffers, m->c, m->c->exec);
    unsigned char *device = buffers_own(&m->buffers, NULL, (size_t)(m->n_pages * each));
    m->pages = malloc((size_t)m->n_pages * sizeof *m->pages);
    if (!m->pages)
        abort();
    for (int64_t p = 0; p < m->n_pages; p++) {
        m->pages[p] = device + p * each;
        buffers_put(&m->buffers, m->pages[p], pool + p % POOL * each, (size_t)each);
    }
    free(pool);
    place_rows(m);
    m->query = random_floats(&m->c->rng, q, 2);
    m->q = buffers_own(&m->buffers, m->query, (size_t)q * sizeof(float));
}

static void many_close(struct many *m) {
    buffers_close(&m->buffers);
    free(m->pages);
    free(m->query);
}

static struct act *new_act(const struct many *m, int64_t n) {
    struct act *act;
    struct err e;
    if (exec_ops(m->c->exec)
            ->act_create(m->c->exec, n, (int64_t)m->shape.n_heads * m->shape.dv, &act, &e))
        abort();
    return act;
}

// Rows from `first` on of r, whose sequences begin at `seq`.
static void call_attend(struct many *m, const struct rows *r, int64_t first, int seq, int layer,
                        struct act *act) {
    const struct attend_shape *s = &m->shape;
    int64_t width = (int64_t)s->n_heads * s->dk;
    struct attend_args a = {.shape = *s,
                            .q = m->q + first * width,
                            .gate = is_latent(m) ? NULL : m->q + (m->f.rows.n + first) * width,
                            .gate_stride = s->dk,
                            .layout = &m->layout,
                            .layer = layer,
                            .seqs = m->view + seq,
                            .store = m->slot + first,
                            .out = act};
    exec_ops(m->c->exec)->attend(m->c->exec, &a, r);
}

static void attend_rows(struct many *m, const struct rows *r, int64_t first, int seq, float *out) {
    int64_t k = (int64_t)m->shape.n_heads * m->shape.dv;
    struct act *act = new_act(m, r->n);
    call_attend(m, r, first, seq, 0, act);
    if (m->c->device)
        device_read_wide(m->c->exec, act, r->n, k, out);
    else
        read_act(m->c->exec, act, r->n, k, out);
    exec_ops(m->c->exec)->act_destroy(m->c->exec, act);
}

// Values that differ when each sequence is attended alone.
static int64_t differences(struct many *m) {
    int64_t k = (int64_t)m->shape.n_heads * m->shape.dv, n = m->f.rows.n, first = 0, differ = 0;
    float *all = malloc((size_t)(n * k) * sizeof *all), *alone = malloc((size_t)(n * k) * 4);
    struct forest *f = malloc(sizeof *f);
    if (!all || !alone || !f)
        abort();
    attend_rows(m, &m->f.rows, 0, 0, all);
    for (int s = 0; s < m->n; first += m->rows[s++]) {
        forest_clear(f);
        f->rows.n = m->rows[s];
        for (int i = 0; i < m->rows[s]; i++) {
            int32_t parent = m->f.parent[first + i];
            f->parent[i] = parent < 0 ? -1 : parent - (int32_t)first;
            f->pos[i] = m->f.pos[first + i];
            f->token[i] = f->seq[i] = 0;
        }
        attend_rows(m, &f->rows, first, s, alone + first * k);
    }
    differ = bit_differences(all, alone, n * k);
    free(all);
    free(alone);
    free(f);
    return differ;
}

void check_attend_many_rule(struct check *c) {
    static const struct heads heads[] = {
        {24, 4, 256, 256}, {32, 8, 128, 128}, {6, 2, 64, 64}, {20, 1, 576, 512}};
    enum { HEADS = sizeof heads / sizeof *heads };
    if (!CHECK_HAS(c, attend))
        return;
    for (int i = 0; i < (c->brief ? 1 : HEADS); i++) {
        struct many *m = malloc(sizeof *m);
        bool small = c->brief || !c->device;
        char text[80];
        many_plan(m, c, &heads[i]);
        for (int s = 0, n = small ? 6 : (int)between(&c->rng, 20, MOST); s < n; s++) {
            int64_t len = s % 7 == 3 ? between(&c->rng, 500, small ? 900 : 9000)
                                     : between(&c->rng, 0, small ? 200 : 1000);
            add_sequence(m, len, i == 1 ? 1 : (int)between(&c->rng, 1, 9));
        }
        many_open(m);
        snprintf(text, sizeof text, "%d/%dx%d, %d sequences, %d rows", heads[i].q, heads[i].kv,
                 heads[i].dk, m->n, (int)m->f.rows.n);
        int64_t differ = differences(m);
        report(c, differ == 0, "attend: many", text, "%lld values differ from one by one",
               (long long)differ);
        many_close(m);
        free(m);
    }
}

struct timed {
    struct many *m;
    struct act *act;
};

static void attend_turn(void *arg, int turn) {
    struct timed *t = arg;
    call_attend(t->m, &t->m->f.rows, 0, 0, turn % t->m->layers, t->act);
}

// Bytes of keys and values that must be read, and of rows read and written.
static double floor_bytes(const struct many *m) {
    const struct attend_shape *s = &m->shape;
    int64_t keys = m->f.rows.n;
    for (int i = 0; i < m->n; i++)
        keys += m->len[i];
    return (double)(keys * s->n_kv * kv_layout_row(&m->layout)) +
           (double)m->f.rows.n * s->n_heads * (8 * s->dk + 2 * s->dv);
}

// `longs` sequences of `max` tokens and the others of 200 to 2,000, evenly spread, that many rows
// each.
static void time_mix(struct check *c, const struct heads *h, int longs, int64_t max, int n,
                     int rows) {
    struct many *m = malloc(sizeof *m);
    struct timed t = {.m = m};
    char text[80];
    many_plan(m, c, h);
    for (int s = 0; s < n; s++) {
        bool far = longs && s % (n / longs) == n / longs / 2;
        add_sequence(m, far ? max : 200 + 1800 * (int64_t)(s * 29 % n) / n, rows);
    }
    int64_t bytes = m->n_pages * KV_PAGE * h->kv * h->dk * 4; // of a layer; turn over 200 MB
    m->layers = bytes > 200000000 ? 1 : (int)(200000000 / bytes + 1);
    many_open(m);
    m->f.rows.pass = exec_pass(c->exec); // planned once, as in a pass of a model
    t.act = new_act(m, m->f.rows.n);
    snprintf(text, sizeof text, "%d/%dx%d, %dx%lld of %d, %d rows", h->q, h->kv, h->dk, longs,
             (long long)max, n, rows);
    report_time(c, "attend: many", text, time_call(c, attend_turn, &t), floor_bytes(m));
    exec_ops(c->exec)->act_destroy(c->exec, t.act);
    many_close(m);
    free(m);
}

void check_attend_many_time(struct check *c) {
    static const struct heads target = {24, 4, 256, 256}, llama = {32, 8, 128, 128},
                              latents = {16, 1, 576, 512};
    if (!c->device || !CHECK_HAS(c, attend))
        return;
    time_mix(c, &target, 0, 0, 64, 1);
    time_mix(c, &target, 8, 16384, 64, 1);
    time_mix(c, &target, 1, 65536, 64, 1);
    time_mix(c, &target, 8, 4096, 64, 1);
    time_mix(c, &target, 0, 0, 16, 8);
    time_mix(c, &target, 2, 16384, 16, 8);
    time_mix(c, &target, 8, 16384, 64, 8);
    time_mix(c, &target, 1, 65536, 16, 8);
    time_mix(c, &llama, 8, 16384, 64, 1);
    time_mix(c, &llama, 2, 16384, 16, 8);
    time_mix(c, &latents, 8, 16384, 64, 1);
    time_mix(c, &latents, 2, 16384, 16, 8);
}
