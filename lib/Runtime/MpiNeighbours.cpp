//===- MpiNeighbours.cpp - Whether the processes of other ranks live -----------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// Ranks show each other machine, pid namespace and pid; each opens a pidfd (Linux 5.3) per process that it can see. A
// pidfd stays with its process also when the number is used again.
//
//===--------------------------------------------------------------------------------------------===//

#include "MpiNeighbours.h"
#include <cstring>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace commsched::runtime;

namespace {
struct Address {
  char host[256];
  int64_t pidNamespace, pid;
};
} // namespace

static Address ownAddress() {
  Address address = {};
  gethostname(address.host, sizeof(address.host) - 1);
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

MpiNeighbours::MpiNeighbours(MPI_Comm comm, int rank, int ranks) : handles(ranks, -1) {
  Address mine = ownAddress();
  std::vector<Address> all(ranks);
  if (MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, comm) != MPI_SUCCESS)
    return;
  for (int other = 0; other < ranks; ++other)
    if (other != rank && all[other].pidNamespace == mine.pidNamespace && mine.pidNamespace != 0 &&
        std::strcmp(all[other].host, mine.host) == 0)
      handles[other] = openProcess(all[other].pid);
}

MpiNeighbours::~MpiNeighbours() {
  for (int handle : handles)
    if (handle >= 0)
      close(handle);
}

int32_t MpiNeighbours::findDead() const {
  std::vector<pollfd> queries;
  for (int handle : handles)
    queries.push_back({handle, POLLIN, 0}); // negative ones are skipped
  if (poll(queries.data(), queries.size(), 0) <= 0)
    return -1;
  for (size_t rank = 0; rank < queries.size(); ++rank)
    if (queries[rank].revents & POLLIN)
      return static_cast<int32_t>(rank);
  return -1;
}

bool MpiNeighbours::isDead(int32_t rank) const {
  pollfd query = {handles[rank], POLLIN, 0};
  return handles[rank] >= 0 && poll(&query, 1, 0) > 0 && (query.revents & POLLIN);
}
