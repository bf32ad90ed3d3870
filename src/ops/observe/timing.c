// SPDX-License-Identifier: Apache-2.0
// The timed op table. Each op is the backend's own between two marks; what it moves is computed
// from its arguments. Marks are read in batches, so that a device is not kept waiting within a
// pass.
#include "ops/observe/timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/vec.h"
#include "ops/exec.h"
#include "ops/ops_list.h"

enum { MAX_OPEN = EXEC_MARKS / 2, NAME = 32 };

struct known_weight {
    const struct weight *w;
    char name[NAME]; // without block and suffix
    int64_t k, m, bytes;
    int64_t experts; // 1 of a plain matrix
};

struct timing {
    struct exec_attachment base; // first
    const struct ops *inner;
    struct ops table;
    const char *section;
    struct known_weight *weights;
    int n_weights, last;
    int64_t cap_weights;
    struct timing_row *rows;
    int n_rows;
    int64_t cap_rows;
    int open[MAX_OPEN]; // row of each op whose marks have not been read; -1: lost
    int n_open;
    double clock[EXEC_MARKS]; // marks of a backend without its own
};

static void destroy_timing(struct exec_attachment *a) {
    struct timing *t = (struct timing *)a;
    free(t->weights);
    free(t->rows);
    free(t);
}

// The exec's own, or NULL when it was not prepared.
static struct timing *timing_of(const struct exec *x) {
    return (struct timing *)exec_attached(x, destroy_timing);
}

static void set_mark(struct exec *x, int i) {
    if (x->mark)
        x->mark(x, i);
    else
        timing_of(x)->clock[i] = clock_ms();
}

static void read_marks(struct exec *x) {
    struct timing *t = timing_of(x);
    for (int i = 0; i < t->n_open; i++) {
        double ms =
            x->between ? x->between(x, 2 * i, 2 * i + 1) : t->clock[2 * i + 1] - t->clock[2 * i];
        if (t->open[i] >= 0)
            t->rows[t->open[i]].ms += ms;
    }
    t->n_open = 0;
}

static const struct known_weight *find_weight(struct timing *t, const struct weight *w) {
    static const struct known_weight none = {.name = "?"};
    for (int i = 0; i < t->n_weights; i++) { // passes use weights in the order of loading
        t->last = t->last + 1 < t->n_weights ? t->last + 1 : 0;
        if (t->weights[t->last].w == w)
            return &t->weights[t->last];
    }
    return &none;
}

// The row of an op; -1 when there is no memory for another one.
static int find_row(struct timing *t, const char *op, enum timing_kind kind) {
    for (int i = 0; i < t->n_rows; i++)
        if (!strcmp(t->rows[i].op, op) && !strcmp(t->rows[i].section, t->section))
            return i;
    if (vec_reserve(&t->rows, &t->cap_rows, t->n_rows + 1, sizeof *t->rows, NULL))
        return -1;
    struct timing_row *r = &t->rows[t->n_rows];
    *r = (struct timing_row){.section = t->section, .kind = kind};
    snprintf(r->op, sizeof r->op, "%s", op);
    return t->n_rows++;
}

static void begin_op(struct exec *x, const char *op, enum timing_kind kind, int64_t bytes) {
    struct timing *t = timing_of(x);
    if (t->n_open == MAX_OPEN)
        read_marks(x);
    int row = find_row(t, op, kind);
    if (row >= 0) {
        t->rows[row].calls++;
        t->rows[row].bytes += (double)bytes;
    }
    t->open[t->n_open] = row;
    set_mark(x, 2 * t->n_open);
}

static void end_op(struct exec *x) {
    struct timing *t = timing_of(x);
    set_mark(x, 2 * t->n_open + 1);
    t->n_open++;
}

// Takes back a begin: the op was not done.
static void cancel_op(struct exec *x, int64_t bytes) {
    struct timing *t = timing_of(x);
    struct timing_row *row = t->open[t->n_open] < 0 ? NULL : &t->rows[t->open[t->n_open]];
    if (row)
        row->calls--, row->bytes -= (double)bytes;
}

// Weights.

static void keep_name(struct known_weight *k, const char *name) {
    const char *dot = strncmp(name, "blk.", 4) ? NULL : strchr(name + 4, '.');
    const char *stem = dot ? dot + 1 : name, *tail = strstr(stem, ".weight");
    size_t n = tail ? (size_t)(tail - stem) : strlen(stem);
    snprintf(k->name, sizeof k->name, "%.*s", (int)(n < NAME ? n : NAME - 1), stem);
}

static int timed_weight_create(struct exec *x, const struct tensor *tensor, struct weight **out,
                               struct err *e) {
    struct timing *t = timing_of(x);
    int rc = vec_reserve(&t->weights, &t->cap_weights, t->n_weights + 1, sizeof *t->weights, e);
    if (!rc)
        rc = t->inner->weight_create(x, tensor, out, e);
    if (rc)
        return rc;
    struct known_weight *k = &t->weights[t->n_weights++];
    *k = (struct known_weight){.w = *out,
                               .k = tensor->ne[0],
                               .m = tensor->ne[1],
                               .bytes = exec_weight_bytes(x, tensor),
                               .experts = tensor->ne[2]};
    keep_name(k, tensor->name);
    return 0;
}

static void timed_weight_destroy(struct exec *x, struct weight *w) {
    struct timing *t = timing_of(x);
    for (int i = 0; i < t->n_weights; i++) {
        if (t->weights[i].w == w) {
            t->weights[i] = t->weights[--t->n_weights];
            break;
        }
    }
    t->last = 0;
    t->inner->weight_destroy(x, w);
}

static enum timing_kind kind_of_weight(const char *weight) {
    static const struct {
        const char *name;
        enum timing_kind kind;
    } kinds[] = {{"attn_qkv", TIMING_RECURRENT}, {"attn_gate", TIMING_RECURRENT},
                 {"ssm_", TIMING_RECURRENT},     {"attn_", TIMING_ATTENTION},
                 {"ffn_", TIMING_FEED_FORWARD},  {"output", TIMING_HEAD},
                 {"token_embd", TIMING_HEAD}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strncmp(weight, kinds[i].name, strlen(kinds[i].name)))
            return kinds[i].kind;
    return TIMING_OTHER;
}

// Ops: what a call of each moves at least. Each is counted from what it needs of its parameters.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

static void count_gather_rows(struct exec *x, const struct weight *w, const int32_t *ids, int64_t n,
                              float *out) {
    const struct known_weight *k = find_weight(timing_of(x), w);
    begin_op(x, "gather_rows", TIMING_HEAD, n * (k->bytes / (k->m ? k->m : 1) + 4 * k->k));
}

static void count_to_act(struct exec *x, const float *in, int64_t n, int64_t k, struct act *out) {
    begin_op(x, "to_act", TIMING_OTHER, 4 * n * k + exec_act_bytes(x, n, k));
}

static void count_norm(struct exec *x, const struct norm_args *a) {
    const int64_t act = a->act ? exec_act_bytes(x, a->n, a->k) : 0;
    begin_op(x, "norm", TIMING_OTHER, a->n * a->k * (a->add ? 12 : a->conv ? 16 : 8) + act);
}

static void count_scale(struct exec *x, const struct scale_args *a) {
    begin_op(x, "scale", TIMING_OTHER, a->n * 8);
}

static void count_activate(struct exec *x, const struct activate_args *a) {
    begin_op(x, "activate", TIMING_FEED_FORWARD, 8 * a->n * a->k + exec_act_bytes(x, a->n, a->k));
}

static void count_block_conv(struct exec *x, const struct block_conv_args *a) {
    const int64_t values = a->n * a->dim, out = (a->add ? 8 : 4) * values;
    begin_op(x, "block_conv", TIMING_OTHER,
             4 * values + (a->act ? exec_act_bytes(x, a->n, a->dim) : out));
}

static void count_norm_to_act(struct exec *x, const float *in, const float *w, float eps, int64_t n,
                              int64_t k, struct act *out) {
    begin_op(x, "norm_to_act", TIMING_OTHER, 4 * n * k + exec_act_bytes(x, n, k));
}

static void count_linear(struct exec *x, const struct linear_job *jobs, int n_jobs,
                         const struct act *in, int64_t n) {
    char op[sizeof((struct timing_row *)0)->op];
    int64_t bytes = 0;
    enum timing_kind kind = TIMING_OTHER;
    size_t at = (size_t)snprintf(op, sizeof op, "linear");
    for (int i = 0; i < n_jobs; i++) {
        const struct known_weight *k = find_weight(timing_of(x), jobs[i].w);
        bytes += k->bytes + 4 * n * k->m * (jobs[i].add ? 2 : 1);
        if (i == 0) {
            bytes += exec_act_bytes(x, n, k->k);
            kind = kind_of_weight(k->name);
        }
        if (at < sizeof op)
            at += (size_t)snprintf(op + at, sizeof op - at, " %s", k->name);
    }
    begin_op(x, op, kind, bytes);
}

static void count_linear_gate_up(struct exec *x, const struct gate_up *w, const struct act *in,
                                 int64_t n, struct act *out) {
    const struct known_weight *g = find_weight(timing_of(x), w->gate),
                              *u = find_weight(timing_of(x), w->up);
    begin_op(x, "linear_gate_up", TIMING_FEED_FORWARD,
             g->bytes + u->bytes + exec_act_bytes(x, n, g->k) + exec_act_bytes(x, n, g->m));
}

static void count_moe_route(struct exec *x, const struct moe_route_args *a) {
    begin_op(x, "moe_route", TIMING_FEED_FORWARD, a->n * (4 * (int64_t)a->experts + 8 * a->used));
}

// What a list reads of a weight at most: which experts rows share is known to the device alone.
static int64_t expert_bytes(const struct known_weight *k, const struct moe_list *l) {
    int64_t entries = l->n * l->used;
    return k->experts ? k->bytes / k->experts * (entries < k->experts ? entries : k->experts) : 0;
}

static void count_moe_gate_up(struct exec *x, const struct gate_up *w, const struct moe_list *l,
                              const struct act *in, struct act *out) {
    const struct known_weight *g = find_weight(timing_of(x), w->gate),
                              *u = find_weight(timing_of(x), w->up);
    begin_op(x, "moe_gate_up", TIMING_FEED_FORWARD,
             expert_bytes(g, l) + expert_bytes(u, l) + exec_act_bytes(x, l->n, g->k) +
                 exec_act_bytes(x, l->n * l->used, g->m));
}

static void count_moe_linear(struct exec *x, const struct moe_linear_args *a) {
    const struct known_weight *w = find_weight(timing_of(x), a->w);
    int64_t entries = a->list.n * a->list.used;
    begin_op(x, "moe_linear", TIMING_FEED_FORWARD,
             expert_bytes(w, &a->list) + 4 * entries * w->m +
                 exec_act_bytes(x, a->entries ? entries : a->list.n, w->k));
}

static void count_moe_combine(struct exec *x, const struct moe_combine_args *a) {
    begin_op(x, "moe_combine", TIMING_FEED_FORWARD,
             4 * a->n * a->m * (a->used + 1 + (a->add ? 1 : 0)));
}

static int64_t known_bytes(struct exec *x, const struct weight *w) {
    return w ? find_weight(timing_of(x), w)->bytes : 0;
}

static bool timed_moe_layer(struct exec *x, const struct moe_layer_args *a) {
    const struct moe_list *l = &a->down.list;
    struct timing *t = timing_of(x);
    int64_t bytes = known_bytes(x, a->in[0].w) + (a->n_in > 1 ? known_bytes(x, a->in[1].w) : 0) +
                    expert_bytes(find_weight(t, a->both.gate), l) +
                    expert_bytes(find_weight(t, a->both.up), l) +
                    expert_bytes(find_weight(t, a->down.w), l) + 8 * l->n * a->sum.m;
    if (a->shared)
        bytes += known_bytes(x, a->shared->both.gate) + known_bytes(x, a->shared->both.up) +
                 known_bytes(x, a->shared->down.w);
    begin_op(x, "moe_layer", TIMING_FEED_FORWARD, bytes);
    const bool done = t->inner->moe_layer(x, a);
    done ? end_op(x) : cancel_op(x, bytes);
    return done;
}

static void count_linear_heads(struct exec *x, const struct heads_args *a) {
    const struct known_weight *w = find_weight(timing_of(x), a->w);
    begin_op(x, "linear_heads", TIMING_ATTENTION,
             w->bytes + 4 * a->n * a->heads * (w->k + w->m + 2 * a->tail));
}

static void count_qk_norm_rope_store(struct exec *x, const struct qk_args *a,
                                     const struct rows *r) {
    int64_t q = a->q ? 2 * (int64_t)a->n_heads * a->dk : 0, kv = a->n_kv * (a->dk + a->dv);
    int64_t stored = a->n_kv * kv_layout_row(a->layout);
    begin_op(x, "qk_norm_rope_store", TIMING_ATTENTION, r->n * (4 * (q + kv) + stored));
}

// Whether row i is the first of its sequence; rows of a sequence lie together.
static bool first_of_sequence(const struct rows *r, int64_t i) {
    return i == 0 || r->seq[i] != r->seq[i - 1];
}

static void count_attend(struct exec *x, const struct attend_args *a, const struct rows *r) {
    int64_t key = a->shape.n_kv * kv_layout_row(a->layout), width = a->shape.n_heads;
    int64_t keys = r->n, n = r->n - a->first;
    for (int64_t i = a->first; i < r->n; i++) {
        bool first = i == a->first || first_of_sequence(r, i);
        int64_t len = first ? a->seqs[r->seq[i]].len : 0;
        keys += a->shape.window && len > a->shape.window ? a->shape.window : len;
    }
    width *= a->shape.dv;
    begin_op(x, "attend", TIMING_ATTENTION,
             keys * key + n * width * (a->gate ? 8 : 4) + exec_act_bytes(x, n, width));
}

// Keys and values of the chunk's own blocks once; which others are read is known to the device
// alone.
static void count_sparse_means(struct exec *x, const struct sparse_args *a) {
    int64_t kv = (int64_t)a->n_kv * a->d;
    begin_op(x, "sparse_means", TIMING_ATTENTION,
             a->n * a->n_kv * kv_codec_bytes(a->k.codec, a->d) + 4 * a->n / SPARSE_BLOCK * kv);
}

static void count_sparse_select(struct exec *x, const struct sparse_args *a) {
    int64_t blocks = sparse_blocks(a->first + a->n);
    int64_t lists = sparse_query_blocks(a->first, a->n) * a->n_heads * blocks;
    begin_op(x, "sparse_select", TIMING_ATTENTION,
             4 * a->n * a->n_heads * a->d + 4 * blocks * a->n_kv * a->d + 8 * lists);
}

static void count_sparse_attend(struct exec *x, const struct sparse_args *a) {
    int64_t width = (int64_t)a->n_heads * a->d;
    int64_t row = kv_codec_bytes(a->k.codec, a->d) + kv_codec_bytes(a->v.codec, a->d);
    begin_op(x, "sparse_attend", TIMING_ATTENTION,
             4 * a->n * width + a->n * a->n_kv * row + exec_act_bytes(x, a->n, width));
}

static void count_key_mass(struct exec *x, const struct key_mass_args *a) {
    begin_op(x, "key_mass", TIMING_ATTENTION, 4 * a->n * (a->n_kv * a->d + 4 * a->n_q));
}

static void count_key_bounds(struct exec *x, const struct key_bounds_args *a) {
    const struct kv_shape *s = &a->layout->s;
    begin_op(x, "key_bounds", TIMING_ATTENTION,
             a->n * s->n_heads * (KV_PAGE * kv_codec_bytes(s->codec_k, s->dk) + 8 * s->dk));
}

static void count_page_scores(struct exec *x, const struct page_scores_args *a) {
    begin_op(x, "page_scores", TIMING_ATTENTION, 4 * a->n * (2 * a->n_kv * a->dk + a->n_heads));
}

static void count_gdn_gates_conv(struct exec *x, const struct gdn_conv_args *a,
                                 const struct rows *r) {
    const struct gdn_shape *s = &a->shape;
    begin_op(x, "gdn_gates_conv", TIMING_RECURRENT, 8 * r->n * (s->channels + 2 * s->n_v));
}

static int64_t gdn_state_bytes(const struct gdn_shape *s) {
    return 4 * (int64_t)s->n_v * s->dk * s->dv;
}

// One row of the recurrent log.
static int64_t gdn_log_bytes(const struct gdn_shape *s) {
    return 4 * ((int64_t)s->n_k * s->dk + (int64_t)s->n_v * (s->dv + 1));
}

// The state of each base that a run's rows start from (docs/state.md), its log after the lowest of
// them, and the rows.
static int64_t gdn_run_bytes(const struct gdn_args *a, const struct gdn_run *run,
                             const struct rows *r) {
    const struct gdn_shape *s = &a->shape;
    int64_t bytes = run->count * (2 * gdn_log_bytes(s) + 8 * (int64_t)s->n_v * s->dv);
    int64_t stop = run->first + run->count, first = r->pos[run->first] / GDN_BLOCK;
    bytes += (a->len[run->seq] - (first > 0 ? first - 1 : 0) * GDN_BLOCK) * gdn_log_bytes(s);
    for (int64_t i = run->first; i < stop; i++) {
        int64_t block = r->pos[i] / GDN_BLOCK;
        bool seen = false;
        for (int64_t j = run->first; j < i && !seen; j++)
            seen = r->pos[j] / GDN_BLOCK == block || (block < 2 && r->pos[j] / GDN_BLOCK < 2);
        bytes += seen ? 0 : gdn_state_bytes(s);
    }
    return bytes;
}

static void count_gdn(struct exec *x, const struct gdn_args *a, const struct rows *r) {
    int64_t bytes = 0;
    for (int i = 0; i < a->n_runs; i++)
        bytes += gdn_run_bytes(a, &a->runs[i], r);
    begin_op(x, "gdn", TIMING_RECURRENT, bytes);
}

static void count_gdn_commit(struct exec *x, const struct gdn_commit_args *a) {
    const struct gdn_shape *s = &a->shape;
    int64_t layer = 0;
    for (int i = 0; i < a->n_seqs; i++) {
        const struct gdn_commit_seq *q = &a->seqs[i];
        int64_t folds = (q->len + q->count) / GDN_BLOCK - q->len / GDN_BLOCK;
        layer += 2 * q->count * gdn_log_bytes(s) + 24 * (int64_t)s->channels +
                 folds * (2 * gdn_state_bytes(s) + GDN_BLOCK * gdn_log_bytes(s));
    }
    begin_op(x, "gdn_commit", TIMING_RECURRENT, a->n_layers * layer);
}

static bool timed_gdn_blocks(struct exec *x, const struct gdn_args *a,
                             const struct gdn_state *state, int64_t len) {
    const struct gdn_shape *s = &a->shape;
    begin_op(x, "gdn_blocks", TIMING_RECURRENT,
             4 * gdn_state_bytes(s) +
                 a->runs[0].count * (gdn_log_bytes(s) + 8 * (int64_t)s->n_v * s->dv));
    bool done = timing_of(x)->inner->gdn_blocks(x, a, state, len);
    end_op(x);
    return done;
}

static void count_gated_norm_to_act(struct exec *x, const struct gated_norm_args *a) {
    int64_t width = (int64_t)a->heads * a->dv;
    begin_op(x, "gated_norm_to_act", TIMING_RECURRENT,
             8 * a->n * width + exec_act_bytes(x, a->n, width));
}

static void count_copy_rows(struct exec *x, void *dst, size_t dst_stride, const void *src,
                            const int32_t *index, int64_t n, size_t row_bytes) {
    begin_op(x, "copy_rows", TIMING_OTHER, 2 * n * (int64_t)row_bytes);
}

static void count_kv_copy(struct exec *x, const struct kv_layout *l, const struct kv_slot *dst,
                          const struct kv_slot *src, int64_t n) {
    begin_op(x, "kv_copy", TIMING_ATTENTION, 2 * n * l->page_bytes / KV_PAGE);
}

static void count_head_topk(struct exec *x, const struct topk_args *a) {
    begin_op(x, "head_topk", TIMING_HEAD, 4 * a->n * a->vocab);
}

static void count_sample(struct exec *x, const float *logits, int64_t n, int64_t vocab,
                         const struct sample_row *rows, int32_t *choice) {
    (void)exec_take_overlapped(x); // whose ops would count as the sample's
    begin_op(x, "sample", TIMING_HEAD, 4 * n * vocab);
}
#pragma GCC diagnostic pop

#define X(result, name, parameters, arguments)                                                     \
    static result timed_##name parameters {                                                        \
        count_##name arguments;                                                                    \
        timing_of(x)->inner->name arguments;                                                       \
        end_op(x);                                                                                 \
    }
OPS_COMPUTING(X)
#undef X

// The table: ops that are neither here nor waits stay the backend's own.
static void fill_table(struct ops *o, const struct ops *inner, bool on) {
    *o = *inner;
    o->weight_create = timed_weight_create;
    o->weight_destroy = timed_weight_destroy;
    if (!on)
        return;
#define X(result, name, parameters, arguments)                                                     \
    if (inner->name)                                                                               \
        o->name = timed_##name;
    OPS_COMPUTING(X)
    OPS_TRIED(X)
#undef X
}

int timing_prepare(struct exec *x, struct err *e) {
    if (timing_of(x))
        return 0;
    struct timing *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ERR_MEMORY, "no memory to time ops");
    t->inner = x->ops;
    t->section = "";
    fill_table(&t->table, t->inner, false);
    t->base.destroy = destroy_timing;
    exec_attach(x, &t->base);
    x->ops = &t->table;
    return 0;
}

void timing_switch(struct exec *x, bool on) {
    if (timing_of(x))
        fill_table(&timing_of(x)->table, timing_of(x)->inner, on);
}

void timing_section(struct exec *x, const char *name) {
    if (timing_of(x))
        timing_of(x)->section = name;
}

const struct timing_row *timing_rows(struct exec *x, int *n) {
    *n = 0;
    if (!timing_of(x))
        return NULL;
    read_marks(x);
    *n = timing_of(x)->n_rows;
    return timing_of(x)->rows;
}

void timing_clear(struct exec *x) {
    if (!timing_of(x))
        return;
    read_marks(x);
    timing_of(x)->n_rows = 0;
}

const char *timing_kind_name(enum timing_kind k) {
    static const char *const names[TIMING_KINDS] = {"attention", "recurrent", "feed-forward",
                                                    "head", "other"};
    return names[k];
}

double timing_copy_rate(struct exec *x) {
    enum { ROUNDS = 9 };
    double best = 0;
    const struct ops *ops = exec_ops(x);
    int64_t bytes = exec_is_device(x) ? (int64_t)1 << 30 : (int64_t)1 << 28;
    void *a = ops->alloc(x, (size_t)bytes), *b = a ? ops->alloc(x, (size_t)bytes) : NULL;
    for (int i = 0; b && i < ROUNDS; i++) {
        // The other buffer each time, so that nothing is left in a cache. The first round warms up.
        double start = clock_ms();
        exec_status(x, NULL);
        if (x->mark)
            x->mark(x, 0);
        else
            start = clock_ms();
        ops->copy(x, i % 2 ? a : b, i % 2 ? b : a, (size_t)bytes);
        if (x->mark)
            x->mark(x, 1);
        double ms = x->between ? x->between(x, 0, 1) : clock_ms() - start;
        if (i > 0 && ms > 0 && 2 * (double)bytes / ms > best)
            best = 2 * (double)bytes / ms;
    }
    ops->free(x, a);
    ops->free(x, b);
    return best;
}
