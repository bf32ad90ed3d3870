// SPDX-License-Identifier: Apache-2.0
// Statements; see run.h. break and continue are results that a list of statements hands up to its
// loop.
#include "text/jinja/eval/run.h"

#include "text/jinja/eval/eval.h"
#include "text/jinja/eval/loop.h"
#include "text/jinja/value/text.h"

enum { BREAK = 1, CONTINUE = 2 }; // beside 0 and errors

static int run_text(struct jinja_context *c, const struct jinja_node *node) {
    return jinja_put_string(c, node->value.as.s);
}

static int run_print(struct jinja_context *c, const struct jinja_node *node) {
    struct jinja_value v;
    int rc = jinja_eval(c, node->a, &v);
    return rc ? rc : jinja_put_str(c, v);
}

static int run_if(struct jinja_context *c, const struct jinja_node *node) {
    for (;;) {
        struct jinja_value v;
        c->line = node->line;
        int rc = jinja_eval(c, node->a, &v);
        if (rc)
            return rc;
        if (jinja_is_true(v))
            return jinja_run(c, node->body);
        const struct jinja_node *other = node->b;
        if (!other || other->type != NODE_IF || other->next)
            return jinja_run(c, other);
        node = other;
    }
}

// Runs a body in a scope of its own.
static int run_inside(struct jinja_context *c, struct jinja_scope *scope,
                      const struct jinja_node *body) {
    struct jinja_scope *outside = c->scope;
    if (!scope)
        return c->e.code;
    c->scope = scope;
    int rc = jinja_run(c, body);
    c->scope = outside;
    return rc;
}

static int run_scope(struct jinja_context *c, const struct jinja_node *node) {
    return run_inside(c, jinja_scope_new(c, c->scope), node->body);
}

// The condition of "for ... if", in a scope that has the item only.
static int takes_part(struct jinja_context *c, struct jinja_loop *loop, struct jinja_value item,
                      bool *result) {
    struct jinja_scope *current = c->scope;
    struct jinja_value v;
    c->scope = jinja_scope_new(c, loop->outside);
    int rc = c->scope ? jinja_assign_target(c, loop->node->a, item) : c->e.code;
    if (!rc)
        rc = jinja_eval(c, loop->node->c, &v);
    *result = !rc && jinja_is_true(v);
    c->scope = current;
    return rc;
}

static int run_pass(struct jinja_context *c, struct jinja_loop *loop, struct jinja_scope *scope,
                    struct jinja_value item) {
    const struct jinja_node *node = loop->node;
    struct jinja_value self = {.kind = JINJA_LOOP, .as.p = loop};
    int rc = 0;
    scope->n = 0;
    c->scope = scope;
    if (node->uses || node->flag)
        rc = jinja_assign(c, ID_LOOP, self);
    if (!rc)
        rc = jinja_assign_target(c, node->a, item);
    if (!rc)
        rc = jinja_run(c, node->body);
    c->scope = loop->outside;
    return rc;
}

int jinja_run_loop(struct jinja_context *c, const struct jinja_node *node, struct jinja_value items,
                   int depth) {
    struct jinja_loop *loop = jinja_alloc(c, sizeof *loop);
    struct jinja_scope *scope = jinja_scope_new(c, c->scope);
    struct jinja_value item;
    if (!loop || !scope)
        return c->e.code;
    *loop = (struct jinja_loop){.node = node,
                                .test = node->c ? takes_part : NULL,
                                .outside = c->scope,
                                .index0 = -1,
                                .length = -1,
                                .depth = depth};
    bool completed = false, more = true; // a pass ran to its end; there are more
    int rc = jinja_iterate(c, items, &loop->it);
    while (!rc && more && (rc = jinja_loop_next(c, loop, &item)) > 0) {
        c->line = node->line;
        rc = run_pass(c, loop, scope, item);
        completed |= rc == 0;
        more = rc != BREAK;
        rc = rc > 0 ? 0 : rc;
    }
    if (!rc && !completed)
        rc = node->d ? run_inside(c, jinja_scope_new(c, c->scope), node->d) : 0;
    return rc;
}

static int run_for(struct jinja_context *c, const struct jinja_node *node) {
    struct jinja_value items;
    int rc = jinja_eval(c, node->b, &items);
    return rc ? rc : jinja_run_loop(c, node, items, 0);
}

static int run_set(struct jinja_context *c, const struct jinja_node *node) {
    struct jinja_value v;
    int rc = jinja_eval(c, node->b, &v);
    return rc ? rc : jinja_assign_target(c, node->a, v);
}

// Runs a body in a scope of its own and gives what it wrote.
static int capture(struct jinja_context *c, const struct jinja_node *body,
                   struct jinja_value *out) {
    size_t mark = jinja_mark(c);
    int rc = run_inside(c, jinja_scope_new(c, c->scope), body);
    if (rc > 0)
        jinja_drop(c, mark);
    return rc ? rc : jinja_take(c, mark, out);
}

static int run_set_block(struct jinja_context *c, const struct jinja_node *node) {
    struct jinja_value v;
    int rc = capture(c, node->body, &v);
    if (!rc && node->b)
        rc = jinja_eval_filters(c, node->b, v, &v);
    return rc ? rc : jinja_assign_target(c, node->a, v);
}

static int run_filter_block(struct jinja_context *c, const struct jinja_node *node) {
    struct jinja_value v;
    int rc = capture(c, node->body, &v);
    if (!rc)
        rc = jinja_eval_filters(c, node->a, v, &v);
    if (!rc && v.kind != JINJA_STRING)
        rc = jinja_fail(c, ERR_USAGE, "a filter block gives '%s' instead of text", jinja_type(v));
    return rc ? rc : jinja_put_str(c, v);
}

static int run_macro(struct jinja_context *c, const struct jinja_node *node) {
    struct jinja_value v = jinja_make_macro(c, node);
    return v.kind ? jinja_assign(c, node->id, v) : c->e.code;
}

static int run_call_block(struct jinja_context *c, const struct jinja_node *node) {
    struct jinja_value caller = jinja_make_macro(c, node->b), v;
    int rc = caller.kind ? jinja_eval_call(c, node->a, caller, &v) : c->e.code;
    return rc ? rc : jinja_put_str(c, v);
}

static int run_with(struct jinja_context *c, const struct jinja_node *node) {
    struct jinja_scope *outside = c->scope, *scope = jinja_scope_new(c, outside);
    int rc = scope ? 0 : c->e.code;
    for (const struct jinja_node *i = node->list; i && !rc; i = i->next) {
        struct jinja_value v;
        rc = jinja_eval(c, i->b, &v); // outside: they do not see each other
        c->scope = scope;
        if (!rc)
            rc = jinja_assign_target(c, i->a, v);
        c->scope = outside;
    }
    return rc ? rc : run_inside(c, scope, node->body);
}

static int run_break(struct jinja_context *c, const struct jinja_node *node) {
    (void)c;
    return node->type == NODE_BREAK ? BREAK : CONTINUE;
}

static int run_refuse(struct jinja_context *c, const struct jinja_node *node) {
    return jinja_fail(c, ERR_USAGE, "%s", node->value.as.s->bytes);
}

int jinja_run(struct jinja_context *c, const struct jinja_node *body) {
    static int (*const table[])(struct jinja_context *, const struct jinja_node *) = {
        [NODE_TEXT] = run_text,
        [NODE_PRINT] = run_print,
        [NODE_IF] = run_if,
        [NODE_FOR] = run_for,
        [NODE_SET] = run_set,
        [NODE_SET_BLOCK] = run_set_block,
        [NODE_MACRO] = run_macro,
        [NODE_CALL_BLOCK] = run_call_block,
        [NODE_FILTER_BLOCK] = run_filter_block,
        [NODE_WITH] = run_with,
        [NODE_SCOPE] = run_scope,
        [NODE_BREAK] = run_break,
        [NODE_CONTINUE] = run_break,
        [NODE_REFUSE] = run_refuse,
    };
    int rc = jinja_enter(c);
    if (rc)
        return rc;
    for (; body && !rc; body = body->next) {
        c->line = body->line;
        rc = jinja_charge(c, 1);
        if (!rc)
            rc = table[body->type](c, body);
    }
    jinja_leave(c);
    return rc;
}
