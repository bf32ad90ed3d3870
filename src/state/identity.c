// SPDX-License-Identifier: Apache-2.0
// Writing identities, then comparing two of them line by line. Numbers are written so that equal
// texts mean equal bits.
#include "state/identity.h"

#include <string.h>

#include "base/hash.h"

static const char attached[] = "attached: ";

static const char *empty_as(const char *s, const char *other) {
    return s && s[0] ? s : other;
}

static void put_rope(struct str *text, const struct rope *r) {
    if (!r->dims) {
        str_puts(text, "positions: none\n");
        return;
    }
    str_printf(text, "positions: %d of %d in %s, base %.9g", r->dims, r->first,
               r->pairs == ROPE_HALVES ? "halves" : "neighbours", (double)r->base);
    if (r->factor > 0)
        str_printf(text, ", factor %.9g ramp %.9g%s between %.9g and %.9g of %lld",
                   (double)r->factor, (double)r->ramp, r->exact_ramp ? " exactly" : "",
                   (double)r->beta_fast, (double)r->beta_slow, (long long)r->trained);
    if (r->magnitude > 0)
        str_printf(text, ", magnitude %.9g", (double)r->magnitude);
    if (r->factors)
        str_printf(text, ", factors %016llx",
                   (unsigned long long)hash_bytes(r->factors,
                                                  (size_t)(r->dims / 2) * sizeof *r->factors, 0));
    str_putc(text, '\n');
}

static void put_rules(struct str *text, const struct sequence_spec *s) {
    const struct sparse_rule *rule = &s->sparse;
    if (rule->on)
        str_printf(text, "prompts: sparsely, alpha %.9g, first %d, nearest %d", (double)rule->alpha,
                   rule->sinks, rule->window);
    else
        str_puts(text, "prompts: densely");
    if (s->view.window)
        str_printf(text, ", replies see %lld tokens and the first %d", (long long)s->view.window,
                   VIEW_SINKS);
    if (s->view.chosen)
        str_printf(text, " and %lld pages by their keys", (long long)s->view.chosen);
    str_putc(text, '\n');
}

void identity_content(struct str *text, const char *what, uint64_t content) {
    str_printf(text, "content: %s %016llx\n", what, (unsigned long long)content);
}

void identity_group(struct str *text, const struct kv_layout *l, int64_t window) {
    const struct kv_shape *s = &l->s;
    str_printf(text, "keys: %s\nvalues: %s\n", kv_codec_of(s->codec_k)->name,
               kv_codec_of(s->codec_v)->name);
    str_printf(text, "rotated in groups of: %d, %d\n", l->rotate_k, l->rotate_v);
    str_printf(text, "layers: %d, heads %d of %d and %d%s, window %lld, a page %lld\n", s->n_layers,
               s->n_heads, s->dk, s->dv, s->v_in_k ? " in keys" : "", (long long)window,
               (long long)l->page_bytes);
}

void identity_write(struct str *text, const struct identity_of *of) {
    const struct sequence_spec *s = of->spec;
    str_printf(text, "order: %d\ndevice: %s\n", OPS_ORDER, empty_as(of->device, "unknown"));
    str_printf(text, "model: %016llx\n", (unsigned long long)of->model);
    for (int i = 0; i < IDENTITY_ROPES && of->ropes[i]; i++)
        put_rope(text, of->ropes[i]);
    str_printf(text, "adapters: none\nranks: %d\n", of->ranks);
    put_rules(text, s);
    str_printf(text, "recurrent layers: %d of %lld bytes together\n", s->n_recurrent,
               (long long)recurrent_save_bytes(&s->shape, s->n_recurrent));
    for (int i = 0; i < s->n_groups; i++)
        identity_group(text, kv_pool_layout(s->groups[i].pool), s->groups[i].window);
    for (int i = 0; i < s->n_attached; i++) {
        str_printf(text, "%s%s\n", attached, s->attached[i]->name);
        if (s->attached[i]->describe)
            s->attached[i]->describe(s->attached[i], text);
    }
}

uint64_t identity_key(const char *text) {
    uint64_t key = hash_bytes(text, strlen(text), 0);
    return key ? key : 1;
}

// A line of a text: its name and its value, which are not terminated.
struct line {
    const char *name, *value;
    size_t name_len, value_len;
    const char *next;
};

// False: there is no further line of this part.
static bool take_line(const char *at, struct line *l) {
    const char *end = strchr(at, '\n');
    *l = (struct line){0};
    if (!end || strncmp(at, attached, sizeof attached - 1) == 0)
        return false;
    const char *colon = memchr(at, ':', (size_t)(end - at));
    l->name = at;
    l->name_len = (size_t)((colon ? colon : end) - at);
    l->value = colon && colon + 1 < end ? colon + 2 : end;
    l->value_len = (size_t)(end - l->value);
    l->next = end + 1;
    return true;
}

static bool same_text(const char *a, size_t a_len, const char *b, size_t b_len) {
    return a_len == b_len && (a_len == 0 || memcmp(a, b, a_len) == 0);
}

// Of lines by their name; $t is their value, $o the own one, $w the latter without its last word.
static const struct difference {
    const char *name, *sentence;
} differences[] = {
    {"order", "the checkpoint was made by a version of coppice that computes other bits; make it "
              "again"},
    {"device", "the checkpoint was made on another kind of device ($t, here $o), which computes "
               "other bits; make it again"},
    {"positions", "the checkpoint's positions turn by another rule ($t, here $o); use the same "
                  "rotary scaling or make the checkpoint again"},
    {"prompts", "the checkpoint's prompt was read $t and this program reads it $o; use the same "
                "--sparse-prefill, --fa-window and --kv-pool or make the checkpoint again"},
    {"keys", "the checkpoint has its keys as $t, the model as $o; load the model with the "
             "checkpoint's --kv-type"},
    {"values", "the checkpoint has its values as $t, the model as $o; load the model with the "
               "checkpoint's --kv-type"},
    {"content", "the checkpoint was made with another $w; load that one, or none"},
};
static const char other_model[] =
    "the checkpoint was made with another model file; load that one or make the checkpoint again";

// The bytes of a value but its last word.
static size_t without_last_word(const struct line *l) {
    size_t n = l->value_len;
    while (n > 0 && l->value[n - 1] != ' ')
        n--;
    return n > 0 ? n - 1 : 0;
}

static void fill_in(struct str *out, const char *sentence, const struct line *t,
                    const struct line *o) {
    enum { LONGEST = 80 };
    for (const char *p = sentence; *p; p++) {
        if (*p != '$') {
            str_putc(out, *p);
            continue;
        }
        const struct line *l = *++p == 't' ? t : o;
        size_t n = *p == 'w' ? without_last_word(l) : l->value_len;
        if (n)
            str_append(out, l->value, n < LONGEST ? n : LONGEST);
    }
}

static int say_difference(const struct line *t, const struct line *o, struct err *e) {
    const char *sentence = other_model;
    struct str out = {0};
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++) {
        const struct difference *d = &differences[i];
        if (same_text(t->name, t->name_len, o->name, o->name_len) &&
            same_text(d->name, strlen(d->name), o->name, o->name_len))
            sentence = d->sentence;
    }
    fill_in(&out, sentence, t, o);
    int rc = err_set(e, ERR_MISMATCH, "%s", out.failed || !out.data ? other_model : out.data);
    str_fini(&out);
    return rc;
}

// The lines of one part.
static int check_part(const char *theirs, const char *own, struct err *e) {
    struct line t, o;
    for (;;) {
        bool more = take_line(theirs, &t), wanted = take_line(own, &o);
        if (!more && !wanted)
            return 0;
        if (!more || !wanted || !same_text(t.name, t.name_len, o.name, o.name_len) ||
            !same_text(t.value, t.value_len, o.value, o.value_len))
            return say_difference(&t, &o, e);
        theirs = t.next;
        own = o.next;
    }
}

// The next part, at its line `attached: NAME`; NULL: there is none.
static const char *next_part(const char *at) {
    for (const char *end; at; at = end ? end + 1 : NULL) {
        if (strncmp(at, attached, sizeof attached - 1) == 0)
            return at;
        end = strchr(at, '\n');
    }
    return NULL;
}

static const char *after_line(const char *at) {
    const char *end = strchr(at, '\n');
    return end ? end + 1 : at + strlen(at);
}

int identity_check(const char *theirs, const char *own, struct err *e) {
    int rc = check_part(theirs, own, e);
    for (const char *o = next_part(own); !rc && o; o = next_part(after_line(o))) {
        size_t n = (size_t)(after_line(o) - o);
        const char *t = next_part(theirs);
        while (t && strncmp(t, o, n) != 0)
            t = next_part(after_line(t));
        if (!t)
            return err_set(e, ERR_MISMATCH,
                           "the checkpoint has no state of the %.*s; load the model without it, or "
                           "make the checkpoint again with it",
                           (int)(n - sizeof attached), o + sizeof attached - 1);
        rc = check_part(after_line(t), after_line(o), e);
    }
    return rc;
}
