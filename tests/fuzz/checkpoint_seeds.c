// SPDX-License-Identifier: Apache-2.0
// Writes the seeds of fuzz_checkpoint: a state of the recurrent target, and one of the attention
// target with a draft.
// Usage: fuzz_checkpoint_seeds MODELS FOLDER, MODELS being tests/fuzz/corpus/model. The files are
// committed; run it again after fuzz_model_seeds or a change of the form.
#include <limits.h>
#include <stdio.h>

#include "models/checkpoint.h"
#include "models/draft/dflash/dflash.h"

// A checkpoint of n tokens; draft: its file, or NULL.
static int write_seed(char **folders, const char *name, const char *draft, int64_t n,
                      struct err *e) {
    struct exec *x = NULL;
    struct gguf *g = NULL;
    struct model *m = NULL;
    struct dflash *d = NULL;
    struct sequence *s = NULL;
    struct checkpoint *c = NULL;
    struct forest f = {0};
    struct model_options o = model_options_default();
    struct dflash_options od = dflash_options_default();
    int32_t ids[64], anchor = 3;
    char path[PATH_MAX];
    for (int32_t i = 0; i < 64; i++)
        ids[i] = i % 24;
    snprintf(path, sizeof path, "%s/%s", folders[0], name);
    o.max_ctx = 128;
    int rc = exec_create_cpu(&x, "scalar", 1, e);
    if (!rc)
        rc = gguf_open(&g, path, e);
    if (!rc)
        rc = model_load(&m, x, g, &o, e);
    snprintf(path, sizeof path, "%s/%s", folders[0], draft);
    if (!rc && draft)
        rc = dflash_load(&d, m, path, &od, e);
    if (!rc)
        rc = forest_init(&f, 64, e);
    if (!rc)
        rc = model_sequence(m, &s, e);
    for (int part = 0; !rc && part < 2; part++) { // the second half waits for the draft
        forest_reset(&f);
        forest_chain(&f, 0, sequence_len(s), ids, n / 2, true);
        rc = model_forward(m, &f, &s, 1, e);
        if (!rc && draft && part == 0)
            rc = dflash_draft(d, &s, &anchor, 1, e);
    }
    if (!rc)
        rc = sequence_checkpoint(s, &c, e);
    struct token_tail tail = {ids, 5};
    snprintf(path, sizeof path, "%s/%s", folders[1], draft ? "draft" : "recurrent");
    if (!rc)
        rc = model_checkpoint_save(m, c, &tail, path, e);
    checkpoint_destroy(c);
    sequence_destroy(s);
    forest_fini(&f);
    dflash_destroy(d);
    model_destroy(m);
    gguf_close(g);
    exec_destroy(x);
    return rc;
}

int main(int argc, char **argv) {
    struct err e = {0};
    if (argc != 3)
        return 2;
    int rc = write_seed(argv + 1, "target.gguf", NULL, 32, &e);
    if (!rc)
        rc = write_seed(argv + 1, "attention.gguf", "lucebox.gguf", 10, &e);
    if (rc)
        fprintf(stderr, "%s\n", e.text);
    return rc != 0;
}
