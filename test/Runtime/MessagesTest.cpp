//===- MessagesTest.cpp - Announced messages, compared before anything can hang ---------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A program whose ranks announce messages that do not fit together, or wait for each other in a cycle, is refused at
// its beginning. These tests run on every backend; on nccl messages have one order and are carried out on streams.
//
//===------------------------------------------------------------------------------------------===//

#include "RuntimeTestSupport.h"
#include <algorithm>

using namespace commsched::test;

namespace {
bool hasLanes() { return std::string(defaultBackend()) == "nccl"; }

/// Whether one group at a time is carried out, as before NCCL 2.26.
bool isSerial() {
  const char *version = std::getenv("NCCL_EMU_VERSION");
  return hasLanes() && version && std::atoi(version) < 22600;
}

/// One step of a program on one rank; the location is "RANK:INDEX".
struct Step {
  int32_t kind; ///< COMMRT_SEND, COMMRT_RECV, COMMRT_ALL_REDUCE or COMMRT_AWAIT
  int32_t peer = 0;
  int64_t tag = 0, batch = 0, stream = 0;
  int64_t awaited = 0;
  int64_t count = 1;

  bool isMessage() const { return kind == COMMRT_SEND || kind == COMMRT_RECV; }
};
using Steps = std::vector<Step>;
using Program = std::vector<Steps>; ///< indexed by rank

Step send(int32_t peer, int64_t tag = 0, int64_t batch = 0) { return {COMMRT_SEND, peer, tag, batch}; }
Step receive(int32_t peer, int64_t tag = 0, int64_t batch = 0) { return {COMMRT_RECV, peer, tag, batch}; }
Step sum(int64_t batch) { return {COMMRT_ALL_REDUCE, 0, 0, batch}; }
Step await(int64_t place) { return {COMMRT_AWAIT, 0, 0, 0, 0, place}; }

/// Announces the steps and begins a program.
int32_t announce(commrt_context *context, const Program &program) {
  int32_t me = commrt_rank(context);
  std::vector<std::string> locations;
  std::vector<commrt_message> messages;
  for (size_t i = 0; i < program[me].size(); ++i)
    locations.push_back("at " + std::to_string(me) + ":" + std::to_string(i));
  for (size_t i = 0; i < program[me].size(); ++i) {
    const Step &step = program[me][i];
    messages.push_back({step.kind, COMMRT_F32, step.count, "world", locations[i].c_str(), step.peer, step.tag,
                        step.batch, step.stream, step.awaited});
  }
  commrt_program_messages(context, messages.data(), static_cast<int64_t>(messages.size()));
  return commrt_program_begin(context, 0, nullptr, 0);
}

std::vector<RankResult> announceOnly(const Program &program) {
  return runRanks(static_cast<int32_t>(program.size()), {}, [&](commrt_context *context) {
    worldGroup(context);
    announce(context, program);
  });
}

/// Starts and waits as the steps say, then waits for what is left.
void carryOut(commrt_context *context, const Steps &steps) {
  commrt_group *group = worldGroup(context);
  Memory<float> data(context, static_cast<int64_t>(steps.size()) + 1, 0);
  std::vector<commrt_token *> tokens(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step &step = steps[i];
    commrt_stream *stream = nullptr;
    ASSERT_EQ(commrt_stream_get(context, COMMRT_STREAM_COMPUTE, static_cast<int32_t>(step.stream), &stream), COMMRT_OK);
    commrt_set_stream(context, stream);
    if (step.kind == COMMRT_SEND)
      commrt_send_start(group, data.data() + i, 1, COMMRT_F32, step.peer, step.tag, -1, &tokens[i]);
    else if (step.kind == COMMRT_RECV)
      commrt_recv_start(group, data.data() + i, 1, COMMRT_F32, step.peer, step.tag, -1, &tokens[i]);
    else if (step.kind == COMMRT_ALL_REDUCE)
      commrt_all_reduce_start(group, data.data() + i, data.data() + i, 1, COMMRT_F32, COMMRT_SUM, 1, -1, &tokens[i]);
    else if (tokens[step.awaited])
      commrt_wait(tokens[step.awaited], stream);
  }
  for (commrt_token *token : tokens)
    if (token)
      finishOnHost(token);
  commrt_program_end(context);
}

TEST(Messages, BothSidesAreCompared) {
  expectAllOk(announceOnly({{send(1, 0), send(1, 1)}, {receive(0, 0), receive(0, 1)}}));
  expectAllFailed(
      announceOnly({{send(1)}, {}}), COMMRT_ERR_MISMATCH,
      {"messages from rank 0 to rank 1: send of 1 x f32 on @world to member 1 (at 0:0) has no receive on rank 1"});
  expectAllFailed(announceOnly({{}, {send(1), receive(1), receive(0, 4)}}), COMMRT_ERR_MISMATCH,
                  {"rank 0 has no message for recv of 1 x f32 on @world from member 0 tag 4 (at 1:2)"});
  Step larger = send(1);
  larger.count = 2;
  expectAllFailed(announceOnly({{larger}, {receive(0)}}), COMMRT_ERR_MISMATCH,
                  {"send of 2 x f32 on @world to member 1 (at 0:0) there, and here recv of 1 x f32"});
  larger.count = -1; // only known at run time
  expectAllOk(announceOnly({{larger}, {receive(0)}}));
}

TEST(Messages, TagsHaveNoOrderButOnStreams) {
  auto results = announceOnly({{send(1, 0), send(1, 1)}, {receive(0, 1), receive(0, 0)}});
  if (hasLanes())
    expectAllFailed(results, COMMRT_ERR_MISMATCH,
                    {"have one order on this backend, whatever their tags: message 0 from rank 0 to rank 1 is send of "
                     "1 x f32 on @world to member 1 (at 0:0)",
                     "recv of 1 x f32 on @world from member 0 tag 1 (at 1:0)", "coalesce them"});
  else
    expectAllOk(results);
}

/// Each rank sends before it receives. On streams that runs in one batch, and not in two.
TEST(Messages, BatchesOfAStreamMayWaitForEachOther) {
  auto around = [](int32_t ranks, int64_t second) {
    Program all;
    for (int32_t rank = 0; rank < ranks; ++rank)
      all.push_back({send((rank + 1) % ranks), receive((rank + ranks - 1) % ranks, 0, second)});
    return all;
  };
  for (int32_t ranks : {2, 3, 5}) {
    expectAllOk(announceOnly(around(ranks, 0)));
    if (hasLanes())
      expectAllFailed(
          announceOnly(around(ranks, 1)), COMMRT_ERR_MISMATCH,
          {"messages wait for each other in a cycle: on rank 0 send of 1 x f32 on @world to member 1 (at 0:0) "
           "waits for a message of rank 1 that comes after send of 1 x f32",
           "(at 1:0) on the same stream: coalesce these"});
    else
      expectAllOk(announceOnly(around(ranks, 1)));
  }
  // One rank that receives first ends the circle.
  Program open = around(4, 1);
  std::swap(open[2][0], open[2][1]);
  std::swap(open[2][0].batch, open[2][1].batch);
  expectAllOk(announceOnly(open));
}

/// Waits between messages, and between messages and collectives.
TEST(Messages, WaitsInACycleAreRefused) {
  expectAllFailed(announceOnly({{send(1), await(0), receive(1, 0, 1)}, {send(0), await(0), receive(0, 0, 1)}}),
                  COMMRT_ERR_MISMATCH,
                  {"messages wait for each other in a cycle: on rank 0 send of 1 x f32 on @world to member 1 (at 0:0)",
                   "send of 1 x f32 on @world to member 0 (at 1:0)"});
  expectAllOk(announceOnly({{send(1), await(0), receive(1, 0, 1)}, {receive(0), await(0), send(0, 0, 1)}}));
  // A message that comes after a collective for one rank, and before it for the other.
  expectAllFailed(announceOnly({{send(1), await(0), sum(2)}, {sum(0), await(0), receive(0, 0, 1)}}),
                  COMMRT_ERR_MISMATCH,
                  {"on rank 0 send of 1 x f32 on @world to member 1 (at 0:0) waits for rank 1, which before waits for "
                   "all_reduce of 1 x f32 on @world"});
  expectAllOk(announceOnly({{send(1), await(0), sum(2)}, {receive(0), await(0), sum(2)}}));
  // A rank that lists no collectives is not waited for.
  expectAllOk(announceOnly({{send(1), await(0)}, {sum(0), await(0), receive(0, 0, 1)}}));
  expectAllFailed(announceOnly({{send(0), await(0), receive(0, 0, 1)}}), COMMRT_ERR_MISMATCH,
                  {"send of 1 x f32 on @world to member 0 (at 0:0) is waited for before its other side is started"});
}

TEST(Messages, WrongListsAreErrors) {
  auto refused = [](const Steps &steps) { return announceOnly({steps})[0]; };
  EXPECT_EQ(refused({await(0)}).status, COMMRT_ERR_INVALID);
  EXPECT_EQ(refused({send(0), receive(0), await(0), await(2)}).status, COMMRT_ERR_INVALID);
  EXPECT_EQ(refused({send(1)}).status, COMMRT_ERR_INVALID);
  EXPECT_EQ(refused({{COMMRT_BARRIER + 1}}).status, COMMRT_ERR_INVALID);
}

//===- Random programs -----------------------------------------------------------------------===//

class Random {
public:
  explicit Random(uint64_t seed) : state(seed) {}
  uint64_t operator()(uint64_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % below;
  }

private:
  uint64_t state;
};

/// Messages and collectives that fit together, with waits for some of them, mixed up on each rank.
Program makeProgram(Random &random, int32_t ranks) {
  Program all(ranks);
  for (int i = 0; i < 6; ++i) {
    if (random(4) == 0) {
      for (Steps &steps : all)
        steps.push_back(sum(0));
      continue;
    }
    auto from = static_cast<int32_t>(random(ranks)), to = static_cast<int32_t>((from + 1 + random(ranks - 1)) % ranks);
    all[from].push_back(send(to));
    all[to].push_back(receive(from));
  }
  for (Steps &steps : all) {
    // Both sides of a pair, and the collectives, keep their order.
    for (int round = 0; round < 2; ++round)
      for (size_t i = 0; i + 1 < steps.size(); ++i)
        if ((steps[i].peer != steps[i + 1].peer || steps[i].kind != steps[i + 1].kind) && random(2))
          std::swap(steps[i], steps[i + 1]);
    Steps mixed;
    std::vector<int64_t> open;
    int64_t batch = 0;
    for (Step step : steps) {
      step.stream = static_cast<int64_t>(random(4) == 0);
      batch += step.kind == COMMRT_ALL_REDUCE;
      step.batch = batch;
      batch += step.kind == COMMRT_ALL_REDUCE;
      open.push_back(static_cast<int64_t>(mixed.size()));
      mixed.push_back(step);
      while (!open.empty() && random(3) == 0) {
        size_t chosen = random(open.size());
        mixed.push_back(await(open[chosen]));
        mixed.back().stream = static_cast<int64_t>(random(4) == 0);
        open.erase(open.begin() + static_cast<int64_t>(chosen));
        ++batch;
      }
    }
    steps = mixed;
  }
  return all;
}

/// Whether the program ends: by the rules alone, each of which is applied to every step until nothing changes.
class Oracle {
public:
  explicit Oracle(const Program &program) : program(program), reached(program.size()), begun(program.size()) {
    for (size_t rank = 0; rank < program.size(); ++rank) {
      reached[rank].resize(program[rank].size());
      begun[rank].resize(program[rank].size());
    }
  }

  bool ends() {
    for (bool isChanged = true; isChanged;) {
      isChanged = false;
      for (size_t rank = 0; rank < program.size(); ++rank)
        for (size_t i = 0; i < program[rank].size(); ++i) {
          isChanged |= !reached[rank][i] && isReached(rank, i) && (reached[rank][i] = true);
          isChanged |= !begun[rank][i] && hasBegun(rank, i) && (begun[rank][i] = true);
        }
    }
    for (size_t rank = 0; rank < program.size(); ++rank)
      for (size_t i = 0; i < program[rank].size(); ++i)
        if (program[rank][i].kind == COMMRT_AWAIT ? !reached[rank][i] : !hasEnded(rank, i))
          return false;
    return true;
  }

private:
  using Flags = std::vector<std::vector<bool>>; // by rank and index

  bool isOnLane(size_t rank, size_t i, size_t j) const {
    return program[rank][j].kind != COMMRT_AWAIT &&
           (isSerial() || program[rank][i].isMessage() == program[rank][j].isMessage());
  }
  bool isReached(size_t rank, size_t i) const {
    for (size_t j = 0; j < i; ++j)
      if (!reached[rank][j] && (!hasLanes() || program[rank][j].stream == program[rank][i].stream))
        return false;
    return program[rank][i].kind != COMMRT_AWAIT || hasEnded(rank, program[rank][i].awaited);
  }
  bool hasBegun(size_t rank, size_t i) const {
    if (program[rank][i].kind == COMMRT_AWAIT || !reached[rank][i])
      return false;
    for (size_t j = 0; hasLanes() && j < program[rank].size(); ++j) {
      if (!isOnLane(rank, i, j))
        continue;
      bool isSameBatch = program[rank][i].isMessage() && program[rank][i].batch == program[rank][j].batch;
      if (isSameBatch ? !reached[rank][j] : j < i && !hasEnded(rank, j))
        return false;
    }
    return true;
  }
  /// The number of steps before it that are like it: the k-th send is received by the k-th receive.
  int64_t numberOf(size_t rank, size_t i) const {
    const Step &step = program[rank][i];
    return std::count_if(program[rank].begin(), program[rank].begin() + static_cast<int64_t>(i), [&](const Step &s) {
      return s.kind == step.kind && (!step.isMessage() || s.peer == step.peer);
    });
  }
  bool otherSidesHaveBegun(size_t rank, size_t i) const {
    const Step &step = program[rank][i];
    for (size_t other = 0; other < program.size(); ++other) {
      if (step.isMessage() && other != static_cast<size_t>(step.peer))
        continue;
      int32_t kind = step.kind == COMMRT_SEND ? COMMRT_RECV : step.kind == COMMRT_RECV ? COMMRT_SEND : step.kind;
      for (size_t j = 0; j < program[other].size(); ++j) {
        const Step &theirs = program[other][j];
        bool isOtherSide = theirs.kind == kind && (!step.isMessage() || theirs.peer == static_cast<int32_t>(rank)) &&
                           numberOf(other, j) == numberOf(rank, i);
        if (isOtherSide && !begun[other][j])
          return false;
      }
    }
    return true;
  }
  bool hasEnded(size_t rank, size_t i) const {
    for (size_t j = 0; j < program[rank].size(); ++j) {
      bool isSameBatch = hasLanes() && isOnLane(rank, i, j) && program[rank][i].isMessage() &&
                         program[rank][i].batch == program[rank][j].batch;
      if ((i == j || isSameBatch) && (!begun[rank][j] || !otherSidesHaveBegun(rank, j)))
        return false;
    }
    return true;
  }

  const Program &program;
  Flags reached, begun;
};

/// What is accepted runs, and what is refused cannot end by the rules.
TEST(Messages, VerdictsAreThoseOfTheRules) {
  Random random(12345);
  int accepted = 0, refused = 0, run = 0;
  for (int i = 0; i < 120; ++i) {
    Program program = makeProgram(random, 2 + static_cast<int32_t>(random(2)));
    RankResult verdict = announceOnly(program)[0];
    bool isGood = Oracle(program).ends();
    ++(isGood ? accepted : refused);
    ASSERT_EQ(verdict.status, isGood ? COMMRT_OK : COMMRT_ERR_MISMATCH) << "program " << i << ": " << verdict.message;
    if (isGood && run++ < 15)
      expectAllOk(runRanks(static_cast<int32_t>(program.size()), {},
                           [&](commrt_context *context) { carryOut(context, program[commrt_rank(context)]); }));
  }
  EXPECT_GE(accepted, 15);
  EXPECT_GE(refused, 15);
}
} // namespace
