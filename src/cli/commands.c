// SPDX-License-Identifier: Apache-2.0
// The table of subcommands, in the order of the help text. Each one lives in its own file.
#include "cli/cli.h"

#include <string.h>

const struct cli_command cli_commands[] = {
    {"tokenize", CLI_TOKENIZE, .operands = "", .summary = "turn text into token ids",
     .description = "Prints the token ids of a text, separated by commas or as JSON "
                    "({\"ids\":[...]}). Special tokens written in the text are recognised; a model "
                    "that wants a begin-of-text token gets it.",
     .run = cmd_tokenize},
    {"detokenize", CLI_DETOKENIZE, .operands = "", .summary = "turn token ids into text",
     .description = "Prints the text of token ids, byte for byte (a terminal gets a newline more), "
                    "or as JSON ({\"text\":\"...\"}). Bytes that form no UTF-8 become U+FFFD.",
     .run = cmd_detokenize},
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
