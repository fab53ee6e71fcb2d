-- The runs that could be on the boards: one row a board, entry, seed and task. Parameters $name, $apart and $protocols as in
-- values.sql.
select distinct
    board_of(family, task, $name, $apart) as board,
    task_version,
    protocol,
    entry,
    seed,
    task
from models
where entry is not null
    and list_contains($protocols, protocol)
    and belongs(family, task, $name)
order by all
