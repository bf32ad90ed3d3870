// SPDX-License-Identifier: Apache-2.0
// The program: finds the subcommand, parses its options, runs it, prints its error sentence and
// gives the exit status: 0, 1 (failed), 2 (usage), 130 (interrupted). A reader that goes away ends
// the program quietly.
#include "cli/cli.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/hub/pull.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130, NEAR = 3 };

// Prints the sentence with control characters made visible, since it may quote a hostile file.
static int report_error(const char *where, const struct err *e) {
    char text[sizeof e->text];
    snprintf(text, sizeof text, "%s", e->text[0] ? e->text : "failed without a reason");
    for (char *s = text; *s; s++)
        if ((unsigned char)*s < 32 || *s == 127)
            *s = '?';
    fprintf(stderr, "coppice%s%s: %s\n", where ? " " : "", where ? where : "", text);
    return e->code == ERR_USAGE ? EXIT_USAGE : EXIT_FAILED;
}

static int unknown_command(const char *name) {
    const char *nearest = NULL;
    int best = NEAR;
    for (size_t i = 0; i < cli_commands.n; i++) {
        int d = options_distance(cli_commands.at[i].name, name);
        if (!cli_commands.at[i].hidden && d < best) {
            best = d;
            nearest = cli_commands.at[i].name;
        }
    }
    struct err e = {0};
    if (nearest)
        err_set(&e, ERR_USAGE, "there is no subcommand '%s'; did you mean '%s'?", name, nearest);
    else
        err_set(&e, ERR_USAGE, "there is no subcommand '%s'; see 'coppice help'", name);
    return report_error(NULL, &e);
}

static int check_operands(const struct cli_args *a, struct err *e) {
    const struct cli_command *c = a->command;
    if (a->opt.n_operands > c->max_operands)
        return err_set(e, ERR_USAGE, "unexpected operand '%s'; usage: coppice %s [OPTION]... %s",
                       a->opt.operands[c->max_operands], c->name, c->operands);
    if (a->opt.n_operands < c->min_operands)
        return err_set(e, ERR_USAGE, "%d operands are needed, not %d; usage: coppice %s %s",
                       c->min_operands, a->opt.n_operands, c->name, c->operands);
    return 0;
}

// What became of options that are called otherwise elsewhere.
static void tell_notes(const struct cli_args *a) {
    for (int i = 0; i < a->opt.n_used; i++)
        if (a->opt.used[i]->note)
            fprintf(stderr, "coppice %s: %s has no effect: %s\n", a->command->name,
                    a->opt.used[i]->spelling, a->opt.used[i]->note);
}

static int run_command(const struct cli_command *c, int argc, char **argv) {
    struct err e = {0};
    struct cli_args a = {.command = c};
    int rc = options_parse(&a.opt, &cli_option_set, CLI_BIT(c->id), argc, argv, &e);
    if (rc == 0 && options_flag(&a.opt, OPT_HELP)) {
        struct str out = {0};
        cli_help(&out, c);
        rc = cli_print(&out, &e);
    } else if (rc == 0) {
        rc = check_operands(&a, &e);
        tell_notes(&a);
        if (rc == 0)
            rc = hub_resolve(&a, &e);
        if (rc == 0)
            rc = cli_keep_inputs(&a, NULL, &e);
        if (rc == 0)
            rc = c->run(&a, &e);
    }
    options_fini(&a.opt);
    if (cli_interrupted())
        return EXIT_INTERRUPTED;
    return rc ? report_error(c->name, &e) : 0;
}

static int print_version(void) {
    struct err e = {0};
    struct str out = {0};
    cli_version(&out);
    return cli_print(&out, &e) ? report_error(NULL, &e) : 0;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_DFL); // a parent may have left it ignored
    signal(SIGXFSZ, SIG_IGN); // a file that may not grow further is an error with its sentence
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--version") == 0)
        return print_version();
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return run_command(cli_find_command("help"), 0, NULL);
    if (name[0] == '\0' || name[0] == '-') {
        struct err e = {0};
        if (name[0])
            err_set(&e, ERR_USAGE, "unknown option '%s' before the subcommand; see 'coppice help'",
                    name);
        else
            err_set(&e, ERR_USAGE, "name a subcommand; 'coppice help' lists them");
        return report_error(NULL, &e);
    }
    const struct cli_command *c = cli_find_command(name);
    return c ? run_command(c, argc - 2, argv + 2) : unknown_command(name);
}
