// SPDX-License-Identifier: Apache-2.0
// References to constraints, and what bits say.
#include "spec/constraint/constraint.h"

#include <stdlib.h>

int constraint_create(struct constraint **out, const struct constraint_class *class, void *self,
                      int64_t vocab, struct err *e) {
    struct constraint *c = calloc(1, sizeof *c);
    if (!c) {
        class->destroy(self);
        return err_set(e, ERR_MEMORY, "no memory for a constraint");
    }
    c->class = class;
    c->self = self;
    c->vocab = vocab;
    atomic_init(&c->refs, 1);
    *out = c;
    return 0;
}

struct constraint *constraint_keep(struct constraint *c) {
    if (c)
        atomic_fetch_add(&c->refs, 1);
    return c;
}

void constraint_drop(struct constraint *c) {
    if (!c || atomic_fetch_sub(&c->refs, 1) != 1)
        return;
    c->class->destroy(c->self);
    free(c);
}

struct constraint_view constraint_view_of(const uint32_t *allow, int64_t vocab) {
    struct constraint_view v = {.allow = allow, .only = -1, .none = true};
    int64_t words = (vocab + 31) / 32;
    for (int64_t i = 0; i < words; i++) {
        uint32_t word = allow[i];
        if (i == words - 1 && vocab % 32)
            word &= (1u << (vocab % 32)) - 1;
        if (!word)
            continue;
        bool one = v.none && !(word & (word - 1));
        v.none = false;
        v.only = one ? (int32_t)(i * 32 + __builtin_ctz(word)) : -1;
        if (!one)
            break;
    }
    return v;
}
