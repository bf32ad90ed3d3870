// SPDX-License-Identifier: Apache-2.0
// The public interface of coppice: load a pair of models, let sequences of tokens grow, and get
// exactly the tokens that the target model alone would have chosen.
//
// Errors: a function that can fail returns 0 (or a count) or a negative enum coppice_code, and
// writes one sentence into *e, which may be NULL. Sentences name settings as the command line
// does: --max-ctx is the field max_ctx. The library never exits and never prints.
// Structs: set `size` to sizeof of the struct and the rest to zero, which means the default, then
// what you want. Programs made for an older header go on working.
// Threads: a model and all of its sequences and checkpoints are used by one thread at a time.
// Different models may be used by different threads. There are no globals.
#ifndef COPPICE_H
#define COPPICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COPPICE_VERSION_MAJOR 0
#define COPPICE_VERSION_MINOR 1
#define COPPICE_VERSION_PATCH 0
const char *coppice_version(void); // of the library, "0.1.0"

enum coppice_code {
    COPPICE_OK = 0,
    COPPICE_ERR_USAGE = -1,       // arguments make no sense
    COPPICE_ERR_IO = -2,          // the system refused a file operation
    COPPICE_ERR_FORMAT = -3,      // a file or text breaks its format
    COPPICE_ERR_UNSUPPORTED = -4, // well formed, but nothing here can handle it
    COPPICE_ERR_MISMATCH = -5,    // two well-formed things do not fit together
    COPPICE_ERR_MEMORY = -6,      // not enough memory, or a stated limit of it
    COPPICE_ERR_LIMIT = -7,       // the context is full
    COPPICE_ERR_STATE = -8,       // not possible now
    COPPICE_ERR_DEVICE = -9,      // a GPU is missing, unusable or has failed
};

struct coppice_error {
    int code; // enum coppice_code
    char text[512];
};

// ---- Loading ----

struct coppice_load_options {
    size_t size;
    const char *model;     // target, a GGUF file
    const char *draft;     // files; NULL: the block in the model's; "auto": or one near it; "none"
    const char *device;    // NULL or "auto", "cpu", "cuda", "cuda:N"
    const char *cpu_level; // NULL or "auto"; "scalar", "avx2", ... (docs/ops.md): not above this
    const char *kv_type;   // NULL or "f16"; other names of docs/cli.md, or "auto"
    int threads;           // 0: all CPUs
    int max_budget;        // most guesses verified at once that a request may request; 0: 63
    int64_t max_ctx;       // tokens of a sequence, to 1048576; 0: what fits, as far as trained
    int64_t memory_limit;  // bytes to take at most; 0: what is free on a GPU, no limit on a CPU
    void (*note)(void *arg, const char *sentence); // NULL, or takes messages until the free
    void *note_arg;
    const char *kv_type_k, *kv_type_v; // NULL: as kv_type; of keys and of values alone
    const char *price_folder; // NULL, or keeps what passes cost: read at load, written at free
    double sparse_prefill; // 0: prompts are read in full; to 1: --sparse-prefill, first ones only
    // Rotary positions in place of what the file says (docs/long-context.md); NULL, 0: as it says.
    const char *rope_scaling; // "none", "linear" or "yarn"
    double rope_scale, rope_freq_base, yarn_attn_factor, yarn_beta_slow, yarn_beta_fast;
    double yarn_ext_factor;                    // below 0: none, all pairs are slowed alike
    int64_t yarn_orig_ctx, fa_window, kv_pool; // 0, or what replies see: --fa-window, --kv-pool
    const char *kv_pool_policy;                // NULL: the default
};

struct coppice_plan {
    size_t size;
    int64_t weights, draft, workspace; // bytes, of the target, of the draft, and of passes
    int64_t state;                     // bytes of a sequence, whatever its length
    int64_t kv_per_1k;   // bytes of a sequence more for each 1,024 tokens, besides kv_windows
    int64_t total;       // bytes, with one sequence of max_ctx tokens
    int64_t available;   // bytes that may be taken; 0: no limit is known
    int64_t max_ctx;     // tokens that are planned for
    int64_t trained_ctx; // tokens that the model is for: trained, times what its scaling adds
    int64_t kv_windows;  // bytes of a sequence in layers that see a window, at most
};

// What loading would take, without loading. COPPICE_ERR_MEMORY where it does not fit, with *out
// filled and a sentence that says what would.
int coppice_plan(const struct coppice_load_options *o, struct coppice_plan *out,
                 struct coppice_error *e);

struct coppice_model;
int coppice_load(struct coppice_model **out, const struct coppice_load_options *o,
                 struct coppice_error *e);
void coppice_free(struct coppice_model *m); // after its sequences and checkpoints; NULL is allowed

struct coppice_info {
    size_t size;
    const char *architecture; // "qwen35"
    const char *device;       // instruction level of the CPU, or name of the GPU
    int64_t vocabulary;       // token ids are 0 to vocabulary - 1
    int64_t max_ctx;          // tokens of a sequence
    int32_t bos, eos;         // -1: none
    int has_tokenizer, has_draft;
    int64_t trained_ctx; // as in struct coppice_plan
};
void coppice_info(const struct coppice_model *m, struct coppice_info *out); // texts: the model's

// ---- Text ----

enum {
    COPPICE_SPECIAL = 1, // text: control tokens such as <|im_start|> count as such; ids: are shown
    COPPICE_ADD_BOS = 2, // begin with the BOS token where the model takes one
};

// Token ids of bytes of UTF-8. Returns how many they are and stores the first `capacity` of them.
// COPPICE_ERR_FORMAT with the byte offset of ill-formed UTF-8.
int64_t coppice_tokenize(const struct coppice_model *m, const char *text, size_t bytes, int flags,
                         int32_t *ids, int64_t capacity, struct coppice_error *e);

// The text of ids as well-formed UTF-8 (U+FFFD stands for what is none). Returns its bytes, stores
// the first `capacity` and a NUL if that fits, too.
int64_t coppice_detokenize(const struct coppice_model *m, const int32_t *ids, int64_t n, int flags,
                           char *text, int64_t capacity, struct coppice_error *e);

int coppice_is_end(const struct coppice_model *m, int32_t id); // whether this token ends a reply

// ---- Sequences ----

// A list of tokens with the state that the model has of them. The list is what the caller makes
// it; the state follows when tokens are generated, and what has not changed is not run again.
struct coppice_sequence;
int coppice_sequence_create(struct coppice_sequence **out, struct coppice_model *m,
                            struct coppice_error *e);
void coppice_sequence_free(struct coppice_sequence *s); // NULL is allowed

int64_t coppice_sequence_length(const struct coppice_sequence *s);
const int32_t *coppice_sequence_tokens(const struct coppice_sequence *s); // until the next change
int64_t coppice_sequence_ready(const struct coppice_sequence *s); // tokens whose state is there

int coppice_sequence_append(struct coppice_sequence *s, const int32_t *ids, int64_t n,
                            struct coppice_error *e);

// Keeps the first n tokens. The state goes back to n where the model has no recurrent layers, else
// to the last multiple of 32 tokens if that is not above n; where that is not possible it is
// computed again when it is needed: keep a checkpoint to avoid that.
int coppice_sequence_cut(struct coppice_sequence *s, int64_t n, struct coppice_error *e);

// An independent copy that shares cached keys and values.
int coppice_sequence_fork(const struct coppice_sequence *s, struct coppice_sequence **out,
                          struct coppice_error *e);

// A place to come back to, in any sequence of the same model: the whole list of tokens, and the
// state of those that were ready; with recurrent layers at the last multiple of 32 of them.
struct coppice_checkpoint;
int coppice_checkpoint_create(struct coppice_checkpoint **out, const struct coppice_sequence *s,
                              struct coppice_error *e);
int coppice_checkpoint_restore(const struct coppice_checkpoint *c, struct coppice_sequence *s,
                               struct coppice_error *e);
int64_t coppice_checkpoint_bytes(const struct coppice_checkpoint *c); // without shared pages
void coppice_checkpoint_free(struct coppice_checkpoint *c);           // NULL is allowed

// The same as a file, from which another process that has the same model, draft and settings goes
// on with the same bits. Saving replaces the file as a whole or not at all. Loading refuses what is
// damaged (COPPICE_ERR_FORMAT) or was made with another model, draft, KV type, kind of device or
// version of coppice (COPPICE_ERR_MISMATCH, COPPICE_ERR_UNSUPPORTED).
int coppice_checkpoint_save(const struct coppice_checkpoint *c, const char *path,
                            struct coppice_error *e);
int coppice_checkpoint_load(struct coppice_checkpoint **out, struct coppice_model *m,
                            const char *path, struct coppice_error *e);

// ---- Generating ----

// How to guess ahead. It changes the speed, never the tokens.
enum coppice_speculate {
    COPPICE_SPECULATE_AUTO = 0, // a tree with a draft, lookup without one
    COPPICE_SPECULATE_TREE,     // the draft's likeliest branches and repetitions of the text
    COPPICE_SPECULATE_CHAIN,    // the draft's likeliest continuation
    COPPICE_SPECULATE_LOOKUP,   // repetitions of the text; needs no draft
    COPPICE_SPECULATE_OFF,
};

enum { COPPICE_BUDGET_AUTO = -1 }; // as many guesses as pay, which is measured

// What one pass of the target gave. Texts are whole characters; an incomplete one waits for the
// next piece. The last call of a request has n = 0 if such text is left.
struct coppice_piece {
    const int32_t *ids;
    int64_t n;
    const char *text; // without control tokens, ends in a NUL; empty without a tokenizer
    size_t bytes;
    const float *logprobs; // [n] natural logarithms by the model alone; NULL unless requested
};

struct coppice_request {
    size_t size;
    int64_t max_tokens;    // new tokens at most; 0: as many as the context holds
    int ignore_end;        // go on after end tokens
    double temperature;    // 0: the likeliest token
    int64_t top_k;         // 0: all
    double top_p, min_p;   // 0: off
    double repeat_penalty; // 0 or 1: off
    double frequency_penalty, presence_penalty;
    int64_t penalty_window; // tokens that penalties look back at; 0: 64
    uint64_t seed;
    int speculate;   // enum coppice_speculate
    int budget;      // guesses verified per pass; 0 or COPPICE_BUDGET_AUTO: as many as pay
    double min_prob; // leave out less likely guesses; 0: 0.1 with a budget, else none; < 0: none
    int logit_hash;  // compute the result's logit_hash
    // Called from within coppice_generate; non-zero ends it. They must not touch this model.
    int (*tokens)(void *arg, const struct coppice_piece *piece); // NULL: none
    int (*progress)(void *arg, int64_t done, int64_t total);     // NULL, or before each prompt pass
    void *arg;
    const int32_t *bias_ids; // [n_bias] distinct tokens, and
    const float *bias;       // [n_bias] what is added to their logits; -INFINITY forbids one
    int64_t n_bias;
    int logprobs;                              // `tokens` gets log-probabilities
    const char *grammar, *regex, *json_schema; // NULL, or what the new text is held to: one
};

enum coppice_end {
    COPPICE_END_STOP = 1,    // an end token, which is the last of the sequence
    COPPICE_END_LENGTH = 2,  // max_tokens
    COPPICE_END_CONTEXT = 3, // the context is full
    COPPICE_END_CALLER = 4,  // a callback requested it
};

struct coppice_result {
    size_t size;
    int end;               // enum coppice_end
    int64_t tokens;        // new tokens, now at the end of the sequence
    int64_t prompt_tokens; // tokens before them that had to be run
    int64_t passes;        // of the target after the prompt
    int64_t guesses;       // that were verified
    double prompt_ms, decode_ms;
    uint64_t logit_hash; // if requested: over the logits that decided each token
};

// Continues a sequence. out: NULL, or a struct with its size set. New tokens stay in the sequence
// also when an error follows. If a device has failed or run out of memory meanwhile, the state is
// dropped and all tokens are run again when the sequence is used again.
int coppice_generate(struct coppice_sequence *s, const struct coppice_request *r,
                     struct coppice_result *out, struct coppice_error *e);

// Runs all tokens but the last, so that coppice_generate can begin at once and a checkpoint holds
// them. progress: as in a request, NULL for none.
int coppice_sequence_run(struct coppice_sequence *s, int (*progress)(void *, int64_t, int64_t),
                         void *arg, struct coppice_error *e);

#ifdef __cplusplus
}
#endif

#endif
