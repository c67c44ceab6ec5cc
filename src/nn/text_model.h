/* text_model.h - Qwen3-VL text decoder up to the tap layer: token ids in, un-normed residual stream out (spec
 * model-conditioning 4).
 *
 * Text-only for now: positions are 0..n-1 on all three axes. Units: "embed", "layers.i". Thread rule: one
 * stream at a time. */
#ifndef DUET_NN_TEXT_MODEL_H
#define DUET_NN_TEXT_MODEL_H

#include "backend/unit.h"
#include "nn/tap.h"
#include "store/model.h"

typedef struct duet_text_model duet_text_model;

duet_status duet_text_model_open(duet_model *model, duet_device *dev, duet_text_model **out, duet_error *err);
void duet_text_model_close(duet_text_model **text); /* streams that ran it must be idle */

/* Activation bytes that a forward over n_rows allocates on the device (for the plan), and the largest op
 * scratch. The activations are kept until close and regrown (after a sync) only for a longer text. */
int64_t duet_text_model_activation_bytes(const duet_text_config *config, int64_t n_rows);
int64_t duet_text_model_scratch_bytes(const duet_text_config *config, const duet_device *dev, int64_t n_rows);

/* out: device [n_ids, hidden], state after config.tap_layer layers. ids: host, each 0 <= id < vocab.
 * Enqueues; does not wait. cancel (may be NULL) is polled between layers: non-zero returns DUET_E_CANCELLED.
 */
duet_status duet_text_model_forward(duet_text_model *text, duet_residency *residency, duet_stream *stream,
                                    const int32_t *ids, int64_t n_ids, float *out, duet_tap *tap,
                                    const volatile int *cancel, duet_error *err);

#endif
