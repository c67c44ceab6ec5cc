/* synth.c - duet synth: options in, one call of the store, the directory out. */
#include "cli/cli.h"

#include <stdio.h>
#include <unistd.h>

#include "store/synth.h"

static void show_progress(void *arg, const char *file, int64_t done_bytes, int64_t total_bytes) {
    int *last = arg, percent = (int)(100 * done_bytes / (total_bytes ? total_bytes : 1));
    if (percent == *last) return;
    *last = percent;
    fprintf(stderr, "\r\033[K%3d %%  %s", percent, file);
    if (percent == 100) fputc('\n', stderr);
}

static const char *text_of(const opt_set *set, opt_id id) {
    return set->value[id].given ? set->value[id].text : NULL;
}

static void print_result(const duet_synth_options *o, bool json) {
    if (!json) {
        printf("%s\n", o->out_dir);
        return;
    }
    json_t *root = json_object();
    int64_t bytes = 0;
    duet_synth_bytes(o, &bytes, NULL);
    json_object_set_new(root, "path", path_json(o->out_dir));
    json_object_set_new(root, "shape", json_string(o->shape ? o->shape : "tiny"));
    json_object_set_new(root, "layout", json_string(o->layout ? o->layout : "native"));
    json_object_set_new(root, "partition", json_string(o->partition ? o->partition : "both"));
    json_object_set_new(root, "seed", json_integer((json_int_t)o->seed));
    json_object_set_new(root, "weight_bytes", json_integer(bytes));
    print_json(root);
}

static duet_status synth(const opt_set *set, duet_synth_options *o, duet_error *err) {
    const opt_value *seed = &set->value[OPT_synth_seed];
    duet_status st = need_option(set, OPT_out, err);
    if (st != DUET_OK) return st;
    if (seed->given && seed->integer < 0)
        return duet_refuse(err, "seed", "out_of_range", seed->text, "0",
                           "must be between 0 and 9223372036854775807");
    o->out_dir = text_of(set, OPT_out);
    o->shape = text_of(set, OPT_shape);
    o->layout = text_of(set, OPT_synth_layout);
    o->partition = text_of(set, OPT_partition);
    o->seed = seed->given ? (uint64_t)seed->integer : 0;
    o->tokenizer_dir = text_of(set, OPT_tokenizer);
    o->yes = is_on(set, OPT_yes);
    o->cancel = signals_flag();
    signals_watch();
    return duet_synth(o, err);
}

int cmd_synth(const opt_set *set) {
    duet_error err = {0};
    int percent = -1;
    bool json = is_on(set, OPT_json), show = !is_on(set, OPT_quiet) && isatty(STDERR_FILENO);
    duet_synth_options o = {.progress = show ? show_progress : NULL, .progress_arg = &percent};
    duet_status st = synth(set, &o, &err);
    if (st != DUET_OK) return report_failure(st, &err, PHASE_REQUEST, json, NULL);
    print_result(&o, json);
    return EXIT_DONE;
}
