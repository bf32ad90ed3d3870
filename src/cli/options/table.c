// SPDX-License-Identifier: Apache-2.0
// All options of all subcommands: parser, --help and the manual page come from these rows. After
// them spellings of llama.cpp, vLLM and Luce DFlash: one that means the same is taken as ours; one
// that has no meaning here is passed over with a sentence, so that a command line that people have
// does something sensible.
#include "cli/cli.h"
#include "convert/synth/tensors.h"
#include "models/model.h"
#include "ops/args/args.h"
#include "ops/args/mlp.h"
#include "ops/kv/codec.h"
#include "spec/tree/ddtree.h"

#define GENERATE CLI_BIT(CLI_GENERATE)
#define CHAT     CLI_BIT(CLI_CHAT)
#define SERVE    CLI_BIT(CLI_SERVE)
#define BENCH    CLI_BIT(CLI_BENCH)
#define PROFILE  CLI_BIT(CLI_PROFILE)
#define TOKENS   (CLI_BIT(CLI_TOKENIZE) | CLI_BIT(CLI_DETOKENIZE))
#define TEMPLATE CLI_BIT(CLI_TEMPLATE)
#define COMPRESS CLI_BIT(CLI_COMPRESS)
#define LOGITS   CLI_BIT(CLI_LOGITS)
#define DRAFT    CLI_BIT(CLI_DRAFT_LOGITS)
#define IMATRIX  CLI_BIT(CLI_IMATRIX)
#define PERPLEX  CLI_BIT(CLI_PERPLEXITY)
#define VERIFY   CLI_BIT(CLI_VERIFY)
#define INSPECT  CLI_BIT(CLI_INSPECT)
#define MEASURED (GENERATE | BENCH | VERIFY)
#define DAEMON   CLI_BIT(CLI_DAEMON)
#define DECODING (MEASURED | CHAT | SERVE | DAEMON)
#define PREFILL  (COMPRESS | GENERATE | CHAT | SERVE)
#define SCORING  (PREFILL | DAEMON)
#define RUNNING  (DECODING | LOGITS | DRAFT | PROFILE | IMATRIX | PERPLEX)
#define PLANNED  (RUNNING | INSPECT)
#define SYNTH    CLI_BIT(CLI_SYNTH)
#define WRITING  (SYNTH | CLI_BIT(CLI_CONVERT) | CLI_BIT(CLI_QUANTIZE))
#define ID_MAX   2147483647.0

const struct option cli_options[CLI_OPTION_COUNT] = {
    // What to run.
    [OPT_MODEL] = {"model", 'm', OPTION_STRING, "FILE", .groups = RUNNING | TOKENS | TEMPLATE,
                   .help = "target model: a GGUF file, or OWNER/REPO:QUANT of the Hugging Face "
                           "Hub, which is fetched if it is not in the cache; chat and serve take "
                           "the bundled one without it"},
    [OPT_DRAFT] =
        {"draft", 'd', OPTION_STRING, "FILE", .groups = DECODING | DRAFT | PROFILE | INSPECT,
         .help =
             "draft model: a GGUF file, a model.safetensors with its config.json, or "
             "OWNER/REPO of the Hub; auto, which chat, serve and daemon take for granted: the "
             "block in the target's file that predicts further tokens, else a draft next to it; "
             "none; up to three of different kinds, separated by commas, guess together"},
    [OPT_OFFLINE] = {"offline", 0, OPTION_FLAG,
                     .groups = RUNNING | TOKENS | TEMPLATE | COMPRESS | CLI_BIT(CLI_PULL) |
                               INSPECT | CLI_BIT(CLI_QUANTIZE),
                     .help = "do not use the network: of models of the Hub take what the cache "
                             "has"},
    [OPT_NO_DRAFT] = {"no-draft", 0, OPTION_FLAG, .groups = CLI_BIT(CLI_PULL),
                      .help = "do not look for a draft"},
    [OPT_PROMPT] = {"prompt", 'p', OPTION_STRING, "TEXT",
                    .groups = GENERATE | LOGITS | COMPRESS | CLI_BIT(CLI_TOKENIZE),
                    .help = "text to read"},
    [OPT_FILE] = {"file", 'f', OPTION_STRING, "FILE",
                  .groups = GENERATE | LOGITS | IMATRIX | PERPLEX | COMPRESS | BENCH |
                            CLI_BIT(CLI_TOKENIZE),
                  .help = "file with the text to read, - for standard input"},
    [OPT_IDS] = {"ids", 0, OPTION_LIST, "LIST", .lo = 0, .hi = ID_MAX,
                 .groups = GENERATE | LOGITS | DRAFT | IMATRIX | PERPLEX | CLI_BIT(CLI_DETOKENIZE),
                 .help = "token ids separated by commas, in place of text"},
    [OPT_PROMPTS] = {"prompts", 0, OPTION_STRING, "FILE", .groups = BENCH,
                     .help = "prompts, one JSON object a line"},
    [OPT_VERIFY_REQUESTS] = {"requests", 0, OPTION_STRING, "FILE", .groups = VERIFY,
                             .help = "what serve --keep-requests has written, or prompts, one JSON "
                                     "object a line as for bench --prompts"},
    [OPT_VERIFY_ID] = {"id", 0, OPTION_STRING, "ID", .groups = VERIFY,
                       .help = "only the answer of this id; without it all of the file"},
    [OPT_PROMPT_TOKENS] = {"prompt-tokens", 0, OPTION_LIST, "LIST", .lo = 1, .hi = 1e6,
                           .groups = BENCH | PROFILE,
                           .help =
                               "prompts of that many random token ids each, in place of --prompts; "
                               "each is run once for all modes"},
    [OPT_SEQUENCES] = {"sequences", 0, OPTION_LIST, "LIST", .lo = 1, .hi = 128, .groups = BENCH,
                       .help = "decode that many sequences side by side, each with a prompt of "
                               "--prompt-tokens, in one pass a step; for example 1,2,4,8"},
    [OPT_ENGINE] = {"engine", 0, OPTION_FLAG, .groups = BENCH,
                    .help = "with --sequences: the same requests as a batch and through the engine "
                            "thread that 'serve' uses, and what of the speed is left there"},
    [OPT_ROUNDS] = {"rounds", 0, OPTION_INT, "N", "3", 1, 100, .groups = BENCH,
                    .help = "with --engine: the best of that many runs of each kind"},
    [OPT_MODES] = {"modes", 0, OPTION_STRING, "LIST", .groups = BENCH,
                   .help = "ways of decoding to compare: off first, then lookup, chain and tree, "
                           "with a block or budget as in off,chain:16,tree:22,tree:60"},
    [OPT_DRAFTER] = {"drafter", 0, OPTION_STRING, "HOW", "draft", .groups = BENCH | PROFILE,
                     .help = "whose guesses chain and tree verify: draft, or oracle:al=A[,seed=N] "
                             "for a recording of plain decoding with errors that give an accept "
                             "length of A, or oracle:errors=R[/R]... for errors at these rates; "
                             "oracle:synth-len=A and oracle:synth-rates=P[/P]... are "
                             "--spec-synth-len and --spec-synth-rates of llama.cpp"},

    // bench kv: codecs of keys and values.
    [OPT_PAIRS] = {"pairs", 0, OPTION_STRING, "LIST",
                   "q8_0,q8_0/q5_0,q8_0/q4_0,q8_0/tq3_0,q5_1,q5_0,q5_0/q4_0,q4_1,q4_0,q4_0/q8_0,"
                   "tq3_0,tq3_0/q8_0",
                   .groups = BENCH,
                   .help = "pairs of codecs that bench kv compares with f16, keys/values or one "
                           "for both"},
    [OPT_TEXT_WINDOW] = {"window", 0, OPTION_INT, "N", "512", 4, MODEL_MAX_CTX, .groups = BENCH,
                         .help = "tokens of a window of the text of bench kv, of which the second "
                                 "half counts"},
    [OPT_NEEDLES] = {"needles", 0, OPTION_STRING, "FILE", .groups = BENCH,
                     .help = "facts in long texts that bench kv also looks for, a file that "
                             "bench/niah.py --out has written"},

    // bench: load on a server.
    [OPT_URL] = {"url", 0, OPTION_STRING, "URL", .groups = BENCH,
                 .help = "measure the OpenAI server at this address instead, as in "
                         "http://127.0.0.1:8080; options of the model and of guessing are then "
                         "its own"},
    [OPT_ENDPOINT] = {"endpoint", 0, OPTION_CHOICE, "WHICH", "chat", .choices = "chat|completions",
                      .groups = BENCH, .help = "what to ask the server for"},
    [OPT_CLIENTS] = {"clients", 0, OPTION_INT, "N", .lo = 1, .hi = 65536, .groups = BENCH,
                     .help = "requests in progress: the next one begins when one ends; without it "
                             "1, or with --rate no bound"},
    [OPT_RATE] = {"rate", 0, OPTION_FLOAT, "R", .lo = 0.001, .hi = 1e6, .groups = BENCH,
                  .help = "begin R requests a second at random times (a Poisson process)"},
    [OPT_REQUESTS] = {"requests", 0, OPTION_INT, "N", "0", 0, 1e8, .groups = BENCH,
                      .help = "how many requests; 0: each line of the file once, or 64"},
    [OPT_WARMUP] = {"warmup", 0, OPTION_INT, "N", "1", 0, 1e6, .groups = BENCH,
                    .help = "requests before those that count"},
    [OPT_LENGTHS] = {"lengths", 0, OPTION_STRING, "FILE", .groups = BENCH,
                     .help = "tokens in and out of each request, two numbers a line; the prompts "
                             "are random words"},
    [OPT_INPUT_TOKENS] = {"input-tokens", 0, OPTION_STRING, "N", "128", .groups = BENCH,
                          .help = "tokens of each prompt of random words, or a range A-B"},
    [OPT_OUTPUT_TOKENS] = {"output-tokens", 0, OPTION_STRING, "N", "128", .groups = BENCH,
                           .help = "max tokens of each answer, or a range A-B; --ignore-eos asks "
                                   "the server for exactly as many"},
    [OPT_API_KEY] = {"api-key", 0, OPTION_STRING, "KEY", .groups = BENCH, .help = "key to send"},
    [OPT_API_MODEL] = {"api-model", 0, OPTION_STRING, "NAME", .groups = BENCH,
                       .help = "model to ask for; without it the first one in the server's list"},
    [OPT_GOODPUT] = {"goodput", 0, OPTION_STRING, "LIMITS", .groups = BENCH,
                     .help = "count requests within these milliseconds, as in "
                             "ttft=200,tpot=50,gap=500,latency=10000"},
    [OPT_EXTRA] = {"extra", 0, OPTION_STRING, "JSON", .groups = BENCH,
                   .help = "object whose members every request gets"},
    [OPT_TIMEOUT] = {"timeout", 0, OPTION_FLOAT, "S", "600", 0.001, 1e6, .groups = BENCH,
                     .help = "seconds that an answer may take"},

    // How much and how.
    [OPT_MAX_TOKENS] = {"max-tokens", 'n', OPTION_INT, "N", "256", 0, 1e6,
                        .groups = MEASURED | PROFILE, .help = "max tokens to make"},
    [OPT_ANSWER_TOKENS] = {"max-tokens", 'n', OPTION_INT, "N", "0", 0, 1e6, .groups = CHAT,
                           .help = "max tokens of an answer; 0: as many as the context holds"},
    [OPT_SYSTEM] = {"system", 0, OPTION_STRING, "TEXT", .groups = CHAT | GENERATE,
                    .help = "message to the model that stands before the conversation; of "
                            "generate, with --chat"},
    [OPT_CHAT] = {"chat", 0, OPTION_FLAG, .groups = GENERATE,
                  .help = "the text is a message to the model, written in its chat template"},
    [OPT_MESSAGES] = {"messages", 0, OPTION_STRING, "FILE",
                      .groups = TEMPLATE | GENERATE | COMPRESS,
                      .help = "JSON object with messages, tools, documents and other variables of "
                              "the template, - for standard input; of generate, in place of a "
                              "text with --chat"},
    [OPT_TEMPLATE_FILE] = {"chat-template-file", 0, OPTION_STRING, "FILE",
                           .groups = TEMPLATE | GENERATE | CHAT | SERVE,
                           .help = "chat template (Jinja) in place of the model's"},
    [OPT_TEMPLATE_KWARGS] = {"chat-template-kwargs", 0, OPTION_STRING, "JSON",
                             .groups = GENERATE | CHAT,
                             .help = "object whose members become variables of the chat template"},
    [OPT_TOOL_FORMAT] = {"tool-format", 0, OPTION_CHOICE, "HOW", "auto",
                         .choices = "auto|none|hermes|qwen|laguna|llama|gemma|deepseek|deepseek-v3|"
                                    "kimi|mistral|mistral-list",
                         .groups = GENERATE | CHAT | SERVE,
                         .help = "how prompts have tools: auto, as the chat template writes them, "
                                 "and where it leaves them out described in the words of the "
                                 "system; none, as the template writes them and not at all where "
                                 "it leaves them out; a family, described for its form of calls"},
    [OPT_NO_THINKING] = {"no-thinking", 0, OPTION_FLAG, .groups = GENERATE | CHAT,
                         .help = "ask the chat template for an answer without reasoning "
                                 "(enable_thinking and thinking are false)"},
    [OPT_HISTORY] = {"history", 0, OPTION_STRING, "FILE", "auto", .groups = CHAT,
                     .help = "file in which messages typed on a terminal are kept; none for none, "
                             "auto for .local/state/coppice/chat-history in the home folder"},
    [OPT_SPECULATE] = {"speculate", 0, OPTION_CHOICE, "HOW", "auto",
                       .choices = "auto|tree|chain|lookup|off",
                       .groups = GENERATE | CHAT | SERVE | DAEMON | VERIFY,
                       .help =
                           "how to guess ahead: auto, tree with a draft and lookup without one; "
                           "tree, the draft's likeliest branches; chain, its likeliest "
                           "continuation; lookup, what repeats the text; off, not at all"},
    [OPT_BUDGET] = {"budget", 0, OPTION_COUNT, "N", "auto", 0, TREE_MAX_BUDGET,
                    .groups = DECODING | PROFILE,
                    .help =
                        "nodes of the guessed tree besides its root, up to 127; auto learns what "
                        "passes take and keeps as many as pay, down to plain decoding"},
    [OPT_BRANCH] = {"branch", 0, OPTION_INT, "K", "8", 1, 64, .groups = DECODING | PROFILE,
                    .help = "candidates of each position that the tree may branch into"},
    [OPT_MIN_PROB] = {"min-prob", 0, OPTION_FLOAT, "P", "0.1", 0, 1, .groups = DECODING,
                      .help =
                          "leave guesses out whose whole path the draft thinks less likely "
                          "than this; 0 keeps all; --budget auto keeps all unless this is given"},
    [OPT_CHAIN_SEED] = {"chain-seed", 0, OPTION_FLAG, .groups = DECODING,
                        .help = "start the tree from the draft's best chain"},
    [OPT_NO_LOOKUP] = {"no-lookup", 0, OPTION_FLAG, .groups = DECODING,
                       .help = "keep guesses that repeat the context out of the draft's tree"},
    [OPT_NO_DRAFT_NOISE] = {"no-draft-noise", 0, OPTION_FLAG, .groups = DECODING,
                            .help = "guess without the noise that sampling adds; the output is "
                                    "the same"},
    [OPT_DRAFT_TAPS] = {"draft-taps", 0, OPTION_LIST, "LIST", .lo = 0, .hi = 4096,
                        .groups = DECODING | DRAFT,
                        .help = "target layers whose outputs feed the draft, in place of the "
                                "file's"},
    [OPT_DRAFT_MASK_ID] = {"draft-mask-id", 0, OPTION_INT, "ID", .lo = 0, .hi = ID_MAX,
                           .groups = DECODING | DRAFT,
                           .help = "mask token of the draft, in place of the file's"},
    [OPT_DRAFT_BLOCK] = {"draft-block", 0, OPTION_INT, "N", .lo = 2, .hi = 64,
                         .groups = DECODING | DRAFT,
                         .help = "block size of the draft, in place of the file's"},
    [OPT_DRAFT_WINDOW] = {"draft-window", 0, OPTION_INT, "N", .lo = 0, .hi = 1e6,
                          .groups = DECODING | DRAFT,
                          .help = "window of all draft layers but the last, in place of the "
                                  "file's; 0 for none"},
    [OPT_DRAFT_CAUSAL] = {"draft-causal", 0, OPTION_CHOICE, "HOW", .choices = "no|yes",
                          .groups = DECODING | DRAFT,
                          .help = "whether a draft block looks back only, in place of the file's "
                                  "rule"},
    [OPT_DRAFT_VOCAB] = {"draft-vocab", 0, OPTION_STRING, "N|FILE|all", "auto",
                         .groups = DECODING | DRAFT,
                         .help = "tokens that a prediction block (mtp) can guess: the first N of "
                                 "the vocabulary, those of a text file with an id a line, or all; "
                                 "auto takes 32768 of a large one. Fewer are faster to score, and "
                                 "the output is the same"},
    [OPT_TEMP] = {"temp", 0, OPTION_FLOAT, "T", "0", 0, 100, .groups = MEASURED | CHAT,
                  .help = "sampling temperature; 0 takes the likeliest token"},
    [OPT_REQUEST_TEMP] = {"temp", 0, OPTION_FLOAT, "T", .lo = 0, .hi = 100, .groups = SERVE,
                          .help = "sampling temperature of requests that give none; without it, as "
                                  "with the other sampling options, what the model's file says, "
                                  "else 0.8, with top-k 40, top-p 0.95 and min-p 0.05"},
    [OPT_TOP_K] = {"top-k", 0, OPTION_INT, "K", "0", 0, 1e6, .groups = DECODING,
                   .help = "sample among the K likeliest tokens only; 0 for all"},
    [OPT_TOP_P] = {"top-p", 0, OPTION_FLOAT, "P", "1", 1e-9, 1, .groups = DECODING,
                   .help = "sample among the likeliest tokens that sum to this probability"},
    [OPT_MIN_P] = {"min-p", 0, OPTION_FLOAT, "P", "0", 0, 1, .groups = DECODING,
                   .help = "drop tokens below this part of the likeliest one's probability"},
    [OPT_REPEAT_PENALTY] = {"repeat-penalty", 0, OPTION_FLOAT, "F", "1", 0.01, 100,
                            .groups = DECODING,
                            .help = "divide positive logits of earlier tokens by this, multiply "
                                    "negative ones"},
    [OPT_FREQUENCY_PENALTY] = {"frequency-penalty", 0, OPTION_FLOAT, "F", "0", -100, 100,
                               .groups = DECODING,
                               .help = "subtract this from a token's logit for each earlier use"},
    [OPT_PRESENCE_PENALTY] = {"presence-penalty", 0, OPTION_FLOAT, "F", "0", -100, 100,
                              .groups = DECODING,
                              .help = "subtract this once from the logits of earlier tokens"},
    [OPT_PENALTY_WINDOW] = {"penalty-window", 0, OPTION_INT, "N", "64", 0, 4096, .groups = DECODING,
                            .help = "how many of the newest tokens the penalties look at"},
    [OPT_SEED] = {"seed", 0, OPTION_INT, "N", "0", 0, 9007199254740992.0,
                  .groups = MEASURED | CHAT | PROFILE | SYNTH,
                  .help = "seed of the sampling noise, or of random weights and prompts"},
    [OPT_IGNORE_EOS] = {"ignore-eos", 0, OPTION_FLAG, .groups = MEASURED,
                        .help = "go on after end-of-text tokens"},
    [OPT_MAX_CTX] = {"max-ctx", 'c', OPTION_COUNT, "N", "auto", 0, MODEL_MAX_CTX,
                     .groups = (RUNNING & ~PERPLEX) | INSPECT,
                     .help = "max tokens of prompt and reply; auto takes what fits the GPU's free "
                             "memory, up to the model's limit"},
    [OPT_CHUNK] = {"chunk", 0, OPTION_INT, "N", "0", 0, 65536, .groups = PLANNED,
                   .help = "prompt tokens per forward pass, 0: 512 on a CPU, up to 3072 on a GPU, "
                           "8192 on one with 72 GiB free, more where experts' slots are lent; "
                           "the output does not depend on it"},
    [OPT_KV_TYPE] = {"kv-type", 0, OPTION_CHOICE, "TYPE", "f16",
                     .choices = &("" KV_CODECS(KV_CODEC_CHOICE) "|auto")[1], .groups = PLANNED,
                     .help = "how keys and values are stored; auto: f16 where the context fits "
                             "the memory so, else q8_0"},
    [OPT_KV_TYPE_K] = {"kv-type-k", 0, OPTION_CHOICE, "TYPE", .choices = KV_CODEC_CHOICES,
                       .groups = PLANNED, .help = "how keys are stored, in place of --kv-type"},
    [OPT_KV_TYPE_V] = {"kv-type-v", 0, OPTION_CHOICE, "TYPE", .choices = KV_CODEC_CHOICES,
                       .groups = PLANNED, .help = "how values are stored, in place of --kv-type"},
    [OPT_PLAN] = {"plan", 0, OPTION_FLAG, .groups = INSPECT,
                  .help = "list what running takes of memory, item by item, for --max-ctx tokens, "
                          "as a CPU would hold it; with -d of the pair, with --vram-limit whether "
                          "it fits, or with --max-ctx auto what does; as JSON with --json"},
    [OPT_ROPE_SCALING] =
        {"rope-scaling", 0, OPTION_CHOICE, "KIND", .choices = "none|linear|yarn", .groups = PLANNED,
         .help = "how positions are slowed down for a context longer than the trained one, in "
                 "place of what the model's file says; linear where only a factor is given and "
                 "the file names no kind"},
    [OPT_ROPE_SCALE] = {"rope-scale", 0, OPTION_FLOAT, "N", .lo = 0.001, .hi = 1000,
                        .groups = PLANNED, .help = "the context becomes N times as long"},
    [OPT_ROPE_FREQ_BASE] = {"rope-freq-base", 0, OPTION_FLOAT, "N", .lo = 1.001, .hi = 1e12,
                            .groups = PLANNED,
                            .help = "base of the rotary angles, of layers without a window"},
    [OPT_ROPE_FREQ_SCALE] = {"rope-freq-scale", 0, OPTION_FLOAT, "N", .lo = 0.001, .hi = 1000,
                             .groups = PLANNED, .help = "the same as --rope-scale 1/N"},
    [OPT_YARN_ORIG_CTX] = {"yarn-orig-ctx", 0, OPTION_INT, "N", .lo = 0, .hi = 1 << 24,
                           .groups = PLANNED,
                           .help = "YaRN: tokens of the context that the model was trained with "
                                   "before it was made longer; 0: as the file says"},
    [OPT_YARN_EXT_FACTOR] = {"yarn-ext-factor", 0, OPTION_FLOAT, "N", .lo = -1, .hi = 1,
                             .groups = PLANNED,
                             .help = "YaRN: how much of their own speed fast pairs keep; 0: all "
                                     "are slowed alike; below 0: as the file says, else 1"},
    [OPT_YARN_ATTN_FACTOR] = {"yarn-attn-factor", 0, OPTION_FLOAT, "N", .lo = -1, .hi = 100,
                              .groups = PLANNED,
                              .help = "YaRN: times the usual factor of keys and queries, 1 + 0.1 "
                                      "ln of --rope-scale; 0 and below: as the file says, else 1"},
    [OPT_YARN_BETA_SLOW] = {"yarn-beta-slow", 0, OPTION_FLOAT, "N", .lo = -1, .hi = 1e6,
                            .groups = PLANNED,
                            .help = "YaRN: pairs that turn less often within the trained context "
                                    "are slowed in full; 0 and below: as the file says, else 1"},
    [OPT_YARN_BETA_FAST] = {"yarn-beta-fast", 0, OPTION_FLOAT, "N", .lo = -1, .hi = 1e6,
                            .groups = PLANNED,
                            .help = "YaRN: pairs that turn more often within the trained context "
                                    "keep their speed; 0 and below: as the file says, else 32"},
    [OPT_SPARSE_PREFILL] = {"sparse-prefill", 0, OPTION_FLOAT, "ALPHA", "0", 0, 1,
                            .groups = PLANNED,
                            .help = "read prompts by blocks of 128 tokens: a token sees those with "
                                    "at least ALPHA times the largest mass that it is estimated "
                                    "to give one (0.12 is usual), the first 2 and the nearest 4; "
                                    "faster on long prompts, but gives up that the model sees all "
                                    "of them; 0 reads everything"},
    [OPT_FA_WINDOW] = {"fa-window", 0, OPTION_INT, "W", "0", 0, 1 << 20, .groups = DECODING,
                       .help = "tokens of replies see the newest W tokens of the text (rounded up "
                               "to a multiple of 64; those of their own 64 besides) and the first "
                               "64 in layers that see everything otherwise: faster after long "
                               "texts, but gives up what lies between; prompts are read in full; "
                               "0 sees everything"},
    [OPT_KV_POOL] = {"kv-pool", 0, OPTION_INT, "N", "0", 0, 1 << 20, .groups = DECODING,
                     .help = "tokens of replies see N tokens of the text (rounded up to a multiple "
                             "of 64, at least 448) in layers that see everything otherwise: the "
                             "first 64, the newest, and what --kv-pool-policy chooses; faster "
                             "after long texts, but gives up the rest; prompts are read in full; "
                             "0 sees everything"},
    [OPT_KV_POOL_POLICY] = {"kv-pool-policy", 0, OPTION_STRING, "NAME", NULL, .groups = DECODING,
                            .help =
                                "qk, the default: pages whose keys may matter most to the newest "
                                "token's queries, anew every 64 tokens; lru: the newest "
                                "pages; scorer is not there yet"},
    [OPT_THREADS] = {"threads", 't', OPTION_INT, "N", "0", 0, 256,
                     .groups = RUNNING | WRITING | COMPRESS, .help = "threads; 0 for all CPUs"},
    [OPT_DEVICE] = {"device", 0, OPTION_STRING, "NAME", "auto", .groups = RUNNING | COMPRESS,
                    .help = "auto (a GPU that can be used, else the CPU), cpu, cuda or cuda:N"},
    [OPT_CPU_LEVEL] = {"cpu-level", 0, OPTION_CHOICE, "LEVEL", "auto",
                       .choices = "auto|scalar|avx2|avx512|amx|neon|dotprod|i8mm",
                       .groups = RUNNING | COMPRESS,
                       .help = "highest instruction level to use; the last three are ARM's"},
    [OPT_CUDA_PATH] = {"cuda-path", 0, OPTION_CHOICE, "PATH", "auto",
                       .choices = "small|mma|wgmma|auto", .groups = RUNNING,
                       .help = "matrix instructions of the GPU to use"},
    [OPT_VRAM_LIMIT] = {"vram-limit", 0, OPTION_SIZE, "SIZE", "0", 0, 1e15,
                        .groups = RUNNING | INSPECT | COMPRESS,
                        .help = "max GPU memory to take, for example 24G; 0 for all that is free"},
    [OPT_SPARK] = {"spark", 0, OPTION_FLAG, .groups = RUNNING,
                   .help = "keep which experts of a model were used in MODEL.spark, so that the "
                           "next start holds these on a GPU that has no room for all; the output "
                           "does not depend on it"},
    [OPT_SPARK_VRAM] = {"spark-vram", 0, OPTION_SIZE, "SIZE", "0", 0, 1e15, .groups = RUNNING,
                        .help = "GPU memory for the model, its draft and their caches; experts "
                                "beyond it stay in host memory and are brought when they are "
                                "chosen; a number below 1024 is GiB, 0 is what --vram-limit "
                                "leaves"},
    [OPT_SPARK_SLOTS] = {"spark-slots", 0, OPTION_INT, "N", "0", 0, OPS_EXPERTS_MAX,
                         .groups = RUNNING,
                         .help = "experts of a layer, in the mean, that a GPU holds; 0 for as many "
                                 "as fit"},
    [OPT_CPU_EXPERTS] = {"cpu-experts", 0, OPTION_COUNT, "N", "0", 0, 4096, .groups = RUNNING,
                         .help = "the experts of the first N layers that have some stay in host "
                                 "memory and are computed by the CPU while a GPU does the rest; "
                                 "auto takes as many as the GPU lacks room for, where that is "
                                 "faster than bringing them; outputs of one N are the same bits "
                                 "in all ways of running"},
    [OPT_PRICE_CACHE] = {"price-cache", 0, OPTION_STRING, "WHERE", "auto", .groups = DECODING,
                         .help = "folder in which --budget auto keeps what passes cost on this "
                                 "device; off or none keeps nothing, auto is coppice in the user's "
                                 "cache; the output does not depend on it"},
    [OPT_LOGIT_HASH] = {"logit-hash", 0, OPTION_FLAG, .groups = GENERATE,
                        .help = "print a 64-bit hash over the logits that decided each token"},
    [OPT_LOGIT_BIAS] = {"logit-bias", 0, OPTION_STRING, "LIST", .groups = GENERATE,
                        .help = "add to the logits of single tokens, as in 42:-1.5,1000:8; -inf "
                                "forbids a token"},
    [OPT_GRAMMAR_FILE] = {"grammar-file", 0, OPTION_STRING, "FILE", .groups = GENERATE | VERIFY,
                          .help = "hold the reply to a grammar in GBNF, whose rule root it is; "
                                  "guessing goes on"},
    [OPT_JSON_SCHEMA] = {"json-schema", 0, OPTION_STRING, "FILE", .groups = GENERATE | VERIFY,
                         .help = "hold the reply to JSON that satisfies this schema"},
    [OPT_LOGPROBS] = {"logprobs", 0, OPTION_INT, "N", .lo = 0, .hi = OPS_LOGPROBS_MAX,
                      .groups = GENERATE,
                      .help = "with --json: the log-probability of each new token and those of "
                              "the N likeliest ones in its place"},
    [OPT_PROMPT_LOGPROBS] = {"prompt-logprobs", 0, OPTION_FLAG, .groups = GENERATE,
                             .help = "with --json: the same of the prompt's tokens"},

    // What to show.
    [OPT_NO_SPECIAL] =
        {"no-special", 0, OPTION_FLAG, .groups = TOKENS,
         .help = "take the text of special tokens as ordinary text; of ids, leave control "
                 "tokens out"},
    [OPT_ALL] = {"all", 0, OPTION_FLAG, .groups = LOGITS,
                 .help = "logits of all positions, not only the last"},
    [OPT_TOP] = {"top", 0, OPTION_INT, "K", "10", 1, 1000, .groups = LOGITS,
                 .help = "show the K highest logits"},
    [OPT_RAW] = {"raw", 0, OPTION_STRING, "FILE", .groups = LOGITS | DRAFT,
                 .help = "write rows of little-endian 32-bit floats over the vocabulary"},

    [OPT_STREAM_FD] = {"stream-fd", 0, OPTION_INT, "N", .lo = 0, .hi = 65535, .groups = DAEMON,
                       .help = "open descriptor that token ids are written to, 32 bits each, -1 "
                               "after the last of an answer"},

    // Files.
    [OPT_TARGET_DIR] = {"target-dir", 0, OPTION_STRING, "PATH", .groups = CLI_BIT(CLI_CONVERT),
                        .help = "the draft's target (folder or GGUF), for its tokenizer"},
    [OPT_NO_MTP] = {"no-mtp", 0, OPTION_FLAG, .groups = CLI_BIT(CLI_CONVERT),
                    .help = "leave the block that predicts further tokens out"},
    [OPT_MTP] = {"mtp", 0, OPTION_FLAG, .groups = CLI_BIT(CLI_CONVERT),
                 .help = "write that block alone, with embedding and head: a draft to lay next to "
                         "the model as mtp-NAME.gguf"},
    [OPT_TYPE] = {"type", 0, OPTION_STRING, "TYPE", "F16", .groups = CLI_BIT(CLI_CONVERT),
                  .help = "type of the written weights, for example F16 or Q8_0"},
    [OPT_SPLIT_SIZE] = {"split-size", 0, OPTION_SIZE, "SIZE", "0", 0, 1e15,
                        .groups = CLI_BIT(CLI_CONVERT) | CLI_BIT(CLI_QUANTIZE),
                        .help = "max bytes of tensors in a file, 0: any number; what needs more "
                                "becomes OUT-00001-of-0000N.gguf and so on"},

    [OPT_IMATRIX] = {"imatrix", 0, OPTION_STRING, "FILE", .groups = CLI_BIT(CLI_QUANTIZE),
                     .help = "importance matrix of the model: errors in columns that carry much "
                             "count more"},
    [OPT_WINDOW] = {"max-ctx", 'c', OPTION_INT, "N", "512", 4, MODEL_MAX_CTX, .groups = PERPLEX,
                    .help = "tokens of a window, of which the second half counts; with "
                            "--kl-reference, those of the reference"},
    [OPT_WINDOWS] = {"windows", 0, OPTION_INT, "N", "0", 0, 1e9, .groups = PERPLEX | BENCH,
                     .help = "max windows to read; 0 for the whole text"},
    [OPT_WINDOWS_A_PASS] = {"parallel", 0, OPTION_COUNT, "N", "auto", 1, 128, .groups = PERPLEX,
                            .help = "windows that share a pass; auto: as many as fit --chunk; the "
                                    "result does not depend on it"},
    [OPT_KL_REFERENCE] = {"kl-reference", 0, OPTION_STRING, "FILE", .groups = PERPLEX,
                          .help = "compare each distribution with that of a file that "
                                  "--save-logits, or llama.cpp's --save-all-logits, has written; "
                                  "its text is read, and -f is not needed"},
    [OPT_SAVE_LOGITS] = {"save-logits", 0, OPTION_STRING, "FILE", .groups = PERPLEX,
                         .help = "write the logits of all scored tokens, as 16-bit "
                                 "log-probabilities, for --kl-reference: two bytes for each token "
                                 "of the vocabulary and of half the text"},
    [OPT_PIECE] = {"piece", 0, OPTION_INT, "N", "512", 1, 1e6, .groups = IMATRIX,
                   .help = "tokens of the text that are read as one context"},
    [OPT_PIECES] = {"pieces", 0, OPTION_INT, "N", "0", 0, 1e9, .groups = IMATRIX,
                    .help = "max pieces to read; 0 for the whole text"},
    [OPT_PURE] = {"pure", 0, OPTION_FLAG, .groups = CLI_BIT(CLI_QUANTIZE),
                  .help = "no mixture: every matrix gets TYPE's own element type"},
    [OPT_ALLOW_REQUANTIZE] = {"allow-requantize", 0, OPTION_FLAG, .groups = CLI_BIT(CLI_QUANTIZE),
                              .help =
                                  "also quantise what is quantised already, although the errors "
                                  "of that stay"},
    [OPT_TENSOR_TYPES] = {"tensor-types", 0, OPTION_STRING, "LIST", .groups = CLI_BIT(CLI_QUANTIZE),
                          .help = "element types of matrices whose names hold a text, as in "
                                  "attn_v=Q8_0,output=F16; the first that fits counts"},

    [OPT_SHAPE] =
        {"shape", 0, OPTION_STRING, "SHAPE", .groups = SYNTH,
         .help = "whose shape the file gets: of a published model, with -mtp with its prediction "
                 "block, or, -tiny, for tests",
         .name_at = synth_shape_name},
    [OPT_LAYERS] = {"layers", 0, OPTION_INT, "N", "0", 0, 1024, .groups = SYNTH,
                    .help = "only the first N layers of the shape; 0 for all of them"},
    [OPT_QUANT] = {"quant", 0, OPTION_STRING, "TYPE", "Q4_K_M", .groups = SYNTH,
                   .help = "type of the matrices, for example F16, Q8_0 or Q4_K_M"},

    // The server.
    [OPT_HOST] = {"host", 0, OPTION_STRING, "NAME", "127.0.0.1", .groups = SERVE,
                  .help = "name or address to listen on; none for no port at all, with --unix"},
    [OPT_PORT] = {"port", 0, OPTION_INT, "N", "8080", 0, 65535, .groups = SERVE,
                  .help = "port to listen on; 0 for a free one"},
    [OPT_UNIX] = {"unix", 0, OPTION_STRING, "PATH", .groups = SERVE,
                  .help = "listen on a Unix socket too, which only this user may open"},
    [OPT_PUBLIC] = {"public", 0, OPTION_FLAG, .groups = SERVE,
                    .help = "let anybody use the server without a key who reaches it, also from "
                            "other machines"},
    [OPT_ALLOW_HOST] = {"allow-host", 0, OPTION_STRING, "LIST", .groups = SERVE,
                        .help = "further names, separated by commas, by which clients may call the "
                                "server when there is no key"},
    [OPT_API_KEYS] = {"api-key", 0, OPTION_STRING, "LIST", .groups = SERVE,
                      .help = "keys, separated by commas, one of which clients must send; other "
                              "users of this machine can see them: better --api-key-file"},
    [OPT_API_KEY_FILE] = {"api-key-file", 0, OPTION_STRING, "FILE", .groups = SERVE,
                          .help = "file with such keys, one a line"},
    [OPT_CORS] = {"cors", 0, OPTION_STRING, "LIST", .groups = SERVE,
                  .help = "origins, separated by commas, whose pages may call the server; loopback "
                          "for those of this machine, * for all"},
    [OPT_NAME] = {"name", 0, OPTION_STRING, "NAME", .groups = SERVE,
                  .help = "what clients see as the model; without it, the file's name"},
    [OPT_PARALLEL] = {"parallel", 0, OPTION_INT, "N", "8", 1, 128, .groups = SERVE | VERIFY,
                      .help = "requests that run together at most; more of them wait"},
    [OPT_QUEUE] = {"queue", 0, OPTION_INT, "N", "1024", 1, 1e6, .groups = SERVE,
                   .help = "requests that wait at most; more of them get status 429"},
    [OPT_MAX_GAP] = {"max-gap", 0, OPTION_FLOAT, "MS", "0", 0, 1e6, .groups = SERVE,
                     .help = "max milliseconds between two steps of a running answer while prompts "
                             "are read; 0 for 100, or four steps where those take longer"},
    [OPT_KV_MEMORY] = {"kv-memory", 0, OPTION_SIZE, "SIZE", "0", 0, 1e15, .groups = SERVE,
                       .help = "max memory for keys and values of all requests; 0 for what the "
                               "memory plan leaves"},
    [OPT_KV_HOST] = {"kv-host", 0, OPTION_SIZE, "SIZE", "0", 0, 1e15, .groups = PLANNED,
                     .help = "host memory, besides --cache-ram, for keys and values that the "
                             "device has no room for, read from there in every pass, and for the "
                             "states of requests that have to wait; the output does not depend on "
                             "it"},
    [OPT_CACHE_RAM] = {"cache-ram", 0, OPTION_SIZE, "SIZE", .lo = 0, .hi = 1e15, .groups = SERVE,
                       .help = "max host memory for states of texts that have been read, which "
                               "later prompts that begin alike go on from; 0 for none; without it "
                               "four times the model's size, from 256M to 8G, and at most an "
                               "eighth of the memory that the model leaves"},
    [OPT_CACHE_DIR] = {"cache-dir", 0, OPTION_STRING, "DIR", .groups = SERVE,
                       .help = "keep these states as files too, so that a restart finds them; one "
                               "server writes there, others may read"},
    [OPT_CACHE_DISK] = {"cache-disk", 0, OPTION_SIZE, "SIZE", "20G", 1, 1e16, .groups = SERVE,
                        .help = "max bytes of all files in --cache-dir"},
    [OPT_WARM] = {"warm", 0, OPTION_STRING, "FILE", .groups = SERVE,
                  .help = "a conversation, as the body of a chat completion, that is read at the "
                          "start, so that prompts which begin like it are found"},
    [OPT_GRACE] = {"grace", 0, OPTION_FLOAT, "S", "5", 0, 86400, .groups = SERVE,
                   .help =
                       "seconds that running answers may still take when the server is asked to "
                       "stop"},
    [OPT_BODY_LIMIT] = {"body-limit", 0, OPTION_SIZE, "SIZE", "64M", 1, 1e12, .groups = SERVE,
                        .help = "largest body of a request"},
    [OPT_HEADER_LIMIT] = {"header-limit", 0, OPTION_SIZE, "SIZE", "64K", 256, 1e9, .groups = SERVE,
                          .help = "max bytes of a request's first line and headers"},
    [OPT_TEXT_THREADS] = {"text-threads", 0, OPTION_INT, "N", "2", 1, 64, .groups = SERVE,
                          .help = "threads that render templates and turn text into tokens"},
    [OPT_LOG_JSON] = {"log-json", 0, OPTION_FLAG, .groups = SERVE,
                      .help = "log requests as JSON, one object a line"},
    [OPT_LOG_PROMPTS] = {"log-prompts", 0, OPTION_FLAG, .groups = SERVE,
                         .help = "log what users write too"},
    [OPT_KEEP_REQUESTS] = {"keep-requests", 0, OPTION_STRING, "FILE", .groups = SERVE,
                           .help = "keep each answered request with its answer there, one JSON "
                                   "object a line, for 'coppice verify': what users write and get, "
                                   "as tokens, for the owner's eyes alone"},
    [OPT_KEEP_LIMIT] = {"keep-requests-limit", 0, OPTION_SIZE, "SIZE", "1G", 4096, 1e16,
                        .groups = SERVE,
                        .help = "max bytes of that file and of the older one, FILE.1, that it "
                                "becomes when it holds half of them"},
    [OPT_KEEP_HASHES] = {"keep-hashes", 0, OPTION_FLAG, .groups = SERVE,
                         .help =
                             "on a GPU keep the hash over the logits of each answer too, not "
                             "only where a request asks for it: a row of logits is brought from "
                             "the GPU for each token"},
    [OPT_TRACE] = {"trace", 0, OPTION_STRING, "FILE", .groups = SERVE,
                   .help = "write every pass and request in Chrome's trace-event format"},
    // Prompt compression.
    [OPT_PREFILL_COMPRESSION] =
        {"prefill-compression", 0, OPTION_CHOICE, "WHEN", "off", .choices = "off|auto|always",
         .groups = PREFILL & ~COMPRESS,
         .help = "compress prompts before they are read: auto those of --prefill-threshold tokens "
                 "and those that do not fit the context otherwise; it changes what the model sees"},
    [OPT_PREFILL_THRESHOLD] = {"prefill-threshold", 0, OPTION_INT, "N", "32000", 0, 1e9,
                               .groups = PREFILL & ~COMPRESS,
                               .help = "tokens from which on auto compresses a prompt"},
    [OPT_PREFILL_DEVICE] = {"prefill-device", 0, OPTION_STRING, "NAME",
                            .groups = SCORING & ~COMPRESS,
                            .help = "where the scorer runs, in place of --device"},
    [OPT_QUERY] = {"query", 0, OPTION_STRING, "TEXT", .groups = COMPRESS,
                   .help = "question that a text is shortened for; without it the end of the text"},
    [OPT_PREFILL_DRAFTER] = {"prefill-drafter", 0, OPTION_STRING, "FILE", .groups = SCORING | BENCH,
                             .help = "scorer: a small qwen3 model (GGUF)"},
    [OPT_PREFILL_KEEP] = {"prefill-keep-ratio", 0, OPTION_FLOAT, "R", .lo = 1e-6, .hi = 1,
                          .groups = PREFILL | BENCH,
                          .help = "share of the prompt's tokens to keep"},
    [OPT_PREFILL_CURVE] = {"prefill-curve", 0, OPTION_STRING, "T:R,...", .groups = PREFILL,
                           .help = "keep ratios by length, linear between the points, as in "
                                   "10000:0.5,40000:0.2,100000:0.1"},
    [OPT_PREFILL_MASS] = {"prefill-mass", 0, OPTION_FLOAT, "M", "0.9", 1e-6, 1, .groups = PREFILL,
                          .help = "without ratio and curve: keep what holds this share of the "
                                  "scores"},
    [OPT_PREFILL_LEAST] = {"prefill-least", 0, OPTION_FLOAT, "R", "0.02", 1e-6, 1,
                           .groups = PREFILL, .help = "and at least this share of the tokens"},
    [OPT_PREFILL_MOST] = {"prefill-most", 0, OPTION_FLOAT, "R", "0.5", 1e-6, 1, .groups = PREFILL,
                          .help = "and at most this share of the tokens"},
    [OPT_PREFILL_NO_ANCHORS] = {"prefill-no-anchors", 0, OPTION_FLAG, .groups = SCORING,
                                .help = "do not look for the question's own words, scores alone "
                                        "decide"},
    [OPT_PREFILL_GAP] = {"prefill-gap", 0, OPTION_STRING, "TEXT", .groups = PREFILL,
                         .help = "mark to put where something was left out"},
    [OPT_PREFILL_FLOWKV] = {"prefill-flowkv", 0, OPTION_FLAG, .groups = PREFILL,
                            .help = "in a conversation that continues, shorten each earlier "
                                    "message by itself, once, and the last two not at all"},
    [OPT_PREFILL_ADAPT] = {"prefill-adapt", 0, OPTION_FLAG, .groups = CHAT | SERVE,
                           .help = "let the keep ratio of a conversation (of a server's requests "
                                   "with the same session_id) follow how much of its answers was "
                                   "guessed right; the output then depends on guessing"},
    [OPT_PREFILL_MEMORY] = {"prefill-memory", 0, OPTION_SIZE, "SIZE", "256M", 0, 1e15,
                            .groups = CHAT | SERVE | DAEMON,
                            .help = "memory of the host in which the scorer keeps what it computed "
                                    "of texts, for texts that begin alike; 0 for none"},
    [OPT_PREFILL_LAYERS] = {"prefill-layers", 0, OPTION_INT, "N", "0", 0, 1024,
                            .groups = SCORING | BENCH,
                            .help = "run only the scorer's first N layers; 0 for all"},
    [OPT_PREFILL_SCORE_LAYERS] = {"prefill-score-layers", 0, OPTION_INT, "N", "0", 0, 1024,
                                  .groups = SCORING | BENCH,
                                  .help = "score by the last N of the layers that are run; 0 for "
                                          "all"},
    [OPT_PREFILL_DENSE] = {"prefill-dense", 0, OPTION_FLAG, .groups = SCORING | BENCH,
                           .help = "full attention in the scorer in place of block-sparse "
                                   "attention"},
    [OPT_PREFILL_ALPHA] = {"prefill-alpha", 0, OPTION_FLOAT, "A", "0.12", 0, 1,
                           .groups = SCORING | BENCH,
                           .help = "of block-sparse attention: blocks with less than this share of "
                                   "the largest mass are left out"},
    [OPT_PREFILL_DENSITY] = {"prefill-density", 0, OPTION_FLOAT, "D", "0", 0, 1,
                             .groups = SCORING | BENCH,
                             .help = "for benchmarks: exactly this share of the blocks, whatever "
                                     "their mass; 0 lets the mass decide"},
    [OPT_UPSTREAM] = {"prefill-upstream-base", 0, OPTION_STRING, "URL", .groups = SERVE,
                      .help = "load no model and pass requests on to the OpenAI server at this "
                              "address, as in http://127.0.0.1:8000; --upstream for short"},
    [OPT_UPSTREAM_KEY] = {"prefill-upstream-key", 0, OPTION_STRING, "KEY", .groups = SERVE,
                          .help = "key to send there; other users of this machine can see it: "
                                  "better --prefill-upstream-key-file; without one, the client's "
                                  "own goes on if none is required here"},
    [OPT_UPSTREAM_KEY_FILE] = {"prefill-upstream-key-file", 0, OPTION_STRING, "FILE",
                               .groups = SERVE, .help = "file whose first line is that key"},
    [OPT_UPSTREAM_MODEL] = {"prefill-upstream-model", 0, OPTION_STRING, "NAME", .groups = SERVE,
                            .help = "model to ask for there, whatever requests name"},
    [OPT_UPSTREAM_TEMPLATE] =
        {"prefill-upstream-template", 0, OPTION_STRING, "FILE", .groups = SERVE,
         .help = "send chats that were compressed to /v1/completions, as raw prompts made by this "
                 "chat template (Jinja, or the GGUF file of the other server's model)"},
    [OPT_UPSTREAM_TIMEOUT] = {"upstream-timeout", 0, OPTION_FLOAT, "S", "600", 0.1, 1e6,
                              .groups = SERVE,
                              .help = "seconds that the other server may say nothing"},
    [OPT_VERBOSE] = {"verbose", 'v', OPTION_FLAG, .groups = RUNNING,
                     .help = "also print the memory plan and what was taken at most"},
    [OPT_JSON] = {"json", 0, OPTION_FLAG,
                  .groups = (RUNNING & ~(CHAT | DAEMON)) | TOKENS | TEMPLATE | COMPRESS | INSPECT |
                            CLI_BIT(CLI_LIST),
                  .help = "print the result as JSON"},
    [OPT_HELP] = {"help", 'h', OPTION_FLAG, .groups = UINT64_MAX, .help = "show this help"},
};

#define ALIASED                     (DECODING & ~BENCH)
#define PLANNING                    (ALIASED | PERPLEX | INSPECT)
#define SAME(spelling, row, groups) {spelling, row, NULL, NULL, NULL, groups}
#define NONE(spelling, words, note) {spelling, OPTION_NONE, NULL, words, note, ALIASED | PERPLEX}

static const struct option_alias aliases[] = {
    SAME("--target", OPT_MODEL, ALIASED),
    SAME("-md", OPT_DRAFT, ALIASED | INSPECT),
    SAME("--model-draft", OPT_DRAFT, ALIASED | INSPECT),
    SAME("--spec-draft-model", OPT_DRAFT, ALIASED | INSPECT),
    SAME("--draft-model", OPT_DRAFT, ALIASED | INSPECT),
    SAME("-a", OPT_NAME, SERVE),
    SAME("--alias", OPT_NAME, SERVE),
    SAME("--model-name", OPT_NAME, SERVE),
    SAME("--served-model-name", OPT_NAME, SERVE),

    SAME("--ctx-size", OPT_MAX_CTX, ALIASED | INSPECT),
    SAME("--max-model-len", OPT_MAX_CTX, ALIASED | INSPECT),
    SAME("-np", OPT_PARALLEL, SERVE),
    SAME("--max-num-seqs", OPT_PARALLEL, SERVE),
    SAME("--slots", OPT_PARALLEL, SERVE),
    SAME("--upstream", OPT_UPSTREAM, SERVE),
    SAME("--ctx-size", OPT_WINDOW, PERPLEX),
    SAME("--chunks", OPT_WINDOWS, PERPLEX),
    SAME("-np", OPT_WINDOWS_A_PASS, PERPLEX),
    SAME("--save-all-logits", OPT_SAVE_LOGITS, PERPLEX),
    SAME("--kl-divergence-base", OPT_KL_REFERENCE, PERPLEX),
    {"--kl-divergence", OPTION_NONE, NULL, NULL, "--kl-reference compares", PERPLEX},
    SAME("-ub", OPT_CHUNK, PLANNING),
    SAME("--ubatch-size", OPT_CHUNK, PLANNING),
    SAME("-ctk", OPT_KV_TYPE_K, PLANNING),
    SAME("--cache-type-k", OPT_KV_TYPE_K, PLANNING),
    SAME("-ctv", OPT_KV_TYPE_V, PLANNING),
    SAME("--cache-type-v", OPT_KV_TYPE_V, PLANNING),
    {"--kv-f16", OPT_KV_TYPE, "f16", NULL, NULL, PLANNING},
    {"--kv-q4", OPT_KV_TYPE, "q4_0", NULL, NULL, PLANNING},
    {"--kv-tq3", OPT_KV_TYPE, "tq3_0", NULL, NULL, PLANNING},
    SAME("-ncmoe", OPT_CPU_EXPERTS, ALIASED),
    SAME("--n-cpu-moe", OPT_CPU_EXPERTS, ALIASED),
    SAME("--target-device", OPT_DEVICE, ALIASED),
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
    SAME("--repeat-last-n", OPT_PENALTY_WINDOW, ALIASED),

    {"--spec-type", OPT_SPECULATE, NULL,
     "none=off|dflash=tree|draft-dflash=tree|draft-mtp=tree|draft-eagle3=tree|ddtree=tree|"
     "dflash-chain=chain|ngram-simple=lookup|ngram-cache=lookup|ngram-map-k=lookup|"
     "ngram-mod=lookup",
     NULL, ALIASED},
    {"--ddtree", OPT_SPECULATE, "tree", NULL, NULL, ALIASED},
    {"--no-ddtree", OPT_SPECULATE, "chain", NULL, NULL, ALIASED},
    SAME("--ddtree-budget", OPT_BUDGET, ALIASED),
    SAME("--draft-max", OPT_BUDGET, ALIASED),
    SAME("--spec-draft-n-max", OPT_BUDGET, ALIASED),
    NONE("--ddtree-no-chain-seed", NULL,
         "a tree starts without a chain unless --chain-seed is given"),
    NONE("--ddtree-temp", "", "trees take the draft's probabilities as they are"),
    NONE("--draft-min", "", "--budget auto leaves out what does not pay"),
    NONE("--draft-p-min", "", "--min-prob bounds the chance of a whole path"),
    NONE("--fast-rollback", NULL, "the state is always cut back without running anything again"),
    NONE("--no-fast-rollback", NULL, "the state is always cut back without running anything again"),
    NONE("--lazy-draft", NULL, "the draft is loaded with the target"),

    {"--daemon", OPTION_NONE, NULL, NULL, "the subcommand says it", DAEMON},
    SAME("--disk-prefix-cache-compress", OPT_PREFILL_FLOWKV, ALIASED),
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
