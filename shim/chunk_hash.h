#pragma once

#include <cstddef>
#include <cstdint>

/// The hash that tells whether a chunk still holds what its host copy holds: what it is, as PTX and
/// as a function of the host. Free of everything else, so that a simulated device can do natively
/// what a real one does by the PTX.
///
/// A level turns each block of 4 KiB into 32 bytes: four streams of NH over 32-bit words, each with
/// the key of the one before shifted by a pair of words (Toeplitz). NH is from Black, Halevi,
/// Krawczyk, Krovetz, Rogaway, "UMAC: Fast and Secure Message Authentication", CRYPTO '99: for two
/// different blocks of equal length all four streams agree with probability 2⁻¹²⁸ at most, over a
/// random key. The outputs of a level, with a key of its own, are hashed by the next until one
/// block is left, so two different chunks of equal size of at most kMostLevels levels collide with
/// probability kMostLevels · 2⁻¹²⁸ < 2⁻¹²⁵ at most. That holds for content that does not depend on
/// the key, which never leaves this process and the device memory of its context.
namespace plexrl::shim::chunk_hash {

inline constexpr std::size_t kBlockBytes = 4096;
inline constexpr std::size_t kStreams = 4;
inline constexpr std::size_t kOutBytes = 8 * kStreams;                      ///< of a block
inline constexpr std::size_t kKeyBytes = kBlockBytes + 8 * (kStreams - 1);  ///< of a level
inline constexpr int kMostLevels = 4;

/// Blocks of a level; the last one may be shorter.
constexpr std::size_t blocks(std::size_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes; }

/// What the kernel writes to `differs`.
struct Repeat {
  std::uint32_t differs;  ///< set to 1 when some word is not equal to the first; else left alone
  std::uint32_t first;    ///< the first word
};

/// Threads of a block of the grid; a warp hashes a block of the input.
inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kWarpsPerGridBlock = kThreads / 32;

/// One kernel, kName(in, bytes, key, out, differs), all of 64 bits: `bytes` a multiple of 8, `key`
/// of kKeyBytes, `out` of kOutBytes a block of the input, `differs` a Repeat's address or 0.
inline constexpr char kName[] = "plexrl_chunk_hash";
inline constexpr char kPtx[] = R"(.version 6.4
.target sm_60
.address_size 64

.visible .entry plexrl_chunk_hash(
  .param .u64 param_in,
  .param .u64 param_bytes,
  .param .u64 param_key,
  .param .u64 param_out,
  .param .u64 param_differs)
{
  .reg .pred %p<6>;
  .reg .b32 %r<40>;
  .reg .b64 %rd<24>;

  ld.param.u64 %rd1, [param_in];
  ld.param.u64 %rd2, [param_bytes];
  ld.param.u64 %rd3, [param_key];
  ld.param.u64 %rd4, [param_out];
  ld.param.u64 %rd5, [param_differs];
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd3, %rd3;
  cvta.to.global.u64 %rd4, %rd4;

  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  shr.u32 %r5, %r4, 5;
  and.b32 %r6, %r4, 31;
  mul.wide.u32 %rd6, %r5, 4096;
  setp.ge.u64 %p1, %rd6, %rd2;
  @%p1 bra DONE;

  ld.global.u32 %r7, [%rd1];
  add.u64 %rd7, %rd6, 4096;
  min.u64 %rd7, %rd7, %rd2;
  mul.wide.u32 %rd8, %r6, 8;
  add.u64 %rd6, %rd6, %rd8;
  add.u64 %rd3, %rd3, %rd8;
  mov.u64 %rd10, 0;
  mov.u64 %rd11, 0;
  mov.u64 %rd12, 0;
  mov.u64 %rd13, 0;
  mov.u32 %r8, 0;

PAIR:
  setp.ge.u64 %p2, %rd6, %rd7;
  @%p2 bra REDUCE;
  add.u64 %rd9, %rd1, %rd6;
  ld.global.v2.u32 {%r10, %r11}, [%rd9];
  xor.b32 %r12, %r10, %r7;
  xor.b32 %r13, %r11, %r7;
  or.b32 %r12, %r12, %r13;
  or.b32 %r8, %r8, %r12;
  ld.global.v2.u32 {%r14, %r15}, [%rd3];
  ld.global.v2.u32 {%r16, %r17}, [%rd3+8];
  ld.global.v2.u32 {%r18, %r19}, [%rd3+16];
  ld.global.v2.u32 {%r20, %r21}, [%rd3+24];
  add.u32 %r14, %r14, %r10;
  add.u32 %r15, %r15, %r11;
  mad.wide.u32 %rd10, %r14, %r15, %rd10;
  add.u32 %r16, %r16, %r10;
  add.u32 %r17, %r17, %r11;
  mad.wide.u32 %rd11, %r16, %r17, %rd11;
  add.u32 %r18, %r18, %r10;
  add.u32 %r19, %r19, %r11;
  mad.wide.u32 %rd12, %r18, %r19, %rd12;
  add.u32 %r20, %r20, %r10;
  add.u32 %r21, %r21, %r11;
  mad.wide.u32 %rd13, %r20, %r21, %rd13;
  add.u64 %rd6, %rd6, 256;
  add.u64 %rd3, %rd3, 256;
  bra PAIR;

REDUCE:
  bar.warp.sync 0xffffffff;
  mov.u32 %r22, 16;
FOLD:
  mov.b64 {%r23, %r24}, %rd10;
  shfl.sync.bfly.b32 %r23, %r23, %r22, 31, 0xffffffff;
  shfl.sync.bfly.b32 %r24, %r24, %r22, 31, 0xffffffff;
  mov.b64 %rd14, {%r23, %r24};
  add.u64 %rd10, %rd10, %rd14;
  mov.b64 {%r23, %r24}, %rd11;
  shfl.sync.bfly.b32 %r23, %r23, %r22, 31, 0xffffffff;
  shfl.sync.bfly.b32 %r24, %r24, %r22, 31, 0xffffffff;
  mov.b64 %rd14, {%r23, %r24};
  add.u64 %rd11, %rd11, %rd14;
  mov.b64 {%r23, %r24}, %rd12;
  shfl.sync.bfly.b32 %r23, %r23, %r22, 31, 0xffffffff;
  shfl.sync.bfly.b32 %r24, %r24, %r22, 31, 0xffffffff;
  mov.b64 %rd14, {%r23, %r24};
  add.u64 %rd12, %rd12, %rd14;
  mov.b64 {%r23, %r24}, %rd13;
  shfl.sync.bfly.b32 %r23, %r23, %r22, 31, 0xffffffff;
  shfl.sync.bfly.b32 %r24, %r24, %r22, 31, 0xffffffff;
  mov.b64 %rd14, {%r23, %r24};
  add.u64 %rd13, %rd13, %rd14;
  shfl.sync.bfly.b32 %r23, %r8, %r22, 31, 0xffffffff;
  or.b32 %r8, %r8, %r23;
  shr.u32 %r22, %r22, 1;
  setp.ne.u32 %p3, %r22, 0;
  @%p3 bra FOLD;

  setp.ne.u32 %p4, %r6, 0;
  @%p4 bra DONE;
  mul.wide.u32 %rd15, %r5, 32;
  add.u64 %rd4, %rd4, %rd15;
  st.global.v2.u64 [%rd4], {%rd10, %rd11};
  st.global.v2.u64 [%rd4+16], {%rd12, %rd13};
  setp.eq.u64 %p5, %rd5, 0;
  @%p5 bra DONE;
  cvta.to.global.u64 %rd5, %rd5;
  setp.eq.u32 %p1, %r5, 0;
  @%p1 st.global.u32 [%rd5+4], %r7;
  setp.eq.u32 %p2, %r8, 0;
  @%p2 bra DONE;
  mov.u32 %r25, 1;
  st.global.u32 [%rd5], %r25;

DONE:
  ret;
}
)";

/// One block, as the kernel hashes it: `bytes` at most kBlockBytes and a multiple of 8, `first` the
/// first word of the whole input. Returns whether some word differs from it.
bool hash_block(const std::byte* in, std::size_t bytes, const std::byte* key, std::uint32_t first,
                std::uint64_t (&out)[kStreams]) noexcept;

}  // namespace plexrl::shim::chunk_hash
