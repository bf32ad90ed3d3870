// SPDX-License-Identifier: Apache-2.0
// The writer of chat completions and completions: chunks with `choices`, or one object with them,
// in the names and order that OpenAI clients read. It is the answer side of struct dialect
// (serve/completion/completion.h); what the two differ in is a struct chunk_form. Loop thread only.
#ifndef COPPICE_SERVE_REPLY_CHUNKS_H
#define COPPICE_SERVE_REPLY_CHUNKS_H

#include "serve/completion/completion.h"

struct chunk_form {
    const char *object, *chunk_object;
    void (*chunk)(struct json_writer *w, const struct answer_choice *c); // an element of choices
    void (*whole)(struct json_writer *w, const struct answer_choice *c);
    bool roles; // the first chunk of a choice says that the assistant speaks
};

// As struct dialect has them.
void chunks_start(struct completion *c);
void chunks_begin(struct completion *c, struct choice *k, const struct answer_item *it);
void chunks_delta(struct completion *c, struct choice *k, const struct answer_item *it,
                  const struct answer_piece *p);
void chunks_finish(struct completion *c, struct choice *k);
void chunks_end(struct completion *c);
void chunks_error(struct completion *c, const struct api_error *why);
void chunks_alive(struct completion *c);
void chunks_whole(struct completion *c, struct json_writer *w);

#endif
