"""What the rest of the package reads of an execution: counts, accesses, provenance, mbarrier pipelines."""
