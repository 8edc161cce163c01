#pragma once

/// NVIDIA's cuda.h as a driver sees it: every ABI version of a function under its exported name
/// (cuMemAlloc, cuMemAlloc_v2, cuLaunchKernel_ptsz), with default visibility. Every file of this
/// folder that needs CUDA types includes this instead of cuda.h.

#ifdef __cuda_cuda_h__
#ifndef __CUDA_API_VERSION_INTERNAL
#error "include tools/simgpu/driver/cuda_api.h before anything that includes cuda.h"
#endif
#endif
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#define __CUDA_API_PUSH_VISIBILITY_DEFAULT
#include <cuda.h>
#include <cudaProfiler.h>

#if CUDA_VERSION < 13000
#error "the simulated driver needs the headers of CUDA 13.0 or newer"
#endif
