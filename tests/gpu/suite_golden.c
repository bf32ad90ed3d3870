// SPDX-License-Identifier: Apache-2.0
// The golden targets and drafts (tests/golden/data, answers of an independent transcription) on a
// device: F32 weights and F32 K/V (F16 for latents as wide as published ones). The bound on the
// error is that of activations with 11 bits. That prompts, single tokens, ragged pieces and
// verified trees give the same bits is checked on the way.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "formats/quant/quant.h"
#include "golden/golden.h"
#include "gpu/suites.h"
#include "gpu/watch.h"
#include "models/draft/dflash/dflash.h"
#include "models/draft/draft.h"
#include "models/draft/eagle3/eagle3.h"
#include "models/draft/mtp/mtp.h"
#include "support/device.h"

// Relative error of a row: activations keep 11 bits, and some forty products lie one after the
// other in eight layers.
static const double DEVICE_GOLDEN = 5e-3;
// More where a norm after a block makes much of small sums. The CPU, with activations rounded to
// 11 bits, gives as much of the first two: 1.1e-2, 4.7e-3, and 2e-3 at most of others without such
// norms. Tokens of mixtures are such that no two
// experts are near (oracle.py, steady_ids): with others, a router chose another one now and then,
// and five rows of ds3 were further off, on a CPU with activations rounded at random, too.
// Keys and values are F32 unless that would leave out kernels.
static const struct room {
    const char *name;
    double bound;
    int others;
    enum kv_codec_id codec;
} rooms[] = {{"g4_own", 1.5e-2, 0, KV_F32},
             {"g4_dense", 6e-3, 0, KV_F32},
             {"g4_moe", 6e-3, 0, KV_F32},
             {"ds3_wide", DEVICE_GOLDEN, 0, KV_F16}};

static struct room room_of(const char *name) {
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        if (!strcmp(name, rooms[i].name))
            return rooms[i];
    return (struct room){name, DEVICE_GOLDEN, 0, KV_F32};
}

struct bench {
    struct golden g;
    struct golden_files files;
    struct exec *x;
    struct gguf *file;
    struct model *m;
    struct draft *draft; // a DFlash draft
    struct mtp *mtp;
    struct eagle3 *eagle3;
    struct path *path; // of either
    struct forest f;
    float *first, *rows; // [n_ids][vocab]
    struct exec *cpu;    // NULL, or the experts of the first half of the layers are its
    double worst;        // of rows within the bound, or of all where too many are not
    struct room room;
    int64_t beyond; // rows that are not, the same in all ways
    int64_t differ; // rows that have other bits than in the first pass
};

// The experts of half of the layers for the CPU, where there are some.
static int take_cpu(struct bench *b, struct model_options *o, struct err *e) {
    struct model_plan p;
    int rc = model_plan(&p, NULL, b->x, b->file, o, e);
    if (!rc)
        rc = exec_create_cpu(&b->cpu, "auto", 0, e);
    o->cpu = b->cpu;
    o->cpu_experts = (p.expert_layers + 1) / 2;
    return rc;
}

// The fewest slots, where the model has experts.
static int take_slots(struct bench *b, struct model_options *o, struct err *e) {
    struct model_plan p;
    int rc = model_plan(&p, NULL, b->x, b->file, o, e);
    if (!rc && p.experts.n)
        rc = expert_classes_share(&p.experts, expert_classes_min(&p.experts), e);
    if (!rc)
        o->experts = p.experts;
    return rc;
}

// Where experts are.
enum places { ALL_RESIDENT, FEWEST_RESIDENT, CPU_AND_FEWEST };

static int bench_open(struct bench *b, enum places places, const char *level, const char *data,
                      const char *name, struct err *e) {
    struct model_options o = model_options_default();
    o.codec_k = o.codec_v = b->room.codec;
    o.max_ctx = o.max_rows = o.max_verify = 256;
    int rc = golden_load(&b->g, data, name, e);
    if (!rc)
        rc = golden_files_make(&b->files, &b->g, e);
    if (!rc)
        rc = device_open(&b->x, level, 0, e);
    if (!rc)
        rc = gguf_open(&b->file, b->files.gguf, e);
    if (!rc && places == CPU_AND_FEWEST)
        rc = take_cpu(b, &o, e);
    if (!rc && places != ALL_RESIDENT)
        rc = take_slots(b, &o, e);
    if (!rc)
        rc = model_load(&b->m, b->x, b->file, &o, e);
    if (!rc)
        rc = forest_init(&b->f, 256, e);
    if (!rc && b->g.has_draft) {
        struct dflash_options d = dflash_options_default();
        d.codec_k = d.codec_v = KV_F32;
        rc = draft_open(&b->draft, b->m,
                        &(struct draft_source){.path = b->files.draft_gguf, .dflash = &d}, e);
    }
    if (!rc && b->g.has_mtp) {
        struct mtp_options p = mtp_options_default();
        p.codec_k = p.codec_v = KV_F32;
        rc = mtp_load(&b->mtp, b->m, DRAFT_OF_TARGET, &p, false, e);
        b->path = rc ? NULL : mtp_path(b->mtp);
    }
    if (!rc && b->g.has_eagle3) {
        struct eagle3_options p = eagle3_options_default();
        p.codec_k = p.codec_v = KV_F32;
        rc = eagle3_load(&b->eagle3, b->m, b->files.draft_gguf, &p, false, e);
        b->path = rc ? NULL : eagle3_path(b->eagle3);
    }
    size_t values = (size_t)b->g.n_ids * (size_t)b->g.target.vocab;
    b->first = calloc(values + 1, sizeof *b->first);
    b->rows = calloc(values + 1, sizeof *b->rows);
    if (!rc && (!b->first || !b->rows))
        rc = err_set(e, ERR_MEMORY, "no memory for the rows of %s", name);
    return rc;
}

static void bench_close(struct bench *b) {
    free(b->first);
    free(b->rows);
    forest_fini(&b->f);
    draft_destroy(b->draft);
    mtp_destroy(b->mtp);
    eagle3_destroy(b->eagle3);
    model_destroy(b->m);
    if (b->file)
        gguf_close(b->file);
    exec_destroy(b->cpu);
    if (b->x)
        exec_destroy(b->x);
    golden_files_fini(&b->files);
    golden_fini(&b->g);
}

static void fetch(struct bench *b, float *to, const float *logits, int64_t n) {
    size_t bytes = (size_t)(n * b->g.columns) * sizeof *to;
    exec_ops(b->x)->download(b->x, to, logits, bytes);
}

// ids[from..to) as one prompt pass; rows: NULL, or where the logits of all positions are kept.
static int prompt(struct bench *b, struct sequence *s, int from, int to, float *rows,
                  struct err *e) {
    forest_reset(&b->f);
    int32_t row = forest_chain(&b->f, 0, from, &b->g.ids[from], 1, rows != NULL);
    for (int i = from + 1; i < to; i++)
        row = forest_add(&b->f, row, b->g.ids[i], rows != NULL);
    int rc = model_forward(b->m, &b->f, &s, 1, e);
    for (int i = from; !rc && rows && i < to; i++)
        fetch(b, rows + (int64_t)i * b->g.target.vocab, model_logits_at(b->m, i - from), 1);
    return rc;
}

// Rows from position `from` on against the fixture and against the first pass.
static void compare(struct bench *b, int from) {
    const struct golden *g = &b->g;
    int64_t v = g->target.vocab, beyond = 0;
    for (int i = 0; i < g->n_index; i++) {
        if (g->index[i] < from)
            continue;
        double e = golden_error(b->rows + g->index[i] * v, g->rows + i * v, v);
        if (e > b->room.bound && ++beyond <= b->room.others)
            continue;
        b->worst = e > b->worst || isnan(e) ? e : b->worst;
    }
    b->beyond = beyond > b->beyond ? beyond : b->beyond;
    for (int i = from; i < g->n_ids; i++)
        b->differ += memcmp(b->rows + i * v, b->first + i * v, (size_t)v * sizeof *b->rows) != 0;
}

static int in_pieces(struct bench *b, const int *sizes, int n, struct err *e) {
    struct sequence *s = NULL;
    int rc = model_sequence(b->m, &s, e);
    memset(b->rows, 0, (size_t)b->g.n_ids * (size_t)b->g.target.vocab * sizeof *b->rows);
    for (int i = 0, at = 0; at < b->g.n_ids && !rc; i++) {
        int size = sizes[i < n ? i : n - 1];
        int to = at + size < b->g.n_ids ? at + size : b->g.n_ids;
        rc = prompt(b, s, at, to, b->rows, e);
        at = to;
    }
    if (!rc)
        compare(b, 0);
    sequence_destroy(s);
    return rc;
}

// A path of true tokens with a wrong chain next to every node. Returns its length.
static int build_tree(struct bench *b, int at, int32_t *path) {
    int depth = b->g.n_ids - at < 20 ? b->g.n_ids - at : 20, n = 0;
    forest_reset(&b->f);
    int32_t node = forest_root(&b->f, 0, at, b->g.ids[at], true);
    for (path[n++] = node; n < depth; path[n++] = node) {
        int32_t token = b->g.ids[at + n];
        int32_t wrong = forest_add(&b->f, node, (token + 1) % b->g.target.vocab, true);
        node = forest_add(&b->f, node, token, true);
        (void)forest_add(&b->f, wrong, token, true);
    }
    return n;
}

static int by_trees(struct bench *b, struct err *e) {
    enum { START = 20 };
    struct sequence *s = NULL;
    int64_t v = b->g.target.vocab;
    int rc = model_sequence(b->m, &s, e), at = START;
    if (!rc)
        rc = prompt(b, s, 0, at, NULL, e);
    for (int step = 0; at < b->g.n_ids && !rc; step++) {
        int32_t path[32];
        int n = build_tree(b, at, path), keep = 1 + step * 7 % n; // 1, 8, 15, 2, ...
        rc = model_forward(b->m, &b->f, &s, 1, e);
        for (int i = 0; i < n && !rc; i++)
            fetch(b, b->rows + (at + i) * v,
                  model_logits_at(b->m, model_logits_index(b->m, path[i])), 1);
        if (!rc)
            rc = model_commit(b->m, &s, &(struct model_path){0, path, keep}, 1, e);
        at += keep;
    }
    if (!rc)
        compare(b, START);
    sequence_destroy(s);
    return rc;
}

// brief: one pass over the prompt alone, for emulators, or a few passes that are watched, each
// launch of which takes long.
static int target_ways(struct bench *b, bool brief, struct err *e) {
    static const int whole[] = {1000}, ones[] = {1}, some[] = {70, 1, 1, 1, 1, 1000},
                     ragged[] = {1, 2, 3, 5, 64, 1000};
    struct sequence *s = NULL;
    int rc = model_sequence(b->m, &s, e);
    if (!rc)
        rc = prompt(b, s, 0, b->g.n_ids, b->first, e);
    sequence_destroy(s);
    if (!rc && brief && !watch_on()) {
        memcpy(b->rows, b->first, (size_t)(b->g.n_ids * b->g.target.vocab) * sizeof *b->rows);
        compare(b, 0);
    }
    if (rc || brief)
        return rc || !watch_on() ? rc : in_pieces(b, some, 6, e);
    if (!rc)
        rc = in_pieces(b, whole, 1, e);
    if (!rc)
        rc = watch_on() ? in_pieces(b, some, 6, e) : in_pieces(b, ones, 1, e);
    if (!rc)
        rc = in_pieces(b, ragged, 6, e);
    return rc ? rc : by_trees(b, e);
}

static void compare_row(struct bench *b, float *logits, const float *golden) {
    golden_log_softmax(logits, b->g.columns);
    double error = golden_error(logits, golden, b->g.columns);
    b->worst = error > b->worst || isnan(error) ? error : b->worst;
}

// The paths of one context as one tree: logits of all tokens after each of their nodes.
static int domino_paths(struct bench *b, struct sequence *s, int context, float *row,
                        struct err *e) {
    enum { PATHS = 8 };
    const struct golden *g = &b->g;
    const int n = g->n_paths, guesses = golden_guesses(g);
    const float *golden = g->rows + (int64_t)context * n * guesses * g->columns;
    struct draft_node nodes[PATHS];
    struct draft_guesses found;
    struct draft_level l = {.seq = s, .root = g->anchors[context], .n = 1, .k = 8};
    int rc = n > PATHS ? err_set(e, ERR_LIMIT, "%d paths of a draft", n)
                       : draft_begin(b->draft, &l, 1, e);
    for (l.depth = 0; l.depth < guesses && !rc; l.depth++) {
        for (int p = 0; l.depth && p < n; p++)
            nodes[p] = (struct draft_node){
                .parent = l.depth == 1 ? 0 : 1 + n * (l.depth - 2) + p,
                .token = g->paths[(context * n + p) * (guesses - 1) + l.depth - 1],
                .depth = l.depth};
        l.n = l.depth ? n : 1;
        l.nodes = l.depth ? nodes : NULL;
        rc = draft_run_level(b->draft, &l, 1, &found, e);
        for (int p = 0; p < n && !rc; p++) {
            rc = dflash_path_logits(draft_dflash(b->draft), 0, l.depth ? p : 0, row, e);
            if (!rc)
                compare_row(b, row, golden + (p * guesses + l.depth) * (int64_t)g->columns);
        }
    }
    return rc;
}

static int domino_contexts(struct bench *b, struct err *e) {
    float *row = malloc((size_t)b->g.columns * sizeof *row);
    int rc = row ? 0 : err_set(e, ERR_MEMORY, "no memory for a row of logits");
    for (int i = 0; i < b->g.n_index && !rc; i++) {
        struct sequence *s = NULL;
        rc = model_sequence(b->m, &s, e);
        if (!rc)
            rc = prompt(b, s, 0, b->g.index[i], NULL, e);
        if (!rc)
            rc = domino_paths(b, s, i, row, e);
        sequence_destroy(s);
    }
    free(row);
    return rc;
}

// The marginals of the first block after each context.
static int draft_contexts(struct bench *b, struct err *e) {
    const struct golden *g = &b->g;
    struct dflash *d = draft_dflash(b->draft);
    int64_t v = g->columns, per = golden_rows_per_index(g);
    float *logits = malloc((size_t)(per * v) * sizeof *logits);
    int rc = logits ? 0 : err_set(e, ERR_MEMORY, "no memory for a block of logits");
    for (int i = 0; i < g->n_index && !rc; i++) {
        struct sequence *s = NULL;
        rc = model_sequence(b->m, &s, e);
        if (!rc)
            rc = prompt(b, s, 0, g->index[i], NULL, e);
        if (!rc)
            rc = dflash_draft(d, &s, &g->anchors[i], 1, e);
        if (!rc)
            fetch(b, logits, dflash_logits(d, 0, per), per);
        for (int64_t k = 0; k < per && !rc; k++)
            compare_row(b, logits + k * v, g->rows + (i * per + k) * v);
        sequence_destroy(s);
    }
    free(logits);
    return rc;
}

// Runs rows of one call; error of the i-th one's log-probabilities from golden row at[i].
static int path_errors(struct bench *b, const struct path_row *rows, const int *at, int n,
                       const float *golden, struct err *e) {
    int64_t v = b->g.columns;
    float *logits = malloc((size_t)(n * v) * sizeof *logits);
    int rc = logits ? path_rows(b->path, rows, n, e) : err_set(e, ERR_MEMORY, "no memory for rows");
    if (!rc)
        fetch(b, logits, path_logits(b->path, 0, n), n);
    for (int i = 0; i < n && !rc; i++)
        compare_row(b, logits + i * v, golden + at[i] * v);
    free(logits);
    return rc;
}

// The distributions of a prediction block or EAGLE-3 after a context's root and guesses and after
// another first guess: a tree, the guesses of one depth in one call.
static int path_tree(struct bench *b, struct sequence *s, const int32_t *t, const float *golden,
                     struct err *e) {
    const struct path_row rows[GOLDEN_MTP_ROWS] = {
        {0, -1, t[0]}, {0, 0, t[1]}, {0, 0, t[GOLDEN_OTHER]}, {0, 1, t[2]}, {0, 3, t[3]}};
    static const int at[GOLDEN_MTP_ROWS] = {0, 1, GOLDEN_OTHER, 2, 3}, first[] = {0, 1, 3, 4, 5};
    int rc = path_begin(b->path, &s, 1, e);
    if (!rc && !path_ready(b->path, 0))
        rc = err_set(e, ERR_STATE, "no room for the rows of the draft");
    for (int i = 0; i < 4 && !rc; i++)
        rc = path_errors(b, rows + first[i], at + first[i], first[i + 1] - first[i], golden, e);
    return rc;
}

static int path_contexts(struct bench *b, struct err *e) {
    const struct golden *g = &b->g;
    int rc = 0;
    for (int i = 0; i < g->n_index && !rc; i++) {
        struct sequence *s = NULL;
        rc = model_sequence(b->m, &s, e);
        if (!rc)
            rc = prompt(b, s, 0, g->index[i], NULL, e);
        if (!rc)
            rc = path_tree(b, s, g->guesses[i], g->rows + (int64_t)i * GOLDEN_MTP_ROWS * g->columns,
                           e);
        sequence_destroy(s);
    }
    return rc;
}

static int all_ways(struct bench *b, bool brief, struct err *e) {
    if (b->path)
        return path_contexts(b, e);
    if (b->g.n_paths)
        return domino_contexts(b, e);
    return b->g.has_draft ? draft_contexts(b, e) : target_ways(b, brief, e);
}

// *hash: of the first pass's rows; with the fewest experts resident they must have that one, with
// some on the CPU another one.
static bool one_case(const char *level, const struct gpu_options *o, const char *name,
                     enum places places, uint64_t *hash, struct gpu_counts *n) {
    char data[400];
    snprintf(data, sizeof data, "%s/golden/data", o->data);
    static const char *const where[] = {"", ", fewest experts resident", ", experts of the CPU"};
    struct bench b = {.room = room_of(name)};
    struct err e = {0};
    char what[64];
    const bool fewer = places == FEWEST_RESIDENT;
    snprintf(what, sizeof what, "%s%s", name, where[places]);
    int rc = bench_open(&b, places, level, data, name, &e);
    if (!rc)
        rc = all_ways(&b, o->brief, &e);
    if (!rc)
        rc = exec_status(b.x, &e);
    bool experts = !rc && !b.g.has_draft && !b.path && model_params_of(b.m)->moe.experts;
    if (rc) {
        gpu_line(n, false, level, "golden", what, "%s", e.text);
    } else {
        uint64_t now =
            hash_bytes(b.first, (size_t)(b.g.n_ids * b.g.target.vocab) * sizeof *b.first, 0);
        struct expert_stats s = {0};
        const struct expert_store *store = places ? model_experts(b.m) : NULL;
        bool all = !store || expert_classes_share_of(expert_store_classes(store)) >= 1;
        if (store)
            expert_store_stats(store, &s);
        bool same = places == CPU_AND_FEWEST ? now != *hash
                                             : !fewer || (now == *hash && (all || s.misses > 0));
        gpu_line(n, b.worst <= b.room.bound && b.differ == 0 && same, level, "golden", what,
                 "relative error %.1e (max %.1e; %lld of %d rows beyond), %lld rows differ between "
                 "ways%s, %llu brought",
                 b.worst, b.room.bound, (long long)b.beyond, b.g.n_index, (long long)b.differ,
                 same ? "" : ", not the bits that they have to be", (unsigned long long)s.misses);
        *hash = now;
    }
    bench_close(&b);
    return experts;
}

// With `only`: the cases whose names begin so.
void suite_golden(const char *level, const struct gpu_options *o, struct gpu_counts *n) {
    static const char *const names[] = {"r1_tied",
                                        "r2_untied",
                                        "r3_untied",
                                        "r3_slow",
                                        "r3_tied",
                                        "draft_mixed2",
                                        "draft_mixed4",
                                        "draft_full",
                                        "draft_noncausal",
                                        "draft_causal",
                                        "q3_untied",
                                        "q3_tied",
                                        "q3_yarn",
                                        "draft_q3",
                                        "l3_bands",
                                        "l2_bias",
                                        "q2_untied",
                                        "g4_dense",
                                        "g4_own",
                                        "q3moe",
                                        "r1moe",
                                        "r3moe",
                                        "draft_q3moe",
                                        "draft_r3moe",
                                        "glm_air",
                                        "glm_norms",
                                        "oss",
                                        "laguna_xs",
                                        "laguna_m",
                                        "g4_moe",
                                        "g3_small",
                                        "g3_large",
                                        "draft_l3",
                                        "draft_oss",
                                        "draft_laguna",
                                        "draft_laguna_m",
                                        "draft_g4",
                                        "draft_spec_laguna",
                                        "draft_spec_g4",
                                        "draft2_r2",
                                        "draft2_g4",
                                        "dspark_q3",
                                        "dspark_r2",
                                        "dspark_g4",
                                        "ds2",
                                        "ds2_groups",
                                        "ds3",
                                        "ds3_yarn",
                                        "draft_ds3",
                                        "mtp_r1_tied",
                                        "mtp_r3_untied",
                                        "mtp_r3moe",
                                        "mtp_r1moe",
                                        "mtp_glm_norms",
                                        "mtp_glm_air",
                                        "mtp_ds3",
                                        "eagle3_q3",
                                        "eagle3_l3",
                                        "eagle3_r3",
                                        "ds3_wide",
                                        "dspark_spec_g4",
                                        "dspark_spec_q3",
                                        "domino_r2",
                                        "domino_q3",
                                        "domino_g4"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        uint64_t hash = 0;
        if (o->only && strncmp(names[i], o->only, strlen(o->only)) != 0)
            continue;
        if (one_case(level, o, names[i], ALL_RESIDENT, &hash, n)) {
            one_case(level, o, names[i], FEWEST_RESIDENT, &hash, n);
            one_case(level, o, names[i], CPU_AND_FEWEST, &hash, n);
        }
    }
}
