//===- MpiNeighbours.cpp - Liveness of the processes of other ranks --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Ranks exchange machine, pid namespace and pid, and each opens a pidfd (Linux 5.3) for every process that it can see.
// A pidfd keeps referring to its process after the pid has been reused.
//
//===------------------------------------------------------------------------------------------===//

#include "MpiNeighbours.h"
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace commsched::runtime;

MpiAddress MpiAddress::ofThisProcess() {
  MpiAddress address = {};
  gethostname(address.host, sizeof(address.host) - 1);
  if (int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC); file >= 0) {
    if (read(file, address.boot, sizeof(address.boot) - 1) < 0)
      address.boot[0] = 0;
    close(file);
  }
  struct stat info = {};
  if (stat("/proc/self/ns/pid", &info) == 0)
    address.pidNamespace = static_cast<int64_t>(info.st_ino);
  address.pid = getpid();
  return address;
}

static int openProcess(int64_t pid) {
#ifdef SYS_pidfd_open
  return static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
#else
  return -1;
#endif
}

/// Whether a pid denotes the same process for both.
static bool isVisible(const MpiAddress &from, const MpiAddress &other) {
  return from.boot[0] != 0 && std::memcmp(from.boot, other.boot, sizeof(from.boot)) == 0 &&
         std::memcmp(from.host, other.host, sizeof(from.host)) == 0 && from.pidNamespace != 0 &&
         from.pidNamespace == other.pidNamespace;
}

MpiNeighbours::MpiNeighbours(const std::vector<MpiAddress> &all, int rank) : handles(all.size(), -1) {
  for (size_t other = 0; other < all.size(); ++other)
    if (static_cast<int>(other) != rank && isVisible(all[rank], all[other]))
      handles[other] = openProcess(all[other].pid);
}

MpiNeighbours::~MpiNeighbours() {
  for (int handle : handles)
    if (handle >= 0)
      close(handle);
}

int32_t MpiNeighbours::findDead(const std::function<bool(int32_t)> &isExpected) const {
  std::vector<pollfd> queries;
  for (int handle : handles)
    queries.push_back({handle, POLLIN, 0}); // negative ones are skipped
  if (poll(queries.data(), queries.size(), 0) <= 0)
    return -1;
  for (size_t rank = 0; rank < queries.size(); ++rank)
    if ((queries[rank].revents & POLLIN) && !isExpected(static_cast<int32_t>(rank)))
      return static_cast<int32_t>(rank);
  return -1;
}

bool MpiNeighbours::isDead(int32_t rank) const {
  pollfd query = {handles[rank], POLLIN, 0};
  return handles[rank] >= 0 && poll(&query, 1, 0) > 0 && (query.revents & POLLIN);
}
