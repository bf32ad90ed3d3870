// SPDX-License-Identifier: Apache-2.0
// Responses that are kept for clients, in memory, with the conversations that they answered:
// the newest ones, within bounds on number and bytes. Any thread.
#ifndef COPPICE_SERVE_REPLY_STORE_H
#define COPPICE_SERVE_REPLY_STORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/rng.h"
#include "base/str.h"

enum { RESPONSE_STORE_MAX = 512, RESPONSE_STORE_BYTES = 64 << 20 };

struct stored_response;

struct response_store {
    pthread_mutex_t lock;
    struct stored_response *newest;
    int n;
    size_t bytes;
};
void response_store_init(struct response_store *s);
void response_store_fini(struct response_store *s);

// Keeps a response (a JSON object) and its input (an array of items) under an id; nothing when they
// are larger than the bounds, or memory is short.
void response_store_put(struct response_store *s, const char *id, const struct str *response,
                        const struct str *input);
// Appends copies; NULL: not wanted. False when there is none of that id.
bool response_store_get(struct response_store *s, const char *id, struct str *response,
                        struct str *input);
// Bytes that are kept under an id; 0: nothing.
size_t response_store_size(struct response_store *s, const char *id);
// False when there was none.
bool response_store_drop(struct response_store *s, const char *id);

#endif
