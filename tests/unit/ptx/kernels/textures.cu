// Texture fetches and surface accesses, each result stored as it came.

#define THREAD(n)                                             \
  const int t = (int)(blockIdx.x * blockDim.x + threadIdx.x); \
  if (t >= (n)) return

extern "C" __global__ void by_index(cudaTextureObject_t tex, const int* x, int n, float4* out) {
  THREAD(n);
  out[t] = tex1Dfetch<float4>(tex, x[t]);
}
extern "C" __global__ void integers_by_index(cudaTextureObject_t tex, const int* x, int n,
                                             int4* out) {
  THREAD(n);
  out[t] = tex1Dfetch<int4>(tex, x[t]);
}
extern "C" __global__ void one(cudaTextureObject_t tex, const float* x, int n, float4* out) {
  THREAD(n);
  out[t] = tex1D<float4>(tex, x[t]);
}
extern "C" __global__ void two(cudaTextureObject_t tex, const float* x, const float* y, int n,
                               float4* out) {
  THREAD(n);
  out[t] = tex2D<float4>(tex, x[t], y[t]);
}
extern "C" __global__ void two_at_a_level(cudaTextureObject_t tex, const float* x, const float* y,
                                          int n, float4* out) {
  THREAD(n);
  const float2 slope = make_float2(2, 3);
  const float4 a = tex2DLod<float4>(tex, x[t], y[t], 1.5f);
  const float4 b = tex2DGrad<float4>(tex, x[t], y[t], slope, slope);
  out[t] = make_float4(a.x, b.x, a.w, b.w);
}
extern "C" __global__ void two_unsigned(cudaTextureObject_t tex, const float* x, const float* y,
                                        int n, uint4* out) {
  THREAD(n);
  out[t] = tex2D<uint4>(tex, x[t], y[t]);
}
extern "C" __global__ void three(cudaTextureObject_t tex, const float* x, const float* y,
                                 const float* z, int n, float4* out) {
  THREAD(n);
  out[t] = tex3D<float4>(tex, x[t], y[t], z[t]);
}
extern "C" __global__ void layers(cudaTextureObject_t lines, cudaTextureObject_t planes,
                                  const float* x, const float* y, const int* layer, int n,
                                  float2* out) {
  THREAD(n);
  out[t] = make_float2(tex1DLayered<float>(lines, x[t], layer[t]),
                       tex2DLayered<float>(planes, x[t], y[t], layer[t]));
}
extern "C" __global__ void at_a_level(cudaTextureObject_t tex, const float* x, const float* y,
                                      const float* level, int n, float4* out) {
  THREAD(n);
  out[t] = tex2DLod<float4>(tex, x[t], y[t], level[t]);
}
// `right` and `down`: how far the next pixels are.
extern "C" __global__ void by_gradient(cudaTextureObject_t tex, const float* right,
                                       const float* down, int n, float4* out) {
  THREAD(n);
  out[t] = tex2DGrad<float4>(tex, 0.5f, 0.5f, make_float2(right[t], 0), make_float2(0, down[t]));
}
extern "C" __global__ void cube(cudaTextureObject_t tex, const float* x, const float* y,
                                const float* z, int n, float4* out) {
  THREAD(n);
  out[t] = texCubemap<float4>(tex, x[t], y[t], z[t]);
}
extern "C" __global__ void cubes(cudaTextureObject_t tex, const float* x, const float* y,
                                 const float* z, const float* layer, int n, float4* out) {
  THREAD(n);
  out[t] = texCubemapLayered<float4>(tex, x[t], y[t], z[t], (int)layer[t]);
}
extern "C" __global__ void cube_at_a_level(cudaTextureObject_t tex, const float* x, const float* y,
                                           const float* z, const float* level, int n, float4* out) {
  THREAD(n);
  out[t] = texCubemapLod<float4>(tex, x[t], y[t], z[t], level[t]);
}
extern "C" __global__ void gather(cudaTextureObject_t tex, const float* x, const float* y, int n,
                                  float4* first, float4* last) {
  THREAD(n);
  first[t] = tex2Dgather<float4>(tex, x[t], y[t], 0);
  last[t] = tex2Dgather<float4>(tex, x[t], y[t], 3);
}

// Each kind of surface by elements of its own: to[i] = from[i], and what was read.
template <typename T>
__device__ void copy_plane(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int width, int height,
                           T* seen) {
  THREAD(width * height);
  const int x = t % width * (int)sizeof(T), y = t / width;
  const T value = surf2Dread<T>(from, x, y);
  surf2Dwrite(value, to, x, y);
  seen[t] = value;
}
#define COPY_PLANE(name, T)                                                                    \
  extern "C" __global__ void name(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int width, \
                                  int height, T* seen) {                                       \
    copy_plane<T>(from, to, width, height, seen);                                              \
  }
COPY_PLANE(copy_bytes, unsigned char)
COPY_PLANE(copy_bytes4, uchar4)
COPY_PLANE(copy_shorts2, short2)
COPY_PLANE(copy_floats, float)
COPY_PLANE(copy_floats4, float4)
COPY_PLANE(copy_longs, long long)

extern "C" __global__ void outside(cudaSurfaceObject_t surface, const int* x, const int* y, int n,
                                   float* zero, float* clamped) {
  THREAD(n);
  zero[t] = surf2Dread<float>(surface, x[t] * 4, y[t], cudaBoundaryModeZero);
  clamped[t] = surf2Dread<float>(surface, x[t] * 4, y[t], cudaBoundaryModeClamp);
}
extern "C" __global__ void write_outside(cudaSurfaceObject_t surface, const int* x, const int* y,
                                         int n) {
  THREAD(n);
  surf2Dwrite((float)(1000 + t), surface, x[t] * 4, y[t], cudaBoundaryModeZero);
}
extern "C" __global__ void trap_outside(cudaSurfaceObject_t surface, int x) {
  surf1Dwrite(1.0f, surface, x * 4);
}
extern "C" __global__ void fill_space(cudaSurfaceObject_t space, cudaSurfaceObject_t planes,
                                      int width, int height, int n) {
  THREAD(n);
  const int x = t % width, y = t / width % height, z = t / (width * height);
  surf3Dwrite((float)t, space, x * 4, y, z);
  surf2DLayeredwrite(surf3Dread<float>(space, x * 4, y, z) + 0.5f, planes, x * 4, y, z);
}
