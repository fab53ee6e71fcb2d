"""From run files to boards: DuckDB chooses and joins, statistics say what seeds can carry."""
