/* tokenizer_bpe.c - byte-level BPE of one pre-token in O(n log n).
 *
 * The symbols form a linked list in an array; every adjacent pair that some merge names is a candidate in
 * a heap ordered by (rank, position). Popping the best candidate joins its two symbols and offers the two
 * new neighbourhoods. Candidates are never removed when one of their symbols changes: a popped one counts
 * only if the pair still stands as it did when it was offered, which the id of the result tells (a symbol
 * only ever grows, so a changed pair spells another, longer token).
 *
 * A pre-token can be as long as the text (scripts without spaces, "AAAA..."), so nothing here may rescan. */
#include "base/alloc.h"
#include "nn/tokenizer_int.h"

typedef struct duet__bpe_symbol {
    int32_t id;             /* -1: absorbed by the symbol before it */
    int32_t previous, next; /* -1: none */
} symbol;

typedef struct duet__bpe_candidate {
    int32_t rank, at, id; /* merge of the symbols at `at` and its next, giving `id` */
} candidate;

static bool before(const candidate *a, const candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(duet__bpe *bpe, candidate added) {
    candidate *heap = bpe->heap;
    int64_t hole = bpe->n_heap++;
    while (hole > 0 && before(&added, &heap[(hole - 1) / 2])) {
        heap[hole] = heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    heap[hole] = added;
}

static candidate heap_pop(duet__bpe *bpe) {
    candidate *heap = bpe->heap, best = heap[0], moved = heap[--bpe->n_heap];
    int64_t hole = 0;
    for (;;) {
        int64_t child = 2 * hole + 1;
        if (child >= bpe->n_heap) break;
        if (child + 1 < bpe->n_heap && before(&heap[child + 1], &heap[child])) child++;
        if (!before(&heap[child], &moved)) break;
        heap[hole] = heap[child];
        hole = child;
    }
    heap[hole] = moved;
    return best;
}

static void offer(duet__bpe *bpe, const duet_tokenizer *tokenizer, int32_t at) {
    if (at < 0 || bpe->symbol[at].next < 0) return;
    const duet__merge *merge =
        duet__merge_map_find(&tokenizer->merges, bpe->symbol[at].id, bpe->symbol[bpe->symbol[at].next].id);
    if (merge) heap_push(bpe, (candidate){merge->rank, at, merge->id});
}

static bool still_stands(const duet__bpe *bpe, const duet_tokenizer *tokenizer, const candidate *c) {
    const symbol *left = &bpe->symbol[c->at];
    if (left->id < 0 || left->next < 0) return false;
    const duet__merge *merge = duet__merge_map_find(&tokenizer->merges, left->id, bpe->symbol[left->next].id);
    return merge && merge->id == c->id;
}

static void join(duet__bpe *bpe, const candidate *c) {
    symbol *left = &bpe->symbol[c->at], *right = &bpe->symbol[left->next];
    left->id = c->id;
    left->next = right->next;
    right->id = -1;
    if (left->next >= 0) bpe->symbol[left->next].previous = c->at;
}

/* Room for n symbols. Candidates: n-1 at the start, and at most two for each of at most n-1 joins, each of
 * which pops one. */
static duet_status reserve(duet__bpe *bpe, int64_t n, duet_error *err) {
    if (n <= bpe->room) return DUET_OK;
    int64_t room = n < 64 ? 64 : n + n / 2;
    symbol *symbols = duet_realloc(bpe->symbol, (size_t)room * sizeof *symbols, DUET_MEM_TOKENIZER);
    if (symbols) bpe->symbol = symbols;
    candidate *heap = duet_realloc(bpe->heap, 2 * (size_t)room * sizeof *heap, DUET_MEM_TOKENIZER);
    if (heap) bpe->heap = heap;
    if (!symbols || !heap)
        return duet_fail(err, DUET_E_MEMORY, "no memory to encode a word of %lld bytes", (long long)n);
    bpe->room = room;
    return DUET_OK;
}

static void split(duet__bpe *bpe, const duet_tokenizer *tokenizer, const char *bytes, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        bpe->symbol[i] = (symbol){tokenizer->byte_id[(unsigned char)bytes[i]], i - 1, i + 1 < n ? i + 1 : -1};
    bpe->n_heap = 0;
    for (int32_t i = 0; i + 1 < n; i++) offer(bpe, tokenizer, i);
}

duet_status duet__bpe_encode(duet__bpe *bpe, const duet_tokenizer *tokenizer, const char *bytes,
                             int64_t n_bytes, duet__ids *ids, duet_error *err) {
    duet_status st = reserve(bpe, n_bytes, err);
    if (st != DUET_OK || n_bytes == 0) return st;
    split(bpe, tokenizer, bytes, (int32_t)n_bytes);
    while (bpe->n_heap > 0) {
        candidate best = heap_pop(bpe);
        if (!still_stands(bpe, tokenizer, &best)) continue;
        join(bpe, &best);
        offer(bpe, tokenizer, bpe->symbol[best.at].previous);
        offer(bpe, tokenizer, best.at);
    }
    for (int32_t at = 0; at >= 0 && st == DUET_OK; at = bpe->symbol[at].next)
        st = duet__ids_push(ids, bpe->symbol[at].id, err);
    return st;
}

void duet__bpe_close(duet__bpe *bpe) {
    duet_free(bpe->symbol);
    duet_free(bpe->heap);
    *bpe = (duet__bpe){0};
}
