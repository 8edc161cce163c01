// Memory that any process can open (plexrl-run --export=real): a handle and a memory pool, opened
// by a process that is not part of the job. It reads the right bytes before and after switches of
// the job, and while the job is away; what it writes the job reads.
//
// `exported_memory hold FILE` exports, and then waits until FILE, a FIFO, has been written;
// `exported_memory refused` and `exported_memory refused-job` print what a stranger, and a process
// of another job, get that opens what this one exports.
#include <fcntl.h>

#include <string>

#include "tests/integration/programs/channel.h"
#include "tests/integration/programs/handles.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 4 << 20, kWords = kBytes / 4;

/// What the exporter has: memory of its own handle, and of a pool.
struct Exporter {
  Program program;
  CUmemGenericAllocationHandle handle = 0;
  CUmemoryPool pool = nullptr;
  CUdeviceptr mapped = 0, pooled = 0;

  Exporter() {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {program.device()}};
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CHECK(cuMemCreate(&handle, kBytes, &prop, 0));
    mapped = map_handle(program.device(), handle, kBytes);
    CHECK(cuMemsetD32(mapped, 5, kWords));
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = prop.location;
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CHECK(cuMemPoolCreate(&pool, &props));
    CHECK(cuMemAllocFromPoolAsync(&pooled, kBytes, pool, nullptr));
    CHECK(cuMemsetD32(pooled, 6, kWords));
    CHECK(cuCtxSynchronize());
  }
  void offer(Channel& channel) {
    int fd = -1;
    CHECK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    channel.send_fd(fd);
    close(fd);
    CHECK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    channel.send_fd(fd);
    close(fd);
    CUmemPoolPtrExportData data;
    CHECK(cuMemPoolExportPointer(&data, pooled));
    channel.send(data);
  }
  void mix(unsigned add) {
    for (const CUdeviceptr address : {mapped, pooled}) {
      launch(program.kernel("mix"), kWords, nullptr, address,
             static_cast<unsigned long long>(kWords), add);
    }
    CHECK(cuCtxSynchronize());
  }
  void print(const char* when) {
    print_device((std::string("job: handle ") + when).c_str(), mapped, kBytes);
    print_device((std::string("job: pool ") + when).c_str(), pooled, kBytes);
  }
  ~Exporter() {
    CHECK(cuMemUnmap(mapped, kBytes));
    CHECK(cuMemRelease(handle));
    CHECK(cuMemAddressFree(mapped, kBytes));
    CHECK(cuMemFree(pooled));
    CHECK(cuMemPoolDestroy(pool));
  }
};

std::vector<unsigned char> bytes_at(CUdeviceptr address) {
  std::vector<unsigned char> bytes(kBytes);
  CHECK(cuMemcpyDtoH(bytes.data(), address, kBytes));
  return bytes;
}

/// Opens both; does what it is told: p print, m mix, c compare with what it saw last, q quit.
int stranger(const char* socket) {
  Program program;
  Channel job(socket);
  int fd = job.receive_fd();
  CUmemGenericAllocationHandle handle;
  CHECK(cuMemImportFromShareableHandle(&handle, as_handle(fd),
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  const CUdeviceptr mapped = map_handle(program.device(), handle, kBytes);
  fd = job.receive_fd();
  CUmemoryPool pool;
  CHECK(cuMemPoolImportFromShareableHandle(&pool, as_handle(fd),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  close(fd);
  auto data = job.receive<CUmemPoolPtrExportData>();
  CUdeviceptr pooled;
  CHECK(cuMemPoolImportPointer(&pooled, pool, &data));
  std::vector<unsigned char> seen[2];
  bool is_same = true;
  for (char what = 'c'; what != 'q'; what = job.receive<char>()) {
    if (what == 'p') {
      print_device("stranger: handle", mapped, kBytes);
      print_device("stranger: pool", pooled, kBytes);
    }
    if (what == 'm') {
      for (const CUdeviceptr address : {mapped, pooled}) {
        launch(program.kernel("mix"), kWords, nullptr, address,
               static_cast<unsigned long long>(kWords), 100u);
      }
      CHECK(cuCtxSynchronize());
    }
    std::vector<unsigned char> now[2] = {bytes_at(mapped), bytes_at(pooled)};
    if (what == 'c' && !seen[0].empty() && (now[0] != seen[0] || now[1] != seen[1])) {
      is_same = false;
    }
    seen[0] = std::move(now[0]);
    seen[1] = std::move(now[1]);
    job.tell();
  }
  std::printf("stranger: what nobody wrote was %s\n", is_same ? "the same" : "DIFFERENT");
  CHECK(cuMemFree(pooled));
  CHECK(cuMemUnmap(mapped, kBytes));
  CHECK(cuMemRelease(handle));
  return 0;
}

int refused_stranger(const char* socket) {
  Program program;
  Channel job(socket);
  int fd = job.receive_fd();
  CUmemGenericAllocationHandle handle;
  std::printf("handle: %s\n",
              error_name(cuMemImportFromShareableHandle(&handle, as_handle(fd),
                                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
                  .c_str());
  fd = job.receive_fd();
  CUmemoryPool pool;
  std::printf("pool: %s\n",
              error_name(cuMemPoolImportFromShareableHandle(
                             &pool, as_handle(fd), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))
                  .c_str());
  std::fflush(stdout);
  return 0;
}

int export_and_hold(const char* fifo) {
  Exporter exporter;
  Channel nobody = Channel::to_nobody();
  exporter.offer(nobody);
  std::printf("exported\n");
  std::fflush(stdout);
  char byte = 0;
  const int fd = open(fifo, O_RDONLY);
  if (fd < 0 || read(fd, &byte, 1) != 1) return 1;
  exporter.print("at the end");
  return 0;
}

int export_to_the_refused(bool to_a_job) {
  setenv("PLEXRL_TEST_BALLAST", "65536", 1);
  Exporter exporter;
  Channel channel =
      Channel::to_stranger("refused-child", to_a_job ? getenv("PLEXRL_TEST_RUN") : nullptr);
  exporter.offer(channel);
  channel.join_child();
  return 0;
}

void tell(Channel& channel, char what) {
  std::fflush(stdout);
  channel.send(what);
  channel.wait();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "hold") return export_and_hold(argv[2]);
  if (role == "refused" || role == "refused-job") return export_to_the_refused(role != "refused");
  if (role != "") setenv("PLEXRL_TEST_BALLAST", "65536", 1);
  if (role == "stranger") return stranger(argv[2]);
  if (role == "refused-child") return refused_stranger(argv[2]);
  Exporter exporter;
  Channel channel = Channel::to_stranger("stranger");
  exporter.offer(channel);
  channel.wait();
  tell(channel, 'p');
  exporter.mix(1);
  tell(channel, 'p');
  // The stranger reads while the job is away, too.
  exporter.program.pause([&] { tell(channel, 'c'); });
  exporter.print("after a switch");
  tell(channel, 'p');
  tell(channel, 'm');
  exporter.print("of the stranger");
  exporter.mix(2);
  exporter.program.pause();
  tell(channel, 'p');
  exporter.print("at the end");
  channel.send('q');
  channel.join_child();
}
