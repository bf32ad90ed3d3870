// SPDX-License-Identifier: Apache-2.0
// Requests that come again; see resend.h.
#include "serve/request/resend.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

static uint64_t hash_header(const struct exchange *x, const char *name, uint64_t seed) {
    const char *v = exchange_request_header(x, name);
    return v && v[0] ? hash_bytes(v, strlen(v), seed) | 1 : 0;
}

void resend_mark_take(struct resend_mark *m, const struct exchange *x, uint64_t seed) {
    size_t n;
    const char *body = exchange_body(x, &n);
    const char *count = exchange_request_header(x, "x-stainless-retry-count");
    long retries = count ? strtol(count, NULL, 10) : 0;
    *m = (struct resend_mark){.n = n};
    m->key = hash_header(x, "authorization", seed);
    if (!m->key)
        m->key = hash_header(x, "x-api-key", seed);
    m->once = hash_header(x, "idempotency-key", seed);
    m->count = retries > 0 && retries < 1000 ? (int)retries : 0;
    for (uint64_t i = 0; i < 2; i++)
        m->body[i] = hash_bytes(body, n, seed + i);
}

bool resend_mark_joins(const struct resend_mark *first, const struct resend_mark *again,
                       const struct exchange *x) {
    if (first->key != again->key || first->n != again->n || first->body[0] != again->body[0] ||
        first->body[1] != again->body[1])
        return false;
    if (first->once || again->once)
        return first->once == again->once;
    return again->count > first->count && exchange_left(x);
}
