// SPDX-License-Identifier: Apache-2.0
// The writer of the Responses interface: typed events with ascending numbers, or one object. It is
// the answer side of struct dialect (serve/completion/completion.h); one choice a request. Loop
// thread only.
#ifndef COPPICE_SERVE_REPLY_RESPONSES_H
#define COPPICE_SERVE_REPLY_RESPONSES_H

#include "serve/completion/completion.h"

// What c->own is with this writer.
struct responses_own {
    // Fields of the request that the answer says again, an object; of the loop thread once the
    // answer is made.
    struct json *echo;
    int64_t sequence; // number of the next event
    bool summarises;  // reasoning goes out as its own summary: the client asked for one
    bool seals;       // reasoning goes out sealed, too (seal.h)
    bool keeps;       // the answer is kept for requests to come, with `input`
    struct str input; // JSON array of all items before the answer
};

// As struct dialect has them.
void responses_start(struct completion *c);
void responses_item_begin(struct completion *c, struct choice *k, const struct answer_item *it);
void responses_item_delta(struct completion *c, struct choice *k, const struct answer_item *it,
                          const struct answer_piece *p);
void responses_item_end(struct completion *c, struct choice *k, const struct answer_item *it);
void responses_end(struct completion *c);
void responses_error(struct completion *c, const struct api_error *why);
void responses_alive(struct completion *c);
void responses_whole(struct completion *c, struct json_writer *w);

#endif
