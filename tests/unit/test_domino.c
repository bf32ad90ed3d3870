// SPDX-License-Identifier: Apache-2.0
// Domino drafts of random models (their numbers: tests/golden/test_golden_domino.c): without
// corrections they are DFlash drafts to the bit, whatever the path; sequences together guess as
// alone, and a draft that need not go deep as one with a smaller block; noise is the target's;
// what loading takes is what was planned; files that do not fit are refused by the key or tensor.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/rng.h"
#include "formats/quant/quant.h"
#include "models/draft/dflash/domino.h"
#include "models/draft/draft.h"
#include "ops/rowmath.h"
#include "spec/draft/drafter.h"
#include "support/tiny_rig.h"
#include "unit/bad_files.h"
#include "unit/test.h"

enum { B = 6, G = B - 1, K = 6, LEN = 40, WIDE = 3 };

struct scene {
    struct tiny_rig r;
    struct tiny_shape t;
    struct tiny_draft_shape d;
    char path[80], edited[80];
    struct draft *draft;
};

static void open_draft(struct scene *c) {
    if (tiny_draft_write(&c->t, &c->d, c->path, &c->r.e) ||
        draft_open(&c->draft, c->r.m, &(struct draft_source){.path = c->path}, &c->r.e))
        fail_msg("%s", c->r.e.text);
}

static void open_scene(struct scene *c) {
    struct model_options o = model_options_default();
    *c = (struct scene){.t = tiny_shape_default()};
    c->d = tiny_draft_default(&c->t);
    c->d.block = B;
    c->d.gru = 32;
    c->d.skip = 1;
    c->d.dialect = TINY_UPSTREAM;
    tiny_rig_open(&c->r, &c->t, NULL, &o, "auto", 2);
    (void)snprintf(c->path, sizeof c->path, "/tmp/coppice-domino-%d.gguf", (int)getpid());
    (void)snprintf(c->edited, sizeof c->edited, "/tmp/coppice-domino-%d-e.gguf", (int)getpid());
}

static void close_scene(struct scene *c) {
    draft_destroy(c->draft);
    (void)unlink(c->path);
    (void)unlink(c->edited);
    tiny_rig_close(&c->r);
}

static struct sequence *prompt(struct scene *c, uint64_t seed, int n) {
    int32_t tokens[LEN];
    struct sequence *s = tiny_rig_sequence(&c->r);
    tiny_rig_tokens(&c->r, seed, tokens, n);
    tiny_rig_prompt(&c->r, s, tokens, n, 64, NULL, NULL);
    return s;
}

// Guesses of some sequences, [G][WIDE][K] each: below a tree of WIDE nodes a depth, the best
// candidates of each depth's first node.
struct guessed {
    int32_t ids[G][WIDE][K];
    float logp[G][WIDE][K];
};

static void run_level(struct scene *c, struct draft_level *l, int n, struct guessed *out) {
    struct draft_guesses found[3];
    if (draft_run_level(c->draft, l, n, found, &c->r.e))
        fail_msg("%s", c->r.e.text);
    for (int i = 0; i < n; i++) {
        const size_t cells = (size_t)(l[i].n * K);
        assert_int_equal(found[i].k, K);
        assert_int_equal(found[i].depth, 1);
        memcpy(out[i].ids[l[i].depth], found[i].ids, cells * sizeof *found[i].ids);
        memcpy(out[i].logp[l[i].depth], found[i].logp, cells * sizeof *found[i].logp);
        for (int j = 0; j < l[i].n; j++) { // chances
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += exp((double)found[i].logp[j * K + k]);
            assert_true(sum > 0 && sum < 1.0001);
        }
    }
}

// noise: NULL, or [n][G].
static void guess(struct scene *c, struct sequence *const *s, const struct sample_row *noise, int n,
                  int reach, struct guessed *out) {
    struct draft_level l[3];
    struct draft_node nodes[3][WIDE];
    memset(out, 0, (size_t)n * sizeof *out);
    for (int i = 0; i < n; i++)
        l[i] = (struct draft_level){.seq = s[i],
                                    .root = 5 + i,
                                    .n = 1,
                                    .k = K,
                                    .reach = reach,
                                    .noise = noise ? noise + i * G : NULL};
    if (draft_begin(c->draft, l, n, &c->r.e))
        fail_msg("%s", c->r.e.text);
    for (int depth = 0; depth < reach; depth++) {
        for (int i = 0; i < n && depth; i++) {
            for (int j = 0; j < WIDE; j++)
                nodes[i][j] = (struct draft_node){depth == 1 ? 0 : 1 + WIDE * (depth - 2),
                                                  out[i].ids[depth - 1][0][j], depth};
            l[i].n = WIDE;
            l[i].nodes = nodes[i];
        }
        for (int i = 0; i < n; i++) {
            l[i].depth = depth;
            l[i].noise = noise ? noise + i * G + depth : NULL;
        }
        run_level(c, l, n, out);
    }
}

static void test_neutral(void **state) {
    (void)state;
    for (int dialect = TINY_LUCEBOX; dialect <= TINY_UPSTREAM; dialect++) {
        struct scene c;
        struct guessed got;
        int32_t ids[G][K], anchor = 5;
        float logp[G][K];
        open_scene(&c);
        c.d.dialect = dialect;
        c.d.neutral = true;
        open_draft(&c);
        struct sequence *s = prompt(&c, 3, LEN);
        guess(&c, &s, NULL, 1, G, &got);
        sequence_destroy(s);
        draft_destroy(c.draft);
        c.d.gru = 0;
        open_draft(&c);
        struct dflash *d = draft_dflash(c.draft);
        s = prompt(&c, 3, LEN);
        assert_int_equal(dflash_draft(d, &s, &anchor, 1, &c.r.e), 0);
        exec_ops(c.r.x)->head_topk(c.r.x, &(struct topk_args){.logits = dflash_logits(d, 0, G),
                                                              .n = G,
                                                              .vocab = c.t.vocab,
                                                              .k = K,
                                                              .ids = ids[0],
                                                              .logp = logp[0]});
        for (int i = 0; i < G; i++)
            for (int j = 0; j < (i ? WIDE : 1); j++) {
                assert_memory_equal(got.ids[i][j], ids[i], sizeof ids[i]);
                assert_memory_equal(got.logp[i][j], logp[i], sizeof logp[i]);
            }
        sequence_destroy(s);
        close_scene(&c);
    }
}

// With corrections the nodes of a depth are not alike, and all but those that are left out differ
// from the block's own.
static void test_together(void **state) {
    (void)state;
    struct scene c;
    struct sequence *s[3];
    struct guessed all[3], alone, more;
    open_scene(&c);
    open_draft(&c);
    for (int i = 0; i < 3; i++)
        s[i] = prompt(&c, 7 + (uint64_t)i, LEN - 9 * i);
    guess(&c, s, NULL, 3, G, all);
    assert_memory_not_equal(all[0].logp[2][0], all[0].logp[2][1], sizeof all[0].logp[2][0]);
    assert_memory_not_equal(all[0].logp[2], all[1].logp[2], sizeof all[0].logp[2]);
    for (int i = 0; i < 3; i++) { // alone, the sequence's root is that of the first one
        struct draft_level l = {.seq = s[i], .root = 5 + i, .n = 1, .k = K, .depth = 0};
        assert_int_equal(draft_begin(c.draft, &l, 1, &c.r.e), 0);
        run_level(&c, &l, 1, &alone);
        assert_memory_equal(alone.ids[0][0], all[i].ids[0][0], sizeof alone.ids[0][0]);
        assert_memory_equal(alone.logp[0][0], all[i].logp[0][0], sizeof alone.logp[0][0]);
    }
    guess(&c, s, NULL, 1, G, &alone);
    assert_memory_equal(alone.ids, all[0].ids, sizeof alone.ids);
    assert_memory_equal(alone.logp, all[0].logp, sizeof alone.logp);
    guess(&c, s, NULL, 1, G, &more); // nothing is left of a draft
    assert_memory_equal(alone.logp, more.logp, sizeof alone.logp);
    for (int i = 0; i < 3; i++)
        sequence_destroy(s[i]);
    close_scene(&c);
}

static void test_reach(void **state) {
    enum { SHORT = 3 };
    (void)state;
    struct scene c;
    struct guessed whole, part, small;
    open_scene(&c);
    open_draft(&c);
    struct sequence *s = prompt(&c, 3, LEN);
    guess(&c, &s, NULL, 1, G, &whole);
    guess(&c, &s, NULL, 1, SHORT, &part);
    assert_memory_not_equal(whole.logp[0][0], part.logp[0][0], sizeof part.logp[0][0]);
    sequence_destroy(s);
    draft_destroy(c.draft);
    c.d.block = 1 + SHORT;
    open_draft(&c);
    assert_int_equal(draft_traits(c.draft).max_depth, SHORT);
    s = prompt(&c, 3, LEN);
    guess(&c, &s, NULL, 1, SHORT, &small);
    assert_memory_equal(&small, &part, sizeof part);
    sequence_destroy(s);
    draft_destroy(c.draft);
    c.d.shift = true; // the anchor's row guesses
    open_draft(&c);
    assert_int_equal(draft_traits(c.draft).max_depth, 1 + SHORT);
    close_scene(&c);
}

// Candidates are as far apart as corrected logits over the temperature and the noise of the draw.
static void test_noise(void **state) {
    (void)state;
    struct scene c;
    struct sample_row noise[G];
    float *logits = malloc(TINY_VOCAB * sizeof *logits);
    struct draft_node node = {0, 9, 1};
    struct draft_guesses found;
    open_scene(&c);
    open_draft(&c);
    struct sequence *s = prompt(&c, 3, LEN);
    for (int i = 0; i < G; i++)
        noise[i] = (struct sample_row){.pos = LEN + 1 + i, .seed = 77, .temperature = 0.5f};
    struct draft_level l = {.seq = s, .root = 5, .n = 1, .k = K, .noise = noise};
    assert_non_null(logits);
    assert_int_equal(draft_begin(c.draft, &l, 1, &c.r.e), 0);
    assert_int_equal(draft_run_level(c.draft, &l, 1, &found, &c.r.e), 0);
    l.depth = 1;
    l.nodes = &node;
    l.noise = noise + 1;
    assert_int_equal(draft_run_level(c.draft, &l, 1, &found, &c.r.e), 0);
    assert_int_equal(dflash_path_logits(draft_dflash(c.draft), 0, 0, logits, &c.r.e), 0);
    const uint64_t key = rng_mix(rng_mix(77) ^ (uint64_t)noise[1].pos);
    for (int i = 1; i < K; i++) {
        const int32_t a = found.ids[i - 1], b = found.ids[i];
        const float want = (logits[a] - logits[b]) / 0.5f + row_gumbel(key, a) - row_gumbel(key, b);
        if (!(fabsf(found.logp[i - 1] - found.logp[i] - want) < 1e-3f))
            fail_msg("candidates %d and %d are %g apart, not %g", i - 1, i,
                     (double)(found.logp[i - 1] - found.logp[i]), (double)want);
    }
    free(logits);
    sequence_destroy(s);
    close_scene(&c);
}

static void test_misuse(void **state) {
    (void)state;
    struct scene c;
    struct draft_guesses found;
    float none;
    open_scene(&c);
    open_draft(&c);
    struct sequence *s = prompt(&c, 3, LEN), *other = prompt(&c, 4, LEN);
    struct draft_node node = {0, 9, 1};
    struct draft_level root = {.seq = s, .root = 5, .n = 1, .k = K}, l = root;
    assert_int_equal(draft_run_level(c.draft, &l, 1, &found, &c.r.e), ERR_USAGE); // not begun
    assert_int_equal(dflash_path_logits(draft_dflash(c.draft), 0, 0, &none, &c.r.e), ERR_USAGE);
    assert_int_equal(draft_begin(c.draft, &root, 1, &c.r.e), 0);
    l.seq = other;
    assert_int_equal(draft_run_level(c.draft, &l, 1, &found, &c.r.e), ERR_USAGE);
    l = root;
    l.depth = 1;
    l.nodes = &node;
    assert_int_equal(draft_run_level(c.draft, &l, 1, &found, &c.r.e), ERR_USAGE); // no root yet
    assert_int_equal(draft_run_level(c.draft, &root, 1, &found, &c.r.e), 0);
    node.parent = 1;
    assert_int_equal(draft_run_level(c.draft, &l, 1, &found, &c.r.e), ERR_USAGE);
    node.parent = 0;
    node.token = (int32_t)c.t.vocab;
    assert_int_equal(draft_run_level(c.draft, &l, 1, &found, &c.r.e), ERR_USAGE);
    node.token = 9;
    l.n = DFLASH_WIDTH + 1;
    assert_int_equal(draft_run_level(c.draft, &l, 1, &found, &c.r.e), ERR_USAGE);
    l.n = 1;
    for (int i = 1; i < G; i++) {
        assert_int_equal(draft_run_level(c.draft, &l, 1, &found, &c.r.e), 0);
        node.parent++;
        node.depth = ++l.depth;
    }
    assert_int_equal(draft_run_level(c.draft, &l, 1, &found, &c.r.e), ERR_USAGE); // too deep
    sequence_destroy(s);
    sequence_destroy(other);
    close_scene(&c);
}

static const float *floats(const struct gguf *g, const char *name) {
    const struct tensor *t = gguf_tensor(g, name);
    assert_true(t && t->type == TYPE_F32);
    return t->data;
}

// Row r of a matrix of n columns times x.
static double row_times(const float *w, int64_t r, const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)w[r * n + i] * x[i];
    return sum;
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

// What a draft of Lucebox's form adds to the logits after the root, in double: joined [D + H] has
// the block's row, and gets the unit's state.
static void add_correction(const struct scene *c, const struct gguf *g, double *joined,
                           const float *embedding, double *logits) {
    enum { H = 32, E = 24 };
    const float *in = floats(g, "dflash.domino.gru.weight_ih");
    const float *rec = floats(g, "dflash.domino.gru.weight_hh");
    const float *in_bias = floats(g, "dflash.domino.gru.bias_ih");
    const float *rec_bias = floats(g, "dflash.domino.gru.bias_hh");
    const float *start = floats(g, "dflash.domino.start");
    const float *w1 = floats(g, "dflash.domino.head.w1"), *b1 = floats(g, "dflash.domino.head.b1");
    const float *w2 = floats(g, "dflash.domino.head.w2"), *b2 = floats(g, "dflash.domino.head.b2");
    const int64_t dim = c->t.dim;
    double x[256], state[H], a[3 * H], b[3 * H], hidden[E];
    assert_true(dim <= 256 && c->d.gru == H);
    for (int64_t i = 0; i < dim; i++)
        x[i] = (double)embedding[i];
    for (int i = 0; i < H; i++)
        state[i] = (double)start[i];
    for (int i = 0; i < 3 * H; i++) {
        a[i] = row_times(in, i, x, dim) + (double)in_bias[i];
        b[i] = row_times(rec, i, state, H) + (double)rec_bias[i];
    }
    for (int i = 0; i < H; i++) {
        const double z = sigmoid(a[H + i] + b[H + i]);
        const double fresh = tanh(a[2 * H + i] + sigmoid(a[i] + b[i]) * b[2 * H + i]);
        joined[dim + i] = (1 - z) * fresh + z * state[i];
    }
    for (int i = 0; i < E; i++) {
        const double v = row_times(w1, i, joined, dim + H) + (double)b1[i];
        hidden[i] = v * sigmoid(v);
    }
    for (int64_t i = 0; i < c->t.vocab; i++)
        logits[i] += row_times(w2, i, hidden, E) + (double)b2[i];
}

// Biases, and the state that the unit begins with.
static void test_lucebox(void **state) {
    (void)state;
    struct scene c;
    struct gguf *file = NULL, *target = NULL;
    struct draft_guesses found;
    float got[TINY_VOCAB];
    double want[TINY_VOCAB], joined[512];
    open_scene(&c);
    c.d.dialect = TINY_LUCEBOX;
    open_draft(&c);
    struct sequence *s = prompt(&c, 3, LEN);
    const struct draft_level l = {.seq = s, .root = 5, .n = 1, .k = K};
    struct dflash *d = draft_dflash(c.draft);
    assert_int_equal(gguf_open(&file, c.path, &c.r.e), 0);
    assert_int_equal(gguf_open(&target, c.r.target_path, &c.r.e), 0);
    assert_int_equal(draft_begin(c.draft, &l, 1, &c.r.e), 0);
    assert_int_equal(draft_run_level(c.draft, &l, 1, &found, &c.r.e), 0);
    const float *base = dflash_logits(d, 0, 1); // a CPU's memory is the host's
    for (int i = 0; i < c.t.vocab; i++)
        want[i] = (double)base[i];
    for (int i = 0; i < c.t.dim; i++)
        joined[i] = (double)d->domino->rows[i];
    add_correction(&c, file, joined, floats(target, "token_embd.weight") + 5 * c.t.dim, want);
    assert_int_equal(dflash_path_logits(d, 0, 0, got, &c.r.e), 0);
    for (int i = 0; i < c.t.vocab; i++)
        if (!(fabs((double)got[i] - want[i]) < 1e-4))
            fail_msg("token %d: logit %g, not %g", i, (double)got[i], want[i]);
    gguf_close(file);
    gguf_close(target);
    sequence_destroy(s);
    close_scene(&c);
}

// The drafter for guesses that depend on the path takes it, and a depth beyond which guesses do not
// pay shortens the block.
static void test_drafter(void **state) {
    (void)state;
    struct scene c;
    struct drafter *drafter = NULL;
    struct guessed want;
    struct ddtree tree;
    open_scene(&c);
    open_draft(&c);
    const struct draft_config config = {.model = c.r.m, .draft = c.draft, .max_k = K};
    assert_int_equal(drafter_create(&drafter, DRAFT_MODEL, &config, &c.r.e), 0);
    assert_true(drafter_by_path(drafter));
    assert_int_equal(drafter_max_depth(drafter), G);
    struct sequence *s = prompt(&c, 3, LEN);
    guess(&c, &s, NULL, 1, G, &want); // its first nodes are the best chain
    struct proposal p = {0}, *all = &p;
    const struct draft_request r = {.seq = s, .root = 5, .k = K, .max_depth = G};
    const struct tree_options one = {.budget = G, .k = 1, .max_depth = G};
    assert_int_equal(drafter_propose(drafter, &r, 1, &all, &c.r.e), 0);
    assert_int_equal(ddtree_build(&tree, 5, &p, &one, &c.r.e), 0);
    assert_int_equal(tree.n, 1 + G);
    for (int i = 0; i < G; i++)
        assert_int_equal(tree.token[1 + i], want.ids[i][0][0]);
    struct draft_request shorter = r;
    shorter.useful_depth = 2;
    guess(&c, &s, NULL, 1, 2, &want);
    assert_int_equal(drafter_propose(drafter, &shorter, 1, &all, &c.r.e), 0);
    assert_int_equal(ddtree_build(&tree, 5, &p, &one, &c.r.e), 0);
    assert_int_equal(tree.n, 1 + 2);
    assert_true(fabs(tree.score[1] - (double)want.logp[0][0][0]) < 1e-6);
    drafter_destroy(drafter);
    sequence_destroy(s);
    close_scene(&c);
}

static void test_plan(void **state) {
    (void)state;
    for (int dialect = TINY_LUCEBOX; dialect <= TINY_UPSTREAM; dialect++) {
        struct scene c;
        struct draft_plan plan;
        open_scene(&c);
        c.d.dialect = dialect;
        open_draft(&c);
        const struct draft_source s = {.path = c.path};
        if (draft_measure(&plan, &(struct draft_plan_args){c.r.x, c.r.g, &c.r.m->options, &s},
                          &c.r.e))
            fail_msg("%s", c.r.e.text);
        assert_int_equal(plan.weights, draft_dflash(c.draft)->load.weight_bytes);
        assert_int_equal(plan.scratch, draft_dflash(c.draft)->load.buffer_bytes);
        close_scene(&c);
    }
}

static void test_files(void **state) {
    (void)state;
    static const struct bad bad[] = {
        {ERR_FORMAT, "gru_hidden_dim", {.key = "dflash.domino.gru_hidden_dim", .kind = -1}},
        {ERR_FORMAT,
         "gru_hidden_dim",
         {.key = "dflash.domino.gru_hidden_dim", .kind = GGUF_U32, .value = 16385}},
        {ERR_UNSUPPORTED,
         "33 wide",
         {.key = "dflash.domino.gru_hidden_dim", .kind = GGUF_U32, .value = 33}},
        {ERR_MISMATCH,
         "dflash.domino.gru.weight_ih",
         {.key = "dflash.domino.gru_hidden_dim", .kind = GGUF_U32, .value = 64}},
        {ERR_FORMAT, "emb_dim", {.key = "dflash.domino.emb_dim", .kind = -1}},
        {ERR_MISMATCH,
         "dflash.domino.head.w1",
         {.key = "dflash.domino.emb_dim", .kind = GGUF_U32, .value = 32}},
        {ERR_FORMAT,
         "leaves 6 guesses",
         {.key = "dflash.domino.pure_draft_prefix_len", .kind = GGUF_U32, .value = B}},
        {0, "", {.key = "dflash.domino.pure_draft_prefix_len", .kind = -1}},
        {ERR_FORMAT,
         "shift_label",
         {.key = "dflash.domino.shift_label", .kind = GGUF_F32, .number = 1}},
        {0, "", {.key = "dflash.domino.shift_label", .kind = -1}},
        {ERR_MISMATCH, "dflash.domino.gru.weight_hh", {.tensor = "dflash.domino.gru.weight_hh"}},
        {ERR_MISMATCH, "dflash.domino.head.w1", {.tensor = "dflash.domino.head.w1"}},
        {ERR_MISMATCH, "no tensor dflash.domino.head.w2", {.tensor = "dflash.domino.head.w2"}},
        {ERR_MISMATCH,
         "dflash.domino.head.w2 is [24, 200] but [24, 300]",
         {.tensor = "dflash.domino.head.w2", .rows = 200}},
        {ERR_UNSUPPORTED, "dflash.domino", {.tensor = "dflash.domino.gru.weight_ih"}},
        {0, "", {.key = "dflash.domino.enabled", .kind = GGUF_U32, .value = 1}},
    };
    struct scene c;
    open_scene(&c);
    open_draft(&c);
    draft_destroy(c.draft);
    c.draft = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct draft *d = NULL;
        rewrite(c.path, c.edited, &bad[i].edit);
        const int rc = draft_open(&d, c.r.m, &(struct draft_source){.path = c.edited}, &c.r.e);
        if (rc != bad[i].code || (rc && !strstr(c.r.e.text, bad[i].word)))
            fail_msg("%s: code %d, '%s'", bad[i].word, rc, rc ? c.r.e.text : "taken");
        draft_destroy(d);
    }
    close_scene(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_neutral), cmocka_unit_test(test_together),
        cmocka_unit_test(test_reach),   cmocka_unit_test(test_noise),
        cmocka_unit_test(test_misuse),  cmocka_unit_test(test_drafter),
        cmocka_unit_test(test_plan),    cmocka_unit_test(test_lucebox),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
