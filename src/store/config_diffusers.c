/* config_diffusers.c - the transformer's and the decoders' configurations in the diffusers layout (spec checkpoints
 * 1.2). These files spell out everything except the tile size, which their library fixes in code. */
#include <string.h>

#include "store/config_int.h"

duet_status duet__diffusers_dit(const duet__place *place, duet_model_config *out, duet_error *err) {
    static const duet__field fields[] = {
        DUET__INT(dit.hidden, "hidden_size", 1, DUET__MAX_DIM),
        DUET__INT(dit.layers, "num_layers", 1, DUET__MAX_LAYERS),
        DUET__INT(dit.refiner_layers, "num_refiner_layers", 1, DUET__MAX_LAYERS),
        DUET__INT(dit.heads, "num_attention_heads", 1, DUET__MAX_HEADS),
        DUET__INT(dit.head_dim, "attention_head_dim", 2, DUET__MAX_HEAD_DIM),
        DUET__INT(dit.ffn, "ffn_dim", 1, DUET__MAX_DIM),
        DUET__INT(dit.video_channels, "in_channels", 1, DUET_MAX_CHANNELS),
        DUET__INT(dit.audio_channels, "audio_in_channels", 1, DUET_MAX_CHANNELS),
        DUET__INT(dit.text_dim, "text_dim", 1, DUET__MAX_DIM),
        DUET__INT(dit.time_sinusoid, "freq_dim", 2, DUET__MAX_DIM),
        DUET__INT(dit.time_hidden, "time_embed_hidden_dim", 1, DUET__MAX_DIM),
        DUET__INT(dit.time_dim, "time_embed_dim", 1, DUET__MAX_DIM),
        DUET__INT(dit.rope_freqs, "rope_freq_dim", 1, DUET__MAX_HEAD_DIM),
        DUET__WIDE(dit.rope_theta, "rope_theta", 1.0, 1e9),
        DUET__REAL(dit.norm_eps, "norm_eps", 1e-12, 0.1),
        DUET__REAL(dit.qk_norm_eps, "qk_norm_eps", 1e-12, 0.1),
        DUET__REAL(dit.final_norm_eps, "final_norm_eps", 1e-12, 0.1)};
    static const duet__must musts[] = {{"_class_name", "\"MiniMaxH3Transformer3DModel\""}};
    duet__doc doc;
    duet_status st;
    TRY(st, fail, duet__open_config(place, duet__dit_dir(place), "config.json", &doc, err));
    TRY(st, fail, duet__read_musts(&doc, musts, DUET__COUNT(musts), err));
    TRY(st, fail, duet__read_fields(&doc, fields, DUET__COUNT(fields), out, err));
    TRY(st, fail, duet__read_patch(&doc, &out->dit, err));
fail:
    duet__doc_close(&doc);
    return st;
}

duet_status duet__diffusers_vvae(const duet__place *place, duet_model_config *out, duet_error *err) {
    static const duet__field fields[] = {
        DUET__INT(vvae.latent_channels, "latent_channels", 1, DUET_MAX_CHANNELS),
        DUET__INT(vvae.res_blocks, "layers_per_block", 1, 64),
        DUET__INT(vvae.norm_groups, "norm_num_groups", 1, 1024),
        DUET__REAL(vvae.group_norm_eps, "norm_eps", 1e-12, 0.1),
        DUET__INT(vvae.vit_layers, "decoder_num_layers", 1, DUET__MAX_LAYERS),
        DUET__INT(vvae.vit_heads, "decoder_num_attention_heads", 1, DUET__MAX_HEADS),
        DUET__INT(vvae.vit_head_dim, "decoder_attention_head_dim", 2, DUET__MAX_HEAD_DIM),
        DUET__INT(vvae.vit_registers, "decoder_num_register_tokens", 1, 64),
        DUET__INT(vvae.vit_ffn_mult, "decoder_ffn_mult", 1, 64),
        DUET__REAL(vvae.vit_rope_theta, "decoder_rope_theta", 1.0, 1e9),
        DUET__REAL(vvae.vit_rope_ratio, "decoder_rope_dim_ratio", 0.0, 1.0),
        DUET__REAL(vvae.vit_norm_eps, "decoder_norm_eps", 1e-12, 0.1),
        DUET__INT(vvae.clip_frames, "clip_length", 1, 1024),
        DUET__INT(vvae.token_drop, "token_drop", 0, 1024)};
    static const duet__must musts[] = {{"_class_name", "\"AutoencoderKLMiniMaxH3\""},
                                       {"in_channels", "3"},
                                       {"out_channels", "3"},
                                       {"spatial_padding_mode", "\"reflect\""}};
    duet_vvae_config *c = &out->vvae;
    duet__doc doc;
    duet_status st;
    int32_t n_space, n_time;
    duet__vvae_constants(c);
    TRY(st, fail, duet__open_config(place, "vae", "config.json", &doc, err));
    TRY(st, fail, duet__read_musts(&doc, musts, DUET__COUNT(musts), err));
    TRY(st, fail, duet__read_fields(&doc, fields, DUET__COUNT(fields), out, err));
    TRY(st, fail,
        duet__doc_i32s(&doc, "block_out_channels", DUET_MAX_LEVELS, 1, 1 << 20, c->channels, &c->levels,
                       err));
    TRY(st, fail,
        duet__doc_i32s(&doc, "spatial_downsample_factors", DUET_MAX_LEVELS, 1, 2, c->space_down, &n_space,
                       err));
    TRY(st, fail,
        duet__doc_i32s(&doc, "temporal_downsample_factors", DUET_MAX_LEVELS, 1, 2, c->time_down, &n_time,
                       err));
    if (n_space != c->levels || n_time != c->levels)
        st =
            duet_fail(err, DUET_E_MODEL,
                      "%s: block_out_channels, spatial_ and temporal_downsample_factors must be equally long "
                      "(got %d, %d, %d)",
                      doc.label, c->levels, n_space, n_time);
    if (st != DUET_OK) goto fail;
    TRY(st, fail, duet__read_f32s(&doc, "latents_mean", c->latent_channels, -1e6, 1e6, c->latents_mean, err));
    TRY(st, fail, duet__read_f32s(&doc, "latents_std", c->latent_channels, 1e-6, 1e6, c->latents_std, err));
fail:
    duet__doc_close(&doc);
    return st;
}

/* One list of dilations for each kernel; the network has one for all. */
static duet_status read_dilations(const duet__doc *doc, duet_avae_config *c, duet_error *err) {
    json_t *lists = duet__doc_get(doc, "resblock_dilation_sizes"), *first = json_array_get(lists, 0);
    bool ok = json_array_size(lists) == (size_t)c->n_res_kernels && json_array_size(first) >= 1 &&
              json_array_size(first) <= DUET_MAX_KERNELS;
    for (size_t i = 0; ok && i < json_array_size(lists); i++)
        ok = json_equal(json_array_get(lists, i), first);
    for (size_t i = 0; ok && i < json_array_size(first); i++) {
        json_int_t value = json_integer_value(json_array_get(first, i)); /* 0 when not an integer */
        ok = value >= 1 && value <= 64;
        c->res_dilations[i] = (int32_t)value;
    }
    c->n_res_dilations = (int32_t)json_array_size(first);
    if (ok) return DUET_OK;
    return duet_fail(
        err, DUET_E_MODEL,
        "%s: key resblock_dilation_sizes must repeat one list of 1 to %d numbers for each kernel", doc->label,
        DUET_MAX_KERNELS);
}

duet_status duet__diffusers_avae(const duet__place *place, duet_model_config *out, duet_error *err) {
    static const duet__field fields[] = {
        DUET__INT(avae.encoder_dim, "encoder_dim", 1, 1 << 14),
        DUET__INT(avae.latent_dim, "latent_dim", 1, DUET__MAX_DIM),
        DUET__INT(avae.latent_channels, "latent_channels", 1, DUET_MAX_CHANNELS),
        DUET__INT(avae.attention_heads, "num_attention_heads", 1, 256),
        DUET__INT(avae.decoder_dim, "decoder_dim", 2, 1 << 16),
        DUET__INT(avae.sample_rate, "sampling_rate", 1000, 384000)};
    static const duet__must musts[] = {{"_class_name", "\"AutoencoderKLMiniMaxH3Audio\""}};
    duet_avae_config *c = &out->avae;
    duet__doc doc;
    duet_status st;
    int32_t n_kernels;
    TRY(st, fail, duet__open_config(place, "audio_vae", "config.json", &doc, err));
    TRY(st, fail, duet__read_musts(&doc, musts, DUET__COUNT(musts), err));
    TRY(st, fail, duet__read_fields(&doc, fields, DUET__COUNT(fields), out, err));
    TRY(st, fail,
        duet__doc_i32s(&doc, "encoder_rates", DUET_MAX_RATES, 1, 64, c->encoder_rates, &c->n_encoder_rates,
                       err));
    TRY(st, fail,
        duet__doc_i32s(&doc, "decoder_rates", DUET_MAX_RATES, 1, 64, c->decoder_rates, &c->n_decoder_rates,
                       err));
    TRY(st, fail,
        duet__doc_i32s(&doc, "decoder_kernel_sizes", DUET_MAX_RATES, 1, 128, c->decoder_kernels, &n_kernels,
                       err));
    TRY(st, fail,
        duet__doc_i32s(&doc, "resblock_kernel_sizes", DUET_MAX_KERNELS, 1, 63, c->res_kernels,
                       &c->n_res_kernels, err));
    if (n_kernels != c->n_decoder_rates)
        st = duet_fail(err, DUET_E_MODEL,
                       "%s: decoder_rates and decoder_kernel_sizes must be equally long (got %d, %d)",
                       doc.label, c->n_decoder_rates, n_kernels);
    if (st != DUET_OK) goto fail;
    TRY(st, fail, read_dilations(&doc, c, err));
    TRY(st, fail, duet__read_f32s(&doc, "latents_mean", c->latent_channels, -1e6, 1e6, c->latents_mean, err));
    TRY(st, fail, duet__read_f32s(&doc, "latents_std", c->latent_channels, 1e-6, 1e6, c->latents_std, err));
fail:
    duet__doc_close(&doc);
    return st;
}
