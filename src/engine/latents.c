/* latents.c - writing and reading the latents file. See latents.h for its content. */
#include "engine/latents.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/geometry.h"
#include "store/safetensors.h"
#include "store/safetensors_write.h"

static const char FORMAT[] = "duet-latents-1";

void duet_latents_free(duet_latents *l) {
    duet_free(l->video);
    duet_free(l->audio);
    duet_free(l->resolved_json);
    l->video = l->audio = NULL;
    l->resolved_json = NULL;
}

static duet_shape video_shape(const duet_latents *l) {
    return DUET_SHAPE(l->video_channels, l->video_latents, l->latent_h, l->latent_w);
}

static duet_shape audio_shape(const duet_latents *l) {
    return DUET_SHAPE(2, l->audio_channels, l->audio_latents);
}

duet_status duet_latents_alloc(duet_latents *l, duet_error *err) {
    duet_shape vs = video_shape(l), as = audio_shape(l);
    int64_t nv, na;
    if (!duet_shape_elems(&vs, &nv) || !duet_shape_elems(&as, &na))
        return duet_fail(err, DUET_E_INTERNAL, "latents: impossible shape");
    l->video = duet_alloc((size_t)nv * sizeof *l->video, DUET_MEM_ENGINE);
    l->audio = duet_alloc((size_t)na * sizeof *l->audio, DUET_MEM_ENGINE);
    if (!l->video || !l->audio) return duet_fail(err, DUET_E_MEMORY, "latents: out of memory");
    return DUET_OK;
}

duet_status duet_latents_write(const duet_latents *l, const char *path, duet_error *err) {
    duet_st_entry entries[] = {
        {.name = "video_latents", .dtype = DUET_F32, .shape = video_shape(l), .data = l->video},
        {.name = "audio_latents", .dtype = DUET_F32, .shape = audio_shape(l), .data = l->audio},
    };
    duet_st_meta meta[] = {
        {"format", FORMAT},
        {"duet_version", duet_version()},
        {"resolved", l->resolved_json ? l->resolved_json : ""},
        {"hash_model", l->hash_model},
        {"hash_video_vae", l->hash_vvae},
        {"hash_audio_vae", l->hash_avae},
    };
    return duet_st_write(path, entries, 2, meta, sizeof meta / sizeof *meta, err);
}

/* ---- reading --------------------------------------------------------------------------------------------- */

static duet_status refuse(duet_error *err, const char *path, const char *rule) {
    return duet_refuse(err, "latents", "invalid_value", path, NULL, "%s", rule);
}

static duet_status find(const duet_st_file *file, const char *path, const char *name, int rank,
                        const duet_st_tensor **out, duet_error *err) {
    char rule[160];
    *out = duet_st_find(file, name);
    if (*out && (*out)->dtype == DUET_F32 && (*out)->shape.rank == rank) return DUET_OK;
    snprintf(rule, sizeof rule, "must hold %s as F32 of rank %d, as duet writes it", name, rank);
    return refuse(err, path, rule);
}

static duet_status check_shapes(const duet_latents *l, const duet_shape *audio, const duet_model_config *c,
                                const char *path, duet_error *err) {
    char rule[200];
    const int64_t *a = audio->dim;
    if (l->video_channels != c->vvae.latent_channels || a[0] != 2 || a[1] != c->avae.latent_channels) {
        snprintf(rule, sizeof rule, "must have %d video channels and 2 x %d audio channels for this model",
                 c->vvae.latent_channels, c->avae.latent_channels);
        return refuse(err, path, rule);
    }
    if (l->video_latents < 7 || l->video_latents % 5 != 2 || l->latent_h < 1 || l->latent_w < 1 || a[2] < 1)
        return refuse(err, path, "must have 5n+2 latent frames (7 at least), a positive size and some sound");
    int64_t sound = duet_audio_latents_for_frames(duet_frames_for_video_latents(l->video_latents));
    if (a[2] != sound) {
        snprintf(rule, sizeof rule, "must have %lld audio latents per channel for %lld latent frames",
                 (long long)sound, (long long)l->video_latents);
        return refuse(err, path, rule);
    }
    return DUET_OK;
}

static bool all_finite(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

static void copy_hash(char dst[65], const char *src) {
    snprintf(dst, 65, "%s", src ? src : "");
}

static duet_status check_hashes(const duet_latents *l, const duet_model_hashes *hashes, const char *path,
                                duet_error *err) {
    const char *own_vvae = hashes->component[DUET_COMPONENT_VVAE],
               *own_avae = hashes->component[DUET_COMPONENT_AVAE];
    if (strcmp(l->hash_vvae, own_vvae) != 0)
        return refuse(err, path, "were made for another model's video VAE");
    if (strcmp(l->hash_avae, own_avae) != 0)
        return refuse(err, path, "were made for another model's audio VAE");
    return DUET_OK;
}

static duet_status take(const duet_st_file *file, const char *path, const duet_model_config *config,
                        const duet_model_hashes *hashes, duet_latents *out, duet_error *err) {
    const duet_st_tensor *video, *audio;
    const char *format = duet_st_metadata(file, "format");
    duet_status st;
    if (!format || strcmp(format, FORMAT) != 0)
        return refuse(err, path,
                      "must be latents that a generate of this version left behind (duet-latents-1)");
    TRY(st, done, find(file, path, "video_latents", 4, &video, err));
    TRY(st, done, find(file, path, "audio_latents", 3, &audio, err));
    out->video_channels = (int32_t)video->shape.dim[0];
    out->video_latents = video->shape.dim[1];
    out->latent_h = (int32_t)video->shape.dim[2];
    out->latent_w = (int32_t)video->shape.dim[3];
    out->audio_channels = (int32_t)audio->shape.dim[1];
    out->audio_latents = audio->shape.dim[2];
    TRY(st, done, check_shapes(out, &audio->shape, config, path, err));
    copy_hash(out->hash_model, duet_st_metadata(file, "hash_model"));
    copy_hash(out->hash_vvae, duet_st_metadata(file, "hash_video_vae"));
    copy_hash(out->hash_avae, duet_st_metadata(file, "hash_audio_vae"));
    TRY(st, done, check_hashes(out, hashes, path, err));
    TRY(st, done, duet_latents_alloc(out, err));
    memcpy(out->video, video->data, (size_t)video->bytes);
    memcpy(out->audio, audio->data, (size_t)audio->bytes);
    if (!all_finite(out->video, video->bytes / 4) || !all_finite(out->audio, audio->bytes / 4))
        st = refuse(err, path, "must be finite everywhere");
done:
    return st;
}

duet_status duet_latents_read(const char *path, const duet_model_config *config,
                              const duet_model_hashes *hashes, duet_latents *out, duet_error *err) {
    *out = (duet_latents){0};
    duet_st_file *file = NULL;
    duet_error why = {0};
    duet_status st = duet_st_open(path, &file, &why);
    if (st == DUET_E_MODEL)
        return duet_refuse(err, "latents", "invalid_value", path, NULL, "is damaged: %s", why.message);
    if (st != DUET_OK) return duet_fail(err, st, "%s", why.message);
    st = take(file, path, config, hashes, out, err);
    if (st == DUET_OK) {
        const char *json = duet_st_metadata(file, "resolved");
        out->resolved_json = duet_strdup(json ? json : "");
        if (!out->resolved_json) st = duet_fail(err, DUET_E_MEMORY, "latents: out of memory");
    }
    duet_st_close(&file);
    if (st != DUET_OK) duet_latents_free(out);
    return st;
}
