// SPDX-License-Identifier: Apache-2.0
// With q the chance that a node is on the path, n trees of m nodes in all yield
// n + the sum of their q tokens in a pass of n + m rows after a draft. Tokens per millisecond over
// many steps are most where each step keeps the nodes for which tokens less r times milliseconds
// are most, where r is that very rate (Dinkelbach, Management Science 13, 1967): here that of the
// members' last steps at today's prices, and never less than plain decoding's. A row costs the same
// whosever it is, so the nodes of all trees compete by their chances.
//
// The draft's own time is chosen before its guesses are known. If each guess comes true with the
// chance p of recent ones, a guess at depth i is worth p^i less r times a row of a pass, and a
// draft that ends at depth d misses what deeper ones are worth: the depth that loses least by that
// and by r D(d) is drafted.
//
// Several drafts may be asked in one step. Nodes say which of them offered them, so each walk shows
// how far the guesses of every subset of those asked would have come, and p is learnt of subsets:
// what a draft adds is the difference that it makes beside the others, not what it guesses right.
// Each member asks the subset that is worth most, the time of a draft shared by all who ask it. How
// subsets compare is learnt only in steps in which both were asked; in others those that were not
// follow the odds of those that were. A draft that is not asked is tried again now and then, where
// the credit below can pay for it, each time after twice as many steps.
//
// Whether to draft at all is a matter of credit, in tokens. A drafted step adds what it gained over
// plain decoding in the same time, or takes away what it lost; when the credit is used up, drafting
// pauses, each time for twice as long (exponential backoff). How much it can be, and what there is
// of it after a pause, is a share of the text decoded: so little can be lost, and a text on which
// drafting begins to pay late is still found out. Where arithmetic bounds a CPU a vain step can
// cost one to three tokens. Such a step needs all its cost in the credit beforehand, is drafted
// only as deep as that pays for, and a pause after it is as long as a share of the text takes.
//
// Guesses that cost nothing to make are always made. The token that is chosen next shows whether
// the first of them was right, so a text on which guessing fails is known without verifying any,
// and one that begins to repeat itself is seen at once. Nodes are verified where they are expected
// to pay, and only as many as a stake of the text's own allows to be wrong: half the share above,
// what such steps have gained, and something for guesses in a row that would have been right.
#include "spec/tree/budget.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/num.h"
#include "spec/tree/chances.h"
#include "spec/tree/ddtree.h"

// Chosen by a replay (docs/notes/budget-auto.md), as are PRICE_STEPS and those of price.c. All
// other numbers follow from these, or are resolutions and bounds.
enum {
    TRIALS = 6,      // drafted steps that a text gets to show what its guesses are worth
    PAUSE_FIRST = 9, // steps without drafting, doubled each time
};
static const double CREDIT = 1.8;        // of a text, in tokens
static const double CREDIT_SHARE = 0.01; // of its tokens, which may be lost besides
// The most credit there may be, besides that share; and steps that a pause may last, as many as the
// share needs for it.
static const double CREDIT_MAX = FEW * CREDIT, PAUSE_MAX = FEW * CREDIT / CREDIT_SHARE;

// A step that may cost more than that many tokens is dear.
static const double DEAR = 1;

// Drafted steps in which a text is new; that the present one counts for besides the last ones.
enum { FIRST_STEPS = TRIALS / 2 };

enum { SUBSETS = 1 << PRICE_DRAFTS }; // of drafts, a bit each

// Guesses that the newest walks followed, or would have; how many a wrong one ended.
struct follows {
    double right, wrong;
    int steps; // that it was seen in, as far as PRICE_STEPS
};

// When a draft that is not worth asking is tried again.
struct trials {
    int steps;         // in which it was asked, as far as TRIALS
    double rest, next; // steps until the next trial; how many from that on
};

struct budget {
    struct follows follows[SUBSETS];
    struct trials trials[PRICE_DRAFTS];
    unsigned on_trial;           // drafts of this step
    double tokens, nodes, steps; // of drafted steps of this text, older ones faded
    double credit;               // tokens that may be lost until drafting pauses
    double gained, gained_steps; // tokens that drafted steps of all texts gained, and these; faded
    double text;                 // tokens of this text
    double stake;                // tokens that guesses which cost nothing to make may lose
    double dear;                 // tokens that a node of such took beyond its price; faded
    int32_t first;               // the first of them in this step, or -1,
    double first_score;          // and its score
    int run;                     // of them that were right in a row, verified or not
    int plain_steps;             // without such since a pass's time was noted
    int drafted_steps;           // drafted steps of this text
    unsigned catching_up;        // drafts that have tokens to catch up with, which takes time
    double pause, next_pause;    // steps without drafting to come; how many the next pause has
    struct chances chances;      // of the present step's tree
    int max_nodes;               // nodes of it that may be verified
};

int budget_create(struct budget **out, struct err *e) {
    struct budget *b = calloc(1, sizeof *b);
    if (!b)
        return err_set(e, ERR_MEMORY, "no memory to choose budgets");
    for (int i = 0; i < SUBSETS; i++)
        b->follows[i] = (struct follows){FEW, 1, 0};
    for (int i = 0; i < PRICE_DRAFTS; i++)
        b->trials[i] = (struct trials){.next = PAUSE_FIRST};
    chances_init(&b->chances);
    budget_begin(b, NULL);
    *out = b;
    return 0;
}

void budget_destroy(struct budget *b) {
    free(b);
}

void budget_begin(struct budget *b, const struct budget *before) {
    if (before && before != b)
        *b = *before;
    for (int i = 0; i < SUBSETS; i++) { // of earlier texts no more than one wrong guess counts
        double part = fmin(1, 1 / b->follows[i].wrong);
        b->follows[i].right *= part;
        b->follows[i].wrong *= part;
    }
    for (int i = 0; i < PRICE_DRAFTS; i++) {
        struct trials *t = &b->trials[i];
        t->next = fmax(t->next / 2, PAUSE_FIRST);
        t->rest = fmin(t->rest, FEW);
    }
    b->credit = fmin(fmax(TRIALS * (CREDIT + b->gained) / (TRIALS + b->gained_steps), 0), CREDIT);
    b->text = 0;
    b->stake = 0;
    b->plain_steps = b->run = 0;
    b->pause = b->drafted_steps = 0;
    b->catching_up = ~0u;
    b->next_pause = PAUSE_FIRST;
    b->tokens = b->nodes = b->steps = 0;
    chances_begin(&b->chances);
}

// Whether a draft is run for the member.
static bool is_drafting(const struct budget_member *m) {
    return m->drafts && !m->free;
}

static int drafting(const struct budget_step *s) {
    int n = 0;
    for (int i = 0; i < s->n; i++)
        n += is_drafting(&s->members[i]);
    return n;
}

// Members that ask that draft.
static int asking(const struct budget_step *s, int which) {
    int n = 0;
    for (int i = 0; i < s->n; i++)
        n += is_drafting(&s->members[i]) && s->members[i].asks >> which & 1;
    return n;
}

static int reach_of(const struct budget_step *s, int which) {
    const struct budget_draft *d = &s->draft[which];
    int reach = 0;
    for (int i = 1; i < PRICE_DEPTHS; i++)
        reach = price_depth_of(s->price, which, d->max_depth, i) == d->depth ? i : reach;
    return reach;
}

// Of this step, 0 when no member drafts.
static double draft_ms(const struct budget_step *s) {
    double ms = 0;
    for (int d = 0; d < price_drafts_of(s->price); d++) {
        int n = asking(s, d);
        ms += n ? price_draft_ms(s->price, d, n, reach_of(s, d)) : 0;
    }
    return ms;
}

// A pass with that many nodes of all members, without the rows of others: these have a worth of
// their own, so that what time is worth follows from steps that they are not in.
static double pass_ms(const struct budget_step *s, double nodes) {
    double below = floor(nodes), part = nodes - below;
    double a = price_optimistic_ms(s->price, s->n + (int64_t)below, s->n);
    return part > 0
               ? a + part * (price_optimistic_ms(s->price, s->n + (int64_t)below + 1, s->n) - a)
               : a;
}

// The same in the pass as it will be.
static double full_ms(const struct budget_step *s, int64_t nodes) {
    return price_optimistic_ms(s->price, s->n + nodes + s->other_rows, s->n + s->other_seqs);
}

static double plain_rate(const struct budget_step *s) {
    return s->n / pass_ms(s, 0);
}

// Tokens per millisecond that this step must bring: those of the members' last steps at today's
// prices, with `tokens` and `nodes` of a step like this for where too little is known.
static double required_rate(const struct budget_step *s, double tokens, double nodes,
                            double weight) {
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

// One of as many as the deepest guesses need.
static double row_ms(const struct budget_step *s) {
    int max = 1;
    for (int d = 0; d < price_drafts_of(s->price); d++)
        max = max_i32(max, s->draft[d].max_depth);
    double a = price_pass_ms(s->price, s->n, s->n);
    return (price_pass_ms(s->price, s->n + max, s->n) - a) / max;
}

// The chance that the next guess of a subset is right. What is known of a part of it holds of the
// whole, too: that may not have been asked for long, or never.
static const struct follows *best_part(const struct budget *b, unsigned subset) {
    const struct follows *best = NULL;
    for (unsigned part = subset; part; part = (part - 1) & subset) {
        const struct follows *f = &b->follows[part];
        if (!f->steps && part & (part - 1))
            continue;
        if (!best || f->right * best->wrong > best->right * f->wrong)
            best = f;
    }
    return best;
}

static double right_chance(const struct budget *b, unsigned subset) {
    const struct follows *f = best_part(b, subset);
    return f->right / (f->right + f->wrong);
}

// What guesses must be worth: tokens for each millisecond, and in these for a row.
struct rate {
    double r, row;
};

// What guesses of these drafts are worth to the member, each of s->draft[].depth.
static double worth_of(const struct budget_step *s, const struct budget *b, unsigned asks,
                       const struct rate *o) {
    double chance = 1, worth = 0;
    for (int depth = 1; depth <= TREE_MAX_DEPTH; depth++) {
        unsigned left = 0;
        for (int d = 0; d < price_drafts_of(s->price); d++)
            left |= s->draft[d].depth >= depth ? asks & 1u << d : 0;
        if (!left)
            break;
        chance *= right_chance(b, left);
        worth += fmax(chance - o->row, 0);
    }
    return worth;
}

// Whether a step whose drafts take that long is dear, and a member alone cannot pay for it should
// all its guesses be wrong. Members of a batch share drafts, and what these cost.
static bool too_dear(const struct budget_step *s, double draft) {
    double row =
        price_cautious_ms(s->price, s->n + 1, s->n) - price_cautious_ms(s->price, s->n, s->n);
    double cost = plain_rate(s) * (draft + row);
    return s->n == 1 && cost > DEAR && cost > s->members[0].budget->credit;
}

// The depth of a draft for those who ask it that is worth most, of what can be paid for.
static void choose_depth(struct budget_step *s, int which, const struct rate *o) {
    struct budget_draft *draft = &s->draft[which];
    double max = -INFINITY;
    int members = asking(s, which), best = draft->max_depth;
    for (int i = 0, depth;
         members && (depth = price_depth_of(s->price, which, draft->max_depth, i)); i++) {
        double worth = -o->r * price_draft_ms(s->price, which, members, i);
        bool last = !price_depth_of(s->price, which, draft->max_depth, i + 1);
        if (!last && too_dear(s, price_cautious_draft_ms(s->price, which, members, i)))
            continue;
        draft->depth = depth;
        for (int m = 0; m < s->n; m++)
            if (is_drafting(&s->members[m]))
                worth += worth_of(s, s->members[m].budget, s->members[m].asks, o);
        if (worth > max) {
            max = worth;
            best = depth;
        }
    }
    draft->depth = best;
}

static struct rate rate_of(const struct budget_step *s) {
    const double r = required_rate(s, 0, 0, 0);
    return (struct rate){r, r * row_ms(s)};
}

static void choose_depths(struct budget_step *s) {
    const struct rate o = rate_of(s);
    for (int d = 0; d < price_drafts_of(s->price); d++)
        choose_depth(s, d, &o);
}

// What one more member that asks it adds to a draft.
static double more_draft_ms(const struct budget_step *s, int which, int others) {
    const int reach = reach_of(s, which);
    return price_draft_ms(s->price, which, others + 1, reach) -
           (others ? price_draft_ms(s->price, which, others, reach) : 0);
}

// The drafts of those that it may ask which are worth most to the member, beside what others ask.
static unsigned best_subset(struct budget_step *s, struct budget_member *m, const struct rate *o) {
    double cost[PRICE_DRAFTS] = {0}, max = -INFINITY;
    unsigned known = 0, best = m->may;
    for (int d = 0; d < PRICE_DRAFTS; d++) // others are tried first
        known |= m->budget->trials[d].steps == TRIALS ? m->may & 1u << d : 0;
    known = known ? known : m->may;
    m->asks = 0;
    for (int d = 0; d < price_drafts_of(s->price); d++)
        if (m->may >> d & 1)
            cost[d] = o->r * more_draft_ms(s, d, asking(s, d));
    for (unsigned asks = known; asks; asks = (asks - 1) & known) {
        double worth = worth_of(s, m->budget, asks, o);
        for (int d = 0; d < price_drafts_of(s->price); d++)
            worth -= asks >> d & 1 ? cost[d] : 0;
        if (worth >= max) { // of equals the one with fewer
            max = worth;
            best = asks;
        }
    }
    return best;
}

// The draft that a member is not going to ask although its guesses are little known, or were for
// long: one at a time, if the credit can pay for it.
static unsigned trial_of(const struct budget_step *s, const struct budget_member *m) {
    const struct budget *b = m->budget;
    for (int d = 0; d < price_drafts_of(s->price); d++) {
        const struct trials *t = &b->trials[d];
        bool due = (m->may & ~m->asks) >> d & 1 && (t->steps < TRIALS || t->rest <= 0);
        if (due && b->credit >= plain_rate(s) * more_draft_ms(s, d, asking(s, d)))
            return 1u << d;
    }
    return 0;
}

// When drafts that are not asked are tried again.
static void count_trials(struct budget_member *m, unsigned trial) {
    for (int d = 0; d < PRICE_DRAFTS; d++) {
        struct trials *t = &m->budget->trials[d];
        if (!(m->may >> d & 1))
            continue;
        bool known = t->steps == TRIALS;
        if (trial >> d & 1)
            t->rest = t->next = fmin(known ? 2 * t->next : t->next, PAUSE_MAX);
        else if (m->asks >> d & 1)
            t->rest = t->next = PAUSE_FIRST;
        else
            t->rest--;
        t->steps += !known && m->asks >> d & 1;
    }
}

// Which drafts members ask, and how deep each goes: one choice after the other, twice, since each
// depends on the others.
static void choose_drafts(struct budget_step *s) {
    const int n = price_drafts_of(s->price);
    for (int d = 0; d < n; d++)
        s->draft[d].depth = s->draft[d].max_depth;
    choose_depths(s);
    for (int turn = 0; n > 1 && turn < 2; turn++) {
        const struct rate o = rate_of(s);
        for (int i = 0; i < s->n; i++)
            if (is_drafting(&s->members[i]))
                s->members[i].asks = best_subset(s, &s->members[i], &o);
        choose_depths(s);
    }
    bool tried = false;
    for (int i = 0; n > 1 && i < s->n; i++) {
        struct budget_member *m = &s->members[i];
        unsigned trial = is_drafting(m) ? trial_of(s, m) : 0;
        m->asks |= trial;
        tried = tried || trial;
        m->budget->on_trial = trial;
        if (is_drafting(m))
            count_trials(m, trial);
    }
    if (tried)
        choose_depths(s);
}

// Of this step, where little is known of it more by a standard deviation.
static double cautious_draft_ms(const struct budget_step *s) {
    double ms = 0;
    for (int d = 0; d < price_drafts_of(s->price); d++) {
        int n = asking(s, d);
        ms += n ? price_cautious_draft_ms(s->price, d, n, reach_of(s, d)) : 0;
    }
    return ms;
}

// Whether all who would draft can pay for it with what they have and have gained lately. Members
// of a batch share drafts, so they wait for one another; alone a member has its pauses, and begins
// with a plain step where nothing says yet what one takes.
static bool can_afford(const struct budget_step *s) {
    double funds = 0;
    if (s->n == 1)
        return price_settled(s->price) && !too_dear(s, cautious_draft_ms(s));
    for (int i = 0; i < s->n; i++) {
        const struct budget *b = s->members[i].budget;
        if (is_drafting(&s->members[i]))
            funds += b->credit + (b->gained > 0 ? b->gained / b->gained_steps : 0);
    }
    return funds >= plain_rate(s) * draft_ms(s);
}

void budget_drafts(struct budget_step *s) {
    bool any_free = false;
    for (int i = 0; i < s->n; i++) {
        struct budget_member *m = &s->members[i];
        any_free = any_free || (m->drafts && m->free);
        if (is_drafting(m) && m->budget->pause > 0) {
            m->budget->pause--;
            m->drafts = false;
        }
        m->may = m->may ? m->may : 1;
        m->asks = is_drafting(m) ? m->may : 0;
    }
    choose_drafts(s);
    if (drafting(s) && can_afford(s))
        return;
    for (int d = 0; d < price_drafts_of(s->price); d++)
        s->draft[d].depth = any_free ? s->draft[d].max_depth : 0;
    for (int i = 0; i < s->n; i++) {
        struct budget_member *m = &s->members[i];
        m->budget->credit += is_drafting(m) ? CREDIT_SHARE : 0;
        m->drafts = m->drafts && m->free;
        m->asks = 0;
    }
}

// Chances of a tree's nodes such that they fall: where a node is likelier than those before it,
// they get their mean (pool adjacent violators).
static void falling_chances(const struct budget_member *m) {
    struct budget *b = m->budget;
    const struct ddtree *t = m->tree;
    int len[TREE_MAX_ROWS], runs = 0;
    double sum[TREE_MAX_ROWS];
    chances_predict(&b->chances, t, m->forced);
    for (int i = 1; i < t->n; i++) {
        sum[runs] = b->chances.node[i];
        len[runs++] = 1;
        while (runs > 1 && sum[runs - 1] * len[runs - 2] > sum[runs - 2] * len[runs - 1]) {
            sum[runs - 2] += sum[runs - 1];
            len[runs - 2] += len[runs - 1];
            runs--;
        }
    }
    for (int r = 0, i = 1; r < runs; r++)
        for (int j = 0; j < len[r]; j++)
            b->chances.node[i++] = sum[r] / len[r];
}

// Nodes that are certain to be on the path: the first ones.
static int forced_prefix(const struct budget_member *m) {
    int n = 0;
    while (m->forced && n + 1 < m->tree->n && m->forced[n + 1] && m->tree->parent[n + 1] == n)
        n++;
    return n;
}

// Nodes of one member that may be verified: if all are wrong, no more is lost than the most credit
// there may be and what recent steps have gained.
static int risk_limit(const struct budget_step *s, const struct budget_member *m) {
    const struct budget *b = m->budget;
    double plain = pass_ms(s, 0);
    double max = b->gained > 0 ? CREDIT_MAX + b->gained / b->gained_steps : CREDIT / TRIALS;
    int forced = forced_prefix(m), nodes = forced;
    while (nodes < m->tree->n - 1 &&
           plain_rate(s) * (pass_ms(s, nodes - forced + 1) - plain) <= max)
        nodes++;
    return nodes;
}

// The same of guesses that cost nothing to make: no more than their stake, however dear rows may
// turn out to be, none that is less likely than it costs, and at most twice the rows that are
// known.
static int stake_limit(const struct budget_step *s, const struct budget_member *m) {
    const struct budget *b = m->budget;
    double plain = price_cautious_ms(s->price, s->n, s->n);
    int forced = forced_prefix(m), nodes = forced;
    int known = max_i32(price_known_rows(s->price), s->n);
    while (nodes < m->tree->n - 1 && s->n + nodes < 2 * known) {
        int guesses = nodes - forced + 1;
        double more = price_cautious_ms(s->price, s->n + guesses, s->n) - plain;
        double cost = plain_rate(s) * more + b->dear * guesses;
        if (cost > b->stake || b->chances.node[nodes + 1] < b->dear)
            break;
        nodes++;
    }
    return nodes;
}

// Keeps the first guess that cost nothing to make: the next token shows whether it was right.
static void keep_first(const struct budget_member *m) {
    bool guess = m->free && m->tree->n > 1 && forced_prefix(m) == 0;
    m->budget->first = guess ? m->tree->token[1] : -1;
    m->budget->first_score = guess ? m->tree->score[1] : 0;
}

// What other texts taught must not keep a new one from being explored: its first steps verify a
// node although it may not be worth it.
static bool explores(const struct budget_member *m) {
    return is_drafting(m) && m->budget->drafted_steps < TRIALS && m->tree->n > 1;
}

// The next likeliest node of all trees: its member, or -1 when no member may have more.
static int next_node(const struct budget_step *s) {
    int best = -1;
    double max = 0;
    for (int i = 0; i < s->n; i++) {
        const struct budget_member *m = &s->members[i];
        if (m->nodes < m->budget->max_nodes && m->budget->chances.node[m->nodes + 1] > max) {
            max = m->budget->chances.node[m->nodes + 1];
            best = i;
        }
    }
    return best;
}

// Tokens per millisecond of this step alone at the number of nodes that makes most of it; their
// tokens and number go to *tokens and *nodes.
static void best_alone(const struct budget_step *s, int max, double *tokens, double *nodes) {
    double draft = draft_ms(s), sum = s->n, best = 0;
    for (int i = 0; i < s->n; i++)
        s->members[i].nodes = 0;
    for (int n = 0, m = 0; n <= max && m >= 0; n++) {
        double r = sum / (draft + pass_ms(s, n));
        if (r > best) {
            best = r;
            *tokens = sum;
            *nodes = n;
        }
        m = next_node(s);
        if (m >= 0)
            sum += s->members[m].budget->chances.node[++s->members[m].nodes];
    }
}

// How many of the likeliest nodes make most of tokens less r times milliseconds.
static int best_count(const struct budget_step *s, int max, double r) {
    double sum = 0, best = -r * full_ms(s, 0);
    int count = 0;
    for (int i = 0; i < s->n; i++)
        s->members[i].nodes = 0;
    for (int n = 1, m; n <= max && (m = next_node(s)) >= 0; n++) {
        sum += s->members[m].budget->chances.node[++s->members[m].nodes];
        if (sum - r * full_ms(s, n) > best) {
            best = sum - r * full_ms(s, n);
            count = n;
        }
    }
    return count;
}

void budget_share(struct budget_step *s) {
    int max = s->max_rows - s->n;
    double tokens = 0, nodes = 0;
    for (int i = 0; i < s->n; i++) {
        struct budget_member *m = &s->members[i];
        keep_first(m);
        falling_chances(m);
        m->budget->max_nodes = m->free ? stake_limit(s, m) : risk_limit(s, m);
    }
    best_alone(s, max, &tokens, &nodes);
    int count = best_count(s, max, required_rate(s, tokens, nodes, FIRST_STEPS));
    for (int i = 0; i < s->n; i++)
        s->members[i].nodes = 0;
    for (int i = 0; i < count; i++)
        s->members[next_node(s)].nodes++;
    for (int i = 0; i < s->n && count < max; i++)
        if (s->members[i].nodes == 0 && explores(&s->members[i])) {
            s->members[i].nodes++;
            count++;
        }
}

// memory: steps that count.
static void learn_follow(struct follows *f, int came, int depth, double memory) {
    f->right += min_i32(came, depth) - f->right / memory;
    f->wrong += (came < depth) - f->wrong / memory;
    f->steps += f->steps < PRICE_STEPS;
}

// Of the walk's guesses those that a subset of the drafts had offered, too, up to the first that it
// had not. What others than drafts offered is there whatever is asked.
static int came_by(const struct budget_member *m, unsigned subset) {
    int came = 0;
    for (; came < m->walk->count - 1; came++) {
        unsigned origin = m->tree->origin[m->walk->path[came + 1]];
        if (!(origin & (TREE_BY_CHAIN | TREE_BY_CONSTRAINT)) && !(tree_drafts(origin) & subset))
            break;
    }
    return came;
}

static double odds_of(const struct follows *f) {
    return f->right / f->wrong;
}

// The text has become easier or harder to guess by that: so it has for drafts that were not asked.
// How they compare with those is learnt only where both were.
static void follow_text(struct budget *b, unsigned asked, double change) {
    static const double LEAST = 1e-3, MOST = PRICE_STEPS * TREE_MAX_DEPTH;
    for (unsigned i = 1; i < SUBSETS; i++)
        if (i & ~asked && b->follows[i].steps)
            b->follows[i].right = fmin(fmax(b->follows[i].right * change, LEAST), MOST);
}

static double time_of(const struct budget_step *s, unsigned drafts) {
    double ms = 0;
    for (int d = 0; d < price_drafts_of(s->price); d++)
        ms += drafts >> d & 1 ? price_draft_ms(s->price, d, 1, reach_of(s, d)) : 0;
    return ms;
}

// A draft on trial that has made a difference beside the others, or would have done as well as they
// in less time, is tried again at once.
static void judge_trial(const struct budget_step *s, const struct budget_member *m) {
    const int came = m->walk->count - 1;
    for (int d = 0; d < price_drafts_of(s->price); d++) {
        const unsigned own = m->budget->on_trial & 1u << d, others = m->asks & ~own;
        if (!own || !came)
            continue;
        bool better = came_by(m, others) < came;
        bool cheaper = came_by(m, own) == came && time_of(s, own) < time_of(s, others);
        if (better || cheaper)
            m->budget->trials[d] = (struct trials){m->budget->trials[d].steps, 0, PAUSE_FIRST};
    }
}

// Of all subsets of those that were asked. A walk to the end of what was drafted was ended by no
// wrong guess.
static void learn_depths(const struct budget_step *s, const struct budget_member *m) {
    struct budget *b = m->budget;
    struct follows *whole = &b->follows[m->asks];
    // How drafts compare is asked of more steps than how good they are now.
    const double memory = price_drafts_of(s->price) > 1 ? FEW * PRICE_STEPS : PRICE_STEPS;
    for (unsigned subset = m->asks; subset; subset = (subset - 1) & m->asks)
        if (!b->follows[subset].steps)
            b->follows[subset] = *best_part(b, subset);
    const double before = whole->steps == PRICE_STEPS ? odds_of(whole) : 0;
    for (unsigned subset = m->asks; subset; subset = (subset - 1) & m->asks) {
        int depth = 0;
        for (int d = 0; d < price_drafts_of(s->price); d++)
            depth = max_i32(depth, subset >> d & 1 ? s->draft[d].depth : 0);
        int came = subset == m->asks ? m->walk->count - 1 : came_by(m, subset);
        learn_follow(&b->follows[subset], came, depth, memory);
    }
    if (whole->wrong > 0 && before > 0)
        follow_text(b, m->asks, odds_of(whole) / before);
    judge_trial(s, m);
}

// Adds what a drafted step gained, and pauses drafting when the credit is used up, or would be by
// another step like this that is not expected to pay. Of a new text's steps none costs a member of
// a batch more than a token: their times, and what they taught, are little known.
static void update_credit(struct budget *b, int count, double expected, double cost, bool alone) {
    if (!alone && b->drafted_steps <= FIRST_STEPS)
        cost = fmin(cost, 1);
    double gained = count - 1 - cost;
    double max = fmax(CREDIT_MAX + CREDIT_SHARE * b->text, b->credit);
    b->gained += gained - b->gained / PRICE_STEPS;
    b->gained_steps += 1 - b->gained_steps / PRICE_STEPS;
    b->credit = fmin(b->credit + gained, max);
    if (b->credit >= CREDIT)
        b->next_pause = PAUSE_FIRST;
    if (b->credit >= (expected - 1 < cost && b->drafted_steps >= FIRST_STEPS ? cost : 0))
        return;
    b->pause = fmax(b->next_pause, alone && cost > DEAR ? cost / (2 * CREDIT_SHARE) : 0);
    b->next_pause = b->next_pause < PAUSE_MAX ? b->next_pause * 2 : PAUSE_MAX;
    b->tokens = b->nodes = b->steps = 0;
    b->credit = CREDIT_SHARE * b->pause;
}

// The time that that many nodes have added to the pass.
static double more_ms(const struct budget_step *s, int nodes) {
    int64_t rows = s->n + s->other_rows;
    int seqs = s->n + s->other_seqs;
    return price_pass_ms(s->price, rows + nodes, seqs) - price_pass_ms(s->price, rows, seqs);
}

// Whether the draft had more to do in this step than it has from step to step.
static bool any_catching_up(const struct budget_step *s, int which) {
    for (int i = 0; i < s->n; i++) {
        const struct budget_member *m = &s->members[i];
        if (is_drafting(m) && (m->asks & m->budget->catching_up) >> which & 1)
            return true;
    }
    return false;
}

static void note_draft_times(const struct budget_step *s) {
    for (int d = 0; d < price_drafts_of(s->price); d++) {
        int n = asking(s, d);
        if (n && !(price_draft_ready(s->price, d) && any_catching_up(s, d)))
            price_note_draft(s->price, d, n, reach_of(s, d), s->draft[d].ms);
    }
}

// What the drafts that a member asked have taken of it, in tokens.
static double cost_of_drafts(const struct budget_step *s, const struct budget_member *m) {
    double ms = 0;
    for (int d = 0; d < price_drafts_of(s->price); d++) {
        int n = m->asks >> d & 1 ? asking(s, d) : 0;
        if (n)
            ms += fmin(s->draft[d].ms, price_draft_ms(s->price, d, n, reach_of(s, d))) / n;
    }
    return ms * s->n / price_pass_ms(s->price, s->n, s->n);
}

// Of the first guess, which was not verified.
static void learn_unverified(struct budget *b, bool right) {
    struct ddtree t;
    struct walk one = {.count = 1 + right, .path = {0, 1}};
    t.n = 2;
    t.parent[0] = -1;
    t.depth[0] = t.parent[1] = 0;
    t.depth[1] = 1;
    t.score[0] = 0;
    t.score[1] = b->first_score;
    chances_learn(&b->chances, &t, NULL, &one);
}

// What a node of this step has taken beyond its price, in tokens. Prices learn slowly from what
// seems to be a disturbance, so that dear rows could be tried again and again.
static double beyond_price(const struct budget_step *s, int nodes) {
    int64_t rows = s->n + s->other_rows + nodes;
    double over = s->pass_ms - price_pass_ms(s->price, rows, s->n + s->other_seqs);
    return nodes ? fmin(fmax(plain_rate(s) * over / nodes, 0), 1) : 0;
}

// Guesses that cost nothing but the time of their nodes, node_cost tokens each and `beyond` that.
// Verified ones change the stake by what came of them; others raise it from the second in a row on
// that would have been right, by half of what it would have gained, as in a text that begins to
// repeat itself.
static void note_free(const struct budget_member *m, double node_cost, double beyond) {
    struct budget *b = m->budget;
    int forced = forced_prefix(m), nodes = m->tree->n - 1, count = m->walk->count;
    bool right = b->first >= 0 && m->walk->chosen[0] == b->first;
    double expected = count;
    if (nodes > 0)
        expected = chances_learn(&b->chances, m->tree, m->forced, m->walk);
    else if (b->first >= 0)
        learn_unverified(b, right);
    b->tokens += expected - b->tokens / PRICE_STEPS;
    b->nodes += nodes - b->nodes / PRICE_STEPS;
    b->steps += 1 - b->steps / PRICE_STEPS;
    b->run = right ? b->run + 1 : 0;
    b->stake += CREDIT_SHARE / 2 * count;
    double part = beyond > b->dear ? 0.5 : 1.0 / FEW;
    b->dear += (beyond - b->dear) * (nodes > 0 ? part : CREDIT_SHARE / 2);
    if (nodes > forced)
        b->stake += fmax(count - 1 - forced, 0) - (node_cost + beyond) * (nodes - forced);
    else if (b->run > 1)
        b->stake += fmax(1 - node_cost - b->dear, 0) / 2;
    b->stake = fmin(b->stake, CREDIT_MAX + CREDIT_SHARE * b->text);
}

static void note_drafted(const struct budget_step *s, const struct budget_member *m,
                         double node_cost) {
    struct budget *b = m->budget;
    double expected = chances_learn(&b->chances, m->tree, m->forced, m->walk);
    int forced = forced_prefix(m); // which no draft was needed for
    b->drafted_steps++;
    b->tokens += expected - b->tokens / PRICE_STEPS;
    b->nodes += m->tree->n - 1 - b->nodes / PRICE_STEPS;
    b->steps += 1 - b->steps / PRICE_STEPS;
    update_credit(b, m->walk->count - forced, expected - forced,
                  cost_of_drafts(s, m) + node_cost * (m->tree->n - 1 - forced), s->n == 1);
    learn_depths(s, m);
}

// Whether the time of a pass teaches enough to be worth the arithmetic: where all guesses cost
// nothing to make, and none was verified, a few after a pass with guesses do, and a few of many.
static bool is_noted(const struct budget_step *s, int nodes) {
    struct budget *b = s->members[0].budget;
    bool quiet = nodes == 0 && price_ready(s->price);
    for (int i = 0; i < s->n; i++)
        quiet = quiet && s->members[i].free;
    b->plain_steps = quiet && b->text >= PRICE_STEPS ? b->plain_steps + 1 : 0;
    return b->plain_steps % PRICE_STEPS < FEW;
}

void budget_note(const struct budget_step *s) {
    int nodes = 0;
    for (int i = 0; i < s->n; i++)
        nodes += s->members[i].tree->n - 1;
    double beyond = beyond_price(s, nodes);
    note_draft_times(s);
    if (is_noted(s, nodes))
        price_note_pass(s->price, s->n + nodes + s->other_rows, s->n + s->other_seqs, s->pass_ms);
    double plain = s->n / price_pass_ms(s->price, s->n, s->n);
    double node = plain * more_ms(s, nodes ? nodes : 1) / (nodes ? nodes : 1);
    for (int i = 0; i < s->n; i++) {
        const struct budget_member *m = &s->members[i];
        struct budget *b = m->budget;
        b->catching_up = m->drafts ? ~m->asks : ~0u;
        if (m->walk->end != END_NONE)
            continue;
        b->text += m->walk->count;
        if (m->drafts && m->free)
            note_free(m, node, beyond);
        else if (m->drafts)
            note_drafted(s, m, node);
    }
}
