/* A libnccl.so.2 for the processes of one machine, on the streams of streams.c. Each network namespace is a host: a rank
 * whose interface (NCCL_SOCKET_IFNAME, or eth0) has no carrier gets nowhere with ranks of other hosts, nor they with it.
 *
 * A communicator is a board in shared memory (/dev/shm/nccl-ID, unlinked when all ranks have joined). A collective is
 * an operation of its stream: when its turn comes, the rank writes its call on the board; when all ranks have written
 * one with this number, each reads its peers' buffers (process_vm_readv) and is through when all have read. Calls that
 * do not match, and peers that do not come, leave it unfinished for ever, until ncclCommAbort. ncclCommInitRank and
 * ncclCommSplit block until all have come.
 *
 *   FAKE_NCCL_US=2:500          the link of GPU 2 adds 500 us to each collective
 *   FAKE_NCCL_DATA=0            no data are moved
 *   FAKE_NCCL_PEER_DEATH=error  ncclCommGetAsyncError tells of a peer that is gone, as over a network; otherwise a
 *                               rank notices nothing, as over NVLink
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include "enqueue.h"

enum { MOST = 64 };
enum what { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND, RECV };
typedef unsigned long long u64;

struct call { enum what what; ncclDataType_t type; ncclRedOp_t op; int root; size_t count; };
struct place { /* of one rank */
  int pid, gpu;
  u64 host; /* the inode of its network namespace */
  u64 arrived, read; /* numbers of the last collective that it has begun, and whose buffers it has read */
  struct call call;
  char *from;
  int color, key;
  u64 split, split_read;
};
struct pair { u64 posted, taken; char *from; size_t bytes; };
struct board { int joined, ranks; struct place at[MOST]; struct pair pair[MOST][MOST]; };

struct ncclComm {
  struct board *board;
  char name[80];
  int rank, ranks, refs;
  bool aborted, hosts; /* hosts: its ranks are on several */
  u64 calls, over, splits; /* collectives that were enqueued, and that are over */
  ncclResult_t error;
};

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, v) __atomic_store_n(&(x), v, __ATOMIC_RELEASE)

static char last_error[128];

static void drop(ncclComm_t c) {
  if (__atomic_sub_fetch(&c->refs, 1, __ATOMIC_ACQ_REL)) return;
  munmap(c->board, sizeof *c->board);
  free(c);
}

/* ---------------------------------------------------------------------------------------------------------- joining */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool gone(int pid) { /* nobody need have waited for it */
  char path[32], stat[512] = "", *end;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = pid ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return pid;
  if (read(fd, stat, sizeof stat - 1) < 0) stat[0] = 0;
  close(fd);
  end = strrchr(stat, ')');
  return !end || end[2] == 'Z' || end[2] == 'X';
}

static bool peer_gone(ncclComm_t c) {
  for (int i = 0; i < c->ranks; i++)
    if (gone(LOAD(c->board->at[i].pid))) return true;
  return false;
}

static u64 host(void) {
  struct stat s;
  return stat("/proc/self/ns/net", &s) ? 0 : (u64)s.st_ino;
}

/* Whether the cable of this host is out. A look is good for 10 ms. */
static bool unplugged(void) {
  static __thread double looked;
  static __thread bool out;
  const char *name = getenv("NCCL_SOCKET_IFNAME");
  char path[96], carrier = '0';
  if (now() - looked < 0.01) return out;
  looked = now();
  snprintf(path, sizeof path, "/sys/class/net/%s/carrier", name && *name ? name : "eth0");
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  out = fd >= 0 && (read(fd, &carrier, 1) != 1 || carrier == '0'); /* of an interface that is down nothing is read */
  if (fd >= 0) close(fd);
  return out;
}

static ncclResult_t join(ncclComm_t *to, const char *name, int ranks, int rank) {
  if (ranks > MOST || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  ncclComm_t c = calloc(1, sizeof *c);
  int fd = shm_open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof *c->board)) return ncclSystemError;
  c->board = mmap(0, sizeof *c->board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (c->board == MAP_FAILED) return ncclSystemError;
  snprintf(c->name, sizeof c->name, "%s", name);
  c->ranks = ranks, c->rank = rank, c->refs = 1;
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* peers read this process */
  c->board->at[rank].gpu = fake_gpu();
  c->board->at[rank].host = host();
  STORE(c->board->at[rank].pid, getpid());
  __atomic_add_fetch(&c->board->joined, 1, __ATOMIC_ACQ_REL);
  for (int looks = 1; LOAD(c->board->joined) < ranks; looks++) {
    if (looks % 100 == 0 && peer_gone(c)) return ncclRemoteError;
    usleep(1000);
  }
  shm_unlink(name);
  for (int i = 0; i < ranks; i++) c->hosts |= c->board->at[i].host != c->board->at[rank].host;
  for (int i = 0; i < ranks; i++)
    if (i != rank && c->board->at[i].gpu == c->board->at[rank].gpu && c->board->at[i].host == c->board->at[rank].host) {
      snprintf(last_error, sizeof last_error, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x000", rank,
               i, 0x10 + c->board->at[i].gpu);
      return ncclInvalidUsage;
    }
  const char *debug = getenv("NCCL_DEBUG");
  if (debug && !strcmp(debug, "INFO"))
    printf("%d:%d NCCL INFO fake comm %s rank %d nranks %d - Init COMPLETE\n", getpid(), gettid(), name, rank, ranks);
  *to = c;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  u64 number;
  if (getrandom(&number, sizeof number, 0) != sizeof number) return ncclSystemError;
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "/nccl-%016llx", number);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *c, int n, ncclUniqueId id, int rank, ncclConfig_t *config) {
  (void)config;
  return join(c, id.internal, n, rank);
}
ncclResult_t ncclCommInitRank(ncclComm_t *c, int n, ncclUniqueId id, int rank) { return join(c, id.internal, n, rank); }
ncclResult_t ncclCommInitRankScalable(ncclComm_t *c, int n, int rank, int ids, ncclUniqueId *id, ncclConfig_t *config) {
  (void)ids, (void)config;
  return join(c, id->internal, n, rank);
}
ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *to, ncclConfig_t *config) {
  struct place *at = c->board->at;
  u64 nth = ++c->splits;
  int ranks = 0, rank = 0;
  char name[128];
  (void)config;
  at[c->rank].color = color, at[c->rank].key = key;
  STORE(at[c->rank].split, nth);
  for (int i = 0; i < c->ranks; i++) {
    while (LOAD(at[i].split) < nth) { if (LOAD(c->aborted)) return ncclInternalError; usleep(1000); }
    if (at[i].color != color) continue;
    ranks++;
    rank += at[i].key < key || (at[i].key == key && i < c->rank);
  }
  STORE(at[c->rank].split_read, nth);
  for (int i = 0; i < c->ranks; i++)
    while (LOAD(at[i].split_read) < nth) { if (LOAD(c->aborted)) return ncclInternalError; usleep(1000); }
  *to = 0;
  if (color < 0) return ncclSuccess;
  snprintf(name, sizeof name, "%s-%llu-%d", c->name, nth, color);
  return join(to, name, ranks, rank);
}

/* ------------------------------------------------------------------------------------------------------- operations */

struct item {
  struct call call;
  int peer, state;
  const char *from;
  char *to, *result;
  u64 nth;
  double lasts, until; /* seconds; until when the data are under way */
};
struct work { /* what one group brings to a stream */
  ncclComm_t comm;
  cudaStream_t stream;
  int n;
  struct item items[];
};

static size_t width(ncclDataType_t type) {
  switch (type) {
    case ncclFloat16: case ncclBfloat16: return 2;
    case ncclInt32: case ncclUint32: case ncclFloat32: return 4;
    case ncclInt64: case ncclUint64: case ncclFloat64: return 8;
    default: return 1;
  }
}

static void fetch(ncclComm_t c, int rank, char *to, const char *from, size_t n) {
  static int moves = -1;
  if (moves < 0) { const char *data = getenv("FAKE_NCCL_DATA"); moves = !data || *data != '0'; }
  if (!moves || !n) return;
  if (rank == c->rank) { memcpy(to, from, n); return; }
  for (size_t done = 0; done < n;) {
    struct iovec here = {to + done, n - done}, there = {(char *)from + done, n - done};
    ssize_t got = process_vm_readv(c->board->at[rank].pid, &here, 1, &there, 1, 0);
    if (got <= 0) return; /* the peer is gone, or reading it is forbidden: the data stay as they are */
    done += (size_t)got;
  }
}

#define FOLD(T) { \
  T *x = (T *)sum, *y = (T *)more; \
  for (size_t i = 0; i < n; i++) { \
    if (op == ncclProd) x[i] = (T)(x[i] * y[i]); \
    else if (op == ncclMax) x[i] = x[i] > y[i] ? x[i] : y[i]; \
    else if (op == ncclMin) x[i] = x[i] < y[i] ? x[i] : y[i]; \
    else x[i] = (T)(x[i] + y[i]); \
  } \
} break
#define SCALE(T) { T *x = (T *)sum; for (size_t i = 0; i < n; i++) x[i] = (T)(x[i] / (T)by); } break

static void fold(char *sum, char *more, size_t n, ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclFloat32: FOLD(float);
    case ncclFloat64: FOLD(double);
    case ncclInt64: FOLD(long long);
    case ncclUint64: FOLD(u64);
    case ncclInt32: FOLD(int);
    case ncclUint32: FOLD(unsigned);
    case ncclInt8: FOLD(signed char);
    case ncclUint8: FOLD(unsigned char);
    default: break; /* halves stay those of rank 0 */
  }
}
static void scale(char *sum, size_t n, ncclDataType_t type, int by) {
  switch (type) {
    case ncclFloat32: SCALE(float);
    case ncclFloat64: SCALE(double);
    case ncclInt64: SCALE(long long);
    case ncclInt32: SCALE(int);
    default: break;
  }
}

/* What this rank receives, from the buffers of all; the caller writes it where it belongs when all have read. */
static size_t take(ncclComm_t c, struct item *it) {
  size_t n = it->call.count, bytes = n * width(it->call.type), size = bytes;
  struct place *at = c->board->at;
  switch (it->call.what) {
    case BROADCAST:
      it->result = malloc(bytes);
      fetch(c, it->call.root, it->result, at[it->call.root].from, bytes);
      break;
    case ALL_GATHER: case ALL_TO_ALL:
      it->result = calloc((size_t)c->ranks, size = bytes);
      size *= (size_t)c->ranks;
      for (int i = 0; i < c->ranks; i++) {
        size_t skip = it->call.what == ALL_TO_ALL ? (size_t)c->rank * bytes : 0;
        fetch(c, i, it->result + (size_t)i * bytes, at[i].from + skip, bytes);
      }
      break;
    case REDUCE:
      if (c->rank != it->call.root) return 0; /* fall through */
    default: {
      size_t skip = it->call.what == REDUCE_SCATTER ? (size_t)c->rank * bytes : 0;
      char *more = malloc(bytes);
      it->result = malloc(bytes);
      fetch(c, 0, it->result, at[0].from + skip, bytes);
      for (int i = 1; i < c->ranks; i++) {
        fetch(c, i, more, at[i].from + skip, bytes);
        fold(it->result, more, n, it->call.type, it->call.op);
      }
      if (it->call.op == ncclAvg) scale(it->result, n, it->call.type, c->ranks);
      free(more);
    }
  }
  return size;
}

static bool same(struct call *a, struct call *b) {
  return a->what == b->what && a->type == b->type && a->op == b->op && a->root == b->root && a->count == b->count;
}

enum { BEGINS, WAITS, NEVER, MOVES, READ, OVER };

static void collective(ncclComm_t c, struct item *it) {
  struct place *at = c->board->at, *mine = &at[c->rank];
  if (c->hosts && unplugged()) return;
  if (it->state == BEGINS) {
    if (c->over + 1 < it->nth) return; /* those of a communicator run one after another, whatever their streams */
    mine->call = it->call;
    mine->from = (char *)it->from;
    STORE(mine->arrived, it->nth);
    it->state = WAITS;
  }
  if (it->state == WAITS) {
    for (int i = 0; i < c->ranks; i++)
      if (LOAD(at[i].arrived) < it->nth) return;
    for (int i = 0; i < c->ranks; i++)
      if (!same(&at[i].call, &it->call)) { it->state = NEVER; return; }
    it->until = now() + it->lasts;
    it->state = MOVES;
  }
  if (it->state == MOVES && now() >= it->until) {
    it->call.count = take(c, it); /* bytes from here on */
    STORE(mine->read, it->nth);
    it->state = READ;
  }
  if (it->state == READ) {
    for (int i = 0; i < c->ranks; i++)
      if (LOAD(at[i].read) < it->nth) return;
    if (it->result) memcpy(it->to, it->result, it->call.count);
    c->over = it->nth;
    it->state = OVER;
  }
}

static void message(ncclComm_t c, struct item *it) {
  bool sends = it->call.what == SEND;
  if (c->board->at[it->peer].host != c->board->at[c->rank].host && unplugged()) return;
  struct pair *pair = sends ? &c->board->pair[c->rank][it->peer] : &c->board->pair[it->peer][c->rank];
  size_t bytes = it->call.count * width(it->call.type);
  if (sends && it->state == BEGINS && LOAD(pair->posted) == LOAD(pair->taken)) {
    pair->from = (char *)it->from, pair->bytes = bytes;
    it->nth = pair->posted + 1;
    STORE(pair->posted, it->nth);
    it->state = WAITS;
  }
  if (sends && it->state == WAITS && LOAD(pair->taken) >= it->nth) it->state = OVER;
  if (!sends && LOAD(pair->posted) > LOAD(pair->taken) && pair->bytes == bytes) {
    fetch(c, it->peer, it->to, pair->from, bytes);
    STORE(pair->taken, pair->posted);
    it->state = OVER;
  }
}

static int advance(void *arg) {
  struct work *w = arg;
  bool over = true, aborted = LOAD(w->comm->aborted), behind = false;
  for (int i = 0; i < w->n && !aborted; i++) {
    struct item *it = &w->items[i];
    bool is_message = it->call.what >= SEND;
    if (it->state != OVER && is_message) message(w->comm, it);
    if (it->state != OVER && !is_message && !behind) collective(w->comm, it); /* those of one group in their order */
    over &= it->state == OVER;
    behind |= !is_message && it->state != OVER;
  }
  if (!over && !aborted) return 0;
  for (int i = 0; i < w->n; i++) free(w->items[i].result);
  drop(w->comm);
  free(w);
  return 1;
}

/* ----------------------------------------------------------------------------------------------------------- groups */

static __thread int depth, n_works;
static __thread struct work *works[256];

static ncclResult_t launch(void) {
  for (int i = 0; i < n_works; i++) fake_enqueue(works[i]->stream, advance, works[i]);
  n_works = 0;
  return ncclSuccess;
}

static ncclResult_t add(ncclComm_t c, cudaStream_t s, struct item it) {
  int i = 0;
  if (!c) return ncclInvalidArgument;
  if (LOAD(c->aborted)) return ncclInvalidUsage;
  it.lasts = 1e-6 * fake_setting("FAKE_NCCL_US", s, 0);
  if (it.call.what < SEND) it.nth = ++c->calls;
  while (i < n_works && (works[i]->comm != c || works[i]->stream != s)) i++;
  if (i == 256) return ncclInternalError;
  if (i == n_works) {
    works[n_works++] = calloc(1, sizeof **works);
    works[i]->comm = c, works[i]->stream = s;
    __atomic_add_fetch(&c->refs, 1, __ATOMIC_ACQ_REL);
  }
  works[i] = realloc(works[i], sizeof **works + (size_t)(works[i]->n + 1) * sizeof it);
  works[i]->items[works[i]->n++] = it;
  return depth ? ncclSuccess : launch();
}
ncclResult_t ncclGroupStart(void) { depth++; return ncclSuccess; }
ncclResult_t ncclGroupEnd(void) { return --depth ? ncclSuccess : launch(); }

static ncclResult_t collect(enum what what, const void *from, void *to, size_t n, ncclDataType_t t, ncclRedOp_t op,
                            int root, ncclComm_t c, cudaStream_t s) {
  return add(c, s, (struct item){.call = {what, t, op, root, n}, .from = from, .to = to});
}
ncclResult_t ncclAllReduce(const void *a, void *b, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                           cudaStream_t s) {
  return collect(ALL_REDUCE, a, b, n, t, op, 0, c, s);
}
ncclResult_t ncclReduceScatter(const void *a, void *b, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                               cudaStream_t s) {
  return collect(REDUCE_SCATTER, a, b, n, t, op, 0, c, s);
}
ncclResult_t ncclReduce(const void *a, void *b, size_t n, ncclDataType_t t, ncclRedOp_t op, int root, ncclComm_t c,
                        cudaStream_t s) {
  return collect(REDUCE, a, b, n, t, op, root, c, s);
}
ncclResult_t ncclBroadcast(const void *a, void *b, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t s) {
  return collect(BROADCAST, a, b, n, t, 0, root, c, s);
}
ncclResult_t ncclBcast(void *a, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t s) {
  return collect(BROADCAST, a, a, n, t, 0, root, c, s);
}
ncclResult_t ncclAllGather(const void *a, void *b, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s) {
  return collect(ALL_GATHER, a, b, n, t, 0, 0, c, s);
}
ncclResult_t ncclAlltoAll(const void *a, void *b, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s) {
  return collect(ALL_TO_ALL, a, b, n, t, 0, 0, c, s);
}
ncclResult_t ncclSend(const void *a, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
  return add(c, s, (struct item){.call = {SEND, t, 0, 0, n}, .peer = peer, .from = a});
}
ncclResult_t ncclRecv(void *b, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
  return add(c, s, (struct item){.call = {RECV, t, 0, 0, n}, .peer = peer, .to = b});
}

/* ------------------------------------------------------------------------------------------------- the communicator */

ncclResult_t ncclCommAbort(ncclComm_t c) {
  if (!c) return ncclSuccess;
  STORE(c->aborted, true);
  drop(c);
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t c) { if (c) drop(c); return ncclSuccess; }
ncclResult_t ncclCommFinalize(ncclComm_t c) { (void)c; return ncclSuccess; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error) {
  const char *death = getenv("FAKE_NCCL_PEER_DEATH");
  if (death && !strcmp(death, "error") && peer_gone(c)) c->error = ncclRemoteError;
  *error = c->error;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t c, int *n) { *n = c->ranks; return ncclSuccess; }
ncclResult_t ncclCommUserRank(const ncclComm_t c, int *rank) { *rank = c->rank; return ncclSuccess; }
ncclResult_t ncclCommRegister(const ncclComm_t c, void *p, size_t n, void **handle) {
  (void)c, (void)n;
  *handle = p;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t c, void *handle) { (void)c, (void)handle; return ncclSuccess; }
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t t, ncclScalarResidence_t r,
                                      ncclComm_t c) {
  (void)scalar, (void)t, (void)r, (void)c;
  *op = ncclSum;
  return ncclSuccess;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t c) { (void)op, (void)c; return ncclSuccess; }
ncclResult_t ncclMemAlloc(void **p, size_t n) { return cudaMalloc(p, n) ? ncclUnhandledCudaError : ncclSuccess; }
ncclResult_t ncclMemFree(void *p) { return cudaFree(p) ? ncclUnhandledCudaError : ncclSuccess; }
ncclResult_t ncclGetVersion(int *v) { *v = NCCL_VERSION_CODE; return ncclSuccess; }
const char *ncclGetLastError(ncclComm_t c) { (void)c; return last_error; }
const char *ncclGetErrorString(ncclResult_t e) {
  switch (e) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}

/* Nobody calls these here: windows, device communicators, one-sided operations, one process with several ranks. */
#define NONE(name) int none_##name(void) __asm__(#name); int none_##name(void) { return ncclInvalidUsage; }
NONE(ncclCommInitAll) NONE(ncclCommMemStats) NONE(ncclCommResume) NONE(ncclCommShrink) NONE(ncclCommSuspend)
NONE(ncclCommWindowDeregister) NONE(ncclCommWindowRegister) NONE(ncclDevCommCreate) NONE(ncclDevCommDestroy)
NONE(ncclGetLsaMultimemDevicePointer) NONE(ncclGetPeerDevicePointer) NONE(ncclGroupSimulateEnd) NONE(ncclPutSignal)
NONE(ncclSignal) NONE(ncclWaitSignal)
/* torch 2.15 */
NONE(ncclCommGetUniqueId) NONE(ncclCommGrow) NONE(ncclCommRevoke) NONE(ncclGather) NONE(ncclWinGetUserPtr)
