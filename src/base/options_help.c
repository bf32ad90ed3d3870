// SPDX-License-Identifier: Apache-2.0
// The table of options as text: --help and the manual page; see options.h. Both say range and
// default from the row itself, so they cannot fall out of step with the parser.
#include "base/options.h"

#include <string.h>

enum { LEFT = 28, RIGHT = 80 };

// The sentence with its range and default.
static void sentence(struct str *out, const struct option *opt) {
    str_puts(out, opt->help);
    bool numeric = opt->kind == OPTION_INT || opt->kind == OPTION_FLOAT || opt->kind == OPTION_SIZE;
    if (numeric && opt->hi < 1e9)
        str_printf(out, "; %.15g to %.15g", opt->lo, opt->hi);
    if (opt->kind == OPTION_CHOICE)
        str_printf(out, "; one of %s", opt->choices);
    if (opt->otherwise)
        str_printf(out, " (default %s)", opt->otherwise);
}

// Appends text in columns LEFT..RIGHT; the cursor is at LEFT for the first word.
static void wrap(struct str *out, const char *text) {
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
        sentence(&text, opt);
        if (text.failed)
            out->failed = true;
        else
            wrap(out, text.data);
    }
    str_fini(&text);
}

// scdoc gives meaning to these characters; a backslash takes it away.
static void escaped(struct str *out, const char *s) {
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
        sentence(&text, opt);
        if (text.failed)
            out->failed = true;
        else
            escaped(out, text.data);
        str_puts(out, ".\n\n");
    }
    str_fini(&text);
}
