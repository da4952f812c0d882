//===- Client.h - Any rank but 0 of the control plane -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One connection to rank 0, which compares what is started there. One thread polls the connection; a start only posts a
// frame.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_CONTROL_CLIENT_H
#define COMMSCHED_LIB_RUNTIME_CONTROL_CLIENT_H

#include "Control/Endpoint.h"
#include <condition_variable>
#include <map>
#include <memory>
#include <thread>

namespace commsched::runtime::control {
class Client : public Endpoint {
public:
  Client(const Launch &launch, const MeetingPoint &point, const commrt_backend_config &config);

  /// Connects, again and again until the deadline, and waits until every rank has come.
  int32_t open(std::string &text) override;
  void close() override;
  int32_t attach(const commrt_host *host, void *context) override;
  void detach() override;
  int32_t createGroup(const char *name, const int32_t *members, int32_t size, int32_t index, Group &group) override;
  int32_t submit(const Group &group, commrt_work *work) override;
  int32_t combine(void *value, int64_t bytes, commrt_combine_fn combine, int64_t timeoutNs, std::string &text) override;
  void abort(int32_t status, const char *message) override;
  std::string describe() override;

private:
  enum class State { greeting, waiting, running };

  /// Tries the addresses until one takes the connection. Empty, or why not until the deadline.
  std::string connect(Clock::time_point deadline, Socket &socket);
  void greet(Socket socket, Clock::time_point deadline);
  bool forgetDropped(Clock::time_point deadline, Clock::duration &pause);
  /// Ends the job here. `rank` is where the error began.
  void fail(int32_t status, int32_t rank, const std::string &text, bool tells = true);
  /// Asks rank 0; empty if there is no answer in time.
  std::string ask(uint32_t about);
  /// "; rank 2 is in all_reduce ...", or empty if nothing is in flight.
  std::string whereabouts();

  // The polling thread.
  void loop();
  bool pollOnce();
  void tick();
  bool handle(Kind kind, Bytes &body);
  bool handleCompleted(Reader &reader);
  bool handleAnswer(Reader &reader);
  bool handleFailed(Reader &reader);

  const Launch launch;
  const MeetingPoint point;
  const Pace pace;

  Waker waker;
  std::unique_ptr<Connection> connection;
  std::string address; ///< of rank 0, for messages
  std::thread thread;
  Clock::time_point nextTick, lastPoll;
  uint64_t numGroups = 0, numWorks = 0; ///< of the rank's own thread

  Mutex mutex;
  std::condition_variable changed;
  State state COMMRT_GUARDED_BY(mutex) = State::greeting;
  std::string missing COMMRT_GUARDED_BY(mutex); ///< who has not come, as rank 0 said last
  int32_t status COMMRT_GUARDED_BY(mutex) = COMMRT_OK;
  int32_t errorRank COMMRT_GUARDED_BY(mutex) = -1;
  std::string errorText COMMRT_GUARDED_BY(mutex);
  const commrt_host *host COMMRT_GUARDED_BY(mutex) = nullptr;
  void *context COMMRT_GUARDED_BY(mutex) = nullptr;
  std::map<uint64_t, commrt_work *> works COMMRT_GUARDED_BY(mutex); ///< in flight, by number
  bool hasResult COMMRT_GUARDED_BY(mutex) = false;
  Bytes result COMMRT_GUARDED_BY(mutex);
  uint64_t numQuestions COMMRT_GUARDED_BY(mutex) = 0;
  std::map<uint64_t, std::string> answers COMMRT_GUARDED_BY(mutex);
  bool isOver COMMRT_GUARDED_BY(mutex) = false;    ///< the connection has ended
  bool isDropped COMMRT_GUARDED_BY(mutex) = false; ///< it ended before rank 0 had answered the greeting
  bool hasLeft COMMRT_GUARDED_BY(mutex) = false;
  bool stopping COMMRT_GUARDED_BY(mutex) = false;
};
} // namespace commsched::runtime::control

#endif // COMMSCHED_LIB_RUNTIME_CONTROL_CLIENT_H
