// SPDX-License-Identifier: Apache-2.0
// What the files of `coppice verify` share: what has been compared so far, and how it is shown. A
// kept answer is given again plainly (kept.c); a prompt is decoded plainly and by guessing
// (prompts.c).
#ifndef COPPICE_CLI_VERIFY_VERIFY_H
#define COPPICE_CLI_VERIFY_VERIFY_H

#include "cli/models/decode.h"

struct verify {
    const struct cli_args *a;
    struct session *s;
    struct session_options used; // of s
    struct json_writer json;     // --json: the answers so far
    int64_t equal, different, skipped, tokens;
};

// One answer: what is known of it, and what came of it.
struct verdict {
    const char *id;
    int choice;      // -1: there is one only
    int64_t tokens;  // compared
    bool cut;        // it was cut off
    bool hashed;     // its logits were compared too
    int64_t at;      // the first token that differs; -1: none
    const char *why; // NULL: equal
    bool skipped;    // it could not be compared
};
// Counts it and shows its line. ERR_IO, ERR_MEMORY.
int verify_show(struct verify *v, const struct verdict *x, struct err *e);
// Shows the sum, or with --json all of it.
int verify_sum(struct verify *v, struct err *e);

// The lines of a file of `serve --keep-requests`. ERR_FORMAT: it has none of the id.
int verify_kept(struct verify *v, const char *path, struct err *e);
// The prompts of a file.
int verify_prompts(struct verify *v, const char *path, struct err *e);

#endif
