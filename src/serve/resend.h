// SPDX-License-Identifier: Apache-2.0
// Whether a request is one that is being answered already, sent again by a client that has lost
// sight of the answer: the same bytes under the same key, and marked as such, by an Idempotency-Key
// or by the count of retries that the SDKs send. It holds hashes only.
#ifndef COPPICE_SERVE_RESEND_H
#define COPPICE_SERVE_RESEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/http.h"

struct resend_mark {
    uint64_t body[2]; // hashes of the body, under two seeds
    uint64_t key;     // of the API key that was shown; 0: none
    uint64_t once;    // of the Idempotency-Key; 0: none
    size_t n;         // bytes of the body
    int count;        // of retries, as the client counts them
};

// seed: a number that strangers cannot know. Before the body is dropped.
void resend_mark_take(struct resend_mark *m, const struct exchange *x, uint64_t seed);
// Whether `again` is the request `first` sent again.
bool resend_mark_joins(const struct resend_mark *first, const struct resend_mark *again);

#endif
