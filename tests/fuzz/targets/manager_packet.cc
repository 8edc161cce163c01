// What a client may send to the node manager as one packet, whatever is in it: taken apart as it
// arrives from the socket, and read as each of the bodies that carry text.

#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "nodemgr/packet.h"

namespace {

using namespace plexrl;

template <std::size_t N>
void check_text(const char (&field)[N]) {
  const std::string text = nodemgr::field_text(field);
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (text.size() > N || std::any_of(text.begin(), text.end(), is_control)) std::abort();
}

void read_bodies(const nodemgr::Packet& packet) {
  if (wire::JobSubmit submit; packet.read(submit)) {
    check_text(submit.name);
    check_text(submit.team);
  }
  if (wire::Hello hello; packet.read(hello)) check_text(hello.command);
  if (wire::Error error; packet.read(error)) check_text(error.text);
  if (wire::Exclusive exclusive; packet.read(exclusive)) check_text(exclusive.reason);
  if (wire::NotDrained drained; packet.read(drained)) check_text(drained.obstacle);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  const nodemgr::ScopedFd client(ends[0]), manager(ends[1]);
  // An empty packet can't be told from the end of the connection.
  if (size == 0) return 0;
  if (::send(client.get(), data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  nodemgr::Packet packet;
  std::string why;
  switch (nodemgr::receive_packet(manager.get(), packet, why)) {
    case nodemgr::Received::kPacket:
      if (packet.body.size() + sizeof(wire::Header) != size || size > wire::kMaxPacketBytes) {
        std::abort();
      }
      read_bodies(packet);
      break;
    case nodemgr::Received::kMalformed:
      if (why.empty()) std::abort();
      break;
    default:
      std::abort();
  }
  return 0;
}
