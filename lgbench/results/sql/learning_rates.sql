-- The learning rates that tuning chose, by board, entry and task. Parameters: $name, $apart and $protocols as in values.sql.

select distinct
    board_of(family, task, $name, $apart) as board,
    m.task_version,
    m.protocol,
    m.entry,
    task,
    r.value as rate
from results as r
join models as m using (run_id, weights, family, task)
where r.metric = 'learning_rate'
    and list_contains($protocols, m.protocol)
    and belongs(family, task, $name)
    and isfinite(r.value)
order by all
