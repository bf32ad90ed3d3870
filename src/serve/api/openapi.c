// SPDX-License-Identifier: Apache-2.0
// The OpenAPI document; see openapi.h.
#include "serve/api/openapi.h"

#include <string.h>

#include "serve/request/fields.h"

// Schemas that no table has: messages and answers.
struct openapi_schema {
    const char *name, *schema;
};

static const struct openapi_schema schemas[] = {
    {"Bias", "{'oneOf':[{'type':'number','minimum':-100,'maximum':100},{'const':false}]}"},
    {"TokenId", "{'type':'integer','minimum':0,'maximum':2147483647}"},
    {"TextPart",
     "{'oneOf':[{'type':'string'},{'type':'object','required':['text'],'properties':{'type':{"
     "'type':['string','null']},'text':{'type':'string'}}}]}"},
    {"ToolCall",
     "{'anyOf':[{'type':'object','required':['function'],'properties':{'id':{},'function':{'type':"
     "'object','required':['name'],'properties':{'name':%S,'arguments':{'type':['string','object',"
     "'null']}}}}},{'type':'object','required':['custom'],'properties':{'id':{},'custom':{'type':"
     "'object','required':['name'],'properties':{'name':%S,'input':{'type':['string','null']}}}}}]"
     "}"},
    {"Content", "{'oneOf':[{'type':'string'},{'type':'array','items':@TextPart}]}"},
    {"Message",
     "{'oneOf':[{'type':'object','required':['role','content'],'properties':{'role':{'enum':["
     "'system','developer','user','tool','function']},'content':@Content}},{'type':'object',"
     "'required':['role'],'properties':{'role':{'const':'assistant'},'content':{'oneOf':[@Content,"
     "{'type':'null'}]},'tool_calls':{'oneOf':[{'type':'array','items':@ToolCall},{'type':'null'}]"
     "}}}]}"},
    {"Item", "{'type':'object','properties':{'type':%S,'role':%S,'id':%S}}"},
    {"Response",
     "{'type':'object','required':['id','object','created_at','status','model','output','error',"
     "'incomplete_details','usage'],'properties':{'id':%S,'object':{'const':'response'},"
     "'created_at':%I,'status':{'enum':['completed','incomplete']},'model':%S,'output':{'type':"
     "'array','items':@Item},'usage':{'type':'object','required':['input_tokens','output_tokens',"
     "'total_tokens'],'properties':{'input_tokens':%I,'output_tokens':%I,'total_tokens':%I,"
     "'logit_hash':{'type':'array','items':%S}}},'timings':@Timings,'coppice':@Extra}}"},
    {"Block", "{'type':'object','required':['type'],'properties':{'type':%S}}"},
    {"Turn", "{'type':'object','required':['role','content'],'properties':{'role':{'enum':['user',"
             "'assistant','system']},'content':{'oneOf':[%S,{'type':'array','items':@Block}]}}}"},
    {"AnthropicMessage",
     "{'type':'object','required':['id','type','role','model','content','stop_reason',"
     "'stop_sequence','usage'],'properties':{'id':%S,'type':{'const':'message'},'role':{'const':"
     "'assistant'},'model':%S,'content':{'type':'array','items':@Block},'stop_reason':%S,"
     "'stop_sequence':{'type':['string','null']},'usage':{'type':'object','required':["
     "'input_tokens','output_tokens'],'properties':{'input_tokens':%I,'output_tokens':%I,"
     "'cache_read_input_tokens':%I,'cache_creation_input_tokens':%I,'logit_hash':{'type':'array',"
     "'items':%S}}},'timings':@Timings,'coppice':@Extra}}"},
    {"InputTokens",
     "{'type':'object','required':['object','input_tokens'],'properties':{'object':{'type':"
     "'string','enum':['response.input_tokens']},'input_tokens':{'type':'integer'}}}"},
    {"TokenCount",
     "{'type':'object','required':['input_tokens'],'properties':{'input_tokens':%I}}"},
    {"AnthropicError",
     "{'type':'object','required':['type','error'],'properties':{'type':{'const':'error'},'error':"
     "{'type':'object','required':['type','message'],'properties':{'type':%S,'message':%S}},"
     "'request_id':{'type':['string','null']}}}"},
    {"Error",
     "{'type':'object','required':['error'],'properties':{'error':{'type':'object','required':["
     "'message','type','param','code'],'properties':{'message':%S,'type':%S,'param':{'type':["
     "'string','null']},'code':{'type':['string','null']},'n_prompt_tokens':%I,'n_ctx':%I}}}}"},
    {"Usage", "{'type':'object','required':['prompt_tokens','completion_tokens','total_tokens'],"
              "'properties':{'prompt_tokens':%I,'completion_tokens':%I,'total_tokens':%I,"
              "'prompt_tokens_details':{'type':'object','properties':{'cached_tokens':%I}},"
              "'completion_tokens_details':{'type':'object','properties':{'reasoning_tokens':%I,"
              "'accepted_prediction_tokens':%I,'rejected_prediction_tokens':%I}},"
              "'logit_hash':{'type':'array','items':%S}}}"},
    {"Timings",
     "{'type':'object','properties':{'queue_ms':%N,'cache_n':%I,'prompt_n':%I,'prompt_ms':%N,"
     "'prompt_per_second':%N,'predicted_n':%I,'predicted_ms':%N,'predicted_per_second':%N,"
     "'decode_ms':%N,'draft_n':%I,'draft_n_accepted':%I,'steps':%I,'accept_length':%N,"
     "'compression':{'type':'object','properties':{'from':%I,'to':%I,'ms':%N,'parked_ms':%N,"
     "'reason':{'type':['string','null']},'adapted':{'const':true},'keep_ratio':%N}},"
     "'speculate':{'enum':['tree','chain','lookup','off']},'fa_window':%I,'kv_pool':%I,'kv_pool_"
     "policy':%S,'guesses':{'type':'"
     "object',"
     "'additionalProperties':{'type':'object','properties':{'verified':{'type':'array','items':%I},"
     "'accepted':{'type':'array','items':%I},'unknown':%I}}},'tool_format':%S}}"},
    {"Finish", "{'enum':['stop','length',null]}"},
    {"Extra",
     "{'type':'object','properties':{'logit_hash':{'type':'array','items':%S},'token_ids':{'type':"
     "'array','items':{'type':'array','items':@TokenId}}}}"},
    {"ChatCompletion",
     "{'type':'object','required':['id','object','created','model','choices','usage'],'properties'"
     ":{'id':%S,'object':{'const':'chat.completion'},'created':%I,'model':%S,'choices':{'type':"
     "'array','items':{'type':'object','required':['index','message','finish_reason'],'properties'"
     ":{'index':%I,'message':{'type':'object','required':['role','content'],'properties':{'role':{"
     "'const':'assistant'},'content':%S,'reasoning_content':%S}},'logprobs':{'type':['object',"
     "'null']},'finish_reason':@Finish}}},'usage':@Usage,'timings':@Timings,'coppice':@Extra}}"},
    {"Completion",
     "{'type':'object','required':['id','object','created','model','choices','usage'],'properties'"
     ":{'id':%S,'object':{'const':'text_completion'},'created':%I,'model':%S,'choices':{'type':"
     "'array','items':{'type':'object','required':['index','text','finish_reason'],'properties':{"
     "'index':%I,'text':%S,'logprobs':{'type':['object','null']},'finish_reason':@Finish}}},"
     "'usage':@Usage,'timings':@Timings,'coppice':@Extra}}"},
    {"Model",
     "{'type':'object','required':['id','object','created','owned_by'],'properties':{'id':%S,"
     "'object':{'const':'model'},'created':%I,'owned_by':%S,'type':{'const':'model'},"
     "'display_name':%S,'created_at':%S,'context_length':%I,'max_context_length':%I,"
     "'max_model_len':%I,'max_input_tokens':%I,'max_tokens':%I}}"},
    {"Models",
     "{'type':'object','required':['object','data'],'properties':{'object':{'const':'list'},"
     "'has_more':{'const':false},'first_id':{'type':['string','null']},'last_id':{'type':['string'"
     ",'null']},'data':{'type':'array','items':@Model},'models':{'type':'array','items':{'type':"
     "'object'}}}}"},
    {"LoadedModel",
     "{'type':'object','required':['id','object','type','state'],'properties':{'id':%S,'object':{"
     "'const':'model'},'type':{'const':'llm'},'state':{'enum':['loaded','not-loaded']},"
     "'max_context_length':%I,'loaded_context_length':%I}}"},
    {"LoadedModels",
     "{'type':'object','required':['object','data'],'properties':{'object':{'const':'list'},'data'"
     ":{'type':'array','items':@LoadedModel}}}"},
    {"Tokens",
     "{'type':'object','required':['tokens','count'],'properties':{'tokens':{'type':'array'},"
     "'count':%I,'max_model_len':%I}}"},
    {"Text", "{'type':'object','required':['content'],'properties':{'content':%S,'prompt':%S}}"},
    {"Prompt", "{'type':'object','required':['prompt'],'properties':{'prompt':%S}}"},
    {"Health", "{'type':'object','required':['status'],'properties':{'status':{'const':'ok'},"
               "'speculate':{'enum':['tree','chain','lookup','off']},'fa_window':%I,'kv_pool':%I,'"
               "kv_pool_policy':%S}}"},
    {"Object", "{'type':'object'}"},
    {"Slots", "{'type':'array','items':{'type':'object'}}"},
};

// In schemas ' stands for ", @Name for a reference to the schema of that name,
// %S for a string, %I for an integer from 0 on, and %N for a number.
#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

static void put_schema(struct str *out, const char *text) {
    while (*text) {
        size_t n = strcspn(text, "'@%");
        str_append(out, text, n);
        text += n;
        char mark = *text;
        text += mark != 0;
        if (mark == '\'')
            str_putc(out, '"');
        if (mark == '%')
            str_puts(out, *text == 'S'   ? "{\"type\":\"string\"}"
                          : *text == 'I' ? "{\"type\":\"integer\",\"minimum\":0}"
                                         : "{\"type\":\"number\"}");
        n = mark == '%' ? 1 : mark == '@' ? strspn(text, LETTERS) : 0;
        if (mark == '@')
            str_printf(out, "{\"$ref\":\"#/components/schemas/%.*s\"}", (int)n, text);
        text += n;
    }
}

static void put_string(struct str *out, const char *s) {
    struct json_writer w = {0};
    jw_cstr(&w, s);
    str_append(out, w.out.data ? w.out.data : "", w.out.len);
    out->failed |= w.out.failed;
    str_fini(&w.out);
}

static void put_type(struct str *out, const struct field *f) {
    static const char *const types[] = {
        [FIELD_BOOL] = "boolean",  [FIELD_INT] = "integer", [FIELD_NUM] = "number",
        [FIELD_STRING] = "string", [FIELD_ARRAY] = "array", [FIELD_OBJECT] = "object"};
    if (f->schema) {
        put_schema(out, f->schema);
        return;
    }
    str_printf(out, "{\"type\":\"%s\"", types[f->kind]);
    if (f->kind == FIELD_INT || f->kind == FIELD_NUM)
        str_printf(out, ",\"minimum\":%.17g", f->lo);
    if (f->kind == FIELD_NUM || (f->kind == FIELD_INT && f->hi <= INT32_MAX))
        str_printf(out, ",\"maximum\":%.17g", f->hi); // larger integers lose their last digits
    str_putc(out, '}');
}

static void put_fields(struct str *out, const struct field *rows, size_t n, unsigned endpoint) {
    const char *comma = "";
    str_puts(out, "{\"type\":\"object\",\"properties\":{");
    for (size_t i = 0; i < n; i++) {
        if (!(rows[i].endpoints & endpoint))
            continue;
        str_printf(out, "%s\n\"%s\":{\"description\":", comma, rows[i].name);
        put_string(out, rows[i].help);
        str_puts(out, ",\"oneOf\":[");
        put_type(out, &rows[i]);
        if (!rows[i].schema || strcmp(rows[i].schema, "{'type':'null'}") != 0)
            str_puts(out, ",{\"type\":\"null\"}");
        str_puts(out, "]}");
        comma = ",";
    }
    str_puts(out, "}}");
}

static const struct {
    enum endpoint endpoint;
    const char *name, *required;
} bodies[] = {
    {ENDPOINT_CHAT, "ChatRequest", "'required':['messages']"},
    {ENDPOINT_COMPLETIONS, "CompletionRequest", "'required':['prompt']"},
    {ENDPOINT_TEMPLATE, "TemplateRequest", "'required':['messages']"},
    {ENDPOINT_ANTHROPIC, "AnthropicRequest", "'required':['messages']"},
    {ENDPOINT_COUNT, "CountRequest", "'required':['messages']"},
    {ENDPOINT_RESPONSES, "ResponsesRequest", "'required':['input']"},
    {ENDPOINT_INPUT_TOKENS, "InputTokensRequest", "'required':['input']"},
    {ENDPOINT_TOKENIZE, "TokenizeRequest",
     "'anyOf':[{'required':['content']},{'required':['prompt']}]"},
    {ENDPOINT_DETOKENIZE, "DetokenizeRequest", "'required':['tokens']"},
};
enum { BODIES = sizeof bodies / sizeof bodies[0] };

static void put_errors(struct str *out, const struct route *r) {
    static const struct {
        const char *status, *text;
        bool body; // only where there is one
    } errors[] = {
        {"400", "The request makes no sense, or cannot be honoured.", false},
        {"401", "A key is needed.", false},
        {"403", "The Host header names another server.", false},
        {"404", "There is no such thing.", false},
        {"413", "The body is too large.", true},
        {"429", "The queue is full.", true},
        {"500", "The engine has failed.", false},
        {"529", "The queue is full.", true},
        {"503", "The model is still being loaded, or the server is ending.", false},
    };
    bool theirs = r->body & (ENDPOINT_ANTHROPIC | ENDPOINT_COUNT);
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if ((r->body || !errors[i].body) && strcmp(errors[i].status, theirs ? "429" : "529") != 0)
            str_printf(out,
                       ",\n\"%s\":{\"description\":\"%s\",\"content\":{\"application/json\":{"
                       "\"schema\":{\"$ref\":\"#/components/schemas/%s\"}}}}",
                       errors[i].status, errors[i].text, theirs ? "AnthropicError" : "Error");
}

static void put_body(struct str *out, const struct route *r) {
    const char *name = "";
    for (size_t i = 0; i < BODIES; i++)
        if (bodies[i].endpoint == r->body)
            name = bodies[i].name;
    str_printf(
        out,
        ",\n\"requestBody\":{\"required\":true,\"content\":{\"application/json\":{\"schema\":"
        "{\"$ref\":\"#/components/schemas/%s\"}}}}",
        name);
}

static void put_answer(struct str *out, const struct route *r) {
    str_puts(out, ",\n\"responses\":{\"200\":{\"description\":\"The answer.\",\"content\":{");
    if (r->answer)
        str_printf(out, "\"application/json\":{\"schema\":{\"$ref\":\"#/components/schemas/%s\"}}",
                   r->answer);
    if (r->answer && r->body && (r->body & ENDPOINT_TEXT))
        str_puts(out, ",");
    if (!r->answer || (r->body & ENDPOINT_TEXT))
        str_printf(out, "\"%s\":{\"schema\":{%s}}", r->type ? r->type : "text/event-stream",
                   r->type ? "\"type\":\"string\"" : ""); // no word of OpenAPI 3.1 for events
    str_puts(out, "}}");
    put_errors(out, r);
    str_putc(out, '}');
}

static void put_route(struct str *out, const struct route *r) {
    str_printf(out, "\"%s\":{\"summary\":",
               r->method[0] == 'G'   ? "get"
               : r->method[0] == 'D' ? "delete"
                                     : "post");
    put_string(out, r->summary);
    if (r->rest)
        str_printf(out,
                   ",\n\"parameters\":[{\"name\":\"%.*s\",\"in\":\"path\",\"required\":true,"
                   "\"schema\":{\"type\":\"string\"}}]",
                   (int)strcspn(r->rest + 1, "}"), r->rest + 1);
    if (r->body)
        put_body(out, r);
    put_answer(out, r);
    str_putc(out, '}');
}

static void put_schemas(struct str *out) {
    for (size_t i = 0; i < sizeof schemas / sizeof schemas[0]; i++) {
        str_printf(out, "\"%s\":", schemas[i].name);
        put_schema(out, schemas[i].schema);
        str_puts(out, ",\n");
    }
    for (size_t i = 0; i < BODIES; i++) {
        str_printf(out, "\"%s\":{\"allOf\":[{", bodies[i].name);
        put_schema(out, bodies[i].required);
        str_puts(out, "},");
        put_fields(out, fields, fields_count, bodies[i].endpoint);
        str_puts(out, "]},\n");
    }
    str_puts(out, "\"CoppiceExtra\":");
    put_fields(out, fields_extra, fields_extra_count, ENDPOINT_TEXT);
}

void openapi_write(struct str *out, const struct route *routes, size_t n) {
    const char *path = NULL; // of the rows that are being written
    str_puts(out, "{\"openapi\":\"3.1.0\",\n\"info\":{\"title\":\"coppice\",\"version\":\"1\","
                  "\"description\":\"OpenAI's and Anthropic's interfaces to one local model.\"},\n"
                  "\"security\":[{},{\"bearer\":[]},{\"key\":[]}],\n\"paths\":{\n");
    for (size_t i = 0; i < n; i++) {
        if (!routes[i].summary)
            continue;
        if (path && !strcmp(path, routes[i].path))
            str_puts(out, ",\n");
        else
            str_printf(out, "%s\"%s%s\":{", path ? "},\n" : "", routes[i].path,
                       routes[i].rest ? routes[i].rest : "");
        path = routes[i].path;
        put_route(out, &routes[i]);
    }
    str_puts(out, "}},\n\"components\":{\"securitySchemes\":{\"bearer\":{\"type\":\"http\","
                  "\"scheme\":\"bearer\"},\"key\":{\"type\":\"apiKey\",\"in\":\"header\","
                  "\"name\":\"x-api-key\"}},\n\"schemas\":{\n");
    put_schemas(out);
    str_puts(out, "}}}\n");
}
