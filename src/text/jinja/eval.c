// SPDX-License-Identifier: Apache-2.0
// Variables, operators, expressions and statements; see eval.h. A scope holds few variables, so it
// is searched from end to end. Expressions have one function a kind of node, chosen from a table.
#include "text/jinja/eval.h"

#include <string.h>

#include "text/jinja/access.h"
#include "text/jinja/iterate.h"
#include "text/jinja/repr.h"

struct jinja_slot {
    int id;
    struct jinja_value value;
};

// The variables of a loop's pass, a macro's call or a block. A macro keeps the scope it was made
// in.
struct jinja_scope {
    struct jinja_scope *parent; // NULL: the variables of the whole template
    struct jinja_slot *slots;
    int n, cap;
};

static int assign_target(struct jinja_context *c, const struct jinja_node *target,
                         struct jinja_value v);
static int eval_node(struct jinja_context *c, const struct jinja_node *node,
                     struct jinja_value *out);

// A new scope inside of `parent`, which becomes the current one only by the caller's doing.
static struct jinja_scope *new_scope(struct jinja_context *c, struct jinja_scope *parent) {
    struct jinja_scope *s = jinja_alloc(c, sizeof *s);
    if (s)
        *s = (struct jinja_scope){.parent = parent};
    return s;
}

enum { PER_STEP = 16 }; // slots that are looked at

static int set_in_scope(struct jinja_context *c, struct jinja_scope *s, int id,
                        struct jinja_value v) {
    for (int i = 0; i < s->n; i++) {
        if (s->slots[i].id != id)
            continue;
        s->slots[i].value = v;
        return jinja_charge(c, (size_t)i / PER_STEP);
    }
    if (s->n == s->cap) {
        int cap = s->cap ? 2 * s->cap : 4;
        struct jinja_slot *slots = jinja_array(c, (size_t)cap, sizeof *slots);
        if (!slots)
            return c->e.code;
        if (s->n)
            memcpy(slots, s->slots, (size_t)s->n * sizeof *slots);
        s->slots = slots;
        s->cap = cap;
    }
    if (jinja_charge(c, (size_t)s->n / 4)) // the slots that were looked at
        return c->e.code;
    s->slots[s->n++] = (struct jinja_slot){.id = id, .value = v};
    return 0;
}

// The variable's value; JINJA_ABSENT: it has none. Slots that are looked at count as steps.
static int look_up(struct jinja_context *c, int id, struct jinja_value *out) {
    size_t looked = 0;
    *out = c->globals[id];
    for (const struct jinja_scope *s = c->scope; s; looked += (size_t)s->n, s = s->parent)
        for (int i = 0; i < s->n; i++)
            if (s->slots[i].id == id) {
                *out = s->slots[i].value;
                return jinja_charge(c, (looked + (size_t)i) / PER_STEP);
            }
    return jinja_charge(c, looked / PER_STEP);
}

// Assigns in the current scope.
static int assign_name(struct jinja_context *c, int id, struct jinja_value v) {
    if (c->scope)
        return set_in_scope(c, c->scope, id, v);
    c->globals[id] = v;
    return 0;
}

static int assign_tuple(struct jinja_context *c, const struct jinja_node *targets,
                        struct jinja_value v) {
    struct jinja_iter it;
    struct jinja_value item;
    int expected = 0, got = 0;
    for (const struct jinja_node *t = targets; t; t = t->next)
        expected++;
    int rc = jinja_iterate(c, v, &it);
    for (; !rc && targets; targets = targets->next, got++) {
        rc = jinja_next(c, &it, &item);
        if (rc == 0)
            return jinja_fail(c, ERR_USAGE, "not enough values to unpack (expected %d, got %d)",
                              expected, got);
        rc = rc < 0 ? rc : assign_target(c, targets, item);
    }
    if (!rc && (rc = jinja_next(c, &it, &item)) > 0)
        rc = jinja_fail(c, ERR_USAGE, "too many values to unpack (expected %d)", expected);
    return rc;
}

static int assign_attribute(struct jinja_context *c, const struct jinja_node *target,
                            struct jinja_value v) {
    struct jinja_value ns;
    int rc = look_up(c, target->id, &ns);
    if (rc)
        return rc;
    if (ns.kind != JINJA_NAMESPACE)
        return jinja_fail(c, ERR_USAGE, "cannot assign attribute on non-namespace object");
    if (target->value.as.s->bytes[0] == '_')
        return jinja_fail(c, ERR_USAGE, "a namespace cannot have the attribute '%.60s'",
                          target->value.as.s->bytes);
    return jinja_dict_set(c, ns.as.m, target->value, v);
}

// Assigns to a name, a tuple of targets or the attribute of a namespace.
static int assign_target(struct jinja_context *c, const struct jinja_node *target,
                         struct jinja_value v) {
    if (target->type == NODE_NAME)
        return assign_name(c, target->id, v);
    if (target->type == NODE_NSREF)
        return assign_attribute(c, target, v);
    return assign_tuple(c, target->list, v);
}

static bool is_list(struct jinja_value v) {
    return v.kind == JINJA_LIST || v.kind == JINJA_TUPLE;
}

// A string joined to one that is marked safe is escaped first.
static int put_joined(struct jinja_context *c, const struct jinja_string *s,
                      const struct jinja_string *other) {
    return other->markup && !s->markup ? jinja_put_escaped(c, s) : jinja_put_string(c, s);
}

static int join_text(struct jinja_context *c, const struct jinja_string *a,
                     const struct jinja_string *b, struct jinja_value *out) {
    size_t mark = jinja_mark(c);
    int rc = put_joined(c, a, b);
    if (!rc)
        rc = put_joined(c, b, a);
    if (!rc)
        rc = jinja_take(c, mark, out);
    if (!rc && (a->markup || b->markup))
        ((struct jinja_string *)(uintptr_t)out->as.s)->markup = true;
    return rc;
}

static int join_lists(struct jinja_context *c, struct jinja_value a, struct jinja_value b,
                      struct jinja_value *out) {
    const struct jinja_list *x = a.as.l, *y = b.as.l;
    *out = jinja_tuple(c, x->n + y->n);
    if (!out->kind)
        return c->e.code;
    out->kind = a.kind;
    out->as.l->untrusted = x->untrusted && y->untrusted;
    if (x->n)
        memcpy(out->as.l->items, x->items, x->n * sizeof *x->items);
    if (y->n)
        memcpy(out->as.l->items + x->n, y->items, y->n * sizeof *y->items);
    return 0;
}

static int repeat_text(struct jinja_context *c, const struct jinja_string *s, int64_t n,
                       struct jinja_value *out) {
    size_t mark = jinja_mark(c);
    int rc = 0;
    for (int64_t i = 0; i < n && s->n > 0 && !rc; i++) {
        rc = jinja_charge(c, 1);
        if (!rc)
            rc = jinja_put_string(c, s);
    }
    return rc ? rc : jinja_take(c, mark, out);
}

static int repeat_list(struct jinja_context *c, struct jinja_value v, int64_t n,
                       struct jinja_value *out) {
    size_t count, times = n > 0 ? (size_t)n : 0;
    const struct jinja_list *l = v.as.l;
    if (__builtin_mul_overflow(l->n, times, &count))
        count = SIZE_MAX / 2;
    *out = jinja_tuple(c, count);
    if (!out->kind)
        return c->e.code;
    out->kind = v.kind;
    out->as.l->untrusted = l->untrusted;
    for (size_t i = 0; i < count; i++)
        out->as.l->items[i] = l->items[i % l->n];
    return 0;
}

static int repeat_value(struct jinja_context *c, struct jinja_value v, struct jinja_value times,
                        struct jinja_value *out) {
    int64_t n;
    int rc = jinja_require_int(c, times, "what a sequence is multiplied with", &n);
    if (rc)
        return rc;
    return v.kind == JINJA_STRING ? repeat_text(c, v.as.s, n, out) : repeat_list(c, v, n, out);
}

static int fail_operands(struct jinja_context *c, char op, struct jinja_value a,
                         struct jinja_value b) {
    if (op == '+' && a.kind == JINJA_STRING)
        return jinja_fail(c, ERR_USAGE, "can only concatenate str (not \"%s\") to str",
                          jinja_type(b));
    return jinja_fail(c, ERR_USAGE, "unsupported operand type(s) for %.2s: '%s' and '%s'",
                      op == 'd' ? "//" : (char[]){op, 0}, jinja_type(a), jinja_type(b));
}

int jinja_operate(struct jinja_context *c, char op, struct jinja_value a, struct jinja_value b,
                  struct jinja_value *out) {
    if (jinja_is_number(a) && jinja_is_number(b))
        return jinja_calculate(c, op, a, b, out);
    if (op == '%' && a.kind == JINJA_STRING)
        return jinja_fail(c, ERR_USAGE, "text %% values is not supported here");
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, a.kind == JINJA_UNDEFINED ? a : b);
    if (op == '+' && a.kind == b.kind && a.kind == JINJA_STRING)
        return join_text(c, a.as.s, b.as.s, out);
    if (op == '+' && a.kind == b.kind && is_list(a))
        return join_lists(c, a, b, out);
    if (op == '*' && (is_list(a) || a.kind == JINJA_STRING) && jinja_is_integer(b))
        return repeat_value(c, a, b, out);
    if (op == '*' && (is_list(b) || b.kind == JINJA_STRING) && jinja_is_integer(a))
        return repeat_value(c, b, a, out);
    return fail_operands(c, op, a, b);
}

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
    int rc = look_up(c, node->id, out);
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
        rc = eval_node(c, i, item++);
    return rc;
}

static int eval_dict(struct jinja_context *c, const struct jinja_node *node,
                     struct jinja_value *out) {
    *out = jinja_dict(c, false);
    int rc = out->kind ? 0 : c->e.code;
    for (const struct jinja_node *i = node->list; i && !rc; i = i->next->next) {
        struct jinja_value key, value;
        rc = eval_node(c, i, &key);
        if (!rc)
            rc = eval_node(c, i->next, &value);
        if (!rc)
            rc = jinja_dict_set(c, out->as.m, key, value);
    }
    return rc;
}

static int eval_attr(struct jinja_context *c, const struct jinja_node *node,
                     struct jinja_value *out) {
    struct jinja_value of;
    int rc = eval_node(c, node->a, &of);
    return rc ? rc : jinja_get_attribute(c, of, node->value, out);
}

static int eval_item(struct jinja_context *c, const struct jinja_node *node,
                     struct jinja_value *out) {
    struct jinja_value of, key;
    int rc = eval_node(c, node->a, &of);
    if (!rc)
        rc = eval_node(c, node->b, &key);
    return rc ? rc : jinja_get_item(c, of, key, out);
}

static int eval_slice(struct jinja_context *c, const struct jinja_node *node,
                      struct jinja_value *out) {
    struct jinja_value of, part[3] = {{0}};
    const struct jinja_node *parts[] = {node->b, node->c, node->d};
    int rc = eval_node(c, node->a, &of);
    for (int i = 0; i < 3 && !rc; i++)
        if (parts[i])
            rc = eval_node(c, parts[i], part + i);
    return rc ? rc : jinja_get_slice(c, of, part, out);
}

// Arguments.

static int add_named(struct jinja_context *c, struct jinja_dict *named, struct jinja_value name,
                     struct jinja_value v) {
    size_t n = named->n;
    int rc = jinja_dict_set(c, named, name, v);
    if (!rc && named->n == n)
        rc = jinja_fail(c, ERR_USAGE, "the keyword argument '%.60s' is repeated", name.as.s->bytes);
    return rc;
}

static int add_arg(struct jinja_context *c, const struct jinja_node *node, struct jinja_list *pos,
                   struct jinja_dict *named) {
    struct jinja_value v;
    int rc = eval_node(c, node->a, &v);
    if (rc)
        return rc;
    return node->type == NODE_ARG ? jinja_push(c, pos, v) : add_named(c, named, node->value, v);
}

static int eval_args(struct jinja_context *c, const struct jinja_node *node,
                     struct jinja_args *args) {
    struct jinja_list pos = {0};
    struct jinja_dict named = {0};
    int rc = 0;
    for (const struct jinja_node *i = node; i && !rc; i = i->next)
        rc = add_arg(c, i, &pos, &named);
    *args = (struct jinja_args){
        .pos = pos.items, .n = (int)pos.n, .named = named.entries, .n_named = (int)named.n};
    return rc;
}

// Macros.

// One parameter of a macro: its argument, its default, or undefined.
static int bind_parameter(struct jinja_context *c, const struct jinja_node *parameter,
                          struct jinja_value given, struct jinja_scope *scope) {
    int rc = 0;
    if (!given.kind && parameter->a) {
        struct jinja_scope *outside = c->scope;
        c->scope = scope;
        rc = eval_node(c, parameter->a, &given);
        c->scope = outside;
    } else if (!given.kind) {
        given = jinja_undefined(c, "a parameter of the macro was not provided");
        rc = given.kind ? 0 : c->e.code;
    }
    return rc ? rc : set_in_scope(c, scope, parameter->id, given);
}

static int bind_macro(struct jinja_context *c, const struct jinja_macro *m,
                      const struct jinja_args *args, struct jinja_scope *scope) {
    const struct jinja_node *node = m->node;
    int rc = 0, used = 0, bound = 0;
    for (const struct jinja_node *p = node->list; p && !rc; p = p->next, used++) {
        struct jinja_value given = {0};
        if (used < args->n)
            given = args->pos[used];
        for (int i = 0; i < args->n_named && !given.kind; i++)
            if (jinja_same_text(args->named[i].key.as.s, p->value.as.s)) {
                given = args->named[i].value;
                bound++;
            }
        rc = bind_parameter(c, p, given, scope);
    }
    if (!rc && bound < args->n_named)
        rc = jinja_fail(c, ERR_USAGE, "macro '%.60s' takes no other argument by name", m->name);
    if (!rc && args->n > used)
        rc = jinja_fail(c, ERR_USAGE, "macro '%.60s' takes not more than %d argument(s)", m->name,
                        used);
    return rc;
}

static int call_macro(struct jinja_context *c, const struct jinja_macro *m,
                      const struct jinja_args *args, struct jinja_value *out) {
    struct jinja_scope *outside = c->scope, *scope = new_scope(c, m->scope);
    int line = c->line;
    int rc = scope ? bind_macro(c, m, args, scope) : c->e.code;
    if (rc)
        return rc;
    size_t mark = jinja_mark(c);
    c->scope = scope;
    rc = jinja_run(c, m->node->body);
    c->scope = outside;
    if (!rc)
        c->line = line;
    return rc ? rc : jinja_take(c, mark, out);
}

static int call_value(struct jinja_context *c, struct jinja_value what,
                      const struct jinja_args *args, struct jinja_value *out) {
    if (what.kind == JINJA_MACRO)
        return call_macro(c, what.as.p, args, out);
    if (what.kind == JINJA_FUNCTION)
        return jinja_invoke(c, what.as.p, what, args, out);
    if (what.kind == JINJA_METHOD) {
        const struct jinja_method *m = what.as.p;
        return jinja_invoke(c, m->what, m->self, args, out);
    }
    if (what.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, what);
    return jinja_fail(c, ERR_USAGE, "'%s' object is not callable", jinja_type(what));
}

static int eval_call(struct jinja_context *c, const struct jinja_node *node,
                     struct jinja_value *out) {
    struct jinja_value what;
    struct jinja_args args;
    int rc = eval_node(c, node->a, &what);
    if (!rc)
        rc = eval_args(c, node->args, &args);
    return rc ? rc : call_value(c, what, &args, out);
}

// Filters and tests.

static int apply_builtin(struct jinja_context *c, const struct jinja_node *node,
                         struct jinja_value input, struct jinja_value *out) {
    struct jinja_args args;
    if (!node->builtin)
        return jinja_fail_unsupported(c, node->type == NODE_FILTER ? "filter" : "test",
                                      node->value.as.s);
    int rc = eval_args(c, node->args, &args);
    return rc ? rc : jinja_invoke(c, node->builtin, input, &args, out);
}

static int eval_builtin(struct jinja_context *c, const struct jinja_node *node,
                        struct jinja_value *out) {
    struct jinja_value input;
    int rc = eval_node(c, node->a, &input);
    return rc ? rc : apply_builtin(c, node, input, out);
}

// The value of a chain of filters whose innermost one is applied to `input`.
static int eval_filters(struct jinja_context *c, const struct jinja_node *node,
                        struct jinja_value input, struct jinja_value *out) {
    int rc = jinja_enter(c);
    if (rc)
        return rc;
    if (node->a)
        rc = eval_filters(c, node->a, input, &input);
    if (!rc)
        rc = apply_builtin(c, node, input, out);
    jinja_leave(c);
    return rc;
}

// Operators.

static int eval_unary(struct jinja_context *c, const struct jinja_node *node,
                      struct jinja_value *out) {
    struct jinja_value v;
    int rc = eval_node(c, node->a, &v);
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
    int rc = eval_node(c, node->a, &a);
    if (!rc)
        rc = eval_node(c, node->b, &b);
    return rc ? rc : jinja_operate(c, node->op, a, b, out);
}

static int eval_logic(struct jinja_context *c, const struct jinja_node *node,
                      struct jinja_value *out) {
    int rc = eval_node(c, node->a, out);
    if (rc || jinja_is_true(*out) == (node->type == NODE_OR))
        return rc;
    return eval_node(c, node->b, out);
}

static int eval_concat(struct jinja_context *c, const struct jinja_node *node,
                       struct jinja_value *out) {
    size_t mark = jinja_mark(c);
    int rc = 0;
    for (const struct jinja_node *i = node->list; i && !rc; i = i->next) {
        struct jinja_value v;
        rc = eval_node(c, i, &v);
        if (!rc)
            rc = jinja_put_str(c, v);
    }
    return rc ? rc : jinja_take(c, mark, out);
}

static int compare_values(struct jinja_context *c, char op, struct jinja_value a,
                          struct jinja_value b, bool *holds) {
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
    int rc = eval_node(c, node->a, &left);
    for (const struct jinja_node *i = node->list; i && holds && !rc; i = i->next) {
        rc = eval_node(c, i->a, &right);
        if (!rc)
            rc = compare_values(c, i->op, left, right, &holds);
        left = right;
    }
    *out = jinja_bool(holds);
    return rc;
}

static int eval_cond(struct jinja_context *c, const struct jinja_node *node,
                     struct jinja_value *out) {
    struct jinja_value v;
    int rc = eval_node(c, node->a, &v);
    if (rc)
        return rc;
    if (jinja_is_true(v))
        return eval_node(c, node->b, out);
    if (node->c)
        return eval_node(c, node->c, out);
    *out = jinja_undefined(c, "an inline if without else evaluated to false");
    return out->kind ? 0 : c->e.code;
}

static int eval_node(struct jinja_context *c, const struct jinja_node *node,
                     struct jinja_value *out) {
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

// Statements. break and continue are results that a list of statements hands up to its loop.

enum { BREAK = 1, CONTINUE = 2 }; // besides 0 and errors

static int run_text(struct jinja_context *c, const struct jinja_node *node) {
    return jinja_put_string(c, node->value.as.s);
}

static int run_print(struct jinja_context *c, const struct jinja_node *node) {
    struct jinja_value v;
    int rc = eval_node(c, node->a, &v);
    return rc ? rc : jinja_put_str(c, v);
}

static int run_if(struct jinja_context *c, const struct jinja_node *node) {
    for (;;) {
        struct jinja_value v;
        c->line = node->line;
        int rc = eval_node(c, node->a, &v);
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
    return run_inside(c, new_scope(c, c->scope), node->body);
}

// The condition of "for ... if", in a scope that has the item only.
static int item_takes_part(struct jinja_context *c, struct jinja_loop *loop,
                           struct jinja_value item, bool *result) {
    struct jinja_scope *current = c->scope;
    struct jinja_value v;
    c->scope = new_scope(c, loop->outside);
    int rc = c->scope ? assign_target(c, loop->node->a, item) : c->e.code;
    if (!rc)
        rc = eval_node(c, loop->node->c, &v);
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
    if (node->flag)
        rc = assign_name(c, ID_LOOP, self);
    if (!rc)
        rc = assign_target(c, node->a, item);
    if (!rc)
        rc = jinja_run(c, node->body);
    c->scope = loop->outside;
    return rc;
}

static int run_for(struct jinja_context *c, const struct jinja_node *node) {
    struct jinja_loop *loop = jinja_alloc(c, sizeof *loop);
    struct jinja_scope *scope = new_scope(c, c->scope);
    struct jinja_value items, item;
    if (!loop || !scope)
        return c->e.code;
    *loop = (struct jinja_loop){.node = node,
                                .test = node->c ? item_takes_part : NULL,
                                .outside = c->scope,
                                .index0 = -1,
                                .length = -1};
    bool completed = false, more = true; // a pass ran to its end; there are more
    int rc = eval_node(c, node->b, &items);
    if (!rc)
        rc = jinja_iterate(c, items, &loop->it);
    while (!rc && more && (rc = jinja_loop_next(c, loop, &item)) > 0) {
        c->line = node->line;
        rc = run_pass(c, loop, scope, item);
        completed |= rc == 0;
        more = rc != BREAK;
        rc = rc > 0 ? 0 : rc;
    }
    if (!rc && !completed)
        rc = node->d ? run_inside(c, new_scope(c, c->scope), node->d) : 0;
    return rc;
}

static int run_set(struct jinja_context *c, const struct jinja_node *node) {
    struct jinja_value v;
    int rc = eval_node(c, node->b, &v);
    return rc ? rc : assign_target(c, node->a, v);
}

// Runs a body in a scope of its own and gives what it wrote.
static int capture_body(struct jinja_context *c, const struct jinja_node *body,
                        struct jinja_value *out) {
    size_t mark = jinja_mark(c);
    int rc = run_inside(c, new_scope(c, c->scope), body);
    if (rc > 0)
        jinja_drop(c, mark);
    return rc ? rc : jinja_take(c, mark, out);
}

static int run_set_block(struct jinja_context *c, const struct jinja_node *node) {
    struct jinja_value v;
    int rc = capture_body(c, node->body, &v);
    if (!rc && node->b)
        rc = eval_filters(c, node->b, v, &v);
    return rc ? rc : assign_target(c, node->a, v);
}

static int run_filter_block(struct jinja_context *c, const struct jinja_node *node) {
    struct jinja_value v;
    int rc = capture_body(c, node->body, &v);
    if (!rc)
        rc = eval_filters(c, node->a, v, &v);
    if (!rc && v.kind != JINJA_STRING)
        rc = jinja_fail(c, ERR_USAGE, "a filter block gives '%s' instead of text", jinja_type(v));
    return rc ? rc : jinja_put_str(c, v);
}

static int run_macro(struct jinja_context *c, const struct jinja_node *node) {
    struct jinja_macro *m = jinja_alloc(c, sizeof *m);
    if (!m)
        return c->e.code;
    *m = (struct jinja_macro){.name = node->value.as.s->bytes, .node = node, .scope = c->scope};
    return assign_name(c, node->id, (struct jinja_value){.kind = JINJA_MACRO, .as.p = m});
}

static int run_with(struct jinja_context *c, const struct jinja_node *node) {
    struct jinja_scope *outside = c->scope, *scope = new_scope(c, outside);
    int rc = scope ? 0 : c->e.code;
    for (const struct jinja_node *i = node->list; i && !rc; i = i->next) {
        struct jinja_value v;
        rc = eval_node(c, i->b, &v); // outside: they do not see each other
        c->scope = scope;
        if (!rc)
            rc = assign_target(c, i->a, v);
        c->scope = outside;
    }
    return rc ? rc : run_inside(c, scope, node->body);
}

static int run_break(struct jinja_context *c, const struct jinja_node *node) {
    (void)c;
    return node->type == NODE_BREAK ? BREAK : CONTINUE;
}

int jinja_run(struct jinja_context *c, const struct jinja_node *body) {
    static int (*const table[])(struct jinja_context *, const struct jinja_node *) = {
        [NODE_TEXT] = run_text,   [NODE_PRINT] = run_print,
        [NODE_IF] = run_if,       [NODE_FOR] = run_for,
        [NODE_SET] = run_set,     [NODE_SET_BLOCK] = run_set_block,
        [NODE_MACRO] = run_macro, [NODE_FILTER_BLOCK] = run_filter_block,
        [NODE_WITH] = run_with,   [NODE_SCOPE] = run_scope,
        [NODE_BREAK] = run_break, [NODE_CONTINUE] = run_break,
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
