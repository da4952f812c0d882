//===- Protocol.h - The messages of the control plane -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A connection begins with one greeting of a fixed size, whose first part is the shared secret. After it both sides
// send frames: a kind, a length, and that many bytes. Numbers are little-endian. Whatever arrives is checked: lengths
// against what is there, numbers against their range. Nothing is allocated because a length says so; memory grows with
// the bytes that have arrived. No frame carries data of the application.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_CONTROL_PROTOCOL_H
#define COMMSCHED_LIB_RUNTIME_CONTROL_PROTOCOL_H

#include "CommSched/Runtime/Backend.h"
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace commsched::runtime::control {
using Bytes = std::vector<char>;

/// Appends numbers and texts.
class Writer {
public:
  explicit Writer(Bytes &bytes) : bytes(bytes) {}
  void number(uint64_t value, int width);
  void u32(uint32_t value) { number(value, 4); }
  void i32(int32_t value) { number(static_cast<uint32_t>(value), 4); }
  void u64(uint64_t value) { number(value, 8); }
  void text(std::string_view value);
  void raw(const void *data, size_t size);

private:
  Bytes &bytes;
};

/// Takes numbers and texts out. What lies beyond the end reads as zero or empty, and `isGood` is false from then on.
class Reader {
public:
  Reader(const char *data, size_t size) : data(data), left(size) {}
  explicit Reader(const Bytes &bytes) : Reader(bytes.data(), bytes.size()) {}
  uint64_t number(int width);
  uint32_t u32() { return static_cast<uint32_t>(number(4)); }
  int32_t i32() { return static_cast<int32_t>(u32()); }
  uint64_t u64() { return number(8); }
  std::string text();
  /// The next `size` bytes where they lie; NULL if they are not there.
  const char *raw(size_t size);
  size_t remaining() const { return left; }
  bool isGood() const { return good; }
  /// Everything was there, and nothing is left.
  bool isComplete() const { return good && left == 0; }

private:
  const char *data;
  size_t left;
  bool good = true;
};

//===- Greeting ---------------------------------------------------------------------------------===//

/// The first thing that a rank sends.
struct Greeting {
  std::string secret; ///< at most 256 bytes
  uint32_t version = 0;
  int32_t rank = -1, ranks = 0;
  std::string job; ///< cut to 159 bytes
};

/// Version of the protocol together with that of the runtime's interface: what the core combines is sent, too.
constexpr uint32_t kVersion = (COMMRT_ABI_VERSION << 16) | 2;
/// Every greeting has this size, so a stranger learns nothing about the secret's length.
constexpr size_t kGreetingBytes = 448;

Bytes encodeGreeting(const Greeting &greeting);
/// False if the bytes are not a greeting at all. `size` is kGreetingBytes.
bool decodeGreeting(const char *data, Greeting &greeting);
/// Compares in a time that depends on neither of the two.
bool isSameSecret(const std::string &a, const std::string &b);

//===- Frames -----------------------------------------------------------------------------------===//

enum class Kind : uint32_t {
  // From rank 0.
  waiting = 1, ///< text: the greeting was accepted, and these ranks have not come yet
  begin,       ///< all ranks have come
  completed,   ///< number of the start, status
  result,      ///< the combined value
  answer,      ///< number of the question, text
  // From the other ranks.
  group, ///< number, index, name, members
  start, ///< a start, to be compared with those of the group's other members
  value, ///< this rank's value, to be combined
  ask,   ///< number of the question, 0: who waits for what, 1: whose value is missing
  leave,
  // From both.
  failed, ///< status, the rank where it began, text; rank -1: rank 0 refuses the greeting
  heartbeat,
  last = heartbeat
};

constexpr size_t kHeaderBytes = 16;
/// No frame is longer. The largest values are the lists of messages that ranks compare, 16 MiB together.
constexpr uint64_t kLongestFrame = 1 << 30;

Bytes encodeFrame(Kind kind, const Bytes &body = {});
/// A frame of kind `failed`.
Bytes encodeFailure(int32_t status, int32_t rank, std::string_view text);
/// Takes a header apart. False if the kind is unknown or the frame is too long.
bool decodeHeader(const char *header, Kind &kind, uint64_t &length);

//===- Starts -----------------------------------------------------------------------------------===//

/// Whether a work moves no data, so that the control plane may compare it: a barrier, or an empty send or receive.
bool isComparison(const commrt_work &work);

/// Writes what is compared of a work, and its location, which is the text that messages show.
void encodeWork(const commrt_work &work, Writer &writer);
/// Returns false if what is there is not such a work in a group of `members` ranks, to the end of the frame. `work`
/// points into `location`.
bool decodeWork(Reader &reader, int32_t members, commrt_work &work, std::string &location);
} // namespace commsched::runtime::control

#endif // COMMSCHED_LIB_RUNTIME_CONTROL_PROTOCOL_H
