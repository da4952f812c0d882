//===- ControlProtocolTest.cpp - The messages of the control plane ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What is encoded comes back; what is cut, changed or impossible is refused and reads nothing beyond its end. Frames
// pass a socket in pieces of any size.
//
//===------------------------------------------------------------------------------------------===//

#include "Control/Connection.h"
#include "Control/Protocol.h"
#include <cstring>
#include <gtest/gtest.h>
#include <poll.h>
#include <random>
#include <sys/resource.h>
#include <sys/socket.h>

using namespace commsched::runtime;
using namespace commsched::runtime::control;

namespace {
constexpr int32_t kMembers = 4;

commrt_work workOf(int32_t kind) {
  commrt_work work = {};
  work.struct_size = sizeof(work);
  work.kind = kind;
  work.peer = 3;
  work.fingerprint = 0x0123456789abcdefull;
  work.injected = 1;
  work.location = "step.mlir:4:7";
  return work;
}

Bytes encoded(const commrt_work &work) {
  Bytes bytes;
  Writer writer(bytes);
  encodeWork(work, writer);
  return bytes;
}

bool decodes(const char *data, size_t size, commrt_work &work, std::string &location) {
  Reader reader(data, size);
  return decodeWork(reader, kMembers, work, location);
}

bool decodes(const commrt_work &given) {
  commrt_work work;
  std::string location;
  Bytes bytes = encoded(given);
  return decodes(bytes.data(), bytes.size(), work, location);
}

/// Tests that every field of a start comes back.
TEST(ControlProtocol, StartsComeBack) {
  for (int32_t kind : {COMMRT_BARRIER, COMMRT_SEND, COMMRT_RECV}) {
    commrt_work work = workOf(kind), back;
    std::string location;
    Bytes bytes = encoded(work);
    ASSERT_TRUE(decodes(bytes.data(), bytes.size(), back, location));
    EXPECT_EQ(encoded(back), bytes);
    EXPECT_EQ(back.kind, kind);
    EXPECT_EQ(back.peer, 3);
    EXPECT_EQ(back.injected, 1);
    EXPECT_EQ(back.fingerprint, work.fingerprint);
    EXPECT_EQ(back.count, 0);
    EXPECT_STREQ(back.location, "step.mlir:4:7");
  }
}

/// Tests that a start that would move data, or whose other side does not exist, is refused.
TEST(ControlProtocol, ImpossibleStarts) {
  for (int32_t kind : {-1, int(COMMRT_ALL_GATHER), int(COMMRT_ALL_REDUCE), int(COMMRT_PERMUTE), 12, 1000})
    EXPECT_FALSE(decodes(workOf(kind))) << kind;
  for (int32_t peer : {-1, kMembers, INT32_MIN, INT32_MAX}) {
    commrt_work work = workOf(COMMRT_SEND);
    work.peer = peer;
    EXPECT_FALSE(decodes(work)) << peer;
  }
  commrt_work work = workOf(COMMRT_RECV);
  EXPECT_TRUE(isComparison(work));
  work.count = 1;
  EXPECT_FALSE(isComparison(work));
}

/// Tests that no start is read from fewer bytes than it has, or from more. Each part is in memory of its own size, so
/// that a sanitizer sees a read beyond the end.
TEST(ControlProtocol, CutStarts) {
  Bytes bytes = encoded(workOf(COMMRT_SEND));
  commrt_work work;
  std::string location;
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::unique_ptr<char[]> part(new char[size]);
    std::memcpy(part.get(), bytes.data(), size);
    EXPECT_FALSE(decodes(part.get(), size, work, location)) << size;
  }
  bytes.push_back(0);
  EXPECT_FALSE(decodes(bytes.data(), bytes.size(), work, location));
}

/// Tests that changed bytes give either an error or a start of an existing member, never more.
TEST(ControlProtocol, ChangedStarts) {
  std::mt19937 random(1);
  int refused = 0, accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes = encoded(workOf(round % 2 ? COMMRT_SEND : COMMRT_BARRIER));
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    commrt_work work;
    std::string location;
    bool isRead = decodes(bytes.data(), bytes.size(), work, location);
    ++(isRead ? accepted : refused);
    if (isRead) {
      ASSERT_TRUE(isComparison(work));
      ASSERT_TRUE(work.kind == COMMRT_BARRIER || (work.peer >= 0 && work.peer < kMembers));
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 1000);
}

/// Tests greetings: what is sent comes back, all have one size, and other bytes are not taken for one.
TEST(ControlProtocol, Greetings) {
  for (const std::string &secret : {std::string(), std::string("s\0t", 3), std::string(256, 'x')}) {
    Bytes bytes = encodeGreeting({secret, kVersion, 3, 8, "job.7"});
    ASSERT_EQ(bytes.size(), kGreetingBytes);
    Greeting back;
    ASSERT_TRUE(decodeGreeting(bytes.data(), back));
    EXPECT_EQ(back.secret, secret);
    EXPECT_EQ(back.version, kVersion);
    EXPECT_EQ(back.rank, 3);
    EXPECT_EQ(back.ranks, 8);
    EXPECT_EQ(back.job, "job.7");
    bytes.data()[0] ^= 1;
    EXPECT_FALSE(decodeGreeting(bytes.data(), back));
  }
  // Lengths beyond their fields are cut.
  Bytes all(kGreetingBytes, '\xff');
  std::memcpy(all.data(), "COMMRT\r\n", 8);
  Greeting back;
  ASSERT_TRUE(decodeGreeting(all.data(), back));
  EXPECT_EQ(back.secret.size(), 256u);
}

/// Tests that only equal secrets are equal, also those of other lengths.
TEST(ControlProtocol, Secrets) {
  EXPECT_TRUE(isSameSecret("", ""));
  EXPECT_TRUE(isSameSecret("abc", "abc"));
  EXPECT_FALSE(isSameSecret("abc", ""));
  EXPECT_FALSE(isSameSecret("abc", "abd"));
  EXPECT_FALSE(isSameSecret("abc", std::string("abc\0", 4)));
  EXPECT_FALSE(isSameSecret(std::string(256, 'x'), std::string(255, 'x') + "y"));
}

/// Tests the limits of a frame's header.
TEST(ControlProtocol, Headers) {
  auto isGood = [](uint32_t kind, uint32_t zero, uint64_t length) {
    Bytes bytes;
    Writer writer(bytes);
    writer.u32(kind);
    writer.u32(zero);
    writer.u64(length);
    Kind read;
    uint64_t readLength;
    return decodeHeader(bytes.data(), read, readLength);
  };
  auto number = [](Kind kind) { return static_cast<uint32_t>(kind); };
  EXPECT_TRUE(isGood(number(Kind::heartbeat), 0, 0));
  EXPECT_TRUE(isGood(number(Kind::value), 0, kLongestFrame));
  EXPECT_FALSE(isGood(number(Kind::value), 0, kLongestFrame + 1));
  EXPECT_FALSE(isGood(number(Kind::value), 1, 0));
  EXPECT_FALSE(isGood(0, 0, 0));
  EXPECT_FALSE(isGood(number(Kind::last) + 1, 0, 0));
}

/// Two connected sockets.
struct Pair {
  Waker waker;
  int ends[2];
  Pair() {
    EXPECT_TRUE(waker.open());
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  }
};

/// Tests that frames of many sizes arrive whole and in order over a socket whose buffers are small, while both sides
/// read and write pieces.
TEST(ControlProtocol, FramesInPieces) {
  Pair pair;
  int small = 4096;
  for (int end : pair.ends)
    setsockopt(end, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
  Connection from(Socket(pair.ends[0]), pair.waker), to(Socket(pair.ends[1]), pair.waker);
  const size_t sizes[] = {0, 1, 15, 16, 17, 4096, 100'000, 3'000'000, 5};
  size_t expected = 0, got = 0;
  for (size_t size : sizes) {
    Bytes data(size);
    for (size_t i = 0; i < size; ++i)
      data[i] = static_cast<char>(i * 31 + size);
    from.post(encodeFrame(Kind::value, data));
    ++expected;
  }
  EXPECT_TRUE(from.wantsToWrite());
  auto take = [&](Kind kind, Bytes &body) {
    EXPECT_EQ(kind, Kind::value);
    EXPECT_EQ(body.size(), sizes[got]);
    for (size_t i = 0; i < body.size(); ++i)
      if (body.data()[i] != static_cast<char>(i * 31 + body.size())) {
        ADD_FAILURE() << "byte " << i << " of " << body.size();
        break;
      }
    ++got;
    return true;
  };
  while (got < expected) {
    from.flush();
    ASSERT_EQ(to.receive(take), Connection::Status::open);
  }
  EXPECT_TRUE(from.isFlushed());
}

/// Tests that memory is taken for what has arrived, not for what a header promises.
TEST(ControlProtocol, NoMemoryForPromises) {
  Pair pair;
  Socket writer(pair.ends[0]);
  Connection reader(Socket(pair.ends[1]), pair.waker);
  Bytes header;
  Writer words(header);
  words.u32(static_cast<uint32_t>(Kind::value));
  words.u32(0);
  words.u64(kLongestFrame);
  size_t written = 0;
  ASSERT_EQ(writer.write(header.data(), header.size(), written), Transfer::done);
  auto refuse = [](Kind, Bytes &) { return false; };
  auto mostMemory = [] {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  int64_t before = mostMemory(); // KiB
  EXPECT_EQ(reader.receive(refuse), Connection::Status::open);
  EXPECT_LT(mostMemory() - before, static_cast<int64_t>(kLongestFrame >> 11));
  writer.close();
  EXPECT_EQ(reader.receive(refuse), Connection::Status::closed);
}

/// Tests that a handler's refusal and a wrong header end the connection.
TEST(ControlProtocol, MalformedFrames) {
  for (bool isRefused : {true, false}) {
    Pair pair;
    Connection from(Socket(pair.ends[0]), pair.waker), to(Socket(pair.ends[1]), pair.waker);
    Bytes frame = encodeFrame(isRefused ? Kind::heartbeat : static_cast<Kind>(77));
    from.post(std::move(frame));
    int calls = 0;
    auto status = to.receive([&](Kind, Bytes &) { return ++calls < 0; });
    EXPECT_EQ(status, Connection::Status::malformed);
    EXPECT_EQ(calls, isRefused ? 1 : 0);
  }
}

/// Tests that posting to a connection whose other end is gone drops the frames and does not end the process.
TEST(ControlProtocol, PostsToNobody) {
  Pair pair;
  Connection from(Socket(pair.ends[0]), pair.waker);
  Socket(pair.ends[1]).close();
  for (int i = 0; i < 3; ++i)
    from.post(encodeFrame(Kind::heartbeat));
  EXPECT_TRUE(from.isFlushed());
}
} // namespace
