/* hold.h - a small file by which one run at a time holds a name.
 *
 *     take   make the file if need be, lock it, write into it who we are      release   remove it, unlock it
 *
 * 1. The lock decides. The system drops it when its process ends, however that ends, so what a killed run leaves behind
 *    holds nothing: the next one takes the file over and hears that it did (`stale`).
 * 2. A file system without locks is served by what the file says: a process of this machine that still runs holds the
 *    name, one that ended (or ran before the last start of the machine) does not; of any other nothing can be known,
 *    and it is taken to hold.
 * 3. Locks are those of open files, not of processes: two runs in one process exclude each other as well.
 * What this cannot see: a file system that keeps the locks of every machine to itself and still claims to have them. */
#ifndef DUET_BASE_HOLD_H
#define DUET_BASE_HOLD_H

#include <stdbool.h>
#include <stddef.h>

typedef struct duet_hold {
    char *path; /* NULL: holds nothing */
    int fd;
    bool stale; /* a run that did not end in order held it before */
} duet_hold;

typedef enum duet_hold_state {
    DUET_HOLD_FREE,    /* look only: nobody holds it */
    DUET_HOLD_OURS,    /* take only */
    DUET_HOLD_OTHERS,  /* a living process, named in `who` */
    DUET_HOLD_UNKNOWN, /* somebody who cannot be looked at from here, named in `who` */
    DUET_HOLD_CANNOT,  /* errno says why */
} duet_hold_state;

enum { DUET_HOLD_WHO_BYTES = 160 };

/* who: "process 4711" or "process 4711 on HOST"; set with OTHERS and UNKNOWN. Both never wait (for a second at most
 * where there are no locks and the file was just made). */
duet_hold_state duet_hold_take(const char *path, duet_hold *out, char who[DUET_HOLD_WHO_BYTES]);
duet_hold_state duet_hold_look(const char *path, char who[DUET_HOLD_WHO_BYTES]);
void duet_hold_release(duet_hold *hold); /* idempotent on a zeroed struct */

#endif
