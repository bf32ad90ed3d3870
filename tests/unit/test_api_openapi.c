// SPDX-License-Identifier: Apache-2.0
// The OpenAPI document: its copy in docs is what the tables give, it is JSON in which every
// reference leads somewhere, and every field and path is described.
#include "test.h"

#include "base/file.h"
#include "serve/api/api.h"
#include "serve/api/openapi.h"
#include "serve/request/fields.h"

#define COPY SOURCE_ROOT "/docs/openapi.json"

static void the_copy_is_the_document(void **state) {
    (void)state;
    struct str out = {0}, copy = {0};
    struct err e = {0};
    openapi_write(&out, api_routes, api_routes_count);
    assert_false(out.failed);
    assert_int_equal(file_read(&copy, COPY, 1 << 20, &e), 0);
    if (copy.len != out.len || memcmp(copy.data, out.data, out.len) != 0)
        fail_msg("docs/openapi.json is old: GET /openapi.json of a running server is the new one");
    str_fini(&out);
    str_fini(&copy);
}

static void references_lead_somewhere(void **state) {
    (void)state;
    static const struct json_rules rules = {.unique_keys = true};
    static const char ref[] = "#/components/schemas/";
    struct str out = {0};
    struct json *doc = NULL;
    struct err e = {0};
    int n = 0;
    openapi_write(&out, api_routes, api_routes_count);
    if (json_parse_with(&doc, out.data, out.len, &rules, &e))
        fail_msg("%s", e.text);
    const struct json *schemas = json_get(json_get(doc, "components"), "schemas");
    for (const char *at = out.data; (at = strstr(at, ref)); n++) {
        char name[64] = "";
        at += sizeof ref - 1;
        memcpy(name, at, strcspn(at, "\""));
        if (!json_get(schemas, name))
            fail_msg("there is no schema %s", name);
    }
    assert_true(n > 50);
    json_free(doc);
    str_fini(&out);
}

static void all_is_described(void **state) {
    (void)state;
    for (size_t i = 0; i < fields_count; i++) {
        assert_true(fields[i].help && fields[i].help[0] && fields[i].endpoints);
        assert_true(fields[i].kind != FIELD_ANY || (fields[i].schema && fields[i].read));
    }
    for (size_t i = 0; i < api_routes_count; i++)
        if (api_routes[i].summary)
            assert_true((api_routes[i].answer != NULL) != (api_routes[i].type != NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_copy_is_the_document),
        cmocka_unit_test(references_lead_somewhere),
        cmocka_unit_test(all_is_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
