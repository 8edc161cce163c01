#pragma once

#include <cstddef>
#include <cstdint>

#include "interpose/cuda_api.h"

/// NCCL's functions and the types that their parameters need, declared by hand because CUDA's
/// toolkit need not bring nccl.h. Names and codes as in NCCL's API reference. What a function takes
/// by pointer and PlexRL doesn't look into is opaque; enumerations have the size of nccl.h's.

extern "C" {

using ncclComm_t = struct ncclComm*;
using ncclWindow_t = struct ncclWindow_vidmem*;
using cudaStream_t = CUstream;
struct ncclConfig_t;
struct ncclSimInfo_t;

struct ncclUniqueId {
  char internal[128];
};

/// NCCL's codes. Only those that PlexRL returns or looks at are named.
enum ncclResult_t : unsigned int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInProgress = 7,
};

enum ncclDataType_t : unsigned int {};
enum ncclRedOp_t : unsigned int {};
enum ncclScalarResidence_t : unsigned int {};

#define NCCL_API(symbol, result, cls, params, args) \
  result symbol params;                             \
  result p##symbol params;
#include "interpose/nccl_api.def"
#undef NCCL_API

}  // extern "C"
