"""What CTAs tell their mbarriers, and the pipelines between warps that follow from it."""
