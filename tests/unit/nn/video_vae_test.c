/* video_vae_test.c - a tile of the ViT decoder against a second opinion in fp64, on random models.
 *
 * The second opinion is written from the chapter (spec model-vae 5.1, 5.2) with plain loops and can be told
 * to make the mistakes that hide (10.5): each test of a mistake shows that the tolerance would catch it. */
#include "unit/nn/hand_vae.h"

/* ---- second opinion ------------------------------------------------------------------------------------ */

typedef struct mistakes {
    double eps; /* of every norm; right: 1e-5 */
    bool no_zero_token, zero_registers, half_coordinates, swapped_halves;
} mistakes;

static const mistakes none = {.eps = 1e-5};

typedef struct naive {
    const duet_video_vae *v;
    mistakes wrong;
    int64_t t, h, w, patches, rows;
    double *x, *n, *wide, *o;
} naive;

static double *zeros(int64_t n) {
    double *p = duet_calloc((size_t)n, sizeof *p, DUET_MEM_TENSOR);
    EXPECT(p);
    return p;
}

static void naive_linear(const duet_weight *w, const duet_weight *bias, const double *x, double *y,
                         int64_t rows) {
    int64_t out = duet_weight_rows(w), in = duet_weight_row_elems(w);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < out; o++) {
            double sum = hand_at(bias, o, 0);
            for (int64_t i = 0; i < in; i++) sum += x[r * in + i] * hand_at(w, o, i);
            y[r * out + o] = sum;
        }
}

static void naive_rms(const double *x, double *y, int64_t n, const duet_weight *gain, double eps) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    double scale = 1.0 / sqrt(sum / (double)n + eps);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale * (gain ? hand_at(gain, i, 0) : 1.0);
}

static void naive_layernorm(const double *x, double *y, int64_t n, const duet_weight *gain,
                            const duet_weight *bias, double eps) {
    double mean = 0.0, var = 0.0;
    for (int64_t i = 0; i < n; i++) mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++) var += (x[i] - mean) * (x[i] - mean) / (double)n;
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) / sqrt(var + eps) * hand_at(gain, i, 0) + hand_at(bias, i, 0);
}

static double coordinate(const naive *m, int64_t i, int64_t n) {
    double c = ((double)i + 0.5) / (double)n;
    if (!m->wrong.half_coordinates) return 2.0 * c - 1.0;
    c = (double)duet_f16_to_f32(duet_f32_to_f16((float)c));
    return (double)duet_f16_to_f32(duet_f32_to_f16((float)(2.0 * c - 1.0)));
}

static void naive_rotate(const naive *m, double *head, int64_t row) {
    int64_t freqs = m->v->dims.freqs, pairs = 3 * freqs;
    if (row >= m->patches) return;
    const int64_t index[3] = {row / (m->h * m->w), row / m->w % m->h, row % m->w},
                  size[3] = {m->t, m->h, m->w};
    for (int64_t p = 0; p < pairs; p++) {
        double angle = 2.0 * acos(-1.0) * coordinate(m, index[p / freqs], size[p / freqs]) *
                       pow(100.0, -(double)(p % freqs) / (double)freqs);
        double a = head[p], b = head[p + pairs];
        head[p] = a * cos(angle) - b * sin(angle);
        head[p + pairs] = b * cos(angle) + a * sin(angle);
    }
}

/* One head of one query row. */
static void naive_attend(const naive *m, int64_t row, int64_t head, double *score) {
    const duet__vvae_dims *d = &m->v->dims;
    int64_t stride = 3 * d->width, n = d->head_dim;
    const double *q = m->wide + row * stride + head * n;
    double most = -1e300, sum = 0.0;
    for (int64_t j = 0; j < m->rows; j++) {
        const double *k = m->wide + j * stride + d->width + head * n;
        score[j] = 0.0;
        for (int64_t i = 0; i < n; i++) score[j] += q[i] * k[i] / sqrt((double)n);
        most = fmax(most, score[j]);
    }
    for (int64_t j = 0; j < m->rows; j++) sum += score[j] = exp(score[j] - most);
    for (int64_t i = 0; i < n; i++) {
        double v = 0.0;
        for (int64_t j = 0; j < m->rows; j++)
            v += score[j] / sum * m->wide[j * stride + 2 * d->width + head * n + i];
        m->o[row * d->width + head * n + i] = v;
    }
}

static void naive_add(const naive *m, const duet_weight *scale) {
    for (int64_t i = 0; i < m->rows * m->v->dims.width; i++)
        m->x[i] += hand_at(scale, i % m->v->dims.width, 0) * m->n[i];
}

static void naive_attention(const naive *m, const duet_weight *w) {
    const duet__vvae_dims *d = &m->v->dims;
    double *score = zeros(m->rows);
    for (int64_t r = 0; r < m->rows; r++)
        naive_rms(m->x + r * d->width, m->n + r * d->width, d->width, &w[VVAE_NORM1], m->wrong.eps);
    naive_linear(&w[VVAE_QKV_W], &w[VVAE_QKV_B], m->n, m->wide, m->rows);
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t h = 0; h < 2 * d->heads; h++) {
            double *head = m->wide + r * 3 * d->width + h * d->head_dim;
            naive_rms(head, head, d->head_dim, NULL, m->wrong.eps);
            naive_rotate(m, head, r);
        }
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t h = 0; h < d->heads; h++) naive_attend(m, r, h, score);
    naive_linear(&w[VVAE_ATTN_OUT_W], &w[VVAE_ATTN_OUT_B], m->o, m->n, m->rows);
    naive_add(m, &w[VVAE_SCALE1]);
    duet_free(score);
}

static void naive_feed_forward(const naive *m, const duet_weight *w) {
    const duet__vvae_dims *d = &m->v->dims;
    double *hidden = zeros(m->rows * d->ffn);
    int64_t gate = m->wrong.swapped_halves ? d->ffn : 0, up = d->ffn - gate;
    for (int64_t r = 0; r < m->rows; r++)
        naive_rms(m->x + r * d->width, m->n + r * d->width, d->width, &w[VVAE_NORM2], m->wrong.eps);
    naive_linear(&w[VVAE_W1_W], &w[VVAE_W1_B], m->n, m->wide, m->rows);
    for (int64_t i = 0; i < m->rows * d->ffn; i++) {
        const double *row = m->wide + i / d->ffn * 2 * d->ffn + i % d->ffn;
        hidden[i] = row[gate] / (1.0 + exp(-row[gate])) * row[up];
    }
    naive_linear(&w[VVAE_W2_W], &w[VVAE_W2_B], hidden, m->n, m->rows);
    naive_add(m, &w[VVAE_SCALE2]);
    duet_free(hidden);
}

static void naive_embed(const naive *m, const float *latent) {
    const duet__vvae_dims *d = &m->v->dims;
    const duet_weight *w = m->v->embed.weight;
    double *in = zeros(m->patches * d->channels), *quant = zeros(m->patches * d->channels);
    for (int64_t i = 0; i < m->patches * d->channels; i++) in[i] = latent[i];
    naive_linear(&w[VVAE_POST_QUANT_W], &w[VVAE_POST_QUANT_B], in, quant, m->patches);
    naive_linear(&w[VVAE_EMBED_W], &w[VVAE_EMBED_B], quant, m->x, m->patches);
    for (int64_t i = 0; i < d->registers * d->width; i++)
        m->x[m->patches * d->width + i] =
            m->wrong.zero_registers ? 0.0 : hand_at(&w[VVAE_REGISTERS], i / d->width, i % d->width);
    duet_free(in);
    duet_free(quant);
}

/* Raw pixels [3, patch_t*t, patch_s*h, patch_s*w] of the chapter's step 6. */
static double *naive_unpatch(const naive *m, const double *y) {
    const duet__vvae_dims *d = &m->v->dims;
    int64_t pt = d->patch_t, s = d->patch_s, frames = pt * m->t, height = s * m->h, width = s * m->w;
    double *raw = zeros(3 * frames * height * width);
    for (int64_t i = 0; i < 3 * frames * height * width; i++) {
        int64_t x = i % width, py = i / width % height, f = i / width / height % frames,
                c = i / width / height / frames;
        int64_t token = (f / pt * m->h + py / s) * m->w + x / s;
        raw[i] = y[token * d->patch + ((c * pt + f % pt) * s + py % s) * s + x % s];
    }
    return raw;
}

static double *naive_tile(const duet_video_vae *v, const float *latent, int64_t t, int64_t h, int64_t w,
                          mistakes wrong) {
    const duet__vvae_dims *d = &v->dims;
    naive m = {.v = v, .wrong = wrong, .t = t, .h = h, .w = w, .patches = t * h * w};
    m.rows = m.patches + d->registers + (wrong.no_zero_token ? 0 : 1);
    m.x = zeros(m.rows * d->width);
    m.n = zeros(m.rows * d->width);
    m.o = zeros(m.rows * d->width);
    m.wide = zeros(m.rows * (3 * d->width + 2 * d->ffn + d->patch));
    naive_embed(&m, latent);
    for (int i = 0; i < v->layers; i++) {
        naive_attention(&m, v->blocks[i].weight);
        naive_feed_forward(&m, v->blocks[i].weight);
    }
    const duet_weight *out = v->out.weight;
    for (int64_t r = 0; r < m.patches; r++)
        naive_layernorm(m.x + r * d->width, m.n + r * d->width, d->width, &out[VVAE_NORM_W],
                        &out[VVAE_NORM_B], wrong.eps);
    naive_linear(&out[VVAE_PROJ_W], &out[VVAE_PROJ_B], m.n, m.wide, m.patches);
    double *raw = naive_unpatch(&m, m.wide);
    duet_free(m.x);
    duet_free(m.n);
    duet_free(m.o);
    duet_free(m.wide);
    return raw;
}

/* ---- the network under test ---------------------------------------------------------------------------- */

static const duet_vvae_config sets[] = {
    {.space_ratio = 4,
     .time_ratio = 4,
     .latent_channels = 5,
     .vit_layers = 2,
     .vit_heads = 3,
     .vit_head_dim = 8,
     .vit_ffn_mult = 3,
     .vit_registers = 2,
     .vit_norm_eps = 1e-5f,
     .vit_rope_ratio = 0.75f,
     .vit_rope_theta = 100.0f},
    {.space_ratio = 2,
     .time_ratio = 4,
     .latent_channels = 7,
     .vit_layers = 3,
     .vit_heads = 2,
     .vit_head_dim = 16,
     .vit_ffn_mult = 4,
     .vit_registers = 4,
     .vit_norm_eps = 1e-5f,
     .vit_rope_ratio = 0.75f,
     .vit_rope_theta = 100.0f},
    {.space_ratio = 8,
     .time_ratio = 2,
     .latent_channels = 3,
     .vit_layers = 1,
     .vit_heads = 5,
     .vit_head_dim = 12,
     .vit_ffn_mult = 2,
     .vit_registers = 0,
     .vit_norm_eps = 1e-5f,
     .vit_rope_ratio = 0.5f,
     .vit_rope_theta = 100.0f},
};
enum { N_SETS = sizeof sets / sizeof *sets };

static float *some_latent(const duet_vvae_config *c, int64_t tokens, float scale) {
    float *latent = duet_alloc((size_t)(tokens * c->latent_channels) * sizeof *latent, DUET_MEM_TENSOR);
    EXPECT(latent);
    for (int64_t i = 0; i < tokens * c->latent_channels; i++)
        latent[i] = 2.0f * scale * hand_noise((uint64_t)i + 5);
    return latent;
}

/* Raw frames first.. of a tile, on the host. */
static float *decode(hand_device *h, duet_video_vae *v, const float *latent, int64_t t, int64_t lh,
                     int64_t lw, int64_t first, int64_t frames) {
    const duet__vvae_dims *d = &v->dims;
    duet_error e = {0};
    int64_t n = 3 * frames * lh * lw * d->patch_s * d->patch_s;
    void *raw = NULL;
    float *host = duet_alloc((size_t)n * sizeof *host, DUET_MEM_TENSOR);
    EXPECT(host);
    EXPECT_OK(duet_device_alloc(h->dev, n * 4, "raw", &raw, &e), e);
    const duet_raw_frames part = {.first = first, .frames = frames, .raw = raw};
    const duet_video_tile tile = {.latent = latent, .t = t, .h = lh, .w = lw, .parts = &part, .n_parts = 1};
    EXPECT_OK(duet_video_vae_decode_tile(v, h->residency, h->stream, &tile, NULL, NULL, &e), e);
    duet_copy_out(h->stream, host, raw, n * 4);
    EXPECT_OK(duet_stream_sync(h->stream, &e), e);
    duet_device_free(h->dev, raw);
    return host;
}

static double distance(hand_device *h, duet_video_vae *v, const float *latent, int64_t t, int64_t lh,
                       int64_t lw, mistakes wrong) {
    const duet__vvae_dims *d = &v->dims;
    int64_t frames = d->patch_t * t, n = 3 * frames * lh * lw * d->patch_s * d->patch_s;
    float *got = decode(h, v, latent, t, lh, lw, 0, frames);
    double *want = naive_tile(v, latent, t, lh, lw, wrong), rel = hand_rel_l2(got, want, n);
    duet_free(got);
    duet_free(want);
    return rel;
}

TEST(video_tile_agrees_with_fp64, 30000) {
    static const char *const backends[] = {"ref", "cpu"};
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < N_SETS; i++) {
            hand_device h = hand_device_open(backends[b], 2);
            duet_video_vae *v = hand_vvae_open(&sets[i], h.dev, 1 + (uint64_t)i);
            float *latent = some_latent(&sets[i], 7 * 5 * 6, 1.0f);
            EXPECT_LE(distance(&h, v, latent, 7, 5, 6, none), 2e-6);
            EXPECT_LE(distance(&h, v, latent, 1, 3, 2, none), 2e-6);
            duet_free(latent);
            hand_device_idle(&h);
            hand_vvae_close(&v);
            hand_device_close(&h);
        }
}

/* Every mistake leaves a mark far above the bound of the test before. */
TEST(video_tile_shows_the_mistakes_that_hide, 30000) {
    static const struct {
        mistakes wrong;
        double least;
    } row[] = {
        {{.eps = 1e-5, .no_zero_token = true}, 1e-3},
        {{.eps = 1e-5, .zero_registers = true}, 1e-2},
        {{.eps = 1e-5, .half_coordinates = true}, 2e-5},
        {{.eps = 1e-5, .swapped_halves = true}, 1e-1},
    };
    hand_device h = hand_device_open("ref", 2);
    duet_video_vae *v = hand_vvae_open(&sets[1], h.dev, 2);
    float *latent = some_latent(&sets[1], 7 * 5 * 6, 1.0f);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        double rel = distance(&h, v, latent, 7, 5, 6, row[i].wrong);
        if (!(rel >= row[i].least)) FAIL("mistake %zu moves the tile by %g only", i, rel);
    }
    duet_free(latent);
    hand_device_idle(&h);
    hand_vvae_close(&v);
    hand_device_close(&h);
}

static void scale_weight(const duet_weight *w, float by) {
    for (int64_t i = 0; i < hand_count(w); i++) hand_values(w)[i] *= by;
}

/* Rows of size 1e-3 (mean square 1e-6) make eps the larger term of every norm: 1e-6 for 1e-5 would be off
 * by half. */
TEST(video_tile_norms_use_their_eps, 10000) {
    hand_device h = hand_device_open("ref", 2);
    duet_video_vae *v = hand_vvae_open(&sets[0], h.dev, 3);
    scale_weight(&v->embed.weight[VVAE_EMBED_W], 1e-3f);
    scale_weight(&v->embed.weight[VVAE_EMBED_B], 1e-3f);
    scale_weight(&v->embed.weight[VVAE_REGISTERS], 1e-3f);
    for (int i = 0; i < v->layers; i++) { /* keep the stream small, and q and k too */
        scale_weight(&v->blocks[i].weight[VVAE_SCALE1], 1e-3f);
        scale_weight(&v->blocks[i].weight[VVAE_SCALE2], 1e-3f);
        float *qkv_bias = hand_values(&v->blocks[i].weight[VVAE_QKV_B]);
        for (int64_t k = 0; k < 3 * v->dims.width; k++) qkv_bias[k] *= 1e-3f;
        float *qkv = hand_values(&v->blocks[i].weight[VVAE_QKV_W]);
        for (int64_t k = 0; k < 3 * v->dims.width * v->dims.width; k++) qkv[k] *= 1e-2f;
    }
    float *latent = some_latent(&sets[0], 7 * 5 * 6, 1.0f);
    EXPECT_LE(distance(&h, v, latent, 7, 5, 6, none), 2e-6);
    EXPECT(distance(&h, v, latent, 7, 5, 6, (mistakes){.eps = 1e-6}) > 0.1);
    duet_free(latent);
    hand_device_idle(&h);
    hand_vvae_close(&v);
    hand_device_close(&h);
}

/* ---- what a caller may rely on ------------------------------------------------------------------------- */

/* Any run of frames is the same run of all frames, and sizes may come in any order. */
TEST(video_tile_parts_and_sizes_are_independent, 10000) {
    const duet_vvae_config *c = &sets[1];
    static const int64_t size[][3] = {{7, 5, 6}, {2, 2, 3}, {7, 5, 6}, {8, 7, 7}, {2, 2, 3}};
    hand_device h = hand_device_open("cpu", 2);
    duet_video_vae *v = hand_vvae_open(c, h.dev, 4);
    float *latent = some_latent(c, 8 * 7 * 7, 1.0f);
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        int64_t t = size[i][0], lh = size[i][1], lw = size[i][2],
                frame = lh * lw * c->space_ratio * c->space_ratio;
        duet_video_vae *fresh = hand_vvae_open(c, h.dev, 4);
        float *all = decode(&h, fresh, latent, t, lh, lw, 0, 4 * t),
              *part = decode(&h, v, latent, t, lh, lw, 3, 4 * t - 5);
        for (int64_t ch = 0; ch < 3; ch++)
            EXPECT(!memcmp(part + ch * (4 * t - 5) * frame, all + (ch * 4 * t + 3) * frame,
                           (size_t)((4 * t - 5) * frame) * sizeof(float)));
        duet_free(all);
        duet_free(part);
        duet_residency_close(&h.residency); /* `fresh` must leave the list before it goes */
        hand_vvae_close(&fresh);
        duet_error e = {0};
        EXPECT_OK(duet_residency_open(h.dev, &h.residency, &e), e);
    }
    duet_free(latent);
    hand_device_idle(&h);
    hand_vvae_close(&v);
    hand_device_close(&h);
}

TEST(video_tile_is_the_same_for_any_number_of_threads, 10000) {
    const duet_vvae_config *c = &sets[0];
    int64_t n = 3 * 28 * 9 * 6 * c->space_ratio * c->space_ratio;
    float *first = NULL, *latent = some_latent(c, 7 * 9 * 6, 1.0f);
    for (int threads = 1; threads <= 3; threads++) {
        hand_device h = hand_device_open("cpu", threads);
        duet_video_vae *v = hand_vvae_open(c, h.dev, 5);
        float *raw = decode(&h, v, latent, 7, 9, 6, 0, 28);
        if (!first)
            first = raw;
        else {
            EXPECT(!memcmp(first, raw, (size_t)n * sizeof *raw));
            duet_free(raw);
        }
        hand_device_idle(&h);
        hand_vvae_close(&v);
        hand_device_close(&h);
    }
    duet_free(first);
    duet_free(latent);
}

TEST(video_tile_stops_when_cancelled, 5000) {
    hand_device h = hand_device_open("cpu", 1);
    duet_video_vae *v = hand_vvae_open(&sets[0], h.dev, 6);
    float *latent = some_latent(&sets[0], 1, 1.0f);
    volatile int cancel = 1;
    duet_error e = {0};
    duet_video_tile tile = {.latent = latent, .t = 1, .h = 1, .w = 1};
    EXPECT_EQ(duet_video_vae_decode_tile(v, h.residency, h.stream, &tile, NULL, &cancel, &e),
              DUET_E_CANCELLED);
    cancel = 0;
    EXPECT_OK(duet_video_vae_decode_tile(v, h.residency, h.stream, &tile, NULL, &cancel, &e), e);
    duet_free(latent);
    hand_device_idle(&h);
    hand_vvae_close(&v);
    hand_device_close(&h);
}

TEST(video_tile_takes_the_memory_it_announced, 5000) {
    hand_device h = hand_device_open("cpu", 1);
    duet_video_vae *v = hand_vvae_open(&sets[2], h.dev, 7);
    float *latent = some_latent(&sets[2], 7 * 4 * 4, 1.0f);
    duet_error e = {0};
    duet_video_tile tile = {.latent = latent, .t = 7, .h = 4, .w = 4};
    EXPECT_OK(duet_video_vae_decode_tile(v, h.residency, h.stream, &tile, NULL, NULL, &e), e);
    EXPECT_OK(duet_stream_sync(h.stream, &e), e);
    EXPECT_EQ(v->memory_bytes, duet_video_vae_activation_bytes(&sets[2], 7, 4, 4));
    duet_free(latent);
    hand_device_idle(&h);
    hand_vvae_close(&v);
    hand_device_close(&h);
}
