// SPDX-License-Identifier: Apache-2.0
// Expressions; see eval.h. One function a kind of node, chosen from a table.
#include "text/jinja/eval/eval.h"

#include <string.h>

#include "text/jinja/eval/loop.h"
#include "text/jinja/eval/operators.h"
#include "text/jinja/value/access.h"
#include "text/jinja/value/compare.h"
#include "text/jinja/value/number.h"
#include "text/jinja/value/text.h"

typedef int eval_fn(struct jinja_context *c, const struct jinja_node *node,
                    struct jinja_value *out);

static int eval_const(struct jinja_context *c, const struct jinja_node *node,
                      struct jinja_value *out) {
    (void)c;
    *out = node->value;
    return 0;
}

static int eval_name(struct jinja_context *c, const struct jinja_node *node,
                     struct jinja_value *out) {
    int rc = jinja_lookup(c, node->id, out);
    if (rc)
        return rc;
    if (!out->kind)
        *out = jinja_missing(c, *out, node->value);
    return out->kind ? 0 : c->e.code;
}

static int eval_list(struct jinja_context *c, const struct jinja_node *node,
                     struct jinja_value *out) {
    size_t n = 0;
    for (const struct jinja_node *i = node->list; i; i = i->next)
        n++;
    *out = jinja_tuple(c, n);
    if (!out->kind)
        return c->e.code;
    out->kind = node->type == NODE_LIST ? JINJA_LIST : JINJA_TUPLE;
    struct jinja_value *item = out->as.l->items;
    int rc = 0;
    for (const struct jinja_node *i = node->list; i && !rc; i = i->next)
        rc = jinja_eval(c, i, item++);
    return rc;
}

static int eval_dict(struct jinja_context *c, const struct jinja_node *node,
                     struct jinja_value *out) {
    *out = jinja_dict(c, false);
    int rc = out->kind ? 0 : c->e.code;
    for (const struct jinja_node *i = node->list; i && !rc; i = i->next->next) {
        struct jinja_value key, value;
        rc = jinja_eval(c, i, &key);
        if (!rc)
            rc = jinja_eval(c, i->next, &value);
        if (!rc)
            rc = jinja_dict_set(c, out->as.m, key, value);
    }
    return rc;
}

static int eval_attr(struct jinja_context *c, const struct jinja_node *node,
                     struct jinja_value *out) {
    struct jinja_value of;
    int rc = jinja_eval(c, node->a, &of);
    return rc ? rc : jinja_get_attribute(c, of, node->value, out);
}

static int eval_item(struct jinja_context *c, const struct jinja_node *node,
                     struct jinja_value *out) {
    struct jinja_value of, key;
    int rc = jinja_eval(c, node->a, &of);
    if (!rc)
        rc = jinja_eval(c, node->b, &key);
    return rc ? rc : jinja_get_item(c, of, key, out);
}

static int eval_slice(struct jinja_context *c, const struct jinja_node *node,
                      struct jinja_value *out) {
    struct jinja_value of, part[3] = {{0}};
    const struct jinja_node *parts[] = {node->b, node->c, node->d};
    int rc = jinja_eval(c, node->a, &of);
    for (int i = 0; i < 3 && !rc; i++)
        if (parts[i])
            rc = jinja_eval(c, parts[i], part + i);
    return rc ? rc : jinja_get_slice(c, of, part, out);
}

// Arguments.

static int add_splat(struct jinja_context *c, struct jinja_value v, struct jinja_list *pos) {
    struct jinja_value items;
    int rc = jinja_collect(c, v, &items);
    for (size_t i = 0; !rc && i < items.as.l->n; i++)
        rc = jinja_push(c, pos, items.as.l->items[i]);
    return rc;
}

static int add_named(struct jinja_context *c, struct jinja_dict *named, struct jinja_value name,
                     struct jinja_value v) {
    size_t n = named->n;
    int rc = jinja_dict_set(c, named, name, v);
    if (!rc && named->n == n)
        rc = jinja_fail(c, ERR_USAGE, "the keyword argument '%.60s' is repeated", name.as.s->bytes);
    return rc;
}

static int add_splats(struct jinja_context *c, struct jinja_value v, struct jinja_dict *named) {
    if (v.kind != JINJA_DICT)
        return jinja_fail(c, ERR_USAGE, "argument after ** must be a mapping, not %s",
                          jinja_type(v));
    int rc = 0;
    for (size_t i = 0; i < v.as.m->n && !rc; i++) {
        const struct jinja_entry *e = v.as.m->entries + i;
        if (e->key.kind != JINJA_STRING)
            return jinja_fail(c, ERR_USAGE, "keywords must be strings");
        rc = add_named(c, named, e->key, e->value);
    }
    return rc;
}

static int add_arg(struct jinja_context *c, const struct jinja_node *node, struct jinja_list *pos,
                   struct jinja_dict *named) {
    struct jinja_value v;
    int rc = jinja_eval(c, node->a, &v);
    if (rc)
        return rc;
    if (node->type == NODE_ARG)
        return jinja_push(c, pos, v);
    if (node->type == NODE_KWARG)
        return add_named(c, named, node->value, v);
    return node->type == NODE_SPLAT ? add_splat(c, v, pos) : add_splats(c, v, named);
}

static int eval_args(struct jinja_context *c, const struct jinja_node *node,
                     struct jinja_value caller, struct jinja_args *args) {
    struct jinja_list pos = {0};
    struct jinja_dict named = {0};
    int rc = 0;
    for (const struct jinja_node *i = node; i && !rc; i = i->next)
        rc = add_arg(c, i, &pos, &named);
    if (!rc && caller.kind) {
        struct jinja_value key = jinja_text(c, "caller");
        rc = key.kind ? jinja_dict_set(c, &named, key, caller) : c->e.code;
    }
    *args = (struct jinja_args){
        .pos = pos.items, .n = (int)pos.n, .named = named.entries, .n_named = (int)named.n};
    return rc;
}

// Macros.

struct jinja_value jinja_make_macro(struct jinja_context *c, const struct jinja_node *node) {
    struct jinja_macro *m = jinja_alloc(c, sizeof *m);
    if (!m)
        return (struct jinja_value){0};
    *m = (struct jinja_macro){.name = node->value.as.s->bytes, .node = node, .scope = c->scope};
    return (struct jinja_value){.kind = JINJA_MACRO, .as.p = m};
}

// One parameter of a macro: its argument, its default, or undefined.
static int bind_parameter(struct jinja_context *c, const struct jinja_node *parameter,
                          struct jinja_value given, struct jinja_scope *scope) {
    int rc = 0;
    if (!given.kind && parameter->a) {
        struct jinja_scope *outside = c->scope;
        c->scope = scope;
        rc = jinja_eval(c, parameter->a, &given);
        c->scope = outside;
    } else if (!given.kind) {
        given = jinja_undefined(c, "a parameter of the macro was not provided");
        rc = given.kind ? 0 : c->e.code;
    }
    return rc ? rc : jinja_scope_set(c, scope, parameter->id, given);
}

// Whether a name is that of a parameter from the place `first` on.
static bool is_parameter(const struct jinja_node *node, int first, struct jinja_value name) {
    int i = 0;
    for (const struct jinja_node *p = node->list; p; p = p->next, i++)
        if (i >= first && jinja_same_text(p->value.as.s, name.as.s))
            return true;
    return false;
}

// The keyword arguments that are no parameters: into kwargs, or an error.
static int bind_kwargs(struct jinja_context *c, const struct jinja_macro *m,
                       const struct jinja_args *args, struct jinja_scope *scope) {
    const struct jinja_node *node = m->node;
    struct jinja_value rest = jinja_dict(c, false);
    int rc = rest.kind ? 0 : c->e.code;
    for (int i = 0; i < args->n_named && !rc; i++) {
        struct jinja_value name = args->named[i].key;
        if (is_parameter(node, args->n, name) ||
            ((node->uses & USES_CALLER) && jinja_is_text(name, "caller")))
            continue;
        if (!(node->uses & USES_KWARGS))
            return jinja_fail(c, ERR_USAGE, "macro '%.60s' takes no keyword argument '%.60s'",
                              m->name, name.as.s->bytes);
        rc = jinja_dict_set(c, rest.as.m, name, args->named[i].value);
    }
    if (!rc && (node->uses & USES_KWARGS))
        rc = jinja_scope_set(c, scope, ID_KWARGS, rest);
    return rc;
}

static int bind_varargs(struct jinja_context *c, const struct jinja_macro *m,
                        const struct jinja_args *args, int used, struct jinja_scope *scope) {
    int rest = args->n > used ? args->n - used : 0;
    if (!(m->node->uses & USES_VARARGS))
        return rest == 0
                   ? 0
                   : jinja_fail(c, ERR_USAGE, "macro '%.60s' takes not more than %d argument(s)",
                                m->name, used);
    struct jinja_value tuple = jinja_tuple(c, (size_t)rest);
    if (!tuple.kind)
        return c->e.code;
    for (int i = 0; i < rest; i++)
        tuple.as.l->items[i] = args->pos[used + i];
    return jinja_scope_set(c, scope, ID_VARARGS, tuple);
}

static int bind_macro(struct jinja_context *c, const struct jinja_macro *m,
                      const struct jinja_args *args, struct jinja_scope *scope) {
    const struct jinja_node *node = m->node;
    int rc = 0, used = 0;
    for (const struct jinja_node *p = node->list; p && !rc; p = p->next, used++) {
        struct jinja_value given =
            used < args->n ? args->pos[used] : jinja_named(args, p->value.as.s->bytes);
        rc = bind_parameter(c, p, given, scope);
    }
    if (!rc && (node->uses & USES_CALLER)) {
        struct jinja_value caller = jinja_named(args, "caller");
        if (!caller.kind)
            caller = jinja_undefined(c, "No caller defined");
        rc = jinja_scope_set(c, scope, ID_CALLER, caller);
    }
    if (!rc && (args->n_named > 0 || (node->uses & USES_KWARGS)))
        rc = bind_kwargs(c, m, args, scope);
    return rc ? rc : bind_varargs(c, m, args, used, scope);
}

static int call_macro(struct jinja_context *c, const struct jinja_macro *m,
                      const struct jinja_args *args, struct jinja_value *out) {
    struct jinja_scope *outside = c->scope, *scope = jinja_scope_new(c, m->scope);
    int line = c->line;
    int rc = scope ? bind_macro(c, m, args, scope) : c->e.code;
    if (rc)
        return rc;
    size_t mark = jinja_mark(c);
    c->scope = scope;
    rc = c->run(c, m->node->body);
    c->scope = outside;
    if (!rc)
        c->line = line;
    return rc ? rc : jinja_take(c, mark, out);
}

// {{ loop(items) }} in a recursive loop.
static int call_loop(struct jinja_context *c, const struct jinja_loop *loop,
                     const struct jinja_args *args, struct jinja_value *out) {
    if (!loop->node->flag || args->n != 1)
        return jinja_fail(c, ERR_USAGE,
                          "only the loop of a recursive for can be called, with one argument");
    size_t mark = jinja_mark(c);
    struct jinja_scope *inside = c->scope;
    c->scope = loop->outside;
    int rc = c->loop(c, loop->node, args->pos[0], loop->depth + 1);
    c->scope = inside;
    return rc ? rc : jinja_take(c, mark, out);
}

static int call_value(struct jinja_context *c, struct jinja_value what,
                      const struct jinja_args *args, struct jinja_value *out) {
    if (what.kind == JINJA_MACRO)
        return call_macro(c, what.as.p, args, out);
    if (what.kind == JINJA_FUNCTION)
        return jinja_invoke(c, what.as.p, what, args, out);
    if (what.kind == JINJA_LOOP)
        return call_loop(c, what.as.p, args, out);
    if (what.kind == JINJA_METHOD) {
        const struct jinja_method *m = what.as.p;
        return jinja_invoke(c, m->what, m->self, args, out);
    }
    if (what.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, what);
    struct jinja_joiner *joiner = what.kind == JINJA_JOINER ? what.as.p : NULL;
    if (!joiner || args->n + args->n_named > 0)
        return jinja_fail(c, ERR_USAGE, "'%s' object is not callable", jinja_type(what));
    *out = joiner->used ? joiner->separator : jinja_text(c, "");
    joiner->used = true;
    return out->kind ? 0 : c->e.code;
}

int jinja_eval_call(struct jinja_context *c, const struct jinja_node *node,
                    struct jinja_value caller, struct jinja_value *out) {
    struct jinja_value what;
    struct jinja_args args;
    int rc = jinja_eval(c, node->a, &what);
    if (!rc)
        rc = eval_args(c, node->args, caller, &args);
    return rc ? rc : call_value(c, what, &args, out);
}

static int eval_call(struct jinja_context *c, const struct jinja_node *node,
                     struct jinja_value *out) {
    return jinja_eval_call(c, node, (struct jinja_value){0}, out);
}

// Filters and tests.

static int apply(struct jinja_context *c, const struct jinja_node *node, struct jinja_value input,
                 struct jinja_value *out) {
    struct jinja_args args;
    if (!node->builtin)
        return jinja_fail(c, ERR_USAGE, "there is no %s named '%.60s'",
                          node->type == NODE_FILTER ? "filter" : "test", node->value.as.s->bytes);
    int rc = eval_args(c, node->args, (struct jinja_value){0}, &args);
    return rc ? rc : jinja_invoke(c, node->builtin, input, &args, out);
}

static int eval_builtin(struct jinja_context *c, const struct jinja_node *node,
                        struct jinja_value *out) {
    struct jinja_value input;
    int rc = jinja_eval(c, node->a, &input);
    return rc ? rc : apply(c, node, input, out);
}

int jinja_eval_filters(struct jinja_context *c, const struct jinja_node *node,
                       struct jinja_value input, struct jinja_value *out) {
    int rc = jinja_enter(c);
    if (rc)
        return rc;
    if (node->a)
        rc = jinja_eval_filters(c, node->a, input, &input);
    if (!rc)
        rc = apply(c, node, input, out);
    jinja_leave(c);
    return rc;
}

// Operators.

static int eval_unary(struct jinja_context *c, const struct jinja_node *node,
                      struct jinja_value *out) {
    struct jinja_value v;
    int rc = jinja_eval(c, node->a, &v);
    if (rc)
        return rc;
    if (node->op == '!') {
        *out = jinja_bool(!jinja_is_true(v));
        return 0;
    }
    if (v.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, v);
    if (!jinja_is_number(v))
        return jinja_fail(c, ERR_USAGE, "bad operand type for unary %c: '%s'", node->op,
                          jinja_type(v));
    if (node->op == '-')
        return jinja_negate(c, v, out);
    *out = v.kind == JINJA_BOOL ? jinja_int(v.as.b) : v;
    return 0;
}

static int eval_binary(struct jinja_context *c, const struct jinja_node *node,
                       struct jinja_value *out) {
    struct jinja_value a, b;
    int rc = jinja_eval(c, node->a, &a);
    if (!rc)
        rc = jinja_eval(c, node->b, &b);
    return rc ? rc : jinja_operate(c, node->op, a, b, out);
}

static int eval_logic(struct jinja_context *c, const struct jinja_node *node,
                      struct jinja_value *out) {
    int rc = jinja_eval(c, node->a, out);
    if (rc || jinja_is_true(*out) == (node->type == NODE_OR))
        return rc;
    return jinja_eval(c, node->b, out);
}

static int eval_concat(struct jinja_context *c, const struct jinja_node *node,
                       struct jinja_value *out) {
    size_t mark = jinja_mark(c);
    int rc = 0;
    for (const struct jinja_node *i = node->list; i && !rc; i = i->next) {
        struct jinja_value v;
        rc = jinja_eval(c, i, &v);
        if (!rc)
            rc = jinja_put_str(c, v);
    }
    return rc ? rc : jinja_take(c, mark, out);
}

static int compare(struct jinja_context *c, char op, struct jinja_value a, struct jinja_value b,
                   bool *holds) {
    int rc, order;
    if (op == 'e' || op == 'n') {
        rc = jinja_equal(c, a, b, holds);
        *holds = *holds == (op == 'e');
        return rc;
    }
    if (op == 'i' || op == 'o') {
        rc = jinja_contains(c, b, a, holds);
        *holds = *holds == (op == 'i');
        return rc;
    }
    char shown[3] = {op == 'l' ? '<' : op == 'g' ? '>' : op, op == 'l' || op == 'g' ? '=' : 0, 0};
    rc = jinja_order(c, a, b, shown, &order);
    if (!rc)
        *holds = op == '<'   ? order == -1
                 : op == '>' ? order == 1
                 : op == 'l' ? order == -1 || order == 0
                             : order == 1 || order == 0;
    return rc;
}

static int eval_compare(struct jinja_context *c, const struct jinja_node *node,
                        struct jinja_value *out) {
    struct jinja_value left, right;
    bool holds = true;
    int rc = jinja_eval(c, node->a, &left);
    for (const struct jinja_node *i = node->list; i && holds && !rc; i = i->next) {
        rc = jinja_eval(c, i->a, &right);
        if (!rc)
            rc = compare(c, i->op, left, right, &holds);
        left = right;
    }
    *out = jinja_bool(holds);
    return rc;
}

static int eval_cond(struct jinja_context *c, const struct jinja_node *node,
                     struct jinja_value *out) {
    struct jinja_value v;
    int rc = jinja_eval(c, node->a, &v);
    if (rc)
        return rc;
    if (jinja_is_true(v))
        return jinja_eval(c, node->b, out);
    if (node->c)
        return jinja_eval(c, node->c, out);
    *out = jinja_undefined(c, "an inline if without else evaluated to false");
    return out->kind ? 0 : c->e.code;
}

int jinja_eval(struct jinja_context *c, const struct jinja_node *node, struct jinja_value *out) {
    static eval_fn *const table[] = {
        [NODE_CONST] = eval_const,    [NODE_NAME] = eval_name,       [NODE_LIST] = eval_list,
        [NODE_TUPLE] = eval_list,     [NODE_DICT] = eval_dict,       [NODE_ATTR] = eval_attr,
        [NODE_ITEM] = eval_item,      [NODE_SLICE] = eval_slice,     [NODE_CALL] = eval_call,
        [NODE_FILTER] = eval_builtin, [NODE_TEST] = eval_builtin,    [NODE_UNARY] = eval_unary,
        [NODE_BINARY] = eval_binary,  [NODE_AND] = eval_logic,       [NODE_OR] = eval_logic,
        [NODE_CONCAT] = eval_concat,  [NODE_COMPARE] = eval_compare, [NODE_COND] = eval_cond,
    };
    int rc = jinja_charge(c, 1);
    if (!rc)
        rc = jinja_enter(c);
    if (rc)
        return rc;
    rc = table[node->type](c, node, out);
    jinja_leave(c);
    return rc;
}
