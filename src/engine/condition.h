/* condition.h - what the transformer is conditioned on: the prompt's token ids through the text encoder. */
#ifndef DUET_ENGINE_CONDITION_H
#define DUET_ENGINE_CONDITION_H

#include "engine/progress.h"
#include "nn/text_model.h"

/* out: device [n_ids, text width], allocated here, duet_device_free'd by the caller. The stream is idle afterwards. Fails (P5) on values that
 * are not finite or all equal. Everything the encoder needed is gone when it returns. */
duet_status duet_condition_text(duet_model *model, duet_device *dev, duet_stream *stream, const int32_t *ids,
                                int64_t n_ids, float **out, duet_tap *tap, const duet_progress *progress,
                                duet_error *err);

#endif
