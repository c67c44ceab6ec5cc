/* run_denoise.c - from the prompt to latents on disk: condition, pack, and every output denoised (promise P4).
 *
 * The text encoder is gone before the transformer opens, the transformer before this stage returns. */
#include "engine/run_int.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "engine/condition.h"
#include "engine/residency.h"

duet_status duet__run_condition(duet__run *r, duet_error *err) {
    duet_tap *tap = duet_dump_tap(r->dump[0]);
    duet_status st = duet_condition_text(r->a->model, r->a->device, r->stream, r->a->prompt_ids,
                                         r->a->n_prompt_ids, &r->text, tap, &r->progress, err);
    return st == DUET_OK ? duet_dump_flush(r->dump[0], r->stream, "condition", err) : st;
}

duet_status duet__run_pack(duet__run *r, duet_error *err) {
    const duet_plan *p = r->a->plan;
    const duet_dit_config *d = &r->config->dit;
    return duet_pack_rows(&(duet_pack_spec){.text_rows = r->a->n_prompt_ids,
                                            .video_latents = p->video_latents,
                                            .audio_latents = p->audio_latents,
                                            .latent_h = p->latent_h,
                                            .latent_w = p->latent_w,
                                            .patch_h = d->patch_h,
                                            .patch_w = d->patch_w},
                          &r->packed, err);
}

static duet_status copy_schedule(duet__run *r, duet_error *err) {
    const duet_resolved *q = r->a->resolved;
    size_t bytes = (size_t)q->points * sizeof(float);
    r->schedule.points = q->points;
    r->schedule.sigma_video = duet_alloc(bytes, DUET_MEM_ENGINE);
    r->schedule.sigma_audio = duet_alloc(bytes, DUET_MEM_ENGINE);
    if (!r->schedule.sigma_video || !r->schedule.sigma_audio)
        return duet_fail(err, DUET_E_MEMORY, "denoise: out of memory");
    memcpy(r->schedule.sigma_video, q->sigmas, bytes);
    memcpy(r->schedule.sigma_audio, q->audio_sigmas, bytes);
    return DUET_OK;
}

static duet_status open_denoiser(duet__run *r, duet_error *err) {
    duet_status st;
    TRY(st, done, copy_schedule(r, err));
    TRY(st, done, duet_dit_open(r->a->model, r->a->device, &r->dit, err));
    TRY(st, done, duet_residency_open(r->a->device, &r->residency, err));
    TRY(st, done,
        duet_denoiser_open(&(duet_denoise_setup){.dit = r->dit,
                                                 .residency = r->residency,
                                                 .stream = r->stream,
                                                 .packed = &r->packed,
                                                 .schedule = &r->schedule,
                                                 .text = r->text,
                                                 .tap = duet_dump_tap(r->dump[0]),
                                                 .progress = &r->progress},
                           &r->denoiser, err));
    TRY(st, done, duet_stream_sync(r->stream, err));
    duet_device_free(r->a->device, r->text);
    r->text = NULL;
done:
    return st;
}

void duet__run_close_denoiser(duet__run *r) {
    duet_denoiser_close(&r->denoiser);
    duet_residency_close(&r->residency);
    duet_dit_close(&r->dit);
}

static duet_status rows_to_latents(duet__run *r, int32_t output, duet_error *err) {
    const duet_plan *p = r->a->plan;
    const duet_dit_config *d = &r->config->dit;
    duet_latents *l = &r->latents[output];
    *l = (duet_latents){.video_channels = d->video_channels,
                        .latent_h = p->latent_h,
                        .latent_w = p->latent_w,
                        .audio_channels = d->audio_channels,
                        .video_latents = p->video_latents,
                        .audio_latents = p->audio_latents};
    memcpy(l->hash_model, r->a->hashes->model, sizeof l->hash_model);
    memcpy(l->hash_vvae, r->a->hashes->component[DUET_COMPONENT_VVAE], sizeof l->hash_vvae);
    memcpy(l->hash_avae, r->a->hashes->component[DUET_COMPONENT_AVAE], sizeof l->hash_avae);
    duet_resolved alone = *r->a->resolved; /* the file holds one clip: its own seed, and one output */
    alone.seed += output;
    alone.num_outputs = 1;
    l->resolved_json = duet_resolved_json(&alone, 0);
    if (!l->resolved_json) return duet_fail(err, DUET_E_MEMORY, "denoise: out of memory");
    duet_status st = duet_latents_alloc(l, err);
    if (st != DUET_OK) return st;
    duet_patch_shape shape = {d->video_channels, p->latent_h, p->latent_w,
                              d->patch_h,        d->patch_w,  p->video_latents};
    duet_unpatchify(&shape, r->video_noise, l->video);
    duet_audio_rows_to_latents(p->audio_latents, d->audio_channels, r->audio_noise, l->audio);
    return DUET_OK;
}

/* An output that is a folder may not exist yet; any other may have been removed during hours of work, and a finished
 * denoise is worth making it again. */
duet_status duet__make_folders(const char *path, duet_error *err) {
    char *copy = duet_strdup(path);
    if (!copy) return duet_fail(err, DUET_E_MEMORY, "denoise: out of memory");
    duet_status st = DUET_OK;
    for (char *at = strchr(copy + 1, '/'); at && st == DUET_OK; at = strchr(at + 1, '/')) {
        *at = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            st = duet_fail(err, DUET_E_IO, "%s: cannot create the folder: %s", copy, strerror(errno));
        *at = '/';
    }
    duet_free(copy);
    return st;
}

static duet_status keep_latents(duet__run *r, int32_t output, duet_error *err) {
    duet_run_output *o = &r->result->output[output];
    char *path = duet_latents_name(o->path);
    if (!path) return duet_fail(err, DUET_E_MEMORY, "denoise: out of memory");
    duet_status st = duet__make_folders(path, err);
    if (st == DUET_OK) st = duet_latents_write(&r->latents[output], path, err);
    if (st == DUET_OK) {
        o->latents_path = path;
        r->latents_file[output] = duet__file_at(path);
        const duet_run_events *events = r->a->events;
        if (events && events->kept) events->kept(events->ctx, output, path);
    } else {
        duet_free(path);
    }
    return st;
}

static duet_status denoise_output(duet__run *r, int32_t output, duet_error *err) {
    duet_dump *dump = r->dump[output];
    duet_status st;
    r->output = output;
    if (!r->a->init_noise || output > 0) TRY(st, done, duet__run_draw_noise(r, output, err));
    TRY(st, done,
        duet_denoise_tap_inputs(&r->config->dit, &r->packed, &r->schedule, r->video_noise, r->audio_noise,
                                duet_dump_tap(dump), err));
    TRY(st, done,
        duet_denoiser_run(r->denoiser,
                          &(duet_denoise_run){.video_noise = r->video_noise,
                                              .audio_noise = r->audio_noise,
                                              .video_rows = r->video_noise,
                                              .audio_rows = r->audio_noise,
                                              .tap = duet_dump_tap(dump)},
                          err));
    TRY(st, done, rows_to_latents(r, output, err));
    TRY(st, done, keep_latents(r, output, err));
    TRY(st, done, duet_dump_flush(dump, r->stream, "pack", err));
    TRY(st, done, duet_dump_flush(dump, r->stream, "denoise", err));
done:
    return st;
}

duet_status duet__run_denoise(duet__run *r, duet_error *err) {
    duet_status st = open_denoiser(r, err);
    for (int32_t k = 0; st == DUET_OK && k < r->a->resolved->num_outputs; k++) st = denoise_output(r, k, err);
    if (st != DUET_OK && r->dump[r->output]) { /* what was heard before the fault helps most */
        duet_dump_flush(r->dump[r->output], NULL, "pack", NULL);
    }
    duet__run_close_denoiser(r);
    return st;
}
