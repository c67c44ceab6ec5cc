/* config_read.c - tables of keys for the native layout and for the text encoder (the same in both layouts).
 *
 * Where each value stands: spec checkpoints 1.1. A table row gives key, member and range; lists and derived values
 * follow the table. The reader stops at the first value it does not accept, naming file, key and range. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/config_int.h"
#include "store/file.h"

/* ---- tables ---------------------------------------------------------------------------------------------------- */

duet_status duet__read_fields(const duet__doc *doc, const duet__field *fields, int n, duet_model_config *out,
                              duet_error *err) {
    for (int i = 0; i < n; i++) {
        const duet__field *f = &fields[i];
        char *at = (char *)out + f->at;
        int64_t whole = 0;
        double real = 0;
        duet_status st = f->kind == DUET__I32
                             ? duet__doc_i64(doc, f->key, (int64_t)f->lo, (int64_t)f->hi, &whole, err)
                             : duet__doc_f64(doc, f->key, f->lo, f->hi, &real, err);
        if (st != DUET_OK) return st;
        if (f->kind == DUET__I32) *(int32_t *)(void *)at = (int32_t)whole;
        if (f->kind == DUET__F32) *(float *)(void *)at = (float)real;
        if (f->kind == DUET__F64) *(double *)(void *)at = real;
    }
    return DUET_OK;
}

duet_status duet__read_musts(const duet__doc *doc, const duet__must *musts, int n, duet_error *err) {
    for (int i = 0; i < n; i++) {
        if (!duet__doc_has(doc, musts[i].key)) continue;
        char *text = json_dumps(duet__doc_get(doc, musts[i].key), JSON_COMPACT | JSON_ENCODE_ANY);
        bool same = text && strcmp(text, musts[i].text) == 0;
        duet_status st = same ? DUET_OK
                              : duet_fail(err, DUET_E_MODEL, "%s: key %s must be %s (got %.80s)", doc->label,
                                          musts[i].key, musts[i].text, text ? text : "?");
        free(text);
        if (st != DUET_OK) return st;
    }
    return DUET_OK;
}

duet_status duet__read_f32s(const duet__doc *doc, const char *key, int32_t n, double lo, double hi,
                            float *out, duet_error *err) {
    double wide[DUET_MAX_CHANNELS];
    int32_t got;
    duet_status st = duet__doc_f64s(doc, key, DUET_MAX_CHANNELS, lo, hi, wide, &got, err);
    if (st != DUET_OK) return st;
    if (got != n)
        return duet_fail(err, DUET_E_MODEL, "%s: key %s must have %d entries, one a channel (got %d)",
                         doc->label, key, n, got);
    for (int32_t i = 0; i < n; i++) out[i] = (float)wide[i];
    return DUET_OK;
}

duet_status duet__open_config(const duet__place *place, const char *folder, const char *file, duet__doc *out,
                              duet_error *err) {
    char path[DUET__PATH_BYTES];
    *out = (duet__doc){0};
    if (!duet__join(path, sizeof path, place->dir, folder, file, NULL))
        return duet_fail(err, DUET_E_MODEL, "%s: the path is too long", place->dir);
    return duet__doc_open(path, out, err);
}

const char *duet__dit_dir(const duet__place *place) {
    return place->partition == DUET_REF2VA ? place->layout->dir_ref : place->layout->dir[DUET_COMPONENT_DIT];
}

/* ---- transformer ------------------------------------------------------------------------------------------------ */

duet_status duet__read_patch(const duet__doc *doc, duet_dit_config *out, duet_error *err) {
    int32_t patch[3], n;
    duet_status st = duet__doc_i32s(doc, "patch_size", 3, 1, 16, patch, &n, err);
    if (st != DUET_OK) return st;
    if (n != 3)
        return duet_fail(err, DUET_E_MODEL, "%s: key patch_size must have 3 entries (got %d)", doc->label, n);
    out->patch_t = patch[0];
    out->patch_h = patch[1];
    out->patch_w = patch[2];
    return DUET_OK;
}

static duet_status native_dit(const duet__place *place, duet_model_config *out, duet_error *err) {
    static const duet__field fields[] = {
        DUET__INT(dit.hidden, "hidden_size", 1, DUET__MAX_DIM),
        DUET__INT(dit.layers, "num_layers", 1, DUET__MAX_LAYERS),
        DUET__INT(dit.refiner_layers, "token_refiner_num_layers", 1, DUET__MAX_LAYERS),
        DUET__INT(dit.heads, "num_attention_heads", 1, DUET__MAX_HEADS),
        DUET__INT(dit.head_dim, "attention_head_dim", 2, DUET__MAX_HEAD_DIM),
        DUET__INT(dit.ffn, "ffn_hidden_size", 1, DUET__MAX_DIM),
        DUET__INT(dit.video_channels, "latents_dim", 1, DUET_MAX_CHANNELS),
        DUET__INT(dit.audio_channels, "audio_latents_dim", 1, DUET_MAX_CHANNELS),
        DUET__INT(dit.text_dim, "text_dim", 1, DUET__MAX_DIM),
        DUET__INT(dit.time_sinusoid, "timestep_input_dim", 2, DUET__MAX_DIM),
        DUET__INT(dit.time_hidden, "time_embed_hidden_size", 1, DUET__MAX_DIM),
        DUET__INT(dit.time_dim, "time_embed_dim", 1, DUET__MAX_DIM),
        DUET__INT(dit.rope_freqs, "rope_inv_freq_len", 1, DUET__MAX_HEAD_DIM),
        DUET__REAL(dit.norm_eps, "norm_eps", 1e-12, 0.1),
        DUET__REAL(dit.qk_norm_eps, "qk_norm_eps", 1e-12, 0.1),
        DUET__REAL(dit.final_norm_eps, "final_norm_eps", 1e-12, 0.1)};
    static const duet__must musts[] = {{"_class_name", "\"MiniMaxH3DiTModel\""}};
    duet__doc doc;
    duet_status st;
    TRY(st, fail, duet__open_config(place, "transformer", "config.json", &doc, err));
    TRY(st, fail, duet__read_musts(&doc, musts, DUET__COUNT(musts), err));
    TRY(st, fail, duet__read_fields(&doc, fields, DUET__COUNT(fields), out, err));
    TRY(st, fail, duet__read_patch(&doc, &out->dit, err));
    const struct {
        const char *key;
        int64_t want;
    } derived[] = {{"adaln_out_features", 18 * (int64_t)out->dit.hidden},
                   {"final_adaln_out_features", 2 * (int64_t)out->dit.hidden}};
    for (int i = 0; i < 2 && st == DUET_OK; i++) {
        int64_t got;
        if (duet__doc_has(&doc, derived[i].key))
            st = duet__doc_i64(&doc, derived[i].key, derived[i].want, derived[i].want, &got, err);
    }
fail:
    duet__doc_close(&doc);
    return st;
}

/* ---- text encoder and vision tower ------------------------------------------------------------------------------ */

static duet_status read_rope(const duet__doc *doc, duet_text_config *out, duet_error *err) {
    /* Newer writers put the base beside the sections. */
    bool merged = duet__doc_has(doc, "text_config.rope_parameters");
    const char *sections =
        merged ? "text_config.rope_parameters.mrope_section" : "text_config.rope_scaling.mrope_section";
    const char *theta = merged ? "text_config.rope_parameters.rope_theta" : "text_config.rope_theta";
    static const duet__must musts[] = {{"text_config.rope_scaling.mrope_interleaved", "true"},
                                       {"text_config.rope_scaling.rope_type", "\"default\""},
                                       {"text_config.rope_parameters.mrope_interleaved", "true"},
                                       {"text_config.rope_parameters.rope_type", "\"default\""}};
    int32_t n;
    duet_status st;
    TRY(st, fail, duet__doc_i32s(doc, sections, 3, 0, DUET__MAX_HEAD_DIM, out->mrope_section, &n, err));
    if (n != 3)
        return duet_fail(err, DUET_E_MODEL, "%s: key %s must have 3 entries (got %d)", doc->label, sections,
                         n);
    TRY(st, fail, duet__doc_f64(doc, theta, 1.0, 1e12, &out->rope_theta, err));
    TRY(st, fail, duet__read_musts(doc, musts, DUET__COUNT(musts), err));
fail:
    return st;
}

static duet_status text_encoder(const duet__place *place, duet_model_config *out, duet_error *err) {
    static const duet__field fields[] = {
        DUET__INT(text.hidden, "text_config.hidden_size", 1, DUET__MAX_DIM),
        DUET__INT(text.layers_in_file, "text_config.num_hidden_layers", 1, DUET__MAX_LAYERS),
        DUET__INT(text.heads, "text_config.num_attention_heads", 1, DUET__MAX_HEADS),
        DUET__INT(text.kv_heads, "text_config.num_key_value_heads", 1, DUET__MAX_HEADS),
        DUET__INT(text.head_dim, "text_config.head_dim", 2, DUET__MAX_HEAD_DIM),
        DUET__INT(text.ffn, "text_config.intermediate_size", 1, DUET__MAX_DIM),
        DUET__INT(text.vocab, "text_config.vocab_size", 1, 1 << 22),
        DUET__INT(text.max_positions, "text_config.max_position_embeddings", 1, 1 << 30),
        DUET__REAL(text.norm_eps, "text_config.rms_norm_eps", 1e-12, 0.1),
        DUET__INT(text.vision_start_id, "vision_start_token_id", 0, 1 << 22),
        DUET__INT(text.vision_end_id, "vision_end_token_id", 0, 1 << 22),
        DUET__INT(text.image_pad_id, "image_token_id", 0, 1 << 22),
        DUET__INT(text.video_pad_id, "video_token_id", 0, 1 << 22),
        DUET__INT(vision.depth, "vision_config.depth", 1, DUET__MAX_LAYERS),
        DUET__INT(vision.hidden, "vision_config.hidden_size", 1, DUET__MAX_DIM),
        DUET__INT(vision.heads, "vision_config.num_heads", 1, DUET__MAX_HEADS),
        DUET__INT(vision.ffn, "vision_config.intermediate_size", 1, DUET__MAX_DIM),
        DUET__INT(vision.patch, "vision_config.patch_size", 1, 64),
        DUET__INT(vision.temporal_patch, "vision_config.temporal_patch_size", 1, 16),
        DUET__INT(vision.merge, "vision_config.spatial_merge_size", 1, 8),
        DUET__INT(vision.positions, "vision_config.num_position_embeddings", 1, 1 << 20),
        DUET__INT(vision.out_hidden, "vision_config.out_hidden_size", 1, DUET__MAX_DIM),
        DUET__INT(vision.in_channels, "vision_config.in_channels", 3, 3)};
    static const duet__must musts[] = {{"model_type", "\"qwen3_vl\""},
                                       {"text_config.attention_bias", "false"},
                                       {"text_config.hidden_act", "\"silu\""},
                                       {"vision_config.hidden_act", "\"gelu_pytorch_tanh\""}};
    duet__doc doc;
    duet_status st;
    TRY(st, fail, duet__open_config(place, "text_encoder", "config.json", &doc, err));
    TRY(st, fail, duet__read_musts(&doc, musts, DUET__COUNT(musts), err));
    TRY(st, fail, duet__read_fields(&doc, fields, DUET__COUNT(fields), out, err));
    TRY(st, fail, read_rope(&doc, &out->text, err));
    TRY(st, fail,
        duet__doc_i32s(&doc, "vision_config.deepstack_visual_indexes", DUET_MAX_DEEPSTACK, 0,
                       DUET__MAX_LAYERS, out->vision.deepstack, &out->vision.n_deepstack, err));
fail:
    duet__doc_close(&doc);
    return st;
}

/* ---- video VAE -------------------------------------------------------------------------------------------------- */

void duet__vvae_constants(duet_vvae_config *out) {
    out->group_norm_eps = 1e-6f;
    out->norm_groups = 32;
    out->vit_registers = 4;
    out->vit_ffn_mult = 4;
    out->vit_norm_eps = 1e-5f;
    out->tile_px = 256;
    out->tile_overlap_px = 64;
}

static duet_status vvae_source(const duet__place *place, duet_model_config *out, duet_error *err) {
    static const duet__field fields[] = {
        DUET__INT(vvae.res_blocks, "num_res_blocks", 1, 64),
        DUET__INT(vvae.latent_channels, "z_channels", 1, DUET_MAX_CHANNELS),
        DUET__INT(vvae.vit_layers, "vit_decoder_kwargs.num_layers", 1, DUET__MAX_LAYERS),
        DUET__INT(vvae.vit_heads, "vit_decoder_kwargs.heads", 1, DUET__MAX_HEADS),
        DUET__INT(vvae.vit_head_dim, "vit_decoder_kwargs.dim_head", 2, DUET__MAX_HEAD_DIM),
        DUET__REAL(vvae.vit_rope_ratio, "vit_decoder_kwargs.rope_dim_ratio", 0.0, 1.0),
        DUET__REAL(vvae.vit_rope_theta, "vit_decoder_kwargs.rope_theta", 1.0, 1e9)};
    static const duet__field groups[] = {DUET__INT(vvae.norm_groups, "norm_num_groups", 1, 1024)};
    static const duet__must musts[] = {{"_class_name", "\"AutoencoderKLLegacy\""},
                                       {"causal_encoder", "true"},
                                       {"causal_decoder", "false"},
                                       {"in_channels", "3"},
                                       {"out_ch", "3"},
                                       {"padding_mode", "\"reflect\""},
                                       {"pixel_norm_type", "\"imagenet\""},
                                       {"use_3d_conv", "true"},
                                       {"use_t_isolated_gn", "true"},
                                       {"use_vit_decoder", "true"},
                                       {"vit_decoder_kwargs.ffn_activation_fn", "\"silu\""},
                                       {"vit_decoder_kwargs.ffn_use_gated", "true"},
                                       {"vit_decoder_kwargs.norm_affine", "true"},
                                       {"vit_decoder_kwargs.norm_type", "\"rms_norm\""},
                                       {"vit_decoder_kwargs.qk_norm_affine", "false"},
                                       {"vit_decoder_kwargs.qk_norm_type", "\"rms_norm\""}};
    duet_vvae_config *c = &out->vvae;
    duet__doc doc;
    duet_status st;
    int32_t n_space, n_time;
    int64_t ch;
    TRY(st, fail, duet__open_config(place, "video_vae/source", "config.json", &doc, err));
    TRY(st, fail, duet__read_musts(&doc, musts, DUET__COUNT(musts), err));
    TRY(st, fail, duet__read_fields(&doc, fields, DUET__COUNT(fields), out, err));
    if (duet__doc_has(&doc, groups[0].key)) TRY(st, fail, duet__read_fields(&doc, groups, 1, out, err));
    TRY(st, fail, duet__doc_i64(&doc, "ch", 1, 1 << 14, &ch, err));
    TRY(st, fail, duet__doc_i32s(&doc, "ch_mult", DUET_MAX_LEVELS, 1, 64, c->channels, &c->levels, err));
    for (int i = 0; i < c->levels; i++) c->channels[i] *= (int32_t)ch;
    TRY(st, fail, duet__doc_i32s(&doc, "space_down", DUET_MAX_LEVELS, 1, 2, c->space_down, &n_space, err));
    TRY(st, fail, duet__doc_i32s(&doc, "time_down", DUET_MAX_LEVELS, 1, 2, c->time_down, &n_time, err));
    if (n_space != c->levels || n_time != c->levels)
        st = duet_fail(err, DUET_E_MODEL,
                       "%s: ch_mult, space_down and time_down must be equally long (got %d, %d, %d)",
                       doc.label, c->levels, n_space, n_time);
fail:
    duet__doc_close(&doc);
    return st;
}

static duet_status native_vvae(const duet__place *place, duet_model_config *out, duet_error *err) {
    static const duet__field fields[] = {DUET__INT(vvae.clip_frames, "vae_clip_length", 1, 1024),
                                         DUET__INT(vvae.token_drop, "vae_token_drop", 0, 1024),
                                         DUET__INT(vvae.tile_px, "vae_tile_size", 32, 4096),
                                         DUET__INT(vvae.tile_overlap_px, "vae_tile_overlap_min", 16, 2048)};
    static const duet__must musts[] = {{"_class_name", "\"MiniMaxH3VideoVAE\""},
                                       {"source_path", "\"source\""},
                                       {"source_safetensors_path", "\"model.safetensors\""},
                                       {"vae_decoder_tiling", "1"}};
    duet_vvae_config *c = &out->vvae;
    duet__doc doc;
    duet_status st;
    int64_t channels;
    duet__vvae_constants(c);
    TRY(st, fail, duet__open_config(place, "video_vae", "config.json", &doc, err));
    TRY(st, fail, duet__read_musts(&doc, musts, DUET__COUNT(musts), err));
    TRY(st, fail, duet__read_fields(&doc, fields, DUET__COUNT(fields), out, err));
    TRY(st, fail, vvae_source(place, out, err));
    if (duet__doc_has(&doc, "latent_channels"))
        TRY(st, fail,
            duet__doc_i64(&doc, "latent_channels", c->latent_channels, c->latent_channels, &channels, err));
    TRY(st, fail, duet__read_f32s(&doc, "latents_mean", c->latent_channels, -1e6, 1e6, c->latents_mean, err));
    TRY(st, fail, duet__read_f32s(&doc, "latents_std", c->latent_channels, 1e-6, 1e6, c->latents_std, err));
fail:
    duet__doc_close(&doc);
    return st;
}

/* ---- audio VAE -------------------------------------------------------------------------------------------------- */

void duet__avae_constants(duet_avae_config *out) {
    static const int32_t kernels[] = {3, 7, 11}, dilations[] = {1, 3, 5};
    out->attention_heads = 8;
    out->n_res_kernels = out->n_res_dilations = 3;
    memcpy(out->res_kernels, kernels, sizeof kernels);
    memcpy(out->res_dilations, dilations, sizeof dilations);
}

static duet_status avae_metadata(const duet__place *place, duet_model_config *out, duet_error *err) {
#define KEY(name) "metadata.kwargs." name
    static const duet__field fields[] = {
        DUET__INT(avae.encoder_dim, KEY("encoder_dim"), 1, 1 << 14),
        DUET__INT(avae.latent_dim, KEY("latent_dim"), 1, DUET__MAX_DIM),
        DUET__INT(avae.decoder_dim, KEY("decoder_dim"), 2, 1 << 16),
        DUET__INT(avae.latent_channels, KEY("vae_latent_channels"), 1, DUET_MAX_CHANNELS),
        DUET__INT(avae.sample_rate, KEY("sample_rate"), 1000, 384000)};
    static const duet__must musts[] = {{KEY("attn_proj"), "true"}, {KEY("decoder_type"), "\"bigvgan\""}};
    duet_avae_config *c = &out->avae;
    duet__doc doc;
    duet_status st;
    TRY(st, fail, duet__open_config(place, "audio_vae", "metadata.json", &doc, err));
    TRY(st, fail, duet__read_musts(&doc, musts, DUET__COUNT(musts), err));
    TRY(st, fail, duet__read_fields(&doc, fields, DUET__COUNT(fields), out, err));
    TRY(st, fail,
        duet__doc_i32s(&doc, KEY("encoder_rates"), DUET_MAX_RATES, 1, 64, c->encoder_rates,
                       &c->n_encoder_rates, err));
    TRY(st, fail,
        duet__doc_i32s(&doc, KEY("decoder_rates"), DUET_MAX_RATES, 1, 64, c->decoder_rates,
                       &c->n_decoder_rates, err));
    for (int i = 0; i < c->n_decoder_rates; i++)
        c->decoder_kernels[i] = 2 * c->decoder_rates[i] - c->decoder_rates[i] % 2;
#undef KEY
fail:
    duet__doc_close(&doc);
    return st;
}

static duet_status native_avae(const duet__place *place, duet_model_config *out, duet_error *err) {
    static const duet__must musts[] = {{"_class_name", "\"MiniMaxH3AudioVAE\""},
                                       {"source_metadata_path", "\"metadata.json\""},
                                       {"source_safetensors_path", "\"model.safetensors\""}};
    duet_avae_config *c = &out->avae;
    duet__doc doc;
    duet_status st;
    int64_t same;
    duet__avae_constants(c);
    TRY(st, fail, duet__open_config(place, "audio_vae", "config.json", &doc, err));
    TRY(st, fail, duet__read_musts(&doc, musts, DUET__COUNT(musts), err));
    TRY(st, fail, avae_metadata(place, out, err));
    TRY(st, fail, duet__doc_i64(&doc, "sample_rate", c->sample_rate, c->sample_rate, &same, err));
    if (duet__doc_has(&doc, "latent_channels"))
        TRY(st, fail,
            duet__doc_i64(&doc, "latent_channels", c->latent_channels, c->latent_channels, &same, err));
    TRY(st, fail, duet__read_f32s(&doc, "latents_mean", c->latent_channels, -1e6, 1e6, c->latents_mean, err));
    TRY(st, fail, duet__read_f32s(&doc, "latents_std", c->latent_channels, 1e-6, 1e6, c->latents_std, err));
fail:
    duet__doc_close(&doc);
    return st;
}

/* ---- all of it -------------------------------------------------------------------------------------------------- */

static void derive(const duet__place *place, duet_model_config *c) {
    c->fps = 24;
    if (place->components & 1u << DUET_COMPONENT_VVAE) {
        c->vvae.space_ratio = c->vvae.time_ratio = 1;
        for (int i = 0; i < c->vvae.levels; i++) {
            c->vvae.space_ratio *= c->vvae.space_down[i];
            c->vvae.time_ratio *= c->vvae.time_down[i];
        }
        c->canvas_multiple = c->vvae.space_ratio * (c->dit.patch_w ? c->dit.patch_w : 1);
    }
    int64_t hop = c->avae.n_decoder_rates ? 1 : 0;
    for (int i = 0; i < c->avae.n_decoder_rates && hop <= 1 << 20; i++) hop *= c->avae.decoder_rates[i];
    c->avae.hop = (int32_t)hop;
}

duet_status duet__config_read(const duet__place *place, duet_model_config *out, duet__index *index,
                              duet_error *err) {
    bool native = place->layout == &duet__layout_native;
    duet_status (*const readers[2][DUET_N_COMPONENTS])(const duet__place *, duet_model_config *,
                                                       duet_error *) = {
        {native_dit, text_encoder, native_vvae, native_avae},
        {duet__diffusers_dit, text_encoder, duet__diffusers_vvae, duet__diffusers_avae}};
    *out = (duet_model_config){0};
    *index = (duet__index){0};
    duet_status st = DUET_OK;
    for (int c = 0; c < DUET_N_COMPONENTS && st == DUET_OK; c++)
        if (place->components >> c & 1) st = readers[!native][c](place, out, err);
    if (st == DUET_OK) st = duet__read_index(place, out, index, err);
    if (st != DUET_OK) return st;
    derive(place, out);
    return duet__config_check(place, out, index->file, err);
}
