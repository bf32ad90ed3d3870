// SPDX-License-Identifier: Apache-2.0
// What state is of: every setting on which bits depend makes another text and another key, equal
// ones the same; and a comparison names the first difference, passing over attachments that are
// there and not needed.
#include "state/identity.h"

#include <stdlib.h>

#include "base/hash.h"
#include "models/checkpoint.h"
#include "models/draft/dflash/impl.h"
#include "models/model_impl.h"
#include "support/tiny_rig.h"
#include "unit/test.h"

static struct str text_of(const struct tiny_rig *r, uint64_t content) {
    struct str s = {0};
    model_identity(r->m, content, &s);
    assert_false(s.failed);
    assert_true(s.len < IDENTITY_MAX);
    return s;
}

// The own text differs from the rig's present one, and the sentence has the word.
static void differs(const struct tiny_rig *r, const struct str *own, const char *word) {
    struct err e = {0};
    struct str s = text_of(r, 7);
    assert_int_not_equal(identity_key(s.data), identity_key(own->data));
    assert_int_equal(identity_check(s.data, own->data, &e), ERR_MISMATCH);
    if (!strstr(e.text, word))
        fail_msg("%s", e.text);
    str_fini(&s);
}

static void every_setting_is_in_it(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&shape);
    struct model_options o = model_options_default();
    float factors[OPS_HEAD_MAX / 2];
    struct tiny_rig r;
    d.window = 20;
    tiny_rig_open(&r, &shape, &d, &o, "auto", 1);
    struct str own = text_of(&r, 7), same = text_of(&r, 7), other = text_of(&r, 8);
    assert_string_equal(own.data, same.data);
    assert_int_equal(identity_key(own.data), identity_key(same.data));
    assert_int_equal(identity_check(same.data, own.data, NULL), 0);
    assert_int_not_equal(identity_key(own.data), identity_key(other.data));
    struct model_params p = r.m->params;
    struct rope *rope = &r.m->params.rope;
    for (int i = 0; i < OPS_HEAD_MAX / 2; i++)
        factors[i] = 2;
    rope->factor = 4;
    differs(&r, &own, "by another rule");
    rope->factor = 0;
    rope->base = p.rope.base * 1.0000001f;
    differs(&r, &own, "by another rule");
    rope->base = p.rope.base;
    rope->magnitude = 1.5f;
    differs(&r, &own, "by another rule");
    rope->magnitude = 0;
    rope->factors = factors;
    differs(&r, &own, "by another rule");
    rope->factors = NULL;
    rope->dims = 0;
    differs(&r, &own, "(none, here ");
    rope->dims = p.rope.dims;
    r.m->params.window.width = 16;
    r.m->params.window.rope = p.rope;
    differs(&r, &own, "another model file");
    r.m->params.window.width = 0;
    r.m->options.sparse = (struct sparse_rule){true, 0.5f, 1, 2};
    differs(&r, &own,
            "read sparsely, alpha 0.5, first 1, nearest 2 and this program reads it dens");
    r.m->options.sparse.on = false;
    r.m->ranks.n = 2;
    differs(&r, &own, "another model file");
    r.m->ranks.n = 1;
    r.m->groups[0].window = 64;
    differs(&r, &own, "another model file");
    r.m->groups[0].window = 0;
    r.d->window[1] += 1;
    differs(&r, &own, "another model file");
    r.d->window[1] -= 1;
    struct str again = text_of(&r, 7);
    assert_string_equal(own.data, again.data);
    str_fini(&own);
    str_fini(&same);
    str_fini(&other);
    str_fini(&again);
    tiny_rig_close(&r);
}

static void a_window_is_named(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct model_options o = model_options_default();
    struct tiny_rig r;
    tiny_rig_open(&r, &shape, NULL, &o, "auto", 1);
    struct str own = text_of(&r, 7);
    r.m->options.view.window = 128;
    differs(&r, &own, "replies see 128 tokens and the first 64 and this program reads it densely");
    str_fini(&own);
    tiny_rig_close(&r);
}

static void refused(const char *theirs, const char *own, const char *sentence) {
    struct err e = {0};
    assert_int_equal(identity_check(theirs, own, &e), ERR_MISMATCH);
    assert_string_equal(e.text, sentence);
}

static void a_difference_is_named(void **state) {
    (void)state;
    static const char base[] = "order: 3\nkeys: f16\n";
    assert_int_equal(identity_check(base, base, NULL), 0);
    refused("order: 3\nkeys: q8_0\n", base,
            "the checkpoint has its keys as q8_0, the model as f16; load the model with the "
            "checkpoint's --kv-type");
    static const char other[] = "the checkpoint was made with another model file; load that one or "
                                "make the checkpoint again";
    refused("order: 3\n", base, other);
    refused("order: 3\nkeys: f16\nmore: 1\n", base, other);
    refused("", base, other);
    refused("order", base, other);
    refused("values: f16\nkeys: f16\n", base, other);
    // Attachments are compared by their names.
    static const char draft[] = "order: 3\nattached: draft\ncontent: draft 05\n";
    static const char two[] = "order: 3\nattached: mtp\ncontent: prediction block 06\n"
                              "attached: draft\ncontent: draft 05\n";
    assert_int_equal(identity_check(two, draft, NULL), 0);
    assert_int_equal(identity_check(draft, "order: 3\n", NULL), 0);
    refused(draft, two,
            "the checkpoint has no state of the mtp; load the model without it, or make the "
            "checkpoint again with it");
    refused("order: 3\nattached: mtp\ncontent: prediction block 07\n",
            "order: 3\nattached: mtp\ncontent: prediction block 06\n",
            "the checkpoint was made with another prediction block; load that one, or none");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting_is_in_it),
        cmocka_unit_test(a_window_is_named),
        cmocka_unit_test(a_difference_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
