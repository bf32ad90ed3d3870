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

static void describe_eagle3(const void *self, struct str *out) {
    const struct eagle3 *m = self;
    str_printf(out, "eagle3 %lld wide, %d taps, depth %d", (long long)m->params.dim,
               m->params.n_taps, m->path.depth);
    path_describe_head(&m->path, out);
}

const struct draft_class draft_class_eagle3 = {.name = "eagle3",
                                               .takes = takes,
                                               .open = open_eagle3,
                                               .destroy = destroy_eagle3,
                                               .plan = path_plan,
                                               .traits = path_traits,
                                               .describe = describe_eagle3,
                                               .knows = path_knows,
                                               .path = path_of,
                                               .begin = path_level_begin,
                                               .level = path_level};
