// SPDX-License-Identifier: Apache-2.0
// What both halves of the parser need: nodes, looking at tokens, errors, names; see parse.h.
#include <stdio.h>
#include <string.h>

#include "text/jinja/syntax/parse.h"

enum { DEPTH_MAX = 200 };

struct jinja_node *jinja_node(struct jinja_parser *p, enum jinja_node_type type) {
    struct jinja_node *node = jinja_alloc(p->c, sizeof *node);
    if (node) {
        node->type = (uint8_t)type;
        node->line = p->at->line;
    }
    return node;
}

static void describe(const struct jinja_token *t, char out[80]) {
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

int jinja_parse_fail(struct jinja_parser *p, const char *what) {
    char found[80];
    describe(p->at, found);
    return jinja_fail(p->c, ERR_FORMAT, "line %d: expected %s, found %s", p->at->line, what, found);
}

bool jinja_parse_enter(struct jinja_parser *p) {
    if (p->depth < DEPTH_MAX) {
        p->depth++;
        return true;
    }
    jinja_fail(p->c, ERR_FORMAT, "line %d: the template nests deeper than %d levels", p->at->line,
               DEPTH_MAX);
    return false;
}

bool jinja_at_word(const struct jinja_parser *p, const char *word) {
    return p->at->type == TOKEN_NAME && jinja_is_text(p->at->value, word);
}

bool jinja_skip_word(struct jinja_parser *p, const char *word) {
    bool there = jinja_at_word(p, word);
    p->at += there;
    return there;
}

bool jinja_at_op(const struct jinja_parser *p, char op) {
    return p->at->type == TOKEN_OPERATOR && p->at->op == op;
}

bool jinja_skip_op(struct jinja_parser *p, char op) {
    bool there = jinja_at_op(p, op);
    p->at += there;
    return there;
}

bool jinja_want_op(struct jinja_parser *p, char op) {
    char what[] = "'?'";
    what[1] = op;
    if (jinja_skip_op(p, op))
        return true;
    jinja_parse_fail(p, what);
    return false;
}

int jinja_note_word(struct jinja_parser *p, struct jinja_value word) {
    return jinja_dict_set(p->c, p->j->words, word, jinja_none());
}

int jinja_name_id(struct jinja_parser *p, struct jinja_value name) {
    struct jinja_dict *ids = p->j->ids;
    struct jinja_entry *e = jinja_dict_text(ids, name.as.s->bytes, name.as.s->n);
    if (!e) {
        if (jinja_dict_set(p->c, ids, name, jinja_int((int64_t)ids->n)) || jinja_note_word(p, name))
            return -1;
        return (int)ids->n - 1;
    }
    return (int)e->value.as.i;
}
