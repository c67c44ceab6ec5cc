/* hash.c - what a model is, in 64 hexadecimal digits, equal in every layout (format: docs/formats.md).
 *
 *     component = SHA-256( header, resolved dimensions and constants, then per tensor in name order:
 *                          name, dtype, shape, first and last 4 KiB of the canonical bytes )
 *     tokenizer = SHA-256( the three files, whole )
 *     model     = SHA-256( the hashes above )
 *
 * Every tensor that some task reads takes part; what is never read, or follows from the configuration, does not. The
 * full form (`duet info --verify`) hashes all canonical bytes instead, and counts values that are not finite. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/pages.h"
#include "base/sha256.h"
#include "store/model_int.h"

enum { SAMPLE_BYTES = 4096, CHUNK_BYTES = 1 << 20 };

/* ---- configuration as lines of text -------------------------------------------------------------------------------- */

DUET_PRINTF(2, 3) static void add_text(duet_sha256 *h, const char *fmt, ...) {
    char line[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    duet_sha256_add(h, line, (size_t)n);
}

static void add_int(duet_sha256 *h, const char *name, int32_t value) {
    add_text(h, "%s=%d\n", name, value);
}

static void add_ints(duet_sha256 *h, const char *name, const int32_t *values, int n) {
    add_text(h, "%s=", name);
    for (int i = 0; i < n; i++) add_text(h, i ? ",%d" : "%d", values[i]);
    add_text(h, "\n");
}

/* Bits, not decimals: what the engine computes with. */
static void add_floats(duet_sha256 *h, const char *name, const float *values, int n) {
    add_text(h, "%s=", name);
    for (int i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        add_text(h, i ? ",%08x" : "%08x", bits);
    }
    add_text(h, "\n");
}

static void add_float(duet_sha256 *h, const char *name, float value) {
    add_floats(h, name, &value, 1);
}

static void add_double(duet_sha256 *h, const char *name, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_text(h, "%s=%016llx\n", name, (unsigned long long)bits);
}

#define INT(member) add_int(h, #member, c->member)
#define INTS(member, n) add_ints(h, #member, c->member, n)
#define FLOAT(member) add_float(h, #member, c->member)

/* Rotary frequencies themselves: one layout stores them, the other only their base. */
static void add_inv_freq(duet_sha256 *h, const duet_model *m) {
    const duet_dit_config *c = &m->config.dit;
    const duet__entry *e = duet__entry_find(&m->part[DUET_COMPONENT_DIT], "rope.inv_freq");
    for (int32_t k = 0; k < c->rope_freqs; k++) {
        float value;
        if (e && e->n_parts)
            duet__entry_read(e, k, 1, &value);
        else
            value = duet__inv_freq_at(c->rope_theta, c->rope_freqs, k);
        add_float(h, "inv_freq", value);
    }
}

static void add_dit(duet_sha256 *h, const duet_model *m) {
    const duet_dit_config *c = &m->config.dit;
    INT(hidden), INT(layers), INT(refiner_layers), INT(heads), INT(head_dim), INT(ffn);
    INT(video_channels), INT(audio_channels), INT(patch_t), INT(patch_h), INT(patch_w);
    INT(text_dim), INT(time_sinusoid), INT(time_hidden), INT(time_dim), INT(rope_freqs);
    FLOAT(norm_eps), FLOAT(qk_norm_eps), FLOAT(final_norm_eps);
    add_inv_freq(h, m);
    add_double(h, "video_shift", m->config.video_shift);
    add_double(h, "audio_shift", m->config.audio_shift);
    for (int i = 0; i < m->config.n_base_schedule; i++) add_double(h, "base", m->config.base_schedule[i]);
    add_int(h, "canvas_short_edge", m->config.canvas_short_edge);
    add_int(h, "canvas_max_pixels", m->config.canvas_max_pixels);
    add_int(h, "reference_image_short_edge", m->config.reference_image_short_edge);
}

static void add_text_encoder(duet_sha256 *h, const duet_text_config *c) {
    INT(hidden), INT(tap_layer), INT(heads), INT(kv_heads), INT(head_dim), INT(ffn), INT(vocab);
    INTS(mrope_section, 3);
    add_double(h, "rope_theta", c->rope_theta);
    FLOAT(norm_eps), INT(max_positions);
    INT(vision_start_id), INT(vision_end_id), INT(image_pad_id), INT(video_pad_id);
}

static void add_vision(duet_sha256 *h, const duet_vision_config *c) {
    INT(depth), INT(hidden), INT(heads), INT(ffn), INT(patch), INT(temporal_patch), INT(merge),
        INT(positions);
    INT(out_hidden), INT(in_channels);
    INTS(deepstack, c->n_deepstack);
}

static void add_vvae(duet_sha256 *h, const duet_vvae_config *c) {
    INTS(channels, c->levels), INT(res_blocks), INTS(space_down, c->levels), INTS(time_down, c->levels);
    INT(latent_channels), INT(norm_groups), FLOAT(group_norm_eps);
    INT(vit_layers), INT(vit_heads), INT(vit_head_dim), INT(vit_ffn_mult), INT(vit_registers);
    FLOAT(vit_norm_eps), FLOAT(vit_rope_ratio), FLOAT(vit_rope_theta);
    INT(clip_frames), INT(token_drop), INT(tile_px), INT(tile_overlap_px);
    add_floats(h, "latents_mean", c->latents_mean, c->latent_channels);
    add_floats(h, "latents_std", c->latents_std, c->latent_channels);
}

static void add_avae(duet_sha256 *h, const duet_avae_config *c) {
    INT(encoder_dim), INTS(encoder_rates, c->n_encoder_rates), INT(latent_dim), INT(latent_channels);
    INT(attention_heads), INT(decoder_dim), INTS(decoder_rates, c->n_decoder_rates);
    INTS(decoder_kernels, c->n_decoder_rates), INTS(res_kernels, c->n_res_kernels);
    INTS(res_dilations, c->n_res_dilations), INT(sample_rate);
    add_floats(h, "latents_mean", c->latents_mean, c->latent_channels);
    add_floats(h, "latents_std", c->latents_std, c->latent_channels);
}

static void begin(duet_sha256 *h, const duet_model *m, duet_component component, const char *kind) {
    duet_sha256_init(h);
    add_text(h, "duet %s 1\n%s\n", kind, duet__component_name[component]);
    if (component == DUET_COMPONENT_DIT) add_dit(h, m);
    if (component == DUET_COMPONENT_TEXT) {
        add_text_encoder(h, &m->config.text);
        add_vision(h, &m->config.vision);
    }
    if (component == DUET_COMPONENT_VVAE) add_vvae(h, &m->config.vvae);
    if (component == DUET_COMPONENT_AVAE) add_avae(h, &m->config.avae);
}

/* ---- tensors ---------------------------------------------------------------------------------------------------------- */

static int64_t elems_of(const duet__entry *e) {
    int64_t n = 0;
    duet_shape_elems(&e->spec->shape, &n);
    return n;
}

static void add_tensor_header(duet_sha256 *h, const duet__entry *e) {
    char shape[160];
    add_text(h, "%s %s %s\n", e->spec->name, duet_dtype_name(duet__entry_dtype(e)),
             duet_shape_text(&e->spec->shape, shape, sizeof shape));
}

static void add_samples(duet_sha256 *h, const duet__entry *e) {
    _Alignas(8) char sample[SAMPLE_BYTES];
    int64_t size = (int64_t)duet_dtype_bytes(duet__entry_dtype(e)), n = elems_of(e),
            take = SAMPLE_BYTES / size;
    if (take > n) take = n;
    add_tensor_header(h, e);
    duet__entry_read(e, 0, take, sample);
    duet_sha256_add(h, sample, (size_t)(take * size));
    duet__entry_read(e, n - take, take, sample);
    duet_sha256_add(h, sample, (size_t)(take * size));
}

static void hash_tokenizer(const duet_model *m, char hex[65]) {
    const struct {
        const char *name, *text;
        size_t bytes;
    } files[] = {{"vocab.json", m->vocab, m->vocab_bytes},
                 {"merges.txt", m->merges, m->merges_bytes},
                 {"tokenizer_config.json", m->tokenizer_config, m->tokenizer_config_bytes}};
    duet_sha256 h;
    duet_sha256_init(&h);
    add_text(&h, "duet tokenizer 1\n");
    for (int i = 0; i < 3; i++) {
        add_text(&h, "%s %zu\n", files[i].name, files[i].bytes);
        duet_sha256_add(&h, files[i].text, files[i].bytes);
    }
    duet_sha256_hex(&h, hex);
}

/* A sample of 4 KiB brings its neighbours with it: some hundred MB over a model, which nobody has asked for yet. */
static void drop_entry(const duet__entry *e) {
    for (int p = 0; p < e->n_parts; p++) duet_pages_drop(e->part[p]->data, (size_t)e->part[p]->bytes);
}

static void drop_pages(const duet__bound *b) {
    for (int i = 0; i < b->specs.n; i++) drop_entry(&b->entries[i]);
}

static void expect_samples(const duet__bound *b, bool on) {
    for (int i = 0; i < b->set.n_files; i++) {
        size_t bytes;
        const void *mapping = b->set.files[i] ? duet_st_mapping(b->set.files[i], &bytes) : NULL;
        if (mapping) duet_pages_scattered(mapping, bytes, on);
    }
}

duet_status duet_model_hash(duet_model *m, duet_model_hashes *out, duet_error *err) {
    (void)err;
    *out = (duet_model_hashes){0};
    duet_sha256 whole, h;
    bool all = true;
    duet_sha256_init(&whole);
    add_text(&whole, "duet model 1\n");
    for (int c = 0; c < DUET_N_COMPONENTS; c++) {
        const duet__bound *b = &m->part[c];
        all = all && b->open;
        if (!b->open) continue;
        begin(&h, m, (duet_component)c, "component");
        expect_samples(b, true);
        for (int i = 0; i < b->specs.n; i++)
            if (duet__entry_hashed(&b->entries[i])) add_samples(&h, &b->entries[i]);
        expect_samples(b, false);
        drop_pages(b);
        duet_sha256_hex(&h, out->component[c]);
        add_text(&whole, "%s %s\n", duet__component_name[c], out->component[c]);
    }
    if (m->part[DUET_COMPONENT_TEXT].open) hash_tokenizer(m, out->tokenizer);
    add_text(&whole, "tokenizer %s\n", out->tokenizer);
    if (all) duet_sha256_hex(&whole, out->model);
    return DUET_OK;
}

/* ---- the full form ------------------------------------------------------------------------------------------------------ */

/* Values with all exponent bits set. Simple loops over whole words: they run at the speed of memory. */
static int64_t count_nonfinite(duet_dtype dtype, const void *chunk, int64_t n) {
    int64_t bad = 0;
    if (dtype == DUET_F32) {
        const uint32_t *wide = chunk;
        for (int64_t i = 0; i < n; i++) bad += (wide[i] & 0x7f800000u) == 0x7f800000u;
        return bad;
    }
    const uint16_t *half = chunk, mask = dtype == DUET_BF16 ? 0x7f80u : 0x7c00u;
    for (int64_t i = 0; i < n; i++) bad += (half[i] & mask) == mask;
    return bad;
}

typedef struct verifier {
    const duet_verify_options *options;
    char *chunk;
    int64_t done_bytes, total_bytes;
} verifier;

static duet_status verify_tensor(verifier *v, const duet__entry *e, duet_sha256 *h,
                                 duet_component_report *report, duet_error *err) {
    duet_dtype dtype = duet__entry_dtype(e);
    int64_t size = (int64_t)duet_dtype_bytes(dtype), n = elems_of(e), take = CHUNK_BYTES / size, bad = 0;
    if (duet__entry_hashed(e)) add_tensor_header(h, e);
    for (int64_t at = 0; at < n; at += take) {
        int64_t now = n - at < take ? n - at : take;
        if (v->options->cancel && *v->options->cancel) return duet_fail(err, DUET_E_CANCELLED, "cancelled");
        duet__entry_read(e, at, now, v->chunk);
        bad += count_nonfinite(dtype, v->chunk, now);
        if (duet__entry_hashed(e)) duet_sha256_add(h, v->chunk, (size_t)(now * size));
    }
    if (bad && !report->nonfinite)
        snprintf(report->first_nonfinite, sizeof report->first_nonfinite, "%s", e->spec->name);
    drop_entry(e);
    report->nonfinite += bad;
    report->tensors += e->n_parts;
    for (int p = 0; p < e->n_parts; p++) report->bytes += e->part[p]->bytes;
    return DUET_OK;
}

static duet_status verify_component(verifier *v, duet_model *m, duet_component c,
                                    duet_component_report *report, duet_error *err) {
    const duet__bound *b = &m->part[c];
    duet_sha256 h;
    begin(&h, m, c, "full");
    report->files = b->set.n_files;
    report->missing_files = b->set.n_missing;
    for (int i = 0; i < b->specs.n; i++) {
        const duet__entry *e = &b->entries[i];
        if (!e->n_parts) continue;
        duet_status st = verify_tensor(v, e, &h, report, err);
        if (st != DUET_OK) return st;
        v->done_bytes += elems_of(e) * (int64_t)duet_dtype_bytes(e->part[0]->dtype);
        if (v->options->progress)
            v->options->progress(v->options->progress_arg, e->spec->name, v->done_bytes, v->total_bytes);
    }
    duet_sha256_hex(&h, report->sha256);
    return DUET_OK;
}

duet_status duet_model_verify(duet_model *m, const duet_verify_options *options,
                              duet_component_report report[DUET_N_COMPONENTS], duet_error *err) {
    static const duet_verify_options none = {0};
    verifier v = {.options = options ? options : &none, .chunk = duet_alloc(CHUNK_BYTES, DUET_MEM_STORE)};
    duet_status st = DUET_OK;
    memset(report, 0, DUET_N_COMPONENTS * sizeof *report);
    if (!v.chunk) return duet_fail(err, DUET_E_MEMORY, "no memory to read tensors");
    for (int c = 0; c < DUET_N_COMPONENTS; c++)
        for (int i = 0; m->part[c].open && i < m->part[c].specs.n; i++) {
            const duet__entry *e = &m->part[c].entries[i];
            if (e->n_parts) v.total_bytes += elems_of(e) * (int64_t)duet_dtype_bytes(e->part[0]->dtype);
        }
    for (int c = 0; c < DUET_N_COMPONENTS && st == DUET_OK; c++)
        if (m->part[c].open) st = verify_component(&v, m, (duet_component)c, &report[c], err);
    duet_free(v.chunk);
    return st;
}
