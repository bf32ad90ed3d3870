// SPDX-License-Identifier: Apache-2.0
// See freeform.h. The arguments are JSON already, so only what an escape means is worked out here.
#include "text/tools/freeform.h"

#include <string.h>

#include "base/utf8.h"

static void put_code(uint32_t code, struct str *out) {
    char text[4];
    str_append(out, text, (size_t)utf8_encode(text, code));
}

// A surrogate that waited stays alone.
static void put_alone(struct freeform *f, struct str *out) {
    if (f->high)
        put_code(0xFFFD, out);
    f->high = 0;
}

static void put_unit(struct freeform *f, struct str *out) {
    bool low = f->code >= 0xDC00 && f->code <= 0xDFFF;
    if (low && f->high) {
        put_code(0x10000 + ((f->high - 0xD800) << 10) + (f->code - 0xDC00), out);
        f->high = 0;
        return;
    }
    put_alone(f, out);
    if (f->code >= 0xD800 && f->code <= 0xDBFF)
        f->high = f->code;
    else
        put_code(f->code, out); // U+FFFD for half a pair
}

static void take_head(struct freeform *f, char ch) {
    static const char head[] = "{\"input\":\"";
    if (ch == ' ' || ch == '\n' || ch == '\r' || ch == '\t')
        return;
    if (ch != head[f->at])
        f->state = FREEFORM_BAD;
    else if (!head[++f->at])
        f->state = FREEFORM_TEXT;
}

static void take_escape(struct freeform *f, char ch, struct str *out) {
    static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    const char *at = ch ? strchr(letters, ch) : NULL;
    f->state = ch == 'u' ? FREEFORM_HEX : at ? FREEFORM_TEXT : FREEFORM_BAD;
    f->code = 0;
    f->digits = 0;
    if (at) {
        put_alone(f, out);
        str_putc(out, means[at - letters]);
    }
}

static void take_digit(struct freeform *f, char ch, struct str *out) {
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
    put_unit(f, out);
    f->state = FREEFORM_TEXT;
}

// Up to the next byte that is not the text itself; how many.
static size_t take_plain(struct freeform *f, const char *s, size_t n, struct str *out) {
    size_t i = 0;
    while (i < n && s[i] != '"' && s[i] != '\\')
        i++;
    if (i > 0)
        put_alone(f, out);
    str_append(out, s, i);
    if (i == n)
        return n;
    if (s[i] == '"')
        put_alone(f, out);
    f->state = s[i] == '"' ? FREEFORM_DONE : FREEFORM_ESCAPE;
    return i + 1;
}

void freeform_push(struct freeform *f, const char *s, size_t n, struct str *out) {
    for (size_t i = 0; i < n;) {
        switch (f->state) {
        case FREEFORM_HEAD:
            take_head(f, s[i++]);
            break;
        case FREEFORM_TEXT:
            i += take_plain(f, s + i, n - i, out);
            break;
        case FREEFORM_ESCAPE:
            take_escape(f, s[i++], out);
            break;
        case FREEFORM_HEX:
            take_digit(f, s[i++], out);
            break;
        default:
            return;
        }
    }
}
