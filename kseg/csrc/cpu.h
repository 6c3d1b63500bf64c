/* Which instructions this processor has and this system lets a program use.
 *
 * CPUID and XGETBV are asked here, not __builtin_cpu_supports: the compiler_rt of zig answers no to all of its questions,
 * and a wheel built by zig would sum checksums by table, 25 times slower, without a warning. Asked once in each module that
 * includes this; any thread may ask.
 *
 * Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, CPUID; volume 1, 13.3 (XCR0).
 */
#ifndef KSEG_CPU_H
#define KSEG_CPU_H

#include <string.h>

enum {
    KSEG_CPU_SSE42 = 1,
    KSEG_CPU_PCLMUL = 2,
    KSEG_CPU_POPCNT = 4,
    KSEG_CPU_AVX2 = 8,
    KSEG_CPU_VPCLMUL = 16,
    KSEG_CPU_AVX512F = 32,
    KSEG_CPU_AVX512VL = 64,
};

#if defined(__x86_64__)
#include <cpuid.h>

static inline int kseg_cpu_bit(unsigned word, int bit, int feature) { return (word >> bit & 1) != 0 ? feature : 0; }

/* The registers that the system saves for a program: 0x06 those of AVX, 0xE6 those of AVX-512, too. */
static inline unsigned kseg_cpu_registers_saved(void) {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static int kseg_cpu_detect(void) {
    unsigned eax, ebx, ecx, edx;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0)
        return 0;
    int has = kseg_cpu_bit(ecx, 20, KSEG_CPU_SSE42) | kseg_cpu_bit(ecx, 1, KSEG_CPU_PCLMUL) |
              kseg_cpu_bit(ecx, 23, KSEG_CPU_POPCNT);
    const unsigned saves_and_avx = 1u << 27 | 1u << 28; /* OSXSAVE: xgetbv may be asked */
    if ((ecx & saves_and_avx) != saves_and_avx)
        return has;
    const unsigned saved = kseg_cpu_registers_saved();
    if ((saved & 0x06) != 0x06 || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0)
        return has;
    has |= kseg_cpu_bit(ebx, 5, KSEG_CPU_AVX2) | kseg_cpu_bit(ecx, 10, KSEG_CPU_VPCLMUL);
    if ((saved & 0xE6) != 0xE6)
        return has;
    return has | kseg_cpu_bit(ebx, 16, KSEG_CPU_AVX512F) | kseg_cpu_bit(ebx, 31, KSEG_CPU_AVX512VL);
}

/* The vendor's name, 12 characters and a zero, and the family. "" and 0 if the processor does not say. */
static inline int kseg_cpu_family(char vendor[13]) {
    unsigned eax, ebx, ecx, edx;
    vendor[0] = 0;
    if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0)
        return 0;
    memcpy(vendor, &ebx, 4);
    memcpy(vendor + 4, &edx, 4);
    memcpy(vendor + 8, &ecx, 4);
    vendor[12] = 0;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0)
        return 0;
    const unsigned family = eax >> 8 & 0xF; /* 15 says: add the extended family */
    return (int)(family == 15 ? family + (eax >> 20 & 0xFF) : family);
}
#else
static inline int kseg_cpu_family(char vendor[13]) {
    vendor[0] = 0;
    return 0;
}
static int kseg_cpu_detect(void) { return 0; } /* instructions of other processors are asked where they are used */
#endif

/* Whether it has all of `features`. */
static inline int kseg_cpu_has(int features) {
    static int known = -1; /* two threads that come first store the same */
    int has = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (has < 0) {
        has = kseg_cpu_detect();
        __atomic_store_n(&known, has, __ATOMIC_RELAXED);
    }
    return (has & features) == features;
}

#endif
