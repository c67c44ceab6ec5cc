/* run_load.c - what a run needs before any network does: names, dumps, latent rows, noise, a stream. */
#include "engine/run_int.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/init_noise.h"
#include "engine/noise.h"

static int64_t video_width(const duet__run *r) {
    const duet_dit_config *d = &r->config->dit;
    return (int64_t)d->video_channels * d->patch_h * d->patch_w;
}

static duet_status name_outputs(duet__run *r, duet_error *err) {
    for (int32_t k = 0; k < r->a->resolved->num_outputs; k++) {
        r->result->output[k].path = duet_output_name(r->a->output, k, r->a->resolved->num_outputs);
        if (!r->result->output[k].path) return duet_fail(err, DUET_E_MEMORY, "load: out of memory");
    }
    return DUET_OK;
}

static duet_status open_dumps(duet__run *r, duet_error *err) {
    if (!r->a->dump_dir) return DUET_OK;
    int32_t n = r->a->resolved->num_outputs;
    duet_dump_depths depths = {r->config->dit.layers, r->config->text.tap_layer, r->config->vvae.vit_layers};
    for (int32_t k = 0; k < n; k++) {
        char dir[4096];
        int used = n == 1 ? snprintf(dir, sizeof dir, "%s", r->a->dump_dir)
                          : snprintf(dir, sizeof dir, "%s/output_%d", r->a->dump_dir, k);
        if (used < 0 || (size_t)used >= sizeof dir)
            return duet_fail(err, DUET_E_IO, "dump: the folder's name is too long");
        duet_status st = duet_dump_open(dir, &depths, &r->dump[k], err);
        if (st != DUET_OK) return st;
    }
    return DUET_OK;
}

static duet_status alloc_rows(duet__run *r, duet_error *err) {
    const duet_plan *p = r->a->plan;
    size_t video_bytes = (size_t)(p->video_rows * video_width(r)) * sizeof(float);
    size_t audio_bytes = (size_t)p->audio_rows * (size_t)r->config->dit.audio_channels * sizeof(float);
    r->video_noise = duet_alloc(video_bytes, DUET_MEM_ENGINE);
    r->audio_noise = duet_alloc(audio_bytes, DUET_MEM_ENGINE);
    if (!r->video_noise || !r->audio_noise)
        return duet_fail(err, DUET_E_MEMORY, "load: out of memory for latent rows");
    return DUET_OK;
}

duet_status duet__run_draw_noise(duet__run *r, int32_t output, duet_error *err) {
    const duet_plan *p = r->a->plan;
    const duet_dit_config *d = &r->config->dit;
    if (r->a->init_noise)
        return duet_init_noise_read(r->a->init_noise, p->video_rows, video_width(r), p->audio_rows,
                                    d->audio_channels, r->video_noise, r->audio_noise, err);
    bool diffusers = strcmp(r->a->resolved->noise, "diffusers") == 0;
    return duet_noise_draw(&(duet_noise_args){.seed = (uint64_t)r->a->resolved->seed + (uint64_t)output,
                                              .stream = diffusers ? DUET_NOISE_DIFFUSERS : DUET_NOISE_SGLANG,
                                              .channels = d->video_channels,
                                              .latent_h = p->latent_h,
                                              .latent_w = p->latent_w,
                                              .patch_h = d->patch_h,
                                              .patch_w = d->patch_w,
                                              .audio_channels = d->audio_channels,
                                              .video_latents = p->video_latents,
                                              .audio_latents = p->audio_latents,
                                              .video_rows = r->video_noise,
                                              .audio_rows = r->audio_noise},
                           err);
}

duet_status duet__run_load(duet__run *r, duet_error *err) {
    duet_status st;
    TRY(st, done, duet_progress_step(&r->progress, DUET_STAGE_LOAD, 0, 1, err));
    TRY(st, done, name_outputs(r, err));
    TRY(st, done, open_dumps(r, err));
    TRY(st, done, alloc_rows(r, err));
    if (r->a->init_noise)
        TRY(st, done,
            duet__run_draw_noise(r, 0, err)); /* a bad file fails here, before any weight is touched */
    TRY(st, done, duet_stream_open(r->a->device, 0, &r->stream, err));
    duet_stream_watch(r->stream, r->progress.cancel);
    TRY(st, done, duet_progress_step(&r->progress, DUET_STAGE_LOAD, 1, 1, err));
done:
    return st;
}
