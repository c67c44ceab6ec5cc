/* config.h - every dimension and constant of a model, read from its own configuration files.
 *
 * Nothing above the store knows a file name or a JSON key; nothing anywhere is hard-wired to the released
 * sizes. Where each value stands in which layout: spec checkpoints 1.1 and 1.2. Derived values are filled by
 * the reader. */
#ifndef DUET_STORE_CONFIG_H
#define DUET_STORE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

enum {
    DUET_MAX_LEVELS = 8,
    DUET_MAX_CHANNELS = 64,
    DUET_MAX_RATES = 12,
    DUET_MAX_DEEPSTACK = 8,
    DUET_MAX_KERNELS = 4
};

typedef struct duet_dit_config {
    int32_t hidden, layers, refiner_layers, heads, head_dim, ffn;
    int32_t video_channels, audio_channels; /* latent channels */
    int32_t patch_t, patch_h, patch_w;      /* patch_t is 1 */
    int32_t text_dim, time_sinusoid, time_hidden, time_dim;
    int32_t rope_freqs; /* per axis; rotary dims = 2*3*rope_freqs */
    double rope_theta;  /* only where no rope.inv_freq tensor exists */
    float norm_eps, qk_norm_eps, final_norm_eps;
} duet_dit_config;

typedef struct duet_text_config {
    int32_t hidden, layers_in_file, tap_layer; /* state after tap_layer layers, un-normed */
    int32_t heads, kv_heads, head_dim, ffn, vocab;
    int32_t mrope_section[3];
    double rope_theta;
    float norm_eps;
    int32_t max_positions;
    int32_t vision_start_id, vision_end_id, image_pad_id, video_pad_id;
} duet_text_config;

typedef struct duet_vision_config { /* read and checked now, run by a later task */
    int32_t depth, hidden, heads, ffn, patch, temporal_patch, merge, positions, out_hidden, in_channels;
    int32_t deepstack[DUET_MAX_DEEPSTACK], n_deepstack;
} duet_vision_config;

typedef struct duet_vvae_config {
    int32_t levels, channels[DUET_MAX_LEVELS], res_blocks;
    int32_t space_down[DUET_MAX_LEVELS], time_down[DUET_MAX_LEVELS];
    int32_t space_ratio, time_ratio; /* products: 16 and 4 */
    int32_t latent_channels, norm_groups;
    float group_norm_eps;
    int32_t vit_layers, vit_heads, vit_head_dim, vit_ffn_mult, vit_registers;
    float vit_norm_eps, vit_rope_ratio, vit_rope_theta;
    int32_t clip_frames, token_drop, tile_px, tile_overlap_px;
    float latents_mean[DUET_MAX_CHANNELS], latents_std[DUET_MAX_CHANNELS];
} duet_vvae_config;

typedef struct duet_avae_config {
    int32_t encoder_dim, n_encoder_rates, encoder_rates[DUET_MAX_RATES], latent_dim;
    int32_t latent_channels, attention_heads;
    int32_t decoder_dim, n_decoder_rates, decoder_rates[DUET_MAX_RATES], decoder_kernels[DUET_MAX_RATES];
    int32_t n_res_kernels, res_kernels[DUET_MAX_KERNELS], n_res_dilations, res_dilations[DUET_MAX_KERNELS];
    int32_t sample_rate, hop; /* hop = product of the decoder rates */
    float latents_mean[DUET_MAX_CHANNELS], latents_std[DUET_MAX_CHANNELS];
} duet_avae_config;

typedef enum duet_partition { DUET_FL2VA = 0, DUET_REF2VA = 1, DUET_N_PARTITIONS = 2 } duet_partition;

typedef struct duet_model_config {
    duet_dit_config dit; /* of the chosen partition */
    duet_text_config text;
    duet_vision_config vision;
    duet_vvae_config vvae;
    duet_avae_config avae;
    int32_t canvas_short_edge, canvas_max_pixels, reference_image_short_edge;
    double video_shift, audio_shift; /* sigma_shift_scales */
    int32_t n_base_schedule;         /* 0 = linspace */
    double base_schedule[256];       /* unshifted positions, strictly decreasing, last 0 */
    int32_t canvas_multiple;         /* space_ratio * patch_w: 32 */
    int32_t fps;                     /* 24 */
} duet_model_config;

#endif
