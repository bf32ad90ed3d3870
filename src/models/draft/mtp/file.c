// SPDX-License-Identifier: Apache-2.0
// Where the block's tensors are: in the target's file or in a sidecar, under the number that their
// names have.
#include <string.h>

#include "base/num.h"
#include "formats/content.h"
#include "models/checkpoint.h"
#include "models/draft/mtp/impl.h"

bool mtp_in_file(const struct gguf *g, int *block) {
    int lowest, n = params_nextn_blocks(g, &lowest);
    if (block)
        *block = lowest;
    return n > 0;
}

bool mtp_sidecar(const struct gguf *g) {
    int block;
    return params_is_sidecar(g, &block);
}

const struct gguf *mtp_file(const struct mtp *m) {
    return m->own ? m->own : model_file(m->path.target);
}

// Where a tensor is taken from: blocks from the file of the block, what models have once from the
// target's, but for a head that only the sidecar has so.
static const struct gguf *file_of(const struct mtp *m, const char *name) {
    const bool own =
        strncmp(name, "blk.", 4) == 0 || (m->own_output && strcmp(name, "output.weight") == 0);
    return own ? mtp_file(m) : model_file(m->path.target);
}

const struct tensor *mtp_find(const void *arg, const char *name) {
    return gguf_tensor(file_of(arg, name), name);
}

int mtp_check_file(const void *arg, struct err *e) {
    const struct mtp *m = arg;
    int rc = gguf_check(mtp_file(m), e);
    return rc || !m->own ? rc : gguf_check(model_file(m->path.target), e);
}

void mtp_done(const void *arg, const struct tensor *t) {
    gguf_release(file_of(arg, t->name), t);
}

const struct tensor *mtp_tensor(const struct mtp *m, const char *suffix) {
    char name[LOAD_NAME];
    return gguf_tensor(mtp_file(m), load_name(name, m->block, suffix));
}

int mtp_check_sidecar(const struct mtp *m, struct err *e) {
    const struct model_params *p = &m->path.target->params;
    char key[PARAMS_KEY];
    const char *arch;
    size_t len;
    int64_t dim;
    int rc = gguf_get_str(m->own, "general.architecture", &arch, &len, e);
    if (rc)
        return rc;
    if (!arch || len != strlen(p->arch) || memcmp(arch, p->arch, len) != 0)
        return err_set(e, ERR_MISMATCH,
                       "the prediction block is of architecture %.*s and the target of %s; use the "
                       "block of this target",
                       (int)(arch ? min_i64((int64_t)len, 64) : 4), arch ? arch : "none", p->arch);
    rc = meta_int(m->own, params_key(key, p->arch, "embedding_length"), 1, PARAMS_MAX_WIDTH, p->dim,
                  &dim, e);
    if (!rc && dim != p->dim)
        rc = err_set(e, ERR_MISMATCH,
                     "metadata key %s of the prediction block is %lld, but the target's width is "
                     "%lld; use the block of this target",
                     key, (long long)dim, (long long)p->dim);
    const struct gguf_kv *tokens = gguf_find(m->own, "tokenizer.ggml.tokens");
    if (!rc && tokens && tokens->count != (uint64_t)p->vocab)
        rc = err_set(e, ERR_MISMATCH,
                     "the prediction block is for a vocabulary of %llu tokens and the target has "
                     "%lld; use the block of this target",
                     (unsigned long long)tokens->count, (long long)p->vocab);
    return rc;
}

uint64_t mtp_content(struct mtp *m) {
    const struct gguf *g = mtp_file(m);
    const struct model_params *p = &m->path.target->params;
    char prefix[LOAD_NAME];
    struct hash h;
    if (m->content)
        return m->content;
    hash_begin(&h, 0);
    const size_t n = strlen(load_name(prefix, m->block, ""));
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        if (strncmp(t->name, prefix, n) == 0)
            content_add_tensor(&h, t);
    }
    const float numbers[] = {p->eps,         p->rope.base,           (float)p->rope.dims,
                             p->rope.factor, (float)p->rope.trained, p->rope.magnitude};
    hash_add(&h, numbers, sizeof numbers);
    m->content = hash_end(&h) | 1; // never 0
    return m->content;
}
