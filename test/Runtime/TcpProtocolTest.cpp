//===- TcpProtocolTest.cpp - The messages of the tcp backend ----------------------------------===//
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

#include "Tcp/Connection.h"
#include "Tcp/Protocol.h"
#include <cstring>
#include <gtest/gtest.h>
#include <poll.h>
#include <random>
#include <sys/socket.h>

using namespace commsched::runtime;
using namespace commsched::runtime::tcp;

namespace {
constexpr int32_t kMembers = 4, kIndex = 1;

commrt_work workOf(int32_t kind, int64_t count = 10, int32_t dtype = COMMRT_F32) {
  commrt_work work = {};
  work.struct_size = sizeof(work);
  work.kind = kind;
  work.count = count;
  work.dtype = dtype;
  work.group = "dp";
  work.send_to = work.recv_from = -1;
  return work;
}

std::pair<int64_t, int64_t> bytesOf(const commrt_work &work, int32_t index = kIndex) {
  int64_t in = -1, out = -1;
  EXPECT_TRUE(sizeWork(work, kMembers, index, in, out)) << work.kind;
  return {in, out};
}

bool isPossible(const commrt_work &work) {
  int64_t in, out;
  return sizeWork(work, kMembers, kIndex, in, out);
}

using Sizes = std::pair<int64_t, int64_t>;

/// Tests how many bytes a member reads and writes in each kind of collective.
TEST(TcpProtocol, SizesOfWorks) {
  EXPECT_EQ(bytesOf(workOf(COMMRT_ALL_GATHER)), Sizes(40, 160));
  EXPECT_EQ(bytesOf(workOf(COMMRT_REDUCE_SCATTER)), Sizes(160, 40));
  EXPECT_EQ(bytesOf(workOf(COMMRT_ALL_REDUCE)), Sizes(40, 40));
  EXPECT_EQ(bytesOf(workOf(COMMRT_ALL_TO_ALL)), Sizes(160, 160));
  EXPECT_EQ(bytesOf(workOf(COMMRT_BARRIER, 0, -1)), Sizes(0, 0));
  commrt_work rooted = workOf(COMMRT_BROADCAST);
  rooted.root = 1;
  EXPECT_EQ(bytesOf(rooted), Sizes(40, 40));
  EXPECT_EQ(bytesOf(rooted, 0), Sizes(0, 40));
  rooted.kind = COMMRT_REDUCE;
  EXPECT_EQ(bytesOf(rooted), Sizes(40, 40));
  EXPECT_EQ(bytesOf(rooted, 0), Sizes(40, 0));
  rooted.kind = COMMRT_GATHER;
  EXPECT_EQ(bytesOf(rooted), Sizes(40, 160));
  EXPECT_EQ(bytesOf(rooted, 0), Sizes(40, 0));
  rooted.kind = COMMRT_SCATTER;
  EXPECT_EQ(bytesOf(rooted), Sizes(160, 40));
  EXPECT_EQ(bytesOf(rooted, 0), Sizes(0, 40));
  EXPECT_EQ(bytesOf(workOf(COMMRT_SEND)), Sizes(40, 0));
  EXPECT_EQ(bytesOf(workOf(COMMRT_RECV)), Sizes(0, 40));
  commrt_work permute = workOf(COMMRT_PERMUTE);
  EXPECT_EQ(bytesOf(permute), Sizes(0, 40));
  permute.send_to = 3;
  EXPECT_EQ(bytesOf(permute), Sizes(40, 40));
  commrt_work uneven = workOf(COMMRT_ALL_TO_ALL);
  const int64_t sent[] = {1, 2, 3, 4}, received[] = {0, 2, 0, 5};
  uneven.send_counts = sent;
  uneven.recv_counts = received;
  EXPECT_EQ(bytesOf(uneven), Sizes(40, 28));
}

/// Tests that works are refused whose sizes overflow or whose members do not exist.
TEST(TcpProtocol, ImpossibleWorks) {
  for (int32_t kind : {-1, 12, 1000})
    EXPECT_FALSE(isPossible(workOf(kind)));
  for (int32_t dtype : {-1, 13, 1000})
    EXPECT_FALSE(isPossible(workOf(COMMRT_ALL_REDUCE, 1, dtype)));
  for (int64_t count : {int64_t(-1), INT64_MIN, INT64_MAX, INT64_MAX / 4 + 1, int64_t(1) << 43})
    EXPECT_FALSE(isPossible(workOf(COMMRT_ALL_GATHER, count))) << count;
  for (int32_t bad : {-2, 4, INT32_MAX, INT32_MIN}) {
    commrt_work work = workOf(COMMRT_BROADCAST);
    work.root = bad;
    EXPECT_FALSE(isPossible(work));
    work = workOf(COMMRT_SEND);
    work.peer = bad;
    EXPECT_FALSE(isPossible(work));
    work = workOf(COMMRT_PERMUTE);
    work.send_to = bad;
    EXPECT_FALSE(isPossible(work));
    work = workOf(COMMRT_PERMUTE);
    work.recv_from = bad;
    EXPECT_FALSE(isPossible(work));
  }
  const int64_t negative[] = {1, -1, 1, 1}, large[] = {INT64_MAX, INT64_MAX, 1, 1}, good[] = {1, 1, 1, 1};
  for (const int64_t *bad : {negative, large, static_cast<const int64_t *>(nullptr)}) {
    commrt_work work = workOf(COMMRT_ALL_TO_ALL);
    work.send_counts = good;
    work.recv_counts = bad;
    EXPECT_FALSE(isPossible(work));
  }
  int64_t in, out;
  EXPECT_FALSE(sizeWork(workOf(COMMRT_ALL_REDUCE), kMembers, -1, in, out));
  EXPECT_FALSE(sizeWork(workOf(COMMRT_ALL_REDUCE), kMembers, kMembers, in, out));
}

Bytes encoded(const commrt_work &work) {
  Bytes bytes;
  Writer writer(bytes);
  encodeWork(work, kMembers, writer);
  return bytes;
}

bool decodes(const char *data, size_t size, commrt_work &work, WorkParts &parts) {
  Reader reader(data, size);
  return decodeWork(reader, kMembers, kIndex, work, parts) && reader.isComplete();
}

commrt_work fullWork(const int64_t *counts) {
  commrt_work work = workOf(COMMRT_ALL_TO_ALL, 7, COMMRT_BF16);
  work.reduction = COMMRT_MAX;
  work.scale = -0.25;
  work.tag = 1 << 20;
  work.site = 12;
  work.cost_ns = 345;
  work.delay_ns = 678;
  work.fingerprint = 0x0123456789abcdefull;
  work.injected = 1;
  work.one_shot = 1;
  work.location = "step.mlir:4:7";
  work.send_counts = work.recv_counts = counts;
  return work;
}

/// Tests that every field of a work comes back.
TEST(TcpProtocol, WorksComeBack) {
  const int64_t counts[] = {3, 0, 1, 1 << 20};
  commrt_work work = fullWork(counts), back;
  WorkParts parts;
  Bytes bytes = encoded(work);
  ASSERT_TRUE(decodes(bytes.data(), bytes.size(), back, parts));
  EXPECT_EQ(encoded(back), bytes);
  EXPECT_STREQ(back.group, "dp");
  EXPECT_STREQ(back.location, "step.mlir:4:7");
  EXPECT_EQ(back.fingerprint, work.fingerprint);
  EXPECT_EQ(back.scale, work.scale);
  EXPECT_EQ(back.send_counts[3], 1 << 20);
  EXPECT_EQ(sealFingerprint(back), sealFingerprint(work));
  commrt_work plain = workOf(COMMRT_BARRIER, 0, -1);
  bytes = encoded(plain);
  ASSERT_TRUE(decodes(bytes.data(), bytes.size(), back, parts));
  EXPECT_EQ(back.location, nullptr);
  EXPECT_EQ(back.send_counts, nullptr);
}

/// Tests that no work is read from fewer bytes than it has. Each part is in memory of its own size, so that a sanitizer
/// sees a read beyond the end.
TEST(TcpProtocol, CutWorks) {
  const int64_t counts[] = {3, 0, 1, 5};
  Bytes bytes = encoded(fullWork(counts));
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::unique_ptr<char[]> part(new char[size]);
    std::memcpy(part.get(), bytes.data(), size);
    commrt_work work;
    WorkParts parts;
    EXPECT_FALSE(decodes(part.get(), size, work, parts)) << size;
  }
}

/// Tests that changed bytes give either an error or a work of a possible size, never more.
TEST(TcpProtocol, ChangedWorks) {
  std::mt19937 random(1);
  const int64_t counts[] = {3, 0, 1, 5};
  int refused = 0, accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes = encoded(round % 2 ? fullWork(counts) : workOf(static_cast<int32_t>(round % 12)));
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    commrt_work work;
    WorkParts parts;
    int64_t in = 0, out = 0;
    bool isRead = decodes(bytes.data(), bytes.size(), work, parts);
    ++(isRead ? accepted : refused);
    if (isRead) {
      ASSERT_TRUE(sizeWork(work, kMembers, kIndex, in, out));
      ASSERT_LE(static_cast<uint64_t>(std::max(in, out)), kLongestData);
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 1000);
}

/// Tests that works do not match whose kinds, types, counts, reductions or roots differ, whatever fingerprint they
/// claim; a send and a receive of one size do match.
TEST(TcpProtocol, SealedFingerprints) {
  commrt_work work = workOf(COMMRT_REDUCE);
  auto differs = [&](auto change) {
    commrt_work other = work;
    change(other);
    return sealFingerprint(other) != sealFingerprint(work);
  };
  EXPECT_TRUE(differs([](commrt_work &other) { other.kind = COMMRT_GATHER; }));
  EXPECT_TRUE(differs([](commrt_work &other) { other.dtype = COMMRT_F64; }));
  EXPECT_TRUE(differs([](commrt_work &other) { other.count = 11; }));
  EXPECT_TRUE(differs([](commrt_work &other) { other.reduction = COMMRT_MAX; }));
  EXPECT_TRUE(differs([](commrt_work &other) { other.root = 1; }));
  EXPECT_TRUE(differs([](commrt_work &other) { other.fingerprint = 1; }));
  EXPECT_FALSE(differs([](commrt_work &other) { other.site = 5; }));
  EXPECT_EQ(sealFingerprint(workOf(COMMRT_SEND)), sealFingerprint(workOf(COMMRT_RECV)));
  EXPECT_NE(sealFingerprint(workOf(COMMRT_SEND, 9)), sealFingerprint(workOf(COMMRT_RECV)));
}

/// Tests greetings: what is sent comes back, all have one size, and other bytes are not taken for one.
TEST(TcpProtocol, Greetings) {
  for (const std::string &secret : {std::string(), std::string("s\0t", 3), std::string(256, 'x')}) {
    Block bytes = encodeGreeting({secret, kVersion, 3, 8, "job.7"});
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
TEST(TcpProtocol, Secrets) {
  EXPECT_TRUE(isSameSecret("", ""));
  EXPECT_TRUE(isSameSecret("abc", "abc"));
  EXPECT_FALSE(isSameSecret("abc", ""));
  EXPECT_FALSE(isSameSecret("abc", "abd"));
  EXPECT_FALSE(isSameSecret("abc", std::string("abc\0", 4)));
  EXPECT_FALSE(isSameSecret(std::string(256, 'x'), std::string(255, 'x') + "y"));
}

/// Tests the limits of a frame's header.
TEST(TcpProtocol, Headers) {
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
  EXPECT_TRUE(isGood(number(Kind::submit), 0, kLongestData));
  EXPECT_FALSE(isGood(number(Kind::submit), 0, kLongestData + 1));
  EXPECT_TRUE(isGood(number(Kind::abort), 0, kLongestControl));
  EXPECT_FALSE(isGood(number(Kind::abort), 0, kLongestControl + 1));
  EXPECT_FALSE(isGood(number(Kind::abort), 1, 0));
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
TEST(TcpProtocol, FramesInPieces) {
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
    from.post(encodeFrame(Kind::value, {}, data.data(), data.size()));
    ++expected;
  }
  EXPECT_TRUE(from.wantsToWrite());
  auto take = [&](Kind kind, Block &body) {
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
TEST(TcpProtocol, NoMemoryForPromises) {
  Pair pair;
  Socket writer(pair.ends[0]);
  Connection reader(Socket(pair.ends[1]), pair.waker);
  Bytes header;
  Writer words(header);
  words.u32(static_cast<uint32_t>(Kind::submit));
  words.u32(0);
  words.u64(kLongestData);
  size_t written = 0;
  ASSERT_EQ(writer.write(header.data(), header.size(), written), Transfer::done);
  auto refuse = [](Kind, Block &) { return false; };
  // 2^44 bytes are more than a machine has: a reader that took them would fail here.
  EXPECT_EQ(reader.receive(refuse), Connection::Status::open);
  writer.close();
  EXPECT_EQ(reader.receive(refuse), Connection::Status::closed);
}

/// Tests that a handler's refusal and a wrong header end the connection.
TEST(TcpProtocol, MalformedFrames) {
  for (bool isRefused : {true, false}) {
    Pair pair;
    Connection from(Socket(pair.ends[0]), pair.waker), to(Socket(pair.ends[1]), pair.waker);
    Block frame = encodeFrame(isRefused ? Kind::heartbeat : static_cast<Kind>(77));
    from.post(std::move(frame));
    int calls = 0;
    auto status = to.receive([&](Kind, Block &) { return ++calls < 0; });
    EXPECT_EQ(status, Connection::Status::malformed);
    EXPECT_EQ(calls, isRefused ? 1 : 0);
  }
}

/// Tests that posting to a connection whose other end is gone drops the frames and does not end the process.
TEST(TcpProtocol, PostsToNobody) {
  Pair pair;
  Connection from(Socket(pair.ends[0]), pair.waker);
  Socket(pair.ends[1]).close();
  for (int i = 0; i < 3; ++i)
    from.post(encodeFrame(Kind::heartbeat));
  EXPECT_TRUE(from.isFlushed());
}
} // namespace
