/* generate.c - duet generate: usage, request, files, model, run; in this order, so that the cheapest fault
 * is found first (promise P3). Written against duet.h alone. */
#include "cli/cli.h"

#include "base/alloc.h"

/* Everything up to an open engine. */
static duet_status prepare(const opt_set *set, duet_request *request, char **prompt_file,
                           duet_engine **engine, duet_error *err) {
    duet_engine_options options = engine_from_options(set);
    duet_status st;
    TRY(st, fail, need_option(set, OPT_model, err));
    TRY(st, fail, need_option(set, OPT_output, err));
    TRY(st, fail, check_json_name(set, OPT_output, err));
    TRY(st, fail, request_from_options(set, request, prompt_file, err));
    TRY(st, fail, duet_request_check(request, err));
    TRY(st, fail, duet_output_check(request, err));
    TRY(st, fail, duet_engine_open(&options, engine, err));
fail:
    return st;
}

int cmd_generate(const opt_set *set) {
    duet_request request;
    duet_engine *engine = NULL;
    duet_result *result = duet_calloc(1, sizeof *result, DUET_MEM_MISC);
    duet_error err = {0};
    char *prompt_file = NULL;
    progress p;
    progress_open(&p, is_on(set, OPT_quiet));
    signals_watch();
    int code;
    duet_status st = result ? prepare(set, &request, &prompt_file, &engine, &err)
                            : duet_fail(&err, DUET_E_MEMORY, "out of memory");
    if (st != DUET_OK) {
        code = report_failure(st, &err, PHASE_REQUEST, is_on(set, OPT_json), NULL);
    } else {
        signals_target(engine);
        st = duet_generate(engine, &request, progress_event, &p, result, &err);
        signals_target(NULL);
        progress_close(&p);
        code = report_result(set, st, &err, result);
        duet_result_free(result);
    }
    duet_engine_close(&engine);
    duet_free(prompt_file);
    duet_free(result);
    return code;
}
