// SPDX-License-Identifier: Apache-2.0
// What DSpark drafts have besides a DFlash draft's keys and tensors: a Markov head, a confidence
// head, and whether the anchor's row guesses. Their copies of the target's embedding and head are
// left out, but for a head of some tokens only. Settings are at the top of config.json (DeepSpec,
// speculators) or within dflash_config (SpecForge).
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "convert/families/rules.h"

// Sizes in the places of others that drafts lack: the head's rank, the width of what its gates and
// the confidence head read.
enum { DIM_RANK = DIM_L, DIM_GATE = DIM_C, DIM_CONF = DIM_DV };

const char *convert_draft_key(const struct hf_file *f, const char *name, char *buf, size_t size) {
    static const char *const places[] = {"dflash_config.", "dspark_config."};
    for (int i = 0; i < 2; i++) {
        snprintf(buf, size, "%s%s", places[i], name);
        if (json_kind_of(hf_get(f, buf)) != JSON_NULL)
            return buf;
    }
    return name;
}

static const struct json *setting(const struct convert_job *j, const char *name) {
    char buf[64];
    return hf_get(&j->config, convert_draft_key(&j->config, name, buf, sizeof buf));
}

bool convert_is_dspark(const struct convert_job *j) {
    static const char *const names[] = {"Qwen3DSparkModel", "Qwen3DSparkForCausalLM",
                                        "DSparkDraftModel", "DSparkSpeculator"};
    const struct json *arch = json_at(json_get(j->config.root, "architectures"), 0);
    bool named = hf_is(setting(j, "projector_type"), "dspark") ||
                 hf_is(setting(j, "speculators_model_type"), "dspark") ||
                 json_int(setting(j, "markov_rank"), 0) > 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        named |= hf_is(arch, names[i]);
    return named;
}

// Whether the anchor's row guesses; those of speculators did not before they said so.
static bool from_anchor(const struct convert_job *j) {
    const struct json *yes = setting(j, "sample_from_anchor");
    const struct json *no = setting(j, "dspark_bonus_anchor");
    const bool old = json_kind_of(setting(j, "speculators_model_type")) != JSON_NULL;
    return json_kind_of(yes) == JSON_BOOL ? json_bool(yes, true) : !json_bool(no, old);
}

static const struct convert_rule markov_rules[] = {
    {"markov_head.markov_w1.weight", "markov_w1.weight", .dims = {DIM_RANK, DIM_V}},
    {"markov_head.markov_w2.weight", "markov_w2.weight", .dims = {DIM_RANK, DIM_DRAFT_ROWS}},
    {0},
};

static const struct convert_rule gate_rules[] = {
    {"markov_head.gate_proj.weight", "markov_gate.weight", .dims = {DIM_GATE, DIM_RANK}},
    {"markov_head.gate_proj.bias", "markov_gate.bias", .dims = {DIM_RANK}},
    {0},
};

static const struct convert_rule confidence_rules[] = {
    {"confidence_head.proj.weight", "conf_proj.weight", .dims = {DIM_CONF, DIM_ONE}},
    {"confidence_head.proj.bias", "conf_proj.bias", .dims = {DIM_ONE}},
    {0},
};

static int take_head(struct convert_job *j, struct err *e) {
    const char *type = json_str(setting(j, "markov_head_type"), NULL);
    const bool gated = type && !strcasecmp(type, "gated");
    if (j->dim[DIM_RANK] == 0)
        return 0;
    if (type && !gated && strcasecmp(type, "vanilla") != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "markov_head_type in %s is %.40s: only drafts with a vanilla or a gated "
                       "Markov head can be converted",
                       j->config.path, type);
    j->dim[DIM_GATE] = j->dim[DIM_D] + j->dim[DIM_RANK];
    if (gated)
        convert_put_str(j, "markov_head_type", "gated");
    int rc = convert_take_all(j, markov_rules, -1, e);
    return rc || !gated ? rc : convert_take_all(j, gate_rules, -1, e);
}

static int take_confidence(struct convert_job *j, struct err *e) {
    const struct tensor *t = NULL;
    int rc = convert_find(j, confidence_rules[0].hf, -1, &t, e);
    convert_put_bool(j, "has_confidence_head", t != NULL);
    if (rc || !t)
        return rc;
    j->dim[DIM_CONF] = t->ne[0] == j->dim[DIM_D] ? t->ne[0] : j->dim[DIM_D] + j->dim[DIM_RANK];
    return convert_take_all(j, confidence_rules, -1, e);
}

static int leave_copies(struct convert_job *j, struct err *e) {
    static const char *const copies[] = {"embed_tokens.weight", "lm_head.weight"};
    const int64_t shape[] = {j->dim[DIM_D], j->dim[DIM_V]};
    int rc = 0;
    for (int i = 0; !rc && i < 2; i++) {
        const struct tensor *t = NULL;
        rc = convert_find(j, copies[i], -1, &t, e);
        if (!rc && t)
            rc = convert_check_shape(t, shape, 2, e);
        if (!rc && t)
            rc = convert_mark_used(j, t, e);
    }
    return rc;
}

int convert_dspark(struct convert_job *j, struct err *e) {
    char buf[64];
    const char *key = convert_draft_key(&j->config, "markov_rank", buf, sizeof buf);
    j->dim[DIM_ONE] = 1;
    convert_put_bool(j, "sample_from_anchor", from_anchor(j));
    int rc = hf_int(&j->config, key, 0, 1 << 12, 0, &j->dim[DIM_RANK], e);
    if (!rc)
        rc = take_head(j, e);
    if (!rc)
        rc = take_confidence(j, e);
    return rc || j->dim[DIM_DRAFT_ROWS] != j->dim[DIM_V] ? rc : leave_copies(j, e);
}
