/* The functions of cuBLAS that torch calls, for LD_PRELOAD: products last as long as a kernel, and leave their
 * result as it was. */
#include <stddef.h>
#include <string.h>
#include "enqueue.h"

int cublasCreate_v2(void **handle) { static int any; *handle = &any; return 0; }
int cublasGetMathMode(void *handle, int *mode) { (void)handle; *mode = 0; return 0; }
int cublasGetPointerMode_v2(void *handle, int *mode) { (void)handle; *mode = 0; return 0; }
size_t cublasLtGetVersion(void) { return 130101; }

static int make(void **to) { static int any; *to = &any; return 0; }
int cublasLtMatmulDescCreate(void **d, int compute, int scale) { (void)compute, (void)scale; return make(d); }
int cublasLtMatrixLayoutCreate(void **l, int type, long rows, long cols, long ld) {
  (void)type, (void)rows, (void)cols, (void)ld;
  return make(l);
}
int cublasLtMatmulPreferenceCreate(void **p) { return make(p); }

struct result { unsigned long algo[8]; size_t workspace; int state; float waves; int reserved[4]; };
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference,
                                   int wanted, struct result *to, int *n) {
  (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)wanted;
  memset(to, 0, sizeof *to);
  *n = 1;
  return 0;
}

static __thread cudaStream_t stream; /* torch sets it before each product */
int cublasSetStream_v2(void *handle, cudaStream_t s) { (void)handle; stream = s; return 0; }
static int product(cudaStream_t s) { return fake_kernel(s) ? 13 : 0; } /* CUBLAS_STATUS_EXECUTION_FAILED */
int cublasLtMatmul(void *handle, void *d, void *alpha, void *a, void *la, void *b, void *lb, void *beta, void *c,
                   void *lc, void *to, void *lto, void *algo, void *workspace, size_t size, cudaStream_t s) {
  (void)handle, (void)d, (void)alpha, (void)a, (void)la, (void)b, (void)lb, (void)beta, (void)c, (void)lc, (void)to;
  (void)lto, (void)algo, (void)workspace, (void)size;
  return product(s);
}

#define NOOP(name) int name(void) { return 0; }
#define PRODUCT(name) int name(void) { return product(stream); }
#include "cublas_others.h"
