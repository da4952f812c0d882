//===- MessageComparison.cpp - Compares the order of messages before anything can hang --------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Over NCCL the messages from one member to another match in the order of their starts, and a message holds its stream
// until its peer comes. So both sides need one order, and the batches in which ranks put messages on their streams must
// not wait for each other in a cycle.
//
// All ranks gather a few words of each message, if that is not too much, and every rank looks at all of them: first at
// each pair of members, then by running the batches. Both take linear time, and all ranks find the same.
//
//===------------------------------------------------------------------------------------------===//

#include "Core.h"
#include <algorithm>
#include <cstring>

using namespace commsched::runtime;

/// What all ranks gather; more messages are not compared.
static constexpr int64_t mostBytes = 16 << 20;

namespace {
/// What ranks know of each other's messages.
struct Record {
  uint64_t channel; ///< the group and the subset, as a hash; 0: no message
  uint64_t content; ///< tag, type and count, as a hash
  int32_t from, to; ///< ranks
  int64_t batch;    ///< counted per channel
  int64_t isSend;   ///< otherwise it is a receive
};

/// What is compared before anything is gathered.
struct Extent {
  int64_t most;      ///< messages of a rank
  int64_t announces; ///< 1: every rank announces its messages
};

struct Text {
  char text[504];
};

/// The messages of one stream: those of a rank in one group.
struct Lane {
  std::vector<std::vector<size_t>> batches; ///< of places in the gathered records
  size_t done = 0;
};

struct Comparison {
  commrt_context *context;
  int64_t perRank = 0;
  std::vector<Record> records = {};                        ///< [rank][perRank]
  std::vector<size_t> partners = {};                       ///< by record: that of the other side
  std::map<std::pair<uint64_t, int32_t>, Lane> lanes = {}; ///< by channel and rank

  int32_t rankOf(size_t place) const { return static_cast<int32_t>(static_cast<int64_t>(place) / perRank); }
  std::string describe(int64_t index) const;
  std::string fillOwn();
  int32_t gather();
  int32_t pairUp();
  int32_t runBatches();
  int32_t report(size_t first, size_t second, const std::string &before, const std::string &between,
                 const std::string &after);
};
} // namespace

static constexpr const char *comparing = "comparing messages";
static constexpr size_t none = SIZE_MAX;

std::string Comparison::describe(int64_t index) const {
  const commrt_message &message = context->messages[index];
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

/// An error text if a message cannot be one.
std::string Comparison::fillOwn() {
  Record *own = records.data() + context->rank * perRank;
  std::map<uint64_t, std::pair<int64_t, int64_t>> batches; // by channel: the last one as announced, and as counted
  for (const commrt_message &message : context->messages) {
    auto found = context->groups.find(message.group ? message.group : "");
    if ((message.kind != COMMRT_SEND && message.kind != COMMRT_RECV) || found == context->groups.end())
      return "commrt_program_messages: a message of another kind, or of a group that was not made";
    const commrt_group &group = *found->second;
    if (group.index < 0)
      continue; // it starts nothing
    if (message.peer < 0 || message.peer >= static_cast<int64_t>(group.members.size()))
      return "commrt_program_messages: the peer is not a member: " + describe(&message - context->messages.data());
    int32_t peer = group.members[message.peer];
    if (peer == context->rank)
      continue; // no stream waits for it
    Record &record = *own++;
    record.isSend = message.kind == COMMRT_SEND;
    record.channel = mix(hashText(1, group.name), group.members[0]) | 1;
    record.content = mix(mix(mix(2, message.tag), message.dtype), message.count);
    record.from = record.isSend ? context->rank : peer;
    record.to = record.isSend ? peer : context->rank;
    auto [batch, isNew] = batches.try_emplace(record.channel, message.batch, 0);
    if (!isNew && batch->second.first != message.batch)
      batch->second = {message.batch, batch->second.second + 1};
    record.batch = batch->second.second;
  }
  return "";
}

static void combineExtents(void *lower, const void *higher, int64_t) {
  auto &a = *static_cast<Extent *>(lower);
  const auto &b = *static_cast<const Extent *>(higher);
  a.most = std::max(a.most, b.most);
  a.announces = std::min(a.announces, b.announces);
}

/// Each rank fills its own part; the others' are zero.
static void combineParts(void *lower, const void *higher, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i)
    static_cast<char *>(lower)[i] |= static_cast<const char *>(higher)[i];
}

/// Both texts, from the ranks that have the messages, in one message.
int32_t Comparison::report(size_t first, size_t second, const std::string &before, const std::string &between,
                           const std::string &after) {
  Text texts[2] = {};
  size_t places[] = {first, second};
  for (int i = 0; i < 2; ++i) {
    if (places[i] == none || rankOf(places[i]) != context->rank)
      continue;
    // Records leave out what moves nothing between ranks, so the place among them is counted.
    auto left = static_cast<int64_t>(places[i]) % perRank;
    for (size_t index = 0; index < context->messages.size(); ++index) {
      const commrt_message &message = context->messages[index];
      const commrt_group &group = *context->groups.find(message.group)->second;
      if (group.index < 0 || message.peer == group.index || left-- > 0)
        continue;
      copyText(describe(static_cast<int64_t>(index)), texts[i].text, sizeof(texts[i].text));
      break;
    }
  }
  if (int32_t status = combineRanks(context, comparing, texts, sizeof(texts), combineParts))
    return status;
  return fail(context, COMMRT_ERR_MISMATCH, before + texts[0].text + between + texts[1].text + after);
}

/// The k-th send of a pair belongs to the k-th receive.
int32_t Comparison::pairUp() {
  using Key = std::tuple<uint64_t, int32_t, int32_t>;
  std::map<Key, std::pair<std::vector<size_t>, std::vector<size_t>>> pairs;
  for (size_t place = 0; place < records.size(); ++place) {
    const Record &record = records[place];
    if (!record.channel)
      continue;
    auto &pair = pairs[{record.channel, record.from, record.to}];
    (record.isSend ? pair.first : pair.second).push_back(place);
    auto &batches = lanes[{record.channel, rankOf(place)}].batches;
    batches.resize(record.batch + 1);
    batches[record.batch].push_back(place);
  }
  partners.assign(records.size(), none);
  for (auto &[key, pair] : pairs) {
    auto &[sends, receives] = pair;
    std::string sender = "rank " + std::to_string(std::get<1>(key)),
                receiver = "rank " + std::to_string(std::get<2>(key));
    for (size_t k = 0; k < std::max(sends.size(), receives.size()); ++k) {
      size_t send = k < sends.size() ? sends[k] : none, receive = k < receives.size() ? receives[k] : none;
      if (send == none || receive == none)
        return report(send, receive, "messages from " + sender + " to " + receiver + ": ",
                      send == none ? sender + " has no message for " : " has no receive on " + receiver, "");
      if (records[send].content != records[receive].content)
        return report(send, receive,
                      "messages between two members have one order on this backend, whatever their tags: message " +
                          std::to_string(k) + " from " + sender + " to " + receiver + " is ",
                      " there, and here ", "; coalesce them, or bring them into one order");
      partners[send] = receive;
      partners[receive] = send;
    }
  }
  return COMMRT_OK;
}

/// A batch ends when the batches that it meets have begun, which is when those before them have ended.
int32_t Comparison::runBatches() {
  auto laneOf = [&](size_t place) -> Lane & { return lanes[{records[place].channel, rankOf(place)}]; };
  auto hasBegun = [&](size_t place) { return static_cast<size_t>(records[place].batch) <= laneOf(place).done; };
  std::vector<Lane *> open;
  for (auto &[key, lane] : lanes)
    open.push_back(&lane);
  while (!open.empty()) {
    Lane &lane = *open.back();
    open.pop_back();
    if (lane.done == lane.batches.size())
      continue;
    const std::vector<size_t> &batch = lane.batches[lane.done];
    if (!std::all_of(batch.begin(), batch.end(), [&](size_t place) { return hasBegun(partners[place]); }))
      continue;
    ++lane.done;
    // Those that meet the next batch, or met this one, may go on.
    open.push_back(&lane);
    for (size_t place : batch)
      open.push_back(&laneOf(partners[place]));
    if (lane.done < lane.batches.size())
      for (size_t place : lane.batches[lane.done])
        open.push_back(&laneOf(partners[place]));
  }
  for (auto &[key, lane] : lanes) {
    if (lane.done == lane.batches.size())
      continue;
    const std::vector<size_t> &batch = lane.batches[lane.done];
    size_t stuck = *std::find_if(batch.begin(), batch.end(), [&](size_t place) { return !hasBegun(partners[place]); });
    Lane &other = laneOf(partners[stuck]);
    return report(stuck, other.batches[other.done].front(),
                  "messages wait for each other in a cycle: on rank " + std::to_string(rankOf(stuck)) + " ",
                  " waits for a message of rank " + std::to_string(rankOf(partners[stuck])) + " that comes after ",
                  " on the same stream: coalesce these");
  }
  return COMMRT_OK;
}

int32_t Comparison::gather() {
  Extent extent = {static_cast<int64_t>(context->messages.size()), context->announcesMessages};
  if (int32_t status = combineRanks(context, comparing, &extent, sizeof(extent), combineExtents))
    return status;
  perRank = extent.most;
  int64_t ranks = context->job->ranks;
  if (!extent.announces || extent.most == 0 || extent.most > mostBytes / static_cast<int64_t>(sizeof(Record)) / ranks)
    return COMMRT_OK;
  records.resize(ranks * perRank);
  if (std::string error = fillOwn(); !error.empty())
    return fail(context, COMMRT_ERR_INVALID, error);
  if (int32_t status = combineRanks(context, comparing, records.data(),
                                    static_cast<int64_t>(records.size() * sizeof(Record)), combineParts))
    return status;
  if (int32_t status = pairUp())
    return status;
  return runBatches();
}

int32_t commsched::runtime::compareMessages(commrt_context *context) {
  if (!(context->job->backend->flags & COMMRT_BACKEND_ORDERED))
    return COMMRT_OK;
  int32_t status = Comparison{context}.gather();
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
  for (int64_t i = 0; i < numMessages; ++i, messages += 8)
    unpacked.push_back({static_cast<int32_t>(messages[0]), static_cast<int32_t>(messages[1]), messages[2],
                        strings + messages[3], strings + messages[4], messages[5], messages[6], messages[7]});
  return commrt_program_messages(context, unpacked.data(), numMessages);
}
