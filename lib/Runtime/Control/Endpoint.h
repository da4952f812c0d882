//===- Endpoint.h - One rank of the control plane ---------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What a rank can do on the control plane. Rank 0 is a Server, every other rank is a Client.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_CONTROL_ENDPOINT_H
#define COMMSCHED_LIB_RUNTIME_CONTROL_ENDPOINT_H

#include "Control/Connection.h"
#include "Core/Launcher.h"

namespace commsched::runtime::control {
/// A silent connection gets a heartbeat after this time.
constexpr auto kHeartbeat = std::chrono::seconds(1);
/// After an error ranks wait this long at most for each other to hear of it.
constexpr auto kFarewell = std::chrono::seconds(2);

/// The times of a job. A rank whose process does not run, or whose machine is gone, is lost after `silence`, which is
/// at most the job's timeout.
struct Pace {
  Pace(int64_t timeoutNs, const MeetingPoint &point);
  std::chrono::nanoseconds timeout, start, heartbeat, silence;
};

class Endpoint {
public:
  /// A group of ranks that compare what they start.
  struct Group {
    Endpoint *endpoint;
    uint64_t number = 0;      ///< in the frames of a client
    void *ofEngine = nullptr; ///< on rank 0, the group of the threads job
  };

  virtual ~Endpoint() = default;
  /// Waits until every rank has come. On an error `text` says what is wrong, or who is missing.
  virtual int32_t open(std::string &text) = 0;
  virtual void close() = 0;

  // As in commrt_backend.
  virtual int32_t attach(const commrt_host *host, void *context) = 0;
  virtual void detach() = 0;
  virtual int32_t createGroup(const char *name, const int32_t *members, int32_t size, int32_t index, Group &group) = 0;
  virtual int32_t submit(const Group &group, commrt_work *work) = 0;
  virtual int32_t combine(void *value, int64_t bytes, commrt_combine_fn combine, int64_t timeoutNs,
                          std::string &text) = 0;
  virtual void abort(int32_t status, const char *message) = 0;
  virtual std::string describe() = 0;
};
} // namespace commsched::runtime::control

#endif // COMMSCHED_LIB_RUNTIME_CONTROL_ENDPOINT_H
