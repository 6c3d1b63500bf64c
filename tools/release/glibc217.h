/* Names of glibc 2.17, for a wheel that is linked against a newer glibc. tools/release/wheels.sh
 * forces this header into each file with -include. Images of manylinux do not need it.
 *
 * Newer names: fstat is a function of its own since 2.33 (before: __fxstat), and libdl became a
 * part of libc in 2.34. */
#ifndef KSEG_GLIBC_217_H
#define KSEG_GLIBC_217_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#if defined(__linux__) && defined(__x86_64__)
#include <features.h>
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
#include <sys/stat.h>
extern int __fxstat(int, int, struct stat *);
__asm__(".symver __fxstat,__fxstat@GLIBC_2.2.5");
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlclose,dlclose@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
__asm__(".symver dladdr,dladdr@GLIBC_2.2.5");
__asm__(".symver dlinfo,dlinfo@GLIBC_2.3.3");
#define fstat(fd, status) __fxstat(1, fd, status)
#endif
#endif
#endif
