//===- NcclMatcher.cpp - Comparison of starts within one process -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Collectives are compared by their number within the group, messages by their number within a pair of members.
//
//===------------------------------------------------------------------------------------------===//

#include "NcclMatcher.h"
#include <algorithm>

using namespace commsched::runtime;

Meeting *Matcher::meetingOf(const std::string &name, const std::vector<int32_t> &members) {
  Lock lock(mutex);
  auto &meeting = meetings[{name, members}];
  if (!meeting) {
    meeting = std::make_unique<Meeting>();
    meeting->members = members;
    meeting->started.resize(members.size());
  }
  return meeting.get();
}

std::string Matcher::describe(const commrt_work &work) const {
  char text[1024] = "";
  host->describe(&work, text, sizeof(text));
  return text;
}

std::string Matcher::lastOf(int32_t rank) const {
  if (left[rank])
    return "left";
  return hasLast[rank] ? "last started " + describe(last[rank]) : "has started nothing";
}

Refusal Matcher::disagree(int32_t theirRank, const WorkCopy &theirs, int32_t rank, const commrt_work &mine) const {
  return {COMMRT_ERR_MISMATCH, rank,
          "rank " + std::to_string(theirRank) + " is in " + describe(theirs) + ", but rank " + std::to_string(rank) +
              " is in " + describe(mine)};
}

/// What the two do not agree on in an uneven exchange; empty if they do.
static std::string compareSplits(const Meeting &meeting, const Presented &from, size_t fromMember, const Presented &to,
                                 size_t toMember) {
  if (from.sends[toMember] == to.receives[fromMember])
    return "";
  return "rank " + std::to_string(meeting.members[fromMember]) + " sends " + std::to_string(from.sends[toMember]) +
         " elements to rank " + std::to_string(meeting.members[toMember]) + ", which expects " +
         std::to_string(to.receives[fromMember]);
}

Refusal Matcher::presentCollective(Meeting &meeting, int32_t member, const commrt_work &work) {
  int32_t rank = meeting.members[member];
  int64_t place = meeting.started[member]++ - meeting.firstOpen;
  if (place == static_cast<int64_t>(meeting.open.size()))
    meeting.open.emplace_back(meeting.members.size());
  auto &slot = meeting.open[place];
  auto mine = std::make_unique<Presented>();
  mine->work = WorkCopy(work);
  if (work.send_counts) {
    mine->sends.assign(work.send_counts, work.send_counts + slot.size());
    mine->receives.assign(work.recv_counts, work.recv_counts + slot.size());
  }
  for (size_t other = 0; other < slot.size(); ++other) {
    if (!slot[other]) {
      int32_t missing = meeting.members[other];
      if (left[missing] && static_cast<int32_t>(other) != member)
        return {COMMRT_ERR_PEER, missing, "left, but rank " + std::to_string(rank) + " is in " + describe(work)};
      continue;
    }
    const WorkCopy &theirs = slot[other]->work;
    if (theirs.fields.fingerprint != work.fingerprint || !theirs.fields.send_counts != !work.send_counts)
      return disagree(meeting.members[other], theirs, rank, work);
    if (!work.send_counts)
      continue;
    // The lower sender first, whoever came last.
    size_t low = std::min<size_t>(other, member), high = std::max<size_t>(other, member);
    const Presented &first = low == other ? *slot[other] : *mine, &second = low == other ? *mine : *slot[other];
    std::string text = compareSplits(meeting, first, low, second, high);
    if (text.empty())
      text = compareSplits(meeting, second, high, first, low);
    if (!text.empty())
      return {COMMRT_ERR_MISMATCH, rank, text + " in " + describe(work)};
  }
  slot[member] = std::move(mine);
  // Members present in order, so the first to be full is the oldest.
  auto isThere = [](const std::unique_ptr<Presented> &one) { return one != nullptr; };
  while (!meeting.open.empty() && std::all_of(meeting.open.front().begin(), meeting.open.front().end(), isThere)) {
    meeting.open.pop_front();
    ++meeting.firstOpen;
  }
  return {};
}

Refusal Matcher::presentMessage(Meeting &meeting, int32_t member, const commrt_work &work) {
  bool isSend = work.kind == COMMRT_SEND;
  int32_t rank = meeting.members[member], other = meeting.members[work.peer];
  auto &pair = meeting.pairs[isSend ? std::pair(member, work.peer) : std::pair(work.peer, member)];
  auto &mine = isSend ? pair.sends : pair.receives, &theirs = isSend ? pair.receives : pair.sends;
  if (theirs.empty()) {
    if (left[other] && other != rank)
      return {COMMRT_ERR_PEER, other, "left, but rank " + std::to_string(rank) + " is in " + describe(work)};
    mine.emplace_back(work);
    return {};
  }
  WorkCopy partner = theirs.front();
  theirs.pop_front();
  if (partner.fields.fingerprint == work.fingerprint && partner.fields.tag == work.tag)
    return {};
  Refusal refusal = disagree(other, partner, rank, work);
  if (partner.fields.tag != work.tag)
    refusal.text += "; messages between two members have one order over NCCL, whatever their tags: coalesce them";
  return refusal;
}

Refusal Matcher::present(Meeting &meeting, int32_t member, const commrt_work &work) {
  Lock lock(mutex);
  int32_t rank = meeting.members[member];
  last[rank] = WorkCopy(work);
  hasLast[rank] = true;
  bool isMessage = work.kind == COMMRT_SEND || work.kind == COMMRT_RECV;
  return isMessage ? presentMessage(meeting, member, work) : presentCollective(meeting, member, work);
}

Refusal Matcher::removeRank(int32_t rank) {
  Lock lock(mutex);
  left[rank] = true;
  for (auto &[key, meeting] : meetings) {
    auto found = std::find(meeting->members.begin(), meeting->members.end(), rank);
    if (found == meeting->members.end())
      continue;
    size_t own = found - meeting->members.begin();
    for (auto &slot : meeting->open)
      for (auto &there : slot)
        if (!slot[own] && there)
          return {COMMRT_ERR_PEER, rank, "left while others are in " + describe(there->work)};
    for (auto &[members, pair] : meeting->pairs) {
      bool isOther = members.first != members.second;
      if (isOther && members.second == static_cast<int32_t>(own) && !pair.sends.empty())
        return {COMMRT_ERR_PEER, rank, "left while others are in " + describe(pair.sends.front())};
      if (isOther && members.first == static_cast<int32_t>(own) && !pair.receives.empty())
        return {COMMRT_ERR_PEER, rank, "left while others are in " + describe(pair.receives.front())};
    }
  }
  return {};
}

std::string Matcher::describeMissing(int32_t rank) {
  constexpr int shown = 3, shownRanks = 4;
  std::string report;
  int count = 0;
  auto add = [&](const std::string &line) {
    if (count++ < shown)
      report += (report.empty() ? "" : "; ") + line;
  };
  Lock lock(mutex);
  for (auto &entry : meetings) {
    Meeting *meeting = entry.second.get();
    auto found = std::find(meeting->members.begin(), meeting->members.end(), rank);
    if (found == meeting->members.end())
      continue;
    auto own = static_cast<int32_t>(found - meeting->members.begin());
    for (auto &slot : meeting->open) {
      if (!slot[own])
        continue;
      std::string missing;
      int number = 0;
      for (size_t i = 0; i < slot.size(); ++i)
        if (!slot[i] && number++ < shownRanks)
          missing += (number > 1 ? ", rank " : "rank ") + std::to_string(meeting->members[i]) + " (" +
                     lastOf(meeting->members[i]) + ")";
      if (number > shownRanks)
        missing += " and " + std::to_string(number - shownRanks) + " more";
      add(describe(slot[own]->work) + " waits for " + missing);
    }
    for (auto &[members, pair] : meeting->pairs) {
      auto waitsFor = [&](const std::deque<WorkCopy> &open, int32_t other) {
        mutex.isHeld();
        if (!open.empty())
          add(describe(open.front()) + " waits for rank " + std::to_string(meeting->members[other]) + " (" +
              lastOf(meeting->members[other]) + ")");
      };
      if (members.first == own)
        waitsFor(pair.sends, members.second);
      if (members.second == own)
        waitsFor(pair.receives, members.first);
    }
  }
  if (count > shown)
    report += "; and " + std::to_string(count - shown) + " more";
  return report;
}
