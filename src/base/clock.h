/* clock.h - one monotonic clock, in seconds, for durations; never a time of day. Any thread. */
#ifndef DUET_BASE_CLOCK_H
#define DUET_BASE_CLOCK_H

double duet_clock_s(void);

#endif
