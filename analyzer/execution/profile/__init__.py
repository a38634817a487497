"""Results of execution that other packages read: counts, accesses, provenance, mbarrier pipelines."""
