// SPDX-License-Identifier: Apache-2.0
// `coppice completion`: scripts by which bash, zsh and fish complete the command line, made of the
// table of options. What a value can be is in its row: words, a file, a folder, a model; names of
// models are those that 'coppice list' shows when the key is pressed.
#include <string.h>

#include "cli/cli.h"
#include "convert/convert.h"
#include "convert/synth/tensors.h"

enum value_kind { VALUE_NONE, VALUE_ANY, VALUE_WORDS, VALUE_FILE, VALUE_FOLDER, VALUE_MODEL };

// What an option or the operands of a command can be. words: separated by blanks.
struct value {
    enum value_kind kind;
    struct str words;
};

static void put_types(struct str *out) {
    for (int i = 0; convert_recipe_at(i); i++)
        str_printf(out, "%s%s", i ? " " : "", convert_recipe_at(i)->name);
}

static void put_shapes(struct str *out) {
    for (int i = 0; synth_shape_name(i); i++)
        str_printf(out, "%s%s", i ? " " : "", synth_shape_name(i));
}

static void put_commands(struct str *out) {
    for (size_t i = 0; i < cli_commands.n; i++)
        if (!cli_commands.at[i].hidden)
            str_printf(out, "%s%s", i ? " " : "", cli_commands.at[i].name);
}

static void put_choices(struct str *out, const char *choices) {
    for (const char *s = choices; *s; s++)
        str_putc(out, *s == '|' ? ' ' : *s);
}

static enum value_kind kind_of_text(int row) {
    const char *metavar = cli_options[row].metavar;
    switch (row) {
    case OPT_MODEL:
    case OPT_DRAFT:
    case OPT_PREFILL_DRAFTER:
        return VALUE_MODEL;
    case OPT_TYPE:
    case OPT_QUANT:
    case OPT_SHAPE:
    case OPT_DEVICE:
    case OPT_PREFILL_DEVICE:
        return VALUE_WORDS;
    case OPT_PRICE_CACHE:
        return VALUE_FOLDER;
    default:
        return !strcmp(metavar, "FILE") || !strcmp(metavar, "PATH") ? VALUE_FILE
               : !strcmp(metavar, "DIR")                            ? VALUE_FOLDER
                                                                    : VALUE_ANY;
    }
}

static void option_value(int row, struct value *v) {
    const struct option *opt = &cli_options[row];
    str_clear(&v->words);
    switch (opt->kind) {
    case OPTION_FLAG:
        v->kind = VALUE_NONE;
        return;
    case OPTION_CHOICE:
        v->kind = VALUE_WORDS;
        put_choices(&v->words, opt->choices);
        return;
    case OPTION_COUNT:
        v->kind = VALUE_WORDS;
        str_puts(&v->words, "auto");
        return;
    case OPTION_STRING:
        v->kind = kind_of_text(row);
        break;
    default:
        v->kind = VALUE_ANY;
        return;
    }
    if (row == OPT_SHAPE)
        put_shapes(&v->words);
    else if (row == OPT_TYPE || row == OPT_QUANT)
        put_types(&v->words);
    else if (v->kind == VALUE_WORDS)
        str_puts(&v->words, "auto cpu cuda");
}

static void operand_value(const struct cli_command *c, struct value *v) {
    str_clear(&v->words);
    v->kind = VALUE_WORDS;
    switch (c->id) {
    case CLI_HELP:
        put_commands(&v->words);
        break;
    case CLI_COMPLETION:
        str_puts(&v->words, "bash zsh fish");
        break;
    case CLI_BENCH:
        str_puts(&v->words, "score kv");
        break;
    case CLI_INSPECT:
    case CLI_PULL:
    case CLI_REMOVE:
    case CLI_DAEMON:
        v->kind = VALUE_MODEL;
        break;
    case CLI_QUANTIZE: // the third operand is a type
        put_types(&v->words);
        v->kind = VALUE_FILE;
        break;
    default:
        v->kind = c->operands[0] ? VALUE_FILE : VALUE_ANY;
    }
}

// Whether a command has that option.
static bool takes(const struct cli_command *c, int row) {
    return cli_options[row].name && (cli_options[row].groups & CLI_BIT(c->id));
}

// The help of an option, or of a command, up to its first colon or semicolon; `escaped` get a
// backslash, and a single quote becomes `quote`.
static void put_help(struct str *out, const char *help, const char *escaped, const char *quote) {
    for (const char *s = help; *s && !(strchr(":;", *s) && (s[1] == ' ' || !s[1])); s++) {
        if (*s == '\'') {
            str_puts(out, quote);
            continue;
        }
        if (strchr(escaped, *s))
            str_putc(out, '\\');
        str_putc(out, *s);
    }
}

// ---- bash ----

static const char bash_head[] =
    "# bash completion of coppice, written by: coppice completion bash\n"
    "# Without those that hold what a shell would run: they come from the names of files.\n"
    "_coppice_names() {\n"
    "    local name rest\n"
    "    coppice list 2>/dev/null | while read -r name rest; do\n"
    "        [[ $name != \"$1\"* || $name == *[^[:alnum:]/:._+-]* ]] || echo \"$name\"\n"
    "    done\n"
    "}\n\n"
    "# _coppice_fill KIND WORDS TEXT\n"
    "_coppice_fill() {\n"
    "    local names= found= before=\n"
    "    case $1 in\n"
    "    model)\n"
    "        names=$(_coppice_names \"$3\")\n"
    "        found=$(compgen -f -X '!*.gguf' -- \"$3\"; compgen -f -X '!*.safetensors' -- \"$3\"\n"
    "            compgen -d -- \"$3\") ;;\n"
    "    file) found=$(compgen -f -- \"$3\") ;;\n"
    "    folder) found=$(compgen -d -- \"$3\") ;;\n"
    "    esac\n"
    "    # readline quotes file names and ends folders with a slash, which is no help to names of "
    "models\n"
    "    if [[ -z $names ]]; then\n"
    "        [[ -z $found ]] || compopt -o filenames 2>/dev/null\n"
    "    elif [[ -n $found ]]; then\n"
    "        found=$(while read -r; do printf '%q\\n' \"$REPLY\"; done <<<\"$found\")\n"
    "    fi\n"
    "    [[ -z $2 ]] || names+=$'\\n'$(compgen -W \"$2\" -- \"$3\")\n"
    "    # a colon begins a new word\n"
    "    [[ $COMP_WORDBREAKS != *:* ]] || before=${3%\"${3##*:}\"}\n"
    "    while read -r; do\n"
    "        [[ -z $REPLY ]] || COMPREPLY+=(\"${REPLY#\"$before\"}\")\n"
    "    done <<<\"$found\"$'\\n'\"$names\"\n"
    "}\n"
    "\n"
    "_coppice() {\n"
    "    local line=${COMP_LINE:0:COMP_POINT} text before kind= words= options= operand= list=\n"
    "    local -a word\n"
    "    read -ra word <<<\"$line\"\n"
    "    [[ $line != *[[:space:]] ]] || word+=(\"\")\n"
    "    COMPREPLY=()\n"
    "    text=${word[${#word[@]} - 1]}\n"
    "    if ((${#word[@]} < 3)); then\n"
    "        _coppice_fill words \"";
static const char bash_middle[] =
    " --help --version\" \"$text\"\n"
    "        return\n"
    "    fi\n"
    "    before=${word[${#word[@]} - 2]}\n"
    "    [[ $text != --*=* ]] || { before=${text%%=*}; text=${text#*=}; }\n"
    "    case ${word[1]} in\n";
static const char bash_tail[] = "    *) return ;;\n"
                                "    esac\n"
                                "    if [[ $kind ]]; then\n"
                                "        _coppice_fill \"$kind\" \"$words\" \"$text\"\n"
                                "    elif [[ $text == -* ]]; then\n"
                                "        _coppice_fill words \"$options\" \"$text\"\n"
                                "    else\n"
                                "        _coppice_fill \"$operand\" \"$list\" \"$text\"\n"
                                "    fi\n"
                                "}\n"
                                "complete -F _coppice coppice\n";

static const char *kind_word(enum value_kind kind) {
    static const char *const words[] = {
        [VALUE_NONE] = "",     [VALUE_ANY] = "any",       [VALUE_WORDS] = "words",
        [VALUE_FILE] = "file", [VALUE_FOLDER] = "folder", [VALUE_MODEL] = "model"};
    return words[kind];
}

static void put_bash_command(struct str *out, const struct cli_command *c, struct value *v) {
    str_printf(out, "    %s)\n        options=\"", c->name);
    for (int i = 0; i < CLI_OPTION_COUNT; i++)
        if (takes(c, i)) {
            str_printf(out, "--%s ", cli_options[i].name);
            if (cli_options[i].letter)
                str_printf(out, "-%c ", cli_options[i].letter);
        }
    operand_value(c, v);
    str_printf(out, "\"\n        operand=%s list=\"%s\"\n        case $before in\n",
               kind_word(v->kind), v->words.len ? v->words.data : "");
    for (int i = 0; i < CLI_OPTION_COUNT; i++) {
        if (!takes(c, i))
            continue;
        option_value(i, v);
        if (v->kind == VALUE_NONE)
            continue;
        str_puts(out, "        ");
        if (cli_options[i].letter)
            str_printf(out, "-%c | ", cli_options[i].letter);
        str_printf(out, "--%s) kind=%s", cli_options[i].name, kind_word(v->kind));
        if (v->words.len)
            str_printf(out, " words=\"%s\"", v->words.data);
        str_puts(out, " ;;\n");
    }
    str_puts(out, "        esac ;;\n");
}

static void put_bash(struct str *out, struct value *v) {
    str_puts(out, bash_head);
    put_commands(out);
    str_puts(out, bash_middle);
    for (size_t i = 0; i < cli_commands.n; i++)
        if (!cli_commands.at[i].hidden)
            put_bash_command(out, &cli_commands.at[i], v);
    str_puts(out, bash_tail);
}

// ---- zsh ----

static const char zsh_head[] = "#compdef coppice\n"
                               "# zsh completion of coppice, written by: coppice completion zsh\n\n"
                               "_coppice_model() {\n"
                               "    local -a names\n"
                               "    names=(${${(f)\"$(coppice list 2>/dev/null)\"}%% *})\n"
                               "    _alternative 'names:model in the cache:compadd -a names' \\\n"
                               "        'files:file:_files -g \"*.(gguf|safetensors)\"'\n"
                               "}\n\n"
                               "_coppice() {\n"
                               "    local -a commands\n"
                               "    local command=$words[2]\n"
                               "    if (( CURRENT == 2 )); then\n"
                               "        commands=(\n";
static const char zsh_middle[] =
    "        )\n"
    "        _describe -t commands command commands -- \\\n"
    "            '(--help:show\\ help --version:show\\ the\\ version)'\n"
    "        return\n"
    "    fi\n"
    "    shift words\n"
    "    (( CURRENT-- ))\n"
    "    case $command in\n";
static const char zsh_tail[] =
    "    esac\n"
    "}\n\n"
    "if [[ $funcstack[1] == _coppice ]]; then\n" // the file is the function's body
    "    _coppice \"$@\"\n"
    "else\n"
    "    compdef _coppice coppice\n"
    "fi\n";

static void put_zsh_value(struct str *out, const struct value *v, const char *metavar) {
    static const char *const actions[] = {[VALUE_ANY] = " ",
                                          [VALUE_FILE] = "_files",
                                          [VALUE_FOLDER] = "_files -/",
                                          [VALUE_MODEL] = "_coppice_model"};
    str_putc(out, ':');
    put_help(out, metavar, ":\\", "'\\''");
    if (v->kind == VALUE_WORDS)
        str_printf(out, ":(%s)", v->words.len ? v->words.data : "");
    else
        str_printf(out, ":%s", actions[v->kind]);
}

static void put_zsh_option(struct str *out, int row, struct value *v) {
    const struct option *opt = &cli_options[row];
    option_value(row, v);
    bool flag = v->kind == VALUE_NONE;
    if (opt->letter)
        str_printf(out, "            '(-%c --%s)'{-%c%s,--%s%s}'[", opt->letter, opt->name,
                   opt->letter, flag ? "" : "+", opt->name, flag ? "" : "=");
    else
        str_printf(out, "            '--%s%s[", opt->name, flag ? "" : "=");
    put_help(out, opt->help, "\\[]", "'\\''");
    str_putc(out, ']');
    if (!flag)
        put_zsh_value(out, v, opt->metavar);
    str_puts(out, "' \\\n");
}

static void put_zsh(struct str *out, struct value *v) {
    str_puts(out, zsh_head);
    for (size_t i = 0; i < cli_commands.n; i++) {
        if (cli_commands.at[i].hidden)
            continue;
        str_printf(out, "            '%s:", cli_commands.at[i].name);
        put_help(out, cli_commands.at[i].summary, ":\\", "'\\''");
        str_puts(out, "'\n");
    }
    str_puts(out, zsh_middle);
    for (size_t i = 0; i < cli_commands.n; i++) {
        const struct cli_command *c = &cli_commands.at[i];
        if (c->hidden)
            continue;
        str_printf(out, "    %s)\n        _arguments -s \\\n", c->name);
        for (int row = 0; row < CLI_OPTION_COUNT; row++)
            if (takes(c, row))
                put_zsh_option(out, row, v);
        operand_value(c, v);
        if (c->id == CLI_QUANTIZE) {
            str_printf(out, "            ':IN:_files' ':OUT:_files' ':TYPE:(%s)' ;;\n",
                       v->words.len ? v->words.data : "");
            continue;
        }
        str_puts(out, "            '*");
        put_zsh_value(out, v, c->operands[0] ? c->operands : " ");
        str_puts(out, "' ;;\n");
    }
    str_puts(out, zsh_tail);
}

// ---- fish ----

static const char fish_head[] =
    "# fish completion of coppice, written by: coppice completion fish\n"
    "function __coppice_names\n"
    "    coppice list 2>/dev/null | string replace -r '\\s.*' ''\n"
    "end\n"
    "complete -c coppice -f\n"
    "complete -c coppice -n __fish_use_subcommand -l help -d 'show help'\n"
    "complete -c coppice -n __fish_use_subcommand -l version -d 'show the version'\n";

static void put_fish_value(struct str *out, const struct value *v) {
    switch (v->kind) {
    case VALUE_NONE:
        break;
    case VALUE_ANY:
        str_puts(out, " -x");
        break;
    case VALUE_WORDS:
        str_printf(out, " -x -a '%s'", v->words.len ? v->words.data : "");
        break;
    case VALUE_FILE:
        str_puts(out, " -r -F");
        break;
    case VALUE_FOLDER:
        str_puts(out, " -x -a '(__fish_complete_directories)'");
        break;
    case VALUE_MODEL:
        str_puts(out, " -r -F -a '(__coppice_names)'");
        break;
    }
}

static void put_fish_operands(struct str *out, const struct cli_command *c, struct value *v) {
    operand_value(c, v);
    if (v->kind == VALUE_ANY)
        return;
    str_printf(out, "complete -c coppice -n '__fish_seen_subcommand_from %s'", c->name);
    if (v->kind == VALUE_MODEL)
        str_puts(out, " -F -a '(__coppice_names)'\n");
    else if (v->kind == VALUE_FILE)
        str_printf(out, " -F -a '%s'\n", v->words.len ? v->words.data : "");
    else
        str_printf(out, " -a '%s'\n", v->words.len ? v->words.data : "");
}

static void put_fish(struct str *out, struct value *v) {
    str_puts(out, fish_head);
    for (size_t i = 0; i < cli_commands.n; i++) {
        const struct cli_command *c = &cli_commands.at[i];
        if (c->hidden)
            continue;
        str_printf(out, "complete -c coppice -n __fish_use_subcommand -a %s -d '", c->name);
        put_help(out, c->summary, "\\", "\\'");
        str_puts(out, "'\n");
        put_fish_operands(out, c, v);
    }
    for (int row = 0; row < CLI_OPTION_COUNT; row++) {
        const struct option *opt = &cli_options[row];
        if (!opt->name)
            continue;
        str_puts(out, "complete -c coppice -n '__fish_seen_subcommand_from");
        for (size_t i = 0; i < cli_commands.n; i++)
            if (!cli_commands.at[i].hidden && takes(&cli_commands.at[i], row))
                str_printf(out, " %s", cli_commands.at[i].name);
        str_printf(out, "' -l %s", opt->name);
        if (opt->letter)
            str_printf(out, " -s %c", opt->letter);
        option_value(row, v);
        put_fish_value(out, v);
        str_puts(out, " -d '");
        put_help(out, opt->help, "\\", "\\'");
        str_puts(out, "'\n");
    }
}

int cmd_completion(const struct cli_args *a, struct err *e) {
    const char *shell = a->opt.operands[0];
    struct str out = {0};
    struct value v = {0};
    int rc = 0;
    if (!strcmp(shell, "bash"))
        put_bash(&out, &v);
    else if (!strcmp(shell, "zsh"))
        put_zsh(&out, &v);
    else if (!strcmp(shell, "fish"))
        put_fish(&out, &v);
    else
        rc =
            err_set(e, ERR_USAGE, "there is no completion for '%s'; name bash, zsh or fish", shell);
    out.failed = out.failed || v.words.failed;
    str_fini(&v.words);
    return rc ? rc : cli_print(&out, e);
}
