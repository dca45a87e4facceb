/* Kernels: how long they last, at which one a GPU fails, and the few that compute.
 *
 * Programs take decisions by small numbers on the GPU: the sizes of objects that are gathered, a flag, `loss > 0`. So
 * the commonest kernels of torch do their work on tensors of up to SMALL elements: fill, add, multiply, compare, and
 * reductions. All others leave their output as it was. A kernel is known by its mangled name, and its arguments are
 * where torch 2.13 and 2.15 put them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cudart.h"

enum { SMALL = 1 << 16, DIMS = 25 /* of an OffsetCalculator */ };

/* ----------------------------------------------------------------------------------------------------- registration */

enum function {
  UNKNOWN, NOTHING, SPIN, FILL, ADD, ADD_SCALAR, ADD_TO_SCALAR, MULTIPLY, COMPARE, EQUAL, REDUCE, CONCATENATE, COUNT,
  SELECT
};
enum { SUM, MEAN, MAX, MIN, AND, OR };

struct known {
  const void *host;
  const char *name;
  enum function function;
  char type, scalar; /* 'A', 'B': its first, its second input is a number */
  int reduction;
  int width, batch; /* of what is concatenated: bytes of an element, tensors for which a launch has room */
};

static struct known *table;
static size_t n_known, room;
static bool sorted;
static __thread struct { dim3 grid, block; size_t shared; cudaStream_t stream; } configured;

void **__cudaRegisterFatBinary(void *image) { (void)image; static void *handle; return &handle; }
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
char __cudaInitModule(void **handle) { (void)handle; return 1; }
void __cudaRegisterVar(void **h, char *var, char *at, const char *name, int ext, size_t n, int constant, int global) {
  (void)h, (void)var, (void)at, (void)name, (void)ext, (void)n, (void)constant, (void)global;
}
void __cudaRegisterFunction(void **h, const char *host, char *fn, const char *name, int limit, uint3 *t, uint3 *b,
                            dim3 *bd, dim3 *gd, int *w) {
  (void)h, (void)fn, (void)limit, (void)t, (void)b, (void)bd, (void)gd, (void)w;
  pthread_mutex_lock(&lock);
  if (n_known == room) table = realloc(table, (room = room ? 2 * room : 1024) * sizeof *table);
  table[n_known++] = (struct known){.host = host, .name = name};
  sorted = false;
  pthread_mutex_unlock(&lock);
}

/* The letter behind a template's name, where it stands for a number: b bool, i int, l long, f float, d double. */
static char type_of(const char *name, const char *of) {
  const char *found = strstr(name, of);
  char letter = found ? found[strlen(of)] : 0;
  return letter && strchr("bilfd", letter) ? letter : 0;
}

static void read_reduction(struct known *k) {
  static const char *const names[] = {[SUM] = "sum_functorI", [MEAN] = "7MeanOpsI", [MAX] = "MaxNanFunctorI",
                                      [MIN] = "MinNanFunctorI", [AND] = "and_kernel_cuda", [OR] = "or_kernel_cuda"};
  char out[] = "j?Li";
  out[1] = k->type = type_of(k->name, "8ReduceOpI");
  if (!k->type || !strstr(k->name, out)) return; /* it gives another type than it takes */
  for (int i = 0; i < 6; i++)
    if (strstr(k->name, names[i])) k->reduction = i, k->function = REDUCE;
}

static void read_name(struct known *k) {
  static const struct { const char *name; enum function function; } functors[] = {
      {"11FillFunctorI", FILL}, {"15CUDAFunctor_addI", ADD}, {"21CUDAFunctorOnSelf_addI", ADD_SCALAR},
      {"22CUDAFunctorOnOther_addI", ADD_TO_SCALAR},
      {"14CompareFunctorI", COMPARE}, {"21compare_scalar_kernelI", COMPARE}, {"16CompareEqFunctorI", EQUAL},
      {"10MulFunctorI", MULTIPLY}};
  const char *found;
  bool plain = strstr(k->name, "vectorized_elementwise_kernelI") ||
               (strstr(k->name, "unrolled_elementwise_kernelI") && strstr(k->name, "15LoadWithoutCast"));
  k->function = NOTHING;
  if (strstr(k->name, "spin_kernel")) k->function = SPIN;
  if (strstr(k->name, "13reduce_kernelI")) read_reduction(k);
  /* of one dimension, with small indices */
  if (strstr(k->name, "CatArrayBatchedCopy") && (found = strstr(k->name, "OpaqueTypeILj")) &&
      sscanf(found, "OpaqueTypeILj%dEEEjLi1ELi%d", &k->width, &k->batch) == 2)
    k->function = CONCATENATE;
  if (strstr(k->name, "DeviceReduceSingleTileKernel")) k->function = COUNT;
  if (strstr(k->name, "DeviceSelectSweepKernel")) k->function = SELECT;
  for (size_t i = 0; plain && i < sizeof functors / sizeof *functors; i++)
    if ((k->type = type_of(k->name, functors[i].name))) {
      k->function = functors[i].function;
      k->scalar = strstr(k->name, "13AUnaryFunctorI") ? 'A' : 0;
      if (strstr(k->name, "13BUnaryFunctorI") || strstr(k->name, "21compare_scalar_kernelI")) k->scalar = 'B';
      return;
    }
}

static int by_host(const void *a, const void *b) {
  const char *x = ((const struct known *)a)->host, *y = ((const struct known *)b)->host;
  return (x > y) - (x < y);
}

static struct known find(const void *host) {
  struct known key = {.host = host, .name = ""}, *k;
  pthread_mutex_lock(&lock);
  if (!sorted) qsort(table, n_known, sizeof *table, by_host);
  sorted = true;
  k = n_known ? bsearch(&key, table, n_known, sizeof *table, by_host) : 0;
  if (k && k->function == UNKNOWN) read_name(k);
  if (k) key = *k;
  pthread_mutex_unlock(&lock);
  return key;
}

/* ------------------------------------------------------------------------------------------------------ computation */

typedef long double number; /* it holds every int64 and every double */

static size_t width(char type) { return type == 'b' ? 1 : type == 'l' || type == 'd' ? 8 : 4; }
static number get(char type, const void *p) {
  switch (type) {
    case 'b': return *(const bool *)p;
    case 'i': return *(const int *)p;
    case 'l': return *(const long *)p;
    case 'f': return *(const float *)p;
    default: return *(const double *)p;
  }
}
static void put(char type, void *p, number v) {
  switch (type) {
    case 'b': *(bool *)p = v != 0; break;
    case 'i': *(int *)p = (int)v; break;
    case 'l': *(long *)p = (long)v; break;
    case 'f': *(float *)p = (float)v; break;
    default: *(double *)p = (double)v;
  }
}

/* func(int N, functor, char *data[]): the output first, then the inputs. */
struct elementwise { struct known k; int n, op; number first, second; char *data[3]; };

static number one(const struct elementwise *e, number a, number b) {
  switch (e->k.function) {
    case FILL: return e->first;
    case ADD: return a + e->first * b;
    case ADD_SCALAR: return a + e->second * e->first;
    case ADD_TO_SCALAR: return e->first + e->second * a;
    case MULTIPLY: return a * b;
    case COMPARE: return e->op == 0 ? a >= b : e->op == 1 ? a > b : e->op == 2 ? a <= b : a < b;
    default: return e->op == 0 ? a == b : a != b;
  }
}

static bool adds_scalar(const struct known *k) { return k->function == ADD_SCALAR || k->function == ADD_TO_SCALAR; }
static int inputs(const struct known *k) { return k->function == FILL ? 0 : adds_scalar(k) || k->scalar ? 1 : 2; }

static void run_elementwise(void *arg) {
  struct elementwise *e = arg;
  char type = e->k.type, out = e->k.function == COMPARE || e->k.function == EQUAL ? 'b' : type;
  for (size_t i = 0; i < (size_t)e->n; i++) {
    number a = inputs(&e->k) > 0 ? get(type, e->data[1] + i * width(type)) : 0;
    number b = inputs(&e->k) > 1 ? get(type, e->data[2] + i * width(type)) : e->second;
    put(out, e->data[0] + i * width(out), e->k.scalar == 'A' ? one(e, b, a) : one(e, a, b));
  }
}

static struct kernel elementwise(struct known k, void **args) {
  struct elementwise *e = calloc(1, sizeof *e);
  bool numbers = k.function == FILL || k.function == ADD || adds_scalar(&k); /* the functor is nothing else */
  e->k = k, e->n = *(int *)args[0];
  if (e->n > SMALL) e->n = 0;
  if (numbers) e->first = get(k.type, args[1]);
  if (k.function == COMPARE || k.function == EQUAL) e->op = *(int *)args[1];
  if (adds_scalar(&k) || k.scalar) e->second = get(k.type, (char *)args[1] + width(k.type));
  memcpy(e->data, args[2], (size_t)(1 + inputs(&k)) * sizeof *e->data);
  return (struct kernel){.compute = run_elementwise, .arg = e};
}

/* ReduceOp of ATen/native/cuda/Reduce.cuh: the functor (a byte, or a factor of the type), an identity, ReduceConfig, an
 * OffsetCalculator for the input and one for output and input, the pointers. */
struct config { int element, inputs, outputs, others[13]; };
struct divider { unsigned by, magic, shift; };
struct offsets_1 { int dims; struct divider sizes[DIMS]; unsigned strides[DIMS][1]; };
struct offsets_2 { int dims; struct divider sizes[DIMS]; unsigned strides[DIMS][2]; };
struct reduce {
  char type;
  int reduction;
  struct config config;
  struct offsets_1 input;
  struct offsets_2 output;
  struct { const char *from; char *to[2]; } at;
};

static size_t offset(int dims, const struct divider *sizes, const unsigned *strides, int step, unsigned index) {
  size_t bytes = 0;
  for (int i = 0; i < dims && sizes[i].by; i++, index /= sizes[i - 1].by)
    bytes += (size_t)(index % sizes[i].by) * strides[i * step];
  return bytes;
}

static number both(int reduction, number a, number b) {
  switch (reduction) {
    case MAX: return a > b ? a : b;
    case MIN: return a < b ? a : b;
    case AND: return a != 0 && b != 0;
    case OR: return a != 0 || b != 0;
    default: return a + b;
  }
}

static void run_reduce(void *arg) {
  struct reduce *r = arg;
  for (unsigned o = 0; o < (unsigned)r->config.outputs; o++) {
    const unsigned *strides = r->output.strides[0];
    const char *from = r->at.from + offset(r->output.dims, r->output.sizes, strides + 1, 2, o);
    number sum = get(r->type, from);
    for (unsigned i = 1; i < (unsigned)r->config.inputs; i++) {
      size_t at = offset(r->input.dims, r->input.sizes, r->input.strides[0], 1, i);
      sum = both(r->reduction, sum, get(r->type, from + at));
    }
    if (r->reduction == MEAN) sum /= r->config.inputs;
    put(r->type, r->at.to[0] + offset(r->output.dims, r->output.sizes, strides, 2, o), sum);
  }
}

static struct kernel reduce(struct known k, void **args) {
  size_t size = width(k.type), at = size < 4 ? 4 : 2 * size;
  const char *from = args[0];
  struct reduce *r = calloc(1, sizeof *r);
  r->type = k.type, r->reduction = k.reduction;
  memcpy(&r->config, from + at, sizeof r->config);
  memcpy(&r->input, from + (at += sizeof r->config), sizeof r->input);
  memcpy(&r->output, from + (at += sizeof r->input), sizeof r->output);
  at = (at + sizeof r->output + 7) / 8 * 8;
  memcpy(&r->at, from + at, sizeof r->at);
  if (r->config.element != (int)size || (long)r->config.inputs * r->config.outputs > SMALL) r->config.outputs = 0;
  return (struct kernel){.compute = run_reduce, .arg = r};
}

/* CatArrayBatchedCopy(char *output, CatArrInputTensorMetadata, ...): arrays of so many pointers, offsets in the output,
 * sizes and numbers of elements; the grid is as high as there are tensors. */
struct piece { char *to; const char *from; size_t bytes; };
struct concatenation { unsigned n; struct piece pieces[]; };

static void run_concatenate(void *arg) {
  struct concatenation *c = arg;
  for (unsigned i = 0; i < c->n; i++) memcpy(c->pieces[i].to, c->pieces[i].from, c->pieces[i].bytes);
}

static struct kernel concatenate(struct known k, void **args, unsigned n) {
  struct concatenation *c = calloc(1, sizeof *c + n * sizeof *c->pieces);
  char *to = *(char **)args[0];
  const char *const *from = args[1];
  const unsigned *offsets = (const unsigned *)(from + k.batch), *elements = offsets + 2 * k.batch;
  size_t width = (size_t)k.width;
  c->n = n;
  for (unsigned i = 0; i < n; i++) c->pieces[i] = (struct piece){to + offsets[i] * width, from[i], elements[i] * width};
  return (struct kernel){.compute = run_concatenate, .arg = c};
}

/* Where CUB writes how many elements nonzero(), a boolean index and unique() find: none, rather than a size out of old
 * memory. DeviceReduceSingleTileKernel(in, out, ...) and DeviceSelectSweepKernel(in, flags, out, number, ...). */
struct none { char *at; size_t bytes; };

static void run_none(void *arg) {
  struct none *n = arg;
  memset(n->at, 0, n->bytes);
}

static struct kernel none(struct known k, void **args) {
  struct none *n = malloc(sizeof *n);
  memcpy(&n->at, args[k.function == COUNT ? 1 : 3], sizeof n->at);
  n->bytes = k.function == COUNT ? 4 : 8;
  return (struct kernel){.compute = run_none, .arg = n};
}

/* ----------------------------------------------------------------------------------------------------------- launch */

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t s) {
  configured.grid = grid, configured.block = block, configured.shared = shared, configured.stream = s;
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *s) {
  *grid = configured.grid, *block = configured.block, *shared = configured.shared;
  *(cudaStream_t *)s = configured.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
  *kernel = (cudaKernel_t)host;
  return cudaSuccess;
}

/* FAKE_GPU_FAULT=E@D:N,...: the error of the device's next kernel, if that is the Nth or a later one. */
static int planned(int device) {
  static long launched[MOST];
  const char *plan = getenv("FAKE_GPU_FAULT");
  long nth = __atomic_add_fetch(&launched[device], 1, __ATOMIC_RELAXED), from;
  int error, gpu;
  for (; plan && sscanf(plan, "%d@%d:%ld", &error, &gpu, &from) == 3; plan = plan ? plan + 1 : 0) {
    if (gpu == physical[device] && nth >= from) return error;
    plan = strchr(plan, ',');
  }
  return 0;
}

static cudaError_t run(cudaStream_t s, struct kernel kernel) {
  int device = device_of(s), gpu = physical[device];
  kernel.seconds += 1e-6 * setting("FAKE_GPU_KERNEL_US", gpu, 0);
  kernel.seconds *= setting("FAKE_GPU_SLOW", gpu, 1);
  kernel.error = planned(device);
  return launch(s, kernel);
}

cudaError_t fake_kernel(cudaStream_t s) {
  BEGIN();
  return run(s, (struct kernel){0});
}

cudaError_t cudaLaunchKernel(const void *fn, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s) {
  struct known k;
  (void)block, (void)shared;
  BEGIN();
  k = find(fn);
  if (getenv("FAKE_GPU_TRACE")) fprintf(stderr, "kernel %s\n", k.name);
  switch (k.function) {
    case UNKNOWN: case NOTHING: return run(s, (struct kernel){0});
    case SPIN: return run(s, (struct kernel){.seconds = 1e-9 * (double)*(long long *)args[0]});
    case REDUCE: return run(s, reduce(k, args));
    case CONCATENATE: return run(s, concatenate(k, args, grid.y));
    case COUNT: case SELECT: return run(s, none(k, args));
    default: return run(s, elementwise(k, args));
  }
}
cudaError_t __cudaLaunchKernel(cudaKernel_t fn, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s) {
  return cudaLaunchKernel((const void *)fn, grid, block, args, shared, s);
}
cudaError_t cudaLaunchCooperativeKernel(const void *fn, dim3 grid, dim3 block, void **args, size_t shared,
                                        cudaStream_t s) {
  return cudaLaunchKernel(fn, grid, block, args, shared, s);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *fn, void **args) {
  return cudaLaunchKernel(fn, c->gridDim, c->blockDim, args, c->dynamicSmemBytes, c->stream);
}

/* ----------------------------------------------------------------------------------------- what is asked of kernels */

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *fn) {
  (void)fn;
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024, a->numRegs = 32, a->ptxVersion = a->binaryVersion = 90;
  a->maxDynamicSharedSizeBytes = 48 << 10;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *fn, enum cudaFuncAttribute a, int v) {
  (void)fn, (void)a, (void)v;
  return cudaSuccess;
}
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t k, enum cudaFuncAttribute a, int v, int d) {
  (void)k, (void)a, (void)v, (void)d;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *fn, int block, size_t shared) {
  (void)fn, (void)shared;
  *n = block > 0 && block < 2048 ? 2048 / block : 1;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *fn, int block, size_t shared,
                                                                   unsigned flags) {
  (void)flags;
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, fn, block, shared);
}
cudaError_t cudaGetSymbolAddress(void **p, const void *symbol) {
  static char any[1 << 16];
  (void)symbol;
  *p = any;
  return cudaSuccess;
}
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t n, size_t offset, enum cudaMemcpyKind k) {
  (void)symbol, (void)from, (void)n, (void)offset, (void)k;
  return cudaSuccess;
}
