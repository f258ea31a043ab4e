"""Optional auxiliary losses and samplers; the core loop does not depend on them."""
