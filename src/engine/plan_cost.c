/* plan_cost.c - bytes by stage, and the largest resident size that follows.
 *
 *     peak = base + max over stages (weights mapped + copied + activations + scratch + host)
 *
 * A stage's networks, buffers and prepared weights go before the next stage begins, and mapped pages are let
 * go with them, so stages do not add up. What lives across stages (noise, latents, text states) is counted
 * in each stage that it crosses. Weights count as resident in full, because every stage reads all of its
 * weights, but for two cases below. What a stage allocates is asked of the stage itself, never guessed here.
 * */
#include "engine/plan.h"

#include "engine/decode.h"
#include "engine/denoise.h"
#include "nn/text_model.h"

/* Of the embedding table only the rows of the prompt are read, each with what the system maps around a
 * fault. */
enum { FAULT_AROUND_BYTES = 64 << 10 };

static int64_t f32_bytes(int64_t elems) {
    return elems * (int64_t)sizeof(float);
}

static void set_weights(duet_stage_cost *stage, const duet_model *model, duet_component component) {
    stage->weights_mapped_bytes = duet_model_mapped_bytes(model, component);
    stage->weights_copied_bytes = duet_model_copied_bytes(model, component);
}

static int64_t latent_bytes(const duet_plan *p, const duet_model_config *c) {
    int64_t video = (int64_t)c->vvae.latent_channels * p->video_latents * p->latent_h * p->latent_w;
    return f32_bytes(video + 2 * (int64_t)c->avae.latent_channels * p->audio_latents);
}

static void cost_condition(duet_plan *p, const duet_model *model, const duet_device *dev) {
    const duet_text_config *c = &duet_model_config_get(model)->text;
    duet_stage_cost *stage = &p->stage[DUET_STAGE_CONDITION];
    int64_t table = duet_model_mapped_bytes_named(model, DUET_COMPONENT_TEXT, "embed_tokens");
    int64_t touched = p->text_rows * ((c->vocab ? table / c->vocab : 0) + FAULT_AROUND_BYTES);
    set_weights(stage, model, DUET_COMPONENT_TEXT);
    if (touched < table) stage->weights_mapped_bytes -= table - touched;
    stage->activation_bytes =
        duet_text_model_activation_bytes(c, p->text_rows) + f32_bytes(p->text_rows * c->hidden);
    stage->scratch_bytes = duet_text_model_scratch_bytes(c, dev, p->text_rows);
}

static void cost_denoise(duet_plan *p, const duet_plan_args *args, const duet_model *model,
                         const duet_device *dev) {
    const duet_model_config *config = duet_model_config_get(model);
    duet_stage_cost *stage = &p->stage[DUET_STAGE_DENOISE];
    duet_denoise_sizes sizes = {
        .rows = p->rows,
        .text_rows = p->text_rows,
        .video_rows = p->video_rows,
        .audio_rows = p->audio_rows,
        .target_video_rows = p->video_rows,
        .target_audio_rows = p->audio_rows,
        .n_distinct = args->timesteps,
    };
    set_weights(stage, model, DUET_COMPONENT_DIT);
    /* What builds the AdaLN tables is retired piece by piece before the first evaluation. */
    stage->weights_mapped_bytes -= duet_model_mapped_bytes_named(model, DUET_COMPONENT_DIT, "adaln_proj") +
                                   duet_model_mapped_bytes_named(model, DUET_COMPONENT_DIT, "time_embedder");
    stage->activation_bytes =
        duet_denoise_activation_bytes(&config->dit, &sizes) + f32_bytes(p->text_rows * config->text.hidden);
    stage->scratch_bytes = duet_denoise_scratch_bytes(&config->dit, dev, &sizes);
    stage->host_bytes =
        duet_denoise_host_bytes(&config->dit, &sizes) + (1 + args->outputs) * latent_bytes(p, config);
}

static void cost_decode(duet_plan *p, const duet_plan_args *args, const duet_model *model,
                        const duet_device *dev) {
    const duet_model_config *config = duet_model_config_get(model);
    duet_stage_cost *video = &p->stage[DUET_STAGE_DECODE_VIDEO], *audio = &p->stage[DUET_STAGE_DECODE_AUDIO];
    int64_t kept = args->outputs * latent_bytes(p, config) + f32_bytes(2 * p->audio_samples);
    duet_decode_cost cost = {0};
    set_weights(audio, model, DUET_COMPONENT_AVAE);
    duet_decode_audio_cost(&config->avae, dev, p->audio_latents, &cost);
    audio->activation_bytes = cost.device_bytes;
    audio->scratch_bytes = cost.scratch_bytes;
    audio->host_bytes = cost.host_bytes + kept;
    audio->flops = cost.flops;

    cost = (duet_decode_cost){0};
    set_weights(video, model, DUET_COMPONENT_VVAE);
    video->weights_mapped_bytes += audio->weights_mapped_bytes; /* the two decoders stay open together */
    video->weights_copied_bytes += audio->weights_copied_bytes;
    if (!duet_decode_video_cost(&config->vvae, dev, p->video_latents, p->latent_h, p->latent_w, &cost))
        return;
    video->activation_bytes = cost.device_bytes;
    video->scratch_bytes = cost.scratch_bytes;
    video->host_bytes =
        cost.host_bytes + kept + p->media_bytes; /* frames leave for the encoder as they are made */
    video->flops = cost.flops;
}

static int64_t stage_bytes(const duet_stage_cost *s) {
    return s->weights_mapped_bytes + s->weights_copied_bytes + s->activation_bytes + s->scratch_bytes +
           s->host_bytes;
}

void duet_plan_cost(duet_plan *p, const duet_plan_args *args, const duet_model *model, const duet_device *dev,
                    int64_t base_bytes) {
    p->base_bytes = base_bytes;
    p->media_bytes = args->media_bytes;
    cost_condition(p, model, dev);
    cost_denoise(p, args, model, dev);
    cost_decode(p, args, model, dev);
    p->stage[DUET_STAGE_DELIVER].host_bytes = p->media_bytes;
    int64_t most = 0;
    for (int s = 0; s < DUET_N_STAGES; s++) {
        int64_t bytes = stage_bytes(&p->stage[s]);
        if (bytes > most) most = bytes;
    }
    p->peak_bytes = base_bytes + most;
}
