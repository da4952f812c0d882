//===- MessageComparison.cpp - Compares the order of messages before anything can hang --------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A program announces what its messages depend on: its sends, receives and collectives in order, and its waits. All
// ranks gather a few words of each, if that is not too much, and every rank looks at all of them: first whether each
// message has both sides, then whether all can end (MessageReplay). All ranks find the same.
//
// By the runtime's rule messages match by their tag, and in order within one tag. Where a backend carries messages out
// on streams (nccl), those from one member to another have one order, whatever their tags; and where it carries out one
// group at a time, groups wait for each other as well.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Core.h"
#include "MessageReplay.h"
#include <algorithm>
#include <cstring>
#include <tuple>

using namespace commsched::runtime;

/// What all ranks gather, and that times the number of ranks; more steps are not compared.
static constexpr int64_t mostBytes = 16 << 20, mostBytesOfAll = 256 << 20;

namespace {
struct Text {
  char text[504];
};

struct MessageComparison {
  commrt_context *context;
  bool isOrdered = context->job->backend->flags & COMMRT_BACKEND_ORDERED;
  MessageLists lists = {};

  std::string describe(int64_t index) const;
  std::string fill(const commrt_message &message, MessageStep &step) const;
  std::string fillOwn();
  int32_t gather(int64_t most);
  int32_t pairUp();
  int32_t replay();
  int32_t report(size_t first, size_t second, const std::string &before, const std::string &between,
                 const std::string &after);
};
} // namespace

static constexpr const char *comparingMessages = "comparing messages";

std::string MessageComparison::describe(int64_t index) const {
  const commrt_message &message = context->messages[index];
  if (message.kind != COMMRT_SEND && message.kind != COMMRT_RECV)
    return describeSite({message.kind, message.dtype, message.count, message.group, message.location, 0});
  commrt_work work = {};
  work.kind = message.kind;
  work.dtype = message.dtype;
  work.count = message.count;
  work.group = message.group;
  work.location = message.location;
  work.peer = static_cast<int32_t>(message.peer);
  work.tag = message.tag;
  work.site = -1;
  return describeWork(work);
}

static uint64_t hashText(uint64_t hash, const std::string &text) {
  for (char c : text)
    hash = mix(hash, static_cast<unsigned char>(c));
  return hash;
}

/// An error text if a step cannot be one. A step on a rank that is in no subset stays empty.
std::string MessageComparison::fill(const commrt_message &message, MessageStep &step) const {
  auto index = &message - context->messages.data();
  if (message.kind == COMMRT_AWAIT) {
    bool isStart =
        message.awaited >= 0 && message.awaited < index && context->messages[message.awaited].kind != COMMRT_AWAIT;
    if (!isStart)
      return "commrt_program_messages: a wait for what is not a start before it";
    step.awaited = static_cast<int32_t>(message.awaited);
    step.stream = static_cast<int32_t>(message.stream);
    const auto &awaited = context->groups.find(context->messages[message.awaited].group);
    step.step = awaited->second->index < 0 ? Step::none : Step::await;
    return "";
  }
  auto found = context->groups.find(message.group ? message.group : "");
  if (message.kind < 0 || message.kind > COMMRT_BARRIER || found == context->groups.end())
    return "commrt_program_messages: a step of an unknown kind, or of a group that was not made";
  const commrt_group &group = *found->second;
  if (group.index < 0)
    return ""; // it starts nothing
  step.channel = mix(hashText(1, group.name), group.members[0]) | 1;
  step.tag = message.tag;
  step.count = message.kind == COMMRT_BARRIER ? -1 : message.count;
  step.dtype = message.dtype;
  step.batch = message.batch;
  step.stream = static_cast<int32_t>(message.stream);
  step.step = message.kind == COMMRT_SEND ? Step::send : message.kind == COMMRT_RECV ? Step::receive : Step::collective;
  if (!step.isMessage())
    return "";
  if (message.peer < 0 || message.peer >= static_cast<int64_t>(group.members.size()))
    return "commrt_program_messages: the peer is not a member: " + describe(index);
  int32_t peer = group.members[message.peer];
  step.from = step.step == Step::send ? context->rank : peer;
  step.to = step.step == Step::send ? peer : context->rank;
  return "";
}

std::string MessageComparison::fillOwn() {
  MessageStep *own = lists.steps.data() + context->rank * lists.perRank;
  for (const commrt_message &message : context->messages)
    if (std::string error = fill(message, *own++); !error.empty())
      return error;
  return "";
}

/// Each rank fills its own part; the others' are zero.
static void combineParts(void *lower, const void *higher, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i)
    static_cast<char *>(lower)[i] |= static_cast<const char *>(higher)[i];
}

/// Both texts, from the ranks that have the messages, in one message.
int32_t MessageComparison::report(size_t first, size_t second, const std::string &before, const std::string &between,
                                  const std::string &after) {
  Text texts[2] = {};
  size_t places[] = {first, second};
  for (int i = 0; i < 2; ++i) {
    if (places[i] == noPlace || lists.rankOf(places[i]) != context->rank)
      continue;
    copyText(describe(static_cast<int64_t>(places[i]) % lists.perRank), texts[i].text, sizeof(texts[i].text));
  }
  if (int32_t status = combineRanks(context, comparingMessages, texts, sizeof(texts), combineParts))
    return status;
  return fail(context, COMMRT_ERR_MISMATCH, before + texts[0].text + between + texts[1].text + after);
}

static bool isAlike(const MessageStep &a, const MessageStep &b) {
  return a.tag == b.tag && a.dtype == b.dtype && (a.count == b.count || a.count < 0 || b.count < 0);
}

/// The k-th send of a pair belongs to the k-th receive, of those with one tag if they have no common order.
int32_t MessageComparison::pairUp() {
  using Key = std::tuple<uint64_t, int32_t, int32_t, int64_t>;
  std::map<Key, std::pair<std::vector<size_t>, std::vector<size_t>>> pairs;
  for (size_t place = 0; place < lists.steps.size(); ++place) {
    const MessageStep &step = lists.steps[place];
    if (!step.isMessage())
      continue;
    auto &pair = pairs[{step.channel, step.from, step.to, isOrdered ? 0 : step.tag}];
    (step.step == Step::send ? pair.first : pair.second).push_back(place);
  }
  lists.partners.assign(lists.steps.size(), noPlace);
  for (auto &[key, pair] : pairs) {
    auto &[sends, receives] = pair;
    std::string sender = "rank " + std::to_string(std::get<1>(key)),
                receiver = "rank " + std::to_string(std::get<2>(key));
    for (size_t k = 0; k < std::max(sends.size(), receives.size()); ++k) {
      size_t send = k < sends.size() ? sends[k] : noPlace, receive = k < receives.size() ? receives[k] : noPlace;
      if (send == noPlace || receive == noPlace)
        return report(send, receive, "messages from " + sender + " to " + receiver + ": ",
                      send == noPlace ? sender + " has no message for " : " has no receive on " + receiver, "");
      if (!isAlike(lists.steps[send], lists.steps[receive]))
        return report(send, receive,
                      (isOrdered ? "messages between two members have one order on this backend, whatever their tags: "
                                   "message "
                                 : "messages of one tag between two members have one order: message ") +
                          std::to_string(k) + " from " + sender + " to " + receiver + " is ",
                      " there, and here ", isOrdered ? "; coalesce them, or bring them into one order" : "");
      lists.partners[send] = receive;
      lists.partners[receive] = send;
    }
  }
  return COMMRT_OK;
}

int32_t MessageComparison::replay() {
  const commrt_job &job = *context->job;
  bool isSerial = COMMRT_BACKEND_HAS(job.backend, is_serial) && job.backend->is_serial(job.state);
  std::optional<StuckSteps> found = replayMessages(lists, isSerial    ? Lanes::one
                                                          : isOrdered ? Lanes::ofGroups
                                                                      : Lanes::none);
  if (!found)
    return COMMRT_OK;
  int32_t rank = lists.rankOf(found->stuck), other = lists.rankOf(found->before);
  std::string name = "rank " + std::to_string(other), between, after;
  if (found->stuck == found->before)
    return report(found->stuck, noPlace, "on rank " + std::to_string(rank) + " ",
                  " is waited for before its other side is started", "");
  if (found->isLane) {
    between = rank == other ? " comes after " : " waits for a message of " + name + " that comes after ";
    const MessageStep &stuck = lists.steps[found->stuck], &before = lists.steps[found->before];
    bool isSameStream = stuck.channel == before.channel && stuck.isMessage() == before.isMessage();
    after = isSameStream ? " on the same stream: coalesce these"
                         : ", and this backend carries out one group at a time: bring them into one order";
  } else {
    between = rank == other ? " is started after a wait for " : " waits for " + name + ", which before waits for ";
  }
  return report(found->stuck, found->before,
                "messages wait for each other in a cycle: on rank " + std::to_string(rank) + " ", between, after);
}

int32_t MessageComparison::gather(int64_t most) {
  lists.perRank = most;
  int64_t ranks = context->job->ranks, room = std::min(mostBytes, mostBytesOfAll / ranks);
  if (most > room / static_cast<int64_t>(sizeof(MessageStep)) / ranks)
    return COMMRT_OK;
  lists.steps.resize(ranks * most);
  if (std::string error = fillOwn(); !error.empty())
    return fail(context, COMMRT_ERR_INVALID, error);
  if (int32_t status = combineRanks(context, comparingMessages, lists.steps.data(),
                                    static_cast<int64_t>(lists.steps.size() * sizeof(MessageStep)), combineParts))
    return status;
  if (int32_t status = pairUp())
    return status;
  return replay();
}

int32_t commsched::runtime::compareMessages(commrt_context *context, const MessageExtent &extent) {
  int32_t status = extent.announces && extent.most > 0 ? MessageComparison{context}.gather(extent.most) : COMMRT_OK;
  context->messages.clear();
  context->announcesMessages = false;
  return status;
}

int32_t commrt_program_messages(commrt_context *context, const commrt_message *messages, int64_t numMessages) {
  if (!context)
    return COMMRT_ERR_INVALID;
  if (int32_t status = latched(context))
    return status;
  if (numMessages < 0 || (numMessages > 0 && !messages))
    return fail(context, COMMRT_ERR_INVALID, "commrt_program_messages: the messages are NULL");
  context->announcesMessages = true;
  context->messages.assign(messages, messages + numMessages);
  return COMMRT_OK;
}

int32_t commrt_program_messages_packed(commrt_context *context, const int64_t *messages, int64_t numMessages,
                                       const char *strings) {
  if (!context)
    return COMMRT_ERR_INVALID;
  if (numMessages < 0 || (numMessages > 0 && (!messages || !strings)))
    return fail(context, COMMRT_ERR_INVALID, "commrt_program_messages_packed: the messages are NULL");
  std::vector<commrt_message> unpacked;
  for (int64_t i = 0; i < numMessages; ++i, messages += 10)
    unpacked.push_back({static_cast<int32_t>(messages[0]), static_cast<int32_t>(messages[1]), messages[2],
                        strings + messages[3], strings + messages[4], messages[5], messages[6], messages[7],
                        messages[8], messages[9]});
  return commrt_program_messages(context, unpacked.data(), numMessages);
}
