//===- StreamProgramsTest.cpp - Programs on several streams --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Random programs by the calls that the lowering of `comm.stream` emits: computations, starts and waits on several
// streams, with an event only where nothing else orders two accesses. What they compute is compared with a loop over
// plain arrays. Over devices, a missing order is a wrong result or a data race.
//
//===------------------------------------------------------------------------------------------===//

#include "RuntimeTestSupport.h"
#include <array>
#include <memory>
#include <random>

using namespace commsched::test;

namespace {

constexpr int32_t streams = 4, buffers = 6;
constexpr int64_t elements = 96;

struct StreamStep {
  enum Kind { subtract, start, wait } kind = subtract;
  int32_t stream = 0;
  /// Buffers. Of a wait, those of its start.
  int32_t a = 0, b = 0, out = 0;
  /// Of a wait: the step that started the collective.
  int32_t source = -1;
};

/// The same program on every rank.
std::vector<StreamStep> randomProgram(unsigned seed) {
  std::mt19937 random(seed);
  auto below = [&](int32_t bound) { return static_cast<int32_t>(random() % bound); };
  std::vector<StreamStep> steps;
  std::vector<int32_t> inFlight;
  auto isFree = [&](int32_t buffer, bool toWrite) {
    for (int32_t id : inFlight)
      if (steps[id].out == buffer || (toWrite && steps[id].a == buffer))
        return false;
    return true;
  };
  auto wait = [&](size_t index) {
    int32_t id = inFlight[index];
    inFlight.erase(inFlight.begin() + static_cast<int64_t>(index));
    steps.push_back({StreamStep::wait, below(streams), steps[id].a, 0, steps[id].out, id});
  };
  for (int left = 10 + below(20); left > 0; --left) {
    StreamStep step;
    step.kind = below(3) == 0 ? StreamStep::start : StreamStep::subtract;
    step.stream = below(streams);
    step.a = below(buffers);
    step.b = below(buffers);
    step.out = below(buffers);
    if (!inFlight.empty() && below(3) == 0)
      wait(static_cast<size_t>(below(static_cast<int32_t>(inFlight.size()))));
    else if (step.a != step.out && step.b != step.out && isFree(step.a, false) && isFree(step.b, false) &&
             isFree(step.out, true)) {
      if (step.kind == StreamStep::start)
        inFlight.push_back(static_cast<int32_t>(steps.size()));
      steps.push_back(step);
    }
  }
  while (!inFlight.empty())
    wait(0);
  return steps;
}

float initial(int32_t rank, int32_t buffer, int64_t i) {
  return static_cast<float>((rank * 31 + buffer * 17 + i * 7) % 23) / 3;
}

/// By rank and buffer: what the program computes.
std::vector<std::vector<std::vector<float>>> expected(const std::vector<StreamStep> &steps, int32_t ranks) {
  std::vector<std::vector<std::vector<float>>> state(ranks);
  for (int32_t rank = 0; rank < ranks; ++rank)
    for (int32_t buffer = 0; buffer < buffers; ++buffer) {
      state[rank].emplace_back();
      for (int64_t i = 0; i < elements; ++i)
        state[rank][buffer].push_back(initial(rank, buffer, i));
    }
  for (const StreamStep &step : steps)
    for (int64_t i = 0; i < elements; ++i) {
      float most = state[0][step.a][i];
      for (int32_t rank = 0; rank < ranks; ++rank) {
        most = std::max(most, state[rank][step.a][i]);
        if (step.kind == StreamStep::subtract)
          state[rank][step.out][i] = state[rank][step.a][i] - state[rank][step.b][i];
      }
      for (int32_t rank = 0; rank < ranks && step.kind == StreamStep::start; ++rank)
        state[rank][step.out][i] = most;
    }
  return state;
}

/// Runs a program on one rank. Each stream knows up to which step the others have certainly come.
class Runner {
public:
  Runner(commrt_context *context, const std::vector<StreamStep> &steps) : context(context), steps(steps) {
    for (int32_t number = 0; number < streams; ++number) {
      EXPECT_EQ(commrt_stream_get(context, COMMRT_STREAM_COMPUTE, number, &lanes[number]), COMMRT_OK);
      known[number].fill(-1);
    }
    tokens.assign(steps.size(), nullptr);
    after.resize(steps.size());
    group = worldGroup(context);
  }

  void run(std::vector<std::unique_ptr<Memory<float>>> &memory) {
    commrt_event *entry = record(0);
    for (int32_t number = 1; number < streams; ++number)
      EXPECT_EQ(commrt_event_await(context, lanes[number], entry), COMMRT_OK);
    for (size_t id = 0; id < steps.size(); ++id)
      play(static_cast<int32_t>(id), memory);
    for (int32_t number = 1; number < streams; ++number)
      EXPECT_EQ(commrt_event_await(context, lanes[0], record(number)), COMMRT_OK);
    EXPECT_EQ(commrt_set_stream(context, nullptr), COMMRT_OK);
    for (commrt_event *event : events)
      commrt_event_release(event);
    for (commrt_token *token : tokens)
      commrt_token_release(token);
  }

  int32_t awaited = 0;

private:
  using Clock = std::array<int32_t, streams>;

  commrt_event *record(int32_t stream) {
    commrt_event *event = nullptr;
    EXPECT_EQ(commrt_event_record(context, lanes[stream], &event), COMMRT_OK);
    events.push_back(event);
    return event;
  }

  void join(int32_t stream, const Clock &other) {
    for (int32_t i = 0; i < streams; ++i)
      known[stream][i] = std::max(known[stream][i], other[i]);
  }

  /// Makes the stream wait for a step, unless it knows already.
  void need(int32_t stream, int32_t step) {
    if (step < 0 || steps[step].stream == stream || known[stream][steps[step].stream] >= step)
      return;
    EXPECT_EQ(commrt_event_await(context, lanes[stream], after[step].event), COMMRT_OK);
    join(stream, after[step].clock);
    ++awaited;
  }

  void play(int32_t id, std::vector<std::unique_ptr<Memory<float>>> &memory) {
    const StreamStep &step = steps[id];
    if (step.kind == StreamStep::wait) {
      EXPECT_EQ(commrt_wait(tokens[step.source], lanes[step.stream]), COMMRT_OK);
      join(step.stream, after[step.source].clock);
    } else {
      need(step.stream, writer[step.a]);
      need(step.stream, writer[step.out]);
      if (step.kind == StreamStep::subtract)
        need(step.stream, writer[step.b]);
      for (int32_t reader : readers[step.out])
        need(step.stream, reader);
      EXPECT_EQ(commrt_set_stream(context, lanes[step.stream]), COMMRT_OK);
    }
    if (step.kind == StreamStep::start) {
      EXPECT_EQ(commrt_all_reduce_start(group, memory[step.a]->data(), memory[step.out]->data(), elements, COMMRT_F32,
                                        COMMRT_MAX, 1, -1, &tokens[id]),
                COMMRT_OK);
    } else if (step.kind == StreamStep::subtract) {
      void *operands[] = {memory[step.a]->data(), memory[step.b]->data(), memory[step.out]->data()};
      const int64_t meta[] = {COMMRT_F32, 0, 1, elements, COMMRT_F32, 0, 1, elements, COMMRT_F32, 3, 1, elements, 0};
      EXPECT_EQ(commrt_compute(context, "aten.sub", 3, operands, meta, 0), COMMRT_OK);
    }
    known[step.stream][step.stream] = id;
    after[id].clock = known[step.stream];
    // A start has a token: nothing awaits an event after it.
    if (step.kind != StreamStep::start)
      after[id].event = record(step.stream);
    note(id);
  }

  /// What later steps have to wait for. A collective's accesses are over with its wait.
  void note(int32_t id) {
    const StreamStep &step = steps[id];
    if (step.kind == StreamStep::start)
      return;
    readers[step.a].push_back(id);
    if (step.kind == StreamStep::subtract)
      readers[step.b].push_back(id);
    writer[step.out] = id;
    readers[step.out].clear();
  }

  struct After {
    Clock clock;
    commrt_event *event = nullptr;
  };

  commrt_context *context;
  const std::vector<StreamStep> &steps;
  commrt_group *group = nullptr;
  std::array<commrt_stream *, streams> lanes;
  std::array<Clock, streams> known;
  std::vector<commrt_token *> tokens;
  std::vector<After> after;
  std::vector<commrt_event *> events;
  std::array<int32_t, buffers> writer = {-1, -1, -1, -1, -1, -1};
  std::array<std::vector<int32_t>, buffers> readers;
};

TEST(StreamPrograms, RandomProgramsComputeWhatALoopComputes) {
  constexpr int32_t ranks = 2;
  int32_t awaited = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    std::vector<StreamStep> steps = randomProgram(seed);
    auto values = expected(steps, ranks);
    expectAllOk(runRanks(ranks, RunOptions(), [&](commrt_context *context) {
      int32_t me = commrt_rank(context);
      std::vector<std::unique_ptr<Memory<float>>> memory;
      for (int32_t buffer = 0; buffer < buffers; ++buffer) {
        std::vector<float> start;
        for (int64_t i = 0; i < elements; ++i)
          start.push_back(initial(me, buffer, i));
        memory.push_back(std::make_unique<Memory<float>>(context, start));
      }
      Runner runner(context, steps);
      runner.run(memory);
      for (int32_t buffer = 0; buffer < buffers; ++buffer)
        EXPECT_EQ(memory[buffer]->values(), values[me][buffer]) << "seed " << seed << ", buffer " << buffer;
      if (me == 0)
        awaited += runner.awaited;
      EXPECT_EQ(commrt_program_end(context), COMMRT_OK);
    }));
  }
  EXPECT_GT(awaited, 50);
}

} // namespace
