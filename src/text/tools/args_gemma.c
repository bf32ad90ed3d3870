// SPDX-License-Identifier: Apache-2.0
// Reads arguments in Gemma's notation and writes them as JSON: keys without quotes, strings between
// marks of their own and without escapes, numbers and words as in JSON.
#include <string.h>

#include "text/tools/impl.h"

#define QUOTE "<|\"|>"

enum place {
    VALUE,  // before a value
    FIRST,  // behind an opening bracket: a key or a value, or the end
    KEY,    // before a key
    NEXT,   // behind a value
    STRING, // in a string
    NAME,   // in a key between marks
    COLON,  // behind such a key
};

static bool in_object(const struct tool_args *a) {
    return a->depth > 0 && a->objects[a->depth - 1];
}

// Copies the text of a string to its end, as JSON.
static enum tool_step read_string(struct tool_calls *c) {
    struct tool_args *a = c->reader;
    const char *from = c->held.data + c->at;
    size_t len = c->held.len - c->at;
    const char *end = memmem(from, len, QUOTE, sizeof QUOTE - 1);
    size_t n = end ? (size_t)(end - from) : len - tool_partial(from, len, QUOTE);
    json_pieces_escape(from, n, &c->args);
    c->at += n;
    if (!end)
        return TOOL_MORE;
    c->at += sizeof QUOTE - 1;
    str_putc(&c->args, '"');
    a->state = a->state == NAME ? COLON : NEXT;
    return TOOL_OK;
}

// A key up to its colon.
static enum tool_step read_key(struct tool_calls *c) {
    struct tool_args *a = c->reader;
    const char *from = c->held.data + c->at;
    size_t len = c->held.len - c->at;
    int quote = tool_stands(c, c->at, QUOTE);
    if (quote == 0)
        return TOOL_MORE;
    if (quote == 1) {
        c->at += sizeof QUOTE - 1;
        str_putc(&c->args, '"');
        a->state = NAME;
        return TOOL_OK;
    }
    size_t n = 0;
    while (n < len && !strchr(":,{}[]<\n", from[n]))
        n++;
    if (n > TOOL_MOST_HEAD || (n < len && (n == 0 || from[n] != ':')))
        return TOOL_BAD;
    if (n == len)
        return TOOL_MORE;
    str_putc(&c->args, '"');
    json_pieces_escape(from, n, &c->args);
    str_puts(&c->args, "\":");
    c->at += n + 1;
    a->state = VALUE;
    return TOOL_OK;
}

// A number or a word, which ends at a comma or a bracket.
static enum tool_step read_bare(struct tool_calls *c) {
    static const char *const python[3][2] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"}};
    struct tool_args *a = c->reader;
    struct json_pieces p = {0};
    const char *s = c->held.data + c->at;
    size_t len = c->held.len - c->at, n = 0;
    while (n < len && !strchr(",]} \n\t\r", s[n]))
        n++;
    if (n > TOOL_MOST_HEAD || (n < len && n == 0))
        return TOOL_BAD;
    if (n == len)
        return TOOL_MORE;
    c->at += n;
    size_t taken = n;
    for (int i = 0; i < 3; i++)
        if (n == strlen(python[i][0]) && !memcmp(s, python[i][0], n)) {
            s = python[i][1];
            n = strlen(s);
        }
    a->state = NEXT;
    struct str value = {0};
    bool ok = !strchr("{[\"", *s) && json_pieces_push(&p, s, n, &value) == n && json_pieces_end(&p);
    if (ok)
        str_append(&c->args, value.data, value.len);
    else
        c->at -= taken;
    c->failed |= value.failed;
    str_fini(&value);
    return ok ? TOOL_OK : TOOL_BAD;
}

static enum tool_step open_block(struct tool_calls *c, char ch) {
    struct tool_args *a = c->reader;
    if (a->depth == JSON_PIECES_DEPTH)
        return TOOL_BAD;
    a->objects[a->depth++] = ch == '{';
    a->state = FIRST;
    str_putc(&c->args, ch);
    c->at++;
    return TOOL_OK;
}

static enum tool_step read_value(struct tool_calls *c) {
    struct tool_args *a = c->reader;
    char ch = c->held.data[c->at];
    int quote = tool_stands(c, c->at, QUOTE);
    if (a->depth == 0 && ch != '{')
        return TOOL_BAD;
    if (ch == '{' || ch == '[')
        return open_block(c, ch);
    if (quote < 0)
        return read_bare(c);
    if (quote == 0)
        return TOOL_MORE;
    c->at += sizeof QUOTE - 1;
    str_putc(&c->args, '"');
    a->state = STRING;
    return TOOL_OK;
}

// A bracket that closes, or a comma.
static enum tool_step read_next(struct tool_calls *c) {
    struct tool_args *a = c->reader;
    char ch = c->held.data[c->at];
    if (ch == (in_object(a) ? '}' : ']')) {
        a->depth--;
        a->state = NEXT;
    } else if (ch == ',' && a->state == NEXT) {
        a->state = in_object(a) ? KEY : VALUE;
    } else {
        return TOOL_BAD;
    }
    str_putc(&c->args, ch);
    c->at++;
    return TOOL_OK;
}

static enum tool_step step(struct tool_calls *c) {
    struct tool_args *a = c->reader;
    char ch = c->held.data[c->at];
    switch ((enum place)a->state) {
    case STRING:
    case NAME:
        return read_string(c);
    case KEY:
        return read_key(c);
    case COLON:
        if (ch != ':')
            return TOOL_BAD;
        str_putc(&c->args, ch);
        c->at++;
        a->state = VALUE;
        return TOOL_OK;
    case FIRST:
        if (ch == '}' || ch == ']')
            return read_next(c);
        a->state = in_object(a) ? KEY : VALUE;
        return TOOL_OK;
    case NEXT:
        return read_next(c);
    case VALUE:
        break;
    }
    return read_value(c);
}

enum tool_step tool_read_gemma(struct tool_calls *c, bool end) {
    struct tool_args *a = c->reader;
    enum tool_step is = TOOL_OK;
    (void)end;
    while (is == TOOL_OK) {
        if (a->state == NEXT && a->depth == 0)
            return TOOL_OK;
        if (a->state != STRING && a->state != NAME)
            c->at += tool_blanks(c, c->at);
        if (c->at == c->held.len)
            return TOOL_MORE;
        is = c->args.failed ? TOOL_BAD : step(c);
    }
    return is;
}
