"""A small zoo of models and parallelisms, for graphs to try the scheduler on. Nothing else in the package needs it."""
