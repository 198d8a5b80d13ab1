"""What every job uses: its store, its snapshot of manifests, its options, its commits, its report."""
