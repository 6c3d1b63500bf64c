/* Codec libraries that were linked into this module. setup.py says which, where the build machine has their archives. */

#ifndef KSEG_LINKED_H
#define KSEG_LINKED_H

#include <stddef.h>
#include <string.h>

typedef struct {
    const char *name;
    void *function;
} kseg_linked_function;

#define KSEG_LINKED_ENTRY(name) {#name, (void *)name},

#ifdef KSEG_LINKED_LZ4
#include <lz4.h>
#define KSEG_LINKED_1 " liblz4"
#else
#define KSEG_LINKED_1 ""
#endif

#ifdef KSEG_LINKED_DEFLATE
#include <libdeflate.h>
#define KSEG_LINKED_2 " libdeflate"
#else
#define KSEG_LINKED_2 ""
#define LIBDEFLATE_VERSION_STRING ""
#endif

#ifdef KSEG_LINKED_ZSTD
#include <zstd.h>
#define KSEG_LINKED_3 " libzstd"
#else
#define KSEG_LINKED_3 ""
#endif

/* tools/check_dist.py looks for these words in the module. */
static const char kseg_linked_names[] = "codecs linked:" KSEG_LINKED_1 KSEG_LINKED_2 KSEG_LINKED_3;

static const kseg_linked_function kseg_linked_functions[] = {
#ifdef KSEG_LINKED_LZ4
    KSEG_LINKED_ENTRY(LZ4_versionNumber)
    KSEG_LINKED_ENTRY(LZ4_decompress_safe)
#endif
#ifdef KSEG_LINKED_DEFLATE
    KSEG_LINKED_ENTRY(libdeflate_alloc_decompressor)
    KSEG_LINKED_ENTRY(libdeflate_free_decompressor)
    KSEG_LINKED_ENTRY(libdeflate_deflate_decompress_ex)
#endif
#ifdef KSEG_LINKED_ZSTD
    KSEG_LINKED_ENTRY(ZSTD_versionNumber)
    KSEG_LINKED_ENTRY(ZSTD_createDCtx)
    KSEG_LINKED_ENTRY(ZSTD_freeDCtx)
    KSEG_LINKED_ENTRY(ZSTD_DCtx_reset)
    KSEG_LINKED_ENTRY(ZSTD_decompressStream)
    KSEG_LINKED_ENTRY(ZSTD_isError)
#endif
    {NULL, NULL},
};

/* The linked function of that name, or NULL. */
static void *kseg_linked(const char *name) {
    const kseg_linked_function *each = kseg_linked_functions;
    while (each->name != NULL && strcmp(each->name, name) != 0)
        each++;
    return each->function;
}

#endif
