//===- Connection.cpp - Frames over one socket ------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Partial reads and writes are the rule. One call of `receive` reads a bounded number of bytes, so that one busy rank
// does not keep the polling thread from the others.
//
//===------------------------------------------------------------------------------------------===//

#include "Control/Connection.h"
#include <algorithm>

using namespace commsched::runtime;
using namespace commsched::runtime::control;

/// Memory for a frame's body is taken in steps: at least this much, at most as much again as has arrived.
static constexpr size_t kLeastStep = 64 << 10;
/// What one call of `receive` reads at most, about.
static constexpr size_t kMostAtOnce = 8 << 20;

void Connection::flushLocked() {
  while (!outgoing.empty() && !isBroken) {
    const Bytes &frame = outgoing.front();
    size_t count = 0;
    switch (socket.write(frame.data() + written, frame.size() - written, count)) {
    case Transfer::later:
      return;
    case Transfer::closed:
      isBroken = true;
      break;
    case Transfer::done:
      written += count;
      break;
    }
    if (written == frame.size()) {
      outgoing.pop_front();
      written = 0;
    }
  }
  if (isBroken)
    outgoing.clear();
}

void Connection::post(Bytes frame) {
  Lock lock(mutex);
  if (isBroken)
    return;
  outgoing.push_back(std::move(frame));
  flushLocked();
  if (!outgoing.empty())
    waker.wake();
}

bool Connection::isFlushed() {
  Lock lock(mutex);
  return outgoing.empty();
}

bool Connection::wantsToWrite() { return !isFlushed(); }

void Connection::flush() {
  Lock lock(mutex);
  flushLocked();
}

Connection::Status Connection::fill(size_t wanted) {
  while (bodyRead < wanted) {
    if (bodyRead == body.size())
      body.resize(bodyRead + std::min(wanted - bodyRead, std::max(kLeastStep, bodyRead)));
    size_t count = 0;
    Transfer transfer = socket.read(body.data() + bodyRead, body.size() - bodyRead, count);
    if (transfer != Transfer::done)
      return transfer == Transfer::later ? Status::open : Status::closed;
    bodyRead += count;
  }
  return Status::open;
}

Connection::Status Connection::receive(const Handler &handler) {
  size_t total = 0;
  while (total < kMostAtOnce) {
    if (header.size() < kHeaderBytes) {
      char part[kHeaderBytes];
      size_t count = 0;
      Transfer transfer = socket.read(part, kHeaderBytes - header.size(), count);
      if (transfer != Transfer::done)
        return transfer == Transfer::later ? Status::open : Status::closed;
      lastHeard = Clock::now();
      header.insert(header.end(), part, part + count);
      if (header.size() < kHeaderBytes)
        continue;
    }
    Kind kind;
    uint64_t length = 0;
    if (!decodeHeader(header.data(), kind, length))
      return Status::malformed;
    size_t before = bodyRead;
    Status status = fill(length);
    total += kHeaderBytes + bodyRead - before;
    if (bodyRead > before)
      lastHeard = Clock::now();
    if (status != Status::open)
      return status;
    if (bodyRead < length)
      return Status::open;
    Bytes frame = std::move(body);
    body.clear();
    bodyRead = 0;
    header.clear();
    if (!handler(kind, frame))
      return Status::malformed;
  }
  return Status::open;
}
