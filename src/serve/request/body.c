// SPDX-License-Identifier: Apache-2.0
// From bytes to parameters; see body.h. Nothing that a client sends is dropped silently: every
// member of a body, in all depths, is one that is read (fields.h, and the readers of
// conversations), one that is refused, or one that does nothing here and is named in a header of
// the answer. What may stand where is a table of names for each kind of object, as the published
// types of the interfaces have them, and one of the fields that clients of other servers send.
#include "serve/request/body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "serve/reply/opaque.h"
#include "serve/request/fields.h"

// The members of a kind of object, with blanks between:
//   name        is read, or says nothing by itself
//   name=kind   the same, and so are its objects, or those of its array, of that kind
//   name-       does nothing, unless it is neutral: then it is not named
//   name!       is refused, unless it is neutral
//   name?       encoded here (serve/reply/opaque.h), or it does nothing
//   name$       is read and must be a string; name^ true or false; name{ an object; name+ an array
//               of objects
//   ...         others are read as well
// After - and ! stand the neutral values, with | between; without any they are false, 0 and "".
// null, [] and {} always are. Without members (NULL) the whole object does nothing.
struct shape {
    const char *kind, *type; // of the member `type`; ends in *: all that begin so; NULL: any
    const char *members;
};

#define CHAT_TOOL "... defer_loading- allowed_callers- input_examples- cache_control- async-"
#define BLOCK     "type cache_control- "
#define CALLED    "status id caller- async- namespace"

static const struct shape shapes[] = {
    {"chat", NULL,
     "messages=message tools=tool tool_choice=choice stream_options=stream_options "
     "response_format=format coppice=coppice structured_outputs=structured thinking=thinking "
     "functions=declaration audio! metadata- moderation! prediction- prompt_cache_key- "
     "prompt_cache_options- prompt_cache_retention- safety_identifier- service_tier-auto|default "
     "store- user- verbosity-medium web_search_options!"},
    {"completions", NULL,
     "stream_options=stream_options response_format=format coppice=coppice "
     "structured_outputs=structured user-"},
    {"responses", NULL,
     "input=item tools=response_tool tool_choice=choice reasoning=reasoning text=text "
     "max_tool_calls moderation! "
     "truncation-disabled prompt_cache_options=cache_options access_programs- background_options- "
     "context_management- image- personality- prompt_cache_key- prompt_cache_retention- "
     "safety_identifier- service_tier-auto|default stream_options=obfuscation coppice=coppice "
     "user-"},
    {"messages", NULL,
     "messages=turn system=block tools=message_tool coppice=coppice thinking=thinking "
     "output_config=output_config "
     "billing_policy- cache_control- container- context_management- diagnostics- "
     "fallback_credit_token- fallbacks- inference_geo- mcp_servers! metadata- "
     "service_tier-auto|standard_only speed-standard betas- user_profile_id- workspace_id-"},
    {"stream_options", NULL, "include_usage include_obfuscation- continuous_usage_stats!"},
    {"obfuscation", NULL, "include_obfuscation-"},
    {"coppice", NULL, "logit_hash token_ids trees speculate"},
    {"structured", NULL,
     "json regex choice grammar json_object disable_fallback- disable_any_whitespace- "
     "disable_additional_properties! whitespace_pattern! structural_tag!"},
    {"choice", "function", "..."},
    {"choice", "custom", "..."},
    {"choice", "allowed_tools", "..."},
    {"choice", "none", "..."},
    {"choice", "auto", "..."},
    {"choice", "any", "..."},
    {"choice", "required", "..."},
    {"choice", "tool", "..."},
    {"choice", "", "..."},
    {"choice", "*", NULL},
    {"format", NULL, "type json_schema=schema schema name description- strict"},
    {"schema", NULL, "name description- schema strict"},
    {"message", NULL,
     "role content=part name refusal tool_calls=call function_call tool_call_id reasoning_content "
     "thinking reasoning reasoning_details is_error^ type item prefix phase clear_at audio! "
     "cache_control-"},
    {"part", NULL,
     "type text refusal annotations- logprobs- cache_control- prompt_cache_breakpoint-"},
    {"result_part", "input_image", NULL},
    {"result_part", "input_file", NULL},
    {"result_part", NULL, "... prompt_cache_breakpoint-"},
    {"call", NULL, "id type index function=called custom=called name arguments"},
    {"called", NULL, "name arguments input$"},
    {"tool", "function", CHAT_TOOL " function=declaration"},
    {"tool", "custom", CHAT_TOOL " custom=declaration"},
    {"tool", "", CHAT_TOOL " function=declaration"},
    {"tool", "*", NULL},
    {"declaration", NULL, CHAT_TOOL},
    {"response_tool", "function",
     CHAT_TOOL " function=declaration description$ parameters{ strict^"},
    {"response_tool", "custom", CHAT_TOOL " custom=declaration description$ format{"},
    {"response_tool", "namespace", "type name description tools=response_tool"},
    {"response_tool", "*", NULL},
    {"reasoning", NULL, "effort summary generate_summary context- mode-"},
    {"text", NULL, "format=format verbosity-medium"},
    {"cache_options", NULL, "prewarm mode- ttl- comparison_response_id-"},
    {"item", "", "type role content=part status id phase"},
    {"item", "message", "type role content=part status id phase"},
    {"item", "reasoning", "type id summary+ content+ encrypted_content? status"},
    {"item", "function_call", "type call_id$ name arguments$ " CALLED},
    {"item", "custom_tool_call", "type call_id$ name input$ " CALLED},
    {"item", "function_call_output", "type call_id$ output=result_part is_error^ name- " CALLED},
    {"item", "custom_tool_call_output", "type call_id$ output=result_part is_error^ name- " CALLED},
    {"item", "computer_call_output",
     "type id call_id output=screenshot acknowledged_safety_checks status"},
    {"screenshot", NULL, "type file_id! image_url!"},
    {"item", "additional_tools", "type id role tools!"},
    {"item", "configuration_update", "type id reasoning! text!"},
    {"item", "compaction_trigger", NULL},
    {"item", "compaction", NULL},
    {"item", "mcp_list_tools", NULL},
    {"item", "mcp_approval_request", NULL},
    {"item", "mcp_approval_response", NULL},
    {"item", "program", NULL},
    {"item", "item_reference", "type id"},
    {"turn", NULL,
     "role content=block output_config=turn_config clear_at id- type- model- stop_reason- "
     "stop_sequence- usage- container- context_management-"},
    {"turn_config", NULL, "effort- format-"},
    {"block", "text", BLOCK "text citations-"},
    {"block", "thinking", BLOCK "thinking signature$"},
    {"block", "redacted_thinking", "type data?"},
    {"block", "tool_use", BLOCK "id name input caller- toolset_name-"},
    {"block", "tool_result", BLOCK "tool_use_id content=result_block is_error^ toolset_name-"},
    {"block", "document", BLOCK "source title$ context$ citations-"},
    {"block", "search_result", BLOCK "source title content=block citations-"},
    {"block", "server_tool_use", BLOCK "id name input- caller-"},
    {"block", "mcp_tool_use", BLOCK "id name server_name input-"},
    {"block", "mcp_tool_result", BLOCK "tool_use_id content=block is_error-"},
    {"block", "tool_addition", BLOCK "tool=change"},
    {"block", "tool_removal", BLOCK "tool=change"},
    {"block", "", "..."},
    {"block", "*", NULL}, // its words are shown, if it has any
    {"result_block", "image", NULL},
    {"result_block", "document", BLOCK "source=source title$ context$ citations-"},
    {"result_block", "text", BLOCK "text citations-"},
    {"result_block", "search_result", BLOCK "source title content=block citations-"},
    {"result_block", "*", NULL},
    {"source", "text", "..."},
    {"source", "content", "type content=block"},
    {"source", "*", NULL},
    {"change", "tool_reference", "type name"},
    {"change", "tool_definition", "..."},
    {"change", "*", NULL},
    {"message_tool", "", CHAT_TOOL " eager_input_streaming- description$ strict^"},
    {"message_tool", "custom", CHAT_TOOL " eager_input_streaming- description$ strict^"},
    {"message_tool", "freeform", CHAT_TOOL " eager_input_streaming- description$ strict^"},
    {"message_tool", "bash_*", CHAT_TOOL " eager_input_streaming-"},
    {"message_tool", "text_editor_*", CHAT_TOOL " eager_input_streaming- max_characters-"},
    {"message_tool", "memory_*", CHAT_TOOL " eager_input_streaming-"},
    {"message_tool", "*", NULL},
    {"thinking", NULL, "type budget_tokens display block_binding-"},
    {"output_config", NULL, "effort format=format task_budget-"},
};

// Fields that clients of vLLM, SGLang, llama-server, TGI, Ollama, LM Studio, KoboldCpp and of
// hosted interfaces send, and that would change the answer. Where the neutral value is not the
// empty one it is their default.
static const char foreign[] =
    // vLLM
    "use_beam_search! length_penalty!1 early_stopping! skip_special_tokens!true "
    "spaces_between_special_tokens truncate_prompt_tokens!-1 prompt_logprobs!null "
    "allowed_token_ids! "
    "bad_words! add_special_tokens! continue_final_message! chat_template! mm_processor_kwargs! "
    "guided_decoding_backend!auto guided_whitespace_pattern! structural_tag! priority- request_id- "
    "logits_processors! return_tokens_as_token_ids! return_token_ids! cache_salt! "
    "kv_transfer_params! vllm_xargs! repetition_detection! include_reasoning!true prompt_embeds! "
    "media_io_kwargs! logprob_token_ids! flat_logprobs! "
    // llama-server
    "dynatemp_range! dynatemp_exponent typical_p!1 typ_p!1 top_n_sigma!-1|0 xtc_probability! "
    "xtc_threshold mirostat! mirostat_tau mirostat_eta dry_multiplier! dry_base dry_allowed_length "
    "dry_penalty_last_n dry_sequence_breakers adaptive_target!-1 adaptive_decay n_keep! n_discard! "
    "n_indent! n_probs! min_keep! t_max_predict_ms!0|-1 t_max_prompt_ms!0|-1 samplers! "
    "cache_prompt-true id_slot!-1 slot_id!-1 return_tokens! post_sampling_probs! response_fields! "
    "lora! timings_per_token! return_progress! penalize_nl! penalty_prompt! image_data! "
    "multimodal_data! system_prompt! reasoning_format!auto|deepseek|parsed parse_tool_calls!true "
    "reasoning_budget!-1 grammar_lazy! grammar_triggers! preserved_tokens! chat_format! "
    "generation_prompt! n_cmpl!1 input_prefix! input_suffix! input_extra! backend_sampling- "
    "speculative.n_max- speculative.n_min- speculative.p_min- speculative.type- tfs_z!1 "
    // SGLang
    "regex! ebnf! stop_regex! lora_path! session_params! separate_reasoning!true "
    "stream_reasoning!true return_hidden_states! return_routed_experts! "
    "return_cached_tokens_details! rid- bootstrap_host! bootstrap_port! bootstrap_room! "
    "data_parallel_rank- custom_params! custom_logit_processor! sampling_params! extra_key! "
    "use_audio_in_video! max_dynamic_patch! min_dynamic_patch! "
    // TGI, transformers and pages over them
    "parameters! inputs! watermark! truncate! decoder_input_details! details! do_sample!true "
    "return_full_text! top_n_tokens! adapter_id! tool_prompt! guideline! num_beams!1 "
    "num_return_sequences!1 no_repeat_ngram_size! encoder_repetition_penalty!1 penalty_alpha! "
    "eta_cutoff! epsilon_cutoff! tfs!1 top_a! smoothing_factor! smoothing_curve "
    "dynamic_temperature! "
    "temperature_last! custom_token_bans! negative_prompt! guidance_scale!1 cfg_scale!1 "
    "max_new_tokens!null max_length!null min_length!0 ban_eos_token! mode! instruction_template! "
    "character! sampler_order! sampler_priority! rep_pen_range! rep_pen_slope! "
    "repetition_penalty_range! memory! trim_stop! max_context_length! truncation_length! "
    // Ollama and LM Studio
    "options! keep_alive- format! think! raw! images! template! num_ctx! num_predict! ttl- "
    "draft_model- context_overflow_policy! "
    // hosted
    "provider! models! route! transforms! plugins! safe_prompt! random_seed!null prompt_mode! "
    "enable_search! search_parameters! incremental_output! result_format!message "
    "thinking_budget!null deferred! exclude_domains! include_domains! prompt_truncate_len! "
    "raw_output! perf_metrics_in_response! safety_model! compliance! vl_high_resolution_images! "
    "translation_options! prompt_cache_isolation_key! citation_options! "
    // of another of the interfaces, which have their own names for it
    "messages! input! prompt! system! instructions! previous_response_id! response_format! "
    "guided_json! guided_regex! guided_grammar! guided_choice! structured_outputs! grammar! "
    "json_schema! documents! functions! modalities! audio! n!1 best_of!1 logprobs! echo! suffix! "
    "max_completion_tokens! max_output_tokens! n_predict!-1 ";

struct names {
    struct params *p;
    struct api_error *x;
    bool lenient; // what is refused does nothing here
};

struct place {
    char text[96];
};

// The text after a name of a list, or NULL. Of an open list without it: "".
static const char *find_rule(const char *members, const char *name) {
    size_t n = strlen(name);
    const char *at = members;
    bool open = !strncmp(members, "...", 3);
    while (*at) {
        size_t word = strcspn(at, " ");
        if (word >= n && !strncmp(at, name, n) && (word == n || strchr("=-!?$^{+", at[n])))
            return at + n;
        at += word + strspn(at + word, " ");
    }
    return open ? "" : NULL;
}

// Whether a value stands for nothing. list: neutral values with | between, up to a blank.
static bool is_neutral(const struct json *v, const char *list) {
    enum json_kind k = json_kind_of(v);
    size_t n = strcspn(list, " "), m = 0;
    if (k == JSON_NULL || ((k == JSON_ARRAY || k == JSON_OBJECT) && json_len(v) == 0))
        return true;
    if (k == JSON_ARRAY || k == JSON_OBJECT)
        return false;
    const char *s = json_str(v, &m);
    if (n == 0)
        return s ? m == 0 : k == JSON_BOOL ? !json_bool(v, true) : json_num(v, 1) == 0;
    for (const char *at = list, *end = list + n; at < end;) {
        size_t word = strcspn(at, "| ");
        char text[32] = "", *stop = text;
        snprintf(text, sizeof text, "%.*s", (int)word, at);
        double d = strtod(text, &stop);
        bool number = stop != text && !*stop;
        if (s                ? m == word && !memcmp(s, at, m)
            : k == JSON_BOOL ? !strcmp(text, json_bool(v, false) ? "true" : "false")
                             : number && json_num(v, d + 1) == d)
            return true;
        at += word + (at[word] == '|');
    }
    return false;
}

static bool is_opaque(const struct json *v) {
    struct str opened = {0};
    size_t n = 0;
    const char *s = json_str(v, &n);
    bool ok = s && opaque_decode(s, n, &opened);
    str_fini(&opened);
    return ok;
}

// Whether a value is of the kind of the rule; else it would be dropped where it is read.
static bool check_member_kind(struct names *k, char rule, const struct json *v,
                              const struct place *at) {
    static const struct {
        enum json_kind kind;
        const char *name;
    } kinds[] = {['$'] = {JSON_STRING, "a string"},
                 ['^'] = {JSON_BOOL, "true or false"},
                 ['{'] = {JSON_OBJECT, "an object"},
                 ['+'] = {JSON_ARRAY, "an array of objects"}};
    bool ok = json_kind_of(v) == kinds[(int)rule].kind;
    for (size_t i = 0; ok && rule == '+' && i < json_len(v); i++)
        ok = json_kind_of(json_at(v, i)) == JSON_OBJECT;
    return ok || api_refuse(k->x, at->text, "%s is %s and must be %s", at->text, json_kind_name(v),
                            kinds[(int)rule].name);
}

static bool check_value(struct names *k, const char *kind, const struct json *v,
                        const struct place *at);

// A member of which `rule` says what follows its name.
static bool check_rule(struct names *k, const char *rule, const struct json *v,
                       const struct place *at) {
    char kind[24];
    if (*rule == '=') {
        snprintf(kind, sizeof kind, "%.*s", (int)strcspn(rule + 1, " "), rule + 1);
        return check_value(k, kind, v, at);
    }
    if (*rule && strchr("$^{+", *rule))
        return check_member_kind(k, *rule, v, at);
    bool refused = *rule == '!' && !k->lenient;
    if (*rule == '?' ? is_opaque(v) : (*rule != '-' && *rule != '!') || is_neutral(v, rule + 1))
        return true;
    if (!refused) {
        params_ignore(k->p, at->text);
        return true;
    }
    return api_refuse(k->x, at->text,
                      "%s is not supported here, and the answer would not be what it requests: "
                      "leave it out",
                      at->text);
}

static const struct shape *find_shape(const char *kind, const struct json *object) {
    const char *type = json_str(json_get(object, "type"), NULL);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const char *expected = shapes[i].type;
        if (strcmp(shapes[i].kind, kind) != 0)
            continue;
        size_t n = expected ? strlen(expected) : 0;
        bool any = n && expected[n - 1] == '*';
        if (!expected ||
            (any ? type && !strncmp(type, expected, n - 1) : !strcmp(type ? type : "", expected)))
            return &shapes[i];
    }
    return NULL;
}

struct within {
    struct names *names;
    const struct shape *shape;
    const struct place *at;
};

static int check_member(void *arg, const char *key, size_t n, const struct json *v) {
    const struct within *m = arg;
    const char *rule = find_rule(m->shape->members, key);
    struct place place;
    (void)n;
    if (json_kind_of(v) == JSON_NULL)
        return 0;
    snprintf(place.text, sizeof place.text, "%.60s.%.32s", m->at->text, key);
    if (rule)
        return !check_rule(m->names, rule, v, &place);
    params_ignore(m->names->p, place.text);
    return 0;
}

static bool check_value(struct names *k, const char *kind, const struct json *v,
                        const struct place *at) {
    if (json_kind_of(v) == JSON_ARRAY) {
        bool ok = true;
        for (size_t i = 0; i < json_len(v) && ok; i++) {
            struct place place;
            snprintf(place.text, sizeof place.text, "%.70s[%zu]", at->text, i);
            ok = json_kind_of(json_at(v, i)) != JSON_OBJECT ||
                 check_value(k, kind, json_at(v, i), &place);
        }
        return ok;
    }
    struct within m = {k, json_kind_of(v) == JSON_OBJECT ? find_shape(kind, v) : NULL, at};
    if (m.shape && !m.shape->members)
        params_ignore(k->p, at->text);
    return !m.shape || !m.shape->members || json_each(v, check_member, &m) == 0;
}

struct top {
    struct names *names;
    const char *members; // of the interface
    enum endpoint endpoint;
};

static bool is_field(const char *name, enum endpoint endpoint) {
    for (size_t i = 0; i < fields_count; i++)
        if (fields[i].endpoints & endpoint && !strcmp(fields[i].name, name))
            return true;
    return false;
}

static int check_field(void *arg, const char *key, size_t n, const struct json *v) {
    const struct top *t = arg;
    struct place place;
    (void)n;
    if (json_kind_of(v) == JSON_NULL)
        return 0;
    snprintf(place.text, sizeof place.text, "%.64s", key);
    const char *rule = find_rule(t->members, key);
    bool read = is_field(key, t->endpoint);
    if (!rule && !read)
        rule = find_rule(foreign, key);
    if (rule)
        return !check_rule(t->names, rule, v, &place);
    if (!read)
        params_ignore(t->names->p, place.text);
    return 0;
}

// Looks at all names of a body that has been read; those that do nothing are added to p->ignored.
// False with x filled where one is refused.
static bool check_names(struct params *p, const struct json *body, enum endpoint endpoint,
                        struct api_error *x) {
    struct names k = {.p = p, .x = x, .lenient = !(endpoint & ENDPOINT_TEXT)};
    struct top t = {&k, "", endpoint};
    const char *kind = endpoint & ENDPOINT_MESSAGES                              ? "chat"
                       : endpoint == ENDPOINT_COMPLETIONS                        ? "completions"
                       : endpoint & (ENDPOINT_ANTHROPIC | ENDPOINT_COUNT)        ? "messages"
                       : endpoint & (ENDPOINT_RESPONSES | ENDPOINT_INPUT_TOKENS) ? "responses"
                                                                                 : NULL;
    if (kind)
        t.members = find_shape(kind, NULL)->members;
    if (json_each(body, check_field, &t) != 0)
        return false;
    if (endpoint == ENDPOINT_RESPONSES && !p->logprobs && p->top_logprobs >= 0 &&
        json_int(json_get(body, "top_logprobs"), 0) > 0)
        params_ignore(p, "top_logprobs"); // include does not name them
    return !p->ignored.failed || api_no_memory(x);
}

bool body_parse(const char *text, size_t n, struct json **out, struct api_error *x) {
    static const struct json_rules rules = {.depth = 256,
                                            .values = 1 << 20,
                                            .objects = 1 << 17,
                                            .unique_keys = true,
                                            .big_integers = true};
    struct err e = {0};
    if (n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) { // a byte order mark, RFC 8259, section 8.1
        text += 3;
        n -= 3;
    }
    if (!json_parse_with(out, text, n, &rules, &e))
        return true;
    api_fail(x, e.code == ERR_MEMORY ? 503 : 400, NULL, "the body: %s", e.text);
    return false;
}

bool body_take(struct str *text, struct http_memory *memory, struct json **out,
               struct api_error *x) {
    enum { FORMS = 4 }; // the document, words for the template, text of the prompt, its tokens
    http_memory_set(memory, 2 * text->len);
    bool ok = body_parse(text->data ? text->data : "", text->len, out, x);
    str_fini(text);
    http_memory_set(memory, ok ? FORMS * json_memory(*out) : 0);
    return ok;
}

// Checks over several fields.
static bool check_together(struct params *p, const struct json *body, enum endpoint endpoint,
                           struct api_error *x) {
    if ((endpoint & (ENDPOINT_MESSAGES | ENDPOINT_ANTHROPIC | ENDPOINT_COUNT)) &&
        json_len(p->messages) == 0)
        return api_refuse(x, "messages", "messages is %s: at least one message is needed",
                          p->messages ? "empty" : "missing");
    if (endpoint == ENDPOINT_COMPLETIONS && !p->prompt)
        return api_refuse(x, "prompt", "prompt is missing");
    if (endpoint == ENDPOINT_TOKENIZE && !p->text)
        return api_refuse(x, "content", "content is missing");
    if (endpoint == ENDPOINT_DETOKENIZE && !p->tokens)
        return api_refuse(x, "tokens", "tokens is missing");
    if (endpoint == ENDPOINT_CHAT && p->top_logprobs > 0 && !p->logprobs)
        return api_refuse(x, "top_logprobs", "top_logprobs needs logprobs to be true");
    if (p->min_tokens > 0 && p->max_tokens >= 0 && p->min_tokens > p->max_tokens)
        return api_refuse(x, "min_tokens",
                          "min_tokens is %lld and max_tokens %lld: a reply cannot have both",
                          (long long)p->min_tokens, (long long)p->max_tokens);
    if (!p->stream && json_kind_of(json_get(body, "stream_options")) != JSON_NULL)
        p->include_usage = false; // without a stream the counts are there in any case
    return true;
}

bool body_read(struct params *p, const struct json *body, enum endpoint endpoint,
               const struct params_limits *l, struct api_error *x) {
    *p = (struct params){.sample = l->sample,
                         .max_tokens = -1,
                         .n = 1,
                         .thinking = -1,
                         .thinking_tokens = -1,
                         .how = l->how};
    p->top_logprobs = endpoint == ENDPOINT_COMPLETIONS ? -1 : 0;
    p->sample.seed = random_seed();
    if (endpoint == ENDPOINT_COMPLETIONS)
        p->max_tokens = 16; // as the interface defines it
    if (json_kind_of(body) != JSON_OBJECT)
        return api_refuse(x, NULL, "the body is %s and must be a JSON object",
                          json_kind_name(body));
    if (!fields_read(p, fields, fields_count, body, endpoint, l, x) ||
        !check_together(p, body, endpoint, x) || !check_names(p, body, endpoint, x))
        return false;
    if (endpoint == ENDPOINT_COMPLETIONS)
        p->logprobs = p->top_logprobs >= 0;
    else if (!p->logprobs)
        p->top_logprobs = -1;
    return true;
}
