// SPDX-License-Identifier: Apache-2.0
// Requests side by side; see together.h. Each prompt is run by itself, then members whose reply has
// not ended step together; the order among them stays.
#include "engine/together.h"

#include <stdlib.h>
#include <string.h>

#include "ops/exec.h"
#include "spec/crowd.h"

struct together {
    struct session *s;
    const struct request *r;
    struct reply *out;
    int n;
    struct crowd *crowd;
    struct crowd_member *members; // [n] of the requests that still run, packed
    int *request;                 // [n] whose they are
    struct sequence **seqs;       // [n]
    struct drafter **drafters;    // [n]
};

static bool is_stop(void *arg, int32_t id) {
    const struct together *t = arg;
    const struct tokenizer *words = session_tokenizer(t->s);
    return !t->r->ignore_eos && words && tokenizer_is_eog(words, id);
}

static struct walk_limits limits_of(struct together *t, int i) {
    const struct request *r = &t->r[i];
    int64_t context = model_max_ctx(session_model(t->s));
    return (struct walk_limits){.tokens_left = r->max_tokens - t->out[i].n,
                                .context_left = context - r->n_prompt - t->out[i].n,
                                .stop = is_stop,
                                .stop_arg = t};
}

static void take(struct reply *y, const struct walk *w) {
    memcpy(y->ids + y->n, w->chosen, (size_t)w->count * sizeof *y->ids);
    y->n += w->count;
    y->end = w->end;
}

static int make_drafter(struct together *t, int i, struct err *e) {
    enum speculate how = t->r->how;
    struct draft_config c = t->r[i].oracle;
    if (how != SPECULATE_ORACLE && how != SPECULATE_LOOKUP)
        return 0;
    c.model = session_model(t->s);
    c.max_k = t->r->tree.k;
    c.with_draft = false; // it runs over all sequences at once
    return drafter_create(&t->drafters[i], how == SPECULATE_ORACLE ? DRAFT_ORACLE : DRAFT_LOOKUP,
                          &c, e);
}

// Runs one request's prompt and chooses its first token.
static int begin(struct together *t, int i, struct err *e) {
    const struct request *r = &t->r[i];
    struct model *m = session_model(t->s);
    struct step_config c = {.model = m, .sample = t->r->sample, .hash = t->r->logit_hash};
    struct ddtree only = {.n = 1, .parent = {-1}};
    struct step *step = NULL;
    struct reply *y = &t->out[i];
    int64_t room = model_max_ctx(m) - r->n_prompt;
    int32_t first = 0;
    if (r->n_prompt < 1 || r->max_tokens < 1 || room < 1)
        return err_set(e, ERR_LIMIT,
                       "request %d needs a prompt, a token to make and room in a context of %lld",
                       i, (long long)model_max_ctx(m));
    y->ids = calloc((size_t)(r->max_tokens < room ? r->max_tokens : room) + 1, sizeof *y->ids);
    y->accepted = calloc((size_t)r->max_tokens + 1, sizeof *y->accepted);
    if (!y->ids || !y->accepted)
        return err_set(e, ERR_MEMORY, "no memory for %lld new tokens", (long long)r->max_tokens);
    int rc = make_drafter(t, i, e);
    if (!rc)
        rc = r->prefix ? sequence_fork(r->prefix, &t->seqs[i], e)
                       : model_sequence(m, &t->seqs[i], e);
    if (!rc)
        rc = step_create(&step, &c, e);
    for (int64_t done = rc ? 0 : sequence_len(t->seqs[i]), now; !rc && done < r->n_prompt;
         done += now) {
        int64_t left = r->n_prompt - done;
        now = left < model_max_rows(m) ? left : model_max_rows(m);
        rc = step_feed(step, t->seqs[i], r->prompt + done, now, now == left ? &first : NULL, e);
    }
    if (!rc) {
        struct walk_limits l = limits_of(t, i);
        struct walk w;
        walk_tree(&only, &first, &l, &w);
        take(y, &w);
        y->hash = step_hash(step);
    }
    step_destroy(step);
    return rc;
}

// The requests that still run, as members of the next step.
static int gather(struct together *t) {
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        const struct reply *y = &t->out[i];
        if (y->end != END_NONE)
            continue;
        t->request[n] = i;
        t->members[n++] = (struct crowd_member){.seq = t->seqs[i],
                                                .drafter = t->drafters[i],
                                                .root = y->ids[y->n - 1],
                                                .hash = y->hash,
                                                .limits = limits_of(t, i)};
    }
    return n;
}

static int run_steps(struct together *t, struct together_cost *cost, struct err *e) {
    for (int n; (n = gather(t)) > 0;) {
        int rc = crowd_step(t->crowd, t->members, n, e);
        if (rc)
            return rc;
        bool full = n == t->n;
        for (int m = 0; m < n; m++) {
            struct reply *y = &t->out[t->request[m]];
            const struct crowd_member *c = &t->members[m];
            y->accepted[y->steps++] = c->walk.count;
            y->drafted += c->rows - 1;
            y->hash = c->hash;
            take(y, &c->walk);
            cost->tokens += full ? c->walk.count : 0;
            cost->rows += full ? c->rows : 0;
        }
        if (full) {
            cost->steps++;
            cost->ms = crowd_times(t->crowd);
        }
    }
    return 0;
}

static int together_init(struct together *t, struct err *e) {
    const struct request *r = t->r;
    bool draft = r->how != SPECULATE_OFF && r->how != SPECULATE_LOOKUP;
    bool own = r->how == SPECULATE_TREE || r->how == SPECULATE_CHAIN;
    struct crowd_config c = {.model = session_model(t->s),
                             .draft = draft ? session_draft(t->s) : NULL,
                             .tree = r->tree,
                             .sample = r->sample,
                             .max_members = t->n,
                             .hash = r->logit_hash};
    if (own && !c.draft)
        return err_set(e, ERR_USAGE, "--speculate %s needs a draft model; give one with -d",
                       speculate_name(r->how));
    if (r->how == SPECULATE_OFF)
        c.tree.budget = 0;
    if (r->how == SPECULATE_CHAIN)
        c.tree.k = 1;
    size_t n = (size_t)t->n;
    t->members = calloc(n, sizeof *t->members);
    t->request = calloc(n, sizeof *t->request);
    t->seqs = calloc(n, sizeof *t->seqs);
    t->drafters = calloc(n, sizeof *t->drafters);
    if (!t->members || !t->request || !t->seqs || !t->drafters)
        return err_set(e, ERR_MEMORY, "no memory for %d requests", t->n);
    return crowd_create(&t->crowd, &c, e);
}

int together_generate(struct session *s, const struct request *r, int n, struct reply *out,
                      struct together_cost *cost, struct err *e) {
    struct together t = {.s = s, .r = r, .out = out, .n = n};
    *cost = (struct together_cost){0};
    memset(out, 0, (size_t)n * sizeof *out);
    int rc = together_init(&t, e);
    for (int i = 0; !rc && i < n; i++)
        rc = begin(&t, i, e);
    if (!rc)
        rc = run_steps(&t, cost, e);
    crowd_destroy(t.crowd);
    for (int i = 0; t.seqs && t.drafters && i < n; i++) {
        sequence_destroy(t.seqs[i]);
        drafter_destroy(t.drafters[i]);
    }
    free(t.members);
    free(t.request);
    free(t.seqs);
    free(t.drafters);
    return rc;
}
