/* A libcudart.so.13 without a GPU: device memory is host memory, kernels do nothing, and streams and events are as
 * asynchronous as real ones. torch and ProcessGroupNCCL, built for CUDA, run on it unchanged.
 *
 * A stream is a queue. What comes to an idle stream is done at once, in the caller's thread; what comes behind
 * something unfinished (a collective whose peers are not there, an event, a sleep) waits in the queue, and one thread
 * of the process, started then, carries it on. Only what blocks on hardware blocks here: synchronise, copies to
 * pageable memory, cudaFree.
 *
 *   FAKE_GPUS=N              devices (8); CUDA_VISIBLE_DEVICES selects among them
 *   FAKE_GPU_FAULT=E@D:N     device D fails with cudaError E (700 illegal address, 214 ECC, 719 launch failure) for
 *                            good at its Nth kernel
 *   FAKE_GPU_SPIN=1          who waits for a stream keeps a core busy, as with a real one; otherwise it sleeps
 *
 * As with a real one, a process forked after CUDA was initialised gets cudaErrorInitializationError.
 * torch.cuda._sleep(n) takes n nanoseconds. */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "streams.h"

enum { MOST = 64, CONTEXT = 520 << 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t finished, queued; /* something ended; there is something for the thread to do */
static int gpus, physical[MOST], fault[MOST];
static long kernels[MOST];
static bool usable, forked;
static __thread int current;
static __thread cudaError_t last;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static cudaError_t give(cudaError_t e) {
  if (e != cudaSuccess && e != cudaErrorNotReady) last = e;
  return e;
}

/* -------------------------------------------------------------------------------------------------- start and fork */

static void in_child(void) { forked = usable; }

static void start(void) {
  pthread_condattr_t attr;
  const char *count = getenv("FAKE_GPUS"), *visible = getenv("CUDA_VISIBLE_DEVICES");
  int all = count ? atoi(count) : 8;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&finished, &attr);
  pthread_cond_init(&queued, &attr);
  if (all > MOST) all = MOST;
  for (int i = 0; !visible && i < all; i++) physical[gpus++] = i;
  while (visible && *visible && gpus < MOST) { /* 0,1 or GPU-...-000000000001; the first bad one ends the list */
    char item[80] = "", *number;
    sscanf(visible, "%79[^,]", item);
    number = strncmp(item, "GPU-", 4) ? item : strrchr(item, '-') + 1;
    if (!*item || atoi(number) >= all || *number < '0' || *number > '9') break;
    physical[gpus++] = atoi(number);
    visible += strlen(item);
    visible += *visible == ',';
  }
  pthread_atfork(0, 0, in_child);
  usable = true;
}

static cudaError_t begin(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, start);
  if (forked) return cudaErrorInitializationError;
  return gpus ? cudaSuccess : cudaErrorNoDevice;
}
static cudaError_t state(void) { cudaError_t e = begin(); return e ? e : (cudaError_t)fault[current]; }
#define READY() do { cudaError_t e_ = begin(); if (e_) return give(e_); } while (0)
#define BEGIN() do { cudaError_t e_ = state(); if (e_) return give(e_); } while (0) /* what touches the device */

/* ----------------------------------------------------------------------------------------------------------- memory */

struct range { char *at; size_t size; enum cudaMemoryType type; int device; bool mapped; };
static struct range *ranges;
static size_t n_ranges, used[MOST];
static const size_t capacity = 80ULL << 30;

static struct range *find(const void *p) {
  for (size_t i = 0; i < n_ranges; i++)
    if ((char *)p >= ranges[i].at && (char *)p < ranges[i].at + ranges[i].size) return &ranges[i];
  return 0;
}

static cudaError_t reserve(void **at, size_t size, enum cudaMemoryType type, bool mapped) {
  cudaError_t e = cudaSuccess;
  if (!size) return *at = 0, e;
  size = (size + 511) & ~511UL;
  pthread_mutex_lock(&lock);
  if (type == cudaMemoryTypeDevice && used[current] + size + CONTEXT > capacity) e = cudaErrorMemoryAllocation;
  if (!e && mapped) *at = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (!e && *at == MAP_FAILED) e = cudaErrorMemoryAllocation;
  if (!e) {
    ranges = realloc(ranges, (n_ranges + 1) * sizeof *ranges);
    ranges[n_ranges++] = (struct range){*at, size, type, current, mapped};
    if (type == cudaMemoryTypeDevice) used[current] += size;
  }
  pthread_mutex_unlock(&lock);
  return give(e);
}

static void release(void *p) { /* with the lock held */
  struct range *r = find(p);
  if (!r) return;
  if (r->type == cudaMemoryTypeDevice) used[r->device] -= r->size;
  if (r->mapped) munmap(r->at, r->size);
  *r = ranges[--n_ranges];
}

/* -------------------------------------------------------------------------------------------------- streams, events */

struct mark { int refs; bool done; double when; }; /* one recording of an event */
enum kind { COPY, SET, MARK, WAIT, CALL, POLL, SLEEP, FREE };

struct op {
  struct op *next;
  enum kind kind;
  char *to, *from, *copied; /* COPY; `copied`: what was in pageable memory at the time of the call */
  size_t width, height, to_pitch, from_pitch;
  int value;                                      /* SET */
  struct mark *mark;                              /* MARK, WAIT */
  cudaHostFn_t call; cudaStreamCallback_t callback; /* CALL */
  int (*poll)(void *); void *arg;                 /* POLL: nonzero when it is complete; called with the lock held */
  double until;                                   /* SLEEP: seconds, then the time of its end */
  bool begun;
};

struct CUstream_st { int device, priority; unsigned flags; struct op *head, **tail; bool calling, dead; cudaStream_t next; };
struct CUevent_st { unsigned flags; struct mark *mark; };

static cudaStream_t streams, defaults[MOST];
static bool running; /* the thread */

static cudaStream_t make(int device, unsigned flags, int priority) {
  cudaStream_t s = calloc(1, sizeof *s);
  s->device = device, s->flags = flags, s->priority = priority, s->tail = &s->head;
  s->next = streams;
  return streams = s;
}

static cudaStream_t stream_of(cudaStream_t s) {
  if ((size_t)s > 2) return s;
  return defaults[current] ? defaults[current] : (defaults[current] = make(current, 0, 0));
}

static void drop(struct mark *m) { if (m && !--m->refs) free(m); }

static bool complete(cudaStream_t s, struct op *op) {
  switch (op->kind) {
    case COPY:
      for (size_t i = 0; i < op->height; i++)
        memmove(op->to + i * op->to_pitch, op->from + i * op->from_pitch, op->width);
      return true;
    case SET: memset(op->to, op->value, op->width); return true;
    case FREE: release(op->to); return true;
    case MARK: op->mark->done = true; op->mark->when = now(); return true;
    case WAIT: return op->mark->done;
    case POLL: return op->poll(op->arg);
    case SLEEP:
      if (!op->begun) op->until += now();
      op->begun = true;
      return now() >= op->until;
    case CALL:
      s->calling = true;
      pthread_mutex_unlock(&lock);
      if (op->call) op->call(op->arg);
      else op->callback(s, cudaSuccess, op->arg);
      pthread_mutex_lock(&lock);
      s->calling = false;
      return true;
  }
  return true;
}

/* Does what can be done of a stream; true if anything was. */
static bool advance(cudaStream_t s, bool calls) {
  bool any = false;
  while (s->head && !s->calling && (calls || s->head->kind != CALL) && complete(s, s->head)) {
    struct op *op = s->head;
    if (!(s->head = op->next)) s->tail = &s->head;
    drop(op->mark);
    free(op->copied);
    free(op);
    any = true;
  }
  if (any) pthread_cond_broadcast(&finished);
  return any;
}

static void *engine(void *unused) {
  double idle_since = now();
  pthread_mutex_lock(&lock);
  for (;;) {
    bool any = false, timed = false;
    for (cudaStream_t s = streams; s; s = s->next) {
      any |= advance(s, true);
      timed |= s->head && (s->head->kind == POLL || s->head->kind == SLEEP);
    }
    if (any) {
      idle_since = now();
    } else if (!timed) {
      pthread_cond_wait(&queued, &lock);
      idle_since = now();
    } else { /* peers are looked at every 50 us at first, every 5 ms when they have not come for long */
      double pause = (now() - idle_since) / 20;
      pthread_mutex_unlock(&lock);
      usleep(pause < 50e-6 ? 50 : pause > 5e-3 ? 5000 : (unsigned)(pause * 1e6));
      pthread_mutex_lock(&lock);
    }
  }
  return unused;
}

static void submit(cudaStream_t s, struct op what) { /* with the lock held */
  struct op *op = malloc(sizeof *op);
  *op = what;
  *s->tail = op;
  s->tail = &op->next;
  if (s->head == op) advance(s, false);
  if (!s->head) return;
  if (!running) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    running = !pthread_create(&thread, 0, engine, 0);
    pthread_sigmask(SIG_SETMASK, &before, 0);
    pthread_setname_np(thread, "fake-gpu");
    pthread_detach(thread);
  }
  pthread_cond_signal(&queued);
}

static struct mark *record(cudaStream_t s) { /* a mark that the caller owns one reference of */
  struct mark *m = calloc(1, sizeof *m);
  m->refs = 2;
  submit(s, (struct op){.kind = MARK, .mark = m});
  return m;
}

static void await(struct mark *m) {
  const char *spin = getenv("FAKE_GPU_SPIN");
  while (m && !m->done) {
    if (!spin || *spin != '1') {
      pthread_cond_wait(&finished, &lock);
      continue;
    }
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 1000 && !*(volatile bool *)&m->done; i++) sched_yield();
    pthread_mutex_lock(&lock);
  }
}

static void drain(cudaStream_t s) { /* all that is in it now */
  struct mark *m = s->head ? record(s) : 0;
  await(m);
  drop(m);
}

static void drain_device(int device) {
  for (cudaStream_t s = streams; s; s = s->next)
    if (s->device == device) drain(s);
}

void fake_enqueue(cudaStream_t stream, int (*poll)(void *), void *arg) {
  pthread_mutex_lock(&lock);
  submit(stream_of(stream), (struct op){.kind = POLL, .poll = poll, .arg = arg});
  pthread_mutex_unlock(&lock);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) {
  BEGIN();
  pthread_mutex_lock(&lock);
  *s = make(current, flags, priority);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) { return cudaStreamCreateWithPriority(s, flags, 0); }
cudaError_t cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithPriority(s, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t s) { s->dead = true; return cudaSuccess; } /* its work goes on; it is kept */
cudaError_t cudaStreamGetPriority(cudaStream_t s, int *p) { *p = (size_t)s > 2 ? s->priority : 0; return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t s) {
  BEGIN();
  pthread_mutex_lock(&lock);
  bool busy = stream_of(s)->head;
  pthread_mutex_unlock(&lock);
  return busy ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  BEGIN();
  pthread_mutex_lock(&lock);
  drain(stream_of(s));
  pthread_mutex_unlock(&lock);
  return give(state());
}
cudaError_t cudaDeviceSynchronize(void) {
  BEGIN();
  pthread_mutex_lock(&lock);
  drain_device(current);
  pthread_mutex_unlock(&lock);
  return give(state());
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned flags) {
  (void)flags;
  BEGIN();
  pthread_mutex_lock(&lock);
  if (event->mark && !event->mark->done) {
    event->mark->refs++;
    submit(stream_of(s), (struct op){.kind = WAIT, .mark = event->mark});
  }
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}
static cudaError_t call(cudaStream_t s, struct op op) {
  BEGIN();
  pthread_mutex_lock(&lock);
  submit(stream_of(s), op);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg) {
  return call(s, (struct op){.kind = CALL, .call = fn, .arg = arg});
}
cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t fn, void *arg, unsigned flags) {
  (void)flags;
  return call(s, (struct op){.kind = CALL, .callback = fn, .arg = arg});
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  READY();
  *event = calloc(1, sizeof **event);
  (*event)->flags = flags;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  pthread_mutex_lock(&lock);
  drop(event->mark);
  pthread_mutex_unlock(&lock);
  free(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t s, unsigned flags) {
  (void)flags;
  BEGIN();
  pthread_mutex_lock(&lock);
  drop(event->mark);
  event->mark = record(stream_of(s));
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s) { return cudaEventRecordWithFlags(event, s, 0); }
cudaError_t cudaEventQuery(cudaEvent_t event) {
  BEGIN();
  pthread_mutex_lock(&lock);
  bool busy = event->mark && !event->mark->done;
  pthread_mutex_unlock(&lock);
  return busy ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  BEGIN();
  pthread_mutex_lock(&lock);
  struct mark *m = event->mark;
  if (m) m->refs++;
  await(m);
  drop(m);
  pthread_mutex_unlock(&lock);
  return give(state());
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
  if (!a->mark || !b->mark || (a->flags | b->flags) & cudaEventDisableTiming) return give(cudaErrorInvalidResourceHandle);
  if (!a->mark->done || !b->mark->done) return cudaErrorNotReady;
  *ms = (float)((b->mark->when - a->mark->when) * 1e3);
  return cudaSuccess;
}

/* ----------------------------------------------------------------------------------------- allocations and copies */

cudaError_t cudaMalloc(void **p, size_t n) { BEGIN(); return reserve(p, n, cudaMemoryTypeDevice, true); }
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned flags) {
  (void)flags;
  BEGIN();
  return reserve(p, n, cudaMemoryTypeHost, true);
}
cudaError_t cudaHostRegister(void *p, size_t n, unsigned flags) {
  (void)flags;
  BEGIN();
  return reserve(&p, n, cudaMemoryTypeHost, false);
}
cudaError_t cudaFree(void *p) { /* waits for the device, as the real one */
  BEGIN();
  pthread_mutex_lock(&lock);
  struct range *r = p ? find(p) : 0;
  if (r) drain_device(r->device);
  release(p);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void *p) { return cudaFree(p); }
cudaError_t cudaHostUnregister(void *p) { return cudaFree(p); }
cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t s) { (void)s; return cudaMalloc(p, n); }
cudaError_t cudaFreeAsync(void *p, cudaStream_t s) { return call(s, (struct op){.kind = FREE, .to = p}); }
cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
  BEGIN();
  *total = capacity;
  *available = capacity - CONTEXT - used[current];
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
  READY();
  pthread_mutex_lock(&lock);
  struct range *r = find(p);
  memset(a, 0, sizeof *a);
  a->type = r ? r->type : cudaMemoryTypeUnregistered;
  a->device = r ? r->device : -2;
  if (r) a->devicePointer = (void *)p;
  if (!r || r->type == cudaMemoryTypeHost) a->hostPointer = (void *)p;
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

static cudaError_t copy(cudaStream_t s, struct op op, bool wait) {
  BEGIN();
  if (!op.width || !op.height) return cudaSuccess;
  pthread_mutex_lock(&lock);
  s = stream_of(s);
  if (s->head && !find(op.from)) { /* pageable memory may change when the call has returned */
    op.copied = malloc(op.width * op.height);
    for (size_t i = 0; i < op.height; i++) memcpy(op.copied + i * op.width, op.from + i * op.from_pitch, op.width);
    op.from = op.copied, op.from_pitch = op.width;
  }
  wait |= !find(op.to);
  submit(s, op);
  if (wait) drain(s);
  pthread_mutex_unlock(&lock);
  return give(state());
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t tp, const void *from, size_t fp, size_t w, size_t h, enum cudaMemcpyKind k, cudaStream_t s) {
  (void)k;
  return copy(s, (struct op){.kind = COPY, .to = to, .from = (char *)from, .width = w, .height = h, .to_pitch = tp, .from_pitch = fp}, false);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind k, cudaStream_t s) {
  return cudaMemcpy2DAsync(to, n, from, n, n, 1, k, s);
}
cudaError_t cudaMemcpyPeerAsync(void *to, int td, const void *from, int fd, size_t n, cudaStream_t s) {
  (void)td, (void)fd;
  return cudaMemcpy2DAsync(to, n, from, n, n, 1, cudaMemcpyDefault, s);
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind k) {
  (void)k;
  return copy(0, (struct op){.kind = COPY, .to = to, .from = (char *)from, .width = n, .height = 1}, true);
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t n, cudaStream_t s) {
  return call(s, (struct op){.kind = SET, .to = to, .value = value, .width = n});
}
cudaError_t cudaMemset(void *to, int value, size_t n) { return cudaMemsetAsync(to, value, n, 0); }

/* ---------------------------------------------------------------------------------------------------------- kernels */

static const void *spin; /* the host's name of torch's spin_kernel(int64 cycles), behind torch.cuda._sleep */
static __thread struct { dim3 grid, block; size_t shared; cudaStream_t stream; } configured;

void **__cudaRegisterFatBinary(void *image) { (void)image; static void *handle; return &handle; }
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
char __cudaInitModule(void **handle) { (void)handle; return 1; }
void __cudaRegisterVar(void **h, char *var, char *at, const char *name, int ext, size_t n, int constant, int global) {
  (void)h, (void)var, (void)at, (void)name, (void)ext, (void)n, (void)constant, (void)global;
}
void __cudaRegisterFunction(void **h, const char *host, char *fn, const char *name, int limit, uint3 *t, uint3 *b, dim3 *bd, dim3 *gd, int *w) {
  (void)h, (void)fn, (void)limit, (void)t, (void)b, (void)bd, (void)gd, (void)w;
  if (strstr(name, "spin_kernel")) spin = host;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t s) {
  configured.grid = grid, configured.block = block, configured.shared = shared, configured.stream = s;
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *s) {
  *grid = configured.grid, *block = configured.block, *shared = configured.shared, *(cudaStream_t *)s = configured.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) { *kernel = (cudaKernel_t)host; return cudaSuccess; }

cudaError_t cudaLaunchKernel(const void *fn, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s) {
  const char *plan = getenv("FAKE_GPU_FAULT");
  int error, device;
  long nth;
  (void)grid, (void)block, (void)shared;
  BEGIN();
  device = (size_t)s > 2 ? s->device : current;
  kernels[device]++;
  if (plan && sscanf(plan, "%d@%d:%ld", &error, &device, &nth) == 3)
    for (int i = 0; i < gpus; i++)
      if (physical[i] == device && kernels[i] >= nth) fault[i] = error;
  if (fn == spin && spin) return call(s, (struct op){.kind = SLEEP, .until = 1e-9 * (double)*(long long *)args[0]});
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t fn, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s) {
  return cudaLaunchKernel((const void *)fn, grid, block, args, shared, s);
}
cudaError_t cudaLaunchCooperativeKernel(const void *fn, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s) {
  return cudaLaunchKernel(fn, grid, block, args, shared, s);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *fn, void **args) {
  return cudaLaunchKernel(fn, c->gridDim, c->blockDim, args, c->dynamicSmemBytes, c->stream);
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *fn) {
  (void)fn;
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024, a->numRegs = 32, a->ptxVersion = a->binaryVersion = 90, a->maxDynamicSharedSizeBytes = 48 << 10;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *fn, enum cudaFuncAttribute a, int v) { (void)fn, (void)a, (void)v; return cudaSuccess; }
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t k, enum cudaFuncAttribute a, int v, int d) {
  (void)k, (void)a, (void)v, (void)d;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *fn, int block, size_t shared) {
  (void)fn, (void)shared;
  *n = block > 0 && block < 2048 ? 2048 / block : 1;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *fn, int block, size_t shared, unsigned flags) {
  (void)flags;
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, fn, block, shared);
}
cudaError_t cudaGetSymbolAddress(void **p, const void *symbol) { static char any[1 << 16]; (void)symbol; *p = any; return cudaSuccess; }
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t n, size_t offset, enum cudaMemcpyKind k) {
  (void)symbol, (void)from, (void)n, (void)offset, (void)k;
  return cudaSuccess;
}

/* ---------------------------------------------------------------------------------------------------------- devices */

cudaError_t cudaGetDeviceCount(int *n) {
  READY();
  *n = gpus;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) { READY(); *device = current; return cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  READY();
  if (device < 0 || device >= gpus) return give(cudaErrorInvalidDevice);
  current = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
  READY();
  if (device < 0 || device >= gpus) return give(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p); /* an H100, with the address and the UUID that fake_nvml.c gives it */
  strcpy(p->name, "NVIDIA H100 80GB HBM3");
  p->uuid.bytes[15] = (char)(physical[device] % 10 + physical[device] / 10 * 16);
  p->pciBusID = 0x10 + physical[device];
  p->totalGlobalMem = capacity;
  p->major = 9, p->multiProcessorCount = 132, p->warpSize = 32, p->memoryBusWidth = 5120, p->l2CacheSize = 50 << 20;
  p->maxThreadsPerBlock = 1024, p->maxThreadsPerMultiProcessor = 2048, p->maxBlocksPerMultiProcessor = 32;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7fffffff, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->sharedMemPerBlock = 48 << 10, p->sharedMemPerMultiprocessor = 228 << 10, p->sharedMemPerBlockOptin = 227 << 10;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536, p->totalConstMem = 65536, p->memPitch = 0x7fffffff;
  p->textureAlignment = 512, p->texturePitchAlignment = 32, p->asyncEngineCount = 3, p->concurrentKernels = 1;
  p->unifiedAddressing = p->canMapHostMemory = p->ECCEnabled = p->streamPrioritiesSupported = p->cooperativeLaunch = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr attr, int device) {
  struct cudaDeviceProp p;
  cudaError_t e = cudaGetDeviceProperties(&p, device);
  if (e) return e;
  switch (attr) {
    case cudaDevAttrMultiProcessorCount: *v = p.multiProcessorCount; break;
    case cudaDevAttrComputeCapabilityMajor: *v = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *v = p.minor; break;
    case cudaDevAttrMaxThreadsPerBlock: *v = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *v = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *v = p.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrWarpSize: *v = p.warpSize; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *v = (int)p.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *v = (int)p.sharedMemPerMultiprocessor; break;
    case cudaDevAttrMaxGridDimX: *v = p.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: *v = p.maxGridSize[1]; break;
    case cudaDevAttrMaxRegistersPerBlock: *v = p.regsPerBlock; break;
    case cudaDevAttrL2CacheSize: *v = p.l2CacheSize; break;
    case cudaDevAttrClockRate: *v = 1000000; break; /* kHz: a cycle of torch.cuda._sleep is a nanosecond */
    case cudaDevAttrUnifiedAddressing: case cudaDevAttrCooperativeLaunch: *v = 1; break;
    default: *v = 0;
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *to, int n, int device) {
  READY();
  snprintf(to, (size_t)n, "0000:%02X:00.0", 0x10 + physical[device]);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0, *greatest = -5; return cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b) { *can = a != b; return cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) { (void)peer, (void)flags; return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *v) { *v = 13000; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *v) { *v = 13000; return cudaSuccess; }
cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
cudaError_t cudaProfilerStop(void) { return cudaSuccess; }

cudaError_t cudaGetLastError(void) { cudaError_t e = last; last = cudaSuccess; return e; }
cudaError_t cudaPeekAtLastError(void) { return last; }
const char *cudaGetErrorName(cudaError_t e) {
  switch ((int)e) {
    case 0: return "cudaSuccess";
    case 2: return "cudaErrorMemoryAllocation";
    case 3: return "cudaErrorInitializationError";
    case 100: return "cudaErrorNoDevice";
    case 101: return "cudaErrorInvalidDevice";
    case 214: return "cudaErrorECCUncorrectable";
    case 600: return "cudaErrorNotReady";
    case 700: return "cudaErrorIllegalAddress";
    case 710: return "cudaErrorAssert";
    case 719: return "cudaErrorLaunchFailure";
    case 801: return "cudaErrorNotSupported";
    default: return "cudaErrorUnknown";
  }
}
const char *cudaGetErrorString(cudaError_t e) {
  switch ((int)e) {
    case 0: return "no error";
    case 2: return "out of memory";
    case 3: return "initialization error";
    case 100: return "no CUDA-capable device is detected";
    case 101: return "invalid device ordinal";
    case 214: return "uncorrectable ECC error encountered";
    case 600: return "device not ready";
    case 700: return "an illegal memory access was encountered";
    case 710: return "device-side assert triggered";
    case 719: return "unspecified launch failure";
    case 801: return "operation not supported";
    default: return "unknown error";
  }
}

/* ---------------------------------------------------------------------- no graphs, no pools, no IPC, no driver calls */

static int no_driver_call(void) { return 801; }
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **fn, unsigned v, unsigned long long flags, enum cudaDriverEntryPointQueryResult *found) {
  (void)name, (void)v, (void)flags;
  *fn = (void *)no_driver_call;
  if (found) *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status) {
  (void)s;
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges, size_t *n) {
  (void)s, (void)id, (void)graph, (void)nodes, (void)edges, (void)n;
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) { (void)mode; return cudaSuccess; }

#define NONE(name) __attribute__((visibility("default"))) int none_##name(void) __asm__(#name); \
  int none_##name(void) { return give(cudaErrorNotSupported); }
NONE(cudaDeviceGetDefaultMemPool) NONE(cudaGraphAddNode) NONE(cudaGraphConditionalHandleCreate)
NONE(cudaGraphDebugDotPrint) NONE(cudaGraphDestroy) NONE(cudaGraphExecDestroy) NONE(cudaGraphGetNodes)
NONE(cudaGraphInstantiateWithFlags) NONE(cudaGraphLaunch) NONE(cudaGraphNodeGetDependencies)
NONE(cudaIpcCloseMemHandle) NONE(cudaIpcGetEventHandle) NONE(cudaIpcGetMemHandle) NONE(cudaIpcOpenEventHandle)
NONE(cudaIpcOpenMemHandle) NONE(cudaLibraryGetKernel) NONE(cudaLibraryLoadData) NONE(cudaLibraryUnload)
NONE(cudaMemPoolGetAttribute) NONE(cudaMemPoolSetAccess) NONE(cudaMemPoolSetAttribute) NONE(cudaMemPoolTrimTo)
NONE(cudaStreamBeginCapture) NONE(cudaStreamBeginCaptureToGraph) NONE(cudaStreamEndCapture)
NONE(cudaStreamUpdateCaptureDependencies)
/* torch 2.15 */
NONE(cudaDeviceGetGraphMemAttribute) NONE(cudaDeviceSetGraphMemAttribute) NONE(cudaGraphInstantiate)
NONE(cudaGraphRetainUserObject) NONE(cudaLibraryGetGlobal) NONE(cudaLibraryGetKernelCount) NONE(cudaLibraryGetManaged)
NONE(cudaLibraryGetUnifiedFunction) NONE(cudaLibraryLoadFromFile) NONE(cudaMallocManaged) NONE(cudaUserObjectCreate)
NONE(cudaUserObjectRelease)
cudaError_t cudaHostAlloc(void **, size_t, unsigned);
cudaError_t cudaMallocHost(void **p, size_t n) { return cudaHostAlloc(p, n, 0); }
