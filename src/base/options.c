// SPDX-License-Identifier: Apache-2.0
// Command lines by table; see options.h. Every value passes through set_value, defaults included,
// so that a default out of range cannot hide. A repeated option: the last one counts. --help and
// the manual page say range and default from the row itself, so they cannot fall out of step with
// it.
#include "base/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { WORD_MAX = 64, NEAR = 3 };

static bool in_group(const struct option *opt, uint64_t group) {
    return opt->name && (opt->groups & group);
}

// "an integer from 0 to 127", for messages.
static void describe_value(const struct option *opt, char *out, size_t size) {
    static const char *const words[] = {[OPTION_INT] = "an integer",
                                        [OPTION_COUNT] = "auto or an integer",
                                        [OPTION_FLOAT] = "a number",
                                        [OPTION_SIZE] = "a size",
                                        [OPTION_LIST] = "integers separated by commas"};
    if (opt->kind == OPTION_CHOICE)
        snprintf(out, size, "one of %s", opt->choices);
    else
        snprintf(out, size, opt->kind == OPTION_FLOAT ? "%s from %g to %g" : "%s from %.0f to %.0f",
                 words[opt->kind], opt->lo, opt->hi);
}

static int bad_value(const struct option *opt, const char *text, struct err *e) {
    char expected[160];
    describe_value(opt, expected, sizeof expected);
    return err_set(e, ERR_USAGE, "option '--%s' takes %s, not '%s'", opt->name, expected, text);
}

// Parses an integer at s; *end is after it. False when there is none or it does not fit.
static bool parse_int(const char *s, const char **end, int64_t *value) {
    char *stop;
    errno = 0;
    long long v = strtoll(s, &stop, 10);
    *end = stop;
    *value = v;
    return stop != s && errno == 0;
}

static bool in_range(const struct option *opt, double v) {
    return v >= opt->lo && v <= opt->hi;
}

static bool parse_size(const char *s, int64_t *value) {
    const char *end;
    if (!parse_int(s, &end, value))
        return false;
    static const char suffixes[] = "KMGT";
    const char *at = *end ? strchr(suffixes, *end & ~0x20) : NULL;
    int64_t unit = at && *at ? INT64_C(1) << (10 * (at - suffixes + 1)) : 1;
    end += at && *at;
    return *end == '\0' && !__builtin_mul_overflow(*value, unit, value);
}

// Index of text among the words of choices, without case, or -1. *word, unless it is NULL, is
// there.
static int64_t find_choice(const char *choices, const char *text, const char **word) {
    size_t len = strlen(text);
    for (int64_t i = 0;; i++) {
        size_t n = strcspn(choices, "|");
        if (word)
            *word = choices;
        if (n == len && strncasecmp(choices, text, n) == 0)
            return i;
        if (choices[n] == '\0')
            return -1;
        choices += n + 1;
    }
}

static int parse_list(struct options *o, const struct option *opt, const char *text,
                      struct option_value *v, struct err *e) {
    size_t capacity = 1;
    for (const char *s = text; *s; s++)
        capacity += *s == ',';
    int32_t *list = arena_array(&o->arena, capacity, sizeof *list);
    if (!list)
        return err_set(e, ERR_MEMORY, "out of memory for the list of '--%s'", opt->name);
    size_t n = 0;
    for (const char *s = text;; s++) {
        int64_t item;
        if (!parse_int(s, &s, &item) || !in_range(opt, (double)item))
            return bad_value(opt, text, e);
        list[n++] = (int32_t)item;
        if (*s == '\0')
            break;
        if (*s != ',')
            return bad_value(opt, text, e);
    }
    v->list = list;
    v->i = (int64_t)n;
    return 0;
}

static int set_value(struct options *o, const struct option *opt, const char *text, struct err *e) {
    struct option_value v = {.s = text};
    const char *end;
    char *stop;
    bool good = true;
    switch (opt->kind) {
    case OPTION_FLAG:
        v.i = 1;
        break;
    case OPTION_STRING:
        break;
    case OPTION_INT:
        good = parse_int(text, &end, &v.i) && *end == '\0' && in_range(opt, (double)v.i);
        v.f = (double)v.i;
        break;
    case OPTION_COUNT:
        v.i = -1;
        good = !strcmp(text, "auto") ||
               (parse_int(text, &end, &v.i) && *end == '\0' && in_range(opt, (double)v.i));
        break;
    case OPTION_SIZE:
        good = parse_size(text, &v.i) && in_range(opt, (double)v.i);
        break;
    case OPTION_FLOAT:
        v.f = strtod(text, &stop);
        good = stop != text && *stop == '\0' && in_range(opt, v.f);
        break;
    case OPTION_CHOICE:
        v.i = find_choice(opt->choices, text, &end);
        good = v.i >= 0;
        if (good && strncmp(end, text, strlen(text)) != 0) // as the table spells it
            v.s = arena_strndup(&o->arena, end, strlen(text));
        if (!v.s)
            return err_set(e, ERR_MEMORY, "out of memory for the value of '--%s'", opt->name);
        break;
    case OPTION_LIST:
        if (parse_list(o, opt, text, &v, e))
            return e ? e->code : ERR_USAGE;
        break;
    }
    if (!good)
        return bad_value(opt, text, e);
    o->values[opt - o->table] = v;
    return 0;
}

int options_distance(const char *a, const char *b) {
    int rows[3][WORD_MAX + 1];
    size_t na = strnlen(a, WORD_MAX), nb = strnlen(b, WORD_MAX);
    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int *row = rows[i % 3], *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int best = up[j - 1] + (a[i - 1] != b[j - 1]);
            best = up[j] + 1 < best ? up[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                up2[j - 2] + 1 < best)
                best = up2[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[na % 3][nb];
}

// The known option of the group closest to `name` (without dashes), or NULL if none is near.
static const char *nearest_option(const struct option *table, size_t count, uint64_t group,
                                  const char *name) {
    const char *nearest = NULL;
    int best = NEAR + 1;
    for (size_t i = 0; i < count; i++) {
        if (!in_group(&table[i], group))
            continue;
        int d = options_distance(table[i].name, name);
        if (d < best && d < (int)strlen(table[i].name)) {
            best = d;
            nearest = table[i].name;
        }
    }
    return nearest;
}

static int refuse_unknown(const struct options *o, const char *shown, const char *name,
                          struct err *e) {
    const char *nearest = nearest_option(o->table, o->count, o->group, name);
    for (size_t i = 0; i < o->count; i++)
        if (o->table[i].name && !in_group(&o->table[i], o->group) &&
            strcmp(o->table[i].name, name) == 0)
            return err_set(e, ERR_USAGE, "option '%s' does not belong to this subcommand", shown);
    if (nearest)
        return err_set(e, ERR_USAGE, "unknown option '%s'; did you mean '--%s'?", shown, nearest);
    return err_set(e, ERR_USAGE, "unknown option '%s'; see --help for the list", shown);
}

// The command line while it is read.
struct cursor {
    struct options *o;
    const struct option_set *set;
    const struct option_alias **used; // [argc]
    int argc, at;
    char **argv;
};

// Takes the value of opt: `attached` when not NULL, otherwise the next argument.
static int take_value(struct cursor *c, const struct option *opt, const char *attached,
                      struct err *e) {
    const char *text = attached;
    if (!text && opt->kind != OPTION_FLAG) {
        if (c->at == c->argc)
            return err_set(e, ERR_USAGE, "option '--%s' needs a value %s after it", opt->name,
                           opt->metavar);
        text = c->argv[c->at++];
    }
    int rc = set_value(c->o, opt, text, e);
    if (rc == 0)
        c->o->values[opt - c->o->table].given = true;
    return rc;
}

// The option that --name or --name=value spells, or NULL.
static const struct option *spelt_option(const struct options *o, const char *arg) {
    size_t len = strcspn(arg + 2, "=");
    for (size_t i = 0; arg[1] == '-' && i < o->count; i++)
        if (in_group(&o->table[i], o->group) && strlen(o->table[i].name) == len &&
            memcmp(o->table[i].name, arg + 2, len) == 0)
            return &o->table[i];
    return NULL;
}

static int parse_long(struct cursor *c, const char *arg, struct err *e) {
    const char *name = arg + 2, *equals = strchr(name, '=');
    size_t len = strcspn(name, "=");
    const struct option *opt = spelt_option(c->o, arg);
    if (opt && equals && opt->kind == OPTION_FLAG)
        return err_set(e, ERR_USAGE, "option '--%s' takes no value, but has '%s'", opt->name,
                       equals + 1);
    if (opt)
        return take_value(c, opt, equals ? equals + 1 : NULL, e);
    char word[WORD_MAX], shown[WORD_MAX + 2];
    snprintf(word, sizeof word, "%.*s", (int)(len < WORD_MAX ? len : WORD_MAX), name);
    snprintf(shown, sizeof shown, "--%s", word);
    return refuse_unknown(c->o, shown, word, e);
}

static int parse_short(struct cursor *c, const char *arg, struct err *e) {
    const struct options *o = c->o;
    for (const char *s = arg + 1; *s; s++) {
        const struct option *opt = NULL;
        for (size_t i = 0; i < o->count && !opt; i++)
            if (in_group(&o->table[i], o->group) && o->table[i].letter == *s)
                opt = &o->table[i];
        if (!opt) {
            // A long option with one dash gets its hint; one letter has no near neighbour.
            char shown[3] = {'-', *s, '\0'};
            return s == arg + 1 && s[1] ? refuse_unknown(o, arg, s, e)
                                        : refuse_unknown(o, shown, "", e);
        }
        if (opt->kind != OPTION_FLAG)
            return take_value(c, opt, s[1] ? s + 1 : NULL, e);
        int rc = take_value(c, opt, NULL, e);
        if (rc)
            return rc;
    }
    return 0;
}

// What a word means by a list as "none=off|dflash=tree|on", copied to the arena; NULL: it is not
// there, or memory is short.
static const char *alias_meaning(struct options *o, const char *words, const char *word) {
    size_t len = strlen(word);
    for (const char *s = words;; s++) {
        size_t n = strcspn(s, "|"), name = strcspn(s, "=|");
        if (name == len && memcmp(s, word, len) == 0) {
            size_t from = name < n ? name + 1 : 0;
            return arena_strndup(&o->arena, s + from, n - from);
        }
        s += n;
        if (*s == '\0')
            return NULL;
    }
}

// An alias of nothing: passes over the value that may follow it.
static void skip_value(struct cursor *c, const struct option_alias *alias) {
    if (!alias->words || c->at == c->argc)
        return;
    bool any = alias->words[0] == '\0';
    if (any || find_choice(alias->words, c->argv[c->at], NULL) >= 0)
        c->at++;
}

static int take_alias(struct cursor *c, const struct option_alias *alias, const char *attached,
                      struct err *e) {
    const struct option *opt = &c->o->table[alias->row < 0 ? 0 : alias->row];
    const char *text = alias->value ? alias->value : attached;
    c->used[c->o->n_used++] = alias;
    if (alias->row < 0) {
        if (!attached)
            skip_value(c, alias);
        return 0;
    }
    if (!text && opt->kind != OPTION_FLAG) {
        if (c->at == c->argc)
            return err_set(e, ERR_USAGE, "option '%s' needs a value after it", alias->spelling);
        text = c->argv[c->at++];
    }
    const char *meant = text && alias->words ? alias_meaning(c->o, alias->words, text) : text;
    if (text && !meant)
        return err_set(e, ERR_USAGE, "option '%s' takes one of %s here, not '%.40s'",
                       alias->spelling, alias->words, text);
    int rc = set_value(c->o, opt, meant, e);
    if (rc == 0)
        c->o->values[alias->row].given = true;
    return rc;
}

// The alias that an argument spells, with --name=value also up to the equals sign; NULL: none.
static const struct option_alias *find_alias(const struct cursor *c, const char *arg,
                                             const char **attached) {
    const char *equals = arg[1] == '-' ? strchr(arg, '=') : NULL;
    size_t len = equals ? (size_t)(equals - arg) : strlen(arg);
    for (size_t i = 0; i < c->set->n_aliases; i++) {
        const struct option_alias *alias = &c->set->aliases[i];
        if (!(alias->groups & c->o->group) || strlen(alias->spelling) != len ||
            memcmp(alias->spelling, arg, len) != 0)
            continue;
        *attached = equals ? equals + 1 : NULL;
        return alias;
    }
    return NULL;
}

static int set_defaults(struct options *o, struct err *e) {
    for (size_t i = 0; i < o->count; i++) {
        const struct option *opt = &o->table[i];
        int rc = opt->name && opt->otherwise ? set_value(o, opt, opt->otherwise, e) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

int options_parse(struct options *o, const struct option_set *set, uint64_t group, int argc,
                  char **argv, struct err *e) {
    *o = (struct options){.table = set->table, .count = set->count, .group = group};
    o->values = arena_array(&o->arena, set->count, sizeof *o->values);
    const char **operands = arena_array(&o->arena, (size_t)argc + 1, sizeof *operands);
    struct cursor c = {.o = o, .set = set, .argc = argc, .argv = argv};
    c.used = arena_array(&o->arena, (size_t)argc + 1, sizeof(struct option_alias *));
    if (!o->values || !operands || !c.used)
        return err_set(e, ERR_MEMORY, "out of memory for %d arguments", argc);
    o->operands = operands;
    o->used = c.used;
    int rc = set_defaults(o, e);
    bool ended = false;
    while (rc == 0 && c.at < argc) {
        const char *arg = argv[c.at++], *attached = NULL;
        const struct option_alias *alias = NULL;
        bool option = !ended && arg[0] == '-' && arg[1] != '\0';
        if (option && !spelt_option(o, arg))
            alias = find_alias(&c, arg, &attached);
        if (!option)
            operands[o->n_operands++] = arg;
        else if (strcmp(arg, "--") == 0)
            ended = true;
        else if (alias)
            rc = take_alias(&c, alias, attached, e);
        else if (arg[1] == '-')
            rc = parse_long(&c, arg, e);
        else
            rc = parse_short(&c, arg, e);
    }
    return rc;
}

void options_fini(struct options *o) {
    arena_fini(&o->arena);
    *o = (struct options){0};
}

bool options_given(const struct options *o, int row) {
    return o->values[row].given;
}

bool options_flag(const struct options *o, int row) {
    return o->values[row].i != 0;
}

int64_t options_int(const struct options *o, int row) {
    return o->values[row].i;
}

double options_float(const struct options *o, int row) {
    return o->values[row].f;
}

const char *options_str(const struct options *o, int row) {
    return o->values[row].s;
}

const int32_t *options_list(const struct options *o, int row, size_t *count) {
    *count = (size_t)o->values[row].i;
    return o->values[row].list;
}

enum { LEFT = 28, RIGHT = 80 };

// The sentence with its range and default.
static void put_sentence(struct str *out, const struct option *opt) {
    str_puts(out, opt->help);
    for (int i = 0; opt->name_at && opt->name_at(i); i++)
        str_printf(out, "%s%s", i ? ", " : ": ", opt->name_at(i));
    bool numeric = opt->kind == OPTION_INT || opt->kind == OPTION_FLOAT || opt->kind == OPTION_SIZE;
    if (numeric && opt->hi < 1e9)
        str_printf(out, "; %.15g to %.15g", opt->lo, opt->hi);
    if (opt->kind == OPTION_CHOICE)
        str_printf(out, "; one of %s", opt->choices);
    if (opt->otherwise)
        str_printf(out, " (default %s)", opt->otherwise);
}

// Appends text in columns LEFT..RIGHT; the cursor is at LEFT for the first word.
static void put_wrapped(struct str *out, const char *text) {
    size_t column = LEFT;
    for (const char *s = text; *s;) {
        size_t n = strcspn(s, " ");
        if (column > LEFT && column + 1 + n > RIGHT) {
            str_printf(out, "\n%*s", LEFT, "");
            column = LEFT;
        } else if (column > LEFT) {
            str_putc(out, ' ');
            column++;
        }
        str_append(out, s, n);
        column += n;
        s += n + (s[n] == ' ');
    }
    str_putc(out, '\n');
}

void options_help(struct str *out, const struct option *table, size_t count, uint64_t group) {
    struct str text = {0};
    for (size_t i = 0; i < count; i++) {
        const struct option *opt = &table[i];
        if (!opt->name || !(opt->groups & group))
            continue;
        size_t start = out->len;
        if (opt->letter)
            str_printf(out, "  -%c, --%s", opt->letter, opt->name);
        else
            str_printf(out, "      --%s", opt->name);
        if (opt->metavar)
            str_printf(out, " %s", opt->metavar);
        size_t used = out->len - start;
        if (used + 2 > LEFT)
            str_printf(out, "\n%*s", LEFT, "");
        else
            str_printf(out, "%*s", (int)(LEFT - used), "");
        str_clear(&text);
        put_sentence(&text, opt);
        if (text.failed)
            out->failed = true;
        else
            put_wrapped(out, text.data);
    }
    str_fini(&text);
}

// scdoc gives meaning to these characters; a backslash takes it away.
static void put_escaped(struct str *out, const char *s) {
    for (; *s; s++) {
        if (strchr("_*\\#.<>|", *s))
            str_putc(out, '\\');
        str_putc(out, *s);
    }
}

void options_manual(struct str *out, const struct option *table, size_t count, uint64_t group) {
    struct str text = {0};
    for (size_t i = 0; i < count; i++) {
        const struct option *opt = &table[i];
        if (!opt->name || !(opt->groups & group))
            continue;
        if (opt->letter)
            str_printf(out, "*-%c*, ", opt->letter);
        str_printf(out, "*--%s*", opt->name);
        if (opt->metavar)
            str_printf(out, " _%s_", opt->metavar);
        str_puts(out, "\n\t");
        str_clear(&text);
        put_sentence(&text, opt);
        if (text.failed)
            out->failed = true;
        else
            put_escaped(out, text.data);
        str_puts(out, ".\n\n");
    }
    str_fini(&text);
}
