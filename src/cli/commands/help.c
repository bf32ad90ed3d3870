// SPDX-License-Identifier: Apache-2.0
// `coppice help`, --help and the source of the manual page: all rendered from the tables of
// subcommands and options.
#include "cli/cli.h"

#include <string.h>

static void program_help(struct str *out, const struct cli_command_list *all) {
    str_puts(out, "Usage: coppice COMMAND [OPTION]... [OPERAND]...\n"
                  "Run large language models from GGUF files with lossless tree speculation.\n\n"
                  "Commands:\n");
    for (size_t i = 0; i < all->n; i++)
        if (!all->at[i].hidden)
            str_printf(out, "  %-14s %s\n", all->at[i].name, all->at[i].summary);
    str_puts(out, "\nOptions:\n"
                  "  --help         show this help\n"
                  "  --version      show the version\n\n"
                  "'coppice help COMMAND' explains one of them.\n");
}

// Breaks a paragraph into lines of at most 80 columns.
static void paragraph(struct str *out, const char *text) {
    size_t column = 0;
    for (const char *s = text; *s;) {
        size_t n = strcspn(s, " ");
        if (column)
            str_putc(out, column + 1 + n > 80 ? '\n' : ' ');
        column = column && column + 1 + n <= 80 ? column + 1 + n : n;
        str_append(out, s, n);
        s += n + (s[n] == ' ');
    }
    str_putc(out, '\n');
}

void cli_help(struct str *out, const struct cli_command *c) {
    str_printf(out, "Usage: coppice %s [OPTION]...%s%s\n", c->name, c->operands[0] ? " " : "",
               c->operands);
    paragraph(out, c->description);
    str_puts(out, "\nOptions:\n");
    options_help(out, cli_options, CLI_OPTION_COUNT, CLI_BIT(c->id));
}

int cmd_help(const struct cli_args *a, struct err *e) {
    const struct cli_command *c = NULL;
    if (a->opt.n_operands == 1) {
        c = cli_find_command(a->all, a->opt.operands[0]);
        if (!c)
            return err_set(e, ERR_USAGE, "there is no subcommand '%s'; see 'coppice help'",
                           a->opt.operands[0]);
    }
    struct str out = {0};
    if (c)
        cli_help(&out, c);
    else
        program_help(&out, a->all);
    return cli_print(&out, e);
}

int cmd_manual(const struct cli_args *a, struct err *e) {
    const struct cli_command_list *all = a->all;
    struct str out = {0};
    str_puts(&out, "coppice(1)\n\n# NAME\n\n"
                   "coppice - run large language models with lossless tree speculation\n\n"
                   "# SYNOPSIS\n\n*coppice* _COMMAND_ [_OPTION_]... [_OPERAND_]...\n\n"
                   "# DESCRIPTION\n\n"
                   "*coppice* runs language models from GGUF files. A small draft model guesses "
                   "a tree of continuations, the target model checks all of it in one pass, and "
                   "the tokens are exactly those that the target alone would give.\n\n"
                   "# COMMANDS\n\n");
    for (size_t i = 0; i < all->n; i++) {
        const struct cli_command *c = &all->at[i];
        if (c->hidden)
            continue;
        str_printf(&out, "## coppice %s [OPTION]... %s\n\n%s\n\n", c->name, c->operands,
                   c->description);
        options_manual(&out, cli_options, CLI_OPTION_COUNT, CLI_BIT(c->id));
    }
    str_puts(&out, "# EXIT STATUS\n\n"
                   "0 on success, 1 when something failed (one sentence on standard error says "
                   "what), 2 when the command line makes no sense, 130 after an interrupt.\n");
    return cli_print(&out, e);
}
