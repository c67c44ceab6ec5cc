/* request_canvas.c - width and height: given, or derived from a ratio and a short edge.
 *
 *     size "WxH" or width + height  -> taken as they are, held against the rules
 *     aspect_ratio and short_edge   -> duet_canvas_resolve (defaults 16:9 and the model's own short edge)
 *
 * Rules of a given canvas: ratio 1:4 to 4:1, area at most 3 800 000 pixels (both need no model); each edge
 * at least 128 where the model's short edge is at least 256, and a multiple of the model's canvas multiple.
 * A rule about both edges reports both ("4096x512; nearest: 2048x512"), a rule about one edge reports that
 * one. Four sizes that clients of another service send by habit are taken to mean the model's nearest
 * canvas. */
#include "engine/request_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_PIXELS = 3800000,
    MIN_EDGE = 128,
    MIN_SHORT_EDGE = 256,
    MAX_SHORT_EDGE = 1440,
    USUAL_MULTIPLE = 32 /* for suggestions before a model is known */
};

typedef struct canvas {
    int64_t w, h;
    bool from_size;  /* blame "size", not "width" and "height" */
    bool translated; /* one of the four habitual sizes that is delivered as another one */
} canvas;

typedef struct habit {
    const char *size;
    int32_t w, h;
} habit;
static const habit HABITS[] = {
    {"1280x720", 1344, 768}, {"720x1280", 768, 1344}, {"1792x1024", 1792, 1024}, {"1024x1792", 1024, 1792}};

typedef struct named_ratio {
    const char *name;
    double w, h;
} named_ratio;
static const named_ratio RATIOS[] = {{"21:9", 21, 9}, {"16:9", 16, 9}, {"4:3", 4, 3},
                                     {"1:1", 1, 1},   {"3:4", 3, 4},   {"9:16", 9, 16}};
enum { N_RATIOS = sizeof RATIOS / sizeof RATIOS[0], DEFAULT_RATIO = 1 };

/* ---- reading
 * ---------------------------------------------------------------------------------------------- */

/* Digits only, at most nine of them; NULL when there are none. */
static const char *read_edge(const char *p, int64_t *out) {
    const char *start = p;
    for (*out = 0; *p >= '0' && *p <= '9' && p - start < 9; p++) *out = *out * 10 + (*p - '0');
    return p == start ? NULL : p;
}

static bool read_size(const char *text, canvas *c) {
    const char *p = read_edge(text, &c->w);
    if (!p || *p != 'x') return false;
    p = read_edge(p + 1, &c->h);
    return p && !*p;
}

static bool is_explicit(const duet_request *r) {
    return r->size || duet__given(r->width) || duet__given(r->height);
}

/* The canvas that was given; the request has passed duet__check_canvas or is about to. */
static bool given_canvas(const duet_request *r, canvas *c) {
    *c = (canvas){.w = r->width, .h = r->height};
    if (!r->size) return true;
    c->from_size = true;
    if (!read_size(r->size, c)) return false;
    for (size_t i = 0; i < sizeof HABITS / sizeof HABITS[0]; i++) {
        if (strcmp(r->size, HABITS[i].size)) continue;
        c->translated = c->w != HABITS[i].w || c->h != HABITS[i].h;
        c->w = HABITS[i].w;
        c->h = HABITS[i].h;
    }
    return true;
}

/* ---- the nearest canvas that would be accepted
 * --------------------------------------------------------------- */

static int64_t to_multiple(double edge, int64_t multiple, int64_t low) {
    int64_t px = (int64_t)floor(edge / (double)multiple + 0.5) * multiple;
    return px < low ? (low + multiple - 1) / multiple * multiple : px;
}

static canvas nearest_canvas(const canvas *c, int64_t multiple, int64_t low) {
    double w = fmin((double)c->w, 1e6), h = fmin((double)c->h, 1e6);
    if (w > 4 * h) w = 4 * h;
    if (h > 4 * w) h = 4 * w;
    double scale = w * h > MAX_PIXELS ? sqrt(MAX_PIXELS / (w * h)) : 1.0;
    canvas n = {.w = to_multiple(w * scale, multiple, low), .h = to_multiple(h * scale, multiple, low)};
    if (n.w > 4 * n.h) n.w = 4 * n.h; /* rounding may have pushed either just over a bound */
    if (n.h > 4 * n.w) n.h = 4 * n.w;
    while (n.w * n.h > MAX_PIXELS) *(n.w >= n.h ? &n.w : &n.h) -= multiple;
    return n;
}

static void canvas_text(const canvas *c, char *buf, size_t buf_bytes) {
    snprintf(buf, buf_bytes, "%lldx%lld", (long long)c->w, (long long)c->h);
}

static duet_status refuse_both(const canvas *c, const char *rule, duet_error *err) {
    char value[64], nearest[64];
    canvas n = nearest_canvas(c, USUAL_MULTIPLE, MIN_EDGE);
    canvas_text(c, value, sizeof value);
    canvas_text(&n, nearest, sizeof nearest);
    const char *param = c->from_size ? "size" : c->w >= c->h ? "width" : "height";
    return duet_refuse(err, param, "invalid_value", value, nearest, "%s", rule);
}

static duet_status refuse_edge(const canvas *c, bool is_width, int64_t multiple, int64_t low,
                               const char *rule, int64_t bound, duet_error *err) {
    char value[64], nearest[64];
    canvas n = nearest_canvas(c, multiple, low);
    canvas_text(c, value, sizeof value);
    canvas_text(&n, nearest, sizeof nearest);
    if (!c->from_size) {
        snprintf(value, sizeof value, "%lld", (long long)(is_width ? c->w : c->h));
        snprintf(nearest, sizeof nearest, "%lld", (long long)(is_width ? n.w : n.h));
    }
    const char *edge = is_width ? "width" : "height";
    return duet_refuse(err, c->from_size ? "size" : edge, "invalid_value", value, nearest, "%s%s%s %lld",
                       c->from_size ? edge : "", c->from_size ? " " : "", rule, (long long)bound);
}

/* ---- rules that need no model
 * -------------------------------------------------------------------------------- */

static duet_status check_pair(const duet_request *r, duet_error *err) {
    bool width = duet__given(r->width), height = duet__given(r->height);
    if (width == height) return DUET_OK;
    return duet_refuse(err, width ? "height" : "width", "missing_required_parameter", NULL, NULL,
                       "must be given together with %s", width ? "width" : "height");
}

static duet_status check_agreement(const duet_request *r, duet_error *err) {
    if (!r->size || !duet__given(r->width)) return DUET_OK;
    canvas raw = {0};
    read_size(r->size, &raw);
    if (raw.w == r->width && raw.h == r->height) return DUET_OK;
    char nearest[64];
    canvas other = {.w = r->width, .h = r->height};
    canvas_text(&other, nearest, sizeof nearest);
    return duet_refuse(err, "size", "conflicting_parameters", r->size, nearest,
                       "contradicts width and height");
}

static duet_status check_given(const duet_request *r, duet_error *err) {
    canvas c;
    duet_status st = check_pair(r, err);
    if (st != DUET_OK) return st;
    if (!given_canvas(r, &c))
        return duet_refuse(err, "size", "invalid_value", r->size, "1344x768",
                           "must be WIDTHxHEIGHT in pixels");
    st = check_agreement(r, err);
    if (st != DUET_OK) return st;
    if (c.w < 1) return refuse_edge(&c, true, USUAL_MULTIPLE, MIN_EDGE, "must be at least", 1, err);
    if (c.h < 1) return refuse_edge(&c, false, USUAL_MULTIPLE, MIN_EDGE, "must be at least", 1, err);
    double w = (double)c.w, h = (double)c.h;
    if (w > 4 * h || h > 4 * w)
        return refuse_both(&c, "the ratio of width to height must be within 1:4 and 4:1", err);
    if (w * h > MAX_PIXELS) return refuse_both(&c, "width times height must be at most 3800000 pixels", err);
    return DUET_OK;
}

static duet_status refuse_short_edge(int64_t got, int64_t low, duet_error *err) {
    char value[32], nearest[32];
    snprintf(value, sizeof value, "%lld", (long long)got);
    snprintf(nearest, sizeof nearest, "%lld", (long long)(got < low ? low : MAX_SHORT_EDGE));
    return duet_refuse(err, "short_edge", "out_of_range", value, nearest, "must be between %lld and %d",
                       (long long)low, MAX_SHORT_EDGE);
}

/* A name, "auto", "adaptive", or a number within 1e-6 of a named ratio; *named: set unless auto. false:
 * none. */
static bool find_ratio(const char *text, const named_ratio **named) {
    *named = &RATIOS[DEFAULT_RATIO];
    if (!text || !strcmp(text, "auto") || !strcmp(text, "adaptive")) return true;
    char *end;
    double number = strtod(text, &end);
    bool is_number = end != text && !*end;
    for (int i = 0; i < N_RATIOS; i++) {
        *named = &RATIOS[i];
        if (!strcmp(text, RATIOS[i].name)) return true;
        if (is_number && fabs(number - RATIOS[i].w / RATIOS[i].h) <= 1e-6) return true;
    }
    return false;
}

/* The named ratio nearest to "W:H" or a number, in equal steps of proportion; the default for anything else.
 * */
static const char *nearest_ratio(const char *text) {
    char *end;
    double w = strtod(text, &end), h = 1.0;
    if (*end == ':') h = strtod(end + 1, &end);
    if (*end || end == text || !(w > 0) || !(h > 0) || !isfinite(w / h)) return RATIOS[DEFAULT_RATIO].name;
    int best = DEFAULT_RATIO;
    for (int i = 0; i < N_RATIOS; i++) {
        if (fabs(log(w / h * RATIOS[i].h / RATIOS[i].w)) < fabs(log(w / h * RATIOS[best].h / RATIOS[best].w)))
            best = i;
    }
    return RATIOS[best].name;
}

duet_status duet__check_canvas(const duet_request *r, duet_error *err) {
    const named_ratio *named;
    if (duet__given(r->short_edge) && (r->short_edge < 1 || r->short_edge > MAX_SHORT_EDGE))
        return refuse_short_edge(r->short_edge, MIN_SHORT_EDGE, err);
    if (!find_ratio(r->aspect_ratio, &named))
        return duet_refuse(err, "aspect_ratio", "invalid_value", r->aspect_ratio,
                           nearest_ratio(r->aspect_ratio),
                           "must be 21:9, 16:9, 4:3, 1:1, 3:4, 9:16, auto or adaptive");
    return is_explicit(r) ? check_given(r, err) : DUET_OK;
}

/* ---- rules that need the configuration
 * ----------------------------------------------------------------------- */

static duet_status resolve_given(const duet_request *r, const duet_model_config *config, duet_resolved *out,
                                 duet_error *err) {
    canvas c;
    given_canvas(r, &c);
    int64_t multiple = config->canvas_multiple,
            low = config->canvas_short_edge >= MIN_SHORT_EDGE ? MIN_EDGE : 1;
    const int64_t edge[2] = {c.w, c.h};
    for (int i = 0; i < 2; i++) {
        if (edge[i] < low) return refuse_edge(&c, i == 0, multiple, low, "must be at least", low, err);
        if (edge[i] % multiple)
            return refuse_edge(&c, i == 0, multiple, low, "must be a multiple of", multiple, err);
    }
    out->width = (int32_t)c.w;
    out->height = (int32_t)c.h;
    out->aspect_ratio = "";
    if (c.translated) duet__warn(out, "size: %s is made as %dx%d", r->size, out->width, out->height);
    if (r->aspect_ratio) duet__warn(out, "aspect_ratio: has no effect beside a given width and height");
    if (duet__given(r->short_edge))
        duet__warn(out, "short_edge: has no effect beside a given width and height");
    return DUET_OK;
}

static duet_status resolve_derived(const duet_request *r, const duet_model_config *config, duet_resolved *out,
                                   duet_error *err) {
    const named_ratio *named;
    find_ratio(r->aspect_ratio, &named);
    int64_t own = config->canvas_short_edge, low = own < MIN_SHORT_EDGE ? own : MIN_SHORT_EDGE;
    int64_t edge = duet__given(r->short_edge) ? r->short_edge : own;
    if (duet__given(r->short_edge) && edge < low) return refuse_short_edge(edge, low, err);
    if (!duet_canvas_resolve(named->w, named->h, (double)edge, config->canvas_max_pixels,
                             config->canvas_multiple, &out->width, &out->height))
        return duet_fail(err, DUET_E_INTERNAL, "no canvas for ratio %s and short edge %lld", named->name,
                         (long long)edge);
    out->aspect_ratio = named->name;
    out->short_edge = (int32_t)edge;
    if (edge != own)
        duet__warn(out, "short_edge: the model was made for %lld, not %lld; the canvas is %dx%d",
                   (long long)own, (long long)edge, out->width, out->height);
    return DUET_OK;
}

duet_status duet__resolve_canvas(const duet_request *r, const duet_model_config *config, duet_resolved *out,
                                 duet_error *err) {
    return is_explicit(r) ? resolve_given(r, config, out, err) : resolve_derived(r, config, out, err);
}
