/* pack_latents.c - between latents and rows: pure index arithmetic, both ways (spec model-dit 4.9).
 *
 *     video  latents [C, T, h, w]  <->  rows ((t, y, x), (c, dy, dx)), pixel (y*ph + dy, x*pw + dx)
 *     audio  rows (channel, i)      ->  latents [2, C, Ta] */
#include "engine/pack.h"

/* Offset in the latents of column (c, dy, dx) of row (t, y, x), for dx = 0. */
static int64_t latent_at(const duet_patch_shape *s, int64_t t, int64_t y, int64_t x, int64_t c, int64_t dy) {
    int64_t line = y * s->patch_h + dy;
    return ((c * s->frames + t) * s->latent_h + line) * s->latent_w + x * s->patch_w;
}

/* Rows are walked in order; to_rows says which side is read. */
static void walk(const duet_patch_shape *s, float *latents, float *rows, bool to_rows) {
    int64_t rows_h = s->latent_h / s->patch_h, rows_w = s->latent_w / s->patch_w;
    for (int64_t t = 0; t < s->frames; t++)
        for (int64_t y = 0; y < rows_h; y++)
            for (int64_t x = 0; x < rows_w; x++)
                for (int64_t c = 0; c < s->channels; c++)
                    for (int64_t dy = 0; dy < s->patch_h; dy++, rows += s->patch_w) {
                        float *at = latents + latent_at(s, t, y, x, c, dy);
                        for (int64_t dx = 0; dx < s->patch_w; dx++)
                            if (to_rows)
                                rows[dx] = at[dx];
                            else
                                at[dx] = rows[dx];
                    }
}

void duet_patchify(const duet_patch_shape *shape, const float *latents, float *rows) {
    walk(shape, (float *)(uintptr_t)latents, rows, true);
}

void duet_unpatchify(const duet_patch_shape *shape, const float *rows, float *latents) {
    walk(shape, latents, (float *)(uintptr_t)rows, false);
}

void duet_audio_rows_to_latents(int64_t audio_latents, int32_t channels, const float *rows, float *latents) {
    for (int64_t side = 0; side < 2; side++)
        for (int64_t i = 0; i < audio_latents; i++)
            for (int64_t c = 0; c < channels; c++)
                latents[(side * channels + c) * audio_latents + i] =
                    rows[(side * audio_latents + i) * channels + c];
}
