// SPDX-License-Identifier: Apache-2.0
// Records what a draft model guesses at every position of texts that its target decodes plainly.
// The texts of tests/fixtures/drafts are such records; `test_budget_texts RECORD` runs another one
// on simulated devices.
//
//     record_drafts TARGET DRAFT TOKENS TEMPERATURE PROMPTS.jsonl... >RECORD
//
// A text is a line "text ID PROMPT POSITIONS", PROMPT being its number of tokens, and then a line
// for every position, with three characters for each depth: see sim_read_text. Depths that no path
// of the draft's best guesses is likely to reach are left out.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/prompts.h"
#include "engine/session/session.h"
#include "spec/step/step.h"
#include "unit/sim_budget.h"

enum { MAX_TOKENS = SIM_TOKENS, CHUNK = 128 };

struct guess {
    int32_t ids[SIM_K];
    float logp[SIM_K];
};

// A drafter that asks the pair's own, keeps the answers and offers nothing: every token is decoded
// plainly.
struct recorder {
    struct drafter *draft;
    int n; // positions
    struct guess at[MAX_TOKENS][SIM_DEPTH];
};

static int recorder_create(void **self, const struct draft_config *c, struct err *e) {
    (void)e;
    *self = (void *)(uintptr_t)c->recording; // the recorder itself, borrowed
    return 0;
}

static void recorder_destroy(void *self) {
    (void)self;
}

static int recorder_max_depth(const void *self) {
    (void)self;
    return SIM_DEPTH;
}

static int recorder_propose(void *self, const struct draft_request *r, int n,
                            struct proposal *const *out, struct err *e) {
    struct recorder *rec = self;
    (void)n;
    (void)out;
    struct draft_request q = *r;
    struct proposal p = {0}, *to = &p;
    q.useful_depth = SIM_DEPTH;
    int rc = drafter_propose(rec->draft, &q, 1, &to, e);
    for (int d = 0; !rc && d < p.depth && d < SIM_DEPTH; d++) {
        struct guess *g = &rec->at[rec->n][d];
        memcpy(g->ids, p.ids + d * p.k, sizeof g->ids);
        memcpy(g->logp, p.logp + d * p.k, sizeof g->logp);
    }
    rec->n += !rc;
    return rc;
}

static const struct drafter_class recorder_class = {.name = "recorder",
                                                    .create = recorder_create,
                                                    .destroy = recorder_destroy,
                                                    .max_depth = recorder_max_depth,
                                                    .propose = recorder_propose};

static int level(double value, int levels) {
    return (int)fmin(fmax(round(value), 0), levels - 1);
}

// truth: the token that came there, -1: none is known.
static void print_guess(const struct guess *g, int32_t truth) {
    int rank = 0;
    while (rank < SIM_RANKS && g->ids[rank] != truth)
        rank++;
    int best = level(sqrt(-fmin((double)g->logp[0], 0)) / SIM_BEST, SIM_BESTS);
    putchar('!' + rank * SIM_BESTS + best);
    for (int k = 1; k < SIM_RANKS; k++)
        putchar('!' + level(-(double)g->logp[k] / SIM_OTHER, SIM_OTHERS));
}

// ids: [rec->n + 1] the tokens; the guesses of position i are about those after ids[i].
static void print_text(const char *id, const struct recorder *rec, int64_t prompt,
                       const int32_t *ids) {
    static const double unlikely = -6.5; // as in the last bin of budget.c
    printf("text %s %lld %d\n", id, (long long)prompt, rec->n);
    for (int i = 0; i < rec->n; i++) {
        double sum = 0;
        for (int d = 0; d < SIM_DEPTH && sum > unlikely; d++) {
            print_guess(&rec->at[i][d], i + d < rec->n ? ids[i + 1 + d] : -1);
            sum += (double)rec->at[i][d].logp[0];
        }
        putchar('\n');
    }
}

static int run(struct step *s, struct member *m, struct err *e) {
    int rc = step_run(s, &m, 1, e);
    if (!rc && m->rc)
        *e = m->err;
    return rc ? rc : m->rc;
}

// The prompt, then one token after the other, at most `tokens` or up to the one that ends the text.
static int decode(struct session *s, struct step *step, struct member *m,
                  const struct token_list *prompt, int32_t *ids, int tokens, struct err *e) {
    int rc = 0, n = 0;
    const int64_t length = (int64_t)prompt->count;
    m->limits = (struct walk_limits){.tokens_left = 1 << 20, .context_left = 1 << 20};
    m->phase = MEMBER_PROMPT;
    for (int64_t at = 0; !rc && at < length; at += m->n_piece) {
        m->piece = prompt->ids + at;
        m->n_piece = length - at < CHUNK ? length - at : CHUNK;
        m->choose = at + m->n_piece == length;
        rc = run(step, m, e);
    }
    m->phase = MEMBER_DECODE;
    for (; !rc; rc = run(step, m, e)) {
        m->root = ids[n++] = m->walk.chosen[0];
        if (n > tokens || tokenizer_is_eog(session_tokenizer(s), m->root))
            break;
    }
    return rc;
}

// What of each prompt is decoded, and how.
struct how {
    int tokens;
    double temperature;
};

static int record(struct session *s, const struct bench_prompt *p, struct how how, struct err *e) {
    static struct recorder rec;
    int32_t ids[MAX_TOKENS + 1];
    struct draft_config d = {.recording = (const int32_t *)(const void *)&rec};
    struct member_config c = {.tree = {.budget = 1, .k = SIM_K, .max_depth = SIM_DEPTH},
                              .n_drafters = 1};
    struct step_config sc = {.model = session_model(s), .max_members = 1};
    struct token_list prompt = {0};
    struct member m = {0};
    struct step *step = NULL;
    memset(&rec, 0, sizeof rec);
    rec.draft = session_drafters(s)[0];
    sample_params_init(&c.sample);
    c.sample.temperature = how.temperature;
    c.share_noise = true;
    int rc = drafter_create_class(&c.drafters[0], &recorder_class, &d, e);
    rc = rc ? rc : member_init(&m, sc.model, &c, e);
    rc = rc ? rc : step_create(&step, &sc, e);
    rc = rc ? rc : model_sequence(sc.model, &m.seq, e);
    rc = rc ? rc : session_encode(s, p->text, p->len, &prompt, e);
    rc = rc ? rc : decode(s, step, &m, &prompt, ids, how.tokens, e);
    if (!rc && rec.n)
        print_text(p->id, &rec, (int64_t)prompt.count, ids);
    sequence_destroy(m.seq);
    step_destroy(step);
    member_fini(&m);
    drafter_destroy(c.drafters[0]);
    token_list_fini(&prompt);
    return rc;
}

static int record_file(struct session *s, const char *path, struct how how, struct err *e) {
    struct bench_prompts prompts = {0};
    int rc = bench_prompts_read(&prompts, path, e);
    for (size_t i = 0; !rc && i < prompts.n; i++)
        rc = record(s, &prompts.prompts[i], how, e);
    bench_prompts_fini(&prompts);
    return rc;
}

int main(int argc, char **argv) {
    struct session_options o = session_options_default();
    struct session *s = NULL;
    struct err e = {0};
    struct how how = {.tokens = argc > 5 ? atoi(argv[3]) : 0};
    int rc = 0;
    if (how.tokens < 1 || how.tokens > MAX_TOKENS) {
        fprintf(stderr,
                "usage: record_drafts TARGET DRAFT TOKENS TEMPERATURE PROMPTS.jsonl...; TOKENS: 1 "
                "to %d\n",
                MAX_TOKENS);
        return 2;
    }
    how.temperature = strtod(argv[4], NULL);
    o.model = argv[1];
    o.draft = argv[2];
    o.device = "cpu";
    o.target.max_ctx = 2048;
    o.chunk = CHUNK;
    rc = session_open(&s, &o, &e);
    for (int i = 5; !rc && i < argc; i++)
        rc = record_file(s, argv[i], how, &e);
    if (rc)
        fprintf(stderr, "record_drafts: %s\n", e.text);
    session_close(s);
    return rc ? 1 : 0;
}
