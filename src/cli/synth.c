/* synth.c - `duet synth`: options in, one call of the store, one line of result. */
#include "store/synth.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int duet_cmd_synth(int argc, char **argv);

enum { EXIT_RUN = 1, EXIT_USAGE = 2, EXIT_MODEL = 3 };

static void show_progress(void *arg, const char *file, int64_t done_bytes, int64_t total_bytes) {
    int *last = arg, percent = (int)(100 * done_bytes / (total_bytes ? total_bytes : 1));
    if (percent == *last) return;
    *last = percent;
    fprintf(stderr, "\r%3d %%  %s", percent, file);
    if (percent == 100) fprintf(stderr, "\n");
}

static int usage(const char *text, const char *value) {
    fprintf(stderr, "error: %s (got %s)\n", text, value ? value : "nothing");
    return EXIT_USAGE;
}

static int finish(const duet_synth_options *o, duet_status st, const duet_error *err) {
    if (st == DUET_OK) {
        printf("%s\n", o->out_dir);
        return 0;
    }
    if (st != DUET_E_REQUEST)
        fprintf(stderr, "error: %s\n", err->message);
    else if (*err->value)
        fprintf(stderr, "error: %s: %s (got %s)\n", err->param, err->message, err->value);
    else
        fprintf(stderr, "error: %s: %s\n", err->param, err->message);
    return st == DUET_E_REQUEST ? EXIT_USAGE : st == DUET_E_MODEL ? EXIT_MODEL : EXIT_RUN;
}

int duet_cmd_synth(int argc, char **argv) {
    enum { SHAPE = 1, LAYOUT, PARTITION, SEED, OUT, TOKENIZER, YES };
    static const struct option options[] = {{"shape", required_argument, NULL, SHAPE},
                                            {"layout", required_argument, NULL, LAYOUT},
                                            {"partition", required_argument, NULL, PARTITION},
                                            {"seed", required_argument, NULL, SEED},
                                            {"out", required_argument, NULL, OUT},
                                            {"tokenizer", required_argument, NULL, TOKENIZER},
                                            {"yes", no_argument, NULL, YES},
                                            {NULL, 0, NULL, 0}};
    int percent = -1;
    duet_synth_options o = {.progress = isatty(STDERR_FILENO) ? show_progress : NULL,
                            .progress_arg = &percent};
    char *end = NULL;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == SHAPE) o.shape = optarg;
        if (c == LAYOUT) o.layout = optarg;
        if (c == PARTITION) o.partition = optarg;
        if (c == OUT) o.out_dir = optarg;
        if (c == TOKENIZER) o.tokenizer_dir = optarg;
        if (c == YES) o.yes = true;
        if (c == SEED) {
            errno = 0;
            o.seed = strtoull(optarg, &end, 10);
            if (errno || *end || *optarg < '0' || *optarg > '9')
                return usage("seed: must be a whole number from 0 to 2^64-1", optarg);
        }
        if (c == '?') return EXIT_USAGE;
    }
    if (optind < argc) return usage("synth takes no positional arguments", argv[optind]);
    if (!o.out_dir) return usage("out: a directory is required", NULL);
    duet_error err = {0};
    return finish(&o, duet_synth(&o, &err), &err);
}
