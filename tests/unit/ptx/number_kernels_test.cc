#include <bit>
#include <cfenv>
#include <cmath>
#include <functional>

#include "tests/unit/ptx/kernel_test.h"
#include "tools/simgpu/ptx/half.h"

namespace plexrl::simgpu::ptx {
namespace {

class NumberKernels : public KernelTest {};
PLEXRL_INSTANTIATE_KERNEL_TEST(NumberKernels);

using U32 = std::uint32_t;
using S32 = std::int32_t;
using U64 = std::uint64_t;
using S64 = std::int64_t;

/// Edges and a fixed sequence of mixed bits.
std::vector<U64> test_bits(std::size_t n) {
  std::vector<U64> out = {0,
                          1,
                          2,
                          31,
                          32,
                          33,
                          63,
                          64,
                          0x7fffffff,
                          0x80000000,
                          0xffffffff,
                          0x7fffffffffffffff,
                          0x8000000000000000,
                          0xffffffffffffffff,
                          0xffffffff00000000,
                          100};
  for (U64 x = 0x243f6a8885a308d3; out.size() < n;) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    out.push_back(x ^ x >> 29);
  }
  return out;
}

U32 dp4a_signed(U32 a, U32 b, U32 c) {
  for (int i = 0; i < 32; i += 8)
    c += static_cast<U32>(static_cast<std::int8_t>(a >> i) * static_cast<std::int8_t>(b >> i));
  return c;
}
U32 dp4a_unsigned(U32 a, U32 b, U32 c) {
  for (int i = 0; i < 32; i += 8) c += (a >> i & 0xff) * (b >> i & 0xff);
  return c;
}
U32 reverse(U32 a) {
  U32 r = 0;
  for (int i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i);
  return r;
}
U32 byte_of(U32 x, U32 y, U32 selector) {
  const U32 byte = static_cast<U32>((U64{y} << 32 | x) >> 8 * (selector & 7)) & 0xff;
  return (selector & 8) != 0 ? ((byte & 0x80) != 0 ? 0xff : 0) : byte;
}

TEST_P(NumberKernels, Integers32) {
  PLEXRL_LOAD_OR_SKIP("numbers");
  const std::size_t n = 256;
  const std::vector<U64> bits = test_bits(2 * n);
  std::vector<U32> a, b;
  for (std::size_t i = 0; i < n; ++i) {
    a.push_back(static_cast<U32>(bits[i]));
    b.push_back(static_cast<U32>(i < 16 ? bits[(i * 7) % 16] : bits[n + i]));
  }
  const auto out = device_.allocate(n * 32 * 4);
  expect_ok("integers", {{1}, {n}},
            Arguments().add(device_.upload(a)).add(device_.upload(b)).add(out));
  const auto r = device_.download<U32>(out, n * 32);
  for (std::size_t t = 0; t < n; ++t) {
    const U32 x = a[t], y = b[t];
    const S32 sx = static_cast<S32>(x), sy = static_cast<S32>(y);
    const U64 both = U64{y} << 32 | x;
    const U32 shift = y & 31, big = y & 63;
    U32 e[32] = {};
    e[0] = static_cast<U32>(U64{x} * y >> 32);
    e[1] = static_cast<U32>(static_cast<S64>(sx) * sy >> 32);
    e[2] = y != 0 ? x / y : 0;
    e[3] = y != 0 ? x % y : 0;
    e[4] = sy > 0 ? static_cast<U32>(sx / sy) : 0;
    e[5] = sy > 0 ? static_cast<U32>(sx % sy) : 0;
    e[6] =
        byte_of(x, y, 1) | byte_of(x, y, 5) << 8 | byte_of(x, y, 3) << 16 | byte_of(x, y, 7) << 24;
    e[7] = static_cast<U32>(both << 13 >> 32);
    e[8] = static_cast<U32>(both >> 5);
    e[9] = dp4a_signed(x, y, 100);
    e[10] = dp4a_unsigned(x, y, 100);
    e[11] = static_cast<U32>(std::popcount(x) + 100 * std::countl_zero(y));
    e[12] = reverse(x);
    e[13] = y != 0 ? static_cast<U32>(std::countr_zero(y)) + 1 : 0;
    e[14] = 5 + static_cast<U32>(std::abs(static_cast<S64>(sx) - sy));
    e[15] = 5 + (x > y ? x - y : y - x);
    e[16] = x << shift;
    e[17] = static_cast<U32>(sx >> shift);
    e[18] = x >> 5 & 0x1ff;
    const S64 wide = sx;
    e[19] = static_cast<U32>(static_cast<S64>(static_cast<U64>(wide >> shift) << 52) >> 52);
    e[20] = (y & ~(0x7ffu << 7)) | (x & 0x7ff) << 7;
    e[21] = big > 31 ? 0 : x << big;
    e[22] = static_cast<U32>(big > 31 ? sx >> 31 : sx >> big);
    e[23] = static_cast<U32>(std::clamp<S64>(static_cast<S64>(sx) + sy, INT32_MIN, INT32_MAX));
    e[24] = x != 0 ? 31 - static_cast<U32>(std::countl_zero(x)) : ~0u;
    for (int i = 0; i < 32; ++i) {
      const U32 row = (x >> i & 1) << 2 | (y >> i & 1) << 1 | (x * y >> i & 1);
      e[25] |= (0x6au >> row & 1) << i;
    }
    e[26] = sx < sy ? 10 : 21;
    const U32 s = x & 3;
    e[27] = byte_of(x, y, s) | byte_of(x, y, (s - 1) & 7) << 8 | byte_of(x, y, (s - 2) & 7) << 16 |
            byte_of(x, y, (s - 3) & 7) << 24;
    const unsigned __int128 sum =
        (static_cast<unsigned __int128>(x) << 64 | U64{y} << 32 | x) + (U64{x} << 32 | y);
    e[28] = static_cast<U32>(sum);
    e[29] = static_cast<U32>(sum >> 32);
    e[30] = static_cast<U32>(sum >> 64);
    const U64 product = U64{x} * y + x;
    e[31] = static_cast<U32>(product) ^ static_cast<U32>(product >> 32) * 3;
    for (int k = 0; k < 32; ++k)
      EXPECT_EQ(r[t * 32 + k], e[k]) << "value " << k << " of " << x << ", " << y;
  }
}

TEST_P(NumberKernels, Integers64) {
  PLEXRL_LOAD_OR_SKIP("numbers");
  const std::size_t n = 256;
  const std::vector<U64> bits = test_bits(2 * n);
  std::vector<S64> a, b;
  for (std::size_t i = 0; i < n; ++i) {
    a.push_back(static_cast<S64>(bits[i]));
    b.push_back(static_cast<S64>(i < 16 ? bits[(i * 5) % 16] : bits[n + i] >> (i % 50)));
    if (a.back() == INT64_MIN && b.back() == -1) b.back() = 3;
  }
  const auto out = device_.allocate(n * 12 * 8);
  expect_ok("longs", {{1}, {n}},
            Arguments().add(device_.upload(a)).add(device_.upload(b)).add(out));
  const auto r = device_.download<S64>(out, n * 12);
  for (std::size_t t = 0; t < n; ++t) {
    const S64 x = a[t], y = b[t];
    const U64 ux = static_cast<U64>(x), uy = static_cast<U64>(y);
    const S64 e[12] = {static_cast<S64>(ux * uy),
                       static_cast<S64>(static_cast<__int128>(x) * y >> 64),
                       static_cast<S64>(static_cast<unsigned __int128>(ux) * uy >> 64),
                       y != 0 ? x / y : 0,
                       y != 0 ? x % y : 0,
                       y != 0 ? static_cast<S64>(ux / uy) : 0,
                       y != 0 ? static_cast<S64>(ux % uy) : 0,
                       static_cast<S64>(U64{reverse(static_cast<U32>(ux))} << 32 |
                                        reverse(static_cast<U32>(ux >> 32))),
                       std::popcount(ux) + 100 * std::countl_zero(uy),
                       x >> (y & 63),
                       static_cast<S64>(ux << (y & 63)),
                       std::min(x, y)};
    for (int k = 0; k < 12; ++k)
      EXPECT_EQ(r[t * 12 + k], e[k]) << "value " << k << " of " << x << ", " << y;
  }
}

bool is_nan(std::uint16_t h) { return (h & 0x7fff) > 0x7c00; }

TEST_P(NumberKernels, Halves) {
  PLEXRL_LOAD_OR_SKIP("numbers");
  const std::size_t n = 512;
  const std::vector<U64> bits = test_bits(2 * n);
  const std::uint16_t edges[] = {0,      0x8000, 1,      0x03ff, 0x0400, 0x3c00, 0xbc00,
                                 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x4200, 0x3555};
  std::vector<std::uint16_t> a, b;
  for (std::size_t i = 0; i < n; ++i) {
    a.push_back(i < 169 ? edges[i / 13] : static_cast<std::uint16_t>(bits[i]));
    b.push_back(i < 169 ? edges[i % 13] : static_cast<std::uint16_t>(bits[n + i]));
  }
  const auto out = device_.allocate(n * 16 * 2);
  expect_ok("halves", {{1}, {n}},
            Arguments().add(device_.upload(a)).add(device_.upload(b)).add(out));
  const auto r = device_.download<std::uint16_t>(out, n * 16);
  for (std::size_t t = 0; t < n; ++t) {
    const double x = float_from_half(a[t]), y = float_from_half(b[t]);
    auto expect_half = [&](int k, double value, Rounding rounding = Rounding::kNearestEven) {
      const std::uint16_t got = r[t * 16 + k];
      if (std::isnan(value)) {
        EXPECT_TRUE(is_nan(got)) << "value " << k << " of " << x << ", " << y;
      } else {
        EXPECT_EQ(got, half_from_double(value, rounding))
            << "value " << k << " of " << x << ", " << y;
      }
    };
    expect_half(0, x + y);
    expect_half(1, x - y);
    expect_half(2, x * y);
    expect_half(3, x * y + x);
    EXPECT_EQ(r[t * 16 + 4], x < y);
    EXPECT_EQ(r[t * 16 + 5], !(x < y));
    if (!std::isnan(x)) {
      EXPECT_EQ(r[t * 16 + 6], a[t] ^ 0x8000);
    }
    expect_half(7, static_cast<double>(static_cast<float>(x) * 3.0f));
    expect_half(8, static_cast<double>(static_cast<float>(y) / 3.0f), Rounding::kZero);
    expect_half(9, x * y + 1);
    expect_half(10, y * y + 1);
    const double cut = std::isnan(y) ? 0 : std::clamp(std::trunc(y), -2147483648.0, 2147483647.0);
    EXPECT_EQ(r[t * 16 + 11], static_cast<std::uint16_t>(static_cast<S64>(cut))) << y;
    expect_half(12, a[t]);
    EXPECT_EQ(r[t * 16 + 13], !std::isnan(x) && x == y);
    const double product = x * y;
    if (std::isnan(product)) {
      EXPECT_EQ(r[t * 16 + 14], 0);
    } else {
      expect_half(14, product > 0 ? std::min(product, 1.0) : 0.0);
    }
  }
}

template <typename T>
struct Function {
  const char* name;
  std::function<double(double)> exact;
  double relative;  ///< bound on the error, of the value
  double absolute;  ///< and as it is
};

template <typename T>
void check(const std::vector<T>& in, const std::vector<T>& out, std::size_t stride, std::size_t k,
           const Function<T>& f) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double exact = f.exact(in[i]);
    const double got = out[i * stride + k];
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(got)) << f.name << "(" << in[i] << ")";
    } else if (std::isinf(exact) || std::fabs(exact) > (sizeof(T) == 4 ? 3.3e38 : 1e308)) {
      EXPECT_GT(std::fabs(got), sizeof(T) == 4 ? 3.2e38 : 1e307) << f.name << "(" << in[i] << ")";
    } else {
      EXPECT_LE(std::fabs(got - exact), std::fabs(exact) * f.relative + f.absolute)
          << f.name << "(" << in[i] << ") = " << got << ", not " << exact;
    }
  }
}

TEST_P(NumberKernels, FloatFunctionsAreCloseToTheHosts) {
  PLEXRL_LOAD_OR_SKIP("numbers");
  std::vector<float> in = {0.0f, -0.0f,  1.0f,  -1.0f,  INFINITY, -INFINITY,
                           NAN,  1e-40f, 88.0f, -88.0f, 0.5f};
  for (int i = 0; i < 500; ++i)
    in.push_back(static_cast<float>(std::sin(i * 1.3) * std::pow(10.0, i % 7 - 3)));
  const int n = static_cast<int>(in.size());
  const auto out = device_.allocate(in.size() * 24 * 4);
  expect_ok("math_float", {{8}, {64}}, Arguments().add(device_.upload(in)).add(out).add(n));
  const auto r = device_.download<float>(out, in.size() * 24);
  auto p = [](double x) { return std::fabs(x); };
  const Function<float> functions[] = {
      {"exp", [](double x) { return std::exp(x); }, 3e-7, 1e-44},
      {"log", [p](double x) { return std::log(p(x)); }, 3e-7, 1e-7},
      {"sin", [](double x) { return std::sin(x); }, 3e-7, 1e-7},
      {"cos", [](double x) { return std::cos(x); }, 3e-7, 1e-7},
      {"tanh", [](double x) { return std::tanh(x); }, 4e-7, 1e-44},
      {"pow", [p](double x) { return std::pow(p(x), static_cast<double>(1.7f)); }, 2e-6, 1e-44},
      {"sqrt", [p](double x) { return std::sqrt(p(x)); }, 1e-7, 0},
      {"rsqrt", [p](double x) { return 1 / std::sqrt(p(x)); }, 3e-7, 0},
      {"rcp", [](double x) { return 1 / x; }, 1e-7, 1e-44},
      {"atan2", [](double x) { return std::atan2(x, 2.0); }, 4e-7, 1e-44},
      {"erf", [](double x) { return std::erf(x); }, 4e-7, 1e-44},
      {"cbrt", [](double x) { return std::cbrt(x); }, 3e-7, 0},
      {"floor, ceil", [](double x) { return std::floor(x) + 4 * std::ceil(x); }, 1e-7, 0},
      {"rint", [](double x) { return std::rint(x); }, 0, 0},
      {"fmod", [](double x) { return std::fmod(x, static_cast<double>(0.7f)); }, 1e-7, 0},
      {"__expf", [](double x) { return std::exp(x); }, 2e-5, 1e-38},
      {"__logf", [p](double x) { return std::log(p(x)); }, 1e-6, 1e-6},
      {"__sinf", [](double x) { return std::sin(x); }, 0, 1e-6},
      {"exp2", [](double x) { return std::exp2(x); }, 3e-7, 1e-44},
      {"log1p", [p](double x) { return std::log1p(p(x)); }, 3e-7, 1e-44},
      {"__fdividef", [](double x) { return x / 3; }, 3e-7, 1e-44},
      {"tan", [](double x) { return std::tan(x); }, 6e-7, 1e-7},
      {"saturate", [](double x) { return x > 0 ? std::min(x, 1.0) : 0.0; }, 0, 0},
      {"max, min", [](double x) { return std::fmax(x, 1.0) - std::fmin(x, -1.0); }, 1e-7, 0},
  };
  for (std::size_t k = 0; k < std::size(functions); ++k) check(in, r, 24, k, functions[k]);
}

TEST_P(NumberKernels, DoubleFunctionsAreCloseToTheHosts) {
  PLEXRL_LOAD_OR_SKIP("numbers");
  std::vector<double> in = {0.0, -0.0,   1.0,   -1.0,   INFINITY, -INFINITY,
                            NAN, 1e-310, 700.0, -700.0, 0.5};
  for (int i = 0; i < 300; ++i) in.push_back(std::sin(i * 1.3) * std::pow(10.0, i % 7 - 3));
  const int n = static_cast<int>(in.size());
  const auto out = device_.allocate(in.size() * 12 * 8);
  expect_ok("math_double", {{5}, {64}}, Arguments().add(device_.upload(in)).add(out).add(n));
  const auto r = device_.download<double>(out, in.size() * 12);
  auto p = [](double x) { return std::fabs(x); };
  const Function<double> functions[] = {
      {"exp", [](double x) { return std::exp(x); }, 1e-15, 0},
      {"log", [p](double x) { return std::log(p(x)); }, 1e-15, 1e-16},
      {"sin", [](double x) { return std::sin(x); }, 1e-15, 1e-16},
      {"cos", [](double x) { return std::cos(x); }, 1e-15, 1e-16},
      {"tanh", [](double x) { return std::tanh(x); }, 1e-15, 0},
      {"pow", [p](double x) { return std::pow(p(x), 1.7); }, 4e-15, 0},
      {"sqrt", [p](double x) { return std::sqrt(p(x)); }, 0, 0},
      {"rsqrt", [p](double x) { return 1 / std::sqrt(p(x)); }, 4e-16, 0},
      {"rcp", [](double x) { return 1 / x; }, 0, 0},
      {"atan2", [](double x) { return std::atan2(x, 2.0); }, 1e-15, 1e-320},
      {"erf", [](double x) { return std::erf(x); }, 1e-15, 1e-320},
      {"floor, rint", [](double x) { return std::floor(x) + 4 * std::rint(x); }, 0, 0},
  };
  for (std::size_t k = 0; k < std::size(functions); ++k) check(in, r, 12, k, functions[k]);
}

template <typename F>
float rounded(int mode, F f) {
  const int before = std::fegetround();
  std::fesetround(mode);
  volatile float result = f();
  std::fesetround(before);
  return result;
}

TEST_P(NumberKernels, DirectedRounding) {
  PLEXRL_LOAD_OR_SKIP("numbers");
  std::vector<float> a, b;
  for (int i = 0; i < 128; ++i) {
    a.push_back(static_cast<float>(std::sin(i * 0.9 + 0.1) * std::pow(10.0, i % 9 - 4)));
    b.push_back(static_cast<float>(std::cos(i * 1.7 + 0.2) * std::pow(10.0, i % 7 - 3)));
  }
  const auto out = device_.allocate(128 * 16 * 4);
  expect_ok("rounding", {{1}, {128}},
            Arguments().add(device_.upload(a)).add(device_.upload(b)).add(out));
  const auto r = device_.download<float>(out, 128 * 16);
  for (std::size_t t = 0; t < 128; ++t) {
    volatile float x = a[t], y = b[t];
    volatile double wide = static_cast<double>(x) * 1.000000001;
    volatile S32 whole = std::bit_cast<S32>(a[t]);
    volatile U32 bits = std::bit_cast<U32>(b[t]);
    volatile float big = x * 1e9f;
    const float e[16] = {
        rounded(FE_TOWARDZERO, [&] { return x + y; }),
        rounded(FE_UPWARD, [&] { return x + y; }),
        rounded(FE_DOWNWARD, [&] { return x + y; }),
        rounded(FE_TOWARDZERO, [&] { return x * y; }),
        rounded(FE_TOWARDZERO, [&] { return std::fma(x, y, 1.0f); }),
        rounded(FE_DOWNWARD, [&] { return std::fma(x, y, 1.0f); }),
        rounded(FE_UPWARD, [&] { return x / y; }),
        rounded(FE_DOWNWARD, [&] { return std::sqrt(std::fabs(x)); }),
        rounded(FE_TOWARDZERO, [&] { return static_cast<float>(wide); }),
        rounded(FE_UPWARD, [&] { return static_cast<float>(wide); }),
        rounded(FE_TOWARDZERO, [&] { return static_cast<float>(whole); }),
        rounded(FE_UPWARD, [&] { return static_cast<float>(static_cast<S64>(bits)); }),
        std::rint(a[t]),
        std::ceil(a[t]),
        b[t] > 0 ? std::floor(b[t]) : 0.0f,
        static_cast<float>(static_cast<S64>(big))};
    for (int k = 0; k < 16; ++k)
      EXPECT_EQ(r[t * 16 + k], e[k]) << "value " << k << " of " << a[t] << ", " << b[t];
  }
}

}  // namespace
}  // namespace plexrl::simgpu::ptx
