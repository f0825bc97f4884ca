"""What every part of elmore uses: safe files, JSON, locks, manifests, messages, processes."""
