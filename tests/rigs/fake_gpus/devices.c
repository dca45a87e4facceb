/* Devices, errors, and what there is none of. */
#include <stdio.h>
#include <string.h>
#include "cudart.h"

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
  p->totalGlobalMem = capacity(device);
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
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b) { *can = a != b; return cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) { (void)peer, (void)flags; return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *v) { *v = 13000; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *v) { *v = 13000; return cudaSuccess; }
cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
cudaError_t cudaProfilerStop(void) { return cudaSuccess; }

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

/* --------------------------------------------------------------------- no graphs, no pools, no IPC, no driver calls */

static int no_driver_call(void) { return 801; }
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **fn, unsigned v, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found) {
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
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **nodes,
                                     const cudaGraphEdgeData **edges, size_t *n) {
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
