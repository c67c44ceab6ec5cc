/* naive.c - what anybody would write first, in fp32: the error of these against double is the unit in which the
 * budgets of faster kernels are measured. Weights come widened by the same rule as everywhere. */
#include "checkop/checkop.h"

#include <stdlib.h>

static float *widened(const duet_weight *w) {
    int64_t rows = duet_weight_rows(w), cols = duet_weight_row_elems(w);
    float *all = malloc((size_t)(rows * cols) * sizeof *all);
    for (int64_t r = 0; r < rows; r++)
        duet_widen_to_f32(w->dtype, duet_weight_row(w, r), cols, all + r * cols);
    return all;
}

static float *widened_or_null(const duet_weight *w) {
    return duet__has(w) ? widened(w) : NULL;
}

void naive_linear(const void *args) {
    const duet_linear_args *a = args;
    float *w = widened(a->w), *bias = widened_or_null(a->bias);
    for (int64_t r = 0; r < a->rows; r++) {
        for (int64_t n = 0; n < a->cols_out; n++) {
            const float *x = a->x + r * a->x_stride, *row = w + (a->row0 + n) * duet_weight_row_elems(a->w);
            float sum = 0;
            for (int64_t k = 0; k < a->cols_in; k++) sum += x[k] * row[k];
            a->y[r * a->y_stride + n] = bias ? sum + bias[a->row0 + n] : sum;
        }
    }
    free(w), free(bias);
}

void naive_rmsnorm(const void *args) {
    const duet_rmsnorm_args *a = args;
    float *gain = widened_or_null(a->gain);
    for (int64_t r = 0; r < a->rows; r++) {
        for (int64_t g = 0; g < a->groups; g++) {
            const float *x = a->x + r * a->x_stride + g * a->x_group_stride;
            float *y = a->y + r * a->y_stride + g * a->y_group_stride, sum = 0;
            for (int64_t c = 0; c < a->cols; c++) sum += x[c] * x[c];
            float scale = 1.0f / sqrtf(sum / (float)a->cols + a->eps);
            for (int64_t c = 0; c < a->cols; c++) y[c] = x[c] * scale * (gain ? gain[c] : 1.0f);
        }
    }
    free(gain);
}

void naive_layernorm(const void *args) {
    const duet_layernorm_args *a = args;
    float *gain = widened_or_null(a->gain), *bias = widened_or_null(a->bias);
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->x_stride;
        float *y = a->y + r * a->y_stride, sum = 0, square = 0;
        for (int64_t c = 0; c < a->cols; c++) sum += x[c];
        float mean = sum / (float)a->cols;
        for (int64_t c = 0; c < a->cols; c++) square += (x[c] - mean) * (x[c] - mean);
        float scale = 1.0f / sqrtf(square / (float)a->cols + a->eps);
        for (int64_t c = 0; c < a->cols; c++)
            y[c] = (x[c] - mean) * scale * (gain ? gain[c] : 1.0f) + (bias ? bias[c] : 0.0f);
    }
    free(gain), free(bias);
}

static void attention_row(const duet_attention_args *a, int64_t r, int64_t h, int64_t first, int64_t end,
                          float *score) {
    int64_t kv = h / (a->heads / a->kv_heads);
    const float *q = a->q + r * a->q_stride + h * a->q_head_stride;
    float best = -INFINITY, total = 0, *o = a->o + r * a->o_stride + h * a->o_head_stride;
    for (int64_t j = first; j < end; j++) {
        const float *k = a->k + j * a->k_stride + kv * a->k_head_stride;
        float sum = 0;
        for (int64_t d = 0; d < a->head_dim; d++) sum += q[d] * k[d];
        score[j] = sum * a->scale;
        best = score[j] > best ? score[j] : best;
    }
    for (int64_t j = first; j < end; j++) total += score[j] = expf(score[j] - best);
    for (int64_t d = 0; d < a->head_dim; d++) {
        float sum = 0;
        for (int64_t j = first; j < end; j++)
            sum += score[j] * a->v[j * a->v_stride + kv * a->v_head_stride + d];
        o[d] = sum / total;
    }
}

void naive_attention(const void *args) {
    const duet_attention_args *a = args;
    float *score = malloc((size_t)a->rows * sizeof *score);
    int64_t first = 0, segment = 0;
    for (int64_t r = 0; r < a->rows; r++) {
        while (a->seg_end_row && r >= a->seg_end_row[segment]) first = a->seg_end_row[segment++];
        int64_t end = a->seg_end_row ? a->seg_end_row[segment] : a->rows;
        for (int64_t h = 0; h < a->heads; h++) attention_row(a, r, h, first, a->causal ? r + 1 : end, score);
    }
    free(score);
}

void naive_silu(const void *args) {
    const duet_silu_args *a = args;
    for (int64_t i = 0; i < a->n; i++) a->y[i] = a->x[i] / (1.0f + expf(-a->x[i]));
}

void naive_silu_mul(const void *args) {
    const duet_silu_mul_args *a = args;
    for (int64_t r = 0; r < a->rows; r++) {
        for (int64_t c = 0; c < a->cols; c++) {
            float g = a->gate[r * a->gate_stride + c];
            a->y[r * a->y_stride + c] = g / (1.0f + expf(-g)) * a->up[r * a->up_stride + c];
        }
    }
}

static float sample(const float *x, int64_t i, int64_t n) {
    return i < 0 || i >= n ? 0.0f : x[i];
}

void naive_conv1d(const void *args) {
    const duet_conv1d_args *a = args;
    float *w = widened(a->w), *bias = widened_or_null(a->bias);
    for (int64_t bo = 0; bo < a->batch * a->channels_out; bo++) {
        int64_t b = bo / a->channels_out, o = bo % a->channels_out;
        for (int64_t t = 0; t < a->length_out; t++) {
            float sum = bias ? bias[o] : 0.0f;
            for (int64_t i = 0; i < a->channels_in; i++)
                for (int64_t k = 0; k < a->kernel; k++)
                    sum += w[(o * a->channels_in + i) * a->kernel + k] *
                           sample(a->x + (b * a->channels_in + i) * a->length_in,
                                  t * a->stride + k * a->dilation - a->pad, a->length_in);
            a->y[bo * a->length_out + t] = a->residual ? sum + a->residual[bo * a->length_out + t] : sum;
        }
    }
    free(w), free(bias);
}

void naive_conv1d_up(const void *args) {
    const duet_conv1d_up_args *a = args;
    float *w = widened(a->w), *bias = widened_or_null(a->bias);
    for (int64_t bo = 0; bo < a->batch * a->channels_out; bo++) {
        int64_t b = bo / a->channels_out, o = bo % a->channels_out;
        for (int64_t t = 0; t < a->length_out; t++) {
            float sum = bias ? bias[o] : 0.0f;
            for (int64_t i = 0; i < a->channels_in; i++) {
                const float *x = a->x + (b * a->channels_in + i) * a->length_in;
                for (int64_t s = 0; s < a->length_in; s++) {
                    int64_t k = t + a->pad - s * a->stride;
                    if (k >= 0 && k < a->kernel) sum += w[(i * a->channels_out + o) * a->kernel + k] * x[s];
                }
            }
            a->y[bo * a->length_out + t] = sum;
        }
    }
    free(w), free(bias);
}

/* Three passes with the whole 2x signal in memory, written from the definition: pad, transposed convolution, crop. */
static void snake_channel(const float *x, float *y, int64_t n, const float *up, const float *down,
                          float frequency, float height) {
    int64_t padded = n + 10, full = 2 * (padded - 1) + 12;
    float *wide = calloc((size_t)full, sizeof *wide), *mid = malloc((size_t)(2 * n) * sizeof *mid);
    for (int64_t s = 0; s < padded; s++) {
        int64_t at = s - 5 < 0 ? 0 : s - 5 >= n ? n - 1 : s - 5;
        for (int64_t k = 0; k < 12; k++) wide[2 * s + k] += 2.0f * x[at] * up[k];
    }
    for (int64_t i = 0; i < 2 * n; i++) {
        float u = wide[i + 15], s = sinf(u * frequency);
        mid[i] = u + height * s * s;
    }
    for (int64_t m = 0; m < n; m++) {
        float sum = 0;
        for (int64_t k = 0; k < 12; k++) {
            int64_t at = 2 * m + k - 5;
            sum += down[k] * mid[at < 0 ? 0 : at >= 2 * n ? 2 * n - 1 : at];
        }
        y[m] = sum;
    }
    free(wide), free(mid);
}

void naive_snake_aa(const void *args) {
    const duet_snake_aa_args *a = args;
    float *alpha = widened(a->alpha), *beta = widened(a->beta), *up = widened(a->up_filter);
    float *down = widened(a->down_filter);
    for (int64_t bc = 0; bc < a->batch * a->channels; bc++) {
        int64_t c = bc % a->channels;
        snake_channel(a->x + bc * a->length, a->y + bc * a->length, a->length, up, down, expf(alpha[c]),
                      1.0f / (expf(beta[c]) + 1e-9f));
    }
    free(alpha), free(beta), free(up), free(down);
}
