/* Shifts the wall clock of a program that is started with LD_PRELOAD: CLOCK_SHIFT names a file whose first eight bytes are
 * the seconds by which the clock is ahead. Other clocks stay as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static const volatile long long *ahead;

__attribute__((constructor)) static void open_shift(void) {
    const char *path = getenv("CLOCK_SHIFT");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *shared = file >= 0 ? mmap(0, sizeof(*ahead), PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
    if (shared != MAP_FAILED)
        ahead = shared;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    if (result == 0 && clock == CLOCK_REALTIME && ahead)
        time->tv_sec += *ahead;
    return result;
}
