"""Runs a command natively and on virtual threads, in turn, and says how they differ. The entry is scripts/compare."""
