//===- ServerMember.h - State of another rank in the process of rank 0 -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A rank that has come: its connection, its part in the threads job, its groups, and its works with their memory.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_TCP_SERVERMEMBER_H
#define COMMSCHED_LIB_RUNTIME_TCP_SERVERMEMBER_H

#include "Tcp/Server.h"

namespace commsched::runtime::tcp {
constexpr const char *kLeftBeforeCombining = "left before all ranks had compared schedules or ended the program";
constexpr const char *kDifferentCombinations = "some ranks compare schedules while others end the program";

struct Server::Member {
  Member(Server *server, int32_t rank, Socket socket)
      : server(server), rank(rank), connection(std::move(socket), server->waker) {}

  struct Group {
    void *handle;
    int32_t size, index;
  };

  Server *server;
  const int32_t rank;
  Connection connection;
  void *peer = nullptr;             ///< in the threads job; null once it has left
  std::map<uint64_t, Group> groups; ///< polling thread
  bool isGone = false;              ///< its connection has ended; polling thread
  // Under the server's mutex.
  bool hasLeft = false;
  bool hasValue = false; ///< `value` is to be combined
  Block value;

  /// Takes the rank out of the threads job. The polling thread, or nobody else.
  void leaveEngine(const commrt_backend &engine) {
    if (!peer)
      return;
    engine.detach(peer);
    peer = nullptr;
    for (auto &[number, group] : groups)
      engine.group_destroy(group.handle);
    groups.clear();
  }
};

/// A work of another rank, with its memory.
struct Server::RemoteWork {
  commrt_work base = {};
  Member *member;
  uint64_t number;
  WorkParts parts;
  std::unique_ptr<char[]> in, out;
  int64_t outBytes = 0;
};
} // namespace commsched::runtime::tcp

#endif // COMMSCHED_LIB_RUNTIME_TCP_SERVERMEMBER_H
