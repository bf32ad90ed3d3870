// SPDX-License-Identifier: Apache-2.0
// EAGLE-3 as a kind of draft.
#include "models/draft/config.h"
#include "models/draft/eagle3/eagle3.h"
#include "models/draft/eagle3/impl.h"

static bool takes(const char *path, const struct gguf *file, const struct gguf *target) {
    struct json *config = NULL;
    struct err none;
    (void)target;
    if (file || path == DRAFT_OF_TARGET)
        return file && eagle3_in_file(file);
    bool yes = !draft_config_open(&config, path, &none) && eagle3_in_config(config);
    json_free(config);
    return yes;
}

static int open_eagle3(void **self, struct model *target, const struct draft_source *s, bool dry,
                       struct err *e) {
    const struct eagle3_options plain = {.codec_k = target->options.codec_k,
                                         .codec_v = target->options.codec_v};
    struct eagle3_options o = s->eagle3 ? *s->eagle3 : plain;
    struct eagle3 *m = NULL;
    o.vocab = s->vocab;
    int rc = eagle3_load(&m, target, s->path, &o, dry, e);
    *self = m;
    return rc;
}

static void destroy_eagle3(void *self) {
    eagle3_destroy(self);
}

static void plan_eagle3(const void *self, struct draft_plan *out) {
    path_plan_of(&((const struct eagle3 *)self)->path, out);
}

static struct draft_traits eagle3_traits(const void *self) {
    return path_traits(&((const struct eagle3 *)self)->path);
}

static void describe_eagle3(const void *self, struct str *out) {
    const struct eagle3 *m = self;
    str_printf(out, "eagle3 %lld wide, %d taps, depth %d", (long long)m->params.dim,
               m->params.n_taps, m->path.depth);
    if (m->path.head.ids)
        str_printf(out, ", %lld of %lld tokens", (long long)m->path.head.rows,
                   (long long)m->path.target->params.vocab);
}

static bool knows(const void *self, int32_t token) {
    return draft_head_has(&((const struct eagle3 *)self)->path.head, token);
}

static struct path *path_of(void *self) {
    return eagle3_path(self);
}

static int begin_eagle3(void *self, const struct draft_level *l, int n, struct err *e) {
    return path_level_begin(eagle3_path(self), l, n, e);
}

static int level_eagle3(void *self, const struct draft_level *l, int n, struct draft_guesses *out,
                        struct err *e) {
    return path_level(eagle3_path(self), l, n, out, e);
}

const struct draft_class draft_class_eagle3 = {.name = "eagle3",
                                               .takes = takes,
                                               .open = open_eagle3,
                                               .destroy = destroy_eagle3,
                                               .plan = plan_eagle3,
                                               .traits = eagle3_traits,
                                               .describe = describe_eagle3,
                                               .knows = knows,
                                               .path = path_of,
                                               .begin = begin_eagle3,
                                               .level = level_eagle3};
