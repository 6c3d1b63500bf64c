/* See crc.h for what this does. Slicing-by-8 tables for now; vector forms follow. */
#include "crc.h"

#include <string.h>

static uint32_t tables_castagnoli[8][256];
static uint32_t tables_ieee[8][256];

static void build_tables(uint32_t tables[8][256], uint32_t polynomial) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t sum = byte;
        for (int bit = 0; bit < 8; bit++) {
            sum = (sum >> 1) ^ ((sum & 1) != 0 ? polynomial : 0);
        }
        tables[0][byte] = sum;
    }
    for (int slice = 1; slice < 8; slice++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = tables[slice - 1][byte];
            tables[slice][byte] = (before >> 8) ^ tables[0][before & 0xFF];
        }
    }
}

static uint32_t sum_by_table(uint32_t tables[8][256], uint32_t value, const uint8_t *data,
                             size_t size) {
    uint32_t sum = ~value;
    for (; size >= 8; size -= 8, data += 8) {
        sum ^= (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
               (uint32_t)data[3] << 24;
        sum = tables[7][sum & 0xFF] ^ tables[6][(sum >> 8) & 0xFF] ^
              tables[5][(sum >> 16) & 0xFF] ^ tables[4][sum >> 24] ^ tables[3][data[4]] ^
              tables[2][data[5]] ^ tables[1][data[6]] ^ tables[0][data[7]];
    }
    for (; size > 0; size--, data++) {
        sum = (sum >> 8) ^ tables[0][(sum ^ *data) & 0xFF];
    }
    return ~sum;
}

void kseg_crc_init(void) {
    if (tables_ieee[0][1] == 0) {
        build_tables(tables_castagnoli, 0x82F63B78u);
        build_tables(tables_ieee, 0xEDB88320u);
    }
}

uint32_t kseg_crc32c(uint32_t value, const uint8_t *data, size_t size) {
    return sum_by_table(tables_castagnoli, value, data, size);
}

uint32_t kseg_crc32(uint32_t value, const uint8_t *data, size_t size) {
    return sum_by_table(tables_ieee, value, data, size);
}

int kseg_crc_variant_count(void) { return 1; }

const char *kseg_crc_variant_name(int index) { return index == 0 ? "table" : NULL; }

int kseg_crc_variant_usable(int index) { return index == 0; }

int kseg_crc_select(const char *name) {
    return strcmp(name, "auto") == 0 || strcmp(name, "table") == 0 ? 0 : -1;
}

const char *kseg_crc_selected(void) { return "table"; }
