// SPDX-License-Identifier: Apache-2.0
// Chances of a tree's nodes; see chances.h.
#include "spec/tree/chances.h"

#include <math.h>

static const double BIN_WIDTH = 0.2;
static const double BIN_MOST = 512;   // nodes that a bin remembers: older ones fade
static const double PRIOR = 16;       // prior weight of the draft's own probability, in nodes
static const double PLACE_PRIOR = 5;  // the same where nodes are predicted by their place
static const double STEP_PRIOR = 3;   // steps' worth of it where they are predicted by rank,
static const double LEVEL_PRIOR = 12; // and of the rank's own rate at a level of depth
static const double HONESTY = 3;      // prior weight against other powers than 1
static const double TEMPER = 0.5;     // nodes of one tree are not independent
static const double KEPT = 8;         // nodes of a bin that count of those from other texts,
static const double FIT_KEPT = 3;     // and of what tells powers and ways apart (log-likelihood)
static const double POWER[CHANCE_POWERS] = {0.05, 0.1, 0.2, 0.35, 0.6, 1, 1.6, 2.5, 4, 8, 16, 32};
enum { HONEST = 5 }; // of POWER

// By the node's score, by its place in the tree's order, or by the rank of each step of its path
// among its siblings, and its depth. Scores that mean nothing make trees grow and shrink for
// nothing, and steps converge first, since each walk has many of them.
enum { BY_SCORE, BY_PLACE, BY_STEP };

static void fade(struct bin *n, int count) {
    for (int i = 0; i < count; i++) {
        double part = n[i].nodes > KEPT ? KEPT / n[i].nodes : 1;
        n[i].hits *= part;
        n[i].nodes *= part;
    }
}

// Log-likelihoods as far behind the best as what is kept.
static void fade_fit(double *fit, int count) {
    double most = fit[0], least = fit[0];
    for (int i = 1; i < count; i++) {
        most = fmax(most, fit[i]);
        least = fmin(least, fit[i]);
    }
    double part = most - least > FIT_KEPT ? FIT_KEPT / (most - least) : 1;
    for (int i = 0; i < count; i++)
        fit[i] = part * (fit[i] - most);
}

static int bin_of(double score) {
    double at = -score / BIN_WIDTH;
    return at < CHANCE_BINS - 1 ? (int)at : CHANCE_BINS - 1;
}

// The first places have a bin each, later ones share bins that grow.
static int place_of(int node) {
    int at = node < 12 ? node - 1 : 11 + (int)(4 * log2(node / 12.0));
    return at < CHANCE_PLACES ? at : CHANCE_PLACES - 1;
}

static double hit_rate(const struct bin *n, double prior, double weight) {
    return (n->hits + weight * prior) / (n->nodes + weight);
}

static int level_of(int depth) {
    return depth < 2 ? 0 : depth < 4 ? 1 : depth < 8 ? 2 : 3;
}

// The chance that a step is taken from a node on the path.
static double step_chance(const struct chances *c, double stated, int rank, int depth) {
    double all = hit_rate(&c->rank[rank], stated, STEP_PRIOR);
    return hit_rate(&c->step[rank][level_of(depth)], all, LEVEL_PRIOR);
}

// Ranks of nodes among their siblings: how many with the same parent came before.
static void ranks_of(const struct ddtree *t, int rank[TREE_MAX_ROWS]) {
    int children[TREE_MAX_ROWS] = {0};
    for (int i = 1; i < t->n; i++) {
        int n = children[t->parent[i]]++;
        rank[i] = n < CHANCE_RANKS ? n : CHANCE_RANKS - 1;
    }
}

void chances_init(struct chances *c) {
    *c = (struct chances){.power = HONEST};
}

void chances_begin(struct chances *c) {
    fade(c->bin, CHANCE_BINS);
    fade(c->place, CHANCE_PLACES);
    fade(c->rank, CHANCE_RANKS);
    fade(&c->step[0][0], CHANCE_RANKS * CHANCE_LEVELS);
    fade_fit(c->power_fit, CHANCE_POWERS);
    fade_fit(c->way_fit, CHANCE_WAYS);
}

// As each way predicts node i, which is the place-th of those that are not sure.
static void predict_one(struct chances *c, const struct ddtree *t, int i, int place, int rank) {
    int up = t->parent[i];
    double power = POWER[c->power], stated = exp(power * t->score[i]);
    double step = exp(power * (t->score[i] - t->score[up]));
    c->way[BY_SCORE][i] = hit_rate(&c->bin[bin_of(t->score[i])], stated, PRIOR);
    c->way[BY_PLACE][i] = hit_rate(&c->place[place_of(place)], stated, PLACE_PRIOR);
    c->way[BY_STEP][i] = c->way[BY_STEP][up] * step_chance(c, step, rank, t->depth[i]);
}

void chances_predict(struct chances *c, const struct ddtree *t, const bool *sure) {
    double left[TREE_MAX_DEPTH + 1], part[CHANCE_WAYS], sum = 0, best = c->way_fit[0];
    int rank[TREE_MAX_ROWS], place = 0;
    ranks_of(t, rank);
    for (int w = 1; w < CHANCE_WAYS; w++)
        best = fmax(best, c->way_fit[w]);
    for (int w = 0; w < CHANCE_WAYS; w++)
        sum += part[w] = exp(c->way_fit[w] - best);
    for (int d = 0; d <= TREE_MAX_DEPTH; d++)
        left[d] = 1;
    for (int w = 0; w < CHANCE_WAYS; w++)
        c->way[w][0] = 1;
    for (int i = 1; i < t->n; i++) {
        if (!sure || !sure[i])
            predict_one(c, t, i, ++place, rank[i]);
        for (int w = 0; sure && sure[i] && w < CHANCE_WAYS; w++)
            c->way[w][i] = c->way[w][t->parent[i]];
        double mean = 0;
        for (int w = 0; w < CHANCE_WAYS; w++)
            mean += part[w] / sum * c->way[w][i];
        c->node[i] = fmin(mean, left[t->depth[i]]);
        left[t->depth[i]] -= c->node[i];
    }
}

static double log_likelihood(double chance, bool on) {
    double p = fmin(fmax(chance, 1e-4), 1 - 1e-4);
    return log(on ? p : 1 - p);
}

// Weighs the powers by one node, walked over or not.
static void learn_powers(struct chances *c, double score, bool on) {
    for (int i = 0; i < CHANCE_POWERS; i++)
        c->power_fit[i] += log_likelihood(exp(POWER[i] * score), on) - c->power_fit[i] / BIN_MOST;
}

// The power that fits best, beside a prior for 1.
static int best_power(const struct chances *c) {
    int best = 0;
    double most = -INFINITY;
    for (int i = 0; i < CHANCE_POWERS; i++) {
        double odd = log(POWER[i]), fit = c->power_fit[i] - HONESTY * odd * odd;
        if (fit > most) {
            most = fit;
            best = i;
        }
    }
    return best;
}

static void count(struct bin *n, bool on) {
    n->nodes++;
    n->hits += on;
    if (n->nodes > BIN_MOST) {
        n->nodes /= 2;
        n->hits /= 2;
    }
}

double chances_learn(struct chances *c, const struct ddtree *t, const bool *sure,
                     const struct walk *w) {
    bool on[TREE_MAX_ROWS] = {false};
    int rank[TREE_MAX_ROWS], place = 0;
    double expected = 1;
    for (int i = 0; i < w->count; i++)
        on[w->path[i]] = true;
    chances_predict(c, t, sure);
    ranks_of(t, rank);
    for (int i = 1; i < t->n; i++) {
        if (sure && sure[i])
            continue;
        for (int way = 0; way < CHANCE_WAYS; way++)
            c->way_fit[way] +=
                TEMPER * log_likelihood(c->way[way][i], on[i]) - c->way_fit[way] / BIN_MOST;
        learn_powers(c, t->score[i], on[i]);
        count(&c->bin[bin_of(t->score[i])], on[i]);
        count(&c->place[place_of(++place)], on[i]);
        if (!on[t->parent[i]])
            continue;
        count(&c->rank[rank[i]], on[i]);
        count(&c->step[rank[i]][level_of(t->depth[i])], on[i]);
    }
    c->power = best_power(c);
    chances_predict(c, t, sure);
    for (int i = 1; i < t->n; i++)
        expected += c->node[i];
    return expected;
}
