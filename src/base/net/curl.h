// SPDX-License-Identifier: Apache-2.0
// libcurl's functions, loaded when they are needed: the library brings thirty others, which a
// program that only runs a model has no use for. Only in builds that found its header.
#ifndef COPPICE_BASE_NET_CURL_H
#define COPPICE_BASE_NET_CURL_H

#define CURL_DISABLE_TYPECHECK // its macros would hide the functions' names
#include <curl/curl.h>

#include "base/err.h"

struct curl {
    CURLcode (*global_init)(long);
    void (*global_cleanup)(void);
    CURL *(*easy_init)(void);
    void (*easy_cleanup)(CURL *);
    CURLcode (*easy_setopt)(CURL *, CURLoption, ...);
    CURLcode (*easy_getinfo)(CURL *, CURLINFO, ...);
    CURLcode (*easy_pause)(CURL *, int);
    const char *(*easy_strerror)(CURLcode);
    CURLM *(*multi_init)(void);
    CURLMcode (*multi_cleanup)(CURLM *);
    CURLMcode (*multi_setopt)(CURLM *, CURLMoption, ...);
    CURLMcode (*multi_add_handle)(CURLM *, CURL *);
    CURLMcode (*multi_remove_handle)(CURLM *, CURL *);
    CURLMsg *(*multi_info_read)(CURLM *, int *);
    CURLMcode (*multi_perform)(CURLM *, int *);
    CURLMcode (*multi_poll)(CURLM *, struct curl_waitfd *, unsigned, int, int *);
    CURLMcode (*multi_socket_action)(CURLM *, curl_socket_t, int, int *);
    CURLMcode (*multi_assign)(CURLM *, curl_socket_t, void *);
    struct curl_slist *(*slist_append)(struct curl_slist *, const char *);
    void (*slist_free_all)(struct curl_slist *);
    CURLU *(*url)(void);
    void (*url_cleanup)(CURLU *);
    CURLUcode (*url_set)(CURLU *, CURLUPart, const char *, unsigned);
    CURLUcode (*url_get)(const CURLU *, CURLUPart, char **, unsigned);
    void (*free)(void *);
};

// Loads and starts libcurl of the system; global_cleanup ends it, and the library stays loaded, as
// what it has started in the process may outlive its handles. `what`: what cannot be done without
// it, for the sentence. ERR_UNSUPPORTED with the loader's words where there is none, ERR_MEMORY.
int curl_load(struct curl *l, const char *what, struct err *e);

#endif
