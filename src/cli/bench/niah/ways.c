// SPDX-License-Identifier: Apache-2.0
// Shortening cases. The control is the same compressor over a scorer that rolls dice.
#include "cli/bench/niah/ways.h"

#include <stdlib.h>
#include <string.h>

#include "cli/bench/niah/sweep.h"

// Of random pieces when no way before them kept anything.
static const double plain_share = 0.1;

const char *niah_way_name(enum niah_way w) {
    static const char *const names[NIAH_WAYS] = {"dense", "scorer", "anchors", "random"};
    return names[w];
}

static bool uses_scorer(enum niah_way w) {
    return w == NIAH_SCORER || w == NIAH_ANCHORS;
}

static const char *way_at(int i) {
    return niah_way_name((enum niah_way)i);
}

int niah_ways_read(struct niah_ways *w, const struct cli_args *a, struct err *e) {
    bool scorer = options_given(&a->opt, OPT_PREFILL_DRAFTER), used = false;
    const char *list = options_str(&a->opt, OPT_WAYS);
    int words[NIAH_WAYS];
    *w = (struct niah_ways){0};
    if (!list)
        list = scorer ? "dense,scorer,anchors,random" : "dense";
    int n = niah_words("ways", list, way_at, NIAH_WAYS, words, e);
    for (int i = 0; i < n; i++) {
        w->list[w->n++] = (enum niah_way)words[i];
        used = used || uses_scorer(w->list[i]);
    }
    if (n < 0)
        return n;
    if (used && !scorer)
        return err_set(e, ERR_USAGE,
                       "--ways %s needs a scorer; give one with --prefill-drafter FILE", list);
    if (scorer && !used)
        return err_set(e, ERR_USAGE, "no way of --ways %s uses --prefill-drafter", list);
    return prefill_options(&a->opt, &w->options, e);
}

// A scorer whose scores are random numbers.
struct dice {
    struct scorer base;
    struct rng rng;
};

static int roll(struct scorer *s, const struct score_call *c, struct err *e) {
    struct dice *d = (struct dice *)s;
    (void)e;
    for (int64_t i = 0; i < c->n; i++)
        c->out[i] = rng_unit(rng_next(&d->rng));
    return 0;
}

static void dice_destroy(struct scorer *s) {
    free(s);
}

static int open_dice(struct niah_ways *w, uint64_t seed, const struct tokenizer *t, struct err *e) {
    static const struct scorer_kind kind = {.score = roll, .destroy = dice_destroy};
    struct dice *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ERR_MEMORY, "no memory for random scores");
    d->base.kind = &kind;
    d->rng.state = rng_hash(seed, 0x64696365, 0, 0);
    return compressor_create(&w->chance, &d->base, t, e);
}

int niah_ways_open(struct niah_ways *w, const struct cli_args *a, struct exec *x,
                   const struct tokenizer *t, struct err *e) {
    struct score_options o;
    int rc = prefill_scorer_options(&a->opt, &o, e);
    for (size_t i = 0; i < w->n && !rc; i++) {
        if (w->list[i] == NIAH_RANDOM)
            rc = open_dice(w, (uint64_t)options_int(&a->opt, OPT_SEED), t, e);
        else if (uses_scorer(w->list[i]) && !w->scorer)
            rc = compressor_open(&w->scorer, x, options_str(&a->opt, OPT_PREFILL_DRAFTER), &o, e);
    }
    return rc;
}

void niah_ways_close(struct niah_ways *w) {
    compressor_close(w->scorer);
    compressor_close(w->chance);
    w->scorer = w->chance = NULL;
}

// Facts whose value lies in one piece.
static int64_t count_kept(const struct niah_case *c, const struct compress_result *r) {
    int64_t n = 0;
    for (int i = 0; i < c->n; i++) {
        const struct niah_needle *d = &c->needle[i];
        size_t end = d->value + strlen(d->fact.value);
        bool kept = false;
        for (int64_t k = 0; k < r->n_spans; k++)
            kept = kept || (r->spans[k].begin <= d->value && end <= r->spans[k].end);
        n += kept;
    }
    return n;
}

static int compress(struct niah_ways *w, enum niah_way way, const struct niah_case *c,
                    struct niah_short *out, struct err *e) {
    const struct compress_part part = {c->text.data, c->text.len};
    const struct compress_message message = {"user", &part, 1};
    const struct compress_conversation talk = {&message, 1};
    struct compress_options o = w->options;
    struct compress_result r = {0};
    o.select.anchors = way == NIAH_ANCHORS;
    if (way == NIAH_RANDOM)
        o.select.head = o.select.tail = 0;
    if (way == NIAH_RANDOM && (w->share > 0 || o.select.budget == SELECT_MASS)) {
        o.select.budget = SELECT_RATIO;
        o.select.keep = w->share > 0 ? w->share : plain_share;
    }
    int rc = compress_messages(way == NIAH_RANDOM ? w->chance : w->scorer, &talk, &o, &r, e);
    if (!rc) {
        compress_kept(&r, &talk, 0, 0, NULL, &out->text);
        out->kept = count_kept(c, &r);
        out->from = r.from;
        out->to = r.to;
        if (way != NIAH_RANDOM && r.from > 0)
            w->share = (double)r.to / (double)r.from;
    }
    compress_result_fini(&r);
    return rc;
}

int niah_shorten(struct niah_ways *w, enum niah_way way, const struct niah_case *c,
                 struct niah_short *out, struct err *e) {
    *out = (struct niah_short){0};
    if (way != NIAH_DENSE) {
        int rc = compress(w, way, c, out, e);
        if (rc)
            return rc;
    } else {
        str_append(&out->text, c->text.data, c->text.len);
        out->kept = c->n;
        out->from = out->to = c->tokens;
    }
    return out->text.failed ? err_set(e, ERR_MEMORY, "no memory for a shortened text") : 0;
}

void niah_short_fini(struct niah_short *s) {
    str_fini(&s->text);
}
