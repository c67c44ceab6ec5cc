/* fixture.h - tiny checkpoints in the test's own directory, and ways to damage them. */
#ifndef DUET_TESTS_STORE_FIXTURE_H
#define DUET_TESTS_STORE_FIXTURE_H

#include "harness/harness.h"

#include "store/model.h"

/* Path NAME below the test's directory; the last 200 results are alive. */
const char *fixture_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Generate a tiny checkpoint there; returns its path. */
const char *fixture_make(const char *name, const char *layout, const char *partition, uint64_t seed);
int fixture_run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

duet_model *fixture_open(const char *path, duet_partition partition);
/* Opening must fail with DUET_E_MODEL; the message holds both texts. */
void fixture_refuses(const char *path, const char *file, const char *what);

void fixture_copy(const char *from, const char *to);
/* Replace the first `from` in a text file. */
void fixture_edit(const char *file, const char *from, const char *to);
/* Widen a safetensors header by n spaces: the data moves by n bytes. */
void fixture_shift(const char *file, int n);
/* Give every tensor whose name starts with `from` the prefix `to` instead. */
void fixture_rename(const char *file, const char *from, const char *to);

/* One file of all tensors of FOLDER's shards, without those whose name contains one of the NULL-terminated `drop`; the
 * shards and their index are removed. */
void fixture_merge(const char *folder, const char *stem, const char *const *drop);
/* Store one tensor in another type: BF16 by rounding, 1-byte types by keeping low bytes. */
void fixture_cast(const char *file, const char *name, duet_dtype dtype);

#endif
