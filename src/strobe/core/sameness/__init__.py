"""Whether two policies act the same: what they are run on, how far their actions may be apart, and how far they are."""
