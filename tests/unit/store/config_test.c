/* config_test.c - configurations: what synth writes is what is read, the released files give the released sizes and
 * names, and every value out of bounds is refused with file and key. */
#include "unit/store/fixture.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "store/model_int.h"
#include "store/synth_int.h"

static duet__place place_of(const char *dir, const duet__layout *layout) {
    return (duet__place){.dir = dir, .layout = layout, .components = (1u << DUET_N_COMPONENTS) - 1};
}

TEST(config_reads_what_synth_means, 10000) {
    for (uint64_t seed = 0; seed < 3; seed++) {
        duet__synth_shape shape;
        EXPECT_EQ(duet__synth_shape_get("tiny", seed, &shape, NULL), DUET_OK);
        fixture_make("n", "native", "fl2va", seed);
        fixture_make("d", "diffusers", "fl2va", seed);
        for (int layout = 0; layout < 2; layout++) {
            duet__place place = layout ? place_of(fixture_path("d"), &duet__layout_diffusers)
                                       : place_of(fixture_path("n/FL2VA"), &duet__layout_native);
            duet_model_config c, want = shape.config;
            duet__index index;
            duet_error err = {0};
            EXPECT_OK(duet__config_read(&place, &c, &index, &err), err);
            if (!layout) want.dit.rope_theta = 0; /* the native layout has a tensor for it */
            want.text.vocab = c.text.vocab;       /* known once the tokenizer is made */
            want.text.vision_start_id = c.text.vision_start_id;
            want.text.vision_end_id = c.text.vision_end_id;
            want.text.image_pad_id = c.text.image_pad_id;
            want.text.video_pad_id = c.text.video_pad_id;
            EXPECT(memcmp(&c, &want, sizeof c) == 0);
            EXPECT_EQ(index.n_tasks, 2);
        }
        fixture_run("rm -r %s %s", fixture_path("n"), fixture_path("d"));
    }
}

/* ---- the released files ---------------------------------------------------------------------------------------------- */

/* Names of the index equal those of the table in the given layout, and its total_size their sum. */
static void expect_index(const char *path, const duet_model_config *c, duet_component component,
                         int n_tensors, int64_t total_bytes) {
    duet__doc index;
    duet__spec_list specs;
    duet_error err = {0};
    EXPECT_OK(duet__doc_open(path, &index, &err), err);
    EXPECT_OK(duet__specs_build(c, component, &specs, &err), err);
    json_t *map = duet__doc_get(&index, "weight_map");
    int64_t sum = 0, told;
    EXPECT_EQ(json_object_size(map), n_tensors);
    EXPECT_EQ(specs.n, n_tensors);
    for (int i = 0; i < specs.n; i++) {
        if (!json_object_get(map, specs.spec[i].name)) FAIL("%s is not in the index", specs.spec[i].name);
        sum += duet__spec_bytes(&specs.spec[i]);
    }
    EXPECT_OK(duet__doc_i64(&index, "metadata.total_size", 0, INT64_MAX, &told, &err), err);
    EXPECT_EQ(sum, told);
    EXPECT_EQ(sum, total_bytes);
    duet__specs_free(&specs);
    duet__doc_close(&index);
}

TEST(config_released_model, 5000) {
    const char *root = harness_need_env("DUET_H3_CONFIG");
    char dir[600], path[700];
    snprintf(dir, sizeof dir, "%s/FL2VA", root);
    duet__place place = place_of(dir, &duet__layout_native);
    duet_model_config c;
    duet__index index;
    duet_error err = {0};
    EXPECT_OK(duet__config_read(&place, &c, &index, &err), err);
    EXPECT_EQ(c.dit.hidden, 5376);
    EXPECT_EQ(c.text.tap_layer, 50);
    EXPECT_EQ(c.canvas_short_edge, 768);
    EXPECT_EQ(c.canvas_max_pixels, 1032192);
    EXPECT_EQ(c.canvas_multiple, 32);
    EXPECT_EQ(c.vvae.norm_groups, 32);
    EXPECT_EQ(c.avae.hop, 800);
    EXPECT(c.video_shift == 12 && c.audio_shift == 3 && c.n_base_schedule == 0);
    snprintf(path, sizeof path, "%s/transformer/model.safetensors.index.json", dir);
    expect_index(path, &c, DUET_COMPONENT_DIT, 535, 66280430144);
    snprintf(path, sizeof path, "%s/text_encoder/model.safetensors.index.json", dir);
    expect_index(path, &c, DUET_COMPONENT_TEXT, 1058, 66714780128);
    duet__synth_shape full; /* synth's copy of the released numbers */
    EXPECT_EQ(duet__synth_shape_get("full", 0, &full, NULL), DUET_OK);
    EXPECT(memcmp(&full.config.vision, &c.vision, sizeof c.vision) == 0);
    full.config.dit.rope_theta = 0;
    EXPECT(memcmp(&full.config.dit, &c.dit, sizeof c.dit) == 0);
    memcpy(full.config.vvae.latents_mean, c.vvae.latents_mean, sizeof c.vvae.latents_mean);
    memcpy(full.config.vvae.latents_std, c.vvae.latents_std, sizeof c.vvae.latents_std);
    EXPECT(memcmp(&full.config.vvae, &c.vvae, sizeof c.vvae) == 0);
}

/* Counts and sizes that the chapters state for components whose index is not at hand. */
TEST(config_released_table_sizes, 5000) {
    duet__synth_shape full;
    EXPECT_EQ(duet__synth_shape_get("full", 0, &full, NULL), DUET_OK);
    static const struct {
        duet_component component;
        const duet__layout *layout;
        int tensors;
        int64_t bytes;
    } cases[] = {{DUET_COMPONENT_DIT, &duet__layout_diffusers, 638, 66280430080},
                 {DUET_COMPONENT_VVAE, &duet__layout_native, 560, 10415475936 + 4 * 2048},
                 {DUET_COMPONENT_VVAE, &duet__layout_diffusers, 703, 10415475936},
                 {DUET_COMPONENT_AVAE, &duet__layout_native, 1087, 151326585 * 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        duet__spec_list specs;
        int64_t bytes = 0;
        int n = 0;
        EXPECT_EQ(duet__specs_build(&full.config, cases[i].component, &specs, NULL), DUET_OK);
        for (int s = 0; s < specs.n; s++) {
            duet__stored stored[3];
            int parts = duet__layout_stored(cases[i].layout, cases[i].component, &specs.spec[s], stored);
            n += parts;
            if (parts) bytes += duet__spec_bytes(&specs.spec[s]);
        }
        EXPECT_EQ(n, cases[i].tensors);
        EXPECT_EQ(bytes, cases[i].bytes);
        duet__specs_free(&specs);
    }
}

/* ---- what is refused --------------------------------------------------------------------------------------------------- */

typedef struct edit {
    const char *file, *from, *to, *what;
} edit;

/* One tree; the edited file is put back after each case. */
static void expect_edits(const char *name, const char *layout, const edit *edits, size_t n) {
    const char *root = fixture_make(name, layout, "fl2va", 0);
    const char *base = strcmp(layout, "native") == 0 ? "FL2VA/" : "";
    for (size_t i = 0; i < n; i++) {
        const char *file = fixture_path("%s/%s%s", name, base, edits[i].file);
        fixture_copy(file, fixture_path("saved"));
        fixture_edit(file, edits[i].from, edits[i].to);
        fixture_refuses(root, edits[i].file, edits[i].what);
        fixture_copy(fixture_path("saved"), file);
    }
}

#define DIT "transformer/config.json"
#define TEXT "text_encoder/config.json"
#define VIDEO "video_vae/config.json"
#define SOURCE "video_vae/source/config.json"
#define AUDIO "audio_vae/config.json"
#define META "audio_vae/metadata.json"
#define INDEX "model_index.json"

TEST(config_refuses_bad_native_values, 60000) {
    static const edit edits[] = {
        {DIT, "\"hidden_size\": 52", "\"hidden_size\": 0", "key hidden_size must be between 1 and"},
        {DIT, "\"hidden_size\": 52", "\"hidden_size\": -52", "key hidden_size must be between"},
        {DIT, "\"hidden_size\": 52", "\"hidden_size\": 52.0", "key hidden_size must be an integer"},
        {DIT, "\"hidden_size\": 52", "\"hidden_size\": \"52\"", "key hidden_size must be an integer"},
        {DIT, "\"hidden_size\": 52", "\"hidden_size\": 99999999999999999999999", "not valid JSON"},
        {DIT, "\"hidden_size\": 52", "\"hidden_size\": 2147483648", "key hidden_size must be between"},
        {DIT, "\"hidden_size\": 52,", "", "key hidden_size is missing"},
        {DIT, "\"hidden_size\": 52", "\"hidden_size\": 52, \"hidden_size\": 52", "duplicate"},
        {DIT, "\"hidden_size\": 52", "\"hidden_size\": 53", "key adaln_out_features must be 954 (got 936)"},
        {DIT, "\"num_layers\": 3", "\"num_layers\": 100000", "key num_layers must be between"},
        {DIT, "\"attention_head_dim\": 20", "\"attention_head_dim\": 19", "head size must be even"},
        {DIT, "\"rope_inv_freq_len\": 3", "\"rope_inv_freq_len\": 4", "rotary frequencies exceed"},
        {DIT, "\"timestep_input_dim\": 10", "\"timestep_input_dim\": 11", "must be even"},
        {DIT, "\"norm_eps\": 1e-5", "\"norm_eps\": 0.0", "key norm_eps must be between"},
        {DIT, "\"norm_eps\": 1e-5", "\"norm_eps\": NaN", "not valid JSON"},
        {DIT, "MiniMaxH3DiTModel", "MiniMaxH3PrunedModel", "key _class_name must be"},
        {DIT, "\"latents_dim\": 6", "\"latents_dim\": 5", "video channels, but the video VAE has 6"},
        {DIT, "\"audio_latents_dim\": 8", "\"audio_latents_dim\": 9",
         "audio channels, but the audio VAE has 8"},
        {DIT, "\"text_dim\": 44", "\"text_dim\": 45", "text_dim 45 differs"},
        {DIT, "\"patch_size\": [\n    1,", "\"patch_size\": [\n    2,", "patch_size must be [1, n, n]"},
        {DIT, "\"patch_size\": [\n    1,", "\"patch_size\": [", "key patch_size must have 3 entries (got 2)"},
        {DIT, "{", "[", "not valid JSON"},
        {TEXT, "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3",
         "not divisible by 3 key-value heads"},
        {TEXT, "\"head_dim\": 18", "\"head_dim\": 20", "mrope_section"},
        {TEXT, "\"num_hidden_layers\": 6", "\"num_hidden_layers\": 3", "has num_hidden_layers 3"},
        {TEXT, "\"rms_norm_eps\": 1e-6", "\"rms_norm_eps\": -1e-6", "key text_config.rms_norm_eps"},
        {TEXT, "\"rope_theta\": 5000000", "\"rope_theta\": 0", "key text_config.rope_theta"},
        {TEXT, "\"mrope_interleaved\": true", "\"mrope_interleaved\": false",
         "mrope_interleaved must be true"},
        {TEXT, "\"hidden_act\": \"silu\"", "\"hidden_act\": \"relu\"",
         "text_config.hidden_act must be \"silu\""},
        {TEXT, "\"num_position_embeddings\": 16", "\"num_position_embeddings\": 15", "is not a square"},
        {TEXT, "\"depth\": 4", "\"depth\": 2", "deepstack_visual_indexes"},
        {TEXT, "\"out_hidden_size\": 44", "\"out_hidden_size\": 40", "differs from the text hidden_size"},
        {TEXT, "\"num_heads\": 2", "\"num_heads\": 5", "vision hidden_size 24 is not divisible by 5"},
        {TEXT, "\"vocab_size\": ", "\"vocab_size\": 1, \"was\": ", "is not below vocab_size 1"},
        {VIDEO, "\"vae_clip_length\": 17", "\"vae_clip_length\": 21", "clip length 17"},
        {VIDEO, "\"vae_tile_size\": 256", "\"vae_tile_size\": 250", "multiples of 16"},
        {VIDEO, "\"vae_tile_overlap_min\": 64", "\"vae_tile_overlap_min\": 256", "exceeds half of the tile"},
        {VIDEO, "\"latents_mean\": [", "\"latents_mean\": [ 0.5,", "key latents_mean must have 6 entries"},
        {VIDEO, "\"latents_std\": [", "\"latents_std\": [ 0.0,", "key latents_std must be between"},
        {VIDEO, "\"latents_std\": [", "\"latents_std\": [ null,", "key latents_std must be a number"},
        {VIDEO, "\"latent_channels\": 6", "\"latent_channels\": 7", "key latent_channels must be 6 (got 7)"},
        {VIDEO, "\"source_path\": \"source\"", "\"source_path\": \"../..\"",
         "key source_path must be \"source\""},
        {SOURCE, "\"norm_num_groups\": 4", "\"norm_num_groups\": 5", "not divisible by norm_num_groups 5"},
        {SOURCE, "\"norm_num_groups\": 4,", "", "not divisible by norm_num_groups 32"},
        {SOURCE, "\"rope_dim_ratio\": 0.75", "\"rope_dim_ratio\": 0.5", "multiple of 6"},
        {SOURCE, "\"space_down\": [\n    2,", "\"space_down\": [\n    1,", "must multiply to 16 (got 8)"},
        {SOURCE, "\"space_down\": [\n    2,", "\"space_down\": [\n    3,",
         "key space_down must be between 1 and 2"},
        {SOURCE, "\"space_down\": [\n    2,", "\"space_down\": [", "must be equally long (got 4, 3, 4)"},
        {SOURCE, "\"use_vit_decoder\": true", "\"use_vit_decoder\": false", "use_vit_decoder must be true"},
        {META, "\"decoder_dim\": 64", "\"decoder_dim\": 30", "cannot be halved 5 times"},
        {META, "\"latent_dim\": 128", "\"latent_dim\": 120", "not divisible by 8 heads"},
        {META, "\"encoder_rates\": [", "\"encoder_rates\": [ 2,", "encoder rates multiply to 1600"},
        {META, "\"attn_proj\": true", "\"attn_proj\": false", "attn_proj must be true"},
        {AUDIO, "\"sample_rate\": 32000", "\"sample_rate\": 44100", "key sample_rate must be 32000"},
        {INDEX, "\"partition\": \"fl2va\"", "\"partition\": \"t2va\"", "partition must be"},
        {INDEX, "\"video\": 12.0", "\"video\": 0.0", "sigma_shift_scales.video must be between"},
        {INDEX, "\"audio\": 3.0", "\"sound\": 3.0", "key _minimax_h3.sigma_shift_scales.audio is missing"},
        {INDEX, "\"text_encoder_layer\": 4", "\"text_encoder_layer\": 3", "must lie above the 3 deepstack"},
        {INDEX, "\"text_encoder_layer\": 4", "\"text_encoder_layer\": 7", "has num_hidden_layers 6"},
        {INDEX, "\"text_encoder_layer\": 4,", "", "the state after layer 50"},
        {INDEX, "\"canvas_short_edge\": 256", "\"canvas_short_edge\": 1",
         "canvas_short_edge must be between"},
        {INDEX, "\"schema_version\"", "\"base_schedule\": [1.0, 0.5], \"schema_version\"",
         "must fall strictly"},
        {INDEX, "\"schema_version\"", "\"base_schedule\": [0.5, 0.5, 0], \"schema_version\"",
         "must fall strictly"},
        {INDEX, "\"schema_version\"", "\"base_schedule\": [2, 0], \"schema_version\"",
         "base_schedule must be between"},
    };
    expect_edits("n", "native", edits, sizeof edits / sizeof *edits);
}

TEST(config_refuses_bad_diffusers_values, 20000) {
    static const edit edits[] = {
        {DIT, "\"rope_theta\": 10000.0", "\"rope_theta\": 0.0", "key rope_theta must be between"},
        {DIT, "\"num_refiner_layers\": 2", "\"num_refiner_layers\": 0",
         "key num_refiner_layers must be between"},
        {"vae/config.json", "\"norm_num_groups\": 4", "\"norm_num_groups\": 7",
         "not divisible by norm_num_groups 7"},
        {"vae/config.json", "\"token_drop\": 3", "\"token_drop\": 4", "token drop 3"},
        {"vae/config.json", "\"decoder_norm_eps\": 1e-5", "\"decoder_norm_eps\": 1", "key decoder_norm_eps"},
        {AUDIO, "\"decoder_kernel_sizes\": [\n    9,", "\"decoder_kernel_sizes\": [\n    8,",
         "kernel 8 does not fit rate 5"},
        {AUDIO, "\"decoder_kernel_sizes\": [\n    9,", "\"decoder_kernel_sizes\": [",
         "equally long (got 5, 4)"},
        {AUDIO, "\"resblock_dilation_sizes\": [\n    [\n      1,",
         "\"resblock_dilation_sizes\": [\n    [\n      2,", "key resblock_dilation_sizes must repeat"},
        {"scheduler/scheduler_config.json", "\"shift\": 12.0", "\"shift\": \"12\"",
         "key shift must be a number"},
        {"modular_model_index.json", "\"canvas_short_edge\": 256,\n    \"canvas_max",
         "\"canvas_short_edge\": -1,\n    \"canvas_max", "_minimax_h3.canvas_short_edge must be between"},
    };
    expect_edits("d", "diffusers", edits, sizeof edits / sizeof *edits);
}

TEST(config_reads_optional_keys, 10000) {
    const char *n = fixture_make("n", "native", "fl2va", 0);
    fixture_edit(fixture_path("n/FL2VA/model_index.json"), "\"schema_version\"",
                 "\"base_schedule\": [0.999, 0.5, 0], \"schema_version\"");
    fixture_edit(fixture_path("n/FL2VA/text_encoder/config.json"), "\"rope_scaling\": {",
                 "\"rope_parameters\": {\"rope_theta\": 12345.5,");
    duet_model *m = fixture_open(n, DUET_FL2VA);
    const duet_model_config *c = duet_model_config_get(m);
    EXPECT_EQ(c->n_base_schedule, 3);
    EXPECT(c->base_schedule[1] == 0.5 && c->text.rope_theta == 12345.5);
    duet_model_close(&m);
    const char *d = fixture_make("d", "diffusers", "fl2va", 1);
    fixture_run("mv %s/modular_model_index.json %s/model_index.json", d, d);
    m = fixture_open(d, DUET_FL2VA);
    EXPECT_EQ(duet_model_config_get(m)->text.tap_layer, 5);
    EXPECT_EQ(duet_model_config_get(m)->canvas_short_edge, 192);
    duet_model_close(&m);
    fixture_edit(fixture_path("d/model_index.json"), "_minimax_h3", "_other");
    fixture_refuses(d, "text_encoder/config.json",
                    "the state after layer 50"); /* the tap has no other place */
}
