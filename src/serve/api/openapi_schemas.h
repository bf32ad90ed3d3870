// SPDX-License-Identifier: Apache-2.0
// Schemas of the OpenAPI document that no table has: messages and answers. ' stands for ".
#ifndef COPPICE_SERVE_API_OPENAPI_SCHEMAS_H
#define COPPICE_SERVE_API_OPENAPI_SCHEMAS_H

struct openapi_schema {
    const char *name, *schema;
};

#define SCHEMA_REF(name) "{'$ref':'#/components/schemas/" name "'}"
#define INT              "{'type':'integer','minimum':0}"
#define NUM              "{'type':'number'}"
#define STR              "{'type':'string'}"

static const struct openapi_schema openapi_schemas[] = {
    {"Bias", "{'oneOf':[{'type':'number','minimum':-100,'maximum':100},{'const':false}]}"},
    {"TokenId", "{'type':'integer','minimum':0,'maximum':2147483647}"},
    {"TextPart", "{'oneOf':[{'type':'string'},{'type':'object','required':['text'],"
                 "'properties':{'type':{'type':['string','null']},"
                 "'text':{'type':'string'}}}]}"},
    {"ToolCall",
     "{'anyOf':[{'type':'object','required':['function'],'properties':{'id':{},"
     "'function':{'type':'object','required':['name'],'properties':{'name':" STR
     ",'arguments':{'type':['string','object','null']}}}}},{'type':'object','required':['custom'],"
     "'properties':{'id':{},'custom':{'type':'object','required':['name'],'properties':{'name':" STR
     ",'input':{'type':['string','null']}}}}}]}"},
    {"Content",
     "{'oneOf':[{'type':'string'},{'type':'array','items':" SCHEMA_REF("TextPart") "}]}"},
    {"Message",
     "{'oneOf':[{'type':'object','required':['role','content'],'properties':{'role':{'"
     "enum':"
     "['system','developer','user','tool','function']},'content':" SCHEMA_REF(
         "Content") "}},"
                    "{'type':'object','required':['role'],'properties':{'role':{'const'"
                    ":'assistant'},'content':"
                    "{'oneOf':[" SCHEMA_REF(
                        "Content") ",{'type':'null'}]},'tool_calls':{'oneOf':[{'type':'"
                                   "array',"
                                   "'items':" SCHEMA_REF("ToolCall") "},{'type':'null'}]}}}]}"},
    {"Item", "{'type':'object','properties':{'type':" STR ",'role':" STR ",'id':" STR "}}"},
    {"Response",
     "{'type':'object','required':['id','object','created_at','status','model','output','error',"
     "'incomplete_details','usage'],'properties':{'id':" STR ",'object':{'const':'response'},"
     "'created_at':" INT ",'status':{'enum':['completed','incomplete']},'model':" STR
     ",'output':{'type':'array','items':" SCHEMA_REF(
         "Item") "},'usage':{'type':'object','required':["
                 "'input_tokens','output_tokens','total_tokens'],'properties':{'input_tokens':" INT
                 ",'output_tokens':" INT ",'total_tokens':" INT
                 "}},'timings':" SCHEMA_REF("Timings") ",'coppice':" SCHEMA_REF("Extra") "}}"},
    {"Block", "{'type':'object','required':['type'],'properties':{'type':" STR "}}"},
    {"Turn", "{'type':'object','required':['role','content'],'properties':{'role':{'enum':["
             "'user','assistant','system']},'content':{'oneOf':[" STR
             ",{'type':'array','items':" SCHEMA_REF("Block") "}]}}}"},
    {"AnthropicMessage",
     "{'type':'object','required':['id','type','role','model','content','stop_reason',"
     "'stop_sequence','usage'],'properties':{'id':" STR ",'type':{'const':'message'},'role':{"
     "'const':'assistant'},'model':" STR ",'content':{'type':'array','items':" SCHEMA_REF(
         "Block") "},'stop_reason':" STR ",'stop_sequence':{'type':['string','null']},'usage':{"
                  "'type':'object','required':['input_tokens','output_tokens'],'properties':{"
                  "'input_tokens':" INT ",'output_tokens':" INT ",'cache_read_input_tokens':" INT
                  ",'cache_creation_input_tokens':" INT
                  "}},'timings':" SCHEMA_REF("Timings") ",'coppice':" SCHEMA_REF("Extra") "}}"},
    {"InputTokens",
     "{'type':'object','required':['object','input_tokens'],'properties':{'object':"
     "{'type':'string','enum':['response.input_tokens']},'input_tokens':{'type':'integer'}}}"},
    {"TokenCount",
     "{'type':'object','required':['input_tokens'],'properties':{'input_tokens':" INT "}}"},
    {"AnthropicError",
     "{'type':'object','required':['type','error'],'properties':{'type':{'const':'error'},"
     "'error':{'type':'object','required':['type','message'],'properties':{'type':" STR
     ",'message':" STR "}},'request_id':{'type':['string','null']}}}"},
    {"Error", "{'type':'object','required':['error'],'properties':{'error':{'type':'object',"
              "'required':['message','type','param','code'],'properties':{'message':" STR
              ",'type':" STR ",'param':{'type':['string','null']},'code':{'type':['string',"
              "'null']},'n_prompt_tokens':" INT ",'n_ctx':" INT "}}}}"},
    {"Usage", "{'type':'object','required':['prompt_tokens','completion_tokens','total_tokens'],"
              "'properties':{'prompt_tokens':" INT ",'completion_tokens':" INT
              ",'total_tokens':" INT ",'prompt_tokens_details':{'type':'object','properties':"
              "{'cached_tokens':" INT "}},'completion_tokens_details':{'type':'object',"
              "'properties':{'reasoning_tokens':" INT ",'accepted_prediction_tokens':" INT
              ",'rejected_prediction_tokens':" INT "}}}}"},
    {"Timings",
     "{'type':'object','properties':{'queue_ms':" NUM ",'cache_n':" INT ",'prompt_n':" INT
     ",'prompt_ms':" NUM ",'prompt_per_second':" NUM ",'predicted_n':" INT ",'predicted_ms':" NUM
     ",'predicted_per_second':" NUM ",'decode_ms':" NUM ",'draft_n':" INT ",'draft_n_accepted':" INT
     ",'steps':" INT ",'accept_length':" NUM ",'compression':{'type':'object','properties':{"
     "'from':" INT ",'to':" INT ",'ms':" NUM ",'parked_ms':" NUM
     ",'reason':{'type':['string','null']},'adapted':{'const':true},'keep_ratio':" NUM "}}}}"},
    {"Finish", "{'enum':['stop','length',null]}"},
    {"Extra",
     "{'type':'object','properties':{'logit_hash':{'type':'array','items':" STR
     "},'token_ids':{'type':'array','items':{'type':'array','items':" SCHEMA_REF("TokenId") "}}}}"},
    {"ChatCompletion",
     "{'type':'object','required':['id','object','created','model','choices','usage'],"
     "'properties':{'id':" STR ",'object':{'const':'chat.completion'},'created':" INT
     ",'model':" STR ",'choices':{'type':'array','items':{'type':'object','required':['"
     "index','message',"
     "'finish_reason'],'properties':{'index':" INT ",'message':{'type':'object','required':["
     "'role','content'],'properties':{'role':{'const':'assistant'},'content':" STR
     ",'reasoning_content':" STR "}},'logprobs':{'type':['object','null']},"
     "'finish_reason':" SCHEMA_REF("Finish") "}}},'usage':" SCHEMA_REF(
         "Usage") ",'timings':" SCHEMA_REF("Timings") ",'coppice':" SCHEMA_REF("Extra") "}}"},
    {"Completion",
     "{'type':'object','required':['id','object','created','model','choices','usage'],"
     "'properties':{'id':" STR ",'object':{'const':'text_completion'},'created':" INT
     ",'model':" STR
     ",'choices':{'type':'array','items':{'type':'object','required':['index','text',"
     "'finish_reason'],'properties':{'index':" INT ",'text':" STR
     ",'logprobs':{'type':['object','null']},'finish_reason'"
     ":" SCHEMA_REF("Finish") "}}},'usage':" SCHEMA_REF("Usage") ",'timings':" SCHEMA_REF(
         "Timings") ",'coppice'"
                    ":" SCHEMA_REF("Ex"
                                   "tr"
                                   "a") "}}"},
    {"Model", "{'type':'object','required':['id','object','created','owned_by'],'properties':{"
              "'id':" STR ",'object':{'const':'model'},'created':" INT ",'owned_by':" STR
              ",'type':{'const':'model'},'display_name':" STR ",'created_at':" STR
              ",'context_length':" INT ",'max_context_length':" INT ",'max_model_len':" INT
              ",'max_input_tokens':" INT ",'max_tokens':" INT "}}"},
    {"Models", "{'type':'object','required':['object','data'],'properties':{'object':{'const':"
               "'list'},'has_more':{'const':false},'first_id':{'type':['string','null']},'last_id':"
               "{'type':['string','null']}"
               ",'data':{'type':'array','items':" SCHEMA_REF(
                   "Model") "},'models':{'type':'array','items':{'type':'object'}}}}"},
    {"LoadedModel", "{'type':'object','required':['id','object','type','state'],'properties':{"
                    "'id':" STR ",'object':{'const':'model'},'type':{'const':'llm'},'state':{"
                    "'enum':['loaded','not-loaded']},'max_context_length':" INT
                    ",'loaded_context_length':" INT "}}"},
    {"LoadedModels",
     "{'type':'object','required':['object','data'],'properties':{'object':{"
     "'const':'list'},'data':{'type':'array','items':" SCHEMA_REF("LoadedModel") "}}}"},
    {"Tokens", "{'type':'object','required':['tokens','count'],'properties':{'tokens':{'type':"
               "'array'},'count':" INT ",'max_model_len':" INT "}}"},
    {"Text",
     "{'type':'object','required':['content'],'properties':{'content':" STR ",'prompt':" STR "}}"},
    {"Prompt", "{'type':'object','required':['prompt'],'properties':{'prompt':" STR "}}"},
    {"Health", "{'type':'object','required':['status'],'properties':{'status':{'const':'ok'}}}"},
    {"Object", "{'type':'object'}"},
    {"Slots", "{'type':'array','items':{'type':'object'}}"},
};

#undef INT
#undef NUM
#undef STR

#endif
