/* sha256.h - SHA-256 (FIPS 180-4), incremental. No allocation; any thread may use its own state. */
#ifndef DUET_BASE_SHA256_H
#define DUET_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct duet_sha256 {
    uint32_t state[8];
    uint64_t total_bytes;
    uint8_t block[64]; /* total_bytes % 64 bytes that wait for a full block */
} duet_sha256;

void duet_sha256_init(duet_sha256 *hash);
void duet_sha256_add(duet_sha256 *hash, const void *data, size_t bytes);
void duet_sha256_hex(duet_sha256 *hash, char hex[65]); /* finishes: init before the next use */

#endif
