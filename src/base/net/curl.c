// SPDX-License-Identifier: Apache-2.0
// The table of libcurl's functions, filled by name; see curl.h.
#include "base/net/curl.h"

#include <dlfcn.h>
#include <stddef.h>

int curl_load(struct curl *l, const char *what, struct err *e) {
    const struct {
        const char *name;
        void **at;
    } wanted[] = {
#define WANTED(name) {"curl_" #name, (void **)&l->name}
        WANTED(global_init),
        WANTED(global_cleanup),
        WANTED(easy_init),
        WANTED(easy_cleanup),
        WANTED(easy_setopt),
        WANTED(easy_getinfo),
        WANTED(easy_pause),
        WANTED(easy_strerror),
        WANTED(multi_init),
        WANTED(multi_cleanup),
        WANTED(multi_setopt),
        WANTED(multi_add_handle),
        WANTED(multi_remove_handle),
        WANTED(multi_info_read),
        WANTED(multi_perform),
        WANTED(multi_poll),
        WANTED(multi_socket_action),
        WANTED(multi_assign),
        WANTED(slist_append),
        WANTED(slist_free_all),
        WANTED(url),
        WANTED(url_cleanup),
        WANTED(url_set),
        WANTED(url_get),
        WANTED(free),
#undef WANTED
    };
    const char *missing = NULL;
    void *handle = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        missing = dlerror();
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted && !missing; i++)
        if (!(*wanted[i].at = dlsym(handle, wanted[i].name)))
            missing = dlerror();
    if (missing && handle)
        dlclose(handle);
    if (missing)
        return err_set(e, ERR_UNSUPPORTED, "%s without libcurl (package libcurl4): %s", what,
                       missing);
    return l->global_init(CURL_GLOBAL_DEFAULT) ? err_set(e, ERR_MEMORY, "libcurl cannot be started")
                                               : 0;
}
