// SPDX-License-Identifier: Apache-2.0
// Rotary angles and the bounds of attention's forms; see attention.h.
#include "ops/attention.h"

#include <math.h>
#include <string.h>

static const double TWO_PI = 6.283185307179586;

// The pair that makes `turns` turns within the trained context, in fractions of pairs.
static double pair_of_turns(const struct rope *r, double turns) {
    return r->dims * log((double)r->trained / (turns * TWO_PI)) / (2 * log((double)r->base));
}

static double clamp(double x, double lo, double hi) {
    return x < lo ? lo : x > hi ? hi : x;
}

// How much of its own angle a pair keeps: 1 before the ramp, 0 after it.
static double kept(double pair, double low, double high) {
    double width = high - low > 0.001 ? high - low : 0.001;
    return 1 - clamp((pair - low) / width, 0, 1);
}

void rope_angles(const struct rope *r, double *angle) {
    double low = 0, high = 0;
    bool yarn = r->factor > 0 && r->factor != 1;
    if (yarn && r->ramp > 0) {
        low = pair_of_turns(r, (double)r->beta_fast);
        high = pair_of_turns(r, (double)r->beta_slow);
        low = clamp(r->exact_ramp ? low : floor(low), 0, r->dims - 1);
        high = clamp(r->exact_ramp ? high : ceil(high), 0, r->dims - 1);
    }
    for (int i = 0; i < r->dims / 2; i++) {
        angle[i] = pow((double)r->base, -2.0 * i / r->dims);
        if (r->factors)
            angle[i] /= (double)r->factors[i];
        if (!yarn)
            continue;
        double own = r->ramp > 0 ? kept(i, low, high) * (double)r->ramp : 0;
        angle[i] = angle[i] / (double)r->factor * (1 - own) + angle[i] * own;
    }
}

bool rope_same(const struct rope *a, const struct rope *b) {
    if (a->first != b->first || a->dims != b->dims || a->pairs != b->pairs || a->base != b->base ||
        a->factor != b->factor || a->ramp != b->ramp || a->beta_fast != b->beta_fast ||
        a->beta_slow != b->beta_slow || a->trained != b->trained ||
        a->exact_ramp != b->exact_ramp || a->magnitude != b->magnitude)
        return false;
    if (!a->factors || !b->factors)
        return a->factors == b->factors;
    return memcmp(a->factors, b->factors, (size_t)(a->dims / 2) * sizeof *a->factors) == 0;
}

int rope_check(const struct rope *r, int dk, struct err *e) {
    if (r->dims < 0 || r->dims % 2 || r->first < 0 || r->first + r->dims > dk)
        return err_set(e, ERR_UNSUPPORTED,
                       "rotary embedding of %d values from number %d on does not fit heads of %d",
                       r->dims, r->first, dk);
    if (r->pairs != ROPE_HALVES && r->pairs != ROPE_NEIGHBOURS)
        return err_set(e, ERR_UNSUPPORTED, "rotary pairs are halves or neighbours, not kind %d",
                       r->pairs);
    if (r->dims && !(r->base > 0))
        return err_set(e, ERR_UNSUPPORTED, "a rotary base of %g is not positive", (double)r->base);
    if (r->factor > 0 && r->factor != 1 && r->ramp > 0 &&
        (r->trained <= 0 || !(r->beta_fast > 0) || !(r->beta_slow > 0) || r->base == 1))
        return err_set(e, ERR_UNSUPPORTED,
                       "YaRN with a trained context of %lld and betas of %g and %g has no ramp",
                       (long long)r->trained, (double)r->beta_fast, (double)r->beta_slow);
    return 0;
}

int attend_check(const struct attend_shape *s, struct err *e) {
    if (s->n_kv < 1 || s->n_heads % s->n_kv || s->n_heads / s->n_kv > OPS_GROUP_MAX)
        return err_set(e, ERR_UNSUPPORTED,
                       "%d query heads over %d kv heads are not supported; up to %d share one",
                       s->n_heads, s->n_kv, OPS_GROUP_MAX);
    if (s->dk < 1 || s->dv < 1 || s->dk > OPS_KEY_MAX || s->dv > OPS_HEAD_MAX)
        return err_set(e, ERR_UNSUPPORTED,
                       "attention heads of %d and %d values are not supported; up to %d and %d are",
                       s->dk, s->dv, OPS_KEY_MAX, OPS_HEAD_MAX);
    return 0;
}

bool sparse_rule_same(const struct sparse_rule *a, const struct sparse_rule *b) {
    if (!a->on || !b->on)
        return a->on == b->on;
    return a->alpha == b->alpha && a->sinks == b->sinks && a->window == b->window;
}
