// SPDX-License-Identifier: Apache-2.0
// Whether a request is one that is being answered already, sent again by a client that has lost
// sight of the answer: the same bytes under the same key, and marked as such. An Idempotency-Key
// says which request is meant. The count of retries that the SDKs send does not: of equal requests
// (several samples of one prompt, an evaluation, users of one key) it may be any one's, so it
// counts only for one whose client has closed its connection. Of keys and bodies it holds hashes.
#ifndef COPPICE_SERVE_REQUEST_RESEND_H
#define COPPICE_SERVE_REQUEST_RESEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/http/http.h"

struct resend_mark {
    uint64_t key;     // of the API key that was shown; 0: none
    uint64_t once;    // of the Idempotency-Key; 0: none
    int count;        // of retries, as the client counts them
    size_t n;         // bytes of the body
    uint64_t body[2]; // its hashes
};

// seed: a number that strangers cannot know. Before the body is dropped.
void resend_mark_take(struct resend_mark *m, const struct exchange *x, uint64_t seed);
// Whether `again` is marked as the request `first`, whose exchange is x, sent again.
bool resend_mark_joins(const struct resend_mark *first, const struct resend_mark *again,
                       const struct exchange *x);

#endif
