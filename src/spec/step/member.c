// SPDX-License-Identifier: Apache-2.0
// What a member of a step owns: its sampler, its masks, and room for log-probabilities. See step.h.
#include "spec/step/step.h"

#include <stdlib.h>
#include <string.h>

#include "spec/constraint/masks.h"

static int check_tree(const struct tree_options *t, struct err *e) {
    if (t->budget < 0 || t->budget > TREE_MAX_BUDGET)
        return err_set(e, ERR_USAGE, "a budget of %d nodes is not within 0 to %d", t->budget,
                       TREE_MAX_BUDGET);
    return 0;
}

static int make_logprobs(struct member *m, const struct model *model, struct err *e) {
    size_t known = (size_t)model_max_verify(model);
    if (m->c.n_best < 0 || m->c.n_best > OPS_LOGPROBS_MAX)
        return err_set(e, ERR_USAGE, "log-probabilities of %d best tokens are not within 0 to %d",
                       m->c.n_best, OPS_LOGPROBS_MAX);
    m->logprobs = calloc(TREE_MAX_DEPTH + 1, sizeof *m->logprobs);
    m->known = calloc(known, sizeof *m->known);
    if (!m->logprobs || !m->known)
        return err_set(e, ERR_MEMORY, "no memory for log-probabilities");
    return 0;
}

int member_init(struct member *m, const struct model *model, const struct member_config *c,
                struct err *e) {
    memset(m, 0, sizeof *m);
    m->c = *c;
    int rc = check_tree(&c->tree, e);
    // A device chooses behind every row in one batch, a CPU behind one row after the other.
    bool batched = exec_ops(model_exec(model))->sample_batched;
    if (!rc)
        rc = sampler_create(&m->sampler, &c->sample, batched ? 1 + c->tree.budget : 1,
                            (int)model_params_of(model)->vocab, e);
    if (!rc && c->logprobs)
        rc = make_logprobs(m, model, e);
    if (!rc && c->constraint)
        rc = masks_create(&m->masks, c->constraint, model_params_of(model)->vocab, e);
    return rc;
}

void member_fini(struct member *m) {
    sampler_destroy(m->sampler);
    masks_destroy(m->masks);
    free(m->logprobs);
    free(m->known);
    m->sampler = NULL;
    m->masks = NULL;
    m->logprobs = m->known = NULL;
}
