/* What the files of the fake libcudart share. */
#pragma once
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include "enqueue.h"

enum { MOST = 64, CONTEXT = 520 << 20 };

extern pthread_mutex_t lock;
extern int gpus, physical[MOST]; /* those that are visible, and their numbers on the machine */
extern __thread int current;

cudaError_t give(cudaError_t e); /* keeps it for cudaGetLastError */
cudaError_t begin(void);         /* why CUDA cannot be used at all */
cudaError_t state(void);         /* the same, or what the current device has failed with */
#define READY() do { cudaError_t e_ = begin(); if (e_) return give(e_); } while (0)
#define BEGIN() do { cudaError_t e_ = state(); if (e_) return give(e_); } while (0) /* what touches the device */

/* The value of a variable for a GPU of the machine: `3`, or for some only `0:3,2:5`. */
double setting(const char *variable, int gpu, double otherwise);
size_t capacity(int device);
int device_of(cudaStream_t s);

struct kernel {
  double seconds;
  int error;                       /* that the device fails with, for good, or 0 */
  void (*compute)(void *); void *arg; /* what it does in the end, if anything; `arg` is freed */
};
cudaError_t launch(cudaStream_t s, struct kernel kernel);
