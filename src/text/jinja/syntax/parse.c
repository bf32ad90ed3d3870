// SPDX-License-Identifier: Apache-2.0
// Statements; see parse.h. Tags that need other files or the escaping of HTML are refused when they
// are reached or, where nothing could run without them, here.
#include <stdio.h>
#include <string.h>

#include "text/jinja/syntax/parse.h"

// Parses up to a tag that begins with one of `ends` (separated by spaces; NULL: the end of the
// template) and moves behind that word, *end being its place in the list.
static bool parse_body(struct jinja_parser *p, const char *ends, struct jinja_node **body,
                       int *end);

static bool want_block_end(struct jinja_parser *p) {
    if (p->at->type == TOKEN_BLOCK_END) {
        p->at++;
        return true;
    }
    jinja_parse_fail(p, "%}");
    return false;
}

// The body of the tag at hand up to its end tag, whose "%}" is left to the caller.
static bool parse_inside(struct jinja_parser *p, const char *ends, struct jinja_node **body,
                         int *end) {
    jinja_skip_op(p, ':');
    return want_block_end(p) && parse_body(p, ends, body, end);
}

static struct jinja_node *parse_if(struct jinja_parser *p) {
    struct jinja_node *first = NULL, **place = &first;
    int end = 0; // of "elif else endif"
    do {
        struct jinja_node *node = *place = jinja_node(p, NODE_IF);
        if (!node || !(node->a = jinja_parse_tuple(p, false, NULL)) ||
            !parse_inside(p, "elif else endif", &node->body, &end))
            return NULL;
        place = &node->b;
    } while (end == 0);
    if (end == 1 && !parse_inside(p, "endif", place, &end))
        return NULL;
    return first;
}

static struct jinja_node *parse_for(struct jinja_parser *p) {
    struct jinja_node *node = jinja_node(p, NODE_FOR);
    int end = 0;
    if (!node || !(node->a = jinja_parse_target(p, false, "in")))
        return NULL;
    if (!jinja_skip_word(p, "in")) {
        jinja_parse_fail(p, "'in'");
        return NULL;
    }
    node->b = jinja_parse_tuple(p, false, "recursive");
    if (!node->b || (jinja_skip_word(p, "if") && !(node->c = jinja_parse_expression(p, true))))
        return NULL;
    node->flag = jinja_skip_word(p, "recursive");
    unsigned outside = p->uses;
    p->uses = 0;
    p->loops++;
    bool good = parse_inside(p, "else endfor", &node->body, &end);
    p->loops--;
    node->uses = p->uses & USES_LOOP;
    p->uses = outside | (p->uses & ~(unsigned)USES_LOOP);
    if (!good || (end == 0 && !parse_inside(p, "endfor", &node->d, &end)))
        return NULL;
    return node;
}

static struct jinja_node *parse_set(struct jinja_parser *p) {
    struct jinja_node *node = jinja_node(p, NODE_SET);
    int end;
    if (!node || !(node->a = jinja_parse_target(p, true, NULL)))
        return NULL;
    if (jinja_skip_op(p, '=')) {
        node->b = jinja_parse_tuple(p, true, NULL);
        return node->b ? node : NULL;
    }
    node->type = NODE_SET_BLOCK;
    if (jinja_at_op(p, '|') && !(node->b = jinja_parse_filters(p, NULL, false)))
        return NULL;
    return parse_inside(p, "endset", &node->body, &end) ? node : NULL;
}

static bool parse_parameters(struct jinja_parser *p, struct jinja_node *macro) {
    enum { MOST = 255 }; // they are looked for one behind the other
    struct jinja_node **tail = &macro->list;
    int n = 0;
    if (!jinja_want_op(p, '('))
        return false;
    for (bool first = true, defaults = false; !jinja_at_op(p, ')'); first = false) {
        if (!first && !jinja_want_op(p, ','))
            return false;
        struct jinja_node *node = *tail = jinja_node(p, NODE_PARAM);
        if (++n > MOST) {
            jinja_parse_fail(p, "the end of the parameters, of which a macro has 255 at most");
            return false;
        }
        if (!node || (p->at->type != TOKEN_NAME && jinja_parse_fail(p, "a parameter's name")))
            return false;
        node->value = p->at->value;
        node->id = jinja_name_id(p, p->at->value);
        p->at++;
        if (node->id < 0)
            return false;
        if (jinja_skip_op(p, '=')) {
            defaults = true;
            if (!(node->a = jinja_parse_expression(p, true)))
                return false;
        } else if (defaults) {
            jinja_parse_fail(p, "a default behind a parameter that follows one with a default");
            return false;
        }
        tail = &node->next;
    }
    p->at++;
    return true;
}

// The body of a macro or of a caller: what it mentions of the special names is its own.
static bool parse_macro_body(struct jinja_parser *p, struct jinja_node *macro, const char *ends) {
    unsigned outside = p->uses;
    int loops = p->loops, end;
    p->uses = 0;
    p->loops = 0;
    bool good = parse_inside(p, ends, &macro->body, &end);
    p->loops = loops;
    macro->uses = (uint8_t)p->uses;
    for (const struct jinja_node *i = macro->list; i; i = i->next) {
        static const uint8_t uses[ID_FIXED] = {USES_LOOP, USES_CALLER, USES_KWARGS, USES_VARARGS};
        if (i->id < ID_FIXED)
            macro->uses &= (uint8_t)~uses[i->id];
    }
    p->uses |= outside;
    return good;
}

static struct jinja_node *parse_macro(struct jinja_parser *p) {
    struct jinja_node *node = jinja_node(p, NODE_MACRO);
    if (!node || (p->at->type != TOKEN_NAME && jinja_parse_fail(p, "the name of a macro")))
        return NULL;
    node->value = p->at->value;
    node->id = jinja_name_id(p, p->at->value);
    p->at++;
    if (node->id < 0 || !parse_parameters(p, node))
        return NULL;
    return parse_macro_body(p, node, "endmacro") ? node : NULL;
}

static struct jinja_node *parse_call_block(struct jinja_parser *p) {
    struct jinja_node *node = jinja_node(p, NODE_CALL_BLOCK);
    struct jinja_node *caller = jinja_node(p, NODE_MACRO);
    if (!node || !caller)
        return NULL;
    caller->value = jinja_constant(p->c, "caller", 6);
    caller->id = ID_CALLER;
    node->b = caller;
    if (!caller->value.kind || (jinja_at_op(p, '(') && !parse_parameters(p, caller)))
        return NULL;
    node->a = jinja_parse_expression(p, true);
    if (!node->a)
        return NULL;
    if (node->a->type != NODE_CALL) {
        jinja_parse_fail(p, "a call in {% call %}");
        return NULL;
    }
    return parse_macro_body(p, caller, "endcall") ? node : NULL;
}

static struct jinja_node *parse_filter_block(struct jinja_parser *p) {
    struct jinja_node *node = jinja_node(p, NODE_FILTER_BLOCK);
    int end;
    if (!node || !(node->a = jinja_parse_filters(p, NULL, true)))
        return NULL;
    return parse_inside(p, "endfilter", &node->body, &end) ? node : NULL;
}

static struct jinja_node *parse_with(struct jinja_parser *p) {
    struct jinja_node *node = jinja_node(p, NODE_WITH), **tail = node ? &node->list : NULL;
    int end;
    while (node && p->at->type != TOKEN_BLOCK_END) {
        if (node->list && !jinja_want_op(p, ','))
            return NULL;
        *tail = jinja_node(p, NODE_SET);
        if (!*tail || !((*tail)->a = jinja_parse_target(p, false, NULL)) ||
            !jinja_want_op(p, '=') || !((*tail)->b = jinja_parse_expression(p, true)))
            return NULL;
        tail = &(*tail)->next;
    }
    return node && parse_inside(p, "endwith", &node->body, &end) ? node : NULL;
}

// {% generation %}, whose body is a function of its own in transformers: loops outside are not
// seen.
static struct jinja_node *parse_generation(struct jinja_parser *p) {
    struct jinja_node *node = jinja_node(p, NODE_SCOPE);
    int end, loops = p->loops;
    p->loops = 0;
    bool good = node && parse_inside(p, "endgeneration", &node->body, &end);
    p->loops = loops;
    return good ? node : NULL;
}

static struct jinja_node *parse_block(struct jinja_parser *p) {
    struct jinja_node *node = jinja_node(p, NODE_SCOPE);
    int end;
    if (!node || (p->at->type != TOKEN_NAME && jinja_parse_fail(p, "the name of a block")))
        return NULL;
    struct jinja_value name = p->at->value;
    p->at++;
    jinja_skip_word(p, "scoped");
    if (!parse_inside(p, "endblock", &node->body, &end))
        return NULL;
    jinja_skip_word(p, name.as.s->bytes);
    return node;
}

static struct jinja_node *parse_print(struct jinja_parser *p) {
    struct jinja_node *first = NULL, **tail = &first;
    while (p->at->type != TOKEN_BLOCK_END) {
        if (first && !jinja_want_op(p, ','))
            return NULL;
        *tail = jinja_node(p, NODE_PRINT);
        if (!*tail || !((*tail)->a = jinja_parse_expression(p, true)))
            return NULL;
        tail = &(*tail)->next;
    }
    return first ? first : jinja_node(p, NODE_SCOPE);
}

static struct jinja_node *parse_include(struct jinja_parser *p) {
    struct jinja_node *node = jinja_node(p, NODE_REFUSE);
    if (!node || !jinja_parse_expression(p, true))
        return NULL;
    while (p->at->type == TOKEN_NAME) // ignore missing, with context
        p->at++;
    node->value =
        jinja_text(p->c, "the template includes another file, which a chat template cannot");
    return node->value.kind ? node : NULL;
}

static struct jinja_node *parse_break(struct jinja_parser *p) {
    if (p->loops == 0) {
        jinja_parse_fail(p, "break and continue inside of a loop only");
        return NULL;
    }
    return jinja_node(p, NODE_BREAK);
}

static struct jinja_node *parse_continue(struct jinja_parser *p) {
    struct jinja_node *node = parse_break(p);
    if (node)
        node->type = NODE_CONTINUE;
    return node;
}

static const struct tag {
    const char *name;
    struct jinja_node *(*parse)(struct jinja_parser *p);
} tags[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"generation", parse_generation},
    {"block", parse_block},
    {"print", parse_print},
    {"include", parse_include},
    {"break", parse_break},
    {"continue", parse_continue},
};

static struct jinja_node *parse_statement(struct jinja_parser *p, const char *ends) {
    if (p->at->type != TOKEN_NAME) {
        jinja_parse_fail(p, "the name of a tag");
        return NULL;
    }
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!jinja_at_word(p, tags[i].name))
            continue;
        p->at++;
        struct jinja_node *node = tags[i].parse(p);
        return node && want_block_end(p) ? node : NULL;
    }
    jinja_fail(p->c, ERR_FORMAT, "line %d: there is no tag '%.60s' here%s%s", p->at->line,
               p->at->value.as.s->bytes, ends ? "; expected is one of: " : "", ends ? ends : "");
    return NULL;
}

// Whether the word at hand is one of those, and which.
static bool at_end(const struct jinja_parser *p, const char *ends, int *which) {
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

static struct jinja_node *parse_data(struct jinja_parser *p) {
    struct jinja_node *node = jinja_node(p, NODE_TEXT);
    if (node)
        node->value = p->at->value;
    p->at++;
    return node;
}

static struct jinja_node *parse_output(struct jinja_parser *p) {
    p->at++;
    struct jinja_node *node = jinja_node(p, NODE_PRINT);
    if (!node || !(node->a = jinja_parse_tuple(p, true, NULL)))
        return NULL;
    if (p->at->type != TOKEN_PRINT_END) {
        jinja_parse_fail(p, "}}");
        return NULL;
    }
    p->at++;
    return node;
}

static bool parse_list(struct jinja_parser *p, const char *ends, struct jinja_node **tail,
                       int *end) {
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

static bool parse_body(struct jinja_parser *p, const char *ends, struct jinja_node **body,
                       int *end) {
    if (!jinja_parse_enter(p))
        return false;
    bool good = parse_list(p, ends, body, end);
    p->depth--;
    return good;
}

int jinja_parse_template(struct jinja_parser *p, struct jinja_node **body) {
    int end;
    return parse_body(p, NULL, body, &end) ? 0 : p->c->e.code;
}
