// SPDX-License-Identifier: Apache-2.0
// See reasoning.h. A small machine over text that is UTF-8 already. In each state it looks for the
// marks that mean something there; all before the first of them is decided, and so is all but the
// longest end that may still become one.
#include "text/chat/reasoning.h"

#include <string.h>

#include "text/tools/formats.h"

enum {
    MAX_MARKS = 5,
    MAX_BLANKS = 64, // that may stand before a mark at the beginning
    MIN_PIECE = 3,   // bytes that tell the beginning of a mark from words such as "a <"
    MAX_HEADER = 256 // bytes of a message's header in HARMONY
};

enum state {
    START,   // nothing but blanks came: an opening mark may follow
    OPENED,  // nothing but blanks came in a block: a repeated opening mark may follow
    INSIDE,  // in a block
    AFTER,   // after a block: blanks are dropped
    CONTENT, // in the answer
    HEADER,  // HARMONY: before the body of a message
    BODY,    // HARMONY: in the body of a message
};

struct family {
    const char *name, *open, *close;
    const char *resume; // a mark that stands before the answer and is dropped
    bool anywhere;      // the marks are tokens of their own: a block may begin at any place
};
static const struct family families[REASONING_FAMILIES] = {
    [REASONING_NONE] = {"none", NULL, NULL, NULL, false},
    [REASONING_THINK] = {"think", "<think>", "</think>", NULL, false},
    [REASONING_SEED] = {"seed", "<seed:think>", "</seed:think>", NULL, false},
    [REASONING_BRACKETS] = {"brackets", "[THINK]", "[/THINK]", NULL, false},
    [REASONING_COHERE] = {"cohere", "<|START_THINKING|>", "<|END_THINKING|>", NULL, false},
    [REASONING_APERTUS] = {"apertus", "<|inner_prefix|>", "<|inner_suffix|>", NULL, true},
    [REASONING_SOLAR] = {"solar", "<|think|>", "<|end|>", "<|begin|>assistant<|content|>", true},
    [REASONING_CHANNEL] = {"channel", "<|channel>thought", "<channel|>", NULL, true},
    [REASONING_HARMONY] = {"harmony", "<|channel|>analysis<|message|>", "<|end|>", NULL, true},
};

static bool has_mark(const char *text, size_t n, const char *mark) {
    return memmem(text, n, mark, strlen(mark)) != NULL;
}

enum reasoning_family reasoning_of_template(const char *text, size_t n) {
    if (has_mark(text, n, "<|channel|>") && has_mark(text, n, "<|message|>"))
        return REASONING_HARMONY;
    if (has_mark(text, n, "<|channel>") && has_mark(text, n, "<channel|>"))
        return REASONING_CHANNEL;
    if (has_mark(text, n, "<|think|>") && has_mark(text, n, "<|content|>"))
        return REASONING_SOLAR;
    static const enum reasoning_family by_close[] = {
        REASONING_SEED, REASONING_BRACKETS, REASONING_COHERE, REASONING_APERTUS, REASONING_THINK};
    for (size_t i = 0; i < sizeof by_close / sizeof *by_close; i++)
        if (has_mark(text, n, families[by_close[i]].close) ||
            has_mark(text, n, families[by_close[i]].open))
            return by_close[i];
    return REASONING_NONE;
}

const char *reasoning_name(enum reasoning_family f) {
    return families[f].name;
}

const char *reasoning_opening(enum reasoning_family f) {
    return families[f].open;
}

const char *reasoning_closing(enum reasoning_family f) {
    return families[f].close;
}

bool reasoning_anywhere(enum reasoning_family f) {
    return families[f].anywhere;
}

void reasoning_init(struct reasoning *r, enum reasoning_family f, bool inside) {
    *r = (struct reasoning){.family = f};
    if (f == REASONING_HARMONY) {
        r->state = inside ? BODY : HEADER;
        r->to_reason = inside;
    } else if (f != REASONING_NONE) {
        r->state = inside ? OPENED : START;
    } else {
        r->state = CONTENT;
    }
}

void reasoning_fini(struct reasoning *r) {
    str_fini(&r->held);
}

// Where a stretch of held text ends up.
struct sink {
    struct str *reasoning, *content;
};

static void drop_held(struct reasoning *r, size_t n) {
    if (n == 0)
        return;
    r->held.len -= n;
    memmove(r->held.data, r->held.data + n, r->held.len);
    r->held.data[r->held.len] = 0;
}

// Takes the first n bytes out, to where the state says.
static void put_held(struct reasoning *r, size_t n, const struct sink *s) {
    bool reason = r->state == INSIDE || r->state == OPENED || (r->state == BODY && r->to_reason);
    if (n == 0)
        return;
    str_append(reason ? s->reasoning : s->content, r->held.data, n);
    r->said[!reason] |= !r->framed;
    drop_held(r, n);
}

// The marks of a state that may come, and what the search for them found.
struct marks {
    const char *text[MAX_MARKS];
    int n;
    int found;  // index, or -1
    size_t at;  // where it stands, or how much of the text is decided
    size_t len; // of the mark
};

// Finds the first mark (of several at one place the longest); without one, the longest end of the
// text that may become one is left undecided.
static void search_marks(const struct reasoning *r, struct marks *m) {
    const char *text = r->held.data;
    size_t n = r->held.len;
    m->found = -1;
    for (m->at = 0; m->at < n; m->at++) {
        bool open = false;
        for (int i = 0; i < m->n; i++) {
            size_t len = strlen(m->text[i]), rest = n - m->at;
            if (memcmp(text + m->at, m->text[i], len < rest ? len : rest) != 0)
                continue;
            open = open || rest < len;
            if (rest >= len && (m->found < 0 || len > m->len)) {
                m->found = i;
                m->len = len;
            }
        }
        if (m->found >= 0 || open)
            return;
    }
}

static bool is_blank_char(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static size_t count_blanks(const struct reasoning *r) {
    size_t n = 0;
    while (n < r->held.len && is_blank_char(r->held.data[n]))
        n++;
    return n;
}

// Whether a mark stands at `at`: 1 yes, 0 not yet known, -1 no.
static int mark_stands(const struct reasoning *r, size_t at, const char *mark) {
    size_t len = strlen(mark), rest = r->held.len - at;
    if (memcmp(r->held.data + at, mark, len < rest ? len : rest) != 0)
        return -1;
    return rest >= len;
}

// How much of the undecided end of a reply that was cut off is the beginning of a mark; a byte or
// two may be words.
static size_t lost_piece(const struct reasoning *r, size_t undecided) {
    return r->cut && undecided >= MIN_PIECE ? undecided : 0;
}

// START and OPENED: what stands after the blanks decides. Returns false when more is needed.
static bool step_first(struct reasoning *r, bool end) {
    const struct family *f = &families[r->family];
    size_t blanks = count_blanks(r);
    bool inside = r->state == OPENED, far = blanks >= MAX_BLANKS;
    int open = far ? -1 : mark_stands(r, blanks, f->open);
    int close = far ? -1 : mark_stands(r, blanks, f->close);
    if (open == 1) {
        drop_held(r, blanks + strlen(f->open));
        r->state = OPENED;
    } else if (close == 1) { // an empty block, or the stray end of one
        drop_held(r, blanks + strlen(f->close));
        r->state = AFTER;
        r->closed = inside;
    } else if (!end && (open == 0 || close == 0)) {
        return false;
    } else {
        if (end && (open == 0 || close == 0) && lost_piece(r, r->held.len - blanks))
            drop_held(r, r->held.len);
        if (inside && r->held.len && r->held.data[0] == '\n')
            drop_held(r, 1);
        r->state = inside ? INSIDE : CONTENT;
    }
    return true;
}

static bool step_inside(struct reasoning *r, const struct sink *s, bool end) {
    struct marks m = {.text = {families[r->family].close}, .n = 1};
    search_marks(r, &m);
    // One line end before the mark belongs to the mark.
    bool line = m.at > 0 && r->held.data[m.at - 1] == '\n';
    bool at_end = m.found < 0 && end;
    size_t lost = at_end ? lost_piece(r, r->held.len - m.at) : 0;
    put_held(r, at_end && !lost ? r->held.len : m.at - line, s);
    if (lost)
        drop_held(r, r->held.len);
    if (m.found < 0)
        return false;
    drop_held(r, m.len + line);
    r->state = AFTER;
    r->closed = true;
    return true;
}

static bool step_after(struct reasoning *r, bool end) {
    const struct family *f = &families[r->family];
    drop_held(r, count_blanks(r));
    if (r->held.len == 0)
        return false;
    int resume = f->resume ? mark_stands(r, 0, f->resume) : -1;
    if (resume == 0 && !end)
        return false;
    if (resume == 0)
        drop_held(r, lost_piece(r, r->held.len));
    if (resume == 1)
        drop_held(r, strlen(f->resume));
    r->state = CONTENT;
    return true;
}

static bool step_content(struct reasoning *r, const struct sink *s, bool end) {
    const struct family *f = &families[r->family];
    struct marks m = {.n = 0};
    if (f->anywhere)
        m.text[m.n++] = f->open;
    if (f->close && (f->anywhere || !r->closed)) // a stray one; later it is text like any other
        m.text[m.n++] = f->close;
    search_marks(r, &m);
    size_t lost = m.found < 0 && end ? lost_piece(r, r->held.len - m.at) : 0;
    put_held(r, m.found < 0 && end ? r->held.len - lost : m.at, s);
    drop_held(r, lost);
    if (m.found < 0)
        return false;
    drop_held(r, m.len);
    if (m.text[m.found] == f->open)
        r->state = OPENED;
    return true;
}

static const char channel_mark[] = "<|channel|>", message_mark[] = "<|message|>",
                  start_mark[] = "<|start|>";

// The name of the channel that a header names; everything but analysis is for the reader.
static bool is_analysis(const char *header, size_t n) {
    const char *at = memmem(header, n, channel_mark, sizeof channel_mark - 1);
    static const char name[] = "analysis";
    if (!at)
        return false;
    at += sizeof channel_mark - 1;
    return (size_t)(header + n - at) >= sizeof name - 1 && memcmp(at, name, sizeof name - 1) == 0;
}

// A body begins: one that follows another of its kind stands apart from it.
static void begin_body(struct reasoning *r, bool reason, const struct sink *s) {
    r->to_reason = reason;
    r->state = BODY;
    if (r->said[!reason])
        str_puts(reason ? s->reasoning : s->content, "\n\n");
}

// A message to a tool begins: n bytes of header and mark go to the content in front of the body.
static void begin_frame(struct reasoning *r, size_t n, const struct sink *s) {
    r->to_reason = false;
    r->framed = true;
    r->state = BODY;
    str_puts(s->content, TOOL_FRAME);
    put_held(r, n, s);
}

static void end_frame(struct reasoning *r, const struct sink *s) {
    if (r->framed)
        str_puts(s->content, TOOL_FRAME_END);
    r->framed = false;
}

static bool step_header(struct reasoning *r, const struct sink *s, bool end) {
    static const char *const first[] = {channel_mark, message_mark, start_mark, " to="};
    int best = -1;
    for (int i = 0; i < 4; i++) {
        int is = mark_stands(r, 0, first[i]);
        best = is > best ? is : best;
    }
    if (best == 0 && end)
        drop_held(r, lost_piece(r, r->held.len));
    if (best < 0 || (best == 0 && end)) { // no header: words
        begin_body(r, false, s);
        return r->held.len > 0;
    }
    size_t max = r->held.len < MAX_HEADER ? r->held.len : MAX_HEADER;
    const char *message = memmem(r->held.data, max, message_mark, sizeof message_mark - 1);
    if (message) {
        size_t at = (size_t)(message - r->held.data);
        bool reason = is_analysis(r->held.data, at);
        if (r->frames && memmem(r->held.data, at, HARMONY_TO, sizeof HARMONY_TO - 1)) {
            begin_frame(r, at + sizeof message_mark - 1, s);
            return true;
        }
        drop_held(r, at + sizeof message_mark - 1);
        begin_body(r, reason, s);
    } else if (max == MAX_HEADER) {                // longer than any header
        while ((r->held.data[max] & 0xc0) == 0x80) // not within a character
            max--;
        begin_body(r, false, s);
        put_held(r, max, s);
        return true;
    } else if (end) {
        drop_held(r, max);
    }
    return message != NULL;
}

static bool step_body(struct reasoning *r, const struct sink *s, bool end) {
    struct marks m = {
        .text = {harmony_ends[0], harmony_ends[1], harmony_ends[2], start_mark, channel_mark},
        .n = MAX_MARKS};
    search_marks(r, &m);
    size_t lost = m.found < 0 && end ? lost_piece(r, r->held.len - m.at) : 0;
    put_held(r, m.found < 0 && end ? r->held.len - lost : m.at, s);
    drop_held(r, lost);
    if (m.found < 0)
        return false;
    if (m.found < 3 && r->framed)
        put_held(r, m.len, s);
    else if (m.found < 3)
        drop_held(r, m.len);
    end_frame(r, s);
    r->state = HEADER;
    return true;
}

// One step; false when nothing more can be decided.
static bool step_state(struct reasoning *r, const struct sink *s, bool end) {
    switch ((enum state)r->state) {
    case START:
    case OPENED:
        return step_first(r, end);
    case INSIDE:
        return step_inside(r, s, end);
    case AFTER:
        return step_after(r, end);
    case CONTENT:
        return step_content(r, s, end);
    case HEADER:
        return step_header(r, s, end);
    case BODY:
        break;
    }
    return step_body(r, s, end);
}

static void read_held(struct reasoning *r, bool end, struct str *reasoning, struct str *content) {
    const struct sink s = {reasoning, content};
    while (!r->held.failed && r->held.len > 0 && step_state(r, &s, end))
        continue;
    if (r->held.failed)
        reasoning->failed = content->failed = true;
}

void reasoning_push(struct reasoning *r, const char *bytes, size_t n, struct str *reasoning,
                    struct str *content) {
    utf8_stream_push(&r->utf8, bytes, n, &r->held);
    read_held(r, false, reasoning, content);
}

void reasoning_end(struct reasoning *r, struct str *reasoning, struct str *content) {
    utf8_stream_end(&r->utf8, &r->held);
    read_held(r, true, reasoning, content);
    end_frame(r, &(struct sink){reasoning, content});
}

// Control tokens of HARMONY that are marks though no tag of the family holds them.
static const char *const harmony_marks[] = {"<|channel|>", "<|message|>",   "<|start|>", "<|end|>",
                                            "<|call|>",    "<|constrain|>", "<|return|>"};

static bool is_mark(const struct family *f, const char *text, size_t n) {
    const char *const of[] = {f->open, f->close, f->resume};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i] && n >= 3 && memmem(of[i], strlen(of[i]), text, n))
            return true;
    for (size_t i = 0; f == &families[REASONING_HARMONY] && i < 7; i++)
        if (strlen(harmony_marks[i]) == n && !memcmp(harmony_marks[i], text, n))
            return true;
    return false;
}

void reasoning_decode(enum reasoning_family f, const struct tokenizer *t, int32_t id,
                      struct str *out) {
    size_t before = out->len;
    tokenizer_decode(t, id, false, out);
    if (out->failed || out->len > before || f == REASONING_NONE)
        return;
    tokenizer_decode(t, id, true, out);
    if (!out->failed && out->len > before &&
        !is_mark(&families[f], out->data + before, out->len - before)) {
        out->len = before;
        out->data[before] = 0;
    }
}
