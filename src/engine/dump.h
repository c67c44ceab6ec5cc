/* dump.h - the tap that writes what it hears into safetensors files, one per stage (`--dump DIR`).
 *
 *     DIR/condition.safetensors  pack.safetensors  denoise.safetensors  decode.safetensors  deliver.safetensors
 *
 * 1. The first tensor of a name wins: networks offer their block taps in every evaluation, the file keeps those of the first.
 * 2. Of numbered blocks only first, second, middle and last are kept, of tiles only the first: a dump of a large model
 *    stays a few times the size of its activations.
 * 3. Files appear complete or not at all. Names: docs/numerics.md. */
#ifndef DUET_ENGINE_DUMP_H
#define DUET_ENGINE_DUMP_H

#include "nn/tap.h"

typedef struct duet_dump duet_dump;

/* Creates the folder (and parents). dit_layers, text_layers, vit_layers scale rule 2. */
typedef struct duet_dump_depths {
    int32_t dit_layers, text_layers, vit_layers;
} duet_dump_depths;
duet_status duet_dump_open(const char *dir, const duet_dump_depths *depths, duet_dump **out, duet_error *err);
void duet_dump_close(duet_dump **dump);   /* drops what was not flushed */
duet_tap *duet_dump_tap(duet_dump *dump); /* NULL-safe: NULL for NULL */

/* Write everything heard since the last flush as DIR/<file>.safetensors; waits for the stream (may be NULL). Returns the first
 * error of any tap since then. Nothing heard: no file. NULL dump: nothing happens. */
duet_status duet_dump_flush(duet_dump *dump, duet_stream *stream, const char *file, duet_error *err);

#endif
