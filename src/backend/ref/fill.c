/* fill.c - every slot of the table gets its reference kernel; the helpers that several of them share. */
#include "backend/ref/ref.h"

void duet__ref_fill(duet_kernels *kernels) {
    *kernels = (duet_kernels){
#define DUET_OP(name, ptrs, weights) .name = duet__ref_##name,
#include "backend/ops.def"
#undef DUET_OP
        .linear_scratch_bytes = duet__ref_linear_scratch,
        .attention_scratch_bytes = duet__ref_attention_scratch,
        .conv1d_scratch_bytes = duet__ref_conv1d_scratch,
        .conv1d_up_scratch_bytes = duet__ref_conv1d_up_scratch,
    };
}

const float *duet__ref_row(const duet_weight *w, int64_t row, float *room) {
    const void *at = duet_weight_row(w, row);
    if (w->dtype == DUET_F32 && (uintptr_t)at % sizeof(float) == 0) return at;
    duet_widen_to_f32(w->dtype, at, duet_weight_row_elems(w), room);
    return room;
}

float duet__ref_value(const duet_weight *w, int64_t i) {
    int64_t row_elems = duet_weight_row_elems(w);
    const char *at = duet_weight_row(w, i / row_elems);
    float value = 0;
    duet_widen_to_f32(w->dtype, at + (size_t)(i % row_elems) * duet_dtype_bytes(w->dtype), 1, &value);
    return value;
}

double duet__ref_dot(const float *a, const float *b, int64_t n) {
    double sum[4] = {0, 0, 0, 0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++) sum[j] += (double)a[i + j] * (double)b[i + j];
    for (; i < n; i++) sum[0] += (double)a[i] * (double)b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}
