//===- Socket.h - Stream sockets that never block ---------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What the control plane needs of POSIX sockets: addresses, listening, connecting, and reading and writing as much as
// is possible at once. Sockets are closed on exec, do not raise SIGPIPE, and send small messages at once.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_CONTROL_SOCKET_H
#define COMMSCHED_LIB_RUNTIME_CONTROL_SOCKET_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/socket.h>
#include <vector>

namespace commsched::runtime {
/// A numeric address with its port.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;
  /// "127.0.0.1:29500" or "[::1]:29500".
  std::string text() const;
  /// Whether only processes of this machine can reach it.
  bool isLoopback() const;
};

/// All addresses of a name, in the order of preference. On an error none, and `error` says why.
std::vector<SocketAddress> resolve(const std::string &host, uint16_t port, std::string &error);

/// What reading or writing without waiting came to.
enum class Transfer { done, later, closed };

/// Owns a descriptor.
class Socket {
public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor(descriptor) {}
  Socket(Socket &&other) noexcept : descriptor(other.release()) {}
  Socket &operator=(Socket &&other) noexcept;
  ~Socket() { close(); }

  /// Binds to this address only. Without a socket `error` is errno's value.
  static Socket listen(const SocketAddress &address, int &error);
  /// Begins to connect; writable when that has ended. Without a socket `error` is errno's value.
  static Socket connect(const SocketAddress &address, int &error);

  bool isOpen() const { return descriptor >= 0; }
  int get() const { return descriptor; }
  void close();
  /// The next connection, or no socket if there is none.
  Socket accept() const;
  /// errno's value for a connection that was begun; 0 if it stands.
  int connectError() const;
  /// Says that nothing more will be written.
  void finishWriting() const;

  /// Reads at most `size` bytes; `read` says how many. `later` if there are none now.
  Transfer read(char *data, size_t size, size_t &read) const;
  /// Writes at most `size` bytes; `written` says how many. `later` if there is no room now.
  Transfer write(const char *data, size_t size, size_t &written) const;

private:
  int release();
  int descriptor = -1;
};

/// Ends another thread's poll.
class Waker {
public:
  /// False if there are no descriptors left.
  bool open();
  void wake() const;
  void clear() const;
  int get() const { return reader.get(); }

private:
  Socket reader, writer;
};
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_CONTROL_SOCKET_H
