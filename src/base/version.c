/* version.c - the version, as CMake's project() states it. */
#include "duet/duet.h"

const char *duet_version(void) {
    return DUET_VERSION;
}
