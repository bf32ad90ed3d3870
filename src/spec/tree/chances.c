// SPDX-License-Identifier: Apache-2.0
// Chances of nodes: counted by score and by rank and depth of steps, weighed by how well each way
// has predicted.
#include "spec/tree/chances.h"

#include <math.h>

#include "spec/tree/price.h"

static const double BIN_WIDTH = 0.2;
// Nodes that a bin remembers: those of that many steps. Older ones fade.
static const double BIN_MAX = PRICE_STEPS * TREE_MAX_DEPTH;
static const double POWER[CHANCE_POWERS] = {0.05, 0.1, 0.2, 0.35, 0.6, 1, 1.6, 2.5, 4, 8, 16, 32};
enum { HONEST = 5 }; // of POWER

void chances_init(struct chances *c) {
    c->power = HONEST;
}

static void fade_bins(struct bin *n, int count) {
    for (int i = 0; i < count; i++) {
        double part = n[i].nodes > PRIOR ? PRIOR / n[i].nodes : 1;
        n[i].hits *= part;
        n[i].nodes *= part;
    }
}

static int bin_of(double score) {
    double at = -score / BIN_WIDTH;
    return at < CHANCE_BINS - 1 ? (int)at : CHANCE_BINS - 1;
}

static double hit_rate(const struct bin *n, double prior, double weight) {
    return (n->hits + weight * prior) / (n->nodes + weight);
}

static int level_of(int depth) {
    return depth < 2 ? 0 : depth < 4 ? 1 : depth < 8 ? 2 : 3;
}

// The chance that a step is taken from a node on the path.
static double step_chance(const struct chances *c, double stated, int rank, int depth) {
    double all = hit_rate(&c->rank[rank], stated, FEW);
    return hit_rate(&c->step[rank][level_of(depth)], all, PRIOR);
}

// Ranks of nodes among their siblings: how many with the same parent came before.
static void ranks_of(const struct ddtree *t, int rank[TREE_MAX_ROWS]) {
    int children[TREE_MAX_ROWS] = {0};
    for (int i = 1; i < t->n; i++) {
        int n = children[t->parent[i]]++;
        rank[i] = n < CHANCE_RANKS ? n : CHANCE_RANKS - 1;
    }
}

void chances_begin(struct chances *c) {
    fade_bins(c->bin, CHANCE_BINS);
    fade_bins(c->rank, CHANCE_RANKS);
    fade_bins(&c->step[0][0], CHANCE_RANKS * CHANCE_LEVELS);
}

// As each way predicts node i.
static void predict_node(struct chances *c, const struct ddtree *t, int i, int rank) {
    int up = t->parent[i];
    double power = POWER[c->power], stated = exp(power * t->score[i]);
    double step = exp(power * (t->score[i] - t->score[up]));
    c->way[BY_SCORE][i] = hit_rate(&c->bin[bin_of(t->score[i])], stated, PRIOR);
    c->way[BY_STEP][i] = c->way[BY_STEP][up] * step_chance(c, step, rank, t->depth[i]);
}

void chances_predict(struct chances *c, const struct ddtree *t, const bool *forced) {
    double left[TREE_MAX_DEPTH + 1];
    double by_step = 1 / (1 + exp(c->way_fit[BY_SCORE] - c->way_fit[BY_STEP]));
    int rank[TREE_MAX_ROWS];
    ranks_of(t, rank);
    for (int d = 0; d <= TREE_MAX_DEPTH; d++)
        left[d] = 1;
    c->way[BY_SCORE][0] = c->way[BY_STEP][0] = 1;
    for (int i = 1; i < t->n; i++) {
        if (!forced || !forced[i])
            predict_node(c, t, i, rank[i]);
        for (int w = 0; forced && forced[i] && w < WAYS; w++)
            c->way[w][i] = c->way[w][t->parent[i]];
        double mean = (1 - by_step) * c->way[BY_SCORE][i] + by_step * c->way[BY_STEP][i];
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
        c->power_fit[i] += log_likelihood(exp(POWER[i] * score), on) - c->power_fit[i] / BIN_MAX;
}

// The power that fits best, besides a prior for 1.
static int best_power(const struct chances *c) {
    int best = 0;
    double max = -INFINITY;
    for (int i = 0; i < CHANCE_POWERS; i++) {
        double odd = log(POWER[i]), fit = c->power_fit[i] - FEW * odd * odd;
        if (fit > max) {
            max = fit;
            best = i;
        }
    }
    return best;
}

static void count_node(struct bin *n, bool on) {
    n->nodes++;
    n->hits += on;
    if (n->nodes > BIN_MAX) {
        n->nodes /= 2;
        n->hits /= 2;
    }
}

double chances_learn(struct chances *c, const struct ddtree *t, const bool *forced,
                     const struct walk *w) {
    bool on[TREE_MAX_ROWS] = {false};
    int rank[TREE_MAX_ROWS];
    double expected = 1;
    for (int i = 0; i < w->count; i++)
        on[w->path[i]] = true;
    chances_predict(c, t, forced);
    ranks_of(t, rank);
    for (int i = 1; i < t->n; i++) {
        if (forced && forced[i])
            continue;
        for (int way = 0; way < WAYS; way++)
            c->way_fit[way] += log_likelihood(c->way[way][i], on[i]) - c->way_fit[way] / BIN_MAX;
        learn_powers(c, t->score[i], on[i]);
        count_node(&c->bin[bin_of(t->score[i])], on[i]);
        if (!on[t->parent[i]])
            continue;
        count_node(&c->rank[rank[i]], on[i]);
        count_node(&c->step[rank[i]][level_of(t->depth[i])], on[i]);
    }
    c->power = best_power(c);
    chances_predict(c, t, forced);
    for (int i = 1; i < t->n; i++)
        expected += c->node[i];
    return expected;
}
