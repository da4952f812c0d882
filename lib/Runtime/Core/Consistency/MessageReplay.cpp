//===- MessageReplay.cpp - Simulated exchange of the messages of all ranks -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Starts form batches that begin together. A batch begins when its rank has reached all of its starts and the batch
// before it on its lane has ended. It ends when everything that it meets has begun. Nothing that begins later can keep
// a batch from ending, so the order in which batches are looked at does not matter.
//
//===------------------------------------------------------------------------------------------===//

#include "MessageReplay.h"
#include <algorithm>
#include <map>
#include <tuple>

using namespace commsched::runtime;

namespace {
/// A message with both sides, or a collective with its members.
struct Meeting {
  std::vector<size_t> batches; ///< those that take part
  int64_t absent = 0;          ///< how many of them have not begun
};

struct Batch {
  std::vector<size_t> places, meetings;
  size_t before = noPlace, after = noPlace; ///< on the same lane
  size_t unreached = 0;                     ///< starts that the rank has not come to
  size_t open = 0;                          ///< meetings in which somebody is absent
  bool hasBegun = false, hasEnded = false;
  std::vector<size_t> waiting; ///< threads
};

/// What a rank does in order: everything, or what is on one stream.
struct Thread {
  std::vector<size_t> places;
  size_t next = 0;
};

class Replay {
public:
  Replay(const MessageLists &lists, Lanes kind) : lists(lists), kind(kind), hasLanes(kind != Lanes::none) {}

  std::optional<StuckSteps> run();

private:
  void makeBatches();
  void makeMeetings();
  size_t addBatch(size_t place);
  void arriveAt(Meeting &meeting, size_t index, size_t place);
  bool isEmpty(const MessageStep &step) const { return hasLanes && step.count == 0; }
  size_t awaitedBy(size_t place) const {
    return static_cast<size_t>(lists.rankOf(place) * lists.perRank + lists.steps[place].awaited);
  }

  void advance(size_t thread);
  void begin(size_t batch);
  void end(size_t batch);

  StuckSteps report(size_t place) const;
  StuckSteps holdUp(size_t place) const;
  StuckSteps delayOf(size_t stuck, size_t place) const;
  size_t openPlace(const Batch &batch) const;
  size_t absentIn(size_t place) const;

  const MessageLists &lists;
  Lanes kind;
  bool hasLanes;
  std::vector<Batch> batches;
  std::vector<Meeting> meetings;
  std::vector<Thread> threads;
  std::vector<size_t> batchOf, threadOf; ///< indexed by place
  std::vector<size_t> openThreads, openBatches;
};
} // namespace

size_t Replay::addBatch(size_t place) {
  batches.emplace_back();
  batches.back().places.push_back(place);
  return batches.size() - 1;
}

void Replay::makeBatches() {
  struct Lane {
    size_t last = noPlace;
    int64_t number = 0;
  };
  std::map<std::tuple<uint64_t, int32_t, bool>, Lane> lanes;    // by channel, rank, and whether it is for messages
  std::map<int32_t, size_t> newest;                             // of the one lane, by rank
  std::map<std::pair<int32_t, int32_t>, size_t> threadOfStream; // by rank and stream
  batchOf.assign(lists.steps.size(), noPlace);
  threadOf.assign(lists.steps.size(), noPlace);
  for (size_t place = 0; place < lists.steps.size(); ++place) {
    const MessageStep &step = lists.steps[place];
    if (step.step == Step::none)
      continue;
    int32_t rank = lists.rankOf(place);
    auto [thread, isNew] = threadOfStream.try_emplace({rank, hasLanes ? step.stream : 0}, threads.size());
    if (isNew)
      threads.emplace_back();
    threads[thread->second].places.push_back(place);
    threadOf[place] = thread->second;
    if (step.step == Step::await)
      continue;
    bool isOwn = step.isMessage() && step.from == step.to;
    if (!hasLanes || isOwn || isEmpty(step)) {
      batchOf[place] = addBatch(place);
    } else {
      Lane &lane = lanes[{step.channel, rank, step.isMessage()}];
      size_t &last = kind == Lanes::one ? newest.try_emplace(rank, noPlace).first->second : lane.last;
      if (lane.last != noPlace && step.isMessage() && lane.number == step.batch) {
        batches[lane.last].places.push_back(place);
        batchOf[place] = lane.last;
      } else {
        size_t batch = batchOf[place] = addBatch(place);
        batches[batch].before = last;
        if (last != noPlace)
          batches[last].after = batch;
        last = batch;
        lane = {batch, step.batch};
      }
    }
    ++batches[batchOf[place]].unreached;
  }
}

void Replay::arriveAt(Meeting &meeting, size_t index, size_t place) {
  meeting.batches.push_back(batchOf[place]);
  ++meeting.absent;
  batches[batchOf[place]].meetings.push_back(index);
  ++batches[batchOf[place]].open;
}

void Replay::makeMeetings() {
  std::map<std::pair<uint64_t, int32_t>, int64_t> started; // collectives, by channel and rank
  std::map<std::pair<uint64_t, int64_t>, size_t> ofNumber; // by channel and number of the collective
  for (size_t place = 0; place < lists.steps.size(); ++place) {
    const MessageStep &step = lists.steps[place];
    if (step.step == Step::send && !isEmpty(step)) {
      meetings.emplace_back();
      for (size_t side : {place, lists.partners[place]})
        arriveAt(meetings.back(), meetings.size() - 1, side);
    }
    if (step.step != Step::collective)
      continue;
    int64_t number = started[{step.channel, lists.rankOf(place)}]++;
    if (isEmpty(step))
      continue;
    auto [meeting, isNew] = ofNumber.try_emplace({step.channel, number}, meetings.size());
    if (isNew)
      meetings.emplace_back();
    arriveAt(meetings[meeting->second], meeting->second, place);
  }
}

void Replay::advance(size_t index) {
  Thread &thread = threads[index];
  for (; thread.next < thread.places.size(); ++thread.next) {
    size_t place = thread.places[thread.next];
    if (lists.steps[place].step == Step::await) {
      Batch &awaited = batches[batchOf[awaitedBy(place)]];
      if (awaited.hasEnded)
        continue;
      awaited.waiting.push_back(index);
      return;
    }
    if (--batches[batchOf[place]].unreached == 0)
      openBatches.push_back(batchOf[place]);
  }
}

void Replay::begin(size_t index) {
  Batch &batch = batches[index];
  if (batch.hasBegun || batch.unreached > 0 || (batch.before != noPlace && !batches[batch.before].hasEnded))
    return;
  batch.hasBegun = true;
  if (batch.open == 0)
    return end(index);
  for (size_t number : batch.meetings) {
    if (--meetings[number].absent > 0)
      continue;
    for (size_t member : meetings[number].batches)
      if (--batches[member].open == 0)
        end(member); // all members have begun
  }
}

void Replay::end(size_t index) {
  Batch &batch = batches[index];
  batch.hasEnded = true;
  openThreads.insert(openThreads.end(), batch.waiting.begin(), batch.waiting.end());
  if (batch.after != noPlace)
    openBatches.push_back(batch.after);
}

std::optional<StuckSteps> Replay::run() {
  makeBatches();
  makeMeetings();
  for (size_t thread = 0; thread < threads.size(); ++thread)
    openThreads.push_back(thread);
  while (!openThreads.empty() || !openBatches.empty()) {
    std::vector<size_t> &open = openBatches.empty() ? openThreads : openBatches;
    size_t index = open.back();
    open.pop_back();
    if (&open == &openThreads)
      advance(index);
    else
      begin(index);
  }
  for (size_t place = 0; place < batchOf.size(); ++place)
    if (batchOf[place] != noPlace && !batches[batchOf[place]].hasEnded)
      return report(place);
  return std::nullopt;
}

//===- What holds a start up -----------------------------------------------------------------===//

/// A step of the meeting of `place` whose batch has not begun; none if all have.
size_t Replay::absentIn(size_t place) const {
  const Batch &batch = batches[batchOf[place]];
  for (size_t number : batch.meetings) {
    const Meeting &meeting = meetings[number];
    auto absent = std::find_if(meeting.batches.begin(), meeting.batches.end(),
                               [&](size_t member) { return !batches[member].hasBegun; });
    if (absent == meeting.batches.end())
      continue;
    for (size_t other : batches[*absent].places) {
      const auto &numbers = batches[batchOf[other]].meetings;
      bool isPartner = !lists.steps[place].isMessage() || lists.partners[place] == other;
      if (isPartner && std::find(numbers.begin(), numbers.end(), number) != numbers.end())
        return other;
    }
  }
  return noPlace;
}

/// A step of a batch that has begun and not ended for which somebody is absent.
size_t Replay::openPlace(const Batch &batch) const {
  for (size_t place : batch.places)
    if (absentIn(place) != noPlace)
      return place;
  return batch.places.front();
}

/// Why the batch of `place` has not begun.
StuckSteps Replay::delayOf(size_t stuck, size_t place) const {
  const Batch &batch = batches[batchOf[place]];
  for (size_t start : batch.places) {
    const Thread &thread = threads[threadOf[start]];
    if (batch.unreached > 0 && thread.next < thread.places.size() && thread.places[thread.next] <= start)
      return {stuck, awaitedBy(thread.places[thread.next]), false};
  }
  const Batch &before = batches[batch.before];
  return {stuck, before.hasBegun ? openPlace(before) : before.places.front(), true};
}

/// The start that holds up one that never ends.
StuckSteps Replay::holdUp(size_t place) const {
  const Batch &batch = batches[batchOf[place]];
  if (!batch.hasBegun)
    return delayOf(place, place);
  // Another message of the batch may be the one that does not arrive.
  size_t open = absentIn(place) == noPlace ? openPlace(batch) : place;
  return delayOf(open, absentIn(open));
}

/// Follows what holds up what, until it comes round.
StuckSteps Replay::report(size_t place) const {
  std::vector<bool> seen(lists.steps.size());
  for (; !seen[place]; place = holdUp(place).before)
    seen[place] = true;
  StuckSteps best = holdUp(place);
  size_t first = place;
  for (StuckSteps next = best; next.before != first;) {
    next = holdUp(next.before);
    bool isBetter = lists.rankOf(next.stuck) != lists.rankOf(next.before) &&
                    (lists.rankOf(best.stuck) == lists.rankOf(best.before) || next.stuck < best.stuck);
    best = isBetter ? next : best;
  }
  return best;
}

std::optional<StuckSteps> commsched::runtime::replayMessages(const MessageLists &lists, Lanes kind) {
  return Replay(lists, kind).run();
}
