#include <cstddef>

#include "tools/simgpu/driver/cuda_api.h"

// "Error Handling" of the driver API. May be called before cuInit.

namespace {

struct ErrorText {
  CUresult code;
  const char* name;
  const char* text;
};

const ErrorText kErrors[] = {
#define ERROR(code, text) {code, #code, text},
#include "tools/simgpu/driver/errors.inc"
#undef ERROR
};

CUresult find_text(CUresult code, const char* ErrorText::*column, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = nullptr;
  for (const ErrorText& error : kErrors) {
    if (error.code == code) *text = error.*column;
  }
  return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** pStr) {
  return find_text(error, &ErrorText::name, pStr);
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char** pStr) {
  return find_text(error, &ErrorText::text, pStr);
}

}  // extern "C"
