// SPDX-License-Identifier: Apache-2.0
// See budget.h. With q_i the chance that node i is on the path, a tree of n nodes yields
// E(n) = 1 + q_1 + ... + q_n tokens in V(1 + n) milliseconds behind a draft of D. Tokens per
// millisecond over many steps are most where each step takes the n with the largest
// E(n) - r V(1 + n), r being that very rate (Dinkelbach, Management Science 13, 1967): r is the
// mean of the last steps, and never less than plain decoding's, 1 / V(1).
//
// The draft's own time is chosen before its guesses are known. If each guess comes true with the
// chance p of late, a guess at depth i is worth p^i less r times a row of a pass, and a draft that
// ends at depth d misses what deeper ones are worth: the depth that loses least by that and by
// r D(d) is drafted.
//
// Whether to draft at all is a matter of a purse, in tokens. A drafted step puts in what it gained
// over plain decoding in the same time, or takes out what it lost; when the purse is empty,
// drafting rests. How much it can hold, and what is in it after a rest, is a share of the text
// decoded: so little can be lost, and a text that pays late is still found to pay.
#include "spec/budget.h"

#include <math.h>
#include <stdlib.h>

enum {
    BINS = 32,       // of -score, BIN_WIDTH each; the last one holds all that is less likely
    UNMEASURED = 16, // nodes while nothing is known of passes
    LOOK_FIRST = 6,  // steps of a text that verify some nodes whatever is believed of them
    REST_FIRST = 6,  // steps without drafting, doubled each time,
    REST_MOST = 512, // up to this
    DEPTHS = 3,      // of drafts: the whole, a half, a quarter of it
    SHALLOW = 3,     // the least of these
    ROWS = 8,        // of the pass that tells what a row costs
};
static const double BIN_WIDTH = 0.2;
static const double BIN_MOST = 512;  // nodes that a bin remembers: older ones fade
static const double PRIOR = 16;      // nodes' worth of belief in the draft's own probability
static const double PLACE_PRIOR = 5; // the same where nodes are told by their place
static const double LOOK_COST = 1.1; // over a plain pass, of those steps
static const double KEPT = 0.05;     // of what was learnt from other texts
static const double STEPS = 24;      // steps that the mean rate remembers
static const double SOON = 2;        // passes of earlier texts that count for a new one's pace
static const double WALKS = 8;       // whose lengths tell how deep a draft should be
static const double WALKS_KEPT = 1;  // of earlier texts
static const double SESSION = 64;    // drafted steps of all texts that a new one's hope comes from
static const double HOPED = 6;       // steps' worth of belief in PURSE before anything is known
// Tokens that the purse has when a text begins: as many as PURSE_STEPS drafted steps have gained of
// late, within these bounds. Then what it may hold, besides a share of the text so far. After a
// rest it has a share of that, and no less than PURSE_AGAIN.
static const double PURSE = 2, PURSE_LEAST = 0.2, PURSE_STEPS = 4, PURSE_MOST = 5;
static const double SHARE = 0.01, SHARE_AGAIN = 0.007, PURSE_AGAIN = 0.1;

static const int GRID[] = {1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128};
enum { GRID_N = sizeof GRID / sizeof *GRID };

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
    int max_rows;
    int depth[DEPTHS]; // of guesses of a draft, falling, and how long it then takes
    double draft_ms[DEPTHS];
    int depths, asked;   // those measured; which of them was asked of the newest draft
    double right, wrong; // guesses that the newest walks followed; how many a wrong one ended
    double ms[GRID_N];   // of a pass of GRID[i] rows
    int measured;
    double scale;        // of passes now to passes then: contexts grow, machines have other work
    double paced;        // passes that this is the mean of
    double tokens, time; // of drafted steps, older ones faded
    double purse;        // tokens that may be lost until drafting rests
    double gained, of;   // tokens that drafted steps of all texts gained, and these steps; faded
    double text;         // tokens of this text
    int looked;          // drafted steps of this text
    int rest, rests;     // steps without drafting still to come; how many the next rest has
    struct bin bin[BINS];
    double fit[POWERS];
    int power; // that fits best
    struct bin place[PLACES];
    double told[WAYS]; // log-likelihood of the nodes so far, as foretold, older ones faded
};

int budget_create(struct budget **out, int max_rows, struct err *e) {
    if (max_rows < 1 || max_rows > TREE_MAX_ROWS)
        return err_set(e, ERR_USAGE, "passes of %d rows are not within 1 to %d", max_rows,
                       TREE_MAX_ROWS);
    struct budget *b = calloc(1, sizeof *b);
    if (!b)
        return err_set(e, ERR_MEMORY, "no memory to choose budgets");
    b->max_rows = max_rows;
    b->scale = 1;
    b->right = 3;
    b->wrong = 1;
    b->power = HONEST;
    budget_begin(b);
    *out = b;
    return 0;
}

void budget_destroy(struct budget *b) {
    free(b);
}

int budget_rows(const struct budget *b, int i) {
    return i < GRID_N && GRID[i] <= b->max_rows ? GRID[i] : 0;
}

void budget_measured(struct budget *b, int rows, double ms) {
    if (b->measured < GRID_N && GRID[b->measured] == rows)
        b->ms[b->measured++] = ms;
}

bool budget_ready(const struct budget *b) {
    return b->measured > 1;
}

double budget_pass_ms(const struct budget *b, int rows) {
    int i = 0, last = b->measured - 1;
    while (i < last && GRID[i] < rows)
        i++;
    double ms = b->ms[i];
    if (GRID[i] < rows && last > 0)
        ms += fmax(b->ms[last] - b->ms[last - 1], 0) / (GRID[last] - GRID[last - 1]) *
              (rows - GRID[last]);
    return b->scale * ms;
}

static double plain_rate(const struct budget *b) {
    return 1 / budget_pass_ms(b, 1);
}

// Tokens per millisecond that a step must bring.
static double rate(const struct budget *b) {
    return fmax(b->time > 0 ? b->tokens / b->time : 0, plain_rate(b));
}

int budget_draft_depth(int most, int i) {
    int depth = i < DEPTHS ? most >> i : 0;
    return i == 0 || depth >= SHALLOW ? depth : 0;
}

void budget_draft_measured(struct budget *b, int depth, double ms) {
    if (b->depths == DEPTHS)
        return;
    b->depth[b->depths] = depth;
    b->draft_ms[b->depths++] = ms;
}

int budget_depth(struct budget *b) {
    double p = b->right / (b->right + b->wrong), least = INFINITY, missed = 0;
    double row = (budget_pass_ms(b, ROWS) - budget_pass_ms(b, 1)) / (ROWS - 1);
    for (int i = 0; i < b->depths; i++) {
        for (int d = i > 0 ? b->depth[i - 1] : 0; d > b->depth[i]; d--)
            missed += fmax(pow(p, d) - rate(b) * row, 0);
        double loss = rate(b) * b->scale * b->draft_ms[i] + missed;
        if (loss < least) {
            least = loss;
            b->asked = i;
        }
    }
    return b->depths ? b->depth[b->asked] : 0;
}

// A walk to the end of what was drafted was ended by no wrong guess.
static void follow(struct budget *b, const struct walk *w) {
    int came = w->count - 1, most = b->depths ? b->depth[b->asked] : TREE_MAX_DEPTH;
    b->right += (came < most ? came : most) - b->right / WALKS;
    b->wrong += (came < most) - b->wrong / WALKS;
}

void budget_begin(struct budget *b) {
    double keep = fmin(1, WALKS_KEPT / b->wrong);
    b->right *= keep;
    b->wrong *= keep;
    b->purse = (HOPED * PURSE + PURSE_STEPS * b->gained) / (HOPED + b->of);
    b->purse = fmin(fmax(b->purse, PURSE_LEAST), PURSE);
    b->text = 0;
    b->rest = b->looked = 0;
    b->paced = fmin(b->paced, SOON); // another text has another context
    b->rests = REST_FIRST;
    b->tokens = b->time = 0;
    for (int i = 0; i < BINS; i++) {
        b->bin[i].hits *= KEPT;
        b->bin[i].nodes *= KEPT;
    }
    for (int i = 0; i < POWERS; i++)
        b->fit[i] *= KEPT;
    for (int i = 0; i < PLACES; i++) {
        b->place[i].hits *= KEPT;
        b->place[i].nodes *= KEPT;
    }
    for (int i = 0; i < WAYS; i++)
        b->told[i] *= KEPT;
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

static int better_way(const struct budget *b) {
    return b->told[BY_PLACE] > b->told[BY_SCORE] ? BY_PLACE : BY_SCORE;
}

static double chance(const struct budget *b, const struct ddtree *t, int node) {
    return foretell(b, t, node, better_way(b));
}

// Of a verified tree. Means of these settle sooner than means of what came of it.
static double expected_tokens(const struct budget *b, const struct ddtree *t) {
    double sum = 1;
    for (int i = 1; i < t->n; i++)
        sum += chance(b, t, i);
    return sum;
}

bool budget_drafts(struct budget *b) {
    if (b->rest == 0)
        return true;
    b->rest--;
    return false;
}

// Nodes that are verified at the beginning of a text although they may not be worth it: beliefs
// from other texts must not keep it from being looked at. A pass takes little longer for them.
static int look(const struct budget *b, const struct ddtree *t) {
    int nodes = 1;
    if (b->looked >= LOOK_FIRST)
        return 0;
    while (nodes < t->n - 1 && budget_pass_ms(b, nodes + 2) < LOOK_COST * budget_pass_ms(b, 1))
        nodes++;
    return nodes < t->n - 1 ? nodes : t->n - 1;
}

// Nodes that may be verified: if all are wrong, no more is lost than a full purse and what a step
// has gained of late.
static int stake(const struct budget *b, const struct ddtree *t) {
    double most = 1 + PURSE_MOST + (b->gained > 0 ? b->gained / b->of : 0);
    int nodes = 0;
    while (nodes < t->n - 1 && plain_rate(b) * budget_pass_ms(b, nodes + 2) <= most)
        nodes++;
    return nodes;
}

int budget_nodes(const struct budget *b, const struct ddtree *t) {
    if (!budget_ready(b))
        return t->n - 1 < UNMEASURED ? t->n - 1 : UNMEASURED;
    double least = rate(b), sum = 1, best = 1 - least * budget_pass_ms(b, 1);
    int nodes = 0, most = stake(b, t);
    for (int i = 1; i <= most; i++) {
        sum += chance(b, t, i);
        double gain = sum - least * budget_pass_ms(b, i + 1);
        if (gain > best) {
            best = gain;
            nodes = i;
        }
    }
    return nodes > look(b, t) ? nodes : look(b, t);
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

// Takes what a drafted step gained, and lets drafting rest when all is lost that may be.
static void judge(struct budget *b, double gained) {
    double most = fmax(PURSE_MOST + SHARE * b->text, b->purse);
    b->gained += gained - b->gained / SESSION;
    b->of += 1 - b->of / SESSION;
    b->purse = fmin(b->purse + gained, most);
    if (b->purse >= PURSE)
        b->rests = REST_FIRST;
    if (b->purse >= 0)
        return;
    b->rest = b->rests;
    b->rests = b->rests < REST_MOST ? b->rests * 2 : REST_MOST;
    b->tokens = b->time = 0;
    b->purse = fmax(PURSE_AGAIN, SHARE_AGAIN * b->rest);
}

void budget_note(struct budget *b, const struct ddtree *t, const struct walk *w, double draft_ms,
                 double pass_ms) {
    if (!budget_ready(b) || w->end != END_NONE || pass_ms <= 0)
        return;
    double expected = budget_pass_ms(b, t->n);
    b->paced = fmin(b->paced + 1, STEPS);
    b->scale *= 1 + fmin(fmax(pass_ms / expected - 1, -0.5), 0.5) / b->paced;
    b->text += w->count;
    if (draft_ms <= 0)
        return;
    learn(b, t, w);
    follow(b, w);
    b->looked++;
    b->tokens += expected_tokens(b, t) - b->tokens / STEPS;
    b->time += draft_ms + pass_ms - b->time / STEPS;
    judge(b, w->count - plain_rate(b) * (draft_ms + pass_ms));
}
