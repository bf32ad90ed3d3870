// SPDX-License-Identifier: Apache-2.0
// What differs between two conversations; see conversation.h.
#include <stdio.h>
#include <string.h>

#include "serve/conversation/conversation.h"

struct comparison {
    struct str *where;
    bool differs, failed; // memory was short
};

static bool same_words(struct words a, struct words b) {
    return !a.s == !b.s && a.n == b.n && (a.n == 0 || !memcmp(a.s, b.s, a.n));
}

// JSON as written, which has one spelling for each value that was read.
static bool same_json(struct comparison *c, const struct json *a, const struct json *b) {
    struct json_writer x = {0}, y = {0};
    jw_value(&x, a);
    jw_value(&y, b);
    c->failed |= x.out.failed || y.out.failed;
    bool same = !c->failed && x.out.len == y.out.len && !memcmp(x.out.data, y.out.data, x.out.len);
    str_fini(&x.out);
    str_fini(&y.out);
    return same;
}

static bool same_extras(struct comparison *c, const struct extras *a, const struct extras *b) {
    bool same = a->n == b->n;
    for (int i = 0; i < a->n && same; i++) {
        int k = 0;
        while (k < b->n && strcmp(a->at[i].key, b->at[k].key) != 0)
            k++;
        same = k < b->n && same_json(c, a->at[i].value, b->at[k].value);
    }
    return same;
}

// Notes the first difference, at `place` and in `what` of it.
static void expect(struct comparison *c, bool same, const char *place, const char *what) {
    if (same || c->differs)
        return;
    c->differs = true;
    str_printf(c->where, "%s%s%s", place, what[0] ? "." : "", what);
}

static void compare_part(struct comparison *c, const struct conversation_part *a,
                         const struct conversation_part *b, const char *place) {
    expect(c, a->kind == b->kind, place, "kind");
    expect(c, same_words(a->text, b->text), place, "text");
    expect(c, same_words(a->summary, b->summary), place, "summary");
    expect(c, same_words(a->signature, b->signature), place, "signature");
    expect(c, same_words(a->id, b->id), place, "id");
    expect(c, same_words(a->name, b->name), place, "name");
    expect(c, a->custom == b->custom, place, "custom");
    expect(c, a->is_error == b->is_error, place, "is_error");
    expect(c, a->kind == PART_CALL || same_json(c, a->raw, b->raw), place, "raw");
    expect(c, same_extras(c, &a->extras, &b->extras), place, "extras");
    expect(c, a->n_parts == b->n_parts, place, "n_parts");
}

static void compare_turn(struct comparison *c, const struct conversation_turn *a,
                         const struct conversation_turn *b, const char *place) {
    char inner[128];
    expect(c, a->role == b->role, place, "role");
    expect(c, same_extras(c, &a->extras, &b->extras), place, "extras");
    expect(c, a->n_parts == b->n_parts, place, "n_parts");
    for (int i = 0; i < a->n_parts && !c->differs; i++) {
        const struct conversation_part *p = &a->parts[i], *q = &b->parts[i];
        snprintf(inner, sizeof inner, "%s.parts[%d]", place, i);
        compare_part(c, p, q, inner);
        for (int k = 0; k < p->n_parts && !c->differs; k++) {
            snprintf(inner, sizeof inner, "%s.parts[%d].parts[%d]", place, i, k);
            compare_part(c, &p->parts[k], &q->parts[k], inner);
        }
    }
}

static void compare_tool(struct comparison *c, const struct conversation_tool *a,
                         const struct conversation_tool *b, const char *place) {
    expect(c, a->kind == b->kind, place, "kind");
    expect(c, same_words(a->name, b->name), place, "name");
    expect(c, same_words(a->description, b->description), place, "description");
    expect(c, same_json(c, a->schema, b->schema), place, "schema");
    expect(c, same_json(c, a->format, b->format), place, "format");
    expect(c, a->strict == b->strict, place, "strict");
    expect(c, a->kind != TOOL_OTHER || same_json(c, a->raw, b->raw), place, "raw");
    expect(c, same_extras(c, &a->extras, &b->extras), place, "extras");
}

int conversation_differs(const struct conversation *a, const struct conversation *b,
                         struct str *where, struct err *e) {
    struct comparison c = {.where = where};
    char place[64];
    str_clear(where);
    for (int i = 0; i < a->n_turns && i < b->n_turns && !c.differs; i++) {
        snprintf(place, sizeof place, "turns[%d]", i);
        compare_turn(&c, &a->turns[i], &b->turns[i], place);
    }
    expect(&c, a->n_turns == b->n_turns, "n_turns", "");
    for (int i = 0; i < a->n_tools && i < b->n_tools && !c.differs; i++) {
        snprintf(place, sizeof place, "tools[%d]", i);
        compare_tool(&c, &a->tools[i], &b->tools[i], place);
    }
    expect(&c, a->n_tools == b->n_tools, "n_tools", "");
    expect(&c, a->choice.kind == b->choice.kind, "choice.kind", "");
    expect(&c, same_words(a->choice.name, b->choice.name), "choice.name", "");
    expect(&c, a->choice.custom == b->choice.custom, "choice.custom", "");
    expect(&c, same_json(&c, a->choice.raw, b->choice.raw), "choice.raw", "");
    expect(&c, a->parallel == b->parallel, "parallel", "");
    return where->failed || c.failed ? err_set(e, ERR_MEMORY, "no memory for a difference") : 0;
}
