/* What nccl.c asks of cudart.c. */
#pragma once
#include <cuda_runtime_api.h>

/* Puts something on a stream that is over when `poll` first returns nonzero. It is called when its turn has come, again
 * and again, by one thread at a time, and must not call CUDA. */
void fake_enqueue(cudaStream_t stream, int (*poll)(void *), void *arg);
