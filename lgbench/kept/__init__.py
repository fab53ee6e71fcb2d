"""Models from kept weights: loaded, asked, probed."""
