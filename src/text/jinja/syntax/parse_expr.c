// SPDX-License-Identifier: Apache-2.0
// Expressions; see parse.h. From loose to tight: if-else, or, and, not, comparisons, + and -, ~,
// * / // %, **, signs, then attributes, calls, filters and tests.
#include <string.h>

#include "text/jinja/builtins/tables.h"
#include "text/jinja/syntax/parse.h"

static struct jinja_node *name_node(struct jinja_parser *p) {
    static const unsigned uses[ID_FIXED] = {USES_LOOP, USES_CALLER, USES_KWARGS, USES_VARARGS};
    struct jinja_node *node = jinja_node(p, NODE_NAME);
    if (!node)
        return NULL;
    node->value = p->at->value;
    node->id = jinja_name_id(p, p->at->value);
    if (node->id >= 0 && node->id < ID_FIXED)
        p->uses |= uses[node->id];
    p->at++;
    return node->id < 0 ? NULL : node;
}

static struct jinja_node *const_node(struct jinja_parser *p, struct jinja_value v) {
    struct jinja_node *node = jinja_node(p, NODE_CONST);
    if (node)
        node->value = v;
    p->at++;
    return node;
}

// Strings beside each other are one.
static struct jinja_node *string_node(struct jinja_parser *p) {
    struct jinja_node *node = const_node(p, p->at->value);
    if (!node)
        return NULL;
    if (p->at->type == TOKEN_STRING) {
        size_t mark = jinja_mark(p->c);
        int rc = jinja_put_string(p->c, node->value.as.s);
        for (; p->at->type == TOKEN_STRING && !rc; p->at++)
            rc = jinja_put_string(p->c, p->at->value.as.s);
        if (rc || jinja_take(p->c, mark, &node->value))
            return NULL;
        node->value = jinja_constant(p->c, node->value.as.s->bytes, node->value.as.s->n);
        if (!node->value.kind)
            return NULL;
    }
    return jinja_note_word(p, node->value) ? NULL : node;
}

// Expressions between the bracket at hand and its end; a comma may stand last. A dictionary has
// pairs.
static struct jinja_node *bracketed(struct jinja_parser *p, enum jinja_node_type type, char end) {
    struct jinja_node *node = jinja_node(p, type), **tail = node ? &node->list : NULL;
    p->at++;
    for (bool first = true; node && !jinja_at_op(p, end); first = false) {
        if (!first && !jinja_want_op(p, ','))
            return NULL;
        if (jinja_at_op(p, end))
            break;
        for (int i = 0; i < (type == NODE_DICT ? 2 : 1); i++, tail = &(*tail)->next) {
            if (i == 1 && !jinja_want_op(p, ':'))
                return NULL;
            *tail = jinja_parse_expression(p, true);
            if (!*tail)
                return NULL;
        }
    }
    p->at += node != NULL;
    return node;
}

static struct jinja_node *parse_group(struct jinja_parser *p) {
    p->at++;
    if (jinja_at_op(p, ')')) {
        struct jinja_node *empty = jinja_node(p, NODE_TUPLE);
        p->at++;
        return empty;
    }
    struct jinja_node *node = jinja_parse_tuple(p, true, NULL);
    return node && jinja_want_op(p, ')') ? node : NULL;
}

static struct jinja_node *parse_word(struct jinja_parser *p) {
    if (jinja_at_word(p, "true") || jinja_at_word(p, "True"))
        return const_node(p, jinja_bool(true));
    if (jinja_at_word(p, "false") || jinja_at_word(p, "False"))
        return const_node(p, jinja_bool(false));
    if (jinja_at_word(p, "none") || jinja_at_word(p, "None"))
        return const_node(p, jinja_none());
    return name_node(p);
}

static struct jinja_node *parse_primary(struct jinja_parser *p) {
    if (p->at->type == TOKEN_NAME)
        return parse_word(p);
    if (p->at->type == TOKEN_STRING)
        return string_node(p);
    if (p->at->type == TOKEN_NUMBER)
        return const_node(p, p->at->value);
    if (jinja_at_op(p, '('))
        return parse_group(p);
    if (jinja_at_op(p, '['))
        return bracketed(p, NODE_LIST, ']');
    if (jinja_at_op(p, '{'))
        return bracketed(p, NODE_DICT, '}');
    jinja_parse_fail(p, "an expression");
    return NULL;
}

// Arguments; their order is Python's: positions, names, *list, **dictionary.
static bool parse_arg(struct jinja_parser *p, struct jinja_node **out, int *stage) {
    enum jinja_node_type type =
        jinja_at_op(p, '*')      ? NODE_SPLAT
        : jinja_at_op(p, OP_POW) ? NODE_SPLATS
        : p->at->type == TOKEN_NAME && p->at[1].type == TOKEN_OPERATOR && p->at[1].op == '='
            ? NODE_KWARG
            : NODE_ARG;
    static const int stages[] = {0, 1, 2, 3}; // of ARG, KWARG, SPLAT, SPLATS
    int now = stages[type - NODE_ARG];
    bool fits = now == 0 ? *stage == 0 : now == 1 ? *stage < 3 : *stage < now;
    struct jinja_node *node = fits ? jinja_node(p, type) : NULL;
    if (!fits)
        jinja_parse_fail(p, "arguments in the order of Python");
    if (!node)
        return false;
    *stage = now > *stage ? now : *stage;
    if (type == NODE_KWARG) {
        node->value = p->at->value;
        p->at++;
    }
    p->at += type != NODE_ARG;
    node->a = jinja_parse_expression(p, true);
    *out = node;
    return node->a != NULL;
}

static bool parse_args(struct jinja_parser *p, struct jinja_node **args) {
    int stage = 0;
    p->at++;
    for (bool first = true; !jinja_at_op(p, ')'); first = false) {
        if (!first && !jinja_want_op(p, ','))
            return false;
        if (!first && jinja_at_op(p, ')'))
            break;
        if (!parse_arg(p, args, &stage))
            return false;
        args = &(*args)->next;
    }
    p->at++;
    return true;
}

static struct jinja_node *parse_attr(struct jinja_parser *p, struct jinja_node *of) {
    p->at++;
    bool name = p->at->type == TOKEN_NAME;
    if (!name && (p->at->type != TOKEN_NUMBER || p->at->value.kind != JINJA_INT)) {
        jinja_parse_fail(p, "a name or number");
        return NULL;
    }
    struct jinja_node *node = jinja_node(p, name ? NODE_ATTR : NODE_ITEM);
    if (!node)
        return NULL;
    node->a = of;
    node->value = p->at->value;
    if (name) {
        p->at++;
        return jinja_note_word(p, node->value) ? NULL : node;
    }
    node->b = const_node(p, p->at->value);
    return node->b ? node : NULL;
}

// One of the parts of a slice, which may be missing.
static bool slice_part(struct jinja_parser *p, struct jinja_node **part) {
    if (jinja_at_op(p, ':') || jinja_at_op(p, ']') || jinja_at_op(p, ','))
        return true;
    *part = jinja_parse_expression(p, true);
    return *part != NULL;
}

static struct jinja_node *parse_item(struct jinja_parser *p, struct jinja_node *of) {
    struct jinja_node *node = jinja_node(p, NODE_ITEM);
    p->at++;
    if (!node)
        return NULL;
    node->a = of;
    if (!slice_part(p, &node->b))
        return NULL;
    if (jinja_skip_op(p, ':')) {
        node->type = NODE_SLICE;
        if (!slice_part(p, &node->c))
            return NULL;
        if (jinja_skip_op(p, ':') && !slice_part(p, &node->d))
            return NULL;
    } else if (!node->b) {
        jinja_parse_fail(p, "an index");
        return NULL;
    } else if (jinja_at_op(p, ',')) {
        struct jinja_node *tuple = jinja_node(p, NODE_TUPLE), *last = node->b;
        while (tuple && jinja_skip_op(p, ',') && (last->next = jinja_parse_expression(p, true)))
            last = last->next;
        if (!tuple || p->c->e.code)
            return NULL;
        tuple->list = node->b;
        node->b = tuple;
    }
    return jinja_want_op(p, ']') ? node : NULL;
}

static struct jinja_node *parse_call(struct jinja_parser *p, struct jinja_node *what) {
    struct jinja_node *node = jinja_node(p, NODE_CALL);
    if (!node)
        return NULL;
    node->a = what;
    return parse_args(p, &node->args) ? node : NULL;
}

static struct jinja_node *parse_postfix(struct jinja_parser *p, struct jinja_node *node) {
    while (node) {
        if (jinja_at_op(p, '.'))
            node = parse_attr(p, node);
        else if (jinja_at_op(p, '['))
            node = parse_item(p, node);
        else if (jinja_at_op(p, '('))
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

// A filter's or test's name.
static bool take_name(struct jinja_parser *p, struct jinja_node *node, bool filter) {
    if (p->at->type != TOKEN_NAME) {
        jinja_parse_fail(p, filter ? "the name of a filter" : "the name of a test");
        return false;
    }
    node->value = p->at->value;
    node->builtin = filter ? jinja_find_filter(node->value) : jinja_find_test(node->value);
    p->at++;
    return true;
}

struct jinja_node *jinja_parse_filters(struct jinja_parser *p, struct jinja_node *of,
                                       bool name_first) {
    while (name_first || jinja_skip_op(p, '|')) {
        struct jinja_node *node = jinja_node(p, NODE_FILTER);
        if (!node || !take_name(p, node, true))
            return NULL;
        node->a = of;
        if (jinja_at_op(p, '(') && !parse_args(p, &node->args))
            return NULL;
        of = node;
        name_first = false;
    }
    return of;
}

// Whether what follows a test's name is its argument without brackets.
static bool at_bare_argument(const struct jinja_parser *p) {
    if (p->at->type == TOKEN_NAME)
        return !jinja_at_word(p, "else") && !jinja_at_word(p, "or") && !jinja_at_word(p, "and");
    return p->at->type == TOKEN_STRING || p->at->type == TOKEN_NUMBER || jinja_at_op(p, '[') ||
           jinja_at_op(p, '{');
}

static struct jinja_node *parse_test(struct jinja_parser *p, struct jinja_node *of) {
    struct jinja_node *node = jinja_node(p, NODE_TEST);
    p->at++;
    bool negated = jinja_skip_word(p, "not");
    if (!node || !take_name(p, node, false))
        return NULL;
    node->a = of;
    if (jinja_at_op(p, '(')) {
        if (!parse_args(p, &node->args))
            return NULL;
    } else if (at_bare_argument(p)) {
        if (jinja_at_word(p, "is")) {
            jinja_parse_fail(p, "no second test behind a test");
            return NULL;
        }
        node->args = jinja_node(p, NODE_ARG);
        if (!node->args || !(node->args->a = parse_postfix(p, parse_primary(p))))
            return NULL;
    }
    struct jinja_node *not = negated ? jinja_node(p, NODE_UNARY) : node;
    if (negated && not) {
        not->op = '!';
        not->a = node;
    }
    return not;
}

static struct jinja_node *parse_filter_expr(struct jinja_parser *p, struct jinja_node *node) {
    while (node) {
        if (jinja_at_op(p, '|'))
            node = jinja_parse_filters(p, node, false);
        else if (jinja_at_word(p, "is"))
            node = parse_test(p, node);
        else if (jinja_at_op(p, '('))
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

static struct jinja_node *parse_unary(struct jinja_parser *p, bool with_filter) {
    struct jinja_node *node;
    if (jinja_at_op(p, '-') || jinja_at_op(p, '+')) {
        node = jinja_node(p, NODE_UNARY);
        if (!node || !jinja_parse_enter(p))
            return NULL;
        node->op = p->at->op;
        p->at++;
        node->a = parse_unary(p, false);
        p->depth--;
        if (!node->a)
            return NULL;
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    return with_filter ? parse_filter_expr(p, node) : node;
}

// Operands of `tighter` with operators of one precedence between them, grouped to the left.
static struct jinja_node *left_to_right(struct jinja_parser *p, const char *ops,
                                        struct jinja_node *(*tighter)(struct jinja_parser *)) {
    struct jinja_node *left = tighter(p);
    while (left && p->at->type == TOKEN_OPERATOR && strchr(ops, p->at->op)) {
        struct jinja_node *node = jinja_node(p, NODE_BINARY);
        if (!node)
            return NULL;
        node->op = p->at->op;
        p->at++;
        node->a = left;
        node->b = tighter(p);
        left = node->b ? node : NULL;
    }
    return left;
}

static struct jinja_node *parse_signed(struct jinja_parser *p) {
    return parse_unary(p, true);
}

static struct jinja_node *parse_power(struct jinja_parser *p) {
    return left_to_right(p, "^", parse_signed);
}

static struct jinja_node *parse_product(struct jinja_parser *p) {
    return left_to_right(p, "*/d%", parse_power);
}

static struct jinja_node *parse_concat(struct jinja_parser *p) {
    struct jinja_node *first = parse_product(p);
    if (!first || !jinja_at_op(p, '~'))
        return first;
    struct jinja_node *node = jinja_node(p, NODE_CONCAT), *last = first;
    if (!node)
        return NULL;
    node->list = first;
    while (jinja_skip_op(p, '~')) {
        last->next = parse_product(p);
        if (!last->next)
            return NULL;
        last = last->next;
    }
    return node;
}

static struct jinja_node *parse_sum(struct jinja_parser *p) {
    return left_to_right(p, "+-", parse_concat);
}

// The comparison at hand, 0 for none; moves behind it.
static char take_comparison(struct jinja_parser *p) {
    if (p->at->type == TOKEN_OPERATOR && strchr("engl<>", p->at->op))
        return (p->at++)->op;
    if (jinja_skip_word(p, "in"))
        return 'i';
    if (jinja_at_word(p, "not") && p->at[1].type == TOKEN_NAME &&
        jinja_is_text(p->at[1].value, "in")) {
        p->at += 2;
        return 'o';
    }
    return 0;
}

static struct jinja_node *parse_compare(struct jinja_parser *p) {
    struct jinja_node *first = parse_sum(p), *node = NULL, **tail = NULL;
    char op;
    while (first && (op = take_comparison(p)) != 0) {
        if (!node) {
            node = jinja_node(p, NODE_COMPARE);
            if (!node)
                return NULL;
            node->a = first;
            tail = &node->list;
        }
        *tail = jinja_node(p, NODE_OPERAND);
        if (!*tail)
            return NULL;
        (*tail)->op = op;
        (*tail)->a = parse_sum(p);
        if (!(*tail)->a)
            return NULL;
        tail = &(*tail)->next;
    }
    return node ? node : first;
}

static struct jinja_node *parse_not(struct jinja_parser *p) {
    if (!jinja_at_word(p, "not"))
        return parse_compare(p);
    struct jinja_node *node = jinja_node(p, NODE_UNARY);
    if (!node || !jinja_parse_enter(p))
        return NULL;
    p->at++;
    node->op = '!';
    node->a = parse_not(p);
    p->depth--;
    return node->a ? node : NULL;
}

static struct jinja_node *parse_logic(struct jinja_parser *p, const char *word,
                                      enum jinja_node_type type,
                                      struct jinja_node *(*tighter)(struct jinja_parser *)) {
    struct jinja_node *left = tighter(p);
    while (left && jinja_skip_word(p, word)) {
        struct jinja_node *node = jinja_node(p, type);
        if (!node)
            return NULL;
        node->a = left;
        node->b = tighter(p);
        left = node->b ? node : NULL;
    }
    return left;
}

static struct jinja_node *parse_and(struct jinja_parser *p) {
    return parse_logic(p, "and", NODE_AND, parse_not);
}

static struct jinja_node *parse_or(struct jinja_parser *p) {
    return parse_logic(p, "or", NODE_OR, parse_and);
}

static struct jinja_node *parse_cond(struct jinja_parser *p) {
    struct jinja_node *then = parse_or(p);
    while (then && jinja_skip_word(p, "if")) {
        struct jinja_node *node = jinja_node(p, NODE_COND);
        if (!node)
            return NULL;
        node->b = then;
        node->a = parse_or(p);
        if (!node->a)
            return NULL;
        if (jinja_skip_word(p, "else") && !(node->c = jinja_parse_expression(p, true)))
            return NULL;
        then = node;
    }
    return then;
}

struct jinja_node *jinja_parse_expression(struct jinja_parser *p, bool with_if) {
    if (!jinja_parse_enter(p))
        return NULL;
    struct jinja_node *node = with_if ? parse_cond(p) : parse_or(p);
    p->depth--;
    return node;
}

static bool tuple_ends(const struct jinja_parser *p, const char *end) {
    return p->at->type == TOKEN_PRINT_END || p->at->type == TOKEN_BLOCK_END ||
           jinja_at_op(p, ')') || (end && jinja_at_word(p, end));
}

static struct jinja_node *parse_assignable(struct jinja_parser *p, bool attributes) {
    if (jinja_at_op(p, '(')) {
        if (!jinja_parse_enter(p))
            return NULL;
        p->at++;
        struct jinja_node *inner = jinja_parse_target(p, attributes, NULL);
        p->depth--;
        return inner && jinja_want_op(p, ')') ? inner : NULL;
    }
    unsigned uses = p->uses;
    struct jinja_node *node = p->at->type == TOKEN_NAME ? parse_word(p) : NULL;
    p->uses = uses; // a target is no use
    if (!p->c->e.code && (!node || node->type != NODE_NAME || node->id == ID_LOOP))
        jinja_parse_fail(p, "a name to assign to");
    if (p->c->e.code)
        return NULL;
    if (attributes && jinja_skip_op(p, '.')) {
        if (p->at->type != TOKEN_NAME) {
            jinja_parse_fail(p, "the name of an attribute");
            return NULL;
        }
        node->type = NODE_NSREF;
        node->value = p->at->value;
        p->at++;
        return jinja_note_word(p, node->value) ? NULL : node;
    }
    return node;
}

// Items with commas between them; one without a comma is no tuple.
static struct jinja_node *parse_items(struct jinja_parser *p, struct jinja_node *first,
                                      const char *end, int how) {
    if (!first || !jinja_at_op(p, ','))
        return first;
    struct jinja_node *tuple = jinja_node(p, NODE_TUPLE), *last = first;
    if (!tuple)
        return NULL;
    tuple->list = first;
    while (jinja_skip_op(p, ',') && !tuple_ends(p, end)) {
        last->next = how < 2 ? jinja_parse_expression(p, how == 1) : parse_assignable(p, how == 3);
        if (!last->next)
            return NULL;
        last = last->next;
    }
    return tuple;
}

struct jinja_node *jinja_parse_tuple(struct jinja_parser *p, bool with_if, const char *end) {
    return parse_items(p, jinja_parse_expression(p, with_if), end, with_if);
}

struct jinja_node *jinja_parse_target(struct jinja_parser *p, bool attributes, const char *end) {
    return parse_items(p, parse_assignable(p, attributes), end, 2 + attributes);
}
