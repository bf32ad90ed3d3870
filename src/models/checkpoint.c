// SPDX-License-Identifier: Apache-2.0
// Checkpoints with the name of their model, in memory and in files.
#include "models/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "formats/content.h"
#include "models/model_impl.h"
#include "state/identity.h"

const struct gguf *model_file(const struct model *m) {
    return m->load.arg;
}

uint64_t model_content(struct model *m) {
    if (!m->content)
        m->content = content_whole(m->load.arg, 0, NULL);
    if (!m->content) // no memory
        m->content = content_sketch(m->load.arg) | 1;
    return m->content;
}

void model_identity(const struct model *m, uint64_t content, struct str *text) {
    const struct model_params *p = &m->params;
    const struct sequence_spec spec = model_spec(m);
    struct identity_of of = {
        .spec = &spec, .model = content, .device = model_kind(m), .ranks = m->ranks.n};
    of.ropes[0] = p->mla.kv_lora ? &p->mla.rope : &p->rope;
    of.ropes[1] = p->window.width ? &p->window.rope : NULL;
    identity_write(text, &of);
}

// identity: zeroed.
static int form_of(struct model *m, struct str *identity, struct checkpoint_form *f,
                   struct err *e) {
    model_identity(m, model_content(m), identity);
    *f = (struct checkpoint_form){.identity = identity->data, .vocab = m->params.vocab};
    return identity->failed ? err_set(e, ERR_MEMORY, "no memory for a checkpoint's identity") : 0;
}

int model_checkpoint_write(struct model *m, const struct checkpoint *c,
                           const struct token_tail *tail, const struct checkpoint_sink *to,
                           struct err *e) {
    struct str identity = {0};
    struct checkpoint_form f;
    int rc = form_of(m, &identity, &f, e);
    if (tail) {
        f.tail = tail->ids;
        f.n_tail = tail->n;
    }
    if (!rc)
        rc = checkpoint_write(c, &f, to, e);
    str_fini(&identity);
    return rc;
}

int model_checkpoint_read(struct model *m, struct checkpoint **out, struct token_tail *tail,
                          const struct checkpoint_source *from, struct err *e) {
    struct sequence_spec spec = model_spec(m);
    struct str identity = {0};
    struct checkpoint_form f;
    int rc = form_of(m, &identity, &f, e);
    if (!rc)
        rc = checkpoint_read(out, &spec, &f, from, e);
    str_fini(&identity);
    if (tail)
        *tail = (struct token_tail){f.tail, f.n_tail};
    else
        free(f.tail);
    return rc;
}

int model_checkpoint_save(struct model *m, const struct checkpoint *c,
                          const struct token_tail *tail, const char *path, struct err *e) {
    struct file_new f;
    struct checkpoint_sink sink = {stored_to_file, &f};
    int rc = file_new_open(&f, path, e);
    if (rc)
        return rc;
    rc = model_checkpoint_write(m, c, tail, &sink, e);
    if (rc) {
        file_new_abort(&f);
        return rc;
    }
    return file_new_close(&f, e);
}

int model_checkpoint_load(struct model *m, const char *path, struct checkpoint **out,
                          struct token_tail *tail, struct err *e) {
    FILE *f = fopen(path, "rbe");
    if (!f)
        return err_set(e, ERR_IO, "%s cannot be opened: %s", path, strerror(errno));
    struct checkpoint_source source = {stored_from_file, f};
    int rc = model_checkpoint_read(m, out, tail, &source, e);
    fclose(f);
    return rc ? err_prefix(e, "%s", path) : 0;
}
