/* queues.c - two first-in-first-out queues, a thread each.
 *
 * One lock guards everything. A command may start when it has been let go (somebody waits, or BACKLOG commands have
 * gathered) and when the other queue has done as many commands as it follows. Commands only follow commands that were
 * enqueued before them, and letting go is always for both queues, so the two threads cannot wait for each other
 * forever. */
#include "backend/walled/walled.h"
#include "base/alloc.h"

enum { COMPUTE, COPY, N_QUEUES, BACKLOG = 512 };

typedef struct queue {
    walled_command *head, **tail;
    uint64_t put, done, let_go; /* counts since the start */
    pthread_t thread;
    bool started;
} queue;

struct walled_queues {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    queue queue[N_QUEUES];
    bool stop;
};

static int queue_of(walled_kind kind) {
    return kind == WALLED_IN || kind == WALLED_OUT ? COPY : COMPUTE;
}

static void free_command(walled_command *c) {
    if (c->kind == WALLED_IN) duet_free(c->host);
    duet_free(c);
}

static bool may_start(const walled_queues *q, int which) {
    const queue *mine = &q->queue[which];
    return mine->head && mine->done < mine->let_go && q->queue[!which].done >= mine->head->follows;
}

static void run_queue(walled_queues *q, int which) {
    queue *mine = &q->queue[which];
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (!q->stop && !may_start(q, which)) pthread_cond_wait(&q->changed, &q->lock);
        if (q->stop) break;
        walled_command *c = mine->head;
        mine->head = c->next;
        if (!mine->head) mine->tail = &mine->head;
        pthread_mutex_unlock(&q->lock);
        duet__walled_execute(c);
        free_command(c);
        pthread_mutex_lock(&q->lock);
        mine->done++;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
}

static void *compute_main(void *arg) {
    run_queue(arg, COMPUTE);
    return NULL;
}

static void *copy_main(void *arg) {
    run_queue(arg, COPY);
    return NULL;
}

duet_status duet__queues_open(duet_device *dev, walled_queues **out, duet_error *err) {
    (void)dev;
    walled_queues *q = duet_calloc(1, sizeof *q, DUET_MEM_DEVICE);
    *out = q;
    if (!q) return duet_fail(err, DUET_E_MEMORY, "walled device: out of memory");
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    for (int i = 0; i < N_QUEUES; i++) q->queue[i].tail = &q->queue[i].head;
    for (int i = 0; i < N_QUEUES; i++) {
        q->queue[i].started =
            pthread_create(&q->queue[i].thread, NULL, i == COPY ? copy_main : compute_main, q) == 0;
        if (!q->queue[i].started)
            return duet_fail(err, DUET_E_RUN, "walled device: the system refused a thread");
    }
    return DUET_OK;
}

void duet__queues_close(walled_queues **queues) {
    walled_queues *q = *queues;
    if (!q) return;
    *queues = NULL;
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    for (int i = 0; i < N_QUEUES; i++) {
        if (q->queue[i].started) pthread_join(q->queue[i].thread, NULL);
        while (q->queue[i].head) { /* only if a stream was left open */
            walled_command *next = q->queue[i].head->next;
            free_command(q->queue[i].head);
            q->queue[i].head = next;
        }
    }
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    duet_free(q);
}

static void let_go(walled_queues *q) {
    for (int i = 0; i < N_QUEUES; i++) q->queue[i].let_go = q->queue[i].put;
    pthread_cond_broadcast(&q->changed);
}

void duet__queues_put(walled_queues *q, walled_command *c) {
    int which = queue_of(c->kind);
    queue *mine = &q->queue[which];
    pthread_mutex_lock(&q->lock);
    c->follows = c->stream->last[!which];
    c->next = NULL;
    *mine->tail = c;
    mine->tail = &c->next;
    c->stream->last[which] = ++mine->put;
    if (mine->put - mine->done > BACKLOG) let_go(q);
    pthread_mutex_unlock(&q->lock);
}

void duet__queues_wait(walled_queues *q, walled_stream *stream) {
    pthread_mutex_lock(&q->lock);
    let_go(q);
    while (q->queue[COMPUTE].done < stream->last[COMPUTE] || q->queue[COPY].done < stream->last[COPY])
        pthread_cond_wait(&q->changed, &q->lock);
    pthread_mutex_unlock(&q->lock);
}
