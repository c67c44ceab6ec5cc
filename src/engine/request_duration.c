/* request_duration.c - seconds or frames, to a frame count the model can make.
 *
 *     seconds --round half to even of 24 s--> frames --up to the next 17n+5--> num_frames
 *
 * The range is tested on what was asked for, before snapping: 15 s are 360 frames and make a clip of 362.
 * `any_length` widens the range to what the decoder can do at all (22 frames) and says so in a warning. */
#include "engine/request_int.h"

#include <math.h>
#include <stdio.h>

enum { FPS = 24, MIN_FRAMES = 96, MIN_FRAMES_ANY = 22, MAX_FRAMES = 362, MIN_SECONDS = 4, MAX_SECONDS = 15 };

static duet_status check_frames(const duet_request *r, duet_error *err) {
    int64_t low = r->any_length ? MIN_FRAMES_ANY : MIN_FRAMES;
    if (r->num_frames >= low && r->num_frames <= MAX_FRAMES) return DUET_OK;
    char value[32], nearest[32];
    snprintf(value, sizeof value, "%lld", (long long)r->num_frames);
    snprintf(nearest, sizeof nearest, "%lld", (long long)(r->num_frames < low ? low : MAX_FRAMES));
    return duet_refuse(err, "num_frames", "out_of_range", value, nearest, "must be between %lld and %d",
                       (long long)low, MAX_FRAMES);
}

/* With any_length the bounds are those of num_frames, as seconds: 22/24 (written 0.917) to 362/24 (15.083).
 * */
static duet_status check_seconds(const duet_request *r, duet_error *err) {
    double low = r->any_length ? 0.917 : MIN_SECONDS, high = r->any_length ? 15.083 : MAX_SECONDS;
    if (r->seconds >= low && r->seconds <= high) return DUET_OK;
    char value[32], nearest[32], low_text[32], high_text[32];
    duet__number_text(r->seconds, value, sizeof value);
    duet__number_text(r->seconds > high ? high : low, nearest, sizeof nearest);
    return duet_refuse(err, "seconds", "out_of_range", value, nearest, "must be between %s and %s",
                       duet__number_text(low, low_text, sizeof low_text),
                       duet__number_text(high, high_text, sizeof high_text));
}

duet_status duet__check_duration(const duet_request *r, duet_error *err) {
    bool frames = duet__given(r->num_frames), seconds = duet__number_given(r->seconds);
    char value[32];
    snprintf(value, sizeof value, "%lld", (long long)r->num_frames);
    if (frames && seconds)
        return duet_refuse(err, "num_frames", "conflicting_parameters", value, NULL,
                           "cannot be given together with seconds");
    return frames ? check_frames(r, err) : seconds ? check_seconds(r, err) : DUET_OK;
}

void duet__resolve_duration(const duet_request *r, duet_resolved *out) {
    double seconds = duet__number_given(r->seconds) ? r->seconds : MIN_SECONDS;
    double asked_seconds = duet__given(r->num_frames) ? (double)r->num_frames / FPS : seconds;
    out->num_frames =
        duet__given(r->num_frames) ? duet_frames_snap_up(r->num_frames) : duet_frames_from_seconds(seconds);
    out->seconds = (double)out->num_frames / FPS;
    bool long_clip = !duet__given(r->num_frames) && asked_seconds > MAX_SECONDS;
    if (asked_seconds < MIN_SECONDS || long_clip)
        duet__warn(out, "%s: %.3g s asked for; the model was made for %d to %d s",
                   duet__given(r->num_frames) ? "num_frames" : "seconds", asked_seconds, MIN_SECONDS,
                   MAX_SECONDS);
}
