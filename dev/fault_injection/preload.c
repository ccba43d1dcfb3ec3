// SPDX-License-Identifier: Apache-2.0
// Loaded before libc by processes under torture: a clock that steps, a disk that is slow or fails.
// What is wrong stands in a mapped file of 64-bit numbers, so that it changes while they run (preload.py).
//   0: milliseconds that CLOCK_REALTIME is ahead. Not in a JVM, whose timed waits would reach the kernel with a time an hour ahead
//   1: milliseconds that fsync and fdatasync take longer
//   2: errno with which they fail, 0 for none
//   3: how many of them were late or failed: counted here

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *wrong;
static int steps;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("TORTURE_PRELOAD");
  int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *mapped = mmap(NULL, 4 * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) return;
  char program[4096] = "";
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  const char *name = length > 0 ? strrchr(program, '/') : NULL;
  steps = !(name && strcmp(name, "/java") == 0);
  wrong = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  if (!real_clock_gettime) real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
  int result = real_clock_gettime(clock, time);
  if (result == 0 && wrong && steps && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    int64_t ahead_ms = wrong[0];
    int64_t nanoseconds = time->tv_nsec + (ahead_ms % 1000) * 1000000;
    time->tv_sec += ahead_ms / 1000 + (nanoseconds >= 1000000000) - (nanoseconds < 0);
    time->tv_nsec = (nanoseconds + 1000000000) % 1000000000;
  }
  return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  (void)zone;
  struct timespec now;
  int result = clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return result;
}

time_t time(time_t *to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}

static int sync_with(const char *name, int fd) {
  int (*real)(int) = dlsym(RTLD_NEXT, name);
  if (wrong) {
    int64_t late_ms = wrong[1];
    if (late_ms > 0 || wrong[2]) __atomic_fetch_add(&wrong[3], 1, __ATOMIC_RELAXED);
    if (late_ms > 0) {
      struct timespec pause = {late_ms / 1000, (late_ms % 1000) * 1000000};
      nanosleep(&pause, NULL);
    }
    if (wrong[2]) {
      errno = (int)wrong[2];
      return -1;
    }
  }
  return real(fd);
}

int fsync(int fd) { return sync_with("fsync", fd); }
int fdatasync(int fd) { return sync_with("fdatasync", fd); }
