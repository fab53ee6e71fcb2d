"""The published runs of lgbench, in a submission file beside this module: `lgbench leaderboard --with published` reads it."""
