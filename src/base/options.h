// SPDX-License-Identifier: Apache-2.0
// Command-line options from one table: a row gives an option's spelling, kind, range, default and
// help, and from the rows come the parser, the --help text and the manual page. Options are GNU
// style: --name value, --name=value, -x value, -xvalue, bundled flags, -- ends the options, and
// operands may stand between them. A row is known by its index, so a wrong name cannot compile.
// Not here: which options a program has, what they mean together, printing.
#ifndef COPPICE_BASE_OPTIONS_H
#define COPPICE_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/memory/arena.h"
#include "base/str.h"

enum option_kind {
    OPTION_FLAG,   // no value
    OPTION_INT,    // integer in lo..hi
    OPTION_COUNT,  // the same, or auto, which is -1
    OPTION_FLOAT,  // finite number in lo..hi
    OPTION_SIZE,   // bytes, with suffix K, M, G or T (powers of 1024), in lo..hi
    OPTION_STRING, // any text
    OPTION_CHOICE, // one word of `choices`, in any case; its text is that of the table
    OPTION_LIST,   // 32-bit integers in lo..hi, separated by commas
};

struct option {
    const char *name; // without the dashes; NULL: no such row
    char letter;      // short spelling, 0 when there is none
    enum option_kind kind;
    const char *metavar;           // how help calls the value; NULL for flags
    const char *otherwise;         // default, as it would be typed; NULL: none (0, NULL, empty)
    double lo, hi;                 // range of the numeric kinds
    const char *choices;           // words separated by '|', for OPTION_CHOICE
    uint64_t groups;               // bit set of the subcommands that take it
    const char *help;              // one sentence without a full stop
    const char *(*name_at)(int i); // NULL, or values that it can be, which help lists: until NULL
};

// A spelling that other programs use for the same thing, or for what does not exist here. Not part
// of --help and of the nearest names; an option of the same name goes first.
struct option_alias {
    const char *spelling; // with its dashes: "-md", "--ctx-size"
    int row;              // the option that is meant; OPTION_NONE: none
    const char *value;    // what the option gets; NULL: what follows the spelling
    // Words that a value may be here and what they mean for the option, as in
    // "none=off|dflash=tree"
    // ("on" alone: itself); others are refused. Where no option is meant: words that may stand
    // after the spelling, "" for any one. NULL: no words, any value of the option.
    const char *words;
    const char
        *note; // NULL, or a sentence for the user: why it has no effect, what is done instead
    uint64_t groups;
};
enum { OPTION_NONE = -1 };

struct option_value {
    bool given;
    int64_t i; // OPTION_INT, OPTION_SIZE, list length; OPTION_CHOICE: index of the word
    double f;
    const char *s; // text as typed (or as defaulted)
    const int32_t *list;
};

// Parsed options of one subcommand. Texts are borrowed from argv and the table.
struct options {
    const struct option *table;
    size_t count;
    uint64_t group;
    struct option_value *values; // [count]
    const char *const *operands;
    int n_operands;
    const struct option_alias *const *used; // [n_used] aliases that were given
    int n_used;
    struct arena arena;
};

struct option_set {
    const struct option *table;
    size_t count;
    const struct option_alias *aliases;
    size_t n_aliases;
};

// Parses argv[0..argc) (without program and subcommand names) for the rows whose groups meet
// `group`. Errors: ERR_USAGE with a sentence naming the offending text (and the nearest option
// when it is unknown), ERR_MEMORY. Call options_fini in any case.
int options_parse(struct options *o, const struct option_set *set, uint64_t group, int argc,
                  char **argv, struct err *e);
void options_fini(struct options *o);

// Values by row index; a row outside the group has its default.
bool options_given(const struct options *o, int row);
bool options_flag(const struct options *o, int row);
int64_t options_int(const struct options *o, int row); // also count, size, index of a choice
double options_float(const struct options *o, int row);
const char *options_str(const struct options *o, int row); // NULL: not given and no default
const int32_t *options_list(const struct options *o, int row, size_t *count);

// Distance between two words: insertions, deletions, changes and swaps of neighbours; at most 64
// bytes of each count.
int options_distance(const char *a, const char *b);

// Appends the option part of --help for a group, wrapped at 80 columns.
void options_help(struct str *out, const struct option *table, size_t count, uint64_t group);

// Appends the same as a definition list in scdoc's markup, for the manual page.
void options_manual(struct str *out, const struct option *table, size_t count, uint64_t group);

#endif
