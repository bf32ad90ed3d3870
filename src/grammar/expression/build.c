// SPDX-License-Identifier: Apache-2.0
// Expressions and rules; see build.h. An expression is a row of a table; what is trivial (empty
// parts, single parts) is simplified at once. Sizes are estimated here, so that what is too large
// to write out becomes calls of a rule.
#include "grammar/expression/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"
#include "grammar/expression/expr.h"

enum { MAX_EXPRS = 1 << 22 };

bool build_work(struct build *b, int64_t steps) {
    return !b->e.code && !grammar_work(b->work, steps, &b->e);
}

int build_create(struct build **out, struct grammar_work *work, size_t bytes, struct err *e) {
    struct build *b = calloc(1, sizeof *b);
    *out = b;
    if (!b)
        return err_set(e, ERR_MEMORY, "no memory for a grammar");
    b->work = work ? work : &b->own;
    if (!b->work->max)
        b->work->max = grammar_steps(bytes);
    int rc = vec_reserve(&b->exprs, &b->expr_cap, 64, sizeof *b->exprs, e);
    if (rc) {
        build_destroy(b);
        *out = NULL;
        return rc;
    }
    b->exprs[BUILD_NEVER] = (struct expr){.kind = EXPR_NEVER, .size = 1};
    b->exprs[BUILD_EMPTY] = (struct expr){.kind = EXPR_EMPTY, .size = 1};
    b->expr_count = 2;
    return 0;
}

void build_destroy(struct build *b) {
    if (!b)
        return;
    free(b->exprs);
    free(b->kids);
    free(b->rules);
    for (int64_t i = 0; i < b->graph_count; i++)
        graph_fini(&b->graphs[i]);
    free(b->graphs);
    str_fini(&b->data);
    free(b);
}

uint32_t build_fail(struct build *b, int code, const char *fmt, ...) {
    char text[sizeof b->e.text];
    va_list args;
    if (b->e.code)
        return BUILD_NEVER;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    err_set(&b->e, code, "%s", text);
    return BUILD_NEVER;
}

int build_error(const struct build *b, struct err *e) {
    return b->e.code ? err_set(e, b->e.code, "%s", b->e.text) : 0;
}

static uint32_t size_sum(uint64_t a, uint64_t b) {
    uint64_t sum = a + b;
    return sum < BUILD_SIZE_MAX ? (uint32_t)sum : BUILD_SIZE_MAX;
}

uint32_t build_expr(struct build *b, struct expr x) {
    if (!build_work(b, 2))
        return BUILD_NEVER;
    if (b->expr_count >= MAX_EXPRS)
        return build_fail(b, ERR_LIMIT, "the grammar has more than %d parts", MAX_EXPRS);
    if (vec_reserve(&b->exprs, &b->expr_cap, b->expr_count + 1, sizeof *b->exprs, &b->e))
        return BUILD_NEVER;
    b->exprs[b->expr_count] = x;
    return (uint32_t)b->expr_count++;
}

uint32_t build_bytes(struct build *b, const char *bytes, size_t n) {
    if (!build_work(b, (int64_t)n / 8))
        return BUILD_NEVER;
    if (n == 0)
        return BUILD_EMPTY;
    if (n > MAX_EXPRS || b->data.len > UINT32_MAX / 2)
        return build_fail(b, ERR_LIMIT, "the grammar has a text of more than %d bytes", MAX_EXPRS);
    size_t at = b->data.len;
    str_append(&b->data, bytes, n);
    if (b->data.failed)
        return build_fail(b, ERR_MEMORY, "no memory for the texts of a grammar");
    return build_expr(
        b, (struct expr){
               .kind = EXPR_BYTES, .a = (uint32_t)at, .b = (uint32_t)n, .size = (uint32_t)n});
}

uint32_t build_text(struct build *b, const char *text) {
    return build_bytes(b, text, strlen(text));
}

uint32_t build_range(struct build *b, uint8_t lo, uint8_t hi) {
    return lo > hi
               ? (uint32_t)BUILD_NEVER
               : build_expr(b, (struct expr){.kind = EXPR_RANGE, .lo = lo, .hi = hi, .size = 1});
}

// Copies parts after the kids that are there; `skip` is left out of them.
static uint32_t add_list(struct build *b, int kind, const uint32_t *parts, size_t n,
                         uint32_t skip) {
    uint32_t first = (uint32_t)b->kid_count, size = 1, count = 0;
    if (!build_work(b, (int64_t)n))
        return BUILD_NEVER;
    if (n > MAX_EXPRS || b->kid_count + (int64_t)n > 4 * (int64_t)MAX_EXPRS)
        return build_fail(b, ERR_LIMIT, "the grammar has more than %d parts", 4 * MAX_EXPRS);
    if (vec_reserve(&b->kids, &b->kid_cap, b->kid_count + (int64_t)n, sizeof *b->kids, &b->e))
        return BUILD_NEVER;
    for (size_t i = 0; i < n; i++) {
        if (parts[i] == skip)
            continue;
        b->kids[b->kid_count++] = parts[i];
        size = size_sum(size, b->exprs[parts[i]].size);
        count++;
    }
    if (count == 0)
        return skip;
    if (count == 1) {
        b->kid_count--;
        return b->kids[b->kid_count];
    }
    return build_expr(b,
                      (struct expr){.kind = (uint8_t)kind, .a = first, .b = count, .size = size});
}

uint32_t build_seq(struct build *b, const uint32_t *parts, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (parts[i] == BUILD_NEVER)
            return BUILD_NEVER;
    return add_list(b, EXPR_SEQ, parts, n, BUILD_EMPTY);
}

uint32_t build_alt(struct build *b, const uint32_t *parts, size_t n) {
    return add_list(b, EXPR_ALT, parts, n, BUILD_NEVER);
}

void build_add(struct build *b, struct build_list *list, uint32_t part) {
    if (!b->e.code &&
        !vec_reserve(&list->parts, &list->cap, list->count + 1, sizeof *list->parts, &b->e))
        list->parts[list->count++] = part;
}

static uint32_t close_list(struct build *b, struct build_list *list,
                           uint32_t (*join)(struct build *, const uint32_t *, size_t)) {
    uint32_t x = b->e.code ? BUILD_NEVER : join(b, list->parts, (size_t)list->count);
    free(list->parts);
    *list = (struct build_list){0};
    return x;
}

uint32_t build_list_seq(struct build *b, struct build_list *list) {
    return close_list(b, list, build_seq);
}

uint32_t build_list_alt(struct build *b, struct build_list *list) {
    return close_list(b, list, build_alt);
}

uint32_t build_cat(struct build *b, uint32_t first, uint32_t second) {
    return build_seq(b, (uint32_t[]){first, second}, 2);
}

uint32_t build_or(struct build *b, uint32_t one, uint32_t other) {
    return build_alt(b, (uint32_t[]){one, other}, 2);
}

static uint32_t add_pair(struct build *b, int kind, uint32_t one, uint32_t other) {
    if (b->e.code)
        return BUILD_NEVER;
    uint32_t size = size_sum(b->exprs[one].size, b->exprs[other].size);
    return build_expr(b, (struct expr){.kind = (uint8_t)kind, .a = one, .b = other, .size = size});
}

uint32_t build_and(struct build *b, uint32_t one, uint32_t other) {
    if (one == BUILD_NEVER || other == BUILD_NEVER)
        return BUILD_NEVER;
    return one == other ? one : add_pair(b, EXPR_AND, one, other);
}

uint32_t build_without(struct build *b, uint32_t one, uint32_t other) {
    if (one == BUILD_NEVER || other == BUILD_NEVER)
        return one;
    return add_pair(b, EXPR_WITHOUT, one, other);
}

uint32_t build_graph(struct build *b, struct graph *g) {
    int64_t at = b->graph_count;
    if (b->e.code || vec_reserve(&b->graphs, &b->graph_cap, at + 1, sizeof *b->graphs, &b->e)) {
        graph_fini(g);
        return BUILD_NEVER;
    }
    b->graphs[b->graph_count++] = *g;
    return build_expr(b, (struct expr){.kind = EXPR_GRAPH,
                                       .a = (uint32_t)at,
                                       .size = (uint32_t)b->graphs[at].node_count});
}

uint32_t build_rule(struct build *b, const char *name) {
    size_t n = strlen(name);
    if (!build_work(b, 2))
        return 0;
    if (b->rule_count >= MAX_EXPRS)
        return build_fail(b, ERR_LIMIT, "the grammar has more than %d rules", MAX_EXPRS);
    if (vec_reserve(&b->rules, &b->rule_cap, b->rule_count + 1, sizeof *b->rules, &b->e))
        return 0;
    b->rules[b->rule_count] = (struct rule){.name = (uint32_t)b->data.len, .n = (uint32_t)n};
    str_append(&b->data, name, n);
    if (b->data.failed)
        return build_fail(b, ERR_MEMORY, "no memory for the rules of a grammar");
    return (uint32_t)b->rule_count++;
}

void build_define(struct build *b, uint32_t rule, uint32_t expression) {
    if (b->e.code)
        return;
    b->rules[rule].expr = expression;
    b->rules[rule].defined = true;
}

uint32_t build_call(struct build *b, uint32_t rule) {
    return build_expr(b, (struct expr){.kind = EXPR_CALL, .a = rule, .size = 1});
}

uint32_t build_grid_call(struct build_grid *g, int64_t i, int64_t k) {
    uint32_t *rule = &g->rules[i * g->of_k + k];
    if (!*rule)
        *rule = build_rule(g->b, "") + 1;
    return build_call(g->b, *rule - 1);
}

uint32_t build_grid(struct build_grid *g) {
    g->rules = calloc((size_t)(g->of_i * g->of_k), sizeof *g->rules);
    if (!g->rules)
        return build_fail(g->b, ERR_MEMORY, "no memory for a schema");
    uint32_t x = build_grid_call(g, 0, 0);
    for (int64_t i = 0; i < g->of_i && !g->b->e.code; i++)
        for (int64_t k = 0; k < g->of_k; k++)
            if (g->rules[i * g->of_k + k])
                build_define(g->b, g->rules[i * g->of_k + k] - 1, g->write(g->arg, i, k));
    free(g->rules);
    return x;
}

uint32_t build_shared(struct build *b, uint32_t expression) {
    if (b->e.code || expression <= BUILD_EMPTY || b->exprs[expression].kind == EXPR_CALL)
        return expression;
    uint32_t rule = build_rule(b, "");
    build_define(b, rule, expression);
    return build_call(b, rule);
}

void build_json_how(struct build *b, const struct grammar_json *how) {
    if (how->marks != b->how.marks || how->space != b->how.space) // what was written otherwise
        b->space = b->strings = b->values = b->objects = b->arrays = 0;
    b->how = *how;
}

// How short and how long the texts of an expression are, in bytes. A bound only: what two languages
// have in common may have neither such a short text nor such a long one, and what recurs or is
// nested deeply counts as anything.

enum { EXTENT_DEPTH = 500, EXTENT_MAX = 1 << 30 };

static int64_t extent_times(int64_t n, int64_t length) {
    return n == BUILD_ENDLESS ? (length ? EXTENT_MAX : 0) : min_i64(n * length, EXTENT_MAX);
}

static struct build_extent extent_of_list(struct build *b, const struct expr *x, int depth) {
    bool seq = x->kind == EXPR_SEQ;
    struct build_extent all = {seq ? 0 : EXTENT_MAX, 0};
    for (uint32_t i = 0; i < x->b; i++) {
        struct build_extent one = build_extent(b, b->kids[x->a + i], depth + 1);
        all.least =
            seq ? min_i64(all.least + one.least, EXTENT_MAX) : min_i64(all.least, one.least);
        all.max = seq ? min_i64(all.max + one.max, EXTENT_MAX) : max_i64(all.max, one.max);
    }
    return all;
}

static struct build_extent extent_of_rule(struct build *b, uint32_t at, int depth) {
    struct rule *r = &b->rules[at];
    if (!r->measured && r->defined) {
        r->measured = true;
        r->extent = (struct build_extent){0, EXTENT_MAX};
        r->extent = build_extent(b, r->expr, depth);
    }
    return r->measured ? r->extent : (struct build_extent){0, EXTENT_MAX};
}

struct build_extent build_extent(struct build *b, uint32_t expr, int depth) {
    const struct expr *x = &b->exprs[expr];
    struct build_extent one = {0, EXTENT_MAX}, other;
    if (depth >= EXTENT_DEPTH || !build_work(b, 1))
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
        return extent_of_rule(b, x->a, depth + 1);
    case EXPR_SEQ:
    case EXPR_ALT:
        return extent_of_list(b, x, depth);
    case EXPR_REPEAT:
    case EXPR_CHAIN:
        one = build_extent(b, x->a, depth + 1);
        return (struct build_extent){extent_times(x->min, one.least),
                                     extent_times(x->max, one.max)};
    case EXPR_AND:
        one = build_extent(b, x->a, depth + 1);
        other = build_extent(b, x->b, depth + 1);
        return (struct build_extent){max_i64(one.least, other.least), min_i64(one.max, other.max)};
    case EXPR_WITHOUT:
        return build_extent(b, x->a, depth + 1);
    default:
        return one;
    }
}

// Repetitions. One that would be too large to write out becomes calls of a rule. A part that may be
// empty could stand at every position of its repetition before anything has been read; a repetition
// of the part without the empty text says the same, and is what is built.

enum {
    MAX_TIMES = 65536,
    WRITTEN_OUT = 96,    // nodes of a repetition that is written out, at most
    NULLABLE_DEPTH = 64, // of what is looked into
    SEQ_SIZE = 96,       // nodes of a sequence of parts that may all be empty
};

enum { NULLABLE_NO = 1, NULLABLE_YES };

static bool nullable(struct build *b, uint32_t at, int depth);

static bool rule_nullable(struct build *b, uint32_t at, int depth) {
    struct rule *r = &b->rules[at];
    if (!r->nullable && r->defined && depth < NULLABLE_DEPTH) {
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
        return x->min == 0 || (depth < NULLABLE_DEPTH && nullable(b, x->a, depth + 1));
    case EXPR_SEQ:
    case EXPR_ALT:
        for (uint32_t i = 0;
             i < x->b && depth < NULLABLE_DEPTH && !b->e.code && (x->kind == EXPR_SEQ ? all : !any);
             i++) {
            bool one = nullable(b, b->kids[x->a + i], depth + 1);
            all &= one;
            any |= one;
        }
        return depth < NULLABLE_DEPTH && (x->kind == EXPR_SEQ ? all : any);
    default:
        return false;
    }
}

static uint32_t some_of(struct build *b, uint32_t at, int depth);

// Of parts that may all be empty: the first one that is not, with those after it.
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
    if (b->e.code || depth >= NULLABLE_DEPTH || !nullable(b, at, depth))
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
    if (min > MAX_TIMES)
        return build_fail(b, ERR_LIMIT,
                          "a part is to come at least %lld times; at most %d can be asked for",
                          (long long)min, MAX_TIMES);
    if (max > MAX_TIMES) // BUILD_ENDLESS is not
        max = MAX_TIMES;
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
    if (some != part) { // what may be empty may come less often
        part = some;
        min = 0;
    }
    if (part == BUILD_NEVER || b->e.code)
        return b->e.code ? BUILD_NEVER : BUILD_EMPTY;
    int64_t times = max_i64(max_i64(min, max), 1);
    int64_t size = min_i64(times * b->exprs[part].size + 1, BUILD_SIZE_MAX);
    struct expr x = {.kind = EXPR_REPEAT, .a = part, .min = (int32_t)min, .max = (int32_t)max};
    x.size = (uint32_t)size;
    if (times == 1 || size <= WRITTEN_OUT)
        return build_expr(b, x);
    x.kind = EXPR_CHAIN;
    x.a = build_small_rule(b, part);
    return build_small_rule(b, build_expr(b, x));
}
