/* Bytes of a file that the system has at hand: read without waiting for a disk.
 *
 * The call goes by number, since older C libraries have no function for it.
 */
#ifndef KSEG_CACHED_H
#define KSEG_CACHED_H

#include <stddef.h>
#include <stdint.h>

#if defined(__linux__)
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#endif

/* How many bytes from a position were read, fewer than asked for at the end of the file; -1 where they are not at hand,
 * cannot be read, or cannot be asked for so: on other systems, and on file systems that have no such read. */
static inline int64_t kseg_read_cached(int fd, uint8_t *to, size_t size, int64_t position) {
#if defined(__linux__) && defined(SYS_preadv2)
    enum { NO_WAIT = 8 }; /* RWF_NOWAIT */
    struct iovec part = {to, size};
    unsigned long low = (unsigned long)position, high = (unsigned long)((uint64_t)position >> 32);
    return (int64_t)syscall(SYS_preadv2, (unsigned long)fd, &part, 1UL, low, high, (unsigned long)NO_WAIT);
#else
    (void)fd, (void)to, (void)size, (void)position;
    return -1;
#endif
}

#endif
