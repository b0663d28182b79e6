"""Arrays and folders on disk: written whole or not at all, checksummed, memory-mapped."""
