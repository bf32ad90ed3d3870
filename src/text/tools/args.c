// SPDX-License-Identifier: Apache-2.0
// See args.h: one reader for each kind of notation, and what they all need of the held text.
#include "text/tools/args.h"

#include <stdlib.h>
#include <string.h>

int tool_stands(const struct tool_calls *c, size_t at, const char *mark) {
    size_t len = strlen(mark), rest = c->held.len - at;
    if (rest && memcmp(c->held.data + at, mark, len < rest ? len : rest) != 0)
        return -1;
    return rest >= len;
}

size_t tool_blanks(const struct tool_calls *c, size_t at) {
    size_t n = 0;
    while (at + n < c->held.len && json_pieces_blank(c->held.data[at + n]))
        n++;
    return n;
}

// Bytes at the end of s that may become the mark.
static size_t count_partial_mark(const char *s, size_t n, const char *mark) {
    size_t max = strlen(mark) - 1;
    for (size_t k = n < max ? n : max; k > 0; k--)
        if (!memcmp(s + n - k, mark, k))
            return k;
    return 0;
}

// Python's spelling of a word of JSON becomes JSON's.
static void replace_python_word(const char **s, size_t *n) {
    static const char *const words[3][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (int i = 0; i < 3; i++)
        if (*n == strlen(words[i][0]) && !memcmp(*s, words[i][0], *n)) {
            *s = words[i][1];
            *n = strlen(*s);
            return;
        }
}

// JSON: an object, or an object that has the name of the tool besides the arguments.

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
enum named_field_kind { FIELD_NONE, FIELD_NAME, FIELD_ARGUMENTS, FIELD_OTHER };

static enum named_field_kind named_field(const struct str *key) {
    static const struct {
        const char *key;
        enum named_field_kind field;
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
static bool read_json_string(struct tool_calls *c, const struct str *from, struct str *to) {
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
static bool put_string_arguments(struct tool_calls *c) {
    static const char blanks[] = " \t\r\n";
    struct json_pieces p = {0};
    struct str text = {0};
    bool ok = read_json_string(c, &c->reader->value, &text);
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

static bool end_named_value(struct tool_calls *c, enum named_field_kind field) {
    struct tool_args *a = c->reader;
    if (field == FIELD_NAME) {
        if (c->tool || !read_json_string(c, &a->name, &a->value))
            return false;
        c->tool = tool_set_find(c->set, a->value.data, a->value.len);
        return c->tool != NULL;
    }
    if (field != FIELD_ARGUMENTS || !a->value.len)
        return true;
    if (a->value.data[0] == 'n')
        str_puts(&c->args, "{}");
    return a->value.data[0] == 'n' || put_string_arguments(c);
}

enum named_place { NAMED_OPENING, NAMED_KEY, NAMED_COLON, NAMED_VALUE, NAMED_NEXT };

// Reads on in the key or the value that c->at stands in. OK: it is whole.
static enum tool_step read_named_value(struct tool_calls *c, struct str *to) {
    struct tool_args *a = c->reader;
    c->at += json_pieces_push(&a->json, c->held.data + c->at, c->held.len - c->at, to);
    c->failed |= to->failed;
    return a->json.state == PIECES_DONE               ? TOOL_OK
           : a->json.state == PIECES_BAD || c->failed ? TOOL_BAD
                                                      : TOOL_MORE;
}

// The first byte of a member's value says where the value goes.
static struct str *named_target(struct tool_calls *c, enum named_field_kind field, char first) {
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

static enum tool_step read_named_member(struct tool_calls *c) {
    struct tool_args *a = c->reader;
    char ch = c->held.data[c->at];
    bool key = a->state == NAMED_KEY;
    enum named_field_kind field = key ? FIELD_NONE : named_field(&a->key);
    struct str *to = key ? &a->key : named_target(c, field, ch);
    if (!to || (key && a->json.state == PIECES_VALUE && ch != '"'))
        return TOOL_BAD;
    enum tool_step step = read_named_value(c, to);
    if (step != TOOL_OK)
        return step;
    if (key ? named_field(&a->key) == FIELD_NONE : !end_named_value(c, field))
        return TOOL_BAD;
    a->json = (struct json_pieces){0};
    a->state = key ? NAMED_COLON : NAMED_NEXT;
    return TOOL_OK;
}

// One byte between keys and values. OK: the object has ended.
static enum tool_step read_named_mark(struct tool_calls *c) {
    struct tool_args *a = c->reader;
    char ch = c->held.data[c->at];
    enum tool_step step = TOOL_MORE;
    if (a->state == NAMED_OPENING && ch == '{') {
        a->state = NAMED_KEY;
    } else if (a->state == NAMED_COLON && ch == ':') {
        a->state = NAMED_VALUE;
        str_clear(&a->value);
    } else if (a->state == NAMED_NEXT && ch == ',') {
        a->state = NAMED_KEY;
        str_clear(&a->key);
    } else if (a->state == NAMED_NEXT && ch == '}' && c->tool) {
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
        bool inside = (a->state == NAMED_KEY || a->state == NAMED_VALUE) && begun;
        if (!inside)
            c->at += tool_blanks(c, c->at);
        if (c->at == c->held.len)
            return TOOL_MORE;
        if (a->state == NAMED_KEY || a->state == NAMED_VALUE) {
            step = read_named_member(c);
            if (step == TOOL_MORE)
                return step;
        } else {
            step = read_named_mark(c);
            if (step == TOOL_OK)
                return step;
        }
    }
    return TOOL_BAD;
}

// Gemma's notation: keys without quotes, strings between marks of their own and without escapes,
// numbers and words as in JSON.

enum gemma_place {
    GEMMA_VALUE,  // before a value
    GEMMA_FIRST,  // after an opening bracket: a key or a value, or the end
    GEMMA_KEY,    // before a key
    GEMMA_NEXT,   // after a value
    GEMMA_STRING, // in a string
    GEMMA_NAME,   // in a key between marks
    GEMMA_COLON,  // after such a key
};

static const char *gemma_quote(const struct tool_calls *c) {
    return tool_formats[c->family].quote;
}

static bool in_gemma_object(const struct tool_args *a) {
    return a->depth > 0 && a->objects[a->depth - 1];
}

// Copies the text of a string to its end, as JSON.
static enum tool_step read_gemma_string(struct tool_calls *c) {
    struct tool_args *a = c->reader;
    const char *from = c->held.data + c->at;
    size_t len = c->held.len - c->at;
    const char *quote = gemma_quote(c), *end = memmem(from, len, quote, strlen(quote));
    size_t n = end ? (size_t)(end - from) : len - count_partial_mark(from, len, quote);
    json_pieces_escape(from, n, &c->args);
    c->at += n;
    if (!end)
        return TOOL_MORE;
    c->at += strlen(quote);
    str_putc(&c->args, '"');
    a->state = a->state == GEMMA_NAME ? GEMMA_COLON : GEMMA_NEXT;
    return TOOL_OK;
}

// A key up to its colon.
static enum tool_step read_gemma_key(struct tool_calls *c) {
    struct tool_args *a = c->reader;
    const char *from = c->held.data + c->at;
    size_t len = c->held.len - c->at;
    int quote = tool_stands(c, c->at, gemma_quote(c));
    if (quote == 0)
        return TOOL_MORE;
    if (quote == 1) {
        c->at += strlen(gemma_quote(c));
        str_putc(&c->args, '"');
        a->state = GEMMA_NAME;
        return TOOL_OK;
    }
    size_t n = 0;
    while (n < len && !strchr(":,{}[]<\n", from[n]))
        n++;
    if (n > TOOL_MAX_HEAD || (n < len && (n == 0 || from[n] != ':')))
        return TOOL_BAD;
    if (n == len)
        return TOOL_MORE;
    str_putc(&c->args, '"');
    json_pieces_escape(from, n, &c->args);
    str_puts(&c->args, "\":");
    c->at += n + 1;
    a->state = GEMMA_VALUE;
    return TOOL_OK;
}

// A number or a word, which ends at a comma or a bracket.
static enum tool_step read_gemma_word(struct tool_calls *c) {
    struct tool_args *a = c->reader;
    struct json_pieces p = {0};
    const char *s = c->held.data + c->at;
    size_t len = c->held.len - c->at, n = 0;
    while (n < len && !strchr(",]} \n\t\r", s[n]))
        n++;
    if (n > TOOL_MAX_HEAD || (n < len && n == 0))
        return TOOL_BAD;
    if (n == len)
        return TOOL_MORE;
    c->at += n;
    size_t taken = n;
    replace_python_word(&s, &n);
    a->state = GEMMA_NEXT;
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

static enum tool_step open_gemma_block(struct tool_calls *c, char ch) {
    struct tool_args *a = c->reader;
    if (a->depth == JSON_PIECES_DEPTH)
        return TOOL_BAD;
    a->objects[a->depth++] = ch == '{';
    a->state = GEMMA_FIRST;
    str_putc(&c->args, ch);
    c->at++;
    return TOOL_OK;
}

static enum tool_step read_gemma_value(struct tool_calls *c) {
    struct tool_args *a = c->reader;
    char ch = c->held.data[c->at];
    int quote = tool_stands(c, c->at, gemma_quote(c));
    if (a->depth == 0 && ch != '{')
        return TOOL_BAD;
    if (ch == '{' || ch == '[')
        return open_gemma_block(c, ch);
    if (quote < 0)
        return read_gemma_word(c);
    if (quote == 0)
        return TOOL_MORE;
    c->at += strlen(gemma_quote(c));
    str_putc(&c->args, '"');
    a->state = GEMMA_STRING;
    return TOOL_OK;
}

// A bracket that closes, or a comma.
static enum tool_step read_gemma_next(struct tool_calls *c) {
    struct tool_args *a = c->reader;
    char ch = c->held.data[c->at];
    if (ch == (in_gemma_object(a) ? '}' : ']')) {
        a->depth--;
        a->state = GEMMA_NEXT;
    } else if (ch == ',' && a->state == GEMMA_NEXT) {
        a->state = in_gemma_object(a) ? GEMMA_KEY : GEMMA_VALUE;
    } else {
        return TOOL_BAD;
    }
    str_putc(&c->args, ch);
    c->at++;
    return TOOL_OK;
}

static enum tool_step read_gemma_step(struct tool_calls *c) {
    struct tool_args *a = c->reader;
    char ch = c->held.data[c->at];
    switch ((enum gemma_place)a->state) {
    case GEMMA_STRING:
    case GEMMA_NAME:
        return read_gemma_string(c);
    case GEMMA_KEY:
        return read_gemma_key(c);
    case GEMMA_COLON:
        if (ch != ':')
            return TOOL_BAD;
        str_putc(&c->args, ch);
        c->at++;
        a->state = GEMMA_VALUE;
        return TOOL_OK;
    case GEMMA_FIRST:
        if (ch == '}' || ch == ']')
            return read_gemma_next(c);
        a->state = in_gemma_object(a) ? GEMMA_KEY : GEMMA_VALUE;
        return TOOL_OK;
    case GEMMA_NEXT:
        return read_gemma_next(c);
    case GEMMA_VALUE:
        break;
    }
    return read_gemma_value(c);
}

enum tool_step tool_read_gemma(struct tool_calls *c, bool end) {
    struct tool_args *a = c->reader;
    enum tool_step is = TOOL_OK;
    (void)end;
    while (is == TOOL_OK) {
        if (a->state == GEMMA_NEXT && a->depth == 0)
            return TOOL_OK;
        if (a->state != GEMMA_STRING && a->state != GEMMA_NAME)
            c->at += tool_blanks(c, c->at);
        if (c->at == c->held.len)
            return TOOL_MORE;
        is = c->args.failed ? TOOL_BAD : read_gemma_step(c);
    }
    return is;
}

// Arguments between tags, one pair for each parameter (Qwen, Laguna, GLM), typed by the tool's
// schema: a parameter that may only be a string is one, whatever it looks like, and comes out as it
// goes; another one is JSON where it parses as what the schema allows, and else a string. A closing
// tag ends a value only where another parameter or the end of the call follows it, so values may
// speak of the tags.

enum tagged_place {
    TAGGED_TAG,    // before a parameter or the end of the call
    TAGGED_START,  // at the beginning of a value
    TAGGED_STRING, // in one that comes out as it goes
    TAGGED_WHOLE,  // in one that is looked at when all of it is there
};

struct tool_span { // of a member in the arguments, with the comma before it
    size_t at, n;
};

static const struct tool_format *format_of(const struct tool_calls *c) {
    return &tool_formats[c->family];
}

// Takes a member out that comes a second time: of equal keys the last one counts.
static void remove_member(struct tool_calls *c, int i) {
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
static bool member_has_key(const struct tool_calls *c, const struct tool_span *span,
                           const struct str *quoted) {
    const char *s = c->args.data + span->at + (c->args.data[span->at] == ',');
    size_t left = span->n - (size_t)(s - (c->args.data + span->at));
    return left > quoted->len && !memcmp(s, quoted->data, quoted->len) && s[quoted->len] == ':';
}

static bool add_member(struct tool_args *a, size_t at) {
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
    if (++a->n_members > TOOL_MAX_MEMBERS)
        return false;
    str_clear(&a->key);
    str_putc(&a->key, '"');
    json_pieces_escape(name, n, &a->key);
    str_putc(&a->key, '"');
    c->failed |= a->key.failed;
    if (c->failed)
        return false;
    for (int i = 0; i < a->n_spans && !c->constrained; i++)
        if (member_has_key(c, &a->spans[i], &a->key)) {
            remove_member(c, i);
            break;
        }
    c->failed |= !c->constrained && !add_member(a, c->args.len);
    if (c->failed)
        return false;
    bool first = c->constrained ? a->first : a->n_spans == 1;
    if (!first)
        str_putc(&c->args, ',');
    else if (c->args.len == 0 && a->first)
        str_putc(&c->args, '{');
    if (first && !c->constrained)
        a->spans[0].at = c->args.len;
    a->first = false;
    str_append(&c->args, a->key.data, a->key.len);
    str_putc(&c->args, ':');
    return true;
}

// TAGGED_TAG: a parameter's key up to its value, or the end of the call. OK: the end.
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
    if (!stop || stop - name > TOOL_MAX_HEAD)
        return stop || c->held.len - at > TOOL_MAX_HEAD ? TOOL_BAD : TOOL_MORE;
    size_t n = (size_t)(stop - name);
    at += n + strlen(f->key_end);
    if (f->value) {
        size_t blanks = tool_blanks(c, at);
        at += blanks;
        if (blanks > TOOL_MAX_BLANKS)
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
    a->state = TAGGED_START;
    return TOOL_MORE;
}

// Where the value ends. 1: *n bytes from c->at, and *next is after its tag; 0: at least *n bytes
// belong to it, the rest is not yet known.
static int find_value_end(const struct tool_calls *c, bool end, size_t *n, size_t *next) {
    const struct tool_format *f = format_of(c);
    const char *from = c->held.data + c->at;
    size_t len = c->held.len - c->at, tag = strlen(f->value_end), at = 0;
    int is = -1;
    for (;; at++) {
        const char *found = memmem(from + at, len - at, f->value_end, tag);
        if (!found) {
            at = len - count_partial_mark(from + at, len - at, f->value_end);
            break;
        }
        at = (size_t)(found - from);
        *next = c->at + at + tag;
        size_t blanks = tool_blanks(c, *next), after = *next + blanks;
        if (blanks > TOOL_MAX_BLANKS)
            continue;
        int key = tool_stands(c, after, f->key), close = tool_stands(c, after, f->close);
        is = key > close ? key : close;
        if (is == 1 || (is == 0 && (!end || c->constrained)))
            break;
        is = -1;
    }
    // A line end before the tag belongs to the tag.
    *n = at - (f->lines && at > 0 && from[at - 1] == '\n');
    return is == 1;
}

static unsigned type_of_json(const char *json) {
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
    struct json_pieces p = {0};
    const char *s = text->len ? text->data : "";
    size_t n = text->len, before = out->len;
    while (n > 0 && strchr(" \t\r\n", *s))
        s++, n--;
    while (n > 0 && strchr(" \t\r\n", s[n - 1]))
        n--;
    if (n == text->len)
        replace_python_word(&s, &n);
    if (n == 0 || !(type_of_json(s) & types & ~(unsigned)TOOL_STRING))
        return false;
    if (json_pieces_push(&p, s, n, out) == n && json_pieces_end(&p))
        return true;
    if (!out->failed) {
        out->len = before;
        out->data[before] = 0;
    }
    return false;
}

static void put_typed_or_string(struct tool_calls *c) {
    struct tool_args *a = c->reader;
    if (put_typed(&a->value, a->types, &c->args))
        return;
    str_putc(&c->args, '"');
    json_pieces_escape(a->value.data, a->value.len, &c->args);
    str_putc(&c->args, '"');
}

static enum tool_step begin_tagged_value(struct tool_calls *c, bool end) {
    struct tool_args *a = c->reader;
    if (c->at == c->held.len && !end)
        return TOOL_MORE;
    if (format_of(c)->lines && c->at < c->held.len && c->held.data[c->at] == '\n')
        c->at++;
    a->state = a->types == TOOL_STRING ? TAGGED_STRING : TAGGED_WHOLE;
    str_clear(&a->value);
    if (a->state == TAGGED_STRING)
        str_putc(&c->args, '"');
    return TOOL_OK;
}

static enum tool_step read_tagged_value(struct tool_calls *c, bool end) {
    struct tool_args *a = c->reader;
    size_t n = 0, next = 0;
    int ended = find_value_end(c, end, &n, &next);
    if (a->state == TAGGED_STRING)
        json_pieces_escape(c->held.data + c->at, n, &c->args);
    else
        str_append(&a->value, c->held.data + c->at, n);
    c->at = ended ? next : c->at + n;
    c->failed |= a->value.failed;
    if (!ended)
        return TOOL_MORE;
    if (a->state == TAGGED_STRING)
        str_putc(&c->args, '"');
    else
        put_typed_or_string(c);
    if (!c->constrained)
        a->spans[a->n_spans - 1].n = c->args.len - a->spans[a->n_spans - 1].at;
    a->state = TAGGED_TAG;
    return TOOL_OK;
}

enum tool_step tool_read_tagged(struct tool_calls *c, bool end) {
    struct tool_args *a = c->reader;
    for (;;) {
        enum tool_step step = TOOL_OK;
        if (a->state == TAGGED_TAG) {
            step = read_tag(c);
            if (step != TOOL_MORE || a->state == TAGGED_TAG)
                return step;
            continue;
        }
        step = a->state == TAGGED_START ? begin_tagged_value(c, end) : read_tagged_value(c, end);
        if (step == TOOL_MORE || c->failed || c->args.failed)
            return step == TOOL_MORE && !end ? TOOL_MORE : TOOL_BAD;
    }
}
