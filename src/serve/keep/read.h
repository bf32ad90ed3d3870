// SPDX-License-Identifier: Apache-2.0
// Lines of `coppice serve --keep-requests` read back: the request, what its reply was held to and
// ended by, and the answer that was given. The lines are written by serve/completion/keep.c.
#ifndef COPPICE_SERVE_KEEP_READ_H
#define COPPICE_SERVE_KEEP_READ_H

#include "engine/batch/request.h"
#include "serve/completion/constraint.h"
#include "serve/keep/setup.h"

// The first member of each line, and its value: the version of what follows.
#define KEEP_MARK "coppice_request"
enum { KEEP_VERSION = 1 };

// What constraints are made with, for lines that follow each other. Zeroed, with s set, is valid.
struct keep_reader {
    const struct session *s;
    struct tool_constraints *tools; // of the families below; NULL: none were needed
    enum tool_family calls;
    enum reasoning_family family;
};
void keep_reader_fini(struct keep_reader *r); // after all kept answers

struct kept_answer {
    struct json *line;
    const char *id; // in the line
    int choice;
    struct keep_setup setup;
    // The request, decoded plainly, with its constraint, and ended as it was. No more tokens than
    // one after those that were answered.
    struct request r;
    int32_t *prompt, *stop_ids, *ids; // of r, of r, [n] the answer
    int64_t n;
    struct logit_bias *bias; // of r
    bool whole;              // false: it was cut off
    bool length;             // whole: it ended by a limit
    bool has_hash;
    uint64_t hash;
    // Of the hook that ends the reply.
    struct stop_set stops;
    struct tool_set tools;
    struct reply_rules rules;
    struct reply_text text;
};

// Name and version of a line, which stay where the rest cannot be read; kept_answer_fini in any
// case. ERR_FORMAT: it is cut off or no such line; ERR_UNSUPPORTED: of a newer version; ERR_MEMORY.
int kept_answer_open(struct kept_answer *k, const char *line, size_t n, struct err *e);
// The rest. k may not move from here on. ERR_FORMAT: a member is missing or wrong; what is said of
// the texts of a constraint; ERR_MEMORY.
int kept_answer_read(struct kept_answer *k, struct keep_reader *r, struct err *e);
void kept_answer_fini(struct kept_answer *k); // zeroed is allowed

#endif
