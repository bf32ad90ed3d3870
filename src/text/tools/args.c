// SPDX-License-Identifier: Apache-2.0
// Readers of arguments that are JSON already: an object, or an object that has the name of the tool
// beside them. See impl.h.
#include <stdlib.h>
#include <string.h>

#include "text/tools/impl.h"

void tool_args_reset(struct tool_args *a) {
    a->json = (struct json_pieces){0};
    a->state = a->depth = 0;
    a->first = true;
    a->begun = false;
    a->types = 0;
    a->n_spans = a->n_members = 0;
    str_clear(&a->key);
    str_clear(&a->name);
    str_clear(&a->value);
}

void tool_args_fini(struct tool_args *a) {
    str_fini(&a->key);
    str_fini(&a->name);
    str_fini(&a->value);
    free(a->spans);
    *a = (struct tool_args){0};
}

enum tool_step tool_read_json(struct tool_calls *c, bool end) {
    struct tool_args *a = c->reader;
    (void)end;
    if (a->json.state == PIECES_VALUE && a->json.depth == 0) {
        c->at += tool_blanks(c, c->at);
        if (c->at == c->held.len)
            return TOOL_MORE;
        if (c->held.data[c->at] != '{')
            return TOOL_BAD;
    }
    // The end of harmony's frame is none of it: the reply was cut off there.
    const char *from = c->held.data + c->at;
    const char *frame = memchr(from, TOOL_FRAME_END[0], c->held.len - c->at);
    size_t n = frame ? (size_t)(frame - from) : c->held.len - c->at;
    c->at += json_pieces_push(&a->json, from, n, &c->args);
    return a->json.state == PIECES_DONE           ? TOOL_OK
           : a->json.state == PIECES_BAD || frame ? TOOL_BAD
                                                  : TOOL_MORE;
}

// Members of a call's object.
enum field { FIELD_NONE, FIELD_NAME, FIELD_ARGUMENTS, FIELD_OTHER };

static enum field field_of(const struct str *key) {
    static const struct {
        const char *key;
        enum field field;
    } keys[] = {{"\"name\"", FIELD_NAME},
                {"\"arguments\"", FIELD_ARGUMENTS},
                {"\"parameters\"", FIELD_ARGUMENTS},
                {"\"id\"", FIELD_OTHER},
                {"\"type\"", FIELD_OTHER},
                {"\"call_id\"", FIELD_OTHER}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (key->len == strlen(keys[i].key) && !memcmp(key->data, keys[i].key, key->len))
            return keys[i].field;
    return FIELD_NONE;
}

// A string of JSON as its text; false where it is none.
static bool unquote(struct tool_calls *c, const struct str *from, struct str *to) {
    struct json *v = NULL;
    struct err e = {0};
    size_t n = 0;
    if (!from->len || from->data[0] != '"' || json_parse(&v, from->data, from->len, &e)) {
        c->failed |= e.code == ERR_MEMORY || from->failed;
        return false;
    }
    const char *text = json_str(v, &n);
    str_clear(to);
    str_append(to, text, n);
    json_free(v);
    c->failed |= to->failed;
    return !c->failed;
}

// Arguments that were written as a string of JSON: the object in it.
static bool open_string(struct tool_calls *c) {
    static const char blanks[] = " \t\r\n";
    struct json_pieces p = {0};
    struct str text = {0};
    bool ok = unquote(c, &c->reader->value, &text);
    const char *s = ok && text.data ? text.data + strspn(text.data, blanks) : "";
    if (ok && *s == '{') {
        s += json_pieces_push(&p, s, strlen(s), &c->args);
        s += strspn(s, blanks);
        ok = p.state == PIECES_DONE && s == text.data + text.len;
    } else if (ok) {
        ok = !text.data || s == text.data + text.len; // none at all
        str_puts(&c->args, "{}");
    }
    str_fini(&text);
    return ok;
}

static bool end_value(struct tool_calls *c, enum field field) {
    struct tool_args *a = c->reader;
    if (field == FIELD_NAME) {
        if (c->tool || !unquote(c, &a->name, &a->value))
            return false;
        c->tool = tool_set_find(c->set, a->value.data, a->value.len);
        return c->tool != NULL;
    }
    if (field != FIELD_ARGUMENTS || !a->value.len)
        return true;
    if (a->value.data[0] == 'n')
        str_puts(&c->args, "{}");
    return a->value.data[0] == 'n' || open_string(c);
}

enum place { OPENING, KEY, COLON, VALUE, NEXT };

// Reads on in the key or the value that c->at stands in. OK: it is whole.
static enum tool_step read_value(struct tool_calls *c, struct str *to) {
    struct tool_args *a = c->reader;
    c->at += json_pieces_push(&a->json, c->held.data + c->at, c->held.len - c->at, to);
    c->failed |= to->failed;
    return a->json.state == PIECES_DONE               ? TOOL_OK
           : a->json.state == PIECES_BAD || c->failed ? TOOL_BAD
                                                      : TOOL_MORE;
}

// The first byte of a member's value says where the value goes.
static struct str *target_of(struct tool_calls *c, enum field field, char first) {
    struct tool_args *a = c->reader;
    bool begins = a->json.state == PIECES_VALUE && a->json.depth == 0;
    if (field == FIELD_NAME)
        return begins && first != '"' ? NULL : &a->name;
    if (field == FIELD_OTHER)
        return &a->value;
    if (begins) {
        if (a->begun || !strchr("{\"n", first))
            return NULL;
        a->begun = true;
        a->first = first == '{';
    }
    return a->first ? &c->args : &a->value;
}

static enum tool_step read_member(struct tool_calls *c) {
    struct tool_args *a = c->reader;
    char ch = c->held.data[c->at];
    bool key = a->state == KEY;
    enum field field = key ? FIELD_NONE : field_of(&a->key);
    struct str *to = key ? &a->key : target_of(c, field, ch);
    if (!to || (key && a->json.state == PIECES_VALUE && ch != '"'))
        return TOOL_BAD;
    enum tool_step step = read_value(c, to);
    if (step != TOOL_OK)
        return step;
    if (key ? field_of(&a->key) == FIELD_NONE : !end_value(c, field))
        return TOOL_BAD;
    a->json = (struct json_pieces){0};
    a->state = key ? COLON : NEXT;
    return TOOL_OK;
}

// One byte between keys and values. OK: the object has ended.
static enum tool_step read_mark(struct tool_calls *c) {
    struct tool_args *a = c->reader;
    char ch = c->held.data[c->at];
    enum tool_step step = TOOL_MORE;
    if (a->state == OPENING && ch == '{') {
        a->state = KEY;
    } else if (a->state == COLON && ch == ':') {
        a->state = VALUE;
        str_clear(&a->value);
    } else if (a->state == NEXT && ch == ',') {
        a->state = KEY;
        str_clear(&a->key);
    } else if (a->state == NEXT && ch == '}' && c->tool) {
        step = TOOL_OK;
        if (!a->begun)
            str_puts(&c->args, "{}");
    } else {
        return TOOL_BAD;
    }
    c->at++;
    return step;
}

enum tool_step tool_read_named(struct tool_calls *c, bool end) {
    struct tool_args *a = c->reader;
    enum tool_step step = TOOL_OK;
    (void)end;
    while (step != TOOL_BAD) {
        bool begun = a->json.state != PIECES_VALUE || a->json.depth > 0;
        bool inside = (a->state == KEY || a->state == VALUE) && begun;
        if (!inside)
            c->at += tool_blanks(c, c->at);
        if (c->at == c->held.len)
            return TOOL_MORE;
        if (a->state == KEY || a->state == VALUE) {
            step = read_member(c);
            if (step == TOOL_MORE)
                return step;
        } else {
            step = read_mark(c);
            if (step == TOOL_OK)
                return step;
        }
    }
    return TOOL_BAD;
}
