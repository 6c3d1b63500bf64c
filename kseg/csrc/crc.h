/* CRC-32C and CRC-32 at the speed of memory; the fastest form this CPU has is chosen once.
 *
 * Both are the reflected forms with initial and final inversion that everybody means by those
 * names: crc("123456789") is 0xE3069283 (Castagnoli, batches of magic 2) and 0xCBF43926 (IEEE,
 * messages of magic 0 and 1, as in zlib).
 *
 * `value` is 0 for a new sum, or the sum of the bytes before:
 *     crc(crc(0, a), b) == crc(0, a followed by b)
 *
 * Every function may be called without the GIL and from any thread. kseg_crc_select changes the
 * whole process; all forms give the same sums, so a sum that is under way elsewhere stays right.
 */
#ifndef KSEG_CRC_H
#define KSEG_CRC_H

#include <stddef.h>
#include <stdint.h>

typedef uint32_t (*kseg_crc_fn)(uint32_t value, const uint8_t *data, size_t size);

/* Build the tables and choose the best variant. Call it once before any other function, from one
 * thread (module initialisation); calling it again does nothing. */
void kseg_crc_init(void);

uint32_t kseg_crc32c(uint32_t value, const uint8_t *data, size_t size);
uint32_t kseg_crc32(uint32_t value, const uint8_t *data, size_t size);

/* What the sum of `size` bytes becomes if as many bytes follow: for any a and b,
 *     crc(0, b) == crc(0, a followed by b) ^ shifted(crc(0, a), size of b)
 * in constant time, for sizes below 2^32. */
uint32_t kseg_crc32c_shifted(uint32_t value, uint32_t size);
uint32_t kseg_crc32_shifted(uint32_t value, uint32_t size);

/* Variants compiled in, slowest first; not all of them run on this CPU. */
int kseg_crc_variant_count(void);
const char *kseg_crc_variant_name(int index); /* NULL where there is none */
int kseg_crc_variant_usable(int index);       /* 1 where this CPU can run it, else 0 */

/* Choose by name; "auto" is the best usable one. Answers 0, or -1 where the name is unknown or
 * this CPU cannot run it: then nothing changes. */
int kseg_crc_select(const char *name);
const char *kseg_crc_selected(void);

/* How many bytes ahead of a wide fold memory is requested; 0 where the processor does better by
 * itself. kseg_crc_init chooses by processor. Set it for a measurement only. */
size_t kseg_crc_prefetch(void);
void kseg_crc_set_prefetch(size_t distance);

#endif
