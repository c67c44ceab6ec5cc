/* transformer_eval.c - one evaluation: rows in, blocks, velocities out. */
#include "nn/transformer_int.h"

typedef struct range {
    int64_t first, rows;
} range;

/* Project all rows of a modality (they lie together in x), then put each range where it belongs in the
 * sequence. */
static void embed_rows(duet_stream *stream, const duet__dit_linear *proj, const float *x, int64_t cols,
                       const range *ranges, int64_t n_ranges, duet_dit_state *s, int64_t hidden,
                       const char *tap_name, duet_tap *tap) {
    int64_t rows = 0, at = 0;
    for (int64_t i = 0; i < n_ranges; i++) rows += ranges[i].rows;
    duet__dit_linear_rows(stream, proj, x, s->n, rows, cols, hidden);
    duet__dit_tap(tap, stream, tap_name, s->n, rows, hidden, hidden, NULL);
    for (int64_t i = 0; i < n_ranges; i++) {
        duet_copy_rows(stream, &(duet_copy_rows_args){.x = s->n + at * hidden,
                                                      .y = s->h + ranges[i].first * hidden,
                                                      .rows = ranges[i].rows,
                                                      .cols = hidden,
                                                      .x_stride = hidden,
                                                      .y_stride = hidden});
        at += ranges[i].rows;
    }
}

/* Row of a block's table = 3 * timestep + modality; the final table has no modality. */
static void upload_indices(duet_stream *stream, duet_dit_state *s, const int32_t *row_timestep) {
    int64_t rows = s->layout.rows, bytes = rows * (int64_t)sizeof(int32_t);
    for (int64_t r = 0; r < rows; r++)
        s->host_index[r] = row_timestep[r] * DUET__MODALITIES + s->host_tags[r];
    duet_copy_in(stream, s->adaln_index, s->host_index, bytes);
    duet_copy_in(stream, s->time_index, row_timestep, bytes);
}

duet_status duet_dit_begin(duet_dit *dit, duet_residency *residency, duet_stream *stream, duet_dit_state *s,
                           const duet_dit_tables *tables, const int32_t *row_timestep,
                           const float *video_rows, const float *audio_rows, duet_tap *tap, duet_error *err) {
    (void)tables;
    const duet_dit_config *c = &dit->config;
    const duet_dit_layout *l = &s->layout;
    int64_t hidden = c->hidden;
    range video[16], audio[16];
    for (int64_t i = 0; i < l->n_video_ranges; i++)
        video[i] = (range){l->video_range[i].first, l->video_range[i].rows};
    for (int64_t i = 0; i < l->n_audio_ranges; i++)
        audio[i] = (range){l->audio_range[i].first, l->audio_range[i].rows};

    if (residency->declare_walk) residency->declare_walk(residency, dit->walk, dit->n_walk);
    duet_status st = residency->acquire(residency, &dit->embed, stream, err);
    if (st != DUET_OK) return st;
    upload_indices(stream, s, row_timestep);
    duet_copy_rows(stream, &(duet_copy_rows_args){.x = s->text,
                                                  .y = s->h + l->text_first * hidden,
                                                  .rows = l->text_rows,
                                                  .cols = hidden,
                                                  .x_stride = hidden,
                                                  .y_stride = hidden});
    embed_rows(stream, &dit->video_in, video_rows, duet__dit_video_width(c), video, l->n_video_ranges, s,
               hidden, "dit.video_in", tap);
    embed_rows(stream, &dit->audio_in, audio_rows, c->audio_channels, audio, l->n_audio_ranges, s, hidden,
               "dit.audio_in", tap);
    residency->release(residency, &dit->embed, stream);
    duet__dit_tap(tap, stream, "dit.packed", s->h, l->rows, hidden, hidden, NULL);
    return DUET_OK;
}

duet_status duet_dit_block(duet_dit *dit, duet_residency *residency, duet_stream *stream, duet_dit_state *s,
                           const duet_dit_tables *tables, int block, duet_tap *tap, duet_error *err) {
    int64_t table_floats = tables->n_t * DUET__MODALITIES * DUET__BLOCK_SLOTS * dit->config.hidden;
    duet__dit_block *b = &dit->blocks[block];
    duet__dit_pass pass = {.dit = dit,
                           .stream = stream,
                           .state = s,
                           .rows = s->layout.rows,
                           .table = tables->blocks + block * table_floats,
                           .tap = tap,
                           .number = block};
    duet_status st = residency->acquire(residency, &b->unit, stream, err);
    if (st != DUET_OK) return st;
    duet__dit_run_block(&pass, b);
    residency->release(residency, &b->unit, stream);
    return DUET_OK;
}

static void final_norm(const duet_dit *dit, duet_stream *stream, duet_dit_state *s,
                       const duet_dit_tables *tables, int64_t first, int64_t rows) {
    int64_t hidden = dit->config.hidden;
    float *n = s->n + first * hidden;
    duet_rmsnorm(stream, &(duet_rmsnorm_args){.x = s->h + first * hidden,
                                              .y = n,
                                              .gain = &dit->final_norm,
                                              .rows = rows,
                                              .groups = 1,
                                              .cols = hidden,
                                              .x_stride = hidden,
                                              .y_stride = hidden,
                                              .eps = dit->config.final_norm_eps});
    duet_modulate(stream, &(duet_modulate_args){.x = n,
                                                .y = n,
                                                .shift = tables->final,
                                                .scale = tables->final + hidden,
                                                .index = s->time_index + first,
                                                .rows = rows,
                                                .cols = hidden,
                                                .x_stride = hidden,
                                                .y_stride = hidden,
                                                .table_stride = 2 * hidden});
}

duet_status duet_dit_head(duet_dit *dit, duet_residency *residency, duet_stream *stream, duet_dit_state *s,
                          const duet_dit_tables *tables, float *video_velocity, float *audio_velocity,
                          duet_tap *tap, duet_error *err) {
    const duet_dit_config *c = &dit->config;
    const duet_dit_layout *l = &s->layout;
    int64_t hidden = c->hidden;
    range video = {l->video_range[l->n_video_ranges - 1].first, l->video_range[l->n_video_ranges - 1].rows};
    range audio = {l->audio_range[l->n_audio_ranges - 1].first, l->audio_range[l->n_audio_ranges - 1].rows};
    duet_status st = residency->acquire(residency, &dit->embed, stream, err);
    if (st != DUET_OK) return st;
    if (duet_tap_wants(tap,
                       "dit.final_norm")) { /* the tap shows all rows; the heads need the targets alone */
        final_norm(dit, stream, s, tables, 0, l->rows);
        duet__dit_tap(tap, stream, "dit.final_norm", s->n, l->rows, hidden, hidden, NULL);
    } else {
        final_norm(dit, stream, s, tables, video.first, video.rows);
        final_norm(dit, stream, s, tables, audio.first, audio.rows);
    }
    duet__dit_linear_rows(stream, &dit->video_out, s->n + video.first * hidden, video_velocity, video.rows,
                          hidden, duet__dit_video_width(c));
    duet__dit_linear_rows(stream, &dit->audio_out, s->n + audio.first * hidden, audio_velocity, audio.rows,
                          hidden, c->audio_channels);
    residency->release(residency, &dit->embed, stream);
    return DUET_OK;
}
