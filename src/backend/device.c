/* device.c - opening devices, and the list of buffers by which memory is accounted for.
 *
 * Each buffer has a node that remembers its size and purpose: devices whose memory has no header of its own
 * (walled now, GPUs later) need it, and a refusal can name what was being allocated. A device holds some
 * hundred buffers, allocated between requests, so a list is enough. */
#include "backend/device_int.h"

#include <string.h>

#include "base/alloc.h"

struct duet__buffer {
    duet__buffer *next;
    char *address;
    size_t bytes;
};

static const duet__class *const classes[] = {&duet__class_cpu, &duet__class_ref, &duet__class_walled};

static const duet__class *find_class(const char *name) {
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strcmp(classes[i]->name, name) == 0) return classes[i];
    return NULL;
}

duet_status duet_device_open(const duet_device_options *options, duet_device **out, duet_error *err) {
    *out = NULL;
    const char *name = options->backend ? options->backend : "cpu";
    const duet__class *class = find_class(name);
    if (!class) return duet_fail(err, DUET_E_UNSUPPORTED, "unknown backend \"%s\" (cpu, ref)", name);
    duet_device *dev = duet_calloc(1, sizeof *dev, DUET_MEM_DEVICE);
    if (!dev) return duet_fail(err, DUET_E_MEMORY, "device %s: out of memory", name);
    dev->class = class;
    pthread_mutex_init(&dev->buffers_lock, NULL);
    pthread_mutex_init(&dev->run_lock, NULL);
    duet_status st;
    TRY(st, fail, duet_pool_open(options->n_threads, &dev->pool, err));
    TRY(st, fail, class->open(dev, options, err));
    *out = dev;
    return DUET_OK;
fail:
    duet_device_close(&dev);
    return st;
}

void duet_device_close(duet_device **devp) {
    duet_device *dev = *devp;
    if (!dev) return;
    *devp = NULL;
    while (dev->buffers) duet_device_free(dev, dev->buffers->address);
    dev->class->close(dev);
    duet_pool_close(&dev->pool);
    pthread_mutex_destroy(&dev->run_lock);
    pthread_mutex_destroy(&dev->buffers_lock);
    duet_free(dev);
}

const char *duet_device_kind(const duet_device *dev) {
    return dev->kind;
}

int duet_device_threads(const duet_device *dev) {
    return duet_pool_threads(dev->pool);
}

static int64_t read_locked(const duet_device *dev, const int64_t *counter) {
    pthread_mutex_t *lock = (pthread_mutex_t *)&dev->buffers_lock;
    pthread_mutex_lock(lock);
    int64_t value = *counter;
    pthread_mutex_unlock(lock);
    return value;
}

int64_t duet_device_live_bytes(const duet_device *dev) {
    return read_locked(dev, &dev->live_bytes);
}

int64_t duet_device_peak_bytes(const duet_device *dev) {
    return read_locked(dev, &dev->peak_bytes);
}

static void account(duet_device *dev, duet__buffer *buffer) {
    pthread_mutex_lock(&dev->buffers_lock);
    buffer->next = dev->buffers;
    dev->buffers = buffer;
    dev->live_bytes += (int64_t)buffer->bytes;
    if (dev->live_bytes > dev->peak_bytes) dev->peak_bytes = dev->live_bytes;
    pthread_mutex_unlock(&dev->buffers_lock);
}

duet_status duet_device_alloc(duet_device *dev, int64_t bytes, const char *what, void **out,
                              duet_error *err) {
    *out = NULL;
    if (bytes < 0) return duet_fail(err, DUET_E_INTERNAL, "%s: negative size", what);
    duet__buffer *buffer = duet_alloc(sizeof *buffer, DUET_MEM_DEVICE);
    void *address = buffer ? dev->class->map(dev, (size_t)bytes) : NULL;
    if (!address) {
        duet_free(buffer);
        return duet_fail(err, DUET_E_MEMORY, "%s: the device (%s) refused %lld bytes", what, dev->kind,
                         (long long)bytes);
    }
    *buffer = (duet__buffer){.address = address, .bytes = (size_t)bytes};
    account(dev, buffer);
    *out = address;
    return DUET_OK;
}

void duet_device_free(duet_device *dev, void *address) {
    if (!address) return;
    pthread_mutex_lock(&dev->buffers_lock);
    duet__buffer **at = &dev->buffers;
    while (*at && (*at)->address != (char *)address) at = &(*at)->next;
    duet__buffer *buffer = *at;
    if (buffer) {
        *at = buffer->next;
        dev->live_bytes -= (int64_t)buffer->bytes;
    }
    pthread_mutex_unlock(&dev->buffers_lock);
    if (!buffer) return; /* not ours, or freed before: nothing to release */
    dev->class->unmap(dev, address, buffer->bytes);
    duet_free(buffer);
}

int64_t duet__device_find(duet_device *dev, const void *address) {
    const char *wanted = address;
    int64_t left = -1;
    pthread_mutex_lock(&dev->buffers_lock);
    for (const duet__buffer *b = dev->buffers; b && left < 0; b = b->next)
        if (wanted >= b->address && wanted <= b->address + b->bytes)
            left = (int64_t)(b->address + b->bytes - wanted);
    pthread_mutex_unlock(&dev->buffers_lock);
    return left;
}

duet_status duet_weight_prepare(duet_device *dev, duet_weight *weight, duet_error *err) {
    if (!weight->n_pieces || weight->prepared || !dev->class->weight_prepare) return DUET_OK;
    return dev->class->weight_prepare(dev, weight, err);
}

void duet_weight_unprepare(duet_device *dev, duet_weight *weight) {
    if (weight->prepared) dev->class->weight_unprepare(dev, weight);
}

int64_t duet_weight_prepared_bytes(const duet_device *dev, const duet_weight *weight) {
    if (!weight->n_pieces || !dev->class->weight_prepared_bytes) return 0;
    return dev->class->weight_prepared_bytes(dev, weight);
}
