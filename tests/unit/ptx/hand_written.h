#pragma once

#include <string>

/// PTX written by hand, for tests.
namespace plexrl::simgpu::ptx {

inline std::string with_header(const std::string& body) {
  return ".version 7.5\n.target sm_75\n.address_size 64\n" + body;
}

/// A kernel `k(.u64 in, .u64 out)` of one instruction list; %rd1 and %rd2 are this thread's 32-byte
/// slots.
inline std::string kernel(const std::string& body) {
  return with_header(R"(
.visible .entry k(.param .u64 in, .param .u64 out)
{
  .reg .pred %p<8>;
  .reg .b16 %h<8>;
  .reg .b32 %r<32>;
  .reg .f32 %f<32>;
  .reg .f64 %d<8>;
  .reg .b64 %rd<16>;
  ld.param.u64 %rd1, [in];
  ld.param.u64 %rd2, [out];
  mov.u32 %r0, %tid.x;
  mad.wide.u32 %rd1, %r0, 32, %rd1;
  mad.wide.u32 %rd2, %r0, 32, %rd2;
)" + body + "\n  ret;\n}\n");
}

}  // namespace plexrl::simgpu::ptx
