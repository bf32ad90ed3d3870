// SPDX-License-Identifier: Apache-2.0
// A loaded model pair on a device of a runtime: the target, the draft with the drafter that all
// requests share, the tokenizer, and what was measured of the device. The memory is planned and
// reserved before it loads. Requests on it are in engine/batch/batch.h.
#ifndef COPPICE_ENGINE_SESSION_SESSION_H
#define COPPICE_ENGINE_SESSION_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/session/plan.h"
#include "engine/session/runtime.h"
#include "engine/session/structured.h"
#include "models/draft/draft.h"
#include "models/model.h"
#include "spec/draft/drafter.h"
#include "spec/tree/budget.h"
#include "state/host/kv_host.h"
#include "text/tokenizer/tokenizer.h"

struct session_options {
    // NULL: a private one. In one that is shared, the device is found again where it is open, the
    // plan is for what others leave, and keys and values of all sequences together keep to what one
    // of max_ctx tokens takes. It must outlive the session.
    struct runtime *runtime;
    const char *model; // target GGUF
    const char *draft; // NULL: none; DRAFT_OF_TARGET: in the target's file
    // A draft that is damaged, does not fit the target or finds no memory beside it is left out,
    // and a note says why.
    bool draft_optional;
    // Drafts besides it, which were named.
    const char *further[PRICE_DRAFTS - 1];
    int n_further;
    const char *device;    // "auto", "cpu", "cuda" or "cuda:N"
    const char *cpu_level; // "auto", or a name of docs/ops.md: not above it
    int threads;           // 0: all usable CPUs
    enum cuda_path cuda_path;
    int64_t vram_limit; // bytes that may be taken on a GPU; 0: all that are free
    // Where files of what passes cost are kept: read when the session opens, written when it closes
    // if anything was learnt. The folder is made. NULL: nothing is kept.
    const char *price_folder;
    // Experts beyond a GPU's memory (docs/experts.md). keep: which ones were hot is read from the
    // file next to the model when the session opens, and written there while it runs and when it
    // closes. vram: bytes of the GPU for this pair, 0: what --vram-limit leaves; slots: resident
    // experts for each layer, 0: as many as fit.
    struct spark_options {
        bool keep;
        int64_t vram;
        int slots;
    } expert_profile;
    // The experts of the first that many layers of them are computed by the CPU, with cpu_level and
    // threads, while a GPU does the rest; CPU_EXPERTS_AUTO (plan.h): as the plan decides.
    int cpu_experts;
    bool make_plan;   // also where no limit is known, that is on a CPU without memory_limit
    int64_t kv_limit; // bytes of keys and values of all sequences at most; 0: what the plan leaves
    // Bytes of host memory for full pages of keys and values that the device has no room for; 0:
    // none. ERR_LIMIT: more than the machine has, or too little for a page.
    int64_t kv_host;
    // NULL, or called with messages for the user, until the session is closed.
    void (*note)(void *arg, const char *sentence);
    void *note_arg;
    // max_ctx 0: the longest context that fits; memory_limit: for the pair and one full sequence.
    struct model_options target;
    // The target's codec of keys, of values, is chosen: f16 where max_ctx tokens fit, with 0 the
    // context that the model was trained for; else q8_0. A note says which and why. Fewer bits are
    // taken only where they are named.
    bool choose_k, choose_v;
    struct dflash_options dflash; // its KV types follow the target's
    struct draft_vocab_options draft_vocab;
    int chunk; // most prompt tokens a pass; 0: what suits the device
    // Bytes of weights on a GPU that session_park gives back, besides keys, values and states;
    // their copies take as much pinned host memory. 0: none. ERR_MEMORY, ERR_UNSUPPORTED.
    int64_t park;
    // Bytes of the slots of experts that it gives back, too, which are slots again afterwards; for
    // a model that has them (ops/experts/pool.h says how many there are to give). 0: none.
    // ERR_MEMORY, ERR_UNSUPPORTED.
    int64_t lend;
    bool timing;     // its ops can be timed (ops/observe/timing.h)
    bool importance; // inputs of its matrices are summed (ops/observe/importance.h)
};
struct session_options session_options_default(void);

struct session;

// One sentence when a file is missing or wrong, the draft does not fit the target, the device
// cannot be used (ERR_DEVICE), or the plan does not fit its memory (ERR_MEMORY, before anything is
// loaded).
int session_open(struct session **out, const struct session_options *o, struct err *e);
void session_close(struct session *s); // NULL is allowed

// The memory plan that session_open would make, without loading. ERR_MEMORY where it does not fit;
// *out is then filled all the same. Other errors as session_open, *out zeroed.
int session_measure(const struct session_options *o, struct memory_plan *out, struct err *e);

struct model *session_model(const struct session *s);
struct draft *session_draft(const struct session *s); // the first; NULL: none
// All of them, [PRICE_DRAFTS], NULL after the last.
struct draft *const *session_drafts(const struct session *s);
// Their names, [PRICE_DRAFTS], NULL after the last.
void session_draft_names(const struct session *s, const char *names[PRICE_DRAFTS]);
const struct tokenizer *session_tokenizer(const struct session *s); // NULL: file has none
// Constraints of requests on it (structured.h); any thread.
struct structured_store *session_structured(const struct session *s);
const struct gguf *session_file(const struct session *s); // the target's
// The drafts as the members of a step share them, [PRICE_DRAFTS], NULL after the last.
struct drafter *const *session_drafters(const struct session *s);
struct price *session_price(const struct session *s);        // what passes and drafts take here,
struct price *session_prompt_price(const struct session *s); // and passes with pieces of prompts
// Most prompt tokens of a pass, and rows of one with others besides them, where prompts that are to
// be read have n tokens left: more of them where slots of experts are lent for that.
int64_t session_chunk(const struct session *s, int64_t n);
int64_t session_pass_rows(const struct session *s, int64_t n);
// The learned value of guesses, for one text at a time: the budget that has seen most of those that
// are not lent, reset for a new text. ERR_MEMORY.
int session_take_budget(struct session *s, struct budget **out, struct err *e);
void session_give_budget(struct session *s, struct budget *b); // NULL is allowed
double session_load_ms(const struct session *s);
const struct memory_plan *session_plan(const struct session *s); // NULL: none was made
struct runtime_device *session_device(const struct session *s);
// The codec of keys, or of values, that is used.
enum kv_codec_id session_codec(const struct session *s, bool values);
// Bytes of keys and values that sequences hold, and may hold at most; 0: no limit is known.
int64_t session_kv_used(const struct session *s);
int64_t session_kv_limit(const struct session *s);
int64_t session_kv_pages(const struct session *s); // pages of them that sequences hold
// Pages of them in host memory, and the limit of it from now on. Nothing where there is none.
struct kv_host_stats session_kv_host(const struct session *s);
void session_kv_host_limit(struct session *s, int64_t limit);
void session_kv_host_trim(struct session *s); // gives what holds nothing back to the system
// Bytes that sequences may still take, on the device and beyond; only with a limit.
int64_t session_kv_room(const struct session *s);
// Gives the free pages of keys and values back to the device; the bytes of them.
int64_t session_trim(struct session *s);

// Experts that a GPU does not hold all of: slots, experts of all layers, and what was counted.
// Of the other numbers zeros: all are resident, or there are none.
struct expert_use {
    int64_t slots, experts, slot_bytes; // slots: with those that are lent
    struct expert_lent lent;
    int64_t cpu_layers, cpu_bytes; // layers whose experts are the CPU's, and what they take
    struct expert_stats count;
};
struct expert_use session_experts(const struct session *s);
// Writes which experts are hot, every few minutes, if that is kept
// (session_options.expert_profile).
void session_keep_experts(struct session *s);

// Lends the memory of its slots of experts and of its weights (ops/parking.h) and takes it again;
// in between the session may not be used. ERR_MEMORY: it did not come back, and the session's
// device has a fault.
int session_park(struct session *s, struct err *e); // ERR_MEMORY: nothing has changed
int session_unpark(struct session *s, struct err *e);

// The ids of a prompt text, with BOS where the file requires it. ERR_UNSUPPORTED without tokenizer.
int session_encode(const struct session *s, const char *text, size_t n, struct token_list *out,
                   struct err *e);

#endif
