// SPDX-License-Identifier: Apache-2.0
// Only in the program that is linked statically (coppice-static): it runs on systems with another C
// library, or another version of this one, so nothing of theirs may be loaded into it. What would
// be (libcurl; modules that look names up) is absent, and dlerror() says so.
#include <dlfcn.h>
#include <nss.h>
#include <stddef.h>

void *dlopen(const char *file, int mode) {
    (void)file, (void)mode;
    return NULL;
}

void *dlsym(void *restrict handle, const char *restrict name) {
    (void)handle, (void)name;
    return NULL;
}

int dlclose(void *handle) {
    (void)handle;
    return -1;
}

char *dlerror(void) {
    static char text[] = "this program is linked statically and can load no library";
    return text;
}

// /etc/hosts and DNS are part of the C library, whatever /etc/nsswitch.conf names.
__attribute__((constructor)) static void look_up_names_alone(void) {
    __nss_configure_lookup("hosts", "files dns");
}
