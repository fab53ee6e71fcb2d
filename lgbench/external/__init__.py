"""Models that lgbench did not train: measured like its own, as a table and as a run file that boards show apart."""
