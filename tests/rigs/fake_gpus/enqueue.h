/* What the other libraries ask of the fake libcudart. */
#pragma once
#include <cuda_runtime_api.h>

/* Puts something on a stream that is over when `poll` first returns nonzero. It is called when its turn has come, again
 * and again, by one thread at a time, and must not call CUDA. */
void fake_enqueue(cudaStream_t stream, int (*poll)(void *), void *arg);

/* The value of a variable for the GPU of a stream: `3`, or for some GPUs only `0:3,2:5`. */
double fake_setting(const char *variable, cudaStream_t stream, double otherwise);

/* The number on the machine of the current device, or -1. */
int fake_gpu(void);

/* A kernel that computes nothing, as long as FAKE_GPU_KERNEL_US says. */
cudaError_t fake_kernel(cudaStream_t stream);
