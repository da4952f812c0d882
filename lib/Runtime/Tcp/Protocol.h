//===- Protocol.h - The messages of the tcp backend -------------------------------------------===//
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
// the bytes that have arrived.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_TCP_PROTOCOL_H
#define COMMSCHED_LIB_RUNTIME_TCP_PROTOCOL_H

#include "CommSched/Runtime/Backend.h"
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace commsched::runtime::tcp {
using Bytes = std::vector<char>;

/// Memory for what may be large: where there is none, that is an error and not the end of the process.
class Block {
public:
  Block() = default;
  Block(Block &&other) noexcept : start(other.start), length(other.length) { other.forget(); }
  Block &operator=(Block &&other) noexcept {
    if (this != &other) {
      std::free(start);
      start = other.start;
      length = other.length;
      other.forget();
    }
    return *this;
  }
  ~Block() { std::free(start); }

  /// Keeps what is there; what is new has any contents. False if there is no memory.
  bool resize(size_t size);
  char *data() { return start; }
  const char *data() const { return start; }
  size_t size() const { return length; }

private:
  void forget() {
    start = nullptr;
    length = 0;
  }
  char *start = nullptr;
  size_t length = 0;
};

/// Appends numbers and texts.
class Writer {
public:
  explicit Writer(Bytes &bytes) : bytes(bytes) {}
  void number(uint64_t value, int width);
  void u32(uint32_t value) { number(value, 4); }
  void i32(int32_t value) { number(static_cast<uint32_t>(value), 4); }
  void i64(int64_t value) { number(static_cast<uint64_t>(value), 8); }
  void u64(uint64_t value) { number(value, 8); }
  void f64(double value);
  void text(std::string_view value);
  void raw(const void *data, size_t size);

private:
  Bytes &bytes;
};

/// Takes numbers and texts out. What lies beyond the end reads as zero or empty, and `isGood` is false from then on.
class Reader {
public:
  Reader(const char *data, size_t size) : data(data), left(size) {}
  explicit Reader(const Block &block) : Reader(block.data(), block.size()) {}
  uint64_t number(int width);
  uint32_t u32() { return static_cast<uint32_t>(number(4)); }
  int32_t i32() { return static_cast<int32_t>(u32()); }
  int64_t i64() { return static_cast<int64_t>(number(8)); }
  uint64_t u64() { return number(8); }
  double f64();
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

/// Version of the protocol together with that of the runtime's interface: structures of the core are sent, too.
constexpr uint32_t kVersion = (COMMRT_ABI_VERSION << 16) | 1;
/// Every greeting has this size, so a stranger learns nothing about the secret's length.
constexpr size_t kGreetingBytes = 448;

Block encodeGreeting(const Greeting &greeting);
/// False if the bytes are not a greeting at all. `size` is kGreetingBytes.
bool decodeGreeting(const char *data, Greeting &greeting);
/// Compares in a time that depends on neither of the two.
bool isSameSecret(const std::string &a, const std::string &b);

//===- Frames -----------------------------------------------------------------------------------===//

enum class Kind : uint32_t {
  // From rank 0.
  welcome = 1, ///< the greeting was accepted
  refuse,      ///< status, text: it was not
  begin,       ///< all ranks have come
  missing,     ///< text: who has not come yet
  completed,   ///< work, status, what the work writes
  failed,      ///< status, rank, text
  result,      ///< the combined value
  answer,      ///< number of the question, text
  // From the other ranks.
  group, ///< number, index, name, members
  submit,
  value, ///< this rank's value, to be combined
  abort, ///< status, text
  ask,   ///< number of the question, 0: who waits for what, 1: whose value is missing
  leave,
  // From both.
  heartbeat,
  last = heartbeat
};

constexpr size_t kHeaderBytes = 16;
/// Frames that carry no data of the application are at most this long.
constexpr uint64_t kLongestControl = 1 << 20;
/// No frame is longer: 2^44 bytes.
constexpr uint64_t kLongestData = uint64_t(1) << 44;

/// A frame whose body begins with what `body` holds and goes on with `size` bytes at `data`. Empty if there is no
/// memory.
Block encodeFrame(Kind kind, const Bytes &body = {}, const void *data = nullptr, size_t size = 0);
/// Takes a header apart. False if the kind is unknown or the length is not possible for it.
bool decodeHeader(const char *header, Kind &kind, uint64_t &length);

//===- Works ------------------------------------------------------------------------------------===//

/// The bytes that a member reads and writes in a work. False if the work is not possible: an unknown kind or type, a
/// negative count, a member that does not exist, a size beyond 2^44 bytes. O(members) for uneven splits, else constant.
bool sizeWork(const commrt_work &work, int32_t members, int32_t index, int64_t &inBytes, int64_t &outBytes);

/// A hash of everything that decides which bytes a collective touches, mixed into the fingerprint: works of ranks that
/// would not fit each other never match, whatever their senders say.
uint64_t sealFingerprint(const commrt_work &work);

/// The texts and counts that a work points to.
struct WorkParts {
  std::string group, location;
  std::vector<int64_t> sendCounts, recvCounts;
};
/// Everything but the memory.
void encodeWork(const commrt_work &work, int32_t members, Writer &writer);
/// False if it is not the work of a member of a group of that size. `work` points into `parts`.
bool decodeWork(Reader &reader, int32_t members, int32_t index, commrt_work &work, WorkParts &parts);
} // namespace commsched::runtime::tcp

#endif // COMMSCHED_LIB_RUNTIME_TCP_PROTOCOL_H
