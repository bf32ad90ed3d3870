// SPDX-License-Identifier: Apache-2.0
// See json_pieces.h: a machine over bytes with a stack of what is open. The arguments of a freeform
// tool are JSON already, so only what an escape means is worked out of them.
#include "text/tools/json_pieces.h"

#include <string.h>

#include "base/utf8.h"

enum number { MINUS, ZERO, DIGITS, POINT, FRACTION, EXPONENT, SIGN, POWER };

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static void end_json_value(struct json_pieces *p) {
    p->state = p->depth == 0 ? PIECES_DONE : PIECES_NEXT;
}

static void open_json_block(struct json_pieces *p, bool object) {
    if (p->depth == JSON_PIECES_DEPTH) {
        p->state = PIECES_BAD;
        return;
    }
    p->objects[p->depth++] = object;
    p->state = object ? PIECES_KEY : PIECES_FIRST;
}

static void close_json_block(struct json_pieces *p, bool object) {
    if (p->depth == 0 || p->objects[p->depth - 1] != object) {
        p->state = PIECES_BAD;
        return;
    }
    p->depth--;
    end_json_value(p);
}

static void begin_string(struct json_pieces *p, bool key) {
    p->is_key = key;
    p->state = PIECES_STRING;
}

static void begin_value(struct json_pieces *p, char c) {
    static const char *const words[] = {"true", "false", "null"};
    p->state = PIECES_BAD;
    if (c == '{' || c == '[')
        open_json_block(p, c == '{');
    else if (c == '"')
        begin_string(p, false);
    else if (c == '-' || is_digit(c)) {
        p->number = c == '-' ? MINUS : c == '0' ? ZERO : DIGITS;
        p->state = PIECES_NUMBER;
    }
    for (int i = 0; i < 3; i++)
        if (c == words[i][0]) {
            p->word = words[i] + 1;
            p->state = PIECES_WORD;
        }
}

// The place in the grammar of a number after c, or -1 where c is none of it.
static int next_in_number(int at, char c) {
    bool digit = is_digit(c), e = c == 'e' || c == 'E';
    switch ((enum number)at) {
    case MINUS:
        return !digit ? -1 : c == '0' ? ZERO : DIGITS;
    case ZERO:
        return c == '.' ? POINT : e ? EXPONENT : -1;
    case DIGITS:
        return digit ? DIGITS : c == '.' ? POINT : e ? EXPONENT : -1;
    case POINT:
        return digit ? FRACTION : -1;
    case FRACTION:
        return digit ? FRACTION : e ? EXPONENT : -1;
    case EXPONENT:
        return digit ? POWER : c == '+' || c == '-' ? SIGN : -1;
    case SIGN:
    case POWER:
        break;
    }
    return digit ? POWER : -1;
}

static bool number_may_end(int at) {
    return at == ZERO || at == DIGITS || at == FRACTION || at == POWER;
}

static void in_string(struct json_pieces *p, char c) {
    if (c == '\\')
        p->state = PIECES_ESCAPE;
    else if (c == '"' && p->is_key)
        p->state = PIECES_COLON;
    else if (c == '"')
        end_json_value(p);
}

static void in_escape(struct json_pieces *p, char c) {
    p->left = 4;
    p->state = c == 'u' ? PIECES_HEX : c && strchr("\"\\/bfnrt", c) ? PIECES_STRING : PIECES_BAD;
}

static void in_hex(struct json_pieces *p, char c) {
    bool ok = is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    p->state = !ok ? PIECES_BAD : --p->left ? PIECES_HEX : PIECES_STRING;
}

static void in_word(struct json_pieces *p, char c) {
    if (c != *p->word)
        p->state = PIECES_BAD;
    else if (!*++p->word)
        end_json_value(p);
}

// A byte between values.
static void read_between(struct json_pieces *p, char c) {
    bool object = p->depth > 0 && p->objects[p->depth - 1];
    switch (p->state) {
    case PIECES_FIRST:
        if (c == ']')
            close_json_block(p, false);
        else
            begin_value(p, c);
        return;
    case PIECES_KEY:
        if (c == '}') {
            close_json_block(p, true);
            return;
        }
        break;
    case PIECES_AFTER:
        break;
    case PIECES_COLON:
        p->state = c == ':' ? PIECES_VALUE : PIECES_BAD;
        return;
    case PIECES_NEXT:
        if (c == ',')
            p->state = object ? PIECES_AFTER : PIECES_VALUE;
        else if (c == '}' || c == ']')
            close_json_block(p, c == '}');
        else
            p->state = PIECES_BAD;
        return;
    default:
        begin_value(p, c);
        return;
    }
    p->state = PIECES_BAD;
    if (c == '"')
        begin_string(p, true);
}

static void read_byte(struct json_pieces *p, char c) {
    switch (p->state) {
    case PIECES_STRING:
        in_string(p, c);
        return;
    case PIECES_ESCAPE:
        in_escape(p, c);
        return;
    case PIECES_HEX:
        in_hex(p, c);
        return;
    case PIECES_WORD:
        in_word(p, c);
        return;
    default:
        break;
    }
    if (p->state == PIECES_NUMBER) {
        int next = next_in_number(p->number, c);
        if (next >= 0) {
            p->number = next;
            return;
        }
        if (!number_may_end(p->number)) {
            p->state = PIECES_BAD;
            return;
        }
        end_json_value(p);
    }
    if (!json_pieces_blank(c) && p->state != PIECES_DONE)
        read_between(p, c);
}

void json_pieces_escape(const char *s, size_t n, struct str *out) {
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        const char *at = c ? strchr(from, c) : NULL;
        if (at) {
            str_putc(out, '\\');
            str_putc(out, to[at - from]);
        } else if (c < 0x20) {
            str_printf(out, "\\u%04x", c);
        } else {
            str_putc(out, (char)c);
        }
    }
}

size_t json_pieces_push(struct json_pieces *p, const char *s, size_t n, struct str *out) {
    for (size_t i = 0; i < n; i++) {
        if (p->state == PIECES_DONE || p->state == PIECES_BAD)
            return i;
        bool raw = p->state == PIECES_STRING && (unsigned char)s[i] < 0x20;
        bool alone = p->state == PIECES_NUMBER && p->depth == 0;
        read_byte(p, s[i]);
        if (p->state == PIECES_BAD || (alone && p->state == PIECES_DONE))
            return i;
        if (raw)
            json_pieces_escape(s + i, 1, out);
        else
            str_putc(out, s[i]);
    }
    return n;
}

bool json_pieces_end(struct json_pieces *p) {
    if (p->state == PIECES_NUMBER && p->depth == 0)
        p->state = number_may_end(p->number) ? PIECES_DONE : PIECES_BAD;
    return p->state == PIECES_DONE;
}

// The text of a freeform tool.

static void put_code(uint32_t code, struct str *out) {
    char text[4];
    str_append(out, text, (size_t)utf8_encode(text, code));
}

// A surrogate that waited stays alone.
static void put_lone_surrogate(struct freeform *f, struct str *out) {
    if (f->high)
        put_code(0xFFFD, out);
    f->high = 0;
}

static void put_utf16_unit(struct freeform *f, struct str *out) {
    bool low = f->code >= 0xDC00 && f->code <= 0xDFFF;
    if (low && f->high) {
        put_code(0x10000 + ((f->high - 0xD800) << 10) + (f->code - 0xDC00), out);
        f->high = 0;
        return;
    }
    put_lone_surrogate(f, out);
    if (f->code >= 0xD800 && f->code <= 0xDBFF)
        f->high = f->code;
    else
        put_code(f->code, out); // U+FFFD for half a pair
}

static void read_freeform_head(struct freeform *f, char ch) {
    static const char head[] = "{\"input\":\"";
    if (json_pieces_blank(ch))
        return;
    if (ch != head[f->at])
        f->state = FREEFORM_BAD;
    else if (!head[++f->at])
        f->state = FREEFORM_TEXT;
}

static void read_freeform_escape(struct freeform *f, char ch, struct str *out) {
    static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    const char *at = ch ? strchr(letters, ch) : NULL;
    f->state = ch == 'u' ? FREEFORM_HEX : at ? FREEFORM_TEXT : FREEFORM_BAD;
    f->code = 0;
    f->digits = 0;
    if (at) {
        put_lone_surrogate(f, out);
        str_putc(out, means[at - letters]);
    }
}

static void read_freeform_digit(struct freeform *f, char ch, struct str *out) {
    static const char digits[] = "0123456789abcdef";
    char small = ch >= 'A' && ch <= 'F' ? (char)(ch + 'a' - 'A') : ch;
    const char *at = small ? strchr(digits, small) : NULL;
    if (!at) {
        f->state = FREEFORM_BAD;
        return;
    }
    f->code = f->code << 4 | (uint32_t)(at - digits);
    if (++f->digits < 4)
        return;
    put_utf16_unit(f, out);
    f->state = FREEFORM_TEXT;
}

// Up to the next byte that is not the text itself; how many.
static size_t read_freeform_text(struct freeform *f, const char *s, size_t n, struct str *out) {
    size_t i = 0;
    while (i < n && s[i] != '"' && s[i] != '\\')
        i++;
    if (i > 0)
        put_lone_surrogate(f, out);
    str_append(out, s, i);
    if (i == n)
        return n;
    if (s[i] == '"')
        put_lone_surrogate(f, out);
    f->state = s[i] == '"' ? FREEFORM_DONE : FREEFORM_ESCAPE;
    return i + 1;
}

void freeform_push(struct freeform *f, const char *s, size_t n, struct str *out) {
    for (size_t i = 0; i < n;) {
        switch (f->state) {
        case FREEFORM_HEAD:
            read_freeform_head(f, s[i++]);
            break;
        case FREEFORM_TEXT:
            i += read_freeform_text(f, s + i, n - i, out);
            break;
        case FREEFORM_ESCAPE:
            read_freeform_escape(f, s[i++], out);
            break;
        case FREEFORM_HEX:
            read_freeform_digit(f, s[i++], out);
            break;
        default:
            return;
        }
    }
}
