// SPDX-License-Identifier: Apache-2.0
// One golden case: hyper-parameters, ids and right answers from tests/golden/data (made by
// tools/oracle/golden_fixtures.py), and the model built from them as files in a temporary folder.
#ifndef COPPICE_TESTS_GOLDEN_GOLDEN_H
#define COPPICE_TESTS_GOLDEN_GOLDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "golden/tiny_model.h"
#include "golden/tiny_store.h"

enum { GOLDEN_MAX_IDS = 256, GOLDEN_MAX_INDEX = 32, GOLDEN_MAX_PROBES = 64, GOLDEN_MAX_TOP = 32 };
// Of a prediction block or an EAGLE-3 draft after each context: the root, three guesses one after
// the other, and another token in the place of the first guess.
enum { GOLDEN_CHAIN = 4, GOLDEN_OTHER = GOLDEN_CHAIN, GOLDEN_MTP_ROWS };

struct golden_probe {
    char name[96];
    int64_t last, index;
    uint32_t bits;
};

struct golden {
    struct tiny_target target;
    struct tiny_draft draft;
    bool has_draft, has_mtp, has_eagle3;
    int32_t ids[GOLDEN_MAX_IDS];
    int n_ids;
    int index[GOLDEN_MAX_INDEX]; // target: positions of the rows; others: context lengths
    int n_index;
    int32_t anchors[GOLDEN_MAX_INDEX];                  // draft: [n_index]
    int32_t guesses[GOLDEN_MAX_INDEX][GOLDEN_MTP_ROWS]; // of a prediction block
    struct golden_probe probes[GOLDEN_MAX_PROBES];
    int n_probes;
    int64_t columns;   // of rows: the vocabulary, or the tokens of a draft's head
    struct str config; // of architectures whose folders stand in the fixture, with
    struct tiny_store tensors;
    struct str draft_config; // the same of drafts that are no plain ones
    struct tiny_store draft_tensors;
    // Domino: paths of tokens after the anchor, [n_index][n_paths][guesses - 1]. n_paths 0: another
    // kind; its draft has rows for each of them, of the token after it and after each on the way.
    int n_paths;
    int32_t *paths;
    // target: [n_index][vocab] logits; draft: [n_index][guesses][columns] log-probs; prediction
    // block and EAGLE-3: [n_index][GOLDEN_MTP_ROWS][columns] log-probs of the token after each
    float *rows;
    // DFlash2, DSpark: the best tokens of each row, [n_index][guesses][top], and the
    // log-probabilities of each after each of the row before, [n_index][guesses][top before][top];
    // before the first row there is only the anchor, whose line is repeated. top 0: another kind.
    int top;
    int32_t *candidates;
    const float *pairs; // behind rows
};

// Guesses of a draft's block.
int golden_guesses(const struct golden *g);
// Rows at each index.
int64_t golden_rows_per_index(const struct golden *g);

// data: the folder tests/golden/data; name: "r3_tied", "draft_full", ... ERR_IO, ERR_FORMAT.
int golden_load(struct golden *g, const char *data, const char *name, struct err *e);
void golden_fini(struct golden *g);

// A temporary folder with the target (and draft) in HuggingFace form and as F32 GGUF.
struct golden_files {
    char dir[64];          // root, removed by golden_files_fini
    char hf[96], gguf[96]; // target
    char draft_hf[96], draft_gguf[96];
};
int golden_files_make(struct golden_files *f, const struct golden *g, struct err *e);
void golden_files_fini(struct golden_files *f);

// ||a - b|| / ||b|| over n values, in double.
double golden_error(const float *a, const float *b, int64_t n);

// Turns n logits into log-probabilities in place.
void golden_log_softmax(float *x, int64_t n);

#endif
