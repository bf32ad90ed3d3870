// SPDX-License-Identifier: Apache-2.0
// What a subcommand sees: its parsed options and a few ways to read input and print results.
//
// To add one: write src/cli/commands/<name>.c with cmd_<name>(), add its id and prototype here, its
// row in cli/commands/table.c, and its options in cli/options/table.c. It returns 0, or a negative
// code with the sentence in e; main prints that sentence and picks the exit status (2 for
// ERR_USAGE, else 1). It never exits, never writes to standard error except progress, and writes
// nothing to standard output before it knows that the result exists (streamed text excepted).
#ifndef COPPICE_CLI_CLI_H
#define COPPICE_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/json/json.h"
#include "base/options.h"
#include "base/str.h"
#include "cli/options/rows.h"

enum cli_command_id {
    CLI_GENERATE,
    CLI_CHAT,
    CLI_SERVE,
    CLI_DAEMON,
    CLI_BENCH,
    CLI_VERIFY,
    CLI_PROFILE,
    CLI_PULL,
    CLI_LIST,
    CLI_REMOVE,
    CLI_INSPECT,
    CLI_TOKENIZE,
    CLI_DETOKENIZE,
    CLI_TEMPLATE,
    CLI_COMPRESS,
    CLI_LOGITS,
    CLI_PERPLEXITY,
    CLI_DRAFT_LOGITS,
    CLI_QUANTIZE,
    CLI_IMATRIX,
    CLI_CONVERT,
    CLI_SYNTH,
    CLI_COMPLETION,
    CLI_HELP,
    CLI_MANUAL,
};
#define CLI_BIT(id) (UINT64_C(1) << (id))

struct cli_args {
    const struct cli_command *command;
    struct options opt; // operands are checked for number already
};

typedef int cli_run_fn(const struct cli_args *a, struct err *e);

struct cli_command {
    const char *name;
    enum cli_command_id id;
    bool hidden;          // not in the list of subcommands
    const char *operands; // as shown in the usage line
    int min_operands, max_operands;
    const char *summary;     // one line without a full stop
    const char *description; // a paragraph for --help and the manual
    cli_run_fn *run;
};
struct cli_command_list {
    const struct cli_command *at;
    size_t n;
};
extern const struct cli_command_list cli_commands;

// The command of that name, or NULL.
const struct cli_command *cli_find_command(const char *name);

cli_run_fn cmd_generate, cmd_chat, cmd_serve, cmd_daemon, cmd_bench, cmd_profile, cmd_logits;
cli_run_fn cmd_draft_logits, cmd_perplexity, cmd_verify;
cli_run_fn cmd_pull, cmd_list, cmd_remove;
cli_run_fn cmd_tokenize, cmd_detokenize, cmd_inspect, cmd_convert, cmd_quantize, cmd_imatrix;
cli_run_fn cmd_compress, cmd_template, cmd_synth, cmd_help, cmd_manual;
cli_run_fn cmd_completion;

// The prompt as text: exactly one of -p and -f ("-" is standard input), at most 64 MiB.
// Errors: ERR_USAGE when none or both are given, and those of file_read.
int cli_read_text(const struct cli_args *a, struct str *out, struct err *e);

// The value of an option that the command cannot do without; ERR_USAGE when it was not given.
int cli_need(const struct cli_args *a, int row, struct err *e);

// ERR_USAGE where the command's operand or options for files that it writes, or `out` (NULL: no
// more), lead to a file that it reads, also through a link. ERR_MEMORY.
int cli_keep_inputs(const struct cli_args *a, const char *out, struct err *e);

// Writes bytes to standard output and flushes. ERR_IO when it refuses.
int cli_write(const char *bytes, size_t n, struct err *e);

// Writes s (and frees it) after checking that it is whole; ERR_MEMORY when it is not.
int cli_print(struct str *s, struct err *e);

// Writes the JSON text and a newline to standard output, frees the writer. Errors as cli_print.
int cli_print_json(struct json_writer *w, struct err *e);

// After cli_catch_interrupt, the first ctrl-C or SIGTERM only makes cli_interrupted() true, so that
// a command can stop between two steps and clean up (it then returns 0 or any error; main ends
// quietly with 130). A second one ends the program at once. Without it the first one does.
void cli_catch_interrupt(void);
bool cli_interrupted(void);

// Instead, for a program that ctrl-C stops in one place only: every ctrl-C makes cli_interrupted()
// true until cli_take_interrupt() has returned it. SIGTERM and SIGHUP cannot be taken.
void cli_watch_interrupt(void);
bool cli_take_interrupt(void);

// Whether standard error is a terminal, where a progress line may be redrawn with '\r'.
bool cli_progress_wanted(void);
// Whether this is a terminal that supports the sequences of the VT100.
bool cli_terminal(int fd);
// Whether texts may be dimmed: such a terminal, and NO_COLOR is not set.
bool cli_may_dim(int fd);

// The user's folders, as the XDG base directory specification names them. Appends "coppice" below
// $XDG_STATE_HOME, or .local/state in the home folder: what belongs to a user and is not worth a
// backup. Nothing where there is no home.
void cli_state_folder(struct str *out);
// The same below $XDG_CACHE_HOME, or .cache: what can be made again.
void cli_cache_folder(struct str *out);

// Appends what this build is, in lines: version, commit, compiler, CPU levels, CUDA's
// architectures.
void cli_version(struct str *out);
// The same as labels of a metric (serve/metrics.h).
void cli_build_labels(struct str *out);

// Help text of one command.
void cli_help(struct str *out, const struct cli_command *c);

#endif
