/* cli.h - what the commands share: exit codes, errors, progress, signals, JSON.
 *
 * Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 the run failed, 2
 * bad usage or request, 3 bad model, 130 interrupted. */
#ifndef DUET_CLI_CLI_H
#define DUET_CLI_CLI_H

#include <jansson.h>

#include "cli/options.h"

enum { EXIT_DONE = 0, EXIT_RUN = 1, EXIT_REQUEST = 2, EXIT_MODEL = 3, EXIT_INTERRUPTED = 130 };

int cmd_generate(const opt_set *set);
int cmd_decode(const opt_set *set);
int cmd_plan(const opt_set *set);
int cmd_info(const opt_set *set);
int cmd_synth(const opt_set *set);
int cmd_bench(const opt_set *set);

/* ---- report.c ---- */
/* Where in a command's life a failure happened: DUET_E_UNSUPPORTED and DUET_E_IO are the caller's mistake
 * before work. */
typedef enum phase { PHASE_REQUEST, PHASE_WORK } phase;
int exit_code_of(duet_status status, phase when);
/* Print the error on standard error, as JSON on standard output if asked, and return the exit code. `result`
 * may be NULL; latents that it kept are named in the last line. */
int report_failure(duet_status status, const duet_error *err, phase when, bool json,
                   const duet_result *result);
/* Text that may hold bytes that are not UTF-8 (a path): shown with '?', never dropped. NULL gives null. */
json_t *path_json(const char *text);
/* A name that results will hold, as it is, when JSON is asked for: JSON holds UTF-8 alone. */
duet_status check_json_name(const opt_set *set, opt_id id, duet_error *err);
void print_json(json_t *object);    /* takes the reference; one object, indented, newline */
json_t *parse_own_json(char *text); /* of the library's own JSON; frees text; null when it is NULL */
const char *bytes_text(int64_t bytes, char *buf, size_t buf_bytes);    /* "1.2 GiB" */
const char *flops_text(double flops, char *buf, size_t buf_bytes);     /* "3.4 TFLOP" */
const char *seconds_text(double seconds, char *buf, size_t buf_bytes); /* "2.3 s", "4 min 05 s" */

/* ---- request_args.c ---- */
/* A request from options; `prompt_file` receives what was read from --prompt-file and must be freed. */
duet_status request_from_options(const opt_set *set, duet_request *request, char **prompt_file,
                                 duet_error *err);
duet_engine_options engine_from_options(const opt_set *set);
/* The option must be given and not empty. */
duet_status need_option(const opt_set *set, opt_id id, duet_error *err);
static inline bool is_on(const opt_set *set, opt_id id) {
    return set->value[id].given && set->value[id].on;
}

/* ---- result.c ---- */
int report_result(const opt_set *set, duet_status st, const duet_error *err, const duet_result *result);

/* ---- plan.c ---- */
json_t *plan_json(const duet_plan_info *plan);

/* ---- progress.c ---- */
/* One live line on a terminal, plain lines otherwise; also prints what was resolved. */
typedef struct progress {
    bool quiet, live, color;
    bool line_open; /* a live line stands and must be ended first */
    duet_stage stage;
    int32_t output;
    bool started;
    double began_seconds, told_seconds; /* of the stage; of the last plain line */
} progress;
void progress_open(progress *p, bool quiet);
void progress_event(void *ctx, const duet_event *event); /* a duet_event_fn; ctx is the progress */
void progress_close(progress *p);                        /* ends an open line */
void print_warnings(const duet_resolved *resolved);

/* ---- signals.c ---- */
/* From now on SIGINT and SIGTERM cancel the engine; a second one ends the process at once (130). */
void signals_watch(void);
void signals_target(duet_engine *engine); /* NULL: none */
bool signals_seen(void);
const volatile int *signals_flag(void); /* non-zero once a signal came */

/* ---- cut_files.c ---- */
/* From now on a mapped file that shrinks while it is read is named, and ends the process with EXIT_MODEL. */
void cut_files_watch(bool json);
#define LATENTS_KEPT "latents kept, finish with duet decode: " /* and their path, in a line of its own */
/* It then also says where the latents of an output stand; NULL once the output is complete. */
void cut_files_latents(int32_t output, const char *path);

#endif
