/* transformer.c - the transformer's weights: which belong together in a unit, opened by canonical name.
 *
 *     embed      patch and condition projections, output heads, the two norms outside blocks
 *     refiner.i  text blocks
 *     blocks.i   the stack
 *     adaln.*    what builds the tables of a schedule
 *
 * Opening looks names up and reads nothing but rope.inv_freq; everything else is touched when its unit is
 * acquired. */
#include "nn/transformer_int.h"

#include <math.h>
#include <stdio.h>

#include "base/alloc.h"

static duet_status bind(duet_model *model, const char *prefix, const char *name, duet_weight *out,
                        duet_error *err) {
    char full[96];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return duet_model_weight(model, DUET_COMPONENT_DIT, full, out, err);
}

static duet_status bind_linear(duet_model *model, const char *prefix, const char *name, duet__dit_linear *out,
                               duet_error *err) {
    char full[96];
    snprintf(full, sizeof full, "%s%s.weight", prefix, name);
    duet_status st = duet_model_weight(model, DUET_COMPONENT_DIT, full, &out->w, err);
    if (st != DUET_OK) return st;
    snprintf(full, sizeof full, "%s%s.bias", prefix, name);
    return duet_model_weight(model, DUET_COMPONENT_DIT, full, &out->bias, err);
}

static duet_status bind_block(duet_model *model, const char *stem, const char *unit, int i,
                              duet__dit_block *b, duet_error *err) {
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s.%d.", stem, i);
    snprintf(b->name, sizeof b->name, "%s.%d", unit, i);
    const struct {
        const char *name;
        duet_weight *weight;
    } parts[DUET__BLOCK_WEIGHTS] = {
        {"norm1.weight", &b->norm1},        {"attn.qkv_proj.weight", &b->qkv},
        {"attn.q_norm.weight", &b->q_norm}, {"attn.k_norm.weight", &b->k_norm},
        {"attn.out_proj.weight", &b->out},  {"norm2.weight", &b->norm2},
        {"mlp.fc1.weight", &b->fc1},        {"mlp.fc2.weight", &b->fc2},
    };
    for (int p = 0; p < DUET__BLOCK_WEIGHTS; p++) {
        duet_status st = bind(model, prefix, parts[p].name, parts[p].weight, err);
        if (st != DUET_OK) return st;
        b->weights[p] = parts[p].weight;
    }
    b->unit = (duet_unit){.name = b->name, .weights = b->weights, .n_weights = DUET__BLOCK_WEIGHTS};
    return DUET_OK;
}

/* One or two projections under one unit of the AdaLN group. */
static duet_status bind_adaln(duet_model *model, const char *unit, const char *prefix,
                              const char *const *names, int n_names, duet__dit_adaln *a, duet_error *err) {
    snprintf(a->name, sizeof a->name, "adaln.%s", unit);
    for (int i = 0; i < n_names; i++) {
        duet_status st = bind_linear(model, prefix, names[i], &a->proj[i], err);
        if (st != DUET_OK) return st;
        a->weights[2 * i] = &a->proj[i].w;
        a->weights[2 * i + 1] = &a->proj[i].bias;
    }
    a->unit = (duet_unit){.name = a->name, .weights = a->weights, .n_weights = 2 * n_names};
    return DUET_OK;
}

static duet_status bind_embed(duet_model *model, duet_dit *d, duet_error *err) {
    const struct {
        const char *name;
        duet__dit_linear *linear;
    } parts[] = {{"video_patch_proj", &d->video_in},
                 {"audio_patch_proj", &d->audio_in},
                 {"condition_proj", &d->condition},
                 {"final_layer.video_out", &d->video_out},
                 {"final_layer.audio_out", &d->audio_out}};
    int n = 0;
    duet_status st;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        TRY(st, fail, bind_linear(model, "", parts[i].name, parts[i].linear, err));
        d->embed_weights[n++] = &parts[i].linear->w;
        d->embed_weights[n++] = &parts[i].linear->bias;
    }
    TRY(st, fail, bind(model, "", "token_refiner.final_norm.weight", &d->refiner_norm, err));
    TRY(st, fail, bind(model, "", "final_layer.norm.weight", &d->final_norm, err));
    d->embed_weights[n++] = &d->refiner_norm;
    d->embed_weights[n++] = &d->final_norm;
    d->embed = (duet_unit){.name = "embed", .weights = d->embed_weights, .n_weights = n};
fail:
    return st;
}

static duet_status bind_adaln_all(duet_model *model, duet_dit *d, duet_error *err) {
    static const char *const time_names[] = {"proj_in", "proj_out"}, *const one_name[] = {
                                                                         "adaln_proj.linear"};
    duet_status st;
    TRY(st, fail, bind_adaln(model, "time", "time_embedder.", time_names, 2, &d->time, err));
    for (int i = 0; i < d->config.layers; i++) {
        char number[16], prefix[32];
        snprintf(number, sizeof number, "%d", i);
        snprintf(prefix, sizeof prefix, "blocks.%d.", i);
        TRY(st, fail, bind_adaln(model, number, prefix, one_name, 1, &d->adaln[i], err));
    }
    TRY(st, fail, bind_adaln(model, "final", "final_layer.", one_name, 1, &d->final, err));
fail:
    return st;
}

/* A power and a reciprocal in fp32, as the reference computes them. */
static void default_frequencies(double theta, int n, float *out) {
    for (int k = 0; k < n; k++) out[k] = 1.0f / powf((float)theta, (float)(2 * k) / (float)(2 * n));
}

/* The file's own frequencies if it has them. */
static duet_status load_frequencies(duet_model *model, duet_dit *d, duet_error *err) {
    int n = d->config.rope_freqs;
    if (!duet_model_has(model, DUET_COMPONENT_DIT, "rope.inv_freq")) {
        default_frequencies(d->config.rope_theta, n, d->inv_freq);
        return DUET_OK;
    }
    duet_weight w;
    duet_status st = duet_model_weight(model, DUET_COMPONENT_DIT, "rope.inv_freq", &w, err);
    if (st != DUET_OK) return st;
    for (int k = 0; k < n; k++)
        if (!duet_widen_to_f32(w.dtype, duet_weight_row(&w, k), 1, &d->inv_freq[k]))
            return duet_fail(err, DUET_E_MODEL, "rope.inv_freq: dtype %s is not floating",
                             duet_dtype_name(w.dtype));
    return DUET_OK;
}

static duet_status allocate(duet_dit *d, duet_error *err) {
    size_t layers = (size_t)d->config.layers, refiners = (size_t)d->config.refiner_layers;
    d->blocks = duet_calloc(layers, sizeof *d->blocks, DUET_MEM_TENSOR);
    d->refiner = duet_calloc(refiners ? refiners : 1, sizeof *d->refiner, DUET_MEM_TENSOR);
    d->adaln = duet_calloc(layers, sizeof *d->adaln, DUET_MEM_TENSOR);
    d->walk = duet_calloc(layers + 2, sizeof *d->walk, DUET_MEM_TENSOR);
    d->inv_freq = duet_calloc((size_t)d->config.rope_freqs, sizeof(float), DUET_MEM_TENSOR);
    if (!d->blocks || !d->refiner || !d->adaln || !d->walk || !d->inv_freq)
        return duet_fail(err, DUET_E_MEMORY, "transformer: no memory for handles");
    return DUET_OK;
}

static void plan_walk(duet_dit *d) {
    d->walk[d->n_walk++] = &d->embed;
    for (int i = 0; i < d->config.layers; i++) d->walk[d->n_walk++] = &d->blocks[i].unit;
    d->walk[d->n_walk++] = &d->embed;
}

duet_status duet_dit_open(duet_model *model, duet_device *dev, duet_dit **out, duet_error *err) {
    *out = NULL;
    duet_status st;
    duet_dit *d = duet_calloc(1, sizeof *d, DUET_MEM_TENSOR);
    if (!d) return duet_fail(err, DUET_E_MEMORY, "transformer: no memory for handles");
    d->config = duet_model_config_get(model)->dit;
    d->dev = dev;
    d->mlp_budget_bytes = DUET__MLP_BUDGET_BYTES;
    TRY(st, fail, allocate(d, err));
    TRY(st, fail, bind_embed(model, d, err));
    TRY(st, fail, bind_adaln_all(model, d, err));
    for (int i = 0; i < d->config.refiner_layers; i++)
        TRY(st, fail, bind_block(model, "token_refiner.blocks", "refiner", i, &d->refiner[i], err));
    for (int i = 0; i < d->config.layers; i++)
        TRY(st, fail, bind_block(model, "blocks", "blocks", i, &d->blocks[i], err));
    TRY(st, fail, load_frequencies(model, d, err));
    plan_walk(d);
    *out = d;
    return DUET_OK;
fail:
    duet_dit_close(&d);
    return st;
}

void duet_dit_close(duet_dit **dit) {
    duet_dit *d = *dit;
    if (!d) return;
    *dit = NULL;
    duet_free(d->blocks);
    duet_free(d->refiner);
    duet_free(d->adaln);
    duet_free(d->walk);
    duet_free(d->inv_freq);
    duet_free(d);
}

const duet_dit_config *duet_dit_config_get(const duet_dit *dit) {
    return &dit->config;
}

/* ---- small helpers of all files ---- */

duet__tap_name duet__dit_tap_name(const char *stem, int number, const char *leaf) {
    duet__tap_name name;
    snprintf(name.text, sizeof name.text, "dit.%s_%02d%s%s", stem, number, *leaf ? "." : "", leaf);
    return name;
}

void duet__dit_tap(duet_tap *tap, duet_stream *stream, const char *name, const float *x, int64_t rows,
                   int64_t cols, int64_t x_stride, const duet_shape *shape) {
    if (!duet_tap_wants(tap, name)) return;
    duet_shape plain = DUET_SHAPE(rows, cols);
    tap->take_device(tap, stream, name, x, rows, cols, x_stride, shape ? shape : &plain);
}

void duet__dit_linear_rows(duet_stream *stream, const duet__dit_linear *proj, const float *x, float *y,
                           int64_t rows, int64_t cols_in, int64_t cols_out) {
    if (rows <= 0) return;
    duet_linear(stream, &(duet_linear_args){.x = x,
                                            .y = y,
                                            .w = &proj->w,
                                            .bias = &proj->bias,
                                            .rows = rows,
                                            .cols_in = cols_in,
                                            .cols_out = cols_out,
                                            .x_stride = cols_in,
                                            .y_stride = cols_out});
}
