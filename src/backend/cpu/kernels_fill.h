/* kernels_fill.h - what a vector level overwrites. Included once per level, after all kernels. */
static void fill(duet_kernels *k) {
    k->linear = linear_run;
    k->linear_scratch_bytes = linear_scratch;
    k->attention = attention_run;
    k->attention_scratch_bytes = attention_scratch;
}
