/* condition.c - run the text encoder for one prompt and let go of it. See condition.h. */
#include "engine/condition.h"

#include "engine/checks.h"
#include "engine/residency.h"

static duet_status encode(duet_text_model *text, duet_residency *residency, duet_stream *stream,
                          const int32_t *ids, int64_t n_ids, int64_t width, float *out, duet_tap *tap,
                          const duet_progress *progress, duet_error *err) {
    const volatile int *cancel = progress ? progress->cancel : NULL;
    duet_status st = duet_text_model_forward(text, residency, stream, ids, n_ids, out, tap, cancel, err);
    if (st != DUET_OK) return st;
    if (duet_tap_wants(tap, "input_ids")) tap->take_host(tap, "input_ids", DUET_I32, &DUET_SHAPE(n_ids), ids);
    if (duet_tap_wants(tap, "text_embeds"))
        tap->take_device(tap, stream, "text_embeds", out, n_ids, width, width, &DUET_SHAPE(n_ids, width));
    return duet_check_rows(stream, out, n_ids, width, width, err, "text embeddings");
}

duet_status duet_condition_text(duet_model *model, duet_device *dev, duet_stream *stream, const int32_t *ids,
                                int64_t n_ids, float **out, duet_tap *tap, const duet_progress *progress,
                                duet_error *err) {
    int64_t width = duet_model_config_get(model)->text.hidden;
    duet_text_model *text = NULL;
    duet_residency *residency = NULL;
    float *embeds = NULL;
    duet_status st;
    TRY(st, done, duet_progress_step(progress, DUET_STAGE_CONDITION, 0, 1, err));
    TRY(st, done, duet_text_model_open(model, dev, &text, err));
    TRY(st, done, duet_residency_open(dev, &residency, err));
    TRY(st, done,
        duet_device_alloc(dev, n_ids * width * (int64_t)sizeof(float), "text embeddings", (void **)&embeds,
                          err));
    TRY(st, done, encode(text, residency, stream, ids, n_ids, width, embeds, tap, progress, err));
    TRY(st, done, duet_progress_step(progress, DUET_STAGE_CONDITION, 1, 1, err));
done:
    if (st != DUET_OK) {
        duet_stream_sync(stream, NULL); /* nothing enqueued may still use what goes now */
        duet_device_free(dev, embeds);
        embeds = NULL;
        if (st != DUET_E_CANCELLED) duet_error_prefix(err, "condition");
    }
    duet_residency_close(&residency);
    duet_text_model_close(&text);
    *out = embeds;
    return st;
}
