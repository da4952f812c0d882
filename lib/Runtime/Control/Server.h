//===- Server.h - Rank 0 of the control plane -------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Rank 0 listens, and every other rank holds one connection to it. The server plays the other ranks on a job of the
// threads backend: what a rank starts is submitted for it, without data. So the comparison of starts and its messages
// are those of threads.
//
// Threads: one thread polls all connections. Locks: upcalls of the threads job run under that job's mutex and take the
// server's, so the server never calls the job with its own mutex held.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_CONTROL_SERVER_H
#define COMMSCHED_LIB_RUNTIME_CONTROL_SERVER_H

#include "Control/Endpoint.h"
#include "Threads/ThreadsJob.h"
#include <condition_variable>
#include <map>
#include <memory>
#include <thread>

namespace commsched::runtime::control {
constexpr const char *kLeftBeforeCombining = "left before all ranks had compared schedules or ended the program";
constexpr const char *kDifferentCombinations = "some ranks compare schedules while others end the program";

class Server : public Endpoint {
public:
  Server(const Launch &launch, const MeetingPoint &point, const commrt_backend_config &config);

  /// Listens and waits until every rank has come.
  int32_t open(std::string &text) override;
  /// Waits until all others have left, at most the job's timeout, and ends.
  void close() override;
  int32_t attach(const commrt_host *host, void *context) override;
  void detach() override;
  int32_t createGroup(const char *name, const int32_t *members, int32_t size, int32_t index, Group &group) override;
  int32_t submit(const Group &group, commrt_work *work) override;
  int32_t combine(void *value, int64_t bytes, commrt_combine_fn combine, int64_t timeoutNs, std::string &text) override;
  void abort(int32_t status, const char *message) override;
  std::string describe() override;

private:
  /// A rank that has come.
  struct Member {
    Member(Server *server, int32_t rank, Socket socket)
        : server(server), rank(rank), connection(std::move(socket), server->waker) {}

    struct Group {
      void *handle;
      int32_t size;
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
    Bytes value;

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

  /// What another rank has started.
  struct RemoteWork {
    commrt_work base = {};
    Member *member;
    uint64_t number;
    std::string location;
  };

  /// A connection that has not said who it is.
  struct Stranger {
    Socket socket;
    Bytes greeting;
    Clock::time_point deadline;
  };

  // Rank 0's or the polling thread.
  int32_t listen(std::string &text);
  void raise(int32_t status, int32_t rank, const std::string &text);
  /// "rank 3, rank 5".
  std::string missingRanks() COMMRT_REQUIRES(mutex);
  /// "no word from rank 3 (has started nothing)".
  std::string missingValues();

  // The polling thread.
  void loop();
  void pollOnce();
  void acceptAll();
  void makeRoom();
  void readStranger(Stranger &stranger, bool hasData);
  void forgetClosedStrangers();
  void readStrangers(const std::vector<short> &events);
  void greet(Stranger &stranger);
  /// Why the rank cannot join; empty if it can.
  std::string whyRefused(const Greeting &greeting);
  void join(const Greeting &greeting, Socket socket);
  /// Stops listening and begins the job if every rank has come. Only between two rounds over the listeners and
  /// strangers, which it clears.
  void beginOnceComplete();
  void serve(Member &member);
  bool handle(Member &member, Kind kind, Bytes &body);
  bool handleGroup(Member &member, Reader &reader);
  bool handleStart(Member &member, Reader &reader);
  bool handleValue(Member &member, Bytes &body);
  void handleAsk(Member &member, Reader &reader);
  void handleLeave(Member &member);
  void lose(Member &member, const std::string &why);
  void tick();

  // Upcalls for a member's works.
  static void completeRemote(commrt_work *work, int32_t status, int64_t virtualEndNs);
  static void failRemote(void *context, int32_t status, int32_t rank, const char *message);
  static const commrt_host &remoteHost();

  const Launch launch;
  const MeetingPoint point;
  const commrt_backend_config config;
  const Pace pace;
  const commrt_backend &engine;
  ThreadsJob *job = nullptr;
  void *ownPeer = nullptr;

  Waker waker;
  std::thread thread;
  std::vector<Socket> listeners;
  std::string address; ///< where it listens, for messages
  std::vector<Stranger> strangers;
  Clock::time_point nextTick, lastPoll;

  Mutex mutex;
  std::condition_variable changed;
  /// By rank; rank 0 has none, nor has a rank that has not come. The polling thread alone changes it, with the mutex
  /// held, and reads it without.
  std::vector<std::unique_ptr<Member>> members;
  int32_t numCome COMMRT_GUARDED_BY(mutex) = 0;        ///< of the others
  int32_t numGone COMMRT_GUARDED_BY(mutex) = 0;        ///< that have left or are lost
  std::string refused COMMRT_GUARDED_BY(mutex);        ///< the last one that was, for the report of who is missing
  bool hasBegun COMMRT_GUARDED_BY(mutex) = false;      ///< every rank has come
  int32_t status COMMRT_GUARDED_BY(mutex) = COMMRT_OK; ///< of the first error
  int32_t errorRank COMMRT_GUARDED_BY(mutex) = -1;
  std::string errorText COMMRT_GUARDED_BY(mutex);
  bool stopping COMMRT_GUARDED_BY(mutex) = false;
  bool isCombining COMMRT_GUARDED_BY(mutex) = false; ///< rank 0 has given its value
  bool hasLeft COMMRT_GUARDED_BY(mutex) = false;     ///< rank 0 has
};
} // namespace commsched::runtime::control

#endif // COMMSCHED_LIB_RUNTIME_CONTROL_SERVER_H
