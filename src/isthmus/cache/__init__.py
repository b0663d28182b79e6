"""Which halo rows stay at a worker when memory does not hold all of them."""

from isthmus.cache.features import FeatureCache
from isthmus.cache.policy import POLICIES, CachePolicy

__all__ = ["POLICIES", "CachePolicy", "FeatureCache"]
