/* synth_shapes.c - the dimensions of generated checkpoints.
 *
 * The three tiny sets obey what the reference demands of dimensions (products of strides, divisibility of heads, groups
 * and rotary widths) and otherwise differ from each other and within themselves wherever they can, so that a
 * transposed or swapped axis cannot go unnoticed. Set 2 has patch width 1 and shifts other than the released ones. */
#include <string.h>

#include "store/synth_int.h"

#define VISION_CONSTANTS .patch = 16, .temporal_patch = 2, .merge = 2, .in_channels = 3
#define VVAE_CONSTANTS                                                                                              \
    .space_ratio = 16, .time_ratio = 4, .group_norm_eps = 1e-6f, .vit_ffn_mult = 4, .vit_registers = 4,             \
    .vit_norm_eps = 1e-5f, .clip_frames = 17, .token_drop = 3, .tile_px = 256, .tile_overlap_px = 64
#define AVAE_CONSTANTS                                                                                              \
    .attention_heads = 8, .n_res_kernels = 3, .res_kernels = {3, 7, 11}, .n_res_dilations = 3,                      \
    .res_dilations = {1, 3, 5}, .sample_rate = 32000, .hop = 800

static const duet_model_config tiny[3] = {
    {.dit = {.hidden = 52, .layers = 3, .refiner_layers = 2, .heads = 3, .head_dim = 20, .ffn = 76,
             .video_channels = 6, .audio_channels = 8, .patch_t = 1, .patch_h = 2, .patch_w = 2, .text_dim = 44,
             .time_sinusoid = 10, .time_hidden = 36, .time_dim = 28, .rope_freqs = 3, .rope_theta = 10000,
             .norm_eps = 1e-5f, .qk_norm_eps = 2e-5f, .final_norm_eps = 4e-5f},
     .text = {.hidden = 44, .layers_in_file = 6, .tap_layer = 4, .heads = 4, .kv_heads = 2, .head_dim = 18, .ffn = 84,
              .mrope_section = {3, 3, 3}, .rope_theta = 5e6, .norm_eps = 1e-6f, .max_positions = 262144},
     .vision = {.depth = 4, .hidden = 24, .heads = 2, .ffn = 40, .positions = 16, .out_hidden = 44,
                .deepstack = {0, 1, 2}, .n_deepstack = 3, VISION_CONSTANTS},
     .vvae = {.levels = 4, .channels = {8, 16, 16, 24}, .res_blocks = 1, .space_down = {2, 2, 2, 2},
              .time_down = {1, 2, 2, 1}, .latent_channels = 6, .norm_groups = 4, .vit_layers = 3, .vit_heads = 2,
              .vit_head_dim = 16, .vit_rope_ratio = 0.75f, .vit_rope_theta = 100, VVAE_CONSTANTS},
     .avae = {.encoder_dim = 4, .n_encoder_rates = 5, .encoder_rates = {2, 4, 4, 5, 5}, .latent_dim = 128,
              .latent_channels = 8, .decoder_dim = 64, .n_decoder_rates = 5, .decoder_rates = {5, 5, 4, 4, 2},
              AVAE_CONSTANTS},
     .canvas_short_edge = 256, .canvas_max_pixels = 256 * 448, .reference_image_short_edge = 96,
     .video_shift = 12, .audio_shift = 3},
    {.dit = {.hidden = 56, .layers = 4, .refiner_layers = 1, .heads = 2, .head_dim = 34, .ffn = 92,
             .video_channels = 7, .audio_channels = 10, .patch_t = 1, .patch_h = 2, .patch_w = 2, .text_dim = 60,
             .time_sinusoid = 16, .time_hidden = 48, .time_dim = 40, .rope_freqs = 5, .rope_theta = 10000,
             .norm_eps = 1e-5f, .qk_norm_eps = 3e-6f, .final_norm_eps = 1e-6f},
     .text = {.hidden = 60, .layers_in_file = 7, .tap_layer = 5, .heads = 6, .kv_heads = 3, .head_dim = 16, .ffn = 100,
              .mrope_section = {4, 2, 2}, .rope_theta = 1e6, .norm_eps = 1e-5f, .max_positions = 131072},
     .vision = {.depth = 5, .hidden = 32, .heads = 4, .ffn = 52, .positions = 25, .out_hidden = 60,
                .deepstack = {0, 2, 3}, .n_deepstack = 3, VISION_CONSTANTS},
     .vvae = {.levels = 5, .channels = {6, 12, 18, 18, 24}, .res_blocks = 2, .space_down = {2, 2, 2, 2, 1},
              .time_down = {2, 2, 1, 1, 1}, .latent_channels = 7, .norm_groups = 3, .vit_layers = 4, .vit_heads = 3,
              .vit_head_dim = 8, .vit_rope_ratio = 0.75f, .vit_rope_theta = 50, VVAE_CONSTANTS},
     .avae = {.encoder_dim = 3, .n_encoder_rates = 4, .encoder_rates = {4, 5, 5, 8}, .latent_dim = 160,
              .latent_channels = 10, .decoder_dim = 48, .n_decoder_rates = 4, .decoder_rates = {8, 5, 5, 4},
              AVAE_CONSTANTS},
     .canvas_short_edge = 192, .canvas_max_pixels = 192 * 352, .reference_image_short_edge = 128,
     .video_shift = 12, .audio_shift = 3},
    {.dit = {.hidden = 58, .layers = 2, .refiner_layers = 3, .heads = 5, .head_dim = 14, .ffn = 82,
             .video_channels = 9, .audio_channels = 12, .patch_t = 1, .patch_h = 1, .patch_w = 1, .text_dim = 46,
             .time_sinusoid = 18, .time_hidden = 38, .time_dim = 26, .rope_freqs = 2, .rope_theta = 10000,
             .norm_eps = 3e-5f, .qk_norm_eps = 1e-5f, .final_norm_eps = 2e-6f},
     .text = {.hidden = 46, .layers_in_file = 5, .tap_layer = 3, .heads = 6, .kv_heads = 2, .head_dim = 10, .ffn = 70,
              .mrope_section = {3, 1, 1}, .rope_theta = 1e4, .norm_eps = 2e-6f, .max_positions = 65536},
     .vision = {.depth = 3, .hidden = 40, .heads = 2, .ffn = 54, .positions = 36, .out_hidden = 46,
                .deepstack = {0, 2}, .n_deepstack = 2, VISION_CONSTANTS},
     .vvae = {.levels = 4, .channels = {10, 10, 20, 20}, .res_blocks = 1, .space_down = {2, 2, 2, 2},
              .time_down = {1, 1, 2, 2}, .latent_channels = 9, .norm_groups = 5, .vit_layers = 2, .vit_heads = 2,
              .vit_head_dim = 20, .vit_rope_ratio = 0.6f, .vit_rope_theta = 200, VVAE_CONSTANTS},
     .avae = {.encoder_dim = 2, .n_encoder_rates = 6, .encoder_rates = {2, 2, 2, 4, 5, 5}, .latent_dim = 288,
              .latent_channels = 12, .decoder_dim = 80, .n_decoder_rates = 4, .decoder_rates = {10, 5, 4, 4},
              AVAE_CONSTANTS},
     .canvas_short_edge = 128, .canvas_max_pixels = 128 * 240, .reference_image_short_edge = 64,
     .video_shift = 7.5, .audio_shift = 2.2}};

static const int tiny_merges[3] = {211, 260, 318};

static const duet_model_config small = {
    .dit = {.hidden = 1024, .layers = 16, .refiner_layers = 2, .heads = 10, .head_dim = 128, .ffn = 2816,
            .video_channels = 24, .audio_channels = 32, .patch_t = 1, .patch_h = 2, .patch_w = 2, .text_dim = 960,
            .time_sinusoid = 256, .time_hidden = 1024, .time_dim = 512, .rope_freqs = 16, .rope_theta = 10000,
            .norm_eps = 1e-5f, .qk_norm_eps = 1e-5f, .final_norm_eps = 1e-5f},
    .text = {.hidden = 960, .layers_in_file = 20, .tap_layer = 16, .heads = 12, .kv_heads = 2, .head_dim = 128,
             .ffn = 4800, .mrope_section = {24, 20, 20}, .rope_theta = 5e6, .norm_eps = 1e-6f,
             .max_positions = 262144},
    .vision = {.depth = 9, .hidden = 216, .heads = 3, .ffn = 808, .positions = 2304, .out_hidden = 960,
               .deepstack = {2, 5, 7}, .n_deepstack = 3, VISION_CONSTANTS},
    .vvae = {.levels = 6, .channels = {32, 64, 64, 128, 128, 256}, .res_blocks = 2,
             .space_down = {2, 2, 2, 2, 1, 1}, .time_down = {1, 2, 2, 1, 1, 1}, .latent_channels = 24,
             .norm_groups = 32, .vit_layers = 12, .vit_heads = 6, .vit_head_dim = 64, .vit_rope_ratio = 0.75f,
             .vit_rope_theta = 100, VVAE_CONSTANTS},
    .avae = {.encoder_dim = 16, .n_encoder_rates = 5, .encoder_rates = {2, 4, 4, 5, 5}, .latent_dim = 512,
             .latent_channels = 32, .decoder_dim = 256, .n_decoder_rates = 7, .decoder_rates = {5, 5, 2, 2, 2, 2, 2},
             AVAE_CONSTANTS},
    .canvas_short_edge = 768, .canvas_max_pixels = 1032192, .reference_image_short_edge = 2048,
    .video_shift = 12, .audio_shift = 3};

static const duet_model_config full = {
    .dit = {.hidden = 5376, .layers = 50, .refiner_layers = 2, .heads = 56, .head_dim = 128, .ffn = 14336,
            .video_channels = 24, .audio_channels = 32, .patch_t = 1, .patch_h = 2, .patch_w = 2, .text_dim = 5120,
            .time_sinusoid = 256, .time_hidden = 5376, .time_dim = 2688, .rope_freqs = 16, .rope_theta = 10000,
            .norm_eps = 1e-5f, .qk_norm_eps = 1e-5f, .final_norm_eps = 1e-5f},
    .text = {.hidden = 5120, .layers_in_file = 64, .tap_layer = 50, .heads = 64, .kv_heads = 8, .head_dim = 128,
             .ffn = 25600, .vocab = 151936, .mrope_section = {24, 20, 20}, .rope_theta = 5e6, .norm_eps = 1e-6f,
             .max_positions = 262144},
    .vision = {.depth = 27, .hidden = 1152, .heads = 16, .ffn = 4304, .positions = 2304, .out_hidden = 5120,
               .deepstack = {8, 16, 24}, .n_deepstack = 3, VISION_CONSTANTS},
    .vvae = {.levels = 6, .channels = {128, 256, 256, 512, 512, 1024}, .res_blocks = 2,
             .space_down = {2, 2, 2, 2, 1, 1}, .time_down = {1, 2, 2, 1, 1, 1}, .latent_channels = 24,
             .norm_groups = 32, .vit_layers = 36, .vit_heads = 32, .vit_head_dim = 64, .vit_rope_ratio = 0.75f,
             .vit_rope_theta = 100, VVAE_CONSTANTS},
    .avae = {.encoder_dim = 64, .n_encoder_rates = 5, .encoder_rates = {2, 4, 4, 5, 5}, .latent_dim = 2048,
             .latent_channels = 32, .decoder_dim = 1024, .n_decoder_rates = 7,
             .decoder_rates = {5, 5, 2, 2, 2, 2, 2}, AVAE_CONSTANTS},
    .canvas_short_edge = 768, .canvas_max_pixels = 1032192, .reference_image_short_edge = 2048,
    .video_shift = 12, .audio_shift = 3};

/* lo + U * span in thousandths, so that the decimal text is exact. */
static void thousandths(uint64_t seed, const char *name, int lo, int span, int n, float *out) {
    uint64_t key = duet__hash64(seed, name);
    for (int i = 0; i < n; i++) {
        int value = lo + (int)(duet__mix64(key + (uint64_t)i) % (uint64_t)span);
        out[i] = (float)(value / 1000.0);
    }
}

static void derive(duet_model_config *c, uint64_t seed) {
    for (int i = 0; i < c->avae.n_decoder_rates; i++)
        c->avae.decoder_kernels[i] = 2 * c->avae.decoder_rates[i] - c->avae.decoder_rates[i] % 2;
    thousandths(seed, "vvae.mean", -900, 1800, c->vvae.latent_channels, c->vvae.latents_mean);
    thousandths(seed, "vvae.std", 1000, 1000, c->vvae.latent_channels, c->vvae.latents_std);
    thousandths(seed, "avae.mean", -400, 800, c->avae.latent_channels, c->avae.latents_mean);
    thousandths(seed, "avae.std", 1500, 1000, c->avae.latent_channels, c->avae.latents_std);
    c->canvas_multiple = c->vvae.space_ratio * c->dit.patch_w;
    c->fps = 24;
}

duet_status duet__synth_shape_get(const char *name, uint64_t seed, duet__synth_shape *out, duet_error *err) {
    *out = (duet__synth_shape){.shards = 3};
    if (strcmp(name, "tiny") == 0) {
        out->config = tiny[seed % 3];
        out->merges = tiny_merges[seed % 3];
    } else if (strcmp(name, "small") == 0) {
        out->config = small;
        out->merges = 1000;
        out->share_by_link = true;
    } else if (strcmp(name, "full") == 0) {
        out->config = full;
        out->shards = 0;
        out->share_by_link = true;
    } else {
        return duet_refuse(err, "shape", "invalid_value", name, "tiny", "must be tiny, small or full");
    }
    derive(&out->config, seed);
    return DUET_OK;
}
