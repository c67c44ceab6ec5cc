/* plan.c - the sizes of one output, from its canvas, frames, text rows and schedule.
 *
 *     frames F -> T = 5n+2 video latents, Ta = round(5F/3) audio latents per channel
 *     canvas   -> Hl x Wl latents -> patch_rows x patch_cols rows per latent frame
 *     rows     =  text L  +  audio 2 Ta  +  video T patch_rows patch_cols
 *
 * 1. Pure arithmetic: the same arguments give the same plan on every machine.
 * 2. FLOPs count a multiply and an add as two, and only products and attention: norms and activations are
 *    noise beside them. Attention of the text encoder is causal, so half of it is counted.
 * Not here: bytes (plan_cost.c), the rules of the request (request*.c). */
#include "engine/plan.h"

#include <stdio.h>

static const char *const STAGE_NAMES[DUET_N_STAGES] = {
    [DUET_STAGE_LOAD] = "load",
    [DUET_STAGE_CONDITION] = "condition",
    [DUET_STAGE_DENOISE] = "denoise",
    [DUET_STAGE_DECODE_AUDIO] = "decode_audio",
    [DUET_STAGE_DECODE_VIDEO] = "decode_video",
    [DUET_STAGE_DELIVER] = "deliver",
};

const char *duet_stage_name(duet_stage stage) {
    return (unsigned)stage < DUET_N_STAGES ? STAGE_NAMES[stage] : "unknown";
}

/* ---- FLOPs
 * --------------------------------------------------------------------------------------------------- */

static double product(double rows, double n, double k) {
    return 2.0 * rows * n * k;
}

static double text_flops(const duet_text_config *c, double rows) {
    double attention = (double)c->heads * c->head_dim, kv = (double)c->kv_heads * c->head_dim;
    double layer = product(rows, attention + 2 * kv, c->hidden) + product(rows, c->hidden, attention) +
                   3 * product(rows, c->ffn, c->hidden) + 2 * rows * rows * attention;
    return layer * c->tap_layer;
}

static double block_flops(const duet_dit_config *c, double rows) {
    double inner = (double)c->heads * c->head_dim;
    return product(rows, 3 * inner, c->hidden) + product(rows, c->hidden, inner) +
           product(rows, 2.0 * c->ffn, c->hidden) + product(rows, c->hidden, c->ffn) +
           4 * rows * rows * inner;
}

static double denoise_flops(const duet_dit_config *c, const duet_plan *p, double timesteps) {
    double patch = (double)c->video_channels * c->patch_t * c->patch_h * c->patch_w;
    double evaluation = c->layers * block_flops(c, (double)p->rows) +
                        2 * product((double)p->video_rows, c->hidden, patch) +
                        2 * product((double)p->audio_rows, c->hidden, c->audio_channels);
    double refine = product((double)p->text_rows, c->hidden, c->text_dim) +
                    c->refiner_layers * block_flops(c, (double)p->text_rows);
    double tables = product(timesteps, c->time_hidden, c->time_sinusoid) +
                    product(timesteps, c->time_dim, c->time_hidden) +
                    product(timesteps, (18.0 * c->layers + 2.0) * c->hidden, c->time_dim);
    return (double)p->evaluations * evaluation + refine + tables;
}

/* ---- geometry
 * ------------------------------------------------------------------------------------------------ */

static void set_rows(duet_plan *p, const duet_plan_args *args, const duet_model_config *config) {
    p->width = args->width;
    p->height = args->height;
    p->frames = args->frames;
    p->video_latents = duet_video_latents_for_frames(args->frames);
    p->audio_latents = duet_audio_latents_for_frames(args->frames);
    p->latent_h = args->height / config->vvae.space_ratio;
    p->latent_w = args->width / config->vvae.space_ratio;
    p->patch_rows = p->latent_h / config->dit.patch_h;
    p->patch_cols = p->latent_w / config->dit.patch_w;
    p->text_rows = args->text_rows;
    p->audio_rows = 2 * p->audio_latents;
    p->video_rows = p->video_latents * p->patch_rows * p->patch_cols;
    p->rows = p->text_rows + p->audio_rows + p->video_rows;
    p->audio_samples = p->audio_latents * config->avae.hop;
    p->points = args->points;
    p->evaluations = args->points - 1;
}

static duet_status set_chunks(duet_plan *p, const duet_vvae_config *vvae, duet_error *err) {
    duet_time_chunks chunks;
    if (!duet_time_split(vvae, p->video_latents, &chunks) || chunks.frames != p->frames)
        return duet_fail(err, DUET_E_MODEL, "video_vae: clips of %d frames cannot make %lld frames",
                         vvae->clip_frames, (long long)p->frames);
    p->chunks = chunks.chunks;
    return DUET_OK;
}

static duet_status set_tiles(const char *param, int32_t length, const duet_vvae_config *vvae,
                             duet_axis_tiles *out, duet_error *err) {
    if (duet_axis_split(length, vvae->tile_px, vvae->tile_overlap_px, vvae->space_ratio, out)) return DUET_OK;
    char value[32];
    snprintf(value, sizeof value, "%d", length);
    return duet_refuse(err, param, "invalid_value", value, NULL, "cannot be cut into tiles of %d pixels",
                       vvae->tile_px);
}

duet_status duet_plan_build(const duet_plan_args *args, const duet_model_config *config, duet_plan *out,
                            duet_error *err) {
    duet_status st;
    *out = (duet_plan){0};
    set_rows(out, args, config);
    TRY(st, fail, set_chunks(out, &config->vvae, err));
    TRY(st, fail, set_tiles("height", out->height, &config->vvae, &out->tiles_y, err));
    TRY(st, fail, set_tiles("width", out->width, &config->vvae, &out->tiles_x, err));
    out->stage[DUET_STAGE_CONDITION].flops = text_flops(&config->text, (double)out->text_rows);
    out->stage[DUET_STAGE_DENOISE].flops = denoise_flops(&config->dit, out, (double)args->timesteps);
fail:
    return st;
}

void duet_plan_info_fill(const duet_plan *p, const duet_model_config *config, duet_plan_info *out) {
    *out = (duet_plan_info){
        .width = p->width,
        .height = p->height,
        .frames = p->frames,
        .video_latents = p->video_latents,
        .audio_latents = p->audio_latents,
        .video_channels = config->vvae.latent_channels,
        .audio_channels = config->avae.latent_channels,
        .latent_height = p->latent_h,
        .latent_width = p->latent_w,
        .patch_rows = p->patch_rows,
        .patch_cols = p->patch_cols,
        .text_rows = p->text_rows,
        .audio_rows = p->audio_rows,
        .video_rows = p->video_rows,
        .rows = p->rows,
        .points = p->points,
        .evaluations = p->evaluations,
        .chunks = p->chunks,
        .tiles_y = p->tiles_y.n,
        .tiles_x = p->tiles_x.n,
        .tile_height = p->tiles_y.tile_px,
        .tile_width = p->tiles_x.tile_px,
        .audio_samples = p->audio_samples,
        .base_bytes = p->base_bytes,
        .media_bytes = p->media_bytes,
        .peak_bytes = p->peak_bytes,
    };
    for (int s = 0; s < DUET_N_STAGES; s++) {
        out->stage[s] = p->stage[s];
        out->flops += p->stage[s].flops;
    }
}
