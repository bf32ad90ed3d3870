// SPDX-License-Identifier: Apache-2.0
// Log-probabilities behind the rows of a pass. They are asked for when the walks are done, of
// tokens that are known by then: those of prompts, and those that were chosen on the paths. So they
// come from the rows that decided, rows beside the paths cost nothing, and a row gives the same
// bits whether its token was chosen from a tree, chosen plainly, or given in a prompt.
#include "base/num.h"
#include "spec/step/impl.h"

static void ask(struct step *s, int64_t row, int32_t token, int n_best, struct sample_logprobs *p) {
    p->n = n_best;
    s->rows[row] = (struct sample_row){.given = true, .token = token, .logprobs = p};
}

static void ask_member(struct step *s, struct member *m) {
    int64_t known = step_known(m);
    for (int64_t i = 0; i < known; i++)
        ask(s, m->want - known + i, m->piece[i + 1], m->c.n_best, &m->known[i]);
    for (int i = 0; i < m->walk.count; i++)
        ask(s, m->want + m->walk.path[i], m->walk.chosen[i], m->c.n_best, &m->logprobs[i]);
}

// The wanted rows [at, at + n), which are one slice; those at its ends that nobody asks for are
// left out.
static void run_slice(struct step *s, int64_t at, int64_t n) {
    int64_t first = at, end = at + n;
    while (first < end && !s->rows[first].logprobs)
        first++;
    while (end > first && !s->rows[end - 1].logprobs)
        end--;
    if (first == end)
        return;
    const float *logits = model_logits(s->c.model, at, n) + (first - at) * s->vocab;
    exec_ops(s->x)->sample(s->x, logits, end - first, s->vocab, s->rows + first, s->choice + first);
}

int step_logprobs(struct step *s, int n, struct err *e) {
    int64_t most = model_logits_rows(s->c.model), wanted = model_wanted(s->c.model);
    bool any = false;
    for (int i = 0; i < n; i++)
        any = any || s->in[i]->c.logprobs;
    if (!any)
        return 0;
    for (int64_t row = 0; row < wanted; row++)
        s->rows[row] = (struct sample_row){.given = true};
    for (int i = 0; i < n; i++)
        if (s->in[i]->c.logprobs)
            ask_member(s, s->in[i]);
    for (int64_t at = 0; at < wanted; at += most)
        run_slice(s, at, min_i64(wanted - at, most));
    return exec_status(s->x, e);
}
