// SPDX-License-Identifier: Apache-2.0
// The prediction block as a kind of draft.
#include "models/draft/mtp/impl.h"

static bool takes(const char *path, const struct gguf *file, const struct gguf *target) {
    (void)path;
    (void)target;
    return file && mtp_in_file(file, NULL);
}

static int open_mtp(void **self, struct model *target, const struct draft_source *s, bool dry,
                    struct err *e) {
    const struct mtp_options plain = {.codec_k = target->options.codec_k,
                                      .codec_v = target->options.codec_v};
    struct mtp_options o = s->mtp ? *s->mtp : plain;
    struct mtp *m = NULL;
    o.vocab = s->vocab;
    int rc = mtp_load(&m, target, s->path, &o, dry, e);
    *self = m;
    return rc;
}

static void destroy_mtp(void *self) {
    mtp_destroy(self);
}

static void plan_mtp(const void *self, struct draft_plan *out) {
    path_plan_of(&((const struct mtp *)self)->path, out);
}

static struct draft_traits mtp_traits(const void *self) {
    return path_traits(&((const struct mtp *)self)->path);
}

static void describe_mtp(const void *self, struct str *out) {
    const struct mtp *m = self;
    str_printf(out, "mtp block %d %lld wide, %s, depth %d", m->block,
               (long long)m->path.target->params.dim,
               m->experts          ? "experts"
               : m->attention_only ? "attention only"
                                   : "dense",
               m->path.depth);
    if (m->path.head.ids)
        str_printf(out, ", %lld of %lld tokens", (long long)m->path.head.rows,
                   (long long)m->path.target->params.vocab);
}

static bool knows(const void *self, int32_t token) {
    return draft_head_has(&((const struct mtp *)self)->path.head, token);
}

static struct path *path_of(void *self) {
    return mtp_path(self);
}

static int begin_mtp(void *self, const struct draft_level *l, int n, struct err *e) {
    return path_level_begin(mtp_path(self), l, n, e);
}

static int level_mtp(void *self, const struct draft_level *l, int n, struct draft_guesses *out,
                     struct err *e) {
    return path_level(mtp_path(self), l, n, out, e);
}

const struct draft_class draft_class_mtp = {.name = "mtp",
                                            .takes = takes,
                                            .open = open_mtp,
                                            .destroy = destroy_mtp,
                                            .plan = plan_mtp,
                                            .traits = mtp_traits,
                                            .describe = describe_mtp,
                                            .knows = knows,
                                            .path = path_of,
                                            .begin = begin_mtp,
                                            .level = level_mtp};
