// SPDX-License-Identifier: Apache-2.0
// The compressor: reads a conversation as its scorer does, finds the question, scores, selects, and
// turns spans of the reading into spans of the texts.
#include "compress/compress.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/vec.h"
#include "compress/reading.h"

enum { FLOWKV_ENTRIES = 256 };

struct flowkv_key {
    uint64_t hash[2];
    size_t n;         // bytes of the text
    uint64_t options; // hash of them
};

struct flowkv_entry {
    struct flowkv_key key;
    struct compress_span *spans; // of message 0, part 0
    int64_t n_spans, to;         // tokens that stay
    uint64_t used;               // when, for the choice of what is forgotten
};

// Zeroed is valid and empty.
struct flowkv {
    struct flowkv_entry entries[FLOWKV_ENTRIES];
    int n;
    uint64_t clock;
};

static struct flowkv_key flowkv_key_of(const char *text, size_t n, uint64_t options) {
    return (struct flowkv_key){
        {hash_bytes(text, n, 1), hash_bytes(text, n, 2)},
        n,
        options,
    };
}

static bool same_key(const struct flowkv_key *a, const struct flowkv_key *b) {
    return a->hash[0] == b->hash[0] && a->hash[1] == b->hash[1] && a->n == b->n &&
           a->options == b->options;
}

// NULL: not there. Valid until the next flowkv_put.
static const struct flowkv_entry *flowkv_find(struct flowkv *f, const struct flowkv_key *k) {
    for (int i = 0; i < f->n; i++)
        if (same_key(&f->entries[i].key, k)) {
            f->entries[i].used = ++f->clock;
            return &f->entries[i];
        }
    return NULL;
}

// Takes the entry with its spans over; the one that has not been used for longest goes.
static void flowkv_put(struct flowkv *f, const struct flowkv_entry *entry) {
    struct flowkv_entry *to = &f->entries[0];
    if (f->n < FLOWKV_ENTRIES)
        to = &f->entries[f->n++];
    else
        for (int i = 1; i < f->n; i++)
            if (f->entries[i].used < to->used)
                to = &f->entries[i];
    free(to->spans);
    *to = *entry;
    to->used = ++f->clock;
}

static void flowkv_fini(struct flowkv *f) {
    for (int i = 0; i < f->n; i++)
        free(f->entries[i].spans);
    *f = (struct flowkv){0};
}

// Prompts of fewer tokens stay as they are; FlowKV leaves short messages alone, and conversations
// whose aged messages have few tokens in all.
enum { PROMPT_MIN = 9, AGED_LEAST = 512, HOT = 2 };

struct compressor {
    struct scorer *scorer;
    const struct tokenizer *t;
    struct flowkv flow;
    struct compress_turns turns; // begin NULL: none
    struct {                     // of compressor_open: what the scorer stands on
        struct exec *exec;       // NULL: borrowed
        struct gguf *file;
        struct tokenizer *tokenizer;
    } own;
};

struct compress_options compress_options_default(void) {
    return (struct compress_options){
        .select = select_options_default(),
        .queries = TURN_QUERIES,
    };
}

int compress_options_check(const struct compress_options *o, struct err *e) {
    if (o->queries < 1 || o->queries > TURN_QUERIES)
        return err_set(e, ERR_USAGE, "1 to %d tokens of the last turn score, not %d", TURN_QUERIES,
                       o->queries);
    if (o->continued < COMPRESS_SKIP || o->continued > COMPRESS_ANEW)
        return err_set(e, ERR_USAGE, "there is no way number %d to treat continued conversations",
                       (int)o->continued);
    return select_options_check(&o->select, e);
}

void compress_result_fini(struct compress_result *r) {
    free(r->spans);
    *r = (struct compress_result){0};
}

int compressor_create(struct compressor **out, struct scorer *s, const struct tokenizer *t,
                      struct err *e) {
    *out = calloc(1, sizeof **out);
    if (!*out) {
        s->kind->destroy(s);
        return err_set(e, ERR_MEMORY, "no memory for a compressor");
    }
    **out = (struct compressor){.scorer = s, .t = t};
    return 0;
}

void compressor_close(struct compressor *c) {
    if (!c)
        return;
    if (c->scorer)
        c->scorer->kind->destroy(c->scorer);
    tokenizer_destroy(c->own.tokenizer);
    gguf_close(c->own.file);
    if (c->own.exec)
        exec_destroy(c->own.exec);
    flowkv_fini(&c->flow);
    free(c);
}

void compressor_turns(struct compressor *c, const struct compress_turns *t) {
    c->turns = *t;
}

void compress_kept(const struct compress_result *r, const struct compress_conversation *v,
                   int64_t message, int64_t part, const char *gap, struct str *out) {
    const struct compress_part *p = &v->messages[message].parts[part];
    size_t at = 0;
    for (int64_t i = 0; i < r->n_spans; i++) {
        const struct compress_span *s = &r->spans[i];
        if (s->message != message || s->part != part)
            continue;
        if (gap && s->begin > at)
            str_puts(out, gap);
        str_append(out, p->text + s->begin, s->end - s->begin);
        at = s->end;
    }
    if (gap && at < p->n)
        str_puts(out, gap);
}

static int reserve_spans(struct compress_result *out, int64_t n, struct err *e) {
    out->spans = malloc(((size_t)n + 1) * sizeof *out->spans);
    return out->spans ? 0 : err_set(e, ERR_MEMORY, "no memory for %lld pieces", (long long)n);
}

// All of a reading stays.
static int keep_all(const struct reading *r, const char *reason, struct compress_result *out,
                    struct err *e) {
    int rc = reserve_spans(out, r->n_parts, e);
    for (int64_t i = 0; i < r->n_parts && !rc; i++) {
        const struct reading_part *p = &r->parts[i];
        out->spans[out->n_spans++] =
            (struct compress_span){p->message, p->part, 0, p->end - p->begin};
    }
    out->from = out->to = r->n;
    out->reason = reason;
    return rc;
}

// The input of selection: the parts of a reading, of which one may be cut in two.
struct question {
    struct pass_slice turn;
    struct select_part *parts; // [n]
    int64_t *of;               // [n] the reading's part
    int64_t n;
    bool free;    // some part is not whole
    float *score; // [tokens]
};

static void question_fini(struct question *q) {
    free(q->parts);
    free(q->of);
    free(q->score);
}

static void add_part(struct question *q, int64_t of, size_t begin, size_t end, bool whole) {
    if (begin == end)
        return;
    q->of[q->n] = of;
    q->parts[q->n++] = (struct select_part){begin, end, whole};
    q->free |= !whole;
}

static int question_make(const struct reading *r, int64_t whole, struct question *q,
                         struct err *e) {
    q->turn = turn_find(r, whole);
    size_t n = (size_t)r->n_parts + 1;
    q->parts = calloc(n, sizeof *q->parts);
    q->of = calloc(n, sizeof *q->of);
    q->score = calloc((size_t)r->n + 1, sizeof *q->score);
    if (!q->parts || !q->of || !q->score)
        return err_set(e, ERR_MEMORY, "no memory to score %lld tokens", (long long)r->n);
    for (int64_t i = 0; i < r->n_parts; i++) {
        const struct reading_part *p = &r->parts[i];
        bool rules = r->roles[p->message] == READING_SYSTEM && p->count <= TURN_MAX;
        if (i == q->turn.part) {
            add_part(q, i, p->begin, q->turn.begin, false);
            add_part(q, i, q->turn.begin, p->end, true);
        } else
            add_part(q, i, p->begin, p->end, rules || i > q->turn.part);
    }
    return 0;
}

// Scores between begin and end of a turn; *ms: what those took.
static int score_turn(struct compressor *c, const struct score_call *call, double *ms,
                      struct err *e) {
    struct scorer *s = c->scorer;
    struct err late;
    if (!c->turns.begin)
        return s->kind->score(s, call, e);
    double start = clock_ms();
    int rc = c->turns.begin(c->turns.arg, e);
    *ms += clock_ms() - start;
    if (rc)
        return rc;
    rc = s->kind->score(s, call, e);
    start = clock_ms();
    if (s->kind->rest)
        s->kind->rest(s);
    int ended = c->turns.end(c->turns.arg, rc ? &late : e);
    *ms += clock_ms() - start;
    return rc ? rc : ended;
}

static int score_question(struct compressor *c, const struct reading *r, int queries,
                          struct question *q, double *turn_ms, struct err *e) {
    int64_t first = q->turn.end - q->turn.first > queries ? q->turn.end - queries : q->turn.first;
    struct score_call call = {
        .ids = r->ids.ids, .n = r->place[q->turn.end - 1] + 1, .query = r->place[first]};
    call.out = calloc((size_t)call.n, sizeof *call.out);
    if (!call.out)
        return err_set(e, ERR_MEMORY, "no memory to score %lld tokens", (long long)call.n);
    int rc = score_turn(c, &call, turn_ms, e);
    for (int64_t i = 0; i < q->turn.end && !rc; i++)
        q->score[i] = call.out[r->place[i]];
    free(call.out);
    return rc;
}

// Spans of the reading as spans of its texts; pieces of a part that was cut in two are joined.
static int spans_of(const struct reading *r, const struct question *q, const struct selection *s,
                    struct compress_result *out, struct err *e) {
    int rc = reserve_spans(out, s->n_spans, e);
    for (int64_t i = 0; i < s->n_spans && !rc; i++) {
        const struct select_span *a = &s->spans[i];
        const struct reading_part *p = &r->parts[q->of[a->part]];
        struct compress_span made = {p->message, p->part, a->begin - p->begin, a->end - p->begin};
        struct compress_span *last = out->n_spans ? &out->spans[out->n_spans - 1] : NULL;
        if (last && last->message == made.message && last->part == made.part &&
            last->end == made.begin)
            last->end = made.end;
        else
            out->spans[out->n_spans++] = made;
    }
    out->from = r->n;
    out->to = s->kept;
    return rc;
}

static int select_for(const struct reading *r, const struct compress_options *o,
                      const struct question *q, struct compress_result *out, struct err *e) {
    const struct select_input in = {
        .text = {r->text.data, r->text.len, r->at, r->n, q->parts, q->n},
        .score = q->score,
        .ids = r->token,
        .query = q->turn.first,
        .query_end = q->turn.end,
    };
    struct selection s = {0};
    double ms = clock_ms();
    int rc = select_spans(&in, &o->select, &s, e);
    if (!rc)
        rc = spans_of(r, q, &s, out, e);
    if (!rc && out->to == out->from)
        out->reason = "all of the prompt was to be kept";
    selection_fini(&s);
    out->ms_select += clock_ms() - ms;
    return rc;
}

// Compresses a reading for its own question. whole: see turn_find.
static int compress_reading(struct compressor *c, const struct reading *r, int64_t whole,
                            const struct compress_options *o, struct compress_result *out,
                            struct err *e) {
    if (r->n < PROMPT_MIN)
        return keep_all(r, "the prompt has fewer than nine tokens", out, e);
    struct question q = {0};
    int rc = question_make(r, whole, &q, e);
    if (!rc && !q.free) {
        question_fini(&q);
        return keep_all(r, "the prompt is its last turn and short instructions", out, e);
    }
    double ms = clock_ms();
    if (!rc)
        rc = score_question(c, r, o->queries, &q, &out->ms_turn, e);
    out->ms_score += clock_ms() - ms;
    if (!rc)
        rc = select_for(r, o, &q, out, e);
    question_fini(&q);
    return rc;
}

static uint64_t hash_options(const struct compress_options *o) {
    const struct select_options *s = &o->select;
    const double numbers[] = {s->mass, s->least, s->most, o->adapted ? 0 : s->keep};
    const int32_t counts[] = {(int32_t)s->budget, s->n_points,      s->head,        s->tail,
                              s->anchors,         s->anchor_radius, s->anchor_hits, o->queries};
    struct hash h;
    hash_begin(&h, 0);
    hash_add(&h, numbers, sizeof numbers);
    hash_add(&h, counts, sizeof counts);
    hash_add(&h, s->curve, (size_t)s->n_points * sizeof *s->curve);
    return hash_end(&h);
}

// Spans of a conversation that is compressed text by text.
struct flow {
    struct compressor *c;
    const struct compress_conversation *v;
    const struct compress_options *o;
    struct compress_result *out;
    int64_t cap; // of its spans
};

static int push_span(struct flow *f, const struct compress_span *s, struct err *e) {
    struct compress_result *out = f->out;
    int rc = vec_reserve(&out->spans, &f->cap, out->n_spans + 1, sizeof *out->spans, e);
    if (!rc)
        out->spans[out->n_spans++] = *s;
    return rc;
}

// Compresses a text by itself: its closing lines are the question.
static int compress_alone(struct flow *f, const struct compress_message *m,
                          const struct flowkv_key *key, struct err *e) {
    const struct compress_conversation alone = {m, 1};
    struct compress_result made = {0};
    struct reading r = {0};
    int rc = reading_of(&r, f->c->t, &alone, e);
    if (!rc)
        rc = compress_reading(f->c, &r, 0, f->o, &made, e);
    if (!rc) {
        const struct flowkv_entry entry = {*key, made.spans, made.n_spans, made.to, 0};
        flowkv_put(&f->c->flow, &entry);
        made.spans = NULL;
    }
    f->out->ms_score += made.ms_score;
    f->out->ms_turn += made.ms_turn;
    f->out->ms_select += made.ms_select;
    compress_result_fini(&made);
    reading_fini(&r);
    return rc;
}

static int compress_aged(struct flow *f, const struct reading_part *p, struct err *e) {
    const struct compress_message *m = &f->v->messages[p->message];
    const struct compress_part *text = &m->parts[p->part];
    const struct flowkv_key key = flowkv_key_of(text->text, text->n, hash_options(f->o));
    const struct flowkv_entry *known = flowkv_find(&f->c->flow, &key);
    int rc = 0;
    if (!known) {
        const struct compress_message alone = {m->role, text, 1};
        rc = compress_alone(f, &alone, &key, e);
        known = rc ? NULL : flowkv_find(&f->c->flow, &key);
    }
    for (int64_t i = 0; known && i < known->n_spans && !rc; i++) {
        const struct compress_span *s = &known->spans[i];
        rc = push_span(f, &(struct compress_span){p->message, p->part, s->begin, s->end}, e);
    }
    f->out->to += known ? known->to : 0;
    return rc;
}

// Whether a text is aged and long enough to be compressed.
static bool is_aged(const struct reading *r, const struct reading_part *p) {
    return p->message > 0 && p->message < r->n_messages - HOT &&
           r->roles[p->message] != READING_SYSTEM && p->count >= AGED_LEAST;
}

static int compress_flow(struct flow *f, const struct reading *r, struct err *e) {
    struct compress_result *out = f->out;
    int rc = 0;
    for (int64_t i = 0; i < r->n_parts && !rc; i++) {
        const struct reading_part *p = &r->parts[i];
        if (is_aged(r, p)) {
            rc = compress_aged(f, p, e);
            continue;
        }
        rc = push_span(f, &(struct compress_span){p->message, p->part, 0, p->end - p->begin}, e);
        out->to += p->count;
    }
    out->from = r->n;
    if (!rc && out->from == out->to)
        out->reason = "no earlier message is long enough to be shortened";
    return rc;
}

// Whether there is an answer.
static bool is_continued(const struct reading *r) {
    for (int64_t i = 0; i < r->n_messages; i++)
        if (r->roles[i] == READING_OTHER)
            return true;
    return false;
}

// out is empty after an error.
static int finish_result(int rc, struct compress_result *out) {
    if (rc)
        compress_result_fini(out);
    return rc;
}

int compress_messages(struct compressor *c, const struct compress_conversation *v,
                      const struct compress_options *o, struct compress_result *out,
                      struct err *e) {
    struct reading r = {0};
    *out = (struct compress_result){0};
    double ms = clock_ms();
    int rc = compress_options_check(o, e);
    if (!rc)
        rc = reading_of(&r, c->t, v, e);
    out->ms_encode = clock_ms() - ms;
    if (!rc && o->continued == COMPRESS_SKIP && is_continued(&r))
        rc = keep_all(&r, "the conversation continues", out, e);
    else if (!rc && o->continued == COMPRESS_FLOW && is_continued(&r))
        rc = compress_flow(&(struct flow){c, v, o, out, 0}, &r, e);
    else if (!rc)
        rc = compress_reading(c, &r, TURN_MAX, o, out, e);
    reading_fini(&r);
    return finish_result(rc, out);
}

int compress_count(const struct compressor *c, const struct compress_conversation *v, int64_t *out,
                   struct err *e) {
    struct reading r = {0};
    int rc = reading_of(&r, c->t, v, e);
    *out = r.n;
    reading_fini(&r);
    return rc;
}

// Spans and counts of message 0 alone: a separate query is no part of the result.
static void drop_query(const struct reading *r, struct compress_result *out) {
    for (int64_t i = 0; i < r->n_parts; i++)
        if (r->parts[i].message > 0) {
            out->from -= r->parts[i].count;
            out->to -= r->parts[i].count;
        }
    while (out->n_spans && out->spans[out->n_spans - 1].message > 0)
        out->n_spans--;
}

int compress_text(struct compressor *c, const struct compress_part *text,
                  const struct compress_part *query, const struct compress_options *o,
                  struct compress_result *out, struct err *e) {
    const struct compress_message m[2] = {{"user", text, 1}, {"user", query, query != NULL}};
    const struct compress_conversation v = {m, query ? 2 : 1};
    struct reading r = {0};
    *out = (struct compress_result){0};
    double ms = clock_ms();
    int rc = compress_options_check(o, e);
    if (!rc)
        rc = reading_of(&r, c->t, &v, e);
    out->ms_encode = clock_ms() - ms;
    if (!rc)
        rc = compress_reading(c, &r, TURN_MAX, o, out, e);
    if (!rc)
        drop_query(&r, out);
    reading_fini(&r);
    return finish_result(rc, out);
}

// Whether the text's token i is in a span; *at: the span that is looked at, which only rises.
static bool is_kept(const struct reading *r, const struct compress_result *out,
                    const struct reading_part *p, int64_t i, int64_t *at) {
    size_t end = r->at[i + 1] - p->begin;
    while (*at < out->n_spans &&
           (out->spans[*at].message < p->message || out->spans[*at].part < p->part ||
            (out->spans[*at].part == p->part && out->spans[*at].end < end)))
        ++*at;
    const struct compress_span *s = &out->spans[*at];
    return *at < out->n_spans && s->message == p->message && s->part == p->part && s->begin < end;
}

static int keep_tokens(const struct reading *r, const struct compress_ids *in,
                       const struct compress_result *out, struct token_list *kept, struct err *e) {
    int64_t place = 0, span = 0;
    int rc = 0;
    for (int64_t k = 0; k < r->n_parts; k++) {
        const struct reading_part *p = &r->parts[k];
        for (int64_t i = p->first; i < p->first + p->count && !rc; i++) {
            for (; place < r->place[i] && !rc; place++)
                rc = token_list_push(kept, in->ids[place], e);
            if (!rc && is_kept(r, out, p, i, &span))
                rc = token_list_push(kept, in->ids[place], e);
            place++;
        }
    }
    for (; place < in->n && !rc; place++)
        rc = token_list_push(kept, in->ids[place], e);
    return rc;
}

int compress_tokens(struct compressor *c, const struct compress_ids *in,
                    const struct compress_options *o, struct token_list *kept,
                    struct compress_result *out, struct err *e) {
    struct reading r = {0};
    size_t before = kept->count;
    *out = (struct compress_result){0};
    double ms = clock_ms();
    int rc = compress_options_check(o, e);
    if (!rc)
        rc = reading_of_tokens(&r, c->t, in, e);
    out->ms_encode = clock_ms() - ms;
    if (!rc)
        rc = compress_reading(c, &r, TURN_MAX, o, out, e);
    if (!rc)
        rc = keep_tokens(&r, in, out, kept, e);
    if (rc)
        kept->count = before;
    reading_fini(&r);
    free(out->spans);
    out->spans = NULL;
    out->n_spans = 0;
    return finish_result(rc, out);
}

int compressor_open(struct compressor **out, struct exec *x, const char *path,
                    const struct score_options *o, struct err *e) {
    struct compressor *c = *out = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_MEMORY, "no memory for a compressor");
    int rc = gguf_open(&c->own.file, path, e);
    if (!rc && !x)
        rc = exec_create_cpu(&c->own.exec, NULL, 0, e);
    if (!rc) {
        rc = score_open(&c->scorer, x ? x : c->own.exec, c->own.file, o, e);
        if (!rc)
            rc = tokenizer_create(&c->own.tokenizer, c->own.file, e);
        if (rc)
            err_prefix(e, "scorer %.200s", path);
    }
    c->t = c->own.tokenizer;
    if (rc) {
        compressor_close(c);
        *out = NULL;
    }
    return rc;
}
