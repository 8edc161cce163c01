#pragma once

#include <string>

#include "interpose/handlers.h"
#include "shim/process.h"
#include "tests/unit/shim/process_fixture.h"

namespace plexrl::shim::testing {

/// A shared process some of whose memory stays in HBM.
class PinsTest : public ProcessTest {
 protected:
  CUmemGenericAllocationHandle create(std::size_t bytes) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(shim::cuMemCreate(&handle, bytes, &prop, 0), CUDA_SUCCESS);
    return handle;
  }
  CUresult export_dma_buf(CUdeviceptr address, std::size_t bytes) {
    int fd = -1;
    return shim::cuMemGetHandleForAddressRange(&fd, address, bytes,
                                               CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  }
  /// What is left in HBM when everything is asked to leave.
  std::size_t left_after_eviction(wire::Epoch epoch) {
    take_lease_back(epoch);
    const wire::Evicted evicted = evict(1024 * kMiB);
    EXPECT_EQ(evicted.failed, 0u);
    EXPECT_EQ(evicted.resident_bytes, 0u) << "pinned bytes are not the pager's to move";
    return driver_.used_bytes();
  }
  /// A question to the manager sends it; the agent, which may have been about to, is done after it.
  void tell_what_was_freed() {
    allocate(4 * kMiB);
    evict(0);
  }
  /// As the manager has it when all that was let go has reached it.
  std::uint64_t unpageable() {
    process_.devices.figures(0);  // a question, behind what was only told
    return manager_.unpageable();
  }
  std::string reasons() {
    std::string all;
    for (const char* reason : ranges().pin_reasons(0)) all += reason + std::string(";");
    return all;
  }
  void expect_pageable_again() {
    EXPECT_EQ(unpageable(), 0u);
    EXPECT_EQ(manager_.asked_to_unpin, 0) << "who gives back waits for nobody";
    EXPECT_EQ(reasons(), "");
    EXPECT_EQ(ranges().totals(0).pinned, 0u);
  }
};

}  // namespace plexrl::shim::testing
