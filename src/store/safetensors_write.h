/* safetensors_write.h - writing safetensors files: streamed, complete or absent.
 *
 * The bytes go to a temporary name beside the target, are flushed to the disk and then renamed over it; whatever
 * fails before (a full disk included) leaves the target as it was and removes the temporary file. Memory use does not
 * depend on the size of the tensors. DUET_E_IO with the path for every failed system call. */
#ifndef DUET_STORE_SAFETENSORS_WRITE_H
#define DUET_STORE_SAFETENSORS_WRITE_H

#include "base/status.h"
#include "tensor/tensor.h"

typedef struct duet_st_entry {
    const char *name;
    duet_dtype dtype;
    duet_shape shape;
    const void *data; /* contiguous; only read by duet_st_write */
} duet_st_entry;

typedef struct duet_st_meta {
    const char *key, *value; /* UTF-8 */
} duet_st_meta;

/* Whole file at once. Entries may come in any order: they are laid out by element size, largest first, then by name,
 * which keeps every tensor aligned. */
duet_status duet_st_write(const char *path, const duet_st_entry *entries, int n_entries,
                          const duet_st_meta *meta, int n_meta, duet_error *err);

/* Streamed: entries in their final order (see duet_st_sort), then exactly their bytes, in the same order, in pieces of
 * any size, then commit. Entries and metadata are only read by open. */
typedef struct duet_st_writer duet_st_writer;

void duet_st_sort(duet_st_entry *entries, int n_entries);
int64_t duet_st_entry_bytes(const duet_st_entry *entry);
duet_status duet_st_writer_open(const char *path, const duet_st_entry *entries, int n_entries,
                                const duet_st_meta *meta, int n_meta, duet_st_writer **out, duet_error *err);
duet_status duet_st_writer_put(duet_st_writer *writer, const void *bytes, size_t n_bytes, duet_error *err);
duet_status duet_st_writer_commit(duet_st_writer **writer, duet_error *err); /* closes in either case */
void duet_st_writer_abort(duet_st_writer **writer); /* NULL-safe; removes the temporary file */
/* Data that can be made again at any time need not wait for the disk: commit without flushing. */
void duet_st_writer_skip_flush(duet_st_writer *writer);

/* Small text files by the same rule: temporary name, flush (unless the text can be made again), rename. */
duet_status duet_write_text(const char *path, const char *text, size_t n_bytes, bool flush, duet_error *err);

#endif
