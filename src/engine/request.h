/* request.h - from what was asked to what will be made, or to the field, rule and nearest acceptable value.
 *
 *     duet_request_check (duet.h)   rules that need no model: text, ranges, exclusions
 *     duet_request_resolve          rules that need the configuration: task served, canvas, schedule; fills
 *                                   duet_resolved and the arguments of the plan
 *
 * The two parts run in this order everywhere, so that a bad request is refused before a model is opened. The
 * text rows come from the tokenizer, which is the caller's: this file reads no model file and touches no
 * disk. */
#ifndef DUET_ENGINE_REQUEST_H
#define DUET_ENGINE_REQUEST_H

#include "base/status.h"
#include "engine/plan.h"
#include "engine/sigma.h"
#include "store/config.h"

/* What the model's files say, as far as a request can break a rule of theirs. */
typedef struct duet_request_model {
    const duet_model_config *config;
    bool serves_t2va, serves_fl2va, serves_ref2va;
    int64_t prompt_tokens;    /* of the tokenized prompt, or the assumed number of rows */
    const char *vision_token; /* one that stands in the prompt, or NULL */
} duet_request_model;

/* `request` must have passed duet_request_check. Fills everything of `out` but prompt_sha256, and `args`.
 * A seed of -1 is drawn here. */
duet_status duet_request_resolve(const duet_request *request, const duet_request_model *model,
                                 duet_resolved *out, duet_plan_args *args, duet_error *err);

/* The task of a name in any case, as a static string in lower case; NULL when there is none. */
const char *duet_task_find(const char *name);

/* Bytes of the prompt, whichever way its length was given. */
int64_t duet_request_prompt_bytes(const duet_request *request);

/* Name of output k of n under the name that was asked for: clip.mp4 -> clip-0.mp4, out/ -> out/output_0/; the
 * name itself for n = 1. duet_free; NULL when out of memory. */
char *duet_output_name(const char *output, int32_t k, int32_t n);
/* Where the latents of an output stand: clip.mp4.latents.safetensors, out/latents.safetensors. duet_free. */
char *duet_latents_name(const char *output_name);
/* That a name ends in .mp4 or '/'. */
duet_status duet_output_name_check(const char *output, duet_error *err);
bool duet_output_is_folder(const char *output); /* ends in '/' */

#endif
