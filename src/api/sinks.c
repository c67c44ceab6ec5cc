/* sinks.c - the media that a run writes into, tagged with what made them.
 *
 * Tags say nothing of when or where: the same request gives the same bytes (promise P1). */
#include "api_int.h"

#include <stdio.h>

#include "media/media.h"

duet_status duet__sink_make(void *ctx, int32_t output, const char *path, duet_sink **out, duet_error *err) {
    const duet__sinks *s = ctx;
    char seed[24];
    snprintf(seed, sizeof seed, "%lld", (long long)(s->seed + output));
    const duet_media_tag tags[] = {{"duet_version", duet_version()},
                                   {"seed", seed},
                                   {"prompt_sha256", s->prompt_sha256},
                                   {"model_hash", s->model_hash}};
    duet_media_options options = {.path = path,
                                  .quality = s->compression,
                                  .tags = tags,
                                  .n_tags = (int32_t)(sizeof tags / sizeof tags[0]),
                                  .cancel = s->cancel,
                                  .keep_existing = !s->overwrite};
    return duet_media_sink_new(&options, out, err);
}

void duet__sink_dispose(void *ctx, duet_sink **sink) {
    (void)ctx;
    duet_media_sink_free(sink);
}
