// SPDX-License-Identifier: Apache-2.0
// See claims.h.
#include "engine/session/claims.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/session/plan.h"

int64_t claim_bytes(const struct claim *c) {
    int64_t sum = 0;
    for (int i = 0; i < EXEC_ARENAS; i++)
        sum += c->bytes[i];
    return sum;
}

int64_t claims_total(const struct claims *c) {
    int64_t sum = c->own;
    for (const struct claim *one = c->all; one; one = one->next)
        sum += claim_bytes(one);
    return sum;
}

static void print_one(const struct claim *c, struct str *out) {
    static const char *const names[EXEC_ARENAS] = {[ARENA_WORK] = "workspace",
                                                   [ARENA_WEIGHTS] = "weights",
                                                   [ARENA_STATES] = "states",
                                                   [ARENA_PAGES] = "pages",
                                                   [ARENA_SLOTS] = "slots of experts"};
    static const enum exec_arena order[EXEC_ARENAS] = {ARENA_WEIGHTS, ARENA_SLOTS, ARENA_WORK,
                                                       ARENA_STATES, ARENA_PAGES};
    char size[PLAN_SIZE];
    plan_size(size, claim_bytes(c));
    str_printf(out, "%s holds %s", c->who, size);
    const char *before = " (";
    for (int i = 0; i < EXEC_ARENAS; i++) {
        int64_t bytes = c->bytes[order[i]];
        if (!bytes)
            continue;
        plan_size(size, bytes);
        str_printf(out, "%s%s %s", before, names[order[i]], size);
        before = ", ";
    }
    if (claim_bytes(c))
        str_putc(out, ')');
}

void claims_print(const struct claims *c, struct str *out) {
    for (const struct claim *one = c->all; one; one = one->next) {
        if (one != c->all)
            str_puts(out, "; ");
        print_one(one, out);
    }
}

void claims_blame(const struct claims *c, struct err *e) {
    struct str text = {0};
    claims_print(c, &text);
    if (e && text.len && !text.failed) {
        char before[sizeof e->text];
        snprintf(before, sizeof before, "%s", e->text);
        err_set(e, e->code, "%s; %s", before, text.data);
    }
    str_fini(&text);
}

int claims_take(struct claims *c, const struct claim *what, int64_t available, struct claim **out,
                struct err *e) {
    char need[PLAN_SIZE], have[PLAN_SIZE];
    *out = NULL;
    if (available > 0 && claim_bytes(what) > available) {
        plan_size(need, claim_bytes(what));
        plan_size(have, available);
        err_set(e, ERR_MEMORY, "%s wants %s of memory and %s may be taken", what->who, need, have);
        claims_blame(c, e);
        return ERR_MEMORY;
    }
    struct claim *one = malloc(sizeof *one);
    if (!one)
        return err_set(e, ERR_MEMORY, "no memory for a claim of memory");
    *one = *what;
    one->next = c->all;
    c->all = *out = one;
    return 0;
}

void claims_give(struct claims *c, struct claim *one) {
    for (struct claim **at = &c->all; one && *at; at = &(*at)->next) {
        if (*at != one)
            continue;
        *at = one->next;
        free(one);
        return;
    }
}
