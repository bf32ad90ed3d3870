// SPDX-License-Identifier: Apache-2.0
// The newest constraints by the text that they were made of, for requests that ask for the same
// again: what a constraint has worked out about masks need not be worked out twice. Any thread.
#ifndef COPPICE_ENGINE_SESSION_CONSTRAINT_STORE_H
#define COPPICE_ENGINE_SESSION_CONSTRAINT_STORE_H

#include <pthread.h>

#include "base/str.h"
#include "spec/constraint/constraint.h"

enum { CONSTRAINT_STORE_MOST = 16 };

struct constraint_store {
    pthread_mutex_t lock; // of what follows
    struct constraint_kept {
        struct str key; // all that it was made of
        struct constraint *c;
        uint64_t used; // when it was asked for last; 0: none
    } kept[CONSTRAINT_STORE_MOST];
    uint64_t uses;
    int most;
};

void constraint_store_init(struct constraint_store *s, int most); // most <= CONSTRAINT_STORE_MOST
void constraint_store_fini(struct constraint_store *s);

// The one with this key, with a reference for the caller; NULL: there is none.
struct constraint *constraint_store_find(struct constraint_store *s, const struct str *key);
// Keeps it in place of the one that was not asked for longest, with a reference of its own. The key
// is taken over.
void constraint_store_keep(struct constraint_store *s, struct str *key, struct constraint *c);

#endif
