-- The learning rates that tuning chose, by board, entry and task. Parameters: $name, $apart and $protocols as in values.sql.

select distinct
    board_of(m.family, m.task, $name, $apart) as board,
    m.task_version,
    m.protocol,
    m.entry,
    m.task,
    r.value as rate
from results as r
join models as m using (run_id, weights)
where r.metric = 'learning_rate'
    and list_contains($protocols, m.protocol)
    and belongs(m.family, m.task, $name)
    and isfinite(r.value)
order by all
