// Kernels on memory that the driver owns: managed variables, arrays behind textures and surfaces.

__managed__ unsigned managed_total = 5;

// The sum of `value` over all threads, in memory that the host reads without a copy.
extern "C" __global__ void add_to_managed(unsigned value) { atomicAdd(&managed_total, value); }

// out[y][x] = image filtered a quarter of a texel to the right and down, in 256ths.
extern "C" __global__ void blur(unsigned* out, cudaTextureObject_t image, int width,
                                unsigned texels) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= texels) return;
  const float x = (float)(i % width) + 0.75f, y = (float)(i / width) + 0.75f;
  out[i] = (unsigned)(tex2D<float>(image, x, y) * 256);
}

// out[i] += table[i % entries], a texture on plain memory.
extern "C" __global__ void look_up(unsigned* out, cudaTextureObject_t table, int entries,
                                   unsigned words) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < words) out[i] += tex1Dfetch<unsigned>(table, i % entries);
}

// Turns the words of a plane over and adds: surface[y][x] = ~surface[y][x] + seed.
extern "C" __global__ void turn_over(cudaSurfaceObject_t plane, int width, unsigned seed,
                                     unsigned words) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= words) return;
  const int x = i % width * 4, y = i / width;
  surf2Dwrite(~surf2Dread<unsigned>(plane, x, y) + seed, plane, x, y);
}
