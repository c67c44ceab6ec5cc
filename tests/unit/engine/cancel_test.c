/* cancel_test.c - a stop that comes while nothing is evaluated yet: the text encoder, the AdaLN tables, the rotations and
 * the refined text. A tap stands in for the user: it cancels when the stage reaches a name, and counts what follows. */
#include "harness/harness.h"

#include "base/alloc.h"
#include "engine/condition.h"
#include "engine/denoise.h"
#include "engine/residency.h"
#include "store/synth.h"

enum { TEXT_ROWS = 5, TEXT_WIDTH = 44 }; /* of the synthetic set 0 */

typedef struct stopper {
    duet_tap tap;      /* first */
    const char *at;    /* the name at which the user stops; NULL = never */
    const char *never; /* a later name: must not be reached any more */
    bool reached_at, reached_never;
    volatile int cancel;
} stopper;

static bool stopper_wants(duet_tap *self, const char *name) {
    stopper *s = (stopper *)self;
    if (s->at && !strcmp(name, s->at))
        s->reached_at = true, __atomic_store_n(&s->cancel, 1, __ATOMIC_RELAXED);
    if (s->never && !strcmp(name, s->never)) s->reached_never = true;
    return false;
}

typedef struct rig {
    duet_model *model;
    duet_device *dev;
    duet_stream *stream;
} rig;

static void open_rig(rig *r, const char *backend) {
    char dir[512];
    duet_error err = {0};
    *r = (rig){0};
    snprintf(dir, sizeof dir, "%s/model-%s", harness_tmp_dir(), backend);
    EXPECT_OK(duet_synth(&(duet_synth_options){.out_dir = dir, .partition = "fl2va"}, &err), err);
    EXPECT_OK(duet_model_open(&(duet_model_options){.path = dir}, &r->model, &err), err);
    EXPECT_OK(duet_device_open(&(duet_device_options){.backend = backend, .n_threads = 1}, &r->dev, &err),
              err);
}

static void close_rig(rig *r) {
    duet_device_close(&r->dev);
    duet_model_close(&r->model);
    EXPECT_EQ(duet_mem_live_total_bytes(), 0);
}

static duet_status encode(rig *r, stopper *s) {
    static const int32_t ids[TEXT_ROWS] = {1, 2, 3, 4, 5};
    duet_progress progress = {.cancel = &s->cancel};
    duet_error err = {0};
    float *text = NULL;
    EXPECT_OK(duet_stream_open(r->dev, 0, &r->stream, &err), err);
    duet_stream_watch(r->stream, &s->cancel);
    duet_status st =
        duet_condition_text(r->model, r->dev, r->stream, ids, TEXT_ROWS, &text, &s->tap, &progress, &err);
    EXPECT((text != NULL) == (st == DUET_OK));
    duet_device_free(r->dev, text);
    duet_stream_close(&r->stream);
    return st;
}

static duet_status open_denoiser(rig *r, stopper *s) {
    static const float text[TEXT_ROWS * TEXT_WIDTH] = {1.0f, -2.0f, 0.5f};
    duet_schedule_spec spec = {.points = 3, .video_shift = 12, .audio_shift = 3};
    duet_pack_spec pack = {.text_rows = TEXT_ROWS,
                           .video_latents = 7,
                           .audio_latents = 37,
                           .latent_h = 2,
                           .latent_w = 2,
                           .patch_h = 2,
                           .patch_w = 2};
    duet_progress progress = {.cancel = &s->cancel};
    duet_error err = {0};
    duet_schedule schedule;
    duet_packed packed;
    duet_residency *residency = NULL;
    duet_dit *dit = NULL;
    duet_denoiser *denoiser = NULL;
    void *rows = NULL;
    EXPECT_OK(duet_stream_open(r->dev, 0, &r->stream, &err), err);
    duet_stream_watch(r->stream, &s->cancel);
    EXPECT_OK(duet_residency_open(r->dev, &residency, &err), err);
    EXPECT_OK(duet_dit_open(r->model, r->dev, &dit, &err), err);
    EXPECT_OK(duet_schedule_build(&spec, &schedule, &err), err);
    EXPECT_OK(duet_pack_rows(&pack, &packed, &err), err);
    EXPECT_OK(duet_device_alloc(r->dev, (int64_t)sizeof text, "text", &rows, &err), err);
    duet_copy_in(r->stream, rows, text, (int64_t)sizeof text);
    duet_denoise_setup setup = {.dit = dit,
                                .residency = residency,
                                .stream = r->stream,
                                .packed = &packed,
                                .schedule = &schedule,
                                .text = rows,
                                .tap = &s->tap,
                                .progress = &progress};
    duet_status st = duet_denoiser_open(&setup, &denoiser, &err);
    EXPECT((denoiser != NULL) == (st == DUET_OK));
    duet_denoiser_close(&denoiser);
    duet_device_free(r->dev, rows);
    duet_packed_free(&packed);
    duet_schedule_free(&schedule);
    duet_residency_close(&residency);
    duet_dit_close(&dit);
    duet_stream_close(&r->stream);
    return st;
}

typedef struct moment {
    duet_status (*stage)(rig *, stopper *);
    const char *at, *never;
} moment;

TEST(a_stop_before_the_first_evaluation_is_heard_at_once, 20000) {
    static const moment moments[] = {
        {encode, "text.embed", "text.layer_01.out"},
        {encode, "text.layer_00.out", "text.layer_01.out"},
        {encode, "text_embeds", NULL},
        {open_denoiser, "dit.timesteps", "dit.adaln_block_00"},
        {open_denoiser, "dit.adaln_block_00", "dit.adaln_block_01"},
        {open_denoiser, "dit.adaln_final", "dit.rope_cos"},
        {open_denoiser, "dit.rope_cos", "dit.refined_text"},
        {open_denoiser, "dit.refiner_in", NULL},
    };
    static const char *const backends[] = {"cpu", "ref", "walled"};
    for (size_t b = 0; b < sizeof backends / sizeof *backends; b++) {
        rig r;
        open_rig(&r, backends[b]);
        for (size_t i = 0; i < sizeof moments / sizeof *moments; i++) {
            stopper s = {.tap = {.wants = stopper_wants}, .never = "no such name"};
            EXPECT_EQ(moments[i].stage(&r, &s), DUET_OK);
            s.at = moments[i].at;
            s.never = moments[i].never;
            duet_status st = moments[i].stage(&r, &s);
            if (!s.reached_at || s.reached_never || st != DUET_E_CANCELLED)
                FAIL("%s: stopped at %s: reached %d, %s reached %d, %s", backends[b], s.at, s.reached_at,
                     s.never ? s.never : "-", s.reached_never, duet_status_name(st));
        }
        close_rig(&r);
    }
}
