/* safetensors.h - reading one safetensors file: mapped, checked once, then a sorted table of tensors.
 *
 *     u64 n (little endian) | n bytes of JSON, '{' first, spaces may follow | data
 *
 * What holds after a successful open:
 *  1. every tensor lies inside the file, `bytes` = elements x element size, nothing overflows;
 *  2. the tensors cover the data section exactly: no overlap, no hole, nothing behind the last one;
 *  3. names are unique, printable and sorted; dtypes are known; rank is at most DUET_MAX_RANK;
 *  4. `data` may be misaligned for its dtype: the header's length decides. Copy with memcpy, or ask the model
 *     (store/model.h), which makes aligned copies where they are needed.
 *
 * Damage is DUET_E_MODEL, a file that cannot be opened DUET_E_IO; messages start with the path. Thread rule: immutable
 * after open. */
#ifndef DUET_STORE_SAFETENSORS_H
#define DUET_STORE_SAFETENSORS_H

#include "base/status.h"
#include "tensor/tensor.h"

typedef struct duet_st_file duet_st_file;

typedef struct duet_st_tensor {
    const char *name;
    duet_dtype dtype;
    duet_shape shape;
    const uint8_t *data; /* borrowed from the mapping; see 4 */
    int64_t bytes;
} duet_st_tensor;

duet_status duet_st_open(const char *path, duet_st_file **out, duet_error *err);
/* The same on bytes in memory, which must outlive the file; `label` stands for the path. */
duet_status duet_st_parse(const void *data, size_t bytes, const char *label, duet_st_file **out,
                          duet_error *err);
void duet_st_close(duet_st_file **file); /* NULL-safe, idempotent */

const char *duet_st_path(const duet_st_file *file);
int duet_st_count(const duet_st_file *file);
const duet_st_tensor *duet_st_at(const duet_st_file *file, int i);              /* in name order */
const duet_st_tensor *duet_st_find(const duet_st_file *file, const char *name); /* NULL when absent */

/* Whole mapped file, NULL when parsed from memory. */
const void *duet_st_mapping(const duet_st_file *file, size_t *bytes);

int duet_st_metadata_count(const duet_st_file *file);
const char *duet_st_metadata_key(const duet_st_file *file, int i);
const char *duet_st_metadata(const duet_st_file *file, const char *key); /* NULL when absent */

#endif
