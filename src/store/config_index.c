/* config_index.c - what a model says about itself as a whole: partition, tasks, schedule shifts, canvas, text tap.
 *
 *     native      model_index.json of the partition, block `_minimax_h3`
 *     diffusers   modular_model_index.json, else model_index.json: `_minimax_h3`, and the canvas keys at top level;
 *                 the shifts in scheduler/ and audio_scheduler/; the tasks follow from the transformer's folder
 *
 * The root index of the public repository describes its diffusers half only and is never read for a native model. */
#include <stdio.h>
#include <string.h>

#include "store/config_int.h"
#include "store/file.h"

#define BLOCK "_minimax_h3."

/* ---- keys of this project -------------------------------------------------------------------------------------- */

static duet_status optional(const duet__doc *doc, const char *key, int64_t lo, int64_t hi, int32_t fallback,
                            int32_t *out, duet_error *err) {
    char inner[64];
    int64_t value = fallback;
    snprintf(inner, sizeof inner, BLOCK "%s", key);
    duet_status st = DUET_OK;
    if (duet__doc_has(doc, inner))
        st = duet__doc_i64(doc, inner, lo, hi, &value, err);
    else if (duet__doc_has(doc, key))
        st = duet__doc_i64(doc, key, lo, hi, &value, err);
    *out = (int32_t)value;
    return st;
}

static duet_status our_keys(const duet__doc *doc, duet_model_config *out, duet_error *err) {
    duet_status st;
    TRY(st, fail, optional(doc, "text_encoder_layer", 1, DUET__MAX_LAYERS, 50, &out->text.tap_layer, err));
    TRY(st, fail, optional(doc, "canvas_short_edge", 16, 8192, 768, &out->canvas_short_edge, err));
    TRY(st, fail, optional(doc, "canvas_max_pixels", 256, 1 << 26, 1032192, &out->canvas_max_pixels, err));
    TRY(st, fail,
        optional(doc, "reference_image_short_edge", 16, 16384, 2048, &out->reference_image_short_edge, err));
fail:
    return st;
}

/* Unshifted positions of a pinned schedule: from at most 1 strictly down to 0. */
static duet_status base_schedule(const duet__doc *doc, duet_model_config *out, duet_error *err) {
    static const char key[] = BLOCK "base_schedule";
    if (!duet__doc_has(doc, key)) return DUET_OK;
    duet_status st = duet__doc_f64s(doc, key, 256, 0.0, 1.0, out->base_schedule, &out->n_base_schedule, err);
    if (st != DUET_OK) return st;
    bool ok = out->n_base_schedule >= 2 && out->base_schedule[out->n_base_schedule - 1] == 0.0;
    for (int i = 1; i < out->n_base_schedule; i++)
        ok = ok && out->base_schedule[i] < out->base_schedule[i - 1];
    if (ok) return DUET_OK;
    return duet_fail(err, DUET_E_MODEL, "%s: key %s must fall strictly and end in 0", doc->label, key);
}

/* ---- native ------------------------------------------------------------------------------------------------------ */

static duet_status read_partition(const duet__doc *doc, duet__index *index, duet_error *err) {
    const char *name = duet__doc_string(doc, BLOCK "partition");
    bool ref = name && strcmp(name, "ref2va") == 0;
    if (!ref && (!name || strcmp(name, "fl2va") != 0))
        return duet_fail(err, DUET_E_MODEL,
                         "%s: key " BLOCK "partition must be \"fl2va\" or \"ref2va\" (got %.32s)", doc->label,
                         name ? name : "nothing");
    index->has_partition = true;
    index->partition = ref ? DUET_REF2VA : DUET_FL2VA;
    return DUET_OK;
}

static duet_status read_tasks(const duet__doc *doc, duet__index *index, duet_error *err) {
    json_t *tasks = duet__doc_get(doc, BLOCK "tasks");
    bool ok =
        json_is_array(tasks) && json_array_size(tasks) >= 1 && json_array_size(tasks) <= DUET__MAX_TASKS;
    for (size_t i = 0; ok && i < json_array_size(tasks); i++) {
        const char *task = json_string_value(json_array_get(tasks, i));
        ok = task && strlen(task) < sizeof index->tasks[0];
        if (ok) strcpy(index->tasks[index->n_tasks++], task);
    }
    if (ok) return DUET_OK;
    return duet_fail(err, DUET_E_MODEL, "%s: key " BLOCK "tasks must be a list of 1 to %d task names",
                     doc->label, DUET__MAX_TASKS);
}

static duet_status native_index(const duet__place *place, duet_model_config *out, duet__index *index,
                                duet_error *err) {
    static const duet__field shifts[] = {
        DUET__WIDE(video_shift, BLOCK "sigma_shift_scales.video", 1e-3, 1e3),
        DUET__WIDE(audio_shift, BLOCK "sigma_shift_scales.audio", 1e-3, 1e3)};
    duet__doc doc;
    duet_status st;
    index->file = "model_index.json";
    TRY(st, fail, duet__open_config(place, "", index->file, &doc, err));
    TRY(st, fail, read_partition(&doc, index, err));
    TRY(st, fail, read_tasks(&doc, index, err));
    TRY(st, fail, duet__read_fields(&doc, shifts, 2, out, err));
    TRY(st, fail, our_keys(&doc, out, err));
    TRY(st, fail, base_schedule(&doc, out, err));
fail:
    duet__doc_close(&doc);
    return st;
}

/* ---- diffusers --------------------------------------------------------------------------------------------------- */

static duet_status scheduler(const duet__place *place, const char *folder, const duet__field *shift,
                             duet_model_config *out, duet_error *err) {
    duet__doc doc;
    duet_status st;
    TRY(st, fail, duet__open_config(place, folder, "scheduler_config.json", &doc, err));
    TRY(st, fail, duet__read_fields(&doc, shift, 1, out, err));
fail:
    duet__doc_close(&doc);
    return st;
}

static duet_status open_tree_index(const duet__place *place, duet__doc *doc, const char **file,
                                   duet_error *err) {
    char path[DUET__PATH_BYTES];
    static const char *const names[] = {"modular_model_index.json", "model_index.json"};
    *doc = (duet__doc){0};
    for (int i = 0; i < 2; i++) {
        *file = names[i];
        if (duet__join(path, sizeof path, place->dir, names[i], NULL) &&
            (!duet__is_absent(path) || duet__is_dangling(path)))
            return duet__doc_open(path, doc, err);
    }
    return duet__doc_parse("{}", 2, names[0], doc, err); /* none: all defaults */
}

static duet_status tree_index(const duet__place *place, duet_model_config *out, duet__index *index,
                              duet_error *err) {
    static const duet__field video = DUET__WIDE(video_shift, "shift", 1e-3, 1e3);
    static const duet__field audio = DUET__WIDE(audio_shift, "shift", 1e-3, 1e3);
    bool ref = place->partition == DUET_REF2VA;
    duet__doc doc;
    duet_status st;
    TRY(st, fail, open_tree_index(place, &doc, &index->file, err));
    TRY(st, fail, our_keys(&doc, out, err));
    TRY(st, fail, base_schedule(&doc, out, err));
    strcpy(index->tasks[0], ref ? "ref2va" : "t2va");
    strcpy(index->tasks[1], "fl2va");
    index->n_tasks = ref ? 1 : 2;
    if (!(place->components & 1u << DUET_COMPONENT_DIT)) goto fail;
    TRY(st, fail, scheduler(place, "scheduler", &video, out, err));
    TRY(st, fail, scheduler(place, "audio_scheduler", &audio, out, err));
fail:
    duet__doc_close(&doc);
    return st;
}

duet_status duet__read_index(const duet__place *place, duet_model_config *out, duet__index *index,
                             duet_error *err) {
    return place->layout == &duet__layout_native ? native_index(place, out, index, err)
                                                 : tree_index(place, out, index, err);
}
