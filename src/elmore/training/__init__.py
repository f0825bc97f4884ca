"""What training shares: the loop, runs, seeds, optimizers, the live report."""
