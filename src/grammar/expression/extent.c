// SPDX-License-Identifier: Apache-2.0
// How short and how long the texts of an expression are, in bytes. A bound only: what two languages
// have in common may have neither such a short text nor such a long one, and what recurs or is
// nested deeply counts as anything.
#include "base/num.h"
#include "grammar/grammar_impl.h"

enum { DEPTH = 500, MOST = 1 << 30 };

static int64_t times(int64_t n, int64_t length) {
    return n == BUILD_ENDLESS ? (length ? MOST : 0) : min_i64(n * length, MOST);
}

static struct build_extent of_list(struct build *b, const struct expr *x, int depth) {
    bool seq = x->kind == EXPR_SEQ;
    struct build_extent all = {seq ? 0 : MOST, 0};
    for (uint32_t i = 0; i < x->b; i++) {
        struct build_extent one = build_extent(b, b->kids[x->a + i], depth + 1);
        all.least = seq ? min_i64(all.least + one.least, MOST) : min_i64(all.least, one.least);
        all.most = seq ? min_i64(all.most + one.most, MOST) : max_i64(all.most, one.most);
    }
    return all;
}

static struct build_extent of_rule(struct build *b, uint32_t at, int depth) {
    struct rule *r = &b->rules[at];
    if (!r->measured && r->defined) {
        r->measured = true;
        r->extent = (struct build_extent){0, MOST};
        r->extent = build_extent(b, r->expr, depth);
    }
    return r->measured ? r->extent : (struct build_extent){0, MOST};
}

struct build_extent build_extent(struct build *b, uint32_t expr, int depth) {
    const struct expr *x = &b->exprs[expr];
    struct build_extent one = {0, MOST}, other;
    if (depth >= DEPTH || !build_work(b, 1))
        return one;
    switch (x->kind) {
    case EXPR_NEVER:
    case EXPR_EMPTY:
        return (struct build_extent){0, 0};
    case EXPR_BYTES:
        return (struct build_extent){x->b, x->b};
    case EXPR_RANGE:
        return (struct build_extent){1, 1};
    case EXPR_CALL:
        return of_rule(b, x->a, depth + 1);
    case EXPR_SEQ:
    case EXPR_ALT:
        return of_list(b, x, depth);
    case EXPR_REPEAT:
    case EXPR_CHAIN:
        one = build_extent(b, x->a, depth + 1);
        return (struct build_extent){times(x->min, one.least), times(x->max, one.most)};
    case EXPR_AND:
        one = build_extent(b, x->a, depth + 1);
        other = build_extent(b, x->b, depth + 1);
        return (struct build_extent){max_i64(one.least, other.least),
                                     min_i64(one.most, other.most)};
    case EXPR_WITHOUT:
        return build_extent(b, x->a, depth + 1);
    default:
        return one;
    }
}
