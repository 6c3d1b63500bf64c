/* CRC-32C and CRC-32: one table form, and vector forms for x86-64 and ARMv8.
 *
 * The mathematics, once for all forms. Bytes are polynomials over GF(2), reflected: the lowest bit
 * of the first byte is the highest power. A register of n bits therefore holds
 *     bit k  <->  x^(n-1-k)
 * and a CRC is (data * x^32) mod P, P = x^32 + `polynomial`. In this notation a carry-less product
 * of two 64-bit registers, read as 128 bits, is one power too high:
 *     clmul(a, b) = a * b * x                                                              (1)
 *
 * Folding. A 128-bit block X = low * x^64 + high (the low half comes first in memory) that is to be
 * moved D bits forward, onto the block that lies there, may be replaced by anything congruent
 * modulo P:
 *     X * x^D = low * x^(D+64) + high * x^D
 *             = clmul(low, x^(D+63) mod P) + clmul(high, x^(D-1) mod P)            by (1)   (2)
 * The constants have 32 bits; as 64-bit registers they are `constant << 32`. Wider registers do
 * (2) in each 128-bit lane, and several registers in turn hide the latency of the multiplier.
 *
 * Reducing. The last block X = low * x^64 + high still lacks its factor x^32. Read the low 96 bits
 * of a register as bit k <-> x^(95-k), and use unshifted 32-bit constants, for which (1) becomes
 * "read at 95, one power too high" as well:
 *     W = clmul(low, x^95 mod P) + high * x^32     congruent to X * x^32, below x^96         (3)
 * Barrett: the quotient q of W by P needs only a = W / x^32, the low lane, and m = x^95 / P:
 *     q = a * m / x^63, the low lane of clmul(a, m)                                         (4)
 *     W mod P = (W + clmul(q, polynomial << 1)) mod x^32, bits 64..95                      (5)
 *
 * Source: Gopal et al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ (Intel, 2009);
 * Kounavis and Berry, A Systematic Approach to Building High Performance CRC (slicing-by-8, 2005).
 */
#include "crc.h"

#include <string.h>

#include "cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__AARCH64EL__)
#include <arm_acle.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#endif

enum {
    FOLD_LEVELS = 6,     /* distances 16, 32, 64, 128, 256, 512 bytes */
    STRIDE_LONG = 4096,  /* bytes per stream of the three-way sum; a page each suits prefetchers */
    STRIDE_SHORT = 64,
    FOLD_BYTES_MIN = 96,  /* below this, the crc32 instruction is done before a fold is reduced */
    WIDE_BYTES_MIN = 512, /* below this, joining eight wide registers costs more than they gain */
};

static size_t prefetch; /* see kseg_crc_prefetch; set before any sum */

typedef struct {
    uint32_t polynomial;            /* reflected, without its x^32 */
    uint32_t slices[8][256];        /* slices[i][b]: the sum of byte b with i zero bytes after it */
    uint64_t fold[FOLD_LEVELS][2];  /* the pair of (2) for 16 << level bytes */
    uint64_t append;                /* x^95 mod P, of (3) */
    uint64_t quotient;              /* x^95 / P, of (4) */
    uint64_t product;               /* polynomial << 1, of (5) */
    uint64_t join_long[2];          /* see join_streams: over one and two strides */
    uint64_t join_short[2];
    uint32_t shifts[4][256];        /* shifts[i][b]: x^(8 * b * 256^i) mod P */
} Field;

static Field castagnoli = {.polynomial = 0x82F63B78u};
static Field ieee = {.polynomial = 0xEDB88320u};

/* ---- Constants, worked out at start: about a quarter of a millisecond. ---- */

static uint32_t times_x(uint32_t element, uint32_t polynomial) {
    return (element >> 1) ^ (polynomial & (0u - (element & 1)));
}

/* x^exponent mod P. */
static uint32_t power_of_x(uint32_t polynomial, int exponent) {
    uint32_t element = 0x80000000u;
    for (int i = 0; i < exponent; i++) {
        element = times_x(element, polynomial);
    }
    return element;
}

/* x^95 / P by long division: the bit that leaves in step i has the weight x^(95-i). */
static uint64_t reciprocal(uint32_t polynomial) {
    uint32_t rest = 0x80000000u;
    uint64_t quotient = 0;
    for (int i = 1; i <= 95; i++) {
        if ((rest & 1) != 0) {
            quotient |= (uint64_t)1 << (i - 32);
        }
        rest = times_x(rest, polynomial);
    }
    return quotient;
}

static void build_slices(Field *field) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t sum = byte;
        for (int bit = 0; bit < 8; bit++) {
            sum = times_x(sum, field->polynomial);
        }
        field->slices[0][byte] = sum;
    }
    for (int slice = 1; slice < 8; slice++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = field->slices[slice - 1][byte];
            field->slices[slice][byte] = (before >> 8) ^ field->slices[0][before & 0xFF];
        }
    }
}

/* a * b mod P. */
static uint32_t product(uint32_t a, uint32_t b, uint32_t polynomial) {
    uint32_t sum = 0;
    for (int bit = 31; bit >= 0; bit--) {
        sum ^= b & (0u - ((a >> bit) & 1));
        b = times_x(b, polynomial);
    }
    return sum;
}

static void build_shifts(Field *field) {
    uint32_t polynomial = field->polynomial;
    uint32_t step = power_of_x(polynomial, 8);
    for (int digit = 0; digit < 4; digit++) {
        field->shifts[digit][0] = power_of_x(polynomial, 0);
        for (int times = 1; times < 256; times++) {
            field->shifts[digit][times] = product(field->shifts[digit][times - 1], step, polynomial);
        }
        step = product(field->shifts[digit][255], step, polynomial);
    }
}

static uint32_t shifted(const Field *field, uint32_t value, uint32_t size) {
    for (int digit = 0; digit < 4 && size != 0; digit++, size >>= 8) {
        if ((size & 0xFF) != 0) {
            value = product(value, field->shifts[digit][size & 0xFF], field->polynomial);
        }
    }
    return value;
}

static void build_field(Field *field) {
    uint32_t polynomial = field->polynomial;
    build_slices(field);
    build_shifts(field);
    for (int level = 0; level < FOLD_LEVELS; level++) {
        int distance = 128 << level;
        field->fold[level][0] = (uint64_t)power_of_x(polynomial, distance + 63) << 32;
        field->fold[level][1] = (uint64_t)power_of_x(polynomial, distance - 1) << 32;
    }
    field->append = power_of_x(polynomial, 95);
    field->quotient = reciprocal(polynomial);
    field->product = (uint64_t)polynomial << 1;
    for (int strides = 1; strides <= 2; strides++) {
        field->join_long[strides - 1] = power_of_x(polynomial, 8 * STRIDE_LONG * strides - 33);
        field->join_short[strides - 1] = power_of_x(polynomial, 8 * STRIDE_SHORT * strides - 33);
    }
}

/* ---- Table: any machine. ---- */

static uint32_t sum_by_table(const Field *field, uint32_t value, const uint8_t *data,
                             size_t size) {
    const uint32_t(*slices)[256] = (const uint32_t(*)[256])field->slices;
    uint32_t sum = ~value;
    for (; size >= 8; size -= 8, data += 8) {
        sum ^= (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
               (uint32_t)data[3] << 24;
        sum = slices[7][sum & 0xFF] ^ slices[6][(sum >> 8) & 0xFF] ^
              slices[5][(sum >> 16) & 0xFF] ^ slices[4][sum >> 24] ^ slices[3][data[4]] ^
              slices[2][data[5]] ^ slices[1][data[6]] ^ slices[0][data[7]];
    }
    for (; size > 0; size--, data++) {
        sum = (sum >> 8) ^ slices[0][(sum ^ *data) & 0xFF];
    }
    return ~sum;
}

static uint32_t crc32c_table(uint32_t value, const uint8_t *data, size_t size) {
    return sum_by_table(&castagnoli, value, data, size);
}

static uint32_t crc32_table(uint32_t value, const uint8_t *data, size_t size) {
    return sum_by_table(&ieee, value, data, size);
}

static int usable_anywhere(void) { return 1; }

#if defined(__x86_64__)

/* clang counts the crc32 instructions apart, and zig leaves them out of its sse4.2. */
#ifdef __clang__
#define SSE42 "sse4.2,crc32,pclmul"
#else
#define SSE42 "sse4.2,pclmul"
#endif
#define FOR_SSE42 __attribute__((target(SSE42)))
#define FOR_AVX2 __attribute__((target(SSE42 ",avx2,vpclmulqdq")))
#define FOR_AVX512 __attribute__((target(SSE42 ",avx2,vpclmulqdq,avx512f,avx512vl")))
#define INLINE static inline __attribute__((always_inline))

/* ---- x86-64, 128 bits: PCLMULQDQ for either polynomial. ---- */

FOR_SSE42 INLINE __m128i load_128(const void *data) {
    return _mm_loadu_si128((const __m128i *)data);
}

FOR_SSE42 INLINE __m128i fold_128(__m128i block, __m128i by, __m128i onto) {
    __m128i low = _mm_clmulepi64_si128(block, by, 0x00);
    __m128i high = _mm_clmulepi64_si128(block, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, onto), high);
}

/* (3), (4), (5); the sum is not inverted yet. */
FOR_SSE42 INLINE uint32_t reduce_128(const Field *field, __m128i block) {
    __m128i append = _mm_cvtsi64_si128((long long)field->append);
    __m128i quotient = _mm_cvtsi64_si128((long long)field->quotient);
    __m128i product = _mm_cvtsi64_si128((long long)field->product);
    __m128i dividend =
        _mm_xor_si128(_mm_clmulepi64_si128(block, append, 0x00), _mm_srli_si128(block, 8));
    __m128i multiple = _mm_clmulepi64_si128(dividend, quotient, 0x00);
    multiple = _mm_clmulepi64_si128(multiple, product, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(dividend, multiple), 2);
}

/* Shuffles that move a block by n bytes: from shift + n towards its end, from shift + 16 + n
 * towards its start. An index with the high bit set gives zero. */
static const uint8_t shift[48] = {
    128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,  //
    0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,  14,  15,   //
    128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
};

/* Fold what is left onto `block`, and reduce. The 16 - size bytes before `data` are read too when
 * 0 < size < 16; they belong to the same buffer, because `block` came from there. */
FOR_SSE42 INLINE uint32_t finish_128(const Field *field, __m128i block, const uint8_t *data,
                                     size_t size) {
    __m128i by = load_128(field->fold[0]);
    for (; size >= 16; size -= 16, data += 16) {
        block = fold_128(block, by, load_128(data));
    }
    if (size > 0) {
        /* Cut block and tail anew, so that the last 16 bytes make a whole block. */
        __m128i to_start = load_128(shift + 16 + size);
        __m128i head = _mm_shuffle_epi8(block, load_128(shift + size));
        __m128i last = _mm_blendv_epi8(_mm_shuffle_epi8(block, to_start),
                                       load_128(data + size - 16), to_start);
        block = fold_128(head, by, last);
    }
    return ~reduce_128(field, block);
}

/* 16 bytes or more. */
FOR_SSE42 INLINE uint32_t sum_128_short(const Field *field, uint32_t value, const uint8_t *data,
                                        size_t size) {
    __m128i block = _mm_xor_si128(load_128(data), _mm_cvtsi32_si128((int)~value));
    return finish_128(field, block, data + 16, size - 16);
}

FOR_SSE42 INLINE void fold_each_128(__m128i *blocks, int count, const uint64_t *by,
                                    const void *onto) {
    __m128i constants = load_128(by);
    for (int i = 0; i < count; i++) {
        blocks[i] = fold_128(blocks[i], constants, load_128((const __m128i *)onto + i));
    }
}

/* 64 bytes or more. */
FOR_SSE42 INLINE uint32_t sum_128(const Field *field, uint32_t value, const uint8_t *data,
                                  size_t size) {
    __m128i blocks[4];
    for (int i = 0; i < 4; i++) {
        blocks[i] = load_128(data + 16 * i);
    }
    blocks[0] = _mm_xor_si128(blocks[0], _mm_cvtsi32_si128((int)~value));
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64) {
        fold_each_128(blocks, 4, field->fold[2], data);
    }
    fold_each_128(blocks, 2, field->fold[1], blocks + 2);
    if (size >= 32) {
        fold_each_128(blocks, 2, field->fold[1], data);
        data += 32;
        size -= 32;
    }
    fold_each_128(blocks, 1, field->fold[0], blocks + 1);
    return finish_128(field, blocks[0], data, size);
}

FOR_SSE42 static uint32_t crc32_pclmul(uint32_t value, const uint8_t *data, size_t size) {
    if (size < 16) {
        return sum_by_table(&ieee, value, data, size);
    }
    return size < 64 ? sum_128_short(&ieee, value, data, size)
                     : sum_128(&ieee, value, data, size);
}

/* ---- x86-64, SSE4.2: the crc32 instruction, which knows Castagnoli's polynomial only. ---- */

INLINE uint64_t load_64(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

FOR_SSE42 INLINE uint64_t sum_words(uint64_t sum, const uint8_t *data, size_t size) {
    for (size_t i = 0; i < size; i += 8) {
        sum = _mm_crc32_u64(sum, load_64(data + i));
    }
    return sum;
}

FOR_SSE42 INLINE uint64_t sum_serial(uint64_t sum, const uint8_t *data, size_t size) {
    size_t whole = size & ~(size_t)7;
    sum = sum_words(sum, data, whole);
    for (data += whole, size &= 7; size > 0; size--, data++) {
        sum = _mm_crc32_u8((uint32_t)sum, *data);
    }
    return sum;
}

/* Three neighbouring strides summed side by side, as the instruction takes three cycles but one can
 * start in each. A sum a of 32 bits moves over n bits by a * x^n mod P. The product of two 32-bit
 * registers, read as 64 bits, is one power too high, and the instruction multiplies by x^32, so the
 * constant is x^(n-33) mod P. */
FOR_SSE42 INLINE uint64_t join_streams(const uint64_t *join, uint64_t a, uint64_t b, uint64_t c) {
    __m128i constants = load_128(join);
    __m128i far = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)a), constants, 0x10);
    __m128i near = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)b), constants, 0x00);
    uint64_t moved = (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(far, near));
    return _mm_crc32_u64(0, moved) ^ c;
}

FOR_SSE42 INLINE uint64_t sum_streams(const uint64_t *join, size_t stride, uint64_t a,
                                      const uint8_t *data) {
    uint64_t b = 0;
    uint64_t c = 0;
    for (size_t i = 0; i < stride; i += 8) {
        a = _mm_crc32_u64(a, load_64(data + i));
        b = _mm_crc32_u64(b, load_64(data + stride + i));
        c = _mm_crc32_u64(c, load_64(data + 2 * stride + i));
    }
    return join_streams(join, a, b, c);
}

FOR_SSE42 static uint32_t crc32c_sse42(uint32_t value, const uint8_t *data, size_t size) {
    uint64_t sum = ~value;
    for (; size >= 3 * STRIDE_LONG; size -= 3 * STRIDE_LONG, data += 3 * STRIDE_LONG) {
        sum = sum_streams(castagnoli.join_long, STRIDE_LONG, sum, data);
    }
    for (; size >= 3 * STRIDE_SHORT; size -= 3 * STRIDE_SHORT, data += 3 * STRIDE_SHORT) {
        sum = sum_streams(castagnoli.join_short, STRIDE_SHORT, sum, data);
    }
    return ~(uint32_t)sum_serial(sum, data, size);
}

static int usable_sse42(void) { return kseg_cpu_has(KSEG_CPU_SSE42 | KSEG_CPU_PCLMUL); }

/* ---- x86-64, 256 bits: VPCLMULQDQ. ---- */

FOR_AVX2 INLINE __m256i load_256(const void *data) {
    return _mm256_loadu_si256((const __m256i *)data);
}

FOR_AVX2 INLINE void fold_each_256(__m256i *blocks, int count, const uint64_t *by,
                                   const void *onto) {
    __m256i constants = _mm256_broadcastsi128_si256(load_128(by));
    for (int i = 0; i < count; i++) {
        __m256i low = _mm256_clmulepi64_epi128(blocks[i], constants, 0x00);
        __m256i high = _mm256_clmulepi64_epi128(blocks[i], constants, 0x11);
        __m256i next = load_256((const __m256i *)onto + i);
        blocks[i] = _mm256_xor_si256(_mm256_xor_si256(low, next), high);
    }
}

/* Less than 64 bytes are left: take one more register of them, then go on with 128 bits. */
FOR_AVX2 INLINE uint32_t finish_256(const Field *field, __m256i block, const uint8_t *data,
                                    size_t size) {
    if (size >= 32) {
        fold_each_256(&block, 1, field->fold[1], data);
        data += 32;
        size -= 32;
    }
    __m128i joined = fold_128(_mm256_castsi256_si128(block), load_128(field->fold[0]),
                              _mm256_extracti128_si256(block, 1));
    return finish_128(field, joined, data, size);
}

/* Logs are read batch after batch through maps: what comes next is on its way while this is folded.
 * An address past the data is a hint only, and reads nothing. */
INLINE void fetch_ahead(const uint8_t *data, int size, size_t distance) {
    if (distance != 0) {
        for (int i = 0; i < size; i += 64) {
            __builtin_prefetch((const void *)((uintptr_t)data + distance + (uintptr_t)i));
        }
    }
}

/* WIDE_BYTES_MIN or more: eight registers, then half as many until one is left; each step takes its
 * share of the rest, so that no tail is long. */
FOR_AVX2 INLINE uint32_t sum_256(const Field *field, uint32_t value, const uint8_t *data,
                                 size_t size) {
    const size_t distance = prefetch;
    __m256i blocks[8];
    for (int i = 0; i < 8; i++) {
        blocks[i] = load_256(data + 32 * i);
    }
    __m128i start = _mm_cvtsi32_si128((int)~value);
    blocks[0] = _mm256_xor_si256(blocks[0], _mm256_zextsi128_si256(start));
    for (data += 256, size -= 256; size >= 256; data += 256, size -= 256) {
        fetch_ahead(data, 256, distance);
        fold_each_256(blocks, 8, field->fold[4], data);
    }
    fold_each_256(blocks, 4, field->fold[3], blocks + 4);
    if (size >= 128) {
        fold_each_256(blocks, 4, field->fold[3], data);
        data += 128;
        size -= 128;
    }
    fold_each_256(blocks, 2, field->fold[2], blocks + 2);
    if (size >= 64) {
        fold_each_256(blocks, 2, field->fold[2], data);
        data += 64;
        size -= 64;
    }
    fold_each_256(blocks, 1, field->fold[1], blocks + 1);
    return finish_256(field, blocks[0], data, size);
}

/* Between the crc32 instruction, which waits for itself, and the wide registers. */
FOR_SSE42 static uint32_t crc32c_128(uint32_t value, const uint8_t *data, size_t size) {
    return size < FOLD_BYTES_MIN ? crc32c_sse42(value, data, size)
                                 : sum_128(&castagnoli, value, data, size);
}

FOR_AVX2 static uint32_t crc32c_256(uint32_t value, const uint8_t *data, size_t size) {
    return size < WIDE_BYTES_MIN ? crc32c_128(value, data, size)
                                 : sum_256(&castagnoli, value, data, size);
}

FOR_AVX2 static uint32_t crc32_256(uint32_t value, const uint8_t *data, size_t size) {
    return size < WIDE_BYTES_MIN ? crc32_pclmul(value, data, size)
                                 : sum_256(&ieee, value, data, size);
}

static int usable_256(void) {
    return usable_sse42() && kseg_cpu_has(KSEG_CPU_AVX2 | KSEG_CPU_VPCLMUL);
}

/* ---- x86-64, 512 bits: VPCLMULQDQ, and an exclusive or of three. ---- */

FOR_AVX512 INLINE __m512i load_512(const void *data) { return _mm512_loadu_si512(data); }

FOR_AVX512 INLINE void fold_each_512(__m512i *blocks, int count, const uint64_t *by,
                                     const void *onto) {
    __m512i constants = _mm512_broadcast_i32x4(load_128(by));
    for (int i = 0; i < count; i++) {
        __m512i low = _mm512_clmulepi64_epi128(blocks[i], constants, 0x00);
        __m512i high = _mm512_clmulepi64_epi128(blocks[i], constants, 0x11);
        __m512i next = load_512((const __m512i *)onto + i);
        blocks[i] = _mm512_ternarylogic_epi64(low, high, next, 0x96);
    }
}

/* WIDE_BYTES_MIN or more; as sum_256. */
FOR_AVX512 INLINE uint32_t sum_512(const Field *field, uint32_t value, const uint8_t *data,
                                   size_t size) {
    const size_t distance = prefetch;
    __m512i blocks[8];
    for (int i = 0; i < 8; i++) {
        blocks[i] = load_512(data + 64 * i);
    }
    __m128i start = _mm_cvtsi32_si128((int)~value);
    blocks[0] = _mm512_xor_si512(blocks[0], _mm512_zextsi128_si512(start));
    for (data += 512, size -= 512; size >= 512; data += 512, size -= 512) {
        fetch_ahead(data, 512, distance);
        fold_each_512(blocks, 8, field->fold[5], data);
    }
    fold_each_512(blocks, 4, field->fold[4], blocks + 4);
    if (size >= 256) {
        fold_each_512(blocks, 4, field->fold[4], data);
        data += 256;
        size -= 256;
    }
    fold_each_512(blocks, 2, field->fold[3], blocks + 2);
    if (size >= 128) {
        fold_each_512(blocks, 2, field->fold[3], data);
        data += 128;
        size -= 128;
    }
    fold_each_512(blocks, 1, field->fold[2], blocks + 1);
    if (size >= 64) {
        fold_each_512(blocks, 1, field->fold[2], data);
        data += 64;
        size -= 64;
    }
    __m256i half = _mm512_castsi512_si256(blocks[0]);
    __m256i other = _mm512_extracti64x4_epi64(blocks[0], 1);
    fold_each_256(&half, 1, field->fold[1], &other);
    return finish_256(field, half, data, size);
}

FOR_AVX512 static uint32_t crc32c_512(uint32_t value, const uint8_t *data, size_t size) {
    return size < WIDE_BYTES_MIN ? crc32c_128(value, data, size)
                                 : sum_512(&castagnoli, value, data, size);
}

FOR_AVX512 static uint32_t crc32_512(uint32_t value, const uint8_t *data, size_t size) {
    return size < WIDE_BYTES_MIN ? crc32_pclmul(value, data, size)
                                 : sum_512(&ieee, value, data, size);
}

static int usable_512(void) {
    return usable_256() && kseg_cpu_has(KSEG_CPU_AVX512F | KSEG_CPU_AVX512VL);
}

#elif defined(__aarch64__) && defined(__AARCH64EL__)

/* ---- ARMv8: crc32 instructions for both polynomials. ---- */

#define FOR_ARMV8 __attribute__((target("+crc")))

static uint64_t load_64(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

FOR_ARMV8 static uint32_t crc32c_armv8(uint32_t value, const uint8_t *data, size_t size) {
    uint32_t sum = ~value;
    for (; size >= 8; size -= 8, data += 8) {
        sum = __crc32cd(sum, load_64(data));
    }
    for (; size > 0; size--, data++) {
        sum = __crc32cb(sum, *data);
    }
    return ~sum;
}

FOR_ARMV8 static uint32_t crc32_armv8(uint32_t value, const uint8_t *data, size_t size) {
    uint32_t sum = ~value;
    for (; size >= 8; size -= 8, data += 8) {
        sum = __crc32d(sum, load_64(data));
    }
    for (; size > 0; size--, data++) {
        sum = __crc32b(sum, *data);
    }
    return ~sum;
}

static int usable_armv8(void) {
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & (1UL << 7)) != 0; /* HWCAP_CRC32 */
#else
    return 1; /* every ARM Mac has them */
#endif
}

#endif

/* ---- The choice. ---- */

typedef struct {
    const char *name;
    kseg_crc_fn crc32c;
    kseg_crc_fn crc32;
    int (*usable)(void);
} Variant;

static const Variant variants[] = {
    {"table", crc32c_table, crc32_table, usable_anywhere},
#if defined(__x86_64__)
    {"sse42", crc32c_sse42, crc32_pclmul, usable_sse42},
    {"vpclmul256", crc32c_256, crc32_256, usable_256},
    {"vpclmul512", crc32c_512, crc32_512, usable_512},
#elif defined(__aarch64__) && defined(__AARCH64EL__)
    {"armv8", crc32c_armv8, crc32_armv8, usable_armv8},
#endif
};

enum { VARIANT_COUNT = sizeof variants / sizeof variants[0] };

static const Variant *selected; /* NULL until kseg_crc_init */

/* Processors by vendor and family, with the distance that was the fastest of 0 and 256 to 8,192 bytes
 * in `python -m bench scan`. One that is not here gets 0, which is safe everywhere: memory is then
 * asked for by the processor alone.
 *
 * Family 6 of Intel, measured on a Xeon with AVX-512: 4,096.
 * Family 25 of AMD, measured on an EPYC of Zen 4: each distance costs. Batches of 16 KB are verified
 * at 0.94 of the read sum without it, and at 0.62 with 4,096. */
static const struct {
    const char *vendor;
    int family;
    size_t distance;
} measured[] = {
    {"GenuineIntel", 6, 4096},
    {"AuthenticAMD", 25, 0},
};

static size_t measured_distance(void) {
    char vendor[13];
    int family = kseg_cpu_family(vendor);
    for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++) {
        if (family == measured[i].family && strcmp(vendor, measured[i].vendor) == 0) {
            return measured[i].distance;
        }
    }
    return 0;
}

size_t kseg_crc_prefetch(void) { return prefetch; }

void kseg_crc_set_prefetch(size_t distance) { prefetch = distance; }

void kseg_crc_init(void) {
    if (selected == NULL) {
        prefetch = measured_distance();
        build_field(&castagnoli);
        build_field(&ieee);
        kseg_crc_select("auto");
    }
}

uint32_t kseg_crc32c(uint32_t value, const uint8_t *data, size_t size) {
    return selected->crc32c(value, data, size);
}

uint32_t kseg_crc32(uint32_t value, const uint8_t *data, size_t size) {
    return selected->crc32(value, data, size);
}

uint32_t kseg_crc32c_shifted(uint32_t value, uint32_t size) {
    return shifted(&castagnoli, value, size);
}

uint32_t kseg_crc32_shifted(uint32_t value, uint32_t size) { return shifted(&ieee, value, size); }

int kseg_crc_variant_count(void) { return VARIANT_COUNT; }

const char *kseg_crc_variant_name(int index) {
    return index >= 0 && index < VARIANT_COUNT ? variants[index].name : NULL;
}

int kseg_crc_variant_usable(int index) {
    return index >= 0 && index < VARIANT_COUNT && variants[index].usable() != 0;
}

int kseg_crc_select(const char *name) {
    int automatic = strcmp(name, "auto") == 0;
    for (int i = VARIANT_COUNT - 1; i >= 0; i--) {
        if ((automatic || strcmp(name, variants[i].name) == 0) && variants[i].usable()) {
            selected = &variants[i];
            return 0;
        }
    }
    return -1;
}

const char *kseg_crc_selected(void) { return selected->name; }
