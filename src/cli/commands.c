// SPDX-License-Identifier: Apache-2.0
// The table of subcommands, in the order of the help text. Each one lives in its own file.
#include "cli/cli.h"

#include <string.h>

const struct cli_command cli_commands[] = {
    {"help", CLI_HELP, .operands = "[COMMAND]", .max_operands = 1,
     .summary = "explain a subcommand", .description = "Shows what a subcommand does and takes.",
     .run = cmd_help},
    {"manual", CLI_MANUAL, .hidden = true, .operands = "",
     .summary = "print the manual page in scdoc's markup",
     .description = "Prints the source of the manual page.", .run = cmd_manual},
};
const size_t cli_command_count = sizeof cli_commands / sizeof *cli_commands;

const struct cli_command *cli_find_command(const char *name) {
    for (size_t i = 0; i < cli_command_count; i++)
        if (strcmp(cli_commands[i].name, name) == 0)
            return &cli_commands[i];
    return NULL;
}
