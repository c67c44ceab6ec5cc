/* info.c - what a model directory holds: tasks, components, dimensions, hashes. */
#include "api_int.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static const char *const COMPONENT_NAMES[DUET_N_COMPONENTS] = {
    [DUET_COMPONENT_DIT] = "transformer",
    [DUET_COMPONENT_TEXT] = "text_encoder",
    [DUET_COMPONENT_VVAE] = "video_vae",
    [DUET_COMPONENT_AVAE] = "audio_vae",
};

/* One row per dimension: N(component, member) reads config->component.member. */
/* clang-format off */
#define CONFIG_NUMBERS(N) \
    N(dit, hidden) N(dit, layers) N(dit, refiner_layers) N(dit, heads) N(dit, head_dim) N(dit, ffn) \
    N(dit, video_channels) N(dit, audio_channels) N(dit, patch_t) N(dit, patch_h) N(dit, patch_w) \
    N(dit, text_dim) N(dit, time_sinusoid) N(dit, time_hidden) N(dit, time_dim) N(dit, rope_freqs) \
    N(text, hidden) N(text, layers_in_file) N(text, tap_layer) N(text, heads) N(text, kv_heads) \
    N(text, head_dim) N(text, ffn) N(text, vocab) N(text, max_positions) N(vvae, levels) \
    N(vvae, res_blocks) N(vvae, space_ratio) N(vvae, time_ratio) N(vvae, latent_channels) \
    N(vvae, norm_groups) N(vvae, vit_layers) N(vvae, vit_heads) N(vvae, vit_head_dim) \
    N(vvae, vit_ffn_mult) N(vvae, vit_registers) N(vvae, clip_frames) N(vvae, token_drop) \
    N(vvae, tile_px) N(vvae, tile_overlap_px) N(avae, latent_channels) N(avae, attention_heads) \
    N(avae, decoder_dim) N(avae, sample_rate) N(avae, hop)
/* clang-format on */

static void set_member(json_t *root, const char *component, const char *member, int64_t value) {
    json_t *o = json_object_get(root, component);
    if (!o) {
        o = json_object();
        json_object_set_new(root, component, o);
    }
    json_object_set_new(o, member, json_integer(value));
}

static char *config_json(const duet_model_config *c) {
    json_t *root = json_object();
#define N(component, member) set_member(root, #component, #member, c->component.member);
    CONFIG_NUMBERS(N)
#undef N
    json_object_set_new(root, "canvas_short_edge", json_integer(c->canvas_short_edge));
    json_object_set_new(root, "canvas_max_pixels", json_integer(c->canvas_max_pixels));
    json_object_set_new(root, "canvas_multiple", json_integer(c->canvas_multiple));
    json_object_set_new(root, "reference_image_short_edge", json_integer(c->reference_image_short_edge));
    json_object_set_new(root, "flow_shift", json_real(c->video_shift));
    json_object_set_new(root, "audio_flow_shift", json_real(c->audio_shift));
    if (c->n_base_schedule > 0) {
        json_t *list = json_array();
        for (int i = 0; i < c->n_base_schedule; i++)
            json_array_append_new(list, json_real(c->base_schedule[i]));
        json_object_set_new(root, "base_schedule", list);
    }
    char *text = json_dumps(root, JSON_COMPACT);
    char *copy = text ? duet_strdup(text) : NULL;
    free(text);
    json_decref(root);
    return copy;
}

static duet_status verify_all(duet_engine *e, duet_model_info *out, duet_error *err) {
    duet_component_report report[DUET_N_COMPONENTS] = {0};
    duet_verify_options options = {.cancel = &e->cancel};
    duet_status st = duet_model_verify(e->model, &options, report, err);
    if (st == DUET_E_CANCELLED) e->cancel = 0;
    if (st != DUET_OK) return st;
    out->verified = true;
    for (int c = 0; c < DUET_N_COMPONENTS; c++) {
        duet_component_info *to = &out->component[c];
        to->tensors = report[c].tensors;
        to->bytes = report[c].bytes;
        to->nonfinite_values = report[c].nonfinite;
        to->files = report[c].files;
        to->missing_files = report[c].missing_files;
        memcpy(to->sha256, report[c].sha256, sizeof to->sha256);
        memcpy(to->first_nonfinite, report[c].first_nonfinite, sizeof to->first_nonfinite);
        if (st == DUET_OK && report[c].nonfinite)
            st = duet_fail(err, DUET_E_MODEL, "%s: %lld values are not finite, the first in %s",
                           COMPONENT_NAMES[c], (long long)report[c].nonfinite, report[c].first_nonfinite);
    }
    return st;
}

static void fill_component(duet_engine *e, duet_component c, duet_component_info *out) {
    out->name = COMPONENT_NAMES[c];
    out->mapped_bytes = duet_model_mapped_bytes(e->model, c);
    out->copied_bytes = duet_model_copied_bytes(e->model, c);
    memcpy(out->hash, e->hashes.component[c], sizeof out->hash);
}

duet_status duet_info(duet_engine *e, bool verify, duet_model_info *out, duet_error *err) {
    if (!e || !out) return duet_fail(err, DUET_E_USAGE, "duet_info: engine or out is NULL");
    *out = (duet_model_info){.path = duet_model_path(e->model), .layout = duet_model_layout_name(e->model)};
    duet_status st = duet__hash_model(e, err);
    if (st != DUET_OK) return st;
    out->serves_t2va = duet_model_serves(e->model, "t2va");
    out->serves_fl2va = duet_model_serves(e->model, "fl2va");
    out->serves_ref2va = duet_model_serves(e->model, "ref2va");
    memcpy(out->model_hash, e->hashes.model, sizeof out->model_hash);
    memcpy(out->tokenizer_hash, e->hashes.tokenizer, sizeof out->tokenizer_hash);
    for (int c = 0; c < DUET_N_COMPONENTS; c++) fill_component(e, (duet_component)c, &out->component[c]);
    out->config_json = config_json(duet_model_config_get(e->model));
    if (!out->config_json) return duet_fail(err, DUET_E_MEMORY, "out of memory");
    return verify ? verify_all(e, out, err) : DUET_OK;
}

void duet_model_info_free(duet_model_info *info) {
    duet_free(info->config_json);
    *info = (duet_model_info){0};
}
