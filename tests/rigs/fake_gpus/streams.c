/* A libcudart.so.13 without a GPU: device memory is host memory, and streams and events are as asynchronous as real
 * ones. torch and its NCCL backends, built for CUDA, run on it unchanged.
 *
 * A stream is a queue. What comes to an idle stream is done at once, in the caller's thread; what comes behind
 * something unfinished (a collective whose peers are not there, an event, a kernel that lasts) waits in the queue, and
 * one thread of the process, started then, carries it on. Only what blocks on hardware blocks here: synchronise, copies
 * to pageable memory, cudaFree, and a launch behind QUEUE others.
 *
 * A stream has a clock of its own, on which what it does follows without a gap, however late the thread comes round.
 *
 * As with a real one, a process forked after CUDA was initialised gets cudaErrorInitializationError. A device that has
 * failed does nothing more, and every call about it returns the error. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include "cudart.h"
#include "state.h"

enum { QUEUE = 1024 }; /* launches that a stream holds before the next one blocks */

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
int gpus, physical[MOST];
__thread int current;
static pthread_cond_t finished, queued; /* something ended; there is something for the thread to do */
static int fault[MOST];
static bool usable, forked;
static struct gpu_state *shared;
static struct context *contexts[MOST]; /* this process's, in `shared` */
static __thread cudaError_t last;

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

cudaError_t give(cudaError_t e) {
  if (e != cudaSuccess && e != cudaErrorNotReady) last = e;
  return e;
}

cudaError_t cudaGetLastError(void) { cudaError_t e = last; last = cudaSuccess; return e; }
cudaError_t cudaPeekAtLastError(void) { return last; }

double setting(const char *variable, int gpu, double otherwise) {
  const char *next = getenv(variable);
  while (next && *next) {
    char *end;
    double value = strtod(next, &end);
    if (*end != ':') return end == next ? otherwise : value;
    if ((int)value == gpu) return strtod(end + 1, 0);
    if ((next = strchr(end, ','))) next++;
  }
  return otherwise;
}

/* --------------------------------------------------------------------------------------------------- start and fork */

static void in_child(void) { forked = usable; }

int fake_cudart_used(void) { return usable; }

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
  shared = state_open();
  pthread_atfork(0, 0, in_child);
  dlopen("libcuda.so.1", RTLD_NOW); /* as cudart does */
  usable = true;
}

cudaError_t begin(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, start);
  if (forked) return cudaErrorInitializationError;
  return gpus ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t state(void) {
  cudaError_t e = begin();
  if (e) return e;
  if (shared && !contexts[current]) {
    pthread_mutex_lock(&lock);
    if (!contexts[current]) contexts[current] = state_context(shared, getpid(), physical[current]);
    pthread_mutex_unlock(&lock);
  }
  return (cudaError_t)fault[current];
}

/* ----------------------------------------------------------------------------------------------------------- memory */

struct range { char *at; size_t size; enum cudaMemoryType type; int device; bool mapped; };
static struct range *ranges;
static size_t n_ranges, used[MOST];

size_t capacity(int device) { return (size_t)(setting("FAKE_GPU_MEMORY", physical[device], 80 << 10) * (1 << 20)); }

static void account(int device, size_t size, bool adds) { /* with the lock held */
  used[device] += adds ? size : -size;
  if (contexts[device]) contexts[device]->memory = used[device];
}

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
  if (type == cudaMemoryTypeDevice && used[current] + size + CONTEXT > capacity(current)) e = cudaErrorMemoryAllocation;
  if (!e && mapped) *at = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (!e && *at == MAP_FAILED) e = cudaErrorMemoryAllocation;
  if (!e) {
    ranges = realloc(ranges, (n_ranges + 1) * sizeof *ranges);
    ranges[n_ranges++] = (struct range){*at, size, type, current, mapped};
    if (type == cudaMemoryTypeDevice) account(current, size, true);
  }
  pthread_mutex_unlock(&lock);
  return give(e);
}

static void release(void *p) { /* with the lock held */
  struct range *r = find(p);
  if (!r) return;
  if (r->type == cudaMemoryTypeDevice) account(r->device, r->size, false);
  if (r->mapped) munmap(r->at, r->size);
  *r = ranges[--n_ranges];
}

/* -------------------------------------------------------------------------------------------------- streams, events */

struct mark { int refs, device; bool done; double when; }; /* one recording of an event */
enum kind { COPY, SET, MARK, WAIT, CALL, POLL, KERNEL, FREE };

struct op {
  struct op *next;
  enum kind kind;
  char *to, *from, *copied; /* COPY; `copied`: what was in pageable memory at the time of the call */
  size_t width, height, to_pitch, from_pitch;
  int value;                                      /* SET */
  struct mark *mark;                              /* MARK, WAIT */
  cudaHostFn_t call; cudaStreamCallback_t callback; /* CALL */
  int (*poll)(void *); void *arg;                 /* POLL: nonzero when it is complete; called with the lock held */
  struct kernel kernel;                           /* KERNEL */
  double submitted;
};

struct CUstream_st {
  int device, priority, length;
  unsigned flags;
  struct op *head, **tail;
  double clock;          /* the time until which it has come */
  bool calling, running; /* a host function, something that keeps the GPU busy */
  cudaStream_t next;
};
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

static double later(double a, double b) { return a > b ? a : b; }

static void fail(int device, int error) {
  fault[device] = error;
  if (shared) shared->fault[physical[device]] = error;
  pthread_cond_broadcast(&finished);
}

/* Whether the first operation of a stream is over; what it does is done then. */
static bool complete(cudaStream_t s, struct op *op) {
  double end = later(s->clock, op->submitted);
  switch (op->kind) {
    case COPY:
      for (size_t i = 0; i < op->height; i++)
        memmove(op->to + i * op->to_pitch, op->from + i * op->from_pitch, op->width);
      break;
    case SET: memset(op->to, op->value, op->width); break;
    case FREE: release(op->to); break;
    case MARK: op->mark->done = true; op->mark->when = end; break;
    case WAIT:
      if (!op->mark->done) return false;
      end = later(end, op->mark->when);
      break;
    case POLL:
      if (!op->poll(op->arg)) return false;
      end = now();
      break;
    case KERNEL:
      end += op->kernel.seconds;
      if (end > now()) return false;
      if (op->kernel.compute) op->kernel.compute(op->kernel.arg);
      if (op->kernel.error) fail(s->device, op->kernel.error);
      break;
    case CALL:
      s->calling = true;
      pthread_mutex_unlock(&lock);
      if (op->call) op->call(op->arg);
      else op->callback(s, cudaSuccess, op->arg);
      pthread_mutex_lock(&lock);
      s->calling = false;
      end = now();
  }
  s->clock = end;
  return true;
}

/* Tells NVML whether something runs on the device. */
static void tell(int device) {
  struct context *c = contexts[device];
  bool busy = false;
  if (!c) return;
  for (cudaStream_t s = streams; s && !busy; s = s->next) busy = s->device == device && s->running;
  if (busy == !!c->busy_since) return;
  if (!busy) state_add(c, c->busy_since, state_now());
  c->busy_since = busy ? state_now() : 0;
}

/* Does what can be done of a stream; true if anything was. */
static bool advance(cudaStream_t s, bool calls) {
  bool any = false, running;
  while (s->head && !s->calling && !fault[s->device] && (calls || s->head->kind != CALL) && complete(s, s->head)) {
    struct op *op = s->head;
    if (!(s->head = op->next)) s->tail = &s->head;
    s->length--;
    drop(op->mark);
    free(op->copied);
    free(op->kernel.arg);
    free(op);
    any = true;
  }
  running = s->head && !fault[s->device] && (s->head->kind == POLL || s->head->kind == KERNEL);
  if (running != s->running) {
    s->running = running;
    tell(s->device);
  }
  if (any) pthread_cond_broadcast(&finished);
  return any;
}

/* Carries on what is queued. Peers are looked at every 50 us at first, every 5 ms when they have not come for long. */
static void *engine(void *unused) {
  double idle_since = now();
  pthread_mutex_lock(&lock);
  for (;;) {
    bool any = false, polls = false;
    double next = 0;
    for (cudaStream_t s = streams; s; s = s->next) {
      any |= advance(s, true);
      if (!s->head || fault[s->device]) continue;
      polls |= s->head->kind == POLL;
      if (s->head->kind == KERNEL) {
        double end = later(s->clock, s->head->submitted) + s->head->kernel.seconds;
        next = next && next < end ? next : end;
      }
    }
    if (any) {
      idle_since = now();
      continue;
    }
    if (polls) {
      double pause = (now() - idle_since) / 20, look = now() + (pause < 50e-6 ? 50e-6 : pause > 5e-3 ? 5e-3 : pause);
      next = next && next < look ? next : look;
    }
    if (next) {
      struct timespec until = {(time_t)next, (long)((next - (double)(time_t)next) * 1e9)};
      pthread_cond_timedwait(&queued, &lock, &until);
    } else {
      pthread_cond_wait(&queued, &lock);
      idle_since = now();
    }
  }
  return unused;
}

static void submit(cudaStream_t s, struct op what) { /* with the lock held */
  struct op *op = malloc(sizeof *op);
  *op = what;
  op->submitted = now();
  *s->tail = op;
  s->tail = &op->next;
  s->length++;
  if (s->head == op) advance(s, false);
  if (s->head != op) return;
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

/* What a launch does when the queue is full. */
static void room(cudaStream_t s) {
  while (s->length >= QUEUE && !fault[s->device]) pthread_cond_wait(&finished, &lock);
}

static struct mark *record(cudaStream_t s) { /* a mark that the caller owns one reference of */
  struct mark *m = calloc(1, sizeof *m);
  m->refs = 2, m->device = s->device;
  submit(s, (struct op){.kind = MARK, .mark = m});
  return m;
}

static void await(struct mark *m) {
  const char *spin = getenv("FAKE_GPU_SPIN");
  while (m && !m->done && !fault[m->device]) {
    if (!spin || *spin != '1') {
      pthread_cond_wait(&finished, &lock);
      continue;
    }
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 1000 && !LOAD(m->done); i++) sched_yield();
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

void fake_enqueue(cudaStream_t s, int (*poll)(void *), void *arg) {
  pthread_mutex_lock(&lock);
  s = stream_of(s);
  room(s);
  submit(s, (struct op){.kind = POLL, .poll = poll, .arg = arg});
  pthread_mutex_unlock(&lock);
}

double fake_setting(const char *variable, cudaStream_t s, double otherwise) {
  return begin() ? otherwise : setting(variable, physical[device_of(s)], otherwise);
}

int fake_gpu(void) { return begin() ? -1 : physical[current]; }

int device_of(cudaStream_t s) { return (size_t)s > 2 ? s->device : current; }

cudaError_t launch(cudaStream_t s, struct kernel kernel) {
  BEGIN();
  pthread_mutex_lock(&lock);
  s = stream_of(s);
  room(s);
  submit(s, (struct op){.kind = KERNEL, .kernel = kernel});
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) {
  BEGIN();
  pthread_mutex_lock(&lock);
  *s = make(current, flags, priority);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
  return cudaStreamCreateWithPriority(s, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithPriority(s, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t s) { (void)s; return cudaSuccess; } /* its work goes on; it is kept */
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
  if (!a->mark || !b->mark || (a->flags | b->flags) & cudaEventDisableTiming)
    return give(cudaErrorInvalidResourceHandle);
  if (!a->mark->done || !b->mark->done) return cudaErrorNotReady;
  *ms = (float)((b->mark->when - a->mark->when) * 1e3);
  return cudaSuccess;
}

/* ------------------------------------------------------------------------------------------- allocations and copies */

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
  *total = capacity(current);
  *available = *total - CONTEXT - used[current];
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
cudaError_t cudaMemcpy2DAsync(void *to, size_t tp, const void *from, size_t fp, size_t w, size_t h,
                              enum cudaMemcpyKind k, cudaStream_t s) {
  struct op op = {.kind = COPY, .to = to, .from = (char *)from, .width = w, .height = h};
  op.to_pitch = tp, op.from_pitch = fp;
  (void)k;
  return copy(s, op, false);
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
