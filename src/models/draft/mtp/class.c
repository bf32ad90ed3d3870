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

static void describe_mtp(const void *self, struct str *out) {
    const struct mtp *m = self;
    str_printf(out, "mtp block %d %lld wide, %s, depth %d", m->block,
               (long long)m->path.target->params.dim,
               m->experts          ? "experts"
               : m->attention_only ? "attention only"
                                   : "dense",
               m->path.depth);
    path_describe_head(&m->path, out);
}

const struct draft_class draft_class_mtp = {.name = "mtp",
                                            .takes = takes,
                                            .open = open_mtp,
                                            .destroy = destroy_mtp,
                                            .plan = path_plan,
                                            .traits = path_traits,
                                            .describe = describe_mtp,
                                            .knows = path_knows,
                                            .path = path_of,
                                            .begin = path_level_begin,
                                            .level = path_level};
