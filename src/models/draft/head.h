// SPDX-License-Identifier: Apache-2.0
// The head of a draft: which tokens it can guess. A head that scores the whole vocabulary reads
// more bytes than the rest of a small draft, while nearly all tokens of a text are of the frequent
// ones; so a draft may have a copy of those rows alone. What is not in the list is never guessed.
// The target's own head is never cut, and its choices do not depend on what was guessed.
#ifndef COPPICE_MODELS_DRAFT_HEAD_H
#define COPPICE_MODELS_DRAFT_HEAD_H

#include <stdint.h>

#include "base/err.h"
#include "formats/gguf/gguf.h"
#include "models/draft/class.h"
#include "models/load.h"
#include "ops/args/args.h"

struct draft_head {
    const struct weight *w;
    int64_t rows;
    int32_t *ids;    // host [rows] tokens of the rows, ascending; NULL: of row i it is i
    int32_t *ids_of; // the same on the device
    int32_t *row_of; // host [rows] which row of the tensor that is, where it had some tokens only
};

struct draft_head_source {
    const char *tensor; // [dim, size], found by the load
    int64_t dim, size;
    bool loaded;                // the tensor is there already, as `whole`: used where all is scored
    const struct weight *whole; // NULL in a dry load
    const struct gguf *tokens;  // the file with the vocabulary
    struct draft_vocab_options vocab;
    // NULL, or the tokens of the tensor's rows, `size` integers, where a draft was trained for some
    // tokens only: these are then scored, all of them, whatever `vocab` says.
    const struct tensor *tokens_of;
    int64_t n_tokens; // of the target: where there are tokens_of
    bool offsets;     // tokens_of has how much each token is above the number of its row
};

// Chooses the tokens and loads their rows. Of h, which is zeroed, the load owns w and ids_of and
// draft_head_fini frees the rest. Errors as of load_weight; ERR_IO, ERR_FORMAT of the list's file.
int draft_head_load(struct draft_head *h, struct load *l, const struct draft_head_source *s,
                    struct err *e);
void draft_head_fini(struct draft_head *h);

bool draft_head_has(const struct draft_head *h, int32_t token); // whether it can be guessed
// The row of the file's tensor that has that token's weights; of one that cannot be guessed -1.
int64_t draft_head_row(const struct draft_head *h, int32_t token);

// head_topk of a->n rows of logits [n][h->rows], with token ids and with the noise of these tokens.
// The rest of *a is the caller's; vocab and ids_of are set.
void draft_head_topk(const struct draft_head *h, struct exec *x, struct topk_args *a);

#endif
