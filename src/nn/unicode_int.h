/* unicode_int.h - range tables, shared by unicode.c, unicode_nfc.c and the generated tables. */
#ifndef DUET_NN_UNICODE_INT_H
#define DUET_NN_UNICODE_INT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct duet__range {
    uint32_t first, last; /* inclusive */
} duet__range;

extern const duet__range duet__letter_ranges[], duet__number_ranges[];
extern const int duet__n_letter_ranges, duet__n_number_ranges;

/* Is the code point in one of n ascending ranges? */
bool duet__in_ranges(const duet__range *ranges, int n, uint32_t code);

#endif
