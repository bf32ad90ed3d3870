// SPDX-License-Identifier: Apache-2.0
// Checkpoints with the name of their model, in memory and in files.
#include "models/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
static int text_of(struct model *m, struct str *identity, struct record_text *t, struct err *e) {
    model_identity(m, model_content(m), identity);
    *t = (struct record_text){.identity = identity->data, .vocab = m->params.vocab};
    return identity->failed ? err_set(e, ERR_MEMORY, "no memory for a checkpoint's identity") : 0;
}

int model_checkpoint_write(struct model *m, const struct checkpoint *c,
                           const struct token_tail *tail, const struct record_sink *to,
                           struct err *e) {
    struct str identity = {0};
    struct record_text t;
    int rc = text_of(m, &identity, &t, e);
    if (tail) {
        t.tail = tail->ids;
        t.n_tail = tail->n;
    }
    if (!rc)
        rc = record_save(c, &t, to, e);
    str_fini(&identity);
    return rc;
}

int model_checkpoint_read(struct model *m, struct checkpoint **out, struct token_tail *tail,
                          const struct record_source *from, struct err *e) {
    struct sequence_spec spec = model_spec(m);
    struct str identity = {0};
    struct record_text t;
    int rc = text_of(m, &identity, &t, e);
    if (!rc)
        rc = record_load(out, &spec, &t, from, e);
    str_fini(&identity);
    if (tail)
        *tail = (struct token_tail){t.tail, t.n_tail};
    else
        free(t.tail);
    return rc;
}

int model_checkpoint_save(struct model *m, const struct checkpoint *c,
                          const struct token_tail *tail, const char *path, struct err *e) {
    struct file_new f;
    const struct record_sink sink = {
        .sink = stored_to_file, .arg = &f, .rewrite = stored_over_file};
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
    struct stat info;
    int rc = fstat(fileno(f), &info) == 0 ? 0 : err_set(e, ERR_IO, "it cannot be read");
    if (!rc && !S_ISREG(info.st_mode))
        rc = err_set(e, ERR_IO, "it is no regular file");
    const struct record_source source = {stored_from_file, f, rc ? 0 : info.st_size};
    if (!rc)
        rc = model_checkpoint_read(m, out, tail, &source, e);
    fclose(f);
    return rc ? err_prefix(e, "%s", path) : 0;
}
