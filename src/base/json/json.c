// SPDX-License-Identifier: Apache-2.0
// JSON; see json.h. json-c reads, checks the grammar and holds the document. A scan before it
// bounds what it may be given and finds what it lets pass: foreign words and characters, numbers
// like 01 or 1. or out of range, control characters and ill-formed UTF-8 in strings, keys that hold
// a NUL or come twice. Of a text that is wrong in several places the first one is reported.
//
// json-c keeps the text of a double but not that of an integer, and clamps integers beyond 64 bits.
// So -0 and those go to it with an exponent of nothing after them, as doubles, and it is cut off
// again afterwards: a double whose text is that of an integer is one for our callers.
// It takes escaped code points such as U+1D800, whose last bits are those of half a pair, for
// halves: these go to it as they are.
//
// The writer is in writer.c. No other file includes json-c.
#include "base/json/json.h"

#define json_bool jsonc_bool // json-c's type of that name would hide our function
#include <json-c/json.h>
#undef json_bool
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/utf8.h"
#include "base/vec.h"

enum { DEPTH_MAX = 128, QUOTED = 80, LONGEST = INT_MAX - 1 };

#define EXPONENT   "e-000"           // after integers that go as doubles
#define MORE_ZEROS "00000"           // after doubles that would look like those
enum { MARK = sizeof EXPONENT - 1 }; // bytes of either
_Static_assert(sizeof MORE_ZEROS - 1 == MARK, "one rule cuts both and finds places behind them");

// The tokens of JSON text, with the checks that json-c leaves out.

enum { JSON_PAIR = 12 }; // bytes of two escapes

static size_t count_digits(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && s[i] >= '0' && s[i] <= '9')
        i++;
    return i;
}

// Whether the n digits fit 64 bits: unsigned for positive numbers, signed for negative ones.
static bool fits_64_bits(const char *s, size_t n, bool negative) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v))
            return false;
    return !negative || v <= (uint64_t)INT64_MAX + 1;
}

// Length of the number at s by RFC 8259's grammar, 0 when it breaks it. *whole: how many digits it
// has if it is an integer, else 0.
static size_t number_length(const char *s, size_t n, size_t *whole) {
    size_t i = s[0] == '-', part = count_digits(s + i, n - i);
    if (part == 0 || (part > 1 && s[i] == '0'))
        return 0;
    i += part;
    *whole = part;
    if (i < n && s[i] == '.') {
        part = count_digits(s + i + 1, n - i - 1);
        i += 1 + part;
        *whole = 0;
    }
    if (part && i < n && (s[i] == 'e' || s[i] == 'E')) {
        i++;
        i += i < n && (s[i] == '+' || s[i] == '-');
        part = count_digits(s + i, n - i);
        i += part;
        *whole = 0;
    }
    return part ? i : 0;
}

// How many bytes at the start of s are characters of a string that stand for themselves.
static size_t plain_bytes(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && (signed char)s[i] >= ' ' && s[i] != '"' && s[i] != '\\')
        i++;
    return i;
}

// Length of the string that begins at the quote s[0], with both quotes; n when it does not end; 0
// when it holds a control character or is not UTF-8, and *bad says where. Escapes are passed over.
static size_t string_length(const char *s, size_t n, size_t *bad) {
    uint32_t code;
    for (size_t i = 1; i < n;) {
        i += plain_bytes(s + i, n - i);
        if (i < n && s[i] == '"')
            return i + 1;
        if (i < n && s[i] == '\\') {
            i += 2;
            continue;
        }
        int len = i < n ? utf8_decode(s + i, n - i, &code) : 0;
        if (i < n && (len <= 0 || code < ' ')) {
            *bad = i;
            return 0;
        }
        i += (size_t)len;
    }
    return n;
}

// The code unit of an escape of six bytes, 0 for other bytes.
static uint32_t escaped_unit(const char *s, size_t n) {
    uint32_t code = 0;
    if (n < JSON_PAIR / 2 || s[0] != '\\' || s[1] != 'u')
        return 0;
    for (int i = 2; i < JSON_PAIR / 2; i++) {
        int digit = hex_digit(s[i]);
        if (digit < 0)
            return 0;
        code = code * 16 + (uint32_t)digit;
    }
    return code;
}

// Where in the n bytes of a string the next two escapes at or after `at` begin that stand for one
// code point, JSON_PAIR bytes long; n without any. `at` is not within an escape.
static size_t find_pair(const char *s, size_t n, size_t at, uint32_t *code) {
    for (const char *next; at < n && (next = memchr(s + at, '\\', n - at));) {
        at = (size_t)(next - s);
        uint32_t high = escaped_unit(s + at, n - at);
        if (high < 0xD800 || high > 0xDBFF) {
            at += 2;
            continue;
        }
        at += JSON_PAIR / 2;
        uint32_t low = escaped_unit(s + at, n - at);
        if (low < 0xDC00 || low > 0xDFFF)
            continue;
        *code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
        return at - JSON_PAIR / 2;
    }
    return n;
}

// Length of true, false or null at s, 0 when it is none of them.
static size_t word_length(const char *s, size_t n) {
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t len = strlen(words[i]);
        if (n >= len && memcmp(s, words[i], len) == 0)
            return len;
    }
    return 0;
}

struct key {
    const char *text;
    size_t n;
    struct json_object *decoded; // owner of the text if it held escapes
};

// Where json-c gets something else: after s[0..end) its text is `longer` bytes longer than before.
struct change {
    size_t end;
    int longer;
};

struct scan {
    const char *s;
    size_t n, i; // i: of the token, and where the text is wrong
    struct json_rules rules;
    int64_t values, objects;
    enum { OTHER, MAYBE_KEY, COLON } last; // token
    const char *string;                    // of MAYBE_KEY
    size_t string_n;
    size_t rewritten; // bytes of it at the end of the copy, if it is not there as it is
    struct key *keys; // of the objects that are open
    int64_t n_keys, cap_keys;
    int64_t *first_keys; // of what is open
    int64_t depth, cap_first_keys;
    struct json_tokener *decoder; // of keys with escapes
    struct str copy; // what json-c gets in place of s[0..copied), if it gets anything else
    size_t copied;
    struct change *changes;
    int64_t n_changes, cap_changes;
    struct err *e;
};

// struct json is never defined: a value is json-c's own object under our name.
static struct json_object *raw(const struct json *v) {
    return (struct json_object *)(uintptr_t)v;
}

static const struct json *ours(struct json_object *o) {
    return (const struct json *)o;
}

static int out_of_memory(struct scan *sc) {
    return err_set(sc->e, ERR_MEMORY, "out of memory for JSON text of %zu bytes", sc->n);
}

static int too_long(struct scan *sc) {
    return err_set(sc->e, ERR_LIMIT, "JSON text of %zu bytes is too long; the limit is 2 GiB",
                   sc->n);
}

static size_t line_of(const struct scan *sc, size_t at) {
    size_t line = 1;
    for (size_t i = 0; i < at && i < sc->n; i++)
        line += sc->s[i] == '\n';
    return line;
}

static int wrong_at(struct scan *sc, size_t at, const char *what) {
    sc->i = at;
    return err_set(sc->e, ERR_FORMAT, "JSON text is wrong at byte %zu (line %zu): %s", at,
                   line_of(sc, at), what);
}

static struct json_tokener *new_tokener(int depth) {
    struct json_tokener *t = json_tokener_new_ex(depth);
    if (t)
        json_tokener_set_flags(t, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    return t;
}

// The program's locale, which may use a decimal comma, has no effect. (glibc keeps this one ready.)
static bool overflows(const char *s) {
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    bool too_large = !c || !isfinite(strtod_l(s, NULL, c));
    if (c)
        freelocale(c);
    return too_large;
}

// Refuses the number of n bytes at i if no double can hold it.
static int check_range(struct scan *sc, size_t n) {
    enum { SHORT = 200, SHORT_EXPONENT = 3 }; // e99 after 200 digits is no 1e309
    const char *s = sc->s + sc->i, *e = memchr(s, 'e', n);
    e = e ? e : memchr(s, 'E', n);
    if (n <= SHORT && (!e || s + n - e <= SHORT_EXPONENT))
        return 0;
    char *text = malloc(n + 1);
    if (!text)
        return out_of_memory(sc);
    memcpy(text, s, n);
    text[n] = '\0';
    int rc = overflows(text) ? wrong_at(sc, sc->i, "the number is too large") : 0;
    free(text);
    return rc;
}

// Whether the text ends like EXPONENT, with as many zeros or more.
static bool looks_marked(const char *s, size_t n) {
    size_t zeros = 0;
    while (zeros < n && s[n - 1 - zeros] == '0')
        zeros++;
    return zeros >= MARK - 2 && n >= zeros + 2 && memcmp(s + n - zeros - 2, EXPONENT, 2) == 0;
}

// Writes all of s up to `from` to the copy, and n bytes of text for what is in s up to `end`.
static int put_change(struct scan *sc, size_t from, size_t end, const char *text, int n) {
    if (vec_reserve(&sc->changes, &sc->cap_changes, sc->n_changes + 1, sizeof *sc->changes, NULL))
        return out_of_memory(sc);
    sc->changes[sc->n_changes++] = (struct change){end, n - (int)(end - from)};
    str_append(&sc->copy, sc->s + sc->copied, from - sc->copied);
    str_append(&sc->copy, text, (size_t)n);
    sc->copied = end;
    return sc->copy.failed ? out_of_memory(sc) : 0;
}

static int scan_number(struct scan *sc) {
    const char *s = sc->s + sc->i;
    size_t at = sc->i, whole = 0, n = number_length(s, sc->n - at, &whole);
    if (n == 0)
        return wrong_at(sc, at, "this is no number");
    bool negative = *s == '-', fits = whole && fits_64_bits(s + negative, whole, negative);
    if (whole && !fits && !sc->rules.big_integers)
        return wrong_at(sc, at, "the integer needs more than 64 bits");
    int rc = fits ? 0 : check_range(sc, n);
    if (rc)
        return rc;
    sc->i += n;
    bool negative_zero = negative && whole == 1 && s[1] == '0';
    if (whole ? !fits || negative_zero : looks_marked(s, n))
        return put_change(sc, sc->i, sc->i, whole ? EXPONENT : MORE_ZEROS, MARK);
    return 0;
}

// Takes the marks off again.
static void cut_marks(struct json_object *o) {
    if (json_object_is_type(o, json_type_double)) {
        char *text = json_object_get_userdata(o);
        size_t n = strlen(text);
        if (looks_marked(text, n))
            text[n - MARK] = '\0';
    } else if (json_object_is_type(o, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(o); i++)
            cut_marks(json_object_array_get_idx(o, i));
    } else if (json_object_is_type(o, json_type_object)) {
        json_object_object_foreach(o, key, member) {
            (void)key;
            cut_marks(member);
        }
    }
}

static int before(const struct key *a, const struct key *b) {
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    return memcmp(a->text, b->text, a->n);
}

static int by_text(const void *a, const void *b) {
    return before(a, b);
}

// json-c itself tells what a key with escapes is, so that both see the same. One that it refuses
// stays as it is: it is found wrong there before what the scan may find.
static int decode_key(struct scan *sc, struct key *k) {
    sc->decoder = sc->decoder ? sc->decoder : new_tokener(1);
    if (!sc->decoder)
        return out_of_memory(sc);
    json_tokener_reset(sc->decoder);
    size_t n = sc->rewritten ? sc->rewritten : sc->string_n;
    const char *text = sc->rewritten ? sc->copy.data + sc->copy.len - n : sc->string;
    k->decoded = json_tokener_parse_ex(sc->decoder, text, (int)n);
    if (!k->decoded)
        return 0;
    k->text = json_object_get_string(k->decoded);
    k->n = (size_t)json_object_get_string_len(k->decoded);
    return 0;
}

// The string before a colon has been counted as a value, which its member now is in its place.
static int scan_colon(struct scan *sc) {
    if (sc->last != MAYBE_KEY || sc->depth == 0)
        return wrong_at(sc, sc->i, "here should be no colon");
    sc->i++;
    sc->values--;
    sc->last = COLON;
    struct key k = {.text = sc->string + 1, .n = sc->string_n - 2};
    int rc = memchr(k.text, '\\', k.n) ? decode_key(sc, &k) : 0;
    if (!rc && memchr(k.text, '\0', k.n))
        rc = wrong_at(sc, (size_t)(sc->string - sc->s), "a key holds the character U+0000");
    if (!rc && sc->rules.unique_keys) {
        if (vec_reserve(&sc->keys, &sc->cap_keys, sc->n_keys + 1, sizeof *sc->keys, NULL))
            rc = out_of_memory(sc);
        else
            sc->keys[sc->n_keys++] = k;
        k.decoded = rc ? k.decoded : NULL;
    }
    json_object_put(k.decoded);
    return rc;
}

static void drop_keys(struct scan *sc, int64_t first) {
    while (sc->n_keys > first)
        json_object_put(sc->keys[--sc->n_keys].decoded);
}

static int scan_open(struct scan *sc) {
    if (sc->depth == sc->rules.depth)
        return err_set(sc->e, ERR_FORMAT,
                       "JSON text is nested more than %d deep at byte %zu (line %zu)",
                       sc->rules.depth, sc->i, line_of(sc, sc->i));
    if (vec_reserve(&sc->first_keys, &sc->cap_first_keys, sc->depth + 1, sizeof *sc->first_keys,
                    NULL))
        return out_of_memory(sc);
    sc->first_keys[sc->depth++] = sc->n_keys;
    sc->objects += sc->s[sc->i] == '{';
    if (sc->rules.objects > 0 && sc->objects > sc->rules.objects)
        return err_set(sc->e, ERR_LIMIT, "JSON text holds more than %lld objects",
                       (long long)sc->rules.objects);
    sc->i++;
    return 0;
}

// json-c checks which kind of bracket it must be.
static int scan_close(struct scan *sc) {
    if (sc->depth == 0)
        return wrong_at(sc, sc->i, "nothing is open here");
    int64_t first = sc->first_keys[--sc->depth];
    size_t n = (size_t)(sc->n_keys - first);
    struct key *k = n ? sc->keys + first : NULL;
    if (n > 1)
        qsort(k, n, sizeof *k, by_text);
    for (size_t i = 1; i < n; i++)
        if (before(&k[i - 1], &k[i]) == 0)
            return err_set(sc->e, ERR_FORMAT,
                           "the key '%.*s' comes twice in the JSON object that ends at byte %zu "
                           "(line %zu)",
                           (int)min_size(k[i].n, QUOTED), k[i].text, sc->i, line_of(sc, sc->i));
    drop_keys(sc, first);
    sc->i++;
    return 0;
}

static int count_value(struct scan *sc) {
    sc->values++;
    if (sc->rules.values > 0 && sc->values > sc->rules.values)
        return err_set(sc->e, ERR_LIMIT, "JSON text holds more than %lld values",
                       (long long)sc->rules.values);
    return 0;
}

// Writes the string's pairs that json-c would misread to the copy in UTF-8, and then all of it.
static int rewrite_pairs(struct scan *sc) {
    size_t start = (size_t)(sc->string - sc->s), n = sc->string_n;
    int64_t before_it = sc->n_changes;
    uint32_t code = 0;
    int shorter = 0, rc = 0;
    for (size_t at = 0; !rc && (at = find_pair(sc->string, n, at, &code)) < n; at += JSON_PAIR) {
        if ((code & 0xF800) != 0xD800)
            continue;
        char text[4];
        int len = utf8_encode(text, code);
        rc = put_change(sc, start + at, start + at + JSON_PAIR, text, len);
        shorter += JSON_PAIR - len;
    }
    if (rc || sc->n_changes == before_it)
        return rc;
    str_append(&sc->copy, sc->s + sc->copied, start + n - sc->copied);
    sc->copied = start + n;
    sc->rewritten = n - (size_t)shorter;
    return sc->copy.failed ? out_of_memory(sc) : 0;
}

static int scan_string(struct scan *sc) {
    size_t bad = 0, n = string_length(sc->s + sc->i, sc->n - sc->i, &bad);
    if (n == 0)
        return wrong_at(sc, sc->i + bad, "a string holds a control character or is not UTF-8");
    sc->last = sc->last == COLON ? OTHER : MAYBE_KEY;
    sc->string = sc->s + sc->i;
    sc->string_n = n;
    sc->rewritten = 0;
    sc->i += n;
    return memchr(sc->string, '\\', n) ? rewrite_pairs(sc) : 0;
}

static int scan_word(struct scan *sc) {
    size_t n = word_length(sc->s + sc->i, sc->n - sc->i);
    sc->i += n;
    return n ? 0 : wrong_at(sc, sc->i, "here should be a value");
}

static int scan_value(struct scan *sc) {
    char c = sc->s[sc->i];
    int rc = count_value(sc);
    if (rc)
        return rc;
    if (c == '"')
        return scan_string(sc);
    sc->last = OTHER;
    if (c == '[' || c == '{')
        return scan_open(sc);
    return c == '-' || (c >= '0' && c <= '9') ? scan_number(sc) : scan_word(sc);
}

// Goes over the tokens. An error leaves i where the text is wrong.
static int scan_text(struct scan *sc) {
    int rc = 0;
    while (!rc && sc->i < sc->n) {
        switch (sc->s[sc->i]) {
        case ' ':
        case '\t':
        case '\r':
        case '\n':
            sc->i++;
            break;
        case ',':
            sc->last = OTHER;
            sc->i++;
            break;
        case ':':
            rc = scan_colon(sc);
            break;
        case ']':
        case '}':
            sc->last = OTHER;
            rc = scan_close(sc);
            break;
        default:
            rc = scan_value(sc);
        }
    }
    return rc;
}

// The place in the text of one in what json-c got; it finds nothing wrong within a change.
static size_t place(const struct scan *sc, size_t at) {
    int64_t longer = 0;
    for (int64_t k = 0; k < sc->n_changes; k++) {
        int64_t more = longer + sc->changes[k].longer;
        if ((int64_t)at < (int64_t)sc->changes[k].end + more)
            break;
        longer = more;
    }
    return (size_t)((int64_t)at - longer);
}

// Feeds the text; json-c needs a NUL after a bare number or word to see that it has ended.
static struct json_object *feed(struct json_tokener *t, const char *text, size_t n, size_t *used) {
    struct json_object *o = json_tokener_parse_ex(t, text, (int)n);
    *used = json_tokener_get_parse_end(t);
    if (!o && json_tokener_get_error(t) == json_tokener_continue) {
        o = json_tokener_parse_ex(t, "", 1);
        *used = n;
    }
    return o;
}

// The input of json-c: the text, or its part before the error that the scan found.
static int prepare(struct scan *sc, int found, const char **text, size_t *n) {
    *text = sc->s;
    *n = found ? min_size(sc->i + 1, sc->n) : sc->n;
    if (sc->n_changes > 0) {
        if (*n > sc->copied)
            str_append(&sc->copy, sc->s + sc->copied, *n - sc->copied);
        *text = sc->copy.data;
        *n = sc->copy.len;
    }
    if (sc->copy.failed)
        return out_of_memory(sc);
    if (*n > LONGEST)
        return too_long(sc);
    return 0;
}

// The error that json-c's answer is; 0 for none. At the end of the text it lacks something.
static int refusal(struct scan *sc, enum json_tokener_error code, size_t used) {
    if (code == json_tokener_success)
        return 0;
    if (code == json_tokener_continue || used >= sc->n)
        return err_set(sc->e, ERR_FORMAT, "JSON text ends after %zu bytes in the middle of a value",
                       sc->n);
    return wrong_at(sc, used,
                    code == json_tokener_error_parse_utf8_string ? "this is not UTF-8"
                                                                 : json_tokener_error_desc(code));
}

// Whether there is memory for what json-c makes of n bytes, of which a failed allocation would end
// the program (it copies keys without a look at the result). Other threads may take it meanwhile,
// so this is no promise, but a text that is too large for the memory is reported.
static bool has_room(const struct scan *sc, size_t n) {
    enum { VALUE = 250, OBJECT = 800 }; // bytes at most (json.h)
    void *all = malloc(2 * n + VALUE * (size_t)sc->values + OBJECT * (size_t)sc->objects);
    bool has = all != NULL;
    free(all);
    return has;
}

// found: the scan's result, which stands unless json-c finds something at that place or before.
static int read_scanned(struct scan *sc, int found, struct json_object **out) {
    const char *text;
    size_t n, used;
    int rc = prepare(sc, found, &text, &n);
    if (rc)
        return rc;
    // It counts scalars too.
    struct json_tokener *t = has_room(sc, n) ? new_tokener(sc->rules.depth + 1) : NULL;
    if (!t)
        return out_of_memory(sc);
    struct json_object *o = feed(t, text, n, &used);
    enum json_tokener_error code = json_tokener_get_error(t);
    json_tokener_free(t);
    used = place(sc, used);
    bool later = code == json_tokener_success || code == json_tokener_continue || used > sc->i;
    rc = found && later ? found : refusal(sc, code, used);
    size_t blank = 0;
    while (blank < sc->n && strchr(" \t\r\n", sc->s[blank]) && sc->s[blank])
        blank++;
    if (!rc && !o && (blank == sc->n || sc->s[blank] != 'n')) // null is no object either
        rc = out_of_memory(sc);
    if (rc)
        json_object_put(o);
    else if (sc->n_changes > 0)
        cut_marks(o);
    *out = rc ? NULL : o;
    return rc;
}

static void fini(struct scan *sc) {
    drop_keys(sc, 0);
    free(sc->keys);
    free(sc->first_keys);
    free(sc->changes);
    str_fini(&sc->copy);
    if (sc->decoder)
        json_tokener_free(sc->decoder);
}

int json_parse_with(struct json **out, const char *text, size_t len, const struct json_rules *rules,
                    struct err *e) {
    *out = NULL;
    struct scan sc = {.s = text ? text : "", .n = len, .rules = *rules, .e = e};
    sc.rules.depth = rules->depth > 0 ? rules->depth : DEPTH_MAX;
    struct json_object *o = NULL;
    int rc = len > LONGEST ? too_long(&sc) : scan_text(&sc);
    if (rc != ERR_MEMORY && len <= LONGEST)
        rc = read_scanned(&sc, rc, &o);
    fini(&sc);
    *out = (struct json *)o;
    return rc;
}

int json_parse(struct json **out, const char *text, size_t len, struct err *e) {
    return json_parse_with(out, text, len, &(struct json_rules){0}, e);
}

// Puts a value, which it takes, where the builder is.
static void attach_value(struct json_builder *b, struct json_object *o) {
    struct json_object *in = b->n ? raw(b->open[b->n - 1]) : NULL;
    if (b->failed)
        json_object_put(o);
    else if (!in)
        b->root = (struct json *)o;
    else if (json_object_is_type(in, json_type_array) ? json_object_array_add(in, o)
                                                      : json_object_object_add(in, b->key, o)) {
        json_object_put(o);
        b->failed = true;
    }
}

void json_build(struct json_builder *b, enum json_kind kind, const char *s, size_t n) {
    const struct json_rules rules = {.big_integers = true};
    bool opens = kind == JSON_ARRAY || kind == JSON_OBJECT;
    struct json *v = NULL;
    if (kind == JSON_STRING)
        v = (struct json *)(n <= LONGEST ? json_object_new_string_len(s ? s : "", (int)n) : NULL);
    else if (opens)
        v = (struct json *)(kind == JSON_ARRAY ? json_object_new_array()
                                               : json_object_new_object());
    else
        b->failed |= json_parse_with(&v, s, n, &rules, NULL) != 0;
    b->failed |= (!v && (opens || kind == JSON_STRING)) ||
                 (opens && b->n == sizeof b->open / sizeof *b->open);
    attach_value(b, raw(v));
    if (opens && !b->failed)
        b->open[b->n++] = v;
}

void json_build_shared(struct json_builder *b, const struct json *v) {
    attach_value(b, json_object_get(raw(v)));
}

int json_built(struct json_builder *b, struct json **out, const char *what, struct err *e) {
    *out = b->failed ? NULL : b->root;
    if (!b->failed)
        return 0;
    json_free(b->root);
    return err_set(e, ERR_MEMORY, "no memory for %s", what);
}

size_t json_memory(const struct json *root) {
    enum { VALUE = 100, MEMBER = 150, OBJECT = 800 }; // of json-c 0.16, the allocator's part too
    struct json_object *o = raw(root);
    size_t n = VALUE;
    if (json_object_is_type(o, json_type_string)) {
        n += (size_t)json_object_get_string_len(o);
    } else if (json_object_is_type(o, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(o); i++)
            n += json_memory(ours(json_object_array_get_idx(o, i)));
    } else if (json_object_is_type(o, json_type_object)) {
        n += OBJECT;
        json_object_object_foreach(o, key, member) n +=
            MEMBER + strlen(key) + json_memory(ours(member));
    }
    return n;
}

void json_free(struct json *root) {
    json_object_put(raw(root));
}

// The text that a double was read from.
static const char *spelling(const struct json *v) {
    return json_object_get_userdata(raw(v));
}

enum json_kind json_kind_of(const struct json *v) {
    switch (json_object_get_type(raw(v))) {
    case json_type_boolean:
        return JSON_BOOL;
    case json_type_int:
        return JSON_INT;
    case json_type_double:
        return strpbrk(spelling(v), ".eE") ? JSON_DOUBLE : JSON_INT;
    case json_type_string:
        return JSON_STRING;
    case json_type_array:
        return JSON_ARRAY;
    case json_type_object:
        return JSON_OBJECT;
    case json_type_null:
        break;
    }
    return JSON_NULL;
}

const struct json *json_get(const struct json *object, const char *key) {
    struct json_object *v = NULL;
    if (json_kind_of(object) == JSON_OBJECT)
        json_object_object_get_ex(raw(object), key, &v);
    return ours(v);
}

bool json_has(const struct json *object, const char *key) {
    return json_kind_of(object) == JSON_OBJECT && json_object_object_get_ex(raw(object), key, NULL);
}

size_t json_len(const struct json *v) {
    enum json_kind kind = json_kind_of(v);
    if (kind == JSON_ARRAY)
        return json_object_array_length(raw(v));
    return kind == JSON_OBJECT ? (size_t)json_object_object_length(raw(v)) : 0;
}

const struct json *json_at(const struct json *array, size_t i) {
    return json_kind_of(array) == JSON_ARRAY && i < json_object_array_length(raw(array))
               ? ours(json_object_array_get_idx(raw(array), i))
               : NULL;
}

int json_each(const struct json *object, json_member_fn *fn, void *arg) {
    if (json_kind_of(object) != JSON_OBJECT)
        return 0;
    json_object_object_foreach(raw(object), key, member) {
        int rc = fn(arg, key, strlen(key), ours(member));
        if (rc)
            return rc;
    }
    return 0;
}

const char *json_str(const struct json *v, size_t *len) {
    if (json_kind_of(v) != JSON_STRING)
        return NULL;
    if (len)
        *len = (size_t)json_object_get_string_len(raw(v));
    return json_object_get_string(raw(v));
}

int64_t json_int(const struct json *v, int64_t otherwise) {
    if (json_kind_of(v) != JSON_INT)
        return otherwise;
    if (json_object_is_type(raw(v), json_type_double))
        return strcmp(spelling(v), "-0") == 0 ? 0 : otherwise;
    // json-c clamps what does not fit; the unsigned reading distinguishes a clamp from a true
    // maximum.
    int64_t i = json_object_get_int64(raw(v));
    return i == INT64_MAX && json_object_get_uint64(raw(v)) > INT64_MAX ? otherwise : i;
}

double json_num(const struct json *v, double otherwise) {
    enum json_kind kind = json_kind_of(v);
    return kind == JSON_INT || kind == JSON_DOUBLE ? json_object_get_double(raw(v)) : otherwise;
}

bool json_bool(const struct json *v, bool otherwise) {
    return json_kind_of(v) == JSON_BOOL ? json_object_get_boolean(raw(v)) != 0 : otherwise;
}

const char *json_number_text(const struct json *v) {
    if (json_object_is_type(raw(v), json_type_double))
        return spelling(v);
    return json_object_is_type(raw(v), json_type_int) ? json_object_get_string(raw(v)) : NULL;
}
