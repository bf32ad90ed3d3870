// SPDX-License-Identifier: Apache-2.0
// Who may send requests: keys; without a key, the name under which a browser reached us and the
// site that its page came from; and what pages of other origins may read (CORS).
//
// A page anywhere can make a browser send requests to 127.0.0.1. Three things keep it out where no
// key is required. A name that its owner lets point here (DNS rebinding) is not among ours, so the
// Host header betrays it. What a page of another origin sends carries that origin: every POST,
// forms and plain text too, "null" where the page hides it. And where a browser leaves Origin out,
// Sec-Fetch-Site says whether the request comes from elsewhere. Pages can change none of these, and
// other clients do not send the last two.
#include "serve/http/impl.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

// All of key and what was given is looked at, wherever they differ; only the lengths show.
static bool same_key(const char *key, const char *given) {
    size_t n = strlen(key), m = strlen(given);
    unsigned char differs = n != m;
    for (size_t i = 0; i < m; i++)
        differs |= (unsigned char)(given[i] ^ key[i < n ? i : 0]);
    return !differs;
}

static bool any_key(const struct http *h, const char *given) {
    bool found = false;
    for (size_t i = 0; given && i < h->o.n_keys; i++)
        found |= same_key(h->o.keys[i], given);
    return found;
}

static bool has_key(const struct http *h, const struct http_head *head) {
    const char *given = http_head_field(head, "authorization");
    if (given && strncasecmp(given, "Bearer ", 7) == 0) {
        given += 7;
        given += strspn(given, " ");
    } else {
        given = NULL;
    }
    bool bearer = any_key(h, given), plain = any_key(h, http_head_field(head, "x-api-key"));
    return bearer || plain;
}

static bool is_open_path(const struct http *h, const char *path) {
    for (size_t i = 0; i < h->o.n_open_paths; i++)
        if (strcmp(h->o.open_paths[i], path) == 0)
            return true;
    return false;
}

static bool equals(const char *name, size_t n, const char *other) {
    return strlen(other) == n && strncasecmp(name, other, n) == 0;
}

static bool ends_with(const char *name, size_t n, const char *end) {
    size_t m = strlen(end);
    return n > m && strncasecmp(name + n - m, end, m) == 0;
}

// "name", "name:80", "[::1]:80": the part that is the name, without brackets.
static const char *name_of(const char *host, size_t *n) {
    if (*host == '[') {
        *n = strcspn(host + 1, "]");
        return host + 1;
    }
    *n = strcspn(host, ":/");
    if (*n > 1 && host[*n - 1] == '.')
        (*n)--;
    return host;
}

static bool is_loopback(const char *name, size_t n) {
    char text[INET6_ADDRSTRLEN] = "";
    struct in6_addr six;
    struct in_addr four;
    if (equals(name, n, "localhost") || ends_with(name, n, ".localhost"))
        return true;
    if (n >= sizeof text)
        return false;
    memcpy(text, name, n);
    if (inet_pton(AF_INET, text, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, text, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

static bool is_our_name(const struct http *h, const char *host) {
    size_t n, m;
    const char *name = name_of(host, &n);
    if (is_loopback(name, n))
        return true;
    if (h->o.host) {
        const char *own = *h->o.host == '[' ? name_of(h->o.host, &m) : h->o.host;
        if (equals(name, n, own) || (*h->o.host == '[' && n == m && !strncasecmp(name, own, n)))
            return true;
    }
    for (size_t i = 0; i < h->o.n_names; i++)
        if (equals(name, n, h->o.names[i]))
            return true;
    return false;
}

static bool is_allowed_origin(const struct http *h, const char *origin) {
    for (size_t i = 0; origin && i < h->o.n_origins; i++) {
        const char *one = h->o.origins[i], *scheme = strstr(origin, "://");
        size_t n;
        if (strcmp(one, "*") == 0 || strcasecmp(one, origin) == 0)
            return true;
        if (strcmp(one, "loopback") != 0 || !scheme)
            continue;
        const char *name = name_of(scheme + 3, &n);
        if (is_loopback(name, n))
            return true;
    }
    return false;
}

// Whether a page of that origin was served here: by the name and port of this request, whatever
// the scheme, since a proxy in front may speak TLS.
static bool is_own_origin(const struct http_head *head, const char *origin) {
    const char *authority = strstr(origin, "://");
    return authority && head->host && strcasecmp(authority + 3, head->host) == 0;
}

static bool is_from_foreign_page(const struct http *h, const struct http_head *head) {
    const char *origin = http_head_field(head, "origin");
    const char *site = http_head_field(head, "sec-fetch-site");
    if (origin)
        return !is_own_origin(head, origin) && !is_allowed_origin(h, origin);
    // Links to here are followed, and pictures from here are no secret.
    return site && (!strcmp(site, "cross-site") || !strcmp(site, "same-site")) &&
           strcmp(head->method, "GET") != 0;
}

struct guard_refusal guard_check(const struct http *h, const struct http_head *head, bool local) {
    bool preflight = strcmp(head->method, "OPTIONS") == 0; // carries no key by definition
    if (h->o.n_keys > 0) {
        if (preflight || is_open_path(h, head->path) || has_key(h, head))
            return (struct guard_refusal){0};
        return (struct guard_refusal){401, "this server requires an API key; send it as "
                                           "'Authorization: Bearer KEY' or as x-api-key"};
    }
    if (!local && !h->o.any_host && head->host && !is_our_name(h, head->host))
        return (struct guard_refusal){
            403,
            "the Host header names a host that this server does not answer for; use localhost, "
            "start it with --allow-host NAME, or with a key"};
    if (!preflight && is_from_foreign_page(h, head))
        return (struct guard_refusal){403, "this request comes from a page of another origin; "
                                           "start the server with --cors ORIGIN, or "
                                           "with a key"};
    return (struct guard_refusal){0};
}

void guard_answer(const struct http *h, const struct http_head *head, struct str *fields) {
    const char *origin = http_head_field(head, "origin");
    if (h->o.n_origins == 0)
        return;
    str_puts(fields, "Vary: Origin\r\n");
    if (is_allowed_origin(h, origin))
        str_printf(fields,
                   "Access-Control-Allow-Origin: %s\r\n"
                   "Access-Control-Expose-Headers: x-request-id, request-id, retry-after, "
                   "retry-after-ms, x-should-retry, x-ignored-fields, x-coppice-compression\r\n",
                   origin);
}

void guard_preflight(const struct http *h, const struct http_head *head, const char *methods,
                     struct str *fields) {
    const char *wanted = http_head_field(head, "access-control-request-headers");
    str_printf(fields, "Allow: %s, OPTIONS\r\n", methods);
    if (!is_allowed_origin(h, http_head_field(head, "origin")))
        return;
    // By name: a wildcard does not cover Authorization. What is requested comes too, since SDKs add
    // headers of their own.
    str_printf(fields,
               "Access-Control-Allow-Methods: %s\r\n"
               "Access-Control-Max-Age: 600\r\n"
               "Access-Control-Allow-Headers: Authorization, Content-Type, Accept, x-api-key, "
               "anthropic-version, anthropic-beta, anthropic-dangerous-direct-browser-access",
               methods);
    if (wanted && *wanted)
        str_printf(fields, ", %s", wanted);
    str_puts(fields, "\r\n");
    if (http_head_field(head, "access-control-request-private-network"))
        str_puts(fields, "Access-Control-Allow-Private-Network: true\r\n");
}
