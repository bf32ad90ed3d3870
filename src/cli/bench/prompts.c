// SPDX-License-Identifier: Apache-2.0
// Reading prompt files; see prompts.h.
#include "cli/bench/prompts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json/json.h"
#include "base/rng.h"

enum { PROMPT_FILE_MAX = 256 << 20 };

// A copy of a string member, or of `otherwise` when it is missing.
static const char *copy_str(struct bench_prompts *p, const struct json *v, const char *otherwise,
                            size_t *len) {
    const char *s = json_str(v, len);
    if (!s) {
        s = otherwise;
        *len = strlen(otherwise);
    }
    return arena_strndup(&p->arena, s, *len);
}

static int group_of(struct bench_prompts *p, const char *name) {
    for (int g = 0; g < p->n_groups; g++)
        if (strcmp(p->groups[g], name) == 0)
            return g;
    p->groups[p->n_groups] = name;
    return p->n_groups++;
}

// "needles": [{"value": TEXT, ...}, ...], which may be missing.
static int add_needles(struct bench_prompts *p, struct bench_prompt *b, const struct json *list,
                       size_t line, struct err *e) {
    size_t n = json_len(list), len;
    if (list && json_kind_of(list) != JSON_ARRAY)
        return err_set(e, ERR_FORMAT, "line %zu has \"needles\" that are no array", line);
    b->needles = n ? arena_array(&p->arena, n, sizeof *b->needles) : NULL;
    if (n && !b->needles)
        return err_set(e, ERR_MEMORY, "no memory for the needles in line %zu", line);
    for (; b->n_needles < n; b->n_needles++) {
        const struct json *value = json_get(json_at(list, b->n_needles), "value");
        if (!json_str(value, &len) || !len)
            return err_set(e, ERR_FORMAT, "line %zu has a needle without a text \"value\"", line);
        b->needles[b->n_needles] = copy_str(p, value, "", &len);
        if (!b->needles[b->n_needles])
            return err_set(e, ERR_MEMORY, "no memory for the needles in line %zu", line);
    }
    return 0;
}

static int add_prompt(struct bench_prompts *p, const struct json *v, size_t line, struct err *e) {
    struct bench_prompt *b = &p->prompts[p->n];
    char number[32];
    size_t len;
    snprintf(number, sizeof number, "%zu", line);
    if (!json_str(json_get(v, "prompt"), &len))
        return err_set(e, ERR_FORMAT, "line %zu has no string member \"prompt\"", line);
    int64_t max = json_int(json_get(v, "max_tokens"), 0);
    if (max < 0)
        return err_set(e, ERR_FORMAT, "line %zu has the negative max_tokens %lld", line,
                       (long long)max);
    b->max_tokens = max;
    b->text = copy_str(p, json_get(v, "prompt"), "", &b->len);
    b->id = copy_str(p, json_get(v, "id"), number, &len);
    const char *group = copy_str(p, json_get(v, "group"), "all", &len);
    if (!b->text || !b->id || !group)
        return err_set(e, ERR_MEMORY, "no memory for the prompt in line %zu", line);
    b->group = group_of(p, group);
    p->n++;
    return add_needles(p, b, json_get(v, "needles"), line, e);
}

// "NAME: 1,2,3", a prompt of token ids.
static int add_ids(struct bench_prompts *p, const char *s, size_t n, size_t line, struct err *e) {
    struct bench_prompt *b = &p->prompts[p->n];
    const char *colon = memchr(s, ':', n);
    const char *text =
        colon ? arena_strndup(&p->arena, colon + 1, (size_t)(s + n - colon - 1)) : NULL;
    int32_t *ids = arena_array(&p->arena, n, sizeof *ids); // more than there are
    if (!colon)
        return err_set(e, ERR_FORMAT, "line %zu is neither a JSON object nor \"NAME: ids\"", line);
    b->id = arena_strndup(&p->arena, s, (size_t)(colon - s));
    if (!text || !ids || !b->id)
        return err_set(e, ERR_MEMORY, "no memory for the prompt in line %zu", line);
    for (char *end; *text && *text != '\r'; text = end + (*end == ',')) {
        long id = strtol(text, &end, 10);
        if (end == text || id < 0 || id > INT32_MAX || (*end && !strchr(",\r", *end)))
            return err_set(e, ERR_FORMAT, "line %zu has no list of token ids such as 1,2,3", line);
        ids[b->n_ids++] = (int32_t)id;
    }
    if (!b->n_ids)
        return err_set(e, ERR_FORMAT, "line %zu has no list of token ids such as 1,2,3", line);
    b->ids = ids;
    b->group = group_of(p, "all");
    p->n++;
    return 0;
}

static int add_line(struct bench_prompts *p, const char *s, size_t n, size_t line, struct err *e) {
    size_t blank = 0;
    while (blank < n && strchr(" \t\r", s[blank]))
        blank++;
    if (blank == n)
        return 0;
    if (s[blank] != '{')
        return add_ids(p, s + blank, n - blank, line, e);
    struct json *v = NULL;
    if (json_parse(&v, s, n, e))
        return err_prefix(e, "line %zu", line);
    int rc = add_prompt(p, v, line, e);
    json_free(v);
    return rc;
}

static int parse(struct bench_prompts *p, const struct str *text, struct err *e) {
    size_t lines = 1;
    for (size_t i = 0; i < text->len; i++)
        lines += text->data[i] == '\n';
    p->prompts = arena_array(&p->arena, lines, sizeof *p->prompts);
    p->groups = arena_array(&p->arena, lines, sizeof *p->groups);
    if (!p->prompts || !p->groups)
        return err_set(e, ERR_MEMORY, "no memory for %zu prompts", lines);
    size_t at = 0;
    for (size_t line = 1; at < text->len; line++) {
        const char *end = memchr(text->data + at, '\n', text->len - at);
        size_t n = end ? (size_t)(end - text->data) - at : text->len - at;
        int rc = add_line(p, text->data + at, n, line, e);
        if (rc)
            return rc;
        at += n + 1;
    }
    return p->n ? 0 : err_set(e, ERR_FORMAT, "there is no prompt in it");
}

int bench_prompts_read(struct bench_prompts *p, const char *path, struct err *e) {
    struct str text = {0};
    int rc = file_read(&text, path, PROMPT_FILE_MAX, e);
    if (!rc) {
        rc = parse(p, &text, e);
        if (rc)
            err_prefix(e, "%s", path);
    }
    str_fini(&text);
    return rc;
}

void bench_random_ids(int32_t *ids, int64_t n, uint64_t seed, int64_t vocab) {
    struct rng g = {rng_hash(seed, 0x70726f6d7074, 0, 0)};
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)rng_below(&g, (uint32_t)vocab);
}

int bench_prompts_random(struct bench_prompts *p, const int32_t *lengths, size_t n, uint64_t seed,
                         int64_t vocab, struct err *e) {
    enum { NAME = 32 };
    p->prompts = arena_array(&p->arena, n, sizeof *p->prompts);
    p->groups = arena_array(&p->arena, n, sizeof *p->groups);
    bool ok = p->prompts && p->groups;
    for (size_t i = 0; ok && i < n; i++) {
        char *name = arena_alloc(&p->arena, NAME);
        int32_t *ids = arena_array(&p->arena, (size_t)lengths[i], sizeof *ids);
        ok = name && ids;
        if (!ok)
            break;
        bench_random_ids(ids, lengths[i], seed, vocab);
        snprintf(name, NAME, "random %d", (int)lengths[i]);
        p->prompts[i] =
            (struct bench_prompt){.id = name, .group = (int)i, .ids = ids, .n_ids = lengths[i]};
        p->groups[i] = name;
    }
    if (!ok)
        return err_set(e, ERR_MEMORY, "no memory for %zu prompts of random ids", n);
    p->n = n;
    p->n_groups = (int)n;
    return 0;
}

void bench_prompts_fini(struct bench_prompts *p) {
    arena_fini(&p->arena);
    *p = (struct bench_prompts){0};
}
