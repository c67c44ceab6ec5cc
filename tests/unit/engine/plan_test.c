/* plan_test.c - the numbers of the specification's tables, for the released model's constants. */
#include "harness/harness.h"

#include "request_fixture.h"

static duet_plan plan; /* holds tile tables: too large for a small stack */

static void build(int32_t w, int32_t h, int64_t frames) {
    duet_model_config c = released_config();
    duet_plan_args a = {
        .width = w, .height = h, .frames = frames, .text_rows = 300, .points = 50, .timesteps = 97};
    duet_error err = {0};
    EXPECT_OK(duet_plan_build(&a, &c, &plan, &err), err);
}

TEST(plan_released_canvas, 2000) {
    build(1344, 768, 124);
    EXPECT_EQ(plan.video_latents, 37);
    EXPECT_EQ(plan.audio_latents, 207);
    EXPECT_EQ(plan.latent_h, 48);
    EXPECT_EQ(plan.latent_w, 84);
    EXPECT_EQ(plan.patch_rows * plan.patch_cols, 1008);
    EXPECT_EQ(plan.video_rows, 37 * 1008);
    EXPECT_EQ(plan.audio_rows, 414);
    EXPECT_EQ(plan.rows, 300 + 414 + 37 * 1008);
    EXPECT_EQ(plan.chunks, 7);
    EXPECT_EQ(plan.tiles_y.n, 4);
    EXPECT_EQ(plan.tiles_x.n, 7);
    EXPECT_EQ(plan.evaluations, 49);
    EXPECT_EQ(plan.audio_samples, 207 * 800);
}

TEST(plan_longest_clip_and_short_overlap, 2000) {
    build(864, 480, 362);
    EXPECT_EQ(plan.video_latents, 107);
    EXPECT_EQ(plan.audio_latents, 603);
    EXPECT_EQ(plan.chunks, 21);
    EXPECT_EQ(plan.tiles_y.n * plan.tiles_x.n, 15);
    EXPECT_EQ(plan.tiles_y.overlap_px[0], 144);
}

/* One evaluation over S rows is products of 2 S (3 I H + I H + 3 F H) and attention of 4 S S I, 50 times. */
TEST(plan_flops_by_hand, 2000) {
    build(1344, 768, 124);
    double s = (double)plan.rows, h = 5376, i = 7168, f = 14336;
    double blocks = 49 * 50 * (2 * s * (4 * i * h + 3 * f * h) + 4 * s * s * i);
    double all = plan.stage[DUET_STAGE_DENOISE].flops;
    EXPECT(all > blocks);
    EXPECT_LE(all, blocks * 1.002); /* the rest: projections, refiner, tables */
}

TEST(plan_refuses_what_cannot_be_tiled, 2000) {
    duet_model_config c = released_config();
    c.vvae.tile_px = 16;
    c.vvae.tile_overlap_px = 16;
    duet_plan_args a = {.width = 1344, .height = 768, .frames = 124, .text_rows = 1, .points = 2};
    duet_error err = {0};
    EXPECT_EQ(duet_plan_build(&a, &c, &plan, &err), DUET_E_REQUEST);
    EXPECT_STR(err.param, "height");
}

TEST(plan_stage_names, 1000) {
    EXPECT_STR(duet_stage_name(DUET_STAGE_DENOISE), "denoise");
    EXPECT_STR(duet_stage_name(DUET_STAGE_DECODE_VIDEO), "decode_video");
}
