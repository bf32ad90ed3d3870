// SPDX-License-Identifier: Apache-2.0
// The form of conversations; see conversation.h.
#include "text/chat/conversation.h"

#include <string.h>

const char *const conversation_roles[CONVERSATION_ROLES] = {"system",    "developer", "user",
                                                            "assistant", "tool",      "function"};

enum conversation_role conversation_role_of(const struct json *message) {
    struct words name = words_of(json_get(message, "role"));
    for (int i = 0; i < CONVERSATION_ROLES; i++)
        if (words_equal(name, conversation_roles[i]))
            return (enum conversation_role)i;
    return CONVERSATION_ROLES;
}

struct adopted {
    struct json *document;
    struct adopted *next;
};

const struct json *conversation_adopt(struct conversation *v, struct json *document) {
    struct adopted *a = arena_array(&v->arena, 1, sizeof *a);
    if (!a) {
        v->failed = true;
        json_free(document);
        return NULL;
    }
    *a = (struct adopted){document, v->adopted};
    v->adopted = a;
    return document;
}

void conversation_fini(struct conversation *v) {
    for (const struct adopted *a = v->adopted; a; a = a->next)
        json_free(a->document);
    arena_fini(&v->arena);
    *v = (struct conversation){0};
}

struct words words_of(const struct json *v) {
    struct words w = {0};
    w.s = json_str(v, &w.n);
    return w;
}

const char *conversation_type_of(const struct json *v) {
    const char *type = json_str(json_get(v, "type"), NULL);
    return type ? type : "";
}

int words_tristate(const struct json *v) {
    return json_kind_of(v) != JSON_BOOL ? 0 : json_bool(v, false) ? 1 : -1;
}

struct words words_of_text(const char *s) {
    return (struct words){s, s ? strlen(s) : 0};
}

bool words_equal(struct words a, const char *s) {
    return a.s && a.n == strlen(s) && !memcmp(a.s, s, a.n);
}

void words_put(struct json_writer *w, const char *key, struct words t) {
    if (!t.s)
        return;
    jw_key_text(w, key, t.s, t.n);
}

struct words conversation_copy(struct conversation *v, const char *s, size_t n) {
    struct words w = {arena_strndup(&v->arena, s, n), n};
    v->failed |= !w.s;
    return w.s ? w : (struct words){0};
}

struct words conversation_take(struct conversation *v, struct str *s) {
    struct words out = {0};
    if (!s->failed)
        out = conversation_copy(v, s->data ? s->data : "", s->len);
    v->failed |= s->failed;
    str_fini(s);
    return out;
}

struct words conversation_printed(struct conversation *v, const struct json *value) {
    struct json_writer w = {0};
    jw_value(&w, value);
    return conversation_take(v, &w.out);
}

// Room for one more of `size` bytes in an array of the arena; false when memory is short.
static bool grow_array(struct conversation *v, void **at, int n, int *cap, size_t size) {
    if (n < *cap)
        return true;
    int more = *cap ? 2 * *cap : 2;
    void *p = arena_array(&v->arena, (size_t)more, size);
    if (!p) {
        v->failed = true;
        return false;
    }
    if (n)
        memcpy(p, *at, (size_t)n * size);
    *at = p;
    *cap = more;
    return true;
}

bool conversation_is_content(const struct conversation_part *p) {
    return p->kind != PART_REASONING && p->kind != PART_CALL;
}

int conversation_rank(enum conversation_kind kind) {
    return kind == PART_REASONING ? 0 : kind == PART_CALL ? 2 : 1;
}

// Whether a message that begins with `first` goes on with the last turn; see conversation.h.
static bool continues_turn(const struct conversation_turn *t, enum conversation_role role,
                           enum conversation_kind first) {
    if (t->role != role)
        return false;
    if (role == CONVERSATION_TOOL)
        return t->extras.n == 0;
    if (role != CONVERSATION_ASSISTANT)
        return false;
    if (t->n_parts == 0 && t->extras.n == 0)
        return false;
    int last = t->n_parts ? conversation_rank(t->parts[t->n_parts - 1].kind) : 1,
        next = conversation_rank(first);
    if (last < 1 && t->extras.n)
        last = 1;
    return next > last || (next == last && next != 1);
}

struct conversation_turn *conversation_turn(struct conversation *v, enum conversation_role role,
                                            enum conversation_kind first) {
    if (v->n_turns && continues_turn(&v->turns[v->n_turns - 1], role, first))
        return &v->turns[v->n_turns - 1];
    return conversation_new_turn(v, role);
}

struct conversation_turn *conversation_new_turn(struct conversation *v,
                                                enum conversation_role role) {
    void *at = v->turns;
    if (!grow_array(v, &at, v->n_turns, &v->cap_turns, sizeof *v->turns))
        return NULL;
    v->turns = at;
    v->turns[v->n_turns] = (struct conversation_turn){.role = role};
    return &v->turns[v->n_turns++];
}

bool conversation_next(const struct conversation *v, struct conversation_message *m) {
    if (m->turn && !(m->result && ++m->inner < m->turn->n_parts)) {
        m->at++;
        m->inner = 0;
    }
    while (m->at < v->n_turns && v->turns[m->at].role == CONVERSATION_TOOL &&
           v->turns[m->at].n_parts == 0)
        m->at++;
    if (m->at >= v->n_turns)
        return false;
    m->turn = &v->turns[m->at];
    m->result = m->turn->role == CONVERSATION_TOOL ? &m->turn->parts[m->inner] : NULL;
    m->parts = m->result ? m->result->parts : m->turn->parts;
    m->n_parts = m->result ? m->result->n_parts : m->turn->n_parts;
    return true;
}

static struct conversation_part *append_part(struct conversation *v,
                                             struct conversation_part **parts, int *n, int *cap,
                                             enum conversation_kind kind) {
    void *at = *parts;
    if (!grow_array(v, &at, *n, cap, sizeof **parts))
        return NULL;
    *parts = at;
    (*parts)[*n] = (struct conversation_part){.kind = kind};
    return &(*parts)[(*n)++];
}

struct conversation_part *conversation_part(struct conversation *v, struct conversation_turn *t,
                                            enum conversation_kind kind) {
    return t ? append_part(v, &t->parts, &t->n_parts, &t->cap_parts, kind) : NULL;
}

struct conversation_part *conversation_inner(struct conversation *v,
                                             struct conversation_part *result,
                                             enum conversation_kind kind) {
    if (!result)
        return NULL;
    return append_part(v, &result->parts, &result->n_parts, &result->cap_parts, kind);
}

struct conversation_tool *conversation_tool(struct conversation *v, enum tool_kind kind) {
    void *at = v->tools;
    if (!grow_array(v, &at, v->n_tools, &v->cap_tools, sizeof *v->tools))
        return NULL;
    v->tools = at;
    v->tools[v->n_tools] = (struct conversation_tool){.kind = kind};
    return &v->tools[v->n_tools++];
}

bool words_among(const char *const *known, const char *key) {
    for (; *known; known++)
        if (!strcmp(*known, key))
            return true;
    return false;
}

struct take {
    struct conversation *v;
    struct extras *out;
    const char *const *known;
};

static int take_member(void *arg, const char *key, size_t n, const struct json *value) {
    struct take *t = arg;
    struct extras *x = t->out;
    void *at = x->at;
    (void)n;
    if (json_kind_of(value) == JSON_NULL || words_among(t->known, key))
        return 0;
    if (!grow_array(t->v, &at, x->n, &x->cap, sizeof *x->at))
        return 1;
    x->at = at;
    x->at[x->n++] = (struct extra){key, value};
    return 0;
}

void extras_take(struct conversation *v, struct extras *out, const struct json *object,
                 const char *const *known) {
    struct take t = {v, out, known};
    json_each(object, take_member, &t);
}

void extras_put(struct json_writer *w, const struct extras *x, const char *const *known) {
    for (int i = 0; i < x->n; i++) {
        if (words_among(known, x->at[i].key))
            continue;
        jw_key_value(w, x->at[i].key, x->at[i].value);
    }
}

void conversation_fill(struct conversation *v, struct conversation_part *p,
                       const struct json *from) {
    const char *known[] = {"type", p && p->kind == PART_REFUSAL ? "refusal" : "text", NULL};
    if (!p)
        return;
    if (p->kind != PART_TEXT && p->kind != PART_REFUSAL) {
        p->raw = from;
        return;
    }
    p->text = words_of(json_kind_of(from) == JSON_STRING ? from : json_get(from, known[1]));
    extras_take(v, &p->extras, from, known);
}
