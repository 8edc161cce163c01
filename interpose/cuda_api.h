#pragma once

/// NVIDIA's cuda.h with every ABI version of a function under its exported name: cuMemAlloc (the
/// first one), cuMemAlloc_v2, cuLaunchKernel_ptsz. Every file of interpose/ and shim/ that needs
/// CUDA types includes this instead of cuda.h: without the switch below cuda.h renames functions by
/// macros.

#ifdef __cuda_cuda_h__
#ifndef __CUDA_API_VERSION_INTERNAL
#error "include interpose/cuda_api.h before anything that includes cuda.h"
#endif
#endif
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#include <cuda.h>
#include <cudaProfiler.h>

#if CUDA_VERSION < 13000
#error "PlexRL's table of the driver API needs the headers of CUDA 13.0 or newer"
#endif
