// SPDX-License-Identifier: Apache-2.0
// The machine of calls.h. Outside of calls all text but what may become a mark is decided;
// from a mark on, everything is held until the call is whole or turns out to be none. Then its
// first byte is text, and the search goes on after it.
#include "text/tools/calls.h"

#include <stdlib.h>
#include <string.h>

#include "text/tools/args.h"

enum {
    MIN_PIECE = 3,       // bytes that tell the beginning of a mark from words such as "a <"
    MAX_AGAIN = 4 << 20, // bytes of a reply that may be looked at once more
};

enum state {
    TEXT,    // looking for a mark
    HEAD,    // from a mark to the arguments
    ARGS,    // in the arguments
    TAIL,    // after them
    BETWEEN, // after a call: another may follow
    AGAIN,   // HEAD of such another
    WORDS,   // nothing is looked for any more
};

static const struct tool_format *format_of(const struct tool_calls *c) {
    return &tool_formats[c->family];
}

int tool_calls_init(struct tool_calls *c, enum tool_family f, const struct tool_set *set,
                    bool constrained, struct err *e) {
    *c = (struct tool_calls){.family = f, .constrained = constrained};
    if (!set || set->n == 0)
        return 0;
    c->reader = calloc(1, sizeof *c->reader);
    if (!c->reader)
        return err_set(e, ERR_MEMORY, "no memory for reading calls of tools");
    c->set = set;
    return 0;
}

void tool_calls_fini(struct tool_calls *c) {
    if (c->reader)
        tool_args_fini(c->reader);
    free(c->reader);
    str_fini(&c->held);
    str_fini(&c->args);
    str_fini(&c->said_input);
    *c = (struct tool_calls){0};
}

static void drop_held(struct tool_calls *c, size_t n) {
    if (n == 0)
        return;
    c->held.len -= n;
    memmove(c->held.data, c->held.data + n, c->held.len);
    c->held.data[c->held.len] = 0;
}

// The first n held bytes are text, but for frames, unless the reply has none.
static void put_held_text(struct tool_calls *c, size_t n, const struct tool_sink *s) {
    size_t from = 0;
    if (c->only) { // blanks, or a piece of a mark
        drop_held(c, n);
        return;
    }
    for (size_t i = 0; i <= n; i++) {
        if (i < n && (unsigned char)c->held.data[i] < 0xfe)
            continue;
        if (i > from) {
            s->text(s->arg, c->held.data + from, i - from);
            c->said = true;
        }
        from = i + 1;
    }
    drop_held(c, n);
}

// Starts over after the first byte that is no blank. Beginnings of calls within each other would
// make a long reply cost its square: after many of them all is text.
static void put_broken_call(struct tool_calls *c, const struct tool_sink *s) {
    size_t n = tool_blanks(c, 0);
    c->again += c->held.len;
    put_held_text(c, c->again > MAX_AGAIN ? c->held.len : n + (n < c->held.len), s);
    c->state = c->again > MAX_AGAIN ? WORDS : TEXT;
    c->at = 0;
}

// The least place from `from` where one of the marks stands or may yet stand.
static size_t find_mark(const struct tool_calls *c, const char *const marks[], int n, size_t from,
                        bool end) {
    for (size_t at = from; at < c->held.len; at++)
        for (int i = 0; i < n; i++)
            if (marks[i] && marks[i][0] && tool_stands(c, at, marks[i]) >= !!end)
                return at;
    return c->held.len;
}

// How much of the end of a reply is the beginning of a mark, with the blanks before it, and no
// text: where a reply is all calls whatever is undecided, else what has been cut off within a mark.
static size_t lost_piece(const struct tool_calls *c, const char *const marks[]) {
    size_t at = find_mark(c, marks, 2, 0, false), n = c->held.len - at;
    if (!c->cut || n < MIN_PIECE)
        return 0;
    while (at > 0 && json_pieces_blank(c->held.data[at - 1]))
        at--;
    return c->held.len - at;
}

static bool step_text(struct tool_calls *c, const struct tool_sink *s, bool end) {
    const struct tool_format *f = format_of(c);
    const char *const marks[] = {f->section, f->open};
    size_t blanks = tool_blanks(c, 0);
    bool bare = f->first_only && !c->said && !c->called && blanks < c->held.len &&
                c->held.data[blanks] == '{';
    size_t at = bare ? blanks : find_mark(c, marks, 2, 0, end), keep = at;
    bool mark = at < c->held.len && (bare || (f->open[0] && tool_stands(c, at, f->open) == 1) ||
                                     (f->section && tool_stands(c, at, f->section) == 1));
    while (keep > 0 && at - keep < TOOL_MAX_BLANKS && json_pieces_blank(c->held.data[keep - 1]))
        keep--;
    if (end && !mark)
        keep = c->held.len - lost_piece(c, marks);
    put_held_text(c, keep, s);
    if (end && !mark)
        drop_held(c, c->held.len);
    if (!mark)
        return false;
    c->state = HEAD;
    c->at = 0;
    return true;
}

// Takes a mark at c->at after blanks. 1 taken, 0 not yet known, -1 it is not there.
static int read_mark(struct tool_calls *c, const char *mark) {
    size_t blanks = tool_blanks(c, c->at);
    int is = mark && mark[0] ? tool_stands(c, c->at + blanks, mark) : 1;
    if (blanks > TOOL_MAX_BLANKS)
        return -1;
    if (is == 1 && mark && mark[0])
        c->at += blanks + strlen(mark);
    return is;
}

// The marks before a call's name.
static int read_opening_marks(struct tool_calls *c) {
    const struct tool_format *f = format_of(c);
    if (c->state == AGAIN && f->between)
        return read_mark(c, f->between);
    int is = f->section ? read_mark(c, f->section) : -1;
    if (is == 0)
        return 0;
    if (f->list)
        return is == 1 ? read_mark(c, f->list) : -1;
    return read_mark(c, f->open);
}

// The name that ends at the first of its ends.
static enum tool_step read_name(struct tool_calls *c, bool end) {
    const struct tool_format *f = format_of(c);
    size_t from = c->at, at = find_mark(c, f->name_end, 3, from, end), n = at - from;
    if (n > TOOL_MAX_HEAD)
        return TOOL_BAD;
    const char *mark = NULL;
    for (int i = 0; i < 3 && at < c->held.len; i++)
        if (f->name_end[i] && tool_stands(c, at, f->name_end[i]) == 1)
            mark = f->name_end[i];
    if (!mark)
        return end ? TOOL_BAD : TOOL_MORE;
    const char *name = c->held.data + from;
    if (f->pick)
        name = f->pick(name, &n);
    while (name && n > 0 && json_pieces_blank(*name))
        name++, n--;
    while (name && n > 0 && json_pieces_blank(name[n - 1]))
        n--;
    c->tool = name ? tool_set_find(c->set, name, n) : NULL;
    c->at = f->keep_end ? at : at + strlen(mark);
    return c->tool ? TOOL_OK : TOOL_BAD;
}

static enum tool_step read_head(struct tool_calls *c, bool end) {
    const struct tool_format *f = format_of(c);
    c->at = 0;
    c->tool = NULL;
    int is = read_opening_marks(c);
    if (is == 1 && f->prefix) {
        is = read_mark(c, f->prefix);
        is = is < 0 && !f->prefix_needed ? 1 : is;
    }
    if (is != 1)
        return is == 0 && !end ? TOOL_MORE : TOOL_BAD;
    return f->name_end[0] ? read_name(c, end) : TOOL_OK;
}

static enum tool_step read_arguments(struct tool_calls *c, bool end) {
    switch (format_of(c)->args) {
    case TOOL_ARGS_JSON:
        return tool_read_json(c, end);
    case TOOL_ARGS_NAMED:
        return tool_read_named(c, end);
    case TOOL_ARGS_TAGGED:
        return tool_read_tagged(c, end);
    case TOOL_ARGS_GEMMA:
        break;
    }
    return tool_read_gemma(c, end);
}

// After the arguments: the mark that ends the call, which the end of the reply may stand for.
static enum tool_step read_tail(struct tool_calls *c, bool end) {
    const struct tool_format *f = format_of(c);
    size_t from = c->at;
    int is = -1;
    for (int i = 0; i < HARMONY_ENDS && c->family == TOOLS_HARMONY && is < 0; i++)
        is = read_mark(c, harmony_ends[i]);
    if (is == 0 && !end)
        return TOOL_MORE;
    is = read_mark(c, f->close);
    if (is == 0 && end)
        c->at = c->held.len;
    else if (is == 0)
        c->at = from; // read again when more has come
    return is == 1 || (is == 0 && end) ? TOOL_OK : is == 0 ? TOOL_MORE : TOOL_BAD;
}

static void begin_call(struct tool_calls *c, const struct tool_sink *s) {
    if (!c->open)
        s->begin(s->arg, c->tool);
    c->open = c->called = true;
}

// Arguments go out as they come, of a freeform tool their text.
static void put_arguments(struct tool_calls *c, const struct tool_sink *s) {
    const struct str *new = &c->args;
    if (!c->constrained || !c->tool || c->args.len == 0)
        return;
    begin_call(c, s);
    if (c->tool->freeform) {
        str_clear(&c->said_input);
        freeform_push(&c->input, c->args.data, c->args.len, &c->said_input);
        c->failed |= c->said_input.failed;
        new = &c->said_input;
    }
    if (new->len)
        s->arguments(s->arg, new->data, new->len);
    str_clear(&c->args);
    drop_held(c, c->at);
    c->at = 0;
}

// The text of a freeform tool out of its arguments.
static bool read_freeform_input(struct tool_calls *c) {
    struct json *object = NULL;
    struct err e = {0};
    size_t n = 0;
    if (json_parse(&object, c->args.data, c->args.len, &e)) {
        c->failed |= e.code == ERR_MEMORY;
        return false;
    }
    const char *input = json_str(json_get(object, "input"), &n);
    str_clear(&c->args);
    if (input)
        str_append(&c->args, input, n);
    json_free(object);
    return input != NULL;
}

static bool finish_call(struct tool_calls *c, const struct tool_sink *s) {
    if (c->tool->freeform && !c->open && !read_freeform_input(c))
        return false;
    begin_call(c, s);
    if (c->args.len)
        s->arguments(s->arg, c->args.data, c->args.len);
    s->end(s->arg, !c->constrained || !c->tool->freeform || c->input.state == FREEFORM_DONE);
    c->open = c->closed = false;
    drop_held(c, c->at);
    c->at = 0;
    c->state = BETWEEN;
    return true;
}

// What began as a call is none, or not to its end. At the end of the reply all that is held belongs
// to a call that is open, and where a mark alone or nothing but calls makes a call to one that
// never came to be.
static void break_off_call(struct tool_calls *c, bool whole, bool end, const struct tool_sink *s) {
    bool lost = end && (c->only || (c->constrained && !format_of(c)->first_only));
    if (!c->open && !lost) {
        put_broken_call(c, s);
        return;
    }
    if (c->open)
        s->end(s->arg, whole);
    c->open = false;
    drop_held(c, end ? c->held.len : c->at);
    c->at = 0;
    c->state = TEXT;
}

static bool step_call(struct tool_calls *c, const struct tool_sink *s, bool end) {
    enum tool_step step = TOOL_OK;
    bool was_tail = c->state == TAIL;
    if (c->state == HEAD || c->state == AGAIN) {
        step = read_head(c, end);
        if (step == TOOL_OK) {
            c->state = ARGS;
            tool_args_reset(c->reader);
            str_clear(&c->args);
            c->input = (struct freeform){0};
        }
    } else if (c->state == ARGS) {
        step = read_arguments(c, end);
        c->failed |= c->args.failed;
        put_arguments(c, s);
        if (step == TOOL_OK)
            c->state = TAIL;
    } else {
        step = read_tail(c, end);
        if (step == TOOL_OK && !finish_call(c, s))
            step = TOOL_BAD;
    }
    if (step == TOOL_BAD || (step == TOOL_MORE && end))
        break_off_call(c, was_tail, end, s);
    return step != TOOL_MORE || end;
}

static void close_section(struct tool_calls *c, size_t n) {
    drop_held(c, n);
    c->closed = true;
}

// After a call: an end of its section, another one, or text, to which many blanks belong, too.
static bool step_between(struct tool_calls *c, bool end) {
    const struct tool_format *f = format_of(c);
    const char *const next[] = {f->section_end, f->between, f->section, f->open};
    size_t blanks = tool_blanks(c, 0);
    int best = -1, which = -1;
    if (blanks == c->held.len && blanks <= TOOL_MAX_BLANKS) {
        if (end)
            drop_held(c, blanks);
        return false;
    }
    for (int i = 0; i < 4 && blanks <= TOOL_MAX_BLANKS; i++) {
        bool may = next[i] && next[i][0] && !(i == 0 && c->closed);
        int is = may ? tool_stands(c, blanks, next[i]) : -1;
        if (is > best) {
            best = is;
            which = i;
        }
    }
    if (f->first_only && best < 0 && blanks < c->held.len && c->held.data[blanks] == '{')
        best = 1, which = 3;
    if (best == 0 && !end)
        return false;
    if (best == 0 && (c->only || c->constrained || c->cut)) { // a piece of a mark
        drop_held(c, c->held.len);
        return false;
    }
    c->at = 0;
    if (best < 1)
        c->state = TEXT;
    else if (which == 0)
        close_section(c, blanks + strlen(f->section_end));
    else
        c->state = which == 1 ? AGAIN : HEAD;
    return c->held.len > 0;
}

static bool read_step(struct tool_calls *c, const struct tool_sink *s, bool end) {
    if (c->state == WORDS) {
        put_held_text(c, c->held.len, s);
        return false;
    }
    if (c->state == TEXT)
        return step_text(c, s, end);
    return c->state == BETWEEN ? step_between(c, end) : step_call(c, s, end);
}

static void read_held(struct tool_calls *c, bool end, const struct tool_sink *s) {
    while (!c->failed && !c->held.failed && (c->held.len > 0 || c->open) && read_step(c, s, end))
        continue;
    c->failed |= c->held.failed;
}

void tool_calls_push(struct tool_calls *c, const char *text, size_t n, const struct tool_sink *s) {
    if (!c->set) {
        if (n)
            s->text(s->arg, text, n);
        return;
    }
    str_append(&c->held, text, n);
    read_held(c, false, s);
}

void tool_calls_end(struct tool_calls *c, bool cut, const struct tool_sink *s) {
    c->cut = cut;
    if (c->set)
        read_held(c, true, s);
}
