-- Every model that has numbers, with the run that made it: one row an entry (with its weights), task and seed under a protocol,
-- and more where several runs are the same in all of these. Parameters as in values.sql, but for $metric.
select distinct
    board_of(family, task, $name, $apart) as board,
    task_version,
    protocol,
    entry,
    seed,
    task,
    run_id
from scores
where entry is not null
    and list_contains($protocols, protocol)
    and belongs(family, task, $name)
order by all
