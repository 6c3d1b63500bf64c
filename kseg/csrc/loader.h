/* Shared libraries of the system, opened by their sonames while the program runs.
 *
 * The loader takes a name without a slash from the first of these that has it: libraries that are loaded already,
 * the RPATH and RUNPATH of the objects that ask, LD_LIBRARY_PATH as it was when the process began (not for programs
 * with raised rights), its cache, /lib and /usr/lib. An empty or relative entry of these paths means the working
 * directory, or a place below it, where another user may have put a library: with such an entry nothing is opened.
 * Source: ld.so(8), dlinfo(3).
 */

#ifndef KSEG_LOADER_H
#define KSEG_LOADER_H

#include <stdlib.h>

enum { KSEG_OPENED, KSEG_ABSENT, KSEG_RELATIVE_PATH, KSEG_NO_LOADER };

#ifdef __GLIBC__

#include <dlfcn.h>
#include <link.h>

/* Whether the loader would look in a directory that is not named from the root; 1 also where it does not tell. */
static int kseg_searches_relative(void *object) {
    Dl_serinfo lead;
    Dl_serinfo *paths;
    int relative;
    if (object == NULL || dlinfo(object, RTLD_DI_SERINFOSIZE, &lead) != 0)
        return 1;
    paths = malloc(lead.dls_size);
    if (paths == NULL)
        return 1;
    relative = dlinfo(object, RTLD_DI_SERINFOSIZE, paths) != 0 || dlinfo(object, RTLD_DI_SERINFO, paths) != 0;
    for (unsigned i = 0; !relative && i < paths->dls_cnt; i++)
        relative = paths->dls_serpath[i].dls_name[0] != '/';
    free(paths);
    return relative;
}

/* Open the library `soname`; `path` becomes its path, which lives as long as the library. */
static int kseg_open_library(const char *soname, void **library, const char **path) {
    struct link_map *map = NULL;
    Dl_info self;
    void *object = NULL;
    int relative;
    if (dladdr((void *)&kseg_searches_relative, &self) != 0)
        object = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    relative = kseg_searches_relative(object);
    if (object != NULL)
        dlclose(object);
    if (relative)
        return KSEG_RELATIVE_PATH;
    *library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    if (*library == NULL)
        return KSEG_ABSENT;
    if (dlinfo(*library, RTLD_DI_LINKMAP, &map) != 0 || map->l_name[0] != '/') {
        dlclose(*library);
        *library = NULL;
        return KSEG_RELATIVE_PATH;
    }
    *path = map->l_name;
    return KSEG_OPENED;
}

static void *kseg_symbol(void *library, const char *name) { return dlsym(library, name); }

#else /* other loaders do not tell where they look */

static int kseg_open_library(const char *soname, void **library, const char **path) {
    (void)soname, (void)library, (void)path;
    return KSEG_NO_LOADER;
}

static void *kseg_symbol(void *library, const char *name) {
    (void)library, (void)name;
    return NULL;
}

#endif

#endif
