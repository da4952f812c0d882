//===- Connection.h - Frames over one socket --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Any thread may post a frame, which is written at once as far as there is room; one thread, which polls, writes the
// rest and reads.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_CONTROL_CONNECTION_H
#define COMMSCHED_LIB_RUNTIME_CONTROL_CONNECTION_H

#include "Control/Protocol.h"
#include "Control/Socket.h"
#include "Core/Support/Guarded.h"
#include <chrono>
#include <deque>
#include <functional>

namespace commsched::runtime::control {
using Clock = std::chrono::steady_clock;

class Connection {
public:
  /// `waker` is that of the thread that polls; it lives longer than the connection.
  Connection(Socket socket, const Waker &waker) : socket(std::move(socket)), waker(waker) {}

  /// [any thread] Sends a frame of encodeFrame, or a greeting, after those posted before. Never waits. What is posted
  /// to a connection that is closed is dropped.
  void post(Bytes frame);
  /// [any thread] Nothing is left to be written.
  bool isFlushed();

  int get() const { return socket.get(); }
  /// What the polling thread has to ask for.
  bool wantsToWrite();
  /// Writes what there is room for.
  void flush();
  /// Ends this side's half once all is written.
  void finish() { socket.finishWriting(); }

  enum class Status { open, closed, malformed };
  using Handler = std::function<bool(Kind kind, Bytes &body)>;
  /// Reads what is there, at most a few megabytes, and calls the handler for each complete frame until one call returns
  /// false, which means that the frame was malformed.
  Status receive(const Handler &handler);

  Clock::time_point lastHeard = Clock::now(); ///< polling thread only

private:
  /// Reads the body up to `wanted` bytes; its memory grows with what arrives.
  Status fill(size_t wanted);

  Socket socket;
  const Waker &waker;
  Mutex mutex;
  std::deque<Bytes> outgoing COMMRT_GUARDED_BY(mutex);
  size_t written COMMRT_GUARDED_BY(mutex) = 0;    ///< of the first of them
  bool isBroken COMMRT_GUARDED_BY(mutex) = false; ///< writing failed; reading says why
  // Of the polling thread.
  Bytes header;
  Bytes body;
  size_t bodyRead = 0;
  void flushLocked() COMMRT_REQUIRES(mutex);
};
} // namespace commsched::runtime::control

#endif // COMMSCHED_LIB_RUNTIME_CONTROL_CONNECTION_H
