// SPDX-License-Identifier: Apache-2.0
// Tokens to the tree (ast.h), by recursive descent with jinja2's grammar and precedences: from
// loose to tight if-else, or, and, not, comparisons, + and -, ~, * / // %, signs, then attributes,
// calls, filters and tests. What jinja2 has and no chat template needs is refused by name.
#include <stdio.h>
#include <string.h>

#include "text/jinja/ast.h"
#include "text/jinja/container.h"
#include "text/jinja/lexer.h"

enum { DEPTH_MAX = 200 };

struct parser {
    struct jinja *j;
    struct jinja_context *c; // j->store
    const struct jinja_token *at;
    int depth, loops;               // open expressions and statements; loops around, in this macro
    bool uses_loop;                 // the variable `loop` has been mentioned
    const struct jinja_node *macro; // around; NULL: none
};

// All parsers return NULL with the error set.
static struct jinja_node *parse_expression(struct parser *p, bool with_if);
// A tuple without brackets, or one expression.
static struct jinja_node *parse_tuple(struct parser *p, bool with_if);
// What can be assigned to: names, tuples of them, attributes of namespaces where `attributes`;
// `end` is a word that ends it, or NULL.
static struct jinja_node *parse_target(struct parser *p, bool attributes, const char *end);
// Parses up to a tag that begins with one of `ends` (separated by spaces; NULL: the end of the
// template) and moves past that word, *end being its place in the list.
static bool parse_body(struct parser *p, const char *ends, struct jinja_node **body, int *end);

static struct jinja_node *new_node(struct parser *p, enum jinja_node_type type) {
    struct jinja_node *node = jinja_alloc(p->c, sizeof *node);
    if (node) {
        node->type = (uint8_t)type;
        node->line = p->at->line;
    }
    return node;
}

static void describe_token(const struct jinja_token *t, char out[80]) {
    static const char *const kinds[] = {[TOKEN_END] = "the end of the template",
                                        [TOKEN_DATA] = "text",
                                        [TOKEN_PRINT_BEGIN] = "{{",
                                        [TOKEN_PRINT_END] = "}}",
                                        [TOKEN_BLOCK_BEGIN] = "{%",
                                        [TOKEN_BLOCK_END] = "%}",
                                        [TOKEN_STRING] = "a string",
                                        [TOKEN_NUMBER] = "a number"};
    static const char twos[] = "d^engl";
    static const char *const texts[] = {"//", "**", "==", "!=", ">=", "<="};
    const char *two = t->type == TOKEN_OPERATOR ? strchr(twos, t->op) : NULL;
    if (t->type == TOKEN_NAME)
        snprintf(out, 80, "'%.60s'", t->value.as.s->bytes);
    else if (t->type != TOKEN_OPERATOR)
        snprintf(out, 80, "%s", kinds[t->type]);
    else if (two)
        snprintf(out, 80, "'%s'", texts[two - twos]);
    else
        snprintf(out, 80, "'%c'", t->op);
}

static int fail_expected(struct parser *p, const char *what) {
    char found[80];
    describe_token(p->at, found);
    return jinja_fail(p->c, ERR_FORMAT, "line %d: expected %s, found %s", p->at->line, what, found);
}

static struct jinja_node *fail_unsupported(struct parser *p, const char *what) {
    jinja_fail(p->c, ERR_FORMAT, "line %d: %s not supported here", p->at->line, what);
    return NULL;
}

static bool enter_nesting(struct parser *p) {
    if (p->depth < DEPTH_MAX) {
        p->depth++;
        return true;
    }
    jinja_fail(p->c, ERR_FORMAT, "line %d: the template nests deeper than %d levels", p->at->line,
               DEPTH_MAX);
    return false;
}

static bool at_word(const struct parser *p, const char *word) {
    return p->at->type == TOKEN_NAME && jinja_is_text(p->at->value, word);
}

static bool skip_word(struct parser *p, const char *word) {
    bool there = at_word(p, word);
    p->at += there;
    return there;
}

static bool at_op(const struct parser *p, char op) {
    return p->at->type == TOKEN_OPERATOR && p->at->op == op;
}

static bool skip_op(struct parser *p, char op) {
    bool there = at_op(p, op);
    p->at += there;
    return there;
}

static bool expect_op(struct parser *p, char op) {
    char what[] = "'?'";
    what[1] = op;
    if (skip_op(p, op))
        return true;
    fail_expected(p, what);
    return false;
}

static int note_word(struct parser *p, struct jinja_value word) {
    return jinja_dict_set(p->c, p->j->words, word, jinja_none());
}

static int name_id(struct parser *p, struct jinja_value name) {
    struct jinja_dict *ids = p->j->ids;
    struct jinja_entry *e = jinja_dict_text(ids, name.as.s->bytes, name.as.s->n);
    if (!e) {
        if (jinja_dict_set(p->c, ids, name, jinja_int((int64_t)ids->n)) || note_word(p, name))
            return -1;
        return (int)ids->n - 1;
    }
    return (int)e->value.as.i;
}

// Names that macros have besides their parameters in jinja2.
static bool is_special_in_macro(const struct parser *p, struct jinja_value name) {
    for (const struct jinja_node *i = p->macro->list; i; i = i->next)
        if (jinja_same_text(i->value.as.s, name.as.s))
            return false;
    return jinja_is_text(name, "caller") || jinja_is_text(name, "kwargs") ||
           jinja_is_text(name, "varargs");
}

static struct jinja_node *name_node(struct parser *p) {
    struct jinja_node *node = new_node(p, NODE_NAME);
    if (!node)
        return NULL;
    node->value = p->at->value;
    node->id = name_id(p, p->at->value);
    p->uses_loop |= node->id == ID_LOOP;
    if (p->macro && is_special_in_macro(p, p->at->value))
        return fail_unsupported(p, "caller, kwargs and varargs in a macro are");
    p->at++;
    return node->id < 0 ? NULL : node;
}

static struct jinja_node *const_node(struct parser *p, struct jinja_value v) {
    struct jinja_node *node = new_node(p, NODE_CONST);
    if (node)
        node->value = v;
    p->at++;
    return node;
}

// Strings next to each other are one.
static struct jinja_node *string_node(struct parser *p) {
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
    return note_word(p, node->value) ? NULL : node;
}

// Expressions between the bracket at hand and its end; a comma may stand last. A dictionary has
// pairs.
static struct jinja_node *bracketed(struct parser *p, enum jinja_node_type type, char end) {
    struct jinja_node *node = new_node(p, type), **tail = node ? &node->list : NULL;
    p->at++;
    for (bool first = true; node && !at_op(p, end); first = false) {
        if (!first && !expect_op(p, ','))
            return NULL;
        if (at_op(p, end))
            break;
        for (int i = 0; i < (type == NODE_DICT ? 2 : 1); i++, tail = &(*tail)->next) {
            if (i == 1 && !expect_op(p, ':'))
                return NULL;
            *tail = parse_expression(p, true);
            if (!*tail)
                return NULL;
        }
    }
    p->at += node != NULL;
    return node;
}

static struct jinja_node *parse_group(struct parser *p) {
    p->at++;
    if (at_op(p, ')')) {
        struct jinja_node *empty = new_node(p, NODE_TUPLE);
        p->at++;
        return empty;
    }
    struct jinja_node *node = parse_tuple(p, true);
    return node && expect_op(p, ')') ? node : NULL;
}

static struct jinja_node *parse_word(struct parser *p) {
    if (at_word(p, "true") || at_word(p, "True"))
        return const_node(p, jinja_bool(true));
    if (at_word(p, "false") || at_word(p, "False"))
        return const_node(p, jinja_bool(false));
    if (at_word(p, "none") || at_word(p, "None"))
        return const_node(p, jinja_none());
    return name_node(p);
}

static struct jinja_node *parse_primary(struct parser *p) {
    if (p->at->type == TOKEN_NAME)
        return parse_word(p);
    if (p->at->type == TOKEN_STRING)
        return string_node(p);
    if (p->at->type == TOKEN_NUMBER)
        return const_node(p, p->at->value);
    if (at_op(p, '('))
        return parse_group(p);
    if (at_op(p, '['))
        return bracketed(p, NODE_LIST, ']');
    if (at_op(p, '{'))
        return bracketed(p, NODE_DICT, '}');
    fail_expected(p, "an expression");
    return NULL;
}

// An argument: by its position or, after all of those, by name.
static bool parse_arg(struct parser *p, struct jinja_node **out, bool *named) {
    bool name = p->at->type == TOKEN_NAME && p->at[1].type == TOKEN_OPERATOR && p->at[1].op == '=';
    if (at_op(p, '*') || at_op(p, OP_POW))
        fail_unsupported(p, "arguments in a list or dictionary (* and **) are");
    else if (*named && !name)
        fail_expected(p, "the name of an argument, as before it");
    struct jinja_node *node = p->c->e.code ? NULL : new_node(p, name ? NODE_KWARG : NODE_ARG);
    if (!node)
        return false;
    *named = name;
    if (name) {
        node->value = p->at->value;
        p->at += 2;
    }
    node->a = parse_expression(p, true);
    *out = node;
    return node->a != NULL;
}

static bool parse_args(struct parser *p, struct jinja_node **args) {
    bool named = false;
    p->at++;
    for (bool first = true; !at_op(p, ')'); first = false) {
        if (!first && !expect_op(p, ','))
            return false;
        if (!first && at_op(p, ')'))
            break;
        if (!parse_arg(p, args, &named))
            return false;
        args = &(*args)->next;
    }
    p->at++;
    return true;
}

static struct jinja_node *parse_attr(struct parser *p, struct jinja_node *of) {
    p->at++;
    bool name = p->at->type == TOKEN_NAME;
    if (!name && (p->at->type != TOKEN_NUMBER || p->at->value.kind != JINJA_INT)) {
        fail_expected(p, "a name or number");
        return NULL;
    }
    struct jinja_node *node = new_node(p, name ? NODE_ATTR : NODE_ITEM);
    if (!node)
        return NULL;
    node->a = of;
    node->value = p->at->value;
    if (name) {
        p->at++;
        return note_word(p, node->value) ? NULL : node;
    }
    node->b = const_node(p, p->at->value);
    return node->b ? node : NULL;
}

// One of the parts of a slice, which may be missing.
static bool slice_part(struct parser *p, struct jinja_node **part) {
    if (at_op(p, ':') || at_op(p, ']'))
        return true;
    *part = parse_expression(p, true);
    return *part != NULL;
}

static struct jinja_node *parse_item(struct parser *p, struct jinja_node *of) {
    struct jinja_node *node = new_node(p, NODE_ITEM);
    p->at++;
    if (!node)
        return NULL;
    node->a = of;
    if (!slice_part(p, &node->b))
        return NULL;
    if (skip_op(p, ':')) {
        node->type = NODE_SLICE;
        if (!slice_part(p, &node->c))
            return NULL;
        if (skip_op(p, ':') && !slice_part(p, &node->d))
            return NULL;
    } else if (!node->b) {
        fail_expected(p, "an index");
        return NULL;
    }
    return expect_op(p, ']') ? node : NULL;
}

static struct jinja_node *parse_call(struct parser *p, struct jinja_node *what) {
    struct jinja_node *node = new_node(p, NODE_CALL);
    if (!node)
        return NULL;
    node->a = what;
    return parse_args(p, &node->args) ? node : NULL;
}

static struct jinja_node *parse_postfix(struct parser *p, struct jinja_node *node) {
    while (node) {
        if (at_op(p, '.'))
            node = parse_attr(p, node);
        else if (at_op(p, '['))
            node = parse_item(p, node);
        else if (at_op(p, '('))
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

// A filter's or test's name.
static bool read_builtin_name(struct parser *p, struct jinja_node *node, bool filter) {
    if (p->at->type != TOKEN_NAME) {
        fail_expected(p, filter ? "the name of a filter" : "the name of a test");
        return false;
    }
    node->value = p->at->value;
    node->builtin = jinja_find_row(filter ? jinja_filters : jinja_tests, node->value.as.s);
    p->at++;
    return true;
}

static struct jinja_node *parse_filters(struct parser *p, struct jinja_node *of, bool name_first) {
    while (name_first || skip_op(p, '|')) {
        struct jinja_node *node = new_node(p, NODE_FILTER);
        if (!node || !read_builtin_name(p, node, true))
            return NULL;
        node->a = of;
        if (at_op(p, '(') && !parse_args(p, &node->args))
            return NULL;
        of = node;
        name_first = false;
    }
    return of;
}

// Whether what follows a test's name is its argument without brackets.
static bool at_bare_argument(const struct parser *p) {
    if (p->at->type == TOKEN_NAME)
        return !at_word(p, "else") && !at_word(p, "or") && !at_word(p, "and");
    return p->at->type == TOKEN_STRING || p->at->type == TOKEN_NUMBER || at_op(p, '[') ||
           at_op(p, '{');
}

static struct jinja_node *parse_test(struct parser *p, struct jinja_node *of) {
    struct jinja_node *node = new_node(p, NODE_TEST);
    p->at++;
    bool negated = skip_word(p, "not");
    if (!node || !read_builtin_name(p, node, false))
        return NULL;
    node->a = of;
    if (at_op(p, '(')) {
        if (!parse_args(p, &node->args))
            return NULL;
    } else if (at_bare_argument(p)) {
        if (at_word(p, "is")) {
            fail_expected(p, "no second test after a test");
            return NULL;
        }
        node->args = new_node(p, NODE_ARG);
        if (!node->args || !(node->args->a = parse_postfix(p, parse_primary(p))))
            return NULL;
    }
    struct jinja_node *not = negated ? new_node(p, NODE_UNARY) : node;
    if (negated && not) {
        not->op = '!';
        not->a = node;
    }
    return not;
}

static struct jinja_node *parse_filter_expr(struct parser *p, struct jinja_node *node) {
    while (node) {
        if (at_op(p, '|'))
            node = parse_filters(p, node, false);
        else if (at_word(p, "is"))
            node = parse_test(p, node);
        else if (at_op(p, '('))
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

static struct jinja_node *parse_unary(struct parser *p, bool with_filter) {
    struct jinja_node *node;
    if (at_op(p, '-') || at_op(p, '+')) {
        node = new_node(p, NODE_UNARY);
        if (!node || !enter_nesting(p))
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
static struct jinja_node *left_to_right(struct parser *p, const char *ops,
                                        struct jinja_node *(*tighter)(struct parser *)) {
    struct jinja_node *left = tighter(p);
    while (left && p->at->type == TOKEN_OPERATOR && strchr(ops, p->at->op)) {
        struct jinja_node *node = new_node(p, NODE_BINARY);
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

static struct jinja_node *parse_signed(struct parser *p) {
    struct jinja_node *node = parse_unary(p, true);
    return node && at_op(p, OP_POW) ? fail_unsupported(p, "the operator ** is") : node;
}

static struct jinja_node *parse_product(struct parser *p) {
    return left_to_right(p, "*/d%", parse_signed);
}

static struct jinja_node *parse_concat(struct parser *p) {
    struct jinja_node *first = parse_product(p);
    if (!first || !at_op(p, '~'))
        return first;
    struct jinja_node *node = new_node(p, NODE_CONCAT), *last = first;
    if (!node)
        return NULL;
    node->list = first;
    while (skip_op(p, '~')) {
        last->next = parse_product(p);
        if (!last->next)
            return NULL;
        last = last->next;
    }
    return node;
}

static struct jinja_node *parse_sum(struct parser *p) {
    return left_to_right(p, "+-", parse_concat);
}

// The comparison at hand, 0 for none; moves past it.
static char read_comparison(struct parser *p) {
    if (p->at->type == TOKEN_OPERATOR && strchr("engl<>", p->at->op))
        return (p->at++)->op;
    if (skip_word(p, "in"))
        return 'i';
    if (at_word(p, "not") && p->at[1].type == TOKEN_NAME && jinja_is_text(p->at[1].value, "in")) {
        p->at += 2;
        return 'o';
    }
    return 0;
}

static struct jinja_node *parse_compare(struct parser *p) {
    struct jinja_node *first = parse_sum(p), *node = NULL, **tail = NULL;
    char op;
    while (first && (op = read_comparison(p)) != 0) {
        if (!node) {
            node = new_node(p, NODE_COMPARE);
            if (!node)
                return NULL;
            node->a = first;
            tail = &node->list;
        }
        *tail = new_node(p, NODE_OPERAND);
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

static struct jinja_node *parse_not(struct parser *p) {
    if (!at_word(p, "not"))
        return parse_compare(p);
    struct jinja_node *node = new_node(p, NODE_UNARY);
    if (!node || !enter_nesting(p))
        return NULL;
    p->at++;
    node->op = '!';
    node->a = parse_not(p);
    p->depth--;
    return node->a ? node : NULL;
}

static struct jinja_node *parse_logic(struct parser *p, const char *word, enum jinja_node_type type,
                                      struct jinja_node *(*tighter)(struct parser *)) {
    struct jinja_node *left = tighter(p);
    while (left && skip_word(p, word)) {
        struct jinja_node *node = new_node(p, type);
        if (!node)
            return NULL;
        node->a = left;
        node->b = tighter(p);
        left = node->b ? node : NULL;
    }
    return left;
}

static struct jinja_node *parse_and(struct parser *p) {
    return parse_logic(p, "and", NODE_AND, parse_not);
}

static struct jinja_node *parse_or(struct parser *p) {
    return parse_logic(p, "or", NODE_OR, parse_and);
}

static struct jinja_node *parse_cond(struct parser *p) {
    struct jinja_node *then = parse_or(p);
    while (then && skip_word(p, "if")) {
        struct jinja_node *node = new_node(p, NODE_COND);
        if (!node)
            return NULL;
        node->b = then;
        node->a = parse_or(p);
        if (!node->a)
            return NULL;
        if (skip_word(p, "else") && !(node->c = parse_expression(p, true)))
            return NULL;
        then = node;
    }
    return then;
}

static struct jinja_node *parse_expression(struct parser *p, bool with_if) {
    if (!enter_nesting(p))
        return NULL;
    struct jinja_node *node = with_if ? parse_cond(p) : parse_or(p);
    p->depth--;
    return node;
}

static bool tuple_ends(const struct parser *p, const char *end) {
    return p->at->type == TOKEN_PRINT_END || p->at->type == TOKEN_BLOCK_END || at_op(p, ')') ||
           (end && at_word(p, end));
}

static struct jinja_node *parse_assignable(struct parser *p, bool attributes) {
    if (at_op(p, '(')) {
        if (!enter_nesting(p))
            return NULL;
        p->at++;
        struct jinja_node *inner = parse_target(p, attributes, NULL);
        p->depth--;
        return inner && expect_op(p, ')') ? inner : NULL;
    }
    bool uses_loop = p->uses_loop;
    struct jinja_node *node = p->at->type == TOKEN_NAME ? parse_word(p) : NULL;
    p->uses_loop = uses_loop; // a target is no use
    if (!p->c->e.code && (!node || node->type != NODE_NAME || node->id == ID_LOOP))
        fail_expected(p, "a name to assign to");
    if (p->c->e.code)
        return NULL;
    if (attributes && skip_op(p, '.')) {
        if (p->at->type != TOKEN_NAME) {
            fail_expected(p, "the name of an attribute");
            return NULL;
        }
        node->type = NODE_NSREF;
        node->value = p->at->value;
        p->at++;
        return note_word(p, node->value) ? NULL : node;
    }
    return node;
}

// Items with commas between them; one without a comma is no tuple.
static struct jinja_node *parse_items(struct parser *p, struct jinja_node *first, const char *end,
                                      int how) {
    if (!first || !at_op(p, ','))
        return first;
    struct jinja_node *tuple = new_node(p, NODE_TUPLE), *last = first;
    if (!tuple)
        return NULL;
    tuple->list = first;
    while (skip_op(p, ',') && !tuple_ends(p, end)) {
        last->next = how < 2 ? parse_expression(p, how == 1) : parse_assignable(p, how == 3);
        if (!last->next)
            return NULL;
        last = last->next;
    }
    return tuple;
}

static struct jinja_node *parse_tuple(struct parser *p, bool with_if) {
    return parse_items(p, parse_expression(p, with_if), NULL, with_if);
}

static struct jinja_node *parse_target(struct parser *p, bool attributes, const char *end) {
    return parse_items(p, parse_assignable(p, attributes), end, 2 + attributes);
}

static bool expect_block_end(struct parser *p) {
    if (p->at->type == TOKEN_BLOCK_END) {
        p->at++;
        return true;
    }
    fail_expected(p, "%}");
    return false;
}

// The body of the tag at hand up to its end tag, whose "%}" is left to the caller.
static bool parse_inside(struct parser *p, const char *ends, struct jinja_node **body, int *end) {
    skip_op(p, ':');
    return expect_block_end(p) && parse_body(p, ends, body, end);
}

static struct jinja_node *parse_if(struct parser *p) {
    struct jinja_node *first = NULL, **place = &first;
    int end = 0; // of "elif else endif"
    do {
        struct jinja_node *node = *place = new_node(p, NODE_IF);
        if (!node || !(node->a = parse_tuple(p, false)) ||
            !parse_inside(p, "elif else endif", &node->body, &end))
            return NULL;
        place = &node->b;
    } while (end == 0);
    if (end == 1 && !parse_inside(p, "endif", place, &end))
        return NULL;
    return first;
}

static struct jinja_node *parse_for(struct parser *p) {
    struct jinja_node *node = new_node(p, NODE_FOR);
    int end = 0;
    if (!node || !(node->a = parse_target(p, false, "in")))
        return NULL;
    if (!skip_word(p, "in")) {
        fail_expected(p, "'in'");
        return NULL;
    }
    node->b = parse_tuple(p, false);
    if (!node->b || (skip_word(p, "if") && !(node->c = parse_expression(p, true))))
        return NULL;
    if (at_word(p, "recursive"))
        return fail_unsupported(p, "a recursive loop is");
    bool outside = p->uses_loop;
    p->uses_loop = false;
    p->loops++;
    bool good = parse_inside(p, "else endfor", &node->body, &end);
    p->loops--;
    node->flag = p->uses_loop;
    p->uses_loop = outside;
    if (!good || (end == 0 && !parse_inside(p, "endfor", &node->d, &end)))
        return NULL;
    return node;
}

static struct jinja_node *parse_set(struct parser *p) {
    struct jinja_node *node = new_node(p, NODE_SET);
    int end;
    if (!node || !(node->a = parse_target(p, true, NULL)))
        return NULL;
    if (skip_op(p, '=')) {
        node->b = parse_tuple(p, true);
        return node->b ? node : NULL;
    }
    node->type = NODE_SET_BLOCK;
    if (at_op(p, '|') && !(node->b = parse_filters(p, NULL, false)))
        return NULL;
    return parse_inside(p, "endset", &node->body, &end) ? node : NULL;
}

static bool parse_parameters(struct parser *p, struct jinja_node *macro) {
    enum { MAX = 255 }; // they are looked for one after the other
    struct jinja_node **tail = &macro->list;
    int n = 0;
    if (!expect_op(p, '('))
        return false;
    for (bool first = true, defaults = false; !at_op(p, ')'); first = false) {
        if (!first && !expect_op(p, ','))
            return false;
        struct jinja_node *node = *tail = new_node(p, NODE_PARAM);
        if (++n > MAX) {
            fail_expected(p, "the end of the parameters, of which a macro has 255 at most");
            return false;
        }
        if (!node || (p->at->type != TOKEN_NAME && fail_expected(p, "a parameter's name")))
            return false;
        node->value = p->at->value;
        node->id = name_id(p, p->at->value);
        p->at++;
        if (node->id < 0)
            return false;
        if (skip_op(p, '=')) {
            defaults = true;
            if (!(node->a = parse_expression(p, true)))
                return false;
        } else if (defaults) {
            fail_expected(p, "a default after a parameter that follows one with a default");
            return false;
        }
        tail = &node->next;
    }
    p->at++;
    return true;
}

static struct jinja_node *parse_macro(struct parser *p) {
    struct jinja_node *node = new_node(p, NODE_MACRO);
    if (!node || (p->at->type != TOKEN_NAME && fail_expected(p, "the name of a macro")))
        return NULL;
    node->value = p->at->value;
    node->id = name_id(p, p->at->value);
    p->at++;
    if (node->id < 0 || !parse_parameters(p, node))
        return NULL;
    const struct jinja_node *outside = p->macro;
    int loops = p->loops, end;
    p->macro = node;
    p->loops = 0;
    bool good = parse_inside(p, "endmacro", &node->body, &end);
    p->loops = loops;
    p->macro = outside;
    return good ? node : NULL;
}

static struct jinja_node *parse_filter_block(struct parser *p) {
    struct jinja_node *node = new_node(p, NODE_FILTER_BLOCK);
    int end;
    if (!node || !(node->a = parse_filters(p, NULL, true)))
        return NULL;
    return parse_inside(p, "endfilter", &node->body, &end) ? node : NULL;
}

static struct jinja_node *parse_with(struct parser *p) {
    struct jinja_node *node = new_node(p, NODE_WITH), **tail = node ? &node->list : NULL;
    int end;
    while (node && p->at->type != TOKEN_BLOCK_END) {
        if (node->list && !expect_op(p, ','))
            return NULL;
        *tail = new_node(p, NODE_SET);
        if (!*tail || !((*tail)->a = parse_target(p, false, NULL)) || !expect_op(p, '=') ||
            !((*tail)->b = parse_expression(p, true)))
            return NULL;
        tail = &(*tail)->next;
    }
    return node && parse_inside(p, "endwith", &node->body, &end) ? node : NULL;
}

// {% generation %}, whose body is a function of its own in transformers: loops outside are not
// seen.
static struct jinja_node *parse_generation(struct parser *p) {
    struct jinja_node *node = new_node(p, NODE_SCOPE);
    int end, loops = p->loops;
    p->loops = 0;
    bool good = node && parse_inside(p, "endgeneration", &node->body, &end);
    p->loops = loops;
    return good ? node : NULL;
}

static struct jinja_node *parse_jump(struct parser *p) {
    if (p->loops == 0) {
        fail_expected(p, "break and continue inside of a loop only");
        return NULL;
    }
    return new_node(p, jinja_is_text(p->at[-1].value, "break") ? NODE_BREAK : NODE_CONTINUE);
}

static const struct tag {
    const char *name;
    struct jinja_node *(*parse)(struct parser *p);
} tags[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"generation", parse_generation},
    {"break", parse_jump},
    {"continue", parse_jump},
};

static struct jinja_node *parse_statement(struct parser *p, const char *ends) {
    static const char *const others[] = {"autoescape", "block",  "call",    "do",    "extends",
                                         "from",       "import", "include", "print", "trans"};
    if (p->at->type != TOKEN_NAME) {
        fail_expected(p, "the name of a tag");
        return NULL;
    }
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!at_word(p, tags[i].name))
            continue;
        p->at++;
        struct jinja_node *node = tags[i].parse(p);
        return node && expect_block_end(p) ? node : NULL;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (at_word(p, others[i])) {
            jinja_fail(p->c, ERR_FORMAT, "line %d: the tag '%s' is not supported here", p->at->line,
                       others[i]);
            return NULL;
        }
    jinja_fail(p->c, ERR_FORMAT, "line %d: there is no tag '%.60s' here%s%s", p->at->line,
               p->at->value.as.s->bytes, ends ? "; expected is one of: " : "", ends ? ends : "");
    return NULL;
}

// Whether the word at hand is one of those, and which.
static bool at_end(const struct parser *p, const char *ends, int *which) {
    *which = 0;
    for (const char *e = ends; e && *e; (*which)++) {
        size_t n = strcspn(e, " ");
        if (p->at->type == TOKEN_NAME && p->at->value.as.s->n == n &&
            memcmp(p->at->value.as.s->bytes, e, n) == 0)
            return true;
        e += n;
        e += *e == ' ';
    }
    return false;
}

static struct jinja_node *parse_data(struct parser *p) {
    struct jinja_node *node = new_node(p, NODE_TEXT);
    if (node)
        node->value = p->at->value;
    p->at++;
    return node;
}

static struct jinja_node *parse_output(struct parser *p) {
    p->at++;
    struct jinja_node *node = new_node(p, NODE_PRINT);
    if (!node || !(node->a = parse_tuple(p, true)))
        return NULL;
    if (p->at->type != TOKEN_PRINT_END) {
        fail_expected(p, "}}");
        return NULL;
    }
    p->at++;
    return node;
}

static bool parse_list(struct parser *p, const char *ends, struct jinja_node **tail, int *end) {
    int line = p->at->line;
    while (p->at->type != TOKEN_END) {
        if (p->at->type == TOKEN_DATA) {
            *tail = parse_data(p);
        } else if (p->at->type == TOKEN_PRINT_BEGIN) {
            *tail = parse_output(p);
        } else {
            p->at++;
            if (at_end(p, ends, end)) {
                p->at++;
                return true;
            }
            *tail = parse_statement(p, ends);
        }
        if (!*tail)
            return false;
        while (*tail)
            tail = &(*tail)->next;
    }
    if (ends)
        jinja_fail(p->c, ERR_FORMAT, "line %d: the tag has no end; missing is one of: %s", line,
                   ends);
    return !ends;
}

static bool parse_body(struct parser *p, const char *ends, struct jinja_node **body, int *end) {
    if (!enter_nesting(p))
        return false;
    bool good = parse_list(p, ends, body, end);
    p->depth--;
    return good;
}

int jinja_parse(struct jinja *j, const char *text, size_t n) {
    struct jinja_tokens tokens = {0};
    struct jinja_context *c = j->store;
    struct jinja_value ids = jinja_dict(c, false), words = jinja_dict(c, false);
    struct jinja_value loop = jinja_constant(c, "loop", 4);
    struct parser p = {.j = j, .c = c};
    int end;
    j->ids = ids.as.m;
    j->words = words.as.m;
    int rc = ids.kind && words.kind && loop.kind
                 ? jinja_dict_set(c, j->ids, loop, jinja_int(ID_LOOP))
                 : c->e.code;
    if (!rc)
        rc = jinja_lex(c, text, n, &tokens);
    p.at = tokens.list;
    if (!rc && !parse_body(&p, NULL, &j->body, &end))
        rc = c->e.code;
    jinja_tokens_fini(&tokens);
    return rc;
}
