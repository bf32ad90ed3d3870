// SPDX-License-Identifier: Apache-2.0
// Stands in for the JSON reader in a build of the engine alone: nothing parses, so there is never a
// value to look into. The writer is whole.
#include "base/json/json.h"

int json_parse_with(struct json **out, const char *text, size_t len, const struct json_rules *rules,
                    struct err *e) {
    (void)text;
    (void)len;
    (void)rules;
    *out = NULL;
    return err_set(e, ERR_UNSUPPORTED,
                   "this program was built without a JSON reader; build it with the preset release "
                   "or cuda");
}

int json_parse(struct json **out, const char *text, size_t len, struct err *e) {
    return json_parse_with(out, text, len, &(struct json_rules){0}, e);
}

void json_build(struct json_builder *b, enum json_kind kind, const char *s, size_t n) {
    (void)b, (void)kind, (void)s, (void)n;
}

void json_build_shared(struct json_builder *b, const struct json *v) {
    (void)b, (void)v;
}

int json_built(struct json_builder *b, struct json **out, const char *what, struct err *e) {
    (void)b, (void)what;
    return json_parse(out, "", 0, e);
}

void json_free(struct json *root) {
    (void)root;
}

enum json_kind json_kind_of(const struct json *v) {
    (void)v;
    return JSON_NULL;
}

const struct json *json_get(const struct json *object, const char *key) {
    (void)object;
    (void)key;
    return NULL;
}

bool json_has(const struct json *object, const char *key) {
    (void)object;
    (void)key;
    return false;
}

size_t json_len(const struct json *v) {
    (void)v;
    return 0;
}

const struct json *json_at(const struct json *array, size_t i) {
    (void)array;
    (void)i;
    return NULL;
}

int json_each(const struct json *object, json_member_fn *fn, void *arg) {
    (void)object;
    (void)fn;
    (void)arg;
    return 0;
}

const char *json_str(const struct json *v, size_t *len) {
    (void)v;
    (void)len;
    return NULL;
}

int64_t json_int(const struct json *v, int64_t otherwise) {
    (void)v;
    return otherwise;
}

double json_num(const struct json *v, double otherwise) {
    (void)v;
    return otherwise;
}

bool json_bool(const struct json *v, bool otherwise) {
    (void)v;
    return otherwise;
}

const char *json_number_text(const struct json *v) {
    (void)v;
    return NULL;
}
