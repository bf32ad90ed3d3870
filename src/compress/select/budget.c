// SPDX-License-Identifier: Apache-2.0
// Options of selection: defaults, checks, curves.
#include "compress/select/budget.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct select_options select_options_default(void) {
    return (struct select_options){
        .budget = SELECT_MASS,
        .mass = 0.9,
        .least = 0.02,
        .most = 0.5,
        .keep = 0.05,
        .head = 256,
        .tail = 768,
        .anchors = true,
    };
}

static int share(double v, const char *what, struct err *e) {
    if (v > 0 && v <= 1) // false of what is no number
        return 0;
    return err_set(e, ERR_USAGE,
                   "%s is %g, but it is a share of the prompt: above 0, at most 1 (0.05 keeps a "
                   "twentieth)",
                   what, v);
}

static int check_curve(const struct select_options *o, struct err *e) {
    if (o->n_points < 1 || o->n_points > SELECT_POINTS)
        return err_set(e, ERR_USAGE, "a curve of keep ratios has 1 to %d points, not %d",
                       SELECT_POINTS, o->n_points);
    for (int i = 0; i < o->n_points; i++) {
        const struct select_point *p = &o->curve[i];
        if (!(p->tokens >= 0) || !isfinite(p->tokens))
            return err_set(e, ERR_USAGE, "point %d of the curve is at %g tokens", i + 1, p->tokens);
        int rc = share(p->keep, "a keep ratio of the curve", e);
        if (rc)
            return rc;
        if (i && p->tokens <= p[-1].tokens)
            return err_set(e, ERR_USAGE,
                           "the curve has a point at %.0f tokens behind one at %.0f; lengths must "
                           "rise from point to point",
                           p->tokens, p[-1].tokens);
    }
    return 0;
}

int select_options_check(const struct select_options *o, struct err *e) {
    int rc = 0;
    if (o->head < 0 || o->tail < 0 || o->anchor_radius < 0 || o->anchor_hits < 0)
        return err_set(e, ERR_USAGE,
                       "head, tail and the radius and hits of anchors cannot be negative");
    if (o->budget == SELECT_RATIO)
        return share(o->keep, "the keep ratio", e);
    if (o->budget == SELECT_CURVE)
        return check_curve(o, e);
    if (o->budget != SELECT_MASS)
        return err_set(e, ERR_USAGE, "there is no budget number %d", (int)o->budget);
    rc = share(o->mass, "the mass of scores to keep", e);
    if (!rc)
        rc = share(o->least, "the least share to keep", e);
    if (!rc)
        rc = share(o->most, "the largest share to keep", e);
    if (!rc && o->least > o->most)
        rc = err_set(e, ERR_USAGE, "the least share to keep, %g, is more than the largest, %g",
                     o->least, o->most);
    return rc;
}

// One number at s; what follows it in *end, which is s if there is none.
static double number(const char *s, char **end) {
    *end = (char *)s;
    return *s == '.' || (*s >= '0' && *s <= '9') ? strtod(s, end) : NAN;
}

static int read_point(const char **at, struct select_point *p, struct err *e) {
    const char *s = *at;
    char *end;
    p->tokens = number(s, &end);
    bool good = end > s && *end == ':';
    if (good) {
        s = end + 1;
        p->keep = number(s, &end);
        good = end > s && (*end == '\0' || strchr(" ,\t\n", *end));
    }
    if (!good)
        return err_set(e, ERR_USAGE,
                       "'%.40s' is no point of a curve; write TOKENS:RATIO, as in 40000:0.2", *at);
    *at = end;
    return 0;
}

int select_curve_read(struct select_options *o, const char *text, size_t n, struct err *e) {
    struct select_options made = *o;
    made.budget = SELECT_CURVE;
    made.n_points = 0;
    char *copy = strndup(text, n);
    if (!copy)
        return err_set(e, ERR_MEMORY, "no memory for a curve");
    const char *at = copy;
    int rc = strlen(copy) < n ? err_set(e, ERR_USAGE, "a curve has a NUL in it") : 0;
    while (!rc && *(at += strspn(at, " ,\t\n"))) {
        if (made.n_points == SELECT_POINTS)
            rc = err_set(e, ERR_USAGE, "a curve has at most %d points", SELECT_POINTS);
        else
            rc = read_point(&at, &made.curve[made.n_points++], e);
    }
    free(copy);
    if (!rc)
        rc = check_curve(&made, e);
    if (!rc)
        *o = made;
    return rc;
}

double select_ratio(const struct select_options *o, int64_t tokens) {
    if (o->budget != SELECT_CURVE)
        return o->keep;
    const struct select_point *p = o->curve;
    double at = (double)tokens;
    if (at <= p[0].tokens)
        return p[0].keep;
    for (int i = 1; i < o->n_points; i++)
        if (at < p[i].tokens)
            return p[i - 1].keep + (p[i].keep - p[i - 1].keep) * (at - p[i - 1].tokens) /
                                       (p[i].tokens - p[i - 1].tokens);
    return p[o->n_points - 1].keep;
}
