// SPDX-License-Identifier: Apache-2.0
// The table of subcommands, in the order of the help text; each one is in its own file. `coppice
// help`, --help and the source of the manual page are rendered from it and from the table of
// options.
#include "cli/cli.h"

#include <string.h>

static const struct cli_command commands[] = {
    {"generate", CLI_GENERATE, .operands = "", .summary = "continue a text",
     .description = "Streams the continuation of a prompt to standard output and what it cost to "
                    "standard error. Guessing ahead changes the speed, never the output: the same "
                    "file, options and seed give the same tokens however they were guessed.",
     .run = cmd_generate},
    {"chat", CLI_CHAT, .operands = "", .summary = "talk with a model in the terminal",
     .description = "A conversation in the model's chat template. What the model has read stays: "
                    "each message costs "
                    "only its own tokens. Ctrl-C stops an answer, Alt-Enter begins a new line, "
                    "pasted lines and those between two marks of three quotation marks are one "
                    "message; /new forgets the conversation, /undo the last message and its "
                    "answer, /quit or ctrl-D ends. Without a terminal every line of standard input "
                    "is a message.",
     .run = cmd_chat},
    {"serve", CLI_SERVE, .operands = "", .summary = "serve the OpenAI interface over HTTP",
     .description = "Loads a model and answers OpenAI clients until ctrl-C or SIGTERM. Many "
                    "requests run together, each with the tokens that it would get alone. The "
                    "address is printed when the model is loaded, a line for each request after.",
     .run = cmd_serve},
    {"daemon", CLI_DAEMON, .operands = "[TARGET [DRAFT]]", .max_operands = 2,
     .summary = "take commands from standard input, for scripts",
     .description = "Generates for programs that write lines to its standard input and read token "
                    "ids from a descriptor of theirs, in the words of Luce DFlash's daemon: "
                    "generate, files of ids alone, snapshots of texts, park and unpark, quit. The "
                    "operands are another spelling of -m and -d.",
     .run = cmd_daemon},
    {"bench", CLI_BENCH, .operands = "[score|kv]", .max_operands = 1,
     .summary = "compare the ways of decoding on prompts",
     .description = "Runs every prompt of a file (JSON lines with id, group, prompt and "
                    "max_tokens), or one of random ids, plainly, with lookup, and with the draft's "
                    "chain and tree, or in the given modes. Prints "
                    "speed, accept length, accept rate, speed-up and phases per group, and checks "
                    "that all ways gave the same tokens from the same logits; it fails if not. "
                    "With --url it loads a server instead, and prints percentiles of the times "
                    "until the first token, between tokens and of whole requests, tokens a second "
                    "and what failed. 'bench score' measures a scorer on random ids, and with -m "
                    "the time until "
                    "the first token after what it keeps. 'bench kv' says what each of --pairs, "
                    "codecs of keys and of values, costs: how far the distributions over the text "
                    "of -f are from those with f16, perplexity, with -d and --prompts how many "
                    "guesses are accepted, with --needles how many facts are found, with "
                    "--prompt-tokens the time of a step after that many tokens.",
     .run = cmd_bench},
    {"verify", CLI_VERIFY, .operands = "",
     .summary = "check that answers are those of plain decoding",
     .description =
         "Takes what 'serve --keep-requests' has written and gives each answer again plainly: "
         "without a draft, guesses, neighbours or a cache. Tokens and the hash over their logits "
         "must be equal; an answer that was cut off is compared as far as it went. Of a file of "
         "prompts (JSON lines with id, prompt and max_tokens) each is decoded plainly and as the "
         "options of guessing say, --parallel of them side by side, and the two are compared. A "
         "line an answer, then a summary; the exit status is 0 only if all are equal.",
     .run = cmd_verify},
    {"profile", CLI_PROFILE, .operands = "", .summary = "show where the time of a step goes",
     .description = "Decodes after one prompt of random ids, plainly and by a tree of the given "
                    "budget, and prints for each op of a step its time, the bytes that it must "
                    "move at least, and which part of its time moving them would take at the "
                    "measured copy rate of this machine.",
     .run = cmd_profile},
    {"logits", CLI_LOGITS, .operands = "", .summary = "print what the model predicts after a text",
     .description = "Shows the highest logits after the last token, or after every token, or "
                    "writes whole rows to a file.",
     .run = cmd_logits},
    {"draft-logits", CLI_DRAFT_LOGITS, .operands = "",
     .summary = "write what the draft predicts after token ids",
     .description = "Runs the target over the ids, takes its likeliest next token as the anchor, "
                    "drafts one block and writes the log-probabilities of its positions 1 to B-1; "
                    "a prediction block (mtp) or EAGLE-3 drafts a chain of its likeliest tokens.",
     .run = cmd_draft_logits},
    {"perplexity", CLI_PERPLEXITY, .operands = "",
     .summary = "measure how well a model predicts a text",
     .description =
         "Perplexity of the text of -f in windows of -c tokens, as llama.cpp's perplexity tool "
         "counts it: a window begins with the begin-of-text token where the model requires one, "
         "and the tokens of its second half are scored. With --kl-reference also how far the "
         "distributions are from those of a reference: Kullback-Leibler divergence (mean, spread, "
         "maximum) and how often the likeliest token is the same.",
     .run = cmd_perplexity},
    {"tokenize", CLI_TOKENIZE, .operands = "", .summary = "turn text into token ids",
     .description = "Prints the token ids of a text, separated by commas or as JSON "
                    "({\"ids\":[...]}). Special tokens written in the text are recognised; a model "
                    "that requires a begin-of-text token gets it.",
     .run = cmd_tokenize},
    {"detokenize", CLI_DETOKENIZE, .operands = "", .summary = "turn token ids into text",
     .description = "Prints the text of token ids, byte for byte (a terminal gets a newline more), "
                    "or as JSON ({\"text\":\"...\"}). Bytes that form no UTF-8 become U+FFFD.",
     .run = cmd_detokenize},
    {"template", CLI_TEMPLATE, .operands = "", .summary = "render a chat template",
     .description = "Prints the text that a chat template, of -m or --chat-template-file, makes of "
                    "the variables in --messages, byte for byte as apply_chat_template of "
                    "HuggingFace transformers does: nothing is repaired, and what the file does "
                    "not name is undefined, save bos_token and eos_token of a model file. With "
                    "--json also which parts the template wrote and which came from the file. "
                    "No model is loaded.",
     .run = cmd_template},
    {"compress", CLI_COMPRESS, .operands = "", .summary = "shorten a long prompt to what matters",
     .description = "A small model (--prefill-drafter) scores a text, or the conversation in "
                    "--messages, for its last question, and the pieces that matter come out: a "
                    "text, or a JSON object with messages. How much stays is said on standard "
                    "error; with --json it is printed, with the spans. See docs/pflash.md for "
                    "what is lost.",
     .run = cmd_compress},
    {"pull", CLI_PULL, .operands = "NAME", .min_operands = 1, .max_operands = 1,
     .summary = "fetch a model from the Hugging Face Hub",
     .description =
         "NAME is OWNER/REPO, OWNER/REPO:QUANT or OWNER/REPO:FILE, as in "
         "Qwen/Qwen3-4B-GGUF:Q4_K_M; @REVISION may follow REPO. Prints how much memory the model "
         "takes, fetches all its parts into the Hub's cache, where other tools find them and it "
         "finds theirs, goes on where an earlier run ended, checks their SHA-256, and prints the "
         "path of the file. A draft that fits is looked for and comes with it. -m of other "
         "commands takes such names too and fetches what is not there. HF_ENDPOINT, HF_TOKEN, "
         "HF_HOME, HF_HUB_CACHE and HF_HUB_OFFLINE mean what they mean to other tools.",
     .run = cmd_pull},
    {"list", CLI_LIST, .operands = "", .summary = "show the models in the Hub's cache",
     .description = "Names that -m takes, sizes, and what is not complete: GGUF files and drafts, "
                    "also those that other tools fetched.",
     .run = cmd_list},
    {"remove", CLI_REMOVE, .operands = "NAME", .min_operands = 1, .max_operands = 1,
     .summary = "remove a model from the Hub's cache",
     .description = "NAME as 'coppice list' shows it; without QUANT or FILE all GGUF files of the "
                    "repository and what is left of downloads. Other tools that use the same cache "
                    "lose them too.",
     .run = cmd_remove},
    {"inspect", CLI_INSPECT, .operands = "FILE", .min_operands = 1, .max_operands = 1,
     .summary = "show what a GGUF or safetensors file holds",
     .description = "Prints metadata (long lists shortened), tensors, a count of types and, for "
                    "models that can be run, what they take in memory. FILE may also be a folder "
                    "with a model.safetensors or its index.",
     .run = cmd_inspect},
    {"convert", CLI_CONVERT, .operands = "DIR OUT", .min_operands = 2, .max_operands = 2,
     .summary = "make a GGUF file from a HuggingFace folder",
     .description =
         "Converts a folder with config.json, safetensors and tokenizer.json or "
         "tokenizer.model: models of the types qwen3_5, qwen3_5_moe, qwen3, qwen3_moe, qwen2, "
         "llama, "
         "mistral, gemma3, gemma4, gpt_oss, laguna, glm4_moe, glm4_moe_lite, deepseek_v2, "
         "deepseek_v3 and "
         "kimi_k2, plain or in FP8 or INT4, and DFlash and EAGLE-3 drafts. A draft takes its "
         "tokenizer from "
         "its "
         "target (--target-dir). Norms and other small tensors stay F32.",
     .run = cmd_convert},
    {"quantize", CLI_QUANTIZE, .operands = "IN OUT TYPE", .min_operands = 3, .max_operands = 3,
     .summary = "re-encode the matrices of a GGUF file",
     .description =
         "TYPE is F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, IQ4_XS, MXFP4, or one of "
         "the mixtures Q2_K, Q2_K_S, Q3_K_S, Q3_K_M, Q3_K_L, Q4_K_S, Q4_K_M, Q5_K_S, Q5_K_M, Q6_K, "
         "IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ2_M, IQ3_XXS, IQ3_XS, IQ3_S, IQ3_M, TQ1_0, TQ2_0 "
         "and MXFP4_MOE, which give more bits to the matrices that need them. IQ1, IQ2, IQ3_XXS "
         "and "
         "IQ3_XS need --imatrix. Below Q8_0 the output matrix is kept at Q6_K, with these at Q5_K "
         "or more. Norms and other small tensors are copied.",
     .run = cmd_quantize},
    {"imatrix", CLI_IMATRIX, .operands = "OUT", .min_operands = 1, .max_operands = 1,
     .summary = "find out which columns of a model's matrices matter",
     .description = "Runs the text of -f through the model and writes the mean square of every "
                    "column that its matrices are multiplied by, for quantize --imatrix. Take a "
                    "text like what the model will be used for, 100 000 tokens or more, and the "
                    "most exact weights that fit. The format is the established one (GGUF).",
     .run = cmd_imatrix},
    {"synth", CLI_SYNTH, .operands = "OUT", .min_operands = 1, .max_operands = 1,
     .summary = "write a model of a real shape with random weights",
     .description = "For measuring speed and memory without the real weights: a valid GGUF file "
                    "without a tokenizer, with the tensors of a published model. Its text means "
                    "nothing. The same shape, type and seed give the same file.",
     .run = cmd_synth},
    {"completion", CLI_COMPLETION, .operands = "SHELL", .min_operands = 1, .max_operands = 1,
     .summary = "print a script that completes command lines",
     .description = "SHELL is bash, zsh or fish. Packages install the three scripts; else, for a "
                    "running bash: source <(coppice completion bash). Options of the subcommand, "
                    "their words, files, and names that 'coppice list' shows are completed.",
     .run = cmd_completion},
    {"help", CLI_HELP, .operands = "[COMMAND]", .max_operands = 1,
     .summary = "explain a subcommand", .description = "Shows what a subcommand does and takes.",
     .run = cmd_help},
    {"manual", CLI_MANUAL, .hidden = true, .operands = "",
     .summary = "print the manual page in scdoc's markup",
     .description = "Prints the source of the manual page.", .run = cmd_manual},
};
const struct cli_command_list cli_commands = {commands, sizeof commands / sizeof *commands};

const struct cli_command *cli_find_command(const char *name) {
    for (size_t i = 0; i < cli_commands.n; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static void put_program_help(struct str *out) {
    str_puts(out, "Usage: coppice COMMAND [OPTION]... [OPERAND]...\n"
                  "Run large language models from GGUF files with lossless tree speculation.\n\n"
                  "Commands:\n");
    for (size_t i = 0; i < cli_commands.n; i++)
        if (!commands[i].hidden)
            str_printf(out, "  %-14s %s\n", commands[i].name, commands[i].summary);
    str_puts(out, "\nOptions:\n"
                  "  --help         show this help\n"
                  "  --version      show the version\n\n"
                  "'coppice help COMMAND' explains one of them.\n");
}

// Breaks a paragraph into lines of at most 80 columns.
static void put_paragraph(struct str *out, const char *text) {
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
    put_paragraph(out, c->description);
    str_puts(out, "\nOptions:\n");
    options_help(out, cli_options, CLI_OPTION_COUNT, CLI_BIT(c->id));
}

int cmd_help(const struct cli_args *a, struct err *e) {
    const struct cli_command *c = NULL;
    if (a->opt.n_operands == 1) {
        c = cli_find_command(a->opt.operands[0]);
        if (!c)
            return err_set(e, ERR_USAGE, "there is no subcommand '%s'; see 'coppice help'",
                           a->opt.operands[0]);
    }
    struct str out = {0};
    if (c)
        cli_help(&out, c);
    else
        put_program_help(&out);
    return cli_print(&out, e);
}

int cmd_manual(const struct cli_args *a, struct err *e) {
    (void)a;
    struct str out = {0};
    str_puts(&out, "coppice(1)\n\n# NAME\n\n"
                   "coppice - run large language models with lossless tree speculation\n\n"
                   "# SYNOPSIS\n\n*coppice* _COMMAND_ [_OPTION_]... [_OPERAND_]...\n\n"
                   "# DESCRIPTION\n\n"
                   "*coppice* runs language models from GGUF files. A small draft model guesses "
                   "a tree of continuations, the target model checks all of it in one pass, and "
                   "the tokens are exactly those that the target alone would give.\n\n"
                   "# COMMANDS\n\n");
    for (size_t i = 0; i < cli_commands.n; i++) {
        const struct cli_command *c = &commands[i];
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
