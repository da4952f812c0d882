//===- DroppedGreetingTest.cpp - A rank whose first connection rank 0 drops -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A rank that is dropped before its greeting is answered connects again. Its polling thread has then reported the end
// of the first connection, and must not mistake the second one for its own. The calls below replace those of the C
// library in this program, so that the polling thread stays between its report and its end until the rank's own thread
// waits for it. No clock decides about this order.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Runtime/Backend.h"
#include "Control/Protocol.h"
#include "Control/Socket.h"
#include <arpa/inet.h>
#include <atomic>
#include <cstdlib>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <map>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

using namespace commsched::runtime;
using namespace commsched::runtime::control;

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define COMMSCHED_STAGES_THREADS 0
#endif
#endif
#ifndef COMMSCHED_STAGES_THREADS
#define COMMSCHED_STAGES_THREADS 1
#endif

namespace {
std::atomic<bool> isStaged = false;
std::atomic<int> numJoins = 0;
/// This thread has finished a connection while the order was staged.
thread_local bool hasFinished = false;

template <typename Function> Function *original(const char *name) {
  return reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name));
}
[[maybe_unused]] void sleepFor(int milliseconds) { poll(nullptr, 0, milliseconds); }
} // namespace

#if COMMSCHED_STAGES_THREADS
/// The polling thread calls this before it reports the end of a connection. After the pause a heartbeat is due, so
/// that a thread that does not end after its report sends one.
extern "C" int shutdown(int descriptor, int how) {
  constexpr int longerThanHeartbeat = 1100; // milliseconds
  if (isStaged && numJoins == 0 && !hasFinished)
    sleepFor(longerThanHeartbeat);
  hasFinished = isStaged;
  return original<int(int, int)>("shutdown")(descriptor, how);
}

/// Keeps the polling thread after its report until another thread waits for its end.
extern "C" ssize_t send(int descriptor, const void *data, size_t size, int flags) {
  while (hasFinished && numJoins == 0)
    sleepFor(1);
  return original<ssize_t(int, const void *, size_t, int)>("send")(descriptor, data, size, flags);
}

extern "C" int pthread_join(pthread_t thread, void **result) {
  numJoins += isStaged;
  return original<int(pthread_t, void **)>("pthread_join")(thread, result);
}
#endif

namespace {
/// Drops the first rank that greets and begins the job with each later one.
class FirstRank {
public:
  FirstRank() : listener(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    socklen_t length = sizeof(address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto *any = reinterpret_cast<sockaddr *>(&address);
    isListening = bind(listener.get(), any, length) == 0 && getsockname(listener.get(), any, &length) == 0 &&
                  listen(listener.get(), SOMAXCONN) == 0;
    port = ntohs(address.sin_port);
    thread = std::thread([this] { serve(); });
  }

  /// Returns how many connections came.
  int stop() {
    original<int(int, int)>("shutdown")(listener.get(), SHUT_RDWR); // accept() fails from now on
    thread.join();
    return numCome;
  }

  bool isListening;
  uint16_t port;

private:
  void serve() {
    for (int made = accept(listener.get(), nullptr, nullptr); made >= 0;
         made = accept(listener.get(), nullptr, nullptr)) {
      Socket connection(made);
      char greeting[kGreetingBytes];
      recv(made, greeting, sizeof(greeting), MSG_WAITALL);
      if (++numCome == 1)
        continue;
      Bytes frame = encodeFrame(Kind::begin);
      size_t written = 0;
      connection.write(frame.data(), frame.size(), written);
      original<int(int, int)>("shutdown")(made, SHUT_WR);
      while (recv(made, greeting, sizeof(greeting), 0) > 0)
        ; // until the rank has ended its half
    }
  }

  Socket listener;
  int numCome = 0;
  std::thread thread;
};

/// Tests that the job begins on the second connection, and that there is no third one.
TEST(DroppedGreeting, BeginsOnTheNextConnection) {
#if !COMMSCHED_STAGES_THREADS
  GTEST_SKIP() << "the thread sanitizer has to see the calls that this test replaces";
#endif
  FirstRank first;
  ASSERT_TRUE(first.isListening);
  std::map<const char *, std::string> variables = {{"COMMRT_RANK", "1"},
                                                   {"COMMRT_SIZE", "2"},
                                                   {"MASTER_ADDR", "127.0.0.1"},
                                                   {"MASTER_PORT", std::to_string(first.port)}};
  for (auto &[name, value] : variables)
    setenv(name, value.c_str(), 1);
  const commrt_backend *control = nullptr;
  char message[1024] = "";
  ASSERT_EQ(commrt_backend_find("tcp", &control, message, sizeof(message)), COMMRT_OK) << message;
  commrt_backend_config config = {};
  config.struct_size = sizeof(config);
  config.workers = 1;
  config.timeout_ns = 3'600'000'000'000; // 1 h: no timeout ends this test
  void *job = nullptr;
  int32_t ranks = 0, rank = -1;
  isStaged = true;
  int32_t status = control->open(&config, &job, &ranks, &rank, message, sizeof(message));
  isStaged = false;
  EXPECT_EQ(status, COMMRT_OK) << message;
  if (status == COMMRT_OK)
    control->close(job);
  EXPECT_EQ(first.stop(), 2);
  for (auto &[name, value] : variables)
    unsetenv(name);
}
} // namespace
