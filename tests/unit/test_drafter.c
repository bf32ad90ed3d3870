// SPDX-License-Identifier: Apache-2.0
// Each drafter called directly: how deep and wide it answers, where its guesses come from, and what
// it refuses. Guesses cannot change an output, so only a test like this finds a drafter that
// guesses badly.
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spec/draft/drafter.h"
#include "spec/draft/oracle.h"
#include "spec/step/step.h"
#include "support/tiny_gguf.h"

enum { CONTEXT = 128, BLOCK = 8 };

struct fixture {
    struct exec *x;
    struct gguf *file;
    struct model *model;
    struct draft *draft;
    struct sequence *seq;
};

// 7 8 9 stands twice; then comes 1 2 3 4, where 2 3 has been seen before with 50 after it.
static const int32_t text[] = {2, 3, 50, 51, 7, 8, 9, 60, 61, 7, 8, 9, 1, 2};
enum { LEN = sizeof text / sizeof *text };

// A target with this draft, and a sequence that has read the text.
static int fixture_open(struct fixture *f, const struct tiny_draft_shape *shape) {
    char path[64];
    struct tiny_shape t = tiny_shape_default();
    struct model_options o = model_options_default();
    struct dflash_options q = dflash_options_default();
    struct forest rows = {0};
    o.max_ctx = CONTEXT;
    o.max_logits = 10; // of a draft too: several sequences take several slices
    snprintf(path, sizeof path, "/tmp/coppice-drafter-%d.gguf", (int)getpid());
    int rc = tiny_target_write(&t, path, NULL);
    if (!rc)
        rc = gguf_open(&f->file, path, NULL);
    if (!rc)
        rc = exec_create_cpu(&f->x, "auto", 1, NULL);
    if (!rc)
        rc = model_load(&f->model, f->x, f->file, &o, NULL);
    if (!rc)
        rc = tiny_draft_write(&t, shape, path, NULL);
    if (!rc)
        rc = draft_open(&f->draft, f->model, &(struct draft_source){.path = path, .dflash = &q},
                        NULL);
    unlink(path);
    if (!rc)
        rc = model_sequence(f->model, &f->seq, NULL);
    if (!rc)
        rc = forest_init(&rows, LEN, NULL);
    if (rc)
        return rc;
    forest_reset(&rows);
    forest_chain(&rows, 0, 0, text, LEN, true);
    rc = model_forward(f->model, &rows, &f->seq, 1, NULL);
    forest_fini(&rows);
    return rc;
}

static void fixture_close(struct fixture *f) {
    sequence_destroy(f->seq);
    draft_destroy(f->draft);
    model_destroy(f->model);
    exec_destroy(f->x);
    gguf_close(f->file);
    *f = (struct fixture){0};
}

static int setup(void **state) {
    static struct fixture f;
    const struct tiny_shape t = tiny_shape_default();
    const struct tiny_draft_shape d = tiny_draft_default(&t);
    *state = &f;
    return fixture_open(&f, &d);
}

static int teardown(void **state) {
    fixture_close(*state);
    return 0;
}

static struct drafter *make(const struct fixture *f, enum draft_kind kind,
                            const struct draft_config *oracle) {
    struct draft_config c = oracle ? *oracle : (struct draft_config){0};
    struct drafter *d = NULL;
    c.model = f->model;
    c.draft = f->draft;
    c.max_k = c.max_k ? c.max_k : 8;
    assert_int_equal(drafter_create(&d, kind, &c, NULL), 0);
    return d;
}

static struct proposal ask(const struct fixture *f, struct drafter *d, int32_t root, int k,
                           int max_depth) {
    struct draft_request r = {.seq = f->seq, .root = root, .k = k, .max_depth = max_depth};
    struct proposal p = {0}, *all = &p;
    assert_int_equal(drafter_propose(d, &r, 1, &all, NULL), 0);
    return p;
}

static void test_dflash(void **state) {
    const struct fixture *f = *state;
    struct drafter *d = make(f, DRAFT_MODEL, NULL);
    assert_int_equal(drafter_max_depth(d), BLOCK - 1);
    struct proposal p = ask(f, d, 3, 5, 32), *all = &p;
    assert_int_equal(p.depth, BLOCK - 1);
    assert_int_equal(p.k, 5);
    int32_t first[3] = {p.ids[0], p.ids[5], p.ids[10]};
    for (int r = 0; r < p.depth * p.k; r++) {
        assert_in_range(p.ids[r], 0, 299);
        assert_true(p.logp[r] <= 0);
        assert_true(r % p.k == 0 || p.logp[r] <= p.logp[r - 1]);
    }
    p = ask(f, d, 3, 1, 3); // the same guesses, cut to what is of use
    assert_int_equal(p.depth, 3);
    assert_int_equal(p.k, 1);
    assert_memory_equal(p.ids, first, sizeof first);
    p = ask(f, d, 3, 1, 0);
    assert_int_equal(p.depth, 0);
    struct draft_request r = {.seq = f->seq, .root = 3, .k = 2, .max_depth = 32, .useful_depth = 2};
    assert_int_equal(drafter_propose(d, &r, 1, &all, NULL), 0); // a shorter block
    assert_int_equal(p.depth, 2);
    r.useful_depth = 100;
    assert_int_equal(drafter_propose(d, &r, 1, &all, NULL), 0);
    assert_int_equal(p.depth, BLOCK - 1);
    drafter_destroy(d);
}

// Guesses of a whole block and of a short one, without noise and with it.
enum { WAYS = 4, SHORT = 3, K = 16, ROWS = BLOCK - 1 };
struct guesses {
    int depth[WAYS];
    int32_t ids[WAYS][ROWS][K];
    float logp[WAYS][ROWS][K], pair[WAYS][ROWS - 1][K][K];
};

// k: candidates that are asked for.
static void guess_all_ways(struct guesses *g, const struct tiny_draft_shape *d, int k) {
    struct fixture f = {0};
    struct sample_row noise[ROWS];
    memset(g, 0, sizeof *g);
    assert_int_equal(fixture_open(&f, d), 0);
    const struct draft_config c = {.max_k = K};
    struct drafter *drafter = make(&f, DRAFT_MODEL, &c);
    for (int i = 0; i < ROWS; i++)
        noise[i] = (struct sample_row){.pos = LEN + 1 + i, .seed = 7, .temperature = 0.7f};
    for (int w = 0; w < WAYS; w++) {
        struct draft_request r = {.seq = f.seq,
                                  .root = 3,
                                  .k = k,
                                  .max_depth = 32,
                                  .useful_depth = w % 2 ? SHORT : 0,
                                  .noise = w / 2 ? noise : NULL};
        struct proposal p = {0}, *all = &p;
        assert_int_equal(drafter_propose(drafter, &r, 1, &all, NULL), 0);
        assert_int_equal(p.k, d->conv || d->markov ? K : k);
        size_t cells = (size_t)(p.depth * p.k), line = (size_t)p.k * sizeof(float);
        g->depth[w] = p.depth;
        memcpy(g->ids[w], p.ids, cells * sizeof *p.ids);
        memcpy(g->logp[w], p.logp, cells * sizeof *p.logp);
        assert_true(!p.pair == !(d->conv || d->markov));
        for (int i = 0; p.pair && i < 2 * (p.depth - 1) * p.k; i++) { // each twice
            const int at = i % ((p.depth - 1) * p.k);
            memcpy(g->pair[w][at / p.k][at % p.k], p.pair(p.pair_arg, at / p.k, at % p.k), line);
        }
    }
    drafter_destroy(drafter);
    fixture_close(&f);
}

// Drafts of DSpark guess from the anchor's row on, so that a block of one row less has as many.
static struct tiny_draft_shape dspark_shape(const struct tiny_shape *t, bool gated) {
    struct tiny_draft_shape d = tiny_draft_default(t);
    d.dialect = TINY_UPSTREAM;
    d.block = BLOCK - 1;
    d.markov = true;
    d.gated = gated;
    return d;
}

// The same candidates and, after whatever token, the same numbers, to the bit.
static void check_neutral(const struct tiny_draft_shape *without,
                          const struct tiny_draft_shape *with) {
    struct guesses *plain = malloc(sizeof *plain), *parts = malloc(sizeof *parts);
    assert_true(plain && parts);
    guess_all_ways(plain, without, K);
    guess_all_ways(parts, with, K);
    assert_memory_equal(plain->depth, parts->depth, sizeof plain->depth);
    assert_memory_equal(plain->ids, parts->ids, sizeof plain->ids);
    assert_memory_equal(plain->logp, parts->logp, sizeof plain->logp);
    for (int w = 0; w < WAYS; w++)
        for (int i = 1; i < plain->depth[w]; i++)
            for (int q = 0; q < K; q++)
                assert_memory_equal(parts->pair[w][i - 1][q], plain->logp[w][i],
                                    sizeof parts->pair[w][i - 1][q]);
    free(plain);
    free(parts);
}

// Convolutions that keep the row and empty codebooks leave DFlash, and so does an empty Markov
// head.
static void test_neutral_parts(void **state) {
    (void)state;
    const struct tiny_shape t = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&t), with;
    d.dialect = TINY_UPSTREAM;
    with = d;
    with.conv = 3;
    with.neutral = true;
    check_neutral(&d, &with);
    for (int gated = 0; gated < 2; gated++) {
        with = dspark_shape(&t, gated);
        with.neutral = true;
        d.block = with.block;
        d.anchor = 1;
        check_neutral(&d, &with);
        d.block = with.block = BLOCK;
        d.anchor = -1;
        with.anchor = 0;
        check_neutral(&d, &with);
    }
}

static double mass(const float *logp) {
    double sum = 0;
    for (int c = 0; c < K; c++)
        sum += exp((double)logp[c]);
    return sum;
}

// How many values of a line are others than those of the row alone; together they are the same.
static int moved(const float *line, const float *alone) {
    int n = 0;
    assert_true(fabs(mass(line) / mass(alone) - 1) < 1e-5);
    for (int c = 0; c < K; c++)
        n += fabsf(line[c] - alone[c]) > 0.05f;
    return n;
}

static void check_selector(const struct tiny_draft_shape *d) {
    struct guesses *g = malloc(sizeof *g);
    assert_non_null(g);
    guess_all_ways(g, d, 1);
    for (int w = 0; w < WAYS; w++) {
        int n = 0;
        assert_int_equal(g->depth[w], w % 2 ? SHORT : ROWS);
        for (int i = 0; i < (g->depth[w] - 1) * K; i++)
            n += moved(g->pair[w][i / K][i % K], g->logp[w][i / K + 1]);
        assert_true(n > K * K);
    }
    free(g);
}

// A selector and a Markov head move what candidates are worth among them, and offer as many as one
// was trained with where one was asked for.
static void test_selector(void **state) {
    (void)state;
    const struct tiny_shape t = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&t);
    d.dialect = TINY_UPSTREAM;
    d.conv = 2;
    check_selector(&d);
    for (int gated = 0; gated < 2; gated++) {
        d = dspark_shape(&t, gated);
        check_selector(&d);
    }
}

// Copies of the target's embedding and head are not read: other values change nothing.
static void test_copies(void **state) {
    (void)state;
    const struct tiny_shape t = tiny_shape_default();
    struct tiny_draft_shape d = dspark_shape(&t, false);
    struct draft_plan plan[2];
    struct guesses *g = calloc(2, sizeof *g);
    assert_non_null(g);
    for (int i = 0; i < 2; i++) {
        struct fixture f = {0};
        d.copies = i;
        guess_all_ways(&g[i], &d, K);
        assert_int_equal(fixture_open(&f, &d), 0);
        dflash_plan_of(draft_dflash(f.draft), &plan[i]);
        fixture_close(&f);
    }
    assert_memory_equal(&g[0], &g[1], sizeof *g);
    assert_int_equal(plan[0].weights, plan[1].weights);
    free(g);
}

// Sequences of several lengths that one drafter serves, each with candidates of its own.
enum { MEMBERS = 4 };

struct members {
    struct sequence *seq[MEMBERS];
    struct draft_request r[MEMBERS];
    struct sample_row noise[MEMBERS][BLOCK];
};

static void members_open(struct members *m, const struct fixture *f) {
    struct forest rows = {0};
    assert_int_equal(forest_init(&rows, LEN, NULL), 0);
    *m = (struct members){0};
    for (int i = 0; i < MEMBERS; i++) {
        assert_int_equal(model_sequence(f->model, &m->seq[i], NULL), 0);
        forest_reset(&rows);
        forest_chain(&rows, 0, 0, text, LEN - 2 * i, true);
        assert_int_equal(model_forward(f->model, &rows, &m->seq[i], 1, NULL), 0);
        for (int d = 0; d < BLOCK; d++)
            m->noise[i][d] = (struct sample_row){.pos = LEN - 2 * i + 1 + d,
                                                 .seed = 7,
                                                 .temperature = 1.5f,
                                                 .top_p = 1,
                                                 .repeat = 1};
        m->r[i] = (struct draft_request){
            .seq = m->seq[i], .root = 3 + i, .k = 2 + 2 * i, .max_depth = 3 + 2 * i};
    }
    m->r[1].noise = m->noise[1];
    m->r[3].noise = m->noise[3];
    forest_fini(&rows);
}

static void members_close(struct members *m) {
    for (int i = 0; i < MEMBERS; i++)
        sequence_destroy(m->seq[i]);
}

// What one call says of r[n], and what a drafter says of each alone, must be the same to the bit.
static void check_members(struct drafter *many, struct drafter *one, const struct draft_request *r,
                          int n, int worth) {
    struct proposal p[MEMBERS] = {0}, *all[MEMBERS] = {0};
    for (int i = 0; i < n; i++)
        all[i] = &p[i];
    assert_int_equal(drafter_propose(many, r, n, all, NULL), 0);
    for (int i = 0; i < n; i++) {
        struct draft_request alone = r[i];
        struct proposal q = {0}, *only = &q;
        alone.useful_depth = worth;
        assert_int_equal(drafter_propose(one, &alone, 1, &only, NULL), 0);
        assert_int_equal(p[i].depth, q.depth);
        assert_int_equal(p[i].k, q.k);
        size_t cells = (size_t)q.depth * (size_t)q.k;
        if (cells == 0)
            continue;
        assert_memory_equal(p[i].ids, q.ids, cells * sizeof *q.ids);
        assert_memory_equal(p[i].logp, q.logp, cells * sizeof *q.logp);
        assert_true(!p[i].pair == !q.pair);
        for (int at = 0; q.pair && at < (q.depth - 1) * q.k; at += 1 + at % 3) {
            const int last = (q.depth - 1) * q.k - 1 - at; // deeper ones first
            const struct proposal *next = &p[(i + 1) % n]; // others' lines come between
            if (next->depth > 1)
                next->pair(next->pair_arg, at % (next->depth - 1), at % next->k);
            assert_memory_equal(p[i].pair(p[i].pair_arg, last / q.k, last % q.k),
                                q.pair(q.pair_arg, last / q.k, last % q.k),
                                (size_t)q.k * sizeof *q.logp);
        }
    }
}

static void check_all_members(const struct fixture *f) {
    struct draft_config c = {.max_members = MEMBERS};
    struct drafter *many = make(f, DRAFT_MODEL, &c), *one = make(f, DRAFT_MODEL, NULL);
    struct members m;
    members_open(&m, f);
    for (int n = 1; n <= MEMBERS; n++)
        check_members(many, one, m.r, n, 0);
    m.r[0].noise = m.noise[0];
    m.r[3].noise = NULL;
    m.r[1].max_depth = 0; // takes no part
    check_members(many, one, m.r, MEMBERS, 0);
    m.r[3].max_depth = 0;
    check_members(many, one, m.r, MEMBERS, 0);
    // One block for all, as long as the most that any of them finds worth its time.
    static const int worth[][MEMBERS + 1] = {{2, 3, 1, 2, 3}, {2, 0, 5, 5, 0}, {2, 100, 5, 5, 0}};
    for (int w = 0; w < 3; w++) {
        for (int i = 0; i < MEMBERS; i++) {
            m.r[i].max_depth = 5;
            m.r[i].useful_depth = worth[w][i];
        }
        check_members(many, one, m.r, MEMBERS, worth[w][MEMBERS]);
    }
    for (int i = 0; i < MEMBERS; i++)
        m.r[i].max_depth = 0;
    check_members(many, one, m.r, MEMBERS, 0);
    members_close(&m);
    drafter_destroy(many);
    drafter_destroy(one);
}

static void test_members(void **state) {
    check_all_members(*state);
}

// The same for drafts whose guesses depend on the token before.
static void test_members_with_pairs(void **state) {
    (void)state;
    const struct tiny_shape t = tiny_shape_default();
    struct tiny_draft_shape d[3] = {tiny_draft_default(&t), dspark_shape(&t, false),
                                    dspark_shape(&t, true)};
    d[0].dialect = TINY_UPSTREAM;
    d[0].conv = 2;
    for (int i = 0; i < 3; i++) {
        struct fixture f = {0};
        assert_int_equal(fixture_open(&f, &d[i]), 0);
        check_all_members(&f);
        fixture_close(&f);
    }
}

// More sequences than a drafter serves are refused; an index of tokens serves one.
static void test_too_many(void **state) {
    const struct fixture *f = *state;
    struct draft_config c = {.max_members = 2};
    struct proposal p[3] = {0}, *all[3] = {&p[0], &p[1], &p[2]};
    struct draft_request r[3] = {{.seq = f->seq, .root = 3, .k = 1, .max_depth = 4}};
    for (int kind = 0; kind < 2; kind++) {
        struct drafter *d = make(f, kind ? DRAFT_LOOKUP : DRAFT_MODEL, &c);
        struct err e = {0};
        assert_int_equal(drafter_propose(d, r, kind ? 2 : 3, all, &e), ERR_USAGE);
        assert_non_null(strstr(e.text, kind ? "1 to 1" : "1 to 2"));
        assert_int_equal(drafter_propose(d, r, 0, all, NULL), ERR_USAGE);
        drafter_destroy(d);
    }
}

static void test_lookup(void **state) {
    const struct fixture *f = *state;
    struct drafter *d = make(f, DRAFT_LOOKUP, NULL);
    struct proposal p = ask(f, d, 3, 8, 5); // ... 1 2 and 3: 2 3 was followed by 50 51 7 8 9
    static const int32_t want[] = {50, 51, 7, 8, 9};
    assert_int_equal(p.depth, 0);
    assert_int_equal(p.n_chains, 1);
    assert_int_equal(p.chains[0].len, 5);
    assert_memory_equal(p.chains[0].ids, want, sizeof want);
    assert_true(fabsf(p.chains[0].logp - logf(2 / 3.5f)) < 1e-6f);
    p = ask(f, d, 200, 8, 5);
    assert_int_equal(p.n_chains, 0);
    p = ask(f, d, 3, 8, 2);
    assert_int_equal(p.chains[0].len, 2);
    assert_memory_equal(p.chains[0].ids, want, 2 * sizeof *want);
    drafter_destroy(d);
}

// A block may be longer than a tree is deep; what lies beyond is not requested.
static void test_long_block(void **state) {
    const struct fixture *f = *state;
    struct tiny_shape t = tiny_shape_default();
    struct tiny_draft_shape shape = tiny_draft_default(&t);
    struct dflash_options q = dflash_options_default();
    struct model_options o = model_options_default();
    struct fixture g = {.x = f->x, .file = f->file};
    char path[64];
    shape.block = 40;
    snprintf(path, sizeof path, "/tmp/coppice-drafter-%d-long.gguf", (int)getpid());
    assert_int_equal(tiny_draft_write(&t, &shape, path, NULL), 0);
    assert_int_equal(model_load(&g.model, g.x, g.file, &o, NULL), 0);
    assert_int_equal(
        draft_open(&g.draft, g.model, &(struct draft_source){.path = path, .dflash = &q}, NULL), 0);
    unlink(path);
    assert_int_equal(model_sequence(g.model, &g.seq, NULL), 0);
    struct drafter *d = make(&g, DRAFT_MODEL, NULL);
    assert_int_equal(drafter_max_depth(d), TREE_MAX_DEPTH);
    assert_int_equal(ask(&g, d, 3, TREE_MAX_K, 100).depth, TREE_MAX_DEPTH);
    drafter_destroy(d);
    sequence_destroy(g.seq);
    draft_destroy(g.draft);
    model_destroy(g.model);
}

// Where the recorded token stands among the candidates, at error rates 0, 1 and between.
static void test_oracle(void **state) {
    const struct fixture *f = *state;
    int32_t recording[LEN + 40];
    for (int i = 0; i < LEN + 40; i++)
        recording[i] = 100 + i;
    static const double rates[] = {0, 0.3, 1};
    for (int i = 0; i < 3; i++) {
        struct draft_config c = {
            .recording = recording, .n_recording = LEN + 40, .error_rate = rates[i], .seed = 5};
        struct drafter *d = make(f, DRAFT_ORACLE, &c);
        struct proposal p = ask(f, d, 3, 8, 32);
        int first = 0, later = 0;
        assert_int_equal(p.depth, 32);
        for (int depth = 1; depth <= 32; depth++)
            for (int r = 0; r < 8; r++) {
                bool truth = p.ids[(depth - 1) * 8 + r] == recording[LEN + depth];
                first += truth && r == 0;
                later += truth && r > 0;
            }
        if (i == 0)
            assert_int_equal(first, 32);
        if (i == 1)
            assert_in_range(first, 14, 30);
        if (i == 2)
            assert_int_equal(first, 0);
        assert_true(i == 0 ? later == 0 : later >= 1);
        drafter_destroy(d);
    }
}

// Chances by depth: how often the guesses of a step are right down to each depth, over many steps.
static void test_oracle_chances(void **state) {
    const struct fixture *f = *state;
    enum { SEEDS = 4000 };
    static const double rates[] = {0.8, 0.5, 0.5, 0.1, 0};
    struct draft_config c = {.error_rate = 0};
    int32_t recording[LEN + 40];
    int right[8] = {0};
    for (int i = 0; i < LEN + 40; i++)
        recording[i] = 100 + i;
    oracle_use_rates(&c, rates, 5);
    assert_int_equal(c.n_right, 5);
    c.recording = recording;
    c.n_recording = LEN + 40;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        c.seed = seed;
        struct drafter *d = make(f, DRAFT_ORACLE, &c);
        struct proposal p = ask(f, d, 3, 2, 8);
        for (int i = 0; i < 8 && p.ids[2 * i] == recording[LEN + 1 + i]; i++)
            right[i]++;
        drafter_destroy(d);
    }
    for (int i = 0; i < 8; i++) {
        double rate = i < 5 ? rates[i] : 0, sigma = sqrt(SEEDS * rate * (1 - rate));
        if (fabs(right[i] - SEEDS * rate) > 4 * sigma)
            fail_msg("depth %d: %d of %d are right", i + 1, right[i], SEEDS);
    }
    static const double lengths[] = {1, 1.5, 3, 4.9, 5};
    for (int i = 0; i < 5; i++) { // of chains of 4
        double reached = 1, mean = 1;
        oracle_use_length(&c, lengths[i], 4);
        for (int k = 0; k < 4; k++)
            mean += reached *= c.right[k];
        assert_int_equal(c.n_right, 4);
        assert_true(fabs(mean - lengths[i]) < 1e-9 && c.right[0] == c.right[3]);
    }
}

// Besides a draft model the oracle takes the place of its guesses, and reaches as far.
static void test_oracle_with_draft(void **state) {
    const struct fixture *f = *state;
    int32_t recording[LEN + 40];
    for (int i = 0; i < LEN + 40; i++)
        recording[i] = 100 + i;
    struct draft_config c = {.recording = recording, .n_recording = LEN + 40, .with_draft = true};
    struct drafter *draft = make(f, DRAFT_MODEL, NULL), *d = make(f, DRAFT_ORACLE, &c);
    struct draft_request r = {.seq = f->seq, .root = 3, .k = 4, .max_depth = 32};
    struct proposal p = {0}, *all = &p;
    assert_int_equal(drafter_max_depth(d), BLOCK - 1);
    assert_int_equal(drafter_propose(draft, &r, 1, &all, NULL), 0);
    assert_int_not_equal(p.ids[0], recording[LEN + 1]);
    assert_int_equal(drafter_propose(d, &r, 1, &all, NULL), 0);
    assert_int_equal(p.depth, BLOCK - 1);
    for (int i = 0; i < p.depth; i++)
        assert_int_equal(p.ids[i * p.k], recording[LEN + 1 + i]);
    r.useful_depth = 2;
    assert_int_equal(drafter_propose(d, &r, 1, &all, NULL), 0);
    assert_int_equal(p.depth, 2);
    drafter_destroy(draft);
    drafter_destroy(d);
}

// The recording's end is the end of the guesses.
static void test_short_recording(void **state) {
    const struct fixture *f = *state;
    int32_t recording[LEN + 4] = {0};
    struct draft_config c = {.recording = recording, .n_recording = LEN + 4};
    struct drafter *d = make(f, DRAFT_ORACLE, &c);
    assert_int_equal(ask(f, d, 3, 2, 32).depth, 3); // positions LEN + 1 .. LEN + 3
    drafter_destroy(d);
}

static void test_refused(void **state) {
    const struct fixture *f = *state;
    struct draft_config c = {.model = f->model, .max_k = 8};
    struct drafter *d = NULL;
    struct err e = {0};
    assert_int_equal(drafter_create(&d, DRAFT_MODEL, &c, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "draft model"));
    assert_int_equal(drafter_create(&d, DRAFT_ORACLE, &c, &e), ERR_USAGE);
    c.recording = text;
    c.with_draft = true;
    assert_int_equal(drafter_create(&d, DRAFT_ORACLE, &c, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "draft model"));
    c.with_draft = false;
    c.error_rate = 2;
    assert_int_equal(drafter_create(&d, DRAFT_ORACLE, &c, &e), ERR_USAGE);
    assert_null(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dflash),
        cmocka_unit_test(test_lookup),
        cmocka_unit_test(test_long_block),
        cmocka_unit_test(test_oracle),
        cmocka_unit_test(test_oracle_chances),
        cmocka_unit_test(test_short_recording),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_members_with_pairs),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_oracle_with_draft),
        cmocka_unit_test(test_neutral_parts),
        cmocka_unit_test(test_selector),
        cmocka_unit_test(test_copies),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
