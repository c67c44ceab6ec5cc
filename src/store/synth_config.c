/* synth_config.c - the configuration files of a generated checkpoint, as the release writes them, in both layouts.
 *
 * Numbers are kept in fp32 where the engine computes in fp32; their decimal text is the short one (1e-05), not the
 * fp32 value spelled out, so that every reader rounds to the same number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "store/file.h"
#include "store/safetensors_write.h"
#include "store/synth_int.h"

static json_t *real(float value) {
    char text[32];
    snprintf(text, sizeof text, "%.7g", (double)value);
    return json_real(strtod(text, NULL));
}

static json_t *reals(const float *values, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, real(values[i]));
    return list;
}

static json_t *ints(const int32_t *values, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, json_integer(values[i]));
    return list;
}

static json_t *whole(double value) { /* thetas are whole numbers in the released text configuration */
    return json_integer((json_int_t)value);
}

duet_status duet__synth_put_text(const duet__synth_job *job, const char *folder, const char *file,
                                 const char *text, size_t bytes, duet_error *err) {
    char path[DUET__PATH_BYTES];
    if (!duet__join(path, sizeof path, job->root, folder, file, NULL))
        return duet_fail(err, DUET_E_IO, "%s: the path is too long", job->root);
    return duet_write_text(path, text, bytes, false, err);
}

duet_status duet__synth_put_json(const duet__synth_job *job, const char *folder, const char *file,
                                 json_t *json, duet_error *err) {
    char *text =
        json ? json_dumps(json, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(json);
    if (!text) return duet_fail(err, DUET_E_MEMORY, "%s/%s: no memory", folder, file);
    duet_status st = duet__synth_put_text(job, folder, file, text, strlen(text), err);
    free(text);
    return st;
}

/* ---- transformer --------------------------------------------------------------------------------------------- */

static json_t *dit_native(const duet_dit_config *c) {
    int32_t patch[] = {c->patch_t, c->patch_h, c->patch_w};
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:i, s:i, s:i, s:i, s:i, s:i, "
                     "s:i, s:o, s:o, "
                     "s:o}",
                     "_class_name", "MiniMaxH3DiTModel", "_diffusers_version", "0.32.2", "hidden_size",
                     c->hidden, "num_layers", c->layers, "token_refiner_num_layers", c->refiner_layers,
                     "num_attention_heads", c->heads, "attention_head_dim", c->head_dim, "ffn_hidden_size",
                     c->ffn, "latents_dim", c->video_channels, "audio_latents_dim", c->audio_channels,
                     "patch_size", ints(patch, 3), "text_dim", c->text_dim, "timestep_input_dim",
                     c->time_sinusoid, "time_embed_hidden_size", c->time_hidden, "time_embed_dim",
                     c->time_dim, "adaln_out_features", 18 * c->hidden, "final_adaln_out_features",
                     2 * c->hidden, "rope_inv_freq_len", c->rope_freqs, "norm_eps", real(c->norm_eps),
                     "qk_norm_eps", real(c->qk_norm_eps), "final_norm_eps", real(c->final_norm_eps));
}

static json_t *dit_diffusers(const duet_dit_config *c) {
    int32_t patch[] = {c->patch_t, c->patch_h, c->patch_w};
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:i, s:i, s:i, s:i, s:i, s:o, "
                     "s:o, s:o, s:o}",
                     "_class_name", "MiniMaxH3Transformer3DModel", "_diffusers_version", "0.36.0.dev0",
                     "num_attention_heads", c->heads, "attention_head_dim", c->head_dim, "hidden_size",
                     c->hidden, "num_layers", c->layers, "num_refiner_layers", c->refiner_layers, "ffn_dim",
                     c->ffn, "in_channels", c->video_channels, "audio_in_channels", c->audio_channels,
                     "patch_size", ints(patch, 3), "text_dim", c->text_dim, "freq_dim", c->time_sinusoid,
                     "time_embed_hidden_dim", c->time_hidden, "time_embed_dim", c->time_dim, "rope_freq_dim",
                     c->rope_freqs, "rope_theta", real((float)c->rope_theta), "norm_eps", real(c->norm_eps),
                     "qk_norm_eps", real(c->qk_norm_eps), "final_norm_eps", real(c->final_norm_eps));
}

duet_status duet__synth_transformer_config(const duet__synth_job *job, const char *folder, duet_error *err) {
    const duet_dit_config *c = &job->shape.config.dit;
    bool native = job->layout == &duet__layout_native;
    return duet__synth_put_json(job, folder, "config.json", native ? dit_native(c) : dit_diffusers(c), err);
}

/* ---- text encoder, tokenizer, processor ------------------------------------------------------------------------ */

static json_t *text_json(const duet_text_config *t, const duet__synth_tokenizer *tokenizer) {
    json_t *rope = json_pack("{s:b, s:o, s:s}", "mrope_interleaved", 1, "mrope_section",
                             ints(t->mrope_section, 3), "rope_type", "default");
    return json_pack("{s:b, s:f, s:i, s:s, s:i, s:i, s:s, s:i, s:f, s:i, s:i, s:s, s:i, s:i, s:i, s:o, s:o, "
                     "s:o, s:b, s:i}",
                     "attention_bias", 0, "attention_dropout", 0.0, "bos_token_id", tokenizer->end_of_text,
                     "dtype", "bfloat16", "eos_token_id", tokenizer->im_end, "head_dim", t->head_dim,
                     "hidden_act", "silu", "hidden_size", t->hidden, "initializer_range", 0.02,
                     "intermediate_size", t->ffn, "max_position_embeddings", t->max_positions, "model_type",
                     "qwen3_vl_text", "num_attention_heads", t->heads, "num_hidden_layers", t->layers_in_file,
                     "num_key_value_heads", t->kv_heads, "rms_norm_eps", real(t->norm_eps), "rope_scaling",
                     rope, "rope_theta", whole(t->rope_theta), "use_cache", 1, "vocab_size", t->vocab);
}

static json_t *vision_json(const duet_vision_config *v) {
    return json_pack("{s:o, s:i, s:s, s:i, s:i, s:f, s:i, s:s, s:i, s:i, s:i, s:i, s:i, s:i}",
                     "deepstack_visual_indexes", ints(v->deepstack, v->n_deepstack), "depth", v->depth,
                     "hidden_act", "gelu_pytorch_tanh", "hidden_size", v->hidden, "in_channels",
                     v->in_channels, "initializer_range", 0.02, "intermediate_size", v->ffn, "model_type",
                     "qwen3_vl", "num_heads", v->heads, "num_position_embeddings", v->positions,
                     "out_hidden_size", v->out_hidden, "patch_size", v->patch, "spatial_merge_size", v->merge,
                     "temporal_patch_size", v->temporal_patch);
}

static json_t *text_encoder(const duet__synth_job *job) {
    const duet__synth_tokenizer *t = &job->tokenizer;
    return json_pack("{s:[s], s:i, s:s, s:o, s:b, s:s, s:i, s:o, s:i, s:i}", "architectures",
                     "Qwen3VLForConditionalGeneration", "image_token_id", t->image_pad, "model_type",
                     "qwen3_vl", "text_config", text_json(&job->shape.config.text, t), "tie_word_embeddings",
                     0, "transformers_version", "4.57.0.dev0", "video_token_id", t->video_pad,
                     "vision_config", vision_json(&job->shape.config.vision), "vision_end_token_id",
                     t->vision_end, "vision_start_token_id", t->vision_start);
}

static json_t *preprocessor(int longest, int shortest, const char *kind_key, const char *kind) {
    return json_pack("{s:{s:i, s:i}, s:i, s:i, s:i, s:[f, f, f], s:[f, f, f], s:s, s:s}", "size",
                     "longest_edge", longest, "shortest_edge", shortest, "patch_size", 16,
                     "temporal_patch_size", 2, "merge_size", 2, "image_mean", 0.5, 0.5, 0.5, "image_std", 0.5,
                     0.5, 0.5, "processor_class", "Qwen3VLProcessor", kind_key, kind);
}

static duet_status tokenizer_files(const duet__synth_job *job, const char *folder, duet_error *err) {
    const duet__synth_tokenizer *t = &job->tokenizer;
    duet_status st;
    TRY(st, fail, duet__synth_put_text(job, folder, "vocab.json", t->vocab, t->vocab_bytes, err));
    TRY(st, fail, duet__synth_put_text(job, folder, "merges.txt", t->merges, t->merges_bytes, err));
    TRY(st, fail,
        duet__synth_put_text(job, folder, "tokenizer_config.json", t->config, t->config_bytes, err));
fail:
    return st;
}

/* ---- the two decoders ------------------------------------------------------------------------------------------ */

static json_t *vvae_source(const duet_vvae_config *c) {
    int32_t mult[DUET_MAX_LEVELS], up[DUET_MAX_LEVELS];
    for (int i = 0; i < c->levels; i++) {
        mult[i] = c->channels[i] / c->channels[0];
        up[i] = i ? c->space_down[i - 1] : 1;
    }
    json_t *vit = json_pack("{s:i, s:s, s:b, s:i, s:b, s:s, s:i, s:b, s:s, s:o, s:o}", "dim_head",
                            c->vit_head_dim, "ffn_activation_fn", "silu", "ffn_use_gated", 1, "heads",
                            c->vit_heads, "norm_affine", 1, "norm_type", "rms_norm", "num_layers",
                            c->vit_layers, "qk_norm_affine", 0, "qk_norm_type", "rms_norm", "rope_dim_ratio",
                            real(c->vit_rope_ratio), "rope_theta", real(c->vit_rope_theta));
    return json_pack("{s:s, s:s, s:b, s:b, s:i, s:o, s:i, s:i, s:i, s:i, s:n, s:i, s:s, s:n, s:s, s:f, s:f, "
                     "s:o, s:o, s:o, "
                     "s:n, s:b, s:b, s:b, s:i, s:i, s:o, s:i, s:n, s:n}",
                     "_class_name", "AutoencoderKLLegacy", "_diffusers_version", "0.32.2", "causal_decoder",
                     0, "causal_encoder", 1, "ch", c->channels[0], "ch_mult", ints(mult, c->levels),
                     "embed_dim", c->latent_channels, "in_channels", 3, "norm_num_groups", c->norm_groups,
                     "num_res_blocks", c->res_blocks, "num_res_blocks_decoder", "out_ch", 3, "padding_mode",
                     "reflect", "padding_mode_t", "pixel_norm_type", "imagenet", "scaling_factor", 1.0,
                     "shift_factor", 0.0, "space_down", ints(c->space_down, c->levels), "space_up",
                     ints(up, c->levels), "time_down", ints(c->time_down, c->levels), "time_up",
                     "use_3d_conv", 1, "use_t_isolated_gn", 1, "use_vit_decoder", 1, "vae_ratio",
                     c->space_ratio, "vae_ratio_t", c->time_ratio, "vit_decoder_kwargs", vit, "z_channels",
                     c->latent_channels, "zq_ch_decoder", "zq_ch_encoder");
}

static json_t *vvae_native(const duet_vvae_config *c) {
    return json_pack("{s:s, s:s, s:s, s:{s:s}, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, "
                     "s:s, s:i, s:o, s:o}",
                     "_class_name", "MiniMaxH3VideoVAE", "_diffusers_version", "0.32.2", "mode", "standalone",
                     "auto_map", "AutoModel", "minimax_h3_video_vae.MiniMaxH3VideoVAE", "source_path",
                     "source", "source_class_name", "AutoencoderKLLegacy", "vae_clip_length", c->clip_frames,
                     "vae_token_drop", c->token_drop, "vae_encoder_tiling", 1, "vae_decoder_tiling", 1,
                     "vae_parallel_tiling", 1, "vae_tile_size", c->tile_px, "vae_tile_overlap_min",
                     c->tile_overlap_px, "vae_encoder_parallel", 0, "vae_decoder_parallel", 0,
                     "vae_chunk_dim", -1, "source_safetensors_path", "model.safetensors", "latent_channels",
                     c->latent_channels, "latents_mean", reals(c->latents_mean, c->latent_channels),
                     "latents_std", reals(c->latents_std, c->latent_channels));
}

static json_t *vvae_diffusers(const duet_vvae_config *c) {
    return json_pack(
        "{s:s, s:s, s:i, s:i, s:i, s:o, s:i, s:o, s:o, s:i, s:o, s:s, s:i, s:i, s:i, s:i, s:i, s:o, s:o, "
        "s:o, "
        "s:i, s:i, s:o, s:o}",
        "_class_name", "AutoencoderKLMiniMaxH3", "_diffusers_version", "0.36.0.dev0", "in_channels", 3,
        "out_channels", 3, "latent_channels", c->latent_channels, "block_out_channels",
        ints(c->channels, c->levels), "layers_per_block", c->res_blocks, "spatial_downsample_factors",
        ints(c->space_down, c->levels), "temporal_downsample_factors", ints(c->time_down, c->levels),
        "norm_num_groups", c->norm_groups, "norm_eps", real(c->group_norm_eps), "spatial_padding_mode",
        "reflect", "decoder_num_layers", c->vit_layers, "decoder_num_attention_heads", c->vit_heads,
        "decoder_attention_head_dim", c->vit_head_dim, "decoder_num_register_tokens", c->vit_registers,
        "decoder_ffn_mult", c->vit_ffn_mult, "decoder_rope_theta", real(c->vit_rope_theta),
        "decoder_rope_dim_ratio", real(c->vit_rope_ratio), "decoder_norm_eps", real(c->vit_norm_eps),
        "clip_length", c->clip_frames, "token_drop", c->token_drop, "latents_mean",
        reals(c->latents_mean, c->latent_channels), "latents_std", reals(c->latents_std, c->latent_channels));
}

static json_t *avae_metadata(const duet_avae_config *c) {
    return json_pack("{s:{s:{s:b, s:i, s:o, s:s, s:i, s:o, s:i, s:i, s:i}}}", "metadata", "kwargs",
                     "attn_proj", 1, "decoder_dim", c->decoder_dim, "decoder_rates",
                     ints(c->decoder_rates, c->n_decoder_rates), "decoder_type", "bigvgan", "encoder_dim",
                     c->encoder_dim, "encoder_rates", ints(c->encoder_rates, c->n_encoder_rates),
                     "latent_dim", c->latent_dim, "sample_rate", c->sample_rate, "vae_latent_channels",
                     c->latent_channels);
}

static json_t *avae_native(const duet_avae_config *c) {
    return json_pack("{s:s, s:s, s:{s:s}, s:i, s:i, s:s, s:s, s:s, s:i, s:o, s:o}", "_class_name",
                     "MiniMaxH3AudioVAE", "_diffusers_version", "0.32.2", "auto_map", "AutoModel",
                     "minimax_h3_audio_vae.MiniMaxH3AudioVAE", "output_channel", 2, "sample_rate",
                     c->sample_rate, "source_config_path", "config.yaml", "source_safetensors_path",
                     "model.safetensors", "source_metadata_path", "metadata.json", "latent_channels",
                     c->latent_channels, "latents_mean", reals(c->latents_mean, c->latent_channels),
                     "latents_std", reals(c->latents_std, c->latent_channels));
}

static json_t *avae_diffusers(const duet_avae_config *c) {
    json_t *dilations = json_array();
    for (int i = 0; i < c->n_res_kernels; i++)
        json_array_append_new(dilations, ints(c->res_dilations, c->n_res_dilations));
    return json_pack(
        "{s:s, s:s, s:i, s:o, s:i, s:i, s:i, s:o, s:o, s:i, s:o, s:o, s:i, s:o, s:o}", "_class_name",
        "AutoencoderKLMiniMaxH3Audio", "_diffusers_version", "0.36.0.dev0", "encoder_dim", c->encoder_dim,
        "encoder_rates", ints(c->encoder_rates, c->n_encoder_rates), "latent_dim", c->latent_dim,
        "latent_channels", c->latent_channels, "decoder_dim", c->decoder_dim, "decoder_rates",
        ints(c->decoder_rates, c->n_decoder_rates), "decoder_kernel_sizes",
        ints(c->decoder_kernels, c->n_decoder_rates), "num_attention_heads", c->attention_heads,
        "resblock_kernel_sizes", ints(c->res_kernels, c->n_res_kernels), "resblock_dilation_sizes", dilations,
        "sampling_rate", c->sample_rate, "latents_mean", reals(c->latents_mean, c->latent_channels),
        "latents_std", reals(c->latents_std, c->latent_channels));
}

static duet_status native_decoders(const duet__synth_job *job, const char *video, const char *source,
                                   const char *audio, duet_error *err) {
    const duet_model_config *c = &job->shape.config;
    char yaml[160];
    int n = snprintf(
        yaml, sizeof yaml,
        "model_config:\n  sr: %d\n  decoder_dim: %d\n  audio_channel: 1\n  vae_latent_channels: %d\n",
        c->avae.sample_rate, c->avae.decoder_dim, c->avae.latent_channels);
    duet_status st;
    TRY(st, fail, duet__synth_put_json(job, video, "config.json", vvae_native(&c->vvae), err));
    TRY(st, fail, duet__synth_put_json(job, source, "config.json", vvae_source(&c->vvae), err));
    TRY(st, fail, duet__synth_put_json(job, audio, "config.json", avae_native(&c->avae), err));
    TRY(st, fail, duet__synth_put_json(job, audio, "metadata.json", avae_metadata(&c->avae), err));
    TRY(st, fail, duet__synth_put_text(job, audio, "config.yaml", yaml, (size_t)n, err));
fail:
    return st;
}

static duet_status diffusers_rest(const duet__synth_job *job, duet_error *err) {
    const duet_model_config *c = &job->shape.config;
    duet_status st;
    TRY(st, fail, duet__synth_put_json(job, "vae", "config.json", vvae_diffusers(&c->vvae), err));
    TRY(st, fail, duet__synth_put_json(job, "audio_vae", "config.json", avae_diffusers(&c->avae), err));
    for (int i = 0; i < 2; i++) {
        json_t *scheduler =
            json_pack("{s:s, s:s, s:f}", "_class_name", "MiniMaxH3Scheduler", "_diffusers_version",
                      "0.36.0.dev0", "shift", i ? c->audio_shift : c->video_shift);
        const char *folder = i ? "audio_scheduler" : "scheduler";
        TRY(st, fail, duet__synth_put_json(job, folder, "scheduler_config.json", scheduler, err));
    }
fail:
    return st;
}

duet_status duet__synth_configs(const duet__synth_job *job, const char *base, duet_error *err) {
    char folder[8][64];
    static const char *const names[] = {"text_encoder", "tokenizer",        "processor",
                                        "video_vae",    "video_vae/source", "audio_vae"};
    for (int i = 0; i < 6; i++)
        snprintf(folder[i], sizeof folder[i], "%s%s%s", base, *base ? "/" : "", names[i]);
    duet_status st;
    TRY(st, fail, duet__synth_put_json(job, folder[0], "config.json", text_encoder(job), err));
    TRY(st, fail, tokenizer_files(job, folder[1], err));
    TRY(st, fail, tokenizer_files(job, folder[2], err));
    TRY(st, fail,
        duet__synth_put_json(
            job, folder[2], "preprocessor_config.json",
            preprocessor(16777216, 65536, "image_processor_type", "Qwen2VLImageProcessorFast"), err));
    TRY(st, fail,
        duet__synth_put_json(job, folder[2], "video_preprocessor_config.json",
                             preprocessor(25165824, 4096, "video_processor_type", "Qwen3VLVideoProcessor"),
                             err));
    if (job->layout == &duet__layout_native)
        st = native_decoders(job, folder[3], folder[4], folder[5], err);
    else
        st = diffusers_rest(job, err);
fail:
    return st;
}

/* ---- index files ----------------------------------------------------------------------------------------------- */

static void put_our_keys(json_t *block, const duet_model_config *c) {
    json_object_set_new(block, "text_encoder_layer", json_integer(c->text.tap_layer));
    json_object_set_new(block, "canvas_short_edge", json_integer(c->canvas_short_edge));
    json_object_set_new(block, "canvas_max_pixels", json_integer(c->canvas_max_pixels));
    json_object_set_new(block, "reference_image_short_edge", json_integer(c->reference_image_short_edge));
}

static json_t *native_index(const duet_model_config *c, duet_partition partition) {
    bool ref = partition == DUET_REF2VA;
    json_t *tasks = ref ? json_pack("[s]", "ref2va") : json_pack("[s, s]", "t2va", "fl2va");
    json_t *block = json_pack("{s:i, s:s, s:o, s:{}, s:{s:f, s:f}}", "schema_version", 1, "partition",
                              ref ? "ref2va" : "fl2va", "tasks", tasks, "task_aliases", "sigma_shift_scales",
                              "video", c->video_shift, "audio", c->audio_shift);
    if (block) put_our_keys(block, c);
    return json_pack("{s:s, s:s, s:[s, s], s:[s, s], s:[s, s], s:[s, s], s:n, s:[s, s], s:[s, s], s:o}",
                     "_class_name", "MiniMaxH3Pipeline", "_diffusers_version", "0.32.2", "text_encoder",
                     "transformers", "MiniMaxH3Qwen3VLHFEncoder", "tokenizer", "transformers",
                     "Qwen2TokenizerFast", "video_vae", "diffusers", "MiniMaxH3VideoVAE", "audio_vae",
                     "diffusers", "MiniMaxH3AudioVAE", "scheduler", "transformer", "diffusers",
                     "MiniMaxH3DiTModel", "processor", "transformers", "Qwen3VLProcessor", "_minimax_h3",
                     block);
}

/* The whole set of components is named, as the release does, whichever transformer is there. */
static json_t *modular_index(const duet_model_config *c) {
    static const char *const parts[][3] = {
        {"text_encoder", "transformers", "Qwen3VLForConditionalGeneration"},
        {"tokenizer", "transformers", "Qwen2TokenizerFast"},
        {"processor", "transformers", "Qwen3VLProcessor"},
        {"vae", "diffusers", "AutoencoderKLMiniMaxH3"},
        {"audio_vae", "diffusers", "AutoencoderKLMiniMaxH3Audio"},
        {"transformer", "diffusers", "MiniMaxH3Transformer3DModel"},
        {"transformer_ref", "diffusers", "MiniMaxH3Transformer3DModel"},
        {"scheduler", "diffusers", "MiniMaxH3Scheduler"},
        {"audio_scheduler", "diffusers", "MiniMaxH3Scheduler"}};
    json_t *index = json_pack("{s:s, s:s, s:s}", "_class_name", "MiniMaxH3ModularPipeline",
                              "_diffusers_version", "0.36.0.dev0", "_blocks_class_name", "MiniMaxH3Blocks");
    for (size_t i = 0; index && i < sizeof parts / sizeof *parts; i++) {
        const char *const *p = parts[i];
        json_object_set_new(index, p[0],
                            json_pack("[s, s, {s:[s, s], s:s, s:s, s:n, s:n}]", p[1], p[2], "type_hint", p[1],
                                      p[2], "pretrained_model_name_or_path", "MiniMaxAI/MiniMax-H3",
                                      "subfolder", p[0], "variant", "revision"));
    }
    json_t *block = json_object();
    put_our_keys(block, c);
    if (index) {
        json_object_set(index, "_minimax_h3", block);
        json_object_del(block, "text_encoder_layer");
        json_object_update(index, block); /* the canvas keys stand at top level too */
        put_our_keys(block, c);
    }
    json_decref(block);
    return index;
}

duet_status duet__synth_index(const duet__synth_job *job, const char *base, duet_partition partition,
                              duet_error *err) {
    const duet_model_config *c = &job->shape.config;
    if (job->layout == &duet__layout_native)
        return duet__synth_put_json(job, base, "model_index.json", native_index(c, partition), err);
    return duet__synth_put_json(job, base, "modular_model_index.json", modular_index(c), err);
}
