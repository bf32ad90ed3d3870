// SPDX-License-Identifier: Apache-2.0
// Unknown are the logarithms of a pass's time at some row counts (between them times
// are linear), of what one more sequence takes besides a row, of a draft's time by reach, and of
// what one more member adds to it. They are jointly normal: all share the machine's speed, of which
// nothing is known at first; passes share how steeply rows cost compared with the shape that is
// usual for the kind of device; and near row counts share most of what remains. Each time that is
// noted corrects all of them by an extended Kalman filter (R. E. Kalman, Journal of Basic
// Engineering 82, 1960; linear in the logarithm near the present mean), so one pass sets the scale
// and a few set the slope. Contexts grow and machines have other work: every time noted adds some
// variance again (process noise).
#include "spec/tree/price.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "base/num.h"

// After SEQ come those of each draft: its time by reach, and what one more member adds (MEMBER).
enum {
    KNOTS = 22,
    SEQ = KNOTS,
    DRAFT,
    MEMBER = PRICE_DEPTHS,
    OF_DRAFT,
    DIMS = DRAFT + PRICE_DRAFTS * OF_DRAFT
};

static const int ROWS[KNOTS] = {1,  2,  4,  8,  12, 16,  20,  24,  28,  32,   40,
                                48, 56, 64, 80, 96, 112, 128, 256, 512, 1024, 4096};

// The usual times, compared with a pass of one row. Docs: notes/budget-auto.md.
static const struct shape {
    double rows[KNOTS], seq;
    double draft; // of a pass of as many rows as a draft's block has
    double member;
    double noise; // of one time, as a part of it, at least
    // A step of one row takes longer than its bytes need where it is mostly launches and waits:
    // the part that its experts have of its time, compared with the part that they have of its
    // bytes. An H200 has shown 0.17 to 0.56.
    double experts;
    double launch; // a pass of a draft besides its bytes, compared with a pass of one row
    // What each further row takes of a pass of one where arithmetic bounds even that; 0: never.
    double bound;
} SHAPES[] = {
    [PRICE_CPU] = {{1,    1.04, 1.2, 1.6, 2, 2.35, 2.65, 2.95, 3.25, 3.55, 4.2,
                    4.85, 5.5,  6.2, 7.6, 9, 10.4, 11.8, 23,   45,   90,   360},
                   0.15,
                   0.3,
                   0.7,
                   0.05,
                   1,
                   0.02,
                   0.45},
    [PRICE_GPU] = {{1,    1.02, 1.04, 1.1, 1.18, 1.2, 1.27, 1.29, 1.4, 1.44, 1.6,
                    1.77, 2,    2.25, 2.9, 3.45, 4,   4.5,  7.5,  12,  20,   75},
                   0.07,
                   0.15,
                   0.2,
                   0.03,
                   0.33,
                   0.03,
                   0},
};

// Standard deviations before anything is known, of logarithms. Chosen by a replay
// (docs/notes/budget-auto.md): of what differs from machine to machine, which is how steep rows
// are, what a draft takes compared with a pass and another sequence or member compared with one; of
// what near row counts share, fading with octaves between them, and reaches of a draft; and how
// many of them a row count of which little is known but for the newest pass is priced lower.
static const double UNSURE = 0.5, NEAR = 0.05, OPTIMISM = 0.5;
static const double SPEED = 30; // of the machine: as good as unknown
// A time that is off by more than that many standard deviations is an outlier: if it is slow it
// counts for little, unless the next ones are slow as well.
static const double OUTLIER = 3;
enum { MAX_OUTLIERS = 3 };

struct price {
    const struct shape *shape;
    struct price_experts experts;
    struct price_drafts drafts;
    int dims;
    double mean[DIMS];
    double cov[DIMS][DIMS];
    double ms[KNOTS]; // exp of the mean
    // The same, less where little is known compared with the newest pass, more where with a plain.
    double optimistic[KNOTS], cautious[KNOTS];
    int newest;        // its knot
    double seen[DIMS]; // times that it was seen in
    bool ready;
    int outliers; // slow passes and drafts in a row
    double noise; // variance of recent times
    bool learnt;  // something was noted since it began or was loaded
};

// Of a logarithm around the present mean: its value, and what it changes with.
struct observation {
    double value;
    double slope[DIMS];
};

// The standard deviation of a time compared with that of a pass of one row, of the logarithm.
static double beyond_plain(const struct price *p, int i) {
    return sqrt(fmax(p->cov[i][i] + p->cov[0][0] - 2 * p->cov[i][0], 0));
}

static void refresh_times(struct price *p) {
    for (int i = 0; i < KNOTS; i++)
        p->ms[i] = exp(p->mean[i]);
    for (int i = 0; i < KNOTS; i++) {
        double far = p->cov[i][i] + p->cov[p->newest][p->newest] - 2 * p->cov[i][p->newest];
        p->optimistic[i] = exp(p->mean[i] - OPTIMISM * sqrt(fmax(far, 0)));
        p->cautious[i] = exp(p->mean[i] + beyond_plain(p, i));
    }
    for (int i = 1; i < KNOTS; i++) { // more rows never take less
        p->ms[i] = fmax(p->ms[i], p->ms[i - 1]);
        p->optimistic[i] = fmax(p->optimistic[i], p->optimistic[i - 1]);
        p->cautious[i] = fmax(p->cautious[i], p->cautious[i - 1]);
    }
}

static double shared_variance(int a, int b) {
    double octaves = fabs(log2((double)ROWS[a] / ROWS[b]));
    return NEAR * NEAR * exp(-octaves);
}

static int first_of(int which) {
    return DRAFT + which * OF_DRAFT;
}

// Whether the unknown is a time, and no growth with sequences or members.
static bool is_time(int i) {
    return i < SEQ || (i >= DRAFT && (i - DRAFT) % OF_DRAFT != MEMBER);
}

// Adds variance that times first..last share.
static void add_variance(struct price *p, int first, int last, double variance) {
    for (int i = first; i <= last; i++)
        for (int j = first; j <= last; j++)
            if (is_time(i) && is_time(j))
                p->cov[i][j] += variance;
}

static void add_speed(struct price *p, double variance) {
    add_variance(p, 0, p->dims - 1, variance);
}

static double usual_shape(const struct shape *s, double rows) {
    int i = 0;
    while (i < KNOTS - 2 && ROWS[i + 1] <= rows)
        i++;
    return s->rows[i] + (rows - ROWS[i]) / (ROWS[i + 1] - ROWS[i]) * (s->rows[i + 1] - s->rows[i]);
}

// How much longer than usual a pass takes where arithmetic bounds passes of any number of rows,
// half of the logarithm: most CPUs are not like that.
static double bound_shape(const struct shape *s, double rows) {
    return s->bound > 0 ? 0.5 * log((1 + s->bound * (rows - 1)) / usual_shape(s, rows)) : 0;
}

// The usual time of a pass of some rows, compared with one. Rows that choose experts independently
// go through E (1 - (1 - k / E)^rows) of E, k each; each of these takes what a layer takes that has
// only the rows that chose it.
static double usual_pass(const struct price *p, int rows) {
    const struct price_experts *x = &p->experts;
    double dense = usual_shape(p->shape, rows);
    if (!x->experts)
        return dense;
    double k = x->used, all = x->experts, chosen = all * (1 - pow(1 - k / all, rows));
    double share = p->shape->experts * x->share;
    return (1 - share) * dense +
           share * chosen / k * usual_shape(p->shape, fmax(1, rows * k / chosen));
}

// Of a draft with one pass: usual ones reach 15 deep.
static double block_rows(int reach) {
    enum { BLOCK = 16 };
    return BLOCK >> (reach < PRICE_REACHES ? reach : PRICE_REACHES - 1);
}

// The usual time of a draft, compared with a pass of one row. One with one pass computes a block of
// rows as the target's passes do.
static double usual_draft(const struct price *p, int which, int reach) {
    const struct price_draft *d = &p->drafts.of[which];
    if (d->depth)
        return (d->share + p->shape->launch) * fmax(price_depth_of(p, which, d->depth, reach), 1);
    return p->shape->draft * usual_shape(p->shape, block_rows(reach));
}

// Begins with what is usual for a draft. How dear one is says nothing about another; but where rows
// are dear, they are so in a block.
static void reset_draft(struct price *p, int which, const double logs[KNOTS]) {
    const int first = first_of(which), member = first + MEMBER;
    double steep[PRICE_DEPTHS] = {0}, bound[PRICE_DEPTHS] = {0};
    for (int i = 0; i < PRICE_DEPTHS; i++) {
        p->mean[first + i] = log(usual_draft(p, which, i));
        if (!p->drafts.of[which].depth) {
            steep[i] = UNSURE * log(usual_shape(p->shape, block_rows(i)));
            bound[i] = UNSURE * bound_shape(p->shape, block_rows(i));
        }
        for (int j = 0; j < KNOTS; j++)
            p->cov[first + i][j] = p->cov[j][first + i] =
                UNSURE * (steep[i] * logs[j] + bound[i] * bound_shape(p->shape, ROWS[j]));
    }
    for (int i = 0; i < PRICE_DEPTHS; i++)
        for (int j = 0; j < PRICE_DEPTHS; j++)
            p->cov[first + i][first + j] = UNSURE * UNSURE + steep[i] * steep[j] +
                                           bound[i] * bound[j] + (i == j) * NEAR * NEAR;
    p->mean[member] = log(p->shape->member);
    p->cov[member][member] = UNSURE * UNSURE;
}

static void reset_price(struct price *p) {
    const struct shape *s = p->shape;
    double logs[KNOTS];
    *p = (struct price){
        .shape = s, .experts = p->experts, .drafts = p->drafts, .dims = first_of(p->drafts.n)};
    for (int i = 0; i < KNOTS; i++)
        logs[i] = log(usual_pass(p, ROWS[i]));
    for (int i = 0; i < KNOTS; i++) {
        p->mean[i] = logs[i];
        for (int j = 0; j < KNOTS; j++)
            p->cov[i][j] =
                UNSURE * UNSURE *
                    (logs[i] * logs[j] + bound_shape(s, ROWS[i]) * bound_shape(s, ROWS[j])) +
                shared_variance(i, j);
    }
    for (int d = 0; d < p->drafts.n; d++)
        reset_draft(p, d, logs);
    p->mean[SEQ] = log(s->seq);
    p->cov[SEQ][SEQ] = UNSURE * UNSURE;
    p->noise = s->noise * s->noise;
    add_speed(p, SPEED * SPEED);
    refresh_times(p);
}

int price_create(struct price **out, enum price_kind kind, const struct price_experts *experts,
                 const struct price_drafts *drafts, struct err *e) {
    struct price *p = malloc(sizeof *p);
    if (!p)
        return err_set(e, ERR_MEMORY, "no memory for what passes cost");
    p->shape = &SHAPES[kind];
    p->experts = experts ? *experts : (struct price_experts){0};
    p->drafts = drafts ? *drafts : (struct price_drafts){0};
    p->drafts.n = min_i32(max_i32(p->drafts.n, 1), PRICE_DRAFTS);
    reset_price(p);
    *out = p;
    return 0;
}

void price_destroy(struct price *p) {
    free(p);
}

bool price_ready(const struct price *p) {
    return p->ready;
}

bool price_settled(const struct price *p) {
    return p->ready || p->shape->bound <= 0;
}

// The knot at or below, and the part of the way to the next.
static int knot_below(int64_t rows, double *part) {
    int i = 0;
    while (i < KNOTS - 2 && ROWS[i + 1] <= rows)
        i++;
    *part = (double)(rows - ROWS[i]) / (ROWS[i + 1] - ROWS[i]);
    return i;
}

static double on_curve(const double ms[KNOTS], int64_t rows) {
    double part;
    int i = knot_below(rows, &part);
    return ms[i] + part * (ms[i + 1] - ms[i]);
}

static double rows_ms(const struct price *p, int64_t rows) {
    return on_curve(p->ms, rows);
}

double price_pass_ms(const struct price *p, int64_t rows, int seqs) {
    return rows_ms(p, rows) + (seqs - 1) * p->ms[0] * exp(p->mean[SEQ]);
}

double price_optimistic_ms(const struct price *p, int64_t rows, int seqs) {
    return on_curve(p->optimistic, rows) + (seqs - 1) * p->optimistic[0] * exp(p->mean[SEQ]);
}

double price_cautious_ms(const struct price *p, int64_t rows, int seqs) {
    return on_curve(p->cautious, rows) + (seqs - 1) * p->cautious[0] * exp(p->mean[SEQ]);
}

int price_drafts_of(const struct price *p) {
    return p->drafts.n;
}

double price_draft_ms(const struct price *p, int which, int members, int reach) {
    const double *mean = p->mean + first_of(which);
    return exp(mean[reach]) * (1 + (members - 1) * exp(mean[MEMBER]));
}

double price_cautious_draft_ms(const struct price *p, int which, int members, int reach) {
    return price_draft_ms(p, which, members, reach) * exp(beyond_plain(p, first_of(which) + reach));
}

int price_depth(int max, int reach) {
    enum { SHALLOW = 3 };
    int depth = reach < PRICE_REACHES ? max >> reach : 0;
    return reach == 0 || depth >= SHALLOW ? depth : 0;
}

// All depths of a draft that is not deep; of others the first ones, the whole and one between.
int price_depth_of(const struct price *p, int which, int max, int reach) {
    if (!p->drafts.of[which].depth)
        return price_depth(max, reach);
    if (reach >= PRICE_DEPTHS || reach == 0 || max <= PRICE_DEPTHS)
        return reach < PRICE_DEPTHS && reach < max ? max - reach : 0;
    return reach == 1 ? (max + PRICE_DEPTHS - 1) / 2 : PRICE_DEPTHS - reach;
}

static void observe_rows(const struct price *p, int64_t rows, double weight,
                         struct observation *v) {
    double part;
    int i = knot_below(rows, &part);
    double above = part * p->ms[i + 1], ms = p->ms[i] - part * p->ms[i] + above;
    v->slope[i] += weight * (1 - above / ms);
    v->slope[i + 1] += weight * above / ms;
}

static struct observation observe_pass(const struct price *p, int64_t rows, int seqs) {
    struct observation v = {.value = log(price_pass_ms(p, rows, seqs))};
    double more = 1 - rows_ms(p, rows) / exp(v.value); // the part that the sequences take
    observe_rows(p, rows, 1 - more, &v);
    v.slope[0] += more;
    v.slope[SEQ] = more;
    return v;
}

static struct observation observe_draft(const struct price *p, int which, int members, int reach) {
    const int first = first_of(which);
    struct observation v = {.value = log(price_draft_ms(p, which, members, reach))};
    double more = (members - 1) * exp(p->mean[first + MEMBER]);
    v.slope[first + reach] = 1;
    v.slope[first + MEMBER] = more / (1 + more);
    return v;
}

// The covariance of what is seen with each unknown; its own variance is returned.
static double spread(const struct price *p, const struct observation *v, double with[DIMS]) {
    double own = 0;
    for (int i = 0; i < p->dims; i++) {
        with[i] = 0;
        for (int j = 0; j < p->dims; j++)
            with[i] += p->cov[i][j] * v->slope[j];
        own += v->slope[i] * with[i];
    }
    return own;
}

// Believes that what is seen is off by `off`, as far as a standard deviation `noise` allows.
static void correct_means(struct price *p, const struct observation *v, double off, double noise) {
    double with[DIMS], all = spread(p, v, with) + noise * noise;
    for (int i = 0; i < p->dims; i++)
        p->mean[i] += with[i] / all * off;
    for (int i = 0; i < p->dims; i++)
        for (int j = 0; j < p->dims; j++)
            p->cov[i][j] -= with[i] * with[j] / all;
    refresh_times(p);
}

// The unknowns that are of one kind: times of passes, or of a draft.
struct span {
    int first, last;
};

static bool span_seen(const struct price *p, const struct span *of) {
    double seen = 0;
    for (int i = of->first; i <= of->last; i++)
        seen += p->seen[i];
    return seen > 0;
}

// Learns from a time. One that is far too long is most likely a disturbance and counts for little;
// one that is far too short, or the third in a row that is too long, says that the machine is
// another than it was believed to be.
static void learn_time(struct price *p, const struct observation *v, const struct span *of,
                       double ms) {
    double with[DIMS], off = log(ms) - v->value, noise = sqrt(p->noise);
    if (!p->ready || (of->first && !span_seen(p, of))) // first times may be slow for many reasons
        noise = fmax(noise, UNSURE);
    double known = spread(p, v, with), far = off / sqrt(known + noise * noise);
    if (p->ready && known < p->noise) {
        double seen = fmin(off * off, OUTLIER * OUTLIER * p->noise);
        p->noise += (fmax(seen, p->shape->noise * p->shape->noise) - p->noise) / PRICE_STEPS;
    }
    p->outliers = far > OUTLIER ? p->outliers + 1 : 0;
    if (far < -OUTLIER || p->outliers >= MAX_OUTLIERS) {
        add_variance(p, of->first, of->last, off * off);
        p->outliers = 0;
    } else if (far > OUTLIER) {
        noise *= far / OUTLIER * far / OUTLIER;
    }
    correct_means(p, v, off, noise);
    for (int i = 0; i < p->dims; i++)
        p->seen[i] += v->slope[i];
    p->learnt = true;
}

void price_note_pass(struct price *p, int64_t rows, int seqs, double ms) {
    if (!(ms > 0))
        return;
    struct observation v = observe_pass(p, rows, seqs);
    double part;
    int i = knot_below(rows, &part);
    // Contexts grow, and machines have other work: as much as makes a mean of half as many times.
    add_speed(p, p->noise / (PRICE_STEPS * PRICE_STEPS / 4));
    p->newest = part > 0.5 ? i + 1 : i;
    learn_time(p, &v, &(struct span){0, KNOTS - 1}, ms);
    p->ready = true;
}

void price_note_draft(struct price *p, int which, int members, int reach, double ms) {
    if (!(ms > 0))
        return;
    const int first = first_of(which);
    struct observation v = observe_draft(p, which, members, reach);
    learn_time(p, &v, &(struct span){first, first + MEMBER - 1}, ms);
}

bool price_learnt(const struct price *p) {
    return p->learnt;
}

int price_known_rows(const struct price *p) {
    int known = 0;
    for (int i = 0; i < KNOTS; i++)
        known = p->seen[i] >= 0.5 ? ROWS[i] : known;
    return known;
}

bool price_draft_ready(const struct price *p, int which) {
    double seen = 0;
    for (int i = 0; i < PRICE_DEPTHS; i++)
        seen += p->seen[first_of(which) + i];
    return seen > 0;
}

// The file: {"version", "key", "passes": [[rows, sequences, ms, deviation]...], "drafts":
// [[[members, reach, ms, deviation]...]...]}, a list for each draft: of those prices that have been
// seen, times that make a price know as much that knows nothing. The deviation is a standard one,
// as a part of the time.
enum { VERSION = 2, FILE_MAX = 1 << 16 };

void price_path(struct str *out, const char *folder, const char *key) {
    str_printf(out, "%s/price-%016" PRIx64 ".json", folder, hash_bytes(key, strlen(key), 0));
}

static int reaches_of(const struct price *p, int which) {
    return p->drafts.of[which].depth ? PRICE_DEPTHS : PRICE_REACHES;
}

static void write_time(struct json_writer *w, const struct price *p, double seen, int64_t a,
                       int64_t b, double ms) {
    if (seen < 0.5) // that is never
        return;
    jw_begin(w, '[');
    jw_int(w, a);
    jw_int(w, b);
    jw_num(w, ms);
    jw_num(w, p->shape->noise); // of one time, however often it was seen: it is another day
    jw_end(w, ']');
}

enum { SEVERAL = 8 };

static void write_draft(struct json_writer *w, const struct price *p, int which) {
    const double *seen = p->seen + first_of(which);
    jw_begin(w, '[');
    for (int i = 0; i < reaches_of(p, which); i++)
        write_time(w, p, seen[i], 1, i, price_draft_ms(p, which, 1, i));
    write_time(w, p, seen[MEMBER], SEVERAL, 0, price_draft_ms(p, which, SEVERAL, 0));
    jw_end(w, ']');
}

static void write_times(struct json_writer *w, const struct price *p, const char *key) {
    jw_begin(w, '{');
    jw_key_int(w, "version", VERSION);
    jw_key_str(w, "key", key);
    jw_key(w, "passes");
    jw_begin(w, '[');
    for (int i = 0; i < KNOTS; i++)
        write_time(w, p, p->seen[i], ROWS[i], 1, p->ms[i]);
    write_time(w, p, p->seen[SEQ], SEVERAL, SEVERAL, price_pass_ms(p, SEVERAL, SEVERAL));
    jw_end(w, ']');
    jw_key(w, "drafts");
    jw_begin(w, '[');
    for (int d = 0; d < p->drafts.n; d++)
        write_draft(w, p, d);
    jw_end(w, ']');
    jw_end(w, '}');
}

int price_save(const struct price *p, const char *path, const char *key, struct err *e) {
    struct json_writer w = {0};
    struct file_new f;
    write_times(&w, p, key);
    int rc = w.out.failed ? err_set(e, ERR_MEMORY, "no memory to keep what passes cost")
                          : file_new_open(&f, path, e);
    if (!rc) {
        rc = file_new_write(&f, w.out.data, w.out.len, e);
        if (rc)
            file_new_abort(&f);
        else
            rc = file_new_close(&f, e);
    }
    str_fini(&w.out);
    return rc;
}

// A list of times of a file, of passes or of a draft; which: PASSES, or a draft.
enum { PASSES = -1 };

// One of them, into *p; false where it makes no sense.
static bool read_time(struct price *p, const struct json *t, int which) {
    const bool draft = which != PASSES;
    int64_t a = json_int(json_at(t, 0), 0), b = json_int(json_at(t, 1), -1);
    double ms = json_num(json_at(t, 2), 0), deviation = json_num(json_at(t, 3), -1);
    bool counts = draft ? a <= ROWS[KNOTS - 1] && b >= 0 && b < reaches_of(p, which)
                        : a <= ROWS[KNOTS - 1] && b >= 1 && b <= a;
    if (json_len(t) != 4 || a < 1 || !counts || !(ms > 1e-6 && ms < 1e9) || !(deviation >= 0))
        return false;
    struct observation v =
        draft ? observe_draft(p, which, (int)a, (int)b) : observe_pass(p, a, (int)b);
    correct_means(p, &v, log(ms) - v.value, fmax(deviation, p->shape->noise));
    for (int i = 0; i < p->dims; i++)
        p->seen[i] += v.slope[i];
    p->ready = p->ready || !draft;
    return true;
}

static bool read_times(struct price *p, const struct json *list, int which) {
    if (json_kind_of(list) != JSON_ARRAY)
        return false;
    for (size_t i = 0; i < json_len(list); i++)
        if (!read_time(p, json_at(list, i), which))
            return false;
    return true;
}

static bool read_drafts(struct price *p, const struct json *lists) {
    bool ok = json_kind_of(lists) == JSON_ARRAY && json_len(lists) == (size_t)p->drafts.n;
    for (int d = 0; ok && d < p->drafts.n; d++)
        ok = read_times(p, json_at(lists, (size_t)d), d);
    return ok;
}

int price_load(struct price *p, const char *path, const char *key, struct err *e) {
    struct str text = {0};
    struct json *root = NULL;
    struct price fresh = {.shape = p->shape, .experts = p->experts, .drafts = p->drafts};
    int rc = file_read(&text, path, FILE_MAX, e);
    if (!rc)
        rc = json_parse(&root, text.data, text.len, e);
    if (rc) {
        str_fini(&text);
        return rc;
    }
    size_t n = 0;
    const char *whose = json_str(json_get(root, "key"), &n);
    reset_price(&fresh);
    if (json_int(json_get(root, "version"), 0) != VERSION)
        rc = err_set(e, ERR_MISMATCH, "%s is of another version", path);
    else if (!whose || n != strlen(key) || memcmp(whose, key, n) != 0)
        rc = err_set(e, ERR_MISMATCH, "%s is of another model, device or build", path);
    else if (!read_times(&fresh, json_get(root, "passes"), PASSES) ||
             !read_drafts(&fresh, json_get(root, "drafts")))
        rc = err_set(e, ERR_FORMAT, "%s has times that make no sense", path);
    else
        *p = fresh;
    json_free(root);
    str_fini(&text);
    return rc;
}
