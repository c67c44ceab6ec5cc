/* denoise_fault_test.c - from handles to latents with every single allocation refused once: always an
 * error that says so, never a leak, and the same bits as ever when nothing is refused. */
#include "harness/harness.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "engine/denoise.h"
#include "engine/noise.h"
#include "engine/residency.h"
#include "store/synth.h"

enum {
    TEXT_ROWS = 5,
    VIDEO_VALUES = 7 * 24,
    AUDIO_VALUES = 74 * 8,
    TEXT_WIDTH = 44
}; /* 32x32, 22 frames, set 0 */

typedef struct rig {
    duet_model *model;
    duet_device *dev;
    float video[VIDEO_VALUES], audio[AUDIO_VALUES];
} rig;

typedef struct parts {
    duet_stream *stream;
    duet_residency *residency;
    duet_dit *dit;
    duet_schedule schedule;
    duet_packed packed;
    duet_denoiser *denoiser;
    float *text;
} parts;

static duet_status open_parts(rig *r, parts *p, duet_error *err) {
    static const float text[TEXT_ROWS * TEXT_WIDTH] = {1.0f, -2.0f, 0.5f};
    duet_schedule_spec schedule = {.points = 3, .video_shift = 12, .audio_shift = 3};
    duet_pack_spec pack = {.text_rows = TEXT_ROWS,
                           .video_latents = 7,
                           .audio_latents = 37,
                           .latent_h = 2,
                           .latent_w = 2,
                           .patch_h = 2,
                           .patch_w = 2};
    duet_status st;
    TRY(st, fail, duet_stream_open(r->dev, 0, &p->stream, err));
    TRY(st, fail, duet_residency_open(r->dev, &p->residency, err));
    TRY(st, fail, duet_dit_open(r->model, r->dev, &p->dit, err));
    TRY(st, fail, duet_schedule_build(&schedule, &p->schedule, err));
    TRY(st, fail, duet_pack_rows(&pack, &p->packed, err));
    TRY(st, fail, duet_device_alloc(r->dev, (int64_t)sizeof text, "text", (void **)&p->text, err));
    duet_copy_in(p->stream, p->text, text, (int64_t)sizeof text);
    duet_denoise_setup setup = {.dit = p->dit,
                                .residency = p->residency,
                                .stream = p->stream,
                                .packed = &p->packed,
                                .schedule = &p->schedule,
                                .text = p->text};
    TRY(st, fail, duet_denoiser_open(&setup, &p->denoiser, err));
fail:
    return st;
}

static duet_status run_parts(rig *r, parts *p, duet_error *err) {
    duet_noise_args noise = {.seed = 1,
                             .channels = 6,
                             .latent_h = 2,
                             .latent_w = 2,
                             .patch_h = 2,
                             .patch_w = 2,
                             .audio_channels = 8,
                             .video_latents = 7,
                             .audio_latents = 37,
                             .video_rows = r->video,
                             .audio_rows = r->audio};
    duet_status st = duet_noise_draw(&noise, err);
    if (st != DUET_OK) return st;
    duet_denoise_run run = {
        .video_noise = r->video, .audio_noise = r->audio, .video_rows = r->video, .audio_rows = r->audio};
    return duet_denoiser_run(p->denoiser, &run, err);
}

static void close_parts(rig *r, parts *p) {
    duet_denoiser_close(&p->denoiser);
    duet_residency_close(&p->residency);
    duet_device_free(r->dev, p->text);
    duet_packed_free(&p->packed);
    duet_schedule_free(&p->schedule);
    duet_dit_close(&p->dit);
    duet_stream_close(&p->stream);
}

/* One run with the nth allocation refused (negative: none). Returns whether the fault was reached. */
static bool attempt(rig *r, int64_t nth) {
    parts p = {0};
    duet_error err = {0};
    int64_t before = duet_mem_live_total_bytes();
    duet_mem_fault_arm(nth);
    duet_status st = open_parts(r, &p, &err);
    if (st == DUET_OK) st = run_parts(r, &p, &err);
    bool fired = duet_mem_fault_fired() != 0;
    duet_mem_fault_arm(-1);
    close_parts(r, &p);
    EXPECT_EQ(duet_mem_live_total_bytes(), before);
    if (fired && st != DUET_E_MEMORY)
        FAIL("allocation %" PRId64 ": %s: %s", nth, duet_status_name(st), err.message);
    if (fired) EXPECT(err.message[0] != '\0');
    if (!fired) EXPECT_OK(st, err);
    return fired;
}

TEST(every_allocation_of_a_denoise_can_be_refused, 120000) {
    static rig r;
    char dir[512];
    duet_error err = {0};
    snprintf(dir, sizeof dir, "%s/model", harness_tmp_dir());
    EXPECT_OK(duet_synth(&(duet_synth_options){.out_dir = dir, .partition = "fl2va"}, &err), err);
    EXPECT_OK(duet_model_open(&(duet_model_options){.path = dir}, &r.model, &err), err);
    EXPECT_OK(duet_device_open(&(duet_device_options){.n_threads = 1}, &r.dev, &err), err);
    EXPECT(!attempt(&r, -1)); /* also makes the store's lasting copies, if it needs any */
    float video[VIDEO_VALUES];
    memcpy(video, r.video, sizeof video);

    int64_t refused = 0;
    while (attempt(&r, refused)) refused++;
    printf("    %" PRId64 " allocations\n", refused);
    EXPECT_LE(30, refused);
    EXPECT(memcmp(video, r.video, sizeof video) == 0);
    duet_device_close(&r.dev);
    duet_model_close(&r.model);
}
