"""Operations of CTAs on their mbarriers, and the warp pipelines that follow from them."""
