/* Moves the wall clock that a program sees. Servers take the time of expiry from gettimeofday,
   Rust's SystemTime comes from clock_gettime; the monotonic clocks stay as they are.
   The offset, in microseconds, is read from a shared file on every call. Behind it the file has
   the time at which all clocks stand, or 0. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset, *frozen;

__attribute__((constructor)) static void open_offset(void) {
    const char *path = getenv("TESTBED_CLOCK");
    int fd = path ? open(path, O_RDONLY) : -1;
    if (fd < 0) return;
    void *page = mmap(NULL, 16, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED) return;
    offset = page;
    frozen = offset + 1;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    /* The raw call: the library's own would come back here. */
    int failed = syscall(SYS_clock_gettime, clock, now);
    int64_t stands = offset ? *frozen : 0;
    if (failed || !offset || (clock != CLOCK_REALTIME && !stands)) return failed;
    int64_t us = (int64_t)now->tv_sec * 1000000 + now->tv_nsec / 1000 + *offset;
    if (stands) us = stands;
    now->tv_sec = us / 1000000;
    now->tv_nsec = us % 1000000 * 1000;
    return 0;
}

int gettimeofday(struct timeval *tv, void *zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    tv->tv_sec = now.tv_sec;
    tv->tv_usec = now.tv_nsec / 1000;
    return 0;
}
