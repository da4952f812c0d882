//===- Socket.cpp - Stream sockets that never block -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Every call is repeated when a signal interrupts it (EINTR).
//
//===------------------------------------------------------------------------------------------===//

#include "Control/Socket.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

using namespace commsched::runtime;

//===- Addresses --------------------------------------------------------------------------------===//

std::string SocketAddress::text() const {
  char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
  getnameinfo(reinterpret_cast<const sockaddr *>(&storage), length, host, sizeof(host), port, sizeof(port),
              NI_NUMERICHOST | NI_NUMERICSERV);
  bool isLong = storage.ss_family == AF_INET6;
  return (isLong ? "[" : "") + std::string(host) + (isLong ? "]:" : ":") + port;
}

bool SocketAddress::isLoopback() const {
  if (storage.ss_family == AF_INET) {
    constexpr uint32_t loopbackNet = 127;
    uint32_t address = ntohl(reinterpret_cast<const sockaddr_in *>(&storage)->sin_addr.s_addr);
    return address >> 24 == loopbackNet;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6 *>(&storage)->sin6_addr);
}

std::vector<SocketAddress> commsched::runtime::resolve(const std::string &host, uint16_t port, std::string &error) {
  addrinfo hints = {}, *list = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  std::vector<SocketAddress> result;
  int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code != 0) {
    error = code == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(code);
    return result;
  }
  for (addrinfo *entry = list; entry; entry = entry->ai_next) {
    if ((entry->ai_family != AF_INET && entry->ai_family != AF_INET6) || entry->ai_addrlen > sizeof(sockaddr_storage))
      continue;
    SocketAddress address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
    result.push_back(address);
  }
  freeaddrinfo(list);
  if (result.empty())
    error = "it has no address of IPv4 or IPv6";
  return result;
}

//===- Sockets ----------------------------------------------------------------------------------===//

Socket &Socket::operator=(Socket &&other) noexcept {
  if (this != &other) {
    close();
    descriptor = other.release();
  }
  return *this;
}

int Socket::release() {
  int result = descriptor;
  descriptor = -1;
  return result;
}

void Socket::close() {
  if (descriptor >= 0)
    ::close(release()); // the descriptor is gone also after EINTR
}

static bool makeNonBlocking(int descriptor) {
  int flags = fcntl(descriptor, F_GETFL);
  return flags >= 0 && fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) == 0 &&
         fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0;
}

static void sendAtOnce(int descriptor) {
  int on = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static Socket makeSocket(const SocketAddress &address, int &error) {
  Socket result(socket(address.storage.ss_family, SOCK_STREAM, 0));
  if (result.isOpen() && makeNonBlocking(result.get()))
    return result;
  error = errno;
  return Socket();
}

Socket Socket::listen(const SocketAddress &address, int &error) {
  Socket result = makeSocket(address, error);
  if (!result.isOpen())
    return result;
  int on = 1;
  // A job that has just ended leaves connections behind that would block the port for a minute. Two that listen at one
  // port are refused all the same.
  setsockopt(result.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.storage.ss_family == AF_INET6)
    setsockopt(result.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  if (bind(result.get(), reinterpret_cast<const sockaddr *>(&address.storage), address.length) == 0 &&
      ::listen(result.get(), SOMAXCONN) == 0)
    return result;
  error = errno;
  return Socket();
}

Socket Socket::connect(const SocketAddress &address, int &error) {
  Socket result = makeSocket(address, error);
  if (!result.isOpen())
    return result;
  sendAtOnce(result.get());
  // After EINTR the connection goes on being made, as with EINPROGRESS.
  if (::connect(result.get(), reinterpret_cast<const sockaddr *>(&address.storage), address.length) == 0 ||
      errno == EINPROGRESS || errno == EINTR)
    return result;
  error = errno;
  return Socket();
}

Socket Socket::accept() const {
  int made;
  do
    made = ::accept(descriptor, nullptr, nullptr);
  while (made < 0 && (errno == EINTR || errno == ECONNABORTED));
  Socket result(made);
  if (made >= 0 && !makeNonBlocking(made))
    return Socket();
  if (made >= 0)
    sendAtOnce(made);
  return result;
}

int Socket::connectError() const {
  int error = 0;
  socklen_t length = sizeof(error);
  return getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

void Socket::finishWriting() const { shutdown(descriptor, SHUT_WR); }

/// What a failed call comes to.
static Transfer judge() { return errno == EAGAIN || errno == EWOULDBLOCK ? Transfer::later : Transfer::closed; }

Transfer Socket::read(char *data, size_t size, size_t &read) const {
  read = 0;
  ssize_t count;
  do
    count = recv(descriptor, data, size, 0);
  while (count < 0 && errno == EINTR);
  if (count < 0)
    return judge();
  read = static_cast<size_t>(count);
  return count == 0 && size > 0 ? Transfer::closed : Transfer::done;
}

Transfer Socket::write(const char *data, size_t size, size_t &written) const {
  written = 0;
  ssize_t count;
  do
    count = send(descriptor, data, size, MSG_NOSIGNAL);
  while (count < 0 && errno == EINTR);
  if (count < 0)
    return judge();
  written = static_cast<size_t>(count);
  return Transfer::done;
}

//===- Waker ------------------------------------------------------------------------------------===//

bool Waker::open() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
    return false;
  reader = Socket(ends[0]);
  writer = Socket(ends[1]);
  return makeNonBlocking(ends[0]) && makeNonBlocking(ends[1]);
}

void Waker::wake() const {
  size_t written;
  char byte = 0;
  writer.write(&byte, 1, written); // where there is no room somebody has woken it already
}

void Waker::clear() const {
  char bytes[64];
  size_t count;
  while (reader.read(bytes, sizeof(bytes), count) == Transfer::done)
    ;
}
