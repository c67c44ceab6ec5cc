/* vae_parity.h - the two decoders of a tiny checkpoint beside what the reference implementation recorded of
 * them.
 *
 * The checkpoint is made by synth (its hashes stand in tests/fixtures/tiny/setN/weights.json), the
 * recording holds inputs and samples of taps (docs/oracle.md): a tensor NAME whole, or NAME@grid.K, its
 * values at an outer product of index vectors. An ear collects every tap that the recording knows. */
#ifndef DUET_VAE_PARITY_H
#define DUET_VAE_PARITY_H

#include <unistd.h>

#include "harness/fixture.h"

#include "base/alloc.h"
#include "engine/decode.h"
#include "engine/residency.h"
#include "store/synth.h"

/* ---- a checkpoint on a device -------------------------------------------------------------------------- */

typedef struct parity_rig {
    duet_model *model;
    const duet_model_config *config;
    duet_device *dev;
    duet_stream *stream;
    duet_residency *residency;
} parity_rig;

static inline parity_rig parity_rig_open(int set, const char *layout, const char *backend) {
    parity_rig r = {0};
    char dir[600];
    duet_error e = {0};
    snprintf(dir, sizeof dir, "%s/set%d-%s", harness_tmp_dir(), set, layout);
    duet_synth_options synth = {
        .out_dir = dir, .shape = "tiny", .layout = layout, .partition = "fl2va", .seed = (uint64_t)set};
    if (access(dir, F_OK) != 0) EXPECT_OK(duet_synth(&synth, &e), e); /* a test may open a set twice */
    duet_model_options options = {.path = dir,
                                  .components = 1u << DUET_COMPONENT_VVAE | 1u << DUET_COMPONENT_AVAE};
    EXPECT_OK(duet_model_open(&options, &r.model, &e), e);
    r.config = duet_model_config_get(r.model);
    EXPECT_OK(duet_device_open(&(duet_device_options){.backend = backend, .n_threads = 2}, &r.dev, &e), e);
    EXPECT_OK(duet_stream_open(r.dev, 0, &r.stream, &e), e);
    EXPECT_OK(duet_residency_open(r.dev, &r.residency, &e), e);
    return r;
}

/* Streams and prepared weights; networks are closed by the caller between the two. */
static inline void parity_rig_idle(parity_rig *r) {
    duet_stream_close(&r->stream);
    duet_residency_close(&r->residency);
}

static inline void parity_rig_close(parity_rig *r) {
    EXPECT_EQ(duet_device_live_bytes(r->dev), 0);
    duet_device_close(&r->dev);
    duet_model_close(&r->model);
}

static inline fixture parity_recording(int set, const char *name) {
    char path[96];
    snprintf(path, sizeof path, "tiny/set%d/%s.safetensors", set, name);
    return fixture_open(path);
}

/* ---- an ear -------------------------------------------------------------------------------------------- */

enum { PARITY_MAX_TAPS = 64 };

typedef struct parity_ear {
    duet_tap base;
    const fixture *recording;
    int n;
    struct {
        char name[96];
        duet_shape shape;
        void *data;
    } tap[PARITY_MAX_TAPS];
} parity_ear;

static inline bool parity_recorded(const fixture *f, const char *name) {
    char sampled[128];
    snprintf(sampled, sizeof sampled, "%s@grid.0", name);
    return fixture_has(f, name) || fixture_has(f, sampled);
}

static inline bool parity_wants(duet_tap *self, const char *name) {
    return parity_recorded(((parity_ear *)self)->recording, name);
}

static inline void *parity_slot(duet_tap *self, const char *name, const duet_shape *shape, size_t bytes) {
    parity_ear *ear = (parity_ear *)self;
    EXPECT(ear->n < PARITY_MAX_TAPS);
    snprintf(ear->tap[ear->n].name, sizeof ear->tap[0].name, "%s", name);
    ear->tap[ear->n].shape = *shape;
    ear->tap[ear->n].data = duet_alloc(bytes, DUET_MEM_TENSOR);
    EXPECT(ear->tap[ear->n].data);
    return ear->tap[ear->n++].data;
}

static inline void parity_take_device(duet_tap *self, duet_stream *stream, const char *name, const float *x,
                                      int64_t rows, int64_t cols, int64_t stride, const duet_shape *shape) {
    float *out = parity_slot(self, name, shape, (size_t)(rows * cols) * sizeof *out);
    for (int64_t r = 0; r < rows; r++) duet_copy_out(stream, out + r * cols, x + r * stride, cols * 4);
}

static inline void parity_take_host(duet_tap *self, const char *name, duet_dtype dtype,
                                    const duet_shape *shape, const void *data) {
    int64_t n;
    EXPECT(duet_shape_elems(shape, &n));
    size_t bytes = (size_t)n * duet_dtype_bytes(dtype);
    memcpy(parity_slot(self, name, shape, bytes), data, bytes);
}

static inline parity_ear parity_listen(const fixture *recording) {
    return (parity_ear){.base = {parity_wants, parity_take_device, parity_take_host}, .recording = recording};
}

static inline void parity_ear_free(parity_ear *ear) {
    for (int i = 0; i < ear->n; i++) duet_free(ear->tap[i].data);
}

/* ---- samples ------------------------------------------------------------------------------------------- */

/* Positions in a tensor of `shape` of the values that grid k of `name` recorded: n indices (duet_free), or
 * NULL when there is no such grid. A tensor kept whole is its own grid 0. */
static inline int64_t *parity_positions(const fixture *f, const char *name, int k, const duet_shape *shape,
                                        int64_t *n) {
    char entry[128], axis[160];
    snprintf(entry, sizeof entry, "%s@grid.%d", name, k);
    bool whole = k == 0 && fixture_has(f, name);
    if (!whole && !fixture_has(f, entry)) return NULL;
    fixture_tensor t = fixture_get(f, whole ? name : entry);
    const int32_t *index[DUET_MAX_RANK] = {NULL};
    EXPECT_EQ(t.rank, shape->rank);
    for (int a = 0; a < t.rank; a++) {
        snprintf(axis, sizeof axis, "%s.axis%d", entry, a);
        if (!whole)
            index[a] = fixture_get(f, axis).data;
        else
            EXPECT_EQ(t.dim[a], shape->dim[a]);
    }
    int64_t *at = duet_calloc((size_t)t.n, sizeof *at, DUET_MEM_TENSOR);
    EXPECT(at);
    for (int64_t i = 0; i < t.n; i++) {
        int64_t rest = i, stride = 1;
        for (int a = t.rank - 1; a >= 0; a--) {
            int64_t place = rest % t.dim[a];
            rest /= t.dim[a];
            at[i] += (whole ? place : index[a][place]) * stride;
            stride *= shape->dim[a];
        }
    }
    *n = t.n;
    return at;
}

static inline const void *parity_values(const fixture *f, const char *name, int k) {
    char entry[128];
    snprintf(entry, sizeof entry, "%s@grid.%d", name, k);
    return fixture_get(f, k == 0 && fixture_has(f, name) ? name : entry).data;
}

/* Relative L2 of one fp32 tap over everything recorded of it. */
static inline double parity_distance(const fixture *f, const char *name, const duet_shape *shape,
                                     const float *got) {
    double diff = 0.0, size = 0.0;
    int64_t n, *at;
    for (int k = 0; (at = parity_positions(f, name, k, shape, &n)); k++) {
        const float *want = parity_values(f, name, k);
        for (int64_t i = 0; i < n; i++) {
            double d = (double)got[at[i]] - (double)want[i];
            diff += d * d;
            size += (double)want[i] * (double)want[i];
        }
        duet_free(at);
    }
    return isfinite(diff) ? sqrt(diff / size) : INFINITY;
}

/* Every tap that was heard against the recording; prints the worst, answers how many. Not `frames`. */
static inline int parity_expect_taps(const parity_ear *ear, double bound) {
    int compared = 0;
    double worst = -1.0;
    const char *where = "";
    for (int i = 0; i < ear->n; i++) {
        if (!strcmp(ear->tap[i].name, "frames")) continue;
        double rel = parity_distance(ear->recording, ear->tap[i].name, &ear->tap[i].shape, ear->tap[i].data);
        if (!(rel <= bound)) FAIL("%s: relative L2 %g, bound %g", ear->tap[i].name, rel, bound);
        if (rel > worst) worst = rel, where = ear->tap[i].name;
        compared++;
    }
    if (compared) printf("     %d taps, worst %s at %.2g\n", compared, where, worst);
    return compared;
}

typedef struct parity_pixels {
    int64_t values, differing;
    int most;    /* levels */
    double psnr; /* of the recorded samples; 200 when equal */
} parity_pixels;

static inline parity_pixels parity_compare_frames(const fixture *f, const duet_shape *shape,
                                                  const uint8_t *got) {
    parity_pixels p = {0};
    double sum = 0.0;
    int64_t n, *at;
    for (int k = 0; (at = parity_positions(f, "frames", k, shape, &n)); k++) {
        const uint8_t *want = parity_values(f, "frames", k);
        for (int64_t i = 0; i < n; i++) {
            int d = abs((int)got[at[i]] - (int)want[i]);
            p.most = d > p.most ? d : p.most;
            p.differing += d > 0;
            sum += d * d;
        }
        p.values += n;
        duet_free(at);
    }
    p.psnr = sum > 0.0 ? 10.0 * log10(255.0 * 255.0 * (double)p.values / sum) : 200.0;
    return p;
}

#endif
