// SPDX-License-Identifier: Apache-2.0
// Word lists and patterns of `bench niah`. In a pattern a % and a letter stand for a word of that
// list, a number or a name.
#include "cli/bench/niah/text.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"

#define COUNT(list)      (sizeof(list) / sizeof *(list))
#define PICK(r, list)    ((list)[rng_below(r, COUNT(list))])
#define WORDS(name, ...) static const char *const name[] = {__VA_ARGS__}

WORDS(phrases, "The grass is wet.", "The hills are far.", "The moon is pale.", "Off they went.",
      "Home again by dusk.");

WORDS(nouns, "captain", "valley", "baker", "storm", "village", "mirror", "horse", "garden",
      "letter", "winter", "stranger", "forest", "window", "soldier", "kitchen", "river", "candle",
      "teacher", "mountain", "carriage", "shepherd", "harvest", "cottage", "island", "painter",
      "lantern", "meadow", "merchant", "chimney", "traveller", "library", "fisherman", "orchestra",
      "staircase", "neighbour", "widow", "blacksmith", "pilgrim", "rooftop", "courtyard");
WORDS(adjectives, "quiet", "narrow", "golden", "tired", "ancient", "cheerful", "distant", "hollow",
      "gentle", "broken", "curious", "silver", "patient", "crooked", "famous", "lonely", "muddy",
      "bright", "stubborn", "forgotten", "careful", "heavy", "early", "foreign");
WORDS(verbs, "followed", "remembered", "crossed", "described", "repaired", "admired", "left",
      "painted", "watched", "visited", "ignored", "praised", "measured", "carried", "searched",
      "welcomed", "avoided", "inherited", "protected", "questioned");
WORDS(times, "in the evening", "after the long rain", "before breakfast", "for many years",
      "on a Sunday", "without a word", "during the festival", "late at night", "with great care",
      "against all advice", "once more", "at the end of summer", "from time to time",
      "as everybody expected");
WORDS(links, "and", "but", "while", "because", "although", "so that", "until", "whereas");
WORDS(sentences, "The %a %n %v the %n %t.", "%T, the %n %v a %a %n.",
      "A %n and a %n %v the %a %n, %l the %n %v the %n.", "Nobody knew why the %n %v the %a %n.",
      "The %n was %a, %l the %n of the %n %v it %t.", "It is said that every %a %n %v some %n %t.",
      "The %n, %a as ever, %v the %n.", "There was no %n in the %n, %l the %a %n %v another one.");

WORDS(actions, "read", "copy", "merge", "flush", "count", "reset", "parse", "split", "find", "pack",
      "sort", "trim", "close", "hash", "swap", "scan", "emit", "drop", "link", "load");
WORDS(things, "buffer", "queue", "record", "index", "stream", "block", "table", "header", "frame",
      "cursor", "packet", "region", "bucket", "symbol", "segment", "handle", "range", "batch",
      "window", "slot");
WORDS(statements, "    %o->%f = %d;", "    if (%o->%f > %d)\n        return -%d;",
      "    for (int i = 0; i < %o->%f; i++)\n        %c_%g(%o, i);", "    %o->%f += %c_%g(%o, %d);",
      "    size_t %f = %o->%g & 0x%x;", "    memset(&%o->%f, 0, sizeof %o->%f);",
      "    %c_%g(%o, %o->%f, %d);", "    /* the %g follows the %f */",
      "    while (%o->%f < %d)\n        %o->%f <<= 1;", "    assert(%o->%g != NULL);");

// Names of places: a beginning and an end, short enough to be few tokens.
WORDS(begins, "Bal", "Cor", "Dun", "Fen", "Gar", "Hal", "Ist", "Jor", "Kel", "Lom", "Mar", "Nor",
      "Ost", "Pel", "Quar", "Ras", "Sel", "Tor", "Ull", "Ven", "Wyn", "Yar", "Zim", "Arn");
WORDS(ends, "on", "er", "ix", "us", "am", "ia", "en", "or", "el", "is", "ar", "um", "ot", "ek",
      "il", "as");
WORDS(secrets, "OTTER", "LANTERN", "COPPER", "WILLOW", "FALCON", "GRANITE", "VELVET", "HARBOR",
      "PEPPER", "COMET", "BADGER", "MAPLE", "SILVER", "TUNDRA", "WALNUT", "ZEPHYR");

// %k is the key, %v the value, %K all keys.
WORDS(number_facts, "The special number for %k is %v.", "Whoever asks about %k gets the number %v.",
      "Of all numbers, %v was picked for %k.", "%k answers to the number %v.");
WORDS(uuid_facts, "%k is filed under the UUID %v.", "The record of %k carries UUID %v.",
      "In the database the UUID %v stands for %k.", "UUID %v was generated for %k.");
WORDS(password_facts, "To enter %k, say the password %v.", "%k opens with the password %v.",
      "The guards of %k accept one password only: %v.",
      "Since the last change, %v is the password at %k.");
WORDS(number_questions, "Which digits were chosen when people spoke about %K?",
      "Name the number connected with %K.", "What number did the text reserve for %K?");
WORDS(uuid_questions, "By which UUID can one find %K?", "Which UUID identifies %K?",
      "Quote the UUID given to %K, please.");
WORDS(password_questions, "How does one get into %K? Only the password counts.",
      "Which password do I need in order to visit %K?", "Name the password for going to %K.");

static const struct {
    const char *name;
    const char *const *facts;
    size_t n_facts;
    const char *const *questions;
    size_t n_questions;
} kinds[NIAH_KINDS] = {
    [NIAH_NUMBER] = {"number", number_facts, COUNT(number_facts), number_questions,
                     COUNT(number_questions)},
    [NIAH_UUID] = {"uuid", uuid_facts, COUNT(uuid_facts), uuid_questions, COUNT(uuid_questions)},
    [NIAH_PASSWORD] = {"password", password_facts, COUNT(password_facts), password_questions,
                       COUNT(password_questions)},
};

const char *niah_filler_name(enum niah_filler f) {
    static const char *const names[NIAH_FILLERS] = {"phrases", "prose", "code", "file"};
    return names[f];
}

const char *niah_kind_name(enum niah_kind k) {
    return kinds[k].name;
}

void niah_source_begin(struct niah_source *s, enum niah_filler filler, const char *text, size_t n,
                       uint64_t seed) {
    *s = (struct niah_source){.filler = filler, .rng = {seed}, .text = text, .n = n};
    if (filler != NIAH_FILE)
        return;
    s->at = (size_t)(rng_next(&s->rng) % n); // some line: the one behind this place
    const char *end = memchr(text + s->at, '\n', n - s->at);
    s->at = end ? (size_t)(end - text) + 1 : 0;
}

static void put_capital(struct str *out, const char *word) {
    str_putc(out, (char)(word[0] - 'a' + 'A'));
    str_puts(out, word + 1);
}

static void put_prose(struct niah_source *s, struct str *out) {
    struct rng *r = &s->rng;
    for (const char *p = PICK(r, sentences); *p; p++) {
        if (*p != '%') {
            str_putc(out, *p);
            continue;
        }
        switch (*++p) {
        case 'a':
            str_puts(out, PICK(r, adjectives));
            break;
        case 'n':
            str_puts(out, PICK(r, nouns));
            break;
        case 'v':
            str_puts(out, PICK(r, verbs));
            break;
        case 't':
            str_puts(out, PICK(r, times));
            break;
        case 'T':
            put_capital(out, PICK(r, times));
            break;
        default:
            str_puts(out, PICK(r, links));
            break;
        }
    }
}

static void put_statement(struct niah_source *s, struct str *out) {
    struct rng *r = &s->rng;
    const char *field = PICK(r, things), *other = PICK(r, things), *action = PICK(r, actions);
    for (const char *p = PICK(r, statements); *p; p++) {
        if (*p != '%') {
            str_putc(out, *p);
            continue;
        }
        switch (*++p) {
        case 'o':
            str_puts(out, s->name);
            break;
        case 'f':
            str_puts(out, field);
            break;
        case 'g':
            str_puts(out, other);
            break;
        case 'c':
            str_puts(out, action);
            break;
        case 'x':
            str_printf(out, "%x", (unsigned)rng_below(r, 65536));
            break;
        default:
            str_printf(out, "%u", (unsigned)rng_below(r, 1000));
            break;
        }
    }
}

// A line of a function: its head, statements, its end.
static void put_code(struct niah_source *s, struct str *out) {
    struct rng *r = &s->rng;
    if (s->left == 0) {
        const char *thing = PICK(r, things);
        snprintf(s->name, sizeof s->name, "%.1s%u", thing, (unsigned)rng_below(r, 10));
        str_printf(out, "int %s_%s(struct %s *%s) {", PICK(r, actions), PICK(r, things), thing,
                   s->name);
        s->left = 4 + (int)rng_below(r, 9);
    } else if (--s->left == 0) {
        str_printf(out, "    return %s->%s;\n}\n", s->name, PICK(r, things));
    } else {
        put_statement(s, out);
    }
}

static void put_line(struct niah_source *s, struct str *out) {
    const char *end = memchr(s->text + s->at, '\n', s->n - s->at);
    size_t n = end ? (size_t)(end - s->text) - s->at : s->n - s->at;
    str_append(out, s->text + s->at, n);
    s->at += n + 1;
    if (s->at >= s->n)
        s->at = 0;
}

void niah_source_next(struct niah_source *s, struct str *out) {
    bool lines = s->filler == NIAH_CODE || s->filler == NIAH_FILE;
    bool paragraph = s->filler == NIAH_PROSE && s->left == 0;
    if (paragraph)
        s->left = 3 + (int)rng_below(&s->rng, 6);
    str_puts(out, lines ? "\n" : paragraph ? "\n\n" : " ");
    switch (s->filler) {
    case NIAH_PHRASES:
        str_puts(out, phrases[s->unit++ % (int64_t)COUNT(phrases)]);
        break;
    case NIAH_PROSE:
        put_prose(s, out);
        s->left--;
        break;
    case NIAH_CODE:
        put_code(s, out);
        break;
    default:
        put_line(s, out);
        break;
    }
}

static void make_value(char *out, enum niah_kind kind, struct rng *r) {
    if (kind == NIAH_NUMBER) {
        snprintf(out, NIAH_VALUE, "%u", 1000000u + (unsigned)rng_below(r, 9000000));
    } else if (kind == NIAH_PASSWORD) {
        uint32_t a = rng_below(r, COUNT(secrets)), b = rng_below(r, COUNT(secrets) - 1);
        snprintf(out, NIAH_VALUE, "%s-%s-%04u", secrets[a], secrets[b + (b >= a)],
                 (unsigned)rng_below(r, 10000));
    } else {
        uint64_t a = rng_next(r), b = rng_next(r);
        snprintf(out, NIAH_VALUE, "%08x-%04x-4%03x-%x%03x-%012llx", (unsigned)(a & 0xffffffff),
                 (unsigned)(a >> 32 & 0xffff), (unsigned)(a >> 48 & 0xfff),
                 8 + (unsigned)(a >> 60 & 3), (unsigned)(b & 0xfff),
                 (unsigned long long)(b >> 12 & 0xffffffffffff));
    }
}

void niah_facts(struct niah_fact *facts, int n, enum niah_kind kind, struct rng *r) {
    bool begun[COUNT(begins)] = {false}, ended[COUNT(ends)] = {false};
    for (int i = 0; i < n; i++) {
        uint32_t b, t;
        do
            b = rng_below(r, COUNT(begins));
        while (begun[b]);
        do
            t = rng_below(r, COUNT(ends));
        while (ended[t]);
        begun[b] = ended[t] = true;
        snprintf(facts[i].key, NIAH_KEY, "%s%s", begins[b], ends[t]);
        make_value(facts[i].value, kind, r);
    }
}

void niah_state(const struct niah_fact *f, enum niah_kind kind, enum niah_filler filler,
                struct rng *r, struct str *out, size_t *value) {
    str_puts(out, filler == NIAH_CODE ? "\n// " : filler == NIAH_FILE ? "\n" : " ");
    for (const char *p = kinds[kind].facts[rng_below(r, (uint32_t)kinds[kind].n_facts)]; *p; p++) {
        if (*p != '%') {
            str_putc(out, *p);
        } else if (*++p == 'k') {
            str_puts(out, f->key);
        } else {
            *value = out->len;
            str_puts(out, f->value);
        }
    }
}

void niah_ask(const struct niah_fact *facts, int n, enum niah_kind kind, struct rng *r,
              struct str *out) {
    const char *p = kinds[kind].questions[rng_below(r, (uint32_t)kinds[kind].n_questions)];
    for (; *p; p++) {
        if (*p != '%') {
            str_putc(out, *p);
            continue;
        }
        p++;
        for (int i = 0; i < n; i++)
            str_printf(out, "%s%s", i == 0 ? "" : i + 1 < n ? ", " : " and ", facts[i].key);
    }
}
