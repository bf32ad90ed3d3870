// SPDX-License-Identifier: Apache-2.0
// See budget.h. With q the chance that a node is on the path, n trees of m nodes in all yield
// n + the sum of their q tokens in a pass of n + m rows behind a draft. Tokens per millisecond over
// many steps are most where each step keeps the nodes for which tokens less r times milliseconds
// are most, where r is that very rate (Dinkelbach, Management Science 13, 1967): here that of the
// members' last steps at today's prices, and never less than plain decoding's. A row costs the same
// whosever it is, so the nodes of all trees compete by their chances.
//
// The draft's own time is chosen before its guesses are known. If each guess comes true with the
// chance p of late, a guess at depth i is worth p^i less r times a row of a pass, and a draft that
// ends at depth d misses what deeper ones are worth: the depth that loses least by that and by
// r D(d) is drafted.
//
// Whether to draft at all is a matter of credit, in tokens. A drafted step adds what it gained over
// plain decoding in the same time, or takes away what it lost; when the credit is used up, drafting
// rests. How much it can be, and what there is of it after a rest, is a share of the text decoded:
// so little can be lost, and a text that pays late is still found to pay.
#include "spec/budget.h"

#include <math.h>
#include <stdlib.h>

enum {
    BINS = 32,       // of -score, BIN_WIDTH each; the last one holds all that is less likely
    LOOK_FIRST = 6,  // steps of a text that verify some nodes whatever is believed of them
    REST_FIRST = 6,  // steps without drafting, doubled each time,
    REST_MOST = 512, // up to this
    ROWS = 8,        // of the pass that tells what a row costs
};
static const double BIN_WIDTH = 0.2;
static const double BIN_MOST = 512;  // nodes that a bin remembers: older ones fade
static const double PRIOR = 16;      // nodes' worth of belief in the draft's own probability
static const double PLACE_PRIOR = 5; // the same where nodes are told by their place
static const double LOOK_COST = 1.1; // over a plain pass, of those steps
static const double KEPT = 8;        // nodes of a bin that count of those from other texts,
static const double FIT_KEPT = 0.05; // and the part of what tells powers and ways apart
static const double STEPS = 24;      // steps that the mean rate remembers
static const double THIS = 1;        // steps that the present one counts for in it
static const double WALKS = 8;       // whose lengths tell how deep a draft should be
static const double WALKS_KEPT = 1;  // of earlier texts
static const double SESSION = 64;    // drafted steps of all texts that a new one's hope comes from
static const double HOPED = 6;       // steps' worth of belief in CREDIT before anything is known
// Credit when a text begins, in tokens: as many as CREDIT_STEPS drafted steps have gained of late,
// within these bounds. Then the most there may be, besides a share of the text so far. After a rest
// there is a share of that, and no less than CREDIT_AGAIN.
static const double CREDIT = 2, CREDIT_LEAST = 0.2, CREDIT_STEPS = 4, CREDIT_MOST = 5;
static const double SHARE = 0.01, SHARE_AGAIN = 0.007, CREDIT_AGAIN = 0.1;

struct bin {
    double hits, nodes;
};

// A draft may be too sure of itself, or not sure enough: its probabilities are taken to that of
// these powers which fits best what became of the nodes (log-likelihood, older ones faded).
static const double POWER[] = {0.05, 0.1, 0.2, 0.35, 0.6, 1, 1.6, 2.5, 4, 8, 16, 32};
enum { POWERS = sizeof POWER / sizeof *POWER, HONEST = 5 };

// How likely a node is can be told by its score or by its place in the tree's order, whichever has
// foretold the nodes so far better: scores that mean nothing make trees grow and shrink in vain.
enum { PLACES = 24, BY_SCORE = 0, BY_PLACE, WAYS };

struct budget {
    double right, wrong; // guesses that the newest walks followed; how many a wrong one ended
    double tokens, nodes, steps; // of drafted steps of this text, older ones faded
    double credit;               // tokens that may be lost until drafting rests
    double gained, of;           // tokens that drafted steps of all texts gained, and these; faded
    double text;                 // tokens of this text
    int looked;                  // drafted steps of this text
    int rest, rests;             // steps without drafting to come; how many the next rest has
    struct bin bin[BINS];
    double fit[POWERS];
    int power; // that fits best
    struct bin place[PLACES];
    double told[WAYS]; // log-likelihood of the nodes so far, as foretold, older ones faded
    double chance[TREE_MAX_ROWS]; // of the nodes of the present step's tree, falling
    int most;                     // of them that may be verified
};

int budget_create(struct budget **out, struct err *e) {
    struct budget *b = calloc(1, sizeof *b);
    if (!b)
        return err_set(e, ERR_MEMORY, "no memory to choose budgets");
    b->right = 3;
    b->wrong = 1;
    b->power = HONEST;
    budget_begin(b, NULL);
    *out = b;
    return 0;
}

void budget_destroy(struct budget *b) {
    free(b);
}

static void keep(struct bin *n, int count) {
    for (int i = 0; i < count; i++) {
        double part = n[i].nodes > KEPT ? KEPT / n[i].nodes : 1;
        n[i].hits *= part;
        n[i].nodes *= part;
    }
}

void budget_begin(struct budget *b, const struct budget *before) {
    if (before && before != b)
        *b = *before;
    double part = fmin(1, WALKS_KEPT / b->wrong);
    b->right *= part;
    b->wrong *= part;
    b->credit = (HOPED * CREDIT + CREDIT_STEPS * b->gained) / (HOPED + b->of);
    b->credit = fmin(fmax(b->credit, CREDIT_LEAST), CREDIT);
    b->text = 0;
    b->rest = b->looked = 0;
    b->rests = REST_FIRST;
    b->tokens = b->nodes = b->steps = 0;
    keep(b->bin, BINS);
    keep(b->place, PLACES);
    for (int i = 0; i < POWERS; i++)
        b->fit[i] *= FIT_KEPT;
    for (int i = 0; i < WAYS; i++)
        b->told[i] *= FIT_KEPT;
}

static int bin_of(double score) {
    double at = -score / BIN_WIDTH;
    return at < BINS - 1 ? (int)at : BINS - 1;
}

// Places are told apart singly at first, then in groups that grow.
static int place_of(int node) {
    int at = node < 12 ? node - 1 : 11 + (int)(4 * log2(node / 12.0));
    return at < PLACES ? at : PLACES - 1;
}

static double share(const struct bin *n, double prior, double weight) {
    return (n->hits + weight * prior) / (n->nodes + weight);
}

// The chance that a node is on the path, told one way.
static double foretell(const struct budget *b, const struct ddtree *t, int node, int way) {
    double stated = exp(POWER[b->power] * t->score[node]);
    return way == BY_SCORE ? share(&b->bin[bin_of(t->score[node])], stated, PRIOR)
                           : share(&b->place[place_of(node)], stated, PLACE_PRIOR);
}

static double chance(const struct budget *b, const struct ddtree *t, int node) {
    return foretell(b, t, node, b->told[BY_PLACE] > b->told[BY_SCORE] ? BY_PLACE : BY_SCORE);
}

// Of a verified tree. Means of these settle sooner than means of what came of it.
static double expected_tokens(const struct budget *b, const struct ddtree *t) {
    double sum = 1;
    for (int i = 1; i < t->n; i++)
        sum += chance(b, t, i);
    return sum;
}

static int drafting(const struct budget_step *s) {
    int n = 0;
    for (int i = 0; i < s->n; i++)
        n += s->members[i].drafts;
    return n;
}

static int reach_of(const struct budget_step *s) {
    int reach = 0;
    for (int i = 1; i < PRICE_REACHES; i++)
        reach = price_depth(s->most, i) == s->depth ? i : reach;
    return reach;
}

// Of this step, 0 when nobody drafts.
static double draft_ms(const struct budget_step *s) {
    int n = drafting(s);
    return n ? price_draft_ms(s->price, n, reach_of(s)) : 0;
}

// A pass with so many nodes of all members, without the rows of others: these have a worth of their
// own, so that what time is worth is told by steps that they are not in.
static double pass_ms(const struct budget_step *s, double nodes) {
    double below = floor(nodes), part = nodes - below;
    double a = price_pass_ms(s->price, s->n + (int64_t)below, s->n);
    return part > 0 ? a + part * (price_pass_ms(s->price, s->n + (int64_t)below + 1, s->n) - a) : a;
}

// The same in the pass as it will be.
static double full_ms(const struct budget_step *s, int64_t nodes) {
    return price_pass_ms(s->price, s->n + nodes + s->other_rows, s->n + s->other_seqs);
}

static double plain_rate(const struct budget_step *s) {
    return s->n / pass_ms(s, 0);
}

// Tokens per millisecond that this step must bring: those of the members' last steps at today's
// prices, with `tokens` and `nodes` of a step like this for where too little is known.
static double rate(const struct budget_step *s, double tokens, double nodes, double weight) {
    double sum = 0, rows = 0;
    for (int i = 0; i < s->n; i++) {
        const struct budget_member *m = &s->members[i];
        const struct budget *b = m->budget;
        double steps = m->drafts ? b->steps + weight : 0;
        if (steps > 0) {
            sum += (b->tokens + weight * tokens / s->n) / steps;
            rows += (b->nodes + weight * nodes / s->n) / steps;
        } else {
            sum += 1;
        }
    }
    return fmax(sum / (draft_ms(s) + pass_ms(s, rows)), plain_rate(s));
}

static double row_ms(const struct budget_step *s) {
    double a = price_pass_ms(s->price, s->n, s->n);
    return (price_pass_ms(s->price, s->n + ROWS, s->n) - a) / ROWS;
}

// What all who draft miss of guesses at depth d, if a step must bring r for each millisecond.
static double missed_at(const struct budget_step *s, int d, double r, double row) {
    double missed = 0;
    for (int i = 0; i < s->n; i++) {
        const struct budget *b = s->members[i].budget;
        double p = b->right / (b->right + b->wrong);
        if (s->members[i].drafts)
            missed += fmax(pow(p, d) - r * row, 0);
    }
    return missed;
}

// The depth that loses least.
static int choose_depth(const struct budget_step *s, int members) {
    double least = INFINITY, missed = 0, r = rate(s, 0, 0, 0), row = row_ms(s);
    int before = 0, best = 0;
    for (int i = 0, depth; (depth = price_depth(s->most, i)); i++) {
        for (int d = before; d > depth; d--)
            missed += missed_at(s, d, r, row);
        double loss = r * price_draft_ms(s->price, members, i) + missed;
        if (loss < least) {
            least = loss;
            best = depth;
        }
        before = depth;
    }
    return best;
}

void budget_drafts(struct budget_step *s) {
    for (int i = 0; i < s->n; i++) {
        struct budget_member *m = &s->members[i];
        if (m->drafts && m->budget->rest > 0) {
            m->budget->rest--;
            m->drafts = false;
        }
    }
    s->depth = s->most;
    int n = drafting(s);
    s->depth = n ? choose_depth(s, n) : 0;
}

// Chances of a tree's nodes such that they fall: where a node is likelier than those before it,
// they can only be had together, at their mean (pool adjacent violators).
static void weigh_tree(struct budget *b, const struct ddtree *t) {
    int len[TREE_MAX_ROWS], runs = 0;
    double sum[TREE_MAX_ROWS];
    for (int i = 1; i < t->n; i++) {
        sum[runs] = chance(b, t, i);
        len[runs++] = 1;
        while (runs > 1 && sum[runs - 1] * len[runs - 2] > sum[runs - 2] * len[runs - 1]) {
            sum[runs - 2] += sum[runs - 1];
            len[runs - 2] += len[runs - 1];
            runs--;
        }
    }
    for (int r = 0, i = 1; r < runs; r++)
        for (int j = 0; j < len[r]; j++)
            b->chance[i++] = sum[r] / len[r];
}

// Nodes of one member that may be verified: if all are wrong, no more is lost than all credit there
// may be and what a step has gained of late.
static int stake(const struct budget_step *s, const struct budget_member *m) {
    const struct budget *b = m->budget;
    double most = CREDIT_MOST + (b->gained > 0 ? b->gained / b->of : 0), plain = pass_ms(s, 0);
    int nodes = 0;
    while (nodes < m->tree->n - 1 && plain_rate(s) * (pass_ms(s, nodes + 1) - plain) <= most)
        nodes++;
    return nodes;
}

// Nodes of each member that are verified at the beginning of a text although they may not be worth
// it: beliefs from other texts must not keep it from being looked at. A pass takes little longer.
static int look(const struct budget_step *s, const struct budget_member *m) {
    double most = LOOK_COST * pass_ms(s, 0);
    int nodes = 1;
    if (m->budget->looked >= LOOK_FIRST || !m->drafts)
        return 0;
    while (nodes < m->tree->n - 1 && pass_ms(s, (nodes + 1) * s->n) < most)
        nodes++;
    return nodes < m->tree->n - 1 ? nodes : m->tree->n - 1;
}

// The next likeliest node of all trees: its member, or -1 when no member may have more.
static int next_node(const struct budget_step *s) {
    int best = -1;
    double most = 0;
    for (int i = 0; i < s->n; i++) {
        const struct budget_member *m = &s->members[i];
        if (m->nodes < m->budget->most && m->budget->chance[m->nodes + 1] > most) {
            most = m->budget->chance[m->nodes + 1];
            best = i;
        }
    }
    return best;
}

// Tokens per millisecond of this step alone at the number of nodes that makes most of it; their
// tokens and number are told.
static void best_alone(const struct budget_step *s, int room, double *tokens, double *nodes) {
    double draft = draft_ms(s), sum = s->n, best = 0;
    for (int i = 0; i < s->n; i++)
        s->members[i].nodes = 0;
    for (int n = 0, m = 0; n <= room && m >= 0; n++) {
        double r = sum / (draft + pass_ms(s, n));
        if (r > best) {
            best = r;
            *tokens = sum;
            *nodes = n;
        }
        m = next_node(s);
        if (m >= 0)
            sum += s->members[m].budget->chance[++s->members[m].nodes];
    }
}

// How many of the likeliest nodes make most of tokens less r times milliseconds.
static int best_count(const struct budget_step *s, int room, double r) {
    double sum = 0, best = -r * full_ms(s, 0);
    int count = 0;
    for (int i = 0; i < s->n; i++)
        s->members[i].nodes = 0;
    for (int n = 1, m; n <= room && (m = next_node(s)) >= 0; n++) {
        sum += s->members[m].budget->chance[++s->members[m].nodes];
        if (sum - r * full_ms(s, n) > best) {
            best = sum - r * full_ms(s, n);
            count = n;
        }
    }
    return count;
}

void budget_share(struct budget_step *s) {
    int room = s->max_rows - s->n;
    double tokens = 0, nodes = 0;
    for (int i = 0; i < s->n; i++) {
        struct budget_member *m = &s->members[i];
        weigh_tree(m->budget, m->tree);
        m->budget->most = stake(s, m);
    }
    best_alone(s, room, &tokens, &nodes);
    int count = best_count(s, room, rate(s, tokens, nodes, THIS));
    for (int i = 0; i < s->n; i++)
        s->members[i].nodes = 0;
    for (int i = 0; i < count; i++)
        s->members[next_node(s)].nodes++;
    for (int i = 0; i < s->n; i++)
        for (int least = look(s, &s->members[i]); s->members[i].nodes < least && count < room;
             count++)
            s->members[i].nodes++;
}

static double likelihood(double chance, bool on) {
    double p = fmin(fmax(chance, 1e-4), 1 - 1e-4);
    return log(on ? p : 1 - p);
}

// Weighs the powers by one node, walked over or not.
static void weigh(struct budget *b, double score, bool on) {
    for (int i = 0; i < POWERS; i++) {
        b->fit[i] += likelihood(exp(POWER[i] * score), on) - b->fit[i] / BIN_MOST;
        if (b->fit[i] > b->fit[b->power])
            b->power = i;
    }
}

static void count(struct bin *n, bool on) {
    n->nodes++;
    n->hits += on;
    if (n->nodes > BIN_MOST) {
        n->nodes /= 2;
        n->hits /= 2;
    }
}

// Counts every verified node as walked over or not.
static void learn(struct budget *b, const struct ddtree *t, const struct walk *w) {
    bool on[TREE_MAX_ROWS] = {false};
    for (int i = 0; i < w->count; i++)
        on[w->path[i]] = true;
    for (int i = 1; i < t->n; i++)
        for (int way = 0; way < WAYS; way++)
            b->told[way] += likelihood(foretell(b, t, i, way), on[i]) - b->told[way] / BIN_MOST;
    for (int i = 1; i < t->n; i++) {
        weigh(b, t->score[i], on[i]);
        count(&b->bin[bin_of(t->score[i])], on[i]);
        count(&b->place[place_of(i)], on[i]);
    }
}

// A walk to the end of what was drafted was ended by no wrong guess.
static void follow(struct budget *b, const struct walk *w, int depth) {
    int came = w->count - 1;
    b->right += (came < depth ? came : depth) - b->right / WALKS;
    b->wrong += (came < depth) - b->wrong / WALKS;
}

// Takes what a drafted step gained, and lets drafting rest when all is lost that may be.
static void judge(struct budget *b, double gained) {
    double most = fmax(CREDIT_MOST + SHARE * b->text, b->credit);
    b->gained += gained - b->gained / SESSION;
    b->of += 1 - b->of / SESSION;
    b->credit = fmin(b->credit + gained, most);
    if (b->credit >= CREDIT)
        b->rests = REST_FIRST;
    if (b->credit >= 0)
        return;
    b->rest = b->rests;
    b->rests = b->rests < REST_MOST ? b->rests * 2 : REST_MOST;
    b->tokens = b->nodes = b->steps = 0;
    b->credit = fmax(CREDIT_AGAIN, SHARE_AGAIN * b->rest);
}

void budget_note(const struct budget_step *s) {
    int nodes = 0, drafts = drafting(s);
    for (int i = 0; i < s->n; i++)
        nodes += s->members[i].tree->n - 1;
    if (drafts)
        price_note_draft(s->price, drafts, reach_of(s), s->draft_ms);
    price_note_pass(s->price, s->n + nodes + s->other_rows, s->n + s->other_seqs, s->pass_ms);
    double plain = plain_rate(s), draft = drafts ? plain * s->draft_ms / drafts : 0;
    double node = nodes ? plain * (full_ms(s, nodes) - full_ms(s, 0)) / nodes : 0;
    for (int i = 0; i < s->n; i++) {
        const struct budget_member *m = &s->members[i];
        struct budget *b = m->budget;
        if (m->walk->end != END_NONE)
            continue;
        b->text += m->walk->count;
        if (!m->drafts)
            continue;
        learn(b, m->tree, m->walk);
        follow(b, m->walk, s->depth);
        b->looked++;
        b->tokens += expected_tokens(b, m->tree) - b->tokens / STEPS;
        b->nodes += m->tree->n - 1 - b->nodes / STEPS;
        b->steps += 1 - b->steps / STEPS;
        judge(b, m->walk->count - 1 - draft - node * (m->tree->n - 1));
    }
}
