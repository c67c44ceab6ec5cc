/* run_int.h - what one run holds, shared by the files that are its stages (engine.c, run_*.c). */
#ifndef DUET_ENGINE_RUN_INT_H
#define DUET_ENGINE_RUN_INT_H

#include <sys/types.h>

#include "engine/deliver.h"
#include "engine/denoise.h"
#include "engine/engine.h"

typedef struct duet__run {
    const duet_run_args *a;
    const duet_model_config *config;
    duet_run_result *result;
    int32_t output; /* the one events speak of */
    duet_progress progress;
    duet_stream *stream;
    duet_dump *dump[DUET_MAX_OUTPUTS];
    float *video_noise, *audio_noise; /* noise in, final rows out */
    float *text;                      /* device */
    duet_packed packed;
    duet_schedule schedule;
    duet_dit *dit;
    duet_residency *residency; /* of the transformer */
    duet_denoiser *denoiser;
    duet_latents latents[DUET_MAX_OUTPUTS];
    ino_t latents_file[DUET_MAX_OUTPUTS]; /* which file we wrote: another run may use the same name */
} duet__run;

/* The stages, in the order of duet_run. Each leaves the run closable by duet__run_close, whatever happened. */
duet_status duet__run_load(duet__run *r, duet_error *err); /* names, dumps, rows, injected noise, stream */
duet_status duet__run_condition(duet__run *r, duet_error *err); /* prompt ids -> r->text */
duet_status duet__run_pack(duet__run *r, duet_error *err);      /* -> r->packed */
duet_status duet__run_denoise(duet__run *r, duet_error *err);   /* -> r->latents, each on disk */
duet_status duet__run_deliver(duet__run *r, duet_error *err); /* -> clips; books the time of its own stages */

duet_status duet__run_draw_noise(duet__run *r, int32_t output,
                                 duet_error *err); /* -> r->video_noise, r->audio_noise */
void duet__run_close_denoiser(duet__run *r);       /* idempotent */
/* Every folder on the way to `path` that is not there. */
duet_status duet__make_folders(const char *path, duet_error *err);
ino_t duet__file_at(const char *path); /* 0 when there is none */

#endif
