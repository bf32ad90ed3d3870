// SPDX-License-Identifier: Apache-2.0
// Reads arguments that stand between tags, one pair for each parameter (Qwen, Laguna, GLM), and
// types them by the tool's schema: a parameter that may only be a string is one, whatever it looks
// like, and comes out as it goes; another one is JSON where it parses as what the schema allows,
// and else a string. A closing tag ends a value only where another parameter or the end of the call
// follows it, so values may speak of the tags.
#include <stdlib.h>
#include <string.h>

#include "text/tools/impl.h"

enum place {
    TAG,    // before a parameter or the end of the call
    START,  // at the beginning of a value
    STRING, // in one that comes out as it goes
    WHOLE,  // in one that is looked at when all of it is there
};

struct tool_span { // of a member in the arguments, with the comma before it
    size_t at, n;
};

static const struct tool_format *format_of(const struct tool_calls *c) {
    return &tool_formats[c->family];
}

// Takes a member out that comes a second time: of equal keys the last one counts.
static void remove_span(struct tool_calls *c, int i) {
    struct tool_args *a = c->reader;
    struct tool_span gone = a->spans[i];
    // The first member has no comma; when it goes, the comma of the next one goes with it.
    size_t skip = i == 0 && gone.at + gone.n < c->args.len ? 1 : 0;
    size_t end = gone.at + gone.n + skip;
    memmove(c->args.data + gone.at, c->args.data + end, c->args.len - end + 1);
    c->args.len -= gone.n + skip;
    for (int k = i; k + 1 < a->n_spans; k++) {
        a->spans[k] = a->spans[k + 1];
        a->spans[k].at -= gone.n + (k == i ? 0 : skip);
        a->spans[k].n -= k == i ? skip : 0;
    }
    a->n_spans--;
}

// Whether the member's text begins with this key, quoted.
static bool has_key(const struct tool_calls *c, const struct tool_span *span,
                    const struct str *quoted) {
    const char *s = c->args.data + span->at + (c->args.data[span->at] == ',');
    size_t left = span->n - (size_t)(s - (c->args.data + span->at));
    return left > quoted->len && !memcmp(s, quoted->data, quoted->len) && s[quoted->len] == ':';
}

static bool add_span(struct tool_args *a, size_t at) {
    if (a->n_spans == a->cap_spans) {
        int cap = a->cap_spans ? 2 * a->cap_spans : 16;
        struct tool_span *grown = realloc(a->spans, (size_t)cap * sizeof *grown);
        if (!grown)
            return false;
        a->spans = grown;
        a->cap_spans = cap;
    }
    a->spans[a->n_spans++] = (struct tool_span){.at = at};
    return true;
}

// Writes the key of the member that begins; false: the call cannot go on.
static bool begin_member(struct tool_calls *c, const char *name, size_t n) {
    struct tool_args *a = c->reader;
    if (++a->n_members > TOOL_MOST_MEMBERS)
        return false;
    str_clear(&a->key);
    str_putc(&a->key, '"');
    json_pieces_escape(name, n, &a->key);
    str_putc(&a->key, '"');
    c->failed |= a->key.failed;
    if (c->failed)
        return false;
    for (int i = 0; i < a->n_spans && !c->sure; i++)
        if (has_key(c, &a->spans[i], &a->key)) {
            remove_span(c, i);
            break;
        }
    c->failed |= !c->sure && !add_span(a, c->args.len);
    if (c->failed)
        return false;
    bool first = c->sure ? a->first : a->n_spans == 1;
    if (!first)
        str_putc(&c->args, ',');
    else if (c->args.len == 0 && a->first)
        str_putc(&c->args, '{');
    if (first && !c->sure)
        a->spans[0].at = c->args.len;
    a->first = false;
    str_append(&c->args, a->key.data, a->key.len);
    str_putc(&c->args, ':');
    return true;
}

// TAG: a parameter's key up to its value, or the end of the call. OK: the end.
static enum tool_step read_tag(struct tool_calls *c) {
    const struct tool_format *f = format_of(c);
    struct tool_args *a = c->reader;
    size_t at = c->at += tool_blanks(c, c->at);
    int close = tool_stands(c, at, f->close), key = tool_stands(c, at, f->key);
    if (close == 1) {
        str_puts(&c->args, a->first ? "{}" : "}");
        return TOOL_OK;
    }
    if (key != 1)
        return close < 0 && key < 0 ? TOOL_BAD : TOOL_MORE;
    at += strlen(f->key);
    const char *name = c->held.data + at;
    const char *stop = memmem(name, c->held.len - at, f->key_end, strlen(f->key_end));
    if (!stop || stop - name > TOOL_MOST_HEAD)
        return stop || c->held.len - at > TOOL_MOST_HEAD ? TOOL_BAD : TOOL_MORE;
    size_t n = (size_t)(stop - name);
    at += n + strlen(f->key_end);
    if (f->value) {
        size_t blanks = tool_blanks(c, at);
        at += blanks;
        if (blanks > TOOL_MOST_BLANKS)
            return TOOL_BAD;
        int value = tool_stands(c, at, f->value);
        if (value != 1)
            return value < 0 ? TOOL_BAD : TOOL_MORE;
        at += strlen(f->value);
    }
    a->types = tool_param_types(c->tool, name, n);
    if (!begin_member(c, name, n))
        return TOOL_BAD;
    c->at = at;
    a->state = START;
    return TOOL_MORE;
}

// Where the value ends. 1: *n bytes from c->at, and *next is behind its tag; 0: at least *n bytes
// belong to it, the rest is not yet known.
static int find_end(const struct tool_calls *c, bool end, size_t *n, size_t *next) {
    const struct tool_format *f = format_of(c);
    const char *from = c->held.data + c->at;
    size_t len = c->held.len - c->at, tag = strlen(f->value_end), at = 0;
    int is = -1;
    for (;; at++) {
        const char *found = memmem(from + at, len - at, f->value_end, tag);
        if (!found) {
            at = len - tool_partial(from + at, len - at, f->value_end);
            break;
        }
        at = (size_t)(found - from);
        *next = c->at + at + tag;
        size_t blanks = tool_blanks(c, *next), behind = *next + blanks;
        if (blanks > TOOL_MOST_BLANKS)
            continue;
        int key = tool_stands(c, behind, f->key), close = tool_stands(c, behind, f->close);
        is = key > close ? key : close;
        if (is == 1 || (is == 0 && (!end || c->sure)))
            break;
        is = -1;
    }
    // A line end before the tag belongs to the tag.
    *n = at - (f->lines && at > 0 && from[at - 1] == '\n');
    return is == 1;
}

static bool is_word(const struct str *s, const char *word) {
    return s->len == strlen(word) && !memcmp(s->data, word, s->len);
}

static unsigned type_of(const char *json) {
    switch (json[0]) {
    case '{':
        return TOOL_OBJECT;
    case '[':
        return TOOL_ARRAY;
    case '"':
        return TOOL_STRING;
    case 't':
    case 'f':
        return TOOL_BOOL;
    case 'n':
        return TOOL_NULL;
    default:
        return TOOL_NUMBER;
    }
}

// Appends a value as the JSON that the schema allows it to be. True if it is none but a string.
static bool put_typed(const struct str *text, unsigned types, struct str *out) {
    static const char *const python[3][2] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"}};
    struct json_pieces p = {0};
    const char *s = text->len ? text->data : "";
    size_t n = text->len, before = out->len;
    while (n > 0 && strchr(" \t\r\n", *s))
        s++, n--;
    while (n > 0 && strchr(" \t\r\n", s[n - 1]))
        n--;
    for (int i = 0; i < 3; i++)
        if (is_word(text, python[i][0])) {
            s = python[i][1];
            n = strlen(s);
        }
    if (n == 0 || !(type_of(s) & types & ~(unsigned)TOOL_STRING))
        return false;
    if (json_pieces_push(&p, s, n, out) == n && json_pieces_end(&p))
        return true;
    if (!out->failed) {
        out->len = before;
        out->data[before] = 0;
    }
    return false;
}

static void put_whole(struct tool_calls *c) {
    struct tool_args *a = c->reader;
    if (put_typed(&a->value, a->types, &c->args))
        return;
    str_putc(&c->args, '"');
    json_pieces_escape(a->value.data, a->value.len, &c->args);
    str_putc(&c->args, '"');
}

static enum tool_step read_start(struct tool_calls *c, bool end) {
    struct tool_args *a = c->reader;
    if (c->at == c->held.len && !end)
        return TOOL_MORE;
    if (format_of(c)->lines && c->at < c->held.len && c->held.data[c->at] == '\n')
        c->at++;
    a->state = a->types == TOOL_STRING ? STRING : WHOLE;
    str_clear(&a->value);
    if (a->state == STRING)
        str_putc(&c->args, '"');
    return TOOL_OK;
}

static enum tool_step read_value(struct tool_calls *c, bool end) {
    struct tool_args *a = c->reader;
    size_t n = 0, next = 0;
    int ended = find_end(c, end, &n, &next);
    if (a->state == STRING)
        json_pieces_escape(c->held.data + c->at, n, &c->args);
    else
        str_append(&a->value, c->held.data + c->at, n);
    c->at = ended ? next : c->at + n;
    c->failed |= a->value.failed;
    if (!ended)
        return TOOL_MORE;
    if (a->state == STRING)
        str_putc(&c->args, '"');
    else
        put_whole(c);
    if (!c->sure)
        a->spans[a->n_spans - 1].n = c->args.len - a->spans[a->n_spans - 1].at;
    a->state = TAG;
    return TOOL_OK;
}

enum tool_step tool_read_tagged(struct tool_calls *c, bool end) {
    struct tool_args *a = c->reader;
    for (;;) {
        enum tool_step step = TOOL_OK;
        if (a->state == TAG) {
            step = read_tag(c);
            if (step != TOOL_MORE || a->state == TAG)
                return step;
            continue;
        }
        step = a->state == START ? read_start(c, end) : read_value(c, end);
        if (step == TOOL_MORE || c->failed || c->args.failed)
            return step == TOOL_MORE && !end ? TOOL_MORE : TOOL_BAD;
    }
}
