/* run_deliver.c - every output from latents to a clip; what becomes of its latents file. */
#include "engine/run_int.h"

#include <unistd.h>

#include "base/alloc.h"

/* Latents that another run of the same name wrote over ours are that run's to remove. */
static void settle(duet__run *r, int32_t output) {
    duet_run_output *o = &r->result->output[output];
    const duet_run_events *events = r->a->events;
    o->finished = true;
    if (!r->a->keep_latents && o->latents_path) {
        if (duet__file_at(o->latents_path) == r->latents_file[output]) unlink(o->latents_path);
        duet_free(o->latents_path);
        o->latents_path = NULL;
    }
    if (events && events->finished) events->finished(events->ctx, output, o->path);
}

/* After a failure: latents that somebody removed, perhaps with their folder, are written again; where its own stand now,
 * nothing of ours is kept, and nothing is said to be. */
static void keep_after_failure(duet__run *r, int32_t output) {
    duet_run_output *o = &r->result->output[output];
    if (!o->latents_path || duet__file_at(o->latents_path) == r->latents_file[output]) return;
    if (duet__file_at(o->latents_path) == 0 && duet__make_folders(o->latents_path, NULL) == DUET_OK &&
        duet_latents_write(&r->latents[output], o->latents_path, NULL) == DUET_OK)
        return;
    duet_free(o->latents_path);
    o->latents_path = NULL;
}

duet_status duet__run_deliver(duet__run *r, duet_error *err) {
    duet_decoders decoders = {0};
    duet_status st = duet_decoders_open(r->a->model, r->a->device, r->stream, &decoders, err);
    for (int32_t k = 0; st == DUET_OK && k < r->a->resolved->num_outputs; k++) {
        r->output = k;
        st = duet_deliver(&(duet_deliver_args){.decoders = &decoders,
                                               .latents = &r->latents[k],
                                               .path = r->result->output[k].path,
                                               .output = k,
                                               .sinks = r->a->sinks,
                                               .progress = &r->progress,
                                               .dump = r->dump[k],
                                               .stage_seconds = r->result->stage_seconds},
                          err);
        if (st == DUET_OK)
            settle(r, k);
        else
            keep_after_failure(r, k);
        duet_latents_free(&r->latents[k]);
    }
    duet_decoders_close(&decoders);
    return st;
}
