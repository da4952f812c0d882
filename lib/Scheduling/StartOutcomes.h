//===- StartOutcomes.h - What became of every start, private to the solver ---------------------===//

#ifndef COMMSCHED_LIB_SCHEDULING_STARTOUTCOMES_H
#define COMMSCHED_LIB_SCHEDULING_STARTOUTCOMES_H

#include "CommSched/Scheduling/Scheduler.h"

namespace commsched {

/// Explains a result, start by start, in the order of the given problem. O((N + E) log N).
std::vector<StartOutcome> outcomesOfStarts(const Problem &problem, const ScheduleResult &result);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_STARTOUTCOMES_H
