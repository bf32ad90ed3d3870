// SPDX-License-Identifier: Apache-2.0
// DFlash as a kind of draft.
#include "models/draft/dflash/impl.h"

static bool takes(const char *path, const struct gguf *file, const struct gguf *target) {
    (void)path;
    (void)target;
    const char *name;
    size_t n;
    struct err none;
    return !file || (!gguf_get_str(file, "general.architecture", &name, &n, &none) &&
                     dflash_architecture(name, n));
}

static int open_dflash(void **self, struct model *target, const struct draft_source *s, bool dry,
                       struct err *e) {
    const struct dflash_options plain = dflash_options_default();
    const struct dflash_options *o = s->dflash ? s->dflash : &plain;
    struct dflash *d = NULL;
    if (s->path == DRAFT_OF_TARGET)
        return err_set(e, ERR_MISMATCH,
                       "the model's file has no draft in it; name one with -d, or none");
    int rc =
        dry ? dflash_load_dry(&d, target, s->path, o, e) : dflash_load(&d, target, s->path, o, e);
    *self = d;
    return rc;
}

static void destroy_dflash(void *self) {
    dflash_destroy(self);
}

static void plan_dflash(const void *self, struct draft_plan *out) {
    dflash_plan_of(self, out);
}

static struct draft_traits dflash_traits(const void *self) {
    const struct dflash_params *p = dflash_params_of(self);
    const int depth = dflash_guesses(p, p->block_size);
    return (struct draft_traits){.name = "dflash",
                                 .depends = p->gru_width       ? DRAFT_BY_PATH
                                            : p->selector_rank ? DRAFT_BY_PARENT
                                                               : DRAFT_BY_DEPTH,
                                 .max_depth = depth,
                                 .trained_depth = depth,
                                 .width = p->gru_width ? DFLASH_WIDTH : 0};
}

static void describe_dflash(const void *self, struct str *out) {
    const struct dflash_params *p = dflash_params_of(self);
    str_printf(out, "%s %d layers %lld wide, block %d", p->dialect, p->n_layers, (long long)p->dim,
               p->block_size);
    if (p->conv_taps)
        str_printf(out, ", convolutions of %d", p->conv_taps);
    if (p->selector_rank)
        str_printf(out, ", %s of rank %d",
                   p->pairs == DFLASH_PAIRS_SELECTOR ? "selector"
                   : p->pairs == DFLASH_PAIRS_GATED  ? "gated Markov head"
                                                     : "Markov head",
                   p->selector_rank);
    if (p->gru_width)
        str_printf(out, ", recurrent unit of %d", p->gru_width);
    if (dflash_head(self)->ids)
        str_printf(out, ", head of %lld tokens", (long long)dflash_head(self)->rows);
}

static bool knows(const void *self, int32_t token) {
    return draft_head_has(dflash_head(self), token);
}

const struct draft_class draft_class_dflash = {.name = "dflash",
                                               .takes = takes,
                                               .open = open_dflash,
                                               .destroy = destroy_dflash,
                                               .plan = plan_dflash,
                                               .traits = dflash_traits,
                                               .describe = describe_dflash,
                                               .knows = knows,
                                               .begin = dflash_domino_begin,
                                               .level = dflash_domino_level};
