// SPDX-License-Identifier: Apache-2.0
// The inside of struct dflash, for dflash*.c only: one normal form of all dialects.
#ifndef COPPICE_MODELS_DRAFT_DFLASH_IMPL_H
#define COPPICE_MODELS_DRAFT_DFLASH_IMPL_H

#include "base/json/json.h"
#include "models/draft/config.h"
#include "models/draft/dflash/dflash.h"
#include "models/model_impl.h"

// Features kept back before they must be absorbed; groups of layers (without and with a window);
// layers whose context goes through one call of projections.
enum { DFLASH_PENDING = 64, DFLASH_GROUPS = 2, DFLASH_TOGETHER = 8 };
// Nodes of a depth that trees of Domino drafts are grown from.
enum { DFLASH_WIDTH = 8 };

enum dflash_dialect { DIALECT_LUCEBOX, DIALECT_BEELLAMA, DIALECT_UPSTREAM, DIALECT_SAFETENSORS };

// A pair of convolutions around a sublayer.
struct dflash_conv {
    float *base;              // [2][taps][D]
    const struct weight *own; // [D -> 2 taps D / group]
};

struct dflash_layer {
    float *mixer_norm, *ffn_norm; // [D]
    struct attention_block attention;
    struct mlp_block mlp;
    struct dflash_conv attention_conv, mlp_conv; // of DFlash2
    int group, index;                            // KV group, layer within it
    int mask;                                    // enum attend_mask
    int64_t window;
};

struct dflash {
    struct dflash_params params;
    struct draft_file file;
    struct model *target;
    struct exec *x;
    struct attachment_kind kind; // of the state besides sequences
    uint64_t content;            // dflash_content, 0: not computed yet
    struct load load;
    struct attention_shape shape;
    const struct weight *fc, *embed;
    struct draft_head head;
    float *hidden_norm, *out_norm;    // [D]
    float *tap_norm[DFLASH_MAX_TAPS]; // [D] of each tap, or all NULL
    float *tap_norms;                 // where they lie side by side
    bool norms_taps;
    float *divisors;             // host [rope.dims / 2], or NULL
    struct dflash_layer *layers; // [n_layers]
    int n_groups;
    struct kv_layout layout[DFLASH_GROUPS];
    struct kv_pool *pool[DFLASH_GROUPS];
    int64_t window[DFLASH_GROUPS];
    // Workspace. R rows: the larger of what is absorbed at once, A, and one block for each of the S
    // sequences, S B. A is absorb_rows or, where that is 0, DFLASH_PENDING.
    int64_t n_rows, absorb_rows;
    struct act *act_taps, *act_d, *act_f; // A rows of n_taps * D, R of D, S B of F
    struct attention_buffers attention;
    float *apart, *sublayer_in, *kernels; // [S B][D]; the same; [S B][dflash_conv_width]
    struct {
        const struct weight *gate;                    // [D -> rank]; DSpark's: [D + rank -> rank]
        const struct tensor *predecessor, *successor; // [vocab][rank], in the file
        float *device_gates, *gates;                  // of the last draft's rows; host
        // DSpark's gates: host [rank][D + rank], [rank]; rows of D values and rank zeros.
        float *weights, *bias, *joined;
        struct act *act_joined;
        bool ahead, ready; // device_gates are computed or will be; gates are there
        uint64_t epoch;    // exec_epoch when they were requested
        float *rows;       // host: rows of codebooks
        int64_t cap;
    } selector;
    struct domino *domino;    // Domino's correction, or NULL
    float *h, *wanted;        // [R][D]; [S G][D] rows whose logits are requested
    float *logits, *features; // [logits_rows][head.rows]; the target's [R][taps D]
    float *normed;            // [A][taps D] where taps have norms
    // fc of the rows of a pass whose rows were precomputed: its number (0: none) and exec_epoch
    float *precomputed; // [DFLASH_PENDING][D]
    uint64_t precomputed_pass, precomputed_epoch;
    float *stored; // [DFLASH_TOGETHER layers][keys, values][DFLASH_PENDING][n_kv head_dim]
    int64_t logits_rows, drafted;          // rows of a slice at most; rows of the last draft
    int64_t logits_first, logits_n;        // the slice in `logits`
    uint64_t logits_epoch;                 // exec_epoch when it was computed
    unsigned char *scratch[DFLASH_GROUPS]; // pages for K and V of S B rows
    int32_t *token, *parent, *seq, *index; // host [R]
    int64_t *pos;                          // host [R]
    struct kv_slot *store[DFLASH_GROUPS];  // host [R]
    struct kv_view *views[DFLASH_GROUPS];  // host [S]
};

// What a sequence has of the draft. K and V of positions 0 .. absorbed-1 are in the groups,
// features of absorbed .. len-1 wait, at most DFLASH_PENDING. So cutting back shortens the waiting
// list first, and the groups only when it must.
struct dflash_state {
    struct attachment base; // len
    struct kv kv[DFLASH_GROUPS];
    int64_t absorbed;
    // Waiting features that are rows `seen` of pass seen_pass, if these are all: n_seen of them;
    // -1: they are not.
    int32_t seen[DFLASH_PENDING];
    int64_t n_seen;
    uint64_t seen_pass;
    float *pending; // device [DFLASH_PENDING][taps * D]; at rest only those that wait, or NULL
};

// Fills d->kind.
void dflash_state_kind(struct dflash *d);
// A sequence's state of this draft; NULL where it has none.
struct dflash_state *dflash_state_of(const struct dflash *d, const struct sequence *s);
// A hash of the draft's tensors and of what else its keys and values depend on.
uint64_t dflash_content(struct dflash *d);
// Room for what waits; absorbing cannot fail then.
int dflash_state_reserve(struct dflash_state *s, struct err *e);
// Projects all waiting features into the groups.
void dflash_absorb(struct dflash *d, struct dflash_state *s, const float *features);
// Embedding and head: the file's, else the target's.
int dflash_ends_load(struct dflash *d, struct err *e);
// Convolutions (conv.c). Tensors by these names without their layer's prefix.
int dflash_conv_load(struct dflash *d, struct dflash_conv *c, int layer, const char *base,
                     const char *projection, struct err *e);
int64_t dflash_conv_width(const struct dflash_params *p); // of all kernels of a row
// n rows of h, normed and convolved, into act_d; blocks of `block` rows. left: of the sublayer in
// front, whose dflash_conv_after comes first; NULL: there is none.
void dflash_conv_before(struct dflash *d, const struct dflash_conv *left,
                        const struct dflash_conv *c, const float *norm, int64_t n, int block);
// h += what the sublayer has left in `apart`, convolved.
void dflash_conv_after(struct dflash *d, const struct dflash_conv *c, int64_t n, int block);
// Codebooks (selector.c): matrices with a row for each of `rows` tokens, of which the host reads
// some in the file. `what` the draft has with them, and the number of a row's values, go into
// errors.
int dflash_codebook_find(const struct dflash *d, const char *what, const char *name, int64_t rank,
                         int64_t rows, const struct tensor **out, struct err *e);
void dflash_codebook_row(const struct tensor *t, int64_t row, float *out);
float dflash_dot(const float *a, const float *b, int64_t n); // always the same bits
// log of the sum of e^x over n values; those that are -INFINITY do not count.
double dflash_log_sum(const float *x, int n);
// The selector or the Markov head (selector.c), for that many rows of a draft.
int dflash_selector_load(struct dflash *d, int64_t rows, struct err *e);
void dflash_selector_fini(struct dflash *d);
// The rows of the workspace's arrays as a pass.
struct rows dflash_rows(const struct dflash *d, int64_t n);

// Opens path and finds out its dialect.
int dflash_file_open(struct draft_file *f, const char *path, struct err *e);
// load_find_fn over a struct draft_file: the tensor of an upstream name in every dialect, which
// counts as requested.
const struct tensor *dflash_file_find(const void *file, const char *name);

// Reads the file's metadata into p and applies the overrides. target: for what the file leaves out.
int dflash_read_params(struct dflash_params *p, const struct draft_file *f,
                       const struct model_params *target, const struct dflash_options *o,
                       struct err *e);
// The vocabulary, as far as the file names one: its size and its token texts are the target's.
int dflash_check_vocab(const struct draft_file *f, int64_t vocab, const struct gguf *target,
                       struct err *e);
// dflash_read_params for config.json: mask, block, rotary base and the factors of embeddings and
// logits are in p and stay where the file does not say, *causal is -1 there.
int dflash_read_config(struct dflash_params *p, const struct draft_file *f, int *causal,
                       struct err *e);
// A setting of config.json, NULL or JSON_NULL where there is none; an integer of it.
const struct json *dflash_config_find(const struct json *c, const char *key);
int dflash_config_int(const struct json *c, const char *key, int64_t lo, int64_t hi,
                      int64_t otherwise, int64_t *out, struct err *e);
// What of Domino the metadata tells (domino_load.c), in both kinds, and whether it goes together.
int dflash_domino_gguf(struct dflash_params *p, const struct draft_file *f, const char *arch,
                       struct err *e);
int dflash_domino_config(struct dflash_params *p, const struct json *c, struct err *e);
int dflash_domino_check(const struct dflash_params *p, struct err *e);
// Its weights and workspace.
int dflash_domino_load(struct dflash *d, struct err *e);
void dflash_domino_fini(struct dflash *d);
// draft_class.begin and level, of a draft that has it.
int dflash_domino_begin(void *self, const struct draft_level *l, int n, struct err *e);
int dflash_domino_level(void *self, const struct draft_level *l, int n, struct draft_guesses *out,
                        struct err *e);
// What of DSpark the metadata tells (dspark.c), in both kinds; after what tells DFlash2. Then
// tensors that need not be read: they count as requested. *own: embedding and head of the file are
// none of them. ERR_MISMATCH: they are not the target's.
int dflash_dspark_gguf(struct dflash_params *p, const struct draft_file *f, const char *arch,
                       struct err *e);
int dflash_dspark_config(struct dflash_params *p, const struct json *c, struct err *e);
int dflash_dspark_pass_over(const struct dflash *d, bool *own, struct err *e);
// The keys that tell DFlash2 from DFlash, in both kinds of metadata; and their values, 0 where they
// are absent, into p. ERR_FORMAT where some stand without the others.
struct dflash_part {
    const char *key;
    int64_t max;
};
extern const struct dflash_part dflash_parts[4];
int dflash_take_parts(struct dflash_params *p, const int64_t part[4], struct err *e);
// Of a GGUF file: refuses kinds of drafts that are not known; rotary settings besides the base,
// factors, and whether it is Laguna's kind.
int dflash_read_form(struct dflash_params *p, const struct gguf *g, const char *arch,
                     struct err *e);

#endif
