// SPDX-License-Identifier: Apache-2.0
// A state is free text with the bytes that may still become a marker, or
// a state of one of the grammars. Masks are made when they are looked at and stay with the state;
// states that are dropped are kept for the next ones, with the room for their masks.
#include "spec/constraint/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

enum { MAX_FREE_STATES = 64, HINT_BYTES = 48, LEADS = 2 };

enum phase {
    PHASE_FREE,    // text without rules
    PHASE_GRAMMAR, // of part `part`
    PHASE_OVER,    // after an end token: anything may follow
};

struct constraint_state {
    struct constraint_state *next; // among the free ones
    enum phase phase;
    bool first;     // the first token of a reply that may open a block
    bool lead;      // blanks may come before the grammar begins
    bool fulfilled; // a trigger's grammar was completed
    int part;
    struct grammar_state *g;
    bool gone;  // free text: some of it is not in the tail any more
    int n_tail; // free text: its last bytes
    char tail[GRAMMAR_MARKER_BYTES];
    bool hinted, looked;
    enum constraint_hint hint;
    int32_t token; // of the hint
    struct constraint_view view;
    uint32_t *bits; // [words], NULL: not made yet
};

// A grammar and where it begins.
struct part {
    struct grammar_matcher *m;
    size_t n; // of its marker; 0: of the whole reply
    char marker[GRAMMAR_MARKER_BYTES];
    bool rest, first;
};

struct guide {
    const struct tokenizer *t;
    int64_t vocab, words;
    int n_parts;
    struct part part[GRAMMAR_TRIGGERS + 1];
    int whole;             // the part of the whole reply; -1: none
    int32_t opening;       // a token, or -1
    int32_t lead[LEADS];   // tokens of line ends that may stand before a grammar; -1: none
    uint32_t *no_end;      // [words] all tokens but those that end; NULL: not required
    struct str text;       // of the token at hand, after the tail
    struct token_list ids; // of a hint
    struct constraint_state *free_states;
    int n_free_states;
};

static void state_free(struct constraint_state *s) {
    free(s->bits);
    free(s);
}

static void guide_destroy(void *self) {
    struct guide *q = self;
    for (struct constraint_state *s = q->free_states, *next; s; s = next) {
        next = s->next;
        state_free(s);
    }
    for (int i = 0; i < q->n_parts; i++)
        grammar_matcher_destroy(q->part[i].m);
    str_fini(&q->text);
    token_list_fini(&q->ids);
    free(q->no_end);
    free(q);
}

// A state without rules, to be filled.
static int make_state(struct guide *q, struct constraint_state **out, struct err *e) {
    struct constraint_state *s = q->free_states;
    uint32_t *bits = s ? s->bits : NULL;
    if (s) {
        q->free_states = s->next;
        q->n_free_states--;
    } else {
        s = malloc(sizeof *s);
    }
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for a state of a grammar");
    *s = (struct constraint_state){.part = -1, .token = -1, .bits = bits};
    *out = s;
    return 0;
}

static void guide_drop(void *self, struct constraint_state *s) {
    struct guide *q = self;
    if (s->g)
        grammar_state_unref(q->part[s->part].m, s->g);
    if (q->n_free_states == MAX_FREE_STATES) {
        state_free(s);
        return;
    }
    s->next = q->free_states;
    q->free_states = s;
    q->n_free_states++;
}

// Begins a part: g is its state, the state's own from now on.
static void enter_part(struct constraint_state *s, int part, struct grammar_state *g, bool lead) {
    s->phase = PHASE_GRAMMAR;
    s->part = part;
    s->g = g;
    s->lead = lead;
}

static int guide_begin(void *self, struct constraint_state **out, struct err *e) {
    struct guide *q = self;
    struct constraint_state *s = NULL;
    int rc = make_state(q, &s, e);
    if (rc)
        return rc;
    if (q->whole < 0) {
        *out = s;
        return 0;
    }
    struct grammar_state *g = grammar_start(q->part[q->whole].m);
    if (!g) {
        guide_drop(q, s);
        return err_set(e, ERR_MEMORY, "no memory for the first state of a grammar");
    }
    enter_part(s, q->whole, g, false);
    s->first = q->opening >= 0;
    *out = s;
    return 0;
}

static bool is_lead(const struct guide *q, int32_t token) {
    return token >= 0 && (token == q->lead[0] || token == q->lead[1]);
}

static size_t count_blanks(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && (s[i] == ' ' || s[i] == '\n' || s[i] == '\r' || s[i] == '\t'))
        i++;
    return i;
}

// Whether a part begins inside of text[n], of which the last `fresh` bytes are new; then the state
// is there. Markers that end earlier come first.
static int find_marker(struct guide *q, struct constraint_state *s, const char *text, size_t n,
                       size_t fresh, struct err *e) {
    bool gone = s->gone;
    for (size_t end = n - fresh + 1; end <= n; end++) {
        for (int i = 0; i < q->n_parts; i++) {
            const struct part *p = &q->part[i];
            struct grammar_state *first, *g = NULL;
            if (!p->n || p->n > end || memcmp(text + end - p->n, p->marker, p->n) != 0 ||
                (p->first && (gone || count_blanks(text, end - p->n) < end - p->n)))
                continue;
            size_t rest = n - end;
            if (count_blanks(text + end, rest) == rest)
                rest = 0;
            first = grammar_start(p->m);
            if (!first)
                return err_set(e, ERR_MEMORY, "no memory for the first state of a grammar");
            int rc = grammar_accept_bytes(p->m, first, text + n - rest, rest, &g, e);
            grammar_state_unref(p->m, first);
            if (rc < 0)
                return rc;
            if (rc == 0)
                continue;
            enter_part(s, i, g, end == n);
            return 0;
        }
    }
    return 0;
}

static int next_free(struct guide *q, const struct constraint_state *from, int32_t token,
                     struct constraint_state *s, struct err *e) {
    struct str *text = &q->text;
    s->fulfilled = from->fulfilled;
    s->gone = from->gone;
    str_clear(text);
    str_append(text, from->tail, (size_t)from->n_tail);
    tokenizer_decode(q->t, token, true, text);
    if (text->failed) {
        str_fini(text);
        return err_set(e, ERR_MEMORY, "no memory for the text of a token");
    }
    size_t n = text->len, fresh = n - (size_t)from->n_tail;
    int rc = fresh ? find_marker(q, s, text->data, n, fresh, e) : 0;
    if (rc || s->phase == PHASE_GRAMMAR)
        return rc;
    s->n_tail = (int)min_size(n, GRAMMAR_MARKER_BYTES);
    s->gone |= n > GRAMMAR_MARKER_BYTES;
    memcpy(s->tail, text->data ? text->data + n - (size_t)s->n_tail : "", (size_t)s->n_tail);
    return 0;
}

static int next_grammar(struct guide *q, const struct constraint_state *from, int32_t token,
                        struct constraint_state *s, struct err *e) {
    const struct part *p = &q->part[from->part];
    struct grammar_state *g = NULL;
    s->fulfilled = from->fulfilled;
    if (from->first && token == q->opening) {
        s->gone = true;
        return 0; // free text
    }
    int rc = grammar_accept(p->m, from->g, token, &g, e);
    if (rc < 0)
        return rc;
    if (rc == 0 && from->lead && is_lead(q, token))
        g = grammar_state_ref(from->g);
    if (!g)
        return err_set(e, ERR_STATE, "token %d is not what the grammar allows here", token);
    enter_part(s, from->part, g, false);
    if (p->rest || !p->n || !grammar_must_end(p->m, g))
        return 0;
    grammar_state_unref(p->m, g);
    s->g = NULL;
    s->phase = PHASE_FREE;
    s->part = -1;
    s->gone = s->fulfilled = true;
    return 0;
}

static int guide_next(void *self, struct constraint_state *from, int32_t token,
                      struct constraint_state **out, struct err *e) {
    struct guide *q = self;
    struct constraint_state *s = NULL;
    int rc = make_state(q, &s, e);
    if (rc)
        return rc;
    if (from->phase == PHASE_OVER || tokenizer_is_eog(q->t, token))
        s->phase = PHASE_OVER;
    else if (from->phase == PHASE_FREE)
        rc = next_free(q, from, token, s, e);
    else
        rc = next_grammar(q, from, token, s, e);
    if (rc)
        guide_drop(q, s);
    else
        *out = s;
    return rc;
}

static bool allowed_bit(const uint32_t *bits, int32_t token) {
    return bits[token / 32] >> (token % 32) & 1;
}

static bool guide_allows(void *self, struct constraint_state *s, int32_t token) {
    struct guide *q = self;
    struct grammar_state *g = NULL;
    struct err e;
    if (s->phase == PHASE_FREE)
        return !q->no_end || s->fulfilled || allowed_bit(q->no_end, token);
    if (s->phase == PHASE_OVER)
        return true;
    if (s->looked)
        return allowed_bit(s->bits, token);
    if ((s->first && token == q->opening) || (s->lead && is_lead(q, token)))
        return true;
    if (grammar_accept(q->part[s->part].m, s->g, token, &g, &e) != 1)
        return false;
    grammar_state_unref(q->part[s->part].m, g);
    return true;
}

static void set_bit(uint32_t *bits, int32_t token) {
    if (token >= 0)
        bits[token / 32] |= 1u << (token % 32);
}

static int look_grammar(struct guide *q, struct constraint_state *s, struct err *e) {
    if (!s->bits)
        s->bits = calloc((size_t)q->words, sizeof *s->bits);
    if (!s->bits)
        return err_set(e, ERR_MEMORY, "no memory for a mask of %lld tokens", (long long)q->vocab);
    int rc = grammar_mask(q->part[s->part].m, s->g, s->bits, e);
    if (rc)
        return rc;
    if (s->first)
        set_bit(s->bits, q->opening);
    for (int i = 0; s->lead && i < LEADS; i++)
        set_bit(s->bits, q->lead[i]);
    s->view = constraint_view_of(s->bits, q->vocab);
    s->looked = true;
    return 0;
}

static int guide_look(void *self, struct constraint_state *s, struct constraint_view *out,
                      struct err *e) {
    struct guide *q = self;
    int rc = 0;
    *out = (struct constraint_view){.only = -1};
    if (s->phase == PHASE_FREE && q->no_end && !s->fulfilled)
        out->allow = q->no_end;
    if (s->phase != PHASE_GRAMMAR)
        return 0;
    if (!s->looked)
        rc = look_grammar(q, s, e);
    *out = s->view;
    return rc;
}

// The first token of the bytes that must follow. Their last token is left to others: it may well be
// one with what comes after.
static void hint_bytes(struct guide *q, struct constraint_state *s) {
    struct err e;
    str_clear(&q->text);
    q->ids.count = 0;
    if (grammar_forced_bytes(q->part[s->part].m, s->g, HINT_BYTES, &q->text, &e) ||
        q->text.failed || q->text.len < 2)
        return;
    size_t n = q->text.len; // whole characters
    while (n > 0 && ((uint8_t)q->text.data[n - 1] & 0xC0) == 0x80)
        n--;
    n = n && (uint8_t)q->text.data[n - 1] >= 0xC0 ? n - 1 : q->text.len;
    if (tokenizer_encode(q->t, q->text.data, n, false, &q->ids, &e) || q->ids.count < 2)
        return;
    s->hint = CONSTRAINT_LIKELY;
    s->token = q->ids.ids[0];
}

static enum constraint_hint guide_hint(void *self, struct constraint_state *s, int32_t *token) {
    struct guide *q = self;
    struct err e;
    if (!s->hinted && s->phase == PHASE_GRAMMAR && !s->first && !s->lead) {
        if (grammar_forced(q->part[s->part].m, s->g, &s->token, &e))
            s->token = -1;
        else if (s->token >= 0)
            s->hint = CONSTRAINT_ONLY;
        else
            hint_bytes(q, s);
        if (s->hint == CONSTRAINT_LIKELY && !guide_allows(q, s, s->token))
            s->hint = CONSTRAINT_NO_HINT;
    }
    s->hinted = true;
    *token = s->token;
    return s->hint;
}

static int64_t guide_work(void *self) {
    const struct guide *q = self;
    int64_t sum = 0;
    for (int i = 0; i < q->n_parts; i++)
        sum += grammar_matcher_work(q->part[i].m);
    return sum;
}

_Static_assert((int)CONSTRAINT_STEPS >= (int)GRAMMAR_STEP_WORK,
               "a step of a grammar must be within them");

static void guide_allow(void *self, int64_t steps) {
    struct guide *q = self;
    for (int i = 0; i < q->n_parts; i++)
        grammar_matcher_allow(q->part[i].m, steps);
}

static const struct constraint_class guide_class = {
    "grammar",    guide_destroy, guide_begin, guide_next, guide_drop,
    guide_allows, guide_look,    guide_hint,  guide_work, guide_allow};

static int add_part(struct guide *q, const struct grammar_constraint *o, struct grammar *g,
                    const struct grammar_trigger *t, struct err *e) {
    struct part *p = &q->part[q->n_parts];
    *p = (struct part){.n = t ? t->n_marker : 0, .rest = t && t->rest, .first = t && t->first};
    if (t)
        memcpy(p->marker, t->marker, t->n_marker);
    int rc = grammar_matcher_create(&p->m, g, o->vocab, e);
    q->n_parts += !rc;
    return rc;
}

// The one token of a text, control tokens among them; -1: none.
static int32_t token_of(struct guide *q, const char *text) {
    struct err e;
    q->ids.count = 0;
    if (tokenizer_encode(q->t, text, strlen(text), true, &q->ids, &e) || q->ids.count != 1)
        return -1;
    return q->ids.ids[0];
}

static int make_no_end(struct guide *q, struct err *e) {
    q->no_end = malloc((size_t)q->words * sizeof *q->no_end);
    if (!q->no_end)
        return err_set(e, ERR_MEMORY, "no memory for a mask of %lld tokens", (long long)q->vocab);
    memset(q->no_end, 0xFF, (size_t)q->words * sizeof *q->no_end);
    int32_t size = (int32_t)min_i64(tokenizer_size(q->t), q->vocab);
    for (int32_t id = 0; id < size; id++)
        if (tokenizer_is_eog(q->t, id))
            q->no_end[id / 32] &= ~(1u << (id % 32));
    return 0;
}

static int check_constraint(const struct grammar_constraint *o, struct err *e) {
    if (o->n_triggers < 0 || o->n_triggers > GRAMMAR_TRIGGERS || (!o->whole && !o->n_triggers))
        return err_set(e, ERR_USAGE,
                       "a constraint needs a grammar or 1 to %d markers after which one begins",
                       GRAMMAR_TRIGGERS);
    if (grammar_vocab_size(o->vocab) > o->model_vocab)
        return err_set(e, ERR_MISMATCH,
                       "the tokenizer has %d tokens, and the model has %lld of them",
                       grammar_vocab_size(o->vocab), (long long)o->model_vocab);
    for (int i = 0; i < o->n_triggers; i++)
        if (o->triggers[i].n_marker < 1 || o->triggers[i].n_marker > GRAMMAR_MARKER_BYTES)
            return err_set(e, ERR_USAGE, "a marker of %zu bytes is not within 1 to %d",
                           o->triggers[i].n_marker, GRAMMAR_MARKER_BYTES);
    return 0;
}

int grammar_constraint_create(struct constraint **out, const struct grammar_constraint *o,
                              struct err *e) {
    int rc = check_constraint(o, e);
    if (rc)
        return rc;
    struct guide *q = calloc(1, sizeof *q);
    if (!q)
        return err_set(e, ERR_MEMORY, "no memory for a constraint");
    q->t = o->tokenizer;
    q->vocab = o->model_vocab;
    q->words = (q->vocab + 31) / 32;
    q->whole = o->whole ? 0 : -1;
    q->opening = o->opening ? token_of(q, o->opening) : -1;
    q->lead[0] = token_of(q, "\n");
    q->lead[1] = token_of(q, "\n\n");
    if (o->whole)
        rc = add_part(q, o, o->whole, NULL, e);
    for (int i = 0; !rc && i < o->n_triggers; i++)
        rc = add_part(q, o, o->triggers[i].grammar, &o->triggers[i], e);
    if (!rc && o->required)
        rc = make_no_end(q, e);
    if (rc) {
        guide_destroy(q);
        return rc;
    }
    return constraint_create(out, &guide_class, q, q->vocab, e);
}
