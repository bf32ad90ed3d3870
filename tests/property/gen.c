// SPDX-License-Identifier: Apache-2.0
// The decoding loop of the exactness test; see gen.h. A member has its tokens: prompt and what
// was chosen. Whenever its sequence holds fewer than it should, because it has just begun or was
// cut back, restored or exchanged, pieces of them are run in the passes in which others decode.
#include "property/gen.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/num.h"
#include "models/checkpoint.h"
#include "models/model_impl.h"
#include "spec/constraint/masks.h"
#include "state/kv_impl.h"
#include "support/bytes.h"

struct player {
    struct gen_member g;
    struct member m;
    struct sequence *seq;
    struct drafter *drafters[STEP_MAX_DRAFTERS]; // its own
    int n_drafters;
    struct budget *budget; // NULL: a fixed one
    struct checkpoint *saved;
    struct rng rng;
    int32_t known[GEN_PROMPT_MAX + GEN_MAX]; // prompt, then what was chosen
    int64_t before;                          // committed tokens before the step
    int32_t called[GEN_MAX + 1];             // tokens that the stop was requested
    int64_t n_called;
    int rests; // steps to come without it
    bool present;
};

struct group {
    struct player *p; // [n]
    int n;
    struct step *step;
    struct drafter *drafts[PRICE_DRAFTS]; // of all that use them, or NULL
    struct price *price;
    struct member feeder; // runs other tokens on a sequence that is to be thrown away
    struct features *f;
    struct rng rng;
};

// A stop that records its calls, as one of strings does.
static bool is_stop(void *arg, int32_t token) {
    struct player *p = arg;
    const struct gen_request *r = p->g.r;
    int32_t before = p->n_called ? p->called[p->n_called - 1] : -1;
    if (p->n_called <= GEN_MAX)
        p->called[p->n_called++] = token;
    return token == r->stop && (r->stop_after < 0 || before == r->stop_after);
}

// Runs tokens on a sequence outside of all groups.
static int feed(struct group *g, struct sequence *seq, const int32_t *tokens, int64_t n,
                struct err *e) {
    struct member *m = &g->feeder;
    int rc = 0;
    m->seq = seq;
    m->phase = MEMBER_PROMPT;
    m->choose = false;
    for (int64_t done = 0; done < n && !rc; done += m->n_piece) {
        m->piece = tokens + done;
        m->n_piece = min_i64(n - done, sequence_view_end(seq) - sequence_len(seq));
        rc = step_run(g->step, &m, 1, e);
        if (!rc && m->rc)
            *e = m->err;
        rc = rc ? rc : m->rc;
    }
    return rc;
}

// How many tokens the sequence must hold before the next one can be chosen.
static int64_t target_of(const struct player *p) {
    const struct gen_result *out = p->g.out;
    return p->g.r->n_prompt + (out->n ? out->n - 1 : 0);
}

// Other tokens after those that are there, and back again.
static int go_astray(struct group *g, struct player *p, struct err *e) {
    int64_t len = sequence_len(p->seq), n = 1 + rng_below(&p->rng, 5), kept;
    if (p->g.r->n_prompt <= n || len + n >= model_max_ctx(p->g.w->model))
        return 0;
    int rc = feed(g, p->seq, p->known + p->g.r->n_prompt - n, n, e);
    if (!rc)
        rc = sequence_truncate(p->seq, len, &kept, e);
    g->f->count[FEATURE_ASTRAY]++;
    return rc;
}

static int cut_back(struct group *g, struct player *p, struct err *e) {
    int64_t len = sequence_len(p->seq), back = rng_below(&p->rng, 40), kept;
    int rc = sequence_truncate(p->seq, back < len ? len - back : 0, &kept, e);
    if (!rc && kept != sequence_len(p->seq))
        rc = err_set(e, ERR_STATE, "the kept length is not the sequence's length");
    g->f->count[FEATURE_TRUNCATED]++;
    g->f->count[FEATURE_CUT_INSIDE] += !rc && kept < len && kept % 32;
    return rc || rng_below(&p->rng, 2) ? rc : go_astray(g, p, e);
}

static int save(struct player *p, struct err *e) {
    checkpoint_destroy(p->saved);
    p->saved = NULL;
    return sequence_checkpoint(p->seq, &p->saved, e);
}

// Puts a checkpoint that was written and read in place of the one that is there.
static int carry(struct group *g, struct player *p, struct err *e) {
    struct model *m = p->g.w->model;
    struct bytes b = {0};
    struct checkpoint *other = NULL;
    struct record_sink to = {.sink = bytes_sink, .arg = &b};
    int rc = model_checkpoint_write(m, p->saved, NULL, &to, e);
    struct record_source from = {bytes_source, &b, (int64_t)b.n};
    if (!rc)
        rc = model_checkpoint_read(m, &other, NULL, &from, e);
    free(b.data);
    if (rc)
        return rc;
    checkpoint_destroy(p->saved);
    p->saved = other;
    g->f->count[FEATURE_CARRIED]++;
    return 0;
}

// Goes back to the checkpoint, sometimes in a sequence that is new.
static int restore(struct group *g, struct player *p, struct err *e) {
    int rc = checkpoint_len(p->saved) / 32 % 2 ? carry(g, p, e) : 0;
    if (!rc && rng_below(&p->rng, 2)) {
        sequence_destroy(p->seq);
        p->seq = NULL;
        rc = model_sequence(p->g.w->model, &p->seq, e);
    }
    if (!rc)
        rc = sequence_restore(p->seq, p->saved, e);
    if (!rc && sequence_len(p->seq) != checkpoint_len(p->saved))
        rc = err_set(e, ERR_STATE, "the restored length is not the checkpoint's");
    g->f->count[FEATURE_RESTORED]++;
    return rc;
}

// Goes on with a copy after the original went another way.
static int fork_off(struct group *g, struct player *p, struct err *e) {
    struct sequence *copy = NULL;
    int64_t len = sequence_len(p->seq), n = 1 + rng_below(&p->rng, 5), kept;
    int rc = sequence_fork(p->seq, &copy, e);
    if (rc)
        return rc;
    if (rng_below(&p->rng, 2))
        rc = sequence_truncate(p->seq, len / 2, &kept, e);
    if (!rc && len + n < model_max_ctx(p->g.w->model))
        rc = feed(g, p->seq, p->known, n < len ? n : len, e);
    sequence_destroy(p->seq);
    p->seq = copy;
    g->f->count[FEATURE_FORKED]++;
    return rc;
}

static int operate(struct group *g, struct player *p, struct err *e) {
    int rc = 0;
    switch (rng_below(&p->rng, 16)) {
    case 0:
        rc = cut_back(g, p, e);
        break;
    case 1:
        rc = save(p, e);
        break;
    case 2:
        rc = p->saved ? restore(g, p, e) : 0;
        break;
    case 3:
        rc = fork_off(g, p, e);
        break;
    default:
        break;
    }
    size_t bytes = rc ? 0 : (size_t)sequence_len(p->seq) * sizeof *p->known;
    if (bytes && memcmp(sequence_tokens(p->seq), p->known, bytes) != 0)
        rc = err_set(e, ERR_STATE, "the kept tokens are not those that were there");
    return rc;
}

static void hash_tree(uint64_t *hash, const struct ddtree *t) {
    *hash = rng_hash(*hash, (uint64_t)t->n, 0, 0);
    for (int i = 1; i < t->n; i++)
        *hash = rng_hash(*hash, (uint64_t)t->token[i], (uint64_t)t->parent[i], 0);
}

// Lookup alone, by price: what `auto` is without a draft.
static bool is_priced(const struct gen_way *w) {
    return w->choose && w->n_kinds == 1 && w->kinds[0] == DRAFT_LOOKUP;
}

// The only draft that guesses for it, or NULL.
static const struct draft *only_draft(const struct player *p) {
    const struct draft *only = NULL;
    for (int i = 0; i < p->g.w->n_drafts; i++) {
        if (!(p->m.c.drafts >> i & 1))
            continue;
        if (only)
            return NULL;
        only = p->g.w->draft[i];
    }
    return only;
}

// Trees of a draft whose guesses depend on the path.
static void count_path(struct features *f, const struct player *p) {
    const struct ddtree *t = &p->m.tree;
    const struct draft *d = only_draft(p);
    bool branched = false;
    if (!d || draft_traits(d).depends != DRAFT_BY_PATH)
        return;
    for (int i = 2; i < t->n; i++)
        branched = branched || t->parent[i] != i - 1;
    f->count[FEATURE_BLOCK_TREE] += branched;
    f->count[FEATURE_BLOCK_PATH] += p->m.walk.count > 1;
}

// Which drafters have guesses in the tree, by what else guesses, and whether some are forbidden.
static void count_drafters(struct features *f, const struct player *p) {
    const struct ddtree *t = &p->m.tree;
    const struct gen_way *w = p->g.w;
    unsigned by = 0, forms = 0;
    int first = w->n_kinds == 1 && (only_draft(p) || w->kinds[0] == DRAFT_LOOKUP) ? FEATURE_ALONE
                                                                                  : FEATURE_BESIDE;
    for (int i = 1; i < t->n; i++)
        by |= t->origin[i];
    for (int i = 0; i < w->n_drafts; i++)
        if (tree_drafts(by) & p->m.c.drafts & 1u << i)
            forms |= drafter_forms(w->draft[i]);
    for (int i = 0; i < w->n_kinds; i++)
        if (w->kinds[i] == DRAFT_LOOKUP && by & TREE_BY_CHAIN)
            forms |= 1u << DRAFTER_LOOKUP;
    for (int i = 0; i < DRAFTER_FORMS; i++) {
        f->count[first + i] += forms >> i & 1;
        f->count[FEATURE_LIMITED + i] += forms >> i & 1 && p->g.r->automaton;
    }
}

// Of several drafts: trees that have guesses of each alone, and paths through some.
static void count_several(struct features *f, const struct player *p) {
    const struct ddtree *t = &p->m.tree;
    const struct walk *w = &p->m.walk;
    unsigned tree = 0, path = 0;
    int alone = 0, on_path = 0;
    for (int i = 1; i < t->n; i++)
        tree |= 1u << tree_drafts(t->origin[i]);
    for (int i = 1; i < w->count; i++)
        path |= tree_drafts(t->origin[w->path[i]]);
    for (int i = 0; i < PRICE_DRAFTS; i++) {
        alone += (tree >> (1 << i) & 1) != 0;
        on_path += (path >> i & 1) != 0;
    }
    f->count[FEATURE_SEVERAL_TREE] += alone > 1;
    f->count[FEATURE_SEVERAL_PATH] += on_path > 1;
    f->count[FEATURE_THREE_TREE] += alone > 2;
}

static void count_step(struct features *f, int64_t before, const struct ddtree *t,
                       const struct walk *w) {
    int64_t after = before + w->count;
    int deepest = 0;
    for (int i = 0; i < t->n; i++)
        deepest = t->depth[i] > deepest ? t->depth[i] : deepest;
    f->count[FEATURE_ACCEPT + w->count]++;
    f->count[FEATURE_BASE_CROSSING] += w->count > 1 && before / 32 != after / 32;
    f->count[FEATURE_PAGE_CROSSING] += w->count > 1 && before / 64 != after / 64;
    f->count[FEATURE_SPLIT_TREE] += before / 32 != (before + deepest) / 32;
    f->count[FEATURE_END + w->end] += w->count > 1;
    if (w->end == END_STOP)
        f->count[FEATURE_STOP_INSIDE] +=
            ddtree_child(t, w->path[w->count - 1], w->chosen[w->count - 1]) >= 0;
    for (int i = 1; i < w->count; i++) {
        int first = w->path[i - 1] + 1; // the first child in index order
        while (t->parent[first] != w->path[i - 1])
            first++;
        if (w->path[i] != first) {
            f->count[FEATURE_BRANCHED]++;
            break;
        }
    }
}

static struct walk_limits limits_of(struct player *p) {
    const struct gen_request *r = p->g.r;
    return (struct walk_limits){.tokens_left = r->max_tokens - p->g.out->n,
                                .context_left = r->max_ctx - r->n_prompt - p->g.out->n,
                                .stop = is_stop,
                                .stop_arg = p};
}

// What of a pass is left for pieces: rows, and beyond each member's own, rows that decide.
struct left {
    int64_t rows, sampled;
};

// What the player does in the next step.
static void prepare(struct player *p, struct left *free) {
    const struct gen_request *r = p->g.r;
    struct member *m = &p->m;
    int64_t len = sequence_len(p->seq), left = target_of(p) - len;
    m->seq = p->seq;
    m->limits = limits_of(p);
    p->before = len;
    m->phase = left > 0 ? MEMBER_PROMPT : MEMBER_DECODE;
    m->root = p->known[len];
    m->piece = p->known + len;
    m->n_piece = left < p->g.w->chunk ? left : p->g.w->chunk;
    m->n_piece = m->n_piece < free->rows ? m->n_piece : free->rows;
    m->n_piece = min_i64(m->n_piece, sequence_view_end(p->seq) - len);
    m->n_known = 0;
    if (left > 0 && r->prompt_logprobs && len < r->n_prompt - 1) {
        m->n_piece = m->n_piece < free->sampled + 1 ? m->n_piece : free->sampled + 1;
        m->n_known = r->n_prompt - 1 - len < m->n_piece ? r->n_prompt - 1 - len : m->n_piece;
        free->sampled -= m->n_piece - 1;
    }
    m->choose = m->n_piece == left && p->g.out->n == 0;
    free->rows -= left > 0 ? m->n_piece : 0;
}

static uint64_t hash_logprobs(uint64_t hash, const struct sample_logprobs *p) {
    hash = hash_bytes(&p->chosen, sizeof p->chosen, hash);
    hash = hash_bytes(p->ids, (size_t)p->n * sizeof *p->ids, hash);
    return hash_bytes(p->logp, (size_t)p->n * sizeof *p->logp, hash);
}

// Log-probabilities of the prompt must be the same again when its tokens are run again.
static int take_known(struct group *g, const struct player *p, bool trees, struct err *e) {
    for (int64_t i = 0; i < p->m.n_known; i++) {
        uint64_t *at = &p->g.out->prompt[p->before + 1 + i], now = hash_logprobs(1, &p->m.known[i]);
        if (*at && *at != now)
            return err_set(e, ERR_STATE, "a token of a prompt has got another log-probability");
        g->f->count[FEATURE_KNOWN_AGAIN] += *at != 0;
        g->f->count[FEATURE_KNOWN] += trees;
        *at = now;
    }
    return 0;
}

// Where the automaton is after the tokens chosen so far.
static int state_of(const struct player *p) {
    int state = 0;
    for (int64_t i = 0; i < p->g.out->n; i++)
        state = automaton_next(p->g.r->automaton, state, p->g.out->ids[i]);
    return state;
}

// What the automaton forbids must neither be guessed nor chosen.
static int check_allowed(struct group *g, const struct player *p, struct err *e) {
    const struct automaton *a = p->g.r->automaton;
    const struct ddtree *t = &p->m.tree;
    const struct walk *w = &p->m.walk;
    int at[TREE_MAX_ROWS];
    bool only = true; // so far on the path
    at[0] = a ? state_of(p) : 0;
    for (int i = 1; a && i < t->n; i++) {
        if (!automaton_allows(a, at[t->parent[i]], t->token[i]))
            return err_set(e, ERR_STATE, "a guess that the automaton forbids was verified");
        at[i] = automaton_next(a, at[t->parent[i]], t->token[i]);
    }
    for (int i = 0; a && i < w->count; i++) {
        int state = at[w->path[i]];
        only = only && a->kind[state] == AUTOMATON_ONE;
        if (!automaton_allows(a, state, w->chosen[i]))
            return err_set(e, ERR_STATE, "a token that the automaton forbids was chosen");
        g->f->count[FEATURE_MASKED] += w->count > 1 && a->kind[state] != AUTOMATON_FREE;
        g->f->count[FEATURE_FORCED] += w->count > 1 && a->kind[state] == AUTOMATON_ONE;
        g->f->count[FEATURE_FORCED_PATH] += only && i == 1;
    }
    if (a && w->count && only != (p->m.hash == p->g.out->hash))
        return err_set(e, ERR_STATE, "rows of the only allowed tokens were hashed, or others not");
    return 0;
}

// A reply that its automaton ends: the tokens so far are all there is.
static int take_failure(struct group *g, struct player *p, struct err *e) {
    if (!p->g.r->automaton || p->m.rc == ERR_USAGE || p->m.walk.count) {
        *e = p->m.err;
        return p->m.rc;
    }
    p->g.out->failed = true;
    p->g.out->hash = p->m.hash;
    g->f->count[FEATURE_DEAD] += p->g.w->n_kinds > 0;
    return 0;
}

// Takes over what the step did for the player.
static int take(struct group *g, struct player *p, bool trees, struct err *e) {
    const struct walk *w = &p->m.walk;
    struct gen_result *out = p->g.out;
    bool piece = p->m.phase == MEMBER_PROMPT;
    if (p->m.rc)
        return take_failure(g, p, e);
    if (check_allowed(g, p, e))
        return ERR_STATE;
    if (sequence_len(p->seq) != p->before + (piece ? p->m.n_piece : w->count))
        return err_set(e, ERR_STATE, "a step committed another number of rows than it says");
    if (!piece) {
        hash_tree(&out->trees, &p->m.tree);
        count_step(g->f, p->before, &p->m.tree, w);
        count_path(g->f, p);
        count_drafters(g->f, p);
        count_several(g->f, p);
        g->f->count[FEATURE_VIEWED] +=
            w->count > 1 && view_skipped(&p->seq->spec.view, p->before) > 0;
        g->f->count[FEATURE_PRICED_TREE] += p->m.tree.n > 1 && is_priced(p->g.w);
    }
    if (piece && take_known(g, p, trees, e))
        return ERR_STATE;
    if (w->count == 0)
        return 0;
    for (int i = 0; p->g.r->n_best >= 0 && i < w->count; i++) {
        out->logprobs = hash_logprobs(out->logprobs, &p->m.logprobs[i]);
        g->f->count[FEATURE_LOGPROBS] += p->m.tree.n > 1;
    }
    memcpy(out->ids + out->n, w->chosen, (size_t)w->count * sizeof *w->chosen);
    memcpy(p->known + p->g.r->n_prompt + out->n, w->chosen, (size_t)w->count * sizeof *w->chosen);
    out->n += w->count;
    out->end = w->end;
    out->hash = p->m.hash;
    if (p->n_called != out->n || memcmp(p->called, out->ids, (size_t)out->n * sizeof *out->ids))
        return err_set(e, ERR_STATE, "the stop was asked for other tokens than were chosen");
    g->f->count[FEATURE_STOP_AFTER] +=
        w->end == END_STOP && p->g.r->stop_after >= 0 && w->count > 1;
    return 0;
}

static int join(struct group *g, struct player *p, struct err *e) {
    const struct gen_way *w = p->g.w;
    struct automaton *a = p->g.r->automaton;
    struct member_config c = {.sample = p->g.r->sample,
                              .constraint = a ? a->constraint : NULL,
                              .tree = w->tree,
                              .share_noise = w->share_noise,
                              .hash = true,
                              .logprobs = p->g.r->n_best >= 0 || p->g.r->prompt_logprobs,
                              .n_best = p->g.r->n_best < 0 ? 0 : p->g.r->n_best};
    struct draft_config d = w->oracle;
    d.model = w->model;
    d.max_k = a ? masks_wanted(w->tree.k) : w->tree.k;
    p->rng = (struct rng){w->seed};
    p->present = true;
    p->n_called = 0;
    *p->g.out = (struct gen_result){.end = END_NONE};
    memcpy(p->known, p->g.r->prompt, (size_t)p->g.r->n_prompt * sizeof *p->known);
    int rc = w->choose ? budget_create(&p->budget, e) : 0;
    if (!rc && p->budget)
        budget_begin(p->budget, NULL);
    c.budget = p->budget;
    g->f->count[FEATURE_CHOSEN] += w->choose;
    g->f->count[FEATURE_PRICED] += is_priced(w);
    for (int i = 0; i < w->n_kinds && !rc; i++) {
        c.drafts |= w->kinds[i] == DRAFT_MODEL ? w->drafts : 0;
        if (w->kinds[i] == DRAFT_MODEL)
            continue;
        rc = drafter_create(&p->drafters[p->n_drafters], w->kinds[i], &d, e);
        c.drafters[p->n_drafters] = p->drafters[p->n_drafters];
        p->n_drafters += !rc;
    }
    c.n_drafters = p->n_drafters;
    if (!rc)
        rc = member_init(&p->m, w->model, &c, e);
    return rc ? rc : model_sequence(w->model, &p->seq, e);
}

// What was read of the sequence's tokens, whatever happened to it on the way.
static void take_hidden(const struct player *p) {
    const struct tap_reader *t = p->g.w->hidden;
    struct gen_result *out = p->g.out;
    out->n_hidden = t ? sequence_len(p->seq) : 0;
    if (out->n_hidden)
        memcpy(out->hidden, tap_reader_seen(t, p->seq),
               (size_t)out->n_hidden * sizeof *out->hidden);
}

static void leave(struct player *p) {
    p->present = false;
    member_fini(&p->m);
    sequence_destroy(p->seq);
    checkpoint_destroy(p->saved);
    budget_destroy(p->budget);
    for (int i = 0; i < p->n_drafters; i++)
        drafter_destroy(p->drafters[i]);
    p->seq = NULL;
    p->saved = NULL;
    p->budget = NULL;
    p->n_drafters = 0;
}

// Whether the player takes part in this step. It may join, leave, rest or be operated on first.
static int plays(struct group *g, struct player *p, int step, bool *yes, struct err *e) {
    int rc = 0;
    *yes = false;
    if (!p->present && p->g.joins == step)
        rc = join(g, p, e);
    if (rc || !p->present)
        return rc;
    if (p->g.leaves == step) {
        g->f->count[FEATURE_CANCELLED]++;
        leave(p);
        return 0;
    }
    if (p->g.parks && p->rests == 0 && rng_below(&g->rng, 12) == 0) {
        g->f->count[FEATURE_PARKED]++;
        p->rests = 1 + (int)rng_below(&g->rng, 6);
    }
    if (p->rests > 0) {
        p->rests--;
        return 0;
    }
    *yes = true;
    bool whole = sequence_len(p->seq) == target_of(p);
    return p->g.w->surgery && whole && p->g.out->n > 0 ? operate(g, p, e) : 0;
}

// Some pages leave the device, where they may.
static void move_pages(struct group *g, const struct model *m) {
    for (int i = 0; i < m->n_groups; i++) {
        struct kv_pool *p = m->groups[i].pool;
        while (p->places && rng_below(&g->rng, 2) && p->moving->give_up(p)) {
        }
        g->f->count[FEATURE_STREAMED] += m->groups[i].stream && m->groups[i].stream->on;
    }
}

// Whether there were trees in the pass.
static bool count_pass(struct group *g, struct member *const *in, int n) {
    int pieces = 0, trees = 0, roots = 0;
    for (int i = 0; i < n; i++) {
        pieces += in[i]->phase == MEMBER_PROMPT;
        trees += in[i]->phase == MEMBER_DECODE && in[i]->tree.n > 1;
        roots += in[i]->phase == MEMBER_DECODE && in[i]->tree.n == 1;
    }
    g->f->count[FEATURE_MIXED] += pieces > 0 && trees > 0;
    g->f->count[FEATURE_MIXED_PLAIN] += roots > 0 && trees > 0;
    g->f->count[FEATURE_WIDE] += n >= 8;
    return trees > 0;
}

static int run_step(struct group *g, int step, int *left, struct err *e) {
    struct member *in[GEN_MEMBERS];
    struct player *who[GEN_MEMBERS];
    struct left free = {model_max_rows(g->p[0].g.w->model), step_max_verify(g->step) - GEN_MEMBERS};
    int n = 0, rc = 0;
    bool trees = false;
    *left = 0;
    for (int i = 0; i < g->n && !rc; i++) {
        bool yes;
        rc = plays(g, &g->p[i], step, &yes, e);
        *left += g->p[i].present || g->p[i].g.joins > step;
        if (!rc && yes && free.rows > GEN_MEMBERS) {
            prepare(&g->p[i], &free);
            who[n] = &g->p[i];
            in[n++] = &g->p[i].m;
        }
    }
    if (!rc && n) {
        move_pages(g, g->p[0].g.w->model);
        rc = step_run(g->step, in, n, e);
    }
    if (!rc && n)
        trees = count_pass(g, in, n);
    for (int i = 0; i < n && !rc; i++) {
        rc = take(g, who[i], trees, e);
        if (rc || (who[i]->g.out->end == END_NONE && !who[i]->g.out->failed))
            continue;
        take_hidden(who[i]);
        leave(who[i]);
    }
    return rc;
}

static int group_init(struct group *g, const struct gen_way *w, struct err *e) {
    struct step_config c = {.model = w->model, .max_members = g->n};
    struct member_config feeder = {.tree = {.k = 1}};
    const struct price_drafts prices = {.n = PRICE_DRAFTS};
    int rc = 0;
    sample_params_init(&feeder.sample);
    for (int i = 0; i < w->n_drafts && !rc; i++) {
        struct draft_config d = {
            .model = w->model, .draft = w->draft[i], .max_k = TREE_MAX_K, .max_members = g->n};
        rc = drafter_create(&g->drafts[i], DRAFT_MODEL, &d, e);
        c.drafts[c.n_drafts++] = g->drafts[i];
    }
    if (!rc)
        rc = price_create(&g->price, PRICE_CPU, NULL, &prices, e);
    c.price = g->price;
    if (!rc)
        rc = member_init(&g->feeder, w->model, &feeder, e);
    return rc ? rc : step_create(&g->step, &c, e);
}

int gen_run_many(struct gen_member *members, int n, uint64_t seed, struct features *f,
                 struct err *e) {
    struct group g = {.n = n, .f = f, .rng = {seed}};
    g.p = calloc((size_t)n, sizeof *g.p);
    int rc = g.p ? 0 : err_set(e, ERR_MEMORY, "no memory for %d members", n);
    for (int i = 0; i < n && !rc; i++)
        g.p[i].g = members[i];
    if (!rc)
        rc = group_init(&g, members[0].w, e);
    for (int step = 0, left = 1; left && !rc; step++)
        rc = run_step(&g, step, &left, e);
    for (int i = 0; i < n && g.p; i++)
        leave(&g.p[i]);
    step_destroy(g.step);
    member_fini(&g.feeder);
    price_destroy(g.price);
    for (int i = 0; i < PRICE_DRAFTS; i++)
        drafter_destroy(g.drafts[i]);
    free(g.p);
    return rc;
}

int gen_run(const struct gen_request *r, const struct gen_way *w, struct gen_result *out,
            struct features *f, struct err *e) {
    struct gen_member one = {.r = r, .w = w, .leaves = -1, .out = out};
    return gen_run_many(&one, 1, w->seed, f, e);
}
