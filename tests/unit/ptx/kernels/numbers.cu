// Integer, half and floating-point arithmetic.
#include <cuda_fp16.h>

extern "C" __global__ void integers(const unsigned* a, const unsigned* b, unsigned* out) {
  int t = threadIdx.x;
  unsigned x = a[t], y = b[t];
  unsigned* o = out + t * 32;
  o[0] = __umulhi(x, y);
  o[1] = (unsigned)__mulhi((int)x, (int)y);
  o[2] = y ? x / y : 0;
  o[3] = y ? x % y : 0;
  o[4] = (int)y > 0 ? (int)x / (int)y : 0;
  o[5] = (int)y > 0 ? (int)x % (int)y : 0;
  o[6] = __byte_perm(x, y, 0x7351);
  o[7] = __funnelshift_l(x, y, 13);
  o[8] = __funnelshift_r(x, y, 37);
  o[9] = __dp4a((int)x, (int)y, 100);
  o[10] = __dp4a(x, y, 100u);
  o[11] = __popc(x) + 100 * __clz(y);
  o[12] = __brev(x);
  o[13] = __ffs(y);
  o[14] = __sad((int)x, (int)y, 5u);
  o[15] = __usad(x, y, 5u);
  o[16] = x << (y & 31);
  o[17] = (unsigned)((int)x >> (y & 31));
  asm("bfe.u32 %0, %1, 5, 9;" : "=r"(o[18]) : "r"(x));
  asm("bfe.s32 %0, %1, %2, 12;" : "=r"(o[19]) : "r"(x), "r"(y & 31));
  asm("bfi.b32 %0, %1, %2, 7, 11;" : "=r"(o[20]) : "r"(x), "r"(y));
  asm("shl.b32 %0, %1, %2;" : "=r"(o[21]) : "r"(x), "r"(y & 63));
  asm("shr.s32 %0, %1, %2;" : "=r"(o[22]) : "r"(x), "r"(y & 63));
  asm("add.sat.s32 %0, %1, %2;" : "=r"(o[23]) : "r"(x), "r"(y));
  asm("bfind.u32 %0, %1;" : "=r"(o[24]) : "r"(x));
  asm("lop3.b32 %0, %1, %2, %3, 0x6A;" : "=r"(o[25]) : "r"(x), "r"(y), "r"(x * y));
  asm("{ .reg .pred p, q; setp.lt.and.s32 p|q, %1, %2, 1; selp.u32 %0, 10, 20, p; @q add.u32 %0, "
      "%0, 1; }"
      : "=r"(o[26])
      : "r"(x), "r"(y));
  asm("prmt.b32.b4e %0, %1, %2, %1;" : "=r"(o[27]) : "r"(x), "r"(y));
  // 96-bit sum and difference, 64-bit product by parts.
  asm("add.cc.u32 %0, %3, %4;\n\taddc.cc.u32 %1, %4, %3;\n\taddc.u32 %2, %3, 0;"
      : "=r"(o[28]), "=r"(o[29]), "=r"(o[30])
      : "r"(x), "r"(y));
  unsigned low, high;
  asm("mad.lo.cc.u32 %0, %2, %3, %2;\n\tmadc.hi.u32 %1, %2, %3, 0;"
      : "=&r"(low), "=r"(high)
      : "r"(x), "r"(y));
  o[31] = low ^ high * 3;
}

extern "C" __global__ void longs(const long long* a, const long long* b, long long* out) {
  int t = threadIdx.x;
  long long x = a[t], y = b[t];
  long long* o = out + t * 12;
  o[0] = x * y;
  o[1] = __mul64hi(x, y);
  o[2] = (long long)__umul64hi(x, y);
  o[3] = y ? x / y : 0;
  o[4] = y ? x % y : 0;
  o[5] = y ? (long long)((unsigned long long)x / (unsigned long long)y) : 0;
  o[6] = y ? (long long)((unsigned long long)x % (unsigned long long)y) : 0;
  o[7] = (long long)__brevll(x);
  o[8] = __popcll(x) + 100 * __clzll(y);
  o[9] = x >> (y & 63);
  o[10] = x << (y & 63);
  o[11] = x < y ? x : y;
}

extern "C" __global__ void halves(const unsigned short* a, const unsigned short* b,
                                  unsigned short* out) {
  int t = threadIdx.x;
  __half x = __ushort_as_half(a[t]), y = __ushort_as_half(b[t]);
  unsigned short* o = out + t * 16;
  o[0] = __half_as_ushort(__hadd(x, y));
  o[1] = __half_as_ushort(__hsub(x, y));
  o[2] = __half_as_ushort(__hmul(x, y));
  o[3] = __half_as_ushort(__hfma(x, y, x));
  o[4] = __hlt(x, y);
  o[5] = __hgeu(x, y);
  o[6] = __half_as_ushort(__hneg(x));
  o[7] = __half_as_ushort(__float2half_rn(__half2float(x) * 3.0f));
  o[8] = __half_as_ushort(__float2half_rz(__half2float(y) / 3.0f));
  __half2 two = __hfma2(__halves2half2(x, y), __halves2half2(y, y), __float2half2_rn(1.0f));
  o[9] = __half_as_ushort(__low2half(two));
  o[10] = __half_as_ushort(__high2half(two));
  o[11] = (unsigned short)__half2int_rz(y);
  o[12] = __half_as_ushort(__int2half_rn((int)a[t]));
  o[13] = __hbeq2(__halves2half2(x, y), __halves2half2(x, x));
  o[14] = __half_as_ushort(__hmul_sat(x, y));
  o[15] = __half_as_ushort(hsqrt(__habs(x)));
}

extern "C" __global__ void math_float(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = in[i], p = fabsf(x);
  float* o = out + i * 24;
  o[0] = expf(x);
  o[1] = logf(p);
  o[2] = sinf(x);
  o[3] = cosf(x);
  o[4] = tanhf(x);
  o[5] = powf(p, 1.7f);
  o[6] = sqrtf(p);
  o[7] = rsqrtf(p);
  o[8] = 1.0f / x;
  o[9] = atan2f(x, 2.0f);
  o[10] = erff(x);
  o[11] = cbrtf(x);
  o[12] = floorf(x) + 4 * ceilf(x);
  o[13] = rintf(x);
  o[14] = fmodf(x, 0.7f);
  o[15] = __expf(x);
  o[16] = __logf(p);
  o[17] = __sinf(x);
  o[18] = exp2f(x);
  o[19] = log1pf(p);
  o[20] = __fdividef(x, 3.0f);
  o[21] = tanf(x);
  o[22] = __saturatef(x);
  o[23] = fmaxf(x, 1.0f) - fminf(x, -1.0f);
}

extern "C" __global__ void math_double(const double* in, double* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double x = in[i], p = fabs(x);
  double* o = out + i * 12;
  o[0] = exp(x);
  o[1] = log(p);
  o[2] = sin(x);
  o[3] = cos(x);
  o[4] = tanh(x);
  o[5] = pow(p, 1.7);
  o[6] = sqrt(p);
  o[7] = 1.0 / sqrt(p);
  o[8] = 1.0 / x;
  o[9] = atan2(x, 2.0);
  o[10] = erf(x);
  o[11] = floor(x) + 4 * rint(x);
}

extern "C" __global__ void rounding(const float* a, const float* b, float* out) {
  int t = threadIdx.x;
  float x = a[t], y = b[t];
  float* o = out + t * 16;
  o[0] = __fadd_rz(x, y);
  o[1] = __fadd_ru(x, y);
  o[2] = __fadd_rd(x, y);
  o[3] = __fmul_rz(x, y);
  o[4] = __fmaf_rz(x, y, 1.0f);
  o[5] = __fmaf_rd(x, y, 1.0f);
  o[6] = __fdiv_ru(x, y);
  o[7] = __fsqrt_rd(fabsf(x));
  o[8] = __double2float_rz((double)x * 1.000000001);
  o[9] = __double2float_ru((double)x * 1.000000001);
  o[10] = __int2float_rz(__float_as_int(x));
  o[11] = __uint2float_ru(__float_as_uint(y));
  o[12] = (float)__float2int_rn(x);
  o[13] = (float)__float2int_ru(x);
  o[14] = (float)__float2uint_rd(y);
  o[15] = (float)__float2ll_rz(x * 1e9f);
}
