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

// A level of a pyramid from the one above: the sum of four floats, of which three quarters stay.
extern "C" __global__ void halve(cudaSurfaceObject_t above, cudaSurfaceObject_t level, int side,
                                 unsigned texels) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= texels) return;
  const int x = i % side, y = i / side;
  const float top =
      surf2Dread<float>(above, 8 * x, 2 * y) + surf2Dread<float>(above, 8 * x + 4, 2 * y);
  const float bottom =
      surf2Dread<float>(above, 8 * x, 2 * y + 1) + surf2Dread<float>(above, 8 * x + 4, 2 * y + 1);
  surf2Dwrite((top + bottom) * 0.1875f, level, 4 * x, y);
}

// out[y][x] = the texel there in a level of `side` texels.
extern "C" __global__ void read_level(float* out, cudaTextureObject_t pyramid, float level,
                                      int side, unsigned texels) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= texels) return;
  const float x = ((float)(i % side) + 0.5f) / side, y = ((float)(i / side) + 0.5f) / side;
  out[i] = tex2DLod<float>(pyramid, x, y, level);
}

// Adds the number of its layer to every word of a stack of planes.
extern "C" __global__ void add_layer(cudaSurfaceObject_t planes, int side, unsigned texels) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= texels) return;
  const int x = i % side * 4, y = i / side % side, layer = i / side / side;
  surf2DLayeredwrite(surf2DLayeredread<unsigned>(planes, x, y, layer) + layer, planes, x, y, layer);
}

// out[layer][y][x] = the word there.
extern "C" __global__ void read_layers(unsigned* out, cudaTextureObject_t planes, int side,
                                       unsigned texels) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= texels) return;
  const float x = (float)(i % side) + 0.5f, y = (float)(i / side % side) + 0.5f;
  out[i] = tex2DLayered<unsigned>(planes, x, y, i / side / side);
}

// out[i] = what a cube has in a direction.
extern "C" __global__ void look_around(float* out, cudaTextureObject_t cube,
                                       const float* directions, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float* const at = directions + 3 * i;
  out[i] = texCubemap<float>(cube, at[0], at[1], at[2]);
}
