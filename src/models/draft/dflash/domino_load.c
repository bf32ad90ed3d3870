// SPDX-License-Identifier: Apache-2.0
// Domino's settings, weights and workspace. What tells such a draft from DFlash: projector_type
// within dflash_config of the authors' folders, or tensors and keys of GGUF files, under the names
// that Lucebox's converter gives them. Lucebox's own drafts correct all guesses, have no key for
// that, and have biases and a state that the unit begins with.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "models/draft/dflash/domino.h"
#include "models/params.h"

enum { MAX_UNIT = 1 << 14, MAX_HEAD = 1 << 12 };

static void take(struct dflash_params *p, int64_t width, int64_t head, int64_t skip) {
    p->gru_width = (int)width;
    p->gru_head = (int)head;
    p->gru_skip = (int)skip;
}

int dflash_domino_gguf(struct dflash_params *p, const struct draft_file *f, const char *arch,
                       struct err *e) {
    static const char *const names[] = {"gru_hidden_dim", "emb_dim", "pure_draft_prefix_len"};
    static const int64_t max[] = {MAX_UNIT, MAX_HEAD, DFLASH_MAX_BLOCK};
    char key[PARAMS_KEY], part[64];
    int64_t value[3] = {0};
    int rc = 0;
    const char *place = f->dialect == DIALECT_UPSTREAM ? "domino" : "dflash.domino";
    if (!gguf_tensor(f->g, "dflash.domino.gru.weight_ih")) {
        (void)snprintf(part, sizeof part, "%s.enabled", place);
        rc = meta_int(f->g, params_key(key, arch, part), 0, 1, 0, &value[0], e);
        return rc || !value[0] ? rc
                               : err_set(e, ERR_MISMATCH,
                                         "the draft has the key %s but no tensor "
                                         "dflash.domino.gru.weight_ih; get the file again",
                                         key);
    }
    for (int i = 0; !rc && i < 3; i++) {
        (void)snprintf(part, sizeof part, "%s.%s", place, names[i]);
        rc = meta_int(f->g, params_key(key, arch, part), i < 2, max[i], 0, &value[i], e);
    }
    (void)snprintf(part, sizeof part, "%s.shift_label", place);
    if (!rc)
        rc = gguf_get_bool(f->g, params_key(key, arch, part), false, &p->from_anchor, e);
    take(p, value[0], value[1], value[2]);
    return rc;
}

int dflash_domino_config(struct dflash_params *p, const struct json *c, struct err *e) {
    const struct json *shift = dflash_config_find(c, "shift_label");
    const char *kind = json_str(dflash_config_find(c, "projector_type"), NULL);
    int64_t width, head, skip;
    if (!kind || (strcmp(kind, "domino") != 0 && strcmp(kind, "causal_v5") != 0))
        return 0;
    int rc = dflash_config_int(c, "gru_hidden_dim", 1, MAX_UNIT, 0, &width, e);
    if (!rc)
        rc = dflash_config_int(c, "emb_dim", 1, MAX_HEAD, 0, &head, e);
    if (!rc)
        rc = dflash_config_int(c, "pure_draft_prefix_len", 0, DFLASH_MAX_BLOCK, 0, &skip, e);
    if (!rc && json_kind_of(shift) != JSON_NULL && json_kind_of(shift) != JSON_BOOL)
        rc = err_set(e, ERR_FORMAT, "config.json: shift_label must be true or false");
    if (rc)
        return rc;
    p->from_anchor = json_bool(shift, false);
    take(p, width, head, skip);
    return 0;
}

int dflash_domino_check(const struct dflash_params *p, struct err *e) {
    if (!p->gru_width)
        return 0;
    if (p->gru_width % 32)
        return err_set(e, ERR_UNSUPPORTED,
                       "the draft's recurrent unit is %d wide (gru_hidden_dim); only multiples of "
                       "32 are supported",
                       p->gru_width);
    if (p->gru_skip >= p->block_size)
        return err_set(e, ERR_FORMAT,
                       "the draft leaves %d guesses as they are (pure_draft_prefix_len), and a "
                       "block has %d tokens; get the file again",
                       p->gru_skip, p->block_size);
    if (p->conv_taps)
        return err_set(e, ERR_UNSUPPORTED,
                       "the draft has both convolutions (conv_kernel_size) and a recurrent unit "
                       "(gru_hidden_dim), which is not supported");
    return 0;
}

static int64_t nodes_of(const struct dflash *d) {
    return (int64_t)d->target->options.max_seqs * DFLASH_WIDTH;
}

static int load_matrices(struct dflash *d, struct domino *m, struct err *e) {
    const struct dflash_params *p = &d->params;
    const int64_t h = p->gru_width, head = p->gru_head;
    struct load *l = &d->load;
    const struct {
        const char *name;
        int64_t n;
        float **out;
    } biases[] = {{"dflash.domino.gru.bias_ih", 3 * h, &m->in_bias},
                  {"dflash.domino.gru.bias_hh", 3 * h, &m->rec_bias},
                  {"dflash.domino.head.b1", head, &m->down_bias}};
    int rc = load_weight(l, "dflash.domino.gru.weight_ih", p->dim, 3 * h, &m->in, e);
    if (!rc)
        rc = load_weight(l, "dflash.domino.gru.weight_hh", h, 3 * h, &m->rec, e);
    if (!rc)
        rc = load_weight(l, "dflash.domino.head.w1", p->dim + h, head, &m->down, e);
    for (int i = 0; !rc && i < 3; i++)
        if (dflash_file_find(&d->file, biases[i].name))
            rc = load_floats(l, biases[i].name, biases[i].n, 1, biases[i].out, e);
    if (!rc)
        rc = dflash_codebook_find(d, "head", "dflash.domino.head.w2", head, d->target->params.vocab,
                                  &m->up, e);
    if (!rc && dflash_file_find(&d->file, "dflash.domino.head.b2"))
        rc = load_host_floats(l, "dflash.domino.head.b2", d->target->params.vocab, &m->up_bias, e);
    if (!rc && dflash_file_find(&d->file, "dflash.domino.start"))
        rc = load_host_floats(l, "dflash.domino.start", h, &m->start, e);
    return rc;
}

static int load_workspace(struct dflash *d, struct domino *m, struct err *e) {
    const struct dflash_params *p = &d->params;
    const int64_t n = nodes_of(d), h = p->gru_width, seqs = d->target->options.max_seqs;
    struct load *l = &d->load;
    const struct {
        int64_t n;
        float **out;
    } buffers[] = {{seqs * dflash_guesses(p, p->block_size) * p->dim, &m->rows},
                   {n * p->dim, &m->embedded},
                   {n * 3 * h, &m->of_input},
                   {n * 3 * h, &m->of_state},
                   {n * h, &m->old},
                   {n * h, &m->fresh},
                   {n * (p->dim + h), &m->joined},
                   {n * p->gru_head, &m->corrected}};
    int rc = 0;
    for (size_t i = 0; !rc && i < sizeof buffers / sizeof *buffers; i++)
        rc = load_buffer(l, buffers[i].n, buffers[i].out, e);
    if (!rc)
        rc = load_act(l, n, p->dim, &m->act_in, e);
    if (!rc)
        rc = load_act(l, n, h, &m->act_rec, e);
    return rc ? rc : load_act(l, n, p->dim + h, &m->act_down, e);
}

static int host_arrays(const struct dflash *d, struct domino *m, struct err *e) {
    const size_t n = (size_t)nodes_of(d), seqs = (size_t)d->target->options.max_seqs;
    const size_t rows = seqs * (size_t)dflash_guesses(&d->params, d->params.block_size);
    const size_t head = (size_t)d->params.gru_head, h = (size_t)d->params.gru_width;
    const size_t k = (size_t)m->k;
    m->members = calloc(seqs, sizeof *m->members);
    m->seqs = calloc(seqs, sizeof *m->seqs);
    m->roots = calloc(seqs, sizeof *m->roots);
    m->ids = calloc(rows * k, sizeof *m->ids);
    m->logp = calloc(rows * k, sizeof *m->logp);
    m->noise = calloc(rows, sizeof *m->noise);
    m->token = calloc(n, sizeof *m->token);
    m->parent = calloc(n, sizeof *m->parent);
    m->row = calloc(n, sizeof *m->row);
    m->self = calloc(n, sizeof *m->self);
    m->states = calloc(2 * n * h, sizeof *m->states);
    m->gates = calloc(6 * n * h, sizeof *m->gates);
    m->before = calloc(n * h, sizeof *m->before);
    m->after = calloc(n * h, sizeof *m->after);
    m->hidden = calloc(n * head, sizeof *m->hidden);
    m->up_rows = calloc(k * head, sizeof *m->up_rows);
    m->score = calloc(k, sizeof *m->score);
    m->out_ids = calloc(n * DOMINO_MAX_K, sizeof *m->out_ids);
    m->out_logp = calloc(n * DOMINO_MAX_K, sizeof *m->out_logp);
    if (!m->members || !m->seqs || !m->roots || !m->ids || !m->logp || !m->noise || !m->token ||
        !m->parent || !m->row || !m->self || !m->states || !m->gates || !m->before || !m->after ||
        !m->hidden || !m->up_rows || !m->score || !m->out_ids || !m->out_logp)
        return err_set(e, ERR_MEMORY, "no memory for a draft's recurrent unit");
    for (size_t i = 0; i < n; i++)
        m->self[i] = (int32_t)i;
    return 0;
}

int dflash_domino_load(struct dflash *d, struct err *e) {
    struct domino *m = calloc(1, sizeof *m);
    d->domino = m;
    if (!m)
        return err_set(e, ERR_MEMORY, "no memory for a draft's recurrent unit");
    m->k = (int)min_i64(DOMINO_SCORED, d->head.rows);
    int rc = load_matrices(d, m, e);
    if (!rc)
        rc = load_workspace(d, m, e);
    return rc || d->load.dry ? rc : host_arrays(d, m, e);
}

void dflash_domino_fini(struct dflash *d) {
    struct domino *m = d->domino;
    if (!m)
        return;
    free(m->members);
    free(m->seqs);
    free(m->roots);
    free(m->ids);
    free(m->logp);
    free(m->noise);
    free(m->token);
    free(m->parent);
    free(m->row);
    free(m->self);
    free(m->states);
    free(m->gates);
    free(m->before);
    free(m->after);
    free(m->hidden);
    free(m->up_rows);
    free(m->score);
    free(m->out_ids);
    free(m->out_logp);
    free(m);
}
