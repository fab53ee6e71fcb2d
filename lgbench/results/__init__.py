"""From run files to boards: DuckDB chooses and joins rows, and statistics of seeds rank entries."""
