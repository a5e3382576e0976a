"""The comparison: workloads, the clients that drive them, rounds in alternation, and the report."""
