// SPDX-License-Identifier: Apache-2.0
// Shared parts of the subcommands that run models: finding the pair that the options name or that
// need not be named, opening it, its requests, and what is printed of it; see decode.h.
#include "cli/models/decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "cli/hub/names.h"
#include "cli/hub/pull.h"
#include "cli/log_out.h"
#include "engine/session/near_draft.h"
#include "models/draft/dflash/dflash.h"

#define BUNDLED   "coppice-tiny-q8_0.gguf"
#define SUGGESTED "Qwen/Qwen3-4B-GGUF:Q4_K_M"

enum { PATH_BYTES = 4096 };

// The folder that a path lies in, without the slash; "." when it names none.
static void folder_of(struct str *out, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash)
        str_puts(out, ".");
    else
        str_append(out, path, slash == path ? 1 : (size_t)(slash - path));
}

static void put_data_folder(struct str *out) {
    char program[PATH_BYTES];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0)
        return;
    program[n] = '\0';
    folder_of(out, program);
    str_puts(out, "/../share/coppice/models");
}

// Where what comes with the program may lie: in the data folder next to it
// (../share/coppice/models), in that of the installation, or in the source folder that the build
// was configured in. Empty: not in such a one.
enum { PLACES = 3 };
static void own_folders(struct str *data, const char *places[PLACES]) {
    put_data_folder(data);
    places[0] = data->len && !data->failed ? data->data : "";
    places[1] = COPPICE_DATA_MODELS;
    places[2] = COPPICE_SOURCE_MODELS;
}

// The path of the bundled target. ERR_IO with the places that were looked at, ERR_MEMORY.
static int find_bundled_model(struct str *out, struct err *e) {
    struct str data = {0};
    const char *places[PLACES];
    own_folders(&data, places);
    for (size_t i = 0; i < PLACES; i++) {
        str_clear(out);
        str_printf(out, "%s/" BUNDLED, places[i]);
        if (places[i][0] && !out->failed && access(out->data, R_OK) == 0)
            break;
        str_clear(out);
    }
    str_fini(&data);
    if (out->failed)
        return err_set(e, ERR_MEMORY, "no memory for a path");
    if (out->len)
        return 0;
    return err_set(e, ERR_IO,
                   "no model was given, and the bundled one is not in %s%s%s; name one with -m, a "
                   "file or a name as " SUGGESTED,
                   COPPICE_DATA_MODELS, COPPICE_SOURCE_MODELS[0] ? " or " : "",
                   COPPICE_SOURCE_MODELS);
}

// Drafts of a model in the Hub's cache; the first that fits is taken.
static int search_cache(struct near_drafts *d, struct err *e) {
    int rc = 0;
    bool more = true;
    d->where = "is in the cache";
    for (int i = 0; more && !rc && !d->n; i++) {
        struct str path = {0};
        more = hub_cached_draft(d->o->model, i, &path);
        if (more && path.len && !path.failed)
            rc = near_draft_file(d, path.data, e);
        str_fini(&path);
    }
    return rc;
}

// Drafts of published models that come with the program (models/drafts).
static int search_own(struct near_drafts *d, struct err *e) {
    struct str data = {0}, folder = {0};
    const char *places[PLACES];
    int rc = 0;
    own_folders(&data, places);
    d->where = "comes with this program";
    d->own = true;
    for (size_t i = 0; !rc && !d->n && i < PLACES; i++) {
        str_clear(&folder);
        str_printf(&folder, "%s/drafts", places[i]);
        if (folder.failed)
            rc = err_set(e, ERR_MEMORY, "no memory for a path");
        else if (places[i][0])
            rc = near_draft_folder(d, folder.data, e);
    }
    str_fini(&folder);
    str_fini(&data);
    return rc;
}

// The draft of o->model that nobody named: the block in its own file, else one next to it, for a
// model in the Hub's cache in repositories of drafts there, or one that comes with the program. Of
// those besides a block there is a word only, and none where others are named. *path: what o->draft
// points at.
static int find_near_draft(struct session_options *o, bool named, struct str *path, struct err *e) {
    struct near_drafts d = {.o = o, .by_name = hub_is_draft};
    const char *draft = NULL;
    int rc = near_draft_in_target(&d, e);
    d.quiet = d.of_target;
    if (!rc && !(named && d.of_target))
        rc = near_draft_beside(&d, e);
    if (!rc && !d.n && !d.of_target)
        rc = search_cache(&d, e);
    if (!rc && !d.n && !d.of_target)
        rc = search_own(&d, e);
    d.quiet = false;
    struct err ignored;
    int chosen = near_draft_choose(&d, path, &draft, rc ? &ignored : e);
    o->draft = draft;
    o->draft_optional = true;
    return rc ? rc : chosen;
}

// `own` is the option for keys, or for values, alone. The choices are in the order of codecs, and
// auto is the last.
static enum kv_codec_id kv_codec(const struct cli_args *a, int own, bool *choose) {
    int option = options_given(&a->opt, own) ? own : OPT_KV_TYPE;
    int64_t choice = options_int(&a->opt, option);
    *choose = choice == KV_CODEC_COUNT;
    return *choose ? KV_F16 : (enum kv_codec_id)choice;
}

static int read_dflash_options(const struct cli_args *a, struct dflash_options *d, struct err *e) {
    const struct options *o = &a->opt;
    size_t n;
    const int32_t *taps = options_list(o, OPT_DRAFT_TAPS, &n);
    if (n > DFLASH_MAX_TAPS)
        return err_set(e, ERR_USAGE, "--draft-taps names %zu layers; at most %d are possible", n,
                       DFLASH_MAX_TAPS);
    d->n_taps = (int)n;
    for (size_t i = 0; i < n; i++)
        d->taps[i] = taps[i];
    if (options_given(o, OPT_DRAFT_MASK_ID))
        d->mask_id = options_int(o, OPT_DRAFT_MASK_ID);
    if (options_given(o, OPT_DRAFT_BLOCK))
        d->block_size = (int)options_int(o, OPT_DRAFT_BLOCK);
    if (options_given(o, OPT_DRAFT_WINDOW))
        d->window = options_int(o, OPT_DRAFT_WINDOW);
    if (options_given(o, OPT_DRAFT_CAUSAL))
        d->causal = (int)options_int(o, OPT_DRAFT_CAUSAL);
    return 0;
}

static int read_draft_vocab(const struct cli_args *a, struct draft_vocab_options *v,
                            struct err *e) {
    const char *text = options_str(&a->opt, OPT_DRAFT_VOCAB);
    if (!text || !strcmp(text, "auto"))
        return 0;
    *v = (struct draft_vocab_options){0};
    if (!strcmp(text, "all"))
        return 0;
    const size_t digits = strspn(text, "0123456789");
    if (text[digits] || !digits) {
        v->list = text;
        return 0;
    }
    v->rows = strtoll(text, NULL, 10);
    return v->rows > 0 && v->rows <= INT32_MAX
               ? 0
               : err_set(e, ERR_USAGE,
                         "--draft-vocab %s is no number of tokens; give 1 or more, a file, or all",
                         text);
}

int decode_budget(const struct cli_args *a, bool *choose) {
    int n = (int)options_int(&a->opt, OPT_BUDGET);
    *choose = n < 0;
    return *choose ? REQUEST_AUTO_BUDGET : n;
}

static void print_note(void *arg, const char *sentence) {
    (void)arg;
    log_out("coppice: %s\n", sentence);
}

void decode_show_plan(const struct cli_args *a, const struct session *s) {
    const struct memory_plan *p = session_plan(s);
    struct exec *x = model_exec(session_model(s));
    struct str line = {0};
    if (!p || options_flag(&a->opt, OPT_JSON) ||
        !(exec_is_device(x) || a->command->id == CLI_SERVE || options_flag(&a->opt, OPT_VERBOSE)))
        return;
    plan_print(p, &line);
    if (!line.failed)
        log_out("memory on %s: %s\n", exec_label(x), line.data);
    str_fini(&line);
}

// Sequences that will share a pass.
static int max_sequences(const struct cli_args *a) {
    size_t n = 0;
    bool many = a->command->id == CLI_BENCH && options_given(&a->opt, OPT_SEQUENCES);
    const int32_t *counts = many ? options_list(&a->opt, OPT_SEQUENCES, &n) : NULL;
    int max = a->command->id == CLI_VERIFY ? (int)options_int(&a->opt, OPT_PARALLEL) : 1;
    for (size_t i = 0; i < n; i++)
        max = max_i32(max, counts[i]);
    // What has been read of a prompt is kept besides those that go on from it.
    return max + (a->command->id == CLI_BENCH || a->command->id == CLI_PROFILE);
}

// Where --price-cache keeps its files; nothing: nowhere.
static void put_price_folder(const struct cli_args *a, struct str *out) {
    bool taken = cli_options[OPT_PRICE_CACHE].groups & CLI_BIT(a->command->id);
    const char *where = taken ? options_str(&a->opt, OPT_PRICE_CACHE) : "off";
    if (!strcmp(where, "auto"))
        cli_cache_folder(out);
    else if (strcmp(where, "off") != 0 && strcmp(where, "none") != 0)
        str_puts(out, where);
}

void decode_files_fini(struct decode_files *f) {
    str_fini(&f->prices);
    str_fini(&f->model);
    str_fini(&f->draft);
    named_drafts_fini(&f->drafts);
}

// Subcommands for people find models by themselves; what is measured and compared is named.
static bool finds_models(const struct cli_args *a) {
    return a->command->id == CLI_CHAT || a->command->id == CLI_SERVE;
}

static bool finds_drafts(const struct cli_args *a) {
    return finds_models(a) || a->command->id == CLI_DAEMON;
}

// The daemon's operands are another spelling of options.
static int read_model_operand(const struct cli_args *a, int row, int i, struct str *out,
                              struct err *e) {
    if (options_given(&a->opt, row))
        return err_set(e, ERR_USAGE, "--%s and the operand '%s' name the same file; give one",
                       cli_options[row].name, a->opt.operands[i]);
    str_puts(out, a->opt.operands[i]);
    return out->failed ? err_set(e, ERR_MEMORY, "no memory for a path") : 0;
}

static int find_model(const struct cli_args *a, struct decode_files *f, struct err *e) {
    if (a->command->id == CLI_DAEMON && a->opt.n_operands > 0)
        return read_model_operand(a, OPT_MODEL, 0, &f->model, e);
    if (options_given(&a->opt, OPT_MODEL) || !finds_models(a))
        return cli_need(a, OPT_MODEL, e);
    int rc = find_bundled_model(&f->model, e);
    if (!rc)
        fprintf(stderr,
                "coppice: no model was given with -m; this is the bundled one, %s, which is for "
                "tests and knows nothing of the world: 'coppice %s -m " SUGGESTED
                "' fetches a small useful one (2.5 GB)\n",
                f->model.data, a->command->name);
    return rc;
}

// The drafts of -d: files, "none", or "auto", which subcommands that find drafts take for granted.
static int find_draft(const struct cli_args *a, struct session_options *o, struct decode_files *f,
                      struct err *e) {
    const char *named = options_given(&a->opt, OPT_DRAFT) ? options_str(&a->opt, OPT_DRAFT) : NULL;
    if (a->command->id == CLI_DAEMON && a->opt.n_operands > 1) {
        int rc = read_model_operand(a, OPT_DRAFT, 1, &f->draft, e);
        if (rc)
            return rc;
        named = a->opt.operands[1];
    }
    bool wanted = !options_given(&a->opt, OPT_SPECULATE) ||
                  options_int(&a->opt, OPT_SPECULATE) <= SPECULATE_CHAIN;
    int rc = named_drafts_read(&f->drafts, named, e);
    bool find = named ? f->drafts.find : finds_drafts(a);
    o->draft = NULL;
    str_clear(&f->draft);
    if (!rc && find && wanted)
        rc = find_near_draft(o, f->drafts.n > 0, &f->draft, e);
    if (!rc)
        named_drafts_use(&f->drafts, o);
    return rc;
}

static void read_sparse_rule(const struct cli_args *a, struct sparse_rule *rule) {
    float alpha = (float)options_float(&a->opt, OPT_SPARSE_PREFILL);
    if (alpha > 0)
        *rule = (struct sparse_rule){true, alpha, SPARSE_SINKS, SPARSE_WINDOW};
}

static float positive_option(const struct cli_args *a, int row) {
    double v = options_given(&a->opt, row) ? options_float(&a->opt, row) : 0;
    return v > 0 ? (float)v : 0;
}

// The choices are in the order of enum rope_scaling after the first.
static int read_rope_options(const struct cli_args *a, struct rope_options *r, struct err *e) {
    const struct options *o = &a->opt;
    const float slower = positive_option(a, OPT_ROPE_FREQ_SCALE);
    *r = (struct rope_options){.factor = positive_option(a, OPT_ROPE_SCALE),
                               .base = positive_option(a, OPT_ROPE_FREQ_BASE),
                               .magnitude = positive_option(a, OPT_YARN_ATTN_FACTOR),
                               .beta_slow = positive_option(a, OPT_YARN_BETA_SLOW),
                               .beta_fast = positive_option(a, OPT_YARN_BETA_FAST)};
    if (options_given(o, OPT_ROPE_SCALING))
        r->scaling = (enum rope_scaling)(ROPE_UNSCALED + options_int(o, OPT_ROPE_SCALING));
    if (options_given(o, OPT_YARN_ORIG_CTX))
        r->trained = options_int(o, OPT_YARN_ORIG_CTX);
    r->has_ramp =
        options_given(o, OPT_YARN_EXT_FACTOR) && options_float(o, OPT_YARN_EXT_FACTOR) >= 0;
    if (r->has_ramp)
        r->ramp = (float)options_float(o, OPT_YARN_EXT_FACTOR);
    if (slower > 0 && r->factor > 0)
        return err_set(e, ERR_USAGE,
                       "--rope-freq-scale is one over --rope-scale; give one of them");
    if (slower > 0)
        r->factor = 1 / slower;
    return 0;
}

int decode_planned(const struct cli_args *a, struct session_options *o, struct err *e) {
    int rc = read_rope_options(a, &o->target.rope, e);
    if (rc)
        return rc;
    o->target.max_ctx = max_i64(options_int(&a->opt, OPT_MAX_CTX), 0);
    o->chunk = (int)options_int(&a->opt, OPT_CHUNK);
    o->target.codec_k = kv_codec(a, OPT_KV_TYPE_K, &o->choose_k);
    o->target.codec_v = kv_codec(a, OPT_KV_TYPE_V, &o->choose_v);
    read_sparse_rule(a, &o->target.sparse);
    o->note = print_note;
    o->kv_host = options_int(&a->opt, OPT_KV_HOST);
    const struct view_options view = {options_int(&a->opt, OPT_FA_WINDOW),
                                      options_int(&a->opt, OPT_KV_POOL),
                                      options_str(&a->opt, OPT_KV_POOL_POLICY)};
    return view_rule_make(&o->target.view, &view, e);
}

int decode_session(const struct cli_args *a, struct session_options *out, struct decode_files *f,
                   struct err *e) {
    struct session_options o = session_options_default();
    int rc = find_model(a, f, e);
    if (!rc)
        rc = read_dflash_options(a, &o.dflash, e);
    if (!rc)
        rc = read_draft_vocab(a, &o.draft_vocab, e);
    if (!rc)
        rc = decode_planned(a, &o, e);
    if (rc)
        return rc;
    if (o.target.sparse.on) // answers change
        print_note(NULL, "prompts are read sparsely: a token sees the blocks of the prompt that "
                         "matter most to it and may miss what others say; without "
                         "--sparse-prefill it sees everything");
    if (o.target.view.pool)
        print_note(NULL, "tokens of replies see a pool of pages of the text, and miss what the "
                         "others hold; without --kv-pool they see everything");
    else if (o.target.view.window)
        print_note(NULL, "tokens of replies see a window of the text and its first tokens, and "
                         "miss what lies between; without --fa-window they see everything");
    o.cpu_experts = (int)options_int(&a->opt, OPT_CPU_EXPERTS); // auto is CPU_EXPERTS_AUTO
    o.model = f->model.len ? f->model.data : options_str(&a->opt, OPT_MODEL);
    o.device = options_str(&a->opt, OPT_DEVICE);
    o.cuda_path = (enum cuda_path)options_int(&a->opt, OPT_CUDA_PATH); // choices in enum order
    o.vram_limit = options_int(&a->opt, OPT_VRAM_LIMIT);
    o.expert_profile.keep = options_flag(&a->opt, OPT_SPARK);
    o.expert_profile.vram = options_int(&a->opt, OPT_SPARK_VRAM);
    if (o.expert_profile.vram < 1024) // as others count it
        o.expert_profile.vram <<= 30;
    o.expert_profile.slots = (int)options_int(&a->opt, OPT_SPARK_SLOTS);
    o.make_plan = options_flag(&a->opt, OPT_VERBOSE) || options_flag(&a->opt, OPT_JSON) ||
                  options_flag(&a->opt, OPT_ENGINE);
    o.cpu_level = options_str(&a->opt, OPT_CPU_LEVEL);
    o.threads = (int)options_int(&a->opt, OPT_THREADS);
    put_price_folder(a, &f->prices);
    o.price_folder = f->prices.len && !f->prices.failed ? f->prices.data : NULL;
    rc = find_draft(a, &o, f, e);
    *out = o;
    return rc;
}

static int open_pair(const struct cli_args *a, struct compression *k, struct session **out,
                     struct session_options *used, struct err *e) {
    struct session_options o;
    struct decode_files files = {0};
    bool choose;
    int rc = decode_session(a, &o, &files, e);
    if (rc)
        goto out;
    o.target.max_seqs = max_sequences(a);
    o.timing = a->command->id == CLI_PROFILE;
    o.importance = a->command->id == CLI_IMATRIX;
    if (o.importance && !o.target.max_ctx) // a sequence holds one piece, and has room for a token
        o.target.max_ctx = options_int(&a->opt, OPT_PIECE) + 1;
    if (a->command->id == CLI_GENERATE ||
        a->command->id == CLI_CHAT) // a verification is the tree and its root
        o.target.max_verify = 1 + decode_budget(a, &choose);
    rc = k ? compression_share(k, a, &o, e) : 0;
    if (!rc)
        rc = session_open(out, &o, e);
    if (!rc && k)
        compression_lend(k, *out);
    if (!rc)
        decode_show_plan(a, *out);
    if (used)
        *used = o;
out:
    decode_files_fini(&files);
    return rc;
}

int decode_open(const struct cli_args *a, bool needs_draft, struct session **out, struct err *e) {
    int rc = needs_draft ? cli_need(a, OPT_MODEL, e) : 0;
    if (!rc && needs_draft)
        rc = cli_need(a, OPT_DRAFT, e);
    if (!rc)
        rc = open_pair(a, NULL, out, NULL, e);
    if (rc || !needs_draft || session_draft(*out))
        return rc;
    session_close(*out); // -d none, or auto found nothing
    *out = NULL;
    return err_set(e, ERR_USAGE, "'%s' needs a draft, and there is none: name one with -d",
                   a->command->name);
}

int decode_open_used(const struct cli_args *a, struct session **out, struct session_options *used,
                     struct err *e) {
    return open_pair(a, NULL, out, used, e);
}

int decode_open_with_scorer(const struct cli_args *a, struct compression *k, struct session **out,
                            struct err *e) {
    int rc = compression_options(k, a, e);
    if (!rc)
        rc = compression_open(k, a, e);
    return rc ? rc : open_pair(a, k, out, NULL, e);
}

int decode_prompt(const struct cli_args *a, const struct session *s, struct token_list *out,
                  struct err *e) {
    if (!options_given(&a->opt, OPT_IDS)) {
        struct str text = {0};
        int rc = cli_read_text(a, &text, e);
        token_list_bound(out, model_max_ctx(session_model(s)));
        if (!rc)
            rc = session_encode(s, text.data ? text.data : "", text.len, out, e);
        str_fini(&text);
        return rc;
    }
    if (options_given(&a->opt, OPT_PROMPT) || options_given(&a->opt, OPT_FILE))
        return err_set(e, ERR_USAGE, "--ids and a text were both given; choose one");
    size_t n;
    const int32_t *ids = options_list(&a->opt, OPT_IDS, &n);
    int64_t vocab = model_params_of(session_model(s))->vocab;
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        if (ids[i] >= vocab)
            return err_set(e, ERR_MISMATCH, "token id %d of --ids is not within 0 to %lld", ids[i],
                           (long long)vocab - 1);
        rc = token_list_push(out, ids[i], e);
    }
    return rc;
}

void decode_request(const struct cli_args *a, const struct session *s, struct request *r) {
    const struct options *o = &a->opt;
    request_init(r);
    r->max_tokens = options_int(o, OPT_MAX_TOKENS);
    r->ignore_eos = options_flag(o, OPT_IGNORE_EOS);
    r->sample = (struct sample_params){.temperature = options_float(o, OPT_TEMP),
                                       .top_k = options_int(o, OPT_TOP_K),
                                       .top_p = options_float(o, OPT_TOP_P),
                                       .min_p = options_float(o, OPT_MIN_P),
                                       .repeat = options_float(o, OPT_REPEAT_PENALTY),
                                       .frequency = options_float(o, OPT_FREQUENCY_PENALTY),
                                       .presence = options_float(o, OPT_PRESENCE_PENALTY),
                                       .window = options_int(o, OPT_PENALTY_WINDOW),
                                       .seed = (uint64_t)options_int(o, OPT_SEED)};
    decode_guessing(a, s, r);
}

int decode_constraint(const struct cli_args *a, const struct session *s, struct constraint **out,
                      struct err *e) {
    const char *grammar = options_str(&a->opt, OPT_GRAMMAR_FILE),
               *schema = options_str(&a->opt, OPT_JSON_SCHEMA), *path = grammar ? grammar : schema;
    struct str text = {0};
    *out = NULL;
    if (grammar && schema)
        return err_set(e, ERR_USAGE, "--grammar-file and --json-schema: give one of them");
    if (!path)
        return 0;
    int rc = file_read(&text, path, STRUCTURED_BYTES, e);
    struct structured w = {.form = grammar ? STRUCTURED_GBNF : STRUCTURED_SCHEMA,
                           .text = text.data ? text.data : "",
                           .n = text.len};
    if (!rc && structured_make(session_structured(s), &w, out, e))
        rc = err_prefix(e, "%s", path);
    str_fini(&text);
    return rc;
}

void decode_guessing(const struct cli_args *a, const struct session *s, struct request *r) {
    const struct options *o = &a->opt;
    r->how = options_given(o, OPT_SPECULATE) ? (enum speculate)options_int(o, OPT_SPECULATE)
                                             : SPECULATE_AUTO; // the choices are in enum order
    if (r->how == SPECULATE_AUTO)
        r->how = speculate_auto(session_draft(s) != NULL);
    r->tree.budget = decode_budget(a, &r->auto_budget);
    r->tree.k = (int)options_int(o, OPT_BRANCH);
    r->tree.min_prob = options_float(o, OPT_MIN_PROB);
    if (r->auto_budget && !options_given(o, OPT_MIN_PROB))
        r->tree.min_prob = 0; // likely enough is what pays
    r->tree.chain_seed = options_flag(o, OPT_CHAIN_SEED);
    r->no_draft_noise = options_flag(o, OPT_NO_DRAFT_NOISE);
    r->no_lookup = options_flag(o, OPT_NO_LOOKUP);
}

void decode_text(const struct session *s, const int32_t *ids, int64_t n, struct str *out) {
    const struct tokenizer *t = session_tokenizer(s);
    if (!t)
        return;
    struct utf8_stream stream = {0};
    struct str piece = {0};
    for (int64_t i = 0; i < n; i++)
        tokenizer_decode(t, ids[i], false, &piece);
    if (piece.failed)
        out->failed = true;
    else if (piece.len)
        utf8_stream_push(&stream, piece.data, piece.len, out);
    utf8_stream_end(&stream, out);
    str_fini(&piece);
}

double decode_ms(const struct step_times *m) {
    return m->draft + m->verify + m->sample + m->commit;
}

void decode_json_ms(struct json_writer *w, double load, const struct step_times *ms, double total) {
    const struct {
        const char *name;
        double ms;
    } phases[] = {{"load", load},         {"prompt", ms->prompt}, {"draft", ms->draft},
                  {"verify", ms->verify}, {"sample", ms->sample}, {"commit", ms->commit},
                  {"total", total}};
    jw_begin(w, '{');
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
        jw_key_num(w, phases[i].name, (double)(int64_t)(phases[i].ms * 1000 + 0.5) / 1000);
    jw_end(w, '}');
}

static void put_json_experts(struct json_writer *w, const struct session *s) {
    const struct expert_use u = session_experts(s);
    if (!u.slots)
        return;
    const struct {
        const char *name;
        int64_t value;
    } parts[] = {{"slots", u.slots},
                 {"experts", u.experts},
                 {"slot_bytes", u.slot_bytes},
                 {"hits", (int64_t)u.count.hits},
                 {"misses", (int64_t)u.count.misses},
                 {"bytes", (int64_t)u.count.bytes},
                 {"evictions", (int64_t)u.count.evictions},
                 {"ahead", (int64_t)u.count.ahead},
                 {"slots_lent", u.lent.slots},
                 {"loans", (int64_t)u.lent.loans},
                 {"slots_given", (int64_t)u.lent.given}};
    jw_key_begin(w, "experts", '{');
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        jw_key_int(w, parts[i].name, parts[i].value);
    jw_end(w, '}');
}

void decode_json_memory(struct json_writer *w, const struct session *s) {
    const struct memory_plan *p = session_plan(s);
    struct exec *x = model_exec(session_model(s));
    struct exec_memory m;
    exec_memory_of(x, &m);
    jw_key_str(w, "device", exec_label(x));
    if (!p)
        return;
    const struct {
        const char *name;
        int64_t bytes;
    } parts[] = {{"weights", p->weights},
                 {"draft", p->draft},
                 {"kv_per_1k", kv_needs_per_1k(&p->kv)},
                 {"kv_windows", kv_needs_windows(&p->kv, p->context, p->step)},
                 {"kv", plan_kv(p, p->context)},
                 {"experts", p->experts},
                 {"experts_resident", p->resident},
                 {"experts_host", plan_host_experts(p)},
                 {"experts_cpu", p->cpu_experts},
                 {"expert_layers", p->expert_layers},
                 {"expert_layers_cpu", p->cpu_layers},
                 {"state", p->state},
                 {"workspace", p->scratch},
                 {"planned", plan_total(p)},
                 {"context", p->context},
                 {"lent_rows", p->lent_rows},
                 {"available", p->available},
                 {"used", m.used},
                 {"peak", m.peak},
                 {"free", m.free},
                 {"total", m.total}};
    jw_key_begin(w, "memory", '{');
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        jw_key_int(w, parts[i].name, parts[i].bytes);
    jw_end(w, '}');
    put_json_experts(w, s);
}

void decode_show_peak(const struct cli_args *a, const struct session *s) {
    struct exec_memory m;
    struct exec *x = model_exec(session_model(s));
    exec_memory_of(x, &m);
    if (exec_is_device(x) && options_flag(&a->opt, OPT_VERBOSE) && !options_flag(&a->opt, OPT_JSON))
        fprintf(stderr, "memory taken on %s: %.2f GiB at most, %.2f GiB now; %.2f GiB free\n",
                exec_label(x), (double)m.peak / (1 << 30), (double)m.used / (1 << 30),
                (double)m.free / (1 << 30));
}

void decode_json_hash(struct json_writer *w, uint64_t hash) {
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    jw_key_str(w, "logit_hash", text);
}

void decode_json_ids(struct json_writer *w, const char *key, const int32_t *ids, int64_t n) {
    jw_key_begin(w, key, '[');
    for (int64_t i = 0; i < n; i++)
        jw_int(w, ids[i]);
    jw_end(w, ']');
}
