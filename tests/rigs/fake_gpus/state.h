/* What the GPUs of this machine do, in the file that FAKE_GPU_STATE names: libcudart writes it, NVML reads it. */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { CONTEXTS = 256, SLICES = 16, SLICE_NS = 100000000 };

struct context { /* of one process on one GPU */
  int pid, gpu;
  unsigned long long memory;                            /* bytes */
  unsigned long long busy_since;                        /* ns; 0: nothing runs */
  struct { unsigned long long number, busy; } slices[SLICES]; /* the latest tenths of a second, and ns busy in each */
};
struct gpu_state { struct context contexts[CONTEXTS]; int fault[64]; /* cudaError of a GPU that has failed */ };

static inline unsigned long long state_now(void) { /* ns, the same for all processes */
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (unsigned long long)t.tv_sec * 1000000000 + (unsigned long long)t.tv_nsec;
}

static inline struct gpu_state *state_open(void) { /* 0 where no file is named */
  const char *path = getenv("FAKE_GPU_STATE");
  int fd = path && *path ? open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600) : -1;
  struct gpu_state *s = MAP_FAILED;
  if (fd >= 0 && !ftruncate(fd, sizeof *s)) s = mmap(0, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  return s == MAP_FAILED ? 0 : s;
}

static inline int state_alive(const struct context *c) { return c->pid && !(kill(c->pid, 0) && errno == ESRCH); }

/* The context of a process on a GPU, made if it is not there. */
static inline struct context *state_context(struct gpu_state *s, int pid, int gpu) {
  for (int i = 0; s && i < CONTEXTS; i++) {
    struct context *c = &s->contexts[i];
    int before = c->pid;
    if (state_alive(c) || !__atomic_compare_exchange_n(&c->pid, &before, pid, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      continue;
    memset(&c->gpu, 0, sizeof *c - sizeof c->pid);
    c->gpu = gpu;
    return c;
  }
  return 0;
}

static inline void state_add(struct context *c, unsigned long long from, unsigned long long to) {
  if (to - from > SLICES * (unsigned long long)SLICE_NS) from = to - SLICES * (unsigned long long)SLICE_NS;
  for (unsigned long long slice = from / SLICE_NS; slice <= to / SLICE_NS; slice++) {
    unsigned long long begin = slice * SLICE_NS, end = begin + SLICE_NS;
    if (c->slices[slice % SLICES].number != slice) c->slices[slice % SLICES].busy = 0;
    c->slices[slice % SLICES].number = slice;
    c->slices[slice % SLICES].busy += (to < end ? to : end) - (from > begin ? from : begin);
  }
}

/* Percent of the last second in which something ran on a GPU. */
static inline unsigned state_utilisation(struct gpu_state *s, int gpu) {
  unsigned long long now = state_now(), first = now / SLICE_NS - 10, busy = 0, window = now - first * SLICE_NS;
  for (int i = 0; s && i < CONTEXTS; i++) {
    struct context c = s->contexts[i];
    if (c.gpu != gpu || !state_alive(&c)) continue;
    if (c.busy_since) state_add(&c, c.busy_since, now);
    for (int k = 0; k < SLICES; k++)
      if (c.slices[k].number >= first && c.slices[k].number * SLICE_NS <= now) busy += c.slices[k].busy;
  }
  return busy >= window ? 100 : (unsigned)(busy * 100 / window);
}
