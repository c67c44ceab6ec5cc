/* tokenizer_map.c - the tokenizer's two hash tables: token bytes -> id, pair of ids -> merge.
 *
 * Linear probing in a power-of-two table at most half full. Filled once while loading, read-only
 * afterwards. */
#include <string.h>

#include "base/alloc.h"
#include "nn/tokenizer_int.h"

/* Finaliser of splitmix64: every input bit reaches every output bit. */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t hash_bytes(const char *bytes, int64_t n_bytes) {
    uint64_t h = (uint64_t)n_bytes;
    for (int64_t i = 0; i < n_bytes; i++) h = (h ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    return mix(h);
}

static uint64_t hash_pair(int32_t left, int32_t right) {
    return mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right);
}

static uint64_t capacity(int64_t n_entries) {
    uint64_t slots = 16;
    while (slots < 2 * (uint64_t)n_entries) slots *= 2;
    return slots;
}

duet_status duet__ids_push(duet__ids *ids, int32_t id, duet_error *err) {
    if (ids->n == ids->room) {
        int64_t room = ids->room ? 2 * ids->room : 64;
        int32_t *grown = duet_realloc(ids->id, (size_t)room * sizeof *grown, DUET_MEM_TOKENIZER);
        if (!grown) return duet_fail(err, DUET_E_MEMORY, "no memory for %lld token ids", (long long)room);
        ids->id = grown;
        ids->room = room;
    }
    ids->id[ids->n++] = id;
    return DUET_OK;
}

duet_status duet__text_map_open(duet__text_map *map, int64_t n_entries, duet_error *err) {
    uint64_t slots = capacity(n_entries);
    map->slot = duet_calloc((size_t)slots, sizeof *map->slot, DUET_MEM_TOKENIZER);
    if (!map->slot)
        return duet_fail(err, DUET_E_MEMORY, "no memory for a table of %lld tokens", (long long)n_entries);
    memset(map->slot, 0xff, (size_t)slots * sizeof *map->slot);
    map->mask = slots - 1;
    return DUET_OK;
}

void duet__text_map_close(duet__text_map *map) {
    duet_free(map->slot);
    *map = (duet__text_map){0};
}

int32_t duet__text_map_find(const duet__text_map *map, const duet__token_text *tokens, const char *bytes,
                            int64_t n_bytes) {
    for (uint64_t at = hash_bytes(bytes, n_bytes);; at++) {
        int32_t id = map->slot[at & map->mask];
        if (id < 0) return -1;
        const duet__token_text *text = &tokens[id];
        if (text->n_bytes == n_bytes && memcmp(text->bytes, bytes, (size_t)n_bytes) == 0) return id;
    }
}

void duet__text_map_put(duet__text_map *map, const duet__token_text *tokens, int32_t id) {
    uint64_t at = hash_bytes(tokens[id].bytes, tokens[id].n_bytes);
    while (map->slot[at & map->mask] >= 0) at++;
    map->slot[at & map->mask] = id;
}

duet_status duet__merge_map_open(duet__merge_map *map, int64_t n_entries, duet_error *err) {
    uint64_t slots = capacity(n_entries);
    map->slot = duet_calloc((size_t)slots, sizeof *map->slot, DUET_MEM_TOKENIZER);
    if (!map->slot)
        return duet_fail(err, DUET_E_MEMORY, "no memory for a table of %lld merges", (long long)n_entries);
    for (uint64_t i = 0; i < slots; i++) map->slot[i].left = -1;
    map->mask = slots - 1;
    return DUET_OK;
}

void duet__merge_map_close(duet__merge_map *map) {
    duet_free(map->slot);
    *map = (duet__merge_map){0};
}

/* Slot that holds the pair, or the empty one where it belongs. */
static duet__merge *merge_slot(const duet__merge_map *map, int32_t left, int32_t right) {
    for (uint64_t at = hash_pair(left, right);; at++) {
        duet__merge *slot = &map->slot[at & map->mask];
        if (slot->left < 0 || (slot->left == left && slot->right == right)) return slot;
    }
}

const duet__merge *duet__merge_map_find(const duet__merge_map *map, int32_t left, int32_t right) {
    const duet__merge *slot = merge_slot(map, left, right);
    return slot->left < 0 ? NULL : slot;
}

bool duet__merge_map_put(duet__merge_map *map, duet__merge merge) {
    duet__merge *slot = merge_slot(map, merge.left, merge.right);
    if (slot->left >= 0) return false;
    *slot = merge;
    return true;
}
