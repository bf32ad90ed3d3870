// SPDX-License-Identifier: Apache-2.0
// Counting guesses by the origin of their nodes (struct ddtree).
#include "engine/batch/guesses.h"

#include "base/num.h"

const struct guess_span guess_spans[GUESS_SPANS] = {{"<1K", 0, 1 << 10},
                                                    {"1-4K", 1 << 10, 1 << 12},
                                                    {"4-16K", 1 << 12, 1 << 14},
                                                    {"16-64K", 1 << 14, 1 << 16},
                                                    {">64K", 1 << 16, 0}};

int guess_span_of(int64_t context) {
    int i = 0;
    while (guess_spans[i].to && context >= guess_spans[i].to)
        i++;
    return i;
}

// What a grammar expects and a drafter guesses, too, is the drafter's.
static enum guess_by origin_of(const struct member *m, int node) {
    const unsigned origin = m->tree.origin[node], drafts = tree_drafts(origin);
    const bool chain = origin & TREE_BY_CHAIN;
    if (drafts & (drafts - 1) || (drafts && chain))
        return GUESS_BY_BOTH;
    for (int i = 0; i < PRICE_DRAFTS; i++)
        if (drafts >> i & 1)
            return GUESS_BY_DRAFT + (enum guess_by)i;
    return chain ? GUESS_BY_LOOKUP : GUESS_BY_CONSTRAINT;
}

// Of a step that the draft guessed for.
static void count_unknown(struct guess_counts *c, const struct member *m, int which,
                          const struct draft *draft) {
    for (int i = 0; i < m->walk.count; i++)
        c->unknown[which] += !draft_knows(draft, m->walk.chosen[i]);
    c->drafted_for[which] += m->walk.count;
}

void guess_counts_add(struct guess_counts *c, const struct member *m, struct draft *const *drafts) {
    const int committed = max_i32(m->walk.count, 1);
    const int span = guess_span_of(sequence_len(m->seq) - committed);
    for (int i = 1; i < m->tree.n; i++)
        c->verified[origin_of(m, i)][m->tree.depth[i] - 1]++;
    for (int i = 1; i < m->walk.count; i++) {
        const int node = m->walk.path[i];
        c->accepted[origin_of(m, node)][m->tree.depth[node] - 1]++;
    }
    for (int i = 0; i < PRICE_DRAFTS && drafts[i]; i++)
        if (m->asked >> i & 1)
            count_unknown(c, m, i, drafts[i]);
    c->passes[span]++;
    c->tokens[span] += m->walk.count;
}

void guess_counts_join(struct guess_counts *sum, const struct guess_counts *more) {
    for (enum guess_by by = 0; by < GUESS_KINDS; by++)
        for (int d = 0; d < TREE_MAX_DEPTH; d++) {
            sum->verified[by][d] += more->verified[by][d];
            sum->accepted[by][d] += more->accepted[by][d];
        }
    for (int i = 0; i < GUESS_SPANS; i++) {
        sum->passes[i] += more->passes[i];
        sum->tokens[i] += more->tokens[i];
    }
    for (int i = 0; i < PRICE_DRAFTS; i++) {
        sum->drafted_for[i] += more->drafted_for[i];
        sum->unknown[i] += more->unknown[i];
    }
}

static int64_t sum_of(const int64_t of[TREE_MAX_DEPTH]) {
    int64_t sum = 0;
    for (int d = 0; d < TREE_MAX_DEPTH; d++)
        sum += of[d];
    return sum;
}

int64_t guess_counts_verified(const struct guess_counts *c, enum guess_by by) {
    return sum_of(c->verified[by]);
}

int64_t guess_counts_accepted(const struct guess_counts *c, enum guess_by by) {
    return sum_of(c->accepted[by]);
}

int64_t guess_counts_unknown(const struct guess_counts *c) {
    int64_t sum = 0;
    for (int i = 0; i < PRICE_DRAFTS; i++)
        sum += c->unknown[i];
    return sum;
}

const char *guess_by_name(enum guess_by by, const char *const *names) {
    static const char *const others[] = {"lookup", "both", "constraint"};
    if (by >= GUESS_BY_LOOKUP)
        return others[by - GUESS_BY_LOOKUP];
    return names && names[by] ? names[by] : "draft";
}

// Depths up to the deepest that was verified.
static int depth_of(const struct guess_counts *c, enum guess_by by) {
    int depth = TREE_MAX_DEPTH;
    while (depth > 0 && !c->verified[by][depth - 1])
        depth--;
    return depth;
}

static void put_depths(struct json_writer *w, const char *key, const int64_t *of, int depth) {
    jw_key_begin(w, key, '[');
    for (int d = 0; d < depth; d++)
        jw_int(w, of[d]);
    jw_end(w, ']');
}

void guess_counts_json(const struct guess_counts *c, const char *const *names,
                       struct json_writer *w) {
    jw_begin(w, '{');
    for (enum guess_by by = 0; by < GUESS_KINDS; by++) {
        const int depth = depth_of(c, by);
        const int64_t unknown = by < GUESS_BY_LOOKUP ? c->unknown[by] : 0;
        if (!depth && !unknown)
            continue;
        jw_key_begin(w, guess_by_name(by, names), '{');
        put_depths(w, "verified", c->verified[by], depth);
        put_depths(w, "accepted", c->accepted[by], depth);
        if (unknown)
            jw_key_int(w, "unknown", unknown);
        jw_end(w, '}');
    }
    jw_end(w, '}');
}

void guess_counts_text(const struct guess_counts *c, const char *const *names, struct str *out) {
    const char *before = "";
    for (enum guess_by by = 0; by < GUESS_KINDS; by++) {
        const int depth = depth_of(c, by);
        if (!depth)
            continue;
        str_printf(out, "%s%s %lld of %lld (", before, guess_by_name(by, names),
                   (long long)guess_counts_accepted(c, by),
                   (long long)guess_counts_verified(c, by));
        for (int d = 0; d < depth; d++)
            str_printf(out, "%s%lld/%lld", d ? " " : "", (long long)c->accepted[by][d],
                       (long long)c->verified[by][d]);
        str_putc(out, ')');
        before = ", ";
    }
    for (int i = 0; i < PRICE_DRAFTS; i++) {
        if (!c->unknown[i])
            continue;
        str_printf(out, "%s%lld of %lld tokens are none that %s can guess", *before ? "; " : "",
                   (long long)c->unknown[i], (long long)c->drafted_for[i],
                   guess_by_name((enum guess_by)i, names));
        before = "; ";
    }
}
