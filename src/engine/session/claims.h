// SPDX-License-Identifier: Apache-2.0
// One device's memory budget: how much may be taken, and who has claimed how much of it for what.
// Arithmetic only; whoever loads claims first, and takes no more than that.
#ifndef COPPICE_ENGINE_SESSION_CLAIMS_H
#define COPPICE_ENGINE_SESSION_CLAIMS_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "ops/ops.h"

struct claim {
    char who[160];              // for sentences: the model's file
    int64_t bytes[EXEC_ARENAS]; // by what they are for
    struct claim *next;
};

// Zeroed: nobody has anything.
struct claims {
    struct claim *all; // the newest first
    int64_t own;       // what the backend has for itself, for all of them
};

int64_t claim_bytes(const struct claim *c);
int64_t claims_total(const struct claims *c); // own included

// what: who and bytes of it. available: bytes that nobody has claimed yet; 0: unknown, then nothing
// is refused. ERR_MEMORY with a sentence that says who holds what.
int claims_take(struct claims *c, const struct claim *what, int64_t available, struct claim **out,
                struct err *e);
void claims_give(struct claims *c, struct claim *one); // NULL is allowed

// "a.gguf holds 1.20 GiB (weights 1.00 GiB, ...)" for each claim; empty without any.
void claims_print(const struct claims *c, struct str *out);
// Puts the same behind the sentence in e, if anybody holds anything.
void claims_blame(const struct claims *c, struct err *e);

#endif
