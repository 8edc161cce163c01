// Functions, local memory, generic pointers, module variables, printf and assert.
#ifndef __CUDACC_RTC__
#include <cassert>
#include <cstdio>
#endif

struct Mixed {
  char a;
  double b;
  short c[3];
  float d;
};
__device__ __noinline__ double sum_mixed(Mixed m, int i) { return m.a + m.b + m.c[i] + m.d; }
__device__ __noinline__ Mixed make_mixed(int t) {
  Mixed m;
  m.a = (char)t;
  m.b = t * 0.5;
  for (int k = 0; k < 3; ++k) m.c[k] = (short)(t * k);
  m.d = -t;
  return m;
}
__device__ __noinline__ int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

typedef int (*Function)(int);
__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int square(int x) { return x * x; }
__device__ __noinline__ int negative(int x) { return -x; }
__device__ Function table[3] = {twice, square, negative};

extern "C" __global__ void functions(Mixed by_value, double* sums, int* numbers) {
  int t = threadIdx.x;
  sums[t] = sum_mixed(make_mixed(t), t % 3) + sum_mixed(by_value, 1);
  numbers[t] = fibonacci(t % 12);
  numbers[64 + t] = table[t % 3](t);
}

extern "C" __global__ void local_array(const int* in, int* out, int n) {
  int t = threadIdx.x;
  int bins[16];
  for (int k = 0; k < 16; ++k) bins[k] = 0;
  for (int i = 0; i < n; ++i) bins[(in[i] + t) & 15] += i;
  int sum = 0;
  for (int k = 0; k < 16; ++k) sum = sum * 31 + bins[(k + t) & 15];
  out[t] = sum;
}

__device__ __noinline__ void bump(int* p, int by) { *p += by; }
__device__ __noinline__ int load(const int* p) { return *p; }
extern "C" __global__ void generic(int* global, int* out) {
  __shared__ int shared[32];
  int t = threadIdx.x;
  int local[2] = {t, t + 1};
  shared[t] = 10 * t;
  int* pointers[3] = {&global[t], &shared[t], &local[t & 1]};
  bump(pointers[t % 3], 1000);
  __syncthreads();
  out[t] = load(&global[t]) + load(&shared[31 - t]) + load(&local[t & 1]);
  out[32 + t] = __isGlobal(&global[t]) + 2 * __isShared(&shared[t]) + 4 * __isLocal(pointers[2]);
}

extern "C" __global__ void switches(const int* in, int* out) {
  int t = threadIdx.x, r;
  switch (in[t]) {
    case 0:
      r = 5;
      break;
    case 1:
      r = t * 3;
      break;
    case 2:
      r = t - 7;
      break;
    case 3:
      r = t << 4;
      break;
    case 4:
      r = ~t;
      break;
    case 5:
      r = t % 5;
      break;
    case 6:
      r = t / 3;
      break;
    case 7:
      r = t | 64;
      break;
    case 8:
      r = t ^ 21;
      break;
    case 9:
    case 10:
      r = 1;
      break;
    default:
      r = -1;
  }
  out[t] = r;
}

__constant__ float weights[4] = {0.5f, 1.5f, 2.5f, 3.5f};
__device__ int counter = 7;
__device__ const char* words[2] = {"alpha", "be"};
extern "C" __global__ void variables(float* out, int* lengths) {
  int t = threadIdx.x;
  out[t] = weights[t & 3];
  atomicAdd(&counter, t);
  const char* word = words[t & 1];
  int n = 0;
  while (word[n]) ++n;
  lengths[t] = n;
  __syncthreads();
  if (t == 0) lengths[32] = counter;
}

extern "C" __global__ void print(int x) {
  if (threadIdx.x < 2) {
    printf("t=%d x=%5.2f|%s|%c|%llx|%u%%\n", (int)threadIdx.x, x * 0.25, "word", 'c',
           0x123456789abcull, 7u);
  }
}

extern "C" __global__ void asserts(int x) { assert(x == (int)threadIdx.x); }
extern "C" __global__ void traps(int x) {
  if (threadIdx.x == x) __trap();
}

extern "C" __global__ void waits(long long* out, int cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) {
  }
  __nanosleep(100);
  out[threadIdx.x] = clock64() - start;
}

// Waits until the host (or another kernel) writes the flag.
extern "C" __global__ void polls(volatile int* flag, int* out) {
  if (threadIdx.x == 0) {
    while (*flag == 0) {
    }
  }
  __syncthreads();
  out[threadIdx.x] = *flag;
}
