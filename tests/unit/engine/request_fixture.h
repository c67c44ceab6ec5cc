/* request_fixture.h - the released model's constants, as far as a request meets them, and a request to start
 * from. */
#ifndef REQUEST_FIXTURE_H
#define REQUEST_FIXTURE_H

#include "engine/request.h"

static inline duet_model_config released_config(void) {
    duet_model_config c = {.canvas_short_edge = 768,
                           .canvas_max_pixels = 1032192,
                           .canvas_multiple = 32,
                           .fps = 24,
                           .video_shift = 12,
                           .audio_shift = 3};
    c.text = (duet_text_config){.hidden = 5120,
                                .tap_layer = 50,
                                .heads = 64,
                                .kv_heads = 8,
                                .head_dim = 128,
                                .ffn = 25600,
                                .max_positions = 262144};
    c.dit = (duet_dit_config){.hidden = 5376,
                              .layers = 50,
                              .refiner_layers = 2,
                              .heads = 56,
                              .head_dim = 128,
                              .ffn = 14336,
                              .video_channels = 24,
                              .audio_channels = 32,
                              .patch_t = 1,
                              .patch_h = 2,
                              .patch_w = 2,
                              .text_dim = 5120,
                              .time_sinusoid = 256,
                              .time_hidden = 5376,
                              .time_dim = 2688};
    c.vvae = (duet_vvae_config){.space_ratio = 16,
                                .time_ratio = 4,
                                .latent_channels = 24,
                                .clip_frames = 17,
                                .token_drop = 3,
                                .tile_px = 256,
                                .tile_overlap_px = 64};
    c.avae = (duet_avae_config){.latent_channels = 32, .hop = 800, .sample_rate = 32000};
    return c;
}

static inline duet_request plain_request(void) {
    duet_request r;
    duet_request_defaults(&r, sizeof r);
    r.prompt = "a lamp on a table";
    return r;
}

/* Both parts, as the API runs them. */
static inline duet_status ask(const duet_request *r, const duet_model_config *c, duet_resolved *out,
                              duet_plan_args *args, duet_error *err) {
    duet_request_model m = {.config = c, .serves_t2va = true, .prompt_tokens = 5};
    *err = (duet_error){0};
    duet_status st = duet_request_check(r, err);
    return st == DUET_OK ? duet_request_resolve(r, &m, out, args, err) : st;
}

#endif
