// SPDX-License-Identifier: Apache-2.0
// Repetitions. One that would be too large to write out becomes calls of a rule. A part that may be
// empty could stand at every position of its repetition before anything has been read; a repetition
// of the part without the empty text says the same, and is what is built.
#include "base/num.h"
#include "grammar/grammar_impl.h"

enum {
    MOST_TIMES = 65536,
    WRITTEN_OUT = 96, // nodes of a repetition that is written out, at most
    DEPTH = 64,       // of what is looked into
    SEQ_SIZE = 96,    // nodes of a sequence of parts that may all be empty
};

enum { NULLABLE_NO = 1, NULLABLE_YES };

static bool nullable(struct build *b, uint32_t at, int depth);

static bool rule_nullable(struct build *b, uint32_t at, int depth) {
    struct rule *r = &b->rules[at];
    if (!r->nullable && r->defined && depth < DEPTH) {
        r->nullable = NULLABLE_NO;
        r->nullable = nullable(b, r->expr, depth + 1) ? NULLABLE_YES : NULLABLE_NO;
    }
    return r->nullable == NULLABLE_YES;
}

// Whether a text may be empty, as far as is known.
static bool nullable(struct build *b, uint32_t at, int depth) {
    build_work(b, 1);
    const struct expr *x = &b->exprs[at];
    bool all = true, any = false;
    switch (x->kind) {
    case EXPR_EMPTY:
        return true;
    case EXPR_CALL:
        return rule_nullable(b, x->a, depth);
    case EXPR_REPEAT:
    case EXPR_CHAIN:
        return x->min == 0 || (depth < DEPTH && nullable(b, x->a, depth + 1));
    case EXPR_SEQ:
    case EXPR_ALT:
        for (uint32_t i = 0;
             i < x->b && depth < DEPTH && !b->e.code && (x->kind == EXPR_SEQ ? all : !any); i++) {
            bool one = nullable(b, b->kids[x->a + i], depth + 1);
            all &= one;
            any |= one;
        }
        return depth < DEPTH && (x->kind == EXPR_SEQ ? all : any);
    default:
        return false;
    }
}

static uint32_t some_of(struct build *b, uint32_t at, int depth);

// Of parts that may all be empty: the first one that is not, with those behind it.
static uint32_t some_of_seq(struct build *b, const struct expr *x, int depth) {
    struct build_list list = {0};
    for (uint32_t i = 0; i < x->b; i++) {
        struct build_list rest = {0};
        build_add(b, &rest, some_of(b, b->kids[x->a + i], depth + 1));
        for (uint32_t k = i + 1; k < x->b; k++)
            build_add(b, &rest, b->kids[x->a + k]);
        build_add(b, &list, build_list_seq(b, &rest));
    }
    return build_list_alt(b, &list);
}

// A call of a rule, which may be empty, without the empty text.
static uint32_t some_of_rule(struct build *b, uint32_t at, int depth) {
    const uint32_t rule = b->exprs[at].a, expr = b->rules[rule].expr;
    if (!b->rules[rule].some) {
        b->rules[rule].some = at + 1;
        const uint32_t part = some_of(b, expr, depth + 1);
        if (part != expr)
            b->rules[rule].some = build_shared(b, part) + 1;
    }
    return b->rules[rule].some - 1;
}

// The expression without the empty text; as it is where that cannot be said.
static uint32_t some_of(struct build *b, uint32_t at, int depth) {
    if (b->e.code || depth >= DEPTH || !nullable(b, at, depth))
        return at;
    struct expr x = b->exprs[at];
    struct build_list list = {0};
    switch (x.kind) {
    case EXPR_EMPTY:
        return BUILD_NEVER;
    case EXPR_CALL:
        return some_of_rule(b, at, depth);
    case EXPR_REPEAT:
    case EXPR_CHAIN:
        return build_repeat(b, x.a, max_i32(x.min, 1), x.max);
    case EXPR_ALT:
        for (uint32_t i = 0; i < x.b; i++)
            build_add(b, &list, some_of(b, b->kids[x.a + i], depth + 1));
        return build_list_alt(b, &list);
    default:
        return x.size <= SEQ_SIZE ? some_of_seq(b, &x, depth) : at;
    }
}

uint32_t build_small_rule(struct build *b, uint32_t part) {
    if (b->exprs[part].kind == EXPR_CALL)
        return part;
    uint32_t rule = build_rule(b, "");
    build_define(b, rule, part);
    if (!b->e.code)
        b->rules[rule].clear = true;
    return build_call(b, rule);
}

uint32_t build_repeat(struct build *b, uint32_t part, int64_t min, int64_t max) {
    if (b->e.code)
        return BUILD_NEVER;
    if (min > MOST_TIMES)
        return build_fail(b, ERR_LIMIT,
                          "a part is to come at least %lld times; at most %d can be asked for",
                          (long long)min, MOST_TIMES);
    if (max > MOST_TIMES) // BUILD_ENDLESS is not
        max = MOST_TIMES;
    min = max_i64(min, 0);
    if (max != BUILD_ENDLESS && max < min)
        return BUILD_NEVER;
    if (max == 0 || part == BUILD_EMPTY)
        return BUILD_EMPTY;
    if (part == BUILD_NEVER)
        return min == 0 ? (uint32_t)BUILD_EMPTY : (uint32_t)BUILD_NEVER;
    if (min == 1 && max == 1)
        return part;
    uint32_t some = max == 1 ? part : some_of(b, part, 0);
    if (some != part) { // whoever may be empty may come less often
        part = some;
        min = 0;
    }
    if (part == BUILD_NEVER || b->e.code)
        return b->e.code ? BUILD_NEVER : BUILD_EMPTY;
    int64_t times = max_i64(max_i64(min, max), 1);
    int64_t size = min_i64(times * b->exprs[part].size + 1, BUILD_SIZE_MOST);
    struct expr x = {.kind = EXPR_REPEAT, .a = part, .min = (int32_t)min, .max = (int32_t)max};
    x.size = (uint32_t)size;
    if (times == 1 || size <= WRITTEN_OUT)
        return build_expr(b, x);
    x.kind = EXPR_CHAIN;
    x.a = build_small_rule(b, part);
    uint32_t rule = build_rule(b, "");
    build_define(b, rule, build_expr(b, x));
    if (!b->e.code)
        b->rules[rule].clear = true;
    return build_call(b, rule);
}
