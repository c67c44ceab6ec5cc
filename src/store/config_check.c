/* config_check.c - rules between values: what the networks divide by, multiply out or index with.
 *
 * Each rule is one line; the message names the component's configuration file and the keys' meaning with their values.
 * Frame counts (17n+5), 40 audio latents a second and the spatial ratio of 16 are fixed in the reference's code and in
 * ours: a model that says otherwise is refused instead of being run wrongly. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "store/config_int.h"

typedef struct checker {
    const duet__place *place;
    duet_component component;
    const char *file; /* where the values of the next rules stand; NULL = the component's main file */
    const char *index_file;
    duet_error *err;
    duet_status status;
} checker;

DUET_PRINTF(3, 4) static void rule(checker *c, bool holds, const char *fmt, ...) {
    if (holds || c->status != DUET_OK) return;
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *file = c->file ? c->file : c->place->layout->config_file[c->component];
    bool ref = c->component == DUET_COMPONENT_DIT && c->place->partition == DUET_REF2VA &&
               c->place->layout == &duet__layout_diffusers;
    c->status = duet_fail(c->err, DUET_E_MODEL, "%s/%s: %s", c->place->dir,
                          ref ? "transformer_ref/config.json" : file, text);
}

static void check_dit(checker *k, const duet_dit_config *c) {
    rule(k, (int64_t)c->heads * c->head_dim <= DUET__MAX_DIM, "heads times head size is too large (%d x %d)",
         c->heads, c->head_dim);
    rule(k, c->head_dim % 2 == 0, "head size must be even (got %d)", c->head_dim);
    rule(k, 6 * c->rope_freqs <= c->head_dim, "6 x %d rotary frequencies exceed the head size %d",
         c->rope_freqs, c->head_dim);
    rule(k, c->time_sinusoid % 2 == 0, "timestep input width must be even (got %d)", c->time_sinusoid);
    rule(k, c->patch_t == 1 && c->patch_h == c->patch_w, "patch_size must be [1, n, n] (got [%d, %d, %d])",
         c->patch_t, c->patch_h, c->patch_w);
    rule(k, c->hidden <= INT32_MAX / 18, "hidden size %d is too large", c->hidden);
}

static void check_text(checker *k, const duet_text_config *c, const duet_vision_config *v) {
    const int32_t *s = c->mrope_section;
    rule(k, c->heads % c->kv_heads == 0, "%d heads are not divisible by %d key-value heads", c->heads,
         c->kv_heads);
    rule(k, (int64_t)c->heads * c->head_dim <= DUET__MAX_DIM, "heads times head_dim is too large (%d x %d)",
         c->heads, c->head_dim);
    rule(k, c->head_dim % 2 == 0, "head_dim must be even (got %d)", c->head_dim);
    rule(k, s[0] + s[1] + s[2] == c->head_dim / 2,
         "mrope_section [%d, %d, %d] does not add up to head_dim / 2 = %d", s[0], s[1], s[2],
         c->head_dim / 2);
    rule(k, 3 * s[1] <= c->head_dim / 2 && 3 * s[2] <= c->head_dim / 2,
         "mrope_section [%d, %d, %d] cannot be interleaved in head_dim / 2 = %d", s[0], s[1], s[2],
         c->head_dim / 2);
    k->file = k->index_file;
    rule(k, c->tap_layer <= c->layers_in_file,
         "the state after layer %d is asked for (_minimax_h3.text_encoder_layer), but "
         "text_encoder/config.json has "
         "num_hidden_layers %d",
         c->tap_layer, c->layers_in_file);
    rule(k, c->tap_layer > v->n_deepstack,
         "_minimax_h3.text_encoder_layer %d must lie above the %d deepstack layers", c->tap_layer,
         v->n_deepstack);
    k->file = NULL;
    const int32_t ids[] = {c->vision_start_id, c->vision_end_id, c->image_pad_id, c->video_pad_id};
    for (int i = 0; i < 4; i++) {
        rule(k, ids[i] < c->vocab, "token id %d is not below vocab_size %d", ids[i], c->vocab);
        for (int j = 0; j < i; j++)
            rule(k, ids[i] != ids[j], "token id %d is given to two vision tokens", ids[i]);
    }
}

static void check_vision(checker *k, const duet_vision_config *v, int32_t text_hidden) {
    int32_t side = (int32_t)lround(sqrt(v->positions));
    rule(k, v->hidden % v->heads == 0, "vision hidden_size %d is not divisible by %d heads", v->hidden,
         v->heads);
    rule(k, v->hidden / v->heads % 4 == 0, "vision head size %d is not divisible by 4", v->hidden / v->heads);
    rule(k, side * side == v->positions, "num_position_embeddings %d is not a square", v->positions);
    rule(k, v->out_hidden == text_hidden, "vision out_hidden_size %d differs from the text hidden_size %d",
         v->out_hidden, text_hidden);
    rule(k, (int64_t)v->hidden * v->merge * v->merge <= DUET__MAX_DIM, "vision hidden_size %d is too large",
         v->hidden);
    for (int i = 0; i < v->n_deepstack; i++)
        rule(k, v->deepstack[i] < v->depth && (!i || v->deepstack[i] > v->deepstack[i - 1]),
             "deepstack_visual_indexes must rise and stay below depth %d", v->depth);
}

static void check_vvae(checker *k, const duet_vvae_config *c) {
    int32_t rotary = (int32_t)((double)c->vit_rope_ratio * c->vit_head_dim + 1e-4);
    for (int i = 0; i < c->levels; i++) {
        rule(k, c->channels[i] <= DUET__MAX_DIM, "%d channels are too many", c->channels[i]);
        rule(k, c->channels[i] % c->norm_groups == 0, "%d channels are not divisible by norm_num_groups %d",
             c->channels[i], c->norm_groups);
    }
    rule(k, c->space_ratio == 16, "the spatial strides must multiply to 16 (got %d)", c->space_ratio);
    rule(k, c->time_ratio == 4, "the temporal strides must multiply to 4 (got %d)", c->time_ratio);
    rule(k, rotary % 6 == 0 && rotary > 0, "rotary width %d of head size %d is not a positive multiple of 6",
         rotary, c->vit_head_dim);
    rule(k, (int64_t)c->vit_heads * c->vit_head_dim * c->vit_ffn_mult <= DUET__MAX_DIM,
         "the decoder is too wide (%d x %d x %d)", c->vit_heads, c->vit_head_dim, c->vit_ffn_mult);
    if (k->place->layout == &duet__layout_native)
        k->file = "video_vae/config.json"; /* run time, not structure */
    rule(k, c->clip_frames == 17 && c->token_drop == 3,
         "clip length 17 and token drop 3 are the only ones known: frames are counted as 17n+5 (got %d, %d)",
         c->clip_frames, c->token_drop);
    rule(k, c->tile_px % c->space_ratio == 0 && c->tile_overlap_px % c->space_ratio == 0,
         "tile size %d and overlap %d must be multiples of %d", c->tile_px, c->tile_overlap_px,
         c->space_ratio);
    rule(k, 2 * c->tile_overlap_px <= c->tile_px, "tile overlap %d exceeds half of the tile %d",
         c->tile_overlap_px, c->tile_px);
    k->file = NULL;
}

static void check_avae(checker *k, const duet_avae_config *c) {
    int64_t down = 1;
    for (int i = 0; i < c->n_encoder_rates && down <= 1 << 20; i++) down *= c->encoder_rates[i];
    rule(k, down == c->hop, "encoder rates multiply to %lld, decoder rates to %d", (long long)down, c->hop);
    rule(k, (int64_t)c->hop * 40 == c->sample_rate,
         "there must be 40 latents a second (sample rate %d, hop %d)", c->sample_rate, c->hop);
    rule(k, c->sample_rate == 32000, "sample rate must be 32000 (got %d)", c->sample_rate);
    rule(k, c->latent_dim % (c->attention_heads * c->latent_channels) == 0,
         "latent_dim %d is not divisible by %d heads x %d channels", c->latent_dim, c->attention_heads,
         c->latent_channels);
    rule(k, c->decoder_dim >> c->n_decoder_rates >= 1, "decoder_dim %d cannot be halved %d times",
         c->decoder_dim, c->n_decoder_rates);
    rule(k, (int64_t)c->encoder_dim << c->n_encoder_rates <= DUET__MAX_DIM, "encoder_dim %d grows too large",
         c->encoder_dim);
    for (int i = 0; i < c->n_decoder_rates; i++)
        rule(k,
             c->decoder_kernels[i] >= c->decoder_rates[i] &&
                 (c->decoder_kernels[i] - c->decoder_rates[i]) % 2 == 0,
             "upsampling kernel %d does not fit rate %d", c->decoder_kernels[i], c->decoder_rates[i]);
    for (int i = 0; i < c->n_res_kernels; i++)
        rule(k, c->res_kernels[i] % 2 == 1, "residual kernel %d must be odd", c->res_kernels[i]);
}

duet_status duet__config_check(const duet__place *place, const duet_model_config *c, const char *index_file,
                               duet_error *err) {
    bool has[DUET_N_COMPONENTS];
    for (int i = 0; i < DUET_N_COMPONENTS; i++) has[i] = place->components >> i & 1;
    checker k = {.place = place, .index_file = index_file, .err = err};
    if (has[DUET_COMPONENT_DIT]) check_dit(&k, &c->dit);
    k.component = DUET_COMPONENT_TEXT;
    if (has[DUET_COMPONENT_TEXT]) {
        check_text(&k, &c->text, &c->vision);
        check_vision(&k, &c->vision, c->text.hidden);
    }
    k.component = DUET_COMPONENT_VVAE;
    if (has[DUET_COMPONENT_VVAE]) check_vvae(&k, &c->vvae);
    k.component = DUET_COMPONENT_AVAE;
    if (has[DUET_COMPONENT_AVAE]) check_avae(&k, &c->avae);
    if (!has[DUET_COMPONENT_DIT]) return k.status;
    k.component = DUET_COMPONENT_DIT;
    if (has[DUET_COMPONENT_TEXT])
        rule(&k, c->dit.text_dim == c->text.hidden,
             "text_dim %d differs from the text encoder's hidden_size %d", c->dit.text_dim, c->text.hidden);
    if (has[DUET_COMPONENT_VVAE])
        rule(&k, c->dit.video_channels == c->vvae.latent_channels,
             "%d video channels, but the video VAE has %d", c->dit.video_channels, c->vvae.latent_channels);
    if (has[DUET_COMPONENT_AVAE])
        rule(&k, c->dit.audio_channels == c->avae.latent_channels,
             "%d audio channels, but the audio VAE has %d", c->dit.audio_channels, c->avae.latent_channels);
    return k.status;
}
