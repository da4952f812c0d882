"""What the nodes of an FX graph mean: which operators communicate, and what each node reads, writes and aliases.

This is the ground floor. It knows nothing of MLIR, of schedules, or of Inductor.
"""
