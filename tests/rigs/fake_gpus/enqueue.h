/* What the other libraries ask of the fake libcudart. */
#pragma once
#include <cuda_runtime_api.h>

/* Puts something on a stream that is over when `poll` first returns nonzero. It is called when its turn has come, again
 * and again, by one thread at a time, and must not call CUDA. */
void fake_enqueue(cudaStream_t stream, int (*poll)(void *), void *arg);

/* A kernel that computes nothing, as long as FAKE_GPU_KERNEL_US says. */
cudaError_t fake_kernel(cudaStream_t stream);
