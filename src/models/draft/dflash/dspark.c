// SPDX-License-Identifier: Apache-2.0
// What tells a DSpark draft (arXiv 2607.05147) from DFlash, and what of its file is not read. Its
// folders have three spellings, settings at the top of config.json (DeepSpec, and speculators,
// which name their kind) or within dflash_config (SpecForge); in GGUF files the tensors tell. The
// Markov head itself is in selector.c. The confidence head, which chooses how much of a chain is
// verified, is passed over: the tree and its price do that (docs/drafts.md). So are copies of the
// target's embedding and head, but for a head of some tokens only.
#include <string.h>
#include <strings.h>

#include "models/draft/dflash/impl.h"
#include "models/params.h"

enum { MAX_RANK = 1 << 12, CANDIDATES = 16 };

// A Markov head: where its type comes from, and the type.
struct head {
    int64_t rank;
    const char *key, *type;
    size_t n;
};

static bool is_type(const struct head *h, const char *name) {
    return strlen(name) == h->n && strncasecmp(h->type, name, h->n) == 0;
}

static int take_head(struct dflash_params *p, const struct head *h, struct err *e) {
    if (h->rank == 0)
        return 0;
    if (is_type(h, "rnn"))
        return err_set(e, ERR_UNSUPPORTED,
                       "the draft's %s is rnn: a Markov head with a recurrent state is not "
                       "supported; use a DSpark draft whose head is vanilla or gated",
                       h->key);
    if (!is_type(h, "vanilla") && !is_type(h, "gated"))
        return err_set(e, ERR_UNSUPPORTED,
                       "the draft's %s is %.*s, which is not supported; vanilla and gated are",
                       h->key, (int)(h->n < 40 ? h->n : 40), h->type);
    p->pairs = is_type(h, "gated") ? DFLASH_PAIRS_GATED : DFLASH_PAIRS_MARKOV;
    p->selector_rank = (int)h->rank;
    p->selector_k = CANDIDATES;
    return 0;
}

int dflash_dspark_gguf(struct dflash_params *p, const struct draft_file *f, const char *arch,
                       struct err *e) {
    const struct tensor *w1 = gguf_tensor(f->g, "markov_w1.weight");
    struct head head = {.rank = w1 ? w1->ne[0] : 0};
    char key[PARAMS_KEY];
    int rc = gguf_get_bool(f->g, params_key(key, arch, "sample_from_anchor"), w1 != NULL,
                           &p->from_anchor, e);
    if (!rc)
        rc = gguf_get_str(f->g, params_key(key, arch, "markov_head_type"), &head.type, &head.n, e);
    if (rc)
        return rc;
    if (p->conv_taps) { // DFlash2's first row is no guess, whatever its files say
        p->from_anchor = false;
        return 0;
    }
    if (head.rank > MAX_RANK)
        return err_set(
            e, ERR_FORMAT,
            "the draft's tensor markov_w1.weight has rows of %lld values; at most %d are "
            "possible",
            (long long)head.rank, MAX_RANK);
    if (!head.type) {
        head.type = gguf_tensor(f->g, "markov_gate.weight") ? "gated" : "vanilla";
        head.n = strlen(head.type);
    }
    head.key = key;
    p->dspark = w1 != NULL;
    return take_head(p, &head, e);
}

static bool is_dspark(const struct json *c, int64_t rank) {
    static const char *const names[] = {"Qwen3DSparkModel", "Qwen3DSparkForCausalLM",
                                        "DSparkDraftModel", "DSparkSpeculator"};
    const char *arch = json_str(json_at(json_get(c, "architectures"), 0), NULL);
    const char *kind = json_str(dflash_config_find(c, "projector_type"), NULL);
    const char *of = json_str(json_get(c, "speculators_model_type"), NULL);
    bool named =
        rank > 0 || (kind && strcmp(kind, "dspark") == 0) || (of && strcmp(of, "dspark") == 0);
    for (size_t i = 0; arch && i < sizeof names / sizeof *names; i++)
        named |= strcmp(arch, names[i]) == 0;
    return named;
}

// Whether the anchor's row guesses: two keys say so, the one the contrary of the other. Where
// neither is there a DSpark draft's does, but for those of speculators, which wrote the key only
// since it can.
static int config_anchor(struct dflash_params *p, const struct json *c, struct err *e) {
    static const char *const keys[] = {"sample_from_anchor", "dspark_bonus_anchor"};
    p->from_anchor = p->dspark && json_kind_of(json_get(c, "speculators_model_type")) == JSON_NULL;
    for (int i = 1; i >= 0; i--) { // the first decides
        const struct json *v = dflash_config_find(c, keys[i]);
        if (json_kind_of(v) == JSON_BOOL)
            p->from_anchor = json_bool(v, false) != (i == 1);
        else if (json_kind_of(v) != JSON_NULL)
            return err_set(e, ERR_FORMAT, "config.json: %s must be true or false", keys[i]);
    }
    return 0;
}

int dflash_dspark_config(struct dflash_params *p, const struct json *c, struct err *e) {
    struct head head = {.key = "config.json: markov_head_type"};
    int rc = dflash_config_int(c, "markov_rank", 0, MAX_RANK, 0, &head.rank, e);
    if (rc || p->conv_taps) // DFlash2's first row is no guess, whatever its files say
        return rc;
    p->dspark = is_dspark(c, head.rank);
    head.type = json_str(dflash_config_find(c, "markov_head_type"), &head.n);
    if (!head.type) {
        head.type = "vanilla";
        head.n = strlen(head.type);
    }
    rc = config_anchor(p, c, e);
    return rc ? rc : take_head(p, &head, e);
}

// A tensor that the target has, too, and may have a shape of its own only where it is no copy.
static int pass_copy(const struct dflash *d, const struct tensor *t, struct err *e) {
    const int64_t dim = d->params.dim, vocab = d->target->params.vocab;
    if (!t || (t->ne[0] == dim && t->ne[1] == vocab && t->ne[2] == 1))
        return 0;
    return err_set(
        e, ERR_MISMATCH,
        "the draft's tensor %.100s is [%lld, %lld] but the target's is [%lld, %lld]; use "
        "the draft of this target",
        t->name, (long long)t->ne[0], (long long)t->ne[1], (long long)dim, (long long)vocab);
}

int dflash_dspark_pass_over(const struct dflash *d, bool *own, struct err *e) {
    static const char *const copies[] = {"token_embd.weight", "output.weight"};
    int rc = 0;
    *own = !d->params.dspark || dflash_file_find(&d->file, "d2t");
    if (!d->params.dspark)
        return 0;
    (void)dflash_file_find(&d->file, "conf_proj.weight");
    (void)dflash_file_find(&d->file, "conf_proj.bias");
    for (int i = 0; !rc && !*own && i < 2; i++)
        rc = pass_copy(d, dflash_file_find(&d->file, copies[i]), e);
    return rc;
}
