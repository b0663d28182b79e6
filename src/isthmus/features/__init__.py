"""Input feature rows: fixed for the run, kept, cached under a memory budget, dense or sparse."""

from isthmus.features.cache import FeatureCache
from isthmus.features.cache_policy import POLICIES, CachePolicy
from isthmus.features.fixed import FixedRows

__all__ = ["POLICIES", "CachePolicy", "FeatureCache", "FixedRows"]
