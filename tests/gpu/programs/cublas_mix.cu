// cuBLAS: products of matrices in single precision and with half-precision inputs, on a stream and
// a workspace of the program's own, scaled by a norm that comes back to the host, each round.
//
// Usage: cublas_mix LIBRARY [MIB [ROUNDS [PAUSE_MS]]]; LIBRARY is the libcublas.so of the machine.

#include <cublas_v2.h>
#include <cuda_fp16.h>

#include <utility>

#include "runtime_program.h"

namespace {

constexpr int kSide = 2048;
constexpr std::size_t kWords = static_cast<std::size_t>(kSide) * kSide;
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "%s: cublasStatus %d\n", call, static_cast<int>(status));
  std::exit(1);
}
#define CHECK_BLAS(call) check((call), #call)

// Declared here since the header overloads its name.
using GemmEx = cublasStatus_t(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                              const void*, const void*, cudaDataType, int, const void*,
                              cudaDataType, int, const void*, void*, cudaDataType, int,
                              cublasComputeType_t, cublasGemmAlgo_t);

/// Numbers between -1 and 1 that depend on the place and `seed` only.
__global__ void fill(float* out, std::size_t count, std::uint64_t seed) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    std::uint64_t x = (i + seed) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ull;
    out[i] = static_cast<float>(static_cast<std::int32_t>(x >> 32)) / 2147483648.0f;
  }
}

__global__ void narrow(__half* out, const float* in, std::size_t count) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    out[i] = __float2half(in[i]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const LibraryOptions options(argc, argv);
  const auto create = FROM_LIBRARY(options, cublasCreate_v2);
  const auto destroy = FROM_LIBRARY(options, cublasDestroy_v2);
  const auto get_version = FROM_LIBRARY(options, cublasGetVersion_v2);
  const auto set_stream = FROM_LIBRARY(options, cublasSetStream_v2);
  const auto set_workspace = FROM_LIBRARY(options, cublasSetWorkspace_v2);
  const auto sgemm = FROM_LIBRARY(options, cublasSgemm_v2);
  const auto gemm = options.function<GemmEx>("cublasGemmEx");
  const auto norm = FROM_LIBRARY(options, cublasSnrm2_v2);
  const auto scale = FROM_LIBRARY(options, cublasSscal_v2);

  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cublasHandle_t handle;
  CHECK_BLAS(create(&handle));
  int version = 0;
  CHECK_BLAS(get_version(handle, &version));
  std::fprintf(stderr, "version: %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
  void* workspace;
  CHECK_CUDA(cudaMalloc(&workspace, kWorkspaceBytes));
  CHECK_BLAS(set_stream(handle, stream));
  CHECK_BLAS(set_workspace(handle, workspace, kWorkspaceBytes));

  float* matrix[3];
  for (std::uint64_t i = 0; i < 3; ++i) {
    CHECK_CUDA(cudaMalloc(&matrix[i], kWords * sizeof(float)));
    fill<<<64, 256, 0, stream>>>(matrix[i], kWords, i * kWords);
  }
  __half* narrowed;
  CHECK_CUDA(cudaMalloc(&narrowed, kWords * sizeof(__half)));
  Ballast ballast(options.bytes);
  CHECK_CUDA(cudaDeviceSynchronize());

  const float one = 1, half = 0.5f;
  for (int round = 0; round < options.rounds; ++round) {
    // matrix[2] = matrix[0] · matrix[1] + matrix[2] / 2, then plus the square of what is made of it
    // in half precision.
    CHECK_BLAS(sgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, kSide, kSide, kSide, &one, matrix[0], kSide,
                     matrix[1], kSide, &half, matrix[2], kSide));
    float length = 0;
    CHECK_BLAS(norm(handle, static_cast<int>(kWords), matrix[2], 1, &length));
    const float factor = kSide / length;  // the mean square of its words becomes 1
    CHECK_BLAS(scale(handle, static_cast<int>(kWords), &factor, matrix[2], 1));
    narrow<<<64, 256, 0, stream>>>(narrowed, matrix[2], kWords);
    CHECK_BLAS(gemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, kSide, kSide, kSide, &one, narrowed,
                    CUDA_R_16F, kSide, narrowed, CUDA_R_16F, kSide, &half, matrix[2], CUDA_R_32F,
                    kSide, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    ballast.change(static_cast<std::uint64_t>(round));
    CHECK_CUDA(cudaDeviceSynchronize());
    std::printf("norm %d: %a\n", round, static_cast<double>(length));
    std::swap(matrix[round % 2], matrix[2]);
    std::this_thread::sleep_for(options.pause);
  }
  for (const float* one_matrix : matrix) {
    print_digest("matrix", one_matrix, kWords * sizeof(float));
  }
  ballast.print();
  CHECK_BLAS(destroy(handle));
  return 0;
}
