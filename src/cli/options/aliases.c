// SPDX-License-Identifier: Apache-2.0
// Spellings of llama.cpp, vLLM and Luce DFlash for options of ours. One that means the same is
// taken as ours; one that has no meaning here is passed over with a sentence, so that a command
// line that people have does something sensible.
#include "cli/cli.h"

#define SERVE    CLI_BIT(CLI_SERVE)
#define CHAT     CLI_BIT(CLI_CHAT)
#define GENERATE CLI_BIT(CLI_GENERATE)
#define DAEMON   CLI_BIT(CLI_DAEMON)
#define DECODING (GENERATE | CHAT | SERVE | DAEMON)

#define SAME(spelling, row, groups) {spelling, row, NULL, NULL, NULL, groups}
#define NONE(spelling, words, note) {spelling, OPTION_NONE, NULL, words, note, DECODING}

static const struct option_alias aliases[] = {
    SAME("--target", OPT_MODEL, DECODING),
    SAME("-md", OPT_DRAFT, DECODING),
    SAME("--model-draft", OPT_DRAFT, DECODING),
    SAME("--spec-draft-model", OPT_DRAFT, DECODING),
    SAME("--draft-model", OPT_DRAFT, DECODING),
    SAME("-a", OPT_NAME, SERVE),
    SAME("--alias", OPT_NAME, SERVE),
    SAME("--model-name", OPT_NAME, SERVE),
    SAME("--served-model-name", OPT_NAME, SERVE),

    SAME("--ctx-size", OPT_MAX_CTX, DECODING),
    SAME("--max-model-len", OPT_MAX_CTX, DECODING),
    SAME("-np", OPT_PARALLEL, SERVE),
    SAME("--max-num-seqs", OPT_PARALLEL, SERVE),
    SAME("--slots", OPT_PARALLEL, SERVE),
    SAME("--upstream", OPT_UPSTREAM, SERVE),
    SAME("-ub", OPT_CHUNK, DECODING),
    SAME("--ubatch-size", OPT_CHUNK, DECODING),
    SAME("-ctk", OPT_KV_TYPE_K, DECODING),
    SAME("--cache-type-k", OPT_KV_TYPE_K, DECODING),
    SAME("-ctv", OPT_KV_TYPE_V, DECODING),
    SAME("--cache-type-v", OPT_KV_TYPE_V, DECODING),
    SAME("-ncmoe", OPT_CPU_EXPERTS, DECODING),
    SAME("--n-cpu-moe", OPT_CPU_EXPERTS, DECODING),
    SAME("--target-device", OPT_DEVICE, DECODING),
    SAME("--n-predict", OPT_MAX_TOKENS, GENERATE),
    SAME("--predict", OPT_MAX_TOKENS, GENERATE),
    SAME("--n-gen", OPT_MAX_TOKENS, GENERATE),
    SAME("--n-predict", OPT_ANSWER_TOKENS, CHAT),
    SAME("--predict", OPT_ANSWER_TOKENS, CHAT),
    SAME("-sys", OPT_SYSTEM, CHAT),
    SAME("--system-prompt", OPT_SYSTEM, CHAT),

    SAME("--temperature", OPT_TEMP, GENERATE | CHAT),
    SAME("--temperature", OPT_REQUEST_TEMP, SERVE),
    SAME("-s", OPT_SEED, GENERATE | CHAT),
    SAME("--repeat-last-n", OPT_PENALTY_WINDOW, DECODING),

    {"--spec-type", OPT_SPECULATE, NULL,
     "none=off|dflash=tree|draft-dflash=tree|ddtree=tree|dflash-chain=chain|ngram-simple=lookup|"
     "ngram-cache=lookup|ngram-map-k=lookup|ngram-mod=lookup",
     NULL, DECODING},
    {"--ddtree", OPT_SPECULATE, "tree", NULL, NULL, DECODING},
    {"--no-ddtree", OPT_SPECULATE, "chain", NULL, NULL, DECODING},
    SAME("--ddtree-budget", OPT_BUDGET, DECODING),
    SAME("--draft-max", OPT_BUDGET, DECODING),
    SAME("--spec-draft-n-max", OPT_BUDGET, DECODING),
    NONE("--ddtree-no-chain-seed", NULL,
         "a tree starts without a chain unless --chain-seed is given"),
    NONE("--ddtree-temp", "", "trees take the draft's probabilities as they are"),
    NONE("--draft-min", "", "--budget auto leaves out what does not pay"),
    NONE("--draft-p-min", "", "--min-prob bounds the chance of a whole path"),
    NONE("--fast-rollback", NULL, "the state is always cut back without running anything again"),
    NONE("--no-fast-rollback", NULL, "the state is always cut back without running anything again"),
    NONE("--lazy-draft", NULL, "the draft is loaded with the target"),

    {"--daemon", OPTION_NONE, NULL, NULL, "the subcommand says it", DAEMON},
    SAME("--disk-prefix-cache-compress", OPT_PREFILL_FLOWKV, DECODING),
    NONE("--prefill-drafter-tokenizer", "", "the tokenizer is that of the scorer's file"),
    NONE("--prefill-skip-park", NULL, "nothing is parked: scorer, target and draft stay loaded"),
    NONE("--draft-residency", "auto|persistent|request-scoped", "scorer and draft stay loaded"),
    NONE("-ngl", "", "all layers run on the device; --device cpu uses no GPU"),
    NONE("--gpu-layers", "", "all layers run on the device; --device cpu uses no GPU"),
    NONE("--n-gpu-layers", "", "all layers run on the device; --device cpu uses no GPU"),
    NONE("-ngld", "", "all layers of the draft run on the device"),
    NONE("--gpu-layers-draft", "", "all layers of the draft run on the device"),
    NONE("-fa", "on|off|auto|1|0", "attention has one way only"),
    NONE("--flash-attn", "on|off|auto|1|0", "attention has one way only"),
    NONE("-b", "", "--chunk sets the prompt tokens of a pass"),
    NONE("--batch-size", "", "--chunk sets the prompt tokens of a pass"),
    NONE("-tb", "", "--threads counts for prompts too"),
    NONE("--threads-batch", "", "--threads counts for prompts too"),
    NONE("-cb", NULL, "requests always share passes"),
    NONE("--cont-batching", NULL, "requests always share passes"),
    NONE("--jinja", NULL, "chat templates are always rendered"),
    NONE("--metrics", NULL, "GET /metrics is always there"),
    NONE("--props", NULL, "GET /props is always there"),
    NONE("--mlock", NULL, "weights are read into memory that belongs to the process"),
    NONE("--mmap", NULL, "weights are read into memory that belongs to the process"),
    NONE("--no-mmap", NULL, "weights are read into memory that belongs to the process"),
    NONE("--no-warmup", NULL, "there is no warm-up"),
    NONE("--no-cors", NULL, "other origins are refused unless --cors names them"),
    NONE("--fa-window", "", "attention sees the whole context"),
};

const struct option_set cli_option_set = {cli_options, CLI_OPTION_COUNT, aliases,
                                          sizeof aliases / sizeof *aliases};
