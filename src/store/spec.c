/* spec.c - building, sorting and searching the canonical tensor table. The tables themselves: spec_*.c. */
#include "store/spec.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"

duet__spec *duet__spec_add(duet__spec_list *list, duet_dtype dtype, duet__fill fill, double gain,
                           duet_shape shape, const char *fmt, ...) {
    static _Thread_local duet__spec scratch;
    duet__spec *s = &scratch;
    if (list->n == list->room) {
        int room = list->room ? 2 * list->room : 256;
        duet__spec *bigger = duet_realloc(list->spec, (size_t)room * sizeof *bigger, DUET_MEM_STORE);
        if (bigger) {
            list->spec = bigger;
            list->room = room;
        } else {
            list->no_memory = true;
        }
    }
    if (list->n < list->room) s = &list->spec[list->n++];
    *s = (duet__spec){.shape = shape, .dtype = dtype, .fill = fill, .gain = (float)gain};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->name, sizeof s->name, fmt, ap);
    va_end(ap);
    return s;
}

void duet__spec_linear(duet__spec_list *list, duet_dtype dtype, double gain, duet_shape shape,
                       const char *prefix) {
    duet__spec_add(list, dtype, DUET__FILL_WEIGHT, gain, shape, "%s.weight", prefix);
    duet__spec_add(list, dtype, DUET__FILL_NORMAL, 0.2, DUET_SHAPE(shape.dim[0]), "%s.bias", prefix);
}

void duet__spec_norm(duet__spec_list *list, duet_dtype dtype, int64_t width, const char *prefix) {
    duet__spec_add(list, dtype, DUET__FILL_ABOUT_1, 0.3, DUET_SHAPE(width), "%s.weight", prefix);
    duet__spec_add(list, dtype, DUET__FILL_NORMAL, 0.2, DUET_SHAPE(width), "%s.bias", prefix);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const duet__spec *)a)->name, ((const duet__spec *)b)->name);
}

/* What only tasks with conditions read, by prefix of the canonical name. */
static void mark_roles(duet__spec_list *list, duet_component component) {
    static const struct {
        duet_component component;
        const char *prefix;
    } other[] = {{DUET_COMPONENT_TEXT, "model.visual."}, {DUET_COMPONENT_VVAE, "encoder."},
                 {DUET_COMPONENT_VVAE, "quant_conv."},   {DUET_COMPONENT_AVAE, "encoder."},
                 {DUET_COMPONENT_AVAE, "pre_block."},    {DUET_COMPONENT_AVAE, "mean_proj."},
                 {DUET_COMPONENT_AVAE, "logs_proj."}};
    for (int i = 0; i < list->n; i++)
        for (size_t j = 0; j < sizeof other / sizeof *other; j++)
            if (other[j].component == component &&
                strncmp(list->spec[i].name, other[j].prefix, strlen(other[j].prefix)) == 0)
                list->spec[i].role = DUET__OTHER;
}

duet_status duet__specs_build(const duet_model_config *config, duet_component component, duet__spec_list *out,
                              duet_error *err) {
    *out = (duet__spec_list){0};
    switch (component) {
    case DUET_COMPONENT_DIT:
        duet__specs_dit(&config->dit, out);
        break;
    case DUET_COMPONENT_TEXT:
        duet__specs_text(&config->text, &config->vision, out);
        break;
    case DUET_COMPONENT_VVAE:
        duet__specs_vvae(&config->vvae, out);
        break;
    default:
        duet__specs_avae(&config->avae, out);
    }
    if (out->no_memory) {
        duet__specs_free(out);
        return duet_fail(err, DUET_E_MEMORY, "no memory for the tensor table");
    }
    mark_roles(out, component);
    qsort(out->spec, (size_t)out->n, sizeof *out->spec, by_name);
    return DUET_OK;
}

void duet__specs_free(duet__spec_list *list) {
    duet_free(list->spec);
    *list = (duet__spec_list){0};
}

const duet__spec *duet__specs_find(const duet__spec_list *list, const char *name) {
    duet__spec key;
    if (!list->n || strlen(name) >= sizeof key.name) return NULL;
    strcpy(key.name, name);
    return bsearch(&key, list->spec, (size_t)list->n, sizeof key, by_name);
}

int64_t duet__spec_bytes(const duet__spec *spec) {
    int64_t n = 0;
    duet_shape_elems(&spec->shape, &n);
    return n * (int64_t)duet_dtype_bytes(spec->dtype);
}

const float duet__alias_filter[12] = {0.00202896645f, 0.00938946394f, -0.0255434641f, -0.0576573755f,
                                      0.128572609f,   0.4432098f,     0.4432098f,     0.128572609f,
                                      -0.0576573755f, -0.0255434641f, 0.00938946394f, 0.00202896645f};

float duet__inv_freq_at(double theta, int64_t n, int64_t k) {
    return 1.0f / powf((float)theta, (float)(2 * k) / (float)(2 * n));
}
