// SPDX-License-Identifier: Apache-2.0
// Whole model files: a GGUF file of a target is loaded and runs a few tokens, with its prediction
// block if it has one; anything else is tried as the draft of a fixed tiny target; an input of
// parts is a draft's folder. Lying shapes and metadata must be refused before memory or time is
// spent on them.
#include "fuzz.h"

#include <string.h>

#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"
#include "models/draft/dflash/dflash.h"
#include "models/draft/eagle3/eagle3.h"
#include "models/draft/mtp/mtp.h"
#include "models/model.h"
#include "state/forest.h"

enum { ROWS = 4, CONTEXT = 128 };

static struct exec *cpu;
static struct gguf *target_file;
static struct model *target;

static struct model_options options(void) {
    struct model_options o = model_options_default();
    o.max_rows = ROWS;
    o.max_verify = ROWS;
    o.max_seqs = 1;
    o.max_ctx = CONTEXT;
    o.memory_limit = 64 << 20; // a mutated layer count may be legal, but must not be tried
    return o;
}

void fuzz_setup(void) {
    struct err e = {0};
    struct model_options o = options();
    FUZZ_CHECK(exec_create_cpu(&cpu, "scalar", 1, &e) == 0);
    FUZZ_CHECK(gguf_open(&target_file, FUZZ_CORPUS "/model/target.gguf", &e) == 0);
    FUZZ_CHECK(model_load(&target, cpu, target_file, &o, &e) == 0);
    fuzz_folder();
}

// Two guesses after the sequence.
static int guess(struct path *p, struct sequence *s, struct err *e) {
    const struct path_row rows[] = {{0, -1, 0}, {0, 0, 1}};
    int rc = path_begin(p, &s, 1, e);
    for (int i = 0; i < 2 && rc == 0 && path_ready(p, 0); i++) {
        rc = path_rows(p, &rows[i], 1, e);
        FUZZ_CHECK(rc || path_logits(p, 0, 1));
    }
    return rc;
}

// A prompt of three tokens and a plain step, with guesses of p (NULL: none) after each; nothing but
// memory may fail in a model that loaded.
static void decode(struct model *m, struct path *p, bool fragile) {
    struct sequence *s = NULL;
    struct forest f = {0};
    struct err e = {0};
    const int32_t prompt[] = {0, 1, 0};
    int rc = forest_init(&f, ROWS, &e);
    if (rc == 0)
        rc = model_sequence(m, &s, &e);
    for (int i = 0; i < 2 && rc == 0; i++) {
        forest_reset(&f);
        forest_chain(&f, 0, sequence_len(s), prompt, i ? 1 : 3, true);
        rc = model_forward(m, &f, &s, 1, &e);
        if (rc == 0 && p)
            rc = guess(p, s, &e);
    }
    fuzz_sentence(rc, &e);
    FUZZ_CHECK(fragile || rc == 0 || model_params_of(m)->vocab < 2);
    sequence_destroy(s);
    forest_fini(&f);
}

// path: DRAFT_OF_TARGET or of a sidecar.
static void try_block(struct model *m, const char *path, bool fragile) {
    struct mtp *p = NULL;
    struct err e = {0};
    const struct mtp_options o = mtp_options_default();
    int rc = mtp_load(&p, m, path, &o, false, &e);
    fuzz_sentence(rc, &e);
    FUZZ_CHECK(!rc == !!p);
    if (rc)
        return;
    decode(m, mtp_path(p), fragile);
    mtp_destroy(p);
}

static void try_target(const struct gguf *g, bool fragile) {
    struct model *m = NULL;
    struct err e = {0};
    struct model_options o = options();
    struct model_plan plan;
    struct model_params params;
    int planned = model_plan(&plan, &params, NULL, g, &o, &e);
    fuzz_sentence(planned, &e);
    e = (struct err){0};
    int rc = model_load(&m, cpu, g, &o, &e);
    fuzz_sentence(rc, &e);
    FUZZ_CHECK(!rc == !!m);
    if (rc)
        return;
    decode(m, NULL, fragile);
    if (mtp_in_file(g, NULL))
        try_block(m, DRAFT_OF_TARGET, fragile);
    model_destroy(m);
}

static void load_eagle3(const char *path, bool fragile) {
    struct eagle3 *d = NULL;
    struct err e = {0};
    const struct eagle3_options o = eagle3_options_default();
    int rc = eagle3_load(&d, target, path, &o, false, &e);
    fuzz_sentence(rc, &e);
    FUZZ_CHECK(!rc == !!d);
    if (!rc)
        decode(target, eagle3_path(d), fragile);
    eagle3_destroy(d);
}

static void load_draft(const char *path) {
    struct dflash *d = NULL;
    struct err e = {0};
    struct dflash_options o = dflash_options_default();
    int rc = dflash_load(&d, target, path, &o, &e);
    fuzz_sentence(rc, &e);
    FUZZ_CHECK(!rc == !!d);
    dflash_destroy(d);
}

enum kind { BLOCK, EAGLE3, OTHER };

static void try_draft(const uint8_t *data, size_t size, enum kind kind, bool fragile) {
    struct fuzz_file f;
    fuzz_file_open(&f, data, size);
    if (kind == BLOCK)
        try_block(target, f.path, fragile);
    else if (kind == EAGLE3)
        load_eagle3(f.path, fragile);
    else
        load_draft(f.path);
    fuzz_file_close(&f);
}

static void try_folder(const uint8_t *data, size_t size, bool fragile) {
    struct fuzz_part part;
    while (fuzz_part(&data, &size, &part))
        fuzz_folder_write(part.letter == 'c' ? "config.json" : "model.safetensors", part.data,
                          part.size);
    load_draft(fuzz_folder());
    load_eagle3(fuzz_folder(), fragile);
    fuzz_folder_clear();
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    struct gguf *g = NULL;
    struct err e = {0};
    const char *arch = NULL;
    size_t len = 0;
    if (fuzz_has_parts(data, size)) {
        try_folder(data, size, fragile);
        return;
    }
    if (gguf_open_memory(&g, data, size, &e))
        return;
    int rc = gguf_get_str(g, "general.architecture", &arch, &len, &e);
    static const char *const targets[] = {"qwen35", "qwen35moe", "qwen3",   "qwen3moe",
                                          "qwen2",  "llama",     "glm4moe", "deepseek2"};
    bool known = false;
    for (size_t i = 0; rc == 0 && i < sizeof targets / sizeof *targets; i++)
        known = known || (strlen(targets[i]) == len && memcmp(arch, targets[i], len) == 0);
    if (known && !mtp_sidecar(g))
        try_target(g, fragile);
    else
        try_draft(data, size, known ? BLOCK : eagle3_in_file(g) ? EAGLE3 : OTHER, fragile);
    gguf_close(g);
}
