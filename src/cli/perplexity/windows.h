// SPDX-License-Identifier: Apache-2.0
// Windows of a text, scored by a model: what `perplexity` prints and `bench kv` compares. The text
// is cut as llama.cpp's tool cuts it: each window begins with BOS in the place of its first token
// where the model requires BOS, and only the tokens of its second half count. Windows share passes
// of the target; each token's score is kept by its place, so that sums do not depend on which
// shared one.
#ifndef COPPICE_CLI_PERPLEXITY_WINDOWS_H
#define COPPICE_CLI_PERPLEXITY_WINDOWS_H

#include "cli/cli.h"
#include "cli/perplexity/reference.h"
#include "engine/session/session.h"

enum { WINDOWS_GROUP_MAX = 16 }; // windows of a pass where their number is left open

struct window_score {
    double nll, reference_nll, kl; // the last two where there is a reference
    bool same_top, whole;
};

// The caller sets what is above the line; a zeroed one is valid for windows_fini.
struct windows {
    struct session *s; // borrowed, as all pointers here but ids and score
    struct reference_shape shape;
    int32_t *ids;                     // [windows][window], of the text
    int threads;                      // that score rows; 0: all
    int64_t group;                    // windows of a pass; below 0: as many as fit
    const struct reference *compared; // NULL: with nothing
    const char *compared_name;        // in sentences
    struct file_new *saved;           // NULL, or an open file for the rows (reference_create)
    const char *label;                // before progress; NULL: none
    bool quiet;                       // progress only where it is redrawn on a terminal
    // ---
    struct window_score *score; // [windows][scored]
    struct window_pass *pass;
    double begin;  // ms
    int64_t shown; // tenths, where progress is not redrawn
};

// Cuts the text of -f (control tokens are not recognised, and a line end at the end of the file
// does not count), or the ids of --ids, into windows of shape.window tokens, at most --windows.
int windows_read(struct windows *p, const struct cli_args *a, struct err *e);

// Scores all windows; after an interrupt not all of them are. ERR_FORMAT: the model's logits are
// not finite, or a row of the reference holds no log-probabilities. It can be called again, for
// another session and reference of the same shape.
int windows_score(struct windows *p, struct err *e);
void windows_fini(struct windows *p);

// The token that scored token `place` of [windows][scored] is.
int32_t windows_target(const struct windows *p, int64_t place);

// Mean of values, its standard error, and the values in their order.
struct window_spread {
    double mean, error;
    const double *sorted;
};
struct windows_result {
    int64_t n, worst, same_top; // scored tokens; the place with the largest KL
    struct window_spread nll, kl;
    double reference; // perplexity of the reference
    double *values;   // what the spreads point at, the caller's to free
};
int windows_result(const struct windows *p, struct windows_result *r, struct err *e);

#endif
