/* kernels_fill.h - what a vector level overwrites. Included once per level, after all kernels.
 *
 * Left to ref: embed, euler, stats, unpatch and clamp. They run once per request or step, or are plain copies. */
static void fill(duet_kernels *k) {
    k->linear = linear_run;
    k->linear_scratch_bytes = linear_scratch;
    k->attention = attention_run;
    k->attention_scratch_bytes = attention_scratch;
    k->rmsnorm = rmsnorm_run;
    k->rmsnorm_scratch_bytes = rmsnorm_scratch;
    k->layernorm = layernorm_run;
    k->layernorm_scratch_bytes = layernorm_scratch;
    k->modulate = modulate_run;
    k->gated_add = gated_add_run;
    k->gated_add_scratch_bytes = gated_add_scratch;
    k->rope = rope_run;
    k->silu = silu_run;
    k->silu_mul = silu_mul_run;
    k->axpby = axpby_run;
    k->copy_rows = copy_rows_run;
    k->conv1d = conv1d_run;
    k->conv1d_scratch_bytes = conv1d_scratch;
    k->conv1d_up = conv1d_up_run;
    k->conv1d_up_scratch_bytes = conv1d_up_scratch;
    k->snake_aa = snake_run;
    k->snake_aa_scratch_bytes = snake_scratch;
    k->blend_tile = blend_tile_run;
    k->blend_tile_scratch_bytes = blend_tile_scratch;
    k->blend_seam = blend_seam_run;
    k->pixels_u8 = pixels_run;
}
