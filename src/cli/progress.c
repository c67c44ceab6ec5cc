/* progress.c - where a run is, on standard error.
 *
 *     a terminal   denoise 12/49  2.31 s each, 1 min 25 s left           (one line, rewritten)
 *     otherwise    a line when a stage begins, one when it ends, and one every ten seconds between
 *
 * NO_COLOR and TERM=dumb are respected; --quiet is silence. It hears all events, so it also tells cut_files.c which latents stand. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PLAIN_EVERY_SECONDS = 10 };

static double now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void progress_open(progress *p, bool quiet) {
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    *p = (progress){.quiet = quiet};
    p->live = !quiet && isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
    p->color = p->live && !(no_color && *no_color);
}

void progress_close(progress *p) {
    if (p->line_open) fputc('\n', stderr);
    p->line_open = false;
}

void print_warnings(const duet_resolved *r) {
    for (int32_t i = 0; i < r->n_warnings; i++) fprintf(stderr, "warning: %s\n", r->warnings[i]);
}

static void print_resolved(const duet_event *e) {
    char peak[32], flops[32];
    const duet_resolved *r = e->resolved;
    fprintf(stderr, "%s %dx%d, %lld frames (%.3f s), %lld evaluation%s, seed %lld", r->task, r->width,
            r->height, (long long)r->num_frames, r->seconds, (long long)r->evaluations,
            r->evaluations == 1 ? "" : "s", (long long)r->seed);
    if (r->num_outputs > 1) fprintf(stderr, " to %lld", (long long)(r->seed + r->num_outputs - 1));
    fprintf(stderr, "; %s of memory, %s%s\n", bytes_text(e->plan->peak_bytes, peak, sizeof peak),
            flops_text(e->plan->flops, flops, sizeof flops), r->num_outputs > 1 ? " each" : "");
    print_warnings(r);
}

/* "denoise 12/49  2.31 s each, 1 min 25 s left" */
static void describe(const progress *p, const duet_event *e, double now, char *buf, size_t buf_bytes) {
    char each[32], left[32];
    double spent = now - p->began_seconds;
    int n = snprintf(buf, buf_bytes, "%s", duet_stage_name(e->stage));
    if (e->num_outputs > 1) n += snprintf(buf + n, buf_bytes - (size_t)n, " of clip %d", e->output);
    if (e->total > 1)
        n += snprintf(buf + n, buf_bytes - (size_t)n, " %lld/%lld", (long long)e->done, (long long)e->total);
    if (e->done > 0 && e->done < e->total)
        snprintf(buf + n, buf_bytes - (size_t)n, "  %s each, %s left",
                 seconds_text(spent / (double)e->done, each, sizeof each),
                 seconds_text(spent / (double)e->done * (double)(e->total - e->done), left, sizeof left));
    else if (e->done > 0)
        snprintf(buf + n, buf_bytes - (size_t)n, "  %s", seconds_text(spent, each, sizeof each));
}

static void show(progress *p, const duet_event *e) {
    double now = now_seconds();
    bool new_stage = !p->started || p->stage != e->stage || p->output != e->output;
    bool ends = e->total > 0 && e->done >= e->total;
    if (new_stage) {
        progress_close(p);
        p->started = true;
        p->stage = e->stage;
        p->output = e->output;
        p->began_seconds = p->told_seconds = now;
    }
    char text[200];
    describe(p, e, now, text, sizeof text);
    if (p->live) {
        fprintf(stderr, "\r\033[K%s%s%s", p->color ? "\033[36m" : "", text, p->color ? "\033[0m" : "");
        p->line_open = true;
        if (ends) progress_close(p);
        fflush(stderr);
    } else if (new_stage || ends || now - p->told_seconds >= PLAIN_EVERY_SECONDS) {
        fprintf(stderr, "%s\n", text);
        p->told_seconds = now;
    }
}

void progress_event(void *ctx, const duet_event *event) {
    progress *p = ctx;
    if (event->kind == DUET_EVENT_LATENTS) cut_files_latents(event->output, event->path);
    if (event->kind == DUET_EVENT_OUTPUT) cut_files_latents(event->output, NULL);
    if (p->quiet) return;
    if (event->kind == DUET_EVENT_RESOLVED)
        print_resolved(event);
    else if (event->kind == DUET_EVENT_PROGRESS)
        show(p, event);
}
