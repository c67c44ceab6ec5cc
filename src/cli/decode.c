/* decode.c - duet decode: finish a clip from its latents. Written against duet.h alone. */
#include "cli/cli.h"

#include "base/alloc.h"

static duet_status prepare(const opt_set *set, duet_decode_request *d, duet_engine **engine,
                           duet_error *err) {
    duet_engine_options options = engine_from_options(set);
    duet_status st;
    duet_decode_request_defaults(d, sizeof *d);
    options.decoders_only = true;
    TRY(st, fail, need_option(set, OPT_latents, err));
    TRY(st, fail, need_option(set, OPT_model, err));
    TRY(st, fail, need_option(set, OPT_output, err));
    TRY(st, fail, check_json_name(set, OPT_output, err));
    d->latents = set->value[OPT_latents].text;
    d->output = set->value[OPT_output].text;
    d->overwrite = is_on(set, OPT_overwrite);
    d->dump_dir = set->value[OPT_dump].given ? set->value[OPT_dump].text : NULL;
    TRY(st, fail, duet_decode_check(d, err));
    TRY(st, fail, duet_engine_open(&options, engine, err));
fail:
    return st;
}

int cmd_decode(const opt_set *set) {
    duet_decode_request request;
    duet_engine *engine = NULL;
    duet_result *result = duet_calloc(1, sizeof *result, DUET_MEM_MISC);
    duet_error err = {0};
    progress p;
    progress_open(&p, is_on(set, OPT_quiet));
    signals_watch();
    int code;
    duet_status st =
        result ? prepare(set, &request, &engine, &err) : duet_fail(&err, DUET_E_MEMORY, "out of memory");
    if (st != DUET_OK) {
        code = report_failure(st, &err, PHASE_REQUEST, is_on(set, OPT_json), NULL);
    } else {
        cut_files_latents(0, request.latents);
        signals_target(engine);
        st = duet_decode_latents(engine, &request, progress_event, &p, result, &err);
        signals_target(NULL);
        progress_close(&p);
        code = report_result(set, st, &err, result);
        duet_result_free(result);
    }
    duet_engine_close(&engine);
    duet_free(result);
    return code;
}
